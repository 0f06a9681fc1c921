/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the hub looks at nodes without an agent, what it requests from the API server, and what it
 * reports if that fails.
 */
#include "hub/status/testagentless.h"

/* ---- requests and failures ---- */

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
	status_agentless_tick(a, true);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		struct kube_watch *w = list_under_way();

		assert_non_null(w);
		assert_string_equal(w->path, lists[i].path);
		assert_string_equal(w->field_selector, lists[i].field_selector);
		assert_true(w->metadata_only == lists[i].metadata_only && w->once);
		node_object = node_object ? node_object : json_object();
		keep(w, "n1", i == 1 ? node_object : NULL);
		assert_false(status_agentless_is(a, "n1"));
		w->synced = true;
		w->ops.synced(w->arg);
	}
	assert_null(list_under_way());
	assert_true(status_agentless_is(a, "n1"));
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
	/*
	 * 8 to 11 looks at each node in about 10 minutes: one every 60 s, plus up to 10 s at random
	 */
	pass(600, NULL);
	assert_in_range(n_listed, 1 + 50 * 2 * 8, 11 + 50 * 2 * 11);
	assert_int_equal(n_watches_made - before, 1 + n_listed);
	end();
}

static int64_t matched_on(const char *node)
{
	_cleanup_json_ json_t *e = entry_of(node);

	return json_int_at(e, "podsMatched", 0);
}

static void test_a_refusal_is_told_and_what_was_known_stays(void **state)
{
	(void)state;
	start_with_pods(5);
	pass(1, "/api/v1/pods");
	assert_true(status_agentless_is(a, "n1"));
	assert_string_equal(status_agentless_unseen(a),
			    "not all pods of 5 nodes without an agent (n1, n2, n3, ...) are known: "
			    "list: HTTP 403: forbidden");
	assert_null(entry_of("n1"));
	pass(75, NULL);
	assert_null(status_agentless_unseen(a));
	assert_int_equal(matched_on("n5"), 1);
	/* a single failure is not reported: the API server may fail only for a moment */
	pass(71, "/api/v1/pods");
	assert_null(status_agentless_unseen(a));
	assert_int_equal(matched_on("n5"), 1);
	pass(75, "/api/v1/pods");
	assert_non_null(status_agentless_unseen(a));
	pass(60, "/api/v1/pods");
	assert_non_null(strstr(status_agentless_unseen(a), "5 nodes"));
	assert_int_equal(matched_on("n5"), 1);
	pass(75, NULL);
	assert_null(status_agentless_unseen(a));
	end();
}

static void test_namespaces_that_do_not_fit_are_told(void **state)
{
	struct kube_watch *w;

	(void)state;
	start_with_pods(2);
	status_agentless_tick(a, true);
	w = list_under_way();
	assert_string_equal(w->path, "/api/v1/namespaces");
	w->n_left_out = 1;
	answer_list(w, NULL);
	assert_null(list_under_way());
	assert_null(entry_of("n1"));
	assert_string_equal(status_agentless_unseen(a),
			    "not all pods of 2 nodes without an agent (n1, n2) "
			    "are known: the hub has no room for all namespaces");
	pass(75, NULL);
	assert_null(status_agentless_unseen(a));
	end();
}

/*
 * The namespaces are requested once a minute for all nodes. The failure is reported for a few nodes
 * per second, because each report costs work for all targets.
 */
static void test_namespaces_that_are_refused(void **state)
{
	(void)state;
	start_with_pods(100);
	pass(1, "/api/v1/namespaces");
	assert_int_equal(n_unseen, 1);
	assert_non_null(strstr(status_agentless_unseen(a), "100 nodes"));
	assert_int_equal(counter_get(counter("nodes_without_agent", NULL, NULL)), 100);
	assert_true(status_agentless_is(a, "n100"));
	assert_false(status_agentless_settled(a, true));
	for (unsigned i = 0, before; i < 7; i++) {
		before = n_changed;
		pass(1, "/api/v1/namespaces");
		assert_in_range(n_changed - before, 1, 16);
	}
	assert_int_equal(n_changed, 100);
	assert_true(status_agentless_settled(a, true));
	pass(40, "/api/v1/namespaces");
	assert_int_equal(n_listed, 1);
	assert_int_equal(n_changed, 100);
	assert_int_equal(n_unseen, 1);
	pass(40, NULL);
	assert_null(status_agentless_unseen(a));
	assert_int_equal(matched_on("n100"), 1);
	end();
}

/*
 * A call of ops.unseen causes a write of every target, so failures of many nodes must not cause
 * many calls.
 */
static void test_refusals_of_many_nodes_are_told_once(void **state)
{
	(void)state;
	start_with_pods(300);
	pass(300, "/api/v1/pods");
	assert_int_equal(n_changed, 300);
	assert_int_equal(n_unseen, 1);
	assert_non_null(strstr(status_agentless_unseen(a), "300 nodes"));
	/* the number of calls stays small also if the number of nodes changes */
	for (unsigned i = 0; i < 100; i++) {
		_cleanup_free_ char *name = xasprintf("m%u", i);

		add_node(name, 0);
		pass(3, "/api/v1/pods");
	}
	assert_in_range(n_unseen, 3, 1 + 300 / 60);
	pass(200, "/api/v1/pods");
	assert_non_null(strstr(status_agentless_unseen(a), "400 nodes"));
	end();
}

/*
 * The list of one node fails while other nodes wait for their first look. As soon as none waits,
 * the text counts only the failed node.
 */
static void test_a_refusal_of_one_of_many_nodes(void **state)
{
	(void)state;
	start_with_pods(20);
	status_agentless_tick(a, true);
	for (unsigned i = 0; i < 3; i++)
		answer_list(list_under_way(), "/api/v1/pods");
	pass(3, NULL);
	assert_int_equal(n_unseen, 2);
	assert_string_equal(status_agentless_unseen(a),
			    "not all pods of 1 node without an agent (n1) are known: "
			    "list: HTTP 403: forbidden");
	end();
}

/* The hub cannot look at all nodes before it must write a status. */
static void test_nodes_that_are_not_looked_at_yet_are_told(void **state)
{
	(void)state;
	start_with_pods(100);
	pass(9, NULL);
	assert_null(status_agentless_unseen(a));
	assert_false(status_agentless_settled(a, true));
	status_agentless_hurry(a);
	assert_string_equal(status_agentless_unseen(a),
			    "not all pods of 28 nodes without an agent (n73, n74, n75, ...) are "
			    "known: the hub has not listed them yet");
	pass(3, NULL);
	assert_int_equal(n_unseen, 1);
	pass(1, NULL);
	assert_int_equal(n_unseen, 2);
	assert_null(status_agentless_unseen(a));
	assert_true(status_agentless_settled(a, true));
	/* after that, a node that waits for its first look is not reported */
	status_agentless_node(a, "n1", NULL);
	status_agentless_node(a, "n2", NULL);
	add_node("n1", 0);
	add_node("n2", 0);
	for (unsigned i = 0; i < 95; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		status_agentless_tick(a, true);
		for (struct kube_watch *w; i != 90 && (w = list_under_way());)
			answer_list(w, NULL);
	}
	assert_true(status_agentless_is(a, "n1") && status_agentless_is(a, "n2"));
	assert_int_equal(n_unseen, 2);
	end();
}

static void test_nodes_that_wait_for_a_list_are_told(void **state)
{
	(void)state;
	start_with_pods(2);
	for (int i = 0; i < 10; i++) {
		assert_null(status_agentless_unseen(a));
		status_agentless_tick(a, true);
		test_clock.stands_ns += NSEC_PER_SEC;
	}
	status_agentless_tick(a, true);
	assert_string_equal(status_agentless_unseen(a),
			    "not all pods of 2 nodes without an agent (n1, n2) are "
			    "known: the hub has not listed them yet");
	answer_lists(NULL);
	assert_null(status_agentless_unseen(a));
	end();
}

static void test_a_hub_that_does_not_know_the_nodes_yet(void **state)
{
	(void)state;
	start();
	add_node("n1", 1000);
	status_agentless_tick(a, true); /* the agents' pods are not listed yet */
	assert_null(status_agentless_unseen(a));
	status_agentless_hurry(a);
	assert_string_equal(status_agentless_unseen(a),
			    "the hub does not know yet which nodes have no agent");
	agents();
	pass(1, NULL);
	assert_null(status_agentless_unseen(a));
	assert_true(status_agentless_is(a, "n1"));
	end();
}

static void test_pods_that_do_not_fit_are_told(void **state)
{
	(void)state;
	start_with_pods(1);
	left_out = 7;
	pass(1, NULL);
	assert_int_equal(matched_on("n1"), 1);
	assert_string_equal(status_agentless_unseen(a),
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
	status_agentless_tick(a, true);
	for (struct kube_watch *w; (w = list_under_way());) {
		if (streq(w->path, "/api/v1/pods") && matched_on("n1"))
			assert_in_range(w->max_bytes, 27 << 20, 28 << 20);
		else if (streq(w->path, "/api/v1/pods"))
			assert_int_equal(w->max_bytes, 128 << 20);
		answer_list(w, NULL);
	}
	/* the hub does not list the pods of the third node */
	assert_int_equal(n_listed, 1 + 2 * 2);
	assert_non_null(strstr(status_agentless_unseen(a), "(n3)"));
	assert_non_null(strstr(status_agentless_unseen(a), "no room"));
	end();
}

static void test_an_answer_that_never_comes(void **state)
{
	(void)state;
	start_with_pods(1);
	for (int i = 0; i < 119; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		status_agentless_tick(a, true);
	}
	assert_false(status_agentless_is(a, "n1"));
	test_clock.stands_ns += 3 * NSEC_PER_SEC;
	status_agentless_tick(a, true);
	assert_true(status_agentless_is(a, "n1"));
	assert_non_null(strstr(status_agentless_unseen(a), "takes too long"));
	pass(75, NULL);
	assert_null(status_agentless_unseen(a));
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
