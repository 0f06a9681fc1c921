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
#define ROUND_NS (2 * NSEC_PER_SEC)

/* The cost of a hit: a trap, and the walk of a stack if the hit is taken. */
#define TRAP_NS 750 /* as measured, without the program, which takes 250 ns */

static struct work node_work;
/* no CPU time is read, so each container counts as using one CPU */
static const struct cgroup_hierarchy no_hierarchy;
static struct limit *limit;
static struct probe_usage usage[2]; /* the usage of mem-alloc and of hbm-alloc */

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
		{MEM | 1u << EVENT_MEM_INUSE, 3, 3}, /* one set */
		{HBM, 3, 3},
		{1u << EVENT_OFF_CPU | MEM, 3, 1.5},
		{MEM | HBM, 3, 1.5},
		{1u << EVENT_ON_CPU | 1u << EVENT_OFF_CPU | MEM | HBM, 3, 1},
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

/* The spans take a tenth of the time of a process that allocates all the time. */
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

/* The container uses eight CPUs, one of its processes in a span uses one. */
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
