/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/loop: sockets and descriptors on the loop. All of them are in one epoll set, and
 * libwebsockets polls only this set. Its own role for raw descriptors (4.1.6) forgets a request for
 * EPOLLOUT that is made inside its callback, and cannot stop reading.
 */
#pragma once

#include <pthread.h>
#include <sys/epoll.h>

#include "lib/loop/loop.h"

typedef void io_fn(uint32_t events, void *arg); /* events: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP */
struct io {
	struct loop *loop;
	int fd; /* borrowed */
	uint32_t events;
	io_fn *fn;
	void *arg;
};
int io_add(struct loop *l, struct io *io, int fd, uint32_t events, io_fn *fn, void *arg);
void io_set(struct io *io, uint32_t events);
void io_del(struct io *io); /* called before fd is closed; does nothing if io is not added */

/*
 * For tests whose loop does not run. Returns the timer that is due first (NULL: none), and the time
 * until it is due.
 */
struct timer *loop_next_timer(const struct loop *l, uint64_t *ret_delay_ns);

/*
 * Called before and after every callback into a caller's code. loop_longest_recent_ns() and
 * loop_longest_ever_ns() report the longest time between the two calls.
 */
uint64_t loop_enter(void);
void loop_leave(struct loop *l, uint64_t entered_ns);

/* number of half minutes: ten minutes, and the half minute that has just begun */
#define N_STALLS 21
struct stalls {
	uint64_t ever_ns; /* the longest time of one callback since the start */
	struct {
		uint64_t nr, longest_ns; /* nr: the number of the half minute */
	} recent[N_STALLS];
};
void stalls_add(struct stalls *s, uint64_t entered_ns, uint64_t now_ns);
const struct stalls *loop_stalls(const struct loop *l);

/*
 * Starts a thread that gets no signals: the loop's thread gets them. ret NULL: the thread is
 * detached.
 */
int thread_start(pthread_t *ret, void *(*main)(void *), void *arg);
void thread_name(const char *name); /* sets the name of the calling thread */

/* the first worker; worker_next returns the others */
struct worker *loop_workers(const struct loop *l);
struct worker_look {
	const char *name;
	struct worker_stats stats;
	uint64_t cpu_ns, cpu_wait_ns; /* cpu_wait_ns: how long the thread waited for a CPU */
	uint64_t running_ns;	      /* how long the current job has run, 0: no job */
	bool stuck;		      /* the worker's job has missed its deadline */
	/* worker_on_stuck was called, so the owner handles blocked jobs */
	bool tended;
};
/* Reads a file of /proc, so only for metrics. worker_look returns what was read last. */
void worker_read_cpu_wait(struct worker *w);
void worker_look(struct worker *w, struct worker_look *ret);
void loop_add_worker(struct loop *l, struct worker *w);
void loop_remove_worker(struct loop *l, struct worker *w);
struct worker *worker_next(const struct worker *w);
void worker_set_next(struct worker *w, struct worker *next);
