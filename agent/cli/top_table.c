/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a profile as a table: their share, and how it has changed. */
#include "cli/top.h"

#include "cli/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define RED   "\x1b[31m"
#define GREEN "\x1b[32m"
#define PLAIN "\x1b[0m"
#define SMALL .005 /* a change that the table would print as 0.00 */

struct row {
	const char *name;
	int64_t self, total;
	double change; /* of the share of self; in points of a percent */
};

const char *cli_top_sort_name(enum top_sort s)
{
	static const char *const names[_TOP_SORT_MAX] = {[TOP_SELF] = "self",
							 [TOP_TOTAL] = "total",
							 [TOP_CHANGE] = "change",
							 [TOP_NAME] = "name"};

	return names[s];
}

/* ---- order: the greatest first ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

static int by_total(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->total != y->total ? (x->total < y->total ? 1 : -1) : by_name(a, b);
}

static int by_self(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->self != y->self ? (x->self < y->self ? 1 : -1) : by_total(a, b);
}

static int by_change(const void *a, const void *b)
{
	double x = fabs(((const struct row *)a)->change), y = fabs(((const struct row *)b)->change);

	return x != y ? (x < y ? 1 : -1) : by_self(a, b);
}

static void sort_rows(struct row *rows, size_t n, enum top_sort sort)
{
	static int (*const orders[_TOP_SORT_MAX])(const void *, const void *) = {
		[TOP_SELF] = by_self,
		[TOP_TOTAL] = by_total,
		[TOP_CHANGE] = by_change,
		[TOP_NAME] = by_name,
	};

	if (n)
		qsort(rows, n, sizeof(*rows), orders[sort]);
}

/* ---- the table ---- */

struct table {
	struct columns columns;
	struct row *rows;
	size_t n;
	const char *unit;
	bool colours;
	int64_t total, before_total; /* before_total 0: nothing is known about changes */
};

static void read_rows(struct table *t)
{
	_cleanup_free_ struct columns_sum *sums = NULL;
	size_t n = cli_columns_sums(&t->columns, &sums);

	t->rows = xcalloc(n + 1, sizeof(*t->rows));
	for (size_t i = 0; i < n; i++) {
		double change = t->before_total > 0
					? cli_percent(sums[i].self, t->total) -
						  cli_percent(sums[i].before_self, t->before_total)
					: 0;

		if (sums[i].total) /* what is only in the time before is no row */
			t->rows[t->n++] =
				(struct row){sums[i].text, sums[i].self, sums[i].total, change};
	}
}

static void put_change(const struct table *t, double change, struct buf *out)
{
	bool coloured = t->colours && fabs(change) >= SMALL;

	if (t->before_total <= 0) {
		buf_printf(out, "%7s  ", "");
		return;
	}
	buf_printf(out, "%s%+7.2f%s  ",
		   !coloured	? ""
		   : change > 0 ? RED
				: GREEN,
		   change, coloured ? PLAIN : "");
}

static void put_row(const struct table *t, const struct row *r, struct buf *out)
{
	cli_put_value(out, r->self, t->unit);
	buf_printf(out, " %6.2f  ", cli_percent(r->self, t->total));
	put_change(t, r->change, out);
	cli_put_value(out, r->total, t->unit);
	buf_printf(out, " %6.2f  ", cli_percent(r->total, t->total));
	cli_put_name(out, r->name);
	buf_putc(out, '\n');
}

static void put_title(const struct table *t, const json_t *reply, struct buf *out)
{
	const struct columns *c = &t->columns;

	cli_put_name(out, c->n_nodes ? c->functions[c->nodes[0].function].name : "nothing");
	buf_puts(out, ": ");
	cli_put_short_value(out, t->total, t->unit);
	buf_printf(out, " in %" PRId64 " samples\n", json_int_at(reply, "summary.samples", 0));
	buf_printf(out, "%12s %6s  %7s  %12s %6s  FUNCTION\n", "SELF", "%", "CHANGE", "TOTAL", "%");
}

int cli_top_functions(const json_t *reply, enum top_sort sort, size_t max_rows, bool colours,
		      struct buf *out)
{
	struct table t = {.unit = json_str_at(reply, "unit", ""), .colours = colours};
	int r = cli_columns_read(reply, &t.columns);

	if (r)
		return r;
	if (t.columns.n_nodes) {
		t.total = t.columns.nodes[0].total;
		t.before_total = t.columns.nodes[0].before_total;
	}
	read_rows(&t);
	sort_rows(t.rows, t.n, sort);
	put_title(&t, reply, out);
	for (size_t i = 0; i < t.n && (!max_rows || i < max_rows); i++)
		put_row(&t, &t.rows[i], out);
	if (max_rows && t.n > max_rows)
		buf_printf(out, "... and %zu more (--limit)\n", t.n - max_rows);
	free(t.rows);
	cli_columns_done(&t.columns);
	return 0;
}
