/* SPDX-License-Identifier: Apache-2.0 */
/* Private to alloc: the entry points of C's, C++'s and Rust's allocators, one row each. */
#pragma once

#include "node/alloc/alloc.h"

/* An allocator is there where its family's ALLOC and FREE are; C++'s and Rust's are not on their own. */
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

/* What is asked of the address. */
enum table_align {
	TABLE_ANY,
	TABLE_ALIGNED, /* by an argument */
	TABLE_PAGE,
};

struct table_row {
	const char *name; /* a '*' in it stands for anything */
	struct pf_site site;
	uint8_t family; /* enum table_family */
	uint8_t align;	/* enum table_align */
	bool wraps;	/* in some libraries it is nothing but a call of another one */
};
/* NULL: none. */
const struct table_row *alloc_table_find(const char *symbol);
extern const char *const alloc_table_marks[];
/* native.c: which families have functions in the file of a mapping, probed or refused (alloc_is_copied); bits. */
unsigned alloc_native_families(const struct runtime_look *look, size_t mapping);
/* glibc's loader has this; its malloc, until 2.34, is for itself while there is no libc. */
#define TABLE_GLIBC_LOADER "_rtld_global"
