/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent does when the thread ends by which the kernel finds the memory of a probed
 * process.
 */
#include "node/follow/testprobed.h"

#include <pthread.h>

/* Attaches probes. After that, each timer_fire() checks them. */
static void attach_while_the_clock_stands(void)
{
	clock_stands();
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
}

static void loses_its_thread(void)
{
	probes.lost = true;
	timer_fire();
	probes.lost = false;
	posted_run_all();
}

/* The probes were detached. Lets the time pass until they may be attached again. */
static void attach_anew(void)
{
	assert_null(memory->attached);
	test_clock.stands_ns = memory->next_ns;
	timer_fire();
	posted_run();
	assert_ptr_equal(memory->attached, attached_of(PROBES_MEMORY));
}

static void who_is_probed_by_a_thread_that_ended_is_probed_anew(void **state)
{
	uint64_t before = n_ended("thread_ended");

	(void)state;
	attach_while_the_clock_stands();
	timer_fire();
	assert_int_equal(posted.n, 0);
	assert_int_equal(probes.n_attached, 1);
	probes.lost = true;
	timer_fire();
	probes.lost = false;
	assert_int_equal(posted.n, 1); /* the probes are attached again at once */
	assert_int_equal(n_ended("thread_ended"), before + 1);
	assert_null(memory->problem);
	posted_run();
	assert_int_equal(probes.n_attached, 2);
	assert_ptr_equal(memory->attached, attached_of(PROBES_MEMORY));
	/*
	 * The next thread also ends, soon after the first one. So the probes missed something in
	 * between.
	 */
	loses_its_thread();
	assert_told("take its place");
	assert_int_equal(n_ended("thread_ended"), before + 2);
	attach_anew();
	assert_told("take its place");
	test_clock.stands_ns += 62 * NSEC_PER_SEC;
	timer_fire();
	assert_told(KNOWN);
}

static unsigned asked_in(unsigned n_watches)
{
	probes.n_asked_for_thread = 0;
	while (n_watches--)
		timer_fire();
	return probes.n_asked_for_thread;
}

/*
 * The agent checks the probes of all processes a hundred times a second, but their threads less
 * often.
 */
static void a_thread_is_asked_for_when_its_end_matters(void **state)
{
	(void)state;
	probes.outlives = true;
	attach_while_the_clock_stands();
	assert_int_equal(asked_in(3), 1);
	probes.moves++; /* as if probes of another process had been detached */
	assert_int_equal(asked_in(3), 1);
	test_clock.stands_ns += NSEC_PER_SEC;
	assert_int_equal(asked_in(3), 1);
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_int_equal(asked_in(3), 1);
	probes.outlives = false;
	assert_int_equal(asked_in(3), 3);
}

/*
 * Each time the process has no probes for a longer time, so that the worker has time for other
 * processes.
 */
static void threads_that_end_again_and_again_are_followed_less_and_less_often(void **state)
{
	static const unsigned waits_s[] = {1, 2, 4, 8, 16, 32, 60, 60};

	(void)state;
	attach_while_the_clock_stands();
	loses_its_thread();
	for (size_t i = 0; i < ARRAY_SIZE(waits_s); i++) {
		loses_its_thread();
		assert_null(memory->attached);
		assert_int_equal(probes.n_detached, i + 1);
		assert_int_equal(memory->next_ns - test_clock.stands_ns, waits_s[i] * NSEC_PER_SEC);
		assert_true(memory->refused); /* refused until the probes may be attached again */
		assert_told("take its place");
		attach_anew();
		assert_false(memory->refused);
		assert_told("take its place");
	}
	test_clock.stands_ns += 61 * NSEC_PER_SEC;
	timer_fire();
	assert_told(KNOWN);
	loses_its_thread(); /* counts as a first loss again */
	assert_non_null(memory->attached);
	assert_told(KNOWN);
}

static void the_end_of_a_process_is_no_lost_thread(void **state)
{
	uint64_t before = n_ended("thread_ended");

	(void)state;
	HASH_DEL(follow->tracked, tracked);
	tracked->id.tgid = probed.tgid = 1u << 30; /* no process has this PID */
	HASH_ADD(hh, follow->tracked, id, sizeof(tracked->id), tracked);
	attach_while_the_clock_stands();
	loses_its_thread();
	assert_int_equal(probes.n_attached, 1);
	assert_int_equal(n_ended("thread_ended"), before);
}

/*
 * The places are lent while the heap profile of a Go process is read. When they are given back, the
 * problem is reported again.
 */
static void sites_may_be_lent_while_it_is_looked_at(void **state)
{
	struct alloc_sites *sites = memory->sites;

	(void)state;
	attach_while_the_clock_stands();
	loses_its_thread();
	loses_its_thread();
	attach_anew();
	assert_told("take its place");
	memory->sites = NULL;
	test_clock.stands_ns += 62 * NSEC_PER_SEC;
	timer_fire();
	assert_told("take its place");
	memory->sites = sites;
	timer_fire();
	assert_told(KNOWN);
}

/*
 * The kernel has refused the probes. The next try comes at the planned time, and not earlier if the
 * thread of the old probes ends.
 */
static void who_cannot_be_probed_anew_waits(void **state)
{
	(void)state;
	attach_while_the_clock_stands();
	probes.result = -EPERM;
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_ptr_equal(memory->attached, attached_of(PROBES_MEMORY));
	assert_told("not permitted");
	probes.lost = true;
	timer_fire();
	assert_int_equal(posted.n, 0);
	assert_told("not permitted");
}

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, begin_with_sites, clock_goes_on)
	const struct CMUnitTest tests[] = {
		T(who_is_probed_by_a_thread_that_ended_is_probed_anew),
		T(a_thread_is_asked_for_when_its_end_matters),
		T(threads_that_end_again_and_again_are_followed_less_and_less_often),
		T(the_end_of_a_process_is_no_lost_thread),
		T(sites_may_be_lent_while_it_is_looked_at),
		T(who_cannot_be_probed_anew_waits),
	};
	pthread_t another; /* so the end of one thread is not the end of this process */

	if (pthread_create(&another, NULL, wait_for_ever, NULL))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
