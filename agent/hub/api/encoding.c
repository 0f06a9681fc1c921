/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compression of answers: RFC 9110, section 12.5.3. zstd is faster and smaller than gzip, but not
 * every client has it.
 */
#include "hub/api/encoding.h"

#include <stdlib.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>

#define LEAST_BYTES 1024 /* a smaller answer is not compressed: it fits a packet or two */
#define ZSTD_LEVEL  3
#define GZIP_LEVEL  2
#define GZIP_WINDOW (15 + 16) /* 15: zlib's largest window; 16: with gzip's head and end */

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
static bool accepts(const char *header, const char *name)
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

enum api_encoding api_encoding_of(const char *accept_encoding)
{
	for (enum api_encoding e = ENCODING_ZSTD; e > ENCODING_NONE; e--)
		if (accepts(accept_encoding + strspn(accept_encoding, " \t"), names[e]))
			return e;
	return ENCODING_NONE;
}

static size_t zstd(char *to, size_t room, const char *from, size_t n)
{
	size_t written = ZSTD_compress(to, room, from, n, ZSTD_LEVEL);

	return ZSTD_isError(written) ? 0 : written;
}

static size_t gzip(char *to, size_t room, const char *from, size_t n)
{
	z_stream z = {.next_in = (Bytef *)(uintptr_t)from,
		      .avail_in = (uInt)n,
		      .next_out = (Bytef *)to,
		      .avail_out = (uInt)room};
	int r = deflateInit2(&z, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, MAX_MEM_LEVEL,
			     Z_DEFAULT_STRATEGY);

	if (r != Z_OK)
		return 0;
	r = deflate(&z, Z_FINISH);
	deflateEnd(&z);
	return r == Z_STREAM_END ? (size_t)z.total_out : 0;
}

void api_gzip(char **bytes, size_t *n)
{
	size_t room = compressBound(*n) + 64; /* gzip's head and end are longer than zlib's */
	char *to = xmalloc(room);

	*n = gzip(to, room, *bytes, *n);
	free(*bytes);
	*bytes = to;
}

enum api_encoding api_encode(enum api_encoding e, char **text, size_t *n)
{
	char *to;
	size_t written;

	if (e == ENCODING_NONE || *n < LEAST_BYTES || *n > UINT32_MAX)
		return ENCODING_NONE;
	/* an answer that does not get smaller stays as it is */
	to = xmalloc(*n);
	written = e == ENCODING_ZSTD ? zstd(to, *n, *text, *n) : gzip(to, *n, *text, *n);
	if (!written) {
		free(to);
		return ENCODING_NONE;
	}
	free(*text);
	*text = xrealloc(to, written);
	*n = written;
	return e;
}
