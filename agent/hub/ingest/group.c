/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group commit, for a store with a pace: the writer's jobs only decode and judge, and put their
 * profiles into a group. The group is written when it has enough bytes, or when the pace's time has
 * passed since the last write, which a timer sees. Only then the requests are answered. The writer
 * alone touches the group; a job that has written it hands its requests to the loop thread. Their
 * own jobs are done by then, because the loop thread gets the jobs of a worker in their order.
 */
#include "hub/ingest/internal.h"

#include <stdlib.h>

#define AGAIN_NS (100 * NSEC_PER_MSEC) /* the writer's queue was full */

void ingest_group_begin(struct ingest *i)
{
	i->group.pace = store_pace(i->config.store);
	i->group.last = &i->group.first;
}

/* ---- on the writer ---- */

static void refuse(struct ingest_request *q, int r)
{
	ingest_verdict(&q->verdict, 503, NULL, "the store failed: %s", strerror(-r));
}

/* Whether the store may take other batches although it has refused these. */
static bool is_about_batch(int r)
{
	return r == -EIO || r == -E2BIG;
}

static void write_one_by_one(struct store *s, struct ingest_request *first)
{
	struct ingest_request *q;
	size_t n_new;

	LL_FOREACH2(first, q, next_of_group)
	{
		int r = store_write(s, q->batch, &n_new);

		if (r < 0)
			refuse(q, r);
	}
}

static void write_together(struct store *s, struct ingest_request *first)
{
	_cleanup_free_ const struct batch **batches = NULL;
	struct ingest_request *q;
	size_t n = 0, k = 0;
	int r;

	LL_COUNT2(first, q, n, next_of_group);
	batches = xcalloc(n, sizeof(struct batch *));
	LL_FOREACH2(first, q, next_of_group)
	batches[k++] = q->batch;
	r = store_write_all(s, batches, n);
	if (is_about_batch(r) && n > 1) {
		write_one_by_one(s, first);
		return;
	}
	LL_FOREACH2(first, q, next_of_group)
	{
		if (r < 0)
			refuse(q, r);
	}
}

/* Returns the requests of the group, which is empty then. */
static struct ingest_request *write_group(struct ingest *i)
{
	struct ingest_request *first = i->group.first, *q;

	if (first)
		write_together(i->config.store, first);
	LL_FOREACH2(first, q, next_of_group)
	profile_batch_free(TAKE_PTR(q->batch));
	i->group.first = NULL;
	i->group.last = &i->group.first;
	i->group.bytes = 0;
	return first;
}

void ingest_group_add(struct ingest_request *q, struct batch *b, size_t bytes)
{
	struct ingest_group *g = &q->ingest->group;
	uint64_t begun_ns = now_mono_ns();

	q->batch = b;
	q->grouped = true;
	*g->last = q;
	g->last = &q->next_of_group;
	g->bytes += bytes;
	if (g->bytes < g->pace.bytes)
		return;
	q->written = write_group(q->ingest);
	q->group_ns = now_mono_ns() - begun_ns;
}

/* ---- on the loop ---- */

struct group_job {
	struct job job; /* must be the first member */
	struct ingest *ingest;
	struct ingest_request *written;
};

static void group_run(struct job *j)
{
	struct group_job *g = (struct group_job *)j;

	g->written = write_group(g->ingest);
}

static void end_all(struct ingest_request *first)
{
	struct ingest_request *q, *next;

	LL_FOREACH_SAFE2(first, q, next, next_of_group)
	ingest_request_end(q);
}

static void group_done(struct job *j)
{
	struct group_job *g = (struct group_job *)j;
	struct ingest *i = g->ingest;

	i->group.timed = false;
	i->group.wrote_ns = i->free_ns = now_mono_ns();
	end_all(g->written);
	free(g);
	ingest_leave(i);
}

static void write_now(void *arg)
{
	struct ingest *i = arg;
	struct group_job *g = xcalloc(1, sizeof(*g));

	*g = (struct group_job){
		.job = {.run = group_run, .done = group_done, .deadline_ns = INGEST_WRITE_LIMIT_NS},
		.ingest = i};
	if (worker_post(i->config.writer, &g->job) == 0) {
		i->n_pending++;
		return;
	}
	free(g);
	timer_set(i->loop, &i->group.timer, AGAIN_NS, write_now, i);
}

static void set_timer(struct ingest *i)
{
	uint64_t now = now_mono_ns(), due = i->group.wrote_ns + i->group.pace.ns;

	if (i->group.timed)
		return;
	i->group.timed = true;
	timer_set(i->loop, &i->group.timer, due > now ? due - now : 0, write_now, i);
}

void ingest_group_wait(struct ingest_request *q)
{
	struct ingest *i = q->ingest;

	if (q->written) {
		i->group.wrote_ns = now_mono_ns();
		end_all(q->written);
	} else if (i->closed && q->batch) {
		ingest_end_as(q, 503, "the hub is stopping");
	} else {
		q->waits_for_group = true;
		if (!i->closed)
			set_timer(i);
	}
}
