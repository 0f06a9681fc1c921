/* SPDX-License-Identifier: Apache-2.0 */
/* Shared receive queues. */
#include <errno.h>
#include <stdlib.h>

#include "provider.h"

struct shared_queue {
	struct ibv_srq srq;
	pthread_mutex_t lock;
	struct work_queue receives;
};

struct ibv_srq *srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct shared_queue *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	s->srq.context = pd->context;
	s->srq.srq_context = attr->srq_context;
	s->srq.pd = pd;
	if (queue_open(&s->receives, attr->attr.max_wr, attr->attr.max_sge))
		return &s->srq;
	srq_destroy(&s->srq);
	return NULL;
}

void srq_destroy(struct ibv_srq *srq)
{
	struct shared_queue *s = (struct shared_queue *)srq;

	queue_close(&s->receives);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void srq_add_pair(struct ibv_srq *srq, struct queue_pair *q)
{
	struct shared_queue *s = (struct shared_queue *)srq;

	pthread_mutex_lock(&s->lock);
	if (!s->receives.pair)
		queue_set_pair(&s->receives, q, q->qp.recv_cq);
	pthread_mutex_unlock(&s->lock);
}

/* The caller holds the lock. */
static int receive_one(struct shared_queue *s, const struct ibv_recv_wr *wr)
{
	struct request r;

	if (!s->receives.pair || !receive_request(wr, s->receives.max_sge, &r))
		return EINVAL;
	return queue_add(&s->receives, &r, 1);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct shared_queue *s = (struct shared_queue *)srq;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	for (; wr && !r; wr = wr->next) {
		r = receive_one(s, wr);
		if (r)
			*bad_wr = wr;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

void shared_set_ops(struct ibv_context_ops *ops)
{
	ops->post_srq_recv = post_srq_recv;
}
