/* SPDX-License-Identifier: Apache-2.0 */
/* The greatest nodes of a tree as a list, from which formats of others are made. */
#include "hub/query/tree.h"

#include <stdlib.h>

struct listing {
	struct tree_walk walk;
	struct query_nodes *nodes;
	struct buf_budget *budget;
	uint32_t path[TREE_MAX_DEPTH]; /* from the root to the last node of the call site */
	uint32_t n_path;	       /* its depth */
	bool full;
};

void query_nodes_done(struct query_nodes *n)
{
	free(n->items);
	*n = (struct query_nodes){0};
}

/* ---- which nodes ---- */

/* The child of that name; NO_NODE: there is none. */
static uint32_t child_named(const struct tree_walk *w, uint32_t node, const char *name)
{
	uint32_t c = query_walk_child(w, node);

	while (c != NO_NODE && !streq(w->t->functions[w->t->nodes[c].function].name, name))
		c = query_walk_sibling(w, c);
	return c;
}

/* Returns false if the tree has no such stack. */
static bool find_call_site(struct listing *l, const struct query_cut *c)
{
	l->path[0] = ROOT;
	if (c->n_call_site >= TREE_MAX_DEPTH)
		return false;
	for (; l->n_path < c->n_call_site; l->n_path++) {
		uint32_t next = child_named(&l->walk, l->path[l->n_path], c->call_site[l->n_path]);

		if (next == NO_NODE)
			return false;
		l->path[l->n_path + 1] = next;
	}
	return true;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x > y ? -1 : x < y;
}

/* The least total of the nodes of the answer, which has `most` nodes below the root. */
static int64_t least_of(const struct tree *t, const struct listing *l, size_t most)
{
	_cleanup_free_ int64_t *totals = xmalloc(t->n_nodes * sizeof(*totals));
	struct tree_walk w = l->walk;
	size_t n = 0;

	w.depth = l->n_path;
	w.path[w.depth] = l->path[l->n_path];
	while (query_walk_next(&w) != NO_NODE && w.depth > l->n_path)
		totals[n++] = query_tree_total(t, w.path[w.depth]);
	most = most > l->n_path ? most - l->n_path : 1;
	if (n <= most)
		return 1;
	qsort(totals, n, sizeof(*totals), by_value);
	return MAX(totals[most - 1], (int64_t)1);
}

/* ---- the list ---- */

static struct query_node *add(struct listing *l, const struct tree_node *n, uint32_t depth)
{
	const struct tree *t = l->walk.t;
	struct query_nodes *list = l->nodes;

	GROW(list->items, list->n, list->cap);
	l->full |=
		buf_budget_grow(l->budget, list->cap * sizeof(*list->items), &list->n_counted) < 0;
	list->items[list->n] = (struct query_node){
		.name = n->function < t->n_functions ? t->functions[n->function].name : QUERY_OTHER,
		.function = n->function,
		.depth = depth,
		.self = n->self,
		.total = n->total,
		.before_self = n->before_self,
		.before_total = n->before_total,
	};
	return &list->items[list->n++];
}

/* Adds the rest of a node as a leaf. Returns how many leaves these are. */
static uint32_t add_rest(struct listing *l, struct tree_node *rest, uint32_t depth)
{
	rest->total = rest->self;
	rest->before_total = rest->before_self;
	if (rest->total <= 0 && rest->before_total <= 0)
		return 0;
	add(l, rest, depth);
	return 1;
}

/* A function of that name, beside the rest of their parent: nobody could tell them apart. */
static bool is_in_rest(const struct tree *t, const struct tree_node *rest, uint32_t child)
{
	return (rest->self > 0 || rest->before_self > 0) &&
	       streq(t->functions[t->nodes[child].function].name, QUERY_OTHER);
}

/* Adds a node and what is below it. It calls itself at most TREE_MAX_DEPTH times. */
static void add_below(struct listing *l, uint32_t node, uint32_t depth)
{
	const struct tree *t = l->walk.t;
	struct tree_node n = t->nodes[node], rest = query_walk_left_out(&l->walk, node);
	size_t at = l->nodes->n;
	uint32_t n_children = 0;

	if (node == ROOT) { /* a stack without levels is part of no function */
		rest.self = query_saturated(rest.self, n.self);
		rest.before_self = query_saturated(rest.before_self, n.before_self);
		n.self = n.before_self = 0;
	}
	add(l, &n, depth);
	for (uint32_t c = query_walk_child(&l->walk, node); c != NO_NODE && !l->full;
	     c = query_walk_sibling(&l->walk, c)) {
		if (is_in_rest(t, &rest, c)) {
			rest.self = query_saturated(rest.self, t->nodes[c].total);
			rest.before_self =
				query_saturated(rest.before_self, t->nodes[c].before_total);
		} else {
			add_below(l, c, depth + 1);
			n_children++;
		}
	}
	n_children += add_rest(l, &rest, depth + 1);
	l->nodes->items[at].n_children = n_children;
}

/* Adds the callers of the call site, whose stacks are all in it. */
static void add_callers(struct listing *l)
{
	const struct tree *t = l->walk.t;
	const struct tree_node *below = &t->nodes[l->path[l->n_path]];

	for (uint32_t i = 0; i < l->n_path; i++) {
		struct tree_node n = {.function = t->nodes[l->path[i]].function,
				      .total = below->total,
				      .before_total = below->before_total};

		add(l, &n, i)->n_children = 1;
	}
}

int query_nodes_of(struct tree *t, const struct query_cut *c, struct buf_budget *b,
		   struct query_nodes *ret)
{
	_cleanup_free_ struct listing *l = xcalloc(1, sizeof(*l));

	*ret = (struct query_nodes){.n_functions = (uint32_t)t->n_functions + 1};
	l->nodes = ret;
	l->budget = b;
	query_walk_first(&l->walk, t);
	if (!find_call_site(l, c)) {
		add(l, &(struct tree_node){.function = ROOT}, 0);
		return l->full ? -E2BIG : 0;
	}
	l->walk.least = least_of(t, l, c->max_nodes);
	add_callers(l);
	add_below(l, l->path[l->n_path], l->n_path);
	return l->full ? -E2BIG : 0;
}
