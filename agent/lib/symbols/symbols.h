/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols: the index of one ELF file: functions, inlined functions, unwind tables. The parse child
 * of the node writes it from a hostile file; the reader checks every bound once. The hub reads
 * indexes of uploaded files in the same way.
 */
#pragma once

#include "bpf/unwind_tables.h"
#include "lib/base/base.h"

/* ---- the index ---- */
struct elf_index;			/* immutable, reference counted, mmapped */
struct elf_index *elf_index_ref(struct elf_index *i);
struct elf_index *elf_index_unref(struct elf_index *i);
/*
 * Opens a child's answer; memfd is sealed. Takes the descriptor. -EBADMSG: the answer is
 * inconsistent.
 */
int elf_index_open(int memfd, struct elf_index **ret);
/*
 * As elf_index_open(), for bytes of the caller. They must stay until the last unref, or this
 * function if it fails, has called release(arg).
 */
int elf_index_borrow(const void *data, size_t n, void (*release)(void *arg), void *arg,
		     struct elf_index **ret);
size_t elf_index_bytes(const struct elf_index *i);
/* The bytes of the index, to store or send it; elf_index_bytes() is their number. */
const void *elf_index_data(const struct elf_index *i);
const char *elf_index_build_id(const struct elf_index *i);	/* hex; "": the file has none */
/*
 * Whether the bytes of both indexes are equal. Only then may files share an index, because a build
 * id alone can be forged.
 */
bool elf_index_equal(const struct elf_index *a, const struct elf_index *b);
/*
 * Finds the ELF virtual address of a file offset, by the PT_LOAD headers. -ENOENT: the offset is in
 * no segment.
 */
int elf_index_address(const struct elf_index *i, uint64_t file_offset, uint64_t *ret_address);
/*
 * Finds the ELF virtual address of the first byte of an executable mapping. The segment may begin
 * inside the first page of the mapping, behind the end of another segment.
 */
int elf_index_mapping_address(const struct elf_index *i, uint64_t file_offset, uint64_t bytes,
			      uint64_t *ret_address);
/* Returns the k-th executable segment, from 0; false: there is none. */
struct elf_text {
	uint64_t address, offset, bytes;	/* bytes: size in the file */
};
bool elf_index_text(const struct elf_index *i, size_t k, struct elf_text *ret);

/* ---- names ---- */
/*
 * The part of a symbol that contains the given address. Smaller symbols inside a larger one cut it
 * into parts. A symbol without size (hand-written assembly, only in .symtab) ends at the next
 * symbol or at the end of its section. It never reaches into a symbol that has a size.
 */
struct elf_symbol {
	uint64_t address, size;		/* ELF virtual address */
	/* the name as in the file, without a symbol version; borrowed from the index */
	const char *name;
	const char *file;		/* the source file with its declaration; "": not known */
	uint32_t line;			/* 0: not known */
};
size_t elf_index_n_symbols(const struct elf_index *i); /* reads all symbols */
/*
 * Finds the symbol that contains the address. -ENOENT: there is none. A symbol that is only near
 * the address is never returned.
 */
int elf_index_symbol(const struct elf_index *i, uint64_t address, struct elf_symbol *ret);
/*
 * Finds where the function begins that contains the address, but has no symbol: the file's call
 * frame information, or its code, proves it. -ENOENT: there is none, or it has a symbol.
 */
int elf_index_unnamed(const struct elf_index *i, uint64_t address, uint64_t *ret_start);
/* Finds the first symbol with exactly this name. Reads all symbols. -ENOENT: there is none. */
int elf_index_find_symbol(const struct elf_index *i, const char *name, struct elf_symbol *ret);
/* A function that was inlined at an address. */
struct elf_inline {
	const char *name;		/* mangled or plain, as the file has it */
	const char *file;		/* the source file with its declaration; "": not known */
	uint32_t line;			/* 0: not known */
};
#define ELF_INLINES_MAX 64
/*
 * Finds the functions that were inlined at the address, innermost first. Returns their number: at
 * most ELF_INLINES_MAX, 0 if nothing is inlined there. The symbol around them is not included.
 */
size_t elf_index_inlines(const struct elf_index *i, uint64_t address,
			 struct elf_inline ret[ELF_INLINES_MAX]);

/* ---- marks: what the parser was asked to find in a file (parser_config.marks) ---- */
struct elf_mark {
	/*
	 * the symbol's name; for a string in read-only data, the pattern that asked for it, which
	 * begins with '"'; for a USDT probe "%provider:probe arguments", with the arguments as its
	 * note has them: "4@%edi 8@%rsi"
	 */
	const char *name;
	/* ELF virtual address; for a thread-local symbol, its offset in the TLS image */
	uint64_t address;
	/* in bytes; for a USDT probe, the offset of its semaphore in the file, 0: it has none */
	uint64_t size;
	bool thread_local;
};
size_t elf_index_n_marks(const struct elf_index *i);
/* sorted by name, then by address */
struct elf_mark elf_index_mark(const struct elf_index *i, size_t k);
/* Finds the first mark with exactly this name. -ENOENT: there is none. */
int elf_index_find_mark(const struct elf_index *i, const char *name, struct elf_mark *ret);

/* ---- unwind tables ---- */
struct elf_page {			/* sorted by number */
	uint32_t number;		/* ELF virtual address >> PF_PAGE_BITS */
	uint32_t n_rows;		/* 1..PF_PAGE_ROWS_MAX */
	/* index of its first row; the rows of a page follow those of the previous page */
	uint32_t first_row;
	uint32_t pad;
};
struct elf_tables {			/* borrowed from the index */
	const struct elf_page *pages;
	const struct pf_row *rows;
	const struct pf_rule *rules;
	size_t n_pages, n_rows, n_rules;
};
/* If the file has no tables, n_pages is 0, and elf_index_flags has the reason. */
void elf_index_tables(const struct elf_index *i, struct elf_tables *ret);
/*
 * Finds the rule that holds at an ELF virtual address. Returns 0 and the rule, or one of enum
 * pf_rule_special.
 */
uint16_t elf_index_rule(const struct elf_index *i, uint64_t address, struct pf_rule *ret);

/* ---- a part of an index ---- */
/* What a part has of the names and tables. It always has the file's properties and segments. */
struct elf_part {
	bool (*mark)(const char *name);	/* whether the part has this mark; NULL: it has none */
	const char *const *symbols;	/* names, NULL at the end, at most 8; NULL: none */
	bool tables;
};
/* Adds the part to out as an index, for elf_index_borrow(). */
void elf_index_write_part(const struct elf_index *i, const struct elf_part *what, struct buf *out);

/* ---- properties of the file ---- */
enum elf_index_flag {
	ELF_INDEX_GO = 1 << 0,			/* names and rows come from .gopclntab */
	/* the file has .debug_info: the parser can make a debug index of it */
	ELF_INDEX_HAS_DWARF = 1 << 1,
	/* this is a debug index: it has symbols and inlined functions, but no tables */
	ELF_INDEX_DEBUG = 1 << 2,
	/* the file has neither .eh_frame nor .debug_frame nor .gopclntab */
	ELF_INDEX_NO_UNWIND = 1 << 3,
	/* the tables are not complete: a limit was reached, or the data is damaged */
	ELF_INDEX_UNWIND_CUT = 1 << 4,
	/*
	 * inlined functions are not complete: a limit was reached, it took too long, or data is
	 * damaged
	 */
	ELF_INDEX_DWARF_CUT = 1 << 5,
	/* split DWARF: elf_index_wanted names the other files */
	ELF_INDEX_DWO = 1 << 6,
	ELF_INDEX_DWP = 1 << 7,			/* the file is a .dwp package, which is not read */
	ELF_INDEX_NAMES_CUT = 1 << 8,		/* functions lack names: .gnu_debugdata is damaged,
						 * or the names exceed a limit */
	/* functions without a name are left out: there are too many */
	ELF_INDEX_STARTS_CUT = 1 << 16,
	ELF_INDEX_MARKS_CUT = 1 << 9,		/* there are more marks than the limit */
	/* GraalVM compiled the file ahead of time; it contains a Java heap */
	ELF_INDEX_NATIVE_IMAGE = 1 << 14,
	/* more code lacks call frame information than the parse child decodes */
	ELF_INDEX_CODE_CUT = 1 << 15,
	/* the build id is longer than the limit, so the index has none */
	ELF_INDEX_BUILD_ID_CUT = 1 << 10,
	/*
	 * A compressed section was not read: its compression is unknown, it is damaged, or too
	 * large.
	 */
	ELF_INDEX_COMPRESSED_UNKNOWN = 1 << 11,
	ELF_INDEX_COMPRESSED_DAMAGED = 1 << 12,
	ELF_INDEX_COMPRESSED_LARGE = 1 << 13,
	ELF_INDEX_COMPRESSED = 7 << 11,		/* mask of the three bits ELF_INDEX_COMPRESSED_* */
};
unsigned elf_index_flags(const struct elf_index *i);
/* What the index lacks, for users: a word for counters, and a text. Both are constants. */
struct elf_lack {
	const char *word, *text;
};
#define ELF_LACKS_MAX 13 /* kinds of what an index can lack */
size_t elf_index_lacks(const struct elf_index *i, struct elf_lack ret[ELF_LACKS_MAX]);
/* Returns the number of rows with PF_RULE_UNSUPPORTED. Reads all rows. */
size_t elf_index_unsupported_rows(const struct elf_index *i);
/* The file name in .gnu_debuglink, which has no '/'; "": there is none. */
const char *elf_index_debuglink(const struct elf_index *i, uint32_t *ret_crc);
/* Another file that the debug index needs (.dwo): path as the compiler wrote it, and id. */
struct elf_wanted {
	const char *path;
	uint64_t dwo_id;
};
size_t elf_index_n_wanted(const struct elf_index *i);
struct elf_wanted elf_index_wanted(const struct elf_index *i, size_t k);

/* ---- text ---- */
/*
 * Makes a new string, which is valid UTF-8 without control characters. '?' replaces invalid bytes.
 */
char *elf_text_clean(const char *s);
/*
 * Makes mangled names readable (C++ of the Itanium ABI, Rust legacy and v0). Children without
 * rights do the work. Each reads the names of one file only, and is started for the first mangled
 * name. Any thread.
 */
struct demangler;
/*
 * self_exe: the program to execute as a child; NULL: /proc/self/exe. impatient: its callers must
 * not be blocked long, because they hold a lock that other threads need, or other threads wait for
 * them.
 */
struct demangler *elf_demangler_new(const char *self_exe, bool impatient);
struct demangler *elf_demangler_free(struct demangler *d);
/* Ends children that have had no name for long. To be called often; it looks once a second. */
void elf_demangler_rest(struct demangler *d);
/*
 * What the demangler knows of one file: the cost of its names so far. All members are 0 at first.
 * The demangler's lock guards it.
 */
struct name_cost {
	uint64_t spent_ns;	/* CPU time of slow names, less the part that is forgiven */
	/* when a part was last forgiven. This and the next one: CLOCK_MONOTONIC */
	uint64_t forgiven_at_ns;
	/* until this time the file's names stay mangled, because they took too long */
	uint64_t slow_until_ns;
	uint64_t owner;		/* the file's number, which the demangler sets */
};
/*
 * Returns a new string: the name, demangled if it was mangled, and clean. It usually blocks for
 * microseconds. If a child does not start, answer or end in time, an impatient demangler blocks for
 * about 0.6 s. After two late answers in a row it asks no child for 3 s. A demangler that is not
 * impatient blocks for up to half a minute.
 *
 * If the slow names of a file take more than a limit of CPU time, all further names of the file
 * stay mangled for a while. The same happens if two children fail at one name, or if a child of an
 * impatient demangler does not answer (child_pool_give). podflame_names_mangled_total counts each
 * name that stays mangled, by reason. *ret_again_ns: the time (CLOCK_MONOTONIC) from which the name
 * may become readable, because its failure may have had another cause. 0: the text is final.
 */
char *elf_demangler_text(struct demangler *d, const char *name, struct name_cost *cost,
		     uint64_t *ret_again_ns);
