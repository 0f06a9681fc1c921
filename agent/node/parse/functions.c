/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that have no symbol, by where they begin: what call frame information and code prove.
 * In the index they are symbols without a name, so a look-up stays one binary search.
 */
#include "node/parse/build.h"

#include <stdlib.h>

void parse_functions_add(struct built_functions *f, uint64_t start, uint64_t end)
{
	if (end <= start)
		return;
	if (f->n == INDEX_SYMBOLS_MAX) {
		f->cut = true;
		return;
	}
	GROW(f->items, f->n, f->cap);
	f->items[f->n++] = (struct range){start, end};
}

/* Of functions that begin at the same place, the longest comes first. */
static int compare_ranges(const void *left, const void *right)
{
	const struct range *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->end > b->end ? -1 : a->end < b->end;
}

static void sort_functions(struct built_functions *f)
{
	size_t n = 0;

	if (f->n)
		qsort(f->items, f->n, sizeof(*f->items), compare_ranges);
	for (size_t k = 0; k < f->n; k++)
		if (!n || f->items[n - 1].start != f->items[k].start)
			f->items[n++] = f->items[k];
	f->n = n;
	for (size_t k = 0; k + 1 < n; k++)
		f->items[k].end = MIN(f->items[k].end, f->items[k + 1].start);
}

static uint64_t end_of(const struct index_symbol *part)
{
	return part->address + part->size;
}

static int compare_parts(const void *left, const void *right)
{
	const struct index_symbol *a = left, *b = right;

	return a->address < b->address ? -1 : a->address > b->address;
}

void parse_functions_merge(struct built_functions *f, struct index_symbol **parts, size_t *n_parts)
{
	size_t n = *n_parts, named = n, k = 0;

	sort_functions(f);
	*parts = xrealloc(*parts, (n + f->n + 1) * sizeof(**parts));
	for (size_t i = 0; i < f->n; i++) {
		uint64_t start = f->items[i].start, end = f->items[i].end;

		while (k < named && end_of(&(*parts)[k]) <= start)
			k++;
		if (k < named && (*parts)[k].address <= start)
			continue;
		if (k < named)
			end = MIN(end, (*parts)[k].address);
		if (n == INDEX_SYMBOLS_MAX) {
			f->cut = true;
			break;
		}
		(*parts)[n++] = (struct index_symbol){
			.address = start, .size = (uint32_t)MIN(end - start, (uint64_t)UINT32_MAX)};
	}
	qsort(*parts, n, sizeof(**parts), compare_parts);
	*n_parts = n;
}

size_t parse_functions_leave_out(struct index_symbol *parts, size_t n_parts)
{
	size_t n = 0;

	for (size_t k = 0; k < n_parts; k++)
		if (parts[k].name)
			parts[n++] = parts[k];
	return n;
}
