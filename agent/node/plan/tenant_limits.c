/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps targets within what the installation allows: the rate of every target, and what the install
 * values `tenant.…` say of ProfilingTargets. target_reasons.c writes the reasons. Pure.
 */
#include "node/plan/internal.h"

#include <stdlib.h>

unsigned plan_events_not_listed(char *const *list)
{
	unsigned mask = (1u << _EVENT_MAX) - 1;

	for (; *list; list++)
		for (enum event e = 0; e < _EVENT_MAX; e++)
			if (streq(*list, "all") || streq(*list, profile_event_info(e)->spec_field))
				mask &= ~(1u << e);
	return mask;
}

/* A spec without overheadPercent gets no value from here, if PLAN_OVERHEAD_PERCENT is allowed. */
static void limit_overhead(double most, struct target *t)
{
	double asked = t->overhead_percent;

	if (most <= 0 || most >= 100)
		return;
	t->on_cpu_percent = asked > 0 ? MIN(asked, most) : most;
	if (asked > most || (asked <= 0 && most < PLAN_OVERHEAD_PERCENT))
		t->overhead_percent = most;
}

static void limit_tenant(const struct plan_tenant_limits *l, struct target *t)
{
	struct event_settings *s = &t->settings;

	t->event_mask &= ~l->refused_events;
	t->scrape.profiles &= ~plan_profiles_of_events(l->refused_events);
	if (!t->event_mask) {
		t->ok = false;
		t->refusal = REASON_NO_EVENT_ALLOWED;
		return;
	}
	if (!(t->event_mask & 1u << EVENT_ON_CPU))
		t->sample_hz = 0;
	if (l->max_sample_hz)
		t->sample_hz = MIN(t->sample_hz, l->max_sample_hz);
	if (t->event_mask & 1u << EVENT_MEM_ALLOC)
		s->alloc_sample_bytes = MAX(s->alloc_sample_bytes, l->min_sample_bytes);
	if (t->event_mask & 1u << EVENT_MEM_INUSE)
		s->inuse_sample_bytes = MAX(s->inuse_sample_bytes, l->min_sample_bytes);
	limit_overhead(l->max_overhead_percent, t);
}

void plan_target_limit(const struct plan_settings *s, struct target *t)
{
	t->on_cpu_percent = t->overhead_percent;
	if (!t->ok)
		return;
	if (s->max_sample_hz)
		t->sample_hz = MIN(t->sample_hz, s->max_sample_hz);
	if (t->kind == TARGET_NAMESPACED)
		limit_tenant(&s->tenant, t);
}

/* Sorts by namespace, and the targets of a namespace from the oldest to the newest. */
static int by_age(const void *a, const void *b)
{
	const struct target *const *x = a, *const *y = b;
	int d = strcmp((*x)->ns, (*y)->ns);

	if (d)
		return d;
	if ((*x)->created_ns != (*y)->created_ns)
		return (*x)->created_ns > (*y)->created_ns ? 1 : -1;
	d = strcmp((*x)->name, (*y)->name);
	return d ? d : strcmp((*x)->uid, (*y)->uid);
}

void plan_targets_refuse_of_namespace(struct target *const *targets, size_t n, unsigned max)
{
	_cleanup_free_ struct target **list = NULL;
	size_t n_list = 0, rank = 0;

	if (!max || n <= max)
		return;
	list = xcalloc(n, sizeof(*list));
	for (size_t i = 0; i < n; i++)
		if (targets[i]->kind == TARGET_NAMESPACED)
			list[n_list++] = targets[i];
	qsort(list, n_list, sizeof(*list), by_age);
	for (size_t i = 0; i < n_list; i++) {
		rank = i && streq(list[i]->ns, list[i - 1]->ns) ? rank + 1 : 0;
		if (rank < max || !list[i]->ok)
			continue;
		list[i]->ok = false;
		list[i]->refusal = REASON_TOO_MANY_TARGETS;
	}
}
