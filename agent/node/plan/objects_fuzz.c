/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any JSON as the objects of an API server: {"targets": [], "pods": [], "namespaces": [], "node":
 * {}, "settings": {}}. The plan has only containers and events that a target asks for. It is the
 * same for any order of the objects, after they are trimmed, and if a cache knows another half of
 * the objects. No pod that opted out is in it.
 * Mutations change values of the JSON; names and choices come from the table of fields.
 * Fuzzes: node/plan/plan.c, node/plan/target.c, node/plan/pod.c, node/plan/fields.c,
 * node/plan/format.c, node/plan/settings.c, node/plan/tags.c,
 * node/plan/target_reasons.c, node/plan/json.c, node/plan/cache_targets.c,
 * node/plan/cache_namespaces.c, node/plan/cache_pods.c, node/plan/outcomes.c, node/plan/merge.c,
 * node/plan/order.c, node/plan/free.c, node/plan/too_many_targets.c, lib/select/selector.c
 */
#include "node/plan/internal.h"

#include <stdlib.h>

#define MAX_OBJECTS 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static size_t objects(const json_t *world, const char *name, bool reverse, const json_t **ret)
{
	const json_t *all = json_object_get(world, name);
	size_t n = MIN(json_array_size(all), (size_t)MAX_OBJECTS);

	for (size_t i = 0; i < n; i++)
		ret[reverse ? n - 1 - i : i] = json_array_get(all, i);
	return n;
}

/*
 * Whether all objects have different values at path. If two objects have the same uid, the order of
 * the plan is not determined.
 */
static bool have_own_names(const json_t *const *items, size_t n, const char *path)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++)
			if (streq(json_str_at(items[i], path, ""), json_str_at(items[k], path, "")))
				return false;
	return true;
}

static bool opted_out(const json_t *pod, const char *map)
{
	const json_t *v = json_object_get(json_at(pod, map), SELECT_LABEL);

	return v && !str_equal(json_string_value(v), "enabled");
}

static void check_pod(const struct plan_world *w, const struct plan_pod *p)
{
	const json_t *from = NULL;

	for (size_t i = 0; i < w->n_pods; i++)
		if (streq(json_str_at(w->pods[i], "metadata.uid", ""), p->uid))
			from = w->pods[i];
	check(from && *p->uid && *p->ns && *p->name && *p->cgroup_uid);
	for (size_t i = 0; i < p->n_containers; i++) {
		const struct plan_container *c = &p->containers[i];

		check(!c->id || (strlen(c->id) == 64 && strspn(c->id, "0123456789abcdef") == 64));
		check(c->name && c->event_mask && c->event_mask < 1u << _EVENT_MAX && c->n_targets);
		check(c->sample_hz <= w->settings.max_sample_hz);
		check(c->overhead_percent >= 0 && c->overhead_percent <= 100);
		check(c->on_cpu_percent >= 0 && c->on_cpu_percent <= 100);
	}
	if (have_own_names(w->pods, w->n_pods, "metadata.uid"))
		check(!opted_out(from, "metadata.labels") &&
		      !opted_out(from, "metadata.annotations"));
}

static void check_plan(const struct plan_world *w, const struct plan *p)
{
	check(p->n_targets == w->n_targets + w->settings.default_target);
	check(p->n_pods + p->pods_unreadable <= w->n_pods);
	for (size_t i = 0; i < p->n_targets; i++) {
		const struct plan_target *t = &p->targets[i];

		check(t->accepted || t->n_reasons);
		check(streq(t->kind, "ClusterProfilingTarget") ||
		      !(t->event_mask & w->settings.tenant.refused_events));
		check(t->pods_planned <= t->pods_matched && t->pods_matched <= w->n_pods);
		for (size_t k = 0; k < t->n_reasons; k++)
			check(t->reasons[k].reason && strlen(t->reasons[k].message) <= 1024);
	}
	for (size_t i = 0; i < p->n_pods; i++)
		check_pod(w, &p->pods[i]);
}

static json_t *plan_json(const struct plan_world *w)
{
	struct plan *p;
	json_t *j;

	check(plan_build(w, &p) == 0);
	check_plan(w, p);
	j = plan_to_json(p);
	check(j != NULL);
	plan_free(p);
	return j;
}

/* Plans the first half of the objects, the second, and then all, with a cache. */
static json_t *plan_at_last(struct plan_world w)
{
	const struct plan_world all = w;
	json_t *j;

	w.cache = plan_cache_new();
	w.n_targets /= 2;
	w.n_pods /= 2;
	w.n_namespaces /= 2;
	json_decref(plan_json(&w));
	w.targets += w.n_targets;
	w.pods += w.n_pods;
	w.namespaces += w.n_namespaces;
	json_decref(plan_json(&w));
	w.targets = all.targets;
	w.n_targets = all.n_targets;
	w.pods = all.pods;
	w.n_pods = all.n_pods;
	w.namespaces = all.namespaces;
	w.n_namespaces = all.n_namespaces;
	j = plan_json(&w);
	plan_cache_free(w.cache);
	return j;
}

static json_t *plan(const json_t *world, bool reverse, bool *ret_ordered)
{
	const json_t *targets[MAX_OBJECTS], *pods[MAX_OBJECTS], *namespaces[MAX_OBJECTS];
	const json_t *s = json_object_get(world, "settings");
	struct plan_world w = {
		.targets = targets,
		.n_targets = objects(world, "targets", reverse, targets),
		.pods = pods,
		.n_pods = objects(world, "pods", reverse, pods),
		.namespaces = namespaces,
		.n_namespaces = objects(world, "namespaces", reverse, namespaces),
		.node = json_object_get(world, "node"),
		.settings = {.cluster_name = "test",
			     .node_name = "node1",
			     .own_namespace = "podflame-system",
			     .opt_in_required = json_bool_at(s, "optInRequired", true),
			     .default_target = json_bool_at(s, "defaultTarget", false),
			     .default_sample_hz = 99,
			     .max_sample_hz = 199,
			     .tenant = {.max_sample_hz = 49,
					.max_overhead_percent = 5,
					.refused_events = 1u << EVENT_RDMA,
					.min_sample_bytes = 4096,
					.max_targets = 3}},
		.now_ns = 1795000000 * NSEC_PER_SEC,
	};
	json_t *j = plan_json(&w);
	_cleanup_json_ json_t *at_last = plan_at_last(w);

	*ret_ordered = have_own_names(targets, w.n_targets, "metadata.uid") &&
		       have_own_names(pods, w.n_pods, "metadata.uid") &&
		       have_own_names(namespaces, w.n_namespaces, "metadata.name");
	if (*ret_ordered)
		check(json_equal(j, at_last));
	for (size_t i = 0; i < w.n_targets; i++) {
		struct field_error e = {0};

		check(plan_check_target(targets[i], &e) == 0 || (e.path[0] && e.reason[0]));
	}
	return j;
}

static void trim_all(json_t *objects, void (*trim)(json_t *))
{
	json_t *o;
	size_t i;

	json_array_foreach (objects, i, o)
		trim(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_json_ json_t *world = json_loadb((const char *)data, n, 0, NULL);
	_cleanup_json_ json_t *one = NULL, *other = NULL;
	bool ordered;

	if (!json_is_object(world))
		return 0;
	one = plan(world, false, &ordered);
	trim_all(json_object_get(world, "targets"), plan_trim_target);
	trim_all(json_object_get(world, "pods"), plan_trim_pod);
	trim_all(json_object_get(world, "namespaces"), plan_trim_named);
	plan_trim_named(json_object_get(world, "node"));
	other = plan(world, true, &ordered);
	if (ordered)
		check(json_equal(one, other));
	return 0;
}

/* ---- mutation ---- */

static const char *const words[] = {
	"app",	       "a",	   "node1",	  "enabled", "disabled",  SELECT_LABEL,
	"Running",     "Failed",   "Node",	  "Always",  "50us",	  "1h",
	"kube-system", "",	   "uid",	  "name",    "namespace", "labels",
	"annotations", "metadata", "containerID", "kind",    "In",	  "Exists",
};

/* Returns a word of the list above, or a part of a field's path or choices. */
static char *word(unsigned *random)
{
	size_t n;
	const struct field *f = plan_fields(&n);
	const char *s = words[rand_r(random) % ARRAY_SIZE(words)];

	if (rand_r(random) % 2) {
		f += (unsigned)rand_r(random) % n;
		s = f->choices && rand_r(random) % 2 ? f->choices : f->path;
		for (unsigned skip = (unsigned)rand_r(random) % 4; skip && strpbrk(s, ".|"); skip--)
			s = strpbrk(s, ".|") + 1;
	}
	return xstrndup(s, strcspn(s, ".|["));
}

static json_t *value(unsigned *random)
{
	_cleanup_free_ char *s = word(random);

	switch (rand_r(random) % 8) {
	case 0:
		return json_integer((rand_r(random) % 4000) - 1000);
	case 1:
		return json_real((rand_r(random) % 4000) / 10.0);
	case 2:
		return json_boolean(rand_r(random) % 2);
	case 3:
		return rand_r(random) % 2 ? json_object() : json_array();
	case 4:
		return json_null();
	default:
		return json_string(s);
	}
}

/* Goes down to some value and changes, adds, copies or removes it. */
static void mutate(json_t *j, unsigned *random)
{
	size_t n = json_is_object(j) ? json_object_size(j) : json_array_size(j);
	size_t at = n ? (unsigned)rand_r(random) % n : 0;
	void *member = json_object_iter(j);
	unsigned what = (unsigned)rand_r(random) % 12;
	json_t *inner = json_array_get(j, at);

	for (size_t i = 0; member && i < at; i++)
		member = json_object_iter_next(j, member);
	if (member)
		inner = json_object_iter_value(member);
	if (what >= 4 && (json_object_size(inner) || json_array_size(inner))) {
		mutate(inner, random);
	} else if (json_is_array(j)) {
		if (what == 0)
			json_array_remove(j, at);
		else if (what == 1 && inner)
			json_array_append_new(j, json_deep_copy(inner));
		else if (what == 2 || !n)
			json_array_append_new(j, value(random));
		else
			json_array_set_new(j, at, value(random));
	} else if (member && what > 1) {
		json_object_set_new(j, json_object_iter_key(member), value(random));
	} else {
		_cleanup_free_ char *key = word(random);

		if (what || !member)
			json_object_set_new(j, key, value(random));
		else
			json_object_del(j, json_object_iter_key(member));
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed)
{
	_cleanup_json_ json_t *world = json_loadb((const char *)data, n, 0, NULL);
	_cleanup_free_ char *text = NULL;
	unsigned random = seed;

	if (!json_is_object(world) || seed % 8 == 0)
		return LLVMFuzzerMutate(data, n, max);
	for (unsigned i = 1 + seed % 3; i; i--)
		mutate(world, &random);
	text = json_dumps(world, JSON_COMPACT);
	if (!text || strlen(text) > max)
		return LLVMFuzzerMutate(data, n, max);
	memcpy(data, text, strlen(text));
	return strlen(text);
}
