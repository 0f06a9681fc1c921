/* SPDX-License-Identifier: Apache-2.0 */
/* Private to alloc: the table of the entry points of C's, C++'s and Rust's allocators. */
#pragma once

#include "node/alloc/alloc.h"

/*
 * A file has an allocator if it has an ALLOC and a FREE of the family. C++'s and Rust's functions
 * alone are not an allocator.
 */
enum table_family {
	TABLE_C,
	TABLE_JE,
	TABLE_RJEM,
	TABLE_TC,
	TABLE_MI,
	TABLE_TBB,
	TABLE_CXX,
	TABLE_RUST
};
#define TABLE_FAMILIES (TABLE_RUST + 1)

/* The alignment that a caller gets. */
enum table_align {
	TABLE_ANY,
	TABLE_ALIGNED, /* an argument gives the alignment */
	TABLE_PAGE,
};

struct table_row {
	const char *name; /* a '*' in it stands for any characters */
	struct pf_site site;
	uint8_t family; /* enum table_family */
	uint8_t align;	/* enum table_align */
	bool wraps;	/* in some libraries this function only calls the function of another row */
};
/* Returns the row of a symbol; NULL: the table has no such row. */
const struct table_row *alloc_table_find(const char *symbol);
extern const char *const alloc_table_marks[];
/*
 * native_sites.c: returns a bit (1 << enum table_family) for each family with functions in the
 * mapping's file, also if they cannot be probed (alloc_is_copied).
 */
unsigned alloc_native_families(const struct runtime_look *look, size_t mapping);
/*
 * A symbol of glibc's loader. The loader has its own malloc until glibc 2.34, which it uses itself
 * as long as no libc is loaded.
 */
#define TABLE_GLIBC_LOADER "_rtld_global"
