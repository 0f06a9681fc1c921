/* SPDX-License-Identifier: Apache-2.0 */
/* Prints answers of tree: the difference of two profiles as a table, and stacks as folded text. */
#include "cli/query.h"

#include "cli/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- folded ---- */

int cli_query_print_stacks(const json_t *reply, bool difference, struct buf *out)
{
	_cleanup_(cli_columns_done) struct columns c = {0};
	_cleanup_free_ uint32_t *path = xcalloc(COLUMNS_MAX_DEPTH, sizeof(*path));
	int r = cli_columns_read(reply, &c);

	for (size_t i = 0; i < c.n_nodes; i++) {
		const struct columns_node *n = &c.nodes[i];

		path[n->depth] = n->function;
		if (!n->self && !n->before_self)
			continue;
		for (uint32_t d = 0; d <= n->depth; d++) {
			cli_put_folded(out, c.functions[path[d]].text);
			buf_putc(out, d < n->depth ? ';' : ' ');
		}
		if (difference)
			buf_printf(out, "%" PRId64 " ", n->before_self);
		buf_printf(out, "%" PRId64 "\n", n->self);
	}
	return r;
}

/* ---- the table of a difference ---- */

struct side {
	const char *name;
	const struct query_span *span;
	int64_t total, n_samples;
};

/* Shares in percent. */
struct changed {
	const char *name;
	double self, self_before, total, total_before;
	bool noise; /* the change of self is not distinguishable from noise */
};

static double change(const struct changed *c)
{
	return c->self - c->self_before;
}

static int by_change(const void *a, const void *b)
{
	const struct changed *x = a, *y = b;
	double dx = fabs(change(x)), dy = fabs(change(y)), tx = fabs(x->total - x->total_before),
	       ty = fabs(y->total - y->total_before);

	if (dx != dy)
		return dx < dy ? 1 : -1;
	if (tx != ty)
		return tx < ty ? 1 : -1;
	return strcmp(x->name, y->name);
}

/*
 * The standard error of a share, in percent, which n samples of a function have. A share of 0 is
 * that of less than one sample. Infinite: not known, because there are no samples.
 */
static double error_of(double share, int64_t n, const struct side *of)
{
	if (of->n_samples <= 0)
		return INFINITY;
	if (share == 0)
		return 100. / (double)of->n_samples;
	return n > 0 ? share * sqrt((1 - MIN(share / 100, 1.)) / (double)n) : INFINITY;
}

static struct changed changed_of(const struct columns_sum *s, const struct side *now,
				 const struct side *before)
{
	struct changed c = {.name = s->text,
			    .self = cli_percent(s->self, now->total),
			    .self_before = cli_percent(s->before_self, before->total),
			    .total = cli_percent(s->total, now->total),
			    .total_before = cli_percent(s->before_total, before->total)};
	double error = hypot(error_of(c.self, s->n_samples, now),
			     error_of(c.self_before, s->n_before_samples, before));

	c.noise = change(&c) != 0 && fabs(change(&c)) < 2 * error;
	return c;
}

static void put_side(const struct side *s, bool bytes, struct buf *out)
{
	char from[32], to[32];

	time_format((uint64_t)s->span->from_s * NSEC_PER_SEC, from);
	time_format((uint64_t)s->span->to_s * NSEC_PER_SEC, to);
	buf_printf(out, "%s, from %s to %s: ", s->name, from, to);
	cli_put_short_value(out, s->total, bytes);
	buf_printf(out, " in %" PRId64 " samples\n", s->n_samples);
}

/* Says how the totals compare, and that the times differ in length, if they do. */
static void put_ratio(const struct side *now, const struct side *before, struct buf *out)
{
	int64_t n = now->span->to_s - now->span->from_s + 1,
		b = before->span->to_s - before->span->from_s + 1;

	if (before->total <= 0 || now->total <= 0) {
		buf_printf(out, "There is no profile of the time %s.\n",
			   before->total <= 0 ? "before" : "now");
		return;
	}
	buf_printf(out, "Now is %.2f times before", (double)now->total / (double)before->total);
	if (n != b)
		buf_printf(out, ", in %.2f times as much time", (double)n / (double)b);
	buf_puts(out, ".\n");
}

static void put_rows(struct changed *rows, size_t n, size_t max_rows, struct buf *out)
{
	bool noise = false;

	qsort(rows, n, sizeof(*rows), by_change);
	buf_puts(out, "        SELF %                   TOTAL %\n"
		      "BEFORE     NOW   CHANGE   BEFORE     NOW   CHANGE  FUNCTION\n");
	for (size_t i = 0; i < n && (!max_rows || i < max_rows); i++) {
		const struct changed *c = &rows[i];

		buf_printf(out, "%6.2f  %6.2f  %+7.2f%c  %6.2f  %6.2f  %+7.2f  ", c->self_before,
			   c->self, change(c), c->noise ? '~' : ' ', c->total_before, c->total,
			   c->total - c->total_before);
		cli_put_name(out, c->name);
		buf_putc(out, '\n');
		noise |= c->noise;
	}
	if (max_rows && n > max_rows)
		buf_printf(out, "... and %zu more (--limit)\n", n - max_rows);
	if (noise)
		buf_puts(out, "~ This change is less than twice its standard error, so it is not "
			      "distinguishable from noise.\n");
}

int cli_query_print_difference(const json_t *reply, const struct query_times *t, size_t max_rows,
			       struct buf *out)
{
	_cleanup_(cli_columns_done) struct columns c = {0};
	_cleanup_free_ struct columns_sum *sums = NULL;
	_cleanup_free_ struct changed *rows = NULL;
	bool bytes = streq(json_str_at(reply, "unit", ""), "bytes");
	struct side now = {.name = "now", .span = &t->now},
		    before = {.name = "before", .span = &t->before};
	size_t n;
	int r = cli_columns_read(reply, &c);

	if (r)
		return r;
	now.total = c.n_nodes ? c.nodes[0].total : 0;
	before.total = c.n_nodes ? c.nodes[0].before_total : 0;
	now.n_samples = json_int_at(reply, "summary.samples", 0);
	before.n_samples = json_int_at(reply, "before_summary.samples", 0);
	n = cli_columns_sums(&c, &sums);
	rows = xcalloc(n + 1, sizeof(*rows));
	for (size_t i = 0; i < n; i++)
		rows[i] = changed_of(&sums[i], &now, &before);
	put_side(&before, bytes, out);
	put_side(&now, bytes, out);
	put_ratio(&now, &before, out);
	put_rows(rows, n, max_rows, out);
	return 0;
}
