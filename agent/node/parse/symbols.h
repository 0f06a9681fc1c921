/* SPDX-License-Identifier: Apache-2.0 */
/* Private to parse, child side: symbols as the file has them -> sorted, disjoint, named once. */
#pragma once

#include "node/parse/format.h"

struct symbol {
	uint64_t address, end; /* end == address: no size */
	uint64_t limit;	       /* end of its section */
	const char *name;
	uint32_t name_offset; /* in the strings, once written */
	uint8_t weak, local, untyped;
};
struct symbols {
	struct symbol *items;
	size_t n, cap;
};
/* Sorts s; *ret_parts grows by xrealloc, names go to strings. */
enum parse_reason symbols_flatten(struct symbols *s, struct index_symbol **ret_parts,
				  size_t *ret_n_parts, struct buf *strings);
