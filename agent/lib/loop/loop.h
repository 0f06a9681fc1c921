/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop: the event loop of a process (libwebsockets), timers, file descriptors, signals, and worker
 * threads with bounded queues. Only this directory includes libwebsockets or pthread.
 *
 * All functions here run on the loop thread unless their comment names another thread. Callbacks
 * never wait for a pod, a disk or RCU: such work goes to a worker.
 */
#pragma once

#include "lib/base/base.h"

struct loop;

int loop_new(struct loop **ret);
struct loop *loop_free(struct loop *l); /* Stops workers and closes connections. Returns NULL. */
/* runs until loop_stop(); returns the code of loop_stop() */
int loop_run(struct loop *l);
void loop_stop(struct loop *l, int code);
/*
 * Aborts if another thread than the loop thread runs this. The functions of lib/loop that belong to
 * the loop thread assert it themselves.
 */
#define loop_assert(l) assert_se(loop_is_current(l))
bool loop_is_current(const struct loop *l);	/* the caller runs on the loop thread */
/*
 * Calls fn(signo) on the loop thread. A signal has at most one handler. Blocks the signal in all
 * threads.
 */
typedef void loop_signal_fn(int signo, void *arg);
int loop_on_signal(struct loop *l, int signo, loop_signal_fn *fn, void *arg);

/* ---- timers: members of their owners; they fire once, and may be set again then ---- */
typedef void timer_fn(void *arg);
struct timer {
	struct loop *loop;
	timer_fn *fn;
	void *arg;
	void *impl;
};
/*
 * Arms t, or arms it again, to call fn(arg) once after delay_ns (monotonic). loop_free cancels all
 * timers.
 */
void timer_set(struct loop *l, struct timer *t, uint64_t delay_ns, timer_fn *fn, void *arg);
void timer_cancel(struct timer *t);		/* does nothing if t is not set; t may be zeroed */

/* ---- readable file descriptors ---- */
struct watch;
typedef void watch_fn(int fd, void *arg);
/* the watch has a duplicate of fd */
int watch_new(struct loop *l, int fd, watch_fn *fn, void *arg, struct watch **ret);
struct watch *watch_free(struct watch *w);

/* ---- workers ---- */
/*
 * A worker is a thread that runs jobs in order. run() of a job runs on the worker, and done() on
 * the loop thread. The jobs in the queue may have at most max_bytes bytes together (n_bytes of
 * each). If a job does not fit, or too many jobs wait, worker_post returns -ENOBUFS and leaves the
 * job to the caller, which counts the loss. Any thread may post. If a job runs longer than
 * deadline_ns (0: no limit), the function set with worker_on_stuck is called once. Such a job
 * cannot be ended; it can be left on its thread (worker_replace), and its done() runs if it ever
 * ends.
 */
struct worker;
struct job {
	void (*run)(struct job *);		/* runs on the worker */
	/* Runs on the loop thread and frees the job. May be NULL: then run frees it. */
	void (*done)(struct job *);
	size_t n_bytes;
	uint64_t deadline_ns;			/* limit for the time from the start of run */
	struct job *next;			/* for the queue */
};
struct worker_stats {
	uint64_t n_queued, n_bytes_queued, n_done, n_refused, busy_ns, longest_ns;
};
int worker_new(struct loop *l, const char *name, size_t max_bytes, struct worker **ret);
struct worker *worker_free(struct worker *w);	/* Runs the queued jobs, then joins the thread. */
int worker_post(struct worker *w, struct job *j);
/*
 * If there is not enough CPU time for all threads, this worker's gets less than the others of the
 * process: about a third of what each of those gets.
 */
void worker_yield(struct worker *w);
void worker_stats(struct worker *w, struct worker_stats *ret);
typedef void worker_stuck_fn(struct worker *w, struct job *j, void *arg);
/*
 * If fn is not set, a job past its deadline makes /healthz ask for a restart of the process. With
 * fn, the owner handles such jobs itself.
 */
void worker_on_stuck(struct worker *w, worker_stuck_fn *fn, void *arg);
bool worker_is_stuck(struct worker *w); /* whether its job is past its deadline */
/* May be called in worker_stuck_fn: the job makes progress, so its deadline_ns begins again now. */
void worker_give_time(struct worker *w);
/*
 * Replaces a worker whose job has missed its deadline. The new worker has the same name, limit and
 * worker_stuck_fn, and runs the queued jobs. The old one ends after its job, or with the loop, and
 * adds its counts to those of the new one. The caller must not free the old one.
 */
int worker_replace(struct worker *stuck, struct worker **ret);
/*
 * Aborts unless the caller runs on the thread of w, or on the thread of a worker that w has
 * replaced.
 */
#define worker_assert(w) assert_se(worker_is_current(w))
/*
 * whether the caller runs on the thread of w or of a worker that w has replaced; any thread may ask
 */
bool worker_is_current(const struct worker *w);
/* Runs j->done on the loop thread. Any thread may call it. */
void loop_post(struct loop *l, struct job *j);

/*
 * The longest time for which one callback kept the loop busy: in the last 10 to 10.5 minutes, and
 * since loop_new.
 */
uint64_t loop_longest_recent_ns(const struct loop *l);
uint64_t loop_longest_ever_ns(const struct loop *l);
