/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays controller-spec/cases/<name>.yaml: each file is one test. The form of a
 * case is described in controller-spec/SPEC.md; a key that is not described there
 * fails the case, and so does a case that asserts nothing.
 * CONTROLLER_SPEC names another folder of cases.
 */
#include "node/plan/internal.h"

#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "node/plan/plan_case.h"

#define CASES_MAX 512

struct world {
	json_t *targets, *pods, *namespaces; /* "key" -> API object */
	json_t *node, *settings;
	char *now;
};

static void world_done(struct world *w)
{
	json_decref(w->targets);
	json_decref(w->pods);
	json_decref(w->namespaces);
	json_decref(w->node);
	json_decref(w->settings);
	free(w->now);
}

/* ---- the world ---- */

/* trim: what the agent keeps of an object must be enough. */
static void put_all(json_t *into, const json_t *list, json_t *(*make)(const json_t *),
		    void (*trim)(json_t *))
{
	const json_t *in;
	size_t i;

	json_array_foreach (list, i, in) {
		json_t *obj = make(in);
		_cleanup_free_ char *key =
			xasprintf("%s/%s", json_str_at(obj, "metadata.namespace", ""),
				  json_str_at(obj, "metadata.name", ""));
		_cleanup_free_ char *odd = xasprintf("#%zu", json_object_size(into));

		trim(obj);
		json_object_set_new(into, json_object_get(in, "object") ? odd : key, obj);
	}
}

static void remove_all(json_t *from, const json_t *keys)
{
	const json_t *k;
	size_t i;

	json_array_foreach (keys, i, k) {
		const char *s = json_string_value(k);
		_cleanup_free_ char *key = strchr(s, '/') ? xstrdup(s) : xasprintf("/%s", s);

		if (json_object_del(from, key) < 0)
			fail_msg("remove: no %s", key);
	}
}

static void world_change(struct world *w, const json_t *change, const char *where)
{
	const json_t *gone = json_object_get(change, "remove");
	const json_t *settings = json_object_get(change, "settings");

	only_keys(change, "settings now node namespaces targets pods remove", where);
	only_keys(gone, "namespaces targets pods", "remove");
	only_keys(settings,
		  "clusterName nodeName ownNamespace optInRequired defaultTarget "
		  "defaultSampleHz maxSampleHz",
		  "settings");
	remove_all(w->namespaces, json_object_get(gone, "namespaces"));
	remove_all(w->targets, json_object_get(gone, "targets"));
	remove_all(w->pods, json_object_get(gone, "pods"));
	put_all(w->namespaces, json_object_get(change, "namespaces"), make_namespace,
		plan_trim_named);
	put_all(w->targets, json_object_get(change, "targets"), make_target, plan_trim_target);
	put_all(w->pods, json_object_get(change, "pods"), make_pod, plan_trim_pod);
	json_object_update(w->settings, (json_t *)settings);
	if (json_object_get(change, "node")) {
		json_decref(w->node);
		w->node = json_pack("{s:o}", "metadata",
				    json_deep_copy(json_object_get(change, "node")));
	}
	if (json_object_get(change, "now")) {
		free(w->now);
		w->now = xstrdup(json_str_at(change, "now", ""));
	}
}

/* In the order of insertion, or the reverse: the plan must not depend on it. */
static size_t values(const json_t *map, bool reverse, const json_t **ret)
{
	const char *key;
	json_t *v;
	size_t n = 0;

	json_object_foreach ((json_t *)map, key, v)
		ret[reverse ? json_object_size(map) - ++n : n++] = v;
	return n;
}

static json_t *run_plan(const struct world *w, bool reverse)
{
	const json_t *targets[64], *pods[64], *namespaces[64];
	const json_t *s = w->settings, *labels = json_at(w->node, "metadata");
	struct plan_world pw = {
		.targets = targets,
		.n_targets = values(w->targets, reverse, targets),
		.pods = pods,
		.n_pods = values(w->pods, reverse, pods),
		.namespaces = namespaces,
		.n_namespaces = values(w->namespaces, reverse, namespaces),
		.node = json_is_null(labels) ? NULL : w->node,
		.settings =
			{
				.cluster_name = json_str_at(s, "clusterName", "test"),
				.node_name = json_str_at(s, "nodeName", "node1"),
				.own_namespace = json_str_at(s, "ownNamespace", "podflame-system"),
				.opt_in_required = json_bool_at(s, "optInRequired", true),
				.default_target = json_bool_at(s, "defaultTarget", false),
				.default_sample_hz =
					(unsigned)json_int_at(s, "defaultSampleHz", 99),
				.max_sample_hz = (unsigned)json_int_at(s, "maxSampleHz", 199),
			},
	};
	struct plan *p = NULL;
	json_t *j;

	assert_int_equal(time_parse(w->now, &pw.now_ns), 0);
	assert_int_equal(plan_build(&pw, &p), 0);
	j = plan_to_json(p);
	assert_non_null(j);
	plan_free(p);
	return j;
}

/* ---- assertions ---- */

static char *text(const json_t *j)
{
	return j ? json_dumps(j, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_COMPACT)
		 : xstrdup("nothing");
}

/* Members of want must be in got; lists and scalars must be equal. */
static void expect(const json_t *want, const json_t *got, const char *where)
{
	_cleanup_free_ char *a = NULL, *b = NULL;
	const char *key;
	json_t *v;

	if (json_is_object(want) && json_is_object(got)) {
		json_object_foreach ((json_t *)want, key, v) {
			_cleanup_free_ char *at = xasprintf("%s.%s", where, key);

			expect(v, json_object_get(got, key), at);
		}
		return;
	}
	if (json_is_number(want) && json_is_number(got) &&
	    json_number_value(want) == json_number_value(got))
		return;
	if (json_is_null(want) && (!got || json_is_null(got)))
		return;
	if (got && json_equal(want, got))
		return;
	a = text(want);
	b = text(got);
	fail_msg("%s: wanted %s, got %s", where, a, b);
}

/* "ns/pod/container" of all that is profiled. */
static json_t *profiled(const json_t *plan)
{
	json_t *all = json_object(), *pod, *c;
	size_t i, k;

	json_array_foreach (json_object_get(plan, "pods"), i, pod) {
		json_array_foreach (json_object_get(pod, "containers"), k, c) {
			_cleanup_free_ char *key =
				xasprintf("%s/%s/%s", json_str_at(pod, "namespace", ""),
					  json_str_at(pod, "name", ""), json_str_at(c, "name", ""));
			json_object_set(all, key, c);
		}
	}
	return all;
}

static void expect_profiled(const json_t *want, const json_t *plan, const char *where)
{
	_cleanup_json_ json_t *got = profiled(plan);
	const char *key;
	json_t *v;

	json_object_foreach (got, key, v) {
		if (!json_object_get(want, key))
			fail_msg("%s: %s is profiled and should not be", where, key);
	}
	json_object_foreach ((json_t *)want, key, v) {
		_cleanup_free_ char *at = xasprintf("%s.profiled.%s", where, key);

		if (!json_object_get(got, key))
			fail_msg("%s: is not profiled", at);
		only_keys(v,
			  "events sampleHz settings overheadPercent javaAttach traceContext "
			  "targets tags id",
			  at);
		if (!json_is_null(v))
			expect(v, json_object_get(got, key), at);
	}
}

static json_t *find(const json_t *list, const char *key)
{
	json_t *o;
	size_t i;

	json_array_foreach (list, i, o) {
		const char *ns = json_str_at(o, "namespace", "");
		_cleanup_free_ char *k =
			xasprintf("%s%s%s", ns, *ns ? "/" : "", json_str_at(o, "name", ""));

		if (streq(k, key))
			return o;
	}
	return NULL;
}

static void expect_pods(const json_t *want, const json_t *plan, const char *where)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)want, key, v) {
		_cleanup_free_ char *at = xasprintf("%s.pods.%s", where, key);

		only_keys(v,
			  "uid cgroupUID armPod armEvents armSampleHz armSettings armTraceContext "
			  "tags",
			  at);
		expect(v, find(json_object_get(plan, "pods"), key), at);
	}
}

/* json_str_at would split the key at its dots. */
static const char *text_at(const json_t *obj, const char *key)
{
	const char *s = json_string_value(json_object_get(obj, key));

	return s ? s : "";
}

static void expect_reasons(const json_t *want, const json_t *target, const char *at)
{
	_cleanup_json_ json_t *names = json_array(), *pods = json_object();
	const json_t *says = json_object_get(want, "says");
	const char *key;
	json_t *r, *v;
	size_t i;

	json_array_foreach (json_object_get(target, "reasons"), i, r) {
		json_array_append(names, json_object_get(r, "reason"));
		json_object_set(pods, json_str_at(r, "reason", ""), json_object_get(r, "pods"));
		key = json_str_at(r, "reason", "");
		if (!strstr(json_str_at(r, "message", ""), text_at(says, key)))
			fail_msg("%s: %s says \"%s\", not \"%s\"", at, key,
				 json_str_at(r, "message", ""), text_at(says, key));
	}
	if (json_object_get(want, "reasons"))
		expect(json_object_get(want, "reasons"), names, at);
	if (json_object_get(want, "reasonPods"))
		expect(json_object_get(want, "reasonPods"), pods, at);
	json_object_foreach ((json_t *)says, key, v) {
		if (!json_object_get(pods, key))
			fail_msg("%s: no reason %s", at, key);
	}
}

static void expect_targets(const json_t *want, const json_t *plan, const char *where)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)want, key, v) {
		_cleanup_free_ char *at = xasprintf("%s.targets.%s", where, key);
		const json_t *got = find(json_object_get(plan, "targets"), key);
		_cleanup_json_ json_t *rest = json_deep_copy(v);

		only_keys(v,
			  "uid kind generation accepted onThisNode suspended completed events "
			  "podsMatched podsPlanned containersPlanned reasons reasonPods says",
			  at);
		if (!got)
			fail_msg("%s: no such target in the plan", at);
		expect_reasons(v, got, at);
		json_object_del(rest, "reasons");
		json_object_del(rest, "reasonPods");
		json_object_del(rest, "says");
		expect(rest, got, at);
	}
}

static void expect_all(const json_t *then, const struct world *w, const char *where)
{
	_cleanup_json_ json_t *plan = NULL, *again = NULL;

	only_keys(then, "profiled pods targets nextChange podsUnreadable", where);
	if (json_object_size(then) == 0)
		fail_msg("%s asserts nothing", where);
	plan = run_plan(w, false);
	if (json_object_get(then, "profiled"))
		expect_profiled(json_object_get(then, "profiled"), plan, where);
	expect_pods(json_object_get(then, "pods"), plan, where);
	expect_targets(json_object_get(then, "targets"), plan, where);
	for (const char *const *k = (const char *[]){"nextChange", "podsUnreadable", NULL}; *k;
	     k++) {
		if (json_object_get(then, *k))
			expect(json_object_get(then, *k), json_object_get(plan, *k), *k);
	}
	again = run_plan(w, true);
	assert_true(json_equal(plan, again));
}

/* ---- one file ---- */

static void test_case(void **state)
{
	_cleanup_(world_done) struct world w = {.targets = json_object(),
						.pods = json_object(),
						.namespaces = json_object(),
						.node = json_pack("{s:{}}", "metadata"),
						.settings = json_object(),
						.now = xstrdup("2026-11-21T12:00:00Z")};
	struct yaml_doc *doc = NULL;
	struct field_error err;
	_cleanup_free_ char *data = NULL;
	const json_t *root, *steps, *step;
	size_t n, i;

	assert_int_equal(file_read(AT_FDCWD, *state, 1 << 20, &data, &n), 0);
	if (yaml_parse(data, n, &doc, &err) < 0)
		fail_msg("%s: %s", err.path, err.reason);
	root = yaml_root(doc);
	steps = json_object_get(root, "steps");
	only_keys(root, "description given then steps", "case");
	assert_true(strlen(json_str_at(root, "description", "")) > 10);
	world_change(&w, json_object_get(root, "given"), "given");
	expect_all(json_object_get(root, "then"), &w, "then");
	json_array_foreach (steps, i, step) {
		_cleanup_free_ char *where = xasprintf("steps[%zu]", i);

		only_keys(step, "when then", where);
		world_change(&w, json_object_get(step, "when"), where);
		expect_all(json_object_get(step, "then"), &w, where);
	}
	yaml_doc_free(doc);
}

int main(void)
{
	const char *dir = getenv("CONTROLLER_SPEC");
	_cleanup_free_ char *pattern = xasprintf("%s/*.yaml", dir ? dir : "controller-spec/cases");
	struct CMUnitTest tests[CASES_MAX];
	glob_t g;
	int failed;

	if (glob(pattern, 0, NULL, &g) != 0 || g.gl_pathc > CASES_MAX) {
		fprintf(stderr, "no cases, or more than %d, at %s\n", CASES_MAX, pattern);
		return 1;
	}
	for (size_t i = 0; i < g.gl_pathc; i++)
		tests[i] = (struct CMUnitTest){.name = strrchr(g.gl_pathv[i], '/') + 1,
					       .test_func = test_case,
					       .initial_state = g.gl_pathv[i]};
	failed = _cmocka_run_group_tests("controller-spec", tests, g.gl_pathc, NULL, NULL);
	globfree(&g);
	return failed;
}
