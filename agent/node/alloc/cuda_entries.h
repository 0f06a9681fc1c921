/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to alloc: the CUDA driver, and the table of its entries that give or free memory of
 * devices.
 */
#pragma once

#include "node/alloc/alloc.h"

struct cuda_entry {
	const char *name;
	struct pf_site site; /* kind 0: its memory is not counted */
};
/* Returns the entry of a symbol; NULL: the table has no such entry. */
const struct cuda_entry *alloc_cuda_find(const char *symbol);
/* Whether the file of a mapping that has an index is a CUDA driver. */
bool alloc_cuda_is_driver(const struct runtime_look *look, size_t mapping);
/* Whether the file has the name of a CUDA driver. */
bool alloc_cuda_has_name(const struct mapping *m);
/* Patterns that find all entries of the table, and newer ones with similar names. */
extern const char *const alloc_cuda_marks[];
