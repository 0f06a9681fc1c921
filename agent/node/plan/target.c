/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes a ProfilingTarget or ClusterProfilingTarget for the plan. If a target is wrong, keeps the
 * error for its user. Pure.
 */
#include "node/plan/internal.h"

#include <stdlib.h>

#define STOP_AFTER_MIN_NS (NSEC_PER_SEC)
#define STOP_AFTER_MAX_NS (720 * 3600 * NSEC_PER_SEC) /* a longer spec.stopAfter is refused */

struct unknown {
	char text[256];	   /* names of all unknown members */
	char refused[256]; /* the first unknown member that must not be ignored; "": none */
};

/*
 * Called for a member that this version does not know. An unknown event or setting is ignored and
 * reported. A member that could narrow the selection must not be ignored.
 */
static void on_unknown(const char *path, void *arg)
{
	static const char *const narrowing[] = {"spec.podSelector.", "spec.namespaceSelector.",
						"spec.nodeSelector.", "spec.containers."};
	struct unknown *u = arg;
	size_t n = strlen(u->text);

	for (size_t i = 0; i < ARRAY_SIZE(narrowing); i++) {
		if (str_has_prefix(path, narrowing[i]) && !*u->refused)
			snprintf(u->refused, sizeof(u->refused), "%s", path);
	}
	snprintf(u->text + n, sizeof(u->text) - n, "%s%s", n ? ", " : "", path);
}

/*
 * Checks a rule of the schema that the table cannot express: In and NotIn need `values`, other
 * operators must not have it.
 */
static int check_selector(const json_t *sel, const char *path, struct field_error *reterr)
{
	const json_t *e;
	size_t i;

	json_array_foreach (json_object_get(sel, "matchExpressions"), i, e) {
		const char *op = json_str_at(e, "operator", "");
		size_t n = json_array_size(json_object_get(e, "values"));
		_cleanup_free_ char *at = NULL;

		if ((n > 0) == str_has_suffix(op, "In"))
			continue;
		at = xasprintf("%s.matchExpressions[%zu].values", path, i);
		return field_error_set(reterr, at,
				       n ? "Exists and DoesNotExist take none"
					 : "In and NotIn need at least one");
	}
	return 0;
}

static int no_event(struct field_error *reterr)
{
	_cleanup_free_ char *known = profile_event_fields();

	return field_error_set(reterr, "spec.events",
			       "names no event that this agent knows; it knows %s", known);
}

static int check_rules(const struct target *t, const json_t *spec, struct field_error *reterr)
{
	if (check_selector(json_at(spec, "podSelector"), "spec.podSelector", reterr) < 0 ||
	    check_selector(json_at(spec, "namespaceSelector"), "spec.namespaceSelector", reterr) <
		    0 ||
	    check_selector(json_at(spec, "nodeSelector"), "spec.nodeSelector", reterr) < 0)
		return -EINVAL;
	if (json_array_size(t->include) && json_array_size(t->exclude))
		return field_error_set(reterr, "spec.containers",
				       "set include or exclude, not both");
	if (!t->event_mask)
		return no_event(reterr);
	if (json_at(spec, "stopAfter") &&
	    (t->stop_after_ns < STOP_AFTER_MIN_NS || t->stop_after_ns > STOP_AFTER_MAX_NS))
		return field_error_set(reterr, "spec.stopAfter", "must be from 1s to 720h");
	return 0;
}

static bool listed(const json_t *names, const char *name)
{
	const json_t *v;
	size_t i;

	json_array_foreach (names, i, v) {
		if (str_equal(json_string_value(v), name))
			return true;
	}
	return false;
}

static unsigned decode_types(const json_t *spec)
{
	static const char *const names[] = {"Regular", "Init", "Sidecar", "Ephemeral"};
	const json_t *types = json_at(spec, "containers.types");
	const char *def = plan_field("containers.types")->def;
	unsigned mask = 0;

	for (unsigned k = 0; k < _CONTAINER_TYPE_MAX; k++) {
		if (types ? listed(types, names[k]) : strstr(def, names[k]) != NULL)
			mask |= 1u << k;
	}
	return mask;
}

static unsigned default_hz(void)
{
	uint64_t hz = 0;

	(void)str_to_u64(plan_field("events.onCpu.sampleHz")->def, 999, &hz);
	return (unsigned)hz;
}

static void decode_events(const json_t *spec, struct target *t)
{
	const json_t *events = json_at(spec, "events");
	_cleanup_json_ json_t *def = NULL;

	if (!events)
		events = def = json_loads(plan_field("events")->def, 0, NULL);
	for (enum event e = 0; e < _EVENT_MAX; e++) {
		if (json_object_get(events, profile_event_info(e)->spec_field))
			t->event_mask |= 1u << e;
	}
	if (t->event_mask & 1u << EVENT_ON_CPU)
		t->sample_hz = (unsigned)json_int_at(events, "onCpu.sampleHz", default_hz());
}

static void decode_spec(const json_t *spec, struct target *t)
{
	const char *stop = json_str_at(spec, "stopAfter", NULL);

	t->include = json_at(spec, "containers.include");
	t->exclude = json_at(spec, "containers.exclude");
	t->label_tags = json_at(spec, "podLabelTags");
	t->type_mask = decode_types(spec);
	decode_events(spec, t);
	t->suspend = json_bool_at(spec, "suspend", false);
	t->java_attach = streq(json_str_at(spec, "javaAttach", "Never"), "Allowed");
	t->trace_context = json_bool_at(spec, "traceContext", false);
	t->overhead_percent = json_number_value(json_at(spec, "limits.overheadPercent"));
	if (stop && str_to_duration_ns(stop, &t->stop_after_ns) < 0)
		t->stop_after_ns = 0;
}

static int decode(const json_t *obj, struct target *t, struct field_error *reterr)
{
	struct unknown u = {0};
	const json_t *spec = json_at(obj, "spec");

	if (!*t->uid || !*t->name)
		return field_error_set(reterr, *t->name ? "metadata.uid" : "metadata.name",
				       "is not a string");
	if (plan_fields_check(spec, t->kind == TARGET_CLUSTER, on_unknown, &u, reterr) < 0)
		return -EINVAL;
	if (*u.refused)
		return field_error_set(reterr, u.refused,
				       "this agent does not know it and cannot ignore it; it is "
				       "older than the installed CRDs");
	if (*u.text)
		t->ignored = xstrdup(u.text);
	decode_spec(spec, t);
	if (check_rules(t, spec, reterr) < 0 || plan_scrape_read(spec, &t->scrape, reterr) < 0)
		return -EINVAL;
	return plan_settings_read(json_at(spec, "events"), t->event_mask, &t->settings, reterr);
}

/* The table of fields limits how much this is. */
static void compile_selectors(const json_t *spec, struct target *t)
{
	const json_t *nodes = json_at(spec, "nodeSelector");

	t->pods = select_compile(json_at(spec, "podSelector"));
	if (t->kind == TARGET_CLUSTER)
		t->namespaces = select_compile(json_at(spec, "namespaceSelector"));
	if (json_object_size(nodes))
		t->nodes = select_compile(nodes);
}

void plan_target_decode(const json_t *obj, struct target *ret)
{
	const char *ns = json_str_at(obj, "metadata.namespace", "");
	const char *kind =
		json_str_at(obj, "kind", *ns ? "ProfilingTarget" : "ClusterProfilingTarget");
	const char *ready = json_str_at(obj, "status.firstReadyTime", NULL);
	struct field_error err;

	*ret = (struct target){
		.kind = streq(kind, "ClusterProfilingTarget") ? TARGET_CLUSTER : TARGET_NAMESPACED,
		.uid = json_str_at(obj, "metadata.uid", ""),
		.ns = ns,
		.name = json_str_at(obj, "metadata.name", ""),
		.generation = json_int_at(obj, "metadata.generation", 0),
	};
	if (ready && time_parse(ready, &ret->first_ready_ns) < 0)
		ret->first_ready_ns = 0;
	if (time_parse(json_str_at(obj, "metadata.creationTimestamp", ""), &ret->created_ns) < 0)
		ret->created_ns = 0;
	ret->ok = decode(obj, ret, &err) == 0;
	if (ret->ok)
		compile_selectors(json_at(obj, "spec"), ret);
	else
		ret->error = xmemdup(&err, sizeof(err));
}

void plan_trim_target(json_t *target)
{
	json_keep(target, "metadata",
		  "name namespace uid generation resourceVersion creationTimestamp");
	json_keep(target, "status", "firstReadyTime");
}

void plan_target_done(struct target *t)
{
	select_compiled_free(t->pods);
	select_compiled_free(t->namespaces);
	select_compiled_free(t->nodes);
	free(t->error);
	free(t->ignored);
}

void plan_target_builtin(const struct plan_settings *s, struct target *ret)
{
	*ret = (struct target){
		.kind = TARGET_BUILTIN,
		.uid = "builtin",
		.ns = "",
		.name = "default",
		.type_mask = decode_types(NULL),
		.event_mask = 1u << EVENT_ON_CPU,
		.sample_hz = s->default_sample_hz ? s->default_sample_hz : default_hz(),
		.ok = true,
	};
}

bool plan_target_wants_container(const struct target *t, const char *name, enum container_type type)
{
	if (!(t->type_mask & (1u << type)))
		return false;
	if (json_array_size(t->include) && !listed(t->include, name))
		return false;
	return !listed(t->exclude, name);
}

int plan_check_target(const json_t *target, struct field_error *reterr)
{
	struct target t;
	int r = 0;

	plan_target_decode(target, &t);
	if (!t.ok)
		r = field_error_set(reterr, t.error->path, "%s", t.error->reason);
	plan_target_done(&t);
	return r;
}
