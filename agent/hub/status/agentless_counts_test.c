/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the hub counts the pods of nodes without an agent, and what it tells while it does not know
 * all of them.
 */
#include "hub/status/testagentless.h"

static int64_t matched_on(const char *node)
{
	_cleanup_json_ json_t *e = entry_of(node);

	return json_int_at(e, "podsMatched", 0);
}

static void fail_watch(const char *path, const char *error)
{
	struct kube_watch *w = watch_of(path);

	w->ops.state(error, w->arg);
}

static void expect_unseen(const char *want)
{
	const char *text = status_agentless_unseen(a);

	if (want)
		assert_string_equal(text ?: "", want);
	else
		assert_null(text);
}

/* ---- counts ---- */

/* Pods that come and go on a node without an agent cause at most one change a minute. */
static void test_pods_are_counted_once_a_minute(void **state)
{
	struct kube_watch *w;
	const json_t *gone;

	(void)state;
	start_with_pods(1);
	pass(1);
	assert_int_equal(n_changed, 1);
	assert_int_equal(matched_on("n1"), 1);
	w = watch_of("/api/v1/pods");
	gone = w->items[0].obj;
	keep(w, "app/p-n1", NULL);
	w->ops.remove("app/p-n1", gone, w->arg);
	pass(59);
	assert_int_equal(n_changed, 1);
	pass(1);
	assert_int_equal(n_changed, 2);
	assert_int_equal(matched_on("n1"), 0);
	end();
}

/* The counts of many nodes do not block the hub: each tick has a time, and all get their turn. */
static void test_work_is_bounded(void **state)
{
	(void)state;
	start_with_pods(50);
	change_takes_ns = 10 * NSEC_PER_MSEC;
	pass(1);
	assert_int_equal(n_changed, 5);
	assert_true(status_agentless_is(a, "n5"));
	assert_false(status_agentless_is(a, "n6"));
	assert_false(status_agentless_settled(a, true));
	pass(9);
	assert_int_equal(n_changed, 50);
	assert_true(status_agentless_settled(a, true));
	expect_unseen(NULL);
	/* the first nodes are due again before the last ones are counted, and wait for these */
	test_clock.stands_ns += 60 * NSEC_PER_SEC;
	change_takes_ns = 2 * NSEC_PER_SEC;
	pass(50);
	assert_int_equal(n_changed, 100);
	assert_string_equal(changed_node, "n50");
	end();
}

/* ---- what is not known ---- */

static void test_a_list_that_fails_is_told_at_once(void **state)
{
	(void)state;
	start_with_pods(5);
	watch_of("/api/v1/pods")->synced = false;
	fail_watch("/api/v1/pods", "HTTP 403: pods is forbidden");
	pass(1);
	assert_true(status_agentless_is(a, "n1")); /* a report that was left there must not count */
	expect_unseen("not all pods of 5 nodes without an agent (n1, n2, n3, ...) are known: "
		      "the pods cannot be watched: HTTP 403: pods is forbidden");
	assert_int_equal(n_unseen, 1);
	/* once the pods are known, they are counted at once */
	watch_of("/api/v1/pods")->synced = true;
	fail_watch("/api/v1/pods", NULL);
	n_changed = 0;
	pass(1);
	assert_int_equal(n_changed, 5);
	expect_unseen(NULL);
	assert_int_equal(n_unseen, 2);
	end();
}

/* What was known stays. A short failure is not told: the API server may be away for a moment. */
static void test_a_watch_that_fails_is_told_after_a_minute(void **state)
{
	static const char *const paths[] = {"/api/v1/pods", "/api/v1/namespaces"};
	static const char *const told[] = {
		"not all pods of 1 node without an agent (n1) are known: the pods cannot be "
		"watched: connection refused",
		"not all pods of 1 node without an agent (n1) are known: the namespaces cannot be "
		"watched: connection refused"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		start_with_pods(1);
		pass(1);
		fail_watch(paths[i], "connection refused");
		pass(59);
		expect_unseen(NULL);
		pass(1);
		expect_unseen(told[i]);
		pass(60);
		expect_unseen(told[i]);
		assert_int_equal(n_unseen, 1);
		assert_int_equal(matched_on("n1"), 1);
		fail_watch(paths[i], NULL);
		pass(1);
		expect_unseen(NULL);
		end();
	}
}

static void test_pods_that_are_left_out_are_told(void **state)
{
	(void)state;
	start_with_pods(1);
	watch_of("/api/v1/pods")->n_left_out = 7;
	pass(1);
	assert_int_equal(matched_on("n1"), 1);
	expect_unseen("not all pods of 1 node without an agent (n1) are known: 7 or more pods "
		      "could not be read, or are too many");
	watch_of("/api/v1/pods")->n_left_out = 0;
	watch_of("/api/v1/namespaces")->n_left_out = 1;
	pass(60);
	expect_unseen("not all pods of 1 node without an agent (n1) are known: 1 or more "
		      "namespaces could not be read, or are too many");
	end();
}

/* Where each node has an agent, a failure of the watch makes no count wrong. */
static void test_nothing_is_told_if_each_node_has_an_agent(void **state)
{
	(void)state;
	start();
	add_working("n1");
	watch_of("/api/v1/pods")->n_left_out = 7;
	pass(100);
	expect_unseen(NULL);
	end();
}

/*
 * A call of ops.unseen causes a write of every target, so a number of nodes that changes must not
 * cause many calls.
 */
static void test_a_text_that_changes_is_told_once_a_minute(void **state)
{
	(void)state;
	start_with_pods(300);
	watch_of("/api/v1/pods")->n_left_out = 7;
	pass(10);
	assert_int_equal(n_unseen, 1);
	for (unsigned i = 0; i < 100; i++) {
		_cleanup_free_ char *name = xasprintf("m%u", i);

		add_node(name, 0);
		pass(3);
	}
	assert_in_range(n_unseen, 3, 1 + 300 / 60);
	pass(200);
	assert_non_null(strstr(status_agentless_unseen(a), "400 nodes"));
	end();
}

/* The hub cannot count all pods before it must write a status. */
static void test_nodes_that_wait_are_told(void **state)
{
	static const char text[] = "not all pods of 20 nodes without an agent (n1, n2, n3, ...) "
				   "are known: the hub has not counted them yet";

	(void)state;
	start_with_pods(20);
	watch_of("/api/v1/pods")->synced = false;
	pass(5);
	assert_int_equal(n_changed, 0);
	assert_false(status_agentless_settled(a, true));
	expect_unseen(NULL);
	status_agentless_hurry(a);
	expect_unseen(text);
	watch_of("/api/v1/pods")->synced = true;
	pass(1);
	expect_unseen(NULL);
	assert_int_equal(n_unseen, 2);
	end();
	/* without a caller that hurries, after 10 s */
	start_with_pods(20);
	watch_of("/api/v1/namespaces")->synced = false;
	pass(10);
	expect_unseen(NULL);
	pass(1);
	expect_unseen(text);
	end();
}

static void test_a_hub_that_does_not_know_the_nodes_yet(void **state)
{
	(void)state;
	start();
	add_node("n1", 1000);
	status_agentless_tick(a, true); /* the agents' pods are not listed yet */
	expect_unseen(NULL);
	status_agentless_hurry(a);
	expect_unseen("the hub does not know yet which nodes have no agent");
	agents();
	pass(1);
	expect_unseen(NULL);
	assert_true(status_agentless_is(a, "n1"));
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pods_are_counted_once_a_minute),
		cmocka_unit_test(test_work_is_bounded),
		cmocka_unit_test(test_a_list_that_fails_is_told_at_once),
		cmocka_unit_test(test_a_watch_that_fails_is_told_after_a_minute),
		cmocka_unit_test(test_pods_that_are_left_out_are_told),
		cmocka_unit_test(test_nothing_is_told_if_each_node_has_an_agent),
		cmocka_unit_test(test_a_text_that_changes_is_told_once_a_minute),
		cmocka_unit_test(test_nodes_that_wait_are_told),
		cmocka_unit_test(test_a_hub_that_does_not_know_the_nodes_yet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
