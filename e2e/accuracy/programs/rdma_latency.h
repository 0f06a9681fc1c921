/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_latency: what the programs in C and C++ share that know how long their requests are under
 * way. The stand-in ends a request after the time that the program sets. The program looks at the
 * clock before and after each call that posts or polls, so it knows two limits of the latency,
 * which it sums up for each function. A line of TOLD has the event "rdma-latency:OPERATION", the
 * middle of the two sums as MICROSECONDS~DISTANCE, and the queue pair's "TYPE@DEVICE".
 */
#pragma once

#include <time.h>

#include "rdma.h"

#define N_PAIRS 32		  /* that the program makes */
#define NEVER	(3600 * 1000000L) /* microseconds that no request of a test waits for */

static __typeof__(&standin_rdma_set_delay) set_delay;
static __typeof__(&standin_rdma_end_with) end_with;

static inline void open_latency(void)
{
	open_devices();
	set_delay = (__typeof__(set_delay))dlsym(RTLD_DEFAULT, "standin_rdma_set_delay");
	end_with = (__typeof__(end_with))dlsym(RTLD_DEFAULT, "standin_rdma_end_with");
}

/* Requests that this thread posts from now on take so long. */
static inline void takes_us(long us)
{
	set_delay((uint64_t)us * 1000);
}

/*
 * Shows podflame the functions of a device, by a queue pair, and waits until it probes those that
 * post and poll. podflame must see how a queue pair is made to know all that it posts, so those
 * that are measured are made later.
 */
static inline void show_device(int device)
{
	struct ibv_qp *qp = make_pair(device, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_READ);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	await_probe((void *)qp->context->ops.post_send);
	await_probe((void *)qp->context->ops.poll_cq);
	await_probe((void *)ex->wr_complete);
}

/* ---- what is known ---- */

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/*
 * The latencies of requests of one function and operation. A sum of latencies is a sum of times at
 * the end less one of times at the beginning, so these need not be matched. The sums may wrap.
 */
struct latency {
	uint64_t least_ns, most_ns;
	uint64_t n; /* requests that have ended */
};
struct posting { /* a function that posts */
	struct latency of[_STANDIN_OPERATIONS];
};
/* By device and number of the queue pair: the function whose requests it has. */
static struct posting *posting_at[2][N_PAIRS];

static inline struct posting **posting_of(const struct ibv_context *context, uint32_t qp_num)
{
	return &posting_at[context == contexts[1]][qp_num];
}

/* A request has been accepted, between these times, that will have a completion. */
static inline void begins(struct posting *p, int operation, uint64_t before, uint64_t after)
{
	__atomic_sub_fetch(&p->of[operation].least_ns, after, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&p->of[operation].most_ns, before, __ATOMIC_RELAXED);
}

static inline int operation_of_completion(const struct ibv_wc *wc)
{
	switch (wc->opcode) {
	case IBV_WC_SEND:
		return STANDIN_SEND;
	case IBV_WC_RDMA_WRITE:
		return STANDIN_WRITE;
	case IBV_WC_RDMA_READ:
		return STANDIN_READ;
	default:
		return STANDIN_ATOMIC;
	}
}

static inline void ends(const struct ibv_cq *cq, const struct ibv_wc *wc, uint64_t before,
			uint64_t after)
{
	struct latency *l;

	if (wc->status != IBV_WC_SUCCESS || wc->opcode == IBV_WC_RECV)
		return;
	l = &(*posting_of(cq->context, wc->qp_num))->of[operation_of_completion(wc)];
	__atomic_add_fetch(&l->least_ns, before, __ATOMIC_RELAXED);
	__atomic_add_fetch(&l->most_ns, after, __ATOMIC_RELAXED);
	__atomic_add_fetch(&l->n, 1, __ATOMIC_RELAXED);
}

/* Polls at most `max` completions. Returns how many there were. */
static inline int take(struct ibv_cq *cq, int max)
{
	uint64_t before = now_ns();
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(cq, max < 16 ? max : 16, wc);
	uint64_t after = now_ns();

	for (int i = 0; i < n; i++)
		ends(cq, &wc[i], before, after);
	return n;
}

/*
 * Polls until there have been n completions. It sleeps between polls, because a thread that uses
 * much CPU time is more often preempted while it polls.
 */
static inline void take_all(struct ibv_cq *cq, int n)
{
	while (n) {
		int taken = take(cq, n);

		n -= taken;
		if (!taken)
			usleep(50);
	}
}

/* Prints what the function had. An operation of which no request has ended has no line. */
static inline void tell(const char *name, const struct posting *p, const char *queue)
{
	for (int i = 0; i < _STANDIN_OPERATIONS; i++) {
		const struct latency *l = &p->of[i];
		uint64_t distance_ns = (l->most_ns - l->least_ns) / 2;

		if (l->n) /* each latency may be rounded to microseconds */
			fprintf(told, "rdma-latency:%s %s %llu~%llu %s\n", operation_names[i], name,
				(unsigned long long)(l->least_ns + distance_ns) / 1000,
				(unsigned long long)(distance_ns / 1000 + l->n), queue);
	}
}

static inline void tell_nothing(const char *name)
{
	fprintf(told, "rdma-latency:send %s 0\n", name);
}
