/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: makes a small index. app::work() is at 0x1000..0x10ff; inner() is inlined in it
 * at 0x1010..0x101f.
 */
#pragma once

#include "lib/symbols/format.h"

#include <stdlib.h>
#include <zstd.h>

struct test_index {
	struct index_header header;
	struct index_symbol symbol;
	struct index_inline_range range;
	struct index_inline_node node;
	char strings[40];
};

static inline struct test_index test_index(const char *build_id)
{
	struct test_index x = {
		.symbol = {0x1000, 0x100, 1, 24, 7},
		.range = {0x1010, 0x10, 0},
		.node = {16, 24, 3, 0},
		.strings = "\0_ZN3app4workEv\0inner()\0work.cc",
	};
	size_t n = 0;

	memcpy(x.header.magic, INDEX_MAGIC, sizeof(x.header.magic));
	x.header.n[INDEX_symbols] = 1;
	x.header.n[INDEX_inline_ranges] = 1;
	x.header.n[INDEX_inline_nodes] = 1;
	x.header.string_bytes = sizeof(x.strings);
	hex_decode(build_id, INDEX_BUILD_ID_MAX, x.header.build_id, &n);
	x.header.build_id_bytes = (uint32_t)n;
	return x;
}

/* The data compressed, as a client uploads it; the caller frees it. */
static inline void *test_compressed(const void *data, size_t n, size_t *ret_n)
{
	size_t bound = ZSTD_compressBound(n);
	void *out = xmalloc(bound);

	*ret_n = ZSTD_compress(out, bound, data, n, 3);
	return out;
}

static inline void *test_upload(const char *build_id, size_t *ret_n)
{
	struct test_index x = test_index(build_id);

	return test_compressed(&x, sizeof(x), ret_n);
}
