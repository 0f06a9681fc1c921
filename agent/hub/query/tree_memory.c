/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory a tree takes, as its budget counts it. An array counts with its free part, and
 * the arrays that a walk needs count before there is a walk.
 */
#include "hub/query/tree.h"

#define WALK_BYTES (4 * sizeof(uint32_t)) /* of a node: query_tree_order() */

static size_t bytes_of(const struct tree *t)
{
	const struct kept_rows *k = &t->kept;

	return t->cap_nodes * sizeof(*t->nodes) + t->n_nodes * WALK_BYTES +
	       t->cap_functions * sizeof(*t->functions) + t->n_text_bytes +
	       t->n_child_slots * sizeof(*t->child_slots) +
	       t->n_name_slots * sizeof(*t->name_slots) +
	       t->n_level_slots * sizeof(*t->level_slots) + t->n_apps * sizeof(*t->apps) +
	       k->cap * sizeof(*k->items) + k->cap_steps * sizeof(*k->steps);
}

void query_tree_set_budget(struct tree *t, struct buf_budget *b)
{
	t->budget = b;
}

size_t query_tree_bytes(const struct tree *t)
{
	return t->n_counted;
}

int query_tree_count(struct tree *t)
{
	return buf_budget_grow(t->budget, bytes_of(t), &t->n_counted);
}
