/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/api/encoding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

static void headers(void **state)
{
	static const struct {
		const char *header;
		enum api_encoding want;
	} cases[] = {
		{"", ENCODING_NONE},
		{"gzip", ENCODING_GZIP},
		{"gzip, deflate, br, zstd", ENCODING_ZSTD},
		{" GZip ;q=0.5", ENCODING_GZIP},
		{"zstd;q=0, gzip;q=0.001", ENCODING_GZIP},
		{"zstd; q=0.000,gzip;q=0", ENCODING_NONE},
		{"gzipped, xzstd, identity, *", ENCODING_NONE},
		{",,,gzip", ENCODING_GZIP},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (api_encoding_of(cases[i].header) != cases[i].want)
			fail_msg("'%s'", cases[i].header);
}

static char *long_text(size_t n)
{
	char *text = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		text[i] = "function"[i % 8];
	return text;
}

/* Each encoding gives back what it got. */
static void round_trips(void **state)
{
	enum { N = 100000 };
	_cleanup_free_ char *want = long_text(N), *got = xmalloc(N);
	char *text = long_text(N);
	size_t n = N;
	z_stream z = {.next_out = (Bytef *)got, .avail_out = N};

	(void)state;
	assert_int_equal(api_encode(ENCODING_ZSTD, &text, &n), ENCODING_ZSTD);
	assert_true(n < N / 10);
	assert_int_equal(ZSTD_decompress(got, N, text, n), N);
	assert_memory_equal(got, want, N);
	free(text);

	text = long_text(N);
	n = N;
	memset(got, 0, N);
	assert_int_equal(api_encode(ENCODING_GZIP, &text, &n), ENCODING_GZIP);
	assert_true(n < N / 10);
	z.next_in = (Bytef *)text;
	z.avail_in = (uInt)n;
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	inflateEnd(&z);
	assert_memory_equal(got, want, N);
	free(text);
}

/* What has come of gzip so far. Returns its length. */
static size_t gunzip(const struct buf *b, char *to, size_t n)
{
	z_stream z = {.next_in = (Bytef *)b->data,
		      .avail_in = (uInt)b->len,
		      .next_out = (Bytef *)to,
		      .avail_out = (uInt)n};

	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	inflate(&z, Z_SYNC_FLUSH);
	inflateEnd(&z);
	return n - z.avail_out;
}

static size_t unzstd(const struct buf *b, char *to, size_t n)
{
	ZSTD_inBuffer in = {b->data, b->len, 0};
	ZSTD_outBuffer out = {to, n, 0};
	ZSTD_DCtx *zstd = ZSTD_createDCtx();

	while (in.pos < in.size)
		assert_false(ZSTD_isError(ZSTD_decompressStream(zstd, &out, &in)));
	ZSTD_freeDCtx(zstd);
	return out.pos;
}

static size_t as_it_is(const struct buf *b, char *to, size_t n)
{
	assert_true(b->len <= n);
	memcpy(to, b->data, b->len);
	return b->len;
}

/* The client has all of the first piece before the second one comes. */
static void pieces(void **state)
{
	static size_t (*const decode[])(const struct buf *b, char *to, size_t n) = {
		[ENCODING_NONE] = as_it_is, [ENCODING_GZIP] = gunzip, [ENCODING_ZSTD] = unzstd};
	enum { N = 300000 };
	_cleanup_free_ char *want = long_text(N), *got = xmalloc(2 * N);

	(void)state;
	for (enum api_encoding e = ENCODING_NONE; e <= ENCODING_ZSTD; e++) {
		struct api_encoder *x = api_encoder_new(e);
		_cleanup_buf_ struct buf sent = {0};

		for (size_t piece = 1; piece <= 2; piece++) {
			char *text = long_text(N);
			size_t n = N;

			api_encoder_add(x, &text, &n, piece == 2);
			buf_add(&sent, text, n);
			free(text);
			assert_int_equal(decode[e](&sent, got, 2 * N), piece * N);
			assert_memory_equal(got + (piece - 1) * N, want, N);
		}
		api_encoder_free(x);
	}
}

/* Short texts, and texts that do not get shorter, stay as they are. */
static void stays(void **state)
{
	char *text = long_text(100);
	size_t n = 100;

	(void)state;
	assert_int_equal(api_encode(ENCODING_ZSTD, &text, &n), ENCODING_NONE);
	assert_int_equal(n, 100);
	text = xrealloc(text, 5000);
	random_bytes(text, 5000);
	n = 5000;
	assert_int_equal(api_encode(ENCODING_ZSTD, &text, &n), ENCODING_NONE);
	assert_int_equal(api_encode(ENCODING_GZIP, &text, &n), ENCODING_NONE);
	assert_int_equal(n, 5000);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers),
		cmocka_unit_test(round_trips),
		cmocka_unit_test(pieces),
		cmocka_unit_test(stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
