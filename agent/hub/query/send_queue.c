/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule for the event rdma. It counts three kinds of bytes: of requests for the send queue, of
 * receive requests, and of registered memory. Their sum means nothing. So a query that does not
 * name the operation is about the send queue only.
 */
#include "hub/query/query.h"

#include <stdlib.h>

#define OPERATION  "rdma_operation"
#define SEND_QUEUE OPERATION " IN ('send', 'write', 'read', 'atomic', 'other')"

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

bool query_send_queue_only(struct selection *s)
{
	struct predicate *send_queue;

	if (s->event != EVENT_RDMA || (s->where && names_operation(s->where)))
		return false;
	assert_se(query_filter_parse(SEND_QUEUE, &send_queue, NULL) == 0);
	s->where = s->where ? and_of(s->where, send_queue) : send_queue;
	return true;
}

const char *query_tag_unset(const struct tag_info *t)
{
	return streq(t->name, OPERATION) ? "send queue" : NULL;
}
