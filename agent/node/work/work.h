/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work: the node's worker threads and the tasks that are posted to them. A task runs on one worker
 * and then ends on the loop thread. If a worker's job does not come back, another thread takes its
 * place, and the pod that blocks it is reported to its targets. All functions here are for the loop
 * thread, except those that a task runs.
 */
#pragma once

#include "node/report/problems.h"

#include "lib/loop/loop.h"
#include "node/proc/proc.h"

#define LEFT_BEHIND_MAX	   4		      /* threads of one worker */
#define WORK_READ_LIMIT_NS (5 * NSEC_PER_SEC) /* of the files worker: a longer read is reported */

/* Jobs of one worker that do not come back. */
struct left_behind {
	const struct job *jobs[LEFT_BEHIND_MAX];
	size_t n;
	/* the worker is stuck with this job and could not be replaced yet */
	const struct job *waits;
};

struct task;

/* How workers are used: by the functions of lib/loop with these names, or by those of a test. */
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
 * One per node. The caller sets the first part. The memory is freed when the last task has ended.
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
	/* NULL until the agent asks a JVM for its perf map, which may block */
	struct worker *attach;
	bool attach_stopped; /* atomic: jobs of `attach` that have not begun do nothing */

	bool closing; /* all workers but `disk` have ended: a posted task runs at once */
	bool closed;  /* set by work_free(): ends of tasks are not handled any more */

	/* private to work/ */
	unsigned refs; /* one of work_new(), and one per task */
	struct task *tasks, **tasks_tail;
	struct left_behind stuck; /* jobs of `files` */
	/* hashes of the pods whose jobs are left behind or stuck; 0: free */
	_Atomic uint64_t blocked[LEFT_BEHIND_MAX + 1];
	struct problem_list unreadable;
	void (*on_files_replaced)(void *arg);
	void *on_files_replaced_arg;
};
/* Creates no workers: work_start_workers() does. That one returns 0 or a negative errno. */
struct work *work_new(struct loop *l);
int work_start_workers(struct work *w, size_t disk_mailbox_bytes);
/*
 * Ends all workers but `disk` and the tasks that have run. From now on a posted task runs at once.
 */
void work_close(struct work *w);
/*
 * For the caller's last use, after `disk` has ended. A task that is still stuck keeps the memory of
 * struct work and calls nothing when it ends. Returns NULL.
 */
struct work *work_free(struct work *w);

/* ---- tasks ---- */
struct task {
	struct job job;
	struct work *work;
	void (*run)(struct task *); /* on the worker; may be NULL */
	/* on the loop thread; frees what the task holds, not the task */
	void (*done)(struct task *);
	bool refused; /* the worker's mailbox was full, and run was not called */
	bool ran, handled;
	struct task *next, **prev;
};
/*
 * Aborts unless this worker of work runs this, or, once the workers have ended, the loop thread.
 * Not for a worker that work_left_behind() replaces.
 */
#define work_assert_on(work, worker) assert_se(work_runs_on(work, (work)->worker))
bool work_runs_on(const struct work *work, const struct worker *w);
/*
 * Takes t over. n_bytes counts against the limit of the worker's mailbox. After work_close() t runs
 * at once.
 */
void work_post(struct work *w, struct worker *to, struct task *t, size_t n_bytes);

/* ---- tasks that read a process ---- */
/*
 * A task for the files worker. If it blocks the worker, it is reported to its pod's targets
 * (ProcessUnreadable). As long as a job of a pod is left behind, other jobs of that pod are
 * refused, so a pod blocks one thread at most.
 */
struct process_task {
	struct task task;
	uint32_t tgid;
	uint64_t cgroup_id;
	/* private to work/ */
	void (*run)(struct task *t);  /* the caller's task.run */
	void (*late)(struct task *t); /* the caller's task.done, of a task that was stuck */
	uint64_t pod;
	bool blocked;
};
void work_post_process(struct work *w, struct process_task *p, size_t n_bytes);
/* The reason for a refused task, as a label of counters. */
const char *work_process_refusal(const struct process_task *p);
/*
 * Sets fn, which is called when another thread has become the files worker. Jobs of the previous
 * thread may never end.
 */
void work_on_files_replaced(struct work *w, void (*fn)(void *arg), void *arg);
/* The caller calls this once a second. */
void work_tick(struct work *w);

/* ---- workers that are stuck ---- */
/*
 * The caller says that job j is stuck in *w. Another worker takes its place at once, or, if too
 * many threads are left behind already, when one of them is back. Returns whether *w is another
 * worker now.
 */
bool work_left_behind(struct work *work, struct left_behind *l, struct worker **w,
		      const struct job *j);
/*
 * The caller calls this once a second, for the case that no thread could be created before. Returns
 * the same.
 */
bool work_left_behind_again(struct work *work, struct left_behind *l, struct worker **w);
/*
 * The caller calls this for each job that ends, stuck or not, as long as *w is not about to end.
 * Returns the same.
 */
bool work_left_behind_ended(struct work *work, struct left_behind *l, struct worker **w,
			    const struct job *j);
