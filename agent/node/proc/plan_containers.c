/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a plan's containers by their id, and its pods by the uid in the paths of their cgroups.
 * Loop thread.
 */
#include "node/proc/internal.h"

#include <stdlib.h>

struct planned_container *proc_planned_container(const struct planned *p, const char *id)
{
	struct planned_container *c;

	HASH_FIND_STR(p->containers, id, c);
	return c;
}

struct planned_pod *proc_planned_pod(const struct planned *p, const char *cgroup_uid)
{
	struct planned_pod *pod;

	HASH_FIND_STR(p->pods, cgroup_uid, pod);
	return pod;
}

static void add_container(struct planned *p, const struct plan *plan, const struct plan_pod *pod,
			  const struct plan_container *c, const struct planned *before,
			  uint64_t now_ns)
{
	const struct planned_container *old;
	struct planned_container *entry;

	if (!c->id || proc_planned_container(p, c->id))
		return;
	old = proc_planned_container(before, c->id);
	entry = xcalloc(1, sizeof(*entry));
	*entry = (struct planned_container){
		.id = c->id, .pod = pod, .container = c, .planned_ns = now_ns};
	if (old) {
		entry->planned_ns = old->planned_ns;
		entry->looked_for = old->looked_for;
		entry->pods_depth = old->pods_depth;
	}
	entry->owner = proc_owner_make(plan, pod, c, NULL, old ? old->owner->off_keep : UINT32_MAX,
				       old ? old->owner : NULL);
	HASH_ADD_KEYPTR(hh, p->containers, entry->id, strlen(entry->id), entry);
}

static void add_pod(struct planned *p, const struct plan_pod *pod, const struct planned *before)
{
	const struct planned_pod *old;
	struct planned_pod *entry;

	if (!pod->cgroup_uid || proc_planned_pod(p, pod->cgroup_uid))
		return;
	old = proc_planned_pod(before, pod->cgroup_uid);
	entry = xcalloc(1, sizeof(*entry));
	*entry = (struct planned_pod){
		.cgroup_uid = pod->cgroup_uid, .pod = pod, .pods_depth = old ? old->pods_depth : 0};
	HASH_ADD_KEYPTR(hh, p->pods, entry->cgroup_uid, strlen(entry->cgroup_uid), entry);
}

void proc_planned_fill(struct planned *p, const struct plan *plan, const struct planned *old,
		       uint64_t now_ns)
{
	*p = (struct planned){0};
	for (size_t i = 0; plan && i < plan->n_pods; i++) {
		const struct plan_pod *pod = &plan->pods[i];

		add_pod(p, pod, old);
		for (size_t k = 0; k < pod->n_containers; k++)
			add_container(p, plan, pod, &pod->containers[k], old, now_ns);
	}
}

void proc_planned_done(struct planned *p)
{
	struct planned_container *c, *ctmp;
	struct planned_pod *pod, *tmp;

	HASH_ITER (hh, p->containers, c, ctmp) {
		HASH_DEL(p->containers, c);
		proc_owner_unref(c->owner);
		free(c);
	}
	HASH_ITER (hh, p->pods, pod, tmp) {
		HASH_DEL(p->pods, pod);
		free(pod);
	}
}
