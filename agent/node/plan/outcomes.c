/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which targets select a pod, and the counts of what became of it. Both change only by what has
 * changed since the last plan. Loop thread.
 */
#include "node/plan/cache.h"

/* ---- which targets select a pod ---- */

static bool pod_matches(const struct known_target *t, const struct select_labels *labels)
{
	return t->allowed.kind == TARGET_BUILTIN ||
	       select_compiled_matches(t->allowed.pods, labels);
}

/* Compares the pod with the targets of todo, a word of a set. */
static void compare(const struct plan_cache *c, struct kept_pod *k, unsigned w, uint64_t todo)
{
	k->known.words[w] |= todo;
	k->matches.words[w] &= ~todo;
	for (; todo; todo &= todo - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(todo);

		if (pod_matches(c->of_slot[w * 64 + bit], &k->labels))
			k->matches.words[w] |= 1ull << bit;
	}
}

/*
 * Finds the targets that select the pod. Returns whether these are others than in the last plan, or
 * do something else.
 */
static bool select_targets(struct planning *p, struct kept_pod *k)
{
	bool changed = false;

	plan_look_at_namespace(p, k->ns);
	for (unsigned w = 0; w < p->c->n_words; w++) {
		uint64_t takes = k->ns->targets->takes.words[w] & p->active.words[w], now;

		k->known.words[w] &= ~p->gone.words[w];
		if (takes & ~k->known.words[w])
			compare(p->c, k, w, takes & ~k->known.words[w]);
		now = takes & k->matches.words[w];
		changed |= now != k->selected.words[w] || (now & p->changed.words[w]);
		k->selected.words[w] = now;
	}
	return changed;
}

/* ---- what became of a pod ---- */

static const char *state_of(const struct known_pod *pod, const struct outcome *o)
{
	return o->waits ? pod->view.containers[o->waits - 1].waiting ?: "not started yet" : NULL;
}

void plan_pod_count(struct planning *p, struct known_pod *pod)
{
	for (size_t i = 0; i < pod->kept->n_outcomes; i++) {
		const struct outcome *o = &pod->kept->outcomes[i];
		struct known_target *t = p->c->of_slot[o->slot];

		t->is_stale = true;
		t->tally.pods_matched++;
		t->tally.pods_planned += o->n_containers > 0;
		t->tally.containers_planned += o->n_containers;
		plan_tally_add(&t->tally, o->why, pod, state_of(pod, o));
		if (o->cut)
			plan_tally_add(&t->tally, REASON_TOO_MANY_CONTAINERS, pod, NULL);
	}
}

void plan_pod_uncount(struct planning *p, struct known_pod *pod)
{
	for (size_t i = 0; !p->recount && i < pod->kept->n_outcomes; i++) {
		const struct outcome *o = &pod->kept->outcomes[i];
		struct known_target *t = p->c->of_slot[o->slot];
		bool lost;

		if (plan_slots_have(&p->gone, o->slot))
			continue;
		t->is_stale = true;
		t->tally.pods_matched--;
		t->tally.pods_planned -= o->n_containers > 0;
		t->tally.containers_planned -= o->n_containers;
		lost = plan_tally_remove(&t->tally, o->why, pod);
		if (o->cut)
			lost |= plan_tally_remove(&t->tally, REASON_TOO_MANY_CONTAINERS, pod);
		if (lost)
			plan_slots_put(&p->lost, o->slot);
	}
	pod->kept->n_outcomes = 0;
}

void plan_pod_update(struct planning *p, struct known_pod *pod)
{
	struct kept_pod *k = pod->kept;
	bool ambiguous = pod->claim->n > 1;
	bool changed = select_targets(p, k);

	if (!changed && !k->is_new && ambiguous == k->ambiguous &&
	    k->ns->changed != p->c->n_plans) {
		if (p->recount)
			plan_pod_count(p, pod);
		return;
	}
	plan_pod_uncount(p, pod);
	k->is_new = false;
	k->ambiguous = ambiguous;
	plan_merge(p, pod);
	plan_pod_count(p, pod);
}

/* ---- the first pod of a reason ---- */

static bool any_of(const struct slots *a, const struct slots *b, unsigned n_words)
{
	for (unsigned w = 0; w < n_words; w++)
		if (a->words[w] & b->words[w])
			return true;
	return false;
}

/* How many reasons of lost tallies have no first pod. */
static size_t count_missing(const struct planning *p)
{
	size_t n = 0;

	for (unsigned slot = 0; slot < p->c->n_words * 64; slot++) {
		const struct tally_of *of;

		if (!plan_slots_have(&p->lost, slot))
			continue;
		of = p->c->of_slot[slot]->tally.of;
		for (size_t i = 0; i < N_TALLIED; i++)
			n += of[i].n && !of[i].pod && !of[i].what;
	}
	return n;
}

static size_t find_in(struct planning *p, const struct known_pod *pod)
{
	size_t n = 0;

	for (size_t i = 0; i < pod->kept->n_outcomes; i++) {
		const struct outcome *o = &pod->kept->outcomes[i];
		struct tally *t = &p->c->of_slot[o->slot]->tally;

		if (!plan_slots_have(&p->lost, o->slot))
			continue;
		n += plan_tally_found(t, o->why, pod, state_of(pod, o));
		if (o->cut)
			n += plan_tally_found(t, REASON_TOO_MANY_CONTAINERS, pod, NULL);
	}
	return n;
}

void plan_find_first_pods(struct planning *p)
{
	size_t n = count_missing(p);

	for (size_t i = 0; n && i < p->n_pods; i++)
		if (any_of(&p->pods[i]->kept->selected, &p->lost, p->c->n_words))
			n -= find_in(p, p->pods[i]);
}

/* ---- pods over the limit ---- */

void plan_count_over_limit(struct planning *p, struct known_pod *pod)
{
	const struct pod_view *v = &pod->view;
	const json_t *ns_labels = plan_namespace_labels(plan_namespace(p->c, v->ns));
	const struct selected of = {v->ns, ns_labels, v->labels, v->annotations};
	struct select_labels of_pod, of_ns;

	select_labels_read(v->labels, NULL, &of_pod);
	select_labels_read(ns_labels, v->ns, &of_ns);
	for (size_t i = 0; i < p->n_targets; i++) {
		struct known_target *t = p->targets[i];

		if (!t->on_this_node || !plan_takes_namespace(p, t, v->ns, &of_ns) ||
		    !pod_matches(t, &of_pod))
			continue;
		t->tally.pods_matched++;
		plan_tally_add(&t->tally, plan_pod_refusal(p, t, pod, &of), pod, NULL);
	}
	select_labels_done(&of_pod);
	select_labels_done(&of_ns);
}
