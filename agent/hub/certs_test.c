/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certs: which certificates clients accept of the hub, and when it and its CA get successors. What
 * happens with the Secret is in certs_secret_test.c.
 */
#include "hub/certs.h"

#include <setjmp.h>
#include <cmocka.h>

#include "lib/loop/testcert.h"

#define DAY_NS	  (86400 * NSEC_PER_SEC)
#define MINUTE_NS (60 * NSEC_PER_SEC)

#define SERVICE "podflame-hub.podflame-system.svc"
static const char *const names[] = {SERVICE, "localhost", "127.0.0.1", NULL};
static const char *const first[] = {SERVICE, NULL};
static const char *const other_names[] = {"podflame-hub.elsewhere.svc", NULL};

static int setup(void **state)
{
	static struct cert_pair pairs[2];

	if (hub_certs_make_ca("test CA", names, now_wall_ns(), &pairs[0]) ||
	    hub_certs_make_server(&pairs[0], names, now_wall_ns(), &pairs[1]))
		return -1;
	*state = pairs;
	return 0;
}

static int teardown(void **state)
{
	struct cert_pair *pairs = *state;

	hub_cert_pair_done(&pairs[0]);
	hub_cert_pair_done(&pairs[1]);
	return 0;
}

/* ---- making and checking ---- */

static void test_fresh_certificate_is_usable(void **state)
{
	struct cert_pair *p = *state;

	assert_true(hub_certs_usable(&p[1], p[0].cert_pem, names, now_wall_ns()));
}

static void test_other_names_are_refused(void **state)
{
	struct cert_pair *p = *state;

	assert_false(hub_certs_usable(&p[1], p[0].cert_pem, other_names, now_wall_ns()));
}

static void test_renewed_a_month_before_its_end(void **state)
{
	struct cert_pair *p = *state;

	assert_true(hub_certs_usable(&p[1], p[0].cert_pem, names, now_wall_ns() + 334 * DAY_NS));
	assert_false(hub_certs_usable(&p[1], p[0].cert_pem, names, now_wall_ns() + 336 * DAY_NS));
	assert_false(hub_certs_usable(&p[1], p[0].cert_pem, names, now_wall_ns() - DAY_NS));
}

static void test_another_ca_or_key_is_refused(void **state)
{
	struct cert_pair *p = *state, ca = {0}, server = {0}, mixed;

	assert_int_equal(hub_certs_make_ca("other CA", names, now_wall_ns(), &ca), 0);
	assert_int_equal(hub_certs_make_server(&p[0], names, now_wall_ns(), &server), 0);
	mixed = (struct cert_pair){p[1].cert_pem, server.key_pem};
	assert_false(hub_certs_usable(&p[1], ca.cert_pem, names, now_wall_ns()));
	assert_false(hub_certs_usable(&mixed, p[0].cert_pem, names, now_wall_ns()));
	hub_cert_pair_done(&ca);
	hub_cert_pair_done(&server);
}

static void test_garbage_is_refused(void **state)
{
	struct cert_pair *p = *state;
	struct cert_pair empty = {(char *)"", (char *)""}, none = {0};

	assert_false(hub_certs_usable(&empty, p[0].cert_pem, names, now_wall_ns()));
	assert_false(
		hub_certs_usable(&p[1], "-----BEGIN CERTIFICATE-----\nx\n", names, now_wall_ns()));
	assert_int_equal(hub_certs_make_server(&empty, names, now_wall_ns(), &none), -EINVAL);
	assert_null(none.cert_pem);
}

static int check(const struct cert_pair *server, const char *ca_pem, const char *const *of,
		 struct field_error *e)
{
	*e = (struct field_error){0};
	return hub_certs_check(server, ca_pem, of, now_wall_ns(), e);
}

/* Each problem is reported with the key of the Secret that has it. */
static void test_the_problem_is_named(void **state)
{
	struct cert_pair *p = *state, no_key = {p[1].cert_pem, NULL},
			 ca_key = {p[1].cert_pem, p[0].key_pem}, no_cert = {(char *)"x", NULL};
	_cleanup_(hub_cert_pair_done) struct cert_pair other = {0};
	_cleanup_free_ char *both = xasprintf("%s%s", p[0].cert_pem, p[0].key_pem);
	int r = hub_certs_make_ca("other CA", names, now_wall_ns(), &other);
	const struct {
		const struct cert_pair *server;
		const char *ca, *const *names, *key, *reason;
	} cases[] = {
		{&no_cert, p[0].cert_pem, names, "tls.crt", "no PEM certificate"},
		{&no_key, p[0].cert_pem, names, "tls.key", "is not the PEM key of tls.crt"},
		{&ca_key, p[0].cert_pem, names, "tls.key", "is not the PEM key of tls.crt"},
		{&p[1], NULL, names, "ca.crt", "no PEM certificate"},
		{&p[1], both, names, "ca.crt", "holds a private key"},
		{&p[1], p[0].cert_pem, other_names, "tls.crt",
		 "lacks the name podflame-hub.elsewhere.svc"},
		{&p[1], other.cert_pem, names, "tls.crt", "clients that trust ca.crt refuse it"},
	};
	struct field_error e;

	assert_int_equal(r, 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(check(cases[i].server, cases[i].ca, cases[i].names, &e), -EINVAL);
		assert_string_equal(e.path, cases[i].key);
		if (!strstr(e.reason, cases[i].reason))
			fail_msg("%s: %s", e.path, e.reason);
	}
}

/* Somebody who has the CA's key cannot take the place of any other server. */
static void test_the_ca_speaks_for_the_hub_alone(void **state)
{
	static const char *const foreign[] = {"kubernetes.default.svc",
					      "example.com",
					      "evilpodflame-hub.podflame-system.svc",
					      "10.0.0.1",
					      "127.0.0.2",
					      "::1"};
	struct cert_pair *p = *state;
	struct field_error e;

	for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
		const char *const of[] = {foreign[i], NULL};
		_cleanup_(hub_cert_pair_done) struct cert_pair forged = {0};

		assert_int_equal(hub_certs_make_server(&p[0], of, now_wall_ns(), &forged), 0);
		assert_int_equal(check(&forged, p[0].cert_pem, of, &e), -EINVAL);
		if (!strstr(e.reason, "permitted subtree violation"))
			fail_msg("%s: %s", foreign[i], e.reason);
	}
}

static void test_a_public_address(void **state)
{
	static const char *const public[] = {"192.0.2.1", "2001:db8::1", "hub.example"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(public); i++) {
		const char *const of[] = {SERVICE, public[i], NULL};
		_cleanup_(hub_cert_set_done) struct cert_set s = {0};
		struct field_error e = {0};
		bool changed;

		assert_int_equal(hub_certs_renew(&s, of, now_wall_ns(), &changed), 0);
		if (check(&s.server, s.ca.cert_pem, of, &e))
			fail_msg("%s: %s %s", public[i], e.path, e.reason);
	}
}

/* A certificate that others have made may have intermediate ones behind it. */
static void test_a_chain(void **state)
{
	_cleanup_(test_ca_done) struct test_ca root, middle;
	struct test_cert leaf;
	_cleanup_free_ char *chain = NULL;
	struct cert_pair server;
	struct field_error e;

	(void)state;
	test_ca_init(&root, "root");
	test_ca_init_below(&middle, "middle", &root);
	test_cert_init(&leaf, &middle, "DNS:" SERVICE);
	chain = xasprintf("%s%s", leaf.cert_pem, middle.pem);
	server = (struct cert_pair){leaf.cert_pem, leaf.key_pem};
	assert_int_equal(check(&server, root.pem, first, &e), -EINVAL);
	server.cert_pem = chain;
	if (check(&server, root.pem, first, &e))
		fail_msg("%s: %s", e.path, e.reason);
	test_cert_done(&leaf);
}

/* ---- renewing ---- */

static void renew(struct cert_set *s, const char *const *of, uint64_t now, bool want_change)
{
	bool changed = !want_change;

	assert_int_equal(hub_certs_renew(s, of, now, &changed), 0);
	assert_int_equal(changed, want_change);
}

/* What agents that have read the trusted CAs at some time accept at another time. */
static bool accepts(const char *trusted, const struct cert_set *s, const char *const *of,
		    uint64_t now)
{
	return !hub_certs_check(&s->server, trusted, of, now, NULL);
}

/* The CA as versions before this one made it: for every name. */
static void old_version(struct cert_set *s, uint64_t now)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = test_x509(key, "podflame hub CA", -3600, 3650L * 86400);
	BIO *b = BIO_new(BIO_s_mem());

	X509_set_issuer_name(x, X509_get_subject_name(x));
	test_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
	test_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign");
	test_extension(x, x, NID_subject_key_identifier, "hash");
	X509_sign(x, key, EVP_sha256());
	PEM_write_bio_PrivateKey(b, key, NULL, NULL, 0, NULL, NULL);
	*s = (struct cert_set){.ca = {test_cert_pem(x), bio_text(b)}};
	assert_int_equal(hub_certs_make_server(&s->ca, names, now, &s->server), 0);
	X509_free(x);
	EVP_PKEY_free(key);
}

static void test_the_first_start(void **state)
{
	_cleanup_(hub_cert_set_done) struct cert_set s = {0};
	_cleanup_free_ char *trusted = NULL;
	uint64_t now = now_wall_ns();

	(void)state;
	renew(&s, names, now, true);
	trusted = hub_certs_trusted(&s);
	assert_true(accepts(trusted, &s, names, now));
	assert_string_equal(trusted, s.ca.cert_pem);
	assert_int_equal(hub_certs_next_s(&s), 0);
	renew(&s, names, now, false);
	renew(&s, names, now + 334 * DAY_NS, false);
}

/* Only the certificate is renewed: agents need to learn nothing. */
static void test_a_year_later(void **state)
{
	_cleanup_(hub_cert_set_done) struct cert_set s = {0};
	_cleanup_free_ char *trusted = NULL, *later = NULL;
	uint64_t now = now_wall_ns();

	(void)state;
	renew(&s, names, now, true);
	trusted = hub_certs_trusted(&s);
	renew(&s, names, now + 336 * DAY_NS, true);
	later = hub_certs_trusted(&s);
	assert_string_equal(trusted, later);
	assert_true(accepts(trusted, &s, names, now + 600 * DAY_NS));
}

/*
 * The CA gets a successor while the old one signs. Agents that follow within a month meet no
 * certificate that they do not trust.
 */
static void follow_overlap(struct cert_set *s, uint64_t now)
{
	_cleanup_free_ char *before = hub_certs_trusted(s), *both = NULL, *after = NULL;

	assert_true(accepts(before, s, names, now));
	renew(s, names, now, true);
	both = hub_certs_trusted(s);
	assert_true(accepts(before, s, names, now));
	assert_string_not_equal(before, both);
	assert_int_equal(hub_certs_next_s(s), (now + 30 * DAY_NS) / NSEC_PER_SEC);
	renew(s, names, now + 29 * DAY_NS, false);
	assert_true(accepts(before, s, names, now + 29 * DAY_NS));
	renew(s, names, now + 31 * DAY_NS, true);
	after = hub_certs_trusted(s);
	assert_true(accepts(both, s, names, now + 31 * DAY_NS));
	assert_true(accepts(after, s, names, now + 31 * DAY_NS));
	assert_false(accepts(before, s, names, now + 31 * DAY_NS));
	assert_string_equal(after, s->ca.cert_pem);
	renew(s, names, now + 32 * DAY_NS, false);
}

static void test_a_ca_that_ends_in_a_year(void **state)
{
	_cleanup_(hub_cert_set_done) struct cert_set s = {0};
	uint64_t now = now_wall_ns(), late = now + (3650 - 364) * DAY_NS;

	(void)state;
	renew(&s, names, now, true);
	renew(&s, names, late - 2 * DAY_NS, true); /* the certificate alone */
	assert_int_equal(hub_certs_next_s(&s), 0);
	follow_overlap(&s, late);
}

static void test_a_ca_of_an_old_version(void **state)
{
	_cleanup_(hub_cert_set_done) struct cert_set s = {0};
	uint64_t now = now_wall_ns();
	struct cert_facts f;

	(void)state;
	old_version(&s, now);
	follow_overlap(&s, now);
	assert_int_equal(hub_certs_facts(s.ca.cert_pem, &f), 0);
	assert_true(f.constrained);
}

static const char *const more[] = {SERVICE, "localhost", "127.0.0.1", "hub.example", NULL};

/* The CA may not sign for a new name: ten minutes without the name, and none without the others. */
static void test_a_new_public_name(void **state)
{
	_cleanup_(hub_cert_set_done) struct cert_set s = {0};
	_cleanup_free_ char *before = NULL, *both = NULL;
	uint64_t now = now_wall_ns();

	(void)state;
	renew(&s, names, now, true);
	before = hub_certs_trusted(&s);
	renew(&s, more, now, true);
	both = hub_certs_trusted(&s);
	assert_true(accepts(before, &s, names, now));
	assert_false(accepts(both, &s, more, now));
	renew(&s, more, now + 9 * MINUTE_NS, false);
	renew(&s, more, now + 11 * MINUTE_NS, true);
	assert_true(accepts(both, &s, more, now + 11 * MINUTE_NS));
	renew(&s, more, now + 12 * MINUTE_NS, false);
	/* the CA may sign for more than it needs now: it stays */
	renew(&s, names, now + 13 * MINUTE_NS, false);
}

/* A name that comes and goes again leaves no second CA behind. */
static void test_a_public_name_that_goes(void **state)
{
	_cleanup_(hub_cert_set_done) struct cert_set s = {0};
	_cleanup_free_ char *before = NULL, *after = NULL;
	uint64_t now = now_wall_ns();

	(void)state;
	renew(&s, names, now, true);
	before = hub_certs_trusted(&s);
	renew(&s, more, now, true);
	renew(&s, names, now, true);
	after = hub_certs_trusted(&s);
	assert_string_equal(before, after);
}

/* No agent can use the certificate as it is: the new CA signs at once. */
static void test_what_serves_nobody_is_replaced_at_once(void **state)
{
	uint64_t now = now_wall_ns(), end = now + 3651 * DAY_NS;

	(void)state;
	for (int i = 0; i < 3; i++) {
		_cleanup_(hub_cert_set_done) struct cert_set s = {0};
		const char *const *of = i == 0 ? other_names : names;
		uint64_t then = i == 1 ? end : now;

		renew(&s, names, now, true);
		if (i == 2) {
			hub_cert_pair_done(&s.server);
			s.ca.key_pem[40] ^= 1;
		}
		renew(&s, of, then, true);
		assert_true(accepts(s.ca.cert_pem, &s, of, then));
		assert_null(s.next.cert_pem);
	}
}

/* Without its key the CA cannot renew the certificate, which is good for agents until then. */
static void test_a_ca_without_its_key(void **state)
{
	_cleanup_(hub_cert_set_done) struct cert_set s = {0};
	_cleanup_free_ char *before = NULL, *both = NULL;
	uint64_t now = now_wall_ns();

	(void)state;
	renew(&s, names, now, true);
	before = hub_certs_trusted(&s);
	s.ca.key_pem[0] = '\0';
	renew(&s, names, now, true);
	both = hub_certs_trusted(&s);
	assert_true(accepts(before, &s, names, now));
	renew(&s, names, now + 11 * MINUTE_NS, true);
	assert_true(accepts(both, &s, names, now + 11 * MINUTE_NS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fresh_certificate_is_usable),
		cmocka_unit_test(test_other_names_are_refused),
		cmocka_unit_test(test_renewed_a_month_before_its_end),
		cmocka_unit_test(test_another_ca_or_key_is_refused),
		cmocka_unit_test(test_garbage_is_refused),
		cmocka_unit_test(test_the_problem_is_named),
		cmocka_unit_test(test_the_ca_speaks_for_the_hub_alone),
		cmocka_unit_test(test_a_public_address),
		cmocka_unit_test(test_a_chain),
		cmocka_unit_test(test_the_first_start),
		cmocka_unit_test(test_a_year_later),
		cmocka_unit_test(test_a_ca_that_ends_in_a_year),
		cmocka_unit_test(test_a_ca_of_an_old_version),
		cmocka_unit_test(test_a_new_public_name),
		cmocka_unit_test(test_a_public_name_that_goes),
		cmocka_unit_test(test_what_serves_nobody_is_replaced_at_once),
		cmocka_unit_test(test_a_ca_without_its_key),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
