/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the readers of Go's .gopclntab: the table after it was found and checked, one function
 * of it, and the tables "value by pc" that it consists of. Facts come from the Go sources:
 * src/runtime/symtab.go, runtime2.go (_func), symtabinl.go, src/internal/abi/symtab.go.
 */
#pragma once

#include "node/parse/build.h"

/* Each layout is named after its first Go release. */
enum go_layout {
	GO_1_16, /* absolute addresses, inlined calls of 20 bytes */
	GO_1_18, /* offsets from runtime.text and go:func.* */
	GO_1_20, /* start lines, inlined calls of 16 bytes */
};

struct span {
	const uint8_t *data;
	size_t n;
};

struct go_table {
	struct elf_build *b;
	enum go_layout layout;
	/* the table as in the file, from the magic number on */
	struct span whole;
	struct span names, units, files, pcs; /* funcnametab, cutab, filetab, pctab */
	struct span functions;		      /* functab and the _funcs after it; relocated */
	/* memory for `functions`, if they had to be relocated */
	uint8_t *relocated;
	uint64_t address; /* address of the magic number */
	/* offsets of names, units, files, pcs and functions in `whole` */
	uint64_t offsets[5];
	uint64_t text;	  /* address of runtime.text */
	struct span code; /* the segment that holds text */
	uint64_t code_address;
	struct span inline_calls; /* the inlined calls, from go:func.* on; empty: not found */
	size_t n_functions;
	struct go_strings *strings;
};

/* _func.flag, since 1.17 */
#define GO_TOP_FRAME (1 << 0)
#define GO_SP_WRITE  (1 << 1)

struct go_function {
	uint64_t entry, end; /* end: where the function's code ends */
	uint64_t padded_end; /* where the padding after the function ends */
	const char *name;
	uint32_t start_line, unit;
	uint32_t sp, file, line, inline_index; /* offsets into pcs; 0: none */
	uint32_t flags;
	uint64_t inline_calls; /* offset into go_table.inline_calls; for 1.16 an address */
	bool has_inline_calls;
};

/*
 * One row of a table "value by pc": value holds in [start, end), which are offsets from the
 * function's entry.
 */
struct go_values {
	const uint8_t *at, *stop;
	uint64_t start, end;
	int32_t value;
	bool begun;
};
struct go_values parse_go_values(const struct go_table *t, uint32_t offset);
bool parse_go_values_next(struct go_values *v);
/* Returns the value at pc, an offset from the function's entry; -1: there is none. */
int32_t parse_go_value_at(const struct go_table *t, uint32_t offset, uint64_t pc);

uint32_t parse_go_u32(struct span s, uint64_t offset); /* little endian; 0 if out of bounds */
uint64_t parse_go_u64(struct span s, uint64_t offset);
/* Returns a NUL-terminated string of at most 64 KiB. NULL: there is none. */
const char *parse_go_string(struct span s, uint64_t offset);
/* Returns the path for a value of the file table. NULL: there is none. */
const char *parse_go_file(const struct go_table *t, const struct go_function *f, int32_t value);

/* gopclntab_header.c: reads the header at address, where s begins. False: there is no header. */
#define GO_HEADER_BYTES	 72	    /* size of the longest header */
#define GO_HEADER_X86_64 0x08010000 /* at offset 4: instructions of 1 byte, pointers of 8 bytes */
bool parse_go_header(struct go_table *t, struct span s, uint64_t address);
/*
 * gopclntab_find.c: finds the table. False: the file is no Go program, or its table cannot be read.
 * After true, parse_go_table_done must follow.
 */
bool parse_go_table_find(struct elf_build *b, struct go_table *ret);
void parse_go_table_done(struct go_table *t);
/* Reads function i. False: the function is damaged. */
bool parse_go_function(const struct go_table *t, size_t i, struct go_function *ret);
uint64_t parse_go_entry(const struct go_table *t, size_t i); /* i may be n_functions: the end */

/* Writes a name or path of the table once as a string of the index, and returns its offset. */
uint32_t parse_go_intern(struct go_table *t, const char *s);

/* ---- gopclntab_rows.c ---- */
void parse_go_rows(const struct go_table *t, const struct go_function *f);

/* ---- gopclntab_inlines.c ---- */
struct go_inlines;
struct go_inlines *parse_go_inlines_new(struct go_table *t);
struct go_inlines *parse_go_inlines_free(struct go_inlines *x);
void parse_go_inlines_add(struct go_inlines *x, const struct go_function *f);
/*
 * s: bytes that may be go:func.*. Returns whether s has a record for each inlined call of the
 * function, with a whole name of the table and a parent_pc that lies in the function.
 */
bool parse_go_inlines_valid(const struct go_table *t, const struct go_function *f, struct span s);
