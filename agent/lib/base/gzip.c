/* SPDX-License-Identifier: Apache-2.0 */
/* Makes files of gzip (RFC 1952). */
#include "lib/base/base.h"

#include <zlib.h>

#define WINDOW (15 + 16) /* 15: zlib's largest window; 16: with gzip's head and end */

int buf_add_gzip(struct buf *b, const void *p, size_t n, int level)
{
	z_stream z = {.next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n};
	size_t before = b->len;
	Bytef block[65536];
	int r, e;

	if (n > UINT32_MAX)
		return -E2BIG;
	if (deflateInit2(&z, level, Z_DEFLATED, WINDOW, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
		out_of_memory();
	do {
		z.next_out = block;
		z.avail_out = sizeof(block);
		r = deflate(&z, Z_FINISH);
		e = buf_add(b, block, sizeof(block) - z.avail_out);
	} while (r == Z_OK && !e);
	deflateEnd(&z);
	if (e && b->data)
		b->data[b->len = before] = '\0';
	return e;
}
