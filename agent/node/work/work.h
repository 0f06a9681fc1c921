/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work: the node's worker threads and the tasks that are posted to them. A task runs on one worker,
 * and then its end is handled on the loop thread. If a worker's job does not return, another thread
 * takes over the worker's work, and the pod that blocks the job is reported to its targets. All
 * functions here run on the loop thread, except those that a task runs.
 */
#pragma once

#include "node/report/problems.h"

#include "lib/loop/loop.h"
#include "node/proc/proc.h"

/*
 * Limit for the blocked threads of one worker: as many as the pods of a node (PLAN_MAX_PODS of
 * plan). A namespace blocks at most one of them, so pods leave a thread that works. Processes of no
 * pod have no such bound: each of their cgroups counts as a namespace, or each process whose cgroup
 * is not known. If they reach the limit, the worker waits until a blocked job returns.
 */
#define LEFT_BEHIND_MAX	   2000
#define WORK_READ_LIMIT_NS (5 * NSEC_PER_SEC) /* a longer job of the files worker is reported */

struct blocking_job {
	const struct job *job;
	uint64_t ns; /* whose process the job reads: see struct charged */
};
/* The jobs of one worker that block their threads. */
struct left_behind {
	struct blocking_job jobs[LEFT_BEHIND_MAX];
	size_t n;
	/* the job that blocks the worker now, if the worker could not be replaced yet; else NULL */
	struct blocking_job waits;
	_Atomic uint64_t blocked[LEFT_BEHIND_MAX + 1]; /* the namespaces of all these; 0: free */
};

struct task;

/* Tasks that wait for the files worker, in a queue for each namespace. */
struct turns {
	struct turn_ns *namespaces;
	size_t bytes;	   /* of all tasks that wait */
	size_t n_waiting;  /* namespaces that have such a task */
	unsigned n_posted; /* tasks that the worker has */
	uint64_t now_ns;   /* the spent time of the namespace whose turn was last */
	bool posting;
};

/* The functions by which this module uses workers: those of lib/loop, or those of a test. */
struct work_threads {
	int (*create)(struct loop *l, const char *name, size_t max_bytes, struct worker **ret);
	struct worker *(*end)(struct worker *w);
	int (*post)(struct worker *w, struct job *j);
	void (*on_stuck)(struct worker *w, worker_stuck_fn *fn, void *arg);
	bool (*is_stuck)(struct worker *w);
	int (*replace)(struct worker *stuck, struct worker **ret);
	void (*give_time)(struct worker *w);
	bool (*is_current)(const struct worker *w);
};

/*
 * There is one per node. The caller sets the members of the first part. The memory is freed when
 * the last task has ended.
 */
struct work {
	struct loop *loop;
	const struct work_threads *threads; /* work_new() sets those of lib/loop */
	struct containers *containers;	    /* finds the pod of a process */
	struct report *report;		    /* NULL: blocked pods are not reported */

	struct worker *os;     /* makes calls to the kernel: BPF and cgroups */
	struct worker *files;  /* reads processes of pods; replaced if one of them blocks it */
	struct worker *tables; /* makes the parser child read files for unwind tables and names */
	struct worker *debug;  /* searches for debug files */
	struct worker *pipe;   /* gives samples their names and makes windows */
	struct worker *disk;   /* writes and reads the spool and the state file */
	/* attaches probes to processes and detaches them, which waits for RCU */
	struct worker *probing;
	/* NULL until the agent first asks a JVM for its perf map; such a job may block */
	struct worker *attach;
	bool attach_stopped; /* atomic; if set, jobs of `attach` that have not begun do nothing */
	struct left_behind asks_stuck; /* blocked jobs of `attach` */

	bool closing; /* all workers but `disk` have ended, so a posted task runs at once */
	bool closed;  /* set by work_free(): after it, the ends of tasks are not handled any more */

	/* private to work/ */
	unsigned refs; /* one reference of work_new(), and one per task */
	struct task *tasks, **tasks_tail;
	struct left_behind stuck; /* blocked jobs of `files` */
	struct turns turns;	  /* of the tasks that wait for `files` */
	struct problem_list unreadable;
	void (*on_files_replaced)(void *arg);
	void *on_files_replaced_arg;
};
/*
 * work_new() creates no workers. work_start_workers() does that and returns 0 or a negative errno.
 */
struct work *work_new(struct loop *l);
int work_start_workers(struct work *w, size_t disk_mailbox_bytes);
/*
 * Ends all workers but `disk`, and handles the ends of the tasks that have run. From now on a
 * posted task runs at once.
 */
void work_close(struct work *w);
/*
 * The caller's last call, after `disk` has ended. If a task is still blocked, struct work stays in
 * memory, and nothing is called when the task ends. Returns NULL.
 */
struct work *work_free(struct work *w);

/* ---- tasks ---- */
struct task {
	struct job job;
	struct work *work;
	void (*run)(struct task *); /* on the worker; may be NULL */
	/* on the loop thread; frees what the task owns, but not the task */
	void (*done)(struct task *);
	/* it did nothing: the worker's mailbox was full, or its namespace blocks a thread */
	bool refused;
	bool ran, handled;
	struct task *next, **prev;
};
/*
 * Aborts if neither this worker runs the caller nor, after the workers have ended, the loop thread.
 * Not for a worker that work_left_behind() replaces.
 */
#define work_assert_on(work, worker) assert_se(work_runs_on(work, (work)->worker))
bool work_runs_on(const struct work *work, const struct worker *w);
/*
 * Takes ownership of t. n_bytes counts towards the limit of the worker's mailbox. After
 * work_close() t runs at once.
 */
void work_post(struct work *w, struct worker *to, struct task *t, size_t n_bytes);

/* ---- tasks that read a process ---- */
/*
 * A task for the files worker. If it blocks the worker, this is reported to the targets of its pod
 * (ProcessUnreadable). As long as a job for a namespace is blocked, other jobs for it are refused.
 * So a namespace blocks at most one thread. Namespaces take turns: the tasks of one that has used
 * much of the worker's time wait for those of others. A namespace's tasks that wait may have half
 * of the bytes that those of others leave; further ones are refused.
 */
struct process_task {
	struct task task;
	uint32_t tgid;
	uint64_t cgroup_id;
	/* private to work/ */
	void (*run)(struct task *t);  /* the caller's task.run */
	void (*done)(struct task *t); /* the caller's task.done */
	void (*late)(struct task *t); /* task.done, for a task that was blocked */
	uint64_t ns;		      /* of struct charged; of the host, each process has its own */
	bool blocked;
	bool has_turn;	  /* the worker has it */
	uint64_t took_ns; /* how long the worker ran it */
	size_t turn_bytes;
	struct process_task *next_turn;
};
void work_post_process(struct work *w, struct process_task *p, size_t n_bytes);
/* Returns why the task was refused, as a label of counters. */
const char *work_process_refusal(const struct process_task *p);
/*
 * Sets fn, which is called when another thread has become the files worker. The jobs of the earlier
 * thread may never end.
 */
void work_on_files_replaced(struct work *w, void (*fn)(void *arg), void *arg);
/* To be called once a second. */
void work_tick(struct work *w);

/* ---- workers that are blocked ---- */
/*
 * To be called when job j blocks *w. Another thread takes over at once. If no thread can be
 * created, one takes over later: work_left_behind_again(). Returns whether *w is another worker
 * now.
 */
bool work_left_behind(struct work *work, struct left_behind *l, struct worker **w,
		      const struct job *j, uint64_t ns);
/*
 * Whether a job for the namespace blocks a thread. Then the caller begins no other one for it. Any
 * thread: a job calls this when it begins, because it may have been posted before.
 */
bool work_is_blocked(const struct left_behind *l, uint64_t ns);
/*
 * To be called once a second, for the case that no new thread could be created until now. Returns
 * whether *w is another worker now.
 */
bool work_left_behind_again(struct work *work, struct left_behind *l, struct worker **w);
/*
 * To be called for each job that ends, blocked before or not. Returns whether *w is another worker
 * now.
 */
bool work_left_behind_ended(struct work *work, struct left_behind *l, struct worker **w,
			    const struct job *j);
