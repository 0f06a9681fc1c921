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

static int add_encoded(struct buf *b, enum api_encoding e, const char *text, size_t n)
{
	_cleanup_free_ char *to = NULL;
	size_t written;

	if (e == ENCODING_GZIP)
		return buf_add_gzip(b, text, n, API_GZIP_LEVEL);
	to = xmalloc(n);
	written = ZSTD_compress(to, n, text, n, ZSTD_LEVEL);
	return ZSTD_isError(written) ? -E2BIG : buf_add(b, to, written);
}

enum api_encoding api_encode(enum api_encoding e, char **text, size_t *n)
{
	_cleanup_buf_ struct buf b;

	/* an answer that does not get smaller stays as it is */
	buf_init(&b, *n);
	if (e == ENCODING_NONE || *n < LEAST_BYTES || add_encoded(&b, e, *text, *n))
		return ENCODING_NONE;
	free(*text);
	*n = b.len;
	*text = buf_steal(&b);
	return e;
}
