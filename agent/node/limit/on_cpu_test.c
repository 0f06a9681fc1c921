/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rate that a limit allows. It depends on the cost of an on-cpu tick, not on the cost of other
 * events.
 */
#include "lib/base/testclock.h"
#include "node/limit/limit.h"
#include "node/proc/testowner.h"
#include "node/report/testreport.h"
#include "node/work/testworkers.h"

static struct work node_work;

/* Runs one round with a container that has this limit. Returns its new rate. */
static unsigned hz_after(unsigned event_mask, double percent, uint64_t ns_of_a_tick)
{
	enum { N = 1000 };
	struct raw_sample samples[] = {{.event = EVENT_ON_CPU, .n = N},
				       {.event = EVENT_OFF_CPU, .n = 100 * N},
				       {.event = EVENT_MEM_ALLOC, .n = 100 * N}};
	const struct drain d = {.samples = samples, .n_samples = ARRAY_SIZE(samples)};
	const struct probes_stats s = {
		.ticks_ns = N * ns_of_a_tick, .run_ns = 1000 * NSEC_PER_SEC, .delivered = 201 * N};
	struct limit_config c = {.work = &node_work};
	struct limit *l;
	struct plan *plan = testowner_plan();
	const struct container_filter *f;
	unsigned hz;
	bool changed;
	size_t n_filter;

	testwork(&node_work);
	c.containers = node_work.containers;
	plan->pods->containers->event_mask = event_mask;
	plan->pods->containers->on_cpu_percent = percent;
	plan->pods->containers->sample_hz = event_mask & 1u << EVENT_ON_CPU ? 99 : 0;
	testowner_apply(c.containers, plan);
	l = limit_new(&c);
	limit_stats(l, &s, &d);
	f = proc_containers_filter(c.containers, 1, &n_filter, &changed);
	assert_int_equal(n_filter, 1);
	hz = f[0].sample_hz;
	limit_free(l);
	return hz;
}

static void test_rate(void **state)
{
	const unsigned on = 1u << EVENT_ON_CPU, all = on | 1u << EVENT_OFF_CPU;

	(void)state;
	assert_int_equal(hz_after(on, 0, 98000), 99); /* no limit */
	/* 10 us with the interrupt, so the limit allows 1000 samples a second */
	assert_int_equal(hz_after(on, 1, 8000), 99);
	/* 100 us with the interrupt, so the limit allows 10 a second */
	assert_int_equal(hz_after(on, 0.1, 98000), 10);
	assert_int_equal(hz_after(all, 1, 8000), 99);
	/* no target asked for on-cpu */
	assert_int_equal(hz_after(1u << EVENT_OFF_CPU, 0.1, 98000), 0);
}

static void test_limit(void **state)
{
	(void)state;
	assert_int_equal(limit_hz(1, 20000), 500);
	assert_int_equal(limit_hz(0.1, 20000), 50);
	assert_int_equal(limit_hz(0.001, 20000), 1);
	assert_int_equal(limit_hz(100, 0), 1000000);
}

/* ---- several rounds ---- */

static struct limit_config config;
static struct limit *limit;
static uint64_t ticks_ns;

static void ask(unsigned hz, double percent)
{
	struct plan *plan = testowner_plan();

	plan->pods->containers->sample_hz = hz;
	plan->pods->containers->on_cpu_percent = percent;
	testowner_apply(config.containers, plan);
}

/* Runs a round of ten seconds with n samples of this cost. Returns the container's new rate. */
static unsigned round_of(unsigned n, uint64_t ns_of_a_tick)
{
	struct raw_sample sample = {.event = EVENT_ON_CPU, .n = n};
	const struct drain d = {.samples = &sample, .n_samples = 1};
	const struct container_filter *f;
	struct probes_stats s;
	size_t n_filter;
	bool changed;

	test_clock.later_ns += 11 * NSEC_PER_SEC;
	ticks_ns += n * ns_of_a_tick;
	s = (struct probes_stats){.ticks_ns = ticks_ns};
	limit_stats(limit, &s, &d);
	f = proc_containers_filter(config.containers, 1, &n_filter, &changed);
	assert_int_equal(n_filter, 1);
	return f[0].sample_hz;
}

static int set_up(void **state)
{
	(void)state;
	testwork(&node_work);
	config = (struct limit_config){
		.work = &node_work, .containers = node_work.containers, .report = testreport()};
	ticks_ns = 0;
	ask(99, 0.1);
	limit = limit_new(&config);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	limit_free(limit);
	report_free(config.report);
	return 0;
}

/* What the target's condition reports of the rate; "": nothing. */
static const char *told(void)
{
	return testreport_problem(config.report, REASON_RATE_LOWERED, NULL);
}

static void test_told_as_it_is_asked_for(void **state)
{
	(void)state;
	assert_int_equal(round_of(1000, 18000), 50);
	assert_non_null(strstr(told(),
			       "(50 instead of 99 Hz, to stay within overheadPercent 0.1: a "
			       "sample costs about 20000 ns here (measured))"));
	ask(80, 0.1);
	assert_int_equal(round_of(1000, 18000), 50);
	assert_non_null(strstr(told(), "50 instead of 80 Hz"));
	/* 55 would be possible, but that is not much more, so the rate is not raised */
	ask(60, 0.11);
	assert_int_equal(round_of(1000, 18000), 50);
	assert_non_null(strstr(told(), "50 instead of 60 Hz, to stay within overheadPercent 0.11"));
	ask(45, 0.1); /* the limit allows this rate, so it is not lowered */
	assert_int_equal(round_of(1000, 18000), 45);
	assert_string_equal(told(), "");
}

/* The container sleeps for a round. The agent keeps the cost that it measured before. */
static void test_pause(void **state)
{
	(void)state;
	assert_int_equal(round_of(10, 4000), 50);
	assert_non_null(strstr(told(), "estimate: too few samples"));
	assert_int_equal(round_of(1000, 4000), 99);
	assert_string_equal(told(), "");
	assert_int_equal(round_of(10, 4000), 99);
	assert_string_equal(told(), "");
}

#define MAX_CAPS 4096 /* as in node/proc/caps.c */

/*
 * The namespace has its share of the table of limits. The report must name the rate that the kernel
 * uses.
 */
static void test_no_room(void **state)
{
	const uint64_t ns = proc_containers_charged(config.containers, TEST_CGROUP).ns;
	struct shares crowded = {0};
	char id[CONTAINER_ID_BYTES];

	(void)state;
	for (unsigned i = 0; i < MAX_CAPS / 4 * 3; i++) {
		snprintf(id, sizeof(id), "%064x", i);
		assert_true(proc_containers_cap_hz(config.containers, ns, id, 10));
	}
	assert_int_equal(round_of(1000, 18000), 99);
	assert_string_equal(told(), "");
	limit_crowded(limit, &crowded);
	assert_int_equal(shares_most(&crowded, 0), ns);
	shares_done(&crowded);
	assert_true(proc_containers_cap_hz(config.containers, ns, id, 0));
	assert_int_equal(round_of(1000, 18000), 50);
	limit_crowded(limit, &crowded);
	assert_int_equal(crowded.all, 0);
	assert_non_null(strstr(told(), "50 instead of 99 Hz"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_rate),
		cmocka_unit_test_setup_teardown(test_told_as_it_is_asked_for, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pause, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_room, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("node/limit", tests, NULL, NULL);
}
