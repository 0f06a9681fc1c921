/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens of other clusters: those that are right, and each way to forge one. Four clusters are
 * registered. prod and test have issuers of their own; east and west have the default one of
 * Kubernetes, which is also that of the hub's own cluster. The attacker has all public keys, tokens
 * that are right for another cluster or another audience, and keys of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hub/issuers/testissuers.h"
#include "lib/base/testclock.h"
#include "lib/loop/testtimer.h"

#define NOW_S	       1800000000
#define DEFAULT_ISSUER "https://kubernetes.default.svc.cluster.local"

/* Keys: of prod (RSA and P-256), of test, east and west, of the own cluster, of the attacker. */
enum { PROD, PROD_EC, TEST_KEY, EAST, WEST, OWN, ATTACKER, ATTACKER_EC, N_KEYS };

static EVP_PKEY *keys[N_KEYS];
static char *prod_jwks;
static struct issuers *issuers;
static unsigned n_told;

static void tell(const char *cluster, const char *error, void *arg)
{
	(void)arg;
	n_told++;
	printf("%s: %s\n", cluster, error ?: "works");
}

static void put_keys(const char *name, EVP_PKEY *key, const char *kid)
{
	_cleanup_free_ char *text = jwks_of(key, kid, NULL, NULL);

	put(name, text);
}

static const char registrations[] =
	"clusters:\n"
	"- {name: prod, issuer: '" ISSUER "', subject: '" SUBJECT "', jwks_file: prod.json}\n"
	"- {name: test, issuer: 'https://test.example', subject: '" SUBJECT
	"', jwks_file: test.json}\n"
	"- {name: east, issuer: '" DEFAULT_ISSUER "', subject: '" SUBJECT
	"', jwks_file: east.json}\n"
	"- {name: west, issuer: '" DEFAULT_ISSUER "', subject: '" SUBJECT
	"', jwks_file: west.json}\n";

static int start(void **state)
{
	_cleanup_free_ char *file = NULL, *own_file = NULL, *own = NULL;
	struct issuers_config c = {.own_cluster = "own", .tell = tell};

	(void)state;
	test_clock.stands_ns = NOW_S * NSEC_PER_SEC;
	for (size_t i = 0; i < N_KEYS; i++)
		keys[i] =
			i == PROD_EC || i == ATTACKER_EC ? EVP_EC_gen("P-256") : EVP_RSA_gen(2048);
	assert_int_equal(testdir_make(dir), 0);
	prod_jwks = jwks_of(keys[PROD], "k1", keys[PROD_EC], "e1");
	put("prod.json", prod_jwks);
	put_keys("test.json", keys[TEST_KEY], "t1");
	put_keys("east.json", keys[EAST], "east-1");
	put_keys("west.json", keys[WEST], "west-1");
	put("clusters.yaml", registrations);
	own = token_of(keys[OWN], "{\"alg\":\"RS256\",\"kid\":\"own-1\"}",
		       "{\"iss\":\"" DEFAULT_ISSUER "\"}");
	put("own-token", own);
	c.file = file = path_of("clusters.yaml");
	c.own_token_file = own_file = path_of("own-token");
	assert_int_equal(issuers_new(timer_loop(), &c, &issuers, NULL), 0);
	assert_int_equal(n_told, 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	issuers_free(issuers);
	answer_done();
	free(prod_jwks);
	for (size_t i = 0; i < N_KEYS; i++)
		EVP_PKEY_free(keys[i]);
	loop_free(timer_loop());
	return testdir_remove(dir);
}

/* ---- attempts ---- */

enum twist {
	AS_IT_IS,
	NO_SIGNATURE, /* an empty third part */
	TWO_PARTS,    /* no third part */
	TRAILING_DOT,
	LEADING_DOT,
	FIVE_PARTS,	    /* as an encrypted token */
	TWO_CLAIMS,	    /* a second part with claims */
	OTHER_CLAIMS,	    /* the claims are replaced after the signature was made */
	OTHER_HEADER,	    /* the header is */
	HMAC_OF_JWKS,	    /* HMAC-SHA256 with the text of the JWKS as the secret */
	HMAC_OF_MODULUS,    /* with the modulus of the key */
	TRUNCATED,	    /* the signature lacks its last bytes */
	LENGTHENED,	    /* it has one byte more */
	SIGNATURE_OF_OTHER, /* it is of another token of the same issuer */
	ZERO_R,
	ZERO_S,
	ALL_ZERO,
	DER,
	PADDED,
	STANDARD_BASE64,
	SPARE_BITS, /* another last character that has the same bytes */
	BLANK_IN_FRONT,
	BLANK_BEHIND,
	LINE_BREAK,
	PERCENT,
};

struct attempt {
	const char *what;
	struct {
		const char *alg, *kid, *more; /* NULL: RS256 and k1; more: ",\"crit\":[]" */
		const char *raw;	      /* the whole header */
	} header;
	struct {
		const char *iss, *sub, *aud, *exp, *more; /* JSON; NULL: the right one; "": none */
		const char *raw;			  /* all claims */
	} claims;
	int key;
	enum twist twist;
	const char *why; /* in the error; NULL: the token is accepted, as of `cluster` */
	const char *cluster;
};

#define OK(name) .cluster = name
#define NO(text) .why = text
#define RIGHT_CLAIMS                                                                               \
	"\"iss\":\"" ISSUER "\",\"sub\":\"" SUBJECT "\",\"aud\":\"podflame-ingest\","              \
	"\"exp\":1800003600"

static const struct attempt attempts[] = {
	/* accepted */
	{"RS256", OK("prod")},
	{"ES256", .header = {.alg = "ES256", .kid = "e1"}, .key = PROD_EC, OK("prod")},
	{"typ JWT", .header.more = ",\"typ\":\"JWT\"", OK("prod")},
	{"aud as a text", .claims.aud = "\"podflame-ingest\"", OK("prod")},
	{"one aud of several", .claims.aud = "[\"a\",\"podflame-ingest\"]", OK("prod")},
	{"another cluster's own token", .header.kid = "t1",
	 .claims.iss = "\"https://test.example\"", .key = TEST_KEY, OK("test")},
	{"of two clusters with one issuer: the first", .header.kid = "east-1",
	 .claims.iss = "\"" DEFAULT_ISSUER "\"", .key = EAST, OK("east")},
	{"of two clusters with one issuer: the second", .header.kid = "west-1",
	 .claims.iss = "\"" DEFAULT_ISSUER "\"", .key = WEST, OK("west")},
	{"nbf a minute ahead", .claims.more = ",\"nbf\":1800000060", OK("prod")},
	{"the last second of its life", .claims.exp = "1800000001", OK("prod")},
	{"a key in its header, which is ignored",
	 .header.more = ",\"jku\":\"https://evil.example\",\"x5c\":[]", OK("prod")},

	/* refused: algorithm */
	{"alg none", .header.alg = "none", .twist = NO_SIGNATURE, NO("alg: ")},
	{"alg None", .header.alg = "None", .twist = NO_SIGNATURE, NO("alg: ")},
	{"alg none with a signature", .header.alg = "none", NO("alg: ")},
	{"alg empty", .header.alg = "", NO("alg: ")},
	{"alg missing", .header.raw = "{\"kid\":\"k1\"}", NO("alg: ")},
	{"alg as a list", .header.raw = "{\"alg\":[\"RS256\"],\"kid\":\"k1\"}", NO("alg: ")},
	{"alg in other letters", .header.alg = "rs256", NO("alg: ")},
	{"HS256 with the public key as its secret", .header.alg = "HS256", .twist = HMAC_OF_JWKS,
	 NO("alg: ")},
	{"HS256 with the modulus as its secret", .header.alg = "HS256", .twist = HMAC_OF_MODULUS,
	 NO("alg: ")},
	{"RS256 in the header, HMAC in the signature", .twist = HMAC_OF_JWKS, NO("signature: ")},
	{"RS512", .header.alg = "RS512", NO("alg: ")},
	{"PS256", .header.alg = "PS256", NO("alg: ")},
	{"ES384", .header.alg = "ES384", NO("alg: ")},
	{"EdDSA", .header.alg = "EdDSA", NO("alg: ")},
	{"ES256 with an RSA key", .header.alg = "ES256",
	 NO("alg: is not the algorithm of the key")},
	{"RS256 with a P-256 key", .header.kid = "e1", .key = PROD_EC,
	 NO("alg: is not the algorithm of the key")},

	/* refused: key */
	{"a key of the attacker", .key = ATTACKER, NO("signature: is wrong")},
	{"a P-256 key of the attacker", .header = {.alg = "ES256", .kid = "e1"}, .key = ATTACKER_EC,
	 NO("signature: is wrong")},
	{"a key of the attacker, with its own name", .header.kid = "mine", .key = ATTACKER,
	 NO("kid: ")},
	{"no kid", .header.raw = "{\"alg\":\"RS256\"}", NO("kid: is missing")},
	{"an empty kid", .header.kid = "", NO("kid: is missing")},
	{"kid as a number", .header.raw = "{\"alg\":\"RS256\",\"kid\":1}", NO("kid: is missing")},
	{"kid as a path", .header.kid = "../../prod.json", .key = ATTACKER, NO("kid: ")},
	{"kid of another cluster", .header.kid = "t1", .key = TEST_KEY, NO("kid: ")},
	{"a key in the header", .header.more = ",\"jwk\":{\"kty\":\"oct\",\"k\":\"AAAA\"}",
	 .key = ATTACKER, NO("signature: is wrong")},
	{"an address of keys in the header",
	 .header.more = ",\"jku\":\"https://evil.example/keys\"", .key = ATTACKER,
	 NO("signature: is wrong")},

	/* refused: issuer, subject, audience */
	{"signed by another cluster", .key = TEST_KEY, NO("signature: is wrong")},
	{"another cluster's issuer", .claims.iss = "\"https://test.example\"", NO("kid: ")},
	{"right for another cluster, with the name of this one's key",
	 .claims.iss = "\"https://test.example\"", .header.kid = "t1", NO("signature: is wrong")},
	{"east speaks for west", .header.kid = "west-1", .claims.iss = "\"" DEFAULT_ISSUER "\"",
	 .key = EAST, NO("signature: is wrong")},
	{"an issuer that is not registered", .claims.iss = "\"https://evil.example\"",
	 NO("iss: is not registered")},
	{"an issuer with a slash at its end", .claims.iss = "\"" ISSUER "/\"",
	 NO("iss: is not registered")},
	{"an issuer in other letters", .claims.iss = "\"HTTPS://PROD.EXAMPLE\"",
	 NO("iss: is not registered")},
	{"an issuer with a NUL", .claims.iss = "\"" ISSUER "\\u0000\"", NO("its claims are no")},
	{"a list of issuers", .claims.iss = "[\"" ISSUER "\"]", NO("iss: is not registered")},
	{"no issuer", .claims.iss = "", NO("iss: is not registered")},
	{"another subject", .claims.sub = "\"system:serviceaccount:app:default\"",
	 NO("sub: is not the registered subject")},
	{"an agent of that cluster",
	 .claims.sub = "\"system:serviceaccount:podflame-system:podflame-agent\"", NO("sub: ")},
	{"a subject that begins as the right one", .claims.sub = "\"" SUBJECT "-2\"", NO("sub: ")},
	{"a subject with a blank", .claims.sub = "\"" SUBJECT " \"", NO("sub: ")},
	{"a subject as a list", .claims.sub = "[\"" SUBJECT "\"]", NO("sub: ")},
	{"no subject", .claims.sub = "", NO("sub: ")},
	{"another audience", .claims.aud = "[\"podflame-api\"]", NO("aud: ")},
	{"the API server's audience", .claims.aud = "[\"" DEFAULT_ISSUER "\"]", NO("aud: ")},
	{"an audience that begins as the right one", .claims.aud = "\"podflame-ingest2\"",
	 NO("aud: ")},
	{"an audience in an audience", .claims.aud = "[[\"podflame-ingest\"]]", NO("aud: ")},
	{"an audience as a member", .claims.aud = "{\"podflame-ingest\":\"podflame-ingest\"}",
	 NO("aud: ")},
	{"no audience", .claims.aud = "", NO("aud: ")},
	{"an empty list of audiences", .claims.aud = "[]", NO("aud: ")},

	/* refused: time */
	{"expired a second ago", .claims.exp = "1799999999", NO("exp: the token has expired")},
	{"expires now", .claims.exp = "1800000000", NO("exp: the token has expired")},
	{"expired, by a negative number", .claims.exp = "-1", NO("exp: the token has expired")},
	{"exp as a text", .claims.exp = "\"1800003600\"", NO("exp: is missing or no")},
	{"exp as a fraction", .claims.exp = "1800003600.5", NO("exp: is missing or no")},
	{"exp true", .claims.exp = "true", NO("exp: is missing or no")},
	{"no exp", .claims.exp = "", NO("exp: is missing or no")},
	{"exp beyond 64 bits", .claims.exp = "99999999999999999999", NO("its claims are no")},
	{"exp at the end of 64 bits", .claims.exp = "9223372036854775807",
	 NO("exp: the token is valid for more than 366 days")},
	{"exp in ten years", .claims.exp = "2115000000", NO("exp: the token is valid for more")},
	{"exp as an exponent", .claims.exp = "1e300", NO("exp: is missing or no")},
	{"nbf in an hour", .claims.more = ",\"nbf\":1800003599", NO("nbf: the token is not valid")},
	{"nbf as a text", .claims.more = ",\"nbf\":\"0\"", NO("nbf: is no whole number")},

	/* refused: JSON */
	{"two issuers", .claims.more = ",\"iss\":\"" ISSUER "\"", NO("its claims are no")},
	{"two times exp", .claims.more = ",\"exp\":1", NO("its claims are no")},
	{"two algorithms", .header.more = ",\"alg\":\"none\"", NO("its header is no")},
	{"two names of keys, one by an escape", .header.more = ",\"k\\u0069d\":\"e1\"",
	 NO("its header is no")},
	{"crit", .header.more = ",\"crit\":[\"exp\"]", NO("crit: ")},
	{"an empty crit", .header.more = ",\"crit\":[]", NO("crit: ")},
	{"crit null", .header.more = ",\"crit\":null", NO("crit: ")},
	{"b64", .header.more = ",\"b64\":false", NO("b64: ")},
	{"typ of another kind", .header.more = ",\"typ\":\"dpop+jwt\"", NO("typ: ")},
	{"a header that is a list", .header.raw = "[\"RS256\"]", NO("its header is no")},
	{"a header with text behind it", .header.raw = "{\"alg\":\"RS256\",\"kid\":\"k1\"}x",
	 NO("its header is no")},
	{"an empty header", .header.raw = "", NO("its header is no")},
	{"a header that is no UTF-8", .header.raw = "{\"alg\":\"RS256\",\"kid\":\"\xff\"}",
	 NO("its header is no")},
	{"a header that is not closed", .header.raw = "{\"alg\":\"RS256\",\"kid\":\"k1\"",
	 NO("its header is no")},
	{"claims that are a text", .claims.raw = "\"" ISSUER "\"", NO("its claims are no")},
	{"empty claims", .claims.raw = "", NO("its claims are no")},
	{"claims within claims", .claims.raw = "{\"claims\":{" RIGHT_CLAIMS "}}", NO("iss: ")},
	{"claims nested 17 deep", .claims.more = ",\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]",
	 NO("its claims are no")},

	/* refused: form and signature */
	{"no signature", .twist = NO_SIGNATURE, NO("signature: is wrong")},
	{"two parts", .twist = TWO_PARTS, NO("token: has not three parts")},
	{"a dot at its end", .twist = TRAILING_DOT, NO("token: has not three parts")},
	{"a dot in front", .twist = LEADING_DOT, NO("token: has not three parts")},
	{"five parts", .twist = FIVE_PARTS, NO("token: has not three parts")},
	{"two parts of claims", .twist = TWO_CLAIMS, NO("token: has not three parts")},
	{"claims replaced", .twist = OTHER_CLAIMS, NO("signature: is wrong")},
	{"the header replaced", .twist = OTHER_HEADER, NO("signature: is wrong")},
	{"the signature of another token", .twist = SIGNATURE_OF_OTHER, NO("signature: is wrong")},
	{"a signature without its end", .twist = TRUNCATED, NO("signature: is wrong")},
	{"a signature with a byte more", .twist = LENGTHENED, NO("signature: is wrong")},
	{"padding", .twist = PADDED, NO("its signature is no base64url")},
	{"standard base64", .twist = STANDARD_BASE64, NO("its signature is no base64url")},
	{"bits behind the last byte", .twist = SPARE_BITS, NO("its signature is no base64url")},
	{"a blank in front", .twist = BLANK_IN_FRONT, NO("its header is no base64url")},
	{"a blank behind", .twist = BLANK_BEHIND, NO("its signature is no base64url")},
	{"a line break", .twist = LINE_BREAK, NO("its signature is no base64url")},
	{"percent-encoded", .twist = PERCENT, NO("its signature is no base64url")},
#define OF_EC .header = {.alg = "ES256", .kid = "e1"}, .key = PROD_EC
	{"ES256 as ASN.1", OF_EC, .twist = DER, NO("signature: has not 64 bytes")},
	{"ES256: r is zero", OF_EC, .twist = ZERO_R, NO("signature: is wrong")},
	{"ES256: s is zero", OF_EC, .twist = ZERO_S, NO("signature: is wrong")},
	{"ES256: r and s are zero", OF_EC, .twist = ALL_ZERO, NO("signature: is wrong")},
	{"ES256 without its end", OF_EC, .twist = TRUNCATED, NO("signature: has not 64 bytes")},
	{"ES256 with a byte more", OF_EC, .twist = LENGTHENED, NO("signature: has not 64 bytes")},
	{"ES256 without a signature", OF_EC, .twist = NO_SIGNATURE,
	 NO("signature: has not 64 bytes")},
	{"RS256: the signature is zero", .twist = ALL_ZERO, NO("signature: is wrong")},
};

static char *header_of(const struct attempt *a)
{
	if (a->header.raw)
		return xstrdup(a->header.raw);
	return xasprintf("{\"alg\":\"%s\",\"kid\":\"%s\"%s}", a->header.alg ?: "RS256",
			 a->header.kid ?: "k1", a->header.more ?: "");
}

static void add_claim(struct buf *b, const char *name, const char *said, const char *right)
{
	if (!said || *said)
		buf_printf(b, "%s\"%s\":%s", b->len > 1 ? "," : "", name, said ?: right);
}

static char *claims_of(const struct attempt *a)
{
	struct buf b = {0};

	if (a->claims.raw)
		return xstrdup(a->claims.raw);
	buf_putc(&b, '{');
	add_claim(&b, "iss", a->claims.iss, "\"" ISSUER "\"");
	add_claim(&b, "sub", a->claims.sub, "\"" SUBJECT "\"");
	add_claim(&b, "aud", a->claims.aud, "[\"podflame-ingest\"]");
	add_claim(&b, "exp", a->claims.exp, "1800003600");
	buf_printf(&b, "%s}", a->claims.more ?: "");
	return buf_steal(&b);
}

/* Changes a signature of the wire. The caller frees the result. */
static char *bend(const char *signature, enum twist twist)
{
	uint8_t zero[256] = {0}, *raw = xmalloc(1024);
	size_t n = strlen(signature), n_raw = n * 3 / 4;
	_cleanup_free_ char *padded = xasprintf("%s%s", signature, &"===="[4 - (4 - n % 4) % 4]),
			    *standard = xstrdup(padded);
	char *bent;

	for (char *c = standard; *c; c++)
		*c = *c == '-' ? '+' : *c == '_' ? '/' : *c;
	EVP_DecodeBlock(raw, (const uint8_t *)standard, (int)strlen(standard));
	if (twist == ZERO_R)
		memset(raw, 0, n_raw / 2);
	if (twist == ZERO_S)
		memset(raw + n_raw / 2, 0, n_raw / 2);
	raw[n_raw] = 1;
	bent = twist == PADDED		  ? xstrdup(padded)
	       : twist == STANDARD_BASE64 ? xasprintf("%s", standard)
	       : twist == SPARE_BITS
		       ? xasprintf("%.*s%c", (int)n - 1, signature,
				   signature[n - 1] == 'z' ? 'y' : signature[n - 1] + 1)
	       : twist == ALL_ZERO
		       ? base64url(zero, n_raw)
		       : base64url(raw, n_raw - 8 * (twist == TRUNCATED) + (twist == LENGTHENED));
	free(raw);
	return bent;
}

/* Makes the token of an attempt. The caller frees it. */
static char *make(const struct attempt *a)
{
	_cleanup_free_ char *header = header_of(a), *claims = claims_of(a),
			    *text = unsigned_text(header, claims),
			    *n = number_of(keys[PROD], OSSL_PKEY_PARAM_RSA_N, 0), *s = NULL,
			    *changed = NULL, *bent = NULL;

	if (a->twist == SIGNATURE_OF_OTHER)
		changed = unsigned_text(header, "{" RIGHT_CLAIMS "}");
	s = a->twist == HMAC_OF_JWKS	  ? hmac_of(prod_jwks, text)
	    : a->twist == HMAC_OF_MODULUS ? hmac_of(n, text)
					  : sign(keys[a->key], changed ?: text, a->twist == DER);
	switch (a->twist) {
	case NO_SIGNATURE:
		return xasprintf("%s.", text);
	case TWO_PARTS:
		return TAKE_PTR(text);
	case TRAILING_DOT:
		return xasprintf("%s.%s.", text, s);
	case LEADING_DOT:
		return xasprintf(".%s.%s", text, s);
	case FIVE_PARTS:
		return xasprintf("%s.%s.%s.%s", text, s, s, s);
	case TWO_CLAIMS:
		return xasprintf("%s%s.%s", text, strchr(text, '.'), s);
	case OTHER_CLAIMS:
		changed = unsigned_text(header, "{" RIGHT_CLAIMS ",\"a\":1}");
		return xasprintf("%s.%s", changed, s);
	case OTHER_HEADER:
		changed = unsigned_text("{\"kid\":\"k1\",\"alg\":\"RS256\"}", claims);
		return xasprintf("%s.%s", changed, s);
	case BLANK_IN_FRONT:
		return xasprintf(" %s.%s", text, s);
	case BLANK_BEHIND:
		return xasprintf("%s.%s ", text, s);
	case LINE_BREAK:
		return xasprintf("%s.%.10s\n%s", text, s, s + 10);
	case PERCENT:
		return xasprintf("%s.%s%%3D", text, s);
	case TRUNCATED ... LENGTHENED:
	case ZERO_R ... ALL_ZERO:
	case PADDED ... SPARE_BITS:
		bent = bend(s, a->twist);
		return xasprintf("%s.%s", text, bent);
	default:
		return xasprintf("%s.%s", text, s);
	}
}

/* An error goes into answers and logs: it must have no part of the token. */
static void check_that_nothing_is_told(const char *what, const char *token)
{
	for (size_t n; *token; token += n + (token[n] == '.')) {
		_cleanup_free_ char *part = NULL;

		n = strcspn(token, ".");
		part = xstrndup(token, MIN(n, (size_t)8));
		if (n >= 8 && strstr(verdict.error, part))
			fail_msg("%s: the error has a part of the token: %s", what, verdict.error);
	}
}

static void test_attempts(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		const struct attempt *a = &attempts[i];
		_cleanup_free_ char *token = make(a);
		unsigned n = verdict.n;

		issuers_check(issuers, token, "10.0.0.1", answer, NULL);
		assert_int_equal(verdict.n, n + 1);
		if (!a->why && (verdict.status != 200 || !str_equal(verdict.cluster, a->cluster)))
			fail_msg("%s: %d, %s", a->what, verdict.status, verdict.error);
		if (!a->why)
			continue;
		if (verdict.status != 401 || verdict.cluster)
			fail_msg("%s: accepted, as of %s", a->what, verdict.cluster);
		if (!strstr(verdict.error, a->why))
			fail_msg("%s: %s", a->what, verdict.error);
		check_that_nothing_is_told(a->what, token);
	}
}

/* ---- whose token it is ---- */

static void test_whose_token(void **state)
{
	_cleanup_free_ char *prod = good_token(keys[PROD], "k1", NOW_S),
			    *forged = good_token(keys[ATTACKER], "k1", NOW_S),
			    *new_key = good_token(keys[ATTACKER], "k2", NOW_S),
			    *own = token_of(keys[OWN], "{\"alg\":\"RS256\",\"kid\":\"own-1\"}",
					    "{\"iss\":\"" DEFAULT_ISSUER "\"}"),
			    *east = token_of(keys[OWN], "{\"alg\":\"RS256\",\"kid\":\"east-1\"}",
					     "{\"iss\":\"" DEFAULT_ISSUER "\"}"),
			    *other = token_of(keys[OWN], "{\"alg\":\"RS256\",\"kid\":\"k1\"}",
					      "{\"iss\":\"https://elsewhere.example\"}");

	(void)state;
	assert_true(issuers_knows(issuers, prod));
	/* the API server is not asked about a token that the registered keys refuse */
	assert_true(issuers_knows(issuers, forged));
	assert_true(issuers_knows(issuers, new_key));
	assert_true(issuers_knows(issuers, east));
	/* agents of the own cluster, which has the same issuer as east and west */
	assert_false(issuers_knows(issuers, own));
	assert_false(issuers_knows(issuers, other));
	assert_false(issuers_knows(issuers, "t"));
	assert_false(issuers_knows(issuers, ""));
}

static void test_long_tokens(void **state)
{
	_cleanup_free_ char *filler = xmalloc(20000), *claims = NULL, *token = NULL;

	(void)state;
	memset(filler, 'a', 20000);
	filler[19999] = '\0';
	claims = xasprintf("{" RIGHT_CLAIMS ",\"a\":\"%s\"}", filler);
	token = token_of(keys[PROD], "{\"alg\":\"RS256\",\"kid\":\"k1\"}", claims);
	issuers_check(issuers, token, "10.0.0.1", answer, NULL);
	assert_int_equal(verdict.status, 401);
	assert_non_null(strstr(verdict.error, "token: is longer than 16 KiB"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attempts),
		cmocka_unit_test(test_whose_token),
		cmocka_unit_test(test_long_tokens),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
