/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: which query runs next. A worker gets a query only when it has none, so that the
 * choice is made as late as possible: of the queries that wait, one of the user with the fewest
 * running queries, the oldest of these. A user alone may use all workers but one (at least two). So
 * another user's query begins at once, and while it waits, it is not behind more than two of one
 * user's. One more worker runs only queries for choices: these never wait behind a flame graph. All
 * functions belong to the loop thread.
 */
#pragma once

#include "lib/loop/loop.h"

#define QUEUE_MAX_WORKERS 33

/* A query in the queue: the first member of its job. */
struct queued {
	struct job job;		/* job.done, or what it starts, must call api_queue_ended() */
	const char *user;	/* the user's name; must stay valid until the job is done */
	bool choices;		/* a query for choices, which takes little time */
	bool begun;		/* it ran before: it is not refused if too many wait */
	/* private to the queue */
	struct query_queue *queue; /* NULL: the queue was freed */
	struct queued *next;
};

struct query_queue;
struct query_queue_config {
	struct worker *const *workers;	/* at most QUEUE_MAX_WORKERS - 1; borrowed */
	size_t n_workers;
	struct worker *choices;		/* NULL: there is no such worker */
	size_t max_bytes;		/* limit for the bytes of the jobs that wait */
};
struct query_queue *api_queue_new(const struct query_queue_config *c);
/* Ends all queries that wait: calls their job.done. Those that run end later. */
struct query_queue *api_queue_free(struct query_queue *q);
/* Returns -ENOBUFS if too many queries wait. Then the caller keeps the job. */
int api_queue_post(struct query_queue *q, struct queued *e);
/*
 * The worker is free for another query. A query that goes on without its worker after job.done, but
 * shall count as running, calls it later. A second call does nothing.
 */
void api_queue_ended(struct queued *e);
/*
 * Called in job.done, before the queue is freed: the query's worker runs its job again, before any
 * other query.
 */
void api_queue_again(struct queued *e);
/* Removes a query that waits. Returns false if it runs already. */
bool api_queue_remove(struct queued *e);
size_t api_queue_waiting(const struct query_queue *q);
