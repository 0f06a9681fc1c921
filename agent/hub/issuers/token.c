/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token (JWT, RFC 7519) in the compact form of RFC 7515, as Kubernetes makes it. Everything that
 * is not needed is refused or ignored: the token chooses neither a key by itself nor an algorithm
 * beside the two, and whatever it has in its header does not change how it is checked.
 */
#include "hub/issuers/internal.h"

#include <openssl/bn.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <strings.h>

#define MAX_TOKEN_BYTES (16 << 10)    /* bytes of a token; a longer one is refused */
#define MAX_JSON_DEPTH	16	      /* levels of the JSON of a token or of a JWKS */
#define LEEWAY_S	60	      /* how far a clock of the issuer may be ahead, for nbf */
#define MAX_LIFE_S	(366 * 86400) /* how long a token may still be valid */
#define ES256_BYTES	64	      /* of a signature: r and s */
#define CLOCKS_APART_S	600 /* how far the clocks of hub and API server may be apart, for exp */

/* ---- texts ---- */

static int digit_of(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

int issuers_base64url(const char *s, size_t n, uint8_t **ret, size_t *ret_n)
{
	_cleanup_free_ uint8_t *bytes = xmalloc(n / 4 * 3 + 3);
	unsigned bits = 0, n_bits = 0;
	size_t n_bytes = 0;

	if (n % 4 == 1)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		int d = digit_of(s[i]);

		if (d < 0)
			return -EINVAL;
		bits = (bits << 6 | (unsigned)d) & 0xfff;
		n_bits += 6;
		if (n_bits < 8)
			continue;
		n_bits -= 8;
		bytes[n_bytes++] = (uint8_t)(bits >> n_bits);
	}
	/* else several texts would be the same bytes */
	if (bits & ((1u << n_bits) - 1))
		return -EINVAL;
	bytes[n_bytes] = '\0';
	*ret = TAKE_PTR(bytes);
	*ret_n = n_bytes;
	return 0;
}

/* Whether the value has at most so many levels. */
static bool is_flat(const json_t *j, int levels)
{
	const char *name;
	json_t *v;
	size_t i;

	if (!json_is_object(j) && !json_is_array(j))
		return true;
	if (!levels)
		return false;
	json_object_foreach ((json_t *)j, name, v)
		if (!is_flat(v, levels - 1))
			return false;
	json_array_foreach ((json_t *)j, i, v)
		if (!is_flat(v, levels - 1))
			return false;
	return true;
}

json_t *issuers_json(const char *text, size_t n)
{
	json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);

	if (j && is_flat(j, MAX_JSON_DEPTH))
		return j;
	json_decref(j);
	return NULL;
}

static const char *text_of(const json_t *object, const char *member)
{
	return json_string_value(json_object_get(object, member)) ?: "";
}

/* ---- the parts ---- */

static json_t *part(const char *s, size_t n)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	json_t *j;
	size_t n_bytes;

	if (issuers_base64url(s, n, &bytes, &n_bytes) < 0)
		return NULL;
	j = issuers_json((const char *)bytes, n_bytes);
	if (json_is_object(j))
		return j;
	json_decref(j);
	return NULL;
}

static int check_header(const json_t *header, struct field_error *reterr)
{
	const json_t *typ = json_object_get(header, "typ");

	if (!streq(text_of(header, "alg"), "RS256") && !streq(text_of(header, "alg"), "ES256"))
		return field_error_set(reterr, "alg", "is neither RS256 nor ES256");
	if (typ && strcasecmp(json_string_value(typ) ?: "", "JWT") != 0)
		return field_error_set(reterr, "typ", "is not JWT");
	if (json_object_get(header, "crit"))
		return field_error_set(reterr, "crit", "the hub knows no extensions of JWT");
	if (json_object_get(header, "b64"))
		return field_error_set(reterr, "b64", "the hub knows no extensions of JWT");
	if (!*text_of(header, "kid"))
		return field_error_set(reterr, "kid", "is missing");
	return 0;
}

int issuers_token_parse(const char *text, struct issuers_token *ret, struct field_error *reterr)
{
	_cleanup_(issuers_token_done) struct issuers_token t = {.text = text};
	size_t n = strnlen(text, MAX_TOKEN_BYTES + 1), n_header = strcspn(text, "."), n_claims;
	int r;

	if (n > MAX_TOKEN_BYTES)
		return field_error_set(reterr, "token", "is longer than %d KiB",
				       MAX_TOKEN_BYTES >> 10);
	n_claims = text[n_header] ? strcspn(text + n_header + 1, ".") : 0;
	t.n_signed = n_header + 1 + n_claims;
	if (!text[n_header] || !text[t.n_signed] || strchr(text + t.n_signed + 1, '.'))
		return field_error_set(reterr, "token", "has not three parts");
	t.header = part(text, n_header);
	if (!t.header)
		return field_error_set(reterr, "token", "its header is no base64url of JSON");
	r = check_header(t.header, reterr);
	if (r < 0)
		return r;
	t.claims = part(text + n_header + 1, n_claims);
	if (!t.claims)
		return field_error_set(reterr, "token", "its claims are no base64url of JSON");
	if (issuers_base64url(text + t.n_signed + 1, n - t.n_signed - 1, &t.signature,
			      &t.n_signature) < 0)
		return field_error_set(reterr, "token", "its signature is no base64url");
	*ret = t;
	t = (struct issuers_token){0};
	return 0;
}

json_t *issuers_token_claims_of(const char *text)
{
	size_t n_header = strcspn(text, "."), n_claims;
	const char *claims = text + n_header + 1;

	if (!text[n_header] || strnlen(text, MAX_TOKEN_BYTES + 1) > MAX_TOKEN_BYTES)
		return NULL;
	n_claims = strcspn(claims, ".");
	if (!claims[n_claims] || strchr(claims + n_claims + 1, '.'))
		return NULL;
	return part(claims, n_claims);
}

void issuers_token_done(struct issuers_token *t)
{
	json_decref(t->header);
	json_decref(t->claims);
	free(t->signature);
	*t = (struct issuers_token){0};
}

const char *issuers_token_kid(const struct issuers_token *t)
{
	return text_of(t->header, "kid");
}

const char *issuers_token_issuer(const struct issuers_token *t)
{
	return text_of(t->claims, "iss");
}

/* ---- the signature ---- */

/* Turns r and s into the form that OpenSSL reads. The caller frees *ret by OPENSSL_free. */
static int der_of(const uint8_t raw[ES256_BYTES], uint8_t **ret)
{
	ECDSA_SIG *sig = ECDSA_SIG_new();
	BIGNUM *r = BN_bin2bn(raw, ES256_BYTES / 2, NULL),
	       *s = BN_bin2bn(raw + ES256_BYTES / 2, ES256_BYTES / 2, NULL);
	int n;

	if (!sig || !r || !s || !ECDSA_SIG_set0(sig, r, s))
		out_of_memory();
	n = i2d_ECDSA_SIG(sig, ret);
	ECDSA_SIG_free(sig);
	if (n < 0)
		out_of_memory();
	return n;
}

static bool is_signed(const struct issuers_token *t, EVP_PKEY *key, const uint8_t *sig, size_t n)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok;

	if (!ctx)
		out_of_memory();
	ok = EVP_DigestVerifyInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
	     EVP_DigestVerify(ctx, sig, n, (const uint8_t *)t->text, t->n_signed) == 1;
	EVP_MD_CTX_free(ctx);
	ERR_clear_error();
	return ok;
}

static bool is_signed_es256(const struct issuers_token *t, EVP_PKEY *key)
{
	uint8_t *der = NULL;
	int n = der_of(t->signature, &der);
	bool ok = is_signed(t, key, der, (size_t)n);

	OPENSSL_free(der);
	return ok;
}

int issuers_token_verify(const struct issuers_token *t, const struct issuers_key *k,
			 struct field_error *reterr)
{
	bool ok;

	if (!streq(text_of(t->header, "alg"), k->is_ec ? "ES256" : "RS256"))
		return field_error_set(reterr, "alg", "is not the algorithm of the key");
	if (k->is_ec && t->n_signature != ES256_BYTES)
		return field_error_set(reterr, "signature", "has not %d bytes", ES256_BYTES);
	ok = k->is_ec ? is_signed_es256(t, k->key)
		      : is_signed(t, k->key, t->signature, t->n_signature);
	return ok ? 0 : field_error_set(reterr, "signature", "is wrong");
}

/* ---- the claims ---- */

static bool is_for(const json_t *aud, const char *audience)
{
	bool found = str_equal(json_string_value(aud), audience);
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)aud, i, item)
		found |= str_equal(json_string_value(item), audience);
	return found;
}

static int check_times(const json_t *claims, struct field_error *reterr)
{
	const json_t *exp = json_object_get(claims, "exp"), *nbf = json_object_get(claims, "nbf");
	json_int_t now = (json_int_t)(now_wall_ns() / NSEC_PER_SEC);

	if (!json_is_integer(exp))
		return field_error_set(reterr, "exp", "is missing or no whole number");
	if (json_integer_value(exp) <= now)
		return field_error_set(reterr, "exp", "the token has expired");
	if (json_integer_value(exp) > now + MAX_LIFE_S)
		return field_error_set(reterr, "exp", "the token is valid for more than %d days",
				       MAX_LIFE_S / 86400);
	if (nbf && !json_is_integer(nbf))
		return field_error_set(reterr, "nbf", "is no whole number");
	if (nbf && json_integer_value(nbf) > now + LEEWAY_S)
		return field_error_set(reterr, "nbf", "the token is not valid yet");
	return 0;
}

int issuers_token_claims(const struct issuers_token *t, const char *issuer, const char *subject,
			 struct field_error *reterr)
{
	if (!streq(text_of(t->claims, "iss"), issuer))
		return field_error_set(reterr, "iss", "is not the registered issuer");
	if (!streq(text_of(t->claims, "sub"), subject))
		return field_error_set(reterr, "sub", "is not the registered subject");
	if (!is_for(json_object_get(t->claims, "aud"), ISSUERS_AUDIENCE))
		return field_error_set(reterr, "aud", "does not have " ISSUERS_AUDIENCE);
	return check_times(t->claims, reterr);
}

/* Kubernetes takes a token without an audience as one for the API server's own. */
static bool is_for_others(const json_t *aud, const char *const *audiences)
{
	if (!json_is_string(aud) && !json_array_size(aud))
		return false;
	for (; *audiences; audiences++)
		if (is_for(aud, *audiences))
			return false;
	return true;
}

const char *issuers_hopeless(const char *token, const char *own_issuer,
			     const char *const *audiences, const char **ret_error)
{
	_cleanup_json_ json_t *claims = issuers_token_claims_of(token);
	const json_t *exp = json_object_get(claims, "exp");
	double now_s = (double)(now_wall_ns() / NSEC_PER_SEC);

	if (json_is_number(exp) && json_number_value(exp) < now_s - CLOCKS_APART_S) {
		*ret_error = "the token has expired";
		return "expired";
	}
	if (own_issuer && streq(text_of(claims, "iss"), own_issuer) &&
	    is_for_others(json_object_get(claims, "aud"), audiences)) {
		*ret_error = "the token is not made for an audience of this hub";
		return "audience";
	}
	return NULL;
}
