/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds up the equal stacks of a query in a hash table. SQLite's GROUP BY sorts every row, which
 * takes five times as long. The table has a limit. If it gets too many stacks, it adds up the
 * smallest in one row. So the totals stay right. A stack that was removed may come again later.
 * Then its sum is too small, and short_by is the greatest possible error.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

#define SLACK 4 /* the table holds 1/SLACK more stacks than the limit */
/* the table holds this many stacks more, so that one cut makes room for many */
#define SLACK_MIN 1024

void store_sums_init(struct sums *s, uint64_t max_rows)
{
	*s = (struct sums){.max_rows = max_rows};
}

void store_sums_done(struct sums *s)
{
	free(s->items);
}

static bool is_same(const struct stored_sum *a, const struct stored_sum *b)
{
	return a->stack == b->stack && a->app == b->app && a->group == b->group;
}

/* The index at which the search for the slot of x begins. */
static size_t first_slot(const struct sums *s, const struct stored_sum *x)
{
	const uint64_t key = (uint64_t)x->app << 40 ^ (uint64_t)x->group << 28 ^ (uint64_t)x->stack;

	return key * 0x9e3779b97f4a7c15ULL >> 20 & (s->cap - 1);
}

/* The slot of the stack, application and group of x. */
static struct stored_sum *slot(const struct sums *s, const struct stored_sum *x)
{
	size_t i = first_slot(s, x);

	while (s->items[i].stack && !is_same(&s->items[i], x))
		i = (i + 1) & (s->cap - 1);
	return &s->items[i];
}

static void grow(struct sums *s)
{
	struct sums old = *s;

	s->cap = old.cap ? old.cap * 2 : 4096;
	s->items = xcalloc(s->cap, sizeof(*s->items));
	for (size_t i = 0; i < old.cap; i++)
		if (old.items[i].stack)
			*slot(s, &old.items[i]) = old.items[i];
	free(old.items);
}

/* For qsort: the greatest value first; of equal values, the smaller row id. */
static int by_value(const void *a, const void *b)
{
	const struct stored_sum *x = a, *y = b;

	if (x->value != y->value)
		return x->value > y->value ? -1 : 1;
	if (x->stack != y->stack)
		return x->stack < y->stack ? -1 : 1;
	if (x->app != y->app)
		return x->app < y->app ? -1 : 1;
	return x->group < y->group ? -1 : x->group > y->group;
}

/* Adds `from` to `to`. No sum overflows: each operand is at most half of the type's range. */
static void add(struct stored_sum *to, const struct stored_sum *from)
{
	to->value = MIN(to->value + from->value, SQ_MAX_VALUE);
	to->n_samples = MIN(to->n_samples + from->n_samples, SQ_MAX_VALUE);
}

void store_sums_sort(struct sums *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->cap; i++)
		if (s->items[i].stack)
			s->items[n++] = s->items[i];
	s->cap = n; /* from here on the table is a list */
	if (n)
		qsort(s->items, n, sizeof(*s->items), by_value);
	s->n = n;
	if (n > s->max_rows)
		store_sums_cut(s, s->max_rows);
}

void store_sums_cut(struct sums *s, size_t n)
{
	for (size_t i = n; i < s->n; i++)
		add(&s->others, &s->items[i]);
	s->n = n;
	s->truncated = true;
}

/*
 * Removes the smallest stacks. If one of them comes again, its sum lacks, for each cut, at most the
 * greatest value that was removed in the cut.
 */
static void cut(struct sums *s)
{
	struct sums kept = {.max_rows = s->max_rows, .truncated = true};

	store_sums_sort(s);
	kept.others = s->others;
	kept.short_by = MIN(s->short_by + s->items[s->max_rows].value, SQ_MAX_VALUE);
	for (size_t i = 0; i < s->n; i++) {
		if (kept.n * 4 >= kept.cap * 3)
			grow(&kept);
		*slot(&kept, &s->items[i]) = s->items[i];
		kept.n++;
	}
	free(s->items);
	*s = kept;
}

static void add_one(struct sums *s, const struct stored_sum *sum)
{
	struct stored_sum *to;

	if (s->n > s->max_rows + s->max_rows / SLACK + SLACK_MIN)
		cut(s);
	if (s->n * 4 >= s->cap * 3)
		grow(s);
	to = slot(s, sum);
	if (!to->stack) {
		*to = *sum;
		s->n++;
		return;
	}
	add(to, sum);
}

/*
 * The table is larger than the near caches of the CPU, so the slots are fetched before they are
 * needed.
 */
void store_sums_add(struct sums *s, const struct stored_sum *list, size_t n)
{
	for (size_t i = 0; s->cap && i < n; i++)
		__builtin_prefetch(&s->items[first_slot(s, &list[i])], 1);
	for (size_t i = 0; i < n; i++)
		add_one(s, &list[i]);
}
