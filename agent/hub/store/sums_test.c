/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's tables in memory: sums of stacks for a query, and what the writer has stored lately.
 */
#include "hub/store/sqlite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void add(struct sums *s, int64_t stack, int64_t app, int64_t value)
{
	store_sums_add(
		s, &(struct stored_sum){.stack = stack, .app = app, .value = value, .n_samples = 1},
		1);
}

/*
 * Equal stacks of one application are added up. The greatest comes first; of equal values, the
 * smaller row id.
 */
static void known_sums(void **state)
{
	static const struct stored_sum want[] = {
		{7, 1, 12, 2, 0}, {7, 2, 11, 1, 0}, {8, 1, 5, 1, 0}, {9, 1, 5, 1, 0}};
	_cleanup_(store_sums_done) struct sums s;

	(void)state;
	store_sums_init(&s, 100);
	add(&s, 9, 1, 5);
	add(&s, 7, 1, 10);
	add(&s, 8, 1, 5);
	add(&s, 7, 2, 11);
	add(&s, 7, 1, 2);
	store_sums_sort(&s);
	assert_int_equal(s.n, ARRAY_SIZE(want));
	assert_false(s.truncated);
	for (size_t i = 0; i < s.n; i++)
		assert_memory_equal(&s.items[i], &want[i], sizeof(want[i]));
}

static void no_sums(void **state)
{
	_cleanup_(store_sums_done) struct sums s;

	(void)state;
	store_sums_init(&s, 100);
	store_sums_sort(&s);
	assert_int_equal(s.n, 0);
}

static void sums_stay_in_range(void **state)
{
	_cleanup_(store_sums_done) struct sums s;

	(void)state;
	store_sums_init(&s, 100);
	for (int i = 0; i < 5; i++)
		add(&s, 1, 1, SQ_MAX_VALUE - i);
	store_sums_sort(&s);
	assert_int_equal(s.items[0].value, SQ_MAX_VALUE);
}

/*
 * Only a limited number of stacks is kept: the greatest, each with its whole value. The result
 * reports the rest.
 */
static void smallest_are_left_out(void **state)
{
	_cleanup_(store_sums_done) struct sums s;
	int64_t all = 0, n_all = 0;
	size_t most = 0;

	(void)state;
	store_sums_init(&s, 10);
	for (int64_t round = 0; round < 3; round++)
		for (int64_t stack = 1; stack <= 20000; stack++) {
			int64_t value = stack % 2000 == 7 ? 1000000 + stack : 1;

			add(&s, stack, 1, value);
			all += value;
			n_all++;
			most = MAX(most, s.cap);
		}
	store_sums_sort(&s);
	assert_true(most <= 8192);
	assert_true(s.truncated);
	assert_int_equal(s.n, 10);
	for (int64_t i = 0; i < 10; i++) {
		assert_int_equal(s.items[i].stack, 18007 - 2000 * i);
		assert_int_equal(s.items[i].value, 3 * (1000000 + s.items[i].stack));
		assert_int_equal(s.items[i].n_samples, 3);
		all -= s.items[i].value;
		n_all -= s.items[i].n_samples;
	}
	assert_int_equal(s.others.value, all);
	assert_int_equal(s.others.n_samples, n_all);
}

/*
 * A stack that was removed comes again: the lost part is in others, and is not more than short_by.
 */
static void what_is_cut_has_a_bound(void **state)
{
	_cleanup_(store_sums_done) struct sums s;
	int64_t all = 40;

	(void)state;
	store_sums_init(&s, 10);
	add(&s, 1, 1, 40);
	for (int64_t stack = 2; !s.truncated; stack++, all += 50)
		add(&s, stack, 1, 50);
	assert_int_equal(s.short_by, 50);
	add(&s, 1, 1, 1000);
	store_sums_sort(&s);
	assert_int_equal(s.n, 10);
	assert_int_equal(s.items[0].stack, 1);
	assert_int_equal(s.items[0].value, 1000);
	assert_true(s.items[0].value + s.short_by >= 1040);
	assert_int_equal(s.others.value, all + 1000 - s.items[0].value - 9 * 50);
}

/* ---- the writer's cache ---- */

static struct seen_key key_of(const struct sqlite_store *s, uint64_t i)
{
	return store_seen_key(s, &i, sizeof(i));
}

/* Entries in use stay, and old ones are dropped, so the memory has a limit. */
static void seen_is_bounded(void **state)
{
	struct sqlite_store s = {};
	struct seen *seen = &s.seen[SEEN_STACKS];
	const struct seen_entry *e;

	(void)state;
	store_seen_forget(&s);
	assert_null(store_seen_get(seen, key_of(&s, 1)));
	for (uint64_t i = 1; i <= 1000000; i++) {
		store_seen_put(seen, &(struct seen_entry){.key = key_of(&s, i),
							  .id = (int64_t)i,
							  .time_s = (int64_t)i * 2});
		e = store_seen_get(seen, key_of(&s, 1));
		assert_non_null(e);
		assert_int_equal(e->id, 1);
		assert_int_equal(e->time_s, 2);
	}
	assert_non_null(store_seen_get(seen, key_of(&s, 999999)));
	assert_null(store_seen_get(seen, key_of(&s, 2)));
	assert_true(seen->young.cap + seen->old.cap <= 1u << 19);
	store_seen_forget(&s);
	assert_null(store_seen_get(seen, key_of(&s, 1)));
	store_seen_forget(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_sums),
		cmocka_unit_test(no_sums),
		cmocka_unit_test(sums_stay_in_range),
		cmocka_unit_test(smallest_are_left_out),
		cmocka_unit_test(what_is_cut_has_a_bound),
		cmocka_unit_test(seen_is_bounded),
	};

	return cmocka_run_group_tests_name("sums", tests, NULL, NULL);
}
