/* SPDX-License-Identifier: Apache-2.0 */
/* Work queues: the requests that are in flight, and how they end. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "provider.h"

static const enum ibv_wc_opcode opcodes[_STANDIN_OPERATIONS] = {
	[STANDIN_SEND] = IBV_WC_SEND,	    [STANDIN_WRITE] = IBV_WC_RDMA_WRITE,
	[STANDIN_READ] = IBV_WC_RDMA_READ,  [STANDIN_ATOMIC] = IBV_WC_FETCH_ADD,
	[STANDIN_OTHER] = IBV_WC_LOCAL_INV, [STANDIN_RECEIVE] = IBV_WC_RECV,
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

bool queue_open(struct work_queue *w, unsigned int capacity, unsigned int max_sge)
{
	w->capacity = capacity;
	w->max_sge = max_sge;
	w->flights = calloc(capacity + 1, sizeof(*w->flights));
	return w->flights;
}

void queue_set_pair(struct work_queue *w, struct queue_pair *q, struct ibv_cq *cq)
{
	struct completion_queue *c = (struct completion_queue *)cq;

	w->pair = q;
	w->cq = c;
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	w->next = c->queues;
	c->queues = w;
	pthread_mutex_unlock(&c->lock);
}

static void leave(struct completion_queue *c, const struct work_queue *w)
{
	struct work_queue **place = &c->queues;

	pthread_mutex_lock(&c->lock);
	while (*place != w)
		place = &(*place)->next;
	*place = w->next;
	pthread_mutex_unlock(&c->lock);
}

void queue_close(struct work_queue *w)
{
	queue_empty(w);
	if (w->cq)
		leave(w->cq, w);
	free(w->flights);
}

/* ---- requests in flight; the caller holds the lock of the completion queue ---- */

static struct flight *flight_at(const struct work_queue *w, unsigned int i)
{
	return &w->flights[(w->first + i) % w->capacity];
}

/* Without a completion, a program learns that a request has ended from the next completion. */
static bool has_completion(const struct flight *f)
{
	return f->request.signaled || f->status != IBV_WC_SUCCESS;
}

/* Says when and how the request will end. */
static void foresee(const struct work_queue *w, struct flight *f)
{
	f->end_ns = now_ns();
	if (w->pair->failed) {
		f->status = IBV_WC_WR_FLUSH_ERR;
	} else if (f->request.operation != STANDIN_RECEIVE) {
		f->end_ns += standin_rdma_delay_ns();
		f->status = standin_rdma_end();
	}
}

static void take_off(struct work_queue *w, const struct request *r)
{
	struct flight f = {.request = *r, .status = IBV_WC_SUCCESS};

	foresee(w, &f);
	*flight_at(w, w->n_flying++) = f;
	w->cq->n_flying++;
	if (has_completion(&f))
		cq_notify(w->cq);
}

/* As with a device: after an error, all later requests of the queue pair end with an error, too. */
static void fail(struct work_queue *w)
{
	uint64_t now = now_ns();

	w->pair->failed = true;
	for (unsigned int i = 0; i < w->n_flying; i++) {
		flight_at(w, i)->status = IBV_WC_WR_FLUSH_ERR;
		flight_at(w, i)->end_ns = now;
	}
}

static void complete(struct work_queue *w, const struct flight *f)
{
	cq_add(w->cq, &(struct completion){
			      .wc = {.wr_id = f->request.wr_id,
				     .status = f->status,
				     .opcode = opcodes[f->request.operation],
				     .byte_len = (uint32_t)f->request.bytes,
				     .qp_num = w->pair->qp.qp_num},
			      .queue = w,
			      .places = w->unsignaled + 1,
		      });
	w->unsignaled = 0;
}

static void end_first(struct work_queue *w)
{
	const struct flight *f = flight_at(w, 0);

	w->first = (w->first + 1) % w->capacity;
	w->n_flying--;
	w->cq->n_flying--;
	if (f->status != IBV_WC_SUCCESS)
		fail(w);
	if (has_completion(f))
		complete(w, f);
	else
		w->unsignaled++;
}

/* Returns the queue whose request ends before all others, or NULL. */
static struct work_queue *next_to_end(const struct completion_queue *c)
{
	struct work_queue *next = NULL;

	for (struct work_queue *w = c->queues; w && c->n_flying; w = w->next)
		if (w->n_flying && (!next || flight_at(w, 0)->end_ns < flight_at(next, 0)->end_ns))
			next = w;
	return next;
}

uint64_t queues_advance(struct completion_queue *c)
{
	struct work_queue *w;

	while ((w = next_to_end(c))) {
		if (flight_at(w, 0)->end_ns > now_ns())
			return flight_at(w, 0)->end_ns;
		end_first(w);
	}
	return UINT64_MAX;
}

bool queues_will_complete(const struct completion_queue *c)
{
	for (const struct work_queue *w = c->queues; w; w = w->next)
		for (unsigned int i = 0; i < w->n_flying; i++)
			if (has_completion(flight_at(w, i)))
				return true;
	return false;
}

/* ---- for the files of queue pairs and shared receive queues ---- */

/* There must be room for a completion of each request: each may end with an error. */
static bool take_off_all(struct work_queue *w, const struct request *r, unsigned int n)
{
	struct completion_queue *c = w->cq;
	bool fit;

	pthread_mutex_lock(&c->lock);
	fit = c->n + c->n_flying + n <= (unsigned int)c->cq.cqe;
	for (unsigned int i = 0; fit && i < n; i++)
		take_off(w, &r[i]);
	queues_advance(c);
	pthread_mutex_unlock(&c->lock);
	return fit;
}

int queue_add(struct work_queue *w, const struct request *r, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		int error = standin_rdma_failure();

		if (error)
			return error;
	}
	if (w->used + n > w->capacity)
		return ENOMEM;
	w->used += n; /* before a completion can free the places */
	if (!take_off_all(w, r, n)) {
		w->used -= n;
		return ENOMEM;
	}
	for (unsigned int i = 0; i < n; i++)
		standin_rdma_add(w->pair->qp.context->device, (int)w->pair->qp.qp_type,
				 r[i].operation, r[i].bytes);
	return 0;
}

void queue_empty(struct work_queue *w)
{
	struct completion_queue *c = w->cq;

	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	cq_remove(c, w);
	c->n_flying -= w->n_flying;
	w->n_flying = 0;
	w->used = w->unsignaled = 0;
	pthread_mutex_unlock(&c->lock);
}

void queue_flush(struct work_queue *w)
{
	struct completion_queue *c = w->cq;

	pthread_mutex_lock(&c->lock);
	queues_advance(c);
	fail(w);
	queues_advance(c);
	pthread_mutex_unlock(&c->lock);
}
