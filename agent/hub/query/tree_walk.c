/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over a tree from its root: parents before children, the greatest total first. */
#include "hub/query/tree.h"

static uint32_t in_walk(const struct tree_walk *w, uint32_t node)
{
	return node != NO_NODE && query_tree_total(w->t, node) >= w->least ? node : NO_NODE;
}

uint32_t query_walk_child(const struct tree_walk *w, uint32_t node)
{
	return in_walk(w, w->t->order.first[node]);
}

/* The siblings after one that is left out are not greater. */
uint32_t query_walk_sibling(const struct tree_walk *w, uint32_t child)
{
	return in_walk(w, w->t->order.next[child]);
}

uint32_t query_walk_first(struct tree_walk *w, struct tree *t)
{
	query_tree_order(t);
	w->t = t;
	w->path[0] = ROOT;
	w->depth = 0;
	return ROOT;
}

uint32_t query_walk_next(struct tree_walk *w)
{
	uint32_t here = w->path[w->depth], to = query_walk_child(w, here);

	if (to != NO_NODE && w->depth + 1 < TREE_MAX_DEPTH) {
		w->path[++w->depth] = to;
		return to;
	}
	for (;;) {
		here = w->path[w->depth];
		if (w->leave)
			w->leave(here, w->arg);
		if (w->depth == 0)
			return NO_NODE;
		to = query_walk_sibling(w, here);
		w->depth--;
		if (to != NO_NODE) {
			w->path[++w->depth] = to;
			return to;
		}
	}
}

/* Takes a part from a sum. The parts are more than the sum if that was too large for a number. */
static void take(int64_t *from, int64_t part)
{
	*from = *from > part ? *from - part : 0;
}

struct tree_node query_walk_left_out(const struct tree_walk *w, uint32_t node)
{
	const struct tree *t = w->t;
	const struct tree_node *n = &t->nodes[node];
	struct tree_node missing = {.function = (uint32_t)t->n_functions,
				    .self = n->total - n->self,
				    .before_self = n->before_total - n->before_self};

	for (uint32_t c = query_walk_child(w, node); c != NO_NODE; c = query_walk_sibling(w, c)) {
		take(&missing.self, t->nodes[c].total);
		take(&missing.before_self, t->nodes[c].before_total);
	}
	return missing;
}
