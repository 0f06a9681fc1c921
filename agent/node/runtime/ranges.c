/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the ranges of code that a runtime learnt from a hostile process. Only parts that the
 * process can execute are kept, and no part is kept twice.
 */
#include "node/runtime/ask_format.h"

#include <stdlib.h>

struct fit {
	const struct runtime_look *look;
	size_t most;
	struct runtime_range *items;
	size_t n, cap;
	bool cut;
};

static int compare_ranges(const void *left, const void *right)
{
	const struct runtime_range *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static bool is_valid(const struct runtime_range *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (r[i].start >= r[i].end || (i && r[i].start < r[i - 1].end))
			return false;
	return true;
}

/* Returns the first of the taken ranges that overlaps [start, end). */
static const struct runtime_range *first_taken(const struct fit *f, uint64_t start, uint64_t end)
{
	const struct runtime_range *first = NULL;

	for (size_t i = 0; i < f->look->n_taken; i++) {
		const struct runtime_range *t = &f->look->taken[i];

		if (t->start < end && t->end > start && (!first || t->start < first->start))
			first = t;
	}
	return first;
}

static void add(struct fit *f, uint64_t start, uint64_t end, bool managed)
{
	if (start >= end)
		return;
	if (f->n == f->most) {
		f->cut = true;
		return;
	}
	GROW(f->items, f->n, f->cap);
	f->items[f->n++] = (struct runtime_range){start, end, managed};
}

static void add_free(struct fit *f, uint64_t start, uint64_t end, bool managed)
{
	while (start < end && !f->cut) {
		const struct runtime_range *t = first_taken(f, start, end);

		add(f, start, t ? MAX(t->start, start) : end, managed);
		start = t ? t->end : end;
	}
}

void runtime_ranges_cut(struct runtime_learnt *l, const char *what)
{
	counter_add(runtime_loss_counter(LOST_RANGES), 1);
	if (!*l->problem)
		snprintf(l->problem, sizeof(l->problem), "it has more %s than podflame keeps",
			 what);
}

int runtime_ranges_fit(const struct runtime_look *look, size_t most, struct runtime_range **ranges,
		       size_t *n)
{
	const struct mappings *m = look->maps;
	struct fit f = {.look = look, .most = most};
	size_t first = 0;

	if (*n)
		qsort(*ranges, *n, sizeof(**ranges), compare_ranges);
	if (!is_valid(*ranges, *n))
		return -EINVAL;
	for (size_t i = 0; i < *n; i++) {
		const struct runtime_range *r = &(*ranges)[i];
		/* Mappings may overlap, because the process changed them while they were read. */
		uint64_t end = r->start;

		while (first < m->n && m->items[first].end <= r->start)
			first++;
		for (size_t k = first; k < m->n && m->items[k].start < r->end; k++) {
			add_free(&f, MAX(m->items[k].start, end), MIN(m->items[k].end, r->end),
				 r->managed);
			end = MAX(end, MIN(m->items[k].end, r->end));
		}
	}
	if (f.cut) {
		free(f.items);
		return -E2BIG;
	}
	free(*ranges);
	*ranges = f.items;
	*n = f.n;
	return 0;
}
