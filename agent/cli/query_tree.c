/* SPDX-License-Identifier: Apache-2.0 */
/* Prints answers of tree: the difference of two profiles as a table, and stacks as folded text. */
#include "cli/query.h"

#include "cli/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define NOISE_ERRORS 3 /* that of the page */

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
	/* how many times greater the variance of the total is than that of so many samples */
	double spread;
};

/* Shares in percent. */
struct changed {
	const char *name;
	double self, self_before, total, total_before;
	bool noise; /* chance explains the change of self */
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

/* What one sample of the function adds to its share, which is from 0 to 1. 0: it has no sample. */
static double step_of(int64_t self, int64_t n_samples, const struct side *of)
{
	if (self <= 0 || n_samples <= 0 || of->total <= 0)
		return 0;
	return of->spread * (double)self / (double)n_samples / (double)of->total;
}

/*
 * Whether chance explains the change of a function's share. The rule is that of the page, which
 * says where it comes from (web/src/profile/difference.ts): the change is at most NOISE_ERRORS
 * standard errors. If one side has no sample, a sample has the same value there as on the other.
 */
static bool is_noise(const struct columns_sum *s, const struct side *now, const struct side *before)
{
	double step = step_of(s->self, s->n_samples, now),
	       step_before = step_of(s->before_self, s->n_before_samples, before), share,
	       share_before, pooled, rest, variance, whole;

	if (now->total <= 0 || before->total <= 0)
		return false; /* there is nothing to compare with */
	if (!step)
		step = step_before * (double)before->total / (double)now->total;
	if (!step_before)
		step_before = step * (double)now->total / (double)before->total;
	if (!step || !now->n_samples || !before->n_samples)
		return true;
	share = (double)s->self / (double)now->total;
	share_before = (double)s->before_self / (double)before->total;
	pooled = (share * step_before + share_before * step) / (step + step_before);
	rest = MAX(0., 1 - pooled);
	whole = now->spread / (double)now->n_samples + before->spread / (double)before->n_samples;
	variance = pooled * rest * (rest * (step + step_before) + pooled * whole);
	return fabs(share - share_before) - (step + step_before) / 2 <=
	       NOISE_ERRORS * sqrt(variance);
}

/* has_errors: samples are random. In two snapshots of memory the same memory lives. */
static struct changed changed_of(const struct columns_sum *s, const struct side *now,
				 const struct side *before, bool has_errors)
{
	struct changed c = {.name = s->text,
			    .self = cli_percent(s->self, now->total),
			    .self_before = cli_percent(s->before_self, before->total),
			    .total = cli_percent(s->total, now->total),
			    .total_before = cli_percent(s->before_total, before->total)};

	c.noise = has_errors && change(&c) != 0 && is_noise(s, now, before);
	return c;
}

static void put_side(const struct side *s, const char *unit, struct buf *out)
{
	buf_printf(out, "%s, ", s->name);
	cli_query_put_span(s->span, out);
	buf_puts(out, ": ");
	cli_put_short_value(out, s->total, unit);
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
		buf_puts(out, "~ This change is at most three standard errors, so it is not "
			      "distinguishable from noise.\n");
}

static struct side side_of(const char *name, const struct query_span *span, int64_t total,
			   const json_t *summary)
{
	int64_t n = json_int_at(summary, "samples", 0);
	double error = (double)json_int_at(summary, "estimated.error", 0),
	       of_samples = n > 0 ? (double)total * (double)total / (double)n : 0;

	return (struct side){.name = name,
			     .span = span,
			     .total = total,
			     .n_samples = n,
			     .spread = of_samples > 0 ? MAX(1., error * error / of_samples) : 1};
}

int cli_query_print_difference(const json_t *reply, const struct query_options *o,
			       const struct query_times *t, size_t max_rows, struct buf *out)
{
	_cleanup_(cli_columns_done) struct columns c = {0};
	_cleanup_free_ struct columns_sum *sums = NULL;
	_cleanup_free_ struct changed *rows = NULL;
	const char *unit = json_str_at(reply, "unit", "");
	bool has_errors = !cli_query_is_snapshot(o->event);
	struct side now, before;
	size_t n;
	int r = cli_columns_read(reply, &c);

	if (r)
		return r;
	now = side_of("now", &t->now, c.n_nodes ? c.nodes[0].total : 0,
		      json_object_get(reply, "summary"));
	before = side_of("before", &t->before, c.n_nodes ? c.nodes[0].before_total : 0,
			 json_object_get(reply, "before_summary"));
	n = cli_columns_sums(&c, &sums);
	rows = xcalloc(n + 1, sizeof(*rows));
	for (size_t i = 0; i < n; i++)
		rows[i] = changed_of(&sums[i], &now, &before, has_errors);
	put_side(&before, unit, out);
	put_side(&now, unit, out);
	put_ratio(&now, &before, out);
	put_rows(rows, n, max_rows, out);
	return 0;
}
