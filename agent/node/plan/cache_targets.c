/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The targets of a plan: decoded and their selectors compiled once, kept within the limits of the
 * installation, in order, each accepted one with a slot. Loop thread.
 */
#include "node/plan/cache.h"

static int by_uid(const void *a, const void *b)
{
	const struct target *x = &(*(struct known_target *const *)a)->asked,
			    *y = &(*(struct known_target *const *)b)->asked;
	int d = strcmp(x->uid, y->uid);

	d = d ? d : strcmp(x->ns, y->ns);
	return d ? d : strcmp(x->name, y->name);
}

/* ---- slots ---- */

static void take_slot(struct planning *p, struct known_target *t)
{
	struct plan_cache *c = p->c;
	unsigned slot = c->first_free;

	/* there is one, because fewer targets than this are accepted */
	while (c->of_slot[slot])
		slot++;
	c->first_free = slot + 1;
	t->slot = slot;
	c->of_slot[slot] = t;
	c->n_words = MAX(c->n_words, slot / 64 + 1);
	plan_slots_put(&p->changed, slot);
}

static void leave_slot(struct planning *p, struct known_target *t)
{
	if (t->slot == PLAN_NO_SLOT)
		return;
	p->c->of_slot[t->slot] = NULL;
	p->c->first_free = MIN(p->c->first_free, t->slot);
	plan_slots_put(&p->gone, t->slot);
	t->slot = PLAN_NO_SLOT;
	t->tally = (struct tally){0};
}

static void give_slots(struct planning *p)
{
	for (size_t i = 0; i < p->n_targets; i++)
		if (!p->targets[i]->allowed.ok)
			leave_slot(p, p->targets[i]);
	for (size_t i = 0; i < p->n_targets; i++)
		if (p->targets[i]->allowed.ok && p->targets[i]->slot == PLAN_NO_SLOT)
			take_slot(p, p->targets[i]);
}

/* ---- which targets there are ---- */

static struct known_target *new_target(const json_t *obj)
{
	struct known_target *t = xcalloc(1, sizeof(*t));

	t->order.rank = PLAN_NO_RANK;
	t->obj = json_incref((json_t *)obj);
	t->slot = PLAN_NO_SLOT;
	t->is_stale = true;
	return t;
}

static void free_target(struct known_target *t)
{
	plan_target_release(&t->result);
	plan_target_done(&t->asked);
	json_decref((json_t *)t->obj);
	free(t);
}

static struct known_target *known(struct plan_cache *c, const json_t *obj)
{
	struct known_target *t;

	HASH_FIND_PTR(c->targets, &obj, t);
	if (t)
		return t;
	t = new_target(obj);
	plan_target_decode(obj, &t->asked);
	HASH_ADD_PTR(c->targets, obj, t);
	return t;
}

static struct known_target *builtin(struct planning *p)
{
	struct plan_cache *c = p->c;

	if (!c->builtin) {
		c->builtin = new_target(NULL);
		plan_target_builtin(p->s, &c->builtin->asked);
	}
	return c->builtin;
}

/* Forgets targets that this plan does not have. Returns whether there were any. */
static bool forget_others(struct planning *p)
{
	struct known_target *t, *next;
	bool any = false;

	HASH_ITER (hh, p->c->targets, t, next) {
		if (t->order.asked) {
			t->order.asked = false;
			continue;
		}
		any = true;
		leave_slot(p, t);
		HASH_DEL(p->c->targets, t);
		free_target(t);
	}
	return any;
}

/* Lists the targets. Returns whether they are others than those of the last plan. */
static bool list_targets(struct planning *p)
{
	const struct plan_world *w = p->w;
	bool changed = false;

	p->targets = xcalloc(w->n_targets + 1, sizeof(struct known_target *));
	for (size_t i = 0; i < w->n_targets; i++)
		p->targets[p->n_targets++] = known(p->c, w->targets[i]);
	if (p->s->default_target)
		p->targets[p->n_targets++] = builtin(p);
	for (size_t i = 0; i < p->n_targets; i++) {
		p->targets[i]->order.asked = true;
		changed |= p->targets[i]->order.rank == PLAN_NO_RANK;
	}
	changed |= forget_others(p) || p->n_targets != p->c->n_targets;
	plan_order((struct in_order **)p->targets, p->n_targets, p->c->n_targets, by_uid);
	p->c->n_targets = p->n_targets;
	return changed;
}

/* ---- which of them are accepted, and what they may do ---- */

static void accept(struct planning *p)
{
	size_t n = p->n_targets;
	_cleanup_free_ struct target **list = xcalloc(n + 1, sizeof(*list));
	_cleanup_free_ struct target *before = xcalloc(n + 1, sizeof(*before));

	for (size_t i = 0; i < n; i++) {
		struct known_target *t = p->targets[i];

		before[i] = t->allowed;
		t->allowed = t->asked;
		plan_target_limit(p->s, &t->allowed);
		list[i] = &t->allowed;
	}
	plan_targets_refuse_of_namespace(list, n, p->s->tenant.max_targets);
	plan_targets_refuse_too_many(list, n);
	for (size_t i = 0; i < n; i++) {
		const struct target *t = list[i];

		if (t->ok != before[i].ok || t->refusal != before[i].refusal ||
		    t->over_limit != before[i].over_limit)
			p->targets[i]->is_stale = true;
	}
	give_slots(p);
}

static void list_accepted(struct planning *p)
{
	p->accepted = xcalloc(PLAN_SLOTS, sizeof(struct known_target *));
	for (size_t i = 0; i < p->n_targets; i++) {
		struct known_target *t = p->targets[i];

		if (t->slot == PLAN_NO_SLOT)
			continue;
		t->place = (unsigned)p->n_accepted;
		p->accepted[p->n_accepted++] = t;
	}
}

static uint64_t end_ns(const struct target *t)
{
	return t->first_ready_ns && t->stop_after_ns ? t->first_ready_ns + t->stop_after_ns : 0;
}

static bool takes_node(const struct target *t, const struct select_labels *of_node)
{
	return !t->nodes || (of_node && select_compiled_matches(t->nodes, of_node));
}

static void set_state(struct planning *p, struct known_target *t,
		      const struct select_labels *of_node)
{
	bool ok = t->allowed.ok;
	uint64_t end = end_ns(&t->allowed);
	bool here = ok && takes_node(&t->allowed, of_node),
	     completed = ok && end && end <= p->w->now_ns;

	if (here != t->on_this_node || completed != t->completed) {
		t->is_stale = true;
		if (ok)
			plan_slots_put(&p->changed, t->slot);
	}
	t->on_this_node = here;
	t->completed = completed;
	if (here)
		plan_slots_put(&p->active, t->slot);
	if (ok && end > p->w->now_ns && (!p->plan->next_change_ns || end < p->plan->next_change_ns))
		p->plan->next_change_ns = end;
}

void plan_read_targets(struct planning *p)
{
	const json_t *labels = json_at(p->w->node, "metadata.labels");
	bool node_known = p->w->node != NULL, node_changed = node_known != p->c->node_known;
	struct select_labels of_node;

	if (list_targets(p))
		accept(p);
	list_accepted(p);
	select_labels_read(labels, NULL, &of_node);
	for (size_t i = 0; i < p->n_targets; i++) {
		p->targets[i]->is_stale |= node_changed;
		set_state(p, p->targets[i], labels ? &of_node : NULL);
	}
	select_labels_done(&of_node);
	p->c->node_known = node_known;
}

void plan_targets_free(struct plan_cache *c)
{
	struct known_target *t, *next;

	HASH_ITER (hh, c->targets, t, next) {
		HASH_DEL(c->targets, t);
		free_target(t);
	}
	if (c->builtin)
		free_target(c->builtin);
}
