/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a part of an index, which is an index itself, for a process that needs no more of it. */
#include "lib/symbols/format.h"

#define SYMBOLS_MAX 8 /* symbols of one part */

struct part {
	struct index_header header;
	struct index_symbol symbols[SYMBOLS_MAX];
	struct buf marks, strings;
};

static uint32_t add_string(struct part *p, const char *s)
{
	size_t at = p->strings.len;

	buf_add(&p->strings, s, strlen(s) + 1);
	return (uint32_t)at;
}

/* Adds a symbol of the index. Symbols are sorted by address, and each is there once. */
static void add_symbol(struct part *p, const struct elf_symbol *y)
{
	uint32_t n = p->header.n[INDEX_symbols], at = 0;

	while (at < n && p->symbols[at].address < y->address)
		at++;
	if (n == SYMBOLS_MAX || (at < n && p->symbols[at].address == y->address))
		return;
	memmove(&p->symbols[at + 1], &p->symbols[at], (n - at) * sizeof(p->symbols[0]));
	p->symbols[at] = (struct index_symbol){
		.address = y->address,
		.size = (uint32_t)y->size,
		.name = add_string(p, y->name),
	};
	p->header.n[INDEX_symbols]++;
}

static void add_marks(struct part *p, const struct elf_index *i, bool (*wants)(const char *name))
{
	for (size_t k = 0; k < elf_index_n_marks(i); k++) {
		struct elf_mark m = elf_index_mark(i, k);
		struct index_mark mark = {
			.address = m.address, .size = m.size, .thread_local = m.thread_local};

		if (!wants(m.name))
			continue;
		mark.name = add_string(p, m.name);
		buf_add(&p->marks, &mark, sizeof(mark));
		p->header.n[INDEX_marks]++;
	}
}

static void put(struct buf *out, const void *items, size_t bytes)
{
	static const char zeros[8];

	if (bytes)
		buf_add(out, items, bytes);
	buf_add(out, zeros, -bytes & 7);
}

static void write_part(const struct part *p, const struct index_segment *segments,
		       const struct elf_tables *t, struct buf *out)
{
	const struct index_header *h = &p->header;

	put(out, h, sizeof(*h));
	put(out, segments, h->n[INDEX_segments] * sizeof(*segments));
	put(out, p->symbols, h->n[INDEX_symbols] * sizeof(p->symbols[0]));
	put(out, p->marks.data, p->marks.len);
	put(out, t->pages, h->n[INDEX_pages] * sizeof(*t->pages));
	put(out, t->rows, h->n[INDEX_rows] * sizeof(*t->rows));
	put(out, t->rules, h->n[INDEX_rules] * sizeof(*t->rules));
	buf_add(out, p->strings.data, p->strings.len);
}

void elf_index_write_part(const struct elf_index *i, const struct elf_part *what, struct buf *out)
{
	const struct index_header *whole = elf_index_data(i);
	struct part p = {.header.flags = elf_index_flags(i)};
	struct elf_tables tables = {0};

	memcpy(p.header.magic, INDEX_MAGIC, sizeof(p.header.magic));
	add_string(&p, "");
	for (size_t k = 0; what->symbols && what->symbols[k]; k++) {
		struct elf_symbol y;

		if (elf_index_find_symbol(i, what->symbols[k], &y) == 0)
			add_symbol(&p, &y);
	}
	if (what->mark)
		add_marks(&p, i, what->mark);
	if (what->tables)
		elf_index_tables(i, &tables);
	p.header.n[INDEX_segments] = whole->n[INDEX_segments];
	p.header.n[INDEX_pages] = (uint32_t)tables.n_pages;
	p.header.n[INDEX_rows] = (uint32_t)tables.n_rows;
	p.header.n[INDEX_rules] = (uint32_t)tables.n_rules;
	p.header.string_bytes = (uint32_t)p.strings.len;
	/* the segments are the first section */
	write_part(&p, (const struct index_segment *)(whole + 1), &tables, out);
	buf_done(&p.marks);
	buf_done(&p.strings);
}
