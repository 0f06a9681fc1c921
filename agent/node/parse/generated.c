/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an index of the rows of generated code. See generated.h. */
#include "node/parse/generated.h"

#include "node/parse/cfi.h"

#include <stdlib.h>

/* A row takes 32 bytes while rows are sorted, and a child has some tens of MiB. */
#define GENERATED_ROWS_MAX (256u << 10)

struct parse_generated {
	struct range *memory;
	size_t n, cap;
	struct rows *rows;
};

struct parse_generated *parse_generated_new(void)
{
	struct parse_generated *g = xcalloc(1, sizeof(*g));

	g->rows = parse_rows_new();
	return g;
}

struct parse_generated *parse_generated_free(struct parse_generated *g)
{
	if (!g)
		return NULL;
	parse_rows_free(g->rows);
	free(g->memory);
	free(g);
	return NULL;
}

void parse_generated_memory(struct parse_generated *g, uint64_t start, uint64_t end)
{
	GROW(g->memory, g->n, g->cap);
	g->memory[g->n++] = (struct range){start, end};
}

/* Returns the last piece of memory that begins at or before an address; NULL: there is none. */
static const struct range *memory_before(const struct parse_generated *g, uint64_t address)
{
	size_t low = 0, high = g->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (g->memory[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &g->memory[low - 1] : NULL;
}

/* Returns where the rows of a function end: at most where generated code ends. 0: it has none. */
static uint64_t end_of(const struct parse_generated *g, const struct cfi_fde *f)
{
	const struct range *first = memory_before(g, f->start);

	if (!first || f->start >= first->end)
		return 0;
	return MIN(memory_before(g, f->end - 1)->end, f->end);
}

int parse_generated_add(struct parse_generated *g, const struct parse_generated_frames *f)
{
	const struct cfi_section section = {
		.data = f->data,
		.n = f->n,
		.address = f->address,
		.text = f->text,
		.eh = f->eh,
		.until_zero = f->until_zero,
	};
	struct cfi cfi = {0};
	bool full = false, damaged;

	parse_cfi_read(&cfi, &section);
	for (size_t i = 0; i < cfi.n && !full; i++) {
		uint64_t end = end_of(g, &cfi.fdes[i]);

		full = parse_rows_count(g->rows) >= GENERATED_ROWS_MAX;
		if (end && !full)
			parse_cfi_rows(&cfi, &cfi.fdes[i], end, g->rows);
	}
	damaged = cfi.damaged;
	parse_cfi_done(&cfi);
	return full || parse_rows_cut(g->rows) ? -E2BIG : damaged ? -EBADMSG : 0;
}

static void put(struct buf *out, const void *items, size_t bytes)
{
	static const char zeros[8];

	if (bytes)
		buf_add(out, items, bytes);
	buf_add(out, zeros, -bytes & 7);
}

int parse_generated_write(struct parse_generated *g, struct buf *out)
{
	struct index_header h = {.string_bytes = 1};
	bool was_cut = parse_rows_cut(g->rows), page_cut;
	struct paged_rows rows = {0};

	parse_rows_finish(g->rows, &rows);
	page_cut = !was_cut && parse_rows_cut(g->rows);
	memcpy(h.magic, INDEX_MAGIC, sizeof(h.magic));
	h.n[INDEX_pages] = (uint32_t)rows.n_pages;
	h.n[INDEX_rows] = (uint32_t)rows.n_rows;
	h.n[INDEX_rules] = (uint32_t)rows.n_rules;
	if (rows.n_pages) {
		put(out, &h, sizeof(h));
		put(out, rows.pages, rows.n_pages * sizeof(*rows.pages));
		put(out, rows.rows, rows.n_rows * sizeof(*rows.rows));
		put(out, rows.rules, rows.n_rules * sizeof(*rows.rules));
		buf_putc(out, '\0'); /* the strings */
	}
	free(rows.pages);
	free(rows.rows);
	return out->failed ? -E2BIG : page_cut ? -ENOSPC : 0;
}
