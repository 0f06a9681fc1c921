/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on-gpu of a process that launches 100,000 kernels a second, with the real library and stand-ins
 * for the CUDA driver and CUPTI (e2e/gpu). The library reports a part of the launches. If the limit
 * is low, the agent collects in spans: with LONG=1, this test compares what they stand for with
 * what the process did.
 */
#include "cuda/podflame_cuda.h"
#include "node/testoverhead.h"

#include <dlfcn.h>

#define KERNEL_US	5
#define LAUNCHES_A_TURN 100
#define TURN_NS		(LAUNCHES_A_TURN * 10000ull)

/* ---- the process ---- */

typedef int launch_fn(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
		      unsigned bz, unsigned shared, void *stream, void **args, void **extra);

static void *open_library(const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", getenv("BUILD") ?: "build", name);
	_cleanup_free_ char *whole = realpath(path, NULL);
	void *library = whole ? dlopen(whole, RTLD_NOW | RTLD_GLOBAL) : NULL;

	if (!library)
		_exit(3);
	return library;
}

static void name_library(void)
{
	_cleanup_free_ char *path =
		xasprintf("%s/cuda/libpodflame-cuda.so", getenv("BUILD") ?: "build");
	_cleanup_free_ char *whole = realpath(path, NULL);

	if (!whole || setenv("CUDA_INJECTION64_PATH", whole, 1))
		_exit(3);
}

/* Counts in truth->bytes for how many microseconds kernels ran. */
static void launches(void)
{
	void *cuda, *context, *module, *kernel;
	launch_fn *launch;

	name_library();
	cuda = open_library("gpu/thunk/libcuda.so.1");
	open_library("gpu/libcupti.so.12");
	if (((int (*)(unsigned))dlsym(cuda, "cuInit"))(0) ||
	    ((int (*)(void **, unsigned, int))dlsym(cuda, "cuCtxCreate_v2"))(&context, 0, 0) ||
	    ((int (*)(void **, const void *))dlsym(cuda, "cuModuleLoadData"))(&module, "") ||
	    ((int (*)(void **, void *, const char *))dlsym(cuda, "cuModuleGetFunction"))(
		    &kernel, module, "kernel"))
		_exit(3);
	((void (*)(uint64_t))dlsym(cuda, "standin_set_work_ns"))(KERNEL_US * 1000);
	launch = (launch_fn *)dlsym(cuda, "cuLaunchKernel");
	for (uint64_t until_ns = now_mono_ns();; until_ns += TURN_NS) {
		for (int i = 0; i < LAUNCHES_A_TURN; i++)
			if (launch(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL))
				_exit(3);
		__atomic_add_fetch(&truth->bytes, LAUNCHES_A_TURN * KERNEL_US, __ATOMIC_RELAXED);
		while (now_mono_ns() < until_ns)
			;
	}
}

/* ---- tests ---- */

#define ON_GPU (1u << EVENT_ON_GPU)

static bool a_second_has_arrived(struct fixture *f)
{
	(void)f;
	return arrived.on_gpu_us > 1000000;
}

static void a_storm_is_sampled_and_stays(void **state)
{
	struct fixture *f = *state;

	overhead_percent = 20; /* sanitizers make the library slow */
	begin(f, launches, ON_GPU, 0);
	run_until(f, a_second_has_arrived, "a second of work");
	assert_true(is_steady(f, EVENT_ON_GPU));
	assert_true(arrived.variance > 0);
	overhead_percent = 1;
}

static bool spans_begin(struct fixture *f)
{
	const struct account *a = account(f, EVENT_ON_GPU);

	return a && a->mode == LIMIT_SPANS;
}

static bool spans_are_due(struct fixture *f)
{
	(void)f;
	return spans_ended() >= spans_due;
}

static uint64_t later_ns;

static bool is_later(struct fixture *f)
{
	(void)f;
	return now_mono_ns() > later_ns;
}

static void spans_stand_for_all_work(void **state)
{
	struct fixture *f = *state;
	uint64_t did_us, told_us;
	double error_us;

	if (!getenv("LONG")) {
		print_message("skipped: takes minutes: LONG=1\n");
		skip();
	}
	overhead_percent = 1; /* the library takes 2 % and more */
	begin(f, launches, ON_GPU, 0);
	run_until(f, spans_begin, "spans");
	did_us = truth->bytes;
	told_us = arrived.on_gpu_us;
	arrived.variance = 0;
	spans_due = spans_ended();
	for (int i = 0; i < 3; i++) {
		spans_due++;
		run_until(f, spans_are_due, "the end of a span");
	}
	did_us = truth->bytes - did_us;
	later_ns = now_mono_ns() + 5 * NSEC_PER_SEC;
	run_until(f, is_later, "the windows of the last span");
	told_us = arrived.on_gpu_us - told_us;
	error_us = sqrt(arrived.variance);
	print_message("%.1f s of work, told %.1f s, error %.1f s, share %.3f\n",
		      (double)did_us / 1e6, (double)told_us / 1e6, error_us / 1e6,
		      arrived.ppm / 1e6);
	assert_true(fabs((double)told_us - (double)did_us) < 3 * error_us);
	overhead_percent = 1;
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_storm_is_sampled_and_stays),
		T(spans_stand_for_all_work),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(truth != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
