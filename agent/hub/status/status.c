/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller, which calls status_compute. For each target it keeps the entry of each node. A
 * change of a report changes only the targets that the report names. It writes a status (write.c)
 * if it differs from the status in the API server.
 */
#include "hub/status/controller.h"

#include <stdlib.h>

#define API	       "/apis/podflame.io/v1alpha1"
#define FLUSH_DELAY_NS (50 * NSEC_PER_MSEC) /* delay: reports of several nodes cause one write */
#define TICK_NS	       NSEC_PER_SEC /* how often the tick runs, for what changes as time passes */
#define WRITE_GAP_NS   NSEC_PER_SEC /* minimum time between two writes of a target */
/* longest time for which a hub that starts waits before it writes */
#define SETTLE_NS (10 * NSEC_PER_SEC)
/* writes at a time; each may open a connection, on the loop thread */
#define MAX_IN_FLIGHT 16
/*
 * memory of the targets of one kind: twice that of an agent, which keeps no status, so that the hub
 * knows of the targets that agents leave out
 */
#define MAX_TARGETS_BYTES (256u << 20)

/* ---- when a status is computed ---- */

static void flush(void *arg);

void status_flush_soon(struct status *s)
{
	if (s->flush_armed)
		return;
	s->flush_armed = true;
	timer_set(s->loop, &s->flush, FLUSH_DELAY_NS, flush, s);
}

void status_touch(struct status *s, struct status_row *t)
{
	if (!t->object)
		return;
	t->dirty = true;
	status_flush_soon(s);
}

static void touch_all(struct status *s)
{
	for (struct status_row *t = s->all; t; t = t->hh.next)
		status_touch(s, t);
}

static const char *namespace_of(const struct status_row *t)
{
	return json_str_at(t->object, "metadata.namespace", "");
}

static bool may_be_omitted(const struct status *s, const struct status_row *t)
{
	return status_omitted_may_be(s->omitted, namespace_of(t));
}

/* Returns how many targets of the same kind and namespace have no room. */
static size_t crowded_out(const struct status *s, const struct status_row *t)
{
	const char *ns = namespace_of(t);

	return status_omitted_here(*ns ? s->targets : s->cluster_targets, ns);
}

/* Has the status computed again of the targets for which may_be_omitted has changed. */
static void touch_omitted(struct status *s)
{
	for (struct status_row *t = s->all; t; t = t->hh.next)
		if (may_be_omitted(s, t) != t->omitted)
			status_touch(s, t);
}

/*
 * Whether the hub may write. Before it has all lists, a target may look as if it selected nothing.
 * The pods of nodes without an agent may never be known. So the hub waits for them only for a
 * while, and then writes into the status of each target that they are unknown.
 */
static bool is_settled(struct status *s)
{
	if (s->settled || !status_reports_synced(s->reports))
		return s->settled;
	s->settled =
		pods_synced(s->pods) &&
		status_agentless_settled(s->agentless, status_reports_nodes_synced(s->reports));
	if (!s->settled && now_mono_ns() >= s->started_ns + SETTLE_NS) {
		s->settled = true;
		status_agentless_hurry(s->agentless);
	}
	return s->settled;
}

static void look_at_nodes(struct status *s)
{
	status_agentless_tick(s->agentless, status_reports_synced(s->reports) &&
						    status_reports_nodes_synced(s->reports));
	if (!s->settled && is_settled(s))
		touch_all(s);
}

static void on_tick(void *arg)
{
	struct status *s = arg;

	for (struct status_row *t = s->all; t; t = t->hh.next) {
		if (t->pending)
			status_touch(s, t);
	}
	status_reports_tick(s->reports);
	look_at_nodes(s);
	timer_set(s->loop, &s->tick, TICK_NS, on_tick, s);
}

/* Returns the object with the status of the hub's last write, as the watch will show it later. */
static json_t *as_written(const struct status_row *t)
{
	json_t *o = json_copy(t->object);

	if (t->written)
		json_object_set(o, "status", t->written);
	return o;
}

json_t *status_targets(const struct status *s)
{
	json_t *list;

	if (!kube_watch_synced(s->targets) || !kube_watch_synced(s->cluster_targets))
		return NULL;
	list = json_array();
	for (const struct status_row *t = s->all; t; t = t->hh.next)
		if (t->object)
			json_array_append_new(list, as_written(t));
	return list;
}

static const char *ready_of(const json_t *status)
{
	const json_t *conditions = json_object_get(status, "conditions");

	return json_str_at(json_with(conditions, "type", "Ready"), "reason", "");
}

/* Whether the hub knows, or has known, of a pod of the target on the node. */
static bool has_pod(struct status *s, const struct status_row *t, struct heard *h)
{
	const struct target_selection sel = select_of_target(t->object);

	if (!h->seen_pod)
		h->seen_pod = pods_select(s->pods, h->node, &sel, s->opt_in_required);
	return h->seen_pod;
}

static bool says_stored(const json_t *entry)
{
	const char *event;
	json_t *said;

	json_object_foreach (json_object_get(entry, "events"), event, said)
		if (json_bool_at(said, "stored", false))
			return true;
	return false;
}

/* Returns the entry as status_compute takes it: a new reference. */
static json_t *entry_of(struct status *s, struct status_row *t, struct heard *h)
{
	bool believed = has_pod(s, t, h); /* also before it matters: the pod may end */
	json_t *entry;

	if (believed || !says_stored(h->entry))
		return json_incref(h->entry);
	if (!t->doubted)
		s->n_doubted++;
	t->doubted = true;
	entry = json_copy(h->entry);
	json_object_set_new(entry, "doubted", json_true());
	return entry;
}

static void not_doubted(struct status *s, struct status_row *t)
{
	if (t->doubted)
		s->n_doubted--;
	t->doubted = false;
}

static json_t *compute(struct status *s, struct status_row *t, const json_t *object)
{
	const struct target_selection sel = select_of_target(t->object);
	size_t n = HASH_COUNT(t->heard), i = 0;
	_cleanup_free_ json_t **entries = xcalloc(n + 1, sizeof(*entries));
	_cleanup_free_ char *unverified = pods_unverified(s->pods, &sel);
	json_t *status;
	char now[32];

	not_doubted(s, t);
	for (struct heard *h = t->heard; h; h = h->hh.next)
		entries[i++] = entry_of(s, t, h);
	time_format(now_wall_ns(), now);
	t->omitted = may_be_omitted(s, t);
	status = status_compute(object, (const json_t *const *)entries, n,
				&(struct status_seen){
					.n_reports = s->n_reports,
					.omitted = t->omitted,
					.n_crowded_out = crowded_out(s, t),
					.unseen = status_agentless_unseen(s->agentless),
					.unverified = unverified,
				},
				now);
	while (i > 0)
		json_decref(entries[--i]);
	return status;
}

static void reconcile(struct status *s, struct status_row *t)
{
	_cleanup_json_ json_t *object = NULL, *want = NULL;
	const json_t *have;
	uint64_t now = now_mono_ns();

	t->dirty = false;
	if (t->in_flight)
		return; /* after the answer to the write, the status is computed again */
	object = as_written(t);
	want = compute(s, t, object);
	have = json_object_get(object, "status");
	t->pending = status_pending(want);
	if (json_equal(want, have))
		return;
	if (now < t->retry_ns ||
	    (streq(ready_of(want), ready_of(have)) && now < t->last_write_ns + WRITE_GAP_NS)) {
		t->pending = true;
		return;
	}
	status_write(s, t, want);
}

static void flush(void *arg)
{
	struct status *s = arg;
	struct status_row *t, *next;

	s->flush_armed = false;
	if (!is_settled(s))
		return;
	HASH_ITER (hh, s->all, t, next) {
		if (s->n_requests >= MAX_IN_FLIGHT)
			return;
		if (t->dirty)
			reconcile(s, t);
	}
}

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
	touch_all(arg);
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
	not_doubted(s, t);
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
		touch_all(s);
	if (status_omitted_update(&s->omitted, old, obj))
		touch_omitted(s);
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
		touch_omitted(s);
	unhear_all(s, last, NULL);
	if (s->n_reports && --s->n_reports == 0)
		touch_all(s);
}

static void on_synced(void *arg)
{
	touch_all(arg);
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
	touch_all(s);
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
	s->started_ns = now_mono_ns();
	s->no_room = status_no_room_new(l, k);
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
	timer_set(l, &s->tick, TICK_NS, on_tick, s);
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
