/* SPDX-License-Identifier: Apache-2.0 */
/* Prints answers of ProfileTracing (flat form) as folded stacks and as a table of functions. */
#include "cli/query.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_DEPTH 4096 /* levels of a tree in a reply; a deeper one is refused */

/*
 * An answer in the flat form. All indexes in it are checked once, so that later code can rely on
 * them.
 */
struct flat {
	const json_t *functions, *types, *function_values, *nodes;
	size_t n_functions, n_nodes;
};

static int64_t cell(const json_t *rows, size_t row, size_t column)
{
	return json_integer_value(json_array_get(json_array_get(rows, row), column));
}

static const char *text(const json_t *array, size_t i)
{
	const char *s = json_string_value(json_array_get(array, i));

	return s ? s : "?";
}

static int read_flat(const json_t *reply, struct flat *ret)
{
	struct flat f = {
		.functions = json_at(reply, "result.functions"),
		.types = json_at(reply, "result.function_types"),
		.function_values = json_at(reply, "result.function_values.values"),
		.nodes = json_at(reply, "result.node_values.values"),
	};

	if (!json_is_object(json_object_get(reply, "result")))
		return -EBADMSG;
	f.n_functions = json_array_size(f.functions);
	f.n_nodes = json_array_size(f.nodes);
	for (size_t i = 0; i < f.n_nodes; i++)
		if (cell(f.nodes, i, 0) < 0 || cell(f.nodes, i, 0) >= (int64_t)f.n_functions ||
		    cell(f.nodes, i, 1) < -1 || cell(f.nodes, i, 1) >= (int64_t)f.n_nodes)
			return -EBADMSG;
	*ret = f;
	return 0;
}

static void put_frame(const char *name, struct buf *out)
{
	for (; *name; name++)
		buf_putc(out, *name == ';' ? ':' : (unsigned char)*name < ' ' ? ' ' : *name);
}

int cli_query_print_folded(const json_t *reply, struct buf *out)
{
	int64_t path[MAX_DEPTH];
	struct flat f;
	int r = read_flat(reply, &f);

	if (r)
		return r;
	for (size_t i = 0; i < f.n_nodes; i++) {
		size_t depth = 0;

		if (!cell(f.nodes, i, 2))
			continue;
		for (int64_t at = (int64_t)i; at >= 0; at = cell(f.nodes, (size_t)at, 1)) {
			if (depth == MAX_DEPTH) /* the parents form a circle */
				return -EBADMSG;
			path[depth++] = cell(f.nodes, (size_t)at, 0);
		}
		while (depth-- > 0) {
			put_frame(text(f.functions, (size_t)path[depth]), out);
			buf_putc(out, depth ? ';' : ' ');
		}
		buf_printf(out, "%" PRId64 "\n", cell(f.nodes, i, 2));
	}
	return 0;
}

/* ---- table ---- */

struct printed_row {
	const char *name;
	int64_t self, total;
};

static int by_self(const void *a, const void *b)
{
	const struct printed_row *x = a, *y = b;

	if (x->self != y->self)
		return x->self < y->self ? 1 : -1;
	if (x->total != y->total)
		return x->total < y->total ? 1 : -1;
	return strcmp(x->name, y->name);
}

static void put_value(struct buf *out, int64_t v, bool bytes)
{
	static const struct {
		double size;
		const char *unit;
	} times[] = {{3600e6, "h"}, {60e6, "min"}, {1e6, "s"}, {1e3, "ms"}, {1, "us"}},
	  sizes[] = {{1099511627776., "TiB"},
		     {1073741824., "GiB"},
		     {1048576., "MiB"},
		     {1024., "KiB"},
		     {1, "B"}};
	size_t i = 0;

	for (; i < 4; i++)
		if ((double)v >= (bytes ? sizes : times)[i].size)
			break;
	buf_printf(out, "%8.2f %-3s", (double)v / (bytes ? sizes : times)[i].size,
		   (bytes ? sizes : times)[i].unit);
}

/*
 * Whether i is a row of the table. The root, processes and threads are no functions, so they are no
 * rows. But the profile of a whole host (Total) has only processes and threads, so they are its
 * rows.
 */
static bool is_row(const struct flat *f, size_t i)
{
	bool total = *text(f->types, 0) == 'H';

	return i > 0 && !strchr(total ? "H" : "PHT", *text(f->types, i));
}

static const char *row_title(const struct flat *f)
{
	return f->n_functions && *text(f->types, 0) == 'H' ? "PROCESS, THREAD" : "FUNCTION";
}

static size_t read_rows(const struct flat *f, struct printed_row *rows)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n_functions; i++)
		if (is_row(f, i))
			rows[n++] = (struct printed_row){text(f->functions, i),
							 cell(f->function_values, i, 0),
							 cell(f->function_values, i, 1)};
	return n;
}

/*
 * Prints the share of complete stacks, if the profile has stacks. The profile of a whole host
 * (Total) has none.
 */
static void put_whole(const json_t *reply, const struct flat *f, struct buf *out)
{
	const json_t *percent = json_at(reply, "summary.finished_percent");

	if (json_is_number(percent) && f->n_functions && *text(f->types, 0) != 'H')
		buf_printf(out, ", %.2f %% with a whole stack", json_number_value(percent));
	buf_putc(out, '\n');
}

int cli_query_print_table(const json_t *reply, size_t max_rows, struct buf *out)
{
	_cleanup_free_ struct printed_row *rows = NULL;
	bool bytes = streq(json_str_at(reply, "unit", ""), "bytes");
	int64_t whole;
	struct flat f;
	size_t n;
	int r = read_flat(reply, &f);

	if (r)
		return r;
	rows = xcalloc(f.n_functions + 1, sizeof(*rows));
	n = read_rows(&f, rows);
	qsort(rows, n, sizeof(*rows), by_self);
	whole = f.n_nodes ? MAX(cell(f.nodes, 0, 3), (int64_t)1) : 1;
	put_frame(f.n_functions ? text(f.functions, 0) : "nothing", out);
	buf_puts(out, ": ");
	put_value(out, f.n_nodes ? cell(f.nodes, 0, 3) : 0, bytes);
	buf_printf(out, " in %" PRId64 " samples", json_int_at(reply, "summary.samples", 0));
	put_whole(reply, &f, out);
	buf_printf(out, "%12s %6s  %12s %6s  %s\n", "SELF", "%", "TOTAL", "%", row_title(&f));
	for (size_t i = 0; i < n && (!max_rows || i < max_rows); i++) {
		put_value(out, rows[i].self, bytes);
		buf_printf(out, " %6.2f  ", 100. * (double)rows[i].self / (double)whole);
		put_value(out, rows[i].total, bytes);
		buf_printf(out, " %6.2f  ", 100. * (double)rows[i].total / (double)whole);
		put_frame(rows[i].name, out);
		buf_putc(out, '\n');
	}
	if (max_rows && n > max_rows)
		buf_printf(out, "... and %zu more (--limit)\n", n - max_rows);
	return 0;
}

/*
 * If the values are estimates, prints which part of all events they were estimated from, and the
 * standard error of the sum.
 */
static void put_estimated(const json_t *reply, struct buf *out)
{
	double share = json_number_value(json_at(reply, "summary.estimated.share"));
	const json_t *nodes = json_at(reply, "result.node_values.values");
	int64_t total = cell(nodes, 0, 3);

	if (share <= 0)
		return;
	buf_printf(out, "estimated from %.3g %% of what happened", 100 * share);
	if (total > 0)
		buf_printf(out, ", +-%.2g %%",
			   100. * (double)json_int_at(reply, "summary.estimated.error", 0) /
				   (double)total);
	buf_putc(out, '\n');
}

static void put_throttled(const json_t *reply, struct buf *out)
{
	int64_t us = json_int_at(reply, "summary.throttled_us", 0);

	if (us <= 0)
		return;
	buf_printf(out, "throttled: CPU limits held the containers back for %.3f s\n",
		   (double)us / 1e6);
}

void cli_query_print_notes(const json_t *reply, struct buf *out)
{
	const json_t *item;
	size_t i;

	put_estimated(reply, out);
	put_throttled(reply, out);
	json_array_foreach ((json_t *)json_at(reply, "summary.losses"), i, item) {
		int64_t n = json_int_at(item, "samples", 0), ns = json_int_at(item, "time_ns", 0);

		buf_printf(out, "lost: %s", json_str_at(item, "reason", "?"));
		if (n)
			buf_printf(out, ", %" PRId64 " samples", n);
		if (ns)
			buf_printf(out, ", %.1f s", (double)ns / (double)NSEC_PER_SEC);
		buf_putc(out, '\n');
	}
	if (json_bool_at(reply, "summary.truncated", false))
		buf_puts(out, "too many stacks: the answer lacks the smallest\n");
	json_array_foreach ((json_t *)json_at(reply, "summary.notes"), i, item)
		buf_printf(out, "note: %s\n", json_string_value(item));
}
