/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols nest, overlap and have aliases. This file makes disjoint parts sorted by address, each
 * named by the innermost symbol. So a look-up is one binary search, whatever the file contains.
 */
#include "node/parse/build.h"

#include <stdlib.h>

#define NOT_WRITTEN UINT32_MAX

/*
 * Orders the names of symbols with the same range: public before local, then the plainer name
 * ("write", a weak alias, before "__write" or "__libc_write"), then strong before weak, then the
 * shorter name.
 */
static int compare_names(const struct symbol *a, const struct symbol *b)
{
	size_t underscores_a = strspn(a->name, "_"), underscores_b = strspn(b->name, "_");
	size_t n_a, n_b;

	if (a->local != b->local)
		return a->local - b->local;
	if (a->untyped != b->untyped)
		return a->untyped - b->untyped;
	if (underscores_a != underscores_b)
		return underscores_a < underscores_b ? -1 : 1;
	if (a->weak != b->weak)
		return a->weak - b->weak;
	n_a = strlen(a->name);
	n_b = strlen(b->name);
	if (n_a != n_b)
		return n_a < n_b ? -1 : 1;
	return strcmp(a->name, b->name);
}

/*
 * Orders symbols by address. At the same address, the outer symbol comes first, and a symbol
 * without size last. Of symbols with the same range, the best name comes first.
 */
static int compare_symbols(const void *left, const void *right)
{
	const struct symbol *a = left, *b = right;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	if (a->end != b->end)
		return a->end > b->end ? -1 : 1;
	return compare_names(a, b);
}

static void remove_aliases(struct built_symbols *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		const struct symbol *last = n ? &s->items[n - 1] : NULL;

		if (last && last->address == s->items[i].address && last->end == s->items[i].end)
			continue;
		s->items[n++] = s->items[i];
	}
	s->n = n;
}

/*
 * Gives each symbol without size an end: where the next symbol begins. Drops a symbol without size
 * that is inside a symbol with a size.
 */
static void bound_sizeless(struct built_symbols *s)
{
	uint64_t covered = 0; /* end of the sized symbols so far */
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		struct symbol *y = &s->items[i];

		if (y->end > y->address) {
			covered = MAX(covered, y->end);
		} else {
			uint64_t next = i + 1 < s->n ? s->items[i + 1].address : UINT64_MAX;

			if (y->address < covered)
				continue;
			y->end = MIN(next, y->limit);
			if (y->end <= y->address)
				continue;
		}
		s->items[n++] = *y;
	}
	s->n = n;
}

struct sweep {
	struct symbol *symbols;
	uint32_t *open; /* symbols that contain the current address, innermost last */
	size_t n_open, cap_open;
	uint64_t place;
	struct index_symbol *parts;
	size_t n_parts, cap_parts;
	struct buf *strings;
	bool cut;
};

/* Returns whether the strings have room for the name, or it has been written already. */
static bool write_name(struct symbol *y, struct buf *strings)
{
	size_t n;

	if (y->name_offset != NOT_WRITTEN)
		return true;
	/* foo@VERSION and foo@@VERSION: the version is not part of the name. */
	n = strcspn(y->name, "@");
	if (n == 0)
		n = strlen(y->name);
	if (strings->len + MIN(n, (size_t)INDEX_NAME_MAX) + 1 > INDEX_STRINGS_MAX)
		return false;
	y->name_offset = parse_strings_put(strings, y->name, n);
	return true;
}

/* Adds the part [place, end), which belongs to the innermost open symbol. */
static void emit(struct sweep *w, uint64_t end)
{
	struct symbol *y = &w->symbols[w->open[w->n_open - 1]];

	if (end <= w->place)
		return;
	if (w->n_parts < INDEX_SYMBOLS_MAX && write_name(y, w->strings)) {
		GROW(w->parts, w->n_parts, w->cap_parts);
		w->parts[w->n_parts++] = (struct index_symbol){
			.address = w->place,
			.size = MIN(end - w->place, (uint64_t)UINT32_MAX),
			.name = y->name_offset,
			.file = y->file,
			.line = y->line,
		};
	} else {
		w->cut = true;
	}
	w->place = end;
}

static void close_until(struct sweep *w, uint64_t address)
{
	while (w->n_open) {
		uint64_t end = w->symbols[w->open[w->n_open - 1]].end;

		if (end > address)
			break;
		emit(w, end);
		w->n_open--;
	}
}

void parse_symbols_flatten(struct built_symbols *s, struct index_symbol **ret_parts,
			   size_t *ret_n_parts, struct buf *strings)
{
	struct sweep w = {.strings = strings};

	if (s->n)
		qsort(s->items, s->n, sizeof(*s->items), compare_symbols);
	remove_aliases(s);
	bound_sizeless(s);
	w.symbols = s->items;
	for (uint32_t i = 0; i < s->n; i++) {
		s->items[i].name_offset = NOT_WRITTEN;
		close_until(&w, s->items[i].address);
		if (w.n_open)
			emit(&w, s->items[i].address);
		w.place = s->items[i].address;
		GROW(w.open, w.n_open, w.cap_open);
		w.open[w.n_open++] = i;
	}
	close_until(&w, UINT64_MAX);
	free(w.open);
	s->cut |= w.cut;
	*ret_parts = w.parts;
	*ret_n_parts = w.n_parts;
}
