/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF: adds file and line of the functions that a walk has found to the symbols, and makes
 * symbols for functions that have none.
 */
#include "node/parse/dwarf_internal.h"

#include <stdlib.h>

static int compare_functions(const void *left, const void *right)
{
	const struct dw_function *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static int compare_symbols(const void *left, const void *right)
{
	const struct symbol *a = *(struct symbol *const *)left, *b = *(struct symbol *const *)right;

	return a->address < b->address ? -1 : a->address > b->address;
}

static struct symbol **sort_symbols(struct built_symbols *s)
{
	struct symbol **sorted = xmalloc(s->n * sizeof(*sorted));

	for (size_t i = 0; i < s->n; i++)
		sorted[i] = &s->items[i];
	if (s->n)
		qsort(sorted, s->n, sizeof(*sorted), compare_symbols);
	return sorted;
}

/*
 * Goes through symbols and functions in the order of their addresses. Every symbol that begins
 * where a function begins gets the function's file and line. Keeps in d->functions only the named
 * functions that begin in no symbol, and returns how many these are.
 */
static size_t match(struct dw *d)
{
	struct symbol **symbols = sort_symbols(&d->b->symbols);
	size_t left = 0, k = 0;
	uint64_t covered = 0;

	for (size_t i = 0; i < d->n_functions; i++) {
		struct dw_function f = d->functions[i];
		bool known;

		for (; k < d->b->symbols.n && symbols[k]->address < f.start; k++)
			covered = MAX(covered, symbols[k]->end);
		known = covered > f.start;
		for (; k < d->b->symbols.n && symbols[k]->address == f.start; k++) {
			symbols[k]->file = f.file;
			symbols[k]->line = f.line;
			covered = MAX(covered, symbols[k]->end);
			known = true;
		}
		if (!known && f.name)
			d->functions[left++] = f;
	}
	free(symbols);
	return left;
}

/* Copies the names of new symbols into one block, because b->strings moves as it grows. */
static char *copy_names(const struct dw *d, size_t n)
{
	size_t bytes = 1;
	char *names, *at;

	for (size_t i = 0; i < n; i++)
		bytes += strlen(d->b->strings.data + d->functions[i].name) + 1;
	at = names = xmalloc(bytes);
	for (size_t i = 0; i < n; i++)
		at = stpcpy(at, d->b->strings.data + d->functions[i].name) + 1;
	return names;
}

void parse_dw_functions_apply(struct dw *d)
{
	struct built_symbols *s = &d->b->symbols;
	const char *name;
	size_t n;

	if (d->n_functions)
		qsort(d->functions, d->n_functions, sizeof(*d->functions), compare_functions);
	n = match(d);
	if (n > INDEX_SYMBOLS_MAX - s->n) {
		n = INDEX_SYMBOLS_MAX - s->n;
		d->cut = true;
	}
	name = d->b->dwarf_names = copy_names(d, n);
	for (size_t i = 0; i < n; i++) {
		const struct dw_function *f = &d->functions[i];

		GROW(s->items, s->n, s->cap);
		s->items[s->n++] = (struct symbol){
			.address = f->start,
			.end = f->end,
			.limit = f->end,
			.name = name,
			.file = f->file,
			.line = f->line,
		};
		name += strlen(name) + 1;
	}
}
