/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile's samples as a blob, and hostile blobs: the reader always ends and returns only values
 * in range.
 */
#include "hub/store/sqlite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static bool is_same(const struct stored_sample *a, const struct stored_sample *b)
{
	return a->stack == b->stack && a->cpu == b->cpu && a->value == b->value && a->n == b->n;
}

static void as_it_was(void **state)
{
	static const struct stored_sample all[] = {
		{1, -1, 0, 0},
		{300, 0, 10, 1},
		{INT64_MAX, INT32_MAX, SQ_MAX_VALUE, SQ_MAX_VALUE},
	};
	_cleanup_buf_ struct buf b = {0};
	const uint8_t *p, *end;
	struct stored_sample x;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		store_samples_put(&b, &all[i]);
	p = (const uint8_t *)b.data;
	end = p + b.len;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		assert_true(store_samples_get(&p, end, &x));
		assert_true(is_same(&x, &all[i]));
	}
	assert_false(store_samples_get(&p, end, &x));
	assert_ptr_equal(p, end);
}

/* An old file may have any CPU number. */
static void any_cpu_can_be_put(void **state)
{
	static const int64_t cpus[] = {INT64_MIN, -2, INT64_MAX};
	struct stored_sample x;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cpus); i++) {
		_cleanup_buf_ struct buf b = {0};
		const uint8_t *p;

		store_samples_put(&b, &(struct stored_sample){.stack = 1, .cpu = cpus[i]});
		p = (const uint8_t *)b.data;
		assert_true(store_samples_get(&p, p + b.len, &x));
		assert_in_range(x.cpu + 1, 0, SQ_MAX_VALUE);
	}
}

#define MOST "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"	    /* 2^64-1 */
#define HALF "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"	    /* 2^63 */
#define LONG "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01" /* longer than a 64-bit number */

static const struct {
	const char *bytes;
	size_t n_bytes, n; /* n: how many samples the reader finds */
} hostile[] = {
#define BLOB(bytes, n)                                                                             \
	{                                                                                          \
		bytes, sizeof(bytes) - 1, n                                                        \
	}
	BLOB("", 0),
	BLOB("\x01", 0),
	BLOB("\x01\x00\x05", 0),
	BLOB("\x01\x00\x05\x80", 0),
	BLOB("\x01\x00\x05\x01\x01\x00\x05", 1),
	BLOB(MOST MOST MOST MOST, 1),
	BLOB(HALF HALF HALF HALF, 1),
	BLOB("\x01" HALF "\x05\x01"
	     "\x01" MOST "\x05\x01",
	     2),
	BLOB(LONG "\x00\x05\x01", 0),
	BLOB("\x01\x00\x05" LONG, 0),
};

static size_t take_all(const uint8_t *p, size_t n_bytes)
{
	const uint8_t *end = p + n_bytes;
	struct stored_sample x;
	size_t n = 0;

	for (; store_samples_get(&p, end, &x); n++) {
		assert_true(x.cpu >= -1);
		assert_in_range(x.value, 0, SQ_MAX_VALUE);
		assert_in_range(x.n, 0, SQ_MAX_VALUE);
	}
	assert_true(p <= end);
	return n;
}

static void hostile_blobs(void **state)
{
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;

	(void)state;
	assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
	assert_int_equal(store_samples_functions(db), 0);
	assert_int_equal(sqlite3_prepare_v2(db,
					    "SELECT COUNT(*), TOTAL(value), MIN(cpu), MAX(stack) "
					    "FROM pf_samples(?, 7) WHERE time=7",
					    -1, &st, NULL),
			 SQLITE_OK);
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		/*
		 * memory of exactly the blob's size, so that the sanitizer finds a read behind it
		 */
		uint8_t *bytes = xmemdup(hostile[i].bytes, hostile[i].n_bytes);

		assert_int_equal(take_all(bytes, hostile[i].n_bytes), hostile[i].n);
		sqlite3_bind_blob(st, 1, bytes, (int)hostile[i].n_bytes, SQLITE_STATIC);
		assert_int_equal(sqlite3_step(st), SQLITE_ROW);
		assert_int_equal(sqlite3_column_int(st, 0), hostile[i].n);
		sqlite3_reset(st);
		free(bytes);
	}
	sqlite3_finalize(st);
	sqlite3_close(db);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_it_was),
		cmocka_unit_test(any_cpu_can_be_put),
		cmocka_unit_test(hostile_blobs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
