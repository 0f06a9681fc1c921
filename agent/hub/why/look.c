/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the API server for one namespace and one pod: a list of each, which the hub may do anyway,
 * because it watches them. It takes their metadata only. Loop thread.
 */
#include "hub/why/reasons.h"

#include <stdlib.h>

#define LOOK_LIMIT_NS (5 * NSEC_PER_SEC) /* time for both lists */

struct list {
	struct why_look *look;
	struct why_object *object;
	struct kube_watch *watch; /* NULL: it has ended */
};
struct why_look {
	struct list ns, pod;
	struct why_seen seen;
	struct loop *loop;
	struct timer timer;
	why_look_fn *fn;
	void *arg;
};

static void finish(void *arg)
{
	struct why_look *l = arg;

	l->fn(&l->seen, l->arg);
}

static void end(struct list *x)
{
	struct why_look *l = x->look;

	x->watch = kube_watch_free(x->watch);
	if (!l->ns.watch && !l->pod.watch)
		timer_set(l->loop, &l->timer, 0, finish, l);
}

static void take(const char *key, const json_t *obj, void *arg)
{
	struct why_object *o = arg;

	(void)key;
	if (!o->object)
		o->object = json_incref((json_t *)obj);
}

static void on_listed(void *arg)
{
	struct list *x = arg;

	x->object->known = true;
	kube_watch_each(x->watch, take, x->object);
	end(x);
}

static void on_state(const char *error, void *arg)
{
	struct list *x = arg;

	if (error && x->watch)
		end(x);
}

static void trim(json_t *obj)
{
	json_keep(obj, "metadata", "name namespace uid resourceVersion labels annotations");
}

static void start(struct list *x, struct kube *k, const char *path, const char *name)
{
	static const struct kube_watch_ops ops = {.synced = on_listed, .state = on_state};
	_cleanup_free_ char *selector = xasprintf("metadata.name=%s", name);
	const struct kube_watch_spec spec = {.path = path,
					     .field_selector = selector,
					     .metadata_only = true,
					     .once = true,
					     .trim = trim};

	if (kube_watch_new(k, &spec, &ops, x, &x->watch) < 0)
		x->watch = NULL;
}

struct why_look *why_look_new(struct loop *loop, struct kube *k, const struct why_question *q,
			      why_look_fn *fn, void *arg)
{
	struct why_look *l = xcalloc(1, sizeof(*l));
	_cleanup_free_ char *pods = NULL;
	bool may_tell = why_may_tell(q, q->ns);

	l->loop = loop;
	l->fn = fn;
	l->arg = arg;
	l->ns = (struct list){.look = l, .object = &l->seen.ns};
	l->pod = (struct list){.look = l, .object = &l->seen.pod};
	/* the API server has no object of another name */
	l->seen.ns.known = q->ns && !why_is_name(q->ns);
	l->seen.pod.known = q->ns && q->pod && (l->seen.ns.known || !why_is_name(q->pod));
	timer_set(loop, &l->timer, LOOK_LIMIT_NS, finish, l);
	if (may_tell && q->ns && !l->seen.ns.known)
		start(&l->ns, k, "/api/v1/namespaces", q->ns);
	pods = xasprintf("/api/v1/namespaces/%s/pods", q->ns ?: "");
	if (may_tell && q->ns && q->pod && !l->seen.pod.known)
		start(&l->pod, k, pods, q->pod);
	if (!l->ns.watch && !l->pod.watch)
		timer_set(loop, &l->timer, 0, finish, l);
	return l;
}

struct why_look *why_look_free(struct why_look *l)
{
	if (!l)
		return NULL;
	timer_cancel(&l->timer);
	kube_watch_free(l->ns.watch);
	kube_watch_free(l->pod.watch);
	json_decref(l->seen.ns.object);
	json_decref(l->seen.pod.object);
	free(l);
	return NULL;
}
