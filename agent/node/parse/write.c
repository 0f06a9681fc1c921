/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what the readers of a file have found as an index, to a sealed memfd. */
#include "node/parse/build.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct output {
	int fd;
	off_t at;
	bool failed;
};

static void put_bytes(struct output *o, const void *data, size_t n)
{
	const char *p = data;

	while (n && !o->failed) {
		ssize_t done = pwrite(o->fd, p, n, o->at);

		if (done <= 0) {
			o->failed = true;
			return;
		}
		p += done;
		n -= done;
		o->at += done;
	}
}

static void put_section(struct output *o, const void *data, size_t n)
{
	static const char zeros[8];

	put_bytes(o, data, n);
	put_bytes(o, zeros, -n & 7);
}

/* The sections' items, in the order of INDEX_SECTIONS. */
struct arrays {
	const void *items[_INDEX_SECTIONS];
};

static uint64_t bytes_of(const struct index_header *h)
{
	uint64_t bytes = sizeof(*h) + h->string_bytes;

#define X(name, type, most) bytes += ((uint64_t)h->n[INDEX_##name] * sizeof(type) + 7) & ~7ull;
	INDEX_SECTIONS(X)
#undef X
	return bytes;
}

static int write_all(const struct index_header *h, const struct arrays *a,
		     const struct buf *strings, int fd)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct output o = {.fd = fd};

	put_bytes(&o, h, sizeof(*h));
#define X(name, type, most)                                                                        \
	put_section(&o, a->items[INDEX_##name], h->n[INDEX_##name] * sizeof(type));
	INDEX_SECTIONS(X)
#undef X
	put_bytes(&o, strings->data, strings->len);
	if (o.failed || fcntl(fd, F_ADD_SEALS, seals) < 0)
		return -EIO;
	return 0;
}

static void leave_unnamed_out(struct elf_build *b, struct index_symbol *symbols)
{
	uint32_t *n = &b->header.n[INDEX_symbols];
	const uint32_t all = *n;

	*n = (uint32_t)parse_functions_leave_out(symbols, *n);
	if (*n < all)
		b->header.flags |= ELF_INDEX_STARTS_CUT;
}

/* before_names: the length of the strings without the names of the symbols, which are their end. */
static void leave_names_out(struct elf_build *b, size_t before_names)
{
	b->header.n[INDEX_symbols] = 0;
	b->strings.len = b->header.string_bytes = before_names;
	b->header.flags |= ELF_INDEX_NAMES_CUT;
}

static enum parse_reason write_index(struct elf_build *b, const struct arrays *a,
				     struct index_symbol *symbols, size_t before_names,
				     uint64_t max_bytes, int *ret_memfd)
{
	_cleanup_close_ int fd = -1;

	memcpy(b->header.magic, INDEX_MAGIC, sizeof(b->header.magic));
	b->header.string_bytes = b->strings.len;
	if (b->strings.failed)
		return PARSE_STRINGS;
	if (bytes_of(&b->header) > max_bytes)
		leave_unnamed_out(b, symbols);
	if (bytes_of(&b->header) > max_bytes)
		leave_names_out(b, before_names);
	if (bytes_of(&b->header) > max_bytes)
		return PARSE_INDEX_BYTES;
	fd = memfd_create("podflame-index", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || write_all(&b->header, a, &b->strings, fd) < 0)
		return PARSE_IO;
	*ret_memfd = TAKE_FD(fd);
	return PARSE_OK;
}

enum parse_reason parse_build_write(struct elf_build *b, uint64_t max_bytes, int *ret_memfd)
{
	struct index_symbol *symbols = NULL;
	struct paged_rows rows = {0};
	struct flat_inlines inlines = {0};
	struct index_mark *marks = NULL;
	size_t n_symbols = 0, n_marks = 0, before_names;
	enum parse_reason reason = parse_rows_finish(b->rows, &rows);

	if (parse_rows_cut(b->rows))
		b->header.flags |= ELF_INDEX_UNWIND_CUT;
	if (!reason)
		reason = parse_inlines_finish(b->inlines, &inlines);
	if (parse_inlines_cut(b->inlines))
		b->header.flags |= ELF_INDEX_DWARF_CUT;
	parse_marks_finish(b, &marks, &n_marks);
	before_names = b->strings.len;
	parse_symbols_flatten(&b->symbols, &symbols, &n_symbols, &b->strings);
	parse_functions_merge(&b->functions, &symbols, &n_symbols);
	if (b->symbols.cut)
		b->header.flags |= ELF_INDEX_NAMES_CUT;
	if (b->functions.cut)
		b->header.flags |= ELF_INDEX_STARTS_CUT;
	if (!reason) {
		const struct arrays a = {{
			[INDEX_segments] = b->segments,
			[INDEX_symbols] = symbols,
			[INDEX_inline_ranges] = inlines.ranges,
			[INDEX_inline_nodes] = inlines.nodes,
			[INDEX_wanted] = b->wanted,
			[INDEX_marks] = marks,
			[INDEX_pages] = rows.pages,
			[INDEX_rows] = rows.rows,
			[INDEX_rules] = rows.rules,
		}};
		uint32_t *n = b->header.n;

		n[INDEX_segments] = b->n_segments;
		n[INDEX_symbols] = n_symbols;
		n[INDEX_inline_ranges] = inlines.n_ranges;
		n[INDEX_inline_nodes] = inlines.n_nodes;
		n[INDEX_wanted] = b->n_wanted;
		n[INDEX_marks] = n_marks;
		n[INDEX_pages] = rows.n_pages;
		n[INDEX_rows] = rows.n_rows;
		n[INDEX_rules] = rows.n_rules;
		reason = write_index(b, &a, symbols, before_names, max_bytes, ret_memfd);
	}
	free(symbols);
	free(marks);
	free(rows.pages);
	free(rows.rows);
	free(inlines.ranges);
	free(inlines.nodes);
	return reason;
}
