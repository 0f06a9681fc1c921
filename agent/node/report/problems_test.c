/* SPDX-License-Identifier: Apache-2.0 */
/* What the report tells targets about the problems of several containers. */
#include "node/report/problems.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

/*
 * Stands in for plan/owners.c and report.c: each container has the targets that its id names,
 * "uids".
 */
static char *message;
static unsigned n_messages, n_removed, n_pods_told;

void plan_targets_of(const struct plan *plan, const char *container_id, const char *pod_uid,
		     void (*fn)(const char *uid, void *arg), void *arg)
{
	(void)plan;
	(void)container_id;
	(void)pod_uid;
	fn("target", arg);
}

void report_problem(struct report *r, const char *target_uid, enum reason reason, const char *text,
		    unsigned n_pods)
{
	(void)r;
	assert_string_equal(target_uid, "target");
	assert_int_equal(reason, REASON_OVER_BUDGET);
	if (!*text) {
		n_removed++;
		return;
	}
	assert_true(strlen(text) <= 1024);
	free(message);
	message = xstrdup(text);
	n_pods_told = n_pods;
	n_messages++;
}

static struct problem_list before;
static char report; /* stands for a struct report */

static void add(struct problem_list *l, const char *container, const char *pod,
		const struct problem *what)
{
	_cleanup_free_ char *id = xasprintf("%s-%s", pod, container);
	struct tag tags[] = {{(char *)"pod", (char *)pod},
			     {(char *)"container", (char *)container}};
	struct owner o = {
		.tags = {tags, ARRAY_SIZE(tags)}, .container_id = id, .pod_uid = (char *)pod};

	report_problems_add(l, NULL, &o, what);
}

static void tell(struct problem_list *now)
{
	n_messages = n_removed = 0;
	report_problems_tell(&before, now, (struct report *)&report, REASON_OVER_BUDGET);
	assert_int_equal(now->n, 0);
}

static const struct problem off = {"mem-alloc", "is off", "900 hits a second"};

static void one_container(void **state)
{
	struct problem_list now = {0};

	(void)state;
	add(&now, "app", "web-1", &off);
	add(&now, "app", "web-1", &off); /* another process */
	tell(&now);
	assert_string_equal(message,
			    "mem-alloc of container app of pod web-1 is off (900 hits a second)");
	assert_int_equal(n_messages, 1);
	assert_int_equal(n_pods_told, 1);
	assert_int_equal(n_removed, 0);
}

/* Neither the second nor the ninth problem is silent. */
static void several_containers(void **state)
{
	static const struct problem inuse = {"mem-inuse", "is off", NULL};
	struct problem_list now = {0};

	(void)state;
	add(&now, "app", "web-1", &off);
	add(&now, "log", "web-1", &off);
	tell(&now);
	assert_string_equal(message, "mem-alloc of 2 containers (app of pod web-1, log of pod "
				     "web-1) is off (app of pod web-1: 900 hits a second)");
	assert_int_equal(n_pods_told, 1);
	for (int i = 0; i < 9; i++) {
		_cleanup_free_ char *pod = xasprintf("web-%d", i);

		add(&now, "app", pod, &off);
	}
	add(&now, "db", "db-0", &inuse);
	tell(&now);
	assert_string_equal(message, "mem-alloc of 9 containers (app of pod web-0, app of pod "
				     "web-1, app of pod web-2 and 6 more) is off (app of pod "
				     "web-0: 900 hits a second); mem-inuse of container db of pod "
				     "db-0 is off");
	assert_int_equal(n_pods_told, 10);
	assert_int_equal(n_messages, 1);
}

static void what_is_no_event(void **state)
{
	static const struct problem what = {.problem = "libjvm.so has no .symtab",
					    .detail = "process 7"};
	struct problem_list now = {0};

	(void)state;
	add(&now, "app", "web-1", &what);
	tell(&now);
	assert_string_equal(message,
			    "container app of pod web-1: libjvm.so has no .symtab (process 7)");
	add(&now, "app", "web-1", &what);
	add(&now, "app", "web-2", &what);
	tell(&now);
	assert_string_equal(message, "2 containers (app of pod web-1, app of pod web-2): "
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
	tell(&now);
	assert_non_null(strstr(message, "xxx...; and 19 more"));
}

static void what_is_over_is_taken_back(void **state)
{
	struct problem_list now = {0};

	(void)state;
	add(&now, "app", "web-1", &off);
	tell(&now);
	tell(&now); /* nothing any more */
	assert_int_equal(n_messages, 0);
	assert_int_equal(n_removed, 1);
	tell(&now);
	assert_int_equal(n_removed, 0);
}

static int done(void **state)
{
	(void)state;
	report_problems_done(&before);
	return 0;
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, done)
	const struct CMUnitTest tests[] = {
		T(one_container),
		T(several_containers),
		T(what_is_no_event),
		T(what_does_not_fit_is_counted),
		T(what_is_over_is_taken_back),
	};
	int r = cmocka_run_group_tests(tests, NULL, NULL);

	free(message);
	return r;
}
