/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long spans of on-gpu: when the probes are attached and detached, and for which time a span
 * counts. What a library in the process says of itself, as a problem of its container. This thread
 * does the work of the workers, and the clock stands until a test moves it.
 */
#include "node/follow/testprobed.h"

#include "node/limit/testpayers.h"
#include "node/report/testreport.h"

#include <math.h>

#define ON_GPU (1u << EVENT_ON_GPU)

static struct probed *library;
static struct on_gpu_status status;
static int status_result;
static struct report *report;

static int read_status(const struct attached *a, struct on_gpu_status *ret)
{
	assert_ptr_equal(a, attached_of(PROBES_GPU));
	*ret = status;
	return status_result;
}

static struct probe_calls library_probes;
static const struct follow_calls calls = {.probes = &library_probes};

static int set_up(void **state)
{
	(void)state;
	library_probes = counted_probes;
	library_probes.attached_status = read_status;
	report = testreport();
	clock_stands();
	probed_begin(&calls, ON_GPU, report);
	tracked->exec_id = known_maps.exec_id;
	library = &tracked->probed[PROBES_GPU];
	know_a_place(library, ON_GPU);
	library->sites->problem[0] = '\0';
	status = (struct on_gpu_status){0};
	status_result = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	probed_end();
	report_free(report);
	test_clock.stands_ns = 0;
	assert_int_equal(known_maps.refs, 1);
	return 0;
}

/* Moves the clock on. While CUPTI runs, the library tells its status twice a second. */
static void pass(uint64_t ns)
{
	test_clock.stands_ns += ns;
	status.told_ns = status.told_ns ? now_boot_ns() - now_boot_ns() % (NSEC_PER_SEC / 2) : 0;
	follow_tick(follow);
	posted_run_all();
}

#define SPAN_NS	     (10 * NSEC_PER_SEC) /* launches count for so long */
#define ATTACHED_MIN 13			 /* and their work for three seconds more */

static void cupti_starts(void)
{
	status.library.state = PODFLAME_CUDA_RUNNING;
	status.launches_until_ns = library->attached_at_ns + SPAN_NS;
	status.told_ns = status.running_ns = now_boot_ns();
}

/* The library reports that it takes 10 % of a CPU, so on-gpu costs more than its limit allows. */
static void too_much(void)
{
	static const struct cgroup_hierarchy no_hierarchy;
	struct probe_usage u = {.cgroup_id = TEST_CGROUP, .event = EVENT_ON_GPU};

	limit->config.hierarchy = &no_hierarchy;
	for (int i = 0; i < 10; i++) {
		u.hits += 100;
		u.own_ns += NSEC_PER_SEC / 5;
		test_clock.stands_ns += 2 * NSEC_PER_SEC;
		limit_usage(limit, &u, 1, 750);
		posted_run_all();
	}
}

static bool is_attached(void)
{
	return library->attached != NULL;
}

/* Passes seconds until the probes are, or are not, attached. Returns how many. */
static unsigned until_attached(bool wanted)
{
	unsigned n = 0;

	for (; is_attached() != wanted; n++) {
		assert_true(n < 1000);
		pass(NSEC_PER_SEC);
	}
	return n;
}

static void begin_spans(void)
{
	pass(NSEC_PER_SEC);
	assert_true(is_attached());
	too_much();
	pass(NSEC_PER_SEC);
	assert_false(is_attached());
}

static void a_span_takes_seconds_and_not_the_worker(void **state)
{
	(void)state;
	begin_spans();
	for (int i = 0; i < 3; i++) {
		/*
		 * the limit is 1 %, the cost 10 %: ten seconds in a hundred, at random 50 to 150 s
		 * apart
		 */
		assert_in_range(until_attached(true), 30, 151);
		assert_int_equal(follow->n_attaching, 0);
		cupti_starts();
		assert_in_range(until_attached(false), ATTACHED_MIN, ATTACHED_MIN + 1);
		status = (struct on_gpu_status){0};
	}
}

/*
 * A span counts from the start of CUPTI until launches do not count any more. In the time after
 * that, which its work takes to end, the probes stay attached.
 */
static void a_span_is_the_time_in_which_launches_count(void **state)
{
	const struct account *a;
	uint64_t steady_ns, cupti_ns, end_ns;
	double times;

	(void)state;
	begin_spans();
	steady_ns = library->span_end.mono_ns;
	until_attached(true);
	probes.of[PROBES_GPU].hits = 5000;
	test_clock.stands_ns += NSEC_PER_SEC / 5 * 2;
	cupti_ns = now_mono_ns();
	cupti_starts();
	end_ns = library->attached_at_ns + SPAN_NS;
	until_attached(false);
	assert_true(now_mono_ns() >= end_ns + 3 * NSEC_PER_SEC);
	assert_int_equal(library->span_end.mono_ns, end_ns);
	a = testpayers_tried(limit, EVENT_ON_GPU);
	assert_int_equal(a->mode, LIMIT_SPANS);
	assert_true(a->spans.n == 1);
	/* the time since the probes were attached steadily, divided by that of the span */
	times = (double)(end_ns - steady_ns) / (double)(end_ns - cupti_ns);
	assert_true(fabs(a->spans.stand_for / a->spans.hits - times) < 0.001);
}

/* The library stops to report before the span is over: the span lasts until its last report. */
static void a_span_ends_with_the_last_report(void **state)
{
	uint64_t told_ns;

	(void)state;
	begin_spans();
	until_attached(true);
	cupti_starts();
	pass(4 * NSEC_PER_SEC);
	told_ns = status.told_ns;
	status.told_ns = 0; /* pass() does not move it on */
	pass(4 * NSEC_PER_SEC);
	status.told_ns = told_ns;
	follow_long_span_end(library);
	posted_run_all();
	assert_int_equal(library->span_end.mono_ns, told_ns);
}

/* CUPTI is refused, or does not start. Such a span says nothing about what the event costs. */
static void a_span_without_reports_is_no_span(void **state)
{
	(void)state;
	begin_spans();
	until_attached(true);
	status.library.state = PODFLAME_CUDA_REFUSED;
	status.told_ns = now_boot_ns();
	until_attached(false);
	assert_true(testpayers_tried(limit, EVENT_ON_GPU)->spans.n == 0);
	assert_in_range(until_attached(true), 20, 151);
}

/* A program begins to launch much in a span. */
static void a_stall_ends_a_span(void **state)
{
	const struct limit_hits storm = {100000, 10 * NSEC_PER_MSEC};
	double stall_ns = 0;

	(void)state;
	begin_spans();
	until_attached(true);
	cupti_starts();
	pass(NSEC_PER_SEC);
	assert_true(limit_stalled(limit, TEST_CGROUP, PROBES_GPU, &storm, &stall_ns));
	follow_long_span_end(library);
	posted_run_all();
	assert_false(is_attached());
	assert_true(until_attached(true) > 10);
}

static const char *told(void)
{
	return testreport_problem(report, REASON_ON_GPU_NOT_SEEN, NULL);
}

static void what_the_library_says_is_told(void **state)
{
	static const struct {
		struct podflame_cuda_status status;
		const char *problem;
	} cases[] = {
		{{.state = PODFLAME_CUDA_NO_CUPTI}, "found no libcupti that it can use"},
		{{.state = PODFLAME_CUDA_RUNNING}, NULL},
		{{.state = PODFLAME_CUDA_TOO_OLD, .cupti_version = 12},
		 "its libcupti (version 12) is older than CUDA 11"},
		{{.state = PODFLAME_CUDA_REFUSED, .code = 39}, "another profiler has CUPTI"},
		{{.state = PODFLAME_CUDA_REFUSED, .code = 38}, "CUPTI refuses (error 38)"},
		{{.state = PODFLAME_CUDA_FAILED, .code = 999}, "CUPTI failed (error 999)"},
		{{.state = 77}, "a state that this agent does not know (77)"},
		{{.state = PODFLAME_CUDA_IDLE}, NULL},
	};

	(void)state;
	pass(NSEC_PER_SEC);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		status.library = cases[i].status;
		status.told_ns = now_boot_ns();
		pass(NSEC_PER_SEC);
		pass(NSEC_PER_SEC);
		if (!cases[i].problem)
			assert_string_equal(told(), "");
		else if (!strstr(told(), cases[i].problem))
			fail_msg("%s: '%s'", cases[i].problem, told());
	}
}

static void a_library_that_is_silent_is_told(void **state)
{
	(void)state;
	status_result = -ENOENT;
	for (int i = 0; i < 4; i++)
		pass(NSEC_PER_SEC);
	assert_string_equal(told(), "");
	for (int i = 0; i < 4; i++)
		pass(NSEC_PER_SEC);
	assert_non_null(strstr(told(), "podflame's library in the process reports nothing"));
	status_result = 0;
	status.parcagpu = true; /* parcagpu's library reports no status */
	pass(NSEC_PER_SEC);
	pass(NSEC_PER_SEC);
	assert_string_equal(told(), "");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_span_takes_seconds_and_not_the_worker),
		T(a_span_is_the_time_in_which_launches_count),
		T(a_span_ends_with_the_last_report),
		T(a_span_without_reports_is_no_span),
		T(a_stall_ends_a_span),
		T(what_the_library_says_is_told),
		T(a_library_that_is_silent_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
