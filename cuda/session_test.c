// SPDX-License-Identifier: Apache-2.0
/*
 * Tests what the probes report to a profiler, with the stand-ins of e2e/gpu: each duration, name
 * and count is known. The test itself makes the steps of the library's thread.
 */
#include "session.h"
#include "clock.h"
#include "probes.h"
#include "sampling.h"
#include "testcalls.h"
#include "testprobes.h"
#include "work.h"

#include "e2e/gpu/standin_cupti.h"
#include "lib/base/testprogram.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>

enum {
	cudaLaunchKernel = 211,
	cuLaunchKernel = 307,
	cudaMemcpyAsync = 41,
	cuMemcpyAsync = 306,
	cudaGraphLaunch = 311,
	cuGraphLaunch = 514,
	cuMemsetD8Async_ptsz = 428,
	cuMemcpyPeerAsync = 319
};

/*
 * The steps of the session get a time that is ahead of the clock by this. The callbacks read the
 * clock itself, so tests of sampling come first, while this is 0.
 */
static uint64_t ahead_ns;

static void step(void)
{
	session_step(now_ns() + ahead_ns);
}

static void attach(uint16_t *semaphore, uint16_t n)
{
	__atomic_store_n(semaphore, n, __ATOMIC_RELAXED);
}

static void attach_all(uint16_t n)
{
	attach(&probe_launch_semaphore, n);
	attach(&probe_work_semaphore, n);
	attach(&probe_status_semaphore, n);
}

static struct podflame_cuda_status status(void)
{
	step();
	return seen.status;
}

/* Launches one kernel through the runtime. Returns its correlation id. */
static uint32_t launch(const char *kernel, uint64_t ns)
{
	struct standin_work work = {STANDIN_KERNEL, kernel, .ns = ns, .context = 1, .stream = 7};

	return run_call(&(struct test_call){.runtime_id = cudaLaunchKernel,
					    .driver_id = cuLaunchKernel,
					    .function = "cudaLaunchKernel",
					    .kernel = kernel,
					    .context = 1,
					    .work = &work,
					    .n_work = 1});
}

/* Detaches all profilers, and makes the call of CUDA that removes CUPTI. */
static void end_session(void)
{
	attach_all(0);
	step();
	launch("after", 1);
	step();
}

static int begin(void **state)
{
	(void)state;
	end_session();
	if (work_counts.state > PODFLAME_CUDA_STOPPING) /* the library waits for its next try */
		ahead_ns += 61 * NSEC_PER_SEC;
	seen_forget();
	memset(&work_counts, 0, sizeof(work_counts));
	standin_cupti_begin();
	attach_all(1);
	return 0;
}

static const struct podflame_cuda_work *work_of(uint32_t correlation)
{
	for (size_t i = 0; i < seen.n_work; i++)
		if (seen.work[i].correlation == correlation)
			return &seen.work[i];
	fail_msg("no work of call %u", correlation);
	return NULL;
}

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

/* ---- what is told ---- */

static void a_kernel_has_its_launch_name_and_time(void **unused)
{
	const struct podflame_cuda_work *w;
	uint32_t correlation;

	step();
	assert_int_equal(status().state, PODFLAME_CUDA_RUNNING);
	correlation = launch("_Z5saxpyifPfS_", 12345);
	/* the launch is reported once, though the runtime and the driver both make a callback */
	assert_int_equal(seen.n_launches, 1);
	assert_int_equal(seen.launches[0].correlation, correlation);
	assert_int_equal(seen.launches[0].level, 0);
	assert_int_equal(seen.launches[0].kind, PODFLAME_CUDA_KERNEL);
	assert_int_equal(seen.launches[0].context, 1);
	assert_int_equal(seen.launches[0].thread, gettid());
	assert_string_equal(seen.launches[0].function, "cudaLaunchKernel");
	assert_string_equal(seen.launches[0].kernel, "_Z5saxpyifPfS_");
	step();
	assert_int_equal(seen.n_work, 1);
	w = work_of(correlation);
	assert_int_equal(w->end_ns - w->start_ns, 12345);
	assert_string_equal((const char *)(uintptr_t)w->name, "_Z5saxpyifPfS_");
	assert_int_equal(w->kind, PODFLAME_CUDA_KERNEL);
	assert_int_equal(w->context, 1);
	assert_int_equal(w->stream, 7);
	assert_int_equal(w->level, 0);
	(void)unused;
}

static void a_call_of_the_driver_alone_is_told(void **unused)
{
	struct standin_work work = {STANDIN_KERNEL, "k", .ns = 5};
	uint32_t correlation;

	step();
	correlation = run_call(&(struct test_call){.driver_id = cuLaunchKernel,
						   .function = "cuLaunchKernel",
						   .kernel = "k",
						   .work = &work,
						   .n_work = 1});
	step();
	assert_int_equal(seen.n_launches, 1);
	assert_string_equal(seen.launches[0].function, "cuLaunchKernel");
	assert_int_equal(work_of(correlation)->end_ns - work_of(correlation)->start_ns, 5);
	(void)unused;
}

static void copies_and_sets_have_bytes_device_and_stream(void **unused)
{
	static const struct standin_work works[] = {
		{STANDIN_COPY, NULL, .ns = 10, .n_bytes = 4096, .device = 0, .stream = 1,
		 .copy_kind = 1},
		{STANDIN_PEER_COPY, NULL, .ns = 20, .n_bytes = 1ULL << 33, .device = 3, .stream = 2,
		 .copy_kind = 10},
		{STANDIN_SET, NULL, .ns = 30, .n_bytes = 100, .device = 1, .stream = 3},
	};
	static const struct {
		uint32_t id, kind, copy_kind;
	} want[] = {{cuMemcpyAsync, PODFLAME_CUDA_COPY, 1},
		    {cuMemcpyPeerAsync, PODFLAME_CUDA_COPY, 10},
		    {cuMemsetD8Async_ptsz, PODFLAME_CUDA_SET, 0}};

	step();
	for (int i = 0; i < 3; i++)
		run_call(&(struct test_call){
			.driver_id = want[i].id, .function = "f", .work = &works[i], .n_work = 1});
	step();
	assert_int_equal(seen.n_launches, 3);
	for (int i = 0; i < 3; i++) {
		const struct podflame_cuda_work *w = work_of(seen.launches[i].correlation);

		assert_int_equal(seen.launches[i].kind, want[i].kind);
		assert_string_equal(seen.launches[i].kernel, "");
		assert_int_equal(w->kind, want[i].kind);
		assert_int_equal(w->copy_kind, want[i].copy_kind);
		assert_int_equal(w->n_bytes, works[i].n_bytes);
		assert_int_equal(w->device, works[i].device);
		assert_int_equal(w->stream, works[i].stream);
		assert_int_equal(w->end_ns - w->start_ns, works[i].ns);
		assert_int_equal(w->name, 0);
	}
	(void)unused;
}

static void a_graph_has_one_launch_and_much_work(void **unused)
{
	struct standin_work works[200];
	struct test_call call = {.runtime_id = cudaGraphLaunch,
				 .driver_id = cuGraphLaunch,
				 .function = "cudaGraphLaunch",
				 .work = works,
				 .n_work = ARRAY_SIZE(works)};
	uint64_t sum = 0;
	uint32_t correlation;

	for (size_t i = 0; i < ARRAY_SIZE(works); i++)
		works[i] = (struct standin_work){i % 4 ? STANDIN_KERNEL : STANDIN_COPY, "node",
						 .ns = 1000 + i, .graph_node = 50 + i, .graph = 9};
	step();
	correlation = run_call(&call);
	step();
	assert_int_equal(seen.n_launches, 1);
	assert_int_equal(seen.launches[0].kind, PODFLAME_CUDA_GRAPH);
	assert_int_equal(seen.n_work, 200);
	for (size_t i = 0; i < 200; i++) {
		assert_int_equal(seen.work[i].correlation, correlation);
		assert_int_equal(seen.work[i].graph_node, 50 + i);
		assert_int_equal(seen.work[i].graph, i % 4 ? 9 : 0);
		sum += seen.work[i].end_ns - seen.work[i].start_ns;
	}
	assert_int_equal(sum, 200 * 1000 + 199 * 200 / 2);
	assert_int_equal(seen.n_batches, 7); /* each batch has 32 pieces */
	(void)unused;
}

static void only_work_that_somebody_asks_for_is_told(void **unused)
{
	attach(&probe_work_semaphore, 0);
	step();
	launch("k", 100);
	step();
	assert_int_equal(seen.n_launches, 1);
	assert_int_equal(seen.n_work, 0);
	assert_int_equal(status().all[PODFLAME_CUDA_KERNEL].ns, 100);
	assert_int_equal(status().told[PODFLAME_CUDA_KERNEL].ns, 0);
	(void)unused;
}

/* ---- sampling ---- */

/*
 * Computes the sums of w * d and of w * (w - 1) * d * d over the reported work of the kernel
 * `name`.
 */
static void estimate(const char *name, double *ret_ns, double *ret_variance)
{
	*ret_ns = *ret_variance = 0;
	for (size_t i = 0; i < seen.n_work; i++) {
		const struct podflame_cuda_work *s = &seen.work[i];
		double d = (double)(s->end_ns - s->start_ns), w = (double)(1U << s->level);

		if (strcmp((const char *)(uintptr_t)s->name, name) != 0)
			continue;
		*ret_ns += w * d;
		*ret_variance += w * (w - 1) * d * d;
	}
}

static const char *const storm_names[] = {"often", "seldom", "rare"};

/*
 * Runs a session with 20,000 kernels, one immediately after another. Adds their times, by name, to
 * `truth`.
 */
static void storm(uint64_t truth[3])
{
	static uint64_t seed = 88172645463325252ULL;
	unsigned name;
	uint64_t d;

	attach_all(1);
	step();
	for (int i = 0; i < 20000; i++) {
		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17; /* xorshift */
		name = seed % 10 < 6 ? 0 : seed % 10 < 9 ? 1 : 2;
		d = 1000 + seed / 10 % 5000;
		launch(storm_names[name], d);
		truth[name] += d;
	}
	step();
	end_session();
}

static void a_storm_is_sampled_without_bias_and_its_total_is_exact(void **unused)
{
	uint64_t truth[3] = {0};
	struct podflame_cuda_status s;
	double ns, variance;

	for (int i = 0; i < 20; i++)
		storm(truth);
	attach_all(1);
	s = status();
	assert_int_equal(s.all[PODFLAME_CUDA_KERNEL].n, 400000);
	assert_int_equal(s.all[PODFLAME_CUDA_KERNEL].ns, truth[0] + truth[1] + truth[2]);
	assert_int_equal(s.told[PODFLAME_CUDA_KERNEL].n, seen.n_work);
	assert_int_equal(s.n_launches, seen.n_launches);
	assert_int_equal(seen.n_work, seen.n_launches);
	assert_int_equal(s.n_dropped + s.n_unseen + s.n_untimed, 0);
	assert_in_range(seen.n_launches, 4000, 100000);
	for (int i = 0; i < 3; i++) {
		estimate(storm_names[i], &ns, &variance);
		print_message("%s: %.4f of the truth, %.2f sigma\n", storm_names[i],
			      ns / (double)truth[i], (ns - (double)truth[i]) / sqrt(variance));
		assert_true(fabs(ns - (double)truth[i]) <= 4 * sqrt(variance));
	}
	(void)unused;
}

static void of_a_graph_all_or_nothing_is_told(void **unused)
{
	struct standin_work works[500];
	struct test_call call = {.driver_id = cuGraphLaunch,
				 .function = "cuGraphLaunch",
				 .work = works,
				 .n_work = ARRAY_SIZE(works)};

	for (size_t i = 0; i < ARRAY_SIZE(works); i++)
		works[i] = (struct standin_work){STANDIN_KERNEL, "node", .ns = 10};
	step();
	for (int i = 0; i < 2000; i++)
		run_call(&call);
	step();
	assert_int_equal(seen.n_work, seen.n_launches * 500);
	/* the work of a graph costs more units than its launch */
	assert_in_range(seen.n_launches, 5, 500);
	(void)unused;
}

/* ---- losses ---- */

static void work_without_room_is_counted(void **unused)
{
	struct podflame_cuda_status s;
	const unsigned n = 60000;

	standin_cupti.keeps_buffers = true;
	step();
	for (unsigned i = 0; i < n; i++)
		launch("k", 10);
	s = status();
	assert_in_range(standin_cupti.n_dropped, 1, n - 1);
	assert_int_equal(s.n_dropped, standin_cupti.n_dropped);
	assert_int_equal(s.all[PODFLAME_CUDA_KERNEL].n + s.n_dropped, n);
	assert_true(s.n_refused_buffers > 0);
	assert_int_equal(s.all[PODFLAME_CUDA_KERNEL].n, WORK_N_BUFFERS * (WORK_BUFFER_BYTES / 208));
	(void)unused;
}

static void work_without_times_or_call_is_counted(void **unused)
{
	struct standin_work works[] = {{STANDIN_KERNEL, "k", .has_no_time = true},
				       {STANDIN_KERNEL, "k", .ns = 40}};
	struct podflame_cuda_status s;

	step();
	for (int i = 0; i < 100; i++) { /* the library does not know the first call */
		run_call(&(struct test_call){.driver_id = 1, .work = works, .n_work = 2});
		launch("k", 10);
	}
	s = status();
	assert_int_equal(s.n_untimed, 100);
	assert_int_equal(s.all[PODFLAME_CUDA_KERNEL].n, 200);
	assert_int_equal(s.n_unseen, 100);
	assert_int_equal(seen.n_work, 100);
	(void)unused;
}

static void a_buffer_that_cannot_be_read_is_counted(void **unused)
{
	step();
	launch("k", 10);
	standin_cupti.breaks_record = true;
	assert_int_equal(status().n_unread, 1);
	launch("k", 10);
	assert_int_equal(status().all[PODFLAME_CUDA_KERNEL].n, 1);
	(void)unused;
}

/* ---- start and stop ---- */

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
		T(a_kernel_has_its_launch_name_and_time),
		T(a_call_of_the_driver_alone_is_told),
		T(copies_and_sets_have_bytes_device_and_stream),
		T(a_graph_has_one_launch_and_much_work),
		T(only_work_that_somebody_asks_for_is_told),
		T(a_storm_is_sampled_without_bias_and_its_total_is_exact),
		T(of_a_graph_all_or_nothing_is_told),
		T(work_without_room_is_counted),
		T(work_without_times_or_call_is_counted),
		T(a_buffer_that_cannot_be_read_is_counted),
		T(cupti_is_left_alone_before_and_after),
		T(work_of_the_last_moment_is_told),
		T(it_starts_again),
		T(it_goes_on_if_it_is_wanted_before_the_next_call),
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
