/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the plan. The cache knows what the last plan found; this plan looks at what has changed
 * since, and shares the rest of its result with the last one. Pure, but for the cache.
 */
#include "node/plan/cache.h"

/* ---- pods for which the agent has no room ---- */

/* Counts n pods of a namespace for the targets that may profile pods there. */
static void count_of_namespace(struct planning *p, const char *ns, unsigned n)
{
	const json_t *ns_labels = plan_namespace_labels(plan_namespace(p->c, ns));
	const struct selected of = {.ns = ns, .ns_labels = ns_labels};
	struct select_labels labels;

	select_labels_read(ns_labels, ns, &labels);
	for (size_t i = 0; i < p->n_targets; i++) {
		struct known_target *t = p->targets[i];
		const struct target_selection s = {.cluster = t->allowed.kind == TARGET_CLUSTER};

		if (t->on_this_node && !t->allowed.suspend && !t->completed &&
		    plan_takes_namespace(p, t, ns, &labels) &&
		    select_refusal(&s, &of, p->s->opt_in_required) == REASON_NONE)
			plan_tally_without_room(&t->tally, ns, n);
	}
	select_labels_done(&labels);
}

static void count_without_room(struct planning *p)
{
	bool any = json_object_size(p->w->without_room) > 0;
	const char *ns;
	json_t *n;

	for (size_t i = 0; (any || p->c->had_without_room) && i < p->n_targets; i++) {
		p->targets[i]->is_stale = true;
		plan_tally_no_pods_without_room(&p->targets[i]->tally);
	}
	json_object_foreach ((json_t *)p->w->without_room, ns, n)
		count_of_namespace(p, ns, (unsigned)json_integer_value(n));
	p->c->had_without_room = any;
}

/* ---- the result ---- */

static void start_target(const struct known_target *t, struct plan_target *out)
{
	static const char *const kinds[] = {[TARGET_NAMESPACED] = "ProfilingTarget",
					    [TARGET_CLUSTER] = "ClusterProfilingTarget",
					    [TARGET_BUILTIN] = "BuiltIn"};
	const struct target *a = &t->allowed;

	*out = (struct plan_target){
		.uid = xstrdup(a->uid),
		.kind = xstrdup(kinds[a->kind]),
		.ns = xstrdup(a->kind == TARGET_NAMESPACED ? a->ns : ""),
		.name = xstrdup(a->name),
		.generation = a->generation,
		.accepted = a->ok,
		.on_this_node = t->on_this_node,
		.suspended = a->ok && a->suspend,
		.completed = t->completed,
		.event_mask = a->ok ? a->event_mask : 0,
		.pods_matched = t->tally.pods_matched,
		.pods_planned = t->tally.pods_planned,
		.containers_planned = t->tally.containers_planned,
		.pods_without_room = plan_tally_pods_without_room(&t->tally),
		.refs = xcalloc(1, sizeof(*out->refs)),
	};
	*out->refs = 1;
}

static void update_target(const struct planning *p, struct known_target *t)
{
	const struct reason_facts facts = {
		.target = &t->allowed,
		.asked = &t->asked,
		.plan_target = &t->result,
		.settings = p->s,
		.node_known = p->w->node != NULL,
	};

	if (!t->is_stale)
		return;
	plan_target_release(&t->result);
	start_target(t, &t->result);
	plan_reasons_write(&facts, &t->tally, &t->result);
	t->is_stale = false;
}

static void share_targets(struct planning *p)
{
	struct plan *out = p->plan;

	out->targets = xcalloc(p->n_targets + 1, sizeof(*out->targets));
	out->slots = xcalloc(PLAN_SLOTS, sizeof(*out->slots));
	for (size_t i = 0; i < p->n_targets; i++) {
		struct known_target *t = p->targets[i];

		update_target(p, t);
		++*t->result.refs;
		out->targets[out->n_targets++] = t->result;
		if (t->slot != PLAN_NO_SLOT)
			out->slots[t->slot] = (uint32_t)i;
	}
}

static void share_pods(struct planning *p)
{
	struct plan *out = p->plan;

	out->pods = xcalloc(p->n_pods + 1, sizeof(*out->pods));
	for (size_t i = 0; i < p->n_pods; i++) {
		struct kept_pod *k = p->pods[i]->kept;

		if (!k || !k->result.refs)
			continue;
		++*k->result.refs;
		out->pods[out->n_pods++] = k->result;
	}
}

/* ---- the whole plan ---- */

static void plan_pods(struct planning *p)
{
	for (size_t i = 0; p->recount && i < p->n_targets; i++) {
		p->targets[i]->is_stale = true;
		p->targets[i]->tally = (struct tally){0};
	}
	for (size_t i = 0; i < p->n_pods; i++) {
		if (p->pods[i]->kept)
			plan_pod_update(p, p->pods[i]);
		else
			plan_count_over_limit(p, p->pods[i]);
	}
	plan_find_first_pods(p);
	count_without_room(p);
}

int plan_build(const struct plan_world *w, struct plan **ret)
{
	struct planning p = {.w = w,
			     .s = &w->settings,
			     .c = w->cache ? w->cache : plan_cache_new(),
			     .plan = xcalloc(1, sizeof(struct plan))};

	p.c->n_plans++;
	plan_read_targets(&p);
	plan_read_namespaces(&p);
	plan_read_pods(&p);
	plan_pods(&p);
	share_targets(&p);
	share_pods(&p);
	free(p.targets);
	free(p.accepted);
	free(p.pods);
	if (!w->cache)
		plan_cache_free(p.c);
	*ret = p.plan;
	return 0;
}

struct plan_cache *plan_cache_new(void)
{
	return xcalloc(1, sizeof(struct plan_cache));
}

struct plan_cache *plan_cache_free(struct plan_cache *c)
{
	if (!c)
		return NULL;
	plan_pods_free(c);
	plan_namespaces_free(c);
	plan_targets_free(c);
	free(c);
	return NULL;
}
