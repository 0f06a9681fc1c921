/* SPDX-License-Identifier: Apache-2.0 */
/* In which order the writer gets the bodies of senders. Loop thread. */
#include "hub/ingest/internal.h"

#include <stdlib.h>

/* An agent that passes on what it has of its node's programs is a sender like any other node. */
static bool is_program(const struct ingest_request *q)
{
	const struct ingest_sender *s = &q->sender;

	return q->push && s->ns && !(s->everywhere && *s->node);
}

void ingest_turns_name(struct ingest_request *q)
{
	const struct ingest_sender *s = &q->sender;

	q->who = s->cluster	 ? xasprintf("cluster %s", s->cluster)
		 : is_program(q) ? xasprintf("namespace %s", s->ns)
		 : *s->node	 ? xasprintf("node %s", s->node)
				 : xasprintf("peer %s", q->peer);
}

bool ingest_is_same_sender(const struct ingest_request *a, const struct ingest_request *b)
{
	return str_equal(a->who, b->who);
}

/* Returns whether the writer has the body. Otherwise the request is answered, and q is gone. */
static bool post_body(struct ingest_request *q)
{
	bool writing;

	q->posted_ns = now_mono_ns();
	writing = worker_post(q->ingest->config.writer, &q->job) == 0;
	q->writing = writing;
	if (!writing)
		ingest_no_room(q, "writer", 503, "too many profiles wait for the store");
	return writing;
}

/*
 * The writer has one body of a sender at a time, and none while the sender rests (rests.h). So the
 * senders take turns, and who sends much waits for itself only.
 */
static bool may_write(const struct ingest_request *q)
{
	const struct ingest_request *other;

	DL_FOREACH (q->ingest->requests, other)
		if (other->writing && ingest_is_same_sender(other, q))
			return false;
	return !ingest_rests_has(&q->ingest->rests, q->who, now_mono_ns());
}

void ingest_turns_add(struct ingest_request *q)
{
	q->waits = !may_write(q);
	if (!q->waits)
		post_body(q);
}

/* Gives the writer the oldest body that waits for q, which the writer has given back. */
static void next_of_sender(const struct ingest_request *q)
{
	struct ingest_request *other, *next;

	DL_FOREACH_SAFE(q->ingest->requests, other, next)
	{
		if (!other->waits || !ingest_is_same_sender(other, q))
			continue;
		other->waits = false;
		if (post_body(other))
			return;
	}
}

/* The rests of some senders are over: gives the writer the oldest body of each of them. */
static void rest_over(void *arg)
{
	struct ingest *i = arg;
	struct ingest_request *q, *next;
	uint64_t now_ns = now_mono_ns(), until_ns = ingest_rests_next_ns(&i->rests, now_ns);

	if (until_ns)
		timer_set(i->loop, &i->rest_timer, until_ns - now_ns, rest_over, i);
	DL_FOREACH_SAFE(i->requests, q, next)
	{
		if (q->waits)
			ingest_turns_add(q);
	}
}

static bool others_wait(const struct ingest_request *q)
{
	const struct ingest_request *other;

	DL_FOREACH (q->ingest->requests, other)
		if (other->writing && !ingest_is_same_sender(other, q))
			return true;
	return false;
}

void ingest_turns_wrote(struct ingest_request *q)
{
	struct ingest *i = q->ingest;
	uint64_t now_ns = now_mono_ns(), from_ns = MAX(q->posted_ns, i->free_ns);

	q->writing = false;
	i->free_ns = now_ns;
	if (!others_wait(q) || i->closed) {
		next_of_sender(q);
		return;
	}
	/* the time of a group is not this sender's */
	ingest_rests_begin(&i->rests, q->who, now_ns - MIN(from_ns + q->group_ns, now_ns), now_ns);
	rest_over(i);
}
