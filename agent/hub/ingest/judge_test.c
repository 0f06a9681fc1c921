/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of what a sender may speak. The API server says that pod app/web-1 is on node n1 and
 * bank/vault on node n2. The sender is the agent of node n1, which somebody has taken over.
 */
#include "hub/ingest/judge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/kube/testwatches.h"
#include "hub/pods/testpods.h"
#include "lib/loop/testtimer.h"

#define NOW_NS	  (1800000000 * NSEC_PER_SEC)
#define MINUTE_NS (60 * NSEC_PER_SEC)

static struct pods *pods;
static json_t *web, *vault;
static struct ingest_config config;

static void no_auth(const char *authorization, const char *peer,
		    void (*done)(const struct ingest_sender *s, void *arg), void *done_arg,
		    void *arg)
{
	(void)authorization, (void)peer, (void)done, (void)done_arg, (void)arg;
}

static int setup(void **state)
{
	struct kube_watch *w;

	(void)state;
	test_clock.stands_ns = NOW_NS;
	assert_int_equal(pods_new(timer_loop(), testwatches(NULL), &pods), 0);
	web = put_pod("app", "web-1", "uid-web", "n1");
	vault = put_pod("bank", "vault", "uid-vault", "n2");
	w = watch_of("/pods");
	w->synced = true;
	w->ops.synced(w->arg);
	config = (struct ingest_config){.auth = no_auth, .pods = pods, .cluster_name = "own"};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pods_free(pods);
	json_decref(web);
	json_decref(vault);
	return 0;
}

/* ---- what the sender says ---- */

struct said {
	const char *node, *ns, *name, *uid;
	int64_t ends_ns;	   /* after now */
	const char *cluster, *tag; /* tag: TAG_UNVERIFIED */
	bool is_loss;
};

static void put_tag(struct batch *b, struct profile *p, const char *key, const char *value)
{
	if (value)
		profile_tag(b, p, key, value);
}

static void say(struct batch *b, const struct said *s)
{
	struct profile *p = profile_batch_profile(b);

	p->end_ns = NOW_NS + (uint64_t)s->ends_ns;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	put_tag(b, p, "pod_node", s->node);
	put_tag(b, p, "pod_ns", s->ns);
	put_tag(b, p, "pod", s->name);
	put_tag(b, p, "pod_uid", s->uid);
	put_tag(b, p, "pod_cluster", s->cluster);
	put_tag(b, p, TAG_UNVERIFIED, s->tag);
	if (s->is_loss)
		profile_lose(b, p, "ring_full", 1, 0);
	else
		profile_add(b, p)->value = 1;
}

static struct batch *judge_for(const struct ingest_sender *sender, const struct said *s, size_t n,
			       struct ingest_verdict *v)
{
	struct batch *b = profile_batch_new();

	for (size_t i = 0; i < n; i++)
		say(b, &s[i]);
	ingest_judge(&config, sender, b, v);
	return b;
}

static struct batch *judge_as(const char *node, bool hosts, const struct said *s, size_t n,
			      struct ingest_verdict *v)
{
	return judge_for(&(struct ingest_sender){.node = node, .hosts = hosts, .agent = true}, s, n,
			 v);
}

#define OLD (-5 * (int64_t)MINUTE_NS)

/* ---- one profile, and what becomes of it ---- */

enum outcome { STORED, HIDDEN, SKIPPED, AGAIN, REFUSED }; /* HIDDEN: with TAG_UNVERIFIED */

static const struct {
	const char *what;
	struct said said;
	enum outcome want;
	const char *why; /* in the message, or why it was skipped */
} attempts[] = {
	{"the own pod",
	 {.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web"},
	 STORED,
	 NULL},
	{"the own pod, without its UID",
	 {.node = "n1", .ns = "app", .name = "web-1"},
	 STORED,
	 NULL},
	{"the own pod, from a spool",
	 {.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web", .ends_ns = OLD},
	 STORED,
	 NULL},
	{"another node",
	 {.node = "n2", .ns = "bank", .name = "vault", .uid = "uid-vault"},
	 REFUSED,
	 "of node \"n1\""},
	{"no node", {.ns = "app", .name = "web-1", .uid = "uid-web"}, REFUSED, "k8s.node.name"},
	{"an empty node",
	 {.node = "", .ns = "app", .name = "web-1", .uid = "uid-web"},
	 REFUSED,
	 "k8s.node.name"},
	{"a pod of another node",
	 {.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-vault"},
	 SKIPPED,
	 "pod_of_another_node"},
	{"a pod of another node, from a spool",
	 {.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-vault", .ends_ns = OLD},
	 SKIPPED,
	 "pod_of_another_node"},
	{"a pod of another node, without its UID",
	 {.node = "n1", .ns = "bank", .name = "vault", .ends_ns = OLD},
	 HIDDEN,
	 NULL},
	{"a pod of another node, with the UID of the own one",
	 {.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-web", .ends_ns = OLD},
	 HIDDEN,
	 NULL},
	{"the own pod in another namespace",
	 {.node = "n1", .ns = "bank", .name = "web-1", .uid = "uid-web", .ends_ns = OLD},
	 HIDDEN,
	 NULL},
	{"a pod that does not exist",
	 {.node = "n1", .ns = "bank", .name = "none", .uid = "uid", .ends_ns = OLD},
	 HIDDEN,
	 NULL},
	{"a pod that does not exist yet",
	 {.node = "n1", .ns = "app", .name = "web-2", .uid = "uid-2"},
	 AGAIN,
	 "k8s.pod.name: the hub does not know pod app/web-2 yet"},
	{"another namespace, and no pod",
	 {.node = "n1", .ns = "bank", .ends_ns = OLD},
	 HIDDEN,
	 NULL},
	{"a namespace with a slash",
	 {.node = "n1", .ns = "app/web-1", .name = "", .uid = "uid-web", .ends_ns = OLD},
	 HIDDEN,
	 NULL},
	{"a namespace in another spelling",
	 {.node = "n1", .ns = "APP", .name = "web-1", .uid = "uid-web", .ends_ns = OLD},
	 HIDDEN,
	 NULL},
	{"a pod with a line break",
	 {.node = "n1", .ns = "bank", .name = "a\nb", .uid = "uid", .ends_ns = OLD},
	 HIDDEN,
	 NULL},
	{"a loss of another namespace",
	 {.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-vault", .is_loss = true},
	 SKIPPED,
	 "pod_of_another_node"},
	{"a loss of the own node", {.node = "n1", .is_loss = true}, STORED, NULL},
	{"a host process", {.node = "n1"}, SKIPPED, "no_right_for_hosts"},
	{"a host process with the name of a pod",
	 {.node = "n1", .name = "vault"},
	 SKIPPED,
	 "no_right_for_hosts"},
	{"an empty namespace",
	 {.node = "n1", .ns = "", .name = "vault", .uid = "uid-vault"},
	 SKIPPED,
	 "no_right_for_hosts"},
	{"another cluster, which the hub replaces",
	 {.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web", .cluster = "prod"},
	 STORED,
	 NULL},
	{"the mark of the hub, which it removes",
	 {.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web", .tag = "no"},
	 STORED,
	 NULL},
	{"an hour ahead",
	 {.node = "n1",
	  .ns = "app",
	  .name = "web-1",
	  .uid = "uid-web",
	  .ends_ns = 60 * (int64_t)MINUTE_NS},
	 REFUSED,
	 "ends 60 min ahead of the hub's clock"},
	{"four minutes ahead",
	 {.node = "n1",
	  .ns = "app",
	  .name = "web-1",
	  .uid = "uid-web",
	  .ends_ns = 4 * (int64_t)MINUTE_NS},
	 STORED,
	 NULL},
};

static enum outcome outcome_of(const struct batch *b, const struct ingest_verdict *v)
{
	if (v->status == 503)
		return AGAIN;
	if (v->status != 200)
		return REFUSED;
	if (!b->n_profiles)
		return SKIPPED;
	return profile_tag_get(b->profiles[0], TAG_UNVERIFIED) ? HIDDEN : STORED;
}

static void test_attempts(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		struct ingest_verdict v;
		_cleanup_(profile_batch_freep) struct batch *b =
			judge_as("n1", false, &attempts[i].said, 1, &v);
		enum outcome got = outcome_of(b, &v);
		const char *said = got == SKIPPED ? b->skipped_for : v.message;

		if (got != attempts[i].want)
			fail_msg("%s: outcome %d (%s)", attempts[i].what, got, said);
		if (attempts[i].why && !strstr(said, attempts[i].why))
			fail_msg("%s: %s", attempts[i].what, said);
		for (size_t k = 0; v.status == 200 && k < b->n_profiles; k++)
			assert_string_equal(profile_tag_get(b->profiles[k], "pod_cluster"), "own");
	}
}

/* One profile that is refused takes no other one with it. */
static void test_profiles_are_judged_one_by_one(void **state)
{
	static const struct said batch[] = {
		{.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-vault", .ends_ns = OLD},
		{.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web", .ends_ns = OLD},
		{.node = "n1", .ns = "bank", .name = "none", .uid = "uid", .ends_ns = OLD},
		{.node = "n1", .ends_ns = OLD},
		{.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web", .ends_ns = OLD},
		{.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-vault", .ends_ns = OLD},
	};
	struct counter *refused = counter("podflame_ingest_profiles_refused_total", "reason",
					  "pod_of_another_node"),
		       *hidden = counter("podflame_ingest_profiles_unverified_total", NULL, NULL);
	uint64_t refused_before = counter_get(refused), hidden_before = counter_get(hidden);
	unsigned n_own = 0, n_hidden = 0;
	struct ingest_verdict v;
	_cleanup_(profile_batch_freep) struct batch *b =
		judge_as("n1", false, batch, ARRAY_SIZE(batch), &v);

	(void)state;
	assert_int_equal(v.status, 200);
	assert_int_equal(b->n_skipped, 3);
	assert_int_equal(b->n_profiles, 3);
	for (size_t i = 0; i < b->n_profiles; i++) {
		n_own += str_equal(profile_tag_get(b->profiles[i], "pod"), "web-1");
		n_hidden += profile_tag_get(b->profiles[i], TAG_UNVERIFIED) != NULL;
	}
	assert_int_equal(n_own, 2);
	assert_int_equal(n_hidden, 1);
	ingest_verdict_count(&v);
	assert_int_equal(counter_get(refused), refused_before + 2);
	assert_int_equal(counter_get(hidden), hidden_before + 1);
}

static void test_hosts_are_a_right_of_their_own(void **state)
{
	static const struct said host = {.node = "n1"};
	struct ingest_verdict v;
	_cleanup_(profile_batch_freep) struct batch *b = judge_as("n1", true, &host, 1, &v);

	(void)state;
	assert_int_equal(outcome_of(b, &v), STORED);
}

/* ---- the hub of another cluster, which is registered as "prod" ---- */

static const struct {
	const char *what;
	struct said said;
	enum outcome want;
} foreign[] = {
	{"a pod of its own", {.node = "p1", .ns = "shop", .name = "a", .uid = "uid-a"}, STORED},
	{"a pod with the names of one here",
	 {.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web"},
	 STORED},
	{"a pod that is on another node here",
	 {.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-vault"},
	 STORED},
	{"for the hub's own cluster",
	 {.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web", .cluster = "own"},
	 STORED},
	{"for a third cluster",
	 {.node = "p1", .ns = "shop", .name = "a", .uid = "uid-a", .cluster = "test"},
	 STORED},
	{"for its own cluster",
	 {.node = "p1", .ns = "shop", .name = "a", .uid = "uid-a", .cluster = "prod"},
	 STORED},
	{"for a namespace there (NAME:NAMESPACE)",
	 {.node = "p1", .ns = "shop", .name = "a", .cluster = "prod:bank"},
	 STORED},
	{"for no cluster", {.node = "p1", .ns = "shop", .name = "a", .cluster = ""}, STORED},
	{"a host process, for the hub's own cluster", {.node = "n1", .cluster = "own"}, STORED},
	{"a loss of a node", {.node = "p1", .is_loss = true}, STORED},
	{"a pod that its hub could not verify",
	 {.node = "p1", .ns = "shop", .name = "a", .tag = "true"},
	 HIDDEN},
	{"the same, in other words",
	 {.node = "p1", .ns = "shop", .name = "a", .tag = "no"},
	 HIDDEN},
	{"an hour ahead",
	 {.node = "p1", .ns = "shop", .name = "a", .ends_ns = 60 * (int64_t)MINUTE_NS},
	 REFUSED},
};

static void test_another_cluster_speaks_only_for_itself(void **state)
{
	static const struct ingest_sender prod = {.node = "", .hosts = true, .cluster = "prod"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
		struct ingest_verdict v;
		_cleanup_(profile_batch_freep) struct batch *b =
			judge_for(&prod, &foreign[i].said, 1, &v);
		enum outcome got = outcome_of(b, &v);
		const char *tag;

		if (got != foreign[i].want)
			fail_msg("%s: outcome %d (%s)", foreign[i].what, got, v.message);
		if (v.status != 200)
			continue;
		tag = profile_tag_get(b->profiles[0], "pod_cluster");
		if (!str_equal(tag, "prod"))
			fail_msg("%s: it is stored as of cluster %s", foreign[i].what, tag);
		tag = profile_tag_get(b->profiles[0], TAG_UNVERIFIED);
		assert_true(!tag || streq(tag, "true"));
	}
}

/* Its pods are in no list of this cluster's API server: no target here is told of them. */
static void test_unverified_pods_of_another_cluster_are_not_told_here(void **state)
{
	static const struct ingest_sender prod = {.node = "", .hosts = true, .cluster = "prod"};
	static const struct said said = {
		.node = "n1", .ns = "bank", .name = "none", .tag = "true", .ends_ns = OLD};
	const struct target_selection bank = {.ns = "bank"};
	struct ingest_verdict v;
	_cleanup_(profile_batch_freep) struct batch *b = judge_for(&prod, &said, 1, &v);

	(void)state;
	assert_int_equal(outcome_of(b, &v), HIDDEN);
	assert_null(pods_unverified(pods, &bank));
}

/* A token without a node, which a setting allows: the hub believes the sender where it is. */
static void test_a_sender_without_a_node(void **state)
{
	static const struct said
		there = {.node = "n2", .ns = "bank", .name = "vault", .uid = "uid-vault"},
		elsewhere = {.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-vault"};
	struct ingest_verdict v;
	_cleanup_(profile_batch_freep) struct batch *good = judge_as("", false, &there, 1, &v),
						    *bad = NULL;

	(void)state;
	assert_int_equal(outcome_of(good, &v), STORED);
	bad = judge_as("", false, &elsewhere, 1, &v);
	assert_int_equal(outcome_of(bad, &v), SKIPPED);
}

/*
 * A Collector has the rights of an agent, and passes on what agents have exported to it and what
 * other profilers have made.
 */
static void test_a_sender_that_is_no_agent(void **state)
{
	static const struct said both[] = {
		{.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web"},
		{.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web"}};
	static const struct ingest_sender collector = {.node = "n1", .hosts = true};
	struct counter *refused =
		counter("podflame_ingest_profiles_refused_total", "reason", "not_an_agent");
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	uint64_t before = counter_get(refused);
	struct ingest_verdict v;

	(void)state;
	say(b, &both[0]);
	say(b, &both[1]);
	b->profiles[1]->foreign = true;
	ingest_judge(&config, &collector, b, &v);
	assert_int_equal(v.status, 200);
	assert_int_equal(b->n_profiles, 1);
	assert_true(b->profiles[0]->foreign);
	assert_int_equal(b->n_skipped, 1);
	assert_string_equal(b->skipped_for, "not_an_agent");
	ingest_verdict_count(&v);
	assert_int_equal(counter_get(refused), before + 1);
}

/*
 * A batch of which one profile is refused, and another one too early, comes again and again: the
 * former counts when the rest is stored.
 */
static void test_a_refused_profile_counts_once(void **state)
{
	static const struct said pods_of[] = {
		{.node = "n1", .ns = "app", .name = "web-9", .uid = "uid-9"},
		{.node = "n1", .ns = "app", .name = "web-9", .uid = "uid-9"},
		{.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web"}};
	static const int statuses[] = {503, 503, 200};
	static const struct ingest_sender collector = {.node = "n1", .hosts = true};
	struct counter *refused =
		counter("podflame_ingest_profiles_refused_total", "reason", "not_an_agent");
	uint64_t before = counter_get(refused);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pods_of); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
		struct ingest_verdict v;

		say(b, &pods_of[i]);
		say(b, &pods_of[i]);
		b->profiles[1]->foreign = true;
		ingest_judge(&config, &collector, b, &v);
		assert_int_equal(v.status, statuses[i]);
		ingest_verdict_count(&v);
	}
	assert_int_equal(counter_get(refused), before + 1);
}

/* An agent whose account was renamed must not lose its windows: it keeps them after 403. */
static void test_an_agent_that_is_not_named(void **state)
{
	static const struct said window[] = {
		{.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web"},
		{.node = "n1", .is_loss = true}};
	static const struct ingest_sender renamed = {
		.node = "n1", .hosts = true, .account = "system:serviceaccount:prod:x-agent"};
	struct counter *refused =
		counter("podflame_ingest_profiles_refused_total", "reason", "not_an_agent");
	uint64_t before = counter_get(refused);
	struct ingest_verdict v;
	_cleanup_(profile_batch_freep) struct batch *b = judge_for(&renamed, window, 2, &v),
						    *empty = NULL;

	(void)state;
	assert_int_equal(v.status, 403);
	assert_non_null(strstr(v.message, "system:serviceaccount:prod:x-agent"));
	assert_non_null(strstr(v.message, "ingest.agents"));
	assert_int_equal(counter_get(refused), before); /* it comes again */
	empty = judge_for(&renamed, NULL, 0, &v);
	assert_int_equal(v.status, 200);
}

/* A node sends the id of another node's profile, so that the hub takes that one for a repeat. */
static void test_an_id_is_of_its_sender(void **state)
{
	static const struct said said = {.node = "n1", .ns = "app", .name = "web-1"};
	static const struct {
		const char *node, *cluster;
	} senders[] = {{"n1", NULL}, {"n2", NULL}, {"", "edge"}, {"", "lab"}};
	uint8_t ids[ARRAY_SIZE(senders)][16];

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(senders); i++) {
		const struct ingest_sender s = {.status = 200,
						.node = senders[i / 2].node,
						.cluster = senders[i / 2].cluster,
						.hosts = true,
						.agent = true};
		_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
		struct said of = said;
		struct ingest_verdict v;

		of.node = senders[i / 2].node;
		of.ns = of.name = NULL;
		say(b, &of);
		b->profiles[0]->id[3] = 7;
		ingest_judge(&config, &s, b, &v);
		assert_int_equal(v.status, 200);
		assert_int_equal(b->profiles[0]->sent_id[3], 7);
		if (i % 2)
			assert_memory_equal(ids[i / 2], b->profiles[0]->id, 16);
		memcpy(ids[i / 2], b->profiles[0]->id, 16);
		for (size_t k = 0; k < i / 2; k++)
			assert_memory_not_equal(ids[k], b->profiles[0]->id, 16);
	}
}

/* While the hub cannot learn of new pods, their agents keep their profiles. */
static void test_the_api_server_is_away(void **state)
{
	static const struct said
		old = {.node = "n1", .ns = "app", .name = "web-9", .uid = "uid-9", .ends_ns = OLD},
		older = {.node = "n1",
			 .ns = "app",
			 .name = "web-9",
			 .uid = "uid-9",
			 .ends_ns = -61 * (int64_t)MINUTE_NS},
		own = {.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web"};
	struct kube_watch *w = watch_of("/pods");
	struct ingest_verdict v;
	_cleanup_(profile_batch_freep) struct batch *b = NULL, *known = NULL, *late = NULL;

	(void)state;
	w->ops.state("connection refused", w->arg);
	b = judge_as("n1", false, &old, 1, &v);
	assert_int_equal(outcome_of(b, &v), AGAIN);
	assert_non_null(strstr(v.message, "it cannot watch the pods now"));
	known = judge_as("n1", false, &own, 1, &v);
	assert_int_equal(outcome_of(known, &v), STORED);
	/* but not for ever: others wait behind it */
	late = judge_as("n1", false, &older, 1, &v);
	assert_int_equal(outcome_of(late, &v), HIDDEN);
}

/* A batch that the agent is to send again changes nothing: it would count each time. */
static void test_what_comes_again_does_not_count(void **state)
{
	static const struct said batch[] = {
		{.node = "n1", .ns = "app", .name = "web-9", .uid = "uid-9"},
		{.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-vault", .ends_ns = OLD},
		{.node = "n1", .ns = "bank", .name = "none", .uid = "uid", .ends_ns = OLD},
	};
	const struct target_selection bank = {.ns = "bank"};
	struct counter *refused = counter("podflame_ingest_profiles_refused_total", "reason",
					  "pod_of_another_node"),
		       *hidden = counter("podflame_ingest_profiles_unverified_total", NULL, NULL);
	uint64_t refused_before = counter_get(refused), hidden_before = counter_get(hidden);
	struct ingest_verdict v;
	_cleanup_(profile_batch_freep) struct batch *b =
		judge_as("n1", false, batch, ARRAY_SIZE(batch), &v);

	(void)state;
	assert_int_equal(outcome_of(b, &v), AGAIN);
	ingest_verdict_count(&v);
	assert_int_equal(counter_get(refused), refused_before);
	assert_int_equal(counter_get(hidden), hidden_before);
	assert_null(pods_unverified(pods, &bank));
}

/* Without the right for hosts, the agent still learns that what it has of pods is stored. */
static void test_the_reason_says_whether_pods_are_stored(void **state)
{
	static const struct said batch[] = {
		{.node = "n1"},
		{.node = "n1", .ns = "app", .name = "web-1", .uid = "uid-web"},
		{.node = "n1"},
		{.node = "n1", .ns = "bank", .name = "vault", .uid = "uid-vault"},
	};
	struct ingest_verdict v;
	_cleanup_(profile_batch_freep) struct batch *hosts = judge_as("n1", false, batch, 3, &v),
						    *pod = NULL;

	(void)state;
	assert_int_equal(hosts->n_skipped, 2);
	assert_string_equal(hosts->skipped_for, OTLP_NO_HOSTS);
	for (size_t first = 0; first < 4; first += 3) {
		struct said turned[4];

		for (size_t i = 0; i < 4; i++)
			turned[i] = batch[first ? 3 - i : i];
		profile_batch_free(pod);
		pod = judge_as("n1", false, turned, 4, &v);
		assert_int_equal(pod->n_skipped, 3);
		assert_string_equal(pod->skipped_for, "pod_of_another_node");
	}
}

static void test_unverified_pods_are_told_to_their_targets(void **state)
{
	static const struct said said = {
		.node = "n1", .ns = "bank", .name = "none", .uid = "uid", .ends_ns = OLD};
	const struct target_selection bank = {.ns = "bank"}, app = {.ns = "app"};
	struct ingest_verdict v;
	_cleanup_(profile_batch_freep) struct batch *b = judge_as("n1", false, &said, 1, &v);
	_cleanup_free_ char *of_bank = pods_unverified(pods, &bank),
			    *of_app = pods_unverified(pods, &app);

	(void)state;
	assert_string_equal(of_bank, "bank/none on node n1");
	assert_null(of_app);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_attempts),
		TEST(test_profiles_are_judged_one_by_one),
		TEST(test_hosts_are_a_right_of_their_own),
		TEST(test_another_cluster_speaks_only_for_itself),
		TEST(test_unverified_pods_of_another_cluster_are_not_told_here),
		TEST(test_a_sender_without_a_node),
		TEST(test_an_id_is_of_its_sender),
		TEST(test_a_sender_that_is_no_agent),
		TEST(test_a_refused_profile_counts_once),
		TEST(test_an_agent_that_is_not_named),
		TEST(test_the_api_server_is_away),
		TEST(test_what_comes_again_does_not_count),
		TEST(test_the_reason_says_whether_pods_are_stored),
		TEST(test_unverified_pods_are_told_to_their_targets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
