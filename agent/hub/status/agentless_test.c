/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes are without an agent, when they are looked at, and what is told where that fails. Watches and lists are
 * stood in for, and the clock is the test's. What targets select there: agentless_cases_test.c.
 */
#include "hub/status/agentless.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/kube/testwatches.h"

#define BEGAN_NS (1800000000 * NSEC_PER_SEC) /* of each test: only the test moves the clock on */

static struct agentless *a;
static unsigned n_changed, n_unseen, n_listed;
static char changed_node[64];
static json_t *node_object, *pod_object; /* every node that is looked at, and its pod; NULL: none */
static size_t left_out;			 /* of a list of pods */

static void on_changed(const char *node, void *arg)
{
	(void)arg;
	n_changed++;
	snprintf(changed_node, sizeof(changed_node), "%s", node);
}

static void on_unseen(void *arg)
{
	(void)arg;
	n_unseen++;
}

/* ---- the world ---- */

static void start(void)
{
	static const struct agentless_config c = {"podflame-system", true};
	static const struct agentless_ops ops = {on_changed, on_unseen};

	agentless_free(a); /* of a test that failed */
	test_clock.stands_ns = BEGAN_NS;
	n_changed = n_unseen = n_listed = 0;
	assert_int_equal(agentless_new(NULL, &c, &ops, NULL, &a), 0);
}

static void end(void)
{
	a = agentless_free(a);
	assert_null(find_watch("/"));
	json_decref(node_object);
	json_decref(pod_object);
	node_object = pod_object = NULL;
	left_out = 0;
}

/* The agents' pods are listed: only now an agent can be missed. */
static struct kube_watch *agents(void)
{
	struct kube_watch *w = watch_of("/namespaces/podflame-system/pods");

	assert_string_equal(w->label_selector,
			    "app.kubernetes.io/name=podflame,app.kubernetes.io/component=agent");
	w->synced = true;
	return w;
}

static char *age(unsigned s)
{
	char text[32];

	time_format(BEGAN_NS - s * NSEC_PER_SEC, text);
	return xstrdup(text);
}

static void add_node(const char *name, unsigned age_s)
{
	_cleanup_free_ char *created = age(age_s);
	_cleanup_json_ json_t *obj =
		json_pack("{s:{s:s, s:s}}", "metadata", "name", name, "creationTimestamp", created);

	agentless_node(a, name, obj);
}

#define RUNNING "{\"name\": \"agent\", \"state\": {\"running\": {}}}"
/* Agents that were started at 12:00; since when the pod is not ready. */
#define READY                                                                                      \
	"{\"name\": \"agent\", \"ready\": true, \"state\": {\"running\": {\"startedAt\": "         \
	"\"2020-01-21T12:00:00Z\"}}}"
#define STARTED                                                                                    \
	"{\"name\": \"agent\", \"state\": {\"running\": {\"startedAt\": "                          \
	"\"2020-01-21T12:00:00Z\"}}}"
#define NOT_READY_SINCE(time)                                                                      \
	"{\"type\": \"Ready\", \"status\": \"False\", \"lastTransitionTime\": \"2020-01-21T" time  \
	"Z\"}"
#define WAITING(reason, message)                                                                   \
	"{\"name\": \"agent\", \"state\": {\"waiting\": {\"reason\": \"" reason                    \
	"\", \"message\": \"" message "\"}}}"

/* container, condition: JSON or "" */
static void agent(const char *node, const char *container, const char *condition)
{
	struct kube_watch *w = agents();
	_cleanup_free_ char *created = age(1000);
	_cleanup_free_ char *text = xasprintf(
		"{\"metadata\": {\"name\": \"a\", \"creationTimestamp\": \"%s\"}, \"spec\": "
		"{\"nodeName\": \"%s\"}, \"status\": {\"phase\": \"Running\", "
		"\"conditions\": [%s], \"containerStatuses\": [%s]}}",
		created, node, condition, container);
	_cleanup_free_ char *key = xasprintf("podflame-system/a-%s", node);
	_cleanup_json_ json_t *pod = json_loads(text, 0, NULL);

	assert_non_null(pod);
	w->trim(pod);
	w->ops.upsert(key, pod, NULL, w->arg);
}

static void no_agent(const char *node)
{
	struct kube_watch *w = agents();
	_cleanup_free_ char *key = xasprintf("podflame-system/a-%s", node);

	w->ops.remove(key, NULL, w->arg);
}

/* A node whose agent works. */
static void add_working(const char *name)
{
	add_node(name, 1000);
	agentless_report(a, name, true);
	agent(name, READY, "");
}

/* What is listed now, of nodes that are looked at; NULL: nothing. */
static struct kube_watch *list_under_way(void)
{
	static const char *const paths[] = {"/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"};

	for (size_t i = 0; i < ARRAY_SIZE(watches); i++)
		for (size_t k = 0; k < ARRAY_SIZE(paths); k++)
			if (watches[i].used && streq(watches[i].path, paths[k]) &&
			    !watches[i].synced)
				return &watches[i];
	return NULL;
}

/* Lists are answered, the namespaces with nothing. fails: that path is refused. */
static void answer_list(struct kube_watch *w, const char *fails)
{
	n_listed++;
	assert_true(w->once);
	if (fails && streq(w->path, fails)) {
		w->ops.state("list: HTTP 403: forbidden", w->arg);
		return;
	}
	if (streq(w->path, "/api/v1/nodes")) {
		if (!node_object)
			node_object = json_object();
		keep(w, w->field_selector + strlen("metadata.name="), node_object);
	} else if (streq(w->path, "/api/v1/pods")) {
		keep(w, "app/p", pod_object);
		w->n_left_out = left_out;
	}
	w->synced = true;
	w->ops.synced(w->arg);
}

static void answer_lists(const char *fails)
{
	for (struct kube_watch *w; (w = list_under_way());)
		answer_list(w, fails);
}

static void pass(unsigned seconds, const char *fails)
{
	for (unsigned i = 0; i < seconds; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		agentless_tick(a, true);
		answer_lists(fails);
	}
}

/* ---- which nodes ---- */

static void test_an_agent_that_goes_and_comes_back(void **state)
{
	(void)state;
	start();
	add_working("n1");
	add_working("n2");
	pass(10, NULL);
	no_agent("n2");
	pass(89, NULL);
	assert_int_equal(n_changed, 0);
	assert_false(agentless_is(a, "n2"));
	pass(2, NULL);
	assert_int_equal(n_changed, 1);
	assert_string_equal(changed_node, "n2");
	assert_true(agentless_is(a, "n2"));
	assert_false(agentless_is(a, "n1"));
	assert_int_equal(counter_get(counter("nodes_without_agent", NULL, NULL)), 1);
	/* it runs: whether it will work is not known yet */
	agent("n2", RUNNING, "");
	assert_true(agentless_is(a, "n2"));
	agent("n2", READY, "");
	assert_false(agentless_is(a, "n2"));
	assert_int_equal(n_changed, 2);
	assert_int_equal(counter_get(counter("nodes_without_agent", NULL, NULL)), 0);
	end();
}

/* A node that joins, and an agent that is rolled out anew: both take their time. */
static void test_a_start_is_no_lack(void **state)
{
	(void)state;
	start();
	add_working("n1");
	agents();
	pass(1, NULL);
	add_node("n2", 0);
	pass(30, NULL);
	agent("n2", WAITING("ContainerCreating", ""), "");
	pass(40, NULL);
	agent("n2", RUNNING, "");
	agentless_report(a, "n2", true);
	agent("n2", READY, "");
	no_agent("n1");
	pass(60, NULL);
	agent("n1", READY, "");
	pass(300, NULL);
	assert_int_equal(n_changed, 0);
	assert_int_equal(n_listed, 0);
	end();
}

/* Out of reach, or without CPU to spare: what its report says still counts. */
static void test_an_agent_that_is_not_ready_is_no_lack(void **state)
{
	(void)state;
	start();
	add_working("n1");
	agent("n1", STARTED, NOT_READY_SINCE("12:00:01"));
	/* a hub that starts sees it first so */
	add_node("n2", 1000);
	agentless_report(a, "n2", true);
	agent("n2", STARTED, NOT_READY_SINCE("12:05:00"));
	add_node("n3", 1000);
	agentless_report(a, "n3", true);
	agent("n3", RUNNING, "");
	pass(300, NULL);
	assert_int_equal(n_changed, 0);
	end();
}

/* The report is of the agent before it, and counts no more after a while. */
static void test_an_agent_that_never_was_ready(void **state)
{
	(void)state;
	start();
	add_node("n1", 1000);
	agentless_report(a, "n1", true);
	agent("n1", STARTED, NOT_READY_SINCE("11:59:50"));
	add_node("n2", 1000);
	agentless_report(a, "n2", true);
	agent("n2", STARTED, NOT_READY_SINCE("12:00:00"));
	add_working("n3");
	pass(1, NULL);
	assert_true(agentless_is(a, "n1"));
	assert_true(agentless_is(a, "n2"));
	/* the container of one that worked was started anew */
	agent("n3", STARTED, NOT_READY_SINCE("11:59:50"));
	pass(89, NULL);
	assert_false(agentless_is(a, "n3"));
	pass(2, NULL);
	assert_true(agentless_is(a, "n3"));
	agent("n3", READY, "");
	assert_false(agentless_is(a, "n3"));
	end();
}

/* Its pod never is: another container was put into it, or a readiness gate. */
static void test_an_agent_that_is_ready_in_a_pod_that_is_not(void **state)
{
	static const char mesh[] = "{\"name\": \"mesh\", \"ready\": false, \"state\": "
				   "{\"running\": {}}}, " READY;

	(void)state;
	start();
	add_node("n1", 1000);
	agentless_report(a, "n1", true);
	agent("n1", mesh, NOT_READY_SINCE("11:59:50"));
	pass(100, NULL);
	assert_false(agentless_is(a, "n1"));
	/* as one that is rolled out, it takes over a node that lacked its agent */
	no_agent("n1");
	pass(100, NULL);
	assert_true(agentless_is(a, "n1"));
	agent("n1", mesh, NOT_READY_SINCE("11:59:50"));
	assert_false(agentless_is(a, "n1"));
	end();
}

/* A hub and its agents that are rolled out together. */
static void test_an_agent_that_was_just_started(void **state)
{
	_cleanup_free_ char *container = NULL, *started = NULL;

	(void)state;
	start();
	started = age(30);
	container = xasprintf(
		"{\"name\": \"agent\", \"state\": {\"running\": {\"startedAt\": \"%s\"}}}",
		started);
	add_node("n1", 1000);
	agentless_report(a, "n1", true);
	agent("n1", container, NOT_READY_SINCE("12:00:00"));
	pass(58, NULL);
	assert_false(agentless_is(a, "n1"));
	pass(4, NULL);
	assert_true(agentless_is(a, "n1"));
	end();
}

static void test_an_agent_that_crashes_again_and_again(void **state)
{
	(void)state;
	start();
	add_working("n1");
	agent("n1", WAITING("CrashLoopBackOff", ""), "");
	for (int i = 0; i < 10; i++) {
		pass(20, NULL);
		agent("n1", RUNNING, "");
		pass(2, NULL);
		agent("n1", WAITING("CrashLoopBackOff", ""), "");
	}
	assert_true(agentless_is(a, "n1"));
	end();
}

static void test_no_report_is_a_lack_though_the_agent_runs(void **state)
{
	(void)state;
	start();
	add_working("n1");
	pass(1, NULL);
	agentless_report(a, "n1", false);
	pass(95, NULL);
	assert_true(agentless_is(a, "n1"));
	agentless_report(a, "n1", true);
	assert_false(agentless_is(a, "n1"));
	end();
}

/* A hub that may not watch the agents' pods judges nodes by their reports alone. */
static void test_without_the_agents_pods_reports_decide(void **state)
{
	struct kube_watch *w;

	(void)state;
	start();
	w = watch_of("/namespaces/podflame-system/pods");
	add_node("n1", 1000);
	agentless_report(a, "n1", true);
	add_node("n2", 1000);
	pass(5, NULL);
	assert_int_equal(n_changed, 0);
	w->ops.state("HTTP 403: pods is forbidden", w->arg);
	pass(1, NULL);
	assert_false(agentless_is(a, "n1"));
	assert_true(agentless_is(a, "n2"));
	end();
}

/* Its Role was taken away: what it knew of the pods gets old, and nodes that change are judged by their reports. */
static void test_a_watch_of_the_agents_pods_that_fails_later(void **state)
{
	struct kube_watch *w;

	(void)state;
	start();
	add_working("n1");
	add_working("dead");
	no_agent("dead");
	pass(100, NULL);
	assert_true(agentless_is(a, "dead"));
	w = agents();
	w->ops.state("HTTP 403: pods is forbidden", w->arg);
	pass(10, NULL);
	add_node("n2", 0);
	agentless_report(a, "n2", true);
	add_node("n3", 0);
	pass(300, NULL);
	assert_false(agentless_is(a, "n1"));
	assert_false(agentless_is(a, "n2"));
	assert_true(agentless_is(a, "n3"));
	/* its report is the old agent's, until a new agent writes it */
	assert_true(agentless_is(a, "dead"));
	agentless_report(a, "dead", true);
	assert_false(agentless_is(a, "dead"));
	/* the watch works again: neither node has an agent's pod */
	w->ops.state(NULL, w->arg);
	pass(89, NULL);
	assert_false(agentless_is(a, "n2"));
	pass(2, NULL);
	assert_false(agentless_is(a, "n1"));
	assert_true(agentless_is(a, "n2"));
	assert_true(agentless_is(a, "dead"));
	end();
}

/* What was so for long is told at once by a hub that starts, and what is young is not. */
static void test_a_hub_that_starts(void **state)
{
	(void)state;
	start();
	add_node("old", 1000);
	add_node("young", 50);
	agents();
	assert_false(agentless_settled(a, false));
	assert_false(agentless_settled(a, true));
	pass(1, NULL);
	assert_true(agentless_settled(a, true));
	assert_true(agentless_is(a, "old"));
	assert_false(agentless_is(a, "young"));
	pass(41, NULL);
	assert_true(agentless_is(a, "young"));
	end();
}

static void test_nothing_is_said_before_all_is_known(void **state)
{
	(void)state;
	start();
	add_node("n1", 1000);
	for (int i = 0; i < 200; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		agentless_tick(a, false);
	}
	assert_null(list_under_way());
	agentless_report(a, "n1", true);
	agent("n1", READY, "");
	pass(200, NULL);
	assert_int_equal(n_changed, 0);
	end();
}

static void test_a_node_that_goes(void **state)
{
	(void)state;
	start();
	add_node("n1", 1000);
	agents();
	pass(1, NULL);
	assert_true(agentless_is(a, "n1"));
	agentless_node(a, "n1", NULL);
	assert_false(agentless_is(a, "n1"));
	/* and one that goes while it is looked at */
	add_node("n2", 1000);
	for (int i = 0; i < 95; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		agentless_tick(a, true);
	}
	assert_non_null(list_under_way());
	agentless_node(a, "n2", NULL);
	assert_null(list_under_way());
	end();
}

/* ---- looks ---- */

static void test_what_is_asked(void **state)
{
	static const struct {
		const char *path, *field_selector;
		bool metadata_only;
	} lists[] = {
		{"/api/v1/namespaces", "", true},
		{"/api/v1/nodes", "metadata.name=n1", false},
		{"/api/v1/pods", "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed",
		 true},
	};

	(void)state;
	start();
	add_node("n1", 1000);
	agents();
	agentless_tick(a, true);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		struct kube_watch *w = list_under_way();

		assert_non_null(w);
		assert_string_equal(w->path, lists[i].path);
		assert_string_equal(w->field_selector, lists[i].field_selector);
		assert_true(w->metadata_only == lists[i].metadata_only && w->once);
		node_object = node_object ? node_object : json_object();
		keep(w, "n1", i == 1 ? node_object : NULL);
		assert_false(agentless_is(a, "n1"));
		w->synced = true;
		w->ops.synced(w->arg);
	}
	assert_null(list_under_way());
	assert_true(agentless_is(a, "n1"));
	end();
}

/* 5,000 nodes, 50 of them without an agent. */
static void test_work_is_bounded(void **state)
{
	unsigned before = n_watches_made;

	(void)state;
	start();
	for (unsigned i = 0; i < 5000; i++) {
		_cleanup_free_ char *name = xasprintf("n%u", i);

		if (i % 100)
			add_working(name);
		else
			add_node(name, 1000);
	}
	pass(1, NULL);
	assert_int_equal(n_listed, 1 + 8 * 2);
	pass(9, NULL);
	assert_int_equal(n_listed, 1 + 50 * 2);
	assert_int_equal(n_changed, 50);
	/* no node more than once a minute, and not all at the same time */
	pass(600, NULL);
	assert_in_range(n_listed, 1 + 50 * 2 * 8, 11 + 50 * 2 * 11);
	assert_int_equal(n_watches_made - before, 1 + n_listed);
	end();
}

static json_t *entry_of(const char *node)
{
	_cleanup_json_ json_t *target =
		json_loads("{\"metadata\": {\"uid\": \"u\", \"namespace\": \"app\", "
			   "\"generation\": 3}, \"spec\": {\"podSelector\": {}}}",
			   0, NULL);

	return agentless_entry(a, node, target);
}

static int64_t matched_on(const char *node)
{
	_cleanup_json_ json_t *e = entry_of(node);

	return json_int_at(e, "podsMatched", 0);
}

/* Nodes n1 to nN without an agent, each with one pod. */
static void start_with_pods(unsigned n)
{
	start();
	pod_object = json_loads("{\"metadata\": {\"name\": \"p\", \"namespace\": \"app\", "
				"\"labels\": {\"a\": \"b\"}}}",
				0, NULL);
	for (unsigned i = 1; i <= n; i++) {
		_cleanup_free_ char *name = xasprintf("n%u", i);

		add_node(name, 1000);
	}
	agents();
}

static void test_a_refusal_is_told_and_what_was_known_stays(void **state)
{
	(void)state;
	start_with_pods(5);
	pass(1, "/api/v1/pods");
	assert_true(agentless_is(a, "n1"));
	assert_string_equal(agentless_unseen(a),
			    "not all pods of 5 nodes without an agent (n1, n2, n3, ...) are known: "
			    "list: HTTP 403: forbidden");
	assert_null(entry_of("n1"));
	pass(75, NULL);
	assert_null(agentless_unseen(a));
	assert_int_equal(matched_on("n5"), 1);
	/* once may be an API server that was away for a moment */
	pass(71, "/api/v1/pods");
	assert_null(agentless_unseen(a));
	assert_int_equal(matched_on("n5"), 1);
	pass(75, "/api/v1/pods");
	assert_non_null(agentless_unseen(a));
	pass(60, "/api/v1/pods");
	assert_non_null(strstr(agentless_unseen(a), "5 nodes"));
	assert_int_equal(matched_on("n5"), 1);
	pass(75, NULL);
	assert_null(agentless_unseen(a));
	end();
}

static void test_namespaces_that_do_not_fit_are_told(void **state)
{
	struct kube_watch *w;

	(void)state;
	start_with_pods(2);
	agentless_tick(a, true);
	w = list_under_way();
	assert_string_equal(w->path, "/api/v1/namespaces");
	w->n_left_out = 1;
	answer_list(w, NULL);
	assert_null(list_under_way());
	assert_null(entry_of("n1"));
	assert_string_equal(agentless_unseen(a),
			    "not all pods of 2 nodes without an agent (n1, n2) "
			    "are known: there is no room for all namespaces");
	pass(75, NULL);
	assert_null(agentless_unseen(a));
	end();
}

/* One question for all nodes, a minute. What each then costs all targets is spread over seconds. */
static void test_namespaces_that_are_refused(void **state)
{
	(void)state;
	start_with_pods(100);
	pass(1, "/api/v1/namespaces");
	assert_int_equal(n_unseen, 1);
	assert_non_null(strstr(agentless_unseen(a), "100 nodes"));
	assert_int_equal(counter_get(counter("nodes_without_agent", NULL, NULL)), 100);
	assert_true(agentless_is(a, "n100"));
	assert_false(agentless_settled(a, true));
	for (unsigned i = 0, before; i < 7; i++) {
		before = n_changed;
		pass(1, "/api/v1/namespaces");
		assert_in_range(n_changed - before, 1, 16);
	}
	assert_int_equal(n_changed, 100);
	assert_true(agentless_settled(a, true));
	pass(40, "/api/v1/namespaces");
	assert_int_equal(n_listed, 1);
	assert_int_equal(n_changed, 100);
	assert_int_equal(n_unseen, 1);
	pass(40, NULL);
	assert_null(agentless_unseen(a));
	assert_int_equal(matched_on("n100"), 1);
	end();
}

/* What hears of it writes every target. */
static void test_refusals_of_many_nodes_are_told_once(void **state)
{
	(void)state;
	start_with_pods(300);
	pass(300, "/api/v1/pods");
	assert_int_equal(n_changed, 300);
	assert_int_equal(n_unseen, 1);
	assert_non_null(strstr(agentless_unseen(a), "300 nodes"));
	/* and where the number changes, too */
	for (unsigned i = 0; i < 100; i++) {
		_cleanup_free_ char *name = xasprintf("m%u", i);

		add_node(name, 0);
		pass(3, "/api/v1/pods");
	}
	assert_in_range(n_unseen, 3, 1 + 300 / 60);
	pass(200, "/api/v1/pods");
	assert_non_null(strstr(agentless_unseen(a), "400 nodes"));
	end();
}

/* Those that only wait for their look are not said to be unknown for longer than that. */
static void test_a_refusal_of_one_of_many_nodes(void **state)
{
	(void)state;
	start_with_pods(20);
	agentless_tick(a, true);
	for (unsigned i = 0; i < 3; i++)
		answer_list(list_under_way(), "/api/v1/pods");
	pass(3, NULL);
	assert_int_equal(n_unseen, 2);
	assert_string_equal(agentless_unseen(a),
			    "not all pods of 1 node without an agent (n1) are known: "
			    "list: HTTP 403: forbidden");
	end();
}

/* More nodes than are looked at until a hub that starts writes what it knows. */
static void test_nodes_that_are_not_looked_at_yet_are_told(void **state)
{
	(void)state;
	start_with_pods(100);
	pass(9, NULL);
	assert_null(agentless_unseen(a));
	assert_false(agentless_settled(a, true));
	agentless_hurry(a);
	assert_string_equal(agentless_unseen(a),
			    "not all pods of 28 nodes without an agent (n73, n74, n75, ...) are "
			    "known: they have not been looked at yet");
	pass(3, NULL);
	assert_int_equal(n_unseen, 1);
	pass(1, NULL);
	assert_int_equal(n_unseen, 2);
	assert_null(agentless_unseen(a));
	assert_true(agentless_settled(a, true));
	/* from then on a turn that is waited for is nothing to tell of */
	agentless_node(a, "n1", NULL);
	agentless_node(a, "n2", NULL);
	add_node("n1", 0);
	add_node("n2", 0);
	for (unsigned i = 0; i < 95; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		agentless_tick(a, true);
		for (struct kube_watch *w; i != 90 && (w = list_under_way());)
			answer_list(w, NULL);
	}
	assert_true(agentless_is(a, "n1") && agentless_is(a, "n2"));
	assert_int_equal(n_unseen, 2);
	end();
}

static void test_nodes_that_wait_for_a_list_are_told(void **state)
{
	(void)state;
	start_with_pods(2);
	for (int i = 0; i < 10; i++) {
		assert_null(agentless_unseen(a));
		agentless_tick(a, true);
		test_clock.stands_ns += NSEC_PER_SEC;
	}
	agentless_tick(a, true);
	assert_string_equal(agentless_unseen(a),
			    "not all pods of 2 nodes without an agent (n1, n2) are "
			    "known: they have not been looked at yet");
	answer_lists(NULL);
	assert_null(agentless_unseen(a));
	end();
}

static void test_a_hub_that_does_not_know_the_nodes_yet(void **state)
{
	(void)state;
	start();
	add_node("n1", 1000);
	agentless_tick(a, true); /* the agents' pods are not listed */
	assert_null(agentless_unseen(a));
	agentless_hurry(a);
	assert_string_equal(agentless_unseen(a), "which nodes have no agent is not known yet");
	agents();
	pass(1, NULL);
	assert_null(agentless_unseen(a));
	assert_true(agentless_is(a, "n1"));
	end();
}

static void test_pods_that_do_not_fit_are_told(void **state)
{
	(void)state;
	start_with_pods(1);
	left_out = 7;
	pass(1, NULL);
	assert_int_equal(matched_on("n1"), 1);
	assert_string_equal(agentless_unseen(a),
			    "not all pods of 1 node without an agent (n1) are known: 7 of them "
			    "could not be read, or do not fit into 128 MiB");
	end();
}

static void test_pods_of_all_nodes_have_a_limit(void **state)
{
	_cleanup_free_ char *large = xmalloc((100 << 20) + 1);

	(void)state;
	start_with_pods(3);
	memset(large, 'x', 100 << 20);
	large[100 << 20] = '\0';
	json_object_set_new(json_object_get(json_object_get(pod_object, "metadata"), "labels"), "l",
			    json_stringn_nocheck(large, 100 << 20));
	agentless_tick(a, true);
	for (struct kube_watch *w; (w = list_under_way());) {
		if (streq(w->path, "/api/v1/pods") && matched_on("n1"))
			assert_in_range(w->max_bytes, 27 << 20, 28 << 20);
		else if (streq(w->path, "/api/v1/pods"))
			assert_int_equal(w->max_bytes, 128 << 20);
		answer_list(w, NULL);
	}
	/* the third is not even asked about */
	assert_int_equal(n_listed, 1 + 2 * 2);
	assert_non_null(strstr(agentless_unseen(a), "(n3)"));
	assert_non_null(strstr(agentless_unseen(a), "no room"));
	end();
}

static void test_an_answer_that_never_comes(void **state)
{
	(void)state;
	start_with_pods(1);
	for (int i = 0; i < 119; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		agentless_tick(a, true);
	}
	assert_false(agentless_is(a, "n1"));
	test_clock.stands_ns += 3 * NSEC_PER_SEC;
	agentless_tick(a, true);
	assert_true(agentless_is(a, "n1"));
	assert_non_null(strstr(agentless_unseen(a), "takes too long"));
	pass(75, NULL);
	assert_null(agentless_unseen(a));
	end();
}

/* ---- why ---- */

#define NODE(labels, taints)                                                                       \
	"{\"metadata\": {\"labels\": {" labels "}}, \"spec\": {\"taints\": [" taints "]}}"
#define LINUX(arch) "\"kubernetes.io/os\": \"linux\", \"kubernetes.io/arch\": \"" arch "\""
#define TAINT(key)  "{\"key\": \"" key "\", \"value\": \"v\", \"effect\": \"NoSchedule\"}"

static const struct {
	const char *node;      /* as listed */
	const char *container; /* of the agent there; NULL: there is none */
	const char *condition;
	const char *why;
} causes[] = {
	{NODE(LINUX("amd64"), ""), NULL, NULL,
	 "the DaemonSet podflame-agent has no pod there (taints: none); usual reasons: its "
	 "nodeSelector or affinity, a taint that it does not tolerate, a quota or policy that "
	 "refuses "
	 "its pods"},
	{NODE(LINUX("amd64"), TAINT("gpu") ", {\"key\": \"node.kubernetes.io/unreachable\", "
					   "\"effect\": \"NoExecute\"}"),
	 NULL, NULL, "(taints: gpu=v:NoSchedule, node.kubernetes.io/unreachable:NoExecute); usual"},
	{NODE("", TAINT("a") "," TAINT("b") "," TAINT("c") "," TAINT("d") "," TAINT("e")), NULL,
	 NULL, "(taints: a=v:NoSchedule, b=v:NoSchedule, c=v:NoSchedule and 2 more)"},
	{NODE(LINUX("arm64"), ""), NULL, NULL,
	 "agents run on linux/amd64 alone, and it is linux/arm64"},
	{NODE("\"kubernetes.io/os\": \"windows\", \"kubernetes.io/arch\": \"amd64\"", ""), NULL,
	 NULL, "agents run on linux/amd64 alone, and it is windows/amd64"},
	{NODE("\"eks.amazonaws.com/compute-type\": \"fargate\"", ""), NULL, NULL,
	 "it is a virtual node, and no DaemonSet runs there"},
	{NODE("\"type\": \"virtual-kubelet\"", ""), NULL, NULL, "it is a virtual node"},
	{"{\"metadata\": 3, \"spec\": {\"taints\": \"x\"}}", NULL, NULL, "has no pod there"},
	{NODE("", ""), WAITING("ImagePullBackOff", "Back-off pulling image \\\"x:1\\\""), "",
	 "the agent's pod waits: ImagePullBackOff: Back-off pulling image \"x:1\""},
	{NODE("", ""), WAITING("ContainerCreating", ""), "",
	 "the agent's pod waits: ContainerCreating"},
	{NODE("", ""),
	 "{\"name\": \"mesh\", \"state\": {\"running\": {}}}, {\"name\": \"agent\", \"state\": "
	 "{\"waiting\": {\"reason\": \"CrashLoopBackOff\", \"message\": \"back-off 10s\"}}, "
	 "\"lastState\": {\"terminated\": {\"reason\": \"OOMKilled\", \"exitCode\": 137}}}",
	 "", "the agent's pod ends again and again (OOMKilled, exit code 137): see its log"},
	{NODE("", ""), "",
	 "{\"type\": \"PodScheduled\", \"status\": \"False\", \"reason\": \"Unschedulable\", "
	 "\"message\": \"0/2 nodes are available: 1 Insufficient memory.\"}",
	 "the agent's pod is not scheduled: Unschedulable: 0/2 nodes are available: 1 Insufficient "
	 "memory."},
	{NODE("", ""), "", "", "the agent's pod does not run (Running)"},
	{NODE("", ""), READY, "", "the agent there is ready, and has written no report"},
	{NODE("", ""), RUNNING, "", "the agent there runs and is not ready"},
};

static void test_why(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++) {
		_cleanup_json_ json_t *e = NULL;
		const json_t *reason;

		start_with_pods(1);
		if (causes[i].container)
			agent("n1", causes[i].container, causes[i].condition);
		node_object = json_loads(causes[i].node, 0, NULL);
		assert_non_null(node_object);
		pass(1, NULL);
		e = entry_of("n1");
		assert_true(json_bool_at(e, "withoutAgent", false));
		assert_int_equal(json_int_at(e, "generation", 0), 3);
		reason = json_array_get(json_object_get(e, "reasons"), 0);
		assert_string_equal(json_str_at(reason, "reason", ""), "NodeWithoutAgent");
		assert_int_equal(json_int_at(reason, "pods", 0), 1);
		if (!strstr(json_str_at(reason, "message", ""), causes[i].why))
			fail_msg("cause %zu: \"%s\"", i, json_str_at(reason, "message", ""));
		end();
	}
}

static void expect_why(const char *node_text, const char *want)
{
	_cleanup_json_ json_t *e = NULL;

	json_decref(node_object);
	node_object = json_loads(node_text, 0, NULL);
	assert_non_null(node_object);
	pass(75, NULL);
	e = entry_of("n1");
	assert_string_equal(
		json_str_at(json_array_get(json_object_get(e, "reasons"), 0), "message", ""), want);
}

/* Then it cannot say either that there is none, or go on saying what one did. */
static void test_why_where_the_agents_pods_are_not_known(void **state)
{
	static const char not_known[] = "the node has no report, or only an old one, and the hub "
					"cannot watch the agents' pods: see the hub's log";
	struct kube_watch *w;

	(void)state;
	start_with_pods(1);
	w = agents();
	w->synced = false;
	w->ops.state("HTTP 403: pods is forbidden", w->arg);
	expect_why(NODE(LINUX("amd64"), TAINT("gpu")), not_known);
	expect_why(NODE(LINUX("arm64"), ""),
		   "agents run on linux/amd64 alone, and it is linux/arm64");
	expect_why(NODE("\"type\": \"virtual-kubelet\"", ""),
		   "it is a virtual node, and no DaemonSet runs there");
	agent("n1", "", "");
	w->ops.state(NULL, w->arg);
	expect_why(NODE("", ""), "the agent's pod does not run (Running)");
	w->ops.state("HTTP 403: pods is forbidden", w->arg);
	expect_why(NODE("", ""), not_known);
	end();
}

/* Before a DaemonSet's pod is bound to its node its affinity says which that is. */
static void test_a_pod_that_is_not_bound_yet(void **state)
{
	_cleanup_json_ json_t
		*e = NULL,
		*pod = json_loads(
			"{\"metadata\": {\"name\": \"a\"}, \"spec\": {\"affinity\": "
			"{\"nodeAffinity\": "
			"{\"requiredDuringSchedulingIgnoredDuringExecution\": "
			"{\"nodeSelectorTerms\": "
			"[{\"matchFields\": [{\"key\": \"metadata.name\", \"operator\": \"In\", "
			"\"values\": [\"n1\"]}]}]}}}}, \"status\": {\"phase\": \"Pending\"}}",
			0, NULL);
	struct kube_watch *w;

	(void)state;
	start_with_pods(1);
	w = agents();
	w->trim(pod);
	w->ops.upsert("podflame-system/a", pod, NULL, w->arg);
	pass(1, NULL);
	e = entry_of("n1");
	assert_string_equal(
		json_str_at(json_array_get(json_object_get(e, "reasons"), 0), "message", ""),
		"the agent's pod does not run (Pending)");
	end();
}

/* What comes from the API server may be anything. */
static void test_odd_agents(void **state)
{
	static const char *const odd[] = {
		"{}", "{\"metadata\": 1, \"spec\": 2, \"status\": 3}",
		"{\"spec\": {\"nodeName\": \"n1\"}, \"status\": {\"conditions\": [null, 1], "
		"\"containerStatuses\": [[], {\"state\": 1}]}}",
		"{\"spec\": {\"affinity\": {\"nodeAffinity\": []}}}"};
	struct kube_watch *w;

	(void)state;
	start();
	add_working("n1");
	w = agents();
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		_cleanup_json_ json_t *pod = json_loads(odd[i], 0, NULL);

		w->trim(pod);
		w->ops.upsert("podflame-system/odd", pod, NULL, w->arg);
		pass(100, NULL);
	}
	w->ops.remove("podflame-system/odd", NULL, w->arg);
	w->ops.remove("podflame-system/never", NULL, w->arg);
	assert_int_equal(n_changed, 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_agent_that_goes_and_comes_back),
		cmocka_unit_test(test_a_start_is_no_lack),
		cmocka_unit_test(test_an_agent_that_is_not_ready_is_no_lack),
		cmocka_unit_test(test_an_agent_that_never_was_ready),
		cmocka_unit_test(test_an_agent_that_is_ready_in_a_pod_that_is_not),
		cmocka_unit_test(test_an_agent_that_was_just_started),
		cmocka_unit_test(test_an_agent_that_crashes_again_and_again),
		cmocka_unit_test(test_no_report_is_a_lack_though_the_agent_runs),
		cmocka_unit_test(test_without_the_agents_pods_reports_decide),
		cmocka_unit_test(test_a_watch_of_the_agents_pods_that_fails_later),
		cmocka_unit_test(test_a_hub_that_starts),
		cmocka_unit_test(test_nothing_is_said_before_all_is_known),
		cmocka_unit_test(test_a_node_that_goes),
		cmocka_unit_test(test_what_is_asked),
		cmocka_unit_test(test_work_is_bounded),
		cmocka_unit_test(test_a_refusal_is_told_and_what_was_known_stays),
		cmocka_unit_test(test_namespaces_that_do_not_fit_are_told),
		cmocka_unit_test(test_namespaces_that_are_refused),
		cmocka_unit_test(test_refusals_of_many_nodes_are_told_once),
		cmocka_unit_test(test_a_refusal_of_one_of_many_nodes),
		cmocka_unit_test(test_nodes_that_are_not_looked_at_yet_are_told),
		cmocka_unit_test(test_nodes_that_wait_for_a_list_are_told),
		cmocka_unit_test(test_a_hub_that_does_not_know_the_nodes_yet),
		cmocka_unit_test(test_pods_that_do_not_fit_are_told),
		cmocka_unit_test(test_pods_of_all_nodes_have_a_limit),
		cmocka_unit_test(test_an_answer_that_never_comes),
		cmocka_unit_test(test_why),
		cmocka_unit_test(test_why_where_the_agents_pods_are_not_known),
		cmocka_unit_test(test_a_pod_that_is_not_bound_yet),
		cmocka_unit_test(test_odd_agents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
