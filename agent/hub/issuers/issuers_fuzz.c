/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens of other clusters, sets of keys, and files of registrations. The first byte chooses what
 * the rest is: a token as it is, which must never be accepted, because nobody can sign; a header
 * and claims, which the fuzzer signs; a set of keys; a file of registrations. An accepted token
 * must have the registered issuer, subject and audience and end in the future, and must not seem
 * hopeless. An error of a token must be in plain text. What is base64url must be the one text for
 * its bytes.
 * Fuzzes: hub/issuers/token.c, hub/issuers/keys.c, hub/issuers/registrations.c,
 * hub/issuers/issuers.c
 */
#include <stdlib.h>

#define assert_int_equal(a, b) check((a) == (b))
#define assert_non_null(p)     check((p) != NULL)

#include "lib/base/fuzzinput.h"
#include "hub/issuers/internal.h"
#include "hub/issuers/testissuers.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct loop *loop; /* does not run */
static struct issuers issuers;
static struct registration registration;
static EVP_PKEY *key;

static void start(void)
{
	_cleanup_free_ char *jwks = NULL;

	key = EVP_EC_gen("P-256");
	jwks = jwks_of(key, "k", NULL, NULL);
	check(loop_new(&loop) == 0);
	issuers = (struct issuers){.loop = loop, .registrations = &registration, .n = 1};
	registration = (struct registration){
		.issuers = &issuers, .name = "prod", .issuer = "i", .subject = "s"};
	check(issuers_keys_parse(jwks, strlen(jwks), &registration.keys, NULL) == 0);
}

static int ask(const char *token)
{
	static const char *const audiences[] = {ISSUERS_AUDIENCE, NULL};
	bool knows = issuers_knows(&issuers, token);
	const char *error, *hopeless = issuers_hopeless(token, "i", audiences, &error);

	verdict.n = 0;
	issuers_check(&issuers, token, "10.0.0.1", answer, NULL);
	check(verdict.n == 1 && (verdict.status == 200 || verdict.status == 401));
	check(verdict.status == 401 || !hopeless);
	check(verdict.status == 200 ? knows && streq(verdict.cluster, "prod") && !verdict.error
				    : !verdict.cluster && *verdict.error);
	for (const char *c = verdict.error; c && *c; c++)
		check(*c >= ' ' && *c <= '~');
	return verdict.status;
}

static void check_claims(const char *text)
{
	_cleanup_json_ json_t *claims = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	const json_t *aud = json_object_get(claims, "aud"), *item;
	bool found = str_equal(json_string_value(aud), ISSUERS_AUDIENCE);
	size_t i;

	json_array_foreach ((json_t *)aud, i, item)
		found |= str_equal(json_string_value(item), ISSUERS_AUDIENCE);
	check(found && streq(json_str_at(claims, "iss", ""), "i"));
	check(streq(json_str_at(claims, "sub", ""), "s"));
	check(json_int_at(claims, "exp", 0) > (int64_t)(now_wall_ns() / NSEC_PER_SEC));
}

/* text: a header, a line break, and claims */
static void ask_signed(const char *text)
{
	_cleanup_free_ char *header = xstrndup(text, strcspn(text, "\n")), *token = NULL;
	const char *claims = text + strlen(header) + (text[strlen(header)] == '\n');

	token = token_of(key, header, claims);
	if (ask(token) == 200)
		check_claims(claims);
}

static void read_keys(const char *text, size_t n)
{
	struct issuers_keys *k = NULL;
	struct field_error e = {0};

	if (issuers_keys_parse(text, n, &k, &e) < 0) {
		check(!k && *e.path && *e.reason);
		return;
	}
	check(k->n > 0 && k->n <= 64);
	for (size_t i = 0; i < k->n; i++) {
		int bits = EVP_PKEY_get_bits(k->keys[i].key);

		check(issuers_keys_find(k, k->keys[i].kid) == &k->keys[i]);
		check(k->keys[i].is_ec ? bits == 256 : bits >= 2048 && bits <= 8192);
	}
	issuers_keys_free(k);
}

static void read_file(const char *text, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	_cleanup_free_ char *path = xasprintf("/proc/self/fd/%d", fd);
	struct issuers *i = xcalloc(1, sizeof(*i));
	struct field_error e = {0};

	check(fd >= 0 && fd_write_all(fd, text, n) == 0);
	i->loop = loop;
	if (issuers_register(i, path, "own", &e) < 0)
		check(*e.path && *e.reason);
	else
		for (size_t k = 0; k < i->n; k++)
			check(*i->registrations[k].name && !strchr(i->registrations[k].name, ':'));
	issuers_free(i);
	close(fd);
}

static void read_base64url(const char *text)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	_cleanup_free_ char *again = NULL;
	size_t n;

	if (issuers_base64url(text, strlen(text), &bytes, &n) < 0)
		return;
	again = base64url(bytes, n);
	check(streq(again, text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *text = n ? xstrndup((const char *)data + 1, n - 1) : NULL;

	if (!loop)
		start();
	if (!n)
		return 0;
	switch (*data & 3) {
	case 0:
		check(ask(text) != 200);
		read_base64url(text);
		break;
	case 1:
		ask_signed(text);
		break;
	case 2:
		read_keys((const char *)data + 1, n - 1);
		break;
	default:
		read_file((const char *)data + 1, n - 1);
	}
	answer_done();
	return 0;
}
