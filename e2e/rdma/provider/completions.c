/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues, where the requests of work queues end. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "provider.h"

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

/* ---- the ring; the caller holds the lock ---- */

static struct completion *at(struct completion_queue *c, unsigned int i)
{
	return &c->ring[(c->first + i) % (unsigned int)c->cq.cqe];
}

void cq_notify(struct completion_queue *c)
{
	struct standin_channel *channel = (struct standin_channel *)c->cq.channel;
	const struct ibv_cq *cq = &c->cq;

	if (!c->armed || !channel)
		return;
	c->armed = false;
	if (write(channel->write_fd, &cq, sizeof(cq)) != sizeof(cq))
		abort();
}

void cq_add(struct completion_queue *c, const struct completion *done)
{
	*at(c, c->n++) = *done;
	cq_notify(c);
}

void cq_remove(struct completion_queue *c, const struct work_queue *w)
{
	for (unsigned int i = 0; i < c->n; i++)
		if (at(c, i)->queue == w)
			at(c, i)->queue = NULL;
}

bool cq_take(struct completion_queue *c, struct ibv_wc *ret)
{
	queues_advance(c);
	while (c->n) {
		const struct completion *done = at(c, 0);

		c->first = (c->first + 1) % (unsigned int)c->cq.cqe;
		c->n--;
		if (!done->queue)
			continue;
		done->queue->used -= done->places;
		*ret = done->wc;
		return true;
	}
	return false;
}

/* ---- what the inline functions of verbs.h call ---- */

/* As in mlx5, after an error the members that it does not define keep what was in them. */
static void give(struct ibv_wc *wc, const struct ibv_wc *done)
{
	if (done->status == IBV_WC_SUCCESS) {
		*wc = *done;
		return;
	}
	wc->wr_id = done->wr_id;
	wc->status = done->status;
	wc->vendor_err = done->vendor_err;
	wc->qp_num = done->qp_num;
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	struct completion_queue *c = (struct completion_queue *)cq;
	struct ibv_wc done;
	int n = 0;

	pthread_mutex_lock(&c->lock);
	while (n < max && cq_take(c, &done))
		give(&wc[n++], &done);
	pthread_mutex_unlock(&c->lock);
	return n;
}

/*
 * If there are completions, or will be, then the event comes at once: nothing else wakes this
 * library. ibv_get_cq_event() waits for the completion (cq_await).
 */
static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct completion_queue *c = (struct completion_queue *)cq;

	(void)solicited_only;
	pthread_mutex_lock(&c->lock);
	c->armed = true;
	if (c->n || queues_will_complete(c))
		cq_notify(c);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

void completions_set_ops(struct ibv_context_ops *ops)
{
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
}

/* Returns when the next request in flight will end, or 0: there is nothing to wait for. */
static uint64_t wait_until_ns(struct completion_queue *c)
{
	uint64_t end_ns;

	pthread_mutex_lock(&c->lock);
	end_ns = queues_advance(c);
	if (c->n || !queues_will_complete(c))
		end_ns = 0;
	pthread_mutex_unlock(&c->lock);
	return end_ns;
}

void cq_await(struct ibv_cq *cq)
{
	uint64_t end_ns;

	while ((end_ns = wait_until_ns((struct completion_queue *)cq)))
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME,
				&(struct timespec){.tv_sec = (time_t)(end_ns / 1000000000),
						   .tv_nsec = (long)(end_ns % 1000000000)},
				NULL);
}
