/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent watches, what it keeps of each object, and when it checks the node's report. The
 * test replaces the API server.
 */
#include "node/internal.h"
#include "node/work/testworkers.h"

#include "lib/kube/testkube.h"
#include "lib/kube/testwatches.h"

#define MINUTE_NS (60 * NSEC_PER_SEC)

static void answer(int status)
{
	kube_done_fn *fn = sent.fn;

	assert_non_null(fn);
	sent.fn = NULL;
	fn(status, NULL, NULL, sent.arg);
}

/*
 * Whether the agent asked for the report (GET) since the last call. Answers the request with 200,
 * as if the report existed.
 */
static bool report_is_checked(void)
{
	if (!sent.fn)
		return false;
	assert_string_equal(sent.method, "GET");
	answer(200);
	return true;
}

/* A node that has started and has written its report. */
static struct node node;
static struct work node_work;

static int set_up(void **state)
{
	static char *events[] = {(char *)"all", NULL};
	static struct config conf = {.node_name = (char *)"node1", .tenant_allowed_events = events};
	static const struct report_config report = {.node_name = "node1", .ns = "podflame-system"};
	struct kube *kube = testwatches(keep_request);

	(void)state;
	testwork(&node_work);
	node = (struct node){.conf = &conf,
			     .config = {.kube = kube},
			     .work = &node_work,
			     .containers = node_work.containers,
			     .started = true};
	assert_int_equal(report_new(timer_loop(), kube, &report, &node.report), 0);
	report_plan(node.report, &(struct plan){0});
	timer_fire();
	answer(200);
	assert_int_equal(node_watches_new(&node, &node.watches), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	node_watches_free(node.watches);
	report_free(node.report);
	json_decref(TAKE_PTR(sent.body));
	return 0;
}

static void test_annotations_are_not_kept(void **state)
{
	static const char *const paths[] = {"/api/v1/pods",
					    "/apis/podflame.io/v1alpha1/profilingtargets",
					    "/apis/podflame.io/v1alpha1/clusterprofilingtargets",
					    "/api/v1/namespaces", "/api/v1/nodes"};

	(void)state;
	assert_int_equal(n_watches_made, ARRAY_SIZE(paths));
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		_cleanup_json_ json_t *obj =
			json_pack("{s:{s:s, s:s, s:{s:s}}}", "metadata", "name", "a", "uid", "u",
				  "annotations", "k", "v");

		watch_of(paths[i])->trim(obj);
		assert_null(json_object_get(json_at(obj, "metadata.annotations"), "k"));
		assert_string_equal(json_str_at(obj, "metadata.uid", ""), "u");
	}
}

static void node_is(const char *uid)
{
	_cleanup_json_ json_t *obj =
		json_pack("{s:{s:s, s:s}}", "metadata", "name", "node1", "uid", uid);
	const struct kube_watch *w = watch_of("/api/v1/nodes");

	w->ops.upsert("node1", obj, NULL, w->arg);
}

static void test_the_report_is_looked_for(void **state)
{
	(void)state;
	assert_false(report_is_checked());
	node_is("a");
	node_is("a");
	assert_false(report_is_checked());
	/* the node was deleted and created again, so the hub may have deleted the report */
	node_is("b");
	assert_true(report_is_checked());
	node_is("b");
	assert_false(report_is_checked());
	for (unsigned i = 0; i < 3; i++) {
		/* runs the timers of plans, which are due before the next check of the report */
		while (timer_delay_ns() < MINUTE_NS)
			timer_fire();
		assert_false(report_is_checked());
		timer_fire();
		assert_true(report_is_checked());
	}
}

static void test_what_has_no_room_is_reported(void **state)
{
	static const char path[] = "/apis/podflame.io/v1alpha1/profilingtargets";
	struct kube_watch *w = watch_of(path);
	_cleanup_json_ json_t *said = NULL;

	(void)state;
	w->n_left_out = 4;
	snprintf(w->left_out_ns, sizeof(w->left_out_ns), "crowd");
	w->ops.left_out(w->arg);
	said = report_json(node.report);
	assert_int_equal(json_array_size(json_at(said, "status.crowdedNamespaces")), 1);
	assert_string_equal(
		json_string_value(json_array_get(json_at(said, "status.crowdedNamespaces"), 0)),
		"crowd");
}

/* The targets of the namespace are told, in the next plan. */
static void test_pods_without_room_cause_a_plan(void **state)
{
	struct kube_watch *w = watch_of("/api/v1/pods");

	(void)state;
	assert_true(timer_delay_ns() >= MINUTE_NS);
	w->n_left_out = 4;
	snprintf(w->left_out_ns, sizeof(w->left_out_ns), "crowd");
	w->ops.left_out(w->arg);
	assert_true(timer_delay_ns() < MINUTE_NS);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(test_annotations_are_not_kept),
		TEST(test_the_report_is_looked_for),
		TEST(test_what_has_no_room_is_reported),
		TEST(test_pods_without_room_cause_a_plan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
