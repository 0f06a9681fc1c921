/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of the plan: objects beyond a limit are left out and reported. Which objects are left
 * out does not depend on their order.
 */
#include "node/plan/internal.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

static json_t *target(unsigned i)
{
	char uid[32];

	snprintf(uid, sizeof(uid), "t%05u", i);
	return json_pack("{s:s, s:{s:s, s:s, s:s}, s:{s:{}}}", "kind", "ProfilingTarget",
			 "metadata", "name", uid, "namespace", "app", "uid", uid, "spec",
			 "podSelector");
}

static json_t *pod(unsigned i, unsigned n_containers)
{
	json_t *list = json_array();
	char uid[32];

	for (unsigned k = 0; k < n_containers; k++) {
		snprintf(uid, sizeof(uid), "c%u", k);
		json_array_append_new(list, json_pack("{s:s}", "name", uid));
	}
	snprintf(uid, sizeof(uid), "p%05u", i);
	return json_pack("{s:{s:s, s:s, s:s}, s:{s:o}}", "metadata", "name", uid, "namespace",
			 "app", "uid", uid, "spec", "containers", list);
}

static struct plan *build_limited(json_t **targets, size_t n_targets, json_t **pods, size_t n_pods,
				  unsigned max_targets)
{
	struct plan_world w = {
		.targets = (const json_t *const *)targets,
		.n_targets = n_targets,
		.pods = (const json_t *const *)pods,
		.n_pods = n_pods,
		.settings = {.cluster_name = "c",
			     .node_name = "n",
			     .max_sample_hz = 199,
			     .tenant.max_targets = max_targets},
	};
	struct plan *p = NULL;

	assert_int_equal(plan_build(&w, &p), 0);
	for (size_t i = 0; i < n_targets; i++)
		json_decref(targets[i]);
	for (size_t i = 0; i < n_pods; i++)
		json_decref(pods[i]);
	return p;
}

static struct plan *build(json_t **targets, size_t n_targets, json_t **pods, size_t n_pods)
{
	return build_limited(targets, n_targets, pods, n_pods, 0);
}

static const struct plan_reason *reason(const struct plan_target *t, const char *name)
{
	for (size_t i = 0; i < t->n_reasons; i++) {
		if (streq(reason_name(t->reasons[i].reason), name))
			return &t->reasons[i];
	}
	fail_msg("no reason %s", name);
	return NULL;
}

static const char *tag_of(const struct tags *t, const char *key)
{
	for (size_t i = 0; i < t->n; i++)
		if (streq(t->items[i].key, key))
			return t->items[i].value;
	fail_msg("no tag %s", key);
	return NULL;
}

static void test_pods(void **state)
{
	static json_t *pods[PLAN_MAX_PODS + 3];
	json_t *t = target(0);
	struct plan *p;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(pods); i++)
		pods[i] = pod((unsigned)ARRAY_SIZE(pods) - 1 - i, 1);
	p = build(&t, 1, pods, ARRAY_SIZE(pods));
	assert_int_equal(p->n_pods, PLAN_MAX_PODS);
	assert_string_equal(p->pods[0].uid, "p00000");
	assert_int_equal(p->targets[0].pods_matched, PLAN_MAX_PODS + 3);
	assert_int_equal(reason(&p->targets[0], "TooManyPods")->n_pods, 3);
	plan_free(p);
}

/*
 * The agent has no room for pods of two namespaces: the targets that may profile pods there say so,
 * also if they match no other pod. Others do not.
 */
static void test_pods_without_room(void **state)
{
	json_t *targets[] = {
		target(0),
		json_pack("{s:s, s:{s:s, s:s}, s:{s:{}, s:{}}}", "kind", "ClusterProfilingTarget",
			  "metadata", "name", "all", "uid", "t00001", "spec", "podSelector",
			  "namespaceSelector"),
		target(2),
		target(3),
	};
	json_t *namespaces[] = {
		json_pack("{s:{s:s}}", "metadata", "name", "app"),
		json_pack("{s:{s:s, s:{s:s}}}", "metadata", "name", "labelled", "labels",
			  "podflame.io/profiling", "enabled"),
	};
	_cleanup_json_ json_t *left_out = json_pack("{s:i, s:i}", "app", 3, "labelled", 2);
	struct plan_world w = {.targets = (const json_t *const *)targets,
			       .n_targets = ARRAY_SIZE(targets),
			       .namespaces = (const json_t *const *)namespaces,
			       .n_namespaces = ARRAY_SIZE(namespaces),
			       .without_room = left_out,
			       .settings = {.opt_in_required = true, .max_sample_hz = 199}};
	const struct plan_reason *own, *cluster;
	struct plan *p = NULL;

	(void)state;
	json_object_set_new(json_object_get(targets[2], "metadata"), "namespace",
			    json_string("other"));
	json_object_set_new(json_object_get(targets[3], "spec"), "suspend", json_true());
	assert_int_equal(plan_build(&w, &p), 0);
	own = reason(&p->targets[0], "NoRoomForPods");
	assert_int_equal(own->n_pods, 3);
	assert_string_equal(own->message, "the agent has no room in memory for, and so does not "
					  "profile, 3 pods (for example of namespace app)");
	/* the namespace app has not opted in */
	cluster = reason(&p->targets[1], "NoRoomForPods");
	assert_int_equal(cluster->n_pods, 2);
	assert_int_equal(p->targets[1].pods_without_room, 2);
	assert_int_equal(p->targets[2].n_reasons, 1);
	reason(&p->targets[2], "NoPodsMatched");
	assert_int_equal(p->targets[3].pods_without_room, 0);
	plan_free(p);
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++)
		json_decref(targets[i]);
	for (size_t i = 0; i < ARRAY_SIZE(namespaces); i++)
		json_decref(namespaces[i]);
}

static void test_gpu_names(void **state)
{
	json_t *one = pod(0, 1), *t = target(0), *limits = json_object();
	struct plan *p;

	(void)state;
	for (char name[] = "1.example.com/gpu"; *name <= '9'; (*name)++)
		json_object_set_new(limits, name, json_string("1"));
	json_object_set_new(json_array_get(json_at(one, "spec.containers"), 0), "resources",
			    json_pack("{s:o}", "limits", limits));
	p = build(&t, 1, &one, 1);
	assert_string_equal(tag_of(&p->pods[0].tags, "pod_gpu"),
			    "1.example.com/gpu,2.example.com/gpu,3.example.com/gpu,"
			    "4.example.com/gpu,5.example.com/gpu,6.example.com/gpu,"
			    "7.example.com/gpu,8.example.com/gpu,...");
	plan_free(p);
}

static void test_targets(void **state)
{
	static json_t *targets[PLAN_MAX_TARGETS + 1];
	json_t *one = pod(0, 1);
	struct plan *p;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(targets); i++)
		targets[i] = target((unsigned)ARRAY_SIZE(targets) - 1 - i);
	p = build(targets, ARRAY_SIZE(targets), &one, 1);
	assert_int_equal(p->n_targets, PLAN_MAX_TARGETS + 1);
	assert_int_equal(p->pods[0].containers[0].n_targets, PLAN_MAX_TARGETS);
	assert_string_equal(p->targets[PLAN_MAX_TARGETS].uid, "t04096");
	assert_false(p->targets[PLAN_MAX_TARGETS].accepted);
	reason(&p->targets[PLAN_MAX_TARGETS], "TooManyTargets");
	plan_free(p);
}

static json_t *target_of(const char *ns, const char *uid)
{
	return json_pack("{s:s, s:{s:s, s:s, s:s}, s:{s:{}}}", "kind", "ProfilingTarget",
			 "metadata", "name", uid, "namespace", ns, "uid", uid, "spec",
			 "podSelector");
}

/*
 * If there are too many targets, those of a namespace with many are refused, not those of one with
 * few.
 */
static void test_targets_are_refused_fairly(void **state)
{
	static json_t *targets[PLAN_MAX_TARGETS + 2];
	size_t n = ARRAY_SIZE(targets);
	struct plan *p;

	(void)state;
	for (unsigned i = 0; i < n - 2; i++)
		targets[i] = target(i);
	targets[n - 2] = target_of("other", "z1");
	targets[n - 1] = target_of("third", "z2");
	p = build(targets, n, NULL, 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(p->targets[i].accepted, i < n - 4 || i >= n - 2);
	assert_string_equal(p->targets[n - 1].uid, "z2");
	plan_free(p);
}

/*
 * The targets that a namespace has too many of are refused for that alone, and take no room from
 * the others.
 */
static void test_targets_of_a_namespace(void **state)
{
	static json_t *targets[PLAN_MAX_TARGETS + 2];
	size_t n = ARRAY_SIZE(targets);
	struct plan *p;

	(void)state;
	for (unsigned i = 0; i < n - 1; i++)
		targets[n - 2 - i] = target(i);
	targets[n - 1] = target_of("other", "z1");
	p = build_limited(targets, n, NULL, 0, PLAN_MAX_TARGETS - 1);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(p->targets[i].accepted, i < PLAN_MAX_TARGETS - 1 || i == n - 1);
	for (size_t i = PLAN_MAX_TARGETS - 1; i < n - 1; i++)
		assert_non_null(strstr(reason(&p->targets[i], "TooManyTargets")->message,
				       "tenant.maxTargets allows 4095 "));
	assert_string_equal(p->targets[n - 1].uid, "z1");
	plan_free(p);
}

static unsigned hz_of(struct plan_world *w, const json_t *target)
{
	struct plan *p = NULL;
	unsigned hz;

	w->targets = &target;
	w->n_targets = target != NULL;
	assert_int_equal(plan_build(w, &p), 0);
	hz = p->n_pods ? p->pods[0].containers[0].sample_hz : 0;
	plan_free(p);
	return hz;
}

/*
 * Changes an object in place, which no caller does, to see that the plan uses the decoded copy that
 * it keeps.
 */
static void test_a_target_is_decoded_once(void **state)
{
	_cleanup_json_ json_t *t = target(0), *one = pod(0, 1), *next = NULL;
	struct plan_world w = {
		.cache = plan_cache_new(),
		.pods = (const json_t *const *)&one,
		.n_pods = 1,
		.settings = {.cluster_name = "c", .node_name = "n", .max_sample_hz = 199},
	};
	json_t *spec = json_object_get(t, "spec");

	(void)state;
	json_object_set_new(spec, "events", json_pack("{s:{s:i}}", "onCpu", "sampleHz", 50));
	assert_int_equal(hz_of(&w, t), 50);
	json_object_set_new(json_object_get(json_object_get(spec, "events"), "onCpu"), "sampleHz",
			    json_integer(60));
	next = json_deep_copy(t);
	assert_int_equal(hz_of(&w, t), 50); /* the kept copy has the old value */
	assert_int_equal(hz_of(&w, next), 60);
	assert_int_equal(t->refcount, 1); /* the cache has dropped its reference */
	assert_int_equal(hz_of(&w, t), 60);
	assert_int_equal(hz_of(&w, NULL), 0);
	assert_int_equal(t->refcount, 1);
	plan_cache_free(w.cache);
}

static void test_containers(void **state)
{
	json_t *one = pod(0, PLAN_MAX_CONTAINERS + 1), *t = target(0);
	struct plan *p;

	(void)state;
	p = build(&t, 1, &one, 1);
	assert_int_equal(p->pods[0].n_containers, PLAN_MAX_CONTAINERS);
	assert_false(p->pods[0].arm_pod);
	assert_int_equal(reason(&p->targets[0], "TooManyContainers")->n_pods, 1);
	plan_free(p);
}

/* Adds 800 KB of text to an object, which needs 16 MB of memory as JSON values. */
static void annotate(json_t *obj)
{
	json_t *all = json_object();
	char key[16];

	for (unsigned i = 0; i < 87000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		json_object_set_new(all, key, json_string("v"));
	}
	json_object_set_new(all, SELECT_LABEL, json_string("disabled"));
	json_object_set_new(json_object_get(obj, "metadata"), "annotations", all);
}

static void test_annotations_are_not_kept(void **state)
{
	json_t *t = target(0), *p = pod(0, 1), *ns = target(1);
	struct plan *plan;

	(void)state;
	annotate(t);
	annotate(p);
	annotate(ns);
	assert_true(json_memory_bytes(t) > (10 << 20));
	plan_trim_target(t);
	plan_trim_pod(p);
	plan_trim_named(ns);
	assert_true(json_memory_bytes(t) < 4096);
	assert_true(json_memory_bytes(p) < 4096);
	assert_true(json_memory_bytes(ns) < 4096);
	plan = build(&t, 1, &p, 1);
	assert_int_equal(reason(&plan->targets[0], "PodOptedOut")->n_pods, 1);
	plan_free(plan);
	json_decref(ns);
}

/* A message is cut at its limit. It is always valid text for JSON, whatever the object contains. */
static void test_hostile_text(void **state)
{
	char key[4000] = "";
	json_t *t = target(0), *j;
	struct plan *p;

	(void)state;
	while (strlen(key) < sizeof(key) - 4)
		strcat(key, "\xc3\xa9");
	json_object_set_new(json_object_get(t, "spec"), "stopAfter", json_string(key + 1000));
	json_object_set_new(json_object_get(json_object_get(t, "spec"), "podSelector"), key,
			    json_true());
	p = build(&t, 1, NULL, 0);
	assert_false(p->targets[0].accepted);
	assert_true(strlen(p->targets[0].reasons[0].message) <= 1024);
	j = plan_to_json(p);
	assert_non_null(j);
	json_decref(j);
	plan_free(p);
}

/* ---- objects with a wrong value somewhere ---- */

static json_t *odd_value(unsigned i)
{
	static const char *const odd[] = {"null",	 "true",      "-1",	   "1e300",
					  "\"\"",	 "\"x\"",     "[]",	   "[null]",
					  "[[{}]]",	 "{}",	      "{\"\": 0}", "99999999999999",
					  "\"enabled\"", "[\"a\", 1]"};

	return json_loads(odd[i % ARRAY_SIZE(odd)], JSON_DECODE_ANY, NULL);
}

/* Replaces one value somewhere below j. */
static void spoil(json_t *j, uint64_t *seed)
{
	const char *key;
	json_t *v;
	size_t n;

	*seed = hash_bytes(seed, sizeof(*seed), 1);
	n = json_is_object(j) ? json_object_size(j) : json_array_size(j);
	if (!n)
		return;
	n = *seed % n;
	if (json_is_array(j)) {
		v = json_array_get(j, n);
		if ((*seed >> 32) % 4 == 0 || !(json_is_object(v) || json_is_array(v)))
			json_array_set_new(j, n, odd_value((unsigned)(*seed >> 40)));
		else
			spoil(v, seed);
		return;
	}
	json_object_foreach (j, key, v) {
		if (n--)
			continue;
		if ((*seed >> 32) % 4 == 0 || !(json_is_object(v) || json_is_array(v)))
			json_object_set_new(j, key, odd_value((unsigned)(*seed >> 40)));
		else
			spoil(v, seed);
		return;
	}
}

static void test_spoilt_objects(void **state)
{
	static const char target_text[] =
		"{\"kind\": \"ClusterProfilingTarget\", \"metadata\": {\"name\": \"t\", \"uid\": "
		"\"t\", "
		"\"generation\": 1}, \"spec\": {\"namespaceSelector\": {\"matchExpressions\": "
		"[{\"key\": "
		"\"a\", \"operator\": \"NotIn\", \"values\": [\"x\"]}]}, \"podSelector\": "
		"{\"matchLabels\": {\"app\": \"web\"}}, \"nodeSelector\": {}, \"containers\": "
		"{\"include\": [\"main\"], \"types\": [\"Regular\"]}, \"events\": {\"onCpu\": "
		"{\"sampleHz\": 9}, \"offCpu\": {\"minBlock\": \"1ms\"}, \"memAlloc\": {}}, "
		"\"podLabelTags\": [\"app\"], \"stopAfter\": \"5m\", "
		"\"limits\": "
		"{\"overheadPercent\": 1}}, \"status\": {\"firstReadyTime\": "
		"\"2026-11-21T12:00:00Z\"}}";
	static const char pod_text[] =
		"{\"metadata\": {\"name\": \"p\", \"namespace\": \"app\", \"uid\": \"p\", "
		"\"labels\": "
		"{\"app\": \"web\", \"pod-template-hash\": \"h\"}, \"annotations\": "
		"{\"kubernetes.io/config.hash\": \"3e61c214bc3ed9ff81e21474dd6cba17\", "
		"\"kubernetes.io/config.mirror\": \"x\"}, \"ownerReferences\": [{\"kind\": "
		"\"ReplicaSet\", \"name\": \"web-h\", \"controller\": true}]}, \"spec\": "
		"{\"nodeName\": "
		"\"n\", \"containers\": [{\"name\": \"main\", \"image\": \"i\"}], "
		"\"initContainers\": "
		"[{\"name\": \"i\", \"restartPolicy\": \"Always\"}]}, \"status\": {\"phase\": "
		"\"Running\", \"containerStatuses\": [{\"name\": \"main\", \"containerID\": "
		"\"containerd://11\", \"state\": {\"waiting\": {\"reason\": \"x\"}}}]}}";
	uint64_t seed = 42;

	(void)state;
	for (unsigned i = 0; i < 5000; i++) {
		json_t *t = json_loads(target_text, 0, NULL), *p = json_loads(pod_text, 0, NULL),
		       *j;
		struct plan *plan;

		for (unsigned k = 0; k <= i % 3; k++)
			spoil(k % 2 ? t : p, &seed);
		if (i % 2)
			spoil(t, &seed);
		plan = build(&t, 1, &p, 1);
		assert_true(plan->targets[0].accepted || plan->targets[0].n_reasons == 1);
		assert_true(plan->targets[0].accepted || plan->n_pods == 0);
		j = plan_to_json(plan);
		assert_non_null(j);
		json_decref(j);
		plan_free(plan);
	}
}

static void test_check_names_the_field(void **state)
{
	_cleanup_json_ json_t *t = target(0);
	struct field_error err;

	(void)state;
	assert_int_equal(plan_check_target(t, &err), 0);
	json_object_set_new(json_object_get(t, "spec"), "suspend", json_string("yes"));
	assert_int_equal(plan_check_target(t, &err), -EINVAL);
	assert_string_equal(err.path, "spec.suspend");
	assert_string_equal(err.reason, "must be true or false");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pods),
		cmocka_unit_test(test_pods_without_room),
		cmocka_unit_test(test_gpu_names),
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_a_target_is_decoded_once),
		cmocka_unit_test(test_targets_are_refused_fairly),
		cmocka_unit_test(test_targets_of_a_namespace),
		cmocka_unit_test(test_annotations_are_not_kept),
		cmocka_unit_test(test_containers),
		cmocka_unit_test(test_hostile_text),
		cmocka_unit_test(test_spoilt_objects),
		cmocka_unit_test(test_check_names_the_field),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
