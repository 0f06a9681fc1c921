/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop: the event loop of a process (libwebsockets), timers, file descriptors, signals, and worker
 * threads behind bounded queues. Only this directory includes libwebsockets or pthread.
 *
 * Everything here runs on the loop thread unless it says otherwise. Callbacks never wait for a pod,
 * a disk or RCU: such work goes to a worker.
 */
#pragma once

#include "lib/base/base.h"

struct loop;

int loop_new(struct loop **ret);
struct loop *loop_free(struct loop *l); /* Stops workers and closes connections. Returns NULL. */
int loop_run(struct loop *l);			/* until loop_stop(); returns its code */
void loop_stop(struct loop *l, int code);
/*
 * Aborts where another thread than the loop's runs this. The functions of lib/loop that belong to
 * the loop thread assert it themselves.
 */
#define loop_assert(l) assert_se(loop_is_current(l))
bool loop_is_current(const struct loop *l);	/* the caller runs on the loop thread */
/* fn(signo) on the loop thread; one handler a signal. Blocks the signal in all threads. */
typedef void loop_signal_fn(int signo, void *arg);
int loop_on_signal(struct loop *l, int signo, loop_signal_fn *fn, void *arg);

/* ---- timers: embedded, re-armed by the callback ---- */
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
void timer_cancel(struct timer *t);		/* harmless when not armed; zeroed t is fine */

/* ---- readable file descriptors ---- */
struct watch;
typedef void watch_fn(int fd, void *arg);
int watch_new(struct loop *l, int fd, watch_fn *fn, void *arg, struct watch **ret); /* dups fd */
struct watch *watch_free(struct watch *w);

/* ---- workers ---- */
/*
 * A thread that runs jobs in order. A job is {run on the worker, done on the
 * loop thread}; n_bytes counts against the mailbox's limit. worker_post returns
 * -ENOBUFS when the mailbox is full: job untouched, the caller counts the drop.
 * Any thread may post. A job that is past its deadline (ns, 0: none) is reported
 * once by worker_on_stuck; it cannot be killed, only abandoned (its done still runs).
 */
struct worker;
struct job {
	void (*run)(struct job *);		/* worker thread */
	/* Runs on the loop thread and frees the job. May be NULL: then run frees it. */
	void (*done)(struct job *);
	size_t n_bytes;
	uint64_t deadline_ns;			/* relative to the start of run */
	struct job *next;			/* the mailbox's */
};
struct worker_stats {
	uint64_t n_queued, n_bytes_queued, n_done, n_refused, busy_ns, longest_ns;
};
int worker_new(struct loop *l, const char *name, size_t max_bytes, struct worker **ret);
struct worker *worker_free(struct worker *w);	/* Runs the queued jobs, then joins. */
int worker_post(struct worker *w, struct job *j);
void worker_stats(struct worker *w, struct worker_stats *ret);
typedef void worker_stuck_fn(struct worker *w, struct job *j, void *arg);
/*
 * Without it, a job past its deadline makes /healthz ask for a restart of the process. An owner
 * that sets it handles such jobs itself.
 */
void worker_on_stuck(struct worker *w, worker_stuck_fn *fn, void *arg);
bool worker_is_stuck(struct worker *w); /* its job is past its deadline */
/* From on_stuck: the job makes progress, and has its deadline once more, from now on. */
void worker_give_time(struct worker *w);
/*
 * Replaces a worker whose job has missed its deadline: the new one has the same name, limit and
 * on_stuck, and runs the queued jobs. The old one ends after its job, or with the loop, and gives
 * its counts to the new one. Nobody else may free it.
 */
int worker_replace(struct worker *stuck, struct worker **ret);
/* Aborts where neither the thread of w runs this nor one in whose place w is (worker_replace). */
#define worker_assert(w) assert_se(worker_is_current(w))
/* the caller runs on such a thread; any thread may ask */
bool worker_is_current(const struct worker *w);
/* Runs j->done on the loop thread; any thread. */
void loop_post(struct loop *l, struct job *j);

/* Longest time one callback kept the loop: in the last 10 to 10.5 minutes, and since loop_new. */
uint64_t loop_longest_recent_ns(const struct loop *l);
uint64_t loop_longest_ever_ns(const struct loop *l);
