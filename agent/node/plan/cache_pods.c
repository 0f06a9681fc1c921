/* SPDX-License-Identifier: Apache-2.0 */
/* The pods of a plan: decoded once, in order, and which are within its limit. Loop thread. */
#include "node/plan/cache.h"

static int by_uid(const void *a, const void *b)
{
	return strcmp((*(struct known_pod *const *)a)->view.uid,
		      (*(struct known_pod *const *)b)->view.uid);
}

/* ---- cgroups that several pods claim ---- */

static struct cgroup_claim *claim(struct plan_cache *c, const char *uid)
{
	struct cgroup_claim *of;

	HASH_FIND_STR(c->claims, uid, of);
	if (!of) {
		of = xcalloc(1, sizeof(*of));
		of->uid = xstrdup(uid);
		HASH_ADD_KEYPTR(hh, c->claims, of->uid, strlen(of->uid), of);
	}
	of->n++;
	return of;
}

static void drop_claim(struct plan_cache *c, struct cgroup_claim *of)
{
	if (--of->n)
		return;
	HASH_DEL(c->claims, of);
	free(of->uid);
	free(of);
}

/* ---- one pod ---- */

static void keep(struct planning *p, struct known_pod *pod)
{
	struct kept_pod *k = pod->kept = xcalloc(1, sizeof(*k));

	if (!pod->view.containers)
		plan_pod_decode(pod->obj, p->s, &pod->view);
	k->is_new = true;
	k->ns = plan_namespace(p->c, pod->view.ns);
	plan_namespace_join(k->ns);
	select_labels_read(pod->view.labels, NULL, &k->labels);
}

/* Leaves of the pod what the list of pods needs. */
static void leave(struct known_pod *pod)
{
	struct kept_pod *k = pod->kept;

	plan_pod_done(&pod->view);
	if (!k)
		return;
	plan_namespace_leave(k->ns);
	plan_pod_release(&k->result);
	select_labels_done(&k->labels);
	free(k->outcomes);
	free(k);
	pod->kept = NULL;
}

static struct known_pod *known(struct planning *p, const json_t *obj)
{
	struct known_pod *pod;

	HASH_FIND_PTR(p->c->pods, &obj, pod);
	if (pod)
		return pod;
	pod = xcalloc(1, sizeof(*pod));
	pod->order.rank = PLAN_NO_RANK;
	pod->obj = json_incref((json_t *)obj);
	pod->state = plan_pod_decode(obj, p->s, &pod->view);
	if (pod->state > 0)
		pod->claim = claim(p->c, pod->view.cgroup_uid);
	HASH_ADD_PTR(p->c->pods, obj, pod);
	return pod;
}

static void forget(struct plan_cache *c, struct known_pod *pod)
{
	HASH_DEL(c->pods, pod);
	leave(pod);
	if (pod->claim)
		drop_claim(c, pod->claim);
	json_decref((json_t *)pod->obj);
	free(pod);
}

/* ---- all pods ---- */

static void list_pods(struct planning *p)
{
	p->pods = xcalloc(p->w->n_pods + 1, sizeof(struct known_pod *));
	for (size_t i = 0; i < p->w->n_pods; i++) {
		struct known_pod *pod = known(p, p->w->pods[i]);

		if (pod->state > 0 && !pod->order.asked)
			p->pods[p->n_pods++] = pod;
		p->plan->pods_unreadable += pod->state < 0;
		pod->order.asked = true;
	}
	plan_order((struct in_order **)p->pods, p->n_pods, p->c->n_pods, by_uid);
	p->c->n_pods = p->n_pods;
}

static void forget_others(struct planning *p)
{
	struct known_pod *pod, *next;

	HASH_ITER (hh, p->c->pods, pod, next) {
		if (pod->kept && (pod->over_limit || !pod->order.asked))
			plan_pod_uncount(p, pod);
		if (!pod->order.asked) {
			forget(p->c, pod);
			continue;
		}
		if (pod->over_limit)
			leave(pod);
		pod->order.asked = false;
	}
}

void plan_read_pods(struct planning *p)
{
	bool over_limit;

	list_pods(p);
	over_limit = p->n_pods > PLAN_MAX_PODS;
	plan_pods_choose(p->pods, p->n_pods);
	p->recount = over_limit || p->c->had_over_limit;
	p->c->had_over_limit = over_limit;
	forget_others(p);
	for (size_t i = 0; i < p->n_pods; i++)
		if (!p->pods[i]->over_limit && !p->pods[i]->kept)
			keep(p, p->pods[i]);
}

void plan_pods_free(struct plan_cache *c)
{
	struct known_pod *pod, *next;

	HASH_ITER (hh, c->pods, pod, next)
		forget(c, pod);
}
