/* SPDX-License-Identifier: Apache-2.0 */
/* Work queues, and the completion queues where their requests end. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "provider.h"

static const enum ibv_wc_opcode opcodes[_STANDIN_OPERATIONS] = {
	[STANDIN_SEND] = IBV_WC_SEND,	    [STANDIN_WRITE] = IBV_WC_RDMA_WRITE,
	[STANDIN_READ] = IBV_WC_RDMA_READ,  [STANDIN_ATOMIC] = IBV_WC_FETCH_ADD,
	[STANDIN_OTHER] = IBV_WC_LOCAL_INV, [STANDIN_RECEIVE] = IBV_WC_RECV,
};

/* ---- completion queues ---- */

struct ibv_cq *cq_create(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel,
			 void *cq_context)
{
	struct completion_queue *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->ring = calloc((size_t)cqe, sizeof(*c->ring));
	if (!c->ring) {
		free(c);
		return NULL;
	}
	pthread_mutex_init(&c->lock, NULL);
	c->cq.context = context;
	c->cq.channel = channel;
	c->cq.cq_context = cq_context;
	c->cq.cqe = cqe;
	return &c->cq;
}

void cq_destroy(struct ibv_cq *cq)
{
	struct completion_queue *c = (struct completion_queue *)cq;

	pthread_mutex_destroy(&c->lock);
	free(c->ring);
	free(c);
}

/* The caller holds the lock. */
static struct completion *at(struct completion_queue *c, unsigned int i)
{
	return &c->ring[(c->first + i) % (unsigned int)c->cq.cqe];
}

/* Sends the event that the program has asked for. The caller holds the lock. */
static void notify(struct completion_queue *c)
{
	struct standin_channel *channel = (struct standin_channel *)c->cq.channel;
	const struct ibv_cq *cq = &c->cq;

	if (!c->armed || !channel)
		return;
	c->armed = false;
	if (write(channel->write_fd, &cq, sizeof(cq)) != sizeof(cq))
		abort();
}

static unsigned int n_signaled(const struct request *r, unsigned int n)
{
	unsigned int signaled = 0;

	for (unsigned int i = 0; i < n; i++)
		signaled += r[i].signaled;
	return signaled;
}

/* The caller holds the lock, and there is room. */
static void complete(struct work_queue *w, uint32_t qp_num, const struct request *r)
{
	struct completion_queue *c = w->cq;

	if (!r->signaled) {
		w->unsignaled++;
		return;
	}
	*at(c, c->n++) = (struct completion){
		.wc = {.wr_id = r->wr_id,
		       .status = IBV_WC_SUCCESS,
		       .opcode = opcodes[r->operation],
		       .byte_len = (uint32_t)r->bytes,
		       .qp_num = qp_num},
		.queue = w,
		.places = w->unsignaled + 1,
	};
	w->unsignaled = 0;
	notify(c);
}

static bool complete_all(struct work_queue *w, uint32_t qp_num, const struct request *r,
			 unsigned int n)
{
	struct completion_queue *c = w->cq;
	bool fit;

	pthread_mutex_lock(&c->lock);
	fit = c->n + n_signaled(r, n) <= (unsigned int)c->cq.cqe;
	for (unsigned int i = 0; fit && i < n; i++)
		complete(w, qp_num, &r[i]);
	pthread_mutex_unlock(&c->lock);
	return fit;
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	struct completion_queue *c = (struct completion_queue *)cq;
	int n = 0;

	pthread_mutex_lock(&c->lock);
	while (n < max && c->n) {
		struct completion *done = at(c, 0);

		c->first = (c->first + 1) % (unsigned int)cq->cqe;
		c->n--;
		if (!done->queue)
			continue;
		done->queue->used -= done->places;
		wc[n++] = done->wc;
	}
	pthread_mutex_unlock(&c->lock);
	return n;
}

/* If there are completions already, the event comes at once: no other computer sends more. */
static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct completion_queue *c = (struct completion_queue *)cq;

	(void)solicited_only;
	pthread_mutex_lock(&c->lock);
	c->armed = true;
	if (c->n)
		notify(c);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

void queues_set_ops(struct ibv_context_ops *ops)
{
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
}

/* ---- work queues ---- */

int queue_add(struct queue_pair *q, struct work_queue *w, const struct request *r, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		int error = standin_rdma_failure();

		if (error)
			return error;
	}
	if (w->used + n > w->capacity)
		return ENOMEM;
	w->used += n; /* before a completion can free the places */
	if (!complete_all(w, q->qp.qp_num, r, n)) {
		w->used -= n;
		return ENOMEM;
	}
	for (unsigned int i = 0; i < n; i++)
		standin_rdma_add(q->qp.context->device, (int)q->qp.qp_type, r[i].operation,
				 r[i].bytes);
	return 0;
}

/* Removes all requests and the completions of the queue. */
void queue_empty(struct work_queue *w)
{
	struct completion_queue *c = w->cq;

	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	for (unsigned int i = 0; i < c->n; i++)
		if (at(c, i)->queue == w)
			at(c, i)->queue = NULL;
	pthread_mutex_unlock(&c->lock);
	w->used = w->unsignaled = 0;
}
