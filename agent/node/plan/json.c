/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the plan as JSON, for tests and GET /debug/plan. Pure. */
#include "node/plan/internal.h"

static json_t *events_json(unsigned mask)
{
	json_t *list = json_array();

	for (enum event e = 0; e < _EVENT_MAX; e++) {
		if (mask & (1u << e))
			json_array_append_new(list, json_string(profile_event_info(e)->name));
	}
	return list;
}

static json_t *tags_json(const struct tags *t)
{
	json_t *o = json_object();

	for (size_t i = 0; i < t->n; i++)
		json_object_set_new(o, t->items[i].key, json_string(t->items[i].value));
	return o;
}

static json_t *container_json(const struct plan *p, const struct plan_container *c)
{
	json_t *targets = json_array();

	for (size_t i = 0; i < c->n_targets; i++)
		json_array_append_new(targets, json_string(plan_target_of(p, c, i)->uid));
	return json_pack("{s:s, s:s?, s:o, s:i, s:o, s:f, s:f, s:b, s:b, s:o, s:o}", "name",
			 c->name, "id", c->id, "events", events_json(c->event_mask), "sampleHz",
			 (int)c->sample_hz, "settings",
			 plan_settings_json(&c->settings, c->event_mask), "overheadPercent",
			 c->overhead_percent, "onCpuPercent", c->on_cpu_percent, "javaAttach",
			 c->java_attach, "traceContext", c->trace_context, "tags",
			 tags_json(&c->tags), "targets", targets);
}

static json_t *pod_json(const struct plan *p, const struct plan_pod *pod)
{
	json_t *containers = json_array();

	for (size_t i = 0; i < pod->n_containers; i++)
		json_array_append_new(containers, container_json(p, &pod->containers[i]));
	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:i, s:o, s:b, s:o, s:o, s:o}", "uid",
			 pod->uid, "cgroupUID", pod->cgroup_uid, "namespace", pod->ns, "name",
			 pod->name, "armPod", pod->arm_pod, "armEvents",
			 events_json(pod->arm_event_mask), "armSampleHz", (int)pod->arm_sample_hz,
			 "armSettings", plan_settings_json(&pod->arm_settings, pod->arm_event_mask),
			 "armTraceContext", pod->arm_trace_context, "tags", tags_json(&pod->tags),
			 "containers", containers, "scrape", plan_scrape_json(pod->scrape));
}

static json_t *target_json(const struct plan_target *t)
{
	json_t *reasons = json_array();

	for (size_t i = 0; i < t->n_reasons; i++)
		json_array_append_new(reasons, json_pack("{s:s, s:s, s:i}", "reason",
							 reason_name(t->reasons[i].reason),
							 "message", t->reasons[i].message, "pods",
							 (int)t->reasons[i].n_pods));
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:b, s:b, s:b, s:b, s:o, s:i, s:i, s:i, s:o}",
			 "uid", t->uid, "kind", t->kind, "namespace", t->ns, "name", t->name,
			 "generation", (json_int_t)t->generation, "accepted", t->accepted,
			 "onThisNode", t->on_this_node, "suspended", t->suspended, "completed",
			 t->completed, "events", events_json(t->event_mask), "podsMatched",
			 (int)t->pods_matched, "podsPlanned", (int)t->pods_planned,
			 "containersPlanned", (int)t->containers_planned, "reasons", reasons);
}

json_t *plan_to_json(const struct plan *p)
{
	json_t *pods = json_array(), *targets = json_array();
	json_t *o = json_pack("{s:o, s:o, s:i}", "pods", pods, "targets", targets, "podsUnreadable",
			      (int)p->pods_unreadable);
	char next[32];

	for (size_t i = 0; i < p->n_pods; i++)
		json_array_append_new(pods, pod_json(p, &p->pods[i]));
	for (size_t i = 0; i < p->n_targets; i++)
		json_array_append_new(targets, target_json(&p->targets[i]));
	if (p->next_change_ns) {
		time_format(p->next_change_ns, next);
		json_object_set_new(o, "nextChange", json_string(next));
	}
	return o;
}
