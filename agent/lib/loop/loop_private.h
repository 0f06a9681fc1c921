/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/loop: sockets and descriptors on the loop. All of them are in one epoll set, which
 * libwebsockets polls as a single descriptor: the raw descriptor role of 4.1.6 loses a write
 * interest that is renewed inside its own callback, and cannot stop reading.
 */
#pragma once

#include <pthread.h>
#include <sys/epoll.h>

#include "lib/loop/loop.h"

typedef void io_fn(uint32_t events, void *arg); /* EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP */
struct io {
	struct loop *loop;
	int fd; /* borrowed */
	uint32_t events;
	io_fn *fn;
	void *arg;
};
int io_add(struct loop *l, struct io *io, int fd, uint32_t events, io_fn *fn, void *arg);
void io_set(struct io *io, uint32_t events);
void io_del(struct io *io); /* before fd is closed; harmless when not added */

/* For tests whose loop does not run: the timer that is due first, and in how long; NULL: none. */
struct timer *loop_next_timer(const struct loop *l, uint64_t *ret_delay_ns);

/* Around every callback into a caller's code: loop_longest_..._ns report these times. */
uint64_t loop_enter(void);
void loop_leave(struct loop *l, uint64_t entered_ns);

#define N_STALLS 21 /* half minutes: ten minutes, and the one that is not over */
struct stalls {
	uint64_t ever_ns; /* of a callback */
	struct {
		uint64_t nr, longest_ns; /* nr: the number of the half minute */
	} recent[N_STALLS];
};
void stalls_add(struct stalls *s, uint64_t entered_ns, uint64_t now_ns);
const struct stalls *loop_stalls(const struct loop *l);

/*
 * Starts a thread without signals: the loop's thread gets them. ret NULL: the thread is detached.
 */
int thread_start(pthread_t *ret, void *(*main)(void *), void *arg);
void thread_name(const char *name); /* of the caller */

struct worker *loop_workers(const struct loop *l); /* the first; worker_next has the others */
struct worker_look {
	const char *name;
	struct worker_stats stats;
	uint64_t cpu_ns, running_ns; /* running_ns: the job of now, 0: none */
	bool stuck;		     /* past its deadline */
	bool tended;		     /* a listener handles that: worker_on_stuck */
};
void worker_look(struct worker *w, struct worker_look *ret);
void loop_add_worker(struct loop *l, struct worker *w);
void loop_remove_worker(struct loop *l, struct worker *w);
struct worker *worker_next(const struct worker *w);
void worker_set_next(struct worker *w, struct worker *next);
