/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of keys (JWKS, RFC 7517) of an issuer. Only keys with which a token may be signed here are
 * kept: RSA for RS256, and P-256 for ES256.
 */
#include "hub/issuers/internal.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <stdlib.h>

#define MAX_KEYS	  64   /* keys of a JWKS; a larger one is refused */
#define MAX_KID_BYTES	  255  /* bytes of the name of a key */
#define MIN_RSA_BITS	  2048 /* bits of an RSA key; a shorter one is refused */
#define MAX_RSA_BITS	  8192 /* bits of an RSA key: a longer one takes long to check */
#define MAX_EXPONENT_BITS 33   /* bits of its public exponent: 65537 nearly always */
#define P256_BYTES	  32   /* of a coordinate of a point on P-256 */

/* ---- numbers and keys of OpenSSL ---- */

static void bn_freep(BIGNUM **b)
{
	BN_free(*b);
}

static void params_freep(OSSL_PARAM **p)
{
	OSSL_PARAM_free(*p);
}

static void build_freep(OSSL_PARAM_BLD **b)
{
	OSSL_PARAM_BLD_free(*b);
}

static void ctx_freep(EVP_PKEY_CTX **c)
{
	EVP_PKEY_CTX_free(*c);
}

/* Returns NULL if OpenSSL refuses the key. */
static EVP_PKEY *make_key(const char *kind, OSSL_PARAM_BLD *b)
{
	_cleanup_(params_freep) OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(b);
	_cleanup_(ctx_freep) EVP_PKEY_CTX *make = EVP_PKEY_CTX_new_from_name(NULL, kind, NULL),
					  *look = NULL;
	EVP_PKEY *key = NULL;

	if (!params || !make)
		out_of_memory();
	if (EVP_PKEY_fromdata_init(make) <= 0 ||
	    EVP_PKEY_fromdata(make, &key, EVP_PKEY_PUBLIC_KEY, params) <= 0)
		return NULL;
	look = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
	if (look && EVP_PKEY_public_check(look) > 0)
		return key;
	EVP_PKEY_free(key);
	return NULL;
}

/* Gets a member of a JWK that is base64url. The caller frees *ret. */
static int get_bytes(const json_t *jwk, const char *field, uint8_t **ret, size_t *ret_n,
		     struct field_error *reterr)
{
	const json_t *v = json_object_get(jwk, field);

	if (!json_is_string(v))
		return field_error_set(reterr, field, "is missing or no text");
	if (issuers_base64url(json_string_value(v), json_string_length(v), ret, ret_n) < 0)
		return field_error_set(reterr, field, "is no base64url");
	return 0;
}

static int get_number(const json_t *jwk, const char *field, BIGNUM **ret,
		      struct field_error *reterr)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t n;
	int r = get_bytes(jwk, field, &bytes, &n, reterr);

	if (r < 0)
		return r;
	if (n > MAX_RSA_BITS / 8 + 1)
		return field_error_set(reterr, field, "has more than %d bits", MAX_RSA_BITS);
	*ret = BN_bin2bn(bytes, (int)n, NULL);
	if (!*ret)
		out_of_memory();
	return 0;
}

static int make_rsa(const json_t *jwk, EVP_PKEY **ret, struct field_error *reterr)
{
	_cleanup_(build_freep) OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
	_cleanup_(bn_freep) BIGNUM *n = NULL, *e = NULL;
	int r = get_number(jwk, "n", &n, reterr);

	if (r == 0)
		r = get_number(jwk, "e", &e, reterr);
	if (r < 0)
		return r;
	if (BN_num_bits(n) < MIN_RSA_BITS || BN_num_bits(n) > MAX_RSA_BITS)
		return field_error_set(reterr, "n", "has %d bits, not %d to %d", BN_num_bits(n),
				       MIN_RSA_BITS, MAX_RSA_BITS);
	/* with the exponent 1, every text would be its own signature */
	if (!BN_is_odd(e) || BN_is_one(e) || BN_num_bits(e) > MAX_EXPONENT_BITS)
		return field_error_set(reterr, "e", "is no exponent of RSA");
	if (!b || !OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, n) ||
	    !OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, e))
		out_of_memory();
	*ret = make_key("RSA", b);
	return *ret ? 0 : field_error_set(reterr, "n", "is no modulus of RSA");
}

static int make_ec(const json_t *jwk, EVP_PKEY **ret, struct field_error *reterr)
{
	_cleanup_(build_freep) OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
	_cleanup_free_ uint8_t *x = NULL, *y = NULL;
	uint8_t point[1 + 2 * P256_BYTES] = {POINT_CONVERSION_UNCOMPRESSED};
	size_t n_x, n_y;
	int r = get_bytes(jwk, "x", &x, &n_x, reterr);

	if (r == 0)
		r = get_bytes(jwk, "y", &y, &n_y, reterr);
	if (r < 0)
		return r;
	if (n_x != P256_BYTES || n_y != P256_BYTES)
		return field_error_set(reterr, n_x != P256_BYTES ? "x" : "y",
				       "has not the %d bytes of P-256", P256_BYTES);
	memcpy(point + 1, x, n_x);
	memcpy(point + 1 + n_x, y, n_y);
	if (!b || !OSSL_PARAM_BLD_push_utf8_string(b, OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) ||
	    !OSSL_PARAM_BLD_push_octet_string(b, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)))
		out_of_memory();
	*ret = make_key("EC", b);
	return *ret ? 0 : field_error_set(reterr, "x", "is, with y, no point of P-256");
}

/* ---- the set ---- */

/* Whether the member is absent, or has this value. */
static bool is_or_absent(const json_t *jwk, const char *field, const char *value)
{
	const json_t *v = json_object_get(jwk, field);

	return !v || str_equal(json_string_value(v), value);
}

/* *ret_ec: whether it is a key of P-256. Returns false if the hub uses no such keys. */
static bool is_usable(const json_t *jwk, bool *ret_ec)
{
	const char *kind = json_str_at(jwk, "kty", "");

	*ret_ec = streq(kind, "EC");
	if (!*ret_ec && !streq(kind, "RSA"))
		return false;
	if (*ret_ec && !streq(json_str_at(jwk, "crv", ""), "P-256"))
		return false;
	return is_or_absent(jwk, "use", "sig") &&
	       is_or_absent(jwk, "alg", *ret_ec ? "ES256" : "RS256");
}

static int add_key(const json_t *jwk, struct issuers_keys *keys, struct field_error *reterr)
{
	struct issuers_key *k = &keys->keys[keys->n];
	const char *kid = json_str_at(jwk, "kid", "");
	bool is_ec;
	int r;

	if (!json_is_object(jwk))
		return field_error_set(reterr, "kty", "is missing: the key is no object");
	if (!is_usable(jwk, &is_ec))
		return 0;
	if (json_object_get(jwk, "d"))
		return field_error_set(reterr, "d",
				       "makes this a private key; register only the public one");
	if (!*kid || strlen(kid) > MAX_KID_BYTES)
		return field_error_set(reterr, "kid", "is missing, or no text of 1 to %d bytes",
				       MAX_KID_BYTES);
	if (issuers_keys_find(keys, kid))
		return field_error_set(reterr, "kid", "is the one of another key, too");
	r = is_ec ? make_ec(jwk, &k->key, reterr) : make_rsa(jwk, &k->key, reterr);
	if (r < 0)
		return r;
	k->kid = xstrdup(kid);
	k->is_ec = is_ec;
	keys->n++;
	return 0;
}

static int add_keys(const json_t *list, struct issuers_keys *keys, struct field_error *reterr)
{
	struct field_error e = {0};
	const json_t *jwk;
	size_t i;

	json_array_foreach ((json_t *)list, i, jwk) {
		char at[300];

		if (add_key(jwk, keys, &e) == 0)
			continue;
		snprintf(at, sizeof(at), "keys[%zu].%s", i, e.path);
		return field_error_set(reterr, at, "%s", e.reason);
	}
	if (!keys->n)
		return field_error_set(reterr, "keys",
				       "has no RSA key for RS256 and no P-256 key for ES256");
	return 0;
}

int issuers_keys_parse(const char *text, size_t n, struct issuers_keys **ret,
		       struct field_error *reterr)
{
	_cleanup_json_ json_t *root = issuers_json(text, n);
	const json_t *list = json_object_get(root, "keys");
	struct issuers_keys *keys;
	int r;

	if (!root)
		return field_error_set(reterr, "keys", "the text is no JSON");
	if (!json_is_array(list))
		return field_error_set(reterr, "keys", "is missing or no list");
	if (json_array_size(list) > MAX_KEYS)
		return field_error_set(reterr, "keys", "has %zu keys, more than %d",
				       json_array_size(list), MAX_KEYS);
	keys = xcalloc(1, sizeof(*keys) + json_array_size(list) * sizeof(keys->keys[0]));
	r = add_keys(list, keys, reterr);
	ERR_clear_error();
	if (r < 0)
		issuers_keys_free(keys);
	else
		*ret = keys;
	return r;
}

struct issuers_keys *issuers_keys_free(struct issuers_keys *k)
{
	for (size_t i = 0; k && i < k->n; i++) {
		free(k->keys[i].kid);
		EVP_PKEY_free(k->keys[i].key);
	}
	free(k);
	return NULL;
}

const struct issuers_key *issuers_keys_find(const struct issuers_keys *keys, const char *kid)
{
	for (size_t i = 0; keys && i < keys->n; i++)
		if (streq(keys->keys[i].kid, kid))
			return &keys->keys[i];
	return NULL;
}
