/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a provider share. There is no other computer: a request to send is done as soon
 * as it is accepted, and each request to receive gets a message that fills its buffers. No byte is
 * moved. A queue has room for a limited number of requests. A request occupies its place until
 * its completion is polled, or that of a later request of the queue.
 */
#pragma once

#include <stdbool.h>

#include "../internal.h"

struct completion_queue {
	struct ibv_cq cq;
	pthread_mutex_t lock;
	struct completion {
		struct ibv_wc wc;
		struct work_queue *queue; /* NULL: its queue pair was reset or destroyed */
		unsigned int places;	  /* that this completion frees in the queue */
	} *ring;
	unsigned int first, n; /* in the ring, which has room for cq.cqe */
	bool armed;	       /* the next completion is an event of the channel */
};

struct work_queue {
	struct completion_queue *cq;
	unsigned int capacity, max_sge;
	_Atomic unsigned int used;
	unsigned int unsignaled; /* requests since the last one that has a completion */
};

/* A request of ibv_post_send(), ibv_post_recv() or ibv_wr_*(). */
struct request {
	uint64_t wr_id, bytes;
	enum standin_operation operation;
	bool signaled; /* it has a completion */
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
	/* ---- extended.c: the requests since ibv_wr_start(), in room for `sends.capacity` ---- */
	struct request *built;
	unsigned int n_built;
	int error; /* of the first request that cannot be built; 0: none */
};

/* ---- queues.c ---- */
void queues_set_ops(struct ibv_context_ops *ops);
/*
 * Adds n requests to a queue of the queue pair, or none of them. Returns 0, ENOMEM (the queue or
 * its completion queue has no room for them), or the error that the test has ordered. The caller
 * holds the queue pair's lock.
 */
int queue_add(struct queue_pair *q, struct work_queue *w, const struct request *r, unsigned int n);
struct ibv_cq *cq_create(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel,
			 void *cq_context);
void cq_destroy(struct ibv_cq *cq);
void queue_empty(struct work_queue *w);

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

/* ---- post.c ---- */
void post_set_ops(struct ibv_context_ops *ops);
/*
 * Makes a request of what a program gives to ibv_post_recv() or ibv_post_srq_recv(). Returns false
 * if it has more than max_sge buffers.
 */
bool receive_request(const struct ibv_recv_wr *wr, unsigned int max_sge, struct request *ret);

/* ---- extended.c ---- */
void extended_set_functions(struct queue_pair *q);
