/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory of processes with a small CUDA driver, which the test builds. All of this memory must
 * be seen once the probes are attached, also if the driver is loaded late. A process that allocates
 * other memory all the time must keep these probes.
 */
#include "node/alloc/testcuda.h"
#include "node/testoverhead.h"

#define ALL_BYTES ((uint64_t)TESTCUDA_CALLS * TESTCUDA_MIB)

/* ---- the processes ---- */

static char driver_dir[64];

static void wait_for_go(uint64_t go)
{
	while (__atomic_load_n(&truth->go, __ATOMIC_RELAXED) < go)
		usleep(1000);
}

static void early(void)
{
	const struct testcuda cuda = testcuda_load(driver_dir);

	wait_for_go(1);
	testcuda_use(&cuda);
	sleeps();
}

static void late(void)
{
	struct testcuda cuda;

	wait_for_go(1);
	cuda = testcuda_load(driver_dir);
	wait_for_go(2);
	testcuda_use(&cuda);
	sleeps();
}

static void *storm(void *arg)
{
	for (;;)
		allocate(64);
	return arg;
}

static void with_a_storm(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, storm, NULL))
		_exit(3);
	early();
}

/* ---- tests ---- */

static int gpu_setup(void **state)
{
	setup(state);
	snprintf(driver_dir, sizeof(driver_dir), "%s", ((struct fixture *)*state)->dir);
	return testcuda_build(driver_dir) ? 0 : -1;
}

static int gpu_teardown(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/" TESTCUDA_NAME, driver_dir);

	unlink(path);
	return teardown(state);
}

static bool gpu_is_attached(struct fixture *f)
{
	return testfollow_probed_events(f->node->follow, f->pid) == HBM;
}

static bool lacks_driver(struct fixture *f)
{
	return testfollow_lacks_driver(f->node->follow, f->pid);
}

static bool all_arrived(struct fixture *f)
{
	(void)f;
	return arrived.hbm_alloc_bytes >= ALL_BYTES && arrived.hbm_inuse_bytes == ALL_BYTES / 2;
}

static void assert_exact(struct fixture *f)
{
	run_until(f, all_arrived, "100 MiB allocated on the GPU, 50 MiB alive");
	assert_int_equal(arrived.hbm_alloc_bytes, ALL_BYTES);
}

static void all_of_it_is_seen(void **state)
{
	struct fixture *f = *state;

	begin(f, early, HBM, 524288);
	run_until(f, gpu_is_attached, "probes of the driver");
	truth->go = 1;
	assert_exact(f);
}

static void a_driver_that_is_loaded_late_is_seen(void **state)
{
	struct fixture *f = *state;

	begin(f, late, HBM, 524288);
	run_until(f, lacks_driver, "a process without a driver");
	truth->go = 1;
	run_until(f, gpu_is_attached, "probes of the driver");
	truth->go = 2;
	assert_exact(f);
}

static bool memory_is_decided(struct fixture *f)
{
	const struct account *a = account(f, EVENT_MEM_ALLOC);

	return a && a->mode != LIMIT_STEADY && gpu_is_attached(f);
}

/* The cost of mem-alloc is over its limit. */
static void a_storm_of_malloc_leaves_the_probes_of_the_driver(void **state)
{
	struct fixture *f = *state;

	begin(f, with_a_storm, ALLOC | HBM, 524288);
	run_until(f, memory_is_decided, "a decision about mem-alloc");
	truth->go = 1;
	assert_exact(f);
	assert_true(is_steady(f, EVENT_HBM_ALLOC) && is_steady(f, EVENT_HBM_INUSE));
	assert_false(is_steady(f, EVENT_MEM_ALLOC));
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, gpu_setup, gpu_teardown)
	const struct CMUnitTest tests[] = {
		T(all_of_it_is_seen),
		T(a_driver_that_is_loaded_late_is_seen),
		T(a_storm_of_malloc_leaves_the_probes_of_the_driver),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(truth != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
