/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with a file of registrations, or with a set of keys, is said by field. The file is
 * not read as far as that: a hub with a wrong one does not start.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hub/issuers/internal.h"
#include "hub/issuers/testissuers.h"

static EVP_PKEY *rsa, *ec;

static int setup(void **state)
{
	(void)state;
	rsa = EVP_RSA_gen(2048);
	ec = EVP_EC_gen("P-256");
	return testdir_make(dir);
}

static int teardown(void **state)
{
	(void)state;
	EVP_PKEY_free(rsa);
	EVP_PKEY_free(ec);
	return testdir_remove(dir);
}

/* ---- the file ---- */

#define FIRST                                                                                      \
	"clusters:\n"                                                                              \
	"- {name: prod, issuer: 'https://p', subject: s, jwks_file: p.json}\n"
#define URL ", jwks_url: 'https://p:6443/openid/v1/jwks', jwks_ca_file: ca.pem"

static const struct {
	const char *text, *at, *why; /* why NULL: the file is right */
} files[] = {
	{FIRST, "", NULL},
	{"clusters: []", "", NULL},
	{FIRST "- {name: a.b_C-1, issuer: 'https://q', subject: s" URL "}", "", NULL},
	/* one issuer, and keys that the user gives */
	{FIRST "- {name: test, issuer: 'https://p', subject: s, jwks_file: t.json}", "", NULL},
	{"- a", ":1:1", "clusters: is missing: the file must be a mapping"},
	{"", ":1:1", "clusters: is missing"},
	{"cluster: []", ":1:1", "cluster: no such field"},
	{"clusters: {a: b}", ":1:1", "clusters: is missing or no list"},
	{"clusters: [a", ":2:1", "did not find expected"},
	{"clusters:\n- prod", ":2:3", "clusters[0]: is no mapping"},
	{"clusters:\n- {issuer: i, subject: s, jwks_file: f}", ":2:3",
	 "clusters[0].name: is missing"},
	{FIRST "- {name: x, subject: s, jwks_file: f}", ":3:3", "clusters[1].issuer: is missing"},
	{FIRST "- {name: x, issuer: i, jwks_file: f}", ":3:3", "clusters[1].subject: is missing"},
	{FIRST "- {name: x, issuer: i, subject: s}", ":3:3", "clusters[1].jwks_file: is missing"},
	{FIRST "- {name: x, issuer: i, subject: s, jwks_file: f" URL "}",
	 ":3:", "clusters[1].jwks_file: is there, and jwks_url, too"},
	{FIRST "- {name: x, issuer: i, subject: s, jwks_file: f, jwks_ca_file: c}",
	 ":3:", "clusters[1].jwks_ca_file: is there without jwks_url"},
	{FIRST "- {name: x, issuer: i, subject: s, jwks_url: 'https://p/'}", ":3:3",
	 "clusters[1].jwks_ca_file: is missing: the hub trusts no other CA"},
	{FIRST "- {name: x, issuer: i, subject: s, jwks_url: 'http://p/', jwks_ca_file: c}",
	 ":3:", "clusters[1].jwks_url: begins not with https://"},
	{FIRST "- {name: x, issuer: i, subject: s, jwks_url: 'https://u@p/', jwks_ca_file: c}",
	 ":3:", "clusters[1].jwks_url: has a user name in it"},
	{FIRST "- {name: x, issuer: i, subjects: s, jwks_file: f}", ":3:24",
	 "clusters[1].subjects: no such field; docs/clusters.md lists them all"},
	{FIRST "- {name: own, issuer: i, subject: s, jwks_file: f}", ":3:4",
	 "clusters[1].name: \"own\" is the hub's own cluster"},
	{FIRST "- {name: prod, issuer: i, subject: s, jwks_file: f}", ":3:4",
	 "clusters[1].name: \"prod\" is the name of clusters[0], too"},
	{FIRST "- {name: 'a:b', issuer: i, subject: s, jwks_file: f}", ":3:4",
	 "clusters[1].name: \"a:b\" has other characters"},
	{FIRST "- {name: -a, issuer: i, subject: s, jwks_file: f}", ":3:4", "has other characters"},
	{FIRST "- {name: 1, issuer: i, subject: s, jwks_file: f}", ":3:4",
	 "clusters[1].name: is no text of 1 to 63 bytes"},
	{FIRST "- {name: '', issuer: i, subject: s, jwks_file: f}", ":3:4", "name: is no text"},
	{FIRST "- {name: a123456789b123456789c123456789d123456789e123456789f123456789abcd, "
	       "issuer: i, subject: s, jwks_file: f}",
	 ":3:4", "name: is no text"},
	{FIRST "- {name: x, issuer: [], subject: s, jwks_file: f}", ":3:", "issuer: is no text"},
	{FIRST "- {name: x, issuer: \"a\\nb\", subject: s, jwks_file: f}",
	 ":3:", "clusters[1].issuer: has a control character"},
	{FIRST "- {name: x, name: y, issuer: i, subject: s, jwks_file: f}",
	 ":3:", "name is there twice"},
	/* one issuer, and keys that a cluster gives: it could give those of the other */
	{FIRST "- {name: x, issuer: 'https://p', subject: s" URL "}", ":3:13",
	 "clusters[1].issuer: is the one of clusters[0], too"},
	{"clusters:\n- {name: a, issuer: i, subject: s" URL "}\n"
	 "- {name: b, issuer: i, subject: s, jwks_file: f}",
	 ":3:13", "clusters[1].issuer: is the one of clusters[0], too"},
	{FIRST "- {name: x, issuer: 'https://own', subject: s" URL "}", ":3:13",
	 "clusters[1].issuer: is the one of the hub's own cluster, too"},
	{FIRST "- {name: x, issuer: 'https://own', subject: s, jwks_file: f}", "", NULL},
};

static void registered_done(struct issuers *i)
{
	struct loop *l;

	assert_int_equal(loop_new(&l), 0);
	i->loop = l;
	issuers_free(i);
	loop_free(l);
}

static int register_text(const char *text, struct field_error *reterr)
{
	_cleanup_free_ char *file = path_of("clusters.yaml");
	struct issuers *i = xcalloc(1, sizeof(*i));
	int r;

	put("clusters.yaml", text);
	i->own_issuer = xstrdup("https://own");
	r = issuers_register(i, file, "own", reterr);
	if (r == 0 && i->n && !i->registrations[0].by_url)
		assert_true(str_has_prefix(i->registrations[0].file, dir));
	registered_done(i);
	return r;
}

static void test_files(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_free_ char *at = xasprintf("%s/clusters.yaml%s", dir, files[i].at);
		struct field_error e = {0};
		int r = register_text(files[i].text, &e);

		if (!files[i].why != !r)
			fail_msg("%s: %d, %s", files[i].text, r, e.reason);
		if (r && (!str_has_prefix(e.path, at) || !strstr(e.reason, files[i].why)))
			fail_msg("%s: \"%s: %s\"", files[i].text, e.path, e.reason);
	}
}

static void test_so_many_clusters_may_be_registered(void **state)
{
	struct field_error e = {0};
	struct buf b = {0};

	(void)state;
	buf_puts(&b, "clusters:\n");
	for (unsigned i = 0; i < 100; i++)
		buf_printf(&b, "- {name: c%u, issuer: i%u, subject: s, jwks_file: f}\n", i, i);
	assert_int_equal(register_text(b.data, &e), 0);
	buf_puts(&b, "- {name: x, issuer: i, subject: s, jwks_file: f}\n");
	assert_int_equal(register_text(b.data, &e), -EINVAL);
	assert_non_null(strstr(e.reason, "clusters: has more than 100 clusters"));
	buf_done(&b);
}

/* ---- keys ---- */

/* RSA and EC stand for the members of a right key, without its kid. */
static const struct {
	const char *text, *at, *why; /* why NULL: it is right, and `at` is the kid of its key */
} sets[] = {
	{"{\"keys\":[{\"kid\":\"a\",RSA}]}", "a", NULL},
	{"{\"keys\":[{\"kid\":\"a\",EC,\"use\":\"sig\",\"alg\":\"ES256\"}]}", "a", NULL},
	{"{\"keys\":[{\"kid\":\"a\",EC},{\"kid\":\"b\",RSA}],\"more\":1}", "b", NULL},
	/* keys of which the hub has no use */
	{"{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\",\"kid\":\"x\"},{\"kid\":\"a\",RSA}]}", "a",
	 NULL},
	{"{\"keys\":[{\"kid\":\"x\",RSA,\"use\":\"enc\"},{\"kid\":\"a\",EC}]}", "a", NULL},
	{"{\"keys\":[{\"kid\":\"x\",RSA,\"alg\":\"RS512\"},{\"kid\":\"a\",EC}]}", "a", NULL},
	{"{\"keys\":[{\"kid\":\"x\",\"kty\":\"EC\",\"crv\":\"P-384\"},{\"kid\":\"a\",EC}]}", "a",
	 NULL},
	{"{\"keys\":[{\"kid\":\"x\",RSA,\"alg\":\"none\"}]}", "keys", "has no RSA key for RS256"},
	{"{\"keys\":[{\"kid\":\"x\",RSA,\"alg\":1}]}", "keys", "has no RSA key for RS256"},
	{"[]", "keys", "is missing or no list"},
	{"{}", "keys", "is missing or no list"},
	{"{\"keys\":{}}", "keys", "is missing or no list"},
	{"{\"keys\":[]}", "keys", "has no RSA key"},
	{"{\"keys\":[],\"keys\":[]}", "keys", "the text is no JSON"},
	{"{\"keys\":[1]}", "keys[0].kty", "is missing: the key is no object"},
	{"{\"keys\":[{RSA}]}", "keys[0].kid", "is missing"},
	{"{\"keys\":[{\"kid\":\"\",RSA}]}", "keys[0].kid", "is missing"},
	{"{\"keys\":[{\"kid\":\"a\",RSA},{\"kid\":\"a\",EC}]}", "keys[1].kid",
	 "of another key, too"},
	{"{\"keys\":[{\"kid\":\"a\",RSA,\"d\":\"AAAA\"}]}", "keys[0].d",
	 "makes this a private key"},
	{"{\"keys\":[{\"kid\":\"a\",\"kty\":\"RSA\",\"e\":\"AQAB\"}]}", "keys[0].n", "is missing"},
	{"{\"keys\":[{\"kid\":\"a\",\"kty\":\"RSA\",\"n\":\"AQ==\",\"e\":\"AQAB\"}]}", "keys[0].n",
	 "is no base64url"},
	{"{\"keys\":[{\"kid\":\"a\",\"kty\":\"RSA\",\"n\":\"_wAB\",\"e\":\"AQAB\"}]}", "keys[0].n",
	 "has 24 bits, not 2048 to 8192"},
	{"{\"keys\":[{\"kid\":\"a\",EVEN}]}", "keys[0].n", "is no modulus of RSA"},
	/* with the exponent 1, each text is its own signature */
	{"{\"keys\":[{\"kid\":\"a\",ONE}]}", "keys[0].e", "is no exponent of RSA"},
	{"{\"keys\":[{\"kid\":\"a\",ZERO}]}", "keys[0].e", "is no exponent of RSA"},
	{"{\"keys\":[{\"kid\":\"a\",\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AAAA\",\"y\":\"AAAA\"}"
	 "]}",
	 "keys[0].x", "has not the 32 bytes of P-256"},
	{"{\"keys\":[{\"kid\":\"a\",OFF}]}", "keys[0].x", "is, with y, no point of P-256"},
};

/* Members of keys that the words of a text stand for. The caller frees the result. */
static char *members_of(const char *word)
{
	_cleanup_free_ char *n = number_of(rsa, OSSL_PKEY_PARAM_RSA_N, 0),
			    *x = number_of(ec, OSSL_PKEY_PARAM_EC_PUB_X, 32),
			    *y = number_of(ec, OSSL_PKEY_PARAM_EC_PUB_Y, 32);

	if (streq(word, "EC"))
		return xasprintf("\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"", x,
				 y);
	if (streq(word, "OFF"))
		return xasprintf("\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"", x,
				 x);
	if (streq(word, "EVEN")) /* the last two characters have the last byte and 4 spare bits */
		memcpy(n + strlen(n) - 2, "AA", 2);
	return xasprintf("\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"%s\"", n,
			 streq(word, "ONE")    ? "AQ"
			 : streq(word, "ZERO") ? "AA"
					       : "AQAB");
}

static char *fill(const char *text)
{
	static const char *const words[] = {"RSA", "EC", "EVEN", "ONE", "ZERO", "OFF"};
	struct buf b = {0};

	while (*text) {
		bool found = false;

		for (size_t i = 0; i < ARRAY_SIZE(words) && !found; i++) {
			_cleanup_free_ char *members = NULL;

			/* not the kty "RSA" */
			if (!str_has_prefix(text, words[i]) || text[strlen(words[i])] == '"')
				continue;
			members = members_of(words[i]);
			buf_puts(&b, members);
			text += strlen(words[i]);
			found = true;
		}
		if (!found)
			buf_putc(&b, *text++);
	}
	return buf_steal(&b);
}

static void test_sets_of_keys(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		_cleanup_free_ char *text = fill(sets[i].text);
		struct issuers_keys *k = NULL;
		struct field_error e = {0};
		int r = issuers_keys_parse(text, strlen(text), &k, &e);

		if (!sets[i].why != !r)
			fail_msg("%s: %d, %s: %s", text, r, e.path, e.reason);
		if (!r && !issuers_keys_find(k, sets[i].at))
			fail_msg("%s: there is no key %s", text, sets[i].at);
		assert_null(issuers_keys_find(k, "x"));
		if (r && (!streq(e.path, sets[i].at) || !strstr(e.reason, sets[i].why)))
			fail_msg("%s: %s: %s", text, e.path, e.reason);
		issuers_keys_free(k);
	}
}

static void test_sizes_of_rsa_keys(void **state)
{
	static const struct {
		unsigned bits;
		bool right;
	} sizes[] = {{1024, false}, {2040, false}, {3072, true}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		EVP_PKEY *key = EVP_RSA_gen(sizes[i].bits);
		_cleanup_free_ char *text = jwks_of(key, "a", NULL, NULL);
		struct issuers_keys *k = NULL;
		int r = issuers_keys_parse(text, strlen(text), &k, NULL);

		assert_int_equal(!r, sizes[i].right);
		issuers_keys_free(k);
		EVP_PKEY_free(key);
	}
}

static void test_so_many_keys_are_taken(void **state)
{
	struct issuers_keys *k = NULL;
	struct field_error e = {0};
	struct buf b = {0};

	(void)state;
	buf_puts(&b, "{\"keys\":[");
	for (unsigned i = 0; i < 65; i++) {
		char kid[16];
		_cleanup_free_ char *jwk = NULL;

		snprintf(kid, sizeof(kid), "k%u", i);
		jwk = jwk_of(ec, kid);
		buf_printf(&b, "%s%s", i ? "," : "", jwk);
	}
	buf_puts(&b, "]}");
	assert_int_equal(issuers_keys_parse(b.data, b.len, &k, &e), -EINVAL);
	assert_string_equal(e.reason, "has 65 keys, more than 64");
	buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_so_many_clusters_may_be_registered),
		cmocka_unit_test(test_sets_of_keys),
		cmocka_unit_test(test_sizes_of_rsa_keys),
		cmocka_unit_test(test_so_many_keys_are_taken),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
