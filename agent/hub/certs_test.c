/* SPDX-License-Identifier: Apache-2.0 */
/* certs: a certificate that the hub makes is usable, and hub_certs_usable refuses others. */
#include "hub/certs.h"

#include <setjmp.h>
#include <cmocka.h>

#define DAY_NS (86400 * NSEC_PER_SEC)

static const char *const names[] = {"podflame-hub.podflame-system.svc", "localhost", "127.0.0.1",
				    NULL};
static const char *const other_names[] = {"podflame-hub.elsewhere.svc", NULL};

static int setup(void **state)
{
	static struct cert_pair pairs[2];

	if (hub_certs_make_ca("test CA", now_wall_ns(), &pairs[0]) ||
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

	assert_int_equal(hub_certs_make_ca("other CA", now_wall_ns(), &ca), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fresh_certificate_is_usable),
		cmocka_unit_test(test_other_names_are_refused),
		cmocka_unit_test(test_renewed_a_month_before_its_end),
		cmocka_unit_test(test_another_ca_or_key_is_refused),
		cmocka_unit_test(test_garbage_is_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
