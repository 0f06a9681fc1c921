/* SPDX-License-Identifier: Apache-2.0 */
/* How much of what all share a user gets. */
#include "hub/api/shares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MOST 120

static int setup(void **state)
{
	*state = api_shares_new((const size_t[_SHARE_MAX]){MOST, MOST, MOST, MOST});
	return 0;
}

static int teardown(void **state)
{
	api_shares_free(*state);
	return 0;
}

static size_t take_all(struct user_share *u)
{
	size_t n = 0;

	while (api_share_take(u, SHARE_REQUESTS, 1))
		n++;
	return n;
}

/* One user gets half, the next one half of what is left, and there is always something left. */
static void nobody_takes_all(void **state)
{
	struct user_share *a = api_share_join(*state, "a"), *b = api_share_join(*state, "b"),
			  *c = api_share_join(*state, "c");

	assert_int_equal(take_all(a), MOST / 2);
	assert_int_equal(take_all(b), MOST / 4);
	assert_int_equal(take_all(c), MOST / 8);
	assert_int_equal(take_all(a), 0);
	/* other things are apart */
	assert_true(api_share_take(a, SHARE_REPLY_BYTES, MOST / 2));
	assert_false(api_share_take(a, SHARE_REPLY_BYTES, 1));
	/* two that want as much as they can get have a third each */
	api_share_give(c, SHARE_REQUESTS, MOST / 8);
	api_share_give(a, SHARE_REQUESTS, MOST / 2 - MOST / 3);
	assert_int_equal(take_all(b), MOST / 3 - MOST / 4);
	assert_int_equal(take_all(a), 0);
	assert_int_equal(take_all(b), 0);
	api_share_leave(a);
	api_share_leave(b);
	api_share_leave(c);
}

/* A user is the same from request to request, as long as it has one. */
static void a_user_has_one_share(void **state)
{
	struct user_share *a = api_share_join(*state, "a"), *again;

	assert_int_equal(take_all(a), MOST / 2);
	again = api_share_join(*state, "a");
	assert_int_equal(take_all(again), 0);
	api_share_give(a, SHARE_REQUESTS, MOST / 2);
	api_share_leave(a);
	assert_int_equal(take_all(again), MOST / 2);
	api_share_give(again, SHARE_REQUESTS, MOST / 2);
	api_share_leave(again);
	again = api_share_join(*state, "a");
	assert_int_equal(take_all(again), MOST / 2);
	api_share_leave(again);
}

/* A namespace may make any number of ServiceAccounts: they have one share. */
static void service_accounts_share(void **state)
{
	struct user_share *a = api_share_join(*state, "system:serviceaccount:app:one"),
			  *b = api_share_join(*state, "system:serviceaccount:app:two"),
			  *c = api_share_join(*state, "system:serviceaccount:app2:one");

	assert_int_equal(take_all(a), MOST / 2);
	assert_int_equal(take_all(b), 0);
	assert_int_equal(take_all(c), MOST / 4);
	api_share_leave(a);
	api_share_leave(b);
	api_share_leave(c);
}

/* What an answer takes while it is made, and what it keeps until it has been sent. */
static void the_bytes_of_an_answer(void **state)
{
	struct reply_bytes *a = api_reply_bytes_new(*state, "a");
	_cleanup_buf_ struct buf b = {.budget = &a->budget};

	/* a buffer of 64 bytes is more than half */
	assert_int_equal(buf_puts(&b, "x"), -E2BIG);
	assert_true(b.failed && a->refused);
	assert_int_equal(a->held, 0);
	api_reply_bytes_free(a);
	a = api_reply_bytes_new(*state, "a");
	assert_true(a->budget.take(&a->budget, 60));
	assert_false(a->budget.take(&a->budget, 1));
	api_reply_bytes_keep(a, 70);
	assert_int_equal(a->held, 60);
	api_reply_bytes_keep(a, 10);
	assert_int_equal(a->held, 10);
	assert_true(a->budget.take(&a->budget, 50));
	api_reply_bytes_free(a);
	a = api_reply_bytes_new(*state, "a");
	assert_true(a->budget.take(&a->budget, 60));
	api_reply_bytes_free(a);
	api_reply_bytes_free(NULL);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nobody_takes_all),
		TEST(a_user_has_one_share),
		TEST(service_accounts_share),
		TEST(the_bytes_of_an_answer),
	};

	return cmocka_run_group_tests_name("shares", tests, NULL, NULL);
}
