/* SPDX-License-Identifier: Apache-2.0 */
/* Makes files of gzip (RFC 1952). */
#include "lib/base/base.h"

#include <stdlib.h>
#include <zlib.h>

#define WINDOW (15 + 16) /* 15: zlib's largest window; 16: with gzip's head and end */

struct gzip {
	z_stream z;
};

struct gzip *gzip_new(int level)
{
	struct gzip *g = xcalloc(1, sizeof(*g));

	if (deflateInit2(&g->z, level, Z_DEFLATED, WINDOW, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) !=
	    Z_OK)
		out_of_memory();
	return g;
}

struct gzip *gzip_free(struct gzip *g)
{
	if (g)
		deflateEnd(&g->z);
	free(g);
	return NULL;
}

int gzip_add(struct gzip *g, struct buf *b, const void *p, size_t n, bool last)
{
	size_t before = b->len;
	Bytef block[65536];
	int e;

	if (n > UINT32_MAX)
		return -E2BIG;
	g->z.next_in = (Bytef *)(uintptr_t)p;
	g->z.avail_in = (uInt)n;
	do {
		g->z.next_out = block;
		g->z.avail_out = sizeof(block);
		deflate(&g->z, last ? Z_FINISH : Z_SYNC_FLUSH);
		e = buf_add(b, block, sizeof(block) - g->z.avail_out);
	} while (g->z.avail_out == 0 && !e);
	if (e && b->data)
		b->data[b->len = before] = '\0';
	return e;
}

int buf_add_gzip(struct buf *b, const void *p, size_t n, int level)
{
	struct gzip *g = gzip_new(level);
	int e = gzip_add(g, b, p, n, true);

	gzip_free(g);
	return e;
}
