/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a provider share. There is no other computer: a request to send ends as soon as
 * it is accepted, or after the time that the test has set, and each request to receive gets a
 * message that fills its buffers. No byte is moved. A queue has room for a limited number of
 * requests. A request occupies its place until its completion is polled, or that of a later request
 * of the queue.
 */
#pragma once

#include <stdbool.h>

#include "../internal.h"

struct completion_queue {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	pthread_mutex_t lock; /* from ibv_start_poll() to ibv_end_poll(), too */
	struct completion {
		struct ibv_wc wc;
		struct work_queue *queue; /* NULL: its queue pair was reset or destroyed */
		unsigned int places;	  /* that this completion frees in the queue */
	} *ring;
	unsigned int first, n;	   /* in the ring, which has room for cq.cqe */
	struct work_queue *queues; /* whose requests end here */
	unsigned int n_flying;	   /* requests of all these queues */
	bool armed;		   /* the next completion is an event of the channel */
	struct ibv_wc current;	   /* of an extended queue: what ibv_wc_read_*() reads */
};

/* A request of ibv_post_send(), ibv_post_recv() or ibv_wr_*(). */
struct request {
	uint64_t wr_id, bytes;
	enum standin_operation operation;
	bool signaled; /* it has a completion even if it succeeds */
};

/* The lock of the completion queue guards what is in flight. */
struct work_queue {
	struct completion_queue *cq;
	struct queue_pair *pair; /* of a shared receive queue: NULL until it has one */
	unsigned int capacity, max_sge;
	_Atomic unsigned int used;
	unsigned int unsignaled; /* requests that ended since the last one with a completion */
	struct flight {
		struct request request;
		uint64_t end_ns; /* CLOCK_MONOTONIC; it ends later if an earlier request does */
		enum ibv_wc_status status;
	} *flights; /* requests that have not ended yet, in room for `capacity` */
	unsigned int first, n_flying;
	struct work_queue *next; /* in the list of the completion queue */
};

struct queue_pair {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
	};
	pthread_mutex_t lock; /* from ibv_wr_start() to ibv_wr_complete() or ibv_wr_abort(), too */
	struct work_queue sends, receives;
	unsigned int max_inline;
	bool all_signaled, extended;
	_Atomic bool failed; /* a request has ended with an error, or the state is IBV_QPS_ERR */
	/* ---- extended.c: the requests since ibv_wr_start(), in room for `sends.capacity` ---- */
	struct request *built;
	unsigned int n_built;
	int error; /* of the first request that cannot be built; 0: none */
};

/* ---- completions.c ---- */
void completions_set_ops(struct ibv_context_ops *ops);
struct ibv_cq *cq_create(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel,
			 void *cq_context);
void cq_destroy(struct ibv_cq *cq);
/* Waits until the queue has a completion. Returns at once if none will come. */
void cq_await(struct ibv_cq *cq);
/* Adds a completion. The caller holds the lock, and there is room. */
void cq_add(struct completion_queue *c, const struct completion *done);
/* Sends the event that the program has asked for. The caller holds the lock. */
void cq_notify(struct completion_queue *c);
/* Removes the oldest completion. Returns false if there is none. The caller holds the lock. */
bool cq_take(struct completion_queue *c, struct ibv_wc *ret);
/* Removes the completions of this work queue. The caller holds the lock. */
void cq_remove(struct completion_queue *c, const struct work_queue *w);

/* ---- completions_ex.c ---- */
struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);

/* ---- queues.c ---- */
/* Returns false if there is no memory. Then, too, the caller calls queue_close(). */
bool queue_open(struct work_queue *w, unsigned int capacity, unsigned int max_sge);
void queue_close(struct work_queue *w);
/* From now on, requests of the queue are those of this queue pair, and end in this queue. */
void queue_set_pair(struct work_queue *w, struct queue_pair *q, struct ibv_cq *cq);
/*
 * Adds n requests to a queue, or none of them. Returns 0, ENOMEM (the queue or its completion queue
 * has no room for them), or the error that the test has ordered. The caller holds the lock of the
 * queue pair or of the shared receive queue.
 */
int queue_add(struct work_queue *w, const struct request *r, unsigned int n);
/* Removes all requests and completions of the queue. */
void queue_empty(struct work_queue *w);
/* The queue pair has failed: what is in flight ends now with an error. */
void queue_flush(struct work_queue *w);
/*
 * Moves the requests that have ended to the completion queue. Returns when the next one will end
 * (CLOCK_MONOTONIC, in ns), or UINT64_MAX. The caller holds the lock.
 */
uint64_t queues_advance(struct completion_queue *c);
/* Returns whether a request in flight will have a completion. The caller holds the lock. */
bool queues_will_complete(const struct completion_queue *c);

/* ---- shared.c ---- */
struct ibv_srq *srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
void srq_destroy(struct ibv_srq *srq);
/* The first queue pair of a shared receive queue gets all its messages. */
void srq_add_pair(struct ibv_srq *srq, struct queue_pair *q);
void shared_set_ops(struct ibv_context_ops *ops);

/* ---- pairs.c ---- */
struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
void qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init_attr);
void qp_destroy(struct ibv_qp *qp);
struct ibv_qp_ex *qp_extended(struct ibv_qp *qp);
/* Returns whether the queue pair accepts requests to send. After an error, they fail later. */
bool pair_sends(const struct queue_pair *q);

/* ---- post.c ---- */
void post_set_ops(struct ibv_context_ops *ops);
/*
 * Makes a request of what a program gives to ibv_post_recv() or ibv_post_srq_recv(). Returns false
 * if it has more than max_sge buffers.
 */
bool receive_request(const struct ibv_recv_wr *wr, unsigned int max_sge, struct request *ret);

/* ---- extended.c ---- */
void extended_set_functions(struct queue_pair *q);
