/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the report contains, and when it is written. The functions below replace the API server and
 * the timers.
 */
#include "node/report/report.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "lib/kube/testkube.h"
#include "lib/loop/testtimer.h"

#define HOUR_NS (3600 * NSEC_PER_SEC)

static void answer_with(int status, const json_t *body)
{
	kube_done_fn *fn = sent.fn;

	assert_non_null(fn);
	sent.fn = NULL;
	fn(status, body, status < 0 ? "connection refused" : NULL, sent.arg);
}

static void answer(int status)
{
	answer_with(status, NULL);
}

/*
 * Answers the request for the agent's pod. The owners of the pod are its node (as for a static pod)
 * and a DaemonSet.
 */
static void answer_pod(void)
{
	_cleanup_json_ json_t *pod = json_pack(
		"{s:{s:[{s:s, s:s, s:s, s:s}, {s:s, s:s, s:s, s:s, s:b, s:b}]}}", "metadata",
		"ownerReferences", "apiVersion", "v1", "kind", "Node", "name", "node1", "uid", "n",
		"apiVersion", "apps/v1", "kind", "DaemonSet", "name", "podflame-agent", "uid",
		"ds-uid", "controller", 1, "blockOwnerDeletion", 1);

	assert_string_equal(sent.method, "GET");
	assert_string_equal(sent.path, "/api/v1/namespaces/podflame-system/pods/agent-x");
	answer_with(200, pod);
}

static bool urgent(void)
{
	return timer_armed() && timer_delay_ns() <= NSEC_PER_SEC;
}

/* ---- plans ---- */

static struct plan_reason opted_out = {
	.reason = REASON_POD_OPTED_OUT, .message = (char *)"says no", .n_pods = 2};

static struct plan_target target(const char *uid, int64_t generation, unsigned pods)
{
	return (struct plan_target){.uid = (char *)uid,
				    .kind = (char *)"ProfilingTarget",
				    .ns = (char *)"app",
				    .name = (char *)"web",
				    .generation = generation,
				    .accepted = true,
				    .on_this_node = true,
				    .event_mask = 1u << EVENT_ON_CPU,
				    .pods_matched = pods,
				    .pods_planned = pods,
				    .containers_planned = pods};
}

static void give_plan(struct report *r, struct plan_target *t, size_t n)
{
	const struct plan p = {.targets = t, .n_targets = n};

	report_plan(r, &p);
}

static struct report *new_report(void)
{
	const struct report_config c = {.node_name = "node1",
					.pod_name = "agent-x",
					.ns = "podflame-system",
					.version = "1.2.3",
					.boot_id = "boot",
					.min_interval_ns = HOUR_NS,
					.jitter_ns = NSEC_PER_SEC};
	struct report *r = NULL;

	json_decref(sent.body);
	memset(&sent, 0, sizeof(sent));
	assert_int_equal(report_new(timer_loop(), testkube(), &c, &r), 0);
	return r;
}

/* Makes a report and does its first write, with one target. */
static struct report *written_report(void)
{
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 2);

	give_plan(r, &t, 1);
	timer_fire();
	answer(200);
	assert_false(timer_armed());
	return r;
}

static json_t *first_target(const struct report *r)
{
	_cleanup_json_ json_t *o = report_json(r);

	return json_incref(
		json_array_get(json_object_get(json_object_get(o, "status"), "targets"), 0));
}

/* ---- the content ---- */

static void test_json(void **state)
{
	struct report *r = new_report();
	const struct support s[] = {{.feature = "on-cpu", .ok = true},
				    {.feature = "kernel-stacks", .reason = "kptr_restrict is 2"}};
	struct plan_target t[] = {target("u1", 7, 2), target("u2", 1, 0)};
	_cleanup_json_ json_t *o = NULL, *want = NULL;

	(void)state;
	t[0].reasons = &opted_out;
	t[0].n_reasons = 1;
	report_support(r, s, ARRAY_SIZE(s), "v2");
	give_plan(r, t, ARRAY_SIZE(t));
	report_sampled(r, "u1", EVENT_ON_CPU, 5);
	report_problem(r, "u1", REASON_RATE_LOWERED, "over the limit", 3);
	report_lost(r, 3, 2);
	o = report_json(r);
	assert_string_equal(json_str_at(o, "metadata.name", ""), "node1");
	assert_string_equal(json_str_at(o, "metadata.namespace", ""), "podflame-system");
	assert_string_equal(json_str_at(o, "spec.nodeName", ""), "node1");
	assert_string_equal(json_str_at(o, "status.agentVersion", ""), "1.2.3");
	assert_string_equal(json_str_at(o, "status.cgroupMode", ""), "v2");
	assert_int_equal(json_int_at(o, "status.lost.samples", 0), 3);
	assert_int_equal(json_int_at(o, "status.lost.events", 0), 2);
	assert_string_not_equal(json_str_at(o, "status.kernel", ""), "");
	want = json_loads("[{\"feature\": \"on-cpu\", \"ok\": true}, {\"feature\": "
			  "\"kernel-stacks\", \"ok\": false, \"reason\": \"kptr_restrict is 2\"}]",
			  0, NULL);
	assert_true(json_equal(want, json_at(o, "status.capabilities")));
	json_decref(want);
	/* u2 matches nothing here, so it is not in the report */
	want = json_loads(
		"[{\"uid\": \"u1\", \"kind\": \"ProfilingTarget\", \"namespace\": \"app\", "
		"\"name\": \"web\", \"generation\": 7, \"podsMatched\": 2, \"pods\": 2, "
		"\"containers\": 2, \"events\": {\"on-cpu\": {\"sampled\": true, \"stored\": "
		"false}}, \"reasons\": [{\"reason\": \"RateLowered\", \"message\": \"over the "
		"limit\", \"pods\": 3}, {\"reason\": \"PodOptedOut\", \"message\": \"says "
		"no\", \"pods\": 2}]}]",
		0, NULL);
	assert_true(json_equal(want, json_at(o, "status.targets")));
	report_free(r);
}

static const char *reason_at(const json_t *target, size_t i, const char *key)
{
	return json_str_at(json_array_get(json_object_get(target, "reasons"), i), key, "");
}

/*
 * Events are independent. If the kernel cannot provide an event, the targets that ask for it get
 * the reason, whether they were added before or after this is known.
 */
static void test_events(void **state)
{
	struct report *r = new_report();
	struct support s[] = {
		{.feature = "on-cpu", .ok = true},
		{.feature = "off-cpu", .reason = "no BTF of sched_switch"},
		{.feature = "mem-alloc", .reason = "uprobes are off"},
		{.feature = "kernel-stacks", .reason = "kptr_restrict is 2"},
	};
	struct plan_target t[] = {target("u1", 1, 1), target("u2", 1, 1), target("u3", 1, 1)};
	_cleanup_json_ json_t *o = NULL, *want = NULL, *later = NULL;
	const json_t *list;

	(void)state;
	t[0].event_mask = 1u << EVENT_ON_CPU | 1u << EVENT_OFF_CPU | 1u << EVENT_MEM_ALLOC;
	t[2].event_mask = 1u << EVENT_OFF_CPU;
	give_plan(r, t, 2);
	report_support(r, s, ARRAY_SIZE(s), "v2");
	give_plan(r, t, 3);
	report_sampled(r, "u1", EVENT_ON_CPU, 5);
	report_stored(r, "u1", EVENT_ON_CPU, 5);
	report_stored(r, "u2", EVENT_OFF_CPU, 5); /* u2 did not ask for off-cpu */
	o = report_json(r);
	list = json_at(o, "status.targets");
	want = json_loads("{\"on-cpu\": {\"sampled\": true, \"stored\": true}, \"off-cpu\": "
			  "{\"sampled\": false, \"stored\": false}, \"mem-alloc\": {\"sampled\": "
			  "false, \"stored\": false}}",
			  0, NULL);
	assert_true(json_equal(want, json_object_get(json_array_get(list, 0), "events")));
	assert_string_equal(reason_at(json_array_get(list, 0), 0, "reason"), "EventUnsupported");
	assert_string_equal(reason_at(json_array_get(list, 0), 0, "message"),
			    "off-cpu: no BTF of sched_switch; mem-alloc: uprobes are off");
	assert_string_equal(reason_at(json_array_get(list, 1), 0, "reason"), "");
	assert_string_equal(reason_at(json_array_get(list, 2), 0, "message"),
			    "off-cpu: no BTF of sched_switch");
	s[1].ok = s[2].ok = true;
	report_support(r, s, ARRAY_SIZE(s), "v2");
	later = first_target(r);
	assert_string_equal(reason_at(later, 0, "reason"), "");
	report_free(r);
}

/*
 * The API server would refuse the whole report if a text were too long, or ended within a
 * character.
 */
static void test_long_texts_are_cut(void **state)
{
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 1);
	_cleanup_json_ json_t *o = NULL, *later = NULL, *whole = NULL;
	char text[1100];
	const struct support missing = {.feature = "kernel-stacks", .reason = text};

	(void)state;
	give_plan(r, &t, 1);
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	memcpy(text + 1020, "\xc3\xa4", 2);
	report_problem(r, "u1", REASON_MEMORY_NOT_SEEN, text, 2);
	o = first_target(r);
	assert_int_equal(strlen(reason_at(o, 0, "message")), 1023);
	assert_string_equal(reason_at(o, 0, "message") + 1019, "x...");
	assert_int_equal(json_int_at(json_array_get(json_object_get(o, "reasons"), 0), "pods", 0),
			 2);
	report_problem(r, "u1", REASON_MEMORY_NOT_SEEN, "\xff", 2);
	later = first_target(r);
	assert_string_equal(reason_at(later, 0, "message"), "MemoryNotSeen");
	memcpy(text + 255, "\xc3\xa4", 2);
	report_support(r, &missing, 1, "v2");
	whole = report_json(r);
	assert_int_equal(
		strlen(json_str_at(json_array_get(json_at(whole, "status.capabilities"), 0),
				   "reason", "")),
		255);
	report_free(r);
}

static void test_refused_target_is_told(void **state)
{
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 0);
	_cleanup_json_ json_t *e = NULL;

	(void)state;
	t.accepted = false;
	give_plan(r, &t, 1);
	e = first_target(r);
	assert_string_equal(json_str_at(e, "uid", ""), "u1");
	report_free(r);
}

static void test_many_targets_are_cut_and_counted(void **state)
{
	enum { N = 300 };
	struct report *r = new_report();
	struct plan_target *t = xcalloc(N, sizeof(*t));
	_cleanup_json_ json_t *o = NULL;
	char uids[N][16];

	(void)state;
	for (int i = 0; i < N; i++) {
		snprintf(uids[i], sizeof(uids[i]), "u%03d", i);
		t[i] = target(uids[i], 1, 1);
	}
	give_plan(r, t, N);
	o = report_json(r);
	assert_int_equal(json_array_size(json_at(o, "status.targets")), 256);
	assert_int_equal(json_int_at(o, "status.targetsOmitted", 0), N - 256);
	free(t);
	report_free(r);
}

/* A target that matches no pod, but may miss some for which the agent has no room, says so. */
static void test_a_target_without_pods_may_miss_some(void **state)
{
	struct report *r = new_report();
	struct plan_reason missed = {
		.reason = REASON_NO_ROOM_FOR_PODS, .message = (char *)"no room", .n_pods = 3};
	struct plan_target t[] = {target("u1", 1, 0), target("u2", 1, 0)};
	_cleanup_json_ json_t *o = NULL;
	const json_t *entry;

	(void)state;
	t[0].pods_without_room = 3;
	t[0].reasons = &missed;
	t[0].n_reasons = 1;
	give_plan(r, t, ARRAY_SIZE(t));
	o = report_json(r);
	assert_int_equal(json_array_size(json_at(o, "status.targets")), 1);
	entry = json_with(json_at(o, "status.targets"), "uid", "u1");
	assert_string_equal(json_str_at(json_array_get(json_at(entry, "reasons"), 0), "reason", ""),
			    "NoRoomForPods");
	report_free(r);
}

static void test_namespaces_without_room_are_named(void **state)
{
	struct report *r = new_report();
	_cleanup_json_ json_t *few = NULL, *many = NULL, *none = NULL;
	json_t *names = json_object();
	char ns[16];

	(void)state;
	report_crowded(r, json_pack("{s:b, s:b, s:b}", "b", true, "", true, "a", true));
	few = report_json(r);
	assert_int_equal(json_array_size(json_at(few, "status.crowdedNamespaces")), 3);
	for (size_t i = 0; i < 3; i++)
		assert_string_equal(json_string_value(json_array_get(
					    json_at(few, "status.crowdedNamespaces"), i)),
				    ((const char *const[]){"", "a", "b"})[i]);
	for (unsigned i = 0; i < 256; i++) {
		snprintf(ns, sizeof(ns), "n%03u", i);
		json_object_set_new(names, ns, json_true());
	}
	report_crowded(r, names);
	many = report_json(r);
	assert_int_equal(json_array_size(json_at(many, "status.crowdedNamespaces")), 256);
	assert_string_equal(
		json_string_value(json_array_get(json_at(many, "status.crowdedNamespaces"), 255)),
		"*");
	/* an empty list, so that the API server forgets the old one */
	report_crowded(r, json_object());
	none = report_json(r);
	assert_true(json_is_array(json_at(none, "status.crowdedNamespaces")));
	assert_int_equal(json_array_size(json_at(none, "status.crowdedNamespaces")), 0);
	report_free(r);
}

static void test_one_of_another_namespace_is_in_it(void **state)
{
	enum { N = 301 };
	struct report *r = new_report();
	struct plan_target *t = xcalloc(N, sizeof(*t));
	_cleanup_json_ json_t *o = NULL;
	const json_t *list;
	char uids[N][16];

	(void)state;
	for (int i = 0; i < N; i++) {
		snprintf(uids[i], sizeof(uids[i]), "u%03d", i);
		t[i] = target(uids[i], 1, 1);
	}
	t[N - 1].ns = (char *)"other";
	give_plan(r, t, N);
	o = report_json(r);
	list = json_at(o, "status.targets");
	assert_int_equal(json_array_size(list), 256);
	assert_int_equal(json_int_at(o, "status.targetsOmitted", 0), N - 256);
	assert_string_equal(json_str_at(json_array_get(list, 254), "uid", ""), "u254");
	assert_string_equal(json_str_at(json_array_get(list, 255), "uid", ""), "u300");
	free(t);
	report_free(r);
}

/* ---- when it is written ---- */

static void test_first_samples_are_urgent_and_once(void **state)
{
	struct report *r = written_report();
	unsigned n = sent.n;

	(void)state;
	report_sampled(r, "u1", EVENT_ON_CPU, 0);
	assert_false(timer_armed());
	report_sampled(r, "u1", EVENT_ON_CPU, 4);
	assert_true(urgent());
	timer_fire();
	answer(200);
	report_sampled(r, "u1", EVENT_ON_CPU, 9);
	assert_false(timer_armed());
	report_stored(r, "u1", EVENT_ON_CPU, 9);
	assert_true(urgent());
	timer_fire();
	assert_string_equal(sent.method, "PATCH");
	assert_string_equal(sent.type, "application/merge-patch+json");
	assert_string_equal(sent.path, "/apis/podflame.io/v1alpha1/namespaces/podflame-system/"
				       "profilingnodereports/node1/status");
	assert_true(json_is_object(json_object_get(sent.body, "status")));
	answer(200);
	report_stored(r, "u1", EVENT_ON_CPU, 9);
	report_stored(r, "unknown", EVENT_ON_CPU, 9);
	assert_false(timer_armed());
	assert_int_equal(sent.n, n + 2);
	report_free(r);
}

static void test_counts_wait_and_losses_never_write(void **state)
{
	struct report *r = written_report();
	struct plan_target t = target("u1", 1, 2);

	(void)state;
	report_lost(r, 1, 0);
	give_plan(r, &t, 1);
	assert_false(timer_armed());
	t.pods_matched = t.pods_planned = 3;
	give_plan(r, &t, 1);
	assert_true(timer_armed());
	assert_false(urgent());
	assert_in_range(timer_delay_ns(), HOUR_NS - 60 * NSEC_PER_SEC, HOUR_NS + NSEC_PER_SEC);
	/* the same content as in the server, so nothing is written */
	t.pods_matched = t.pods_planned = 2;
	give_plan(r, &t, 1);
	assert_false(timer_armed());
	report_free(r);
}

static void assert_stacks(const struct report *r, int64_t samples, const char *finished)
{
	_cleanup_json_ json_t *t = first_target(r);

	assert_int_equal(json_int_at(t, "stacks.samples", 0), samples);
	assert_string_equal(json_str_at(t, "stacks.finished", "none"), finished);
}

/*
 * The share is reported if it changes by a percentage point. More samples with the same share cause
 * no write.
 */
static void test_share_of_whole_stacks(void **state)
{
	struct report *r = written_report();
	struct plan_target next = target("u1", 2, 2);

	(void)state;
	report_stacks(r, "u1", 199, 199);
	report_stacks(r, "unknown", 1000, 1000);
	assert_stacks(r, 0, "none"); /* too few samples to report a share */
	assert_false(timer_armed());
	report_stacks(r, "u1", 1, 0);
	assert_stacks(r, 200, "99.5%");
	assert_true(timer_armed());
	assert_false(urgent());
	timer_fire();
	answer(200);
	report_stacks(r, "u1", 800, 796);
	report_stacks(r, "u1", 9000, 8950);
	assert_false(timer_armed());
	assert_stacks(r, 200, "99.5%");
	report_stacks(r, "u1", 1000, 500);
	assert_true(timer_armed());
	assert_stacks(r, 11000, "94.9%");
	/* a new spec, of which there are no samples yet */
	give_plan(r, &next, 1);
	assert_stacks(r, 0, "none");
	report_free(r);
}

static void test_a_burst_is_limited(void **state)
{
	struct report *r = written_report();
	unsigned n_urgent = 0;

	(void)state;
	for (int i = 0; i < 40; i++) {
		report_problem(r, "u1", REASON_RATE_LOWERED, i % 2 ? "" : "over the limit", 0);
		if (!urgent())
			break;
		n_urgent++;
		timer_fire();
		answer(200);
	}
	assert_in_range(n_urgent, 5, 12);
	assert_true(timer_armed());
	report_free(r);
}

static void test_new_generation_starts_anew(void **state)
{
	struct report *r = written_report();
	struct plan_target t = target("u1", 2, 2);
	_cleanup_json_ json_t *e = NULL;

	(void)state;
	report_stored(r, "u1", EVENT_ON_CPU, 1);
	timer_fire();
	answer(200);
	give_plan(r, &t, 1);
	assert_true(urgent());
	e = first_target(r);
	assert_int_equal(json_int_at(e, "generation", 0), 2);
	assert_true(json_is_false(json_object_get(
		json_object_get(json_object_get(e, "events"), "on-cpu"), "stored")));
	report_free(r);
}

static void test_target_that_goes_leaves_the_report(void **state)
{
	struct report *r = written_report();
	_cleanup_json_ json_t *e = NULL;

	(void)state;
	give_plan(r, NULL, 0);
	assert_true(urgent());
	e = first_target(r);
	assert_null(e);
	report_free(r);
}

/* ---- answers ---- */

static void test_absent_report_is_created(void **state)
{
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 1);
	_cleanup_json_ json_t *want = NULL;

	(void)state;
	give_plan(r, &t, 1);
	timer_fire();
	assert_string_equal(sent.method, "PATCH");
	answer(404);
	answer_pod();
	assert_string_equal(sent.method, "POST");
	assert_string_equal(
		sent.path,
		"/apis/podflame.io/v1alpha1/namespaces/podflame-system/profilingnodereports");
	assert_string_equal(json_str_at(sent.body, "kind", ""), "ProfilingNodeReport");
	want = json_loads("[{\"apiVersion\": \"apps/v1\", \"kind\": \"DaemonSet\", \"name\": "
			  "\"podflame-agent\", \"uid\": \"ds-uid\"}]",
			  0, NULL);
	assert_true(json_equal(want, json_at(sent.body, "metadata.ownerReferences")));
	answer(201);
	assert_string_equal(sent.method, "PATCH");
	answer(200);
	assert_false(timer_armed());
	report_free(r);
}

static void check_with(struct report *r, int status)
{
	report_check(r);
	assert_string_equal(sent.method, "GET");
	assert_string_equal(sent.path, "/apis/podflame.io/v1alpha1/namespaces/podflame-system/"
				       "profilingnodereports/node1");
	answer(status);
}

static void test_a_report_that_was_deleted_is_written_again(void **state)
{
	static const int others[] = {200, 403, 503, -1};
	struct report *r = written_report();
	struct plan_target t = target("u1", 2, 2);
	unsigned n;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		check_with(r, others[i]);
		assert_false(timer_armed());
	}
	check_with(r, 404);
	n = sent.n;
	report_check(r); /* a write is due and will show whether the report exists */
	assert_int_equal(sent.n, n);
	timer_fire();
	assert_string_equal(sent.method, "PATCH");
	report_check(r);
	answer(404);
	answer_pod();
	assert_string_equal(sent.method, "POST");
	answer(201);
	assert_string_equal(
		json_str_at(json_array_get(json_at(sent.body, "status.targets"), 0), "uid", ""),
		"u1");
	answer(200);
	assert_false(timer_armed());
	check_with(r, 200);
	assert_false(timer_armed());
	/* a change during the request is written after the answer */
	report_check(r);
	n = sent.n;
	give_plan(r, &t, 1);
	timer_fire();
	assert_int_equal(sent.n, n);
	answer(200);
	timer_fire();
	assert_string_equal(sent.method, "PATCH");
	answer(200);
	assert_false(timer_armed());
	report_check(r);
	report_free(r);
	answer(404);
}

static void test_without_a_daemonset_it_has_no_owner(void **state)
{
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 1);

	(void)state;
	give_plan(r, &t, 1);
	timer_fire();
	answer(404);
	answer(503); /* 503: the owner is not known now, and the report is not created without it */
	assert_string_equal(sent.method, "GET");
	timer_fire();
	answer(404);
	answer(404); /* 404: the pod does not exist, so the report has no owner */
	assert_string_equal(sent.method, "POST");
	assert_null(json_at(sent.body, "metadata.ownerReferences"));
	answer(201);
	answer(200);
	report_free(r);
}

static void test_somebody_else_created_it(void **state)
{
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 1);

	(void)state;
	give_plan(r, &t, 1);
	timer_fire();
	answer(404);
	answer_pod();
	answer(409);
	assert_string_equal(sent.method, "PATCH");
	answer(200);
	assert_false(timer_armed());
	report_free(r);
}

static void test_failures_back_off_and_recover(void **state)
{
	static const int failures[] = {403, 409, 500, -1, 429, 404};
	uint64_t longest = 0;
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 1);

	(void)state;
	give_plan(r, &t, 1);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
			timer_fire();
			answer(failures[i]);
			if (failures[i] == 404) {
				answer_pod();
				/*
				 * the answer to the create: the CRD or the namespace does not exist
				 * yet
				 */
				answer(404);
			}
			assert_true(timer_armed());
			longest = MAX(longest, timer_delay_ns());
		}
	}
	assert_in_range(longest, 30 * NSEC_PER_SEC, 120 * NSEC_PER_SEC);
	/* a change during the delay does not shorten the delay */
	report_sampled(r, "u1", EVENT_ON_CPU, 1);
	assert_true(timer_delay_ns() > NSEC_PER_SEC);
	timer_fire();
	answer(200);
	assert_false(timer_armed());
	report_free(r);
}

static void test_change_during_a_write_is_written_after_it(void **state)
{
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 1);
	unsigned n;

	(void)state;
	give_plan(r, &t, 1);
	timer_fire();
	n = sent.n;
	report_stored(r, "u1", EVENT_ON_CPU, 1);
	assert_int_equal(sent.n, n);
	answer(200);
	assert_true(urgent());
	timer_fire();
	assert_true(json_is_true(json_object_get(
		json_object_get(
			json_object_get(json_array_get(json_at(sent.body, "status.targets"), 0),
					"events"),
			"on-cpu"),
		"stored")));
	answer(200);
	report_free(r);
}

static void test_freed_before_the_answer(void **state)
{
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 1);

	(void)state;
	give_plan(r, &t, 1);
	timer_fire();
	report_free(r);
	answer(200);
}

static void test_reasons_that_find_no_room_are_named(void **state)
{
	const enum reason first_reason = REASON_OVER_BUDGET;
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 2);
	struct buf more;
	json_t *first;

	(void)state;
	buf_init(&more, 0);
	buf_puts(&more, "6 more");
	give_plan(r, &t, 1);
	for (unsigned i = 0; i < 13; i++) {
		report_problem(r, "u1", first_reason + i, "is so", 1);
		if (i >= 7)
			buf_printf(&more, "%s %s", i == 7 ? ":" : ",",
				   reason_name(first_reason + i));
	}
	first = first_target(r);
	assert_int_equal(json_array_size(json_at(first, "reasons")), 8);
	assert_string_equal(reason_at(first, 6, "reason"), reason_name(first_reason + 6));
	assert_string_equal(reason_at(first, 7, "reason"), "ReasonsOmitted");
	assert_string_equal(reason_at(first, 7, "message"), more.data);
	buf_done(&more);
	json_decref(first);
	report_free(r);
}

/*
 * The problem is removed with the last container, for example when the target is suspended, because
 * the module that reported it does not run for the target any more.
 */
static void test_no_problem_without_a_container(void **state)
{
	struct report *r = new_report();
	struct plan_target t = target("u1", 1, 2);
	json_t *first;

	(void)state;
	give_plan(r, &t, 1);
	report_problem(r, "u1", REASON_OVER_BUDGET, "mem-inuse is off", 2);
	first = first_target(r);
	assert_int_equal(json_array_size(json_at(first, "reasons")), 1);
	json_decref(first);
	t.pods_planned = t.containers_planned = 0;
	t.suspended = true;
	give_plan(r, &t, 1);
	first = first_target(r);
	assert_int_equal(json_array_size(json_at(first, "reasons")), 0);
	json_decref(first);
	report_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_long_texts_are_cut),
		cmocka_unit_test(test_refused_target_is_told),
		cmocka_unit_test(test_many_targets_are_cut_and_counted),
		cmocka_unit_test(test_one_of_another_namespace_is_in_it),
		cmocka_unit_test(test_a_target_without_pods_may_miss_some),
		cmocka_unit_test(test_namespaces_without_room_are_named),
		cmocka_unit_test(test_first_samples_are_urgent_and_once),
		cmocka_unit_test(test_counts_wait_and_losses_never_write),
		cmocka_unit_test(test_share_of_whole_stacks),
		cmocka_unit_test(test_a_burst_is_limited),
		cmocka_unit_test(test_new_generation_starts_anew),
		cmocka_unit_test(test_target_that_goes_leaves_the_report),
		cmocka_unit_test(test_absent_report_is_created),
		cmocka_unit_test(test_a_report_that_was_deleted_is_written_again),
		cmocka_unit_test(test_without_a_daemonset_it_has_no_owner),
		cmocka_unit_test(test_somebody_else_created_it),
		cmocka_unit_test(test_failures_back_off_and_recover),
		cmocka_unit_test(test_change_during_a_write_is_written_after_it),
		cmocka_unit_test(test_freed_before_the_answer),
		cmocka_unit_test(test_reasons_that_find_no_room_are_named),
		cmocka_unit_test(test_no_problem_without_a_container),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	json_decref(sent.body);
	return failed;
}
