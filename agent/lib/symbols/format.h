/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an index: the header, the sections in the order of INDEX_SECTIONS (each is an array
 * of its type), and the strings. Nothing else follows. The reader and the writer (node/parse)
 * include this file. A mark is a symbol, string or USDT probe that the parser was asked to find.
 */
#pragma once

#include "lib/symbols/symbols.h"

#define INDEX_MAGIC	   "pfindex3"
#define INDEX_STRINGS_MAX  (128u << 20) /* bytes of the strings of one index */
#define INDEX_NAME_MAX	   16384       /* longer names are cut, and "..." is their end */
#define INDEX_BUILD_ID_MAX 64
#define INDEX_SYMBOLS_MAX  (4u << 20)
#define INDEX_SEGMENTS_MAX 1024	       /* segments of a file; a file with more is not parsed */
#define INDEX_WANTED_MAX   4096	       /* debug files (.dwo) of one file; others are not read */
#define INDEX_MARKS_MAX	   4096	       /* marks of one file; further ones are left out */

struct index_segment {
	uint64_t address, offset, bytes; /* bytes: size in the file */
	uint32_t executable, pad;
};
struct index_symbol { /* sorted by address; they do not overlap */
	uint64_t address;
	/*
	 * name and file are offsets into the strings. name 0: a function without a symbol, which
	 * begins at the address
	 */
	uint32_t size, name;
	uint32_t file, line;
};
/* sorted by address; they do not overlap. node: the innermost function that is inlined here */
struct index_inline_range {
	uint64_t address;
	uint32_t size, node;
};
struct index_inline_node { /* one function that was inlined at one place */
	uint32_t name, file, line;
	/*
	 * 1 + index of the inlining around it, which always stands before it; 0: the symbol is
	 * around it
	 */
	uint32_t parent;
};
struct index_wanted {
	uint64_t dwo_id;
	uint32_t path, pad;
};

struct index_mark { /* sorted by name, then by address */
	uint64_t address, size;
	uint32_t name, thread_local;
};

/* X(name, type, most). most: the limit of its items. Sections are padded to 8 bytes. */
#define INDEX_SECTIONS(X)                                                                          \
	X(segments, struct index_segment, INDEX_SEGMENTS_MAX)                                      \
	X(symbols, struct index_symbol, INDEX_SYMBOLS_MAX)                                         \
	X(inline_ranges, struct index_inline_range, 4u << 20)                                      \
	X(inline_nodes, struct index_inline_node, 4u << 20)                                        \
	X(wanted, struct index_wanted, INDEX_WANTED_MAX)                                           \
	X(marks, struct index_mark, INDEX_MARKS_MAX)                                               \
	X(pages, struct elf_page, 1u << 20)                                                        \
	X(rows, struct pf_row, 16u << 20)                                                          \
	X(rules, struct pf_rule, PF_RULES_MAX)

enum index_section {
#define X(name, type, most) INDEX_##name,
	INDEX_SECTIONS(X)
#undef X
		_INDEX_SECTIONS,
};

struct index_header {
	char magic[8];
	uint32_t n[_INDEX_SECTIONS]; /* number of items of each section */
	/* size of the strings. The first byte is NUL, so offset 0 is "" */
	uint32_t string_bytes;
	uint32_t flags;		     /* enum elf_index_flag */
	uint32_t debuglink, debuglink_crc;
	uint32_t build_id_bytes;
	uint8_t build_id[INDEX_BUILD_ID_MAX];
};
_Static_assert(sizeof(struct index_header) == 8 + 4 * _INDEX_SECTIONS + 20 + INDEX_BUILD_ID_MAX,
	       "index");
_Static_assert(sizeof(struct index_header) % 8 == 0, "index");
_Static_assert(sizeof(struct index_segment) == 32, "index");
_Static_assert(sizeof(struct index_symbol) == 24, "index");
_Static_assert(sizeof(struct index_inline_range) == 16, "index");
_Static_assert(sizeof(struct index_inline_node) == 16, "index");
_Static_assert(sizeof(struct index_wanted) == 16, "index");
_Static_assert(sizeof(struct index_mark) == 24, "index");
_Static_assert(sizeof(struct elf_page) == 16, "index");
