/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests which status the hub writes to a target, when it writes, and what it does with the API
 * server's answers. The test replaces watches, requests and timers.
 */
#include "hub/status/status.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/kube/testkube.h"
#include "lib/kube/testwatches.h"
#include "lib/loop/testtimer.h"

/* ---- replaced timers ---- */

static struct timer *tick_timer;

/*
 * Runs the timers that are set now. If tick is true, also runs the tick timer, and then the timers
 * that the tick sets.
 */
static void run(bool tick)
{
	struct timer *armed[8];
	uint64_t delay_ns;
	size_t n = 0;

	for (struct timer *t; (t = loop_next_timer(timer_loop(), &delay_ns)); timer_cancel(t)) {
		assert_true(n < ARRAY_SIZE(armed));
		armed[n++] = t;
	}
	for (size_t i = 0; i < n; i++) {
		if (armed[i] != tick_timer || tick)
			armed[i]->fn(armed[i]->arg);
		else
			timer_set(timer_loop(), tick_timer, NSEC_PER_SEC, tick_timer->fn,
				  tick_timer->arg);
	}
	if (tick)
		run(false);
}

/* ---- targets, reports and nodes ---- */

/* the time at which each test begins; only the test changes the clock */
#define BEGAN_NS (1800000000 * NSEC_PER_SEC)

static json_t *no_object;
static struct pods *pods;
static json_t *shown[2]; /* the pods of the targets' namespace: web-1 on n1, web-2 on n2 */

static json_t *pod(const char *ns, const char *name, const char *node)
{
	return json_pack("{s:{s:s, s:s, s:s}, s:{s:s}}", "metadata", "name", name, "namespace", ns,
			 "uid", name, "spec", "nodeName", node);
}

static void upsert(const char *watch, const char *key, json_t *obj, const json_t *old)
{
	struct kube_watch *w = watch_of(watch);

	keep(w, key, obj);
	w->ops.upsert(key, obj, old, w->arg);
}

static bool elected, leads; /* there are several hubs; this one leads */

static bool does_lead(void *arg)
{
	(void)arg;
	return leads;
}

static struct status *start(bool synced)
{
	struct status_config c = {.ns = "podflame-system", .leads = elected ? does_lead : NULL};
	static const char *const nodes[] = {"n1", "n2", "odd"};
	struct status *s = NULL;
	uint64_t delay_ns;

	json_decref(sent.body);
	memset(&sent, 0, sizeof(sent));
	for (size_t i = 0; i < ARRAY_SIZE(watches); i++)
		free_watch(&watches[i]); /* left by a test that failed */
	test_clock.stands_ns = BEGAN_NS;
	assert_int_equal(pods_new(timer_loop(), testwatches(keep_request), &pods), 0);
	c.pods = pods;
	assert_int_equal(status_new(timer_loop(), testwatches(keep_request), &c, &s), 0);
	tick_timer = loop_next_timer(timer_loop(), &delay_ns);
	for (size_t i = 0; i < ARRAY_SIZE(watches); i++)
		watches[i].synced = synced;
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		keep(watch_of("/nodes"), nodes[i], no_object);
	upsert("/api/v1/pods", "app/web-1", shown[0], NULL);
	upsert("/api/v1/pods", "app/web-2", shown[1], NULL);
	return s;
}

static void stop(struct status *s)
{
	status_free(s);
	pods = pods_free(pods);
}

static json_t *target(const char *uid, const char *rv, int generation)
{
	return json_pack("{s:{s:s, s:s, s:s, s:s, s:i}, s:{s:{}}}", "metadata", "name", "web",
			 "namespace", "app", "uid", uid, "resourceVersion", rv, "generation",
			 generation, "spec", "podSelector");
}

static json_t *report(const char *node, const char *uid, bool stored)
{
	return json_pack(
		"{s:{s:s, s:s, s:s}, s:{s:s}, s:{s:[{s:s, s:i, s:i, s:i, s:i, s:{s:{s:b, s:b}}}]}}",
		"metadata", "name", node, "uid", "report-uid", "resourceVersion", "r1", "spec",
		"nodeName", node, "status", "targets", "uid", uid, "generation", 1, "podsMatched",
		1, "pods", 1, "containers", 1, "events", "on-cpu", "sampled", 1, "stored", stored);
}

/*
 * Gives the object a new version. If only the version changes, the watch calls no function of the
 * controller, but its object has the new version.
 */
static void set_version(json_t *obj, const char *rv)
{
	json_object_set_new(json_object_get(obj, "metadata"), "resourceVersion", json_string(rv));
}

static void removed(const char *watch, const char *key, json_t *last)
{
	struct kube_watch *w = watch_of(watch);

	keep(w, key, NULL);
	w->ops.remove(key, last, w->arg);
}

/*
 * The API server answers the write. Returns the object with the written status and a new version.
 */
static json_t *answer(int http, json_t *obj, const char *rv)
{
	_cleanup_json_ json_t *body = NULL;
	kube_done_fn *fn = sent.fn;

	assert_non_null(fn);
	sent.fn = NULL;
	if (http == 200) {
		body = json_deep_copy(obj);
		json_object_set(body, "status", json_object_get(sent.body, "status"));
		set_version(body, rv);
	}
	fn(http, body, http == 200 ? NULL : "no", sent.arg);
	return TAKE_PTR(body);
}

static const char *sent_ready(const char *member)
{
	const json_t *conditions = json_at(sent.body, "status.conditions");

	return json_str_at(json_with(conditions, "type", "Ready"), member, "");
}

static const char *sent_reason(void)
{
	return sent_ready("reason");
}

/* ---- tests ---- */

static void test_watches(void **state)
{
	struct status *s = start(true);

	(void)state;
	watch_of("/api/v1/nodes");
	watch_of("/apis/podflame.io/v1alpha1/profilingtargets");
	watch_of("/apis/podflame.io/v1alpha1/clusterprofilingtargets");
	watch_of("/apis/podflame.io/v1alpha1/namespaces/podflame-system/profilingnodereports");
	stop(s);
}

static void test_annotations_of_targets_are_not_kept(void **state)
{
	static const char *const paths[] = {"/profilingtargets", "/clusterprofilingtargets",
					    "/nodes"};
	struct status *s = start(true);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		_cleanup_json_ json_t *t = target("u1", "10", 1);

		json_object_set_new(json_object_get(t, "metadata"), "annotations",
				    json_pack("{s:s}", "k", "v"));
		watch_of(paths[i])->trim(t);
		assert_null(json_at(t, "metadata.annotations"));
		assert_string_equal(json_str_at(t, "metadata.uid", ""), "u1");
	}
	stop(s);
}

static void test_nothing_before_the_reports_are_known(void **state)
{
	struct status *s = start(false);
	_cleanup_json_ json_t *t = target("u1", "10", 1), *r = report("n1", "u1", true);
	struct kube_watch *w = watch_of("profilingnodereports");

	(void)state;
	upsert("/profilingtargets", "app/web", t, NULL);
	run(true);
	assert_int_equal(sent.n, 0);
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(watches); i++)
		watches[i].synced = true;
	w->ops.synced(w->arg);
	run(false);
	assert_int_equal(sent.n, 1);
	assert_string_equal(sent_reason(), "Profiling");
	stop(s);
	sent.fn(200, NULL, NULL, sent.arg); /* the answer arrives after the controller was freed */
}

/* What others read of the targets: nothing before they are known, then the hub's last status. */
static void test_targets_for_others(void **state)
{
	struct status *s = start(false);
	_cleanup_json_ json_t *t = target("u1", "10", 1), *r = report("n1", "u1", true),
			      *list = NULL, *after = NULL;

	(void)state;
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	assert_null(status_targets(s));
	for (size_t i = 0; i < ARRAY_SIZE(watches); i++)
		watches[i].synced = true;
	list = status_targets(s);
	assert_int_equal(json_array_size(list), 1);
	assert_string_equal(json_str_at(json_array_get(list, 0), "metadata.name", ""), "web");
	run(false);
	json_decref(answer(200, t, "11"));
	after = status_targets(s);
	assert_true(json_equal(json_object_get(json_array_get(after, 0), "status"),
			       json_object_get(sent.body, "status")));
	removed("/profilingtargets", "app/web", t);
	json_decref(after);
	after = status_targets(s);
	assert_int_equal(json_array_size(after), 0);
	stop(s);
}

static void test_from_new_to_ready(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target("u1", "10", 1), *t2 = NULL, *t3 = NULL;
	_cleanup_json_ json_t *r1 = report("n1", "u1", false), *r2 = report("n1", "u1", true);

	(void)state;
	upsert("profilingnodereports", "podflame-system/n1", r1, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(false);
	assert_string_equal(sent.method, "PATCH");
	assert_string_equal(sent.type, "application/merge-patch+json");
	assert_string_equal(
		sent.path, "/apis/podflame.io/v1alpha1/namespaces/app/profilingtargets/web/status");
	assert_string_equal(json_str_at(sent.body, "metadata.uid", ""), "u1");
	assert_string_equal(json_str_at(sent.body, "metadata.resourceVersion", ""), "10");
	assert_string_equal(sent_reason(), "WaitingForStore");
	/*
	 * a sample is stored while the write is under way: the new status is written right after
	 * the answer
	 */
	upsert("profilingnodereports", "podflame-system/n1", r2, r1);
	run(false);
	assert_int_equal(sent.n, 1);
	t2 = answer(200, t, "11");
	run(false);
	assert_int_equal(sent.n, 2);
	assert_string_equal(sent_reason(), "Profiling");
	assert_string_equal(json_str_at(sent.body, "metadata.resourceVersion", ""), "11");
	assert_string_not_equal(json_str_at(sent.body, "status.firstReadyTime", ""), "");
	t3 = answer(200, t, "12");
	/* the watch shows both writes late, which causes no further write */
	upsert("/profilingtargets", "app/web", t2, t);
	run(true);
	upsert("/profilingtargets", "app/web", t3, t2);
	run(true);
	assert_int_equal(sent.n, 2);
	stop(s);
}

static json_t *target_without_pods(void)
{
	json_t *t = target("u1", "10", 1);

	json_object_set_new(t, "status",
			    json_pack("{s:[{s:s, s:s, s:s, s:s, s:s, s:i}]}", "conditions", "type",
				      "Ready", "status", "False", "reason", "NoPodsMatched",
				      "message", "", "lastTransitionTime", "2026-11-21T12:00:00Z",
				      "observedGeneration", 1));
	return t;
}

/* The status while some report is full, and after the last one is not full any more. */
static void test_full_reports(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target_without_pods(), *t2 = NULL, *t3 = NULL;
	_cleanup_json_ json_t *r = report("n1", "other", true), *full = json_deep_copy(r);

	(void)state;
	json_object_set_new(json_object_get(full, "status"), "targetsOmitted", json_integer(3));
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(false);
	assert_string_equal(sent_reason(), "NoPodsMatched");
	t2 = answer(200, t, "11");
	upsert("/profilingtargets", "app/web", t2, t);
	run(false);
	upsert("profilingnodereports", "podflame-system/n1", full, r);
	run(false);
	assert_string_equal(sent_reason(), "ReportFull");
	t3 = answer(200, t2, "12");
	upsert("/profilingtargets", "app/web", t3, t2);
	run(false);
	removed("profilingnodereports", "podflame-system/n1", full);
	run(false);
	assert_string_not_equal(sent_reason(), "ReportFull");
	sent.fn(404, NULL, "gone", sent.arg);
	stop(s);
}

/* Targets of a namespace cannot be missing if a report names fewer targets of it than of others. */
static void test_full_of_others(void **state)
{
	static const char *const named[] = {"crowd", "crowd", "crowd", "app"};
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target_without_pods(), *r = report("n1", "other", true);
	json_t *all = json_object_get(json_object_get(r, "status"), "targets");

	(void)state;
	json_object_set_new(json_object_get(r, "status"), "targetsOmitted", json_integer(3));
	for (size_t i = 0; i < ARRAY_SIZE(named); i++)
		json_array_append_new(
			all, json_pack("{s:s, s:s}", "uid", "other2", "namespace", named[i]));
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(false);
	assert_string_equal(sent_reason(), "NoPodsMatched");
	sent.fn(404, NULL, "gone", sent.arg);
	stop(s);
}

/* The hub has no room for some targets of a namespace: the others of the namespace say so. */
static void test_targets_that_have_no_room(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target_without_pods(), *t2 = NULL, *t3 = NULL,
			      *r = report("n1", "other", true);
	struct kube_watch *w = watch_of("/profilingtargets");

	(void)state;
	assert_int_equal(w->max_bytes, 256 << 20);
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(false);
	assert_null(strstr(sent_ready("message"), "room"));
	t2 = answer(200, t, "11");
	upsert("/profilingtargets", "app/web", t2, t);
	run(false);
	test_clock.stands_ns += 2 * NSEC_PER_SEC;
	w->n_left_out = 3;
	snprintf(w->left_out_ns, sizeof(w->left_out_ns), "app");
	w->ops.left_out(w->arg);
	run(false);
	assert_non_null(strstr(sent_ready("message"),
			       "Note: the hub has no room for 3 newer targets like this one in the "
			       "namespace"));
	t3 = answer(200, t2, "12");
	upsert("/profilingtargets", "app/web", t3, t2);
	run(false);
	test_clock.stands_ns += 2 * NSEC_PER_SEC;
	/* those of another namespace are nobody's concern here */
	snprintf(w->left_out_ns, sizeof(w->left_out_ns), "other");
	w->ops.left_out(w->arg);
	run(false);
	assert_null(strstr(sent_ready("message"), "room"));
	sent.fn(404, NULL, "gone", sent.arg);
	status_free(s);
}

/*
 * A target that has no room is told so in its own status, once for each change of its spec. If the
 * write fails, it is repeated. When the target has room, it gets the usual status.
 */
static void test_a_target_without_room_is_told(void **state)
{
	struct status *s = start(true);
	struct kube_watch *w = watch_of("/profilingtargets");
	_cleanup_json_ json_t *t = target("u1", "10", 1), *r = report("n1", "other", true),
			      *told = NULL, *changed = NULL;

	(void)state;
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	w->ops.no_room("app/web", t, w->arg);
	run(false);
	assert_string_equal(
		sent.path, "/apis/podflame.io/v1alpha1/namespaces/app/profilingtargets/web/status");
	assert_string_equal(json_str_at(sent.body, "metadata.resourceVersion", ""), "10");
	assert_string_equal(sent_ready("status"), "Unknown");
	assert_string_equal(sent_reason(), "NoRoom");
	assert_non_null(strstr(sent_ready("message"), "the hub has no room in memory"));
	/* the numbers of another time go, and the begin of stopAfter stays */
	assert_true(json_is_null(json_at(sent.body, "status.summary")));
	assert_null(json_at(sent.body, "status.firstReadyTime"));
	answer(500, t, NULL);
	run(false);
	told = answer(200, t, "11");
	w->ops.no_room("app/web", told, w->arg);
	run(false);
	assert_int_equal(sent.n, 2);
	/* another spec */
	changed = json_deep_copy(told);
	json_object_set_new(json_object_get(changed, "metadata"), "generation", json_integer(2));
	w->ops.no_room("app/web", changed, w->arg);
	/* before its status is written, it has room */
	upsert("/profilingtargets", "app/web", changed, NULL);
	run(false);
	assert_int_equal(sent.n, 3);
	assert_string_equal(sent_reason(), "Pending");
	sent.fn(404, NULL, "gone", sent.arg);
	sent.fn = NULL;
	/* the hub may end while a write is under way */
	w->ops.no_room("app/other", t, w->arg);
	run(false);
	assert_non_null(sent.fn);
	stop(s);
	sent.fn(200, NULL, NULL, sent.arg);
}

/* Of more than wait, the last one is counted and not told. */
static void test_many_targets_without_room(void **state)
{
	struct status *s = start(true);
	struct kube_watch *w = watch_of("/profilingtargets");
	struct counter *not_told = counter("podflame_targets_not_told_total", NULL, NULL);
	uint64_t before = counter_get(not_told);

	(void)state;
	for (unsigned i = 0; i <= 16384; i++) {
		_cleanup_free_ char *uid = xasprintf("u%u", i);
		_cleanup_json_ json_t *t = target(uid, "10", 1);

		assert_int_equal(counter_get(not_told), before);
		w->ops.no_room("app/web", t, w->arg);
	}
	assert_int_equal(counter_get(not_told), before + 1);
	stop(s);
}

/* Of several hubs, those that do not lead write nothing, and know all when one begins to. */
static void test_only_the_leader_writes(void **state)
{
	_cleanup_json_ json_t *t = target("u1", "10", 1), *t2 = NULL,
			      *crowded = target("u2", "20", 1), *r1 = report("n1", "u1", false),
			      *r2 = report("n1", "u1", true), *gone = report("gone", "u9", true);
	struct kube_watch *w;
	struct status *s;

	(void)state;
	elected = true;
	leads = false;
	s = start(true);
	w = watch_of("/profilingtargets");
	upsert("profilingnodereports", "podflame-system/n1", r1, NULL);
	upsert("profilingnodereports", "podflame-system/gone", gone, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	w->ops.no_room("app/crowded", crowded, w->arg);
	run(true);
	assert_int_equal(sent.n, 0);
	leads = true;
	holds = true;
	run(true);
	/* the status of both targets, and the question about the node that is gone */
	assert_int_equal(sent.n, 3);
	holds = false;
	for (size_t i = 0; i < n_held; i++)
		held[i].fn(200, NULL, NULL, held[i].arg);
	n_held = 0;
	sent.fn = NULL;
	/* it loses the lead for a moment between two ticks; what it did not write comes then */
	run(true);
	assert_int_equal(sent.n, 3);
	leads = false;
	upsert("profilingnodereports", "podflame-system/n1", r2, r1);
	test_clock.stands_ns += 30 * NSEC_PER_SEC;
	run(false);
	assert_int_equal(sent.n, 3);
	leads = true;
	holds = true;
	run(true);
	assert_int_equal(sent.n, 4);
	assert_string_equal(sent_reason(), "Profiling");
	holds = false;
	for (size_t i = 0; i < n_held; i++)
		held[i].fn(409, NULL, "no", held[i].arg);
	n_held = 0;
	sent.fn = NULL;
	sent.n = 3;
	leads = false; /* and now another hub, which has written */
	t2 = json_deep_copy(t);
	set_version(t2, "11");
	json_object_set_new(t2, "status", json_object());
	upsert("/profilingtargets", "app/web", t2, t);
	for (unsigned i = 0; i < 5; i++) {
		test_clock.stands_ns += 30 * NSEC_PER_SEC;
		run(true);
	}
	assert_int_equal(sent.n, 3);
	stop(s);
	elected = false;
}

static void test_cluster_kind(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target("u1", "10", 1);

	(void)state;
	upsert("/clusterprofilingtargets", "all", t, NULL);
	run(false);
	assert_string_equal(sent.path,
			    "/apis/podflame.io/v1alpha1/clusterprofilingtargets/all/status");
	sent.fn(404, NULL, "gone", sent.arg);
	stop(s);
}

static void test_only_touched_targets_are_written(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *a = target("u1", "10", 1), *b = target("u2", "20", 1), *a2 = NULL,
			      *b2 = NULL;
	_cleanup_json_ json_t *r1 = report("n1", "u1", true), *r2 = report("n2", "u2", true);

	(void)state;
	upsert("profilingnodereports", "podflame-system/n1", r1, NULL);
	upsert("profilingnodereports", "podflame-system/n2", r2, NULL);
	upsert("/profilingtargets", "app/web", a, NULL);
	run(false);
	a2 = answer(200, a, "11");
	upsert("/profilingtargets", "app/web", a2, a);
	upsert("/profilingtargets", "app/web2", b, NULL);
	run(false);
	b2 = answer(200, b, "21");
	upsert("/profilingtargets", "app/web2", b2, b);
	run(true);
	assert_int_equal(sent.n, 2);
	/*
	 * the same report again changes nothing; the deleted report of another node concerns u2
	 * only
	 */
	upsert("profilingnodereports", "podflame-system/n1", r1, r1);
	removed("profilingnodereports", "podflame-system/n2", r2);
	run(false);
	assert_int_equal(sent.n, 3);
	assert_string_equal(json_str_at(sent.body, "metadata.uid", ""), "u2");
	assert_string_equal(sent_reason(), "Pending");
	stop(s);
	sent.fn(200, NULL, NULL, sent.arg);
}

static void test_counters_wait_a_second(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target("u1", "10", 1), *t2 = NULL;
	_cleanup_json_ json_t *r1 = report("n1", "u1", true), *r2 = report("n2", "u1", true);
	unsigned seconds = 0;

	(void)state;
	upsert("profilingnodereports", "podflame-system/n1", r1, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(false);
	t2 = answer(200, t, "11");
	upsert("/profilingtargets", "app/web", t2, t);
	upsert("profilingnodereports", "podflame-system/n2", r2, NULL);
	run(false);
	assert_int_equal(sent.n, 1);
	while (sent.n == 1 && seconds++ < 10) {
		test_clock.stands_ns += NSEC_PER_SEC;
		run(true);
	}
	assert_int_equal(sent.n, 2);
	assert_int_equal(json_int_at(sent.body, "status.summary.podsProfiling", 0), 2);
	json_decref(answer(200, t2, "12"));
	stop(s);
}

static void test_conflict_and_refusal_are_tried_again(void **state)
{
	static const int failures[] = {409, 403, 500, -1};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		struct status *s = start(true);
		_cleanup_json_ json_t *t = target("u1", "10", 1);
		_cleanup_json_ json_t *r = report("n1", "u1", true);
		unsigned seconds = 0;

		upsert("profilingnodereports", "podflame-system/n1", r, NULL);
		upsert("/profilingtargets", "app/web", t, NULL);
		run(false);
		json_decref(answer(failures[i], NULL, NULL));
		run(false);
		assert_int_equal(sent.n, 1);
		set_version(t, "15");
		while (sent.n == 1 && seconds++ < 10) {
			test_clock.stands_ns += NSEC_PER_SEC;
			run(true);
		}
		assert_int_equal(sent.n, 2);
		assert_string_equal(json_str_at(sent.body, "metadata.resourceVersion", ""), "15");
		json_decref(answer(200, t, "16"));
		run(true);
		assert_int_equal(sent.n, 2);
		stop(s);
	}
}

static void test_deleted_target_is_forgotten(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target("u1", "10", 1), *again = target("u2", "20", 1);
	_cleanup_json_ json_t *r = report("n1", "u1", true);

	(void)state;
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(false);
	removed("/profilingtargets", "app/web", t);
	json_decref(answer(404, NULL, NULL));
	run(true);
	assert_int_equal(sent.n, 1);
	/*
	 * a new object of the same name is another target, so reports about the old one do not
	 * count
	 */
	upsert("/profilingtargets", "app/web", again, NULL);
	run(false);
	assert_string_equal(json_str_at(sent.body, "metadata.uid", ""), "u2");
	assert_string_equal(sent_reason(), "Pending");
	json_decref(answer(200, again, "21"));
	stop(s);
}

static struct status *start_with_two_nodes(json_t *r1, json_t *r2)
{
	struct status *s = start(true);

	upsert("profilingnodereports", "podflame-system/n1", r1, NULL);
	upsert("profilingnodereports", "podflame-system/n2", r2, NULL);
	return s;
}

/* Makes a new target. Returns how many nodes report according to its status. */
static int64_t nodes_reporting(void)
{
	_cleanup_json_ json_t *t = target("u1", "10", 1);

	upsert("/profilingtargets", "app/web", t, NULL);
	run(false);
	assert_string_equal(sent.method, "PATCH");
	json_decref(answer(200, t, "11"));
	removed("/profilingtargets", "app/web", t);
	return json_int_at(sent.body, "status.summary.nodesReporting", 0);
}

static void refuse(int http)
{
	kube_done_fn *fn = sent.fn;

	sent.fn = NULL;
	fn(http, NULL, "no", sent.arg);
}

static void test_report_of_a_gone_node_is_deleted_once(void **state)
{
	_cleanup_json_ json_t *r1 = report("n1", "u1", true), *r2 = report("n2", "u1", true),
			      *newer = report("n1", "u1", false);
	struct status *s = start_with_two_nodes(r1, r2);
	unsigned n;

	(void)state;
	assert_int_equal(nodes_reporting(), 2);
	removed("/nodes", "n1", no_object);
	run(true);
	assert_string_equal(sent.method, "GET");
	assert_string_equal(sent.path, "/api/v1/nodes/n1");
	refuse(404);
	assert_string_equal(sent.method, "DELETE");
	assert_string_equal(sent.path, "/apis/podflame.io/v1alpha1/namespaces/podflame-system/"
				       "profilingnodereports/n1");
	assert_string_equal(json_str_at(sent.body, "preconditions.uid", ""), "report-uid");
	assert_string_equal(json_str_at(sent.body, "preconditions.resourceVersion", ""), "r1");
	n = sent.n;
	refuse(200);
	run(true);
	assert_int_equal(sent.n, n);
	/* until the watch shows the deletion, the old report does not count */
	upsert("profilingnodereports", "podflame-system/n1", newer, r1);
	assert_int_equal(nodes_reporting(), 1);
	removed("profilingnodereports", "podflame-system/n1", newer);
	assert_int_equal(nodes_reporting(), 1);
	stop(s);
}

static void test_report_before_its_node_counts_when_that_comes(void **state)
{
	_cleanup_json_ json_t *r1 = report("n1", "u1", true), *r2 = report("n2", "u1", true),
			      *r3 = report("n3", "u1", true);
	struct status *s = start_with_two_nodes(r1, r2);

	(void)state;
	upsert("profilingnodereports", "podflame-system/n3", r3, NULL);
	run(true);
	assert_string_equal(sent.path, "/api/v1/nodes/n3");
	/* the node exists, but the watch does not show it yet: the report is not deleted */
	refuse(200);
	assert_string_equal(sent.method, "GET");
	upsert("/nodes", "n3", no_object, NULL);
	assert_int_equal(nodes_reporting(), 3);
	stop(s);
}

static void test_nodes_known_late(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *r1 = report("n1", "u1", true), *gone = report("gone", "u1", true);
	struct kube_watch *w = watch_of("/nodes");

	(void)state;
	w->synced = false;
	upsert("profilingnodereports", "podflame-system/n1", r1, NULL);
	upsert("profilingnodereports", "podflame-system/gone", gone, NULL);
	run(true);
	assert_int_equal(sent.n, 0);
	w->synced = true;
	w->ops.synced(w->arg);
	run(true);
	assert_int_equal(sent.n, 1);
	assert_string_equal(sent.path, "/api/v1/nodes/gone");
	stop(s);
	refuse(404); /* the answer arrives after the controller was freed */
	assert_int_equal(sent.n, 1);
}

static json_t *agent_pod(const char *node)
{
	return json_pack("{s:{s:s}, s:{s:[{s:s, s:b, s:{s:{}}}]}}", "spec", "nodeName", node,
			 "status", "containerStatuses", "name", "agent", "ready", true, "state",
			 "running");
}

/*
 * A report stays after its agent has gone. It counts until the hub notices that the agent is
 * missing, and again when an agent works.
 */
static void test_a_node_whose_agent_goes_and_comes_back(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target("u1", "10", 1), *t2 = NULL, *t3 = NULL, *t4 = NULL;
	_cleanup_json_ json_t *r = report("n1", "u1", true), *agent = agent_pod("n1");
	static const char agents[] = "/namespaces/podflame-system/pods";
	_cleanup_json_ json_t *r2 = report("n2", "other", true), *agent2 = agent_pod("n2");
	const json_t *ready;

	(void)state;
	upsert("/nodes", "n1", no_object, NULL);
	upsert("/nodes", "n2", no_object, NULL);
	upsert(agents, "podflame-system/a", agent, NULL);
	upsert(agents, "podflame-system/a2", agent2, NULL);
	upsert("profilingnodereports", "podflame-system/n2", r2, NULL);
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(true);
	assert_string_equal(sent_reason(), "Profiling");
	t2 = answer(200, t, "11");
	upsert("/profilingtargets", "app/web", t2, t);
	removed(agents, "podflame-system/a", agent);
	test_clock.stands_ns += 80 * NSEC_PER_SEC;
	run(true);
	assert_int_equal(sent.n, 1);
	test_clock.stands_ns += 11 * NSEC_PER_SEC;
	run(true);
	assert_int_equal(sent.n, 2);
	ready = json_array_get(json_at(sent.body, "status.conditions"), 1);
	assert_string_equal(json_str_at(ready, "reason", ""), "NodeWithoutAgent");
	assert_non_null(strstr(json_str_at(ready, "message", ""),
			       "1 pod on 1 node (n1) without an agent is not profiled"));
	assert_int_equal(json_int_at(sent.body, "status.summary.podsMatched", 0), 1);
	assert_int_equal(json_int_at(sent.body, "status.summary.podsProfiling", -1), 0);
	t3 = answer(200, t2, "12");
	upsert("/profilingtargets", "app/web", t3, t2);
	/* while the agent is missing, the report does not count */
	upsert("profilingnodereports", "podflame-system/n1", r, r);
	run(true);
	assert_int_equal(sent.n, 2);
	upsert(agents, "podflame-system/a", agent, NULL);
	test_clock.stands_ns += 2 * NSEC_PER_SEC;
	run(true);
	assert_int_equal(sent.n, 3);
	assert_string_equal(sent_reason(), "Profiling");
	assert_int_equal(json_int_at(sent.body, "status.summary.podsProfiling", 0), 1);
	t4 = answer(200, t3, "13");
	stop(s);
}

/*
 * The hub may no longer watch the agents' pods. So only a new write of the report shows that an
 * agent works again.
 */
static void test_a_report_that_is_written_anew_tells_of_an_agent(void **state)
{
	struct status *s = start(true);
	struct kube_watch *agents = watch_of("/namespaces/podflame-system/pods");
	_cleanup_json_ json_t *t = target("u1", "10", 1), *t2 = NULL, *t3 = NULL;
	_cleanup_json_ json_t *r = report("n1", "u1", true);

	(void)state;
	upsert("/nodes", "n1", no_object, NULL);
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	run(true);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(false);
	assert_int_equal(json_int_at(sent.body, "status.summary.podsProfiling", -1), 0);
	t2 = answer(200, t, "11");
	upsert("/profilingtargets", "app/web", t2, t);
	agents->ops.state("HTTP 403: pods is forbidden", agents->arg);
	upsert("profilingnodereports", "podflame-system/n1", r, r);
	test_clock.stands_ns += 2 * NSEC_PER_SEC;
	run(true);
	assert_string_equal(sent_reason(), "Profiling");
	t3 = answer(200, t2, "12");
	stop(s);
}

/*
 * A target that is created after the hub has counted the node's pods, a second target, and one that
 * is deleted.
 */
static void test_targets_of_a_node_without_agent(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target("u1", "10", 1), *all = target("u1", "11", 2);
	_cleanup_json_ json_t *r = report("n2", "other", true), *agent = agent_pod("n2");
	_cleanup_json_ json_t *r1 = report("n1", "other", true), *agent1 = agent_pod("n1");

	(void)state;
	json_object_set_new(json_object_get(json_object_get(t, "spec"), "podSelector"),
			    "matchLabels", json_pack("{s:s}", "a", "b"));
	upsert("/nodes", "n1", no_object, NULL);
	upsert("/nodes", "n2", no_object, NULL);
	upsert("/namespaces/podflame-system/pods", "podflame-system/a", agent, NULL);
	upsert("profilingnodereports", "podflame-system/n2", r, NULL);
	run(true);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(false);
	assert_int_equal(json_int_at(sent.body, "status.summary.podsMatched", -1), 0);
	json_decref(answer(200, t, "11"));
	upsert("/profilingtargets", "app/web", all, t);
	run(true);
	assert_int_equal(json_int_at(sent.body, "status.summary.podsMatched", -1), 1);
	removed("/profilingtargets", "app/web", all);
	json_decref(answer(404, NULL, NULL));
	/* when a node is deleted, its pods are forgotten */
	upsert("/namespaces/podflame-system/pods", "podflame-system/a1", agent1, NULL);
	upsert("profilingnodereports", "podflame-system/n1", r1, NULL);
	upsert("/profilingtargets", "app/web", all, NULL);
	run(true);
	assert_int_equal(json_int_at(sent.body, "status.summary.podsMatched", -1), 0);
	json_decref(answer(404, NULL, NULL));
	stop(s);
}

static void test_pods_that_are_not_known_are_told_to_all_targets(void **state)
{
	struct status *s = start(true);
	struct kube_watch *w = watch_of("/api/v1/pods");
	_cleanup_json_ json_t *t = target("u1", "10", 1);
	_cleanup_json_ json_t *r = report("n2", "u1", true), *agent = agent_pod("n2");
	const json_t *ready;

	(void)state;
	upsert("/nodes", "n1", no_object, NULL);
	upsert("/nodes", "n2", no_object, NULL);
	upsert("/namespaces/podflame-system/pods", "podflame-system/a", agent, NULL);
	upsert("profilingnodereports", "podflame-system/n2", r, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	removed("/api/v1/pods", "app/web-1", shown[0]);
	w->synced = false;
	w->ops.state("HTTP 403: no", w->arg);
	run(true);
	assert_int_equal(sent.n, 0); /* nothing is written: the pods of n1 are not known yet */
	test_clock.stands_ns += 10 * NSEC_PER_SEC;
	run(true);
	assert_int_equal(sent.n, 1);
	ready = json_array_get(json_at(sent.body, "status.conditions"), 1);
	assert_string_equal(json_str_at(ready, "message", ""),
			    "samples of on-cpu are stored. Note: not all pods of 1 node without an "
			    "agent (n1) are known: the pods cannot be watched: HTTP 403: no");
	json_decref(answer(404, NULL, NULL));
	stop(s);
}

/* A hub that starts waits for the pods of nodes without an agent, but only for a limited time. */
static void test_what_cannot_be_known_is_not_waited_for(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target("u1", "10", 1), *r = report("n1", "u1", true);

	(void)state;
	watch_of("/namespaces/podflame-system/pods")->synced = false;
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(true);
	assert_int_equal(sent.n, 0);
	test_clock.stands_ns += 11 * NSEC_PER_SEC;
	run(true);
	assert_int_equal(sent.n, 1);
	json_decref(answer(404, NULL, NULL));
	stop(s);
}

static void tell_targets(unsigned n, int generation, bool suspend)
{
	struct kube_watch *w = watch_of("/profilingtargets");

	for (unsigned i = 0; i < n; i++) {
		_cleanup_free_ char *uid = xasprintf("u%u", i);
		_cleanup_json_ json_t *t = target(uid, "10", generation);

		json_object_set_new(json_object_get(t, "spec"), "suspend", json_boolean(suspend));
		w->ops.upsert("app/web", t, NULL, w->arg);
	}
	run(false);
}

static struct status *start_with_targets(unsigned n)
{
	struct status *s = start(true);

	holds = true;
	tell_targets(n, 1, false);
	return s;
}

static void answer_held(void)
{
	_cleanup_json_ json_t *body = json_pack("{s:{s:s}}", "metadata", "resourceVersion", "11");

	n_held--;
	held[n_held].fn(200, body, NULL, held[n_held].arg);
}

static void test_few_writes_at_once(void **state)
{
	struct status *s = start_with_targets(1000);

	(void)state;
	while (n_held) {
		assert_true(n_held <= 16);
		answer_held();
		run(false);
	}
	assert_int_equal(sent.n, 1000);
	run(true);
	assert_int_equal(sent.n, 1000);
	holds = false;
	stop(s);
}

static void test_who_was_written_comes_after_the_others(void **state)
{
	struct status *s = start_with_targets(20);

	(void)state;
	assert_string_equal(json_str_at(sent.body, "metadata.uid", ""), "u15");
	while (n_held)
		answer_held();
	tell_targets(20, 2, true);
	assert_int_equal(n_held, 16);
	assert_string_equal(json_str_at(sent.body, "metadata.uid", ""), "u11");
	stop(s);
	while (n_held)
		answer_held();
	holds = false;
}

/*
 * Somebody has taken over the agent of n1. Its report says that the hub has stored samples of a
 * target that selects no pod there.
 */
static void test_a_report_about_pods_that_are_not_there(void **state)
{
	struct status *s = start(true);
	_cleanup_json_ json_t *t = target("u1", "10", 1), *r = report("n1", "u1", true),
			      *of_others = pod("bank", "vault", "n1"), *t2 = NULL;
	json_t *own = shown[0];

	(void)state;
	removed("/pods", "app/web-1", own);
	upsert("/pods", "bank/vault", of_others, NULL);
	upsert("profilingnodereports", "podflame-system/n1", r, NULL);
	upsert("/profilingtargets", "app/web", t, NULL);
	run(true);
	assert_int_equal(sent.n, 1);
	assert_string_equal(sent_reason(), "WaitingForStore");
	t2 = answer(200, t, "11");
	upsert("/profilingtargets", "app/web", t2, t);
	run(false);
	assert_int_equal(sent.n, 1);
	/* a pod of the target comes to the node: from now on the report counts, ... */
	test_clock.stands_ns += 2 * NSEC_PER_SEC;
	upsert("/pods", "app/web-1", own, NULL);
	run(false);
	assert_int_equal(sent.n, 2);
	assert_string_equal(sent_reason(), "Profiling");
	/* ... also when the pod has ended */
	t = (json_decref(t), answer(200, t2, "12"));
	upsert("/profilingtargets", "app/web", t, t2);
	removed("/pods", "app/web-1", own);
	run(true);
	assert_int_equal(sent.n, 2);
	stop(s);
}

static void test_odd_objects(void **state)
{
	static const char *const odd[] = {
		"{}", "{\"metadata\": null}", "{\"metadata\": {\"uid\": 3}}",
		"{\"status\": {\"targets\": [null, 1, {}, {\"uid\": \"x\"}]}}"};
	struct status *s = start(true);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		_cleanup_json_ json_t *o = json_loads(odd[i], 0, NULL);

		upsert("/profilingtargets", "app/odd", o, NULL);
		upsert("/profilingtargets", "no-namespace", o, NULL);
		upsert("profilingnodereports", "podflame-system/odd", o, NULL);
		run(true);
		removed("profilingnodereports", "podflame-system/odd", o);
		removed("/profilingtargets", "app/odd", o);
	}
	assert_int_equal(sent.n, 0);
	stop(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_watches),
		cmocka_unit_test(test_annotations_of_targets_are_not_kept),
		cmocka_unit_test(test_nothing_before_the_reports_are_known),
		cmocka_unit_test(test_targets_for_others),
		cmocka_unit_test(test_from_new_to_ready),
		cmocka_unit_test(test_full_reports),
		cmocka_unit_test(test_full_of_others),
		cmocka_unit_test(test_targets_that_have_no_room),
		cmocka_unit_test(test_a_target_without_room_is_told),
		cmocka_unit_test(test_many_targets_without_room),
		cmocka_unit_test(test_only_the_leader_writes),
		cmocka_unit_test(test_cluster_kind),
		cmocka_unit_test(test_only_touched_targets_are_written),
		cmocka_unit_test(test_counters_wait_a_second),
		cmocka_unit_test(test_conflict_and_refusal_are_tried_again),
		cmocka_unit_test(test_deleted_target_is_forgotten),
		cmocka_unit_test(test_report_of_a_gone_node_is_deleted_once),
		cmocka_unit_test(test_report_before_its_node_counts_when_that_comes),
		cmocka_unit_test(test_nodes_known_late),
		cmocka_unit_test(test_a_node_whose_agent_goes_and_comes_back),
		cmocka_unit_test(test_a_report_that_is_written_anew_tells_of_an_agent),
		cmocka_unit_test(test_targets_of_a_node_without_agent),
		cmocka_unit_test(test_pods_that_are_not_known_are_told_to_all_targets),
		cmocka_unit_test(test_what_cannot_be_known_is_not_waited_for),
		cmocka_unit_test(test_few_writes_at_once),
		cmocka_unit_test(test_who_was_written_comes_after_the_others),
		cmocka_unit_test(test_a_report_about_pods_that_are_not_there),
		cmocka_unit_test(test_odd_objects),
	};
	int failed;

	no_object = json_object();
	shown[0] = pod("app", "web-1", "n1");
	shown[1] = pod("app", "web-2", "n2");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	json_decref(no_object);
	json_decref(shown[0]);
	json_decref(shown[1]);
	json_decref(sent.body);
	return failed;
}
