/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/budget.h"
#include "lib/base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { GREEDY = 7, VICTIM };
#define MOST 4096 /* the limit of the budgets below */

/* Returns how much of n the member gets, one by one. */
static uint64_t take(struct budget *b, struct budget_member *m, uint64_t n)
{
	uint64_t got = 0;

	while (got < n && budget_take(b, m, 1))
		got++;
	return got;
}

static void assert_refused(struct budget *b, uint64_t owner)
{
	struct shares refused = {0};

	budget_refused(b, &refused);
	assert_int_equal(refused.all, owner ? 1 : 0);
	assert_true(!owner || shares_most(&refused, owner) == owner);
	shares_done(&refused);
}

/* An owner with many members leaves room for one with few, and knows that it was refused. */
static void many_members_of_one_owner_leave_room(void **state)
{
	struct budget b = BUDGET(MOST);
	struct budget_member greedy[64], victim;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(greedy); i++) {
		budget_join(&b, &greedy[i], GREEDY);
		take(&b, &greedy[i], MOST);
	}
	assert_refused(&b, GREEDY);
	budget_join(&b, &victim, VICTIM);
	/* half of what is free, and all that the victim may have of the reserve */
	assert_int_equal(take(&b, &victim, MOST), MOST / 4);
	assert_refused(&b, VICTIM);
	assert_refused(&b, 0);
	for (size_t i = 0; i < ARRAY_SIZE(greedy); i++)
		budget_leave(&b, &greedy[i]);
	budget_leave(&b, &victim);
	assert_null(b.owners);
	assert_int_equal(b.all, 0);
}

/* A member that comes late has a part of its owner's reserve. */
static void a_member_that_comes_late_has_room(void **state)
{
	struct budget b = BUDGET(MOST);
	struct budget_member large, small;

	(void)state;
	budget_join(&b, &large, GREEDY);
	assert_int_equal(take(&b, &large, 2 * MOST), MOST / 4 * 3);
	budget_join(&b, &small, GREEDY);
	assert_int_equal(take(&b, &small, MOST), MOST / 4);
	budget_give_back(&b, &large, 10);
	assert_int_equal(take(&b, &large, MOST), 0); /* the reserve got it back */
	assert_int_equal(take(&b, &small, MOST), 0);
	assert_refused(&b, GREEDY);
	budget_leave(&b, &large);
	assert_int_equal(take(&b, &small, 10), 10);
	budget_leave(&b, &small);
	assert_int_equal(b.all, 0);
}

/* However many members an owner has, all of them together have no more than the owner's parts. */
static void members_that_come_one_by_one_gain_nothing(void **state)
{
	enum { N = 512 };
	struct budget b = BUDGET(MOST);
	struct budget_member m[N];
	uint64_t all = 0;

	(void)state;
	for (size_t i = 0; i < N; i++) {
		budget_join(&b, &m[i], GREEDY);
		all += take(&b, &m[i], MOST);
	}
	assert_in_range(all, MOST / 4 * 3, MOST / 4 * 5);
	for (size_t i = 0; i < N; i++)
		budget_leave(&b, &m[i]);
	assert_refused(&b, GREEDY);
	assert_null(b.owners);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_members_of_one_owner_leave_room),
		cmocka_unit_test(a_member_that_comes_late_has_room),
		cmocka_unit_test(members_that_come_one_by_one_gain_nothing),
	};

	return cmocka_run_group_tests_name("budgets", tests, NULL, NULL);
}
