/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: runs the cases of controller-spec/cases/<name>.yaml; each file is one test. It
 * makes API objects from their short forms. CONTROLLER_SPEC names another directory of cases.
 * Include it once, after cmocka.h.
 */
#pragma once

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>

#include "lib/base/base.h"

/* Fails unless words ("a b c") contain each key of obj. */
static void only_keys(const json_t *obj, const char *words, const char *where)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)obj, key, v) {
		size_t n = strlen(key);
		bool known = false;

		for (const char *w = words; *w && !known; w += strcspn(w, " "), w += *w == ' ')
			known = strcspn(w, " ") == n && strncmp(w, key, n) == 0;
		if (!known)
			fail_msg("%s: key \"%s\" is not one of: %s", where, key, words);
	}
}

/* ---- short forms -> API objects ---- */

static json_t *metadata(const json_t *in, const char *def_ns)
{
	const char *name = json_str_at(in, "name", "");
	const char *ns = json_str_at(in, "namespace", def_ns);
	_cleanup_free_ char *uid = xasprintf("uid-%s-%s", ns, name);
	json_t *m = json_pack("{s:s, s:s}", "name", name, "uid", json_str_at(in, "uid", uid));

	if (*ns)
		json_object_set_new(m, "namespace", json_string(ns));
	if (json_object_get(in, "labels"))
		json_object_set(m, "labels", json_object_get(in, "labels"));
	if (json_object_get(in, "annotations"))
		json_object_set(m, "annotations", json_object_get(in, "annotations"));
	return m;
}

static json_t *make_target(const json_t *in)
{
	bool cluster = streq(json_str_at(in, "kind", ""), "ClusterProfilingTarget");
	json_t *o, *m;

	only_keys(in, "kind name namespace uid generation created spec firstReadyTime object",
		  "target");
	if (json_object_get(in, "object"))
		return json_deep_copy(json_object_get(in, "object"));
	m = metadata(in, cluster ? "" : "app");
	json_object_set_new(m, "generation", json_integer(json_int_at(in, "generation", 1)));
	if (json_object_get(in, "created"))
		json_object_set(m, "creationTimestamp", json_object_get(in, "created"));
	o = json_pack("{s:s, s:o}", "kind", cluster ? "ClusterProfilingTarget" : "ProfilingTarget",
		      "metadata", m);
	if (json_object_get(in, "spec"))
		json_object_set(o, "spec", json_object_get(in, "spec"));
	if (json_object_get(in, "firstReadyTime"))
		json_object_set_new(o, "status",
				    json_pack("{s:O}", "firstReadyTime",
					      json_object_get(in, "firstReadyTime")));
	return o;
}

static json_t *container_state(const char *state)
{
	const char *why = strchr(state, ':');

	if (str_has_prefix(state, "Waiting"))
		return json_pack("{s:{s:s}}", "waiting", "reason", why ? why + 1 : "Pending");
	return json_pack("{s:{}}", streq(state, "Terminated") ? "terminated" : "running");
}

static void add_container(json_t *pod, const json_t *in, const char *pod_name)
{
	static const char *const spec_lists[] = {"containers", "initContainers", "initContainers",
						 "ephemeralContainers"};
	static const char *const status_lists[] = {"containerStatuses", "initContainerStatuses",
						   "initContainerStatuses",
						   "ephemeralContainerStatuses"};
	static const char *const types[] = {"Regular", "Init", "Sidecar", "Ephemeral"};
	const char *name = json_is_string(in) ? json_string_value(in) : json_str_at(in, "name", "");
	const char *type = json_str_at(in, "type", "Regular"), *id;
	_cleanup_free_ char *seed = xasprintf("%s/%s", pod_name, name);
	uint64_t h = hash_str(seed);
	_cleanup_free_ char *def_id =
		xasprintf("containerd://%016lx%016lx%016lx%016lx", h, h + 1, h + 2, h + 3);
	json_t *spec = json_pack("{s:s, s:s}", "name", name, "image",
				 json_str_at(in, "image", "img:1")),
	       *st;
	unsigned t = 0;

	if (json_is_object(in))
		only_keys(in, "name type id image state limits", "container");
	while (t < ARRAY_SIZE(types) && !streq(types[t], type))
		t++;
	if (t == ARRAY_SIZE(types))
		fail_msg("container type %s", type);
	if (t == 2)
		json_object_set_new(spec, "restartPolicy", json_string("Always"));
	if (json_object_get(in, "limits"))
		json_object_set_new(spec, "resources",
				    json_pack("{s:O}", "limits", json_object_get(in, "limits")));
	json_array_append_new(json_at(pod, "spec")
				      ? json_object_get(json_object_get(pod, "spec"), spec_lists[t])
				      : NULL,
			      spec);
	id = json_object_get(in, "id") ? json_str_at(in, "id", NULL) : def_id;
	if (!id && !json_object_get(in, "state"))
		return;
	st = json_pack("{s:s, s:o}", "name", name, "state",
		       container_state(json_str_at(in, "state", "Running")));
	if (id)
		json_object_set_new(st, "containerID", json_string(id));
	json_array_append_new(json_object_get(json_object_get(pod, "status"), status_lists[t]), st);
}

static json_t *make_pod(const json_t *in)
{
	const json_t *owner = json_object_get(in, "owner");
	_cleanup_json_ json_t *def = json_pack("[s]", "main");
	const json_t *containers = json_object_get(in, "containers"), *c;
	json_t *pod;
	size_t i;

	only_keys(in,
		  "name namespace uid labels annotations owner phase node address hostNetwork "
		  "containers object",
		  "pod");
	if (json_object_get(in, "object"))
		return json_deep_copy(json_object_get(in, "object"));
	pod = json_pack("{s:o, s:{s:s, s:[], s:[], s:[]}, s:{s:s, s:[], s:[], s:[]}}", "metadata",
			metadata(in, "app"), "spec", "nodeName", json_str_at(in, "node", "node1"),
			"containers", "initContainers", "ephemeralContainers", "status", "phase",
			json_str_at(in, "phase", "Running"), "containerStatuses",
			"initContainerStatuses", "ephemeralContainerStatuses");
	if (json_object_get(in, "address"))
		json_object_set(json_object_get(pod, "status"), "podIP",
				json_object_get(in, "address"));
	json_object_set_new(json_object_get(pod, "status"), "hostIP", json_string("10.0.0.1"));
	if (json_object_get(in, "hostNetwork"))
		json_object_set(json_object_get(pod, "spec"), "hostNetwork",
				json_object_get(in, "hostNetwork"));
	if (owner) {
		only_keys(owner, "kind name", "owner");
		json_object_set_new(json_object_get(pod, "metadata"), "ownerReferences",
				    json_pack("[{s:s, s:s, s:b}]", "kind",
					      json_str_at(owner, "kind", ""), "name",
					      json_str_at(owner, "name", ""), "controller", 1));
	}
	json_array_foreach (containers ? containers : def, i, c)
		add_container(pod, c, json_str_at(in, "name", ""));
	return pod;
}

static json_t *make_namespace(const json_t *in)
{
	only_keys(in, "name labels", "namespace");
	return json_pack("{s:o}", "metadata", metadata(in, ""));
}

/*
 * Makes a node. in: name, labels and taints; null: the node is not known. The taints are put into
 * the spec of the result.
 */
static json_t *make_node(const json_t *in)
{
	json_t *metadata_of = json_deep_copy(in), *o = json_pack("{s:o}", "metadata", metadata_of);

	if (json_is_object(in))
		only_keys(in, "name labels taints", "node");
	if (json_object_get(in, "taints"))
		json_object_set_new(o, "spec",
				    json_pack("{s:O}", "taints", json_object_get(in, "taints")));
	json_object_del(metadata_of, "taints");
	return o;
}

#define CASES_MAX 512

/*
 * The functions that remove members of an object before the agent keeps it. The test calls them, so
 * it checks that the remaining members are enough.
 */
struct case_trims {
	void (*target)(json_t *), (*pod)(json_t *), (*named)(json_t *), (*node)(json_t *);
};
struct world {
	const struct case_trims *trims;
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

/* ---- the objects of a case ---- */

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
		  "defaultSampleHz maxSampleHz tenant",
		  "settings");
	only_keys(json_object_get(settings, "tenant"),
		  "maxSampleHz maxOverheadPercent allowedEvents minSampleBytes maxTargets",
		  "settings.tenant");
	remove_all(w->namespaces, json_object_get(gone, "namespaces"));
	remove_all(w->targets, json_object_get(gone, "targets"));
	remove_all(w->pods, json_object_get(gone, "pods"));
	put_all(w->namespaces, json_object_get(change, "namespaces"), make_namespace,
		w->trims->named);
	put_all(w->targets, json_object_get(change, "targets"), make_target, w->trims->target);
	put_all(w->pods, json_object_get(change, "pods"), make_pod, w->trims->pod);
	json_object_update(w->settings, (json_t *)settings);
	if (json_object_get(change, "node")) {
		json_decref(w->node);
		w->node = make_node(json_object_get(change, "node"));
		w->trims->node(w->node);
	}
	if (json_object_get(change, "now")) {
		free(w->now);
		w->now = xstrdup(json_str_at(change, "now", ""));
	}
}

/* ---- assertions ---- */

static char *text(const json_t *j)
{
	return j ? json_dumps(j, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_COMPACT)
		 : xstrdup("nothing");
}

/* Fails unless each member of want is in got. Lists and scalars must be equal. */
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

/* json_str_at would split the key at its dots */
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

/* ---- one file ---- */

static const struct case_trims trims; /* the test defines it */
/* Fails unless everything in `then` is true. */
static void expect_all(const json_t *then, const struct world *w, const char *where);

static void test_case(void **state)
{
	_cleanup_(world_done) struct world w = {.trims = &trims,
						.targets = json_object(),
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

static int run_cases(void)
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
