/* SPDX-License-Identifier: Apache-2.0 */
/* Merges what all targets that select a pod ask for its containers. Pure. */
#include "node/plan/cache.h"

/* What is being made of a pod. all[i] belongs to the pod's container i. */
struct merge {
	struct known_pod *pod;
	struct plan_container *all;
	struct tags tags; /* those of the pod, and the labels that targets ask for */
	struct plan_scrape *scrape;
};

/* ---- one target ---- */

enum reason plan_pod_refusal(const struct planning *p, const struct known_target *t,
			     const struct known_pod *pod, const struct selected *selected)
{
	const struct target_selection s = {.cluster = t->allowed.kind == TARGET_CLUSTER};
	enum reason r = select_refusal(&s, selected, p->s->opt_in_required);

	if (r)
		return r;
	if (pod->claim->n > 1)
		return REASON_AMBIGUOUS_STATIC_POD;
	if (pod->over_limit)
		return REASON_TOO_MANY_PODS;
	return REASON_NONE;
}

/* Returns the smaller limit. A limit of 0 is none. */
static double smaller_limit(double a, double b)
{
	return a > 0 && b > 0 ? MIN(a, b) : MAX(a, b);
}

static void add_target(const struct known_target *k, struct plan_container *c)
{
	const struct target *t = &k->allowed;

	plan_settings_join(&c->settings, c->event_mask, &t->settings, t->event_mask, true);
	c->event_mask |= t->event_mask;
	c->sample_hz = MAX(c->sample_hz, t->sample_hz);
	c->java_attach |= t->java_attach;
	c->trace_context |= t->trace_context;
	c->overhead_percent = smaller_limit(c->overhead_percent, t->overhead_percent);
	c->on_cpu_percent = smaller_limit(c->on_cpu_percent, t->on_cpu_percent);
	c->targets = xrealloc(c->targets, (c->n_targets + 1) * sizeof(*c->targets));
	c->targets[c->n_targets++] = (uint16_t)k->slot;
}

static void add_label_tags(const struct target *t, const struct pod_view *p, struct tags *tags)
{
	const json_t *key;
	size_t i;

	json_array_foreach (t->label_tags, i, key) {
		const char *k = json_string_value(key);
		_cleanup_free_ char *name = xasprintf(POD_LABEL "%s", k);

		plan_tags_set(tags, name, json_string_value(json_object_get(p->labels, k)));
	}
}

/*
 * Returns why none of the pod's containers that the target wants can be sampled now. *ret_waits:
 * 1 + the index of one of them; 0: none. REASON_NONE: at least one can be sampled.
 */
static enum reason not_running(const struct target *t, const struct pod_view *p,
			       uint16_t *ret_waits)
{
	enum reason why = REASON_NONE;
	uint16_t waits = 0;

	for (size_t i = 0; i < p->n_containers; i++) {
		const struct container_view *c = &p->containers[i];

		if (!plan_target_wants_container(t, c->name, c->type))
			continue;
		if (c->id && !c->waiting)
			return REASON_NONE;
		if (c->bad_id) {
			why = REASON_UNSUPPORTED_RUNTIME;
			break;
		}
		why = REASON_CONTAINERS_NOT_RUNNING;
		waits = (uint16_t)(i + 1);
	}
	*ret_waits = waits;
	return why;
}

/* Adds the target to the containers that it selects. */
static struct outcome meet(const struct planning *p, const struct known_target *t,
			   const struct selected *selected, struct merge *m)
{
	const struct pod_view *v = &m->pod->view;
	struct outcome o = {.slot = (uint16_t)t->slot};

	o.why = plan_pod_refusal(p, t, m->pod, selected);
	if (o.why || t->allowed.suspend || t->completed)
		return o;
	for (size_t i = 0; i < v->n_containers; i++) {
		if (!plan_target_wants_container(&t->allowed, v->containers[i].name,
						 v->containers[i].type))
			continue;
		add_target(t, &m->all[i]);
		o.n_containers++;
	}
	o.cut = v->containers_cut;
	if (!o.n_containers) {
		o.why = REASON_NO_CONTAINERS_SELECTED;
		return o;
	}
	o.why = not_running(&t->allowed, v, &o.waits);
	add_label_tags(&t->allowed, v, &m->tags);
	if (!o.why) /* an address whose pod does not run may be another pod's soon */
		plan_scrape_add(&m->scrape, &t->allowed, &v->scrape);
	return o;
}

/* ---- one pod ---- */

/*
 * Sets whether the filter may select the pod's own cgroup: all containers that can still run in it
 * must be selected. Containers that have ended for good do not count.
 */
static void arm(const struct pod_view *p, const struct plan_container *all, struct plan_pod *out)
{
	unsigned mask = ~0u, hz = 0, have = 0;
	struct event_settings settings = {0};
	bool trace_context = true;

	for (size_t i = 0; i < p->n_containers; i++) {
		const struct container_view *c = &p->containers[i];
		bool over =
			c->ended && (c->type == CONTAINER_INIT || c->type == CONTAINER_EPHEMERAL);

		if (all[i].n_targets == 0 && over)
			continue;
		mask &= all[i].event_mask;
		plan_settings_join(&settings, have, &all[i].settings, all[i].event_mask, false);
		have |= all[i].event_mask;
		hz = hz ? MIN(hz, all[i].sample_hz) : all[i].sample_hz;
		trace_context = trace_context && all[i].trace_context;
	}
	out->arm_pod = mask && !p->containers_cut;
	if (!out->arm_pod)
		return;
	out->arm_event_mask = mask;
	out->arm_sample_hz = mask & (1u << EVENT_ON_CPU) ? hz : 0;
	plan_settings_join(&out->arm_settings, 0, &settings, mask, false);
	out->arm_trace_context = trace_context;
}

static void finish_container(const struct tags *of_pod, const struct container_view *c,
			     struct plan_container *pc)
{
	pc->id = xstrdup(c->id);
	pc->name = xstrdup(c->name);
	plan_tags_copy(of_pod, &pc->tags);
	plan_tags_set(&pc->tags, "container", c->name);
	plan_tags_set(&pc->tags, "container_id", c->id);
	plan_tags_set(&pc->tags, "image", c->image);
}

static void finish(struct merge *m)
{
	const struct pod_view *v = &m->pod->view;
	struct plan_pod *out = &m->pod->kept->result;
	size_t n = 0;

	for (size_t i = 0; i < v->n_containers; i++)
		n += m->all[i].n_targets > 0;
	if (!n)
		return;
	*out = (struct plan_pod){
		.uid = xstrdup(v->uid),
		.cgroup_uid = xstrdup(v->cgroup_uid),
		.ns = xstrdup(v->ns),
		.name = xstrdup(v->name),
		.containers = xcalloc(n, sizeof(*out->containers)),
		.refs = xcalloc(1, sizeof(*out->refs)),
	};
	*out->refs = 1;
	arm(v, m->all, out);
	for (size_t i = 0; i < v->n_containers; i++) {
		if (m->all[i].n_targets == 0)
			continue;
		out->containers[out->n_containers] = m->all[i];
		finish_container(&m->tags, &v->containers[i],
				 &out->containers[out->n_containers++]);
	}
	out->tags = m->tags;
	m->tags = (struct tags){0};
	out->scrape = TAKE_PTR(m->scrape);
}

/* Lists the targets that select the pod, in order. Returns how many. */
static size_t selecting(const struct planning *p, const struct kept_pod *k,
			struct known_target ***ret)
{
	struct slots places = {0};
	struct known_target **list;
	size_t n = 0;

	for (unsigned w = 0; w < p->c->n_words; w++)
		for (uint64_t left = k->selected.words[w]; left; left &= left - 1, n++)
			plan_slots_put(
				&places,
				p->c->of_slot[w * 64 + (unsigned)__builtin_ctzll(left)]->place);
	*ret = list = xcalloc(n + 1, sizeof(struct known_target *));
	n = 0;
	for (unsigned w = 0; w < PLAN_WORDS; w++)
		for (uint64_t left = places.words[w]; left; left &= left - 1)
			list[n++] = p->accepted[w * 64 + (unsigned)__builtin_ctzll(left)];
	return n;
}

void plan_merge(struct planning *p, struct known_pod *pod)
{
	const struct pod_view *v = &pod->view;
	const struct selected selected = {v->ns, plan_namespace_labels(pod->kept->ns), v->labels,
					  v->annotations};
	struct kept_pod *k = pod->kept;
	_cleanup_free_ struct plan_container *all = xcalloc(v->n_containers + 1, sizeof(*all));
	_cleanup_free_ struct known_target **targets = NULL;
	struct merge m = {.pod = pod, .all = all};

	plan_pod_release(&k->result);
	free(k->outcomes);
	k->n_outcomes = selecting(p, k, &targets);
	k->outcomes = xcalloc(k->n_outcomes + 1, sizeof(*k->outcomes));
	plan_tags_copy(&v->tags, &m.tags);
	for (size_t i = 0; i < k->n_outcomes; i++)
		k->outcomes[i] = meet(p, targets[i], &selected, &m);
	finish(&m);
	plan_tags_done(&m.tags);
	plan_scrape_free(m.scrape);
}
