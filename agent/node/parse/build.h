/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to parse, child side: an index on its way. Each reader of a kind of section is a file
 * that fills some of its arrays; write.c writes them. Every reader works on bytes of a hostile
 * file: through the bounds of its section, within the limits of lib/symbols/format.h.
 */
#pragma once

#include "node/parse/format.h"

#include <gelf.h>

/* ---- symbols.c: symbols as the file has them -> sorted, disjoint, named once ---- */
struct symbol {
	uint64_t address, end; /* end == address: no size */
	uint64_t limit;	       /* end of its section */
	const char *name;
	uint32_t name_offset; /* in the strings, once written */
	uint32_t file, line;  /* file: offset into the strings; 0: not known */
	uint8_t weak, local, untyped;
};
struct symbols {
	struct symbol *items;
	size_t n, cap;
};
/* Sorts s; *ret_parts grows by xrealloc, names go to strings. */
enum parse_reason parse_symbols_flatten(struct symbols *s, struct index_symbol **ret_parts,
				  size_t *ret_n_parts, struct buf *strings);

/* ---- rows.c: unwind rows in any order -> pages of compact rows, rules kept once ---- */
struct rows;
struct rows *parse_rows_new(void);
struct rows *parse_rows_free(struct rows *r);
/* The number of a rule; PF_RULE_UNSUPPORTED when there are PF_RULES_MAX already (parse_rows_cut). */
uint16_t parse_rows_rule(struct rows *r, const struct pf_rule *rule);
/* rule (a number or enum pf_rule_special) holds in [start, end). Where ranges overlap, the one that
 * starts later holds; of two with one start the first one added. */
void parse_rows_add(struct rows *r, uint64_t start, uint64_t end, uint16_t rule);
size_t parse_rows_count(const struct rows *r);
bool parse_rows_cut(const struct rows *r); /* a limit was met */
/* The stretches of `in` (ascending) of at least min bytes that have no range. Allocates *ret. */
struct range;
size_t parse_rows_gaps(struct rows *r, const struct range *in, size_t n_in, uint64_t min,
		 struct range **ret);
/* Sorts, joins equal neighbours, closes gaps of fewer than 16 bytes (but for ranges added as
 * PF_RULE_GAP), cuts into pages. */
struct paged_rows {
	struct elf_page *pages;
	struct pf_row *rows;
	const struct pf_rule *rules; /* of r */
	size_t n_pages, n_rows, n_rules;
};
enum parse_reason parse_rows_finish(struct rows *r, struct paged_rows *ret);

/* ---- inlines.c: inlined ranges, nested in any order -> disjoint ones ---- */
struct inlines;
struct inlines *parse_inlines_new(void);
struct inlines *parse_inlines_free(struct inlines *x);
/* A function inlined at one place; strings are offsets into elf_build.strings; parent: of another
 * node, UINT32_MAX: the symbol itself. Returns its number, UINT32_MAX: too many (parse_inlines_cut). */
uint32_t parse_inlines_node(struct inlines *x, uint32_t name, uint32_t file, uint32_t line,
		      uint32_t parent);
/* A name not known before. A node without one (0) is left out: the one around it stands there. */
void parse_inlines_name(struct inlines *x, uint32_t node, uint32_t name, uint32_t file, uint32_t line);
void parse_inlines_range(struct inlines *x, uint64_t start, uint64_t end, uint32_t node);
bool parse_inlines_cut(const struct inlines *x);
struct flat_inlines {
	struct index_inline_range *ranges;
	struct index_inline_node *nodes;
	size_t n_ranges, n_nodes;
};
enum parse_reason parse_inlines_finish(struct inlines *x, struct flat_inlines *ret);

/* ---- marks.c: what the parent asked for (parser_config.marks) ---- */
struct mark;
struct marks {
	const char *const *patterns; /* NULL: none */
	struct mark *items;
	size_t n;
	bool cut; /* a limit was met */
};

/* ---- elf.c: the file ---- */
#define TEXTS_MAX 4096
struct range {
	uint64_t start, end;
};
struct elf_build {
	Elf *elf;
	struct index_header header; /* flags, build id, debuglink; the rest is write.c's */
	struct index_segment segments[INDEX_SEGMENTS_MAX];
	size_t n_segments;
	struct range
		texts[TEXTS_MAX]; /* executable sections, sorted; none without section headers */
	size_t n_texts;
	size_t symbols_total; /* looked at, of both tables */
	struct symbols symbols;
	struct rows *rows;
	struct inlines *inlines;
	struct index_wanted *wanted;
	size_t n_wanted, cap_wanted;
	struct marks marks;
	struct buf strings; /* begins with one NUL: offset 0 is "" */
	char *dwarf_names;  /* of symbols that only DWARF has */
	Elf *debugdata;	    /* .gnu_debugdata: names of symbols lie in it */
	void *debugdata_bytes;
	struct unpacked { /* a section that is compressed */
		Elf_Scn *section;
		uint8_t *data; /* NULL: it cannot be decompressed; header.flags says why */
		size_t n;
	} * unpacked;
	size_t n_unpacked, cap_unpacked;
};
/* A name or path, cut to INDEX_NAME_MAX; its offset. */
uint32_t parse_strings_put(struct buf *strings, const char *s, size_t n);

/* ---- section.c: sections as the compiler wrote them ---- */
#define SECTIONS_MAX 65536
struct section {
	const uint8_t *data;
	size_t n;
	uint64_t address; /* sh_addr */
};
/* By name, decompressed where it is compressed; ".debug_x" stands for .zdebug_x, too. False: there is
 * none, or it cannot be decompressed, which a flag of the index says (ELF_INDEX_COMPRESSED_*). */
bool parse_build_section(struct elf_build *b, const char *name, struct section *ret);
/* The same of a section that was found; gnu: it is a .zdebug_*. */
bool parse_build_section_bytes(struct elf_build *b, Elf_Scn *section, const GElf_Shdr *s, bool gnu,
			 struct section *ret);
/* Also one that cannot be read. */
bool parse_build_has_section(struct elf_build *b, const char *name);
/* Ends b->elf, and with it what was decompressed. */
void parse_build_close(struct elf_build *b);

/* ---- elf.c, again ---- */
/* The bytes of the file behind ELF virtual addresses; fewer than n at the end of a segment; NULL: none. */
const uint8_t *parse_build_bytes(struct elf_build *b, uint64_t address, size_t *ret_n);

/*
 * The readers. Each returns PARSE_OK when its section is absent or odd (and sets a flag of
 * elf_index_flag when something was left out): one damaged section does not cost the others.
 */
enum parse_reason
parse_build_frames(struct elf_build *b); /* frames.c: .eh_frame, .debug_frame, PLT, signal frames */
enum parse_reason
parse_build_go(struct elf_build *b); /* gopclntab.c: Go's rows, names, inlined functions */
/* code.c: rows of functions without any, from their instructions; behind all that knows functions */
enum parse_reason parse_build_code(struct elf_build *b);
/* dwarf.c: inlined functions, files and lines; b is of the debug file, or the file itself */
enum parse_reason parse_build_dwarf(struct elf_build *b, const int *dwo_fds, size_t n_dwo_fds);
/* elf.c: .symtab and .dynsym into b->symbols */
enum parse_reason parse_build_symbols(struct elf_build *b);
/* debugdata.c: .gnu_debugdata (xz) into b->symbols */
enum parse_reason parse_build_debugdata(struct elf_build *b);

/* marks.c: a symbol of the file; its name stays where it is. Versions (@...) don't count. */
void parse_build_mark(struct elf_build *b, const GElf_Sym *y, const char *name);
/* Texts of read-only data. */
void parse_build_mark_texts(struct elf_build *b);
/* Sorted; names go to b->strings. */
void parse_marks_finish(struct elf_build *b, struct index_mark **ret, size_t *ret_n);

/* ---- write.c ---- */
enum parse_reason parse_build_write(struct elf_build *b, uint64_t max_bytes, int *ret_memfd);
