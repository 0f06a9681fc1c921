/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/shares.h"
#include "lib/base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { GREEDY = 7, VICTIM };
#define MAX_ITEMS 64

/* Returns how many of n items the owner gets. */
static size_t add(struct shares *s, uint64_t owner, size_t n)
{
	size_t got = 0;

	for (size_t i = 0; i < n; i++)
		if (shares_may_add(s, owner, MAX_ITEMS)) {
			shares_add(s, owner);
			got++;
		}
	return got;
}

static void who_has_too_much_leaves_room(void **state)
{
	struct shares s = {0};

	(void)state;
	assert_int_equal(add(&s, GREEDY, 2 * MAX_ITEMS), MAX_ITEMS / 4 * 3);
	assert_int_equal(add(&s, VICTIM, MAX_ITEMS / 8), MAX_ITEMS / 8);
	assert_int_equal(add(&s, GREEDY, 1), 0);
	/* what it gives back, it may have again */
	shares_remove(&s, GREEDY);
	for (size_t i = 0; i < MAX_ITEMS / 8; i++)
		shares_remove(&s, VICTIM);
	assert_int_equal(add(&s, GREEDY, MAX_ITEMS), 1);
	shares_done(&s);
	assert_null(s.by_owner);
	assert_int_equal(s.all, 0);
}

static void all_together_stay_within_the_limit(void **state)
{
	struct shares s = {0};
	size_t n = 0;

	(void)state;
	for (uint64_t owner = 1; owner <= 2 * MAX_ITEMS; owner++)
		n += add(&s, owner, 1);
	assert_int_equal(n, MAX_ITEMS);
	shares_done(&s);
}

static void who_has_most_is_found(void **state)
{
	struct shares s = {0};

	(void)state;
	assert_int_equal(shares_most(&s, VICTIM), VICTIM);
	add(&s, GREEDY, 2);
	add(&s, VICTIM, 1);
	assert_int_equal(shares_most(&s, VICTIM), GREEDY);
	assert_int_equal(shares_most(&s, 99), GREEDY);
	add(&s, VICTIM, 1);
	assert_int_equal(shares_most(&s, VICTIM), VICTIM);
	assert_int_equal(shares_most(&s, GREEDY), GREEDY);
	shares_done(&s);
}

static void add_up(uint64_t owner, void *arg)
{
	*(uint64_t *)arg += owner;
}

static void each_owner_is_called_once(void **state)
{
	struct shares s = {0};
	uint64_t sum = 0;

	(void)state;
	add(&s, GREEDY, 3);
	add(&s, VICTIM, 1);
	shares_each(&s, add_up, &sum);
	assert_int_equal(sum, GREEDY + VICTIM);
	shares_remove(&s, VICTIM);
	shares_each(&s, add_up, &sum);
	assert_int_equal(sum, GREEDY + VICTIM + GREEDY);
	shares_done(&s);
}

static void owners_move_once_each(void **state)
{
	struct shares from = {0}, to = {0};

	(void)state;
	add(&from, GREEDY, 3);
	add(&from, VICTIM, 1);
	add(&to, VICTIM, 1);
	shares_move_owners(&to, &from);
	assert_int_equal(from.all, 0);
	assert_null(from.by_owner);
	assert_int_equal(to.all, 3);
	assert_int_equal(shares_most(&to, GREEDY), VICTIM);
	shares_done(&to);
}

static void more_than_all_is_refused(void **state)
{
	(void)state;
	assert_true(shares_have_room(0, 0, MAX_ITEMS, MAX_ITEMS));
	assert_false(shares_have_room(0, 0, MAX_ITEMS + 1, MAX_ITEMS));
	assert_false(shares_have_room(0, 0, 1, 0));
}

/* The oldest item of the owner that has most makes room; at a tie, that of the owner who asks. */
static void who_has_most_makes_room(void **state)
{
	struct share_item greedy[3], victim[2];
	struct shares s = {0};

	(void)state;
	assert_null(shares_surplus(&s, VICTIM));
	shares_put(&s, &victim[0], VICTIM);
	for (size_t i = 0; i < ARRAY_SIZE(greedy); i++)
		shares_put(&s, &greedy[i], GREEDY);
	assert_ptr_equal(shares_surplus(&s, VICTIM), &greedy[0]);
	shares_take(&s, &greedy[0]);
	assert_ptr_equal(shares_surplus(&s, GREEDY), &greedy[1]);
	shares_put(&s, &victim[1], VICTIM);
	assert_ptr_equal(shares_surplus(&s, VICTIM), &victim[0]);
	assert_ptr_equal(shares_surplus(&s, GREEDY), &greedy[1]);
	shares_give(&s, &victim[0], GREEDY);
	shares_give(&s, &greedy[1], GREEDY); /* stays where it is */
	assert_ptr_equal(shares_surplus(&s, VICTIM), &greedy[1]);
	shares_take(&s, &greedy[1]);
	shares_take(&s, &greedy[2]);
	assert_ptr_equal(shares_surplus(&s, GREEDY), &victim[0]);
	shares_take(&s, &victim[0]);
	shares_take(&s, &victim[1]);
	assert_null(s.by_owner);
	assert_int_equal(s.all, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_has_too_much_leaves_room),
		cmocka_unit_test(all_together_stay_within_the_limit),
		cmocka_unit_test(who_has_most_is_found),
		cmocka_unit_test(who_has_most_makes_room),
		cmocka_unit_test(each_owner_is_called_once),
		cmocka_unit_test(owners_move_once_each),
		cmocka_unit_test(more_than_all_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
