/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the controller hears of targets, reports, nodes and pods. For each target it keeps the entry
 * of each node. A change of a report changes only the targets that the report names: it touches
 * them, and reconcile.c computes their status.
 */
#include "hub/status/controller.h"

#include <stdlib.h>

#define API "/apis/podflame.io/v1alpha1"
/*
 * memory of the targets of one kind: twice that of an agent, which keeps no status, so that the hub
 * knows of the targets that agents leave out
 */
#define MAX_TARGETS_BYTES (256u << 20)

/* ---- nodes without an agent ---- */

static void ask_about(struct status *s, struct status_row *t, const char *node)
{
	_cleanup_json_ json_t *entry = status_agentless_entry(s->agentless, node, t->object);

	if (entry ? status_row_hear(t, node, entry) : status_row_unhear(t, node))
		status_touch(s, t);
}

struct asking {
	struct status *status;
	struct status_row *row;
};

static void ask_about_node(const char *node, void *arg)
{
	const struct asking *a = arg;

	ask_about(a->status, a->row, node);
}

static void forget_node(const char *node, void *arg)
{
	const struct asking *a = arg;

	status_row_unhear(a->row, node);
}

static void ask_about_all(struct status *s, struct status_row *t)
{
	status_agentless_each(s->agentless, ask_about_node, &(struct asking){s, t});
}

/*
 * A target's entry for a node comes from the node's report or, if the node has no agent, from the
 * hub's count of the node's pods. If this changes, the old entry is removed before the new one is
 * added.
 */
static void on_agentless(const char *node, void *arg)
{
	struct status *s = arg;
	bool is = status_agentless_is(s->agentless, node);

	if (is)
		status_reports_look_again(s->reports, node);
	for (struct status_row *t = s->all; t; t = t->hh.next) {
		if (t->object)
			ask_about(s, t, node);
	}
	if (!is)
		status_reports_look_again(s->reports, node);
}

static void on_unknown_pods(void *arg)
{
	status_touch_all(arg);
}

/* A pod has come to the node: the hub may believe what it doubted of the node's report. */
static void on_pod_came(const char *node, void *arg)
{
	struct status *s = arg;
	struct heard *h;

	if (!s->n_doubted)
		return;
	for (struct status_row *t = s->all; t; t = t->hh.next) {
		HASH_FIND_STR(t->heard, node, h);
		if (t->doubted && h)
			status_touch(s, t);
	}
}

static void on_node(const char *node, const json_t *obj, void *arg)
{
	struct status *s = arg;

	status_agentless_node(s->agentless, node, obj);
}

static void on_report_there(const char *node, bool there, void *arg)
{
	struct status *s = arg;

	status_agentless_report(s->agentless, node, there);
}

static bool hides_report(const char *node, void *arg)
{
	const struct status *s = arg;

	return status_agentless_is(s->agentless, node);
}

/* ---- watches of targets and reports ---- */

/* Returns the path of the target's status in the API; NULL: the key is none of such a target. */
static char *path_of(const char *key, bool cluster)
{
	const char *slash = strchr(key, '/');

	if (cluster)
		return xasprintf(API "/clusterprofilingtargets/%s/status", key);
	return slash ? xasprintf(API "/namespaces/%.*s/profilingtargets/%s/status",
				 (int)(slash - key), key, slash + 1)
		     : NULL;
}

static void target_upsert(struct status *s, const char *key, const json_t *obj, bool cluster)
{
	const char *uid = json_str_at(obj, "metadata.uid", NULL);
	_cleanup_free_ char *path = path_of(key, cluster);
	struct status_row *t;
	bool another;

	if (!uid || !path)
		return;
	status_no_room_forget(s->no_room, uid);
	t = status_row_find_or_add(&s->all, uid);
	another = json_int_at(obj, "metadata.generation", 0) !=
		  json_int_at(t->object, "metadata.generation", 0);
	/* the watch may still show the object as it was before the hub's last write */
	if (!t->written_rv || another ||
	    str_equal(t->written_rv, json_str_at(obj, "metadata.resourceVersion", NULL)))
		status_row_forget_written(t);
	json_decref(t->object);
	t->object = json_incref((json_t *)obj);
	free(t->path);
	t->path = TAKE_PTR(path);
	if (another)
		ask_about_all(s, t);
	status_touch(s, t);
}

static void on_target(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)old;
	target_upsert(arg, key, obj, false);
}

static void on_cluster_target(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)old;
	target_upsert(arg, key, obj, true);
}

static void on_target_gone(const char *key, const json_t *last, void *arg)
{
	struct status *s = arg;
	struct status_row *t = status_row_find(s->all, json_str_at(last, "metadata.uid", ""));

	(void)key;
	if (!t)
		return;
	status_agentless_each(s->agentless, forget_node, &(struct asking){s, t});
	status_not_doubted(s, t);
	status_row_forget_object(t);
	status_row_drop_if_unused(&s->all, t);
}

static void tell_no_room(struct status *s, const char *key, const json_t *obj, bool cluster)
{
	_cleanup_free_ char *path = path_of(key, cluster);

	if (path)
		status_no_room_tell(s->no_room, obj, path);
}

static void on_target_without_room(const char *key, const json_t *obj, void *arg)
{
	tell_no_room(arg, key, obj, false);
}

static void on_cluster_target_without_room(const char *key, const json_t *obj, void *arg)
{
	tell_no_room(arg, key, obj, true);
}

static const char *node_of(const json_t *report)
{
	return json_str_at(report, "spec.nodeName", json_str_at(report, "metadata.name", ""));
}

static void hear(struct status *s, const char *node, const json_t *entry)
{
	const char *uid = json_str_at(entry, "uid", "");
	struct status_row *t = *uid ? status_row_find_or_add(&s->all, uid) : NULL;

	if (t && status_row_hear(t, node, entry))
		status_touch(s, t);
}

static void unhear(struct status *s, const char *node, const char *uid)
{
	struct status_row *t = status_row_find(s->all, uid);

	if (!t || !status_row_unhear(t, node))
		return;
	status_touch(s, t);
	status_row_drop_if_unused(&s->all, t);
}

static bool names(const json_t *report, const char *uid)
{
	return json_with(json_at(report, "status.targets"), "uid", uid) != NULL;
}

static void unhear_all(struct status *s, const json_t *old, const json_t *still)
{
	const json_t *e;
	size_t i;

	json_array_foreach (json_at(old, "status.targets"), i, e) {
		const char *uid = json_str_at(e, "uid", "");

		if (!names(still, uid))
			unhear(s, node_of(old), uid);
	}
}

static void on_report(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	struct status *s = arg;
	const json_t *e;
	size_t i;

	(void)key;
	if (!old && s->n_reports++ == 0)
		status_touch_all(s);
	if (status_omitted_update(&s->omitted, old, obj))
		status_touch_omitted(s);
	unhear_all(s, old, obj);
	json_array_foreach (json_at(obj, "status.targets"), i, e)
		hear(s, node_of(obj), e);
}

/* Called when a report is deleted, or when its node is deleted. */
static void on_report_gone(const char *key, const json_t *last, void *arg)
{
	struct status *s = arg;

	(void)key;
	if (status_omitted_update(&s->omitted, last, NULL))
		status_touch_omitted(s);
	unhear_all(s, last, NULL);
	if (s->n_reports && --s->n_reports == 0)
		status_touch_all(s);
}

static void on_synced(void *arg)
{
	status_touch_all(arg);
}

/* Called when the hub has no room for targets, or has room again. */
static void on_left_out(void *arg)
{
	struct status *s = arg;
	size_t n = kube_watch_left_out(s->targets) + kube_watch_left_out(s->cluster_targets);

	if (n && !s->has_left_out)
		log_warn("no room in memory for %zu targets: the namespaces with the most have "
			 "their oldest ones only",
			 n);
	else if (!n && s->has_left_out)
		log_info("all targets have room in memory again");
	s->has_left_out = n != 0;
	status_touch_all(s);
}

/* ---- start and end ---- */

/* Removes the annotations: the hub does not read them, and a user may write 80,000 of them. */
static void trim_target(json_t *obj)
{
	json_keep(obj, "metadata", "name namespace uid generation resourceVersion");
}

static int watch(struct status *s, const char *path, const struct kube_watch_ops *ops,
		 struct kube_watch **ret)
{
	const struct kube_watch_spec spec = {.path = path,
					     .optional = true,
					     .trim = trim_target,
					     .max_bytes = MAX_TARGETS_BYTES};

	return kube_watch_new(s->kube, &spec, ops, s, ret);
}

static bool may_write(void *arg)
{
	return status_leads(arg);
}

int status_new(struct loop *l, struct kube *k, const struct status_config *c, struct status **ret)
{
	static const struct kube_watch_ops target_ops = {.upsert = on_target,
							 .remove = on_target_gone,
							 .synced = on_synced,
							 .left_out = on_left_out,
							 .no_room = on_target_without_room};
	static const struct kube_watch_ops cluster_ops = {.upsert = on_cluster_target,
							  .remove = on_target_gone,
							  .synced = on_synced,
							  .left_out = on_left_out,
							  .no_room =
								  on_cluster_target_without_room};
	static const struct reports_ops report_ops = {
		.report = {.upsert = on_report, .remove = on_report_gone, .synced = on_synced},
		.there = on_report_there,
		.node = on_node,
		.hides = hides_report,
	};
	static const struct agentless_ops agentless_ops = {on_agentless, on_unknown_pods};
	static const struct pods_ops pods_ops = {on_pod_came, on_unknown_pods};
	const struct agentless_config ac = {c->ns, c->opt_in_required, c->pods};
	struct status *s = xcalloc(1, sizeof(*s));
	int r;

	s->loop = l;
	s->kube = k;
	s->pods = c->pods;
	s->opt_in_required = c->opt_in_required;
	s->leads = c->leads;
	s->leads_arg = c->leads_arg;
	s->has_led = status_leads(s);
	s->started_ns = now_mono_ns();
	s->no_room = status_no_room_new(l, k, may_write, s);
	r = status_agentless_new(k, &ac, &agentless_ops, s, &s->agentless);
	if (!r)
		r = status_reports_new(k, c->ns, &report_ops, s, &s->reports);
	if (!r)
		r = watch(s, API "/profilingtargets", &target_ops, &s->targets);
	if (!r)
		r = watch(s, API "/clusterprofilingtargets", &cluster_ops, &s->cluster_targets);
	if (r < 0) {
		status_free(s);
		return r;
	}
	pods_set_ops(s->pods, &pods_ops, s);
	status_tick_later(s);
	*ret = s;
	return 0;
}

struct status *status_free(struct status *s)
{
	struct status_row *t, *next;

	if (!s)
		return NULL;
	pods_set_ops(s->pods, &(struct pods_ops){0}, NULL);
	timer_cancel(&s->flush);
	timer_cancel(&s->tick);
	kube_watch_free(s->targets);
	kube_watch_free(s->cluster_targets);
	status_reports_free(s->reports);
	status_agentless_free(s->agentless);
	status_abandon_writes(s);
	status_no_room_free(s->no_room);
	HASH_ITER (hh, s->all, t, next)
		status_row_free(&s->all, t);
	status_omitted_done(&s->omitted);
	free(s);
	return NULL;
}
