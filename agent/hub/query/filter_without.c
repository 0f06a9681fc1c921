/* SPDX-License-Identifier: Apache-2.0 */
/* A filter without its conditions on one tag. */
#include "hub/query/query.h"

#include <stdlib.h>

/* Whether the tag decides the answer of p, and no other tag does. */
static bool is_about(const struct predicate *p, const char *tag)
{
	if (p->tag)
		return streq(p->tag, tag);
	for (size_t i = 0; i < p->n_children; i++)
		if (!is_about(p->children[i], tag))
			return false;
	return p->n_children > 0;
}

struct predicate *query_filter_without(struct predicate *p, const char *tag)
{
	size_t n = 0;

	if (!p || is_about(p, tag))
		return store_predicate_free(p);
	if (p->op != PRED_AND)
		return p;
	for (size_t i = 0; i < p->n_children; i++) {
		struct predicate *left = query_filter_without(p->children[i], tag);

		if (left)
			p->children[n++] = left;
	}
	p->n_children = n;
	return p;
}
