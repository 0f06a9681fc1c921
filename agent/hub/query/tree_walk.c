/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over a tree from its root: parents before children, the greatest total first. */
#include "hub/query/tree.h"

#include <stdlib.h>

void query_walk_done(struct tree_walk *w)
{
	free(w->first);
	free(w->next);
}

uint32_t query_walk_first(struct tree_walk *w, const struct tree *t)
{
	w->t = t;
	query_tree_order(t, &w->first, &w->next);
	w->path[0] = ROOT;
	w->depth = 0;
	return ROOT;
}

uint32_t query_walk_next(struct tree_walk *w)
{
	uint32_t here = w->path[w->depth], to = w->first[here];

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
		to = w->next[here];
		w->depth--;
		if (to != NO_NODE) {
			w->path[++w->depth] = to;
			return to;
		}
	}
}
