/* SPDX-License-Identifier: Apache-2.0 */
/* The namespaces of a plan, and which targets select in them. Loop thread. */
#include "node/plan/cache.h"

struct known_namespace *plan_namespace(struct plan_cache *c, const char *name)
{
	struct known_namespace *n;

	HASH_FIND_STR(c->namespaces, name, n);
	if (n)
		return n;
	n = xcalloc(1, sizeof(*n));
	n->name = xstrdup(name);
	HASH_ADD_KEYPTR(hh, c->namespaces, n->name, strlen(n->name), n);
	return n;
}

const json_t *plan_namespace_labels(const struct known_namespace *n)
{
	return json_at(n ? n->obj : NULL, "metadata.labels");
}

static void set_object(struct plan_cache *c, struct known_namespace *n, const json_t *obj)
{
	if (n->obj)
		HASH_DELETE(by_obj, c->by_obj, n);
	select_labels_done(&n->labels);
	json_decref((json_t *)n->obj);
	n->obj = json_incref((json_t *)obj);
	n->changed = c->n_plans;
	if (obj)
		HASH_ADD(by_obj, c->by_obj, obj, sizeof(n->obj), n);
}

static struct known_namespace *known(struct plan_cache *c, const json_t *obj)
{
	struct known_namespace *n;

	HASH_FIND(by_obj, c->by_obj, &obj, sizeof(obj), n);
	if (n)
		return n;
	n = plan_namespace(c, json_str_at(obj, "metadata.name", ""));
	set_object(c, n, obj);
	return n;
}

static void forget(struct plan_cache *c, struct known_namespace *n)
{
	set_object(c, n, NULL);
	HASH_DELETE(hh, c->namespaces, n);
	free(n->name);
	free(n);
}

void plan_read_namespaces(struct planning *p)
{
	struct known_namespace *n, *next;

	for (size_t i = 0; i < p->w->n_namespaces; i++)
		known(p->c, p->w->namespaces[i])->asked = true;
	HASH_ITER (hh, p->c->namespaces, n, next) {
		if (!n->asked && !n->n_kept) {
			forget(p->c, n);
			continue;
		}
		if (!n->asked && n->obj)
			set_object(p->c, n, NULL);
		n->asked = false;
	}
}

/*
 * The built-in target has no selectors: it selects pods in namespaces with the label
 * SELECT_LABEL=enabled.
 */
static bool builtin_takes(const struct plan_settings *s, const char *ns,
			  const struct select_labels *labels)
{
	return str_equal(select_label(labels, SELECT_LABEL), "enabled") &&
	       !str_equal(ns, s->own_namespace) && !streq(ns, "kube-system");
}

bool plan_takes_namespace(const struct planning *p, const struct known_target *t, const char *ns,
			  const struct select_labels *labels)
{
	switch (t->allowed.kind) {
	case TARGET_BUILTIN:
		return builtin_takes(p->s, ns, labels);
	case TARGET_CLUSTER:
		return select_compiled_matches(t->allowed.namespaces, labels);
	default:
		return streq(t->allowed.ns, ns);
	}
}

void plan_namespace_join(struct known_namespace *n)
{
	if (!n->n_kept++)
		n->targets = xcalloc(1, sizeof(*n->targets));
}

void plan_namespace_leave(struct known_namespace *n)
{
	if (--n->n_kept)
		return;
	free(n->targets);
	n->targets = NULL;
}

static void ask_targets(struct planning *p, struct known_namespace *n, unsigned w)
{
	struct ns_targets *t = n->targets;
	uint64_t todo = p->active.words[w] & ~t->known.words[w];

	t->known.words[w] |= todo;
	t->takes.words[w] &= ~todo;
	for (; todo; todo &= todo - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(todo);

		if (plan_takes_namespace(p, p->c->of_slot[w * 64 + bit], n->name, &n->labels))
			t->takes.words[w] |= 1ull << bit;
	}
}

void plan_look_at_namespace(struct planning *p, struct known_namespace *n)
{
	if (n->looked == p->c->n_plans)
		return;
	if (!n->labels.items) {
		select_labels_read(plan_namespace_labels(n), n->name, &n->labels);
		n->targets->known = (struct slots){0};
	}
	n->looked = p->c->n_plans;
	for (unsigned w = 0; w < p->c->n_words; w++) {
		n->targets->known.words[w] &= ~p->gone.words[w];
		ask_targets(p, n, w);
	}
}

void plan_namespaces_free(struct plan_cache *c)
{
	struct known_namespace *n, *next;

	HASH_ITER (hh, c->namespaces, n, next)
		forget(c, n);
}
