/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two clocks are read one after the other, on a machine that is suspended and in a thread that is
 * preempted.
 */
#include "node/probe/internal.h"

#include <setjmp.h>
#include <time.h>

#include <cmocka.h>

#define MS NSEC_PER_MSEC

/*
 * The clocks of a machine. Each reading moves them by 20 ns. A call of probes_slept_now() reads
 * them three times. Before the reading number `at`, the thread may be preempted or the machine
 * suspended.
 */
static uint64_t mono_ns, boot_ns;
static struct {
	unsigned at; /* number of the reading: 1, 2, 3; 0: nothing happens */
	uint64_t preempted_ns, asleep_ns;
} what;

int clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t ns;

	if (what.at && --what.at == 0) {
		mono_ns += what.preempted_ns;
		boot_ns += what.preempted_ns + what.asleep_ns;
	}
	mono_ns += 20;
	boot_ns += 20;
	ns = id == CLOCK_MONOTONIC ? mono_ns : boot_ns;
	*t = (struct timespec){(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
	return 0;
}

static void pass(uint64_t ns)
{
	mono_ns += ns;
	boot_ns += ns;
}

static int begin(void **state)
{
	(void)state;
	mono_ns = 1000 * NSEC_PER_SEC;
	boot_ns = 5000 * NSEC_PER_SEC; /* the machine was suspended before */
	what.at = 0;
	return 0;
}

static void test_sleeps_are_told_once(void **state)
{
	struct slept s = {};
	uint64_t told = 0;

	(void)state;
	assert_int_equal(probes_slept_now(&s), 0);
	for (unsigned i = 1; i <= 3; i++) { /* before each of the three readings */
		pass(NSEC_PER_SEC);
		what.at = i;
		what.preempted_ns = 0;
		what.asleep_ns = 3600 * NSEC_PER_SEC;
		told += probes_slept_now(&s);
		assert_in_range(s.boot_ns - s.mono_ns, boot_ns - mono_ns - what.asleep_ns - MS,
				boot_ns - mono_ns + MS);
		pass(NSEC_PER_SEC);
		told += probes_slept_now(&s);
		assert_in_range(told, i * what.asleep_ns - MS, i * what.asleep_ns);
		pass(NSEC_PER_SEC);
		assert_int_equal(probes_slept_now(&s), 0);
	}
}

static void test_a_short_sleep_is_none(void **state)
{
	struct slept s = {};

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		boot_ns += 400 * MS;
		pass(NSEC_PER_SEC);
		assert_int_equal(probes_slept_now(&s), 0);
	}
}

/* The thread is preempted in two calls in a row, each time before another reading of a clock. */
static void test_who_is_preempted_did_not_sleep(void **state)
{
	struct slept s = {};

	(void)state;
	for (unsigned first = 0; first <= 3; first++)
		for (unsigned second = 0; second <= 3; second++) {
			pass(NSEC_PER_SEC);
			what.preempted_ns = 700 * MS;
			what.asleep_ns = 0;
			what.at = first;
			assert_int_equal(probes_slept_now(&s), 0);
			pass(NSEC_PER_SEC);
			what.at = second;
			assert_int_equal(probes_slept_now(&s), 0);
			pass(NSEC_PER_SEC);
			assert_int_equal(probes_slept_now(&s), 0);
		}
	/* after a preemption, a suspension is still reported, with its own length */
	what.at = 2;
	(void)probes_slept_now(&s);
	boot_ns += 60 * NSEC_PER_SEC;
	assert_in_range(probes_slept_now(&s), 59 * NSEC_PER_SEC, 60 * NSEC_PER_SEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_sleeps_are_told_once, begin),
		cmocka_unit_test_setup(test_a_short_sleep_is_none, begin),
		cmocka_unit_test_setup(test_who_is_preempted_did_not_sleep, begin),
	};

	return cmocka_run_group_tests_name("probe/slept", tests, NULL, NULL);
}
