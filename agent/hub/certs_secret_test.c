/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certs: what the hub reads and writes of its Secret and of the ConfigMap for the agents. The test
 * is the API server.
 */
#include "hub/certs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "lib/kube/testkube.h"
#include "lib/loop/testtimer.h"

#define SECRET	  "/api/v1/namespaces/ns/secrets/tls"
#define CONFIGMAP "/api/v1/namespaces/ns/configmaps/ca"
static const char *const service[] = {"hub.ns.svc", NULL};
static const char *const own_names[] = {
	"hub.ns.svc", "hub",	   "hub.ns",	  "hub.ns.svc.cluster.local",
	"localhost",  "127.0.0.1", "hub.example", NULL};

static struct certs *certs;
static json_t *secret, *configmap; /* their data, as the API server has them */
static unsigned n_ready, n_written, n_published;
static unsigned secret_version, configmap_version;
static bool elected, leads; /* there are several hubs; this one leads */

static void ready(struct tls *tls, void *arg)
{
	(void)arg;
	assert_non_null(tls);
	n_ready++;
}

static bool does_lead(void *arg)
{
	(void)arg;
	return leads;
}

static void start(bool brought)
{
	const struct certs_config c = {.ns = "ns",
				       .secret = "tls",
				       .ca_configmap = "ca",
				       .service = "hub",
				       .public_name = brought ? "" : "hub.example",
				       .brought = brought,
				       .leads = elected ? does_lead : NULL};

	assert_int_equal(hub_certs_new(timer_loop(), testkube(), &c, ready, NULL, &certs), 0);
}

static int setup(void **state)
{
	(void)state;
	secret = json_object();
	configmap = json_object();
	n_ready = n_written = n_published = 0;
	secret_version = configmap_version = 1;
	elected = false;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	certs = hub_certs_free(certs);
	json_decref(TAKE_PTR(secret));
	json_decref(TAKE_PTR(configmap));
	json_decref(TAKE_PTR(sent.body));
	return 0;
}

static void answer(int status, json_t *body)
{
	kube_done_fn *fn = TAKE_PTR(sent.fn);

	assert_non_null(fn);
	fn(status, body, status < 300 ? NULL : "no", sent.arg);
	json_decref(body);
}

/* A merge patch, as the API server does it. */
static void patch(json_t *data)
{
	const char *key;
	json_t *value;

	json_object_foreach (json_object_get(sent.body, "data"), key, value) {
		if (json_is_null(value))
			json_object_del(data, key);
		else
			json_object_set(data, key, value);
	}
}

/* The API server answers one request. */
static void serve(void)
{
	bool is_secret = streq(sent.path, SECRET);
	unsigned *version = is_secret ? &secret_version : &configmap_version;
	_cleanup_free_ char *now = xasprintf("v%u", *version);

	if (!is_secret)
		assert_string_equal(sent.path, CONFIGMAP);
	if (streq(sent.method, "GET")) {
		answer(200, json_pack("{s:{s:s}, s:O}", "metadata", "resourceVersion", now, "data",
				      is_secret ? secret : configmap));
		return;
	}
	assert_string_equal(sent.method, "PATCH");
	assert_string_equal(sent.type, "application/merge-patch+json");
	if (!streq(json_str_at(sent.body, "metadata.resourceVersion", ""), now)) {
		answer(409, NULL);
		return;
	}
	n_written += is_secret;
	n_published += !is_secret;
	patch(is_secret ? secret : configmap);
	++*version;
	answer(200, NULL);
}

static void serve_all(void)
{
	timer_fire();
	while (sent.fn)
		serve();
}

static char *of_secret(const char *key)
{
	const char *text = json_string_value(json_object_get(secret, key));
	uint8_t *bytes;
	size_t n;

	assert_non_null(text);
	assert_int_equal(base64_decode(text, &bytes, &n), 0);
	return (char *)bytes;
}

static void put(const char *key, const char *text)
{
	_cleanup_free_ char *out = xmalloc(4 * (strlen(text) / 3 + 1) + 1);

	EVP_EncodeBlock((uint8_t *)out, (const uint8_t *)text, (int)strlen(text));
	json_object_set_new(secret, key, json_string(out));
}

/* The next check is so many seconds later, whatever the machine has been doing since it was set. */
static void assert_next_check(unsigned s)
{
	assert_in_range(timer_delay_ns(), (s - s / 2) * NSEC_PER_SEC, s * NSEC_PER_SEC);
}

/* Whether agents that trust the ConfigMap accept the certificate of the Secret. */
static bool agents_accept(const char *const *names)
{
	_cleanup_(hub_cert_pair_done) struct cert_pair server = {of_secret("tls.crt"),
								 of_secret("tls.key")};

	return !hub_certs_check(&server, json_string_value(json_object_get(configmap, "ca.crt")),
				names, now_wall_ns(), NULL);
}

/* Somebody writes a certificate with these names into the Secret. */
static void bring(const char *const *names)
{
	_cleanup_(hub_cert_pair_done) struct cert_pair ca = {0}, server = {0};

	assert_int_equal(hub_certs_make_ca("theirs", names, now_wall_ns(), &ca), 0);
	assert_int_equal(hub_certs_make_server(&ca, names, now_wall_ns(), &server), 0);
	put("tls.crt", server.cert_pem);
	put("tls.key", server.key_pem);
	put("ca.crt", ca.cert_pem);
}

/* ---- the hub's own certificate ---- */

static void test_the_first_start(void **state)
{
	(void)state;
	start(false);
	assert_true(*hub_certs_problem(certs));
	serve_all();
	assert_int_equal(n_ready, 1);
	assert_int_equal(n_written, 1);
	assert_string_equal(hub_certs_problem(certs), "");
	assert_true(agents_accept(own_names));
	assert_null(json_object_get(secret, "next-ca.crt"));
	assert_next_check(12 * 3600);
	serve_all();
	assert_int_equal(n_written, 1);
	assert_int_equal(n_published, 1);
	assert_int_equal(n_ready, 1);
}

/* There is no Secret, and another hub makes one at the same moment: both use that one. */
static void test_another_hub_is_faster(void **state)
{
	_cleanup_(hub_cert_set_done) struct cert_set theirs = {0};
	bool changed;

	(void)state;
	start(false);
	timer_fire();
	serve(); /* the ConfigMap */
	answer(404, NULL);
	assert_string_equal(sent.method, "POST");
	assert_null(json_object_get(json_object_get(sent.body, "data"), "next-ca.crt"));
	assert_int_equal(hub_certs_renew(&theirs, own_names, now_wall_ns(), &changed), 0);
	put("tls.crt", theirs.server.cert_pem);
	put("tls.key", theirs.server.key_pem);
	put("ca.crt", theirs.ca.cert_pem);
	put("ca.key", theirs.ca.key_pem);
	answer(409, NULL);
	assert_int_equal(n_ready, 0);
	serve_all();
	assert_int_equal(n_ready, 1);
	assert_int_equal(n_written, 0);
	assert_true(agents_accept(own_names));
}

static void test_a_restart_keeps_the_certificate(void **state)
{
	_cleanup_free_ char *before = NULL, *after = NULL;

	(void)state;
	start(false);
	serve_all();
	before = of_secret("tls.crt");
	certs = hub_certs_free(certs);
	start(false);
	serve_all();
	after = of_secret("tls.crt");
	assert_string_equal(before, after);
	assert_int_equal(n_written, 1);
	assert_int_equal(n_ready, 2);
}

/* The next CA is published before it signs, and is a key of the Secret only until it does. */
static void test_the_next_ca(void **state)
{
	_cleanup_free_ char *ca = NULL, *next = NULL, *both = NULL, *later = NULL;

	(void)state;
	start(false);
	serve_all();
	ca = of_secret("ca.crt");
	json_object_del(secret, "ca.key"); /* nobody can sign with the CA any more */
	serve_all();
	next = of_secret("next-ca.crt");
	both = xasprintf("%s%s", ca, next);
	assert_string_equal(json_string_value(json_object_get(configmap, "ca.crt")), both);
	assert_true(agents_accept(own_names));
	assert_int_equal(n_ready, 1); /* the certificate is the same */
	assert_next_check(600);
	json_object_del(secret, "tls.crt"); /* so the next CA must sign at once */
	serve_all();
	later = of_secret("ca.crt");
	assert_string_equal(later, next);
	assert_null(json_object_get(secret, "next-ca.crt"));
	assert_null(json_object_get(secret, "next-ca.key"));
	assert_string_equal(json_string_value(json_object_get(configmap, "ca.crt")), next);
	assert_true(agents_accept(own_names));
	assert_int_equal(n_ready, 2);
}

/* ---- several hubs ---- */

/* One hub makes the certificate; the others use it within a minute: now, and when it changes. */
static void test_a_hub_that_does_not_lead(void **state)
{
	(void)state;
	elected = true;
	leads = false;
	start(false);
	serve_all();
	assert_int_equal(n_ready, 0);
	assert_non_null(strstr(hub_certs_problem(certs), "holds no PEM certificate"));
	assert_true(timer_delay_ns() < 4 * NSEC_PER_SEC);
	bring(own_names);
	serve_all();
	assert_int_equal(n_ready, 1);
	assert_string_equal(hub_certs_problem(certs), "");
	assert_next_check(60);
	bring(own_names);
	serve_all();
	assert_int_equal(n_ready, 2);
	assert_int_equal(n_written + n_published, 0);
	/* it leads now: the CA has no key, so it makes a next one, and publishes both */
	leads = true;
	serve_all();
	assert_int_equal(n_written, 1);
	assert_int_equal(n_published, 1);
	assert_int_equal(n_ready, 2);
	assert_true(agents_accept(own_names));
}

/* While hubs are upgraded, the one that leads may know another public name. */
static void test_another_public_name(void **state)
{
	(void)state;
	elected = true;
	leads = false;
	bring(service);
	start(false);
	serve_all();
	assert_int_equal(n_ready, 1);
}

/*
 * A hub believes that it leads, and reads the Secret. Then another hub makes a new CA and publishes
 * it. The first one does not publish the old CA over it: agents would refuse all hubs.
 */
static void test_an_old_ca_is_not_published(void **state)
{
	_cleanup_(hub_cert_set_done) struct cert_set theirs = {0};
	bool changed;

	(void)state;
	elected = leads = true;
	start(false);
	serve_all();
	json_object_del(configmap, "ca.crt"); /* so that it has to publish */
	timer_fire();
	serve();
	serve();
	assert_string_equal(sent.method, "PATCH");
	assert_string_equal(sent.path, CONFIGMAP);
	assert_int_equal(hub_certs_renew(&theirs, own_names, now_wall_ns(), &changed), 0);
	put("tls.crt", theirs.server.cert_pem);
	put("tls.key", theirs.server.key_pem);
	put("ca.crt", theirs.ca.cert_pem);
	put("ca.key", theirs.ca.key_pem);
	secret_version++;
	json_object_set_new(configmap, "ca.crt", json_string(theirs.ca.cert_pem));
	configmap_version++;
	while (sent.fn)
		serve();
	serve_all();
	assert_true(agents_accept(own_names));
	assert_string_equal(json_string_value(json_object_get(configmap, "ca.crt")),
			    theirs.ca.cert_pem);
	assert_int_equal(n_ready, 2);
}

/* ---- a certificate that others bring ---- */

static void test_a_brought_certificate(void **state)
{
	(void)state;
	bring(service);
	start(true);
	serve_all();
	assert_int_equal(n_ready, 1);
	assert_true(agents_accept(service));
	assert_next_check(60);
	serve_all();
	assert_int_equal(n_ready, 1);
	bring(service);
	serve_all();
	assert_int_equal(n_ready, 2);
	assert_true(agents_accept(service));
	assert_int_equal(n_written, 0);
}

/* What agents would refuse is not used. The hub says what is wrong, and keeps what it has. */
static void test_a_brought_certificate_that_is_wrong(void **state)
{
	static const char *const other[] = {"hub.elsewhere.svc", NULL};

	(void)state;
	start(true);
	timer_fire();
	serve();
	answer(404, NULL);
	assert_non_null(strstr(hub_certs_problem(certs), "HTTP 404"));
	bring(other);
	serve_all();
	assert_string_equal(hub_certs_problem(certs),
			    "Secret tls: tls.crt lacks the name hub.ns.svc");
	assert_int_equal(n_ready, 0);
	assert_int_equal(json_object_size(configmap), 0);
	bring(service);
	serve_all();
	assert_string_equal(hub_certs_problem(certs), "");
	json_object_del(secret, "ca.crt");
	serve_all();
	assert_string_equal(hub_certs_problem(certs),
			    "Secret tls: ca.crt holds no PEM certificate");
	assert_int_equal(n_ready, 1);
	assert_int_equal(n_written, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_first_start, setup, teardown),
		cmocka_unit_test_setup_teardown(test_another_hub_is_faster, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_restart_keeps_the_certificate, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_the_next_ca, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_hub_that_does_not_lead, setup, teardown),
		cmocka_unit_test_setup_teardown(test_another_public_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_old_ca_is_not_published, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_brought_certificate, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_brought_certificate_that_is_wrong, setup,
						teardown),
	};

	return cmocka_run_group_tests_name("certs_secret", tests, NULL, NULL);
}
