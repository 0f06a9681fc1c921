/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of a tree -> rows of bars. The nodes come depth first, so each row fills from the left. */
#include "hub/pyroscope/message.h"
#include "hub/pyroscope/stacks.h"

#include <inttypes.h>
#include <stdlib.h>

static int64_t sum(int64_t a, int64_t b)
{
	int64_t s;

	return __builtin_add_overflow(a, b, &s) ? INT64_MAX : s;
}

static int64_t times(int64_t a, unsigned factor)
{
	int64_t p;

	return __builtin_mul_overflow(a, (int64_t)factor, &p) ? INT64_MAX : p;
}

void pyroscope_scale_nodes(struct query_nodes *n, unsigned factor)
{
	for (size_t i = 0; i < n->n; i++) {
		struct query_node *node = &n->items[i];

		node->self = times(node->self, factor);
		node->total = times(node->total, factor);
		node->before_self = times(node->before_self, factor);
		node->before_total = times(node->before_total, factor);
	}
}

/* ---- rows ---- */

/* Where bars of a selection begin and end, by depth. */
struct side {
	int64_t *next; /* where the next bar begins */
	int64_t *end;  /* of the last bar */
};

struct drawing {
	struct pyroscope_flame *flame;
	struct side left, right; /* of one selection: only left */
	uint32_t *names;	 /* of each function: its index in flame->names; 0: it has none */
	size_t n_values;	 /* room of all rows */
	struct buf_budget *budget;
};

static void drawing_done(struct drawing *d)
{
	free(d->left.next);
	free(d->left.end);
	free(d->right.next);
	free(d->right.end);
	free(d->names);
}

static void put(struct drawing *d, struct pyroscope_row *row, int64_t v)
{
	size_t cap = row->cap;

	GROW(row->values, row->n, row->cap);
	d->n_values += row->cap - cap;
	row->values[row->n++] = v;
}

static void put_bar(struct drawing *d, struct side *s, uint32_t depth, int64_t self, int64_t total)
{
	struct pyroscope_row *row = &d->flame->rows[depth];
	int64_t start = s->next[depth], end = sum(start, total);

	put(d, row, start - s->end[depth]);
	put(d, row, total);
	put(d, row, self);
	s->next[depth] = s->end[depth] = end;
	s->next[depth + 1] = sum(start, self);
	d->flame->max_self = MAX(d->flame->max_self, self);
}

static int64_t name_index(struct drawing *d, const struct query_node *n)
{
	struct pyroscope_flame *f = d->flame;

	if (n->depth == 0)
		return 0;
	if (!d->names[n->function]) {
		f->names[f->n_names] = n->name;
		d->names[n->function] = (uint32_t)f->n_names++;
	}
	return d->names[n->function];
}

/* Returns 0, or -E2BIG if the budget has no room for what the flame graph has. */
static int count_memory(struct drawing *d, const struct query_nodes *n)
{
	struct pyroscope_flame *f = d->flame;

	return buf_budget_grow(d->budget,
			       n->n_functions * (sizeof(*f->names) + sizeof(*d->names)) +
				       d->n_values * sizeof(int64_t),
			       &f->n_counted);
}

static void put_node(struct drawing *d, const struct query_node *n)
{
	if (d->flame->diff) {
		put_bar(d, &d->left, n->depth, n->before_self, n->before_total);
		put_bar(d, &d->right, n->depth, n->self, n->total);
	} else {
		put_bar(d, &d->left, n->depth, n->self, n->total);
	}
	put(d, &d->flame->rows[n->depth], name_index(d, n));
}

static void put_totals(struct pyroscope_flame *f, const struct query_node *root)
{
	f->total = root->total;
	if (!f->diff)
		return;
	f->left_ticks = root->before_total;
	f->right_ticks = root->total;
	f->total = sum(f->left_ticks, f->right_ticks);
}

static void make_room(struct drawing *d, const struct query_nodes *n)
{
	struct pyroscope_flame *f = d->flame;
	size_t n_rows = 0;

	for (size_t i = 0; i < n->n; i++)
		n_rows = MAX(n_rows, (size_t)n->items[i].depth + 1);
	f->rows = xcalloc(n_rows, sizeof(*f->rows));
	f->n_rows = n_rows;
	f->names = xcalloc(n->n_functions + 1, sizeof(*f->names));
	f->names[f->n_names++] = "total";
	d->names = xcalloc(n->n_functions, sizeof(*d->names));
	d->left.next = xcalloc(n_rows + 1, sizeof(int64_t));
	d->left.end = xcalloc(n_rows + 1, sizeof(int64_t));
	d->right.next = xcalloc(n_rows + 1, sizeof(int64_t));
	d->right.end = xcalloc(n_rows + 1, sizeof(int64_t));
}

int pyroscope_flame_of(const struct query_nodes *n, bool diff, struct buf_budget *b,
		       struct pyroscope_flame *ret)
{
	_cleanup_(drawing_done) struct drawing d = {.flame = ret, .budget = b};

	*ret = (struct pyroscope_flame){.diff = diff};
	make_room(&d, n);
	put_totals(ret, &n->items[0]);
	for (size_t i = 0; i < n->n; i++) {
		put_node(&d, &n->items[i]);
		if (count_memory(&d, n))
			return -E2BIG;
	}
	return 0;
}

void pyroscope_flame_done(struct pyroscope_flame *f)
{
	for (size_t i = 0; i < f->n_rows; i++)
		free(f->rows[i].values);
	free(f->rows);
	free(f->names);
	*f = (struct pyroscope_flame){0};
}

/* ---- as an answer ---- */

void pyroscope_put_flame(struct pyroscope_writer *w, const struct pyroscope_flame *f)
{
	pyroscope_put_begin(w, "flamegraph");
	for (size_t i = 0; i < f->n_names; i++)
		pyroscope_put_text(w, "names", f->names[i]);
	for (size_t i = 0; i < f->n_rows; i++) {
		pyroscope_put_begin(w, "levels");
		pyroscope_put_ints(w, "values", f->rows[i].values, f->rows[i].n);
		pyroscope_put_end(w);
	}
	pyroscope_put_int(w, "total", f->total);
	pyroscope_put_int(w, "max_self", f->max_self);
	if (f->diff) {
		pyroscope_put_int(w, "leftTicks", f->left_ticks);
		pyroscope_put_int(w, "rightTicks", f->right_ticks);
	}
	pyroscope_put_end(w);
}

static void put_json_row(struct buf *b, const struct pyroscope_row *row)
{
	for (size_t i = 0; i < row->n; i++)
		buf_printf(b, "%c%" PRId64, i ? ',' : '[', row->values[i]);
	buf_putc(b, ']');
}

void pyroscope_put_flamebearer(struct buf *b, const struct pyroscope_flame *f,
			       const struct pyroscope_render *r)
{
	buf_puts(b, "{\"version\":1,\"flamebearer\":{\"names\":");
	for (size_t i = 0; i < f->n_names; i++) {
		buf_putc(b, i ? ',' : '[');
		buf_json_string(b, f->names[i]);
	}
	buf_puts(b, "],\"levels\":");
	for (size_t i = 0; i < f->n_rows; i++) {
		buf_putc(b, i ? ',' : '[');
		put_json_row(b, &f->rows[i]);
	}
	buf_printf(b,
		   "],\"numTicks\":%" PRId64 ",\"maxSelf\":%" PRId64
		   "},\"metadata\":{\"format\":\"%s\",\"spyName\":\"\",\"sampleRate\":%" PRIu32
		   ",\"units\":",
		   f->total, f->max_self, f->diff ? "double" : "single", r->sample_rate);
	buf_json_string(b, r->units);
	buf_puts(b, ",\"name\":");
	buf_json_string(b, r->name);
	buf_putc(b, '}');
	if (f->diff)
		buf_printf(b, ",\"leftTicks\":%" PRId64 ",\"rightTicks\":%" PRId64, f->left_ticks,
			   f->right_ticks);
}
