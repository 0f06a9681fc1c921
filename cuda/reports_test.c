// SPDX-License-Identifier: Apache-2.0
/*
 * Tests what the probes report to a profiler in a session, with the stand-ins of e2e/gpu: each
 * duration, name and count is known.
 */
#include "testsession.h"
#include "sampling.h"

#include <math.h>
#include <sys/mman.h>

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

/* ---- names of kernels ---- */

#define NAME_BYTES 3000
#define PAGE	   4096

/* Names in pages of a file, which the kernel can take from the process's memory at any time. */
static char *pages;
static bool all_were_there;

static char *make_name(size_t at, size_t bytes)
{
	memset(pages + at, 'k', bytes);
	pages[at + bytes] = '\0';
	return pages + at;
}

/* Returns whether the page is in memory: bit 63 of its entry in /proc/PID/pagemap. */
static bool is_there(const char *at)
{
	int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	(void)!pread(map, &entry, sizeof(entry), (off_t)((uintptr_t)at / PAGE * sizeof(entry)));
	close(map);
	return entry >> 63;
}

/* At a hit of `work`: whether a BPF program, which cannot wait for a page, can read the names. */
static void look_at_names(void)
{
	all_were_there = seen.n_work > 0;
	for (size_t i = 0; i < seen.n_work; i++) {
		const char *name = (const char *)(uintptr_t)seen.work[i].name;

		all_were_there &= is_there(name) && is_there(name + NAME_BYTES);
	}
}

static void names_are_in_memory_when_they_are_told(void **unused)
{
	int file = memfd_create("names", MFD_CLOEXEC);
	const char *names[2];

	assert_int_equal(ftruncate(file, 4 * PAGE), 0);
	pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	assert_ptr_not_equal(pages, MAP_FAILED);
	names[0] = make_name(0, NAME_BYTES);
	names[1] = make_name(2 * PAGE - 100, NAME_BYTES); /* in two pages */
	step();
	for (int i = 0; i < 2; i++)
		launch(names[i], 5);
	assert_int_equal(madvise(pages, 4 * PAGE, MADV_DONTNEED), 0);
	assert_false(is_there(names[0]));
	seen.hook = look_at_names;
	step();
	seen.hook = NULL;
	assert_int_equal(seen.n_work, 2);
	assert_true(all_were_there);
	for (int i = 0; i < 2; i++)
		assert_ptr_equal(seen.work[i].name, names[i]);
	munmap(pages, 4 * PAGE);
	close(file);
	(void)unused;
}

static void a_kernel_without_a_name_is_told(void **unused)
{
	step();
	launch(NULL, 5);
	launch("", 7);
	step();
	assert_int_equal(seen.n_work, 2);
	assert_int_equal(seen.work[0].name, 0);
	assert_string_equal((const char *)(uintptr_t)seen.work[1].name, "");
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

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, begin)
		T(a_kernel_has_its_launch_name_and_time),
		T(a_call_of_the_driver_alone_is_told),
		T(copies_and_sets_have_bytes_device_and_stream),
		T(a_graph_has_one_launch_and_much_work),
		T(only_work_that_somebody_asks_for_is_told),
		T(names_are_in_memory_when_they_are_told),
		T(a_kernel_without_a_name_is_told),
		T(a_storm_is_sampled_without_bias_and_its_total_is_exact),
		T(of_a_graph_all_or_nothing_is_told),
		T(work_without_room_is_counted),
		T(work_without_times_or_call_is_counted),
		T(a_buffer_that_cannot_be_read_is_counted),
#undef T
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	seen_begin(probe_launch, probe_work, probe_status);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
