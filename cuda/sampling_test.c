// SPDX-License-Identifier: Apache-2.0
/* Tests which calls are in the sample, at rates that the test chooses. */
#include "sampling.h"
#include "clock.h"

#include "lib/base/testprogram.h"

#include <math.h>

static uint64_t time_ns;

/*
 * Makes the calls of one second; each id is `step` larger than the one before. Returns how many
 * calls are reported.
 */
static unsigned second(uint32_t *id, unsigned n_calls, unsigned step)
{
	unsigned n_told = 0;
	uint8_t level;

	for (unsigned i = 0; i < n_calls; i++) {
		time_ns += NSEC_PER_SEC / n_calls;
		*id += step;
		if (sampling_call(*id, &level)) {
			n_told++;
			sampling_spend(SAMPLING_CALL_UNITS);
			sampling_adjust(time_ns);
		}
	}
	sampling_adjust(time_ns);
	return n_told;
}

static int begin(void **state)
{
	(void)state;
	time_ns = 1000 * NSEC_PER_SEC;
	sampling_begin(time_ns);
	return 0;
}

static void few_calls_are_all_told(void **state)
{
	uint32_t id = 0;

	for (int i = 0; i < 20; i++)
		assert_int_equal(second(&id, 900, 1), 900);
	assert_int_equal(sampling_level(), 0);
	(void)state;
}

static void a_storm_costs_what_is_allowed(void **state)
{
	uint32_t id = 0;
	unsigned n_told = 0;

	assert_in_range(second(&id, 100000, 1), 1, 4000);
	for (int i = 0; i < 60; i++)
		n_told += second(&id, 100000, 1);
	assert_in_range(n_told, 60 * 300, 60 * 1300);
	assert_in_range(sampling_level(), 6, 9);
	(void)state;
}

static void after_a_storm_all_are_told_again(void **state)
{
	uint32_t id = 0;

	for (int i = 0; i < 5; i++)
		second(&id, 100000, 1);
	for (int i = 0; i < 10; i++)
		second(&id, 500, 1);
	assert_int_equal(second(&id, 500, 1), 500);
	(void)state;
}

static void a_short_burst_is_told(void **state)
{
	uint32_t id = 0;

	for (int i = 0; i < 20; i++) { /* 200 calls at once, and then nothing for a second */
		unsigned n_told = 0;
		uint8_t level;

		for (int call = 0; call < 200; call++)
			n_told += sampling_call(++id, &level);
		sampling_spend(n_told * SAMPLING_CALL_UNITS);
		assert_int_equal(n_told, 200);
		time_ns += NSEC_PER_SEC;
		sampling_adjust(time_ns);
	}
	(void)state;
}

/* Calls are reported with the probability of their level, whatever the distance of their ids is. */
static void no_pattern_of_ids_is_preferred(void **state)
{
	for (unsigned step = 1; step <= 130; step = step * 2 + step % 2) {
		double expected = 0, variance = 0, p;
		unsigned n_told = 0;
		uint32_t id = 0;
		uint8_t level;

		begin(state);
		for (int i = 0; i < 10; i++)
			second(&id, 50000, step);
		for (int i = 0; i < 200000; i++) {
			id += step;
			n_told += sampling_call(id, &level);
			p = 1.0 / (1U << level);
			expected += p;
			variance += p * (1 - p);
		}
		assert_true(fabs(n_told - expected) <= 4 * sqrt(variance));
	}
}

static void work_is_told_if_its_call_was(void **state)
{
	enum { N = 300000 };
	static bool told[N];
	static uint8_t levels[N];
	uint8_t level;

	for (uint32_t id = 0; id < N; id++) {
		time_ns += 10000;
		told[id] = sampling_call(id, &levels[id]);
		sampling_spend(told[id] * SAMPLING_CALL_UNITS);
		sampling_adjust(time_ns);
	}
	assert_true(sampling_level() > 0);
	for (uint32_t id = 0; id < N; id++) {
		assert_int_equal(sampling_work(id, &level), told[id] ? SAMPLED_YES : SAMPLED_NO);
		if (told[id])
			assert_int_equal(level, levels[id]);
	}
	(void)state;
}

static void work_of_calls_that_are_not_known_is_unseen(void **state)
{
	uint8_t level;

	assert_int_equal(sampling_work(5, &level), SAMPLED_UNSEEN);
	assert_true(sampling_call(5, &level));
	assert_int_equal(sampling_work(5, &level), SAMPLED_YES);
	assert_int_equal(sampling_work(4, &level), SAMPLED_UNSEEN);
	assert_int_equal(sampling_work(6, &level), SAMPLED_UNSEEN);
	assert_true(sampling_call(5 + SAMPLING_N_CALLS, &level));
	assert_int_equal(sampling_work(5, &level), SAMPLED_UNSEEN);
	assert_int_equal(sampling_work(5 + SAMPLING_N_CALLS, &level), SAMPLED_YES);
	(void)state;
}

static void a_call_that_comes_twice_is_told_once(void **state)
{
	uint8_t level;

	assert_true(sampling_call(5, &level));
	assert_false(sampling_call(5, &level));
	assert_int_equal(sampling_work(5, &level), SAMPLED_YES);
	(void)state;
}

/* Simulates a minute of graphs whose work ends 0.2 s after their launch. */
static void graphs(unsigned n_a_second, unsigned n_nodes)
{
	enum { SECONDS = 60, TICKS = 1000 };
	static unsigned told[SECONDS * TICKS];
	uint64_t units = 0, second = 0, worst = 0;
	uint32_t id = 0;
	uint8_t level;

	sampling_begin(time_ns); /* a new session has a new key */
	for (unsigned t = 0; t < SECONDS * TICKS; t++) {
		if (t % TICKS == 0)
			second = 0;
		time_ns += NSEC_PER_SEC / TICKS;
		told[t] = 0;
		if (t % (TICKS / n_a_second) == 0 && sampling_call(++id, &level)) {
			told[t] = 1;
			sampling_spend(SAMPLING_CALL_UNITS);
			sampling_adjust(time_ns);
		}
		if (t >= 200 && told[t - 200]) {
			sampling_spend(n_nodes);
			second += n_nodes + SAMPLING_CALL_UNITS;
		}
		if (t % 500 == 0)
			sampling_adjust(time_ns); /* as the watcher does */
		if (t % TICKS == TICKS - 1) {
			units += second;
			if (t >= 10 * TICKS && second > worst)
				worst = second;
		}
	}
	assert_in_range(units / SECONDS, SAMPLING_UNITS_PER_S / 4, SAMPLING_UNITS_PER_S * 5 / 4);
	assert_true(worst <= SAMPLING_UNITS_PER_S * 2 + n_nodes * 8);
}

static void graphs_cost_what_is_allowed(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		graphs(10, 10000);
		graphs(50, 10000);
		graphs(20, 2000);
		graphs(50, 1000);
		graphs(500, 500);
	}
}

static void ids_may_wrap(void **state)
{
	uint32_t id = UINT32_MAX - 1000;

	assert_int_equal(second(&id, 900, 1), 900);
	assert_int_equal(second(&id, 900, 1), 900);
	assert_true(id < 1000);
	(void)state;
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, begin)
		T(few_calls_are_all_told),
		T(a_storm_costs_what_is_allowed),
		T(after_a_storm_all_are_told_again),
		T(a_short_burst_is_told),
		T(no_pattern_of_ids_is_preferred),
		T(work_is_told_if_its_call_was),
		T(work_of_calls_that_are_not_known_is_unseen),
		T(a_call_that_comes_twice_is_told_once),
		T(graphs_cost_what_is_allowed),
		T(ids_may_wrap),
#undef T
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
