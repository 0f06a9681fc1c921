// SPDX-License-Identifier: Apache-2.0
/* How much of off-cpu and of memory events the limit of a container allows, for a given cost. */
#include "node/limit/rules.h"

#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SEC ((double)NSEC_PER_SEC)

/* ---- off-cpu ---- */

static double share_of(uint32_t x)
{
	return ((double)x + 1) / 4294967296.0;
}

static bool is_all(struct off_shares x)
{
	return x.note == UINT32_MAX && x.keep == UINT32_MAX;
}

static struct off_shares settle(struct off_shares x, uint64_t hits, uint64_t cpu_ns, double percent)
{
	struct switches s = {hits, cpu_ns};

	for (int i = 0; i < 50; i++)
		x = limit_off_shares(x, &s, percent);
	return x;
}

static void few_switches_are_all_kept(void **state)
{
	struct off_shares few = {UINT32_MAX / 100, UINT32_MAX / 1000};

	(void)state;
	assert_true(is_all(settle(OFF_SHARES_ALL, 200, NSEC_PER_SEC, 1)));
	/* too few switches for a measurement */
	assert_true(is_all(settle(OFF_SHARES_ALL, 5, 1000, 1)));
	assert_true(is_all(settle(few, 200, NSEC_PER_SEC, 1)));
	assert_true(is_all(settle(few, 1000000, NSEC_PER_SEC, 100))); /* 100 %: no limit */
}

/*
 * hits: switches per second of CPU time. The cost of all switches together must be near the limit.
 * all_noted: whether all switches are noted.
 */
static void a_storm_of_switches_is_thinned_to_its_limit(void **state)
{
	static const struct {
		double hits, percent;
		bool all_noted;
	} storms[] = {{10000, 1, true},	  {20000, 1, false},  {50000, 1, false}, {50000, 5, true},
		      {100000, 1, false}, {300000, 2, false}, {300000, 5, false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(storms); i++) {
		double limit_ns = storms[i].percent / 100 * SEC, hits = storms[i].hits;
		struct off_shares x =
			settle(OFF_SHARES_ALL, (uint64_t)hits, NSEC_PER_SEC, storms[i].percent);
		double cost_ns = hits * (40 + 350 * share_of(x.note) + 3000 * share_of(x.keep));

		assert_true(x.keep < UINT32_MAX && x.keep <= x.note);
		assert_int_equal(x.note == UINT32_MAX, storms[i].all_noted);
		assert_true(cost_ns <= limit_ns * 1.001);
		assert_true(cost_ns >= limit_ns * 0.7);
	}
}

/* Some waits are kept even if the switches that are only counted cost more than the limit. */
static void some_are_kept_however_many(void **state)
{
	struct off_shares x = settle(OFF_SHARES_ALL, 10000000, NSEC_PER_SEC, 1);

	(void)state;
	assert_int_equal(x.note, UINT32_MAX / 32);
	assert_int_equal(x.keep, UINT32_MAX / 1024);
}

static void it_falls_at_once_and_rises_by_steps(void **state)
{
	struct switches storm = {300000, NSEC_PER_SEC}, calm = {1000, NSEC_PER_SEC};
	struct off_shares low, next;

	(void)state;
	low = limit_off_shares(OFF_SHARES_ALL, &storm, 2);
	assert_true(share_of(low.note) < 0.1 && share_of(low.keep) < 0.02);
	next = limit_off_shares(low, &calm, 2);
	assert_true(next.note > low.note && share_of(next.note) <= share_of(low.note) * 2.01);
	assert_true(next.keep > low.keep && share_of(next.keep) <= share_of(low.keep) * 2.01);
	/* a share that is a little below the limit stays */
	storm.hits = 295000;
	next = limit_off_shares(low, &storm, 2);
	assert_true(next.note == low.note && next.keep == low.keep);
}

/* ---- memory ---- */

#define TRAPS(attached, n, cpu)                                                                    \
	((struct traps){.attached_ns = (attached), .hits = (n), .cpu_ns = (cpu)})
#define LIMIT_OF(p)                                                                                \
	((struct trap_limit){.percent = (p), .max_stall_ns = 20 * NSEC_PER_MSEC, .trap_ns = 1000})

struct memory_case {
	const char *what;
	enum event event;
	enum limit_mode now, is;
	enum refusal why;
	double hits_per_s, cpus; /* for the time in which probes are attached */
	double percent;
	double duty; /* share of the time in spans, if the mode is LIMIT_SPANS */
};
static const struct memory_case cases[] = {
	{"idle", EVENT_MEM_ALLOC, LIMIT_SPANS, LIMIT_STEADY, 0, 0, 0, 1, 0},
	{"5,000 a second", EVENT_MEM_ALLOC, LIMIT_SPANS, LIMIT_STEADY, 0, 5000, 1, 1, 0},
	{"at 0.8 of its limit it goes on", EVENT_MEM_ALLOC, LIMIT_STEADY, LIMIT_STEADY, 0, 8000, 1,
	 1, 0},
	{"but does not begin", EVENT_MEM_ALLOC, LIMIT_SPANS, LIMIT_SPANS, 0, 8000, 1, 1, 1},
	{"100,000 a second", EVENT_MEM_ALLOC, LIMIT_STEADY, LIMIT_SPANS, 0, 100000, 1, 1, 0.1},
	{"the same of four CPUs", EVENT_MEM_ALLOC, LIMIT_SPANS, LIMIT_SPANS, 0, 100000, 4, 1, 0.4},
	{"a higher limit", EVENT_MEM_ALLOC, LIMIT_STEADY, LIMIT_STEADY, 0, 100000, 1, 10, 0},
	{"half of its time", EVENT_MEM_ALLOC, LIMIT_SPANS, LIMIT_SPANS, 0, 500000, 1, 1, 0.02},
	{"a storm", EVENT_MEM_ALLOC, LIMIT_SPANS, LIMIT_REFUSED, REFUSAL_DISTORTED, 950000, 1, 1,
	 0},
	{"a storm that was steady", EVENT_MEM_ALLOC, LIMIT_STEADY, LIMIT_REFUSED, REFUSAL_DISTORTED,
	 950000, 1, 1, 0},
	{"of very many threads", EVENT_MEM_ALLOC, LIMIT_SPANS, LIMIT_REFUSED, REFUSAL_SHORT, 20e6,
	 40, 1, 0},
	{"of a tiny limit", EVENT_MEM_ALLOC, LIMIT_SPANS, LIMIT_REFUSED, REFUSAL_RARE, 500000, 1,
	 0.01, 0},
	{"in-use, few", EVENT_MEM_INUSE, LIMIT_SPANS, LIMIT_STEADY, 0, 5000, 1, 1, 0},
	{"in-use is never had in spans", EVENT_MEM_INUSE, LIMIT_SPANS, LIMIT_REFUSED,
	 REFUSAL_SNAPSHOT, 20000, 1, 1, 0},
};

static void check(const struct memory_case *c)
{
	struct traps t = TRAPS(SEC, c->hits_per_s, c->cpus * SEC);
	struct trap_limit l = LIMIT_OF(c->percent);
	struct limit_span span = {0};
	enum refusal why = REFUSAL_NONE;
	enum limit_mode mode = limit_decide(c->event, c->now, &t, &l, &span, &why);
	double stall_ns = (double)span.span_ns * c->hits_per_s * 1000 / SEC;

	if (mode != c->is || why != c->why)
		fail_msg("%s: mode %d, refusal %d", c->what, mode, why);
	if (mode != LIMIT_SPANS)
		return;
	assert_true(span.span_ns >= 2 * NSEC_PER_MSEC);
	assert_true(stall_ns <= 20e6 * 1.001);
	assert_int_equal(span.max_hits, 20000);
	assert_true((double)span.span_ns / (double)span.wait_ns <= c->duty * 1.001);
	assert_true((double)span.span_ns / (double)span.wait_ns >= c->duty / 10);
	/* the cost of all spans together is within the limit */
	assert_true((double)span.span_ns / (double)span.wait_ns * limit_load(&t, l.trap_ns) <=
		    c->percent / 100 * 1.001);
}

static void what_is_allowed_for_what_is_paid(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		check(&cases[i]);
}

/*
 * The library that has the probes reports how much time they and its own code took. If that is more
 * than the traps alone cost, it counts.
 */
static void what_a_library_takes_is_paid_too(void **state)
{
	struct traps t = TRAPS(SEC, 1000, SEC);

	(void)state;
	assert_true(fabs(limit_load(&t, 1000) - 0.001) < 1e-9);
	t.library_ns = 0.05 * SEC;
	assert_true(fabs(limit_load(&t, 1000) - 0.05) < 1e-9);
	t.library_ns = 10; /* the library reports less than its traps cost */
	assert_true(fabs(limit_load(&t, 1000) - 0.001) < 1e-9);
}

/* What is probed may need seconds to start. Then neither a trial nor a storm has shorter spans. */
static void long_spans_keep_their_length(void **state)
{
	const struct trap_limit l = {.percent = 1,
				     .max_stall_ns = 100 * NSEC_PER_MSEC,
				     .trap_ns = 1000,
				     .span_ns = 10 * NSEC_PER_SEC};
	const struct traps storm = TRAPS(SEC, 500000, SEC);
	struct limit_span span;
	enum refusal why;

	(void)state;
	assert_int_equal(limit_trial(&l).span_ns, l.span_ns);
	assert_int_equal(limit_decide(EVENT_ON_GPU, LIMIT_STEADY, &storm, &l, &span, &why),
			 LIMIT_SPANS);
	assert_int_equal(span.span_ns, l.span_ns);
	assert_int_equal(span.wait_ns, 50 * l.span_ns); /* the limit is 1 %, the load 50 % */
}

static void the_first_span_cannot_stall_for_long(void **state)
{
	struct trap_limit l = LIMIT_OF(1);

	(void)state;
	assert_true(limit_trial(&l).span_ns <= 20 * NSEC_PER_MSEC);
	assert_int_equal(limit_trial(&l).max_hits, 20000);
	l.max_stall_ns = NSEC_PER_MSEC;
	assert_int_equal(limit_trial(&l).max_hits, 1000);
}

static void steady_is_left_when_it_exceeds(void **state)
{
	struct trap_limit l = LIMIT_OF(1);
	struct traps fine = TRAPS(SEC, 9000, SEC), burst = TRAPS(SEC, 15000, SEC);
	struct traps storm = TRAPS(SEC, 1e5, SEC);

	(void)state;
	assert_false(limit_exceeded(&fine, &fine, &l));
	assert_false(limit_exceeded(&burst, &fine, &l)); /* a single burst is allowed */
	assert_true(limit_exceeded(&fine, &burst, &l));
	assert_true(limit_exceeded(&storm, &fine, &l));
}

/*
 * The agent checks the probes every 10 ms. A process with many hits may use twice its limit until
 * then, but not more.
 */
static void a_storm_stalls_not_for_long(void **state)
{
	struct trap_limit l = LIMIT_OF(1);
	struct limit_span span = limit_after_stall(&l);
	double stall_ns = 0;
	unsigned n = 0;

	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_false(limit_stalls(&stall_ns, 190, 10 * NSEC_PER_MSEC, 1, &l));
	for (int i = 0; i < 1000; i++)
		assert_false(limit_stalls(&stall_ns, 7900, 100 * NSEC_PER_MSEC, 4, &l));
	while (!limit_stalls(&stall_ns, 9500, 10 * NSEC_PER_MSEC, 1, &l))
		n++;
	assert_int_equal(n, 1);
	/* a limit of 100 % is no limit */
	l.percent = 100;
	assert_false(limit_stalls(&stall_ns, 1000000, 10 * NSEC_PER_MSEC, 1, &l));
	l.percent = 1;
	/* if the burst is repeated in the spans after it, it does not cost more than the limit */
	assert_int_equal(span.max_hits, 20000);
	assert_int_equal(span.wait_ns, 2 * NSEC_PER_SEC);
}

/* ---- estimates: simulated processes, and what spans find out about them ---- */

#define STEP_NS 100000.0
#define TRAP_NS 1000.0
#define LIMIT	LIMIT_OF(1)

static uint64_t random_state;

static double random_unit(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(random_state >> 11) / 0x1p53;
}

/*
 * What the process does at a moment. cpus: the share of a CPU that it would use. each_ns: how many
 * allocations it makes per ns of its work.
 */
struct act {
	double cpus, each_ns;
};
struct model {
	const char *what;
	struct act (*act)(double at_ns);
	double trap_ns; /* the true cost of a trap; the estimate assumes TRAP_NS */
};

static struct act steadily(double at_ns)
{
	(void)at_ns;
	return (struct act){1, 1.0 / 2000};
}

static struct act half_of_the_time(double at_ns)
{
	(void)at_ns;
	return (struct act){0.4, 1.0 / 2000};
}

static struct act by_requests(double at_ns)
{
	return (struct act){fmod(at_ns, 50e6) < 7e6 ? 0.7 : 0, 1.0 / 2000};
}

/* Each phase takes half a second. */
static struct act in_phases(double at_ns)
{
	return fmod(at_ns, 1e9) < 5e8 ? (struct act){1, 1.0 / 1000} : (struct act){1, 1.0 / 20000};
}

static struct act in_long_phases(double at_ns)
{
	return fmod(at_ns, 60e9) < 30e9 ? (struct act){1, 1.0 / 1500}
					: (struct act){0.5, 1.0 / 8000};
}

static const struct model models[] = {
	{"steadily", steadily, TRAP_NS},
	{"half of the time", half_of_the_time, TRAP_NS},
	{"by requests", by_requests, TRAP_NS},
	{"in phases", in_phases, TRAP_NS},
	{"in long phases", in_long_phases, TRAP_NS},
	{"traps cost more", steadily, TRAP_NS * 1.3},
	{"traps cost less", steadily, TRAP_NS * 0.8},
};

struct running {
	const struct model *m;
	double at_ns, cpu_ns, allocated;
};

/*
 * Runs the process for one step. While probes are attached, each allocation costs a trap. If no CPU
 * time is left, the process does less work.
 */
static double step(struct running *r, bool attached)
{
	struct act a = r->m->act(r->at_ns);
	double trap = attached ? a.each_ns * r->m->trap_ns : 0;
	double own = fmin(a.cpus * STEP_NS, STEP_NS / (1 + trap));
	double n = own * a.each_ns;

	r->at_ns += STEP_NS;
	r->cpu_ns += own * (1 + trap);
	r->allocated += n;
	return n;
}

static struct limit_spent look(struct running *r, const struct limit_span *span)
{
	struct limit_spent x = {0};
	double cpu_ns = r->cpu_ns, hits = 0, ns = 0;

	for (; ns < (double)span->span_ns && hits < (double)span->max_hits; ns += STEP_NS)
		hits += step(r, true);
	x.attached_ns = (uint64_t)ns;
	x.hits = (uint64_t)hits;
	x.cpu_ns = (uint64_t)(r->cpu_ns - cpu_ns);
	return x;
}

/* The process, and what the agent knows of it from spans. */
struct told_by {
	struct running r;
	struct limit_span span;
	struct spans spans;
	struct traps cost;
	struct planned_spans planned;
	double end_ns, end_cpu_ns;
};

static struct limit_spent next_span(struct told_by *b)
{
	double wait_ns = (0.5 + random_unit()) * (double)b->span.wait_ns;
	double until_ns = b->r.at_ns - (double)b->span.span_ns + wait_ns, cpu_ns;
	struct limit_spent x;

	while (b->r.at_ns < until_ns)
		step(&b->r, false);
	cpu_ns = b->r.cpu_ns;
	x = look(&b->r, &b->span);
	x.first = !b->end_ns;
	x.before_ns = (uint64_t)(b->r.at_ns - b->end_ns) - x.attached_ns;
	x.cpu_before_ns = (uint64_t)(cpu_ns - b->end_cpu_ns);
	b->end_ns = b->r.at_ns;
	b->end_cpu_ns = b->r.cpu_ns;
	return x;
}

/* Plans the next span as trap_mode.c does. */
static void plan_next(struct told_by *b, const struct limit_spent *x)
{
	struct trap_limit l = LIMIT;
	enum refusal why;

	limit_span_add(&b->spans, x, l.trap_ns);
	b->cost.attached_ns = b->cost.attached_ns * 0.8 + (double)x->attached_ns;
	b->cost.hits = b->cost.hits * 0.8 + (double)x->hits;
	b->cost.cpu_ns = b->cost.cpu_ns * 0.8 + (double)x->cpu_ns;
	if (limit_decide(EVENT_MEM_ALLOC, LIMIT_SPANS, &b->cost, &l, &b->span, &why) !=
		    LIMIT_SPANS &&
	    !b->span.wait_ns)
		b->span.wait_ns = NSEC_PER_SEC;
	b->planned.duty = (double)b->span.span_ns / (double)b->span.wait_ns;
	b->planned.load = limit_load(&b->cost, l.trap_ns);
}

struct outcome { /* sums over windows with some spans each */
	double told, truth;
	unsigned n, n_within;
};

#define SPANS_A_WINDOW 10

static void tell_window(struct told_by *b, struct outcome *out)
{
	double from = b->r.allocated, told = 0, variance = 0, truth;

	b->planned.a_window = SPANS_A_WINDOW;
	for (unsigned i = 0; i < SPANS_A_WINDOW; i++) {
		struct limit_spent x = next_span(b);
		struct estimate e;
		double value;

		plan_next(b, &x);
		e = limit_span_estimate(&b->spans, &b->planned, 1);
		value = (double)x.hits * 1e6 / e.ppm;
		told += value;
		variance += pow(value * e.error_ppm / 1e6, 2);
	}
	truth = b->r.allocated - from;
	out->told += told;
	out->truth += truth;
	out->n++;
	out->n_within += fabs(told - truth) <= 2 * sqrt(variance);
}

static struct outcome tell(const struct model *m)
{
	struct outcome out = {0}, settling;

	for (unsigned k = 0; k < 10; k++) {
		struct trap_limit l = LIMIT;
		struct told_by b = {.r = {.m = m, .at_ns = random_unit() * 1e9},
				    .span = limit_trial(&l)};

		for (unsigned w = 0; w < 3; w++)
			tell_window(&b, &settling);
		for (unsigned w = 0; w < 4; w++)
			tell_window(&b, &out);
	}
	return out;
}

/*
 * The estimates must be near the true values. If the cost of a trap is not known exactly, the
 * reported error includes this.
 */
static void spans_stand_for_the_whole(void **state)
{
	(void)state;
	random_state = 1;
	for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
		struct outcome o = tell(&models[i]);
		double off = fabs(o.told / o.truth - 1);

		print_message("%s: %.3f of the truth, within two errors %u of %u\n", models[i].what,
			      o.told / o.truth, o.n_within, o.n);
		assert_true(off < (models[i].trap_ns == TRAP_NS ? 0.1 : 0.2));
		assert_true(o.n_within * 10 >= o.n * 9);
	}
}

static void until_spans_tell_the_share_is_as_planned(void **state)
{
	struct limit_spent first = {10000000, 1000, 10000000, 0, 0, true};
	struct planned_spans planned = {.duty = 0.02, .load = 0.1, .a_window = 1};
	struct spans s = {0};

	(void)state;
	limit_span_add(&s, &first, 1000);
	assert_int_equal(limit_span_estimate(&s, &planned, 1).ppm, 20000);
	assert_true(limit_span_estimate(&s, &planned, 1).error_ppm >= 900000);
}

static struct estimate of_spans(unsigned hits, unsigned others, unsigned n, double load)
{
	struct planned_spans planned = {.duty = 0.1, .load = load, .a_window = 1};
	struct spans s = {0};

	for (int i = 0; i < 20; i++) {
		struct limit_spent x = {
			10000000, i % 2 ? hits : others, 10000000, 90000000, 90000000, false};

		limit_span_add(&s, &x, 1);
	}
	return limit_span_estimate(&s, &planned, n);
}

static void what_is_less_sure_is_told_so(void **state)
{
	struct estimate even = of_spans(1000, 1000, 1, 0), uneven = of_spans(2000, 10, 1, 0);

	(void)state;
	assert_in_range(even.ppm, 99000, 101000);
	/* all spans have equal hits, but the number of spans in a window varies */
	assert_in_range(even.error_ppm, 250000, 300000);
	assert_in_range(uneven.error_ppm, 900000, 1200000);
	/* more spans give a smaller error */
	assert_in_range(of_spans(2000, 10, 4, 0).error_ppm, uneven.error_ppm / 2 - 2,
			uneven.error_ppm / 2 + 2);
	/* traps take half of the CPU time, so an error in their cost counts */
	assert_true(of_spans(1000, 1000, 1, 0.5).error_ppm > even.error_ppm + 100000);
}

/*
 * A window adds up the squared errors of its drains, as if they were independent. But all drains
 * during a long span have the same error.
 */
static void a_long_span_has_one_error(void **state)
{
	const struct planned_spans one = {.duty = 0.1, .a_window = 1};
	const struct planned_spans ten = {.duty = 0.1, .a_window = 0.1, .drains = 10};
	const struct limit_spent span = {.attached_ns = NSEC_PER_SEC,
					 .hits = 1000,
					 .cpu_ns = NSEC_PER_SEC,
					 .before_ns = 9 * NSEC_PER_SEC,
					 .cpu_before_ns = 9 * NSEC_PER_SEC};
	struct spans s = {0};
	double of_one, of_ten;

	(void)state;
	for (int i = 0; i < 20; i++)
		limit_span_add(&s, &span, 1000);
	of_one = limit_span_estimate(&s, &one, 1).error_ppm;
	of_ten = limit_span_estimate(&s, &ten, 0).error_ppm;
	assert_true(of_one > 0 && fabs(of_ten / of_one - sqrt(10)) < 0.01);
}

static void errors_of_sums(void **state)
{
	(void)state;
	assert_int_equal(limit_error_ppm(0, 0), 0);
	assert_int_equal(limit_error_ppm(1 << 20, 0), 0);
	/*
	 * A hundred samples of value 2^20, each taken with a small probability: the error is one in
	 * ten.
	 */
	assert_int_equal(limit_error_ppm(100ull << 20, 100ull << 20), 100000);
	assert_int_equal(limit_errors_ppm(30000, 40000), 50000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_switches_are_all_kept),
		cmocka_unit_test(a_storm_of_switches_is_thinned_to_its_limit),
		cmocka_unit_test(some_are_kept_however_many),
		cmocka_unit_test(it_falls_at_once_and_rises_by_steps),
		cmocka_unit_test(what_is_allowed_for_what_is_paid),
		cmocka_unit_test(what_a_library_takes_is_paid_too),
		cmocka_unit_test(long_spans_keep_their_length),
		cmocka_unit_test(the_first_span_cannot_stall_for_long),
		cmocka_unit_test(steady_is_left_when_it_exceeds),
		cmocka_unit_test(a_storm_stalls_not_for_long),
		cmocka_unit_test(spans_stand_for_the_whole),
		cmocka_unit_test(until_spans_tell_the_share_is_as_planned),
		cmocka_unit_test(what_is_less_sure_is_told_so),
		cmocka_unit_test(a_long_span_has_one_error),
		cmocka_unit_test(errors_of_sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
