/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of a tree -> a call graph in DOT (graphviz.org/doc/info/lang.html). A function that calls
 * itself counts once in each stack. An edge over functions that are left out is dotted.
 */
#include "hub/pyroscope/stacks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <uthash.h>

struct function {
	const char *name;
	int64_t self, total;
	uint32_t n_on_path; /* how often it is on the path to the node that is looked at */
	uint32_t number;    /* in the graph, from 1; 0: it is left out, or the root */
};
struct edge {
	struct edge_key {
		uint32_t from, to;
	} key;
	int64_t weight;
	uint32_t n_on_path;
	bool direct; /* some call is not over functions that are left out */
	UT_hash_handle hh;
};
struct step { /* a node of the path */
	uint32_t function;
	uint32_t nearest;  /* of it and its callers: the function in the graph; 0: there is none */
	struct edge *edge; /* to it; NULL: there is none */
};
struct graph {
	const struct query_nodes *nodes;
	struct function *functions;
	size_t n_found, n_kept;
	struct edge *edges;
	struct step *path;
	size_t n_path;
	struct buf_budget *budget;
	size_t n_counted;
};

static void graph_done(struct graph *g)
{
	struct edge *e, *next;

	HASH_ITER (hh, g->edges, e, next) {
		HASH_DEL(g->edges, e);
		free(e);
	}
	free(g->functions);
	free(g->path);
}

static int count_memory(struct graph *g)
{
	return buf_budget_grow(g->budget,
			       g->nodes->n_functions * sizeof(*g->functions) +
				       HASH_COUNT(g->edges) * sizeof(*g->edges),
			       &g->n_counted);
}

/* ---- functions ---- */

/* Leaves the nodes of the path that are not above one of this depth. */
static void leave(struct graph *g, uint32_t depth)
{
	while (g->n_path > depth) {
		const struct step *s = &g->path[--g->n_path];

		g->functions[s->function].n_on_path--;
		if (s->edge)
			s->edge->n_on_path--;
	}
}

static void enter(struct graph *g, const struct step *s)
{
	g->path[g->n_path++] = *s;
	g->functions[s->function].n_on_path++;
	if (s->edge)
		s->edge->n_on_path++;
}

static void add_up_functions(struct graph *g)
{
	for (size_t i = 1; i < g->nodes->n; i++) {
		const struct query_node *n = &g->nodes->items[i];
		struct function *f = &g->functions[n->function];

		leave(g, n->depth - 1);
		g->n_found += !f->name;
		f->name = n->name;
		f->self += n->self;
		if (!f->n_on_path)
			f->total += n->total;
		enter(g, &(struct step){.function = n->function});
	}
	leave(g, 0);
}

static int by_total(const void *a, const void *b, void *arg)
{
	const struct function *functions = arg, *x = &functions[*(const uint32_t *)a],
			      *y = &functions[*(const uint32_t *)b];

	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Numbers the functions of the graph. Returns their list, which the caller frees. */
static uint32_t *choose(struct graph *g, size_t max_nodes)
{
	uint32_t *list = xmalloc((g->n_found + 1) * sizeof(*list));
	size_t n = 0;

	for (uint32_t i = 0; i < g->nodes->n_functions; i++)
		if (g->functions[i].name)
			list[n++] = i;
	qsort_r(list, n, sizeof(*list), by_total, g->functions);
	g->n_kept = MIN(n, max_nodes);
	for (size_t i = 0; i < g->n_kept; i++)
		g->functions[list[i]].number = (uint32_t)i + 1;
	return list;
}

/* ---- edges ---- */

static struct edge *edge_of(struct graph *g, uint32_t from, uint32_t to)
{
	const struct edge_key key = {from, to};
	struct edge *e;

	HASH_FIND(hh, g->edges, &key, sizeof(key), e);
	if (e)
		return e;
	e = xcalloc(1, sizeof(*e));
	e->key = key;
	HASH_ADD(hh, g->edges, key, sizeof(key), e);
	return e;
}

/* The node as a step behind those of the path. */
static struct step step_of(struct graph *g, const struct query_node *n)
{
	const struct step *caller = g->n_path ? &g->path[g->n_path - 1] : NULL;
	const uint32_t number = g->functions[n->function].number;
	struct step s = {.function = n->function, .nearest = caller ? caller->nearest : 0};

	if (!number)
		return s;
	if (s.nearest) {
		s.edge = edge_of(g, s.nearest, number);
		s.edge->direct |= g->functions[caller->function].number != 0;
		if (!s.edge->n_on_path)
			s.edge->weight += n->total;
	}
	s.nearest = number;
	return s;
}

static int add_up_edges(struct graph *g)
{
	for (size_t i = 1; i < g->nodes->n; i++) {
		struct step s;

		leave(g, g->nodes->items[i].depth - 1);
		s = step_of(g, &g->nodes->items[i]);
		enter(g, &s);
		if (count_memory(g))
			return -E2BIG;
	}
	leave(g, 0);
	return 0;
}

/* ---- text ---- */

/* A text within quotes, in which a backslash begins an escape. */
static void put_escaped(struct buf *b, const char *s)
{
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			buf_putc(b, '\\');
		buf_putc(b, (unsigned char)*s < ' ' ? ' ' : *s);
	}
}

static double percent(const struct graph *g, int64_t v)
{
	const int64_t all = g->nodes->items[0].total;

	return all > 0 ? 100.0 * (double)v / (double)all : 0;
}

static void put_function(struct buf *b, const struct graph *g, const struct function *f,
			 const char *unit)
{
	buf_printf(b, "N%" PRIu32 " [label=\"", f->number);
	put_escaped(b, f->name);
	buf_printf(b, "\\nself %" PRId64 " %s (%.2f%%)\\ntotal %" PRId64 " %s (%.2f%%)\"]\n",
		   f->self, unit, percent(g, f->self), f->total, unit, percent(g, f->total));
}

static int by_weight(struct edge *a, struct edge *b)
{
	if (a->weight != b->weight)
		return a->weight > b->weight ? -1 : 1;
	return memcmp(&a->key, &b->key, sizeof(a->key));
}

static void put_edges(struct buf *b, struct graph *g)
{
	HASH_SORT(g->edges, by_weight);
	for (struct edge *e = g->edges; e; e = e->hh.next)
		buf_printf(b, "N%" PRIu32 " -> N%" PRIu32 " [label=\"%" PRId64 " (%.2f%%)\"%s]\n",
			   e->key.from, e->key.to, e->weight, percent(g, e->weight),
			   e->direct ? "" : " style=\"dotted\"");
}

static void put_graph(struct buf *b, struct graph *g, const uint32_t *list, const char *unit)
{
	buf_puts(b, "digraph \"podflame\" {\nnode [shape=box]\n");
	buf_printf(b,
		   "legend [shape=note label=\"total %" PRId64 " %s\\nthe %zu greatest of %zu "
		   "functions\"]\n",
		   g->nodes->items[0].total, unit, g->n_kept, g->n_found);
	for (size_t i = 0; i < g->n_kept; i++)
		put_function(b, g, &g->functions[list[i]], unit);
	put_edges(b, g);
	buf_puts(b, "}\n");
}

int pyroscope_put_dot(struct buf *b, const struct query_nodes *n, size_t max_nodes,
		      const char *unit)
{
	_cleanup_(graph_done) struct graph g = {.nodes = n, .budget = b->budget};
	_cleanup_free_ uint32_t *list = NULL;

	if (n->n <= 1)
		return 0;
	g.functions = xcalloc(n->n_functions, sizeof(*g.functions));
	g.path = xcalloc(STACK_MAX_FRAMES + 8, sizeof(*g.path));
	add_up_functions(&g);
	list = choose(&g, max_nodes);
	if (add_up_edges(&g))
		return -E2BIG;
	put_graph(b, &g, list, unit);
	return b->failed ? -E2BIG : 0;
}
