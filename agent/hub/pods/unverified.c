/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers of which pods the hub has stored profiles that it could not verify, so that the status
 * of targets can tell it. A sender chooses these names, so their number is limited.
 */
#include "hub/pods/internal.h"

#include <stdlib.h>

#define KEEP_NS	   (600 * NSEC_PER_SEC)
#define NAME_BYTES 253 /* the longest name of a pod or a node */
#define NS_BYTES   63
#define SHOWN	   3

/* Whether Kubernetes allows the text as a name of a pod, a node or a namespace. */
static bool is_name(const char *s, size_t max_bytes)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-");

	return n && !s[n] && n <= max_bytes;
}

static struct unverified_ns *ns_for(struct pods *p, const char *ns)
{
	struct unverified_ns *u;

	HASH_FIND_STR(p->unverified, ns, u);
	if (u || HASH_COUNT(p->unverified) >= UNVERIFIED_NAMESPACES)
		return u;
	u = xcalloc(1, sizeof(*u));
	u->ns = xstrdup(ns);
	HASH_ADD_KEYPTR(hh, p->unverified, u->ns, strlen(u->ns), u);
	return u;
}

static void note(struct pods *p, const struct pods_claim *c)
{
	struct unverified_ns *u = ns_for(p, c->ns);
	unsigned i = 0;

	while (u && i < u->n &&
	       !(streq(u->pods[i].name, c->name) && streq(u->pods[i].node, c->node)))
		i++;
	if (!u || i == UNVERIFIED_PODS)
		return;
	if (i == u->n) {
		u->pods[u->n++] =
			(struct unverified_pod){.name = xstrdup(c->name), .node = xstrdup(c->node)};
		p->unverified_changed = true;
	}
	u->pods[i].until_ns = now_mono_ns() + KEEP_NS;
}

void pods_note_unverified(struct pods *p, const struct pods_claim *c)
{
	if (!is_name(c->ns, NS_BYTES) || !is_name(c->name, NAME_BYTES) ||
	    !is_name(c->node, NAME_BYTES))
		return;
	pthread_mutex_lock(&p->lock);
	note(p, c);
	pthread_mutex_unlock(&p->lock);
}

static void drop(struct unverified_ns *u, unsigned i)
{
	free(u->pods[i].name);
	free(u->pods[i].node);
	u->pods[i] = u->pods[--u->n];
}

/* Drops the pods of the namespace that are remembered until then. */
static void drop_until(struct pods *p, struct unverified_ns *u, uint64_t end_ns)
{
	for (unsigned i = u->n; i-- > 0;)
		if (u->pods[i].until_ns <= end_ns) {
			drop(u, i);
			p->unverified_changed = true;
		}
	if (u->n)
		return;
	HASH_DEL(p->unverified, u);
	free(u->ns);
	free(u);
}

/*
 * Whether no target can tell of the namespace, because it is not in the cluster. A sender could
 * else fill the memory with namespaces that it has invented.
 */
static bool is_invented(const struct pods *p, const char *ns)
{
	return kube_watch_synced(p->namespaces) && !kube_watch_get(p->namespaces, ns);
}

static void drop_old(struct pods *p)
{
	uint64_t now = now_mono_ns();
	struct unverified_ns *u, *next;

	HASH_ITER (hh, p->unverified, u, next)
		drop_until(p, u, is_invented(p, u->ns) ? UINT64_MAX : now);
}

void pods_unverified_tick(struct pods *p)
{
	bool changed;

	pthread_mutex_lock(&p->lock);
	drop_old(p);
	changed = p->unverified_changed;
	p->unverified_changed = false;
	pthread_mutex_unlock(&p->lock);
	if (changed && p->ops.unverified)
		p->ops.unverified(p->ops_arg);
}

/* Adds the pods of a namespace to a text that has n already; returns their new number. */
static unsigned add(struct buf *b, const struct unverified_ns *u, unsigned n)
{
	for (unsigned i = 0; u && i < u->n; i++)
		if (n++ < SHOWN)
			buf_printf(b, "%s%s/%s on node %s", n > 1 ? ", " : "", u->ns,
				   u->pods[i].name, u->pods[i].node);
	return n;
}

/* Adds those of the namespaces that a ClusterProfilingTarget selects. */
static unsigned add_selected(struct pods *p, const struct target_selection *s, struct buf *b)
{
	unsigned n = 0;

	for (const struct unverified_ns *u = p->unverified; u; u = u->hh.next) {
		const json_t *ns = kube_watch_get(p->namespaces, u->ns);

		if (select_takes_namespace(s, u->ns, json_at(ns, "metadata.labels")))
			n = add(b, u, n);
	}
	return n;
}

char *pods_unverified(struct pods *p, const struct target_selection *s)
{
	_cleanup_buf_ struct buf b = {0};
	struct unverified_ns *own = NULL;
	unsigned n;

	pthread_mutex_lock(&p->lock);
	if (!s->cluster)
		HASH_FIND_STR(p->unverified, s->ns, own);
	n = s->cluster ? add_selected(p, s, &b) : add(&b, own, 0);
	pthread_mutex_unlock(&p->lock);
	if (n > SHOWN)
		buf_printf(&b, " and %u more", n - SHOWN);
	return n ? buf_steal(&b) : NULL;
}

void pods_unverified_done(struct pods *p)
{
	struct unverified_ns *u, *next;

	HASH_ITER (hh, p->unverified, u, next)
		drop_until(p, u, UINT64_MAX);
}
