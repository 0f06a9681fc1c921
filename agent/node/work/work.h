/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work: the node's worker threads and the jobs that go to them. A task runs on one worker and then ends on the loop
 * thread. A worker whose job does not come back is replaced, and the pod that blocks it is told to its targets. Every
 * function here is for the loop thread, but for what a task runs.
 */
#pragma once

#include "node/report/problems.h"

#include "lib/loop/loop.h"
#include "node/proc/proc.h"

#define LEFT_BEHIND_MAX	   4 /* threads, of one worker */
#define WORK_READ_LIMIT_NS (5 * NSEC_PER_SEC) /* of a task that reads files of a process: later ones are told */

/* Jobs of one worker that do not come back. */
struct left_behind {
	const struct job *jobs[LEFT_BEHIND_MAX];
	size_t n;
	const struct job *waits; /* the worker is stuck with it, and there is no other yet */
};

struct task;

/* One a node. The caller sets the first part; its memory goes when the last task has ended. */
struct work {
	struct loop *loop;
	struct containers *containers;   /* of pods that block a worker; may be NULL in tests */
	struct report *report; /* the same; NULL: nobody is told */

	struct worker *os;     /* calls the kernel: BPF and cgroups */
	struct worker *files;  /* reads processes of pods; may be replaced when one of them blocks it */
	struct worker *tables; /* has the parse child read files for unwind tables and names */
	struct worker *debug;  /* looks for debug files */
	struct worker *pipe;   /* names samples and makes windows */
	struct worker *disk;   /* spool and state */
	struct worker *probing; /* attaches probes to processes and takes them away: that waits for RCU */
	struct worker *attach;	/* NULL until a JVM is asked for its perf map; the JVM may block it */
	bool attach_stopped;	/* atomic: jobs of attach that have not begun are left */

	bool closing; /* all workers but disk have ended: a task that is posted runs at once */
	bool closed;  /* nothing is left to be told */

	/* private */
	unsigned refs; /* work_new's and one a task */
	struct task *tasks, **tasks_tail;
	struct left_behind stuck;		       /* of files */
	_Atomic uint64_t blocked[LEFT_BEHIND_MAX + 1]; /* pods whose jobs are left behind or stuck; 0: none */
	struct problem_list unreadable;
	void (*on_files_replaced)(void *arg);
	void *on_files_replaced_arg;
};
/* Without workers: work_start_workers makes them. */
struct work *work_new(struct loop *l);
int work_start_workers(struct work *w, size_t disk_mailbox_bytes);
/* Ends all workers but disk. Tasks that have run end here; from now on a task runs where it is posted. */
void work_close(struct work *w);
/*
 * After the last use by the caller; disk has ended. A task that is stuck keeps the memory of struct work, and tells
 * nothing when it ends.
 */
struct work *work_free(struct work *w);

/* ---- tasks ---- */
struct task {
	struct job job;
	struct work *work;
	void (*run)(struct task *);  /* on the worker; may be NULL */
	void (*done)(struct task *); /* on the loop; releases what is inside, the task itself is freed after */
	bool refused;		     /* the worker's mailbox was full: run was not called */
	bool ran, handled;
	struct task *next, **prev;
};
/* Takes t. n_bytes counts against the worker's mailbox. While the node closes t runs at once. */
void work_post(struct work *w, struct worker *to, struct task *t, size_t n_bytes);

/* ---- tasks that read a process ---- */
/*
 * For the files worker: a process that blocks it is told to its targets (ProcessUnreadable), and keeps no second
 * thread: as long as one job of a pod is left behind, the pod's other jobs are refused.
 */
struct process_task {
	struct task task;
	uint32_t tgid;
	uint64_t cgroup_id;
	/* private */
	void (*run)(struct task *t);  /* task.run */
	void (*late)(struct task *t); /* task.done, of one that was stuck */
	uint64_t pod;
	bool blocked;
};
void work_post_process(struct work *w, struct process_task *p, size_t n_bytes);
/* Why it was refused, for counters. */
const char *work_process_refusal(const struct process_task *p);
/* fn: another thread is the files worker now; jobs of the one before may never end. */
void work_on_files_replaced(struct work *w, void (*fn)(void *arg), void *arg);
/* Every second. */
void work_tick(struct work *w);

/* ---- workers that are stuck ---- */
/*
 * j is stuck in *w. Another worker takes its place at once, or, if too many threads are left behind already, when one
 * of them is back. true: another is in its place.
 */
bool work_left_behind(struct left_behind *l, struct worker **w, const struct job *j);
/* Every second: there may have been no thread to be had. true: likewise. */
bool work_left_behind_again(struct left_behind *l, struct worker **w);
/* Of every job that ends, stuck or not, while *w is not about to end itself. true: likewise. */
bool work_left_behind_ended(struct left_behind *l, struct worker **w, const struct job *j);
