/* SPDX-License-Identifier: Apache-2.0 */
/* Frees plans. Plans and the cache share pods and targets: whoever has them last frees them. */
#include "node/plan/cache.h"

/* Returns whether somebody else still has it. refs NULL: nobody shares it. */
static bool is_shared(unsigned *refs)
{
	if (refs && --*refs)
		return true;
	free(refs);
	return false;
}

static void free_pod(struct plan_pod *p)
{
	for (size_t i = 0; i < p->n_containers; i++) {
		struct plan_container *c = &p->containers[i];

		free(c->id);
		free(c->name);
		free(c->targets);
		plan_tags_done(&c->tags);
	}
	free(p->containers);
	plan_tags_done(&p->tags);
	plan_scrape_free(p->scrape);
	free(p->uid);
	free(p->cgroup_uid);
	free(p->ns);
	free(p->name);
}

void plan_pod_release(struct plan_pod *p)
{
	if (!is_shared(p->refs))
		free_pod(p);
	*p = (struct plan_pod){0};
}

void plan_target_release(struct plan_target *t)
{
	if (!is_shared(t->refs)) {
		for (size_t k = 0; k < t->n_reasons; k++)
			free(t->reasons[k].message);
		free(t->reasons);
		free(t->uid);
		free(t->kind);
		free(t->ns);
		free(t->name);
	}
	*t = (struct plan_target){0};
}

struct plan *plan_free(struct plan *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < p->n_pods; i++)
		plan_pod_release(&p->pods[i]);
	for (size_t i = 0; i < p->n_targets; i++)
		plan_target_release(&p->targets[i]);
	free(p->pods);
	free(p->targets);
	free(p->slots);
	free(p);
	return NULL;
}
