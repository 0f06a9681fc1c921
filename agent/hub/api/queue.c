/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/api/queue.h"

#include <stdlib.h>

/* so many queries of one user may run at once, even if that is more than all workers but one */
#define FAIR_SHARE 2
/* limit for the queries that wait: each holds a connection of the server, which has 256 */
#define MAX_WAITING 1024

/* A worker and the query that it runs. */
struct lane {
	struct worker *worker;
	struct queued *running; /* NULL: it is free */
	bool choices_only;
};

struct query_queue {
	struct lane lanes[QUEUE_MAX_WORKERS];
	size_t n_lanes, max_bytes;
	unsigned most_of_one; /* how many queries of one user may run at once */
	struct queued *first, **end;
	size_t n_waiting, n_bytes;
};

struct query_queue *api_queue_new(const struct query_queue_config *c)
{
	struct query_queue *q = xcalloc(1, sizeof(*q));

	assert_se(c->n_workers > 0 && c->n_workers < QUEUE_MAX_WORKERS);
	if (c->choices)
		q->lanes[q->n_lanes++] = (struct lane){.worker = c->choices, .choices_only = true};
	for (size_t i = 0; i < c->n_workers; i++)
		q->lanes[q->n_lanes++] = (struct lane){.worker = c->workers[i]};
	q->most_of_one = MAX((unsigned)c->n_workers - 1, (unsigned)FAIR_SHARE);
	q->max_bytes = c->max_bytes;
	q->end = &q->first;
	return q;
}

static unsigned n_running(const struct query_queue *q, const char *user)
{
	unsigned n = 0;

	for (size_t i = 0; i < q->n_lanes; i++)
		n += !q->lanes[i].choices_only && q->lanes[i].running &&
		     streq(q->lanes[i].running->user, user);
	return n;
}

/* The query that the lane runs next: NULL if it may run none that waits. */
static struct queued *choose(const struct query_queue *q, const struct lane *l)
{
	struct queued *best = NULL;
	unsigned fewest = q->most_of_one;

	for (struct queued *e = q->first; e; e = e->next) {
		unsigned n;

		if (l->choices_only && !e->choices)
			continue;
		if (l->choices_only)
			return e;
		n = n_running(q, e->user);
		if (n >= fewest)
			continue;
		best = e;
		fewest = n;
	}
	return best;
}

static void unlink_entry(struct query_queue *q, struct queued *e)
{
	struct queued **at = &q->first;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	if (!*at)
		q->end = at;
	q->n_waiting--;
	q->n_bytes -= e->job.n_bytes;
}

static void fill_lanes(struct query_queue *q)
{
	for (size_t i = 0; i < q->n_lanes; i++) {
		struct lane *l = &q->lanes[i];
		struct queued *e = l->running ? NULL : choose(q, l);

		if (!e)
			continue;
		if (worker_post(l->worker, &e->job))
			return; /* the worker has something else to do; a later query tries again */
		unlink_entry(q, e);
		l->running = e;
	}
}

int api_queue_post(struct query_queue *q, struct queued *e)
{
	if (!e->begun &&
	    (q->n_waiting >= MAX_WAITING || q->n_bytes + e->job.n_bytes > q->max_bytes))
		return -ENOBUFS;
	e->queue = q;
	e->next = NULL;
	*q->end = e;
	q->end = &e->next;
	q->n_waiting++;
	q->n_bytes += e->job.n_bytes;
	fill_lanes(q);
	return 0;
}

/* The lane that runs the query; NULL: none does, or the queue was freed. */
static struct lane *lane_of(const struct queued *e)
{
	struct query_queue *q = e->queue;

	for (size_t i = 0; q && i < q->n_lanes; i++)
		if (q->lanes[i].running == e)
			return &q->lanes[i];
	return NULL;
}

void api_queue_again(struct queued *e)
{
	struct lane *l = lane_of(e);

	/* the worker had room for this job before, and has no other one */
	assert_se(l && worker_post(l->worker, &e->job) == 0);
}

void api_queue_ended(struct queued *e)
{
	struct lane *l = lane_of(e);

	if (!l)
		return;
	l->running = NULL;
	fill_lanes(TAKE_PTR(e->queue));
}

bool api_queue_remove(struct queued *e)
{
	for (struct queued *w = e->queue->first; w; w = w->next) {
		if (w != e)
			continue;
		unlink_entry(e->queue, e);
		return true;
	}
	return false;
}

size_t api_queue_waiting(const struct query_queue *q)
{
	return q->n_waiting;
}

struct query_queue *api_queue_free(struct query_queue *q)
{
	struct queued *next;

	if (!q)
		return NULL;
	for (size_t i = 0; i < q->n_lanes; i++)
		if (q->lanes[i].running)
			q->lanes[i].running->queue = NULL;
	for (struct queued *e = q->first; e; e = next) {
		next = e->next;
		e->queue = NULL;
		e->job.done(&e->job);
	}
	free(q);
	return NULL;
}
