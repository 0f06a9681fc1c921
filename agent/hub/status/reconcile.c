/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the controller computes the status of a target (status_compute): soon after the target was
 * touched, but not before the hub knows enough. It writes a status (write.c) if it differs from the
 * status in the API server.
 */
#include "hub/status/controller.h"

#include <stdlib.h>

#define FLUSH_DELAY_NS (50 * NSEC_PER_MSEC) /* delay: reports of several nodes cause one write */
#define TICK_NS	       NSEC_PER_SEC /* how often the tick runs, for what changes as time passes */
#define WRITE_GAP_NS   NSEC_PER_SEC /* minimum time between two writes of a target */
/* longest time for which a hub that starts waits before it writes */
#define SETTLE_NS (10 * NSEC_PER_SEC)
/* writes at a time; each may open a connection, on the loop thread */
#define MAX_IN_FLIGHT 16

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

void status_touch_all(struct status *s)
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

void status_touch_omitted(struct status *s)
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

bool status_leads(const struct status *s)
{
	return !s->leads || s->leads(s->leads_arg);
}

/* A hub that begins to lead looks at all targets: nobody may have written some meanwhile. */
static void look_at_lead(struct status *s)
{
	bool leads = status_leads(s);

	if (leads && !s->has_led)
		status_touch_all(s);
	s->has_led = leads;
}

static void look_at_nodes(struct status *s)
{
	status_agentless_tick(s->agentless, status_reports_synced(s->reports) &&
						    status_reports_nodes_synced(s->reports));
	if (!s->settled && is_settled(s))
		status_touch_all(s);
}

static void on_tick(void *arg)
{
	struct status *s = arg;

	for (struct status_row *t = s->all; t; t = t->hh.next) {
		if (t->pending)
			status_touch(s, t);
	}
	look_at_lead(s);
	if (status_leads(s))
		status_reports_tick(s->reports);
	look_at_nodes(s);
	status_tick_later(s);
}

void status_tick_later(struct status *s)
{
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

void status_not_doubted(struct status *s, struct status_row *t)
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

	status_not_doubted(s, t);
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
	if (!status_leads(s)) {
		s->has_led = false; /* so it is written once this hub leads */
		return;
	}
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
