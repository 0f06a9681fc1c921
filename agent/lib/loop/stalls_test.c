/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop's longest stall of the last ten minutes, as /metrics shows it. The test sets the clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/loop/health.h"
#include "lib/loop/loop_private.h"

#define MINUTE_NS (60 * NSEC_PER_SEC)

static void callback_of(struct loop *l, uint64_t ns)
{
	uint64_t entered_ns = loop_enter();

	test_clock.stands_ns += ns;
	loop_leave(l, entered_ns);
}

static void shows(struct loop *l, const char *since, const char *seconds)
{
	_cleanup_free_ char *want = xasprintf(
		"podflame_loop_stall_seconds{since=\"%s\"} %s.000000000\n", since, seconds);
	_cleanup_buf_ struct buf b = {0};

	health_metrics(l, &b);
	if (!strstr(b.data, want))
		fail_msg("lacks %s", want);
}

static int setup(void **state)
{
	struct loop *l;

	test_clock.stands_ns = 3600 * NSEC_PER_SEC;
	assert_int_equal(loop_new(&l), 0);
	*state = l;
	return 0;
}

static int teardown(void **state)
{
	loop_free(*state);
	return 0;
}

static void is_of_the_last_ten_minutes(void **state)
{
	struct loop *l = *state;

	callback_of(l, 3 * NSEC_PER_SEC);
	shows(l, "10m", "3");
	test_clock.stands_ns += 5 * MINUTE_NS;
	callback_of(l, NSEC_PER_SEC);
	shows(l, "10m", "3");
	/* now the stall ended 9 minutes 59 seconds ago */
	test_clock.stands_ns += 5 * MINUTE_NS - 2 * NSEC_PER_SEC;
	shows(l, "10m", "3");
	test_clock.stands_ns += 32 * NSEC_PER_SEC;
	shows(l, "10m", "1");
	test_clock.stands_ns += 6 * MINUTE_NS;
	shows(l, "10m", "0");
	shows(l, "start", "3");
}

/* A stall of hours ago is not shown, even if the value was not read since. */
static void does_not_wait_for_who_asks(void **state)
{
	struct loop *l = *state;

	callback_of(l, 3 * NSEC_PER_SEC);
	test_clock.stands_ns += 120 * MINUTE_NS;
	callback_of(l, 2 * NSEC_PER_SEC);
	shows(l, "10m", "2");
	shows(l, "start", "3");
	for (int i = 0; i < 11; i++) {
		test_clock.stands_ns += MINUTE_NS;
		callback_of(l, 0);
	}
	shows(l, "10m", "0");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(is_of_the_last_ten_minutes),
		T(does_not_wait_for_who_asks),
	};

	return cmocka_run_group_tests_name("stall", tests, NULL, NULL);
}
