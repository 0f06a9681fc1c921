// SPDX-License-Identifier: Apache-2.0
/* What a container's limit allows of off-cpu and memory events, for what it paid. */
#include "node/overhead_rules.h"

#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SEC ((double)NSEC_PER_SEC)

/* ---- off-cpu ---- */

static double share_of(uint32_t keep)
{
	return ((double)keep + 1) / 4294967296.0;
}

static uint32_t settle(uint32_t keep, uint64_t hits, uint64_t cpu_ns, double percent)
{
	for (int i = 0; i < 50; i++) {
		struct switches s = {hits, (uint64_t)((double)hits * share_of(keep)), cpu_ns};

		keep = overhead_keep(keep, &s, percent);
	}
	return keep;
}

static void few_switches_are_all_kept(void **state)
{
	(void)state;
	assert_int_equal(settle(UINT32_MAX, 200, NSEC_PER_SEC, 1), UINT32_MAX);
	assert_int_equal(settle(UINT32_MAX, 5, 1000, 1), UINT32_MAX); /* nothing to go by */
	assert_int_equal(settle(UINT32_MAX / 1000, 200, NSEC_PER_SEC, 1), UINT32_MAX);
}

/* 50,000 switches in a second of CPU: all walked would be 15 %. */
static void a_storm_of_switches_is_thinned_to_its_limit(void **state)
{
	const double percents[] = {1, 2, 5};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(percents); i++) {
		uint32_t keep = settle(UINT32_MAX, 50000, NSEC_PER_SEC, percents[i]);
		double cost_ns = 50000 * 100 + 50000 * 3000 * share_of(keep);

		assert_true(keep < UINT32_MAX);
		assert_true(cost_ns <= percents[i] / 100 * SEC * 1.01);
		assert_true(cost_ns >= percents[i] / 100 * SEC * 0.6 || percents[i] < 1.5);
	}
}

static void some_are_kept_however_many(void **state)
{
	(void)state;
	assert_true(settle(UINT32_MAX, 10000000, NSEC_PER_SEC, 1) > 0);
}

static void it_falls_at_once_and_rises_by_steps(void **state)
{
	struct switches storm = {50000, 50000, NSEC_PER_SEC}, calm = {1000, 10, NSEC_PER_SEC};
	uint32_t low, next;

	(void)state;
	low = overhead_keep(UINT32_MAX, &storm, 2);
	assert_true(share_of(low) < 0.11);
	next = overhead_keep(low, &calm, 2);
	assert_true(next > low && share_of(next) <= share_of(low) * 2.01);
	/* Just inside its limit it stays where it is. */
	storm.hits = 45000;
	assert_int_equal(overhead_keep(low, &storm, 2), low);
}

/* ---- memory ---- */

struct memory_case {
	const char *what;
	enum event event;
	enum overhead_mode now, is;
	enum refusal why;
	double hits_per_s, cpus; /* while attached */
	double percent;
	double duty; /* with spans */
};
static const struct memory_case cases[] = {
	{"idle", EVENT_MEM_ALLOC, OVERHEAD_SPANS, OVERHEAD_STEADY, 0, 0, 0, 1, 0},
	{"5,000 a second", EVENT_MEM_ALLOC, OVERHEAD_SPANS, OVERHEAD_STEADY, 0, 5000, 1, 1, 0},
	{"at 0.8 of its limit it goes on", EVENT_MEM_ALLOC, OVERHEAD_STEADY, OVERHEAD_STEADY, 0,
	 8000, 1, 1, 0},
	{"but does not begin", EVENT_MEM_ALLOC, OVERHEAD_SPANS, OVERHEAD_SPANS, 0, 8000, 1, 1, 1},
	{"100,000 a second", EVENT_MEM_ALLOC, OVERHEAD_STEADY, OVERHEAD_SPANS, 0, 100000, 1, 1,
	 0.1},
	{"the same of four CPUs", EVENT_MEM_ALLOC, OVERHEAD_SPANS, OVERHEAD_SPANS, 0, 100000, 4, 1,
	 0.4},
	{"a higher limit", EVENT_MEM_ALLOC, OVERHEAD_STEADY, OVERHEAD_STEADY, 0, 100000, 1, 10, 0},
	{"half of its time", EVENT_MEM_ALLOC, OVERHEAD_SPANS, OVERHEAD_SPANS, 0, 500000, 1, 1,
	 0.02},
	{"a storm", EVENT_MEM_ALLOC, OVERHEAD_SPANS, OVERHEAD_REFUSED, REFUSAL_DISTORTED, 950000, 1,
	 1, 0},
	{"a storm that was steady", EVENT_MEM_ALLOC, OVERHEAD_STEADY, OVERHEAD_REFUSED,
	 REFUSAL_DISTORTED, 950000, 1, 1, 0},
	{"of very many threads", EVENT_MEM_ALLOC, OVERHEAD_SPANS, OVERHEAD_REFUSED, REFUSAL_SHORT,
	 20e6, 40, 1, 0},
	{"of a tiny limit", EVENT_MEM_ALLOC, OVERHEAD_SPANS, OVERHEAD_REFUSED, REFUSAL_RARE, 500000,
	 1, 0.01, 0},
	{"in-use, few", EVENT_MEM_INUSE, OVERHEAD_SPANS, OVERHEAD_STEADY, 0, 5000, 1, 1, 0},
	{"in-use is never had in spans", EVENT_MEM_INUSE, OVERHEAD_SPANS, OVERHEAD_REFUSED,
	 REFUSAL_SNAPSHOT, 20000, 1, 1, 0},
};

static void check(const struct memory_case *c)
{
	struct traps t = {SEC, c->hits_per_s, c->cpus * SEC};
	struct trap_limit l = {c->percent, 20 * NSEC_PER_MSEC, 1000};
	struct overhead_span span = {0};
	enum refusal why = REFUSAL_NONE;
	enum overhead_mode mode = overhead_decide(c->event, c->now, &t, &l, &span, &why);
	double stall_ns = (double)span.span_ns * c->hits_per_s * 1000 / SEC;

	if (mode != c->is || why != c->why)
		fail_msg("%s: mode %d, refusal %d", c->what, mode, why);
	if (mode != OVERHEAD_SPANS)
		return;
	assert_true(span.span_ns >= 2 * NSEC_PER_MSEC);
	assert_true(stall_ns <= 20e6 * 1.001);
	assert_int_equal(span.max_hits, 20000);
	assert_true((double)span.span_ns / (double)span.wait_ns <= c->duty * 1.001);
	assert_true((double)span.span_ns / (double)span.wait_ns >= c->duty / 10);
	/* What it costs altogether is within the limit. */
	assert_true((double)span.span_ns / (double)span.wait_ns * overhead_load(&t, l.trap_ns) <=
		    c->percent / 100 * 1.001);
}

static void what_is_allowed_for_what_is_paid(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		check(&cases[i]);
}

static void the_first_span_cannot_stall_for_long(void **state)
{
	struct trap_limit l = {1, 20 * NSEC_PER_MSEC, 1000};

	(void)state;
	assert_true(overhead_trial(&l).span_ns <= 20 * NSEC_PER_MSEC);
	assert_int_equal(overhead_trial(&l).max_hits, 20000);
	l.max_stall_ns = NSEC_PER_MSEC;
	assert_int_equal(overhead_trial(&l).max_hits, 1000);
}

static void steady_is_left_when_it_exceeds(void **state)
{
	struct trap_limit l = {1, 20 * NSEC_PER_MSEC, 1000};
	struct traps fine = {SEC, 9000, SEC}, burst = {SEC, 15000, SEC}, storm = {SEC, 1e5, SEC};

	(void)state;
	assert_false(overhead_exceeded(&fine, &fine, &l));
	assert_false(overhead_exceeded(&burst, &fine, &l)); /* may pass */
	assert_true(overhead_exceeded(&fine, &burst, &l));
	assert_true(overhead_exceeded(&storm, &fine, &l));
}

/* ---- estimates ---- */

/* A process that allocates each microsecond of its work, one span in fifty periods; it is slowed in them or not. */
static double allocations_told(uint64_t trap_ns, bool slowed)
{
	const double period_ns = SEC, span_ns = SEC / 50;
	double told = 0;
	struct spans s = {0};

	for (int i = 0; i < 200; i++) {
		double each = slowed ? 1000 + (double)trap_ns : 1000;
		uint64_t hits = (uint64_t)(span_ns / each);
		/* Not slowed: it had time left, and traps took of that. */
		uint64_t cpu = slowed ? (uint64_t)span_ns : (uint64_t)span_ns + hits * trap_ns;
		struct overhead_spent x = {(uint64_t)span_ns, hits, cpu,
					   (uint64_t)(period_ns - span_ns), false};

		overhead_span_add(&s, &x, trap_ns);
		told += (double)hits * 1e6 / overhead_span_estimate(&s, 1, 0.5).ppm;
	}
	return told / (200 * ((period_ns - span_ns) / 1000 +
			      span_ns / (slowed ? 1000 + (double)trap_ns : 1000)));
}

static void spans_stand_for_the_whole(void **state)
{
	(void)state;
	assert_true(fabs(allocations_told(0, false) - 1) < 0.01);
	assert_true(fabs(allocations_told(1000, false) - 1) < 0.01);
	/* By time alone it would be told half of it. */
	assert_true(fabs(allocations_told(1000, true) - 1) < 0.01);
}

static void a_first_span_says_nothing_about_the_share(void **state)
{
	struct overhead_spent first = {10000000, 1000, 10000000, 0, true}, next = first;
	struct spans s = {0};

	(void)state;
	overhead_span_add(&s, &first, 1000);
	assert_int_equal(overhead_span_estimate(&s, 1, 0).ppm, 1000000);
	next.first = false;
	next.cpu_before_ns = 90000000;
	overhead_span_add(&s, &next, 1);
	assert_in_range(overhead_span_estimate(&s, 1, 0).ppm, 99000, 101000);
}

static void uneven_spans_are_less_sure(void **state)
{
	struct spans even = {0}, uneven = {0};
	struct estimate a, b;

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct overhead_spent x = {10000000, 1000, 10000000, 90000000, false}, y = x;

		y.hits = i % 2 ? 2000 : 0;
		overhead_span_add(&even, &x, 1);
		overhead_span_add(&uneven, &y, 1);
	}
	a = overhead_span_estimate(&even, 1, 0);
	b = overhead_span_estimate(&uneven, 1, 0);
	assert_in_range(a.ppm, 99000, 101000);
	assert_in_range(a.error_ppm, 0, 1000);
	assert_in_range(b.error_ppm, 800000, 1200000);
	/* More of them are surer. */
	assert_in_range(overhead_span_estimate(&uneven, 4, 0).error_ppm, b.error_ppm / 2 - 2,
			b.error_ppm / 2 + 2);
	/* One alone says nothing about that. */
	assert_int_equal(overhead_span_estimate(&(struct spans){1, 10, 1, 5, 25}, 1, 0).error_ppm,
			 1000000);
}

static void errors_of_sums(void **state)
{
	(void)state;
	assert_int_equal(overhead_error_ppm(0, 0), 0);
	assert_int_equal(overhead_error_ppm(1 << 20, 0), 0);
	/* A hundred samples of 2^20, each of probability far below 1: one in ten. */
	assert_int_equal(overhead_error_ppm(100ull << 20, 100ull << 20), 100000);
	assert_int_equal(overhead_errors_ppm(30000, 40000), 50000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_switches_are_all_kept),
		cmocka_unit_test(a_storm_of_switches_is_thinned_to_its_limit),
		cmocka_unit_test(some_are_kept_however_many),
		cmocka_unit_test(it_falls_at_once_and_rises_by_steps),
		cmocka_unit_test(what_is_allowed_for_what_is_paid),
		cmocka_unit_test(the_first_span_cannot_stall_for_long),
		cmocka_unit_test(steady_is_left_when_it_exceeds),
		cmocka_unit_test(spans_stand_for_the_whole),
		cmocka_unit_test(a_first_span_says_nothing_about_the_share),
		cmocka_unit_test(uneven_spans_are_less_sure),
		cmocka_unit_test(errors_of_sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
