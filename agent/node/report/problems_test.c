/* SPDX-License-Identifier: Apache-2.0 */
/* What the report contains for targets about the problems of several containers. */
#include "node/report/problems.h"
#include "node/report/testreport.h"

static struct report *report;
static struct problem_list before;

static void add(struct problem_list *l, const char *container, const char *pod,
		const struct problem *what)
{
	_cleanup_free_ char *id = xasprintf("%s-%s", pod, container);
	struct tag tags[] = {{(char *)"pod", (char *)pod},
			     {(char *)"container", (char *)container}};
	struct owner o = {
		.tags = {tags, ARRAY_SIZE(tags)}, .container_id = id, .pod_uid = (char *)pod};

	struct plan *plan = testplan(pod, pod, id, false);

	report_problems_add(l, plan, &o, what);
	plan_free(plan);
}

/* Reports the problems. Returns the message in the target's condition. */
static const char *tell(struct problem_list *now, unsigned *ret_pods)
{
	const char *text;

	report_problems_tell(&before, now, report, REASON_OVER_BUDGET);
	assert_int_equal(now->n, 0);
	text = testreport_problem(report, REASON_OVER_BUDGET, ret_pods);
	assert_true(strlen(text) <= 1024);
	return text;
}

static const struct problem off = {"mem-alloc", "is off", "900 hits a second"};

static void one_container(void **state)
{
	struct problem_list now = {0};
	unsigned n_pods = 0;

	(void)state;
	add(&now, "app", "web-1", &off);
	add(&now, "app", "web-1", &off); /* another process of the same container */
	assert_string_equal(tell(&now, &n_pods),
			    "mem-alloc of container app of pod web-1 is off (900 hits a second)");
	assert_int_equal(n_pods, 1);
}

/* All problems are mentioned, also the second and the ninth. */
static void several_containers(void **state)
{
	static const struct problem inuse = {"mem-inuse", "is off", NULL};
	struct problem_list now = {0};
	unsigned n_pods = 0;

	(void)state;
	add(&now, "app", "web-1", &off);
	add(&now, "log", "web-1", &off);
	assert_string_equal(tell(&now, &n_pods),
			    "mem-alloc of 2 containers (app of pod web-1, log of pod "
			    "web-1) is off (app of pod web-1: 900 hits a second)");
	assert_int_equal(n_pods, 1);
	for (int i = 0; i < 9; i++) {
		_cleanup_free_ char *pod = xasprintf("web-%d", i);

		add(&now, "app", pod, &off);
	}
	add(&now, "db", "db-0", &inuse);
	assert_string_equal(tell(&now, &n_pods),
			    "mem-alloc of 9 containers (app of pod web-0, app of pod "
			    "web-1, app of pod web-2 and 6 more) is off (app of pod "
			    "web-0: 900 hits a second); mem-inuse of container db of pod "
			    "db-0 is off");
	assert_int_equal(n_pods, 10);
}

static void what_is_no_event(void **state)
{
	static const struct problem what = {.problem = "libjvm.so has no .symtab",
					    .detail = "process 7"};
	struct problem_list now = {0};

	(void)state;
	add(&now, "app", "web-1", &what);
	assert_string_equal(tell(&now, NULL),
			    "container app of pod web-1: libjvm.so has no .symtab (process 7)");
	add(&now, "app", "web-1", &what);
	add(&now, "app", "web-2", &what);
	assert_string_equal(tell(&now, NULL),
			    "2 containers (app of pod web-1, app of pod web-2): "
			    "libjvm.so has no .symtab (app of pod web-1: process 7)");
}

static void what_does_not_fit_is_counted(void **state)
{
	char pod[254], container[64], problem[400];
	struct problem what = {"mem-alloc", problem, problem};
	struct problem_list now = {0};

	(void)state;
	memset(problem, 'x', sizeof(problem) - 1);
	problem[sizeof(problem) - 1] = 0;
	memset(pod, 'p', sizeof(pod) - 1);
	pod[sizeof(pod) - 1] = 0;
	memset(container, 'c', sizeof(container) - 1);
	container[sizeof(container) - 1] = 0;
	for (int i = 0; i < 20; i++) {
		problem[0] = (char)('a' + i);
		add(&now, container, pod, &what);
		pod[0] = (char)('a' + i);
		add(&now, container, pod, &what);
	}
	assert_non_null(strstr(tell(&now, NULL), "xxx...; and 19 more"));
}

static void what_is_over_is_taken_back(void **state)
{
	struct problem_list now = {0};

	(void)state;
	add(&now, "app", "web-1", &off);
	assert_string_not_equal(tell(&now, NULL), "");
	assert_string_equal(tell(&now, NULL), ""); /* the problem is over */
	report_problem(report, "t1", REASON_OVER_BUDGET, "of another module", 1);
	/* the problem was removed once; after that, the problem of another module stays */
	assert_string_equal(tell(&now, NULL), "of another module");
}

static int set_up(void **state)
{
	(void)state;
	report = testreport();
	return 0;
}

static int done(void **state)
{
	(void)state;
	report_problems_done(&before);
	report_free(report);
	return 0;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, done)
	const struct CMUnitTest tests[] = {
		T(one_container),
		T(several_containers),
		T(what_is_no_event),
		T(what_does_not_fit_is_counted),
		T(what_is_over_is_taken_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
