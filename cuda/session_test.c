// SPDX-License-Identifier: Apache-2.0
/*
 * Tests when a session begins and ends, and that other profilers are left alone, with the stand-ins
 * of e2e/gpu.
 */
#include "testsession.h"

#include <pthread.h>
#include <sched.h>

/* ---- start and stop ---- */

/*
 * The first test, because the library opens libcupti only once. A profiler may look at the code of
 * libcupti before a launch has it on its stack.
 */
static void cupti_starts_a_step_after_it_was_opened(void **unused)
{
	(void)unused;
	assert_int_equal(status().state, PODFLAME_CUDA_IDLE);
	assert_true(seen.status.cupti_version > 0);
	assert_int_equal(status().state, PODFLAME_CUDA_RUNNING);
}

static void cupti_is_left_alone_before_and_after(void **unused)
{
	unsigned n_calls;

	attach_all(0);
	attach(&probe_status_semaphore, 1); /* this profiler wants only the status */
	step();
	launch("k", 1);
	assert_int_equal(status().state, PODFLAME_CUDA_IDLE);
	assert_int_equal(standin_cupti.n_calls, 0);

	attach(&probe_launch_semaphore, 1);
	assert_int_equal(status().state, PODFLAME_CUDA_RUNNING);
	assert_int_equal(standin_cupti.n_enabled, 4);
	launch("k", 1);

	attach(&probe_launch_semaphore, 0);
	assert_int_equal(status().state, PODFLAME_CUDA_STOPPING);
	assert_int_equal(standin_cupti.n_enabled, 0);
	assert_int_equal(standin_cupti.n_finalized, 0);
	launch("k", 1); /* at the end of this call CUPTI can be removed */
	assert_int_equal(standin_cupti.n_finalized, 1);
	assert_false(standin_cupti.has_subscriber);
	assert_int_equal(status().state, PODFLAME_CUDA_IDLE);
	n_calls = standin_cupti.n_calls;
	for (int i = 0; i < 1000; i++)
		launch("k", 1);
	assert_int_equal(status().n_sessions, 1);
	assert_int_equal(standin_cupti.n_calls, n_calls);
	(void)unused;
}

static void work_of_the_last_moment_is_told(void **unused)
{
	step();
	for (int i = 0; i < 3; i++)
		launch("k", 10);
	attach(&probe_launch_semaphore, 0);
	step();
	assert_int_equal(seen.n_work, 3);
	attach(&probe_work_semaphore, 0);
	(void)unused;
}

static void it_starts_again(void **unused)
{
	for (unsigned i = 1; i <= 3; i++) {
		attach_all(1);
		step();
		launch("k", 10);
		assert_int_equal(status().n_sessions, i);
		assert_int_equal(seen.n_work, i);
		end_session();
	}
	assert_int_equal(standin_cupti.n_finalized, 3);
	(void)unused;
}

static void it_goes_on_if_it_is_wanted_before_the_next_call(void **unused)
{
	step();
	attach(&probe_launch_semaphore, 0);
	attach(&probe_work_semaphore, 0);
	assert_int_equal(status().state, PODFLAME_CUDA_STOPPING);
	attach(&probe_launch_semaphore, 1);
	attach(&probe_work_semaphore, 1);
	assert_int_equal(status().state, PODFLAME_CUDA_RUNNING);
	launch("k", 10);
	step();
	assert_int_equal(seen.n_work, 1);
	assert_int_equal(standin_cupti.n_finalized, 0);
	(void)unused;
}

/* An H200 showed what CUPTI costs the calls that the library does not report, too. */
static void what_cupti_costs_is_counted(void **unused)
{
	struct podflame_cuda_status before, after;
	unsigned n_calls = 10000;

	step();
	before = status();
	for (unsigned i = 0; i < n_calls; i++)
		launch("k", 1);
	after = status();
	assert_int_equal(after.n_callbacks - before.n_callbacks, 4 * n_calls);
	assert_true(after.own_ns - before.own_ns >= n_calls * 1600ULL);
	end_session();
	attach(&probe_status_semaphore, 1);
	before = status();
	for (unsigned i = 0; i < n_calls; i++)
		launch("k", 1);
	assert_true(status().own_ns - before.own_ns < n_calls * 1600ULL);
	(void)unused;
}

static void an_old_cupti_stays_and_that_is_told(void **unused)
{
	standin_cupti.version = 18; /* CUDA 11.8 */
	assert_int_equal(status().state, PODFLAME_CUDA_RUNNING);
	launch("k", 10);
	attach_all(0);
	attach(&probe_status_semaphore, 1);
	assert_int_equal(status().state, PODFLAME_CUDA_IDLE);
	assert_int_equal(status().n_not_removed, 1);
	launch("k", 10);
	assert_int_equal(standin_cupti.n_finalized, 0);
	assert_int_equal(standin_cupti.n_enabled, 0);
	assert_false(standin_cupti.has_subscriber);
	(void)unused;
}

static void a_cupti_that_is_too_old_is_not_used(void **unused)
{
	standin_cupti.version = 12; /* CUDA 10.2 */
	assert_int_equal(status().state, PODFLAME_CUDA_TOO_OLD);
	assert_int_equal(standin_cupti.n_subscribed, 0);
	(void)unused;
}

static void a_cupti_without_a_driver_is_a_failure(void **unused)
{
	standin_cupti.version = 0; /* cuptiGetVersion() fails, as it does in CUPTI 13.5 */
	assert_int_equal(status().state, PODFLAME_CUDA_FAILED);
	assert_int_equal(seen.status.code, 999);
	assert_int_equal(standin_cupti.n_subscribed, 0);
	(void)unused;
}

/* ---- other profilers ---- */

static void another_subscriber_is_told_and_left_alone(void **unused)
{
	unsigned n_calls;

	standin_cupti.has_subscriber = true;
	assert_int_equal(status().state, PODFLAME_CUDA_REFUSED);
	assert_int_equal(seen.status.code, 39);
	n_calls = standin_cupti.n_calls;
	for (int i = 0; i < 100; i++)
		step();
	assert_int_equal(standin_cupti.n_calls, n_calls);
	assert_int_equal(standin_cupti.n_enabled, 0);

	standin_cupti.has_subscriber = false; /* the other subscriber has left */
	ahead_ns += 61 * NSEC_PER_SEC;
	assert_int_equal(status().state, PODFLAME_CUDA_RUNNING);
	assert_int_equal(seen.status.code, 0);
	(void)unused;
}

static void a_profiler_that_took_the_buffers_is_not_disturbed(void **unused)
{
	step();
	launch("k", 10);
	standin_other_profiler();
	for (int i = 0; i < 3000; i++) /* the other profiler gets our buffer, and frees it */
		launch("k", 10);
	attach_all(0);
	attach(&probe_status_semaphore, 1);
	assert_int_equal(status().n_displaced, 0); /* a thread could still have the buffer */
	ahead_ns += 6 * NSEC_PER_SEC;
	assert_int_equal(status().n_displaced, 1);
	assert_int_equal(standin_cupti.n_foreign_buffers, 1);
	assert_int_equal(standin_cupti.n_enabled, 4);
	assert_int_equal(standin_cupti.n_finalized, 0);
	assert_false(standin_cupti.has_subscriber);
	(void)unused;
}

/*
 * The other profiler has no subscriber. So CUPTI does not refuse the library, which then gets the
 * other profiler's buffer.
 */
static void a_profiler_that_gave_buffers_before_is_not_disturbed(void **unused)
{
	standin_other_profiler();
	launch("k", 10);
	assert_int_equal(status().state, PODFLAME_CUDA_RUNNING);
	assert_int_equal(status().state, PODFLAME_CUDA_REFUSED);
	assert_int_equal(seen.status.n_displaced, 1);
	/* the records in that buffer are not ours */
	assert_int_equal(seen.status.all[PODFLAME_CUDA_KERNEL].n, 0);
	attach_all(0);
	step();
	assert_int_equal(standin_cupti.n_enabled, 4);
	assert_int_equal(standin_cupti.n_finalized, 0);
	assert_false(standin_cupti.has_subscriber);
	(void)unused;
}

static void callbacks_and_buffers_are_counted(void **unused)
{
	uint64_t before = status().n_callbacks;

	for (int i = 0; i < 1000; i++)
		launch("k", 10);
	assert_int_equal(status().n_callbacks - before, 4000);
	assert_int_equal(seen.status.n_buffers, 4); /* 315 records in each buffer */
	(void)unused;
}

static bool threads_end;

static void *launch_on(void *arg)
{
	while (!__atomic_load_n(&threads_end, __ATOMIC_RELAXED))
		launch("k", 10);
	return arg;
}

/* At any time, a thread of the program is about to get a buffer, or reads one. */
static void a_busy_program_is_not_taken_for_a_profiler(void **unused)
{
	pthread_t threads[4];

	threads_end = false;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, launch_on, NULL), 0);
	for (int i = 0; i < 100; i++) {
		attach_all(1);
		while (status().state != PODFLAME_CUDA_RUNNING)
			sched_yield();
		attach(&probe_launch_semaphore, 0);
		attach(&probe_work_semaphore, 0);
		while (status().state == PODFLAME_CUDA_RUNNING)
			sched_yield();
		assert_int_equal(seen.status.n_displaced, 0);
		while (status().state != PODFLAME_CUDA_IDLE)
			sched_yield();
		seen_forget();
	}
	__atomic_store_n(&threads_end, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	(void)unused;
}

static void a_failure_leaves_nothing_on(void **unused)
{
	standin_cupti.fails_enable = 27; /* CUPTI's error for "not supported" */
	assert_int_equal(status().state, PODFLAME_CUDA_FAILED);
	assert_int_equal(seen.status.code, 27);
	assert_int_equal(seen.status.n_not_removed, 1);
	assert_int_equal(standin_cupti.n_enabled, 0);
	assert_false(standin_cupti.has_subscriber);
	(void)unused;
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, begin)
		T(cupti_starts_a_step_after_it_was_opened),
		T(cupti_is_left_alone_before_and_after),
		T(work_of_the_last_moment_is_told),
		T(it_starts_again),
		T(it_goes_on_if_it_is_wanted_before_the_next_call),
		T(what_cupti_costs_is_counted),
		T(an_old_cupti_stays_and_that_is_told),
		T(a_cupti_that_is_too_old_is_not_used),
		T(a_cupti_without_a_driver_is_a_failure),
		T(another_subscriber_is_told_and_left_alone),
		T(a_profiler_that_took_the_buffers_is_not_disturbed),
		T(a_profiler_that_gave_buffers_before_is_not_disturbed),
		T(callbacks_and_buffers_are_counted),
		T(a_busy_program_is_not_taken_for_a_profiler),
		T(a_failure_leaves_nothing_on),
#undef T
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	seen_begin(probe_launch, probe_work, probe_status);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
