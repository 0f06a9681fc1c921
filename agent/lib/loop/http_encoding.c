/* SPDX-License-Identifier: Apache-2.0 */
/* Content-Encoding: compresses with zstd; decompresses zstd, and gzip, which other senders use. */
#include "lib/loop/http.h"

#include <strings.h>
#include <zlib.h>
#include <zstd.h>

#define PIECE_BYTES    (64u << 10)
#define ZSTD_LEVEL     3
#define WINDOW_LOG_MAX 25 /* limit of a decoder's window: 32 MiB, as OTLP_MAX_BYTES */

static void zstd_dctx_freep(ZSTD_DCtx **d)
{
	ZSTD_freeDCtx(*d);
}

int http_compress(const void *p, size_t n, struct buf *out)
{
	size_t bound = ZSTD_compressBound(n), written;
	_cleanup_free_ char *mem = xmalloc(bound);

	written = ZSTD_compress(mem, bound, p, n, ZSTD_LEVEL);
	return ZSTD_isError(written) ? -EIO : buf_add(out, mem, written);
}

/* Appends to out. -E2BIG: this body, which begins at start, would have more than max_bytes. */
static int add_limited(struct buf *out, size_t start, const void *p, size_t n, size_t max_bytes)
{
	return out->len - start + n > max_bytes ? -E2BIG : buf_add(out, p, n);
}

static int from_zstd(const void *p, size_t n, size_t max_bytes, struct buf *out)
{
	_cleanup_(zstd_dctx_freep) ZSTD_DCtx *d = ZSTD_createDCtx();
	_cleanup_free_ char *piece = xmalloc(PIECE_BYTES);
	ZSTD_inBuffer in = {p, n, 0};
	size_t start = out->len, left = 1;
	int r;

	if (!d || ZSTD_isError(ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
		return -ENOMEM;
	for (;;) {
		ZSTD_outBuffer o = {piece, PIECE_BYTES, 0};
		size_t before = in.pos;

		left = ZSTD_decompressStream(d, &o, &in);
		if (ZSTD_isError(left))
			return -EBADMSG;
		r = add_limited(out, start, piece, o.pos, max_bytes);
		if (r < 0)
			return r;
		if (left == 0 && in.pos == n)
			return 0;
		/* no progress, so the end of the data is missing */
		if (in.pos == before && o.pos == 0)
			return -EBADMSG;
	}
}

static int inflate_all(z_stream *z, const void *p, size_t n, size_t max_bytes, struct buf *out)
{
	_cleanup_free_ unsigned char *piece = xmalloc(PIECE_BYTES);
	size_t start = out->len;
	int r;

	/* the cast drops const: zlib's interface lacks it, but zlib does not write to p */
	z->next_in = (Bytef *)p;
	z->avail_in = (uInt)n;
	for (;;) {
		int zr;

		z->next_out = piece;
		z->avail_out = PIECE_BYTES;
		zr = inflate(z, Z_NO_FLUSH);
		if (zr != Z_OK && zr != Z_STREAM_END)
			return -EBADMSG;
		r = add_limited(out, start, piece, PIECE_BYTES - z->avail_out, max_bytes);
		if (r < 0)
			return r;
		if (zr == Z_OK)
			continue;
		if (z->avail_in == 0)
			return 0;
		if (inflateReset(z) != Z_OK) /* RFC 1952: another gzip member may follow */
			return -EBADMSG;
	}
}

static int from_gzip(const void *p, size_t n, size_t max_bytes, struct buf *out)
{
	z_stream z = {0};
	int r;

	if (n > UINT32_MAX)
		return -E2BIG;
	if (inflateInit2(&z, 15 + 16) != Z_OK)
		return -ENOMEM;
	r = inflate_all(&z, p, n, max_bytes, out);
	inflateEnd(&z);
	return r;
}

static int as_it_is(const void *p, size_t n, size_t max_bytes, struct buf *out)
{
	return add_limited(out, out->len, p, n, max_bytes);
}

static const struct encoding {
	const char *name;
	int (*decompress)(const void *p, size_t n, size_t max_bytes, struct buf *out);
} encodings[] = {
	{"", as_it_is},
	{"identity", as_it_is},
	{"zstd", from_zstd},
	{"gzip", from_gzip},
};

static const struct encoding *find_encoding(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++)
		if (strcasecmp(encodings[i].name, name) == 0)
			return &encodings[i];
	return NULL;
}

bool http_knows_encoding(const char *encoding)
{
	return find_encoding(encoding) != NULL;
}

int http_decompress(const char *encoding, const void *p, size_t n, size_t max_bytes,
		    struct buf *out)
{
	const struct encoding *e = find_encoding(encoding);
	size_t start = out->len;
	int r = e ? e->decompress(p, n, max_bytes, out) : -EOPNOTSUPP;

	if (r < 0 && out->data) {
		out->len = start;
		out->data[start] = '\0';
	}
	return r;
}
