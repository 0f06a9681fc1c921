/* SPDX-License-Identifier: Apache-2.0 */
/* What the node's report says: of the plan, and of what other modules tell it. Loop thread. */
#include "node/report/internal.h"

#include <stdlib.h>
#include <sys/utsname.h>

#define MAX_CROWDED 256 /* namespaces in the list, as in the CRD; the last one is "*" then */

/* ---- content ---- */

json_t *report_content(const struct report *r)
{
	unsigned omitted;
	json_t *targets = report_entries_json(&r->entries, &omitted);

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:O, s:I, s:o, s:i, s:O}", "agentVersion",
			 r->version, "kernel", r->kernel, "bootID", r->boot_id, "cgroupMode",
			 r->cgroup_mode, "configHash", r->config_hash, "capabilities",
			 r->capabilities, "unwindTableBytes", (json_int_t)r->unwind_table_bytes,
			 "targets", targets, "targetsOmitted", (int)omitted, "crowdedNamespaces",
			 r->crowded);
}

json_t *report_status(const struct report *r)
{
	json_t *s = report_content(r);

	json_object_set_new(s, "reportGeneration", json_integer(r->generation + 1));
	json_object_set_new(s, "lost",
			    json_pack("{s:I, s:I}", "samples", (json_int_t)r->lost_samples,
				      "events", (json_int_t)r->lost_profiles));
	return s;
}

json_t *report_object(const struct report *r)
{
	json_t *o =
		json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s}}", "apiVersion", "podflame.io/v1alpha1",
			  "kind", "ProfilingNodeReport", "metadata", "name", r->node_name,
			  "namespace", r->ns, "spec", "nodeName", r->node_name);

	/*
	 * The DaemonSet owns the report, so the API server deletes it at uninstall. The hub deletes
	 * the reports of nodes that were deleted.
	 */
	if (r->owner)
		json_object_set_new(json_object_get(o, "metadata"), "ownerReferences",
				    json_pack("[O]", r->owner));
	return o;
}

json_t *report_json(const struct report *r)
{
	json_t *o;

	loop_assert(r->loop);
	o = report_object(r);
	json_object_set_new(o, "status", report_status(r));
	return o;
}

/* ---- input ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void report_crowded(struct report *r, json_t *namespaces)
{
	size_t n = json_object_size(namespaces), i = 0;
	_cleanup_free_ const char **names = xcalloc(n + 1, sizeof(*names));
	_cleanup_json_ json_t *taken = namespaces;
	json_t *list = json_array(), *v;
	const char *ns;

	json_object_foreach (taken, ns, v)
		names[i++] = ns;
	qsort(names, n, sizeof(*names), by_text);
	for (i = 0; i < n && i < MAX_CROWDED - 1; i++)
		json_array_append_new(list, json_string(names[i]));
	if (n >= MAX_CROWDED)
		json_array_append_new(list, json_string("*"));
	json_decref(r->crowded);
	r->crowded = list;
	report_changed(r);
}

void report_plan(struct report *r, const struct plan *p)
{
	report_entries_plan(&r->entries, p);
	report_changed(r);
}

/* If the feature has the name of an event, notes whether the event works. */
static void note_event(struct report *r, const struct support *s)
{
	const char *why = s->reason && *s->reason ? s->reason : "this kernel cannot provide it";
	enum event e;

	if (profile_event_from_name(s->feature, &e) == 0)
		report_entries_support(&r->entries, e, s->ok ? NULL : why);
}

void report_support(struct report *r, const struct support *s, size_t n, const char *cgroup_mode)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n && i < 32; i++) {
		json_t *c = json_pack("{s:s, s:b}", "feature", s[i].feature, "ok", s[i].ok);

		if (s[i].reason && *s[i].reason)
			json_object_set_new(c, "reason",
					    json_stringn(s[i].reason, utf8_cut(s[i].reason, 256)));
		json_array_append_new(list, c);
		note_event(r, &s[i]);
	}
	json_decref(r->capabilities);
	r->capabilities = list;
	snprintf(r->cgroup_mode, sizeof(r->cgroup_mode), "%s", cgroup_mode ? cgroup_mode : "");
	report_changed(r);
}

void report_sampled(struct report *r, const char *target_uid, enum event e, uint64_t n_samples)
{
	if (n_samples && report_entries_sampled(&r->entries, target_uid, e))
		report_changed(r);
}

void report_stored(struct report *r, const char *target_uid, enum event e, uint64_t n_samples)
{
	if (n_samples && report_entries_stored(&r->entries, target_uid, e))
		report_changed(r);
}

void report_stacks(struct report *r, const char *target_uid, uint64_t n, uint64_t n_finished)
{
	if (n && report_entries_stacks(&r->entries, target_uid, n, n_finished))
		report_changed(r);
}

void report_problem(struct report *r, const char *target_uid, enum reason reason,
		    const char *message, unsigned n_pods)
{
	if (report_entries_problem(&r->entries, target_uid, reason, message, n_pods))
		report_changed(r);
}

void report_lost(struct report *r, uint64_t n_samples, uint64_t n_profiles)
{
	r->lost_samples = n_samples;
	r->lost_profiles = n_profiles;
}

/* ---- creation and end ---- */

int report_new(struct loop *l, struct kube *k, const struct report_config *c, struct report **ret)
{
	struct report *r;
	struct utsname u;

	if (!c->node_name || !*c->node_name || !c->ns || !*c->ns)
		return -EINVAL;
	r = xcalloc(1, sizeof(*r));
	r->loop = l;
	r->kube = k;
	r->node_name = xstrdup(c->node_name);
	r->ns = xstrdup(c->ns);
	r->pod_name = xstrdup(c->pod_name ? c->pod_name : "");
	r->version = xstrdup(c->version ? c->version : "");
	r->boot_id = xstrdup(c->boot_id ? c->boot_id : "");
	r->config_hash = xstrdup(c->config_hash ? c->config_hash : "");
	r->unwind_table_bytes = c->unwind_table_bytes;
	r->min_interval_ns = c->min_interval_ns ? c->min_interval_ns : 60 * NSEC_PER_SEC;
	r->jitter_ns = c->jitter_ns ? c->jitter_ns : 10 * NSEC_PER_SEC;
	r->capabilities = json_array();
	r->crowded = json_array();
	r->tokens = URGENT_BURST;
	r->tokens_ns = now_mono_ns();
	r->written_class =
		report_entries_class(&r->entries); /* a report without targets is not urgent */
	if (uname(&u) == 0)
		snprintf(r->kernel, sizeof(r->kernel), "%s", u.release);
	*ret = r;
	return 0;
}

struct report *report_free(struct report *r)
{
	if (!r)
		return NULL;
	loop_assert(r->loop);
	if (r->gone)
		*r->gone = true;
	timer_cancel(&r->timer);
	report_entries_done(&r->entries);
	json_decref(r->capabilities);
	json_decref(r->crowded);
	json_decref(r->owner);
	json_decref(r->written);
	json_decref(r->sending);
	free(r->node_name);
	free(r->pod_name);
	free(r->ns);
	free(r->version);
	free(r->boot_id);
	free(r->config_hash);
	free(r);
	return NULL;
}
