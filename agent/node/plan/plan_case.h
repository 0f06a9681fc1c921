/* SPDX-License-Identifier: Apache-2.0 */
/* Short forms of the cases in controller-spec/ made into API objects; for plan_test.c only. */
#pragma once

/* Fails unless each key of obj is one of words ("a b c"). */
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

	only_keys(in, "kind name namespace uid generation spec firstReadyTime object", "target");
	if (json_object_get(in, "object"))
		return json_deep_copy(json_object_get(in, "object"));
	m = metadata(in, cluster ? "" : "app");
	json_object_set_new(m, "generation", json_integer(json_int_at(in, "generation", 1)));
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
		only_keys(in, "name type id image state", "container");
	while (t < ARRAY_SIZE(types) && !streq(types[t], type))
		t++;
	if (t == ARRAY_SIZE(types))
		fail_msg("container type %s", type);
	if (t == 2)
		json_object_set_new(spec, "restartPolicy", json_string("Always"));
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

	only_keys(in, "name namespace uid labels annotations owner phase node containers object",
		  "pod");
	if (json_object_get(in, "object"))
		return json_deep_copy(json_object_get(in, "object"));
	pod = json_pack("{s:o, s:{s:s, s:[], s:[], s:[]}, s:{s:s, s:[], s:[], s:[]}}", "metadata",
			metadata(in, "app"), "spec", "nodeName", json_str_at(in, "node", "node1"),
			"containers", "initContainers", "ephemeralContainers", "status", "phase",
			json_str_at(in, "phase", "Running"), "containerStatuses",
			"initContainerStatuses", "ephemeralContainerStatuses");
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
