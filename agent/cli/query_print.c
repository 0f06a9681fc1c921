/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints answers of ProfileTracing (flat form) as folded stacks and as a table of functions, and
 * the notes of every answer.
 */
#include "cli/query.h"

#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>

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

void cli_query_put_span(const struct query_span *s, struct buf *out)
{
	char from[32], to[32];

	time_format((uint64_t)s->from_s * NSEC_PER_SEC, from);
	time_format((uint64_t)s->to_s * NSEC_PER_SEC, to);
	buf_printf(out, "from %s to %s", from, to);
}

int cli_query_print_folded(const json_t *reply, struct buf *out)
{
	int64_t path[COLUMNS_MAX_DEPTH];
	struct flat f;
	int r = read_flat(reply, &f);

	if (r)
		return r;
	for (size_t i = 0; i < f.n_nodes; i++) {
		size_t depth = 0;

		if (!cell(f.nodes, i, 2))
			continue;
		for (int64_t at = (int64_t)i; at >= 0; at = cell(f.nodes, (size_t)at, 1)) {
			if (depth == COLUMNS_MAX_DEPTH) /* the parents form a circle */
				return -EBADMSG;
			path[depth++] = cell(f.nodes, (size_t)at, 0);
		}
		while (depth-- > 0) {
			cli_put_folded(out, text(f.functions, (size_t)path[depth]));
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
	const char *unit = json_str_at(reply, "unit", "");
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
	cli_put_name(out, f.n_functions ? text(f.functions, 0) : "nothing");
	buf_puts(out, ": ");
	cli_put_value(out, f.n_nodes ? cell(f.nodes, 0, 3) : 0, unit);
	buf_printf(out, " in %" PRId64 " samples", json_int_at(reply, "summary.samples", 0));
	put_whole(reply, &f, out);
	buf_printf(out, "%12s %6s  %12s %6s  %s\n", "SELF", "%", "TOTAL", "%", row_title(&f));
	for (size_t i = 0; i < n && (!max_rows || i < max_rows); i++) {
		cli_put_value(out, rows[i].self, unit);
		buf_printf(out, " %6.2f  ", cli_percent(rows[i].self, whole));
		cli_put_value(out, rows[i].total, unit);
		buf_printf(out, " %6.2f  ", cli_percent(rows[i].total, whole));
		cli_put_name(out, rows[i].name);
		buf_putc(out, '\n');
	}
	if (max_rows && n > max_rows)
		buf_printf(out, "... and %zu more (--limit)\n", n - max_rows);
	return 0;
}
