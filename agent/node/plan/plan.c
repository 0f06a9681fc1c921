/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the plan: decodes all objects once, checks for each pod and target whether the target
 * selects the pod, and merges the requests of all targets for one container. Pure.
 */
#include "node/plan/target_reasons.h"

#include <stdlib.h>

struct build {
	const struct plan_world *w;
	const struct plan_settings *s;
	struct plan_cache *cache; /* the cache of the plan_world, or one for this plan only */
	/* sorted by uid, as plan.targets; the cache owns the memory behind their pointers */
	struct target *targets, builtin;
	struct tally *tallies; /* one per target */
	size_t n_targets;
	struct pod_view *pods; /* sorted by uid */
	size_t n_pods;
	const json_t **namespaces; /* sorted by name */
	struct plan *plan;
};

/* ---- decoding the objects ---- */

static int by_target_uid(const void *a, const void *b)
{
	const struct target *x = a, *y = b;
	int d = strcmp(x->uid, y->uid);

	d = d ? d : strcmp(x->ns, y->ns);
	return d ? d : strcmp(x->name, y->name);
}

static int by_pod_uid(const void *a, const void *b)
{
	return strcmp(((const struct pod_view *)a)->uid, ((const struct pod_view *)b)->uid);
}

static int by_cgroup_uid(const void *a, const void *b)
{
	const struct pod_view *const *x = a, *const *y = b;

	return strcmp((*x)->cgroup_uid, (*y)->cgroup_uid);
}

static const char *namespace_name(const json_t *ns)
{
	return json_str_at(ns, "metadata.name", "");
}

static int by_name(const void *a, const void *b)
{
	return strcmp(namespace_name(*(const json_t *const *)a),
		      namespace_name(*(const json_t *const *)b));
}

static void read_target(struct build *b, const struct target *asked)
{
	struct target *t = &b->targets[b->n_targets++];

	*t = *asked;
	plan_target_limit(b->s, asked, t);
}

static void read_targets(struct build *b)
{
	size_t n = b->w->n_targets;

	b->targets = xcalloc(n + 1, sizeof(*b->targets));
	for (size_t i = 0; i < n; i++)
		read_target(b, plan_cache_target(b->cache, b->w->targets[i]));
	plan_target_builtin(b->s, &b->builtin);
	if (b->s->default_target)
		read_target(b, &b->builtin);
	n = b->n_targets;
	qsort(b->targets, n, sizeof(*b->targets), by_target_uid);
	plan_targets_refuse_of_namespace(b->targets, n, b->s->tenant.max_targets);
	plan_targets_refuse_too_many(b->targets, n);
	b->tallies = xcalloc(n + 1, sizeof(*b->tallies));
}

/*
 * Marks pods that claim the same cgroup. At least one of them is wrong, so none of them gets the
 * cgroup.
 */
static void mark_ambiguous(struct build *b)
{
	_cleanup_free_ struct pod_view **sorted = xcalloc(b->n_pods + 1, sizeof(*sorted));

	for (size_t i = 0; i < b->n_pods; i++)
		sorted[i] = &b->pods[i];
	qsort(sorted, b->n_pods, sizeof(*sorted), by_cgroup_uid);
	for (size_t i = 1; i < b->n_pods; i++) {
		if (streq(sorted[i - 1]->cgroup_uid, sorted[i]->cgroup_uid))
			sorted[i - 1]->ambiguous = sorted[i]->ambiguous = true;
	}
}

static void read_pods(struct build *b)
{
	b->pods = xcalloc(b->w->n_pods + 1, sizeof(*b->pods));
	for (size_t i = 0; i < b->w->n_pods; i++) {
		int r = plan_pod_decode(b->w->pods[i], b->s, &b->pods[b->n_pods]);

		if (r > 0)
			b->n_pods++;
		else if (r < 0)
			b->plan->pods_unreadable++;
	}
	qsort(b->pods, b->n_pods, sizeof(*b->pods), by_pod_uid);
	for (size_t i = PLAN_MAX_PODS; i < b->n_pods; i++)
		b->pods[i].over_limit = true;
	mark_ambiguous(b);
}

static void read_namespaces(struct build *b)
{
	size_t n = b->w->n_namespaces;

	b->namespaces = xcalloc(n + 1, sizeof(*b->namespaces));
	for (size_t i = 0; i < n; i++)
		b->namespaces[i] = b->w->namespaces[i];
	qsort(b->namespaces, n, sizeof(*b->namespaces), by_name);
}

static const json_t *namespace_labels(const struct build *b, const char *name)
{
	size_t lo = 0, hi = b->w->n_namespaces;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int d = strcmp(name, namespace_name(b->namespaces[mid]));

		if (d == 0)
			return json_at(b->namespaces[mid], "metadata.labels");
		if (d < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

/* ---- one target: whether it selects this node ---- */

static struct target_selection selection_of(const struct target *t)
{
	return (struct target_selection){
		.cluster = t->kind == TARGET_CLUSTER,
		.ns = t->ns,
		.pods = t->pods,
		.namespaces = t->namespaces,
		.nodes = t->nodes,
	};
}

static bool on_this_node(const struct build *b, const struct target *t)
{
	const struct target_selection s = selection_of(t);

	return select_takes_node(&s, json_at(b->w->node, "metadata.labels"));
}

static void start_target(struct build *b, size_t i)
{
	static const char *const kinds[] = {[TARGET_NAMESPACED] = "ProfilingTarget",
					    [TARGET_CLUSTER] = "ClusterProfilingTarget",
					    [TARGET_BUILTIN] = "BuiltIn"};
	const struct target *t = &b->targets[i];
	struct plan_target *out = &b->plan->targets[i];
	uint64_t end =
		t->first_ready_ns && t->stop_after_ns ? t->first_ready_ns + t->stop_after_ns : 0;

	*out = (struct plan_target){
		.uid = xstrdup(t->uid),
		.kind = xstrdup(kinds[t->kind]),
		.ns = xstrdup(t->kind == TARGET_NAMESPACED ? t->ns : ""),
		.name = xstrdup(t->name),
		.generation = t->generation,
		.accepted = t->ok,
		.on_this_node = t->ok && on_this_node(b, t),
		.suspended = t->ok && t->suspend,
		.completed = t->ok && end && end <= b->w->now_ns,
		.event_mask = t->ok ? t->event_mask : 0,
	};
	if (t->ok && end > b->w->now_ns &&
	    (!b->plan->next_change_ns || end < b->plan->next_change_ns))
		b->plan->next_change_ns = end;
}

/* ---- one target and one pod ---- */

/*
 * The built-in target has no selectors: it selects pods in namespaces with the label
 * SELECT_LABEL=enabled.
 */
static bool builtin_takes(const struct build *b, const struct selected *p)
{
	return str_equal(json_string_value(json_object_get(p->ns_labels, SELECT_LABEL)),
			 "enabled") &&
	       !str_equal(p->ns, b->s->own_namespace) && !streq(p->ns, "kube-system");
}

/* Whether the target selects the pod. */
static bool in_scope(const struct build *b, const struct target *t, const struct selected *p)
{
	const struct target_selection s = selection_of(t);

	return t->kind == TARGET_BUILTIN ? builtin_takes(b, p) : select_matches(&s, p);
}

static enum reason refused(const struct build *b, const struct target *t, const struct pod_view *p,
			   const struct selected *selected)
{
	const struct target_selection s = selection_of(t);
	enum reason r = select_refusal(&s, selected, b->s->opt_in_required);

	if (r)
		return r;
	if (p->ambiguous)
		return REASON_AMBIGUOUS_STATIC_POD;
	if (p->over_limit)
		return REASON_TOO_MANY_PODS;
	return REASON_NONE;
}

/* Returns the smaller limit. A limit of 0 is none. */
static double smaller_limit(double a, double b)
{
	return a > 0 && b > 0 ? MIN(a, b) : MAX(a, b);
}

static void add_target(struct build *b, size_t ti, struct plan_container *c)
{
	const struct target *t = &b->targets[ti];

	plan_settings_join(&c->settings, c->event_mask, &t->settings, t->event_mask, true);
	c->event_mask |= t->event_mask;
	c->sample_hz = MAX(c->sample_hz, t->sample_hz);
	c->java_attach |= t->java_attach;
	c->trace_context |= t->trace_context;
	c->overhead_percent = smaller_limit(c->overhead_percent, t->overhead_percent);
	c->on_cpu_percent = smaller_limit(c->on_cpu_percent, t->on_cpu_percent);
	c->targets = xrealloc(c->targets, (c->n_targets + 1) * sizeof(*c->targets));
	c->targets[c->n_targets++] = ti;
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
 * Returns why none of the pod's containers that the target wants can be sampled now. *ret_what: the
 * state of one of them. REASON_NONE: at least one can be sampled.
 */
static enum reason not_running(const struct target *t, const struct pod_view *p,
			       const char **ret_what)
{
	enum reason why = REASON_NONE;

	for (size_t i = 0; i < p->n_containers; i++) {
		const struct container_view *c = &p->containers[i];

		if (!plan_target_wants_container(t, c->name, c->type))
			continue;
		if (c->id && !c->waiting)
			return REASON_NONE;
		if (c->bad_id)
			return REASON_UNSUPPORTED_RUNTIME;
		why = REASON_CONTAINERS_NOT_RUNNING;
		*ret_what = c->waiting ? c->waiting : "not started yet";
	}
	return why;
}

/* A pod, the labels of its namespace, and what the cache knows of it (NULL: there is no cache). */
struct meeting {
	struct pod_view *pod;
	struct selected selected;
	struct plan_matched *matched;
};

static bool takes(const struct build *b, const struct target *t, const struct meeting *m)
{
	bool selected;

	if (m->matched && plan_matched_knows(m->matched, t->slot, &selected))
		return selected;
	selected = in_scope(b, t, &m->selected);
	if (m->matched)
		plan_matched_set(m->matched, t->slot, selected);
	return selected;
}

/* Adds the target to the containers that it selects (out[i] belongs to p->containers[i]). */
static void meet(struct build *b, size_t ti, const struct meeting *m, struct plan_container *out)
{
	const struct target *t = &b->targets[ti];
	struct pod_view *p = m->pod;
	struct plan_target *pt = &b->plan->targets[ti];
	unsigned n = 0;
	const char *what = NULL;
	enum reason why;

	if (!takes(b, t, m))
		return;
	pt->pods_matched++;
	why = refused(b, t, p, &m->selected);
	if (why || pt->suspended || pt->completed) {
		plan_tally_add(&b->tallies[ti], why, p, NULL);
		return;
	}
	for (size_t i = 0; i < p->n_containers; i++) {
		if (!plan_target_wants_container(t, p->containers[i].name, p->containers[i].type))
			continue;
		add_target(b, ti, &out[i]);
		n++;
	}
	if (p->containers_cut)
		plan_tally_add(&b->tallies[ti], REASON_TOO_MANY_CONTAINERS, p, NULL);
	if (!n) {
		plan_tally_add(&b->tallies[ti], REASON_NO_CONTAINERS_SELECTED, p, NULL);
		return;
	}
	why = not_running(t, p, &what);
	plan_tally_add(&b->tallies[ti], why, p, what);
	pt->pods_planned++;
	pt->containers_planned += n;
	add_label_tags(t, p, &p->tags);
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

static void finish_container(const struct pod_view *p, const struct container_view *c,
			     struct plan_container *pc)
{
	pc->id = xstrdup(c->id);
	pc->name = xstrdup(c->name);
	plan_tags_copy(&p->tags, &pc->tags);
	plan_tags_set(&pc->tags, "container", c->name);
	plan_tags_set(&pc->tags, "container_id", c->id);
	plan_tags_set(&pc->tags, "image", c->image);
}

static void plan_one_pod(struct build *b, struct pod_view *p)
{
	const json_t *ns_labels = namespace_labels(b, p->ns);
	const struct meeting m = {
		.pod = p,
		.selected = {p->ns, ns_labels, p->labels, p->annotations},
		.matched = p->over_limit ? NULL
					 : plan_matches_of(plan_cache_matches(b->cache), p->obj,
							   ns_labels),
	};
	_cleanup_free_ struct plan_container *all = xcalloc(p->n_containers + 1, sizeof(*all));
	struct plan_pod *out = &b->plan->pods[b->plan->n_pods];
	size_t n = 0;

	for (size_t i = 0; i < b->n_targets; i++) {
		if (b->plan->targets[i].on_this_node)
			meet(b, i, &m, all);
	}
	for (size_t i = 0; i < p->n_containers; i++)
		n += all[i].n_targets > 0;
	if (!n)
		return;
	*out = (struct plan_pod){
		.uid = xstrdup(p->uid),
		.cgroup_uid = xstrdup(p->cgroup_uid),
		.ns = xstrdup(p->ns),
		.name = xstrdup(p->name),
		.containers = xcalloc(n, sizeof(*out->containers)),
	};
	arm(p, all, out);
	for (size_t i = 0; i < p->n_containers; i++) {
		if (all[i].n_targets == 0)
			continue;
		out->containers[out->n_containers] = all[i];
		finish_container(p, &p->containers[i], &out->containers[out->n_containers++]);
	}
	plan_tags_copy(&p->tags, &out->tags);
	b->plan->n_pods++;
}

/* ---- pods for which the agent has no room ---- */

/* Whether the target may profile pods of the namespace, as far as the namespace decides it. */
static bool may_profile_in(const struct build *b, const struct target *t, const char *ns)
{
	const struct selected of = {.ns = ns, .ns_labels = namespace_labels(b, ns)};
	const struct target_selection s = selection_of(t);

	return (t->kind == TARGET_BUILTIN ? builtin_takes(b, &of)
					  : select_takes_namespace(&s, ns, of.ns_labels)) &&
	       select_refusal(&s, &of, b->s->opt_in_required) == REASON_NONE;
}

static void count_without_room(struct build *b, size_t ti)
{
	struct plan_target *pt = &b->plan->targets[ti];
	const char *ns;
	json_t *n;

	if (!pt->on_this_node || pt->suspended || pt->completed)
		return;
	json_object_foreach ((json_t *)b->w->without_room, ns, n) {
		if (!may_profile_in(b, &b->targets[ti], ns))
			continue;
		pt->pods_without_room += (unsigned)json_integer_value(n);
		plan_tally_without_room(&b->tallies[ti], ns, (unsigned)json_integer_value(n));
	}
}

/* ---- the whole plan ---- */

static void finish_target(struct build *b, size_t i)
{
	const struct target *t = &b->targets[i];
	const struct reason_facts facts = {
		.target = t,
		.plan_target = &b->plan->targets[i],
		.settings = b->s,
		.node_known = b->w->node != NULL,
	};

	plan_reasons_write(&facts, &b->tallies[i], &b->plan->targets[i]);
}

static void build_done(struct build *b)
{
	for (size_t i = 0; i < b->n_pods; i++)
		plan_pod_done(&b->pods[i]);
	for (size_t i = 0; i < b->n_targets; i++)
		plan_tally_done(&b->tallies[i]);
	free(b->pods);
	free(b->targets);
	free(b->tallies);
	free(b->namespaces);
	plan_cache_sweep(b->cache);
	if (!b->w->cache)
		plan_cache_free(b->cache);
	plan_free(b->plan);
}

int plan_build(const struct plan_world *w, struct plan **ret)
{
	_cleanup_(build_done) struct build b = {.w = w,
						.s = &w->settings,
						.cache = w->cache ? w->cache : plan_cache_new(),
						.plan = xcalloc(1, sizeof(*b.plan))};

	read_targets(&b);
	read_pods(&b);
	read_namespaces(&b);
	b.plan->targets = xcalloc(b.n_targets + 1, sizeof(*b.plan->targets));
	b.plan->n_targets = b.n_targets;
	b.plan->pods = xcalloc(b.n_pods + 1, sizeof(*b.plan->pods));
	for (size_t i = 0; i < b.n_targets; i++)
		start_target(&b, i);
	for (size_t i = 0; i < b.n_pods; i++)
		plan_one_pod(&b, &b.pods[i]);
	for (size_t i = 0; i < b.n_targets; i++) {
		count_without_room(&b, i);
		finish_target(&b, i);
	}
	*ret = TAKE_PTR(b.plan);
	return 0;
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
	free(p->uid);
	free(p->cgroup_uid);
	free(p->ns);
	free(p->name);
}

struct plan *plan_free(struct plan *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < p->n_pods; i++)
		free_pod(&p->pods[i]);
	for (size_t i = 0; i < p->n_targets; i++) {
		struct plan_target *t = &p->targets[i];

		for (size_t k = 0; k < t->n_reasons; k++)
			free(t->reasons[k].message);
		free(t->reasons);
		free(t->uid);
		free(t->kind);
		free(t->ns);
		free(t->name);
	}
	free(p->pods);
	free(p->targets);
	free(p);
	return NULL;
}
