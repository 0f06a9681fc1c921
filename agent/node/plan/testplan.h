/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: a plan of one pod with one container, as plan_build() would make it. */
#pragma once

#include "node/plan/plan.h"

#include <stdlib.h>

static inline void testplan_tag(struct tags *t, const char *key, const char *value)
{
	GROW(t->items, t->n, t->cap);
	t->items[t->n++] = (struct tag){xstrdup(key), xstrdup(value)};
}

/*
 * Makes a plan with one container "main" with this id, which one target selects, at 99 Hz. arm: the
 * target selects the pod's own cgroup, too.
 */
static inline struct plan *testplan(const char *uid, const char *cgroup_uid, const char *id,
				    bool arm)
{
	struct plan *p = xcalloc(1, sizeof(*p));
	struct plan_pod *pod = xcalloc(1, sizeof(*pod));
	struct plan_container *c = xcalloc(1, sizeof(*c));

	p->n_targets = 1;
	p->targets = xcalloc(1, sizeof(*p->targets));
	*p->targets = (struct plan_target){.uid = xstrdup("t1"),
					   .kind = xstrdup("ProfilingTarget"),
					   .ns = xstrdup("app"),
					   .name = xstrdup("web"),
					   .accepted = true,
					   .containers_planned = 1};
	p->n_pods = 1;
	p->pods = pod;
	*pod = (struct plan_pod){.uid = xstrdup(uid),
				 .cgroup_uid = xstrdup(cgroup_uid),
				 .ns = xstrdup("app"),
				 .name = xstrdup("web-1"),
				 .arm_pod = arm,
				 .arm_event_mask = 1,
				 .arm_sample_hz = 99};
	testplan_tag(&pod->tags, "pod", "web-1");
	pod->n_containers = 1;
	pod->containers = c;
	*c = (struct plan_container){.id = xstrdup(id),
				     .name = xstrdup("main"),
				     .event_mask = 1,
				     .sample_hz = 99,
				     .n_targets = 1,
				     .targets = xcalloc(1, sizeof(uint16_t))};
	testplan_tag(&c->tags, "container", "main");
	testplan_tag(&c->tags, "pod", "web-1");
	return p;
}

/* Moves the only pod of a plan into another plan, and frees the plan that had it. */
static inline void testplan_take(struct plan *to, struct plan *of)
{
	to->pods = xrealloc(to->pods, (to->n_pods + 1) * sizeof(*to->pods));
	to->pods[to->n_pods++] = *of->pods;
	of->n_pods = 0;
	plan_free(of);
}
