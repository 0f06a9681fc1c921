/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols: the index of one ELF file: functions, inlined functions, unwind tables. The parse child
 * of the node writes it from a hostile file; the reader here checks every bound once. The hub reads
 * the same bytes of uploaded files.
 */
#pragma once

#include "bpf/unwind_tables.h"
#include "lib/base/base.h"

/* ---- the index ---- */
struct elf_index;			/* immutable, reference counted, mmapped */
struct elf_index *elf_index_ref(struct elf_index *i);
struct elf_index *elf_index_unref(struct elf_index *i);
/* Reads a child's answer, and refuses (-EBADMSG) an inconsistent one. Takes fd, which is sealed. */
int elf_index_open(int memfd, struct elf_index **ret);
/* The same of bytes that the caller keeps until the last unref has called release(arg). */
int elf_index_borrow(const void *data, size_t n, void (*release)(void *arg), void *arg,
		     struct elf_index **ret);
size_t elf_index_bytes(const struct elf_index *i);
/* elf_index_bytes() bytes, to store or to send. */
const void *elf_index_data(const struct elf_index *i);
const char *elf_index_build_id(const struct elf_index *i);	/* hex, "" if none */
/* Same bytes: files may share an index only then; a build id alone can be forged. */
bool elf_index_equal(const struct elf_index *a, const struct elf_index *b);
/* File offset -> ELF virtual address by the PT_LOAD headers; -ENOENT outside of all. */
int elf_index_address(const struct elf_index *i, uint64_t file_offset, uint64_t *ret_address);
/*
 * For the first byte of an executable mapping: its segment may begin inside that page, behind the
 * end of another one.
 */
int elf_index_mapping_address(const struct elf_index *i, uint64_t file_offset, uint64_t bytes,
			      uint64_t *ret_address);
/* The k-th executable segment, from 0; false: there is none. */
struct elf_text {
	uint64_t address, offset, bytes;	/* bytes: of the file */
};
bool elf_index_text(const struct elf_index *i, size_t k, struct elf_text *ret);

/* ---- names ---- */
/*
 * The part of a symbol around the address asked for. Symbols inside a larger one
 * cut it into parts; one without size (hand-written assembly, .symtab only) reaches
 * to the next symbol or its section's end, never into a symbol that has a size.
 */
struct elf_symbol {
	uint64_t address, size;		/* ELF virtual address */
	const char *name;		/* mangled, no symbol version, borrowed from the index */
	const char *file;		/* where it is declared; "" not known */
	uint32_t line;			/* 0: not known */
};
size_t elf_index_n_symbols(const struct elf_index *i);
/* -ENOENT: inside no symbol. Never a neighbour. */
int elf_index_symbol(const struct elf_index *i, uint64_t address, struct elf_symbol *ret);
/* The first of this very name: -ENOENT. Looks at all of them. */
int elf_index_find_symbol(const struct elf_index *i, const char *name, struct elf_symbol *ret);
/* A function that was inlined around an address. */
struct elf_inline {
	const char *name;		/* mangled or plain, as the file has it */
	const char *file;		/* where it is declared; "" not known */
	uint32_t line;			/* 0: not known */
};
#define ELF_INLINES_MAX 64
/*
 * Innermost first, at most ELF_INLINES_MAX; 0: nothing is inlined there. They do not include the
 * symbol around them.
 */
size_t elf_index_inlines(const struct elf_index *i, uint64_t address,
			 struct elf_inline ret[ELF_INLINES_MAX]);

/* ---- marks: what the parser was asked to find (parser_config.marks) ---- */
struct elf_mark {
	/* name of the symbol; for a text the pattern that was asked for, '"' first */
	const char *name;
	/* ELF virtual address; a thread-local symbol's: its offset in the TLS image */
	uint64_t address, size;
	bool thread_local;
};
size_t elf_index_n_marks(const struct elf_index *i);
struct elf_mark elf_index_mark(const struct elf_index *i, size_t k);	/* by name, then address */
/* The first of this very name; -ENOENT. */
int elf_index_find_mark(const struct elf_index *i, const char *name, struct elf_mark *ret);

/* ---- unwind tables ---- */
struct elf_page {			/* ascending by number */
	uint32_t number;		/* ELF virtual address >> PF_PAGE_BITS */
	uint32_t n_rows;		/* 1..PF_PAGE_ROWS_MAX */
	uint32_t first_row;	/* behind those of the page before */
	uint32_t pad;
};
struct elf_tables {			/* borrowed from the index */
	const struct elf_page *pages;
	const struct pf_row *rows;
	const struct pf_rule *rules;
	size_t n_pages, n_rows, n_rules;
};
/* n_pages 0: the file has none; why is elf_index_flags. */
void elf_index_tables(const struct elf_index *i, struct elf_tables *ret);

/* ---- what the file says of itself ---- */
enum elf_index_flag {
	ELF_INDEX_GO = 1 << 0,			/* names and rows come from .gopclntab */
	/* the file has .debug_info: ask for a debug index */
	ELF_INDEX_HAS_DWARF = 1 << 1,
	/* this is the debug index: symbols and inlined functions, no tables */
	ELF_INDEX_DEBUG = 1 << 2,
	ELF_INDEX_NO_UNWIND = 1 << 3, /* neither .eh_frame nor .debug_frame nor .gopclntab */
	ELF_INDEX_UNWIND_CUT = 1 << 4, /* tables are not complete: a limit, or damage */
	/* inlined functions are not complete: a limit, time, or damage */
	ELF_INDEX_DWARF_CUT = 1 << 5,
	ELF_INDEX_DWO = 1 << 6,			/* split DWARF: elf_index_wanted says which files */
	ELF_INDEX_DWP = 1 << 7,			/* a .dwp package: not read */
	ELF_INDEX_NAMES_CUT = 1 << 8,		/* .gnu_debugdata: damage, or over a limit */
	ELF_INDEX_MARKS_CUT = 1 << 9,		/* more marks than a limit */
	/* GraalVM's: compiled ahead of time, with a Java heap in the file */
	ELF_INDEX_NATIVE_IMAGE = 1 << 14,
	/* it has more code without call frame information than the parse child follows */
	ELF_INDEX_CODE_CUT = 1 << 15,
	/* the build id is longer than the limit, so the index has none */
	ELF_INDEX_BUILD_ID_CUT = 1 << 10,
	/* A compressed section was not read: of an unknown kind, damaged, over a limit. */
	ELF_INDEX_COMPRESSED_UNKNOWN = 1 << 11,
	ELF_INDEX_COMPRESSED_DAMAGED = 1 << 12,
	ELF_INDEX_COMPRESSED_LARGE = 1 << 13,
	ELF_INDEX_COMPRESSED = 7 << 11,		/* any of the three */
};
unsigned elf_index_flags(const struct elf_index *i);
/*
 * What the index lacks, for users: a word for counters and a text for people. Both are constants.
 */
struct elf_lack {
	const char *word, *text;
};
#define ELF_LACKS_MAX 12
size_t elf_index_lacks(const struct elf_index *i, struct elf_lack ret[ELF_LACKS_MAX]);
/* Rows of PF_RULE_UNSUPPORTED. Looks at all rows. */
size_t elf_index_unsupported_rows(const struct elf_index *i);
/* .gnu_debuglink; "" none. A plain file name, no '/'. */
const char *elf_index_debuglink(const struct elf_index *i, uint32_t *ret_crc);
/* Files that the debug index would need too (.dwo: path as the compiler wrote it and its id). */
struct elf_wanted {
	const char *path;
	uint64_t dwo_id;
};
size_t elf_index_n_wanted(const struct elf_index *i);
struct elf_wanted elf_index_wanted(const struct elf_index *i, size_t k);

/* ---- text ---- */
/* A new string: valid UTF-8 without control characters, with '?' in the place of invalid ones. */
char *elf_text_clean(const char *s);
/*
 * Names as they are shown. Mangled ones (C++ of the Itanium ABI, Rust legacy and v0) are made
 * readable in a child without rights, which is started at the first of them. Any thread.
 */
struct demangler;
/*
 * self_exe: the program to execute as the child; NULL: /proc/self/exe. impatient: its callers hold
 * a lock that others need, or others wait for them.
 */
struct demangler *elf_demangler_new(const char *self_exe, bool impatient);
struct demangler *elf_demangler_free(struct demangler *d);
/* The cost of the names of one file so far; all 0 at first. The demangler's lock guards it. */
struct name_cost {
	uint64_t spent_ns;	/* CPU time of slow names, less the part that is forgiven */
	uint64_t forgiven_at_ns;	/* these are of CLOCK_MONOTONIC */
	uint64_t slow_until_ns;	/* its names took too long: they stay mangled until then */
	uint64_t next_ns;	/* the pause after a timeout ends */
	uint64_t pause_ns;	/* how long it is */
};
/*
 * Returns a new string: the name, demangled if it was mangled, and clean. It usually blocks for
 * microseconds. If a child does not start, answer or end in time, an impatient demangler blocks for
 * about 0.6 s; after two late answers in a row it asks no child for 3 s. Another demangler blocks
 * for up to half a minute.
 *
 * If the slow names of a file take more than a limit of CPU time, all further names of the file
 * stay mangled for a while; likewise if two children die at one name, or a child does not answer.
 * podflame_names_mangled_total counts by reason each name that stays mangled. *ret_again_ns: the
 * time (CLOCK_MONOTONIC) from which the same name may become readable, because another name may
 * have failed; 0: the text is final.
 */
char *elf_demangler_text(struct demangler *d, const char *name, struct name_cost *cost,
		     uint64_t *ret_again_ns);
