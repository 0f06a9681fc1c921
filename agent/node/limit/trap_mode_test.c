/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What limit decides for a container for which a target asks for several sets of uprobes: each set
 * has a part of the limit, and the cost of one set does not affect the decision about another. This
 * thread does the work of the workers.
 */
#include "node/limit/testpayers.h"
#include "node/proc/testowner.h"
#include "node/work/testworkers.h"

#include "lib/base/testclock.h"

#define MEM	 (1u << EVENT_MEM_ALLOC)
#define HBM	 (1u << EVENT_HBM_ALLOC | 1u << EVENT_HBM_INUSE)
#define ON_GPU	 (1u << EVENT_ON_GPU)
#define RDMA	 (1u << EVENT_RDMA)
#define ROUND_NS (2 * NSEC_PER_SEC)

/* The cost of a hit: a trap, and the walk of a stack if the hit is taken. */
#define TRAP_NS 750 /* as measured, without the program, which takes 250 ns */

static struct work node_work;
/* no CPU time is read, so each container counts as using one CPU */
static const struct cgroup_hierarchy no_hierarchy;
static struct limit *limit;
static struct probe_usage usage[3]; /* the usage of mem-alloc, hbm-alloc and on-gpu */

static void ask(unsigned event_mask, double percent)
{
	struct plan *plan = testowner_plan();

	plan->pods->containers->event_mask = event_mask;
	plan->pods->containers->overhead_percent = percent;
	testowner_apply(node_work.containers, plan);
}

static void begin(unsigned event_mask, double percent)
{
	testwork(&node_work);
	ask(event_mask, percent);
	test_clock.stands_ns = 1000 * NSEC_PER_SEC;
	limit = limit_new(&(struct limit_config){.work = &node_work,
						 .containers = node_work.containers,
						 .hierarchy = &no_hierarchy});
	usage[0] = (struct probe_usage){.cgroup_id = TEST_CGROUP, .event = EVENT_MEM_ALLOC};
	usage[1] = (struct probe_usage){.cgroup_id = TEST_CGROUP, .event = EVENT_HBM_ALLOC};
	usage[2] = (struct probe_usage){.cgroup_id = TEST_CGROUP, .event = EVENT_ON_GPU};
}

static int end(void **state)
{
	(void)state;
	posted_run_all();
	limit = limit_free(limit);
	test_clock.stands_ns = 0;
	return 0;
}

static enum limit_mode mode_of(enum event e)
{
	struct limit_span span;

	return limit_mode(limit, TEST_CGROUP, e, &span);
}

/* Has a span show that mem-alloc costs nearly nothing. */
static void allow_memory(void)
{
	const struct limit_spent calm = {
		.attached_ns = 10 * NSEC_PER_MSEC, .hits = 1, .cpu_ns = 10 * NSEC_PER_MSEC};

	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_SPANS);
	limit_spent(limit, TEST_CGROUP, PROBES_MEMORY, MEM, &calm);
	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_STEADY);
}

/*
 * Ends a round in which the container used one CPU, of which the probes of each set took this
 * share.
 */
static void pass_round(double memory_percent, double gpu_percent)
{
	uint64_t mem_hits = (uint64_t)(memory_percent / 100 * ROUND_NS / (TRAP_NS + 250));
	uint64_t gpu_hits = (uint64_t)(gpu_percent / 100 * ROUND_NS / (TRAP_NS + 250 + 3000));

	usage[0].hits += mem_hits;
	usage[1].hits += gpu_hits;
	usage[1].taken += gpu_hits; /* each hit is taken */
	test_clock.stands_ns += ROUND_NS;
	limit_usage(limit, usage, ARRAY_SIZE(usage), TRAP_NS);
	posted_run_all();
}

/* Begins with both sets attached steadily. */
static void begin_steadily(void)
{
	begin(MEM | HBM, 1);
	allow_memory();
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_STEADY);
	pass_round(0, 0);
}

static void who_is_asked_for_gets_an_equal_part(void **state)
{
	static const struct {
		unsigned event_mask;
		double percent, is;
	} rows[] = {
		{1u << EVENT_OFF_CPU, 3, 3},
		{MEM | 1u << EVENT_MEM_INUSE, 3, 3}, /* both events are of one set */
		{HBM, 3, 3},
		{1u << EVENT_OFF_CPU | MEM, 3, 1.5},
		{MEM | HBM, 3, 1.5},
		{1u << EVENT_ON_CPU | 1u << EVENT_OFF_CPU | MEM | HBM, 3, 1},
		{ON_GPU, 3, 3},
		{HBM | ON_GPU | RDMA, 3, 1},
		{1u << EVENT_OFF_CPU | HBM, 0, 0.5},	     /* the default is 1 */
		{1u << EVENT_OFF_CPU | MEM | HBM, 100, 100}, /* no limit */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		begin(rows[i].event_mask, rows[i].percent);
		mode_of(EVENT_MEM_ALLOC);
		assert_true(limit_percent(testpayers_one(limit)) == rows[i].is);
		end(NULL);
	}
}

/* Memory of a GPU is often allocated once, so no trial may miss it. */
static void gpu_memory_begins_without_a_trial(void **state)
{
	(void)state;
	begin(MEM | HBM, 1);
	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_SPANS);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_STEADY);
}

static void sets_within_their_parts_stay(void **state)
{
	(void)state;
	begin_steadily();
	for (int i = 0; i < 10; i++)
		pass_round(0.49, 0.49);
	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_STEADY);
}

/* Each set alone would be within the limit, but both together are not. */
static void the_costs_of_both_add_up(void **state)
{
	(void)state;
	begin_steadily();
	for (int i = 0; i < 5; i++)
		pass_round(0.6, 0.6);
	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_SPANS);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_SPANS);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_REFUSED);
}

static void one_that_costs_too_much_leaves_the_other(void **state)
{
	(void)state;
	begin_steadily();
	pass_round(0.6, 0.1);
	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_SPANS);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_STEADY);
	end(NULL);
	begin_steadily();
	for (int i = 0; i < 5; i++)
		pass_round(0.1, 0.6);
	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_SPANS);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_REFUSED);
}

/*
 * A program allocates all its GPU memory when it starts. This costs 4 % of two seconds, and nothing
 * in the next twenty. hbm-inuse must see these allocations.
 */
static void gpu_memory_may_come_in_a_burst(void **state)
{
	const struct limit_hits burst = {10000, 10 * NSEC_PER_MSEC};
	double stall_ns = 0;

	(void)state;
	begin(HBM, 1);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_STEADY);
	pass_round(0, 0);
	limit->trap_ns = TRAP_NS + 250;
	assert_false(limit_stalled(limit, TEST_CGROUP, PROBES_GPU_MEMORY, &burst, &stall_ns));
	pass_round(0, 4);
	for (int i = 0; i < 10; i++)
		pass_round(0, 0);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_STEADY);
}

static void a_storm_of_one_stalls_only_that_one(void **state)
{
	const struct limit_hits storm = {100000, 10 * NSEC_PER_MSEC};
	double stall_ns = 0;

	(void)state;
	begin_steadily();
	assert_true(limit_stalled(limit, TEST_CGROUP, PROBES_GPU_MEMORY, &storm, &stall_ns));
	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_SPANS);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_REFUSED);
	end(NULL);
	begin_steadily();
	stall_ns = 0;
	assert_true(limit_stalled(limit, TEST_CGROUP, PROBES_MEMORY, &storm, &stall_ns));
	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_SPANS);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_STEADY);
}

/*
 * mem-alloc is estimated from spans, which take a tenth of the time. The values of GPU memory stay
 * complete.
 */
static void spans_of_one_are_no_estimate_of_the_other(void **state)
{
	const struct limit_spent x = {.attached_ns = 10 * NSEC_PER_MSEC,
				      .hits = 5000,
				      .cpu_ns = 10 * NSEC_PER_MSEC,
				      .before_ns = 90 * NSEC_PER_MSEC,
				      .cpu_before_ns = 90 * NSEC_PER_MSEC};

	(void)state;
	begin(MEM | HBM, 1);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_STEADY);
	limit->trap_ns = TRAP_NS + 250;
	for (int i = 0; i < 5; i++)
		limit_spent(limit, TEST_CGROUP, PROBES_MEMORY, MEM, &x);
	assert_int_equal(mode_of(EVENT_MEM_ALLOC), LIMIT_SPANS);
	assert_in_range(limit_estimate(limit, TEST_CGROUP, EVENT_MEM_ALLOC).ppm, 50000, 150000);
	assert_int_equal(mode_of(EVENT_HBM_ALLOC), LIMIT_STEADY);
	assert_int_equal(limit_estimate(limit, TEST_CGROUP, EVENT_HBM_ALLOC).ppm, 0);
	assert_int_equal(limit_estimate(limit, TEST_CGROUP, EVENT_HBM_INUSE).ppm, 0);
}

/*
 * The container uses eight CPUs. A span of mem-alloc shows a process that uses one CPU. That must
 * not lower the number of CPUs with which stalls of GPU memory are judged.
 */
static void a_span_of_one_does_not_shrink_the_other(void **state)
{
	const struct limit_spent x = {
		.attached_ns = 10 * NSEC_PER_MSEC, .hits = 5000, .cpu_ns = 10 * NSEC_PER_MSEC};
	const struct limit_hits within = {100, 10 * NSEC_PER_MSEC}; /* 2.5 % of a CPU */
	struct payer *p;
	double stall_ns = 0;

	(void)state;
	begin_steadily();
	p = testpayers_one(limit);
	p->cpus[PROBES_GPU_MEMORY] = 8;
	limit_spent(limit, TEST_CGROUP, PROBES_MEMORY, MEM, &x);
	for (int i = 0; i < 500; i++)
		assert_false(
			limit_stalled(limit, TEST_CGROUP, PROBES_GPU_MEMORY, &within, &stall_ns));
	assert_int_equal(mode_of(EVENT_HBM_INUSE), LIMIT_STEADY);
}

/* ---- sets without a live event ---- */

/*
 * Ends a round of a container that uses one CPU and launches 100 times. The library in its process
 * says that it has used this share of the CPU.
 */
static void pass_gpu_round(double library_percent)
{
	usage[2].hits += 100;
	usage[2].taken += 100;
	usage[2].own_ns += (uint64_t)(library_percent / 100 * ROUND_NS);
	pass_round(0, 0);
}

static void first_calls_are_seen(void **state)
{
	(void)state;
	begin(ON_GPU | RDMA, 1);
	assert_int_equal(mode_of(EVENT_ON_GPU), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_RDMA), LIMIT_STEADY);
	for (int i = 0; i < 20; i++)
		pass_gpu_round(0.3);
	assert_int_equal(mode_of(EVENT_ON_GPU), LIMIT_STEADY);
	assert_int_equal(mode_of(EVENT_RDMA), LIMIT_STEADY);
}

/* The container has only 50 hits a second, but the library says that it takes 5 % of a CPU. */
static void the_time_of_the_library_counts(void **state)
{
	struct limit_span span;

	(void)state;
	begin(ON_GPU, 1);
	assert_int_equal(mode_of(EVENT_ON_GPU), LIMIT_STEADY);
	for (int i = 0; i < 10; i++)
		pass_gpu_round(5);
	assert_int_equal(limit_mode(limit, TEST_CGROUP, EVENT_ON_GPU, &span), LIMIT_SPANS);
	/*
	 * CUPTI starts and stops in each span, so spans are long. The limit is 1 %, the cost 5 %:
	 * spans take a fifth of the time.
	 */
	assert_int_equal(span.span_ns, 10 * NSEC_PER_SEC);
	assert_in_range(span.wait_ns, 25 * NSEC_PER_SEC, 75 * NSEC_PER_SEC);
}

static void end_long_span(double library_percent)
{
	const struct limit_spent x = {.attached_ns = 10 * NSEC_PER_SEC,
				      .hits = 500,
				      .cpu_ns = 10 * NSEC_PER_SEC,
				      .before_ns = 90 * NSEC_PER_SEC,
				      .cpu_before_ns = 90 * NSEC_PER_SEC};

	for (int i = 0; i < 5; i++)
		pass_gpu_round(library_percent);
	limit_spent(limit, TEST_CGROUP, PROBES_GPU, ON_GPU, &x);
}

static void long_spans_tell_the_share_and_end_when_it_is_cheap(void **state)
{
	(void)state;
	begin(ON_GPU, 1);
	assert_int_equal(mode_of(EVENT_ON_GPU), LIMIT_STEADY);
	for (int i = 0; i < 10; i++)
		pass_gpu_round(10);
	for (int i = 0; i < 5; i++)
		end_long_span(10);
	assert_int_equal(mode_of(EVENT_ON_GPU), LIMIT_SPANS);
	assert_in_range(limit_estimate(limit, TEST_CGROUP, EVENT_ON_GPU).ppm, 90000, 110000);
	for (int i = 0; i < 30; i++)
		end_long_span(0.1);
	assert_int_equal(mode_of(EVENT_ON_GPU), LIMIT_STEADY);
	assert_int_equal(limit_estimate(limit, TEST_CGROUP, EVENT_ON_GPU).ppm, 0);
}

/* A loop that posts or polls is held up no longer than a loop that allocates. */
static void a_storm_of_rdma_is_taken_in_short_spans(void **state)
{
	const struct limit_hits storm = {20000, 10 * NSEC_PER_MSEC};
	static const enum event events[] = {EVENT_RDMA, EVENT_RDMA_LATENCY};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		enum event e = events[i];
		struct limit_span span;
		double stall_ns = 0;

		begin(1u << e, 1);
		assert_int_equal(mode_of(e), LIMIT_STEADY);
		assert_true(limit_stalled(limit, TEST_CGROUP, probes_set_of(e), &storm, &stall_ns));
		assert_int_equal(limit_mode(limit, TEST_CGROUP, e, &span), LIMIT_SPANS);
		assert_true(span.span_ns <= LIMIT_SHORT_SPAN_NS);
		assert_true(span.max_hits * (TRAP_NS + 250) <= 20 * NSEC_PER_MSEC);
		end(NULL);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, end)
	const struct CMUnitTest tests[] = {
		T(who_is_asked_for_gets_an_equal_part),
		T(gpu_memory_begins_without_a_trial),
		T(sets_within_their_parts_stay),
		T(the_costs_of_both_add_up),
		T(one_that_costs_too_much_leaves_the_other),
		T(gpu_memory_may_come_in_a_burst),
		T(a_storm_of_one_stalls_only_that_one),
		T(spans_of_one_are_no_estimate_of_the_other),
		T(a_span_of_one_does_not_shrink_the_other),
		T(first_calls_are_seen),
		T(the_time_of_the_library_counts),
		T(long_spans_tell_the_share_and_end_when_it_is_cheap),
		T(a_storm_of_rdma_is_taken_in_short_spans),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
