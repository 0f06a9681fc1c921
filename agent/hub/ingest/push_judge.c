/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of what a sender that pushes may speak. A token that Kubernetes made for a pod speaks of that
 * pod: who the API server says the sender is counts, not what the profiles say. To speak of other
 * pods a sender needs the right in their namespaces; where these pods are, the hub knows itself.
 * Who has the right in all namespaces, as agents have, speaks of pods on its own node only: so
 * somebody who takes over a node gains nothing here.
 */
#include "hub/ingest/push.h"

#include <stdlib.h>

/* how far a profile may end in the future: as that of an agent */
#define MAX_AHEAD_NS (300 * NSEC_PER_SEC)

/* The namespace of which a profile speaks. */
static const char *ns_of(const struct ingest_sender *s, const struct profile *p)
{
	return profile_tag_get(p, "pod_ns") ?: s->ns;
}

static bool is_own_pod(const struct ingest_sender *s, const struct profile *p)
{
	const char *pod = profile_tag_get(p, "pod");

	return s->pod && *s->pod && streq(ns_of(s, p), s->ns) && (!pod || streq(pod, s->pod));
}

static bool has(const char *const *list, size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (streq(list[i], text))
			return true;
	return false;
}

int ingest_push_spoken(const struct ingest_sender *s, const struct batch *b, const char ***ret,
		       size_t *ret_n)
{
	_cleanup_free_ const char **list = xcalloc(PUSH_MAX_SPOKEN, sizeof(*list));
	size_t n = 0;

	for (size_t i = 0; i < b->n_profiles; i++) {
		const char *ns = ns_of(s, b->profiles[i]);

		if (streq(ns, s->ns) || has(list, n, ns))
			continue;
		if (n == PUSH_MAX_SPOKEN)
			return -E2BIG;
		list[n++] = ns;
	}
	*ret = TAKE_PTR(list);
	*ret_n = n;
	return 0;
}

static int check_time(const struct profile *p, struct ingest_verdict *v)
{
	uint64_t now = now_wall_ns();

	if (p->end_ns > now + MAX_AHEAD_NS)
		ingest_verdict(v, 422, NULL, "the profile ends %llu min ahead of the hub's clock",
			       (unsigned long long)((p->end_ns - now) / (60 * NSEC_PER_SEC)));
	else if (p->end_ns + PUSH_MAX_AGE_NS < now)
		ingest_verdict(v, 422, NULL, "the profile is older than an hour");
	return v->status == 200 ? 0 : -EINVAL;
}

static void put(struct batch *b, struct profile *p, const char *key, const char *value)
{
	if (value && *value)
		profile_tag(b, p, key, value);
	else
		profile_untag(p, key);
}

static void put_place(struct batch *b, struct profile *p, const char *uid, const char *node)
{
	put(b, p, "pod_uid", uid);
	put(b, p, "pod_node", node);
}

/* Kubernetes before 1.30 writes no node into the token: then the hub knows where the pod is. */
static void judge_own(const struct ingest_config *c, const struct ingest_sender *s, struct batch *b,
		      struct profile *p)
{
	_cleanup_free_ char *node = NULL, *uid = NULL;
	bool known = !*s->node && pods_where(c->pods, s->ns, s->pod, &node, &uid) &&
		     str_equal(uid, s->pod_uid);

	put(b, p, "pod", s->pod);
	put_place(b, p, s->pod_uid, known ? node : s->node);
}

/* Another pod than the sender's own. The hub may not know it: the namespace trusts the sender. */
static int judge_other(const struct ingest_config *c, const struct ingest_sender *s,
		       struct batch *b, struct profile *p, struct ingest_verdict *v)
{
	const char *ns = ns_of(s, p), *pod = profile_tag_get(p, "pod");
	_cleanup_free_ char *node = NULL, *uid = NULL;
	bool known = pod && pods_where(c->pods, ns, pod, &node, &uid);

	if (s->everywhere && !*s->node) {
		ingest_verdict(v, 403, NULL,
			       "the token names no node, as on Kubernetes before 1.30: who may "
			       "create profiles in all namespaces (for spec.scrape, the agent) "
			       "speaks of the pods of its node only");
		return -EACCES;
	}
	if (s->everywhere && !(known && streq(node, s->node))) {
		ingest_verdict(v, 403, NULL,
			       "pod %.63s/%.253s is not on the node of the token: who may create "
			       "profiles in all namespaces speaks of the pods of its node only",
			       ns, pod ?: "");
		return -EACCES;
	}
	put_place(b, p, uid, node);
	return 0;
}

static void set_id(struct profile *p, const struct ingest_config *c, const struct ingest_sender *s)
{
	char sent[2 * sizeof(p->id) + 1];
	const char *parts[] = {"push", c->cluster_name, s->ns, s->pod_uid ?: "", sent};

	hex_encode(p->id, sizeof(p->id), sent);
	profile_id_make(parts, ARRAY_SIZE(parts), p->id);
}

static int judge_one(const struct ingest_config *c, const struct ingest_sender *s, struct batch *b,
		     struct profile *p, struct ingest_verdict *v)
{
	if (check_time(p, v) < 0)
		return -EINVAL;
	if (is_own_pod(s, p)) {
		judge_own(c, s, b, p);
	} else if (judge_other(c, s, b, p, v) < 0) {
		return -EACCES;
	}
	put(b, p, "pod_ns", ns_of(s, p));
	put(b, p, "pod_cluster", c->cluster_name);
	set_id(p, c, s);
	return 0;
}

void ingest_push_judge(const struct ingest_config *c, const struct ingest_sender *s,
		       struct batch *b, struct ingest_verdict *v)
{
	v->status = 200;
	if (!c->auth) /* the hub believes all senders */
		return;
	for (size_t i = 0; i < b->n_profiles; i++)
		if (judge_one(c, s, b, b->profiles[i], v) < 0)
			return;
}
