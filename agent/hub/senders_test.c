/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who decides on a sender: the API server of the hub's own cluster, or the registration of another
 * cluster. Neither sees a token that is the other's.
 */
#include "hub/senders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hub/issuers/testissuers.h"
#include "lib/base/testclock.h"
#include "lib/kube/testkube.h"
#include "lib/loop/testtimer.h"

static EVP_PKEY *key, *own_key;
static struct config conf;
static struct senders *senders;
static struct {
	unsigned n;
	int status;
	char *error, *node, *account, *cluster, *ns, *pod, *pod_uid;
	bool hosts, agent, everywhere;
} said;

static void said_done(void)
{
	free(said.error);
	free(said.node);
	free(said.account);
	free(said.cluster);
	free(said.ns);
	free(said.pod);
	free(said.pod_uid);
	memset(&said, 0, sizeof(said));
}

static void done(const struct ingest_sender *s, void *arg)
{
	unsigned n = said.n + 1;

	assert_ptr_equal(arg, &said);
	said_done();
	said.n = n;
	said.status = s->status;
	said.error = xstrdup(s->error);
	said.node = xstrdup(s->node);
	said.account = xstrdup(s->account);
	said.cluster = xstrdup(s->cluster);
	said.hosts = s->hosts;
	said.agent = s->agent;
	said.ns = xstrdup(s->ns);
	said.pod = xstrdup(s->pod);
	said.pod_uid = xstrdup(s->pod_uid);
	said.everywhere = s->everywhere;
}

static void ask(const char *token)
{
	_cleanup_free_ char *authorization = xasprintf("Bearer %s", token);

	said_done();
	hub_senders_auth(authorization, "10.0.0.1", done, &said, senders);
}

/* The API server answers. */
static void answer_with(json_t *status)
{
	_cleanup_json_ json_t *body = json_pack("{s:o}", "status", status);
	kube_done_fn *fn = sent.fn;

	assert_non_null(fn);
	sent.fn = NULL;
	fn(201, body, NULL, sent.arg);
}

static int setup(void **state)
{
	_cleanup_free_ char *jwks = jwks_of(key, "k1", NULL, NULL);

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	put("keys.json", jwks);
	put("clusters.yaml", "clusters: [{name: prod, issuer: '" ISSUER "', subject: '" SUBJECT
			     "', jwks_file: keys.json}]\n");
	conf_init(&conf);
	conf_resolve(&conf);
	free(conf.clusters_file);
	conf.clusters_file = path_of("clusters.yaml");
	sent.n = 0;
	return hub_senders_new(timer_loop(), testkube(), &conf, &senders, NULL);
}

static int teardown(void **state)
{
	(void)state;
	senders = hub_senders_free(senders);
	conf_done(&conf);
	said_done();
	json_decref(TAKE_PTR(sent.body));
	return testdir_remove(dir);
}

static int now_s(void)
{
	return (int)(now_wall_ns() / NSEC_PER_SEC);
}

static void test_the_hub_of_a_registered_cluster(void **state)
{
	_cleanup_free_ char *token = good_token(key, "k1", now_s());

	(void)state;
	ask(token);
	assert_int_equal(said.n, 1);
	assert_int_equal(said.status, 200);
	assert_string_equal(said.cluster, "prod");
	assert_string_equal(said.node, "");
	assert_true(said.hosts);
	assert_int_equal(sent.n, 0);
}

/* A token that the registered keys refuse is not shown to the API server. */
static void test_a_forged_token_of_a_registered_cluster(void **state)
{
	_cleanup_free_ char *forged = good_token(own_key, "k1", now_s()),
			    *unknown = good_token(own_key, "k2", now_s()),
			    *old = good_token(key, "k1", now_s() - 7200);
	const char *tokens[] = {forged, unknown, old};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(tokens); i++) {
		ask(tokens[i]);
		assert_int_equal(said.n, 1);
		assert_int_equal(said.status, 401);
		assert_null(said.cluster);
		assert_non_null(strstr(said.error, "the token of another cluster: "));
	}
	assert_int_equal(sent.n, 0);
}

static void test_an_agent_of_the_own_cluster(void **state)
{
	_cleanup_free_ char *token =
		token_of(own_key, "{\"alg\":\"RS256\",\"kid\":\"own\"}",
			 "{\"iss\":\"https://kubernetes.default.svc.cluster.local\"}");

	(void)state;
	ask(token);
	assert_non_null(strstr(sent.path, "tokenreviews"));
	assert_string_equal(json_str_at(sent.body, "spec.token", ""), token);
	answer_with(json_pack("{s:b, s:[s], s:{s:s, s:{s:[s]}}}", "authenticated", 1, "audiences",
			      "podflame-ingest", "user", "username", "agent", "extra",
			      "authentication.kubernetes.io/node-name", "n1"));
	answer_with(json_pack("{s:b}", "allowed", 1)); /* profiles */
	assert_int_equal(said.n, 0);
	answer_with(json_pack("{s:b}", "allowed", 0)); /* profiles/host */
	assert_int_equal(said.n, 1);
	assert_int_equal(said.status, 200);
	assert_string_equal(said.node, "n1");
	assert_null(said.cluster);
	assert_false(said.hosts);
}

/* Others may have all rights of an agent, but their names are not those of agents. */
static void test_who_is_an_agent(void **state)
{
	static const struct {
		const char *user;
		bool agent;
	} users[] = {
		{"system:serviceaccount:podflame-system:podflame-agent", true},
		{"system:serviceaccount:monitoring:collector", true},
		{"system:serviceaccount:monitoring:podflame-agent", false},
		{"system:serviceaccount:podflame-system:collector", false},
		{"podflame-agent", false},
	};
	static const char *const agents[] = {"podflame-agent", "monitoring/collector", NULL};
	char **given = conf.ingest_agents;

	(void)state;
	conf.ingest_agents = (char **)(uintptr_t)agents;
	for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
		hub_senders_free(senders); /* forgets the token */
		assert_int_equal(hub_senders_new(timer_loop(), testkube(), &conf, &senders, NULL),
				 0);
		ask("t");
		answer_with(json_pack("{s:b, s:[s], s:{s:s}}", "authenticated", 1, "audiences",
				      "podflame-ingest", "user", "username", users[i].user));
		answer_with(json_pack("{s:b}", "allowed", 1)); /* profiles */
		answer_with(json_pack("{s:b}", "allowed", 1)); /* profiles/host */
		assert_int_equal(said.status, 200);
		assert_int_equal(said.agent, users[i].agent);
		assert_string_equal(said.account, users[i].user);
	}
	conf.ingest_agents = given;
}

static void test_without_a_token(void **state)
{
	static const char *const headers[] = {"", "Basic YTpi", "Bearer ", "Bearer"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		said_done();
		hub_senders_auth(headers[i], "10.0.0.1", done, &said, senders);
		assert_int_equal(said.n, 1);
		assert_int_equal(said.status, 401);
	}
	assert_int_equal(sent.n, 0);
}

/* ---- who pushes ---- */

/* Asks about a program that pushes; the API server says whose token it has. */
static void push_with(const char *authorization, const char *user)
{
	said_done();
	hub_senders_push_auth(authorization, "10.0.0.1", done, &said, senders);
	answer_with(json_pack("{s:b, s:[s], s:{s:s, s:{s:[s], s:[s], s:[s]}}}", "authenticated", 1,
			      "audiences", "podflame-ingest", "user", "username", user, "extra",
			      "authentication.kubernetes.io/node-name", "n1",
			      "authentication.kubernetes.io/pod-name", "web-1",
			      "authentication.kubernetes.io/pod-uid", "uid-1"));
}

static void push_as(const char *user)
{
	push_with("Bearer t", user);
}

/* The answer to the next SubjectAccessReview, which must be about this namespace; NULL: all. */
static void allow_in(const char *ns, bool allowed)
{
	static const char at[] = "spec.resourceAttributes.";
	_cleanup_free_ char *path = xasprintf("%snamespace", at), *verb = xasprintf("%sverb", at),
			    *resource = xasprintf("%sresource", at);

	assert_non_null(strstr(sent.path, "subjectaccessreviews"));
	assert_string_equal(json_str_at(sent.body, path, "(all)"), ns ?: "(all)");
	assert_string_equal(json_str_at(sent.body, verb, ""), "create");
	assert_string_equal(json_str_at(sent.body, resource, ""), "profiles");
	answer_with(json_pack("{s:b}", "allowed", allowed));
}

static void test_a_program_that_pushes(void **state)
{
	(void)state;
	push_as("system:serviceaccount:app:web");
	allow_in(NULL, false);
	assert_int_equal(said.n, 0);
	allow_in("app", true);
	assert_int_equal(said.n, 1);
	assert_int_equal(said.status, 200);
	assert_string_equal(said.ns, "app");
	assert_string_equal(said.pod, "web-1");
	assert_string_equal(said.pod_uid, "uid-1");
	assert_string_equal(said.node, "n1");
	assert_false(said.everywhere || said.hosts);
}

/* The next pushes of a program, which come each 15 s, cost no question for a minute. */
static void test_what_is_known_of_a_pusher(void **state)
{
	unsigned n;

	(void)state;
	push_as("system:serviceaccount:app:web");
	allow_in(NULL, false);
	allow_in("app", true);
	n = sent.n;
	test_clock.asleep_ns = 50 * NSEC_PER_SEC;
	hub_senders_push_auth("Bearer t", "10.0.0.1", done, &said, senders);
	test_clock.asleep_ns = 0;
	assert_int_equal(sent.n, n);
	assert_int_equal(said.n, 2);
	assert_int_equal(said.status, 200);
}

static void agent_known(void)
{
	answer_with(json_pack("{s:b, s:[s], s:{s:s}}", "authenticated", 1, "audiences",
			      "podflame-ingest", "user", "username", "agent"));
}

/* More programs push than tokens and rights of agents are kept. */
static void test_pushers_leave_what_is_known_of_agents(void **state)
{
	enum { MANY = 4096 + 1 };
	unsigned n;

	(void)state;
	ask("agent");
	agent_known();
	answer_with(json_pack("{s:b}", "allowed", 1)); /* profiles */
	answer_with(json_pack("{s:b}", "allowed", 1)); /* profiles/host */
	for (int i = 0; i < MANY; i++) {
		_cleanup_free_ char *token = xasprintf("Bearer t%d", i),
				    *user = xasprintf("system:serviceaccount:app:web-%d", i);

		push_with(token, user);
		allow_in(NULL, false);
		allow_in("app", true);
	}
	n = sent.n;
	ask("agent");
	assert_int_equal(sent.n, n);
	assert_int_equal(said.n, 1);
	assert_int_equal(said.status, 200);
	assert_true(said.hosts);
}

static void test_a_program_without_the_right(void **state)
{
	(void)state;
	push_as("system:serviceaccount:app:web");
	allow_in(NULL, false);
	allow_in("app", false);
	assert_int_equal(said.status, 403);
	assert_string_equal(said.error, "this user may not do that in namespace app: a Role with "
					"verb create on profiles.podflame.io is needed there");
}

static void test_a_user_that_pushes(void **state)
{
	static const char *const users[] = {"jane", "system:serviceaccount:app",
					    "system:serviceaccount::x", "system:node:n1"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
		hub_senders_free(senders); /* forgets the token */
		assert_int_equal(hub_senders_new(timer_loop(), testkube(), &conf, &senders, NULL),
				 0);
		push_as(users[i]);
		allow_in(NULL, true);
		assert_int_equal(said.status, 403);
		assert_string_equal(said.error, "only service accounts may push profiles");
	}
}

static void test_who_may_send_everything(void **state)
{
	(void)state;
	push_as("system:serviceaccount:podflame:podflame-agent");
	allow_in(NULL, true);
	assert_int_equal(said.status, 200);
	assert_true(said.everywhere);
}

static void rights_said(int status, const char *error, void *arg)
{
	snprintf(arg, 200, "%d %s", status, error ?: "");
}

static void test_rights_in_further_namespaces(void **state)
{
	static const char *const both[] = {"bank", "vault"};
	_cleanup_json_ json_t *user = json_pack("{s:s}", "username", "system:serviceaccount:a:b");
	char text[200] = "";

	(void)state;
	hub_senders_push_rights(user, both, 1, rights_said, text, senders);
	allow_in("bank", true);
	assert_string_equal(text, "200 ");
	/* the answer about bank is kept */
	hub_senders_push_rights(user, both, 2, rights_said, text, senders);
	allow_in("vault", false);
	assert_string_equal(text, "403 this user may not do that in namespace vault: a Role with "
				  "verb create on profiles.podflame.io is needed there");
}

/* A check that has not ended when the hub ends is answered. */
static void test_the_hub_ends(void **state)
{
	(void)state;
	push_as("system:serviceaccount:app:web");
	allow_in(NULL, false);
	senders = hub_senders_free(senders);
	assert_int_equal(said.status, 503);
	sent.fn(0, NULL, "too late", sent.arg);
	sent.fn = NULL;
}

static void test_a_wrong_file_stops_the_start(void **state)
{
	struct senders *untouched = NULL;
	struct field_error e = {0};

	(void)state;
	put("clusters.yaml", "clusters: [{name: prod}]\n");
	assert_int_equal(hub_senders_new(timer_loop(), testkube(), &conf, &untouched, &e), -EINVAL);
	assert_null(untouched);
	assert_non_null(strstr(e.path, "clusters.yaml:1:"));
	assert_string_equal(e.reason, "clusters[0].issuer: is missing");
}

static void test_health(void **state)
{
	_cleanup_free_ char *well = hub_senders_problem(senders), *none = hub_senders_problem(NULL),
			    *ill = NULL;

	(void)state;
	assert_string_equal(well, "");
	assert_string_equal(none, "");
	hub_senders_free(senders);
	put("keys.json", "{}");
	assert_int_equal(hub_senders_new(timer_loop(), testkube(), &conf, &senders, NULL), 0);
	ill = hub_senders_problem(senders);
	assert_string_equal(ill,
			    "the keys of 1 of 1 registered clusters cannot be read: see the log");
}

static int make_keys(void **state)
{
	(void)state;
	key = EVP_RSA_gen(2048);
	own_key = EVP_RSA_gen(2048);
	return 0;
}

static int free_keys(void **state)
{
	(void)state;
	EVP_PKEY_free(key);
	EVP_PKEY_free(own_key);
	loop_free(timer_loop());
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_the_hub_of_a_registered_cluster),
		TEST(test_a_forged_token_of_a_registered_cluster),
		TEST(test_an_agent_of_the_own_cluster),
		TEST(test_who_is_an_agent),
		TEST(test_without_a_token),
		TEST(test_a_program_that_pushes),
		TEST(test_what_is_known_of_a_pusher),
		TEST(test_pushers_leave_what_is_known_of_agents),
		TEST(test_a_program_without_the_right),
		TEST(test_a_user_that_pushes),
		TEST(test_who_may_send_everything),
		TEST(test_rights_in_further_namespaces),
		TEST(test_the_hub_ends),
		TEST(test_a_wrong_file_stops_the_start),
		TEST(test_health),
	};

	return cmocka_run_group_tests(tests, make_keys, free_keys);
}
