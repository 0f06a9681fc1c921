/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the keys of a cluster come from: files that are replaced, broken or missing, and a server
 * that has new keys, fails, or is not the right one. The loop is run until the event that a test
 * waits for has come.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hub/issuers/internal.h"
#include "hub/issuers/testissuers.h"
#include "lib/loop/testserver.h"
#include "lib/loop/testtimer.h"

#define MAX_WAITING 256 /* as in issuers.c */

static EVP_PKEY *key1, *key2;
static char *jwks1, *jwks2, *token1, *token2;
static struct test_ca ca, other_ca;
static struct test_cert cert;
static const char *pinned; /* the CA that the hub trusts */
static struct issuers *issuers;
static struct test_server *server;
static struct {
	_Atomic(const char *) body;
	atomic_int status;
	atomic_bool waits;
} said;
static struct {
	unsigned n;
	char *error; /* NULL: it works again */
} told;

static void tell(const char *cluster, const char *error, void *arg)
{
	(void)arg;
	assert_string_equal(cluster, "prod");
	told.n++;
	free(told.error);
	told.error = xstrdup(error);
}

/* ---- files ---- */

static void begin(const char *source)
{
	_cleanup_free_ char *file = path_of("clusters.yaml"),
			    *text = xasprintf("clusters: [{name: prod, issuer: '" ISSUER
					      "', subject: '" SUBJECT "', %s}]\n",
					      source);
	const struct issuers_config c = {.file = file, .own_cluster = "own", .tell = tell};
	struct field_error e = {0};

	put("clusters.yaml", text);
	if (issuers_new(timer_loop(), &c, &issuers, &e))
		fail_msg("%s: %s", e.path, e.reason);
}

static void stop(struct job *j)
{
	(void)j;
	loop_stop(timer_loop(), 0);
}

static void nothing(struct job *j)
{
	(void)j;
}

/* Makes the timer expire, and returns when the files have been read. */
static void look(void)
{
	struct job last = {.run = nothing, .done = stop};

	timer_cancel(&issuers->timer);
	issuers->timer.fn(issuers->timer.arg);
	assert_int_equal(worker_post(issuers->reader, &last), 0);
	assert_int_equal(loop_run(timer_loop()), 0);
}

static int check(const char *token)
{
	verdict.n = 0;
	issuers_check(issuers, token, "10.0.0.1", answer, NULL);
	assert_int_equal(verdict.n, 1);
	return verdict.status;
}

static unsigned n_failed(void)
{
	unsigned n, failed;

	issuers_count(issuers, &n, &failed);
	assert_int_equal(n, 1);
	return failed;
}

static void test_new_keys_in_the_file(void **state)
{
	(void)state;
	put("keys.json", jwks1);
	begin("jwks_file: keys.json");
	assert_int_equal(check(token1), 200);
	assert_int_equal(check(token2), 401);
	assert_non_null(strstr(verdict.error, "if the cluster has new keys, register them"));
	put("keys.json", jwks2);
	look();
	assert_int_equal(check(token2), 200);
	assert_int_equal(check(token1), 401);
	assert_int_equal(told.n, 0);
}

static void test_a_broken_file_keeps_the_old_keys(void **state)
{
	struct counter *c = counter("podflame_cluster_keys_failed_total", "cluster", "prod");
	uint64_t before = counter_get(c);

	(void)state;
	put("keys.json", jwks1);
	begin("jwks_file: keys.json");
	put("keys.json", "{\"keys\":[]}");
	look();
	assert_int_equal(told.n, 1);
	assert_non_null(strstr(told.error, "keys.json: keys: has no RSA key"));
	assert_int_equal(counter_get(c), before + 1);
	assert_int_equal(n_failed(), 1);
	assert_int_equal(check(token1), 200);
	look();
	assert_int_equal(told.n, 1); /* told once */
	put("keys.json", jwks2);
	look();
	assert_int_equal(told.n, 2);
	assert_null(told.error);
	assert_int_equal(n_failed(), 0);
	assert_int_equal(check(token2), 200);
}

static void test_a_file_that_comes_later(void **state)
{
	(void)state;
	begin("jwks_file: keys.json");
	assert_int_equal(told.n, 1);
	assert_non_null(strstr(told.error, "keys.json: "));
	assert_int_equal(check(token1), 503);
	assert_string_equal(verdict.error, "the hub cannot read the keys of the cluster now");
	put("keys.json", jwks1);
	look();
	assert_null(told.error);
	assert_int_equal(check(token1), 200);
}

/* ---- URLs ---- */

static void serve(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)arg;
	if (!str_has_prefix(r->line, "GET /openid/v1/jwks "))
		ts_fatal(r->line);
	if (said.waits)
		ts_await_flag(c, 1);
	ts_reply(c, said.status, "Location: /elsewhere\r\n", said.body);
}

static void begin_url(const char *jwks, int status)
{
	_cleanup_free_ char *source = NULL;

	said.body = jwks;
	said.status = status;
	put("ca.pem", pinned);
	server = ts_start(&(struct ts_config){.cert = &cert}, serve, NULL);
	source = xasprintf("jwks_url: 'https://127.0.0.1:%u/openid/v1/jwks', jwks_ca_file: ca.pem",
			   server->port);
	begin(source);
}

static unsigned n_wanted;

static void answer_and_stop(int status, const char *cluster, const char *error, void *arg)
{
	answer(status, cluster, error, arg);
	if (verdict.n == n_wanted)
		loop_stop(timer_loop(), 0);
}

/* A check that may wait for the server. */
static int check_by_url(const char *token)
{
	verdict.n = 0;
	n_wanted = 1;
	issuers_check(issuers, token, "10.0.0.1", answer_and_stop, NULL);
	if (!verdict.n)
		assert_int_equal(loop_run(timer_loop()), 0);
	assert_int_equal(verdict.n, 1);
	return verdict.status;
}

/* Time has passed since the last request. */
static void later(uint64_t seconds)
{
	issuers->registrations[0].asked_ns -= seconds * NSEC_PER_SEC;
	issuers->registrations[0].next_ns -= seconds * NSEC_PER_SEC;
}

static void test_new_keys_of_a_url(void **state)
{
	(void)state;
	begin_url(jwks1, 200);
	assert_int_equal(check_by_url(token1), 200); /* has waited for the first answer */
	said.body = jwks2;
	/* a key that nobody knows makes the hub ask again, but only once in a minute */
	assert_int_equal(check(token2), 401);
	assert_int_equal(ts_n_requests(server), 1);
	later(61);
	assert_int_equal(check_by_url(token2), 200);
	assert_int_equal(ts_n_requests(server), 2);
	assert_int_equal(check(token1), 401);
	assert_int_equal(told.n, 0);
}

static void test_a_url_is_asked_every_ten_minutes(void **state)
{
	(void)state;
	begin_url(jwks1, 200);
	assert_int_equal(check_by_url(token1), 200);
	said.body = jwks2;
	said.waits = true;
	later(500);
	look();
	assert_null(issuers->registrations[0].call);
	later(101);
	look();
	assert_non_null(issuers->registrations[0].call);
	/* the old keys hold until the answer is there */
	assert_int_equal(check(token1), 200);
	ts_set_flag(server, 1);
	assert_int_equal(check_by_url(token2), 200);
	assert_int_equal(ts_n_requests(server), 2);
}

static const struct {
	const char *what, *body;
	int status;
	const char *why;
} failures[] = {
	{"an error", "no", 500, "/openid/v1/jwks: HTTP 500"},
	{"a redirect", "no", 302, "/openid/v1/jwks: HTTP 302"},
	{"not allowed", "{\"kind\":\"Status\"}", 403, "/openid/v1/jwks: HTTP 403"},
	{"another object", "{\"kind\":\"Status\"}", 200, "keys: is missing or no list"},
	{"no JSON", "<html>", 200, "keys: the text is no JSON"},
	{"an empty list", "{\"keys\":[]}", 200, "keys: has no RSA key for RS256"},
	{"nothing", "", 200, "keys: the text is no JSON"},
	{"too much", NULL, 200, "the answer is larger than the limit"},
};

static void test_a_failed_request_keeps_the_old_keys(void **state)
{
	_cleanup_free_ char *much = xmalloc(300000);

	(void)state;
	memset(much, ' ', 299999);
	much[299999] = '\0';
	begin_url(jwks1, 200);
	assert_int_equal(check_by_url(token1), 200);
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		said.status = failures[i].status;
		said.body = failures[i].body ?: much;
		later(61);
		if (check_by_url(token2) != 401)
			fail_msg("%s: %d", failures[i].what, verdict.status);
		if (told.n != i + 1 || !told.error || !strstr(told.error, failures[i].why))
			fail_msg("%s: %s", failures[i].what, told.error);
		assert_int_equal(check(token1), 200);
		assert_int_equal(n_failed(), 1);
	}
	said.status = 200;
	said.body = jwks2;
	later(61);
	assert_int_equal(check_by_url(token2), 200);
	assert_null(told.error);
}

static void test_only_the_pinned_ca_is_trusted(void **state)
{
	(void)state;
	pinned = other_ca.pem;
	begin_url(jwks1, 200);
	assert_int_equal(check_by_url(token1), 503);
	assert_non_null(strstr(told.error, "certificate"));
	put("ca.pem", ca.pem);
	look();
	assert_int_equal(check_by_url(token1), 200);
	assert_null(told.error);
}

static void test_without_its_ca_a_url_is_not_asked(void **state)
{
	(void)state;
	begin("jwks_url: 'https://127.0.0.1:1/x', jwks_ca_file: none.pem");
	assert_non_null(strstr(told.error, "none.pem: "));
	assert_int_equal(check(token1), 503);
}

/* A peer whose tokens name keys that nobody has leaves room to the others. */
static void test_checks_that_wait_have_a_limit(void **state)
{
	(void)state;
	said.waits = true;
	begin_url(jwks1, 200);
	verdict.n = 0;
	n_wanted = MAX_WAITING / 2 + 2;
	for (unsigned i = 0; i < MAX_WAITING / 2; i++)
		issuers_check(issuers, token1, "10.0.0.1", answer_and_stop, NULL);
	assert_int_equal(verdict.n, 0);
	issuers_check(issuers, token1, "10.0.0.1", answer_and_stop, NULL);
	assert_int_equal(verdict.n, 1);
	assert_int_equal(verdict.status, 503);
	issuers_check(issuers, token1, "10.0.0.2", answer_and_stop, NULL);
	assert_int_equal(verdict.n, 1);
	ts_set_flag(server, 1);
	assert_int_equal(loop_run(timer_loop()), 0);
	assert_int_equal(verdict.n, MAX_WAITING / 2 + 2);
	assert_int_equal(verdict.status, 200);
}

static void test_a_hub_that_stops_answers(void **state)
{
	(void)state;
	said.waits = true;
	begin_url(jwks1, 200);
	verdict.n = 0;
	issuers_check(issuers, token1, "10.0.0.1", answer, NULL);
	issuers = issuers_free(issuers);
	assert_int_equal(verdict.n, 1);
	assert_int_equal(verdict.status, 503);
}

/* ---- the run ---- */

static int setup(void **state)
{
	(void)state;
	said.waits = false;
	pinned = ca.pem;
	told.n = 0;
	free(TAKE_PTR(told.error));
	return testdir_make(dir);
}

static int teardown(void **state)
{
	(void)state;
	issuers = issuers_free(issuers);
	ts_stop(TAKE_PTR(server));
	answer_done();
	return testdir_remove(dir);
}

static int make_all(void **state)
{
	int now_s = (int)(now_wall_ns() / NSEC_PER_SEC);

	(void)state;
	key1 = EVP_RSA_gen(2048);
	key2 = EVP_RSA_gen(2048);
	jwks1 = jwks_of(key1, "k1", NULL, NULL);
	jwks2 = jwks_of(key2, "k2", NULL, NULL);
	token1 = good_token(key1, "k1", now_s);
	token2 = good_token(key2, "k2", now_s);
	test_ca_init(&ca, "ca");
	test_ca_init(&other_ca, "other ca");
	test_cert_init(&cert, &ca, "IP:127.0.0.1");
	return 0;
}

static int free_all(void **state)
{
	(void)state;
	EVP_PKEY_free(key1);
	EVP_PKEY_free(key2);
	free(jwks1);
	free(jwks2);
	free(token1);
	free(token2);
	free(told.error);
	test_ca_done(&ca);
	test_ca_done(&other_ca);
	test_cert_done(&cert);
	loop_free(timer_loop());
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_new_keys_in_the_file),
		TEST(test_a_broken_file_keeps_the_old_keys),
		TEST(test_a_file_that_comes_later),
		TEST(test_new_keys_of_a_url),
		TEST(test_a_url_is_asked_every_ten_minutes),
		TEST(test_a_failed_request_keeps_the_old_keys),
		TEST(test_only_the_pinned_ca_is_trusted),
		TEST(test_without_its_ca_a_url_is_not_asked),
		TEST(test_checks_that_wait_have_a_limit),
		TEST(test_a_hub_that_stops_answers),
	};

	return cmocka_run_group_tests(tests, make_all, free_all);
}
