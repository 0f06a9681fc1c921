/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of a container for which a target asks for GPU memory: when the agent reads their
 * mappings again to find a CUDA driver, and what it reports if there is none. This thread does the
 * work of the workers.
 */
#include "node/follow/testprobed.h"

#include "node/report/testreport.h"

#define HBM	  (1u << EVENT_HBM_ALLOC | 1u << EVENT_HBM_INUSE)
#define NO_DRIVER "container main of pod web-1: no process has a CUDA driver (libcuda.so.1) loaded"

static struct mapping program = {.inode = 1};
static struct mappings maps = {.items = &program, .n = 1, .refs = 1};
static struct alloc_site entry = {.file_offset = 64, .address = 4160};
static struct alloc_sites found; /* what the next search finds */
static uint64_t library_bytes;
/* n_refused: how many of the next requests are refused */
static unsigned n_mappings_read, n_memory_read, n_refused;
static struct report *report;

static int find_sites(struct files *f, const struct mappings *m, unsigned event_mask,
		      const struct pf_rdma_functions *rdma, struct alloc_sites **ret)
{
	(void)rdma;
	(void)f;
	if (event_mask != HBM) /* the search is for allocators */
		return -ESRCH;
	assert_ptr_equal(m, &maps);
	*ret = xmemdup(&found, sizeof(found));
	(*ret)->items = xmemdup(found.items, found.n * sizeof(*found.items));
	return 0;
}

static int read_memory(struct process_id id, struct proc_memory *ret)
{
	(void)id;
	n_memory_read++;
	*ret = (struct proc_memory){.library_bytes = library_bytes};
	return 0;
}

/*
 * Does what the pipeline does: reads the mappings and passes them to follow, which searches when
 * their files are parsed.
 */
static void read_mappings(void *arg, struct process_id id, uint32_t exec_id, uint64_t cgroup_id)
{
	struct tracked *t = follow_find(follow, id);

	(void)arg;
	(void)exec_id;
	assert_int_equal(cgroup_id, TEST_CGROUP);
	if (n_refused) {
		n_refused--;
		return;
	}
	n_mappings_read++;
	follow_lacking_mappings(t);
	follow_probed_look(t, &maps);
}

static const struct follow_calls calls = {
	.find_sites = find_sites, .read_memory = read_memory, .probes = &counted_probes};
static const struct follow_ops ops = {.read_mappings = read_mappings};

static int set_up(void **state)
{
	(void)state;
	report = testreport();
	probed_begin(&calls, HBM, report);
	follow->config.ops = &ops;
	clock_stands();
	found = (struct alloc_sites){.items = &entry};
	library_bytes = 1 << 20;
	n_mappings_read = n_memory_read = n_refused = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	probed_end();
	report_free(report);
	test_clock.stands_ns = 0;
	assert_int_equal(maps.refs, 1);
	return 0;
}

static void pass_seconds(unsigned n)
{
	while (n--) {
		test_clock.stands_ns += NSEC_PER_SEC;
		follow_tick(follow);
		posted_run_all();
	}
}

static void look(struct tracked *t)
{
	follow_probed_look(t, &maps);
	posted_run_all();
}

static const char *told(void)
{
	return testreport_problem(report, REASON_GPU_MEMORY_NOT_SEEN, NULL);
}

/* The agent reads only a counter of the kernel, until the process maps more code. */
static void a_driver_that_is_loaded_later_is_found(void **state)
{
	(void)state;
	look(tracked);
	assert_int_equal(probes.n_attached, 0);
	pass_seconds(30);
	assert_int_equal(n_memory_read, 30);
	/* the driver may have been loaded before the first reading */
	assert_int_equal(n_mappings_read, 1);
	library_bytes += 4096;
	found.n = 1;
	pass_seconds(1);
	assert_int_equal(n_mappings_read, 2);
	assert_ptr_equal(gpu->attached, attached_of(PROBES_GPU_MEMORY));
	pass_seconds(30);
	assert_int_equal(n_memory_read, 31);
	assert_int_equal(n_mappings_read, 2);
}

/* The files worker has too much to do, or there are no more file descriptors. */
static void a_request_that_fails_is_repeated(void **state)
{
	(void)state;
	look(tracked);
	pass_seconds(2);
	assert_int_equal(n_mappings_read, 1);
	library_bytes += 4096;
	found.n = 1;
	n_refused = 2;
	pass_seconds(2);
	assert_int_equal(probes.n_attached, 0);
	pass_seconds(1);
	assert_int_equal(n_mappings_read, 2);
	assert_ptr_equal(gpu->attached, attached_of(PROBES_GPU_MEMORY));
}

/* The mappings of the process change so often that the agent pauses before it reads them again. */
static void a_process_that_rests_is_looked_at_after_it(void **state)
{
	(void)state;
	look(tracked);
	pass_seconds(2);
	library_bytes += 4096;
	found.n = 1;
	tracked->rest_ns = now_mono_ns() + MAPPINGS_ADVANCE_NS + 5 * NSEC_PER_SEC / 2;
	pass_seconds(2);
	assert_int_equal(n_mappings_read, 1);
	pass_seconds(1);
	assert_int_equal(n_mappings_read, 2);
	assert_ptr_equal(gpu->attached, attached_of(PROBES_GPU_MEMORY));
}

/* A program that has just started may load the driver, and allocate, within the next second. */
static void in_its_first_seconds_it_is_read_more_often(void **state)
{
	(void)state;
	look(tracked);
	for (unsigned i = 1; i <= 90; i++) {
		test_clock.stands_ns += timer_delay_ns();
		timer_fire();
		posted_run_all();
		assert_int_equal(n_memory_read, i);
	}
	assert_int_equal(test_clock.stands_ns, 1009 * NSEC_PER_SEC);
	test_clock.stands_ns += NSEC_PER_SEC;
	timer_fire();
	posted_run_all();
	assert_int_equal(n_memory_read, 90);
	assert_false(timer_armed());
}

static void a_container_without_a_driver_is_told(void **state)
{
	(void)state;
	look(tracked);
	pass_seconds(9); /* a program may load the driver some seconds after its start */
	assert_string_equal(told(), "");
	pass_seconds(2);
	assert_string_equal(told(), NO_DRIVER);
	library_bytes += 4096;
	found.n = 1;
	pass_seconds(2);
	assert_string_equal(told(), "");
}

/* A shell that starts the program has no driver. */
static void one_process_with_a_driver_is_enough(void **state)
{
	struct tracked *other = follow_track(follow, (struct process_id){1000, 1u << 30});

	(void)state;
	other->cgroup_id = TEST_CGROUP;
	look(other);
	/* so that the mappings of this process are not read again */
	other->libraries.bytes = library_bytes;
	found.n = 1;
	look(tracked);
	assert_int_equal(probes.n_attached, 1);
	pass_seconds(20);
	assert_string_equal(told(), "");
}

/* A supervisor starts the processes with the driver one after the other. */
static void a_driver_of_before_is_remembered(void **state)
{
	struct tracked *other = follow_track(follow, (struct process_id){1000, 1u << 30});

	(void)state;
	other->cgroup_id = TEST_CGROUP;
	look(other);
	/* so that the mappings of this process are not read again */
	other->libraries.bytes = library_bytes;
	found.n = 1;
	look(tracked);
	pass_seconds(20);
	tracked->cgroup_id = 0; /* the process has left the container */
	pass_seconds(590);
	assert_string_equal(told(), "");
	pass_seconds(20);
	assert_string_equal(told(), NO_DRIVER);
}

/*
 * Before the timer fires, another process is found to lack the driver. The timer is not set anew.
 */
static void new_processes_do_not_put_off_the_reading(void **state)
{
	uint64_t due_ns;

	(void)state;
	look(tracked);
	due_ns = timer_delay_ns();
	test_clock.stands_ns += due_ns / 2;
	gpu->lacks_ns = 0;
	follow_lacking_look(gpu, &found);
	assert_int_equal(timer_delay_ns(), due_ns - due_ns / 2);
}

static void a_driver_that_is_not_known_is_told(void **state)
{
	(void)state;
	snprintf(found.problem, sizeof(found.problem), "none of its functions is known");
	look(tracked);
	pass_seconds(20);
	assert_non_null(strstr(told(), "none of its functions is known (process "));
	assert_int_equal(n_mappings_read, 1);
}

/* A program has loaded its driver, and the driver loads the library to probe a moment later. */
static void what_comes_after_a_problem_is_found(void **state)
{
	(void)state;
	snprintf(found.problem, sizeof(found.problem), "no library reports its work");
	look(tracked);
	pass_seconds(20);
	assert_non_null(strstr(told(), "no library reports its work"));
	library_bytes += 4096;
	found.n = 1;
	found.problem[0] = '\0';
	pass_seconds(1);
	assert_ptr_equal(gpu->attached, attached_of(PROBES_GPU_MEMORY));
	pass_seconds(2);
	assert_string_equal(told(), "");
}

static void who_is_not_asked_any_more_is_not_told(void **state)
{
	struct plan *plan = testowner_plan();

	(void)state;
	look(tracked);
	pass_seconds(20);
	assert_string_equal(told(), NO_DRIVER);
	plan->pods->containers->event_mask = 1u << EVENT_MEM_ALLOC;
	testowner_apply(node_work.containers, plan);
	pass_seconds(2);
	n_memory_read = 0;
	pass_seconds(5);
	assert_string_equal(told(), "");
	assert_int_equal(n_memory_read, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_driver_that_is_loaded_later_is_found),
		T(a_request_that_fails_is_repeated),
		T(a_process_that_rests_is_looked_at_after_it),
		T(in_its_first_seconds_it_is_read_more_often),
		T(a_container_without_a_driver_is_told),
		T(one_process_with_a_driver_is_enough),
		T(a_driver_of_before_is_remembered),
		T(new_processes_do_not_put_off_the_reading),
		T(a_driver_that_is_not_known_is_told),
		T(what_comes_after_a_problem_is_found),
		T(who_is_not_asked_any_more_is_not_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
