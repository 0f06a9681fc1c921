/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compression of answers: RFC 9110, section 12.5.3. zstd is faster and smaller than gzip, but not
 * every client has it.
 */
#include "hub/api/encoding.h"

#include <stdlib.h>
#include <strings.h>
#include <zstd.h>

#define LEAST_BYTES 1024 /* a smaller answer is not compressed: it fits a packet or two */
#define ZSTD_LEVEL  3

static const char *const names[] = {
	[ENCODING_NONE] = NULL, [ENCODING_GZIP] = "gzip", [ENCODING_ZSTD] = "zstd"};

const char *api_encoding_name(enum api_encoding e)
{
	return names[e];
}

/* Whether the weight of an item is zero: ";q=0", ";q=0.000". */
static bool is_refused(const char *item, size_t n)
{
	_cleanup_free_ char *text = xstrndup(item, n);
	const char *q = strcasestr(text, "q=");

	return q && strtod(q + strlen("q="), NULL) <= 0;
}

/* Whether the header names the encoding without refusing it. */
static bool names_it(const char *header, const char *name)
{
	while (*header) {
		size_t n = strcspn(header, ","), word;

		word = strcspn(header, ",; \t");
		if (word == strlen(name) && strncasecmp(header, name, word) == 0)
			return !is_refused(header, n);
		header += n;
		header += strspn(header, ", \t");
	}
	return false;
}

bool api_accepts(const char *accept_encoding, enum api_encoding e)
{
	return names_it(accept_encoding + strspn(accept_encoding, " \t"), names[e]);
}

enum api_encoding api_encoding_of(const char *accept_encoding)
{
	for (enum api_encoding e = ENCODING_ZSTD; e > ENCODING_NONE; e--)
		if (api_accepts(accept_encoding, e))
			return e;
	return ENCODING_NONE;
}

/* ---- in pieces ---- */

struct api_encoder {
	struct gzip *gzip; /* NULL: not this encoding */
	ZSTD_CCtx *zstd;
};

struct api_encoder *api_encoder_new(enum api_encoding e)
{
	struct api_encoder *x = xcalloc(1, sizeof(*x));

	if (e == ENCODING_GZIP)
		x->gzip = gzip_new(API_GZIP_LEVEL);
	if (e == ENCODING_ZSTD) {
		x->zstd = ZSTD_createCCtx();
		if (!x->zstd)
			out_of_memory();
		ZSTD_CCtx_setParameter(x->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
	}
	return x;
}

struct api_encoder *api_encoder_free(struct api_encoder *x)
{
	if (!x)
		return NULL;
	gzip_free(x->gzip);
	ZSTD_freeCCtx(x->zstd);
	free(x);
	return NULL;
}

static void add_zstd(ZSTD_CCtx *zstd, struct buf *b, const char *text, size_t n, bool last)
{
	ZSTD_inBuffer in = {text, n, 0};
	char block[65536];
	size_t left;

	do {
		ZSTD_outBuffer out = {block, sizeof(block), 0};

		left = ZSTD_compressStream2(zstd, &out, &in, last ? ZSTD_e_end : ZSTD_e_flush);
		assert_se(!ZSTD_isError(left)); /* only if it has no memory */
		buf_add(b, block, out.pos);
	} while (left);
}

static void encode(struct api_encoder *x, struct buf *b, const char *text, size_t n, bool last)
{
	if (x->gzip)
		gzip_add(x->gzip, b, text, n, last);
	else if (x->zstd)
		add_zstd(x->zstd, b, text, n, last);
	else
		buf_add(b, text, n);
}

void api_encoder_add(struct api_encoder *x, char **text, size_t *n, bool last)
{
	_cleanup_buf_ struct buf b = {0};

	encode(x, &b, *text, *n, last);
	free(*text);
	*n = b.len;
	*text = buf_steal(&b);
}

/* ---- in one piece ---- */

enum api_encoding api_encode(enum api_encoding e, char **text, size_t *n)
{
	_cleanup_buf_ struct buf b = {0};
	struct api_encoder *x;

	if (e == ENCODING_NONE || *n < LEAST_BYTES)
		return ENCODING_NONE;
	x = api_encoder_new(e);
	encode(x, &b, *text, *n, true);
	api_encoder_free(x);
	if (b.len >= *n) /* an answer that does not get smaller stays as it is */
		return ENCODING_NONE;
	free(*text);
	*n = b.len;
	*text = buf_steal(&b);
	return e;
}
