/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of registrations and of keys that cannot be read. The hub then does not start, or starts
 * without the keys and says so; it never takes half a file.
 */
#include "hub/issuers/internal.h"
#include "lib/base/fault.h"

#include <setjmp.h>
#include <cmocka.h>

#include "hub/issuers/testissuers.h"
#include "lib/loop/testtimer.h"

static unsigned n_told;
static EVP_PKEY *key;
static char *token;

static void tell(const char *cluster, const char *error, void *arg)
{
	(void)cluster;
	(void)arg;
	n_told += error != NULL;
}

static int read_all(void *arg)
{
	static struct issuers *untouched;
	_cleanup_free_ char *file = path_of("clusters.yaml");
	const struct issuers_config c = {.file = file, .own_cluster = "own", .tell = tell};
	struct issuers *i = untouched;
	struct field_error e = {0};
	int r;

	(void)arg;
	n_told = 0;
	verdict.n = 0;
	r = issuers_new(timer_loop(), &c, &i, &e);
	if (r < 0) {
		assert_ptr_equal(i, untouched);
		return r;
	}
	issuers_check(i, token, "10.0.0.1", answer, NULL);
	fault_disarm();
	assert_int_equal(verdict.n, 1);
	/* the keys are there, or it was told why not */
	assert_int_equal(verdict.status, n_told ? 503 : 200);
	issuers_free(i);
	answer_done();
	return n_told ? -EIO : 0;
}

static void test_files(void **state)
{
	static const struct fault_row row = {.name = "issuers_new",
					     .calls = FAULT_FILES | FAULT(START),
					     .run = read_all,
					     .threads = true};

	(void)state;
	fault_each(&row, NULL);
}

static int setup(void **state)
{
	_cleanup_free_ char *jwks = NULL;

	(void)state;
	key = EVP_RSA_gen(2048);
	jwks = jwks_of(key, "k1", NULL, NULL);
	token = good_token(key, "k1", (int)(now_wall_ns() / NSEC_PER_SEC));
	if (testdir_make(dir) < 0)
		return -1;
	put("keys.json", jwks);
	put("clusters.yaml", "clusters: [{name: prod, issuer: '" ISSUER "', subject: '" SUBJECT
			     "', jwks_file: keys.json}]\n");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	EVP_PKEY_free(key);
	free(token);
	loop_free(timer_loop());
	return testdir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
