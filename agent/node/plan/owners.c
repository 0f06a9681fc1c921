/* SPDX-License-Identifier: Apache-2.0 */
/* The targets that selected a container. Pure. */
#include "node/plan/plan.h"

const struct plan_target *plan_target_of(const struct plan *p, const struct plan_container *c,
					 size_t i)
{
	return &p->targets[p->slots ? p->slots[c->targets[i]] : c->targets[i]];
}

static bool has_container(const struct plan_pod *pod, const char *id)
{
	for (size_t i = 0; i < pod->n_containers; i++)
		if (str_equal(pod->containers[i].id, id))
			return true;
	return false;
}

/*
 * Whether c is the container that the caller asks about. If a container runs before the API server
 * has reported its id, each of the pod's containers without an id counts as this container.
 */
static bool is_asked(const struct plan_pod *pod, const struct plan_container *c,
		     const char *container_id, const char *pod_uid)
{
	if (!container_id || !*container_id)
		return str_equal(pod->uid, pod_uid);
	if (c->id)
		return streq(c->id, container_id);
	return str_equal(pod->uid, pod_uid) && !has_container(pod, container_id);
}

void plan_targets_of(const struct plan *plan, const char *container_id, const char *pod_uid,
		     void (*fn)(const char *uid, void *arg), void *arg)
{
	for (size_t i = 0; plan && i < plan->n_pods; i++)
		for (size_t k = 0; k < plan->pods[i].n_containers; k++) {
			const struct plan_container *c = &plan->pods[i].containers[k];

			if (!is_asked(&plan->pods[i], c, container_id, pod_uid))
				continue;
			for (size_t t = 0; t < c->n_targets; t++)
				fn(plan_target_of(plan, c, t)->uid, arg);
		}
}
