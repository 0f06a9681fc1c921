/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the owner of samples, which is a copy of the plan's data of a container. Owners are shared
 * by reference. Any thread.
 */
#include "node/proc/internal.h"

#include <stdlib.h>

struct owner *proc_owner_ref(struct owner *o)
{
	if (o)
		ref_take(&o->refs);
	return o;
}

struct owner *proc_owner_unref(struct owner *o)
{
	if (!o || !ref_drop(&o->refs))
		return NULL;
	for (size_t i = 0; i < o->tags.n; i++) {
		free((char *)o->tags.items[i].key);
		free((char *)o->tags.items[i].value);
	}
	for (size_t i = 0; i < o->n_targets; i++)
		free(o->target_uids[i]);
	free(o->tags.items);
	free(o->target_uids);
	free(o->container_id);
	free(o->pod_uid);
	free(o);
	return NULL;
}

static void add_tag(struct tags *t, const char *key, const char *value)
{
	size_t i = 0;

	while (i < t->n && strcmp(t->items[i].key, key) < 0)
		i++;
	if (i < t->n && streq(t->items[i].key, key))
		return;
	GROW(t->items, t->n, t->cap);
	memmove(&t->items[i + 1], &t->items[i], (t->n - i) * sizeof(t->items[0]));
	t->items[i] = (struct tag){xstrdup(key), xstrdup(value)};
	t->n++;
}

static void add_targets(struct owner *o, const struct plan *plan, const struct plan_container *c)
{
	for (size_t i = 0; i < c->n_targets; i++) {
		const char *uid = plan_target_of(plan, c, i)->uid;
		size_t k = 0;

		while (k < o->n_targets && !streq(o->target_uids[k], uid))
			k++;
		if (k < o->n_targets)
			continue;
		o->target_uids =
			xrealloc(o->target_uids, (o->n_targets + 1) * sizeof(*o->target_uids));
		o->target_uids[o->n_targets++] = xstrdup(uid);
	}
}

static bool owner_equal(const struct owner *a, const struct owner *b)
{
	if (a->tags.n != b->tags.n || a->n_targets != b->n_targets ||
	    a->event_mask != b->event_mask || a->sample_hz != b->sample_hz ||
	    !plan_event_settings_equal(&a->settings, &b->settings) || a->off_keep != b->off_keep ||
	    a->overhead_percent != b->overhead_percent || a->unnamed != b->unnamed ||
	    a->java_attach != b->java_attach || !str_equal(a->container_id, b->container_id) ||
	    !str_equal(a->pod_uid, b->pod_uid))
		return false;
	for (size_t i = 0; i < a->tags.n; i++)
		if (!str_equal(a->tags.items[i].key, b->tags.items[i].key) ||
		    !str_equal(a->tags.items[i].value, b->tags.items[i].value))
			return false;
	for (size_t i = 0; i < a->n_targets; i++)
		if (!streq(a->target_uids[i], b->target_uids[i]))
			return false;
	return true;
}

static double lowest_limit(const struct plan_pod *pod)
{
	double least = 0;

	for (size_t i = 0; i < pod->n_containers; i++) {
		double percent = pod->containers[i].overhead_percent;

		if (percent > 0 && (least <= 0 || percent < least))
			least = percent;
	}
	return least;
}

uint64_t proc_ns_hash(const char *ns)
{
	return hash_bytes(ns, strlen(ns), 0) | 1;
}

struct owner *proc_owner_make(const struct plan *plan, const struct plan_pod *pod,
			      const struct plan_container *c, const char *unnamed_id,
			      uint32_t off_keep, struct owner *reuse)
{
	struct owner *o = xcalloc(1, sizeof(*o));
	const struct tags *tags = c ? &c->tags : &pod->tags;

	o->refs = 1;
	o->ns_hash = proc_ns_hash(pod->ns);
	o->unnamed = !c;
	o->java_attach = c && c->java_attach;
	o->event_mask = c ? c->event_mask : pod->arm_event_mask;
	o->settings = c ? c->settings : pod->arm_settings;
	o->overhead_percent = c ? c->overhead_percent : lowest_limit(pod);
	o->off_keep = off_keep;
	o->sample_hz = c ? c->sample_hz : pod->arm_sample_hz;
	o->container_id = xstrdup(c ? c->id : unnamed_id);
	o->pod_uid = xstrdup(pod->uid);
	for (size_t i = 0; i < tags->n; i++)
		add_tag(&o->tags, tags->items[i].key, tags->items[i].value);
	if (o->container_id)
		add_tag(&o->tags, "container_id", o->container_id);
	if (c)
		add_targets(o, plan, c);
	for (size_t i = 0; !c && i < pod->n_containers; i++)
		add_targets(o, plan, &pod->containers[i]);
	if (!reuse || !owner_equal(o, reuse))
		return o;
	proc_owner_unref(o);
	return proc_owner_ref(reuse);
}
