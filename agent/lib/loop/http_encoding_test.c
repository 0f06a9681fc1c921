/* SPDX-License-Identifier: Apache-2.0 */
/* Content-Encoding: data that is compressed and decompressed again, and data that is refused. */
#include "lib/loop/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <zstd.h>

#include <cmocka.h>

#define MOST (32u << 20) /* bytes that a test lets a body have */

static const char text[] = "podflame podflame podflame podflame podflame podflame";

static void pack(const char *encoding, const void *p, size_t n, struct buf *out)
{
	if (streq(encoding, "gzip"))
		assert_int_equal(buf_add_gzip(out, p, n, 9), 0);
	else
		assert_int_equal(http_compress(p, n, out), 0);
}

static void test_round_trip(void **state)
{
	(void)state;
	static const char *const encodings[] = {"zstd", "gzip"};

	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
		_cleanup_buf_ struct buf packed = {0}, out = {0};

		pack(encodings[i], text, sizeof(text), &packed);
		assert_true(packed.len < sizeof(text));
		assert_int_equal(
			http_decompress(encodings[i], packed.data, packed.len, sizeof(text), &out),
			0);
		assert_int_equal(out.len, sizeof(text));
		assert_string_equal(out.data, text);
	}
}

static void test_identity(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf out = {0};

	assert_int_equal(http_decompress("", text, 3, 3, &out), 0);
	assert_int_equal(http_decompress("identity", text, 3, 3, &out), 0);
	assert_string_equal(out.data, "podpod");
	assert_int_equal(http_decompress("", text, 4, 3, &out), -E2BIG);
}

static void test_other_encodings(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf out = {0};

	assert_int_equal(http_decompress("br", text, 3, 3, &out), -EOPNOTSUPP);
	assert_int_equal(http_decompress("zstd, gzip", text, 3, 3, &out), -EOPNOTSUPP);
	assert_false(http_knows_encoding("br"));
	assert_false(http_knows_encoding("zstd, gzip"));
	assert_true(http_knows_encoding(""));
	assert_true(http_knows_encoding("GZIP"));
}

/*
 * Data that is cut at any byte, or has any byte changed, is an error, and leaves `out` unchanged.
 */
static void test_garbage(void **state)
{
	(void)state;
	static const char *const encodings[] = {"zstd", "gzip"};

	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
		_cleanup_buf_ struct buf packed = {0}, out = {0};

		pack(encodings[i], text, sizeof(text), &packed);
		buf_puts(&out, "kept");
		for (size_t n = 0; n < packed.len; n++) {
			_cleanup_free_ void *exact = xmemdup(packed.data, n + !n);

			assert_int_equal(http_decompress(encodings[i], exact, n, 1 << 20, &out),
					 -EBADMSG);
			assert_string_equal(out.data, "kept");
		}
		buf_puts(&packed, "rest");
		assert_int_equal(
			http_decompress(encodings[i], packed.data, packed.len, 1 << 20, &out),
			-EBADMSG);
		assert_string_equal(out.data, "kept");
	}
}

static void test_bombs(void **state)
{
	(void)state;
	static const char *const encodings[] = {"zstd", "gzip"};
	size_t n = 64u << 20;
	_cleanup_free_ char *zeros = xcalloc(n, 1);

	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
		_cleanup_buf_ struct buf packed = {0}, out = {0};

		pack(encodings[i], zeros, n, &packed);
		assert_true(packed.len < n / 100);
		assert_int_equal(http_decompress(encodings[i], packed.data, packed.len, MOST, &out),
				 -E2BIG);
		assert_int_equal(out.len, 0);
		assert_true(out.cap <= 2 * (size_t)MOST);
	}
}

/* A zstd frame that needs a window of 1 GiB is refused before the window is allocated. */
static void test_huge_window(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf out = {0};
	_cleanup_free_ char *mem = xmalloc(1 << 16);
	ZSTD_CCtx *c = ZSTD_createCCtx();
	ZSTD_inBuffer in = {text, sizeof(text), 0};
	ZSTD_outBuffer o = {mem, 1 << 16, 0};

	ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, 30);
	/* flushed first, so that the frame contains its window size instead of the content size */
	ZSTD_compressStream2(c, &o, &in, ZSTD_e_flush);
	ZSTD_compressStream2(c, &o, &in, ZSTD_e_end);
	ZSTD_freeCCtx(c);
	assert_int_equal(http_decompress("zstd", mem, o.pos, 1 << 20, &out), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),	cmocka_unit_test(test_identity),
		cmocka_unit_test(test_other_encodings), cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_bombs),		cmocka_unit_test(test_huge_window),
	};

	return cmocka_run_group_tests_name("loop/http_encoding", tests, NULL, NULL);
}
