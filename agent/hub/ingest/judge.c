/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of what a sender may speak. The sender is an agent on a node that somebody may have taken over:
 * what it says of the node's own pods cannot be checked, but it must not speak of anything else.
 */
#include "hub/ingest/judge.h"

/* how far a profile may end in the future: the store keeps it longer than all that come after it */
#define MAX_AHEAD_NS (300 * NSEC_PER_SEC)
/* The hub may learn of a new pod later than the agent does: so long, the agent is to send again. */
#define LAG_NS (30 * NSEC_PER_SEC)
/* While the hub cannot watch the pods, an agent keeps profiles of those that it does not know. */
#define AWAY_NS (3600 * NSEC_PER_SEC)

void ingest_verdict(struct ingest_verdict *v, int status, const char *reason, const char *fmt, ...)
{
	va_list ap;

	v->status = status;
	v->reason = reason;
	va_start(ap, fmt);
	vsnprintf(v->message, sizeof(v->message), fmt, ap);
	va_end(ap);
}

/*
 * Returns the node of the first profile that is not of this node ("": that profile names no node);
 * NULL: all profiles are of this node.
 */
static const char *foreign_node(const struct batch *b, const char *node)
{
	for (size_t i = 0; i < b->n_profiles; i++) {
		const char *said = profile_tag_get(b->profiles[i], "pod_node");

		if (!str_equal(said, node))
			return said ?: "";
	}
	return NULL;
}

static uint64_t latest_ns(const struct batch *b)
{
	uint64_t latest = 0;

	for (size_t i = 0; i < b->n_profiles; i++)
		latest = MAX(latest, b->profiles[i]->end_ns);
	return latest;
}

/*
 * Judges the batch as a whole. The hub will never take such a batch, so the status is not 403: a
 * sender that gets 403 waits for somebody to give it a right.
 */
static void judge_whole(const struct batch *b, const char *node, struct ingest_verdict *v)
{
	const char *foreign = *node ? foreign_node(b, node) : NULL;
	uint64_t latest = latest_ns(b), now = now_wall_ns();

	if (foreign)
		ingest_verdict(
			v, 422, "FOREIGN_NODE",
			"k8s.node.name: the token is of node \"%.100s\", a profile of \"%.100s\"",
			node, foreign);
	else if (latest > now + MAX_AHEAD_NS)
		ingest_verdict(v, 422, OTLP_CLOCK_AHEAD,
			       "time_unix_nano: a profile ends %llu min ahead of the hub's clock: "
			       "one of the two clocks is wrong",
			       (unsigned long long)((latest - now) / (60 * NSEC_PER_SEC)));
}

/* ---- profiles that are left out, or not verified ---- */

static const char *const refusals[_REFUSAL_MAX] = {
	[REFUSAL_NOT_AN_AGENT] = "not_an_agent",
	[REFUSAL_ANOTHER_NODE] = "pod_of_another_node",
	[REFUSAL_NO_HOSTS] = OTLP_NO_HOSTS,
};

void ingest_verdict_count(const struct ingest_verdict *v)
{
	if (v->status != 200)
		return;
	for (enum refusal r = 0; r < _REFUSAL_MAX; r++)
		counter_add(
			counter("podflame_ingest_profiles_refused_total", "reason", refusals[r]),
			v->n_refused[r]);
	counter_add(counter("podflame_ingest_profiles_unverified_total", NULL, NULL),
		    v->n_unverified);
}

static void refuse(struct batch *b, size_t i, enum refusal why, struct ingest_verdict *v)
{
	v->n_refused[why]++;
	profile_batch_skip(b, i, refusals[why]);
	/* only if nothing else was left out, the agent takes what it has of pods as stored */
	if (streq(b->skipped_for, OTLP_NO_HOSTS))
		b->skipped_for = refusals[why];
}

/* Whether the profile only reports what a node has lost. It belongs to no pod and to no process. */
static bool is_loss_of_node(const struct profile *p)
{
	return !p->n_samples && p->n_losses && !p->process_id;
}

struct judging {
	const struct ingest_config *config;
	const struct ingest_sender *sender;
	/* the claim before, and the answer to it: profiles of one pod follow each other */
	struct pods_claim claim;
	enum pods_place place;
	struct ingest_verdict *verdict;
};

static enum pods_place find(struct judging *j, const struct pods_claim *c)
{
	if (!j->claim.name || !streq(c->node, j->claim.node) || !streq(c->ns, j->claim.ns) ||
	    !streq(c->name, j->claim.name) || !str_equal(c->uid, j->claim.uid)) {
		j->place = pods_find(j->config->pods, c);
		j->claim = *c;
	}
	return j->place;
}

static struct pods_claim claim_of(const struct judging *j, const struct profile *p)
{
	return (struct pods_claim){
		.node = *j->sender->node ? j->sender->node : profile_tag_get(p, "pod_node") ?: "",
		.ns = profile_tag_get(p, "pod_ns") ?: "",
		.name = profile_tag_get(p, "pod") ?: "",
		.uid = profile_tag_get(p, "pod_uid"),
	};
}

/* Whether the hub may soon know more of the pod. The agent then sends the whole batch again. */
static bool is_too_early(struct judging *j, const struct profile *p)
{
	const struct pods_claim c = claim_of(j, p);
	enum pods_place place = *c.ns ? find(j, &c) : PODS_HERE;
	uint64_t wait_ns = place == PODS_UNKNOWN ? LAG_NS : place == PODS_NOT_NOW ? AWAY_NS : 0;

	if (!wait_ns || p->end_ns + wait_ns <= now_wall_ns())
		return false;
	ingest_verdict(j->verdict, 503, NULL,
		       "k8s.pod.name: the hub does not know pod %.63s/%.253s yet%s", c.ns, c.name,
		       place == PODS_NOT_NOW ? ": it cannot watch the pods now" : "");
	return true;
}

static void mark(const struct judging *j, struct batch *b, struct profile *p,
		 const struct pods_claim *claim)
{
	j->verdict->n_unverified++;
	profile_tag(b, p, TAG_UNVERIFIED, "true");
	pods_note_unverified(j->config->pods, claim);
}

/* Judges profile i, which is not too early. May remove it from the batch. */
static void judge_profile(struct judging *j, struct batch *b, size_t i)
{
	struct profile *p = b->profiles[i];
	const struct pods_claim c = claim_of(j, p);

	if (!*c.ns && (j->sender->hosts || is_loss_of_node(p)))
		return;
	if (!*c.ns) {
		refuse(b, i, REFUSAL_NO_HOSTS, j->verdict);
		return;
	}
	switch (find(j, &c)) {
	case PODS_HERE:
		return;
	case PODS_ELSEWHERE:
		refuse(b, i, REFUSAL_ANOTHER_NODE, j->verdict);
		return;
	case PODS_NOT_NOW:
	case PODS_UNKNOWN:
		mark(j, b, p, &c);
	}
}

/* Gives the profile an id that no other sender can give to one of its own. */
static void set_id(struct profile *p, const char *cluster, const char *node)
{
	char sent[2 * sizeof(p->id) + 1];
	const char *parts[] = {cluster, node, sent};

	memcpy(p->sent_id, p->id, sizeof(p->id));
	hex_encode(p->id, sizeof(p->id), sent);
	profile_id_make(parts, ARRAY_SIZE(parts), p->id);
}

/* Writes into the profiles what the hub knows better than the sender. */
static void stamp(const struct ingest_config *c, const struct ingest_sender *s, struct batch *b)
{
	const char *cluster = s->cluster ?: c->cluster_name;

	for (size_t i = 0; i < b->n_profiles; i++) {
		struct profile *p = b->profiles[i];

		/* the hub of another cluster says which of its own pods it could not verify */
		if (s->cluster && profile_tag_get(p, TAG_UNVERIFIED))
			profile_tag(b, p, TAG_UNVERIFIED, "true");
		else
			profile_untag(p, TAG_UNVERIFIED);
		if (*cluster)
			profile_tag(b, p, "pod_cluster", cluster);
		else
			profile_untag(p, "pod_cluster");
		set_id(p, cluster, s->node);
	}
}

static size_t n_foreign(const struct batch *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->n_profiles; i++)
		n += b->profiles[i]->foreign;
	return n;
}

/*
 * Only podflame's agents have sampled what says so. Others may have it from an agent, which has
 * sent it to a hub already: it must not count twice. A sender that has nothing else may be an agent
 * whose account was renamed: after 403 it keeps what it has until somebody names the account.
 */
static void keep_foreign(struct batch *b, const char *account, struct ingest_verdict *v)
{
	if (b->n_profiles && !n_foreign(b)) {
		ingest_verdict(v, 403, NULL,
			       "not_an_agent: only podflame's agents may send what podflame has "
			       "sampled, and ingest.agents of the hub (hub.agentAccounts of the "
			       "chart) does not name %.300s",
			       account ?: "this sender");
		return;
	}
	for (size_t i = b->n_profiles; i-- > 0;)
		if (!b->profiles[i]->foreign)
			refuse(b, i, REFUSAL_NOT_AN_AGENT, v);
}

void ingest_judge(const struct ingest_config *c, const struct ingest_sender *s, struct batch *b,
		  struct ingest_verdict *v)
{
	struct judging j = {.config = c, .sender = s, .verdict = v};

	*v = (struct ingest_verdict){.status = 200};
	if (!c->auth) /* the hub believes all senders */
		return;
	if (!s->agent && !s->cluster)
		keep_foreign(b, s->account, v);
	if (v->status == 200)
		judge_whole(b, s->node, v);
	if (v->status != 200)
		return;
	stamp(c, s, b);
	/* the hub of another cluster has judged its agents */
	if (s->cluster)
		return;
	for (size_t i = 0; i < b->n_profiles; i++)
		if (is_too_early(&j, b->profiles[i]))
			return;
	/* from the end, because a profile that is removed leaves its place to the last one */
	for (size_t i = b->n_profiles; i-- > 0;)
		judge_profile(&j, b, i);
}
