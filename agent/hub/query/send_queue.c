/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule for the event rdma. It counts three kinds of bytes: of requests for the send queue, of
 * receive requests, and of registered memory. Their sum means nothing. So a query that does not
 * name the operation is about the send queue only.
 */
#include "hub/query/query.h"

#include <stdlib.h>

#define OPERATION "rdma_operation"

static bool names_operation(const struct predicate *p)
{
	bool names = p->tag && streq(p->tag, OPERATION);

	for (size_t i = 0; !names && i < p->n_children; i++)
		names = names_operation(p->children[i]);
	return names;
}

static struct predicate *and_of(struct predicate *a, struct predicate *b)
{
	struct predicate *both = xcalloc(1, sizeof(*both));

	both->op = PRED_AND;
	both->children = xcalloc(2, sizeof(struct predicate *));
	both->children[both->n_children++] = a;
	both->children[both->n_children++] = b;
	return both;
}

static struct predicate *is_send_queue(void)
{
#define X(text) text,
	static const char *const operations[] = {PROFILE_SEND_QUEUE(X)};
#undef X
	struct predicate *p = xcalloc(1, sizeof(*p));

	p->op = PRED_IN;
	p->tag = xstrdup(OPERATION);
	p->values = xcalloc(ARRAY_SIZE(operations), sizeof(char *));
	for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
		p->values[p->n_values++] = xstrdup(operations[i]);
	return p;
}

bool query_send_queue_only(struct selection *s)
{
	if (s->event != EVENT_RDMA || (s->where && names_operation(s->where)))
		return false;
	s->where = s->where ? and_of(s->where, is_send_queue()) : is_send_queue();
	return true;
}

const char *query_tag_unset(const struct tag_info *t)
{
	return streq(t->name, OPERATION) ? "send queue" : NULL;
}
