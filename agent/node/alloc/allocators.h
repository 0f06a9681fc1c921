/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to alloc: the entry points of C's, C++'s and Rust's allocators, one row each. Constants.
 */
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
	TABLE_ALIGNED, /* an argument says it */
	TABLE_PAGE,
};

struct table_row {
	const char *name; /* a '*' in it stands for any text */
	struct pf_site site;
	uint8_t family; /* enum table_family */
	uint8_t align;	/* enum table_align */
	bool wraps;	/* in some libraries it only calls another row's function */
};
/* NULL: none. */
const struct table_row *alloc_table_find(const char *symbol);
extern const char *const alloc_table_marks[];
/*
 * native_sites.c: a bit (1 << enum table_family) for each family with functions in the mapping's
 * file, whether they are probed or not (alloc_is_copied).
 */
unsigned alloc_native_families(const struct runtime_look *look, size_t mapping);
/*
 * A symbol of glibc's loader. Its malloc, until 2.34, serves itself alone while there is no libc.
 */
#define TABLE_GLIBC_LOADER "_rtld_global"
