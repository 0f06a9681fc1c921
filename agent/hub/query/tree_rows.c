/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows whose nodes are made later, so that the large nodes can be made first: most nodes of a large
 * profile are far too small for a picture, and making them takes longer than all the rest.
 */
#include "hub/query/tree.h"

#include <stdlib.h>

/* of more, there is no preview: the nodes are made at once */
#define MAX_STEPS (16u << 20) /* frames of a profile that has a preview; they take 64 MiB */
#define MAX_ROWS  (1u << 20)  /* stacks of a profile that has a preview */

static const struct tree_step *steps_of(const struct kept_rows *k, const struct kept_row *row)
{
	return &k->steps[row->first];
}

void query_rows_done(struct kept_rows *k)
{
	free(k->items);
	free(k->steps);
	*k = (struct kept_rows){0};
}

bool query_rows_keep(struct tree *t, const struct tree_step *steps, size_t n,
		     const struct kept_row *row)
{
	struct kept_rows *k = &t->kept;

	if (k->n_steps + n > MAX_STEPS || k->n == MAX_ROWS) {
		query_rows_finish(t);
		return false;
	}
	GROW(k->items, k->n, k->cap);
	k->items[k->n] = *row;
	k->items[k->n].first = (uint32_t)k->n_steps;
	k->items[k->n++].n = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		GROW(k->steps, k->n_steps, k->cap_steps);
		k->steps[k->n_steps++] = steps[i];
	}
	k->total = query_saturated(k->total, row->value);
	return true;
}

void query_rows_finish(struct tree *t)
{
	struct kept_rows *k = &t->kept;

	if (!t->form.preview)
		return;
	t->form.preview = false;
	query_tree_clear(t);
	for (size_t i = 0; i < k->n; i++)
		query_tree_add_steps(t, steps_of(k, &k->items[i]), k->items[i].n, &k->items[i]);
	query_rows_done(k);
}

/* The child of a node for the next step of a row. */
static uint32_t step_down(struct tree *t, uint32_t node, struct tree_step step)
{
	uint32_t child = query_tree_child(t, node, step.function);

	return child == NO_NODE ? query_tree_add_child(t, node, step) : child;
}

/* Adds the values of a row to its node, one step further down, or as those of its leaf. */
static void walk(struct tree *t, const struct kept_row *row, size_t depth, uint32_t *node)
{
	struct tree_node *n;

	if (depth == row->n) {
		n = &t->nodes[*node];
		n->self = query_saturated(n->self, row->value);
		n->n_samples += row->n_samples;
		return;
	}
	*node = step_down(t, *node, steps_of(&t->kept, row)[depth]);
	n = &t->nodes[*node];
	n->total = query_saturated(n->total, row->value);
}

/*
 * All rows take their steps together, from the root. A row whose node turns out to be too small
 * takes no further one. So it has at most one such node, and there are at most as many as rows.
 */
void query_rows_preview(struct tree *t, int64_t least)
{
	const struct kept_rows *k = &t->kept;
	_cleanup_free_ uint32_t *nodes = xcalloc(k->n + 1, sizeof(*nodes));	   /* of each row */
	_cleanup_free_ uint32_t *walking = xmalloc((k->n + 1) * sizeof(*walking)); /* rows */
	size_t n = 0;

	if (!t->form.preview)
		return;
	query_tree_clear(t);
	t->nodes[ROOT].total = k->total;
	for (; n < k->n; n++)
		walking[n] = (uint32_t)n;
	for (size_t depth = 0, left = 0; n; depth++, n = left, left = 0) {
		for (size_t i = 0; i < n; i++)
			walk(t, &k->items[walking[i]], depth, &nodes[walking[i]]);
		for (size_t i = 0; i < n; i++) {
			uint32_t row = walking[i];

			if (depth < k->items[row].n && t->nodes[nodes[row]].total >= least)
				walking[left++] = row;
		}
	}
}
