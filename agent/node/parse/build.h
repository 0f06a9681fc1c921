/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the part of parse that runs in the child process: the index while it is built. For
 * each kind of section there is a reader, a source file that fills some arrays of struct elf_build.
 * write.c writes these arrays. Every reader works on bytes of a hostile file. It stays within the
 * bounds of its section and the limits of lib/symbols/format.h.
 */
#pragma once

#include "node/parse/format.h"

#include <gelf.h>

/* ---- symbols.c: makes sorted, disjoint parts with one name each from a file's symbols ---- */
struct symbol {
	uint64_t address, end; /* end == address: the symbol has no size */
	uint64_t limit;	       /* end of the symbol's section */
	const char *name;
	uint32_t name_offset; /* offset of the name in the strings, once the name is written */
	uint32_t file, line;  /* file: offset into the strings; 0: not known */
	uint8_t weak, local, untyped;
};
struct built_symbols {
	struct symbol *items;
	size_t n, cap;
	bool cut;	      /* functions have no name because of a limit */
};
/*
 * Sorts s, and allocates the disjoint parts that it makes from s. Writes their names to strings. A
 * part whose name exceeds a limit is left out, and s->cut is set: no other name stands for it.
 */
void parse_symbols_flatten(struct built_symbols *s, struct index_symbol **ret_parts,
			   size_t *ret_n_parts, struct buf *strings);

/* ---- functions.c: where functions begin and end, if they have a symbol or not ---- */
struct range;
struct built_functions {
	struct range *items;
	size_t n, cap;
	bool cut; /* a limit was reached */
};
/* Adds the function [start, end). Functions may come in any order, overlap, and come twice. */
void parse_functions_add(struct built_functions *f, uint64_t start, uint64_t end);
/*
 * Adds parts without a name to those of parse_symbols_flatten(): the functions that begin where no
 * part is. Each ends where the next one, or a part, begins, if not before. Sorts f.
 */
void parse_functions_merge(struct built_functions *f, struct index_symbol **parts,
			   size_t *n_parts);
/* Leaves the parts without a name out again. Returns how many parts are left. */
size_t parse_functions_leave_out(struct index_symbol *parts, size_t n_parts);

/* ---- rows.c: unwind rows in any order -> pages of compact rows, rules kept once ---- */
struct rows;
struct rows *parse_rows_new(void);
struct rows *parse_rows_free(struct rows *r);
/*
 * Returns the number of a rule. PF_RULE_UNSUPPORTED: there are PF_RULES_MAX rules already; then
 * parse_rows_cut returns true.
 */
uint16_t parse_rows_rule(struct rows *r, const struct pf_rule *rule);
const struct pf_rule *parse_rows_rules(const struct rows *r); /* rules by their numbers */
/*
 * Adds a range: rule (a number or enum pf_rule_special) holds in [start, end). If ranges overlap,
 * the one that starts later holds. If two have the same start, the one that was added first holds.
 */
void parse_rows_add(struct rows *r, uint64_t start, uint64_t end, uint16_t rule);
size_t parse_rows_count(const struct rows *r);
/* whether a limit was reached, so that rows are missing */
bool parse_rows_cut(const struct rows *r);
/*
 * Finds the parts of `in` (ascending) that no range covers and that have at least min bytes.
 * Allocates *ret, and returns the number of parts.
 */
size_t parse_rows_gaps(struct rows *r, const struct range *in, size_t n_in, uint64_t min,
		 struct range **ret);
/*
 * Sorts the rows, joins neighbours with the same rule, and cuts them into pages. Closes gaps of
 * fewer than 16 bytes, unless they were added as PF_RULE_GAP.
 */
struct paged_rows {
	struct elf_page *pages;
	struct pf_row *rows;
	const struct pf_rule *rules; /* owned by r */
	size_t n_pages, n_rows, n_rules;
};
enum parse_reason parse_rows_finish(struct rows *r, struct paged_rows *ret);

/* ---- inline_ranges.c: inlined ranges, nested in any order -> disjoint ones ---- */
struct inlines;
struct inlines *parse_inlines_new(void);
struct inlines *parse_inlines_free(struct inlines *x);
/*
 * Adds a function that was inlined at one place, and returns its number. Strings are offsets into
 * elf_build.strings. parent: the number of another node; UINT32_MAX: the symbol itself. Returns
 * UINT32_MAX if there are too many nodes; then parse_inlines_cut returns true.
 */
uint32_t parse_inlines_node(struct inlines *x, uint32_t name, uint32_t file, uint32_t line,
		      uint32_t parent);
/*
 * Sets the name of a node, if it was not known when the node was added. A node without a name (0)
 * is left out: its ranges get the node around it.
 */
void parse_inlines_name(struct inlines *x, uint32_t node, uint32_t name, uint32_t file,
			 uint32_t line);
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
	bool cut; /* a limit was reached */
	char **names; /* copies of the names of USDT probes */
	size_t n_names, cap_names;
};

/* ---- elf.c: the file ---- */
#define TEXTS_MAX 4096 /* executable sections of one file; a file with more is not parsed */
struct range {
	uint64_t start, end;
};
struct elf_build {
	Elf *elf;
	struct index_header header; /* flags, build id, debuglink; write.c sets the rest */
	struct index_segment segments[INDEX_SEGMENTS_MAX];
	size_t n_segments;
	/* executable sections, sorted; none if there are no section headers */
	struct range texts[TEXTS_MAX];
	size_t n_texts;
	size_t symbols_total; /* number of symbols that were read from .symtab and .dynsym */
	struct built_symbols symbols;
	struct built_functions functions;
	struct rows *rows;
	struct inlines *inlines;
	struct index_wanted *wanted;
	size_t n_wanted, cap_wanted;
	struct marks marks;
	struct buf strings; /* begins with one NUL: offset 0 is "" */
	char *dwarf_names;  /* names of symbols that only DWARF has */
	Elf *debugdata;	    /* .gnu_debugdata: names of symbols point into it */
	void *debugdata_bytes;
	struct unpacked { /* a section that was compressed */
		Elf_Scn *section;
		uint8_t *data; /* NULL: the section cannot be decompressed; header.flags says why */
		size_t n;
	} * unpacked;
	size_t n_unpacked, cap_unpacked;
};
/* Writes a name or path, cut to INDEX_NAME_MAX, and returns its offset. */
uint32_t parse_strings_put(struct buf *strings, const char *s, size_t n);

/* ---- section.c: sections, decompressed ---- */
#define SECTIONS_MAX 65536 /* sections of one file; a file with more is not parsed */
struct section {
	const uint8_t *data;
	size_t n;
	uint64_t address; /* sh_addr */
};
/*
 * Finds a section by name, and decompresses it if needed; ".debug_x" also finds .zdebug_x. Returns
 * false if there is no such section, or if it cannot be decompressed; then a flag of the index is
 * set (ELF_INDEX_COMPRESSED_*).
 */
bool parse_build_section(struct elf_build *b, const char *name, struct section *ret);
/* Does the same for a section that was found already. gnu: the section is a .zdebug_*. */
bool parse_build_section_bytes(struct elf_build *b, Elf_Scn *section, const GElf_Shdr *s, bool gnu,
			 struct section *ret);
/* Returns whether the file has a section; true also if the section cannot be read. */
bool parse_build_has_section(struct elf_build *b, const char *name);
/* Ends b->elf and frees what was decompressed. */
void parse_build_close(struct elf_build *b);

/* ---- elf.c, again ---- */
/*
 * Returns the bytes of the file at an ELF virtual address, up to the end of its segment. NULL:
 * there are none.
 */
const uint8_t *parse_build_bytes(struct elf_build *b, uint64_t address, size_t *ret_n);

/*
 * The readers. Each returns PARSE_OK if its section is absent or damaged, and sets an
 * elf_index_flag if it left something out. So one damaged section does not spoil the others.
 */
enum parse_reason
parse_build_frames(struct elf_build *b); /* frames.c: .eh_frame, .debug_frame, PLT, signal frames */
enum parse_reason
parse_build_go(struct elf_build *b); /* gopclntab.c: Go's rows, names, inlined functions */
/*
 * code.c: rows from the instructions of functions that have no rows; runs after all readers that
 * find functions
 */
enum parse_reason parse_build_code(struct elf_build *b);
/* dwarf.c: inlined functions, files and lines; b is of the debug file, or of the file itself */
enum parse_reason parse_build_dwarf(struct elf_build *b, const int *dwo_fds, size_t n_dwo_fds);
/* elf.c: .symtab and .dynsym into b->symbols */
enum parse_reason parse_build_symbols(struct elf_build *b);
/* debugdata.c: .gnu_debugdata (xz) into b->symbols */
enum parse_reason parse_build_debugdata(struct elf_build *b);
/* usdt.c: .note.stapsdt into b->marks */
void parse_build_usdt(struct elf_build *b);

/*
 * marks.c: makes a mark of a symbol of the file if it matches a pattern. The name must stay valid
 * until parse_marks_finish(). A version (@...) is no part of the name. is_old: the file has another
 * symbol of this name, with a newer version.
 */
void parse_build_mark(struct elf_build *b, const GElf_Sym *y, const char *name, bool is_old);
/*
 * Makes a mark of a USDT probe if its name, "%provider:probe arguments", matches a pattern.
 * semaphore: its file offset; 0: none.
 */
void parse_build_mark_usdt(struct elf_build *b, const char *name, uint64_t place,
			   uint64_t semaphore);
/* Makes marks of the strings in read-only data that match a pattern. */
void parse_build_mark_texts(struct elf_build *b);
/* Returns the marks, sorted, and writes their names to b->strings. */
void parse_marks_finish(struct elf_build *b, struct index_mark **ret, size_t *ret_n);
void parse_marks_done(struct marks *x);

/* ---- write.c ---- */
enum parse_reason parse_build_write(struct elf_build *b, uint64_t max_bytes, int *ret_memfd);

/* ---- child.c ---- */
/*
 * The process gives up its rights, as child_begin() says. The caller may then read hostile files.
 */
int parse_child_begin(void);
