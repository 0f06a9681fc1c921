/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process has several sets of probes. A change of one set leaves the other one as it is. This
 * thread does the work of the workers.
 */
#include "node/follow/testfollow.h"
#include "node/follow/testprobed.h"

#define MEM (1u << EVENT_MEM_ALLOC)
#define HBM (1u << EVENT_HBM_ALLOC | 1u << EVENT_HBM_INUSE)

static void wait_for_no_time(const struct attached *a, uint64_t max_ns, uint64_t max_hits,
			     uint64_t *ret_ns, uint64_t *ret_hits)
{
	(void)max_hits;
	(void)probes_of(a);
	*ret_ns = max_ns;
	*ret_hits = 5;
}

static struct probe_calls with_spans;
static const struct follow_calls calls = {.probes = &with_spans};

/* A target asks for both sets, their places are known, and their probes stay attached. */
static int begin_attached(void **state)
{
	(void)state;
	with_spans = counted_probes;
	with_spans.attached_wait = wait_for_no_time;
	probed_begin(&calls, MEM | HBM, NULL);
	clock_stands();
	tracked->exec_id = 5;
	know_a_place(memory, MEM);
	know_a_place(gpu, HBM);
	follow_probed_advance(memory);
	follow_probed_advance(gpu);
	posted_run_all();
	assert_ptr_equal(memory->attached, attached_of(PROBES_MEMORY));
	assert_ptr_equal(gpu->attached, attached_of(PROBES_GPU_MEMORY));
	assert_int_equal(memory->attached_mask, MEM);
	assert_int_equal(gpu->attached_mask, HBM);
	assert_int_equal(follow_probed_n_watched(follow), 2);
	return 0;
}

/* Asserts how often the set was attached and detached. */
static void assert_counts(enum probe_set set, unsigned n_attached, unsigned n_detached)
{
	assert_int_equal(probes.of[set].n_attached, n_attached);
	assert_int_equal(probes.of[set].n_detached, n_detached);
}

/* The probes of the set are hit so often within 10 ms that the process hardly does its own work. */
static void a_storm_at(enum probe_set set)
{
	test_clock.stands_ns += 10 * NSEC_PER_MSEC;
	probes.of[set].hits += 100000;
	timer_fire();
	posted_run_all();
}

/*
 * The probes of the driver's query functions have shown enough. The agent removes them once, and
 * the other set stays as it is.
 */
static void probes_of_queries_are_removed(void **state)
{
	(void)state;
	probes.queried = true;
	for (int i = 0; i < 3; i++) {
		test_clock.stands_ns += 10 * NSEC_PER_MSEC;
		timer_fire();
		posted_run_all();
	}
	assert_false(probes.queried);
	assert_counts(PROBES_GPU_MEMORY, 2, 0);
	assert_counts(PROBES_MEMORY, 1, 0);
}

static void a_storm_detaches_its_own_set(void **state)
{
	(void)state;
	a_storm_at(PROBES_GPU_MEMORY);
	assert_null(gpu->attached);
	assert_counts(PROBES_GPU_MEMORY, 1, 1);
	assert_ptr_equal(memory->attached, attached_of(PROBES_MEMORY));
	assert_counts(PROBES_MEMORY, 1, 0);
	assert_int_equal(follow_probed_n_watched(follow), 1);
	/*
	 * From then on the probes of hbm-alloc are attached in spans, and those of mem-alloc stay
	 * attached.
	 */
	test_clock.stands_ns += 10 * NSEC_PER_SEC;
	follow_probed_advance(memory);
	follow_probed_advance(gpu);
	posted_run_all();
	assert_null(gpu->attached);
	assert_counts(PROBES_GPU_MEMORY, 2, 2);
	assert_counts(PROBES_MEMORY, 1, 0);
}

/*
 * From then on the probes of mem-alloc are attached in spans. hbm-inuse must see each call, so its
 * probes stay attached.
 */
static void spans_of_memory_leave_gpu_memory_attached(void **state)
{
	(void)state;
	a_storm_at(PROBES_MEMORY);
	assert_null(memory->attached);
	for (unsigned i = 1; i <= 3; i++) {
		test_clock.stands_ns += 10 * NSEC_PER_SEC;
		follow_probed_advance(memory);
		follow_probed_advance(gpu);
		posted_run_all();
		assert_null(memory->attached);
		assert_counts(PROBES_MEMORY, 1 + i, 1 + i);
	}
	assert_int_equal(memory->span_end.mono_ns, test_clock.stands_ns);
	assert_ptr_equal(gpu->attached, attached_of(PROBES_GPU_MEMORY));
	assert_counts(PROBES_GPU_MEMORY, 1, 0);
	assert_int_equal(gpu->span_end.mono_ns, 0);
}

static void what_is_refused_to_one_is_not_to_the_other(void **state)
{
	(void)state;
	follow_probed_detach(gpu);
	posted_run_all();
	probes.result = -EPERM;
	follow_probed_advance(gpu);
	posted_run_all();
	assert_true(gpu->refused);
	assert_non_null(strstr(gpu->problem, "not permitted"));
	assert_false(memory->refused);
	assert_null(memory->problem);
}

static void who_is_not_asked_for_any_more_is_detached_alone(void **state)
{
	struct plan *plan = testowner_plan();

	(void)state;
	plan->pods->containers->event_mask = MEM;
	testowner_apply(node_work.containers, plan);
	follow_probed_advance(memory);
	follow_probed_advance(gpu);
	posted_run_all();
	assert_null(gpu->attached);
	assert_null(gpu->problem);
	assert_counts(PROBES_GPU_MEMORY, 1, 1);
	assert_counts(PROBES_MEMORY, 1, 0);
	assert_null(memory->problem);
}

static void before_the_programs_go_all_are_detached(void **state)
{
	(void)state;
	follow_detach(follow);
	assert_int_equal(posted.n, 1); /* one task for all sets, because it waits for RCU */
	posted_run_all();
	assert_counts(PROBES_MEMORY, 1, 1);
	assert_counts(PROBES_GPU_MEMORY, 1, 1);
	assert_true(follow_is_detached(follow));
}

/* A node has more processes with allocators than podflame probes, and few that use a GPU. */
static void many_of_one_leave_room_for_the_other(void **state)
{
	(void)state;
	follow_probed_detach(memory);
	follow_probed_detach(gpu);
	posted_run_all();
	testfollow_add_probed(follow, 1024);
	follow_probed_advance(memory);
	follow_probed_advance(gpu);
	posted_run_all();
	assert_null(memory->attached);
	assert_string_equal(memory->problem,
			    "the agent cannot attach its probes: podflame probes "
			    "1024 processes at once, no more, and each namespace has a "
			    "share of that");
	assert_ptr_equal(gpu->attached, attached_of(PROBES_GPU_MEMORY));
	assert_null(gpu->problem);
	testfollow_add_probed(follow, -1024);
	follow_probed_advance(memory);
	posted_run_all();
	assert_ptr_equal(memory->attached, attached_of(PROBES_MEMORY));
	assert_string_equal(memory->problem, KNOWN);
}

/*
 * `memory` has probes, and so have many processes of other namespaces. One more process of its
 * namespace may not have the last place. One of a namespace without probes may.
 */
static void many_of_one_namespace_leave_room_for_another(void **state)
{
	struct tracked *second = follow_track(follow, (struct process_id){77, 7777});
	struct probed *x = &second->probed[PROBES_MEMORY];

	(void)state;
	second->cgroup_id = tracked->cgroup_id;
	testfollow_add_probed(follow, 1021);
	assert_true(follow_probed_has_room(x, 1024));
	testfollow_add_probed(follow, 1);
	assert_int_equal(testfollow_n_probed(follow), 1023);
	assert_false(follow_probed_has_room(x, 1024));
	second->cgroup_id = 0; /* of no namespace that has probes */
	assert_true(follow_probed_has_room(x, 1024));
	testfollow_add_probed(follow, -1022);
	assert_int_equal(testfollow_n_probed(follow), 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, begin_attached, clock_goes_on)
	const struct CMUnitTest tests[] = {
		T(probes_of_queries_are_removed),
		T(a_storm_detaches_its_own_set),
		T(spans_of_memory_leave_gpu_memory_attached),
		T(what_is_refused_to_one_is_not_to_the_other),
		T(who_is_not_asked_for_any_more_is_detached_alone),
		T(before_the_programs_go_all_are_detached),
		T(many_of_one_leave_room_for_the_other),
		T(many_of_one_namespace_leave_room_for_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
