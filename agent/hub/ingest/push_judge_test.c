/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of what a sender that pushes may speak. The API server says that pods app/web-1 and app/web-2 are
 * on node n1 and bank/vault on node n2.
 */
#include "hub/ingest/internal.h"

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
static json_t *objects[3];
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
	objects[0] = put_pod("app", "web-1", "uid-web", "n1");
	objects[1] = put_pod("app", "web-2", "uid-web-2", "n1");
	objects[2] = put_pod("bank", "vault", "uid-vault", "n2");
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
	for (size_t i = 0; i < ARRAY_SIZE(objects); i++)
		json_decref(objects[i]);
	return 0;
}

static const struct ingest_sender web = {
	.node = "n1", .ns = "app", .pod = "web-1", .pod_uid = "uid-web"};
/* tokens of Kubernetes before 1.30; of the second one, the pod is another one of the same name */
static const struct ingest_sender web_of_old = {
	.node = "", .ns = "app", .pod = "web-1", .pod_uid = "uid-web"};
static const struct ingest_sender web_before = {
	.node = "", .ns = "app", .pod = "web-1", .pod_uid = "uid-before"};
/* a token of the service account, which Kubernetes made for no pod */
static const struct ingest_sender gateway = {.node = "", .ns = "app", .pod = "", .pod_uid = ""};
static const struct ingest_sender agent_of_old = {.node = "",
						  .ns = "podflame",
						  .pod = "podflame-agent-1",
						  .pod_uid = "uid-agent",
						  .everywhere = true};
/* somebody who has taken over node n1 */
static const struct ingest_sender agent = {.node = "n1",
					   .ns = "podflame",
					   .pod = "podflame-agent-1",
					   .pod_uid = "uid-agent",
					   .everywhere = true};

/* What a label says of a pod has become these tags. */
static struct batch *say(const char *ns, const char *pod, int64_t ends_ns)
{
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);

	p->end_ns = NOW_NS + (uint64_t)ends_ns;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->id[0] = 7;
	if (ns)
		profile_tag(b, p, "pod_ns", ns);
	if (pod)
		profile_tag(b, p, "pod", pod);
	return b;
}

static void assert_tag(const struct profile *p, const char *key, const char *value)
{
	const char *tag = profile_tag_get(p, key);

	if (value)
		assert_string_equal(tag ?: "(none)", value);
	else
		assert_null(tag);
}

/* ---- whose profile it is ---- */

static void where_a_profile_is(void **state)
{
	static const struct {
		const char *what;
		const struct ingest_sender *sender;
		const char *ns, *pod; /* what the labels say */
		int status;
		const char *pod_ns, *name, *uid, *node;
	} cases[] = {
		{"the own pod", &web, NULL, NULL, 200, "app", "web-1", "uid-web", "n1"},
		{"the own pod, by name", &web, "app", "web-1", 200, "app", "web-1", "uid-web",
		 "n1"},
		{"the own pod, of a token without a node", &web_of_old, NULL, NULL, 200, "app",
		 "web-1", "uid-web", "n1"},
		{"the own pod, which the hub does not know", &web_before, NULL, NULL, 200, "app",
		 "web-1", "uid-before", NULL},
		{"another pod of the namespace", &web, NULL, "web-2", 200, "app", "web-2",
		 "uid-web-2", "n1"},
		{"a pod of another namespace", &web, "bank", "vault", 200, "bank", "vault",
		 "uid-vault", "n2"},
		{"a pod that nobody knows", &web, "bank", "safe", 200, "bank", "safe", NULL, NULL},
		{"a namespace without a pod", &gateway, NULL, NULL, 200, "app", NULL, NULL, NULL},
		{"a gateway's pod", &gateway, NULL, "web-1", 200, "app", "web-1", "uid-web", "n1"},
		{"an agent's own pod", &agent, NULL, NULL, 200, "podflame", "podflame-agent-1",
		 "uid-agent", "n1"},
		{"an agent, of its node", &agent, "app", "web-2", 200, "app", "web-2", "uid-web-2",
		 "n1"},
		{"an agent, of another node", &agent, "bank", "vault", 403, NULL, NULL, NULL, NULL},
		{"an agent, of a pod that nobody knows", &agent, "bank", "safe", 403, NULL, NULL,
		 NULL, NULL},
		{"an agent, of a namespace", &agent, "bank", NULL, 403, NULL, NULL, NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = say(cases[i].ns, cases[i].pod, 0);
		struct ingest_verdict v = {0};

		ingest_push_judge(&config, cases[i].sender, b, &v);
		if (v.status != cases[i].status)
			fail_msg("%s: %d %s", cases[i].what, v.status, v.message);
		if (v.status != 200)
			continue;
		assert_tag(b->profiles[0], "pod_ns", cases[i].pod_ns);
		assert_tag(b->profiles[0], "pod", cases[i].name);
		assert_tag(b->profiles[0], "pod_uid", cases[i].uid);
		assert_tag(b->profiles[0], "pod_node", cases[i].node);
		assert_tag(b->profiles[0], "pod_cluster", "own");
		assert_tag(b->profiles[0], TAG_UNVERIFIED, NULL);
	}
}

static void an_agent_learns_that_its_token_names_no_node(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = say("app", "web-2", 0);
	struct ingest_verdict v = {0};

	(void)state;
	ingest_push_judge(&config, &agent_of_old, b, &v);
	assert_int_equal(v.status, 403);
	assert_non_null(strstr(v.message, "the token names no node"));
}

/* For which namespaces a right is asked: a sender's own was asked for before. */
static void what_a_batch_speaks_of(void **state)
{
	static const struct {
		const char *ns, *asked;
	} cases[] = {{NULL, NULL}, {"app", NULL}, {"bank", "bank"}, {"App", "App"}, {"", ""}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = say(cases[i].ns, NULL, 0);
		_cleanup_free_ const char **namespaces = NULL;
		size_t n;

		assert_int_equal(ingest_push_spoken(&web, b, &namespaces, &n), 0);
		assert_int_equal(n, cases[i].asked != NULL);
		if (n)
			assert_string_equal(namespaces[0], cases[i].asked);
	}
}

static void too_many_namespaces(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = say("app", NULL, 0);
	_cleanup_free_ const char **namespaces = NULL;
	size_t n;

	(void)state;
	for (int i = 0; i < 2 * PUSH_MAX_SPOKEN; i++) {
		char ns[16];

		snprintf(ns, sizeof(ns), "ns-%d", i / 2);
		profile_tag(b, profile_batch_profile(b), "pod_ns", ns);
	}
	assert_int_equal(ingest_push_spoken(&web, b, &namespaces, &n), 0);
	assert_int_equal(n, PUSH_MAX_SPOKEN);
	profile_tag(b, profile_batch_profile(b), "pod_ns", "one-more");
	assert_int_equal(ingest_push_spoken(&web, b, &namespaces, &n), -E2BIG);
}

/* ---- times, ids ---- */

static void times(void **state)
{
	static const struct {
		int64_t ends_ns;
		int status;
	} cases[] = {{4 * (int64_t)MINUTE_NS, 200},
		     {6 * (int64_t)MINUTE_NS, 422},
		     {-59 * (int64_t)MINUTE_NS, 200},
		     {-61 * (int64_t)MINUTE_NS, 422}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = say(NULL, NULL, cases[i].ends_ns);
		struct ingest_verdict v = {0};

		ingest_push_judge(&config, &web, b, &v);
		assert_int_equal(v.status, cases[i].status);
	}
}

/* Two pods that push the same bytes have two profiles. */
static void an_id_is_of_its_sender(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *a = say(NULL, NULL, 0),
						    *b = say(NULL, NULL, 0),
						    *again = say(NULL, NULL, 0);
	struct ingest_sender other = web;
	struct ingest_verdict v = {0};

	(void)state;
	other.pod_uid = "uid-web-2";
	ingest_push_judge(&config, &web, a, &v);
	ingest_push_judge(&config, &other, b, &v);
	ingest_push_judge(&config, &web, again, &v);
	assert_memory_not_equal(a->profiles[0]->id, b->profiles[0]->id, 16);
	assert_memory_equal(a->profiles[0]->id, again->profiles[0]->id, 16);
}

/*
 * The programs of a namespace are one sender. Agents pass on what programs of their nodes gave
 * them: all of them together would have the room of one, if they were one as well.
 */
static void each_agent_is_a_sender(void **state)
{
	struct push push = {0};
	struct ingest_request of_program = {.push = &push, .sender = web},
			      of_agent = {.push = &push,
					  .sender = {.node = "n1",
						     .ns = "podflame-system",
						     .pod = "agent-1",
						     .everywhere = true}};

	(void)state;
	ingest_turns_name(&of_program);
	ingest_turns_name(&of_agent);
	assert_string_equal(of_program.who, "namespace app");
	assert_string_equal(of_agent.who, "node n1");
	free(of_program.who);
	free(of_agent.who);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(where_a_profile_is, setup, teardown),
		cmocka_unit_test_setup_teardown(an_agent_learns_that_its_token_names_no_node, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_a_batch_speaks_of, setup, teardown),
		cmocka_unit_test_setup_teardown(too_many_namespaces, setup, teardown),
		cmocka_unit_test_setup_teardown(times, setup, teardown),
		cmocka_unit_test_setup_teardown(an_id_is_of_its_sender, setup, teardown),
		cmocka_unit_test(each_agent_is_a_sender),
	};

	return cmocka_run_group_tests_name("push_judge", tests, NULL, NULL);
}
