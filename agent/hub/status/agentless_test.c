/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes have no agent, and why. agentless_cases_test.c tests which pods targets select there.
 */
#include "hub/status/testagentless.h"

/* ---- agents ---- */

static void no_agent(const char *node)
{
	struct kube_watch *w = agents();
	_cleanup_free_ char *key = xasprintf("podflame-system/a-%s", node);

	w->ops.remove(key, NULL, w->arg);
}

/* ---- which nodes have no agent ---- */

static void test_an_agent_that_goes_and_comes_back(void **state)
{
	(void)state;
	start();
	add_working("n1");
	add_working("n2");
	pass(10);
	no_agent("n2");
	pass(89);
	assert_int_equal(n_changed, 0);
	assert_false(status_agentless_is(a, "n2"));
	pass(2);
	assert_int_equal(n_changed, 1);
	assert_string_equal(changed_node, "n2");
	assert_true(status_agentless_is(a, "n2"));
	assert_false(status_agentless_is(a, "n1"));
	assert_int_equal(counter_get(counter("nodes_without_agent", NULL, NULL)), 1);
	/* the agent's container runs, but it is not known yet whether the agent works */
	agent("n2", RUNNING, "");
	assert_true(status_agentless_is(a, "n2"));
	agent("n2", READY, "");
	assert_false(status_agentless_is(a, "n2"));
	assert_int_equal(n_changed, 2);
	assert_int_equal(counter_get(counter("nodes_without_agent", NULL, NULL)), 0);
	end();
}

/*
 * A new node, and an agent that is being rolled out, get some time before the node counts as one
 * without an agent.
 */
static void test_a_start_is_no_lack(void **state)
{
	(void)state;
	start();
	add_working("n1");
	agents();
	pass(1);
	add_node("n2", 0);
	pass(30);
	agent("n2", WAITING("ContainerCreating", ""), "");
	pass(40);
	agent("n2", RUNNING, "");
	status_agentless_report(a, "n2", true);
	agent("n2", READY, "");
	no_agent("n1");
	pass(60);
	agent("n1", READY, "");
	pass(300);
	assert_int_equal(n_changed, 0);
	end();
}

/*
 * An agent's pod is not ready because its node is unreachable or lacks CPU: the node still has an
 * agent, and its report counts.
 */
static void test_an_agent_that_is_not_ready_is_no_lack(void **state)
{
	(void)state;
	start();
	add_working("n1");
	agent("n1", STARTED, NOT_READY_SINCE("12:00:01"));
	/* a hub that starts finds n2 in this state */
	add_node("n2", 1000);
	status_agentless_report(a, "n2", true);
	agent("n2", STARTED, NOT_READY_SINCE("12:05:00"));
	add_node("n3", 1000);
	status_agentless_report(a, "n3", true);
	agent("n3", RUNNING, "");
	pass(300);
	assert_int_equal(n_changed, 0);
	end();
}

/* An agent never became ready. An earlier agent wrote the report, so the report stops counting. */
static void test_an_agent_that_never_was_ready(void **state)
{
	(void)state;
	start();
	add_node("n1", 1000);
	status_agentless_report(a, "n1", true);
	agent("n1", STARTED, NOT_READY_SINCE("11:59:50"));
	add_node("n2", 1000);
	status_agentless_report(a, "n2", true);
	agent("n2", STARTED, NOT_READY_SINCE("12:00:00"));
	add_working("n3");
	pass(1);
	assert_true(status_agentless_is(a, "n1"));
	assert_true(status_agentless_is(a, "n2"));
	/* the container of an agent that worked was restarted */
	agent("n3", STARTED, NOT_READY_SINCE("11:59:50"));
	pass(89);
	assert_false(status_agentless_is(a, "n3"));
	pass(2);
	assert_true(status_agentless_is(a, "n3"));
	agent("n3", READY, "");
	assert_false(status_agentless_is(a, "n3"));
	end();
}

/*
 * The agent's container is ready, but its pod is not: another container was injected, or the pod
 * has a readiness gate. The agent counts as working.
 */
static void test_an_agent_that_is_ready_in_a_pod_that_is_not(void **state)
{
	static const char mesh[] = "{\"name\": \"mesh\", \"ready\": false, \"state\": "
				   "{\"running\": {}}}, " READY;

	(void)state;
	start();
	add_node("n1", 1000);
	status_agentless_report(a, "n1", true);
	agent("n1", mesh, NOT_READY_SINCE("11:59:50"));
	pass(100);
	assert_false(status_agentless_is(a, "n1"));
	/* a ready agent counts though its pod is not ready, also on a node that lacked an agent */
	no_agent("n1");
	pass(100);
	assert_true(status_agentless_is(a, "n1"));
	agent("n1", mesh, NOT_READY_SINCE("11:59:50"));
	assert_false(status_agentless_is(a, "n1"));
	end();
}

/* The hub and its agents are rolled out at the same time. */
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
	status_agentless_report(a, "n1", true);
	agent("n1", container, NOT_READY_SINCE("12:00:00"));
	pass(58);
	assert_false(status_agentless_is(a, "n1"));
	pass(4);
	assert_true(status_agentless_is(a, "n1"));
	end();
}

static void test_an_agent_that_crashes_again_and_again(void **state)
{
	(void)state;
	start();
	add_working("n1");
	agent("n1", WAITING("CrashLoopBackOff", ""), "");
	for (int i = 0; i < 10; i++) {
		pass(20);
		agent("n1", RUNNING, "");
		pass(2);
		agent("n1", WAITING("CrashLoopBackOff", ""), "");
	}
	assert_true(status_agentless_is(a, "n1"));
	end();
}

static void test_no_report_is_a_lack_though_the_agent_runs(void **state)
{
	(void)state;
	start();
	add_working("n1");
	pass(1);
	status_agentless_report(a, "n1", false);
	pass(95);
	assert_true(status_agentless_is(a, "n1"));
	status_agentless_report(a, "n1", true);
	assert_false(status_agentless_is(a, "n1"));
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
	status_agentless_report(a, "n1", true);
	add_node("n2", 1000);
	pass(5);
	assert_int_equal(n_changed, 0);
	w->ops.state("HTTP 403: pods is forbidden", w->arg);
	pass(1);
	assert_false(status_agentless_is(a, "n1"));
	assert_true(status_agentless_is(a, "n2"));
	end();
}

/*
 * The hub has lost its right to watch pods. It does not use what it knew of the pods, and judges
 * nodes by their reports.
 */
static void test_a_watch_of_the_agents_pods_that_fails_later(void **state)
{
	struct kube_watch *w;

	(void)state;
	start();
	add_working("n1");
	add_working("dead");
	no_agent("dead");
	pass(100);
	assert_true(status_agentless_is(a, "dead"));
	w = agents();
	w->ops.state("HTTP 403: pods is forbidden", w->arg);
	pass(10);
	add_node("n2", 0);
	status_agentless_report(a, "n2", true);
	add_node("n3", 0);
	pass(300);
	assert_false(status_agentless_is(a, "n1"));
	assert_false(status_agentless_is(a, "n2"));
	assert_true(status_agentless_is(a, "n3"));
	/* the report of "dead" is the old agent's, until a new agent writes it */
	assert_true(status_agentless_is(a, "dead"));
	status_agentless_report(a, "dead", true);
	assert_false(status_agentless_is(a, "dead"));
	/* the watch works again: neither n2 nor dead has an agent's pod */
	w->ops.state(NULL, w->arg);
	pass(89);
	assert_false(status_agentless_is(a, "n2"));
	pass(2);
	assert_false(status_agentless_is(a, "n1"));
	assert_true(status_agentless_is(a, "n2"));
	assert_true(status_agentless_is(a, "dead"));
	end();
}

/*
 * When the hub starts, it reports an old node that lacks an agent at once. A node that was made
 * less than 90 s ago is reported only after these 90 s.
 */
static void test_a_hub_that_starts(void **state)
{
	(void)state;
	start();
	add_node("old", 1000);
	add_node("young", 50);
	agents();
	assert_false(status_agentless_settled(a, false));
	assert_false(status_agentless_settled(a, true));
	pass(1);
	assert_true(status_agentless_settled(a, true));
	assert_true(status_agentless_is(a, "old"));
	assert_false(status_agentless_is(a, "young"));
	pass(41);
	assert_true(status_agentless_is(a, "young"));
	end();
}

static void test_nothing_is_said_before_all_is_known(void **state)
{
	(void)state;
	start();
	add_node("n1", 1000);
	for (int i = 0; i < 200; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		status_agentless_tick(a, false);
	}
	assert_int_equal(n_changed, 0);
	status_agentless_report(a, "n1", true);
	agent("n1", READY, "");
	pass(200);
	assert_int_equal(n_changed, 0);
	end();
}

static void test_a_node_that_goes(void **state)
{
	(void)state;
	start();
	add_node("n1", 1000);
	agents();
	pass(1);
	assert_true(status_agentless_is(a, "n1"));
	status_agentless_node(a, "n1", NULL);
	assert_false(status_agentless_is(a, "n1"));
	assert_int_equal(counter_get(counter("nodes_without_agent", NULL, NULL)), 0);
	end();
}

/* ---- why a node has no agent ---- */

#define NODE(labels, taints)                                                                       \
	"{\"metadata\": {\"labels\": {" labels "}}, \"spec\": {\"taints\": [" taints "]}}"
#define LINUX(arch) "\"kubernetes.io/os\": \"linux\", \"kubernetes.io/arch\": \"" arch "\""
#define TAINT(key)  "{\"key\": \"" key "\", \"value\": \"v\", \"effect\": \"NoSchedule\"}"

static const struct {
	const char *node; /* the node as the API server shows it */
	/* the status of the agent's container on that node; NULL: it has no agent's pod */
	const char *container;
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
	 "agents run only on linux/amd64, and the node is linux/arm64"},
	{NODE("\"kubernetes.io/os\": \"windows\", \"kubernetes.io/arch\": \"amd64\"", ""), NULL,
	 NULL, "agents run only on linux/amd64, and the node is windows/amd64"},
	{NODE("\"eks.amazonaws.com/compute-type\": \"fargate\"", ""), NULL, NULL,
	 "the node is virtual, and no DaemonSet runs there"},
	{NODE("\"type\": \"virtual-kubelet\"", ""), NULL, NULL, "the node is virtual"},
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
		_cleanup_json_ json_t *e = NULL, *node = json_loads(causes[i].node, 0, NULL);
		const json_t *reason;

		start_with_pods(1);
		if (causes[i].container)
			agent("n1", causes[i].container, causes[i].condition);
		assert_non_null(node);
		status_agentless_node(a, "n1", node);
		pass(1);
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
	_cleanup_json_ json_t *e = NULL, *node = json_loads(node_text, 0, NULL);

	assert_non_null(node);
	status_agentless_node(a, "n1", node);
	pass(60);
	e = entry_of("n1");
	assert_string_equal(
		json_str_at(json_array_get(json_object_get(e, "reasons"), 0), "message", ""), want);
}

/*
 * While the hub cannot watch the agents' pods, it reports neither that there is no pod, nor what a
 * pod waited for.
 */
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
		   "agents run only on linux/amd64, and the node is linux/arm64");
	expect_why(NODE("\"type\": \"virtual-kubelet\"", ""),
		   "the node is virtual, and no DaemonSet runs there");
	agent("n1", "", "");
	w->ops.state(NULL, w->arg);
	expect_why(NODE("", ""), "the agent's pod does not run (Running)");
	w->ops.state("HTTP 403: pods is forbidden", w->arg);
	expect_why(NODE("", ""), not_known);
	end();
}

/* The affinity of a DaemonSet's pod names the node already before the pod is bound. */
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
	pass(1);
	e = entry_of("n1");
	assert_string_equal(
		json_str_at(json_array_get(json_object_get(e, "reasons"), 0), "message", ""),
		"the agent's pod does not run (Pending)");
	end();
}

/* The API server may return any JSON. */
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
		pass(100);
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
		cmocka_unit_test(test_why),
		cmocka_unit_test(test_why_where_the_agents_pods_are_not_known),
		cmocka_unit_test(test_a_pod_that_is_not_bound_yet),
		cmocka_unit_test(test_odd_agents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
