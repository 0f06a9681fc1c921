/* SPDX-License-Identifier: Apache-2.0 */
/* Which values of a tag have a profile, or a function of it: the sums of a tree with groups. */
#include "hub/query/tree.h"

#include <inttypes.h>
#include <stdlib.h>

struct group {
	uint32_t node; /* the group's node; NO_NODE: the sum of several groups */
	int64_t total, function_total;
	uint64_t n_samples, n_function_samples; /* of both totals */
};

struct grouping {
	struct tree *t;
	const struct groups_query *q;
	struct group *groups;
	size_t n;
	bool *inside; /* for each node: whether a node above it has the function */
};

static bool is_function(const struct grouping *g, uint32_t node)
{
	const struct function *f = &g->t->functions[g->t->nodes[node].function];

	return g->q->function && f->level != LEVEL_GROUP && f->name &&
	       streq(f->name, g->q->function) &&
	       (!g->q->kind || streq(query_level_name(f->level), g->q->kind));
}

/* Adds up the groups in the order of their totals. A recursive function counts once in a stack. */
static void add_up(struct grouping *g)
{
	struct tree_walk w = {0};

	query_walk_first(&w, g->t);
	for (uint32_t i = query_walk_next(&w); i != NO_NODE; i = query_walk_next(&w)) {
		const struct tree_node *n = &g->t->nodes[i];
		bool is = is_function(g, i);
		struct group *x;

		if (w.depth == 1 && g->t->functions[n->function].level != LEVEL_GROUP)
			continue; /* [others]: of no group */
		if (w.depth == 1)
			g->groups[g->n++] = (struct group){.node = i, .total = n->total};
		x = &g->groups[g->n - 1];
		if (w.depth > 1 && is && !g->inside[n->parent])
			x->function_total = query_saturated(x->function_total, n->total);
		g->inside[i] = is || (w.depth > 1 && g->inside[n->parent]);
		x->n_samples += n->n_samples;
		x->n_function_samples += g->inside[i] ? n->n_samples : 0;
	}
}

/* The group with most of the function first, or, without a function, the greatest group. */
static int by_function(const void *a, const void *b)
{
	const struct group *x = a, *y = b;

	if (x->function_total != y->function_total)
		return x->function_total > y->function_total ? -1 : 1;
	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return x->node < y->node ? -1 : 1;
}

static void put_totals(struct buf *b, const struct grouping *g, const struct group *x)
{
	buf_printf(b, "\"total\":%" PRId64 ",\"samples\":%" PRIu64, x->total, x->n_samples);
	if (g->q->function)
		buf_printf(b, ",\"function_total\":%" PRId64 ",\"function_samples\":%" PRIu64,
			   x->function_total, x->n_function_samples);
}

static struct group sum_of(const struct group *groups, size_t n)
{
	struct group sum = {.node = NO_NODE};

	for (size_t i = 0; i < n; i++) {
		sum.total = query_saturated(sum.total, groups[i].total);
		sum.function_total = query_saturated(sum.function_total, groups[i].function_total);
		sum.n_samples += groups[i].n_samples;
		sum.n_function_samples += groups[i].n_function_samples;
	}
	return sum;
}

static void put_groups(struct buf *b, const struct grouping *g, uint64_t n_samples)
{
	const size_t n = MIN(g->n, g->q->limit);
	const struct group listed = sum_of(g->groups, n);
	struct group all = sum_of(g->groups, g->n), others = sum_of(g->groups + n, g->n - n);

	/* the stacks that belong to no group are in both, too: [others], and what did not fit */
	all.total = g->t->nodes[ROOT].total;
	others.total = MAX(all.total - listed.total, others.total);
	all.n_samples = MAX(n_samples, all.n_samples);
	others.n_samples = all.n_samples - listed.n_samples;
	buf_puts(b, "\"groups\":[");
	for (size_t i = 0; i < n; i++) {
		const struct tree_node *node = &g->t->nodes[g->groups[i].node];

		buf_puts(b, i ? ",{\"value\":" : "{\"value\":");
		buf_json_string(b, g->t->functions[node->function].name);
		buf_putc(b, ',');
		put_totals(b, g, &g->groups[i]);
		buf_putc(b, '}');
	}
	buf_puts(b, "],");
	put_totals(b, g, &all);
	buf_printf(b, ",\"others\":{\"groups\":%zu,", g->n - n);
	put_totals(b, g, &others);
	buf_putc(b, '}');
}

char *query_groups_reply(struct tree *t, const struct groups_query *q,
			 const struct store_summary *s, size_t *ret_n)
{
	_cleanup_free_ struct group *groups = xcalloc(t->n_nodes, sizeof(*groups));
	_cleanup_free_ bool *inside = xcalloc(t->n_nodes, sizeof(*inside));
	struct grouping g = {.t = t, .q = q, .groups = groups, .inside = inside};
	struct buf b = {0};

	add_up(&g);
	if (g.n)
		qsort(groups, g.n, sizeof(*groups), by_function);
	buf_puts(&b, "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":{");
	put_groups(&b, &g, s->n_samples);
	buf_printf(&b, "},\"debug\":null,\"unit\":\"%s\"",
		   profile_event_info(q->tree.tracing.selection->event)->unit);
	query_put_summary(&b, "summary", t, &q->tree.tracing, s, false);
	buf_putc(&b, '}');
	*ret_n = b.len;
	return buf_steal(&b);
}
