/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of issuers only: keys, sets of keys (JWKS) and tokens. Include it after cmocka.h. */
#pragma once

#include "hub/issuers/issuers.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <stdlib.h>

#include "lib/base/testdir.h"

#define ISSUER	"https://prod.example"
#define SUBJECT "system:serviceaccount:podflame-system:podflame-hub"

#define _test_util_ static __attribute__((unused))

/* ---- files ---- */

static char dir[TESTDIR_BYTES];

_test_util_ char *path_of(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

_test_util_ void put(const char *name, const char *text)
{
	_cleanup_free_ char *path = path_of(name);

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

/* ---- keys and tokens ---- */

/* The caller frees the text. */
_test_util_ char *base64url(const void *bytes, size_t n)
{
	char *text = xmalloc((n + 2) / 3 * 4 + 1);

	EVP_EncodeBlock((unsigned char *)text, bytes, (int)n);
	for (char *c = text; *c; c++)
		*c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
	text[strcspn(text, "=")] = '\0';
	return text;
}

_test_util_ char *number_of(const EVP_PKEY *key, const char *param, int n_bytes)
{
	uint8_t bytes[2048];
	BIGNUM *b = NULL;

	assert_int_equal(EVP_PKEY_get_bn_param(key, param, &b), 1);
	n_bytes = n_bytes ? BN_bn2binpad(b, bytes, n_bytes) : BN_bn2bin(b, bytes);
	BN_free(b);
	return base64url(bytes, (size_t)n_bytes);
}

/* One key of a JWKS. The caller frees it. */
_test_util_ char *jwk_of(const EVP_PKEY *key, const char *kid)
{
	bool ec = EVP_PKEY_get_base_id(key) == EVP_PKEY_EC;
	_cleanup_free_ char *a = ec ? number_of(key, OSSL_PKEY_PARAM_EC_PUB_X, 32)
				    : number_of(key, OSSL_PKEY_PARAM_RSA_N, 0),
			    *b = ec ? number_of(key, OSSL_PKEY_PARAM_EC_PUB_Y, 32)
				    : number_of(key, OSSL_PKEY_PARAM_RSA_E, 0);

	return xasprintf(ec ? "{\"use\":\"sig\",\"kty\":\"EC\",\"crv\":\"P-256\",\"alg\":\"ES256\","
			      "\"kid\":\"%s\",\"x\":\"%s\",\"y\":\"%s\"}"
			    : "{\"use\":\"sig\",\"kty\":\"RSA\",\"alg\":\"RS256\","
			      "\"kid\":\"%s\",\"n\":\"%s\",\"e\":\"%s\"}",
			 kid, a, b);
}

/* A JWKS of one or two keys. The caller frees it. */
_test_util_ char *jwks_of(const EVP_PKEY *key, const char *kid, const EVP_PKEY *key2,
			  const char *kid2)
{
	_cleanup_free_ char *one = jwk_of(key, kid), *two = key2 ? jwk_of(key2, kid2) : NULL;

	return xasprintf("{\"keys\":[%s%s%s]}", one, two ? "," : "", two ?: "");
}

/* Signs a text as ES256 does. */
_test_util_ void raw_of(const uint8_t *der, size_t n, uint8_t ret[64])
{
	ECDSA_SIG *s = d2i_ECDSA_SIG(NULL, &der, (long)n);

	assert_non_null(s);
	BN_bn2binpad(ECDSA_SIG_get0_r(s), ret, 32);
	BN_bn2binpad(ECDSA_SIG_get0_s(s), ret + 32, 32);
	ECDSA_SIG_free(s);
}

/* Signs a text with SHA-256. The signature of P-256 is r and s, or, if der is set, ASN.1. */
_test_util_ char *sign(EVP_PKEY *key, const char *text, bool der)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	uint8_t sig[1024], raw[64];
	size_t n = sizeof(sig);

	assert_int_equal(EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key), 1);
	assert_int_equal(EVP_DigestSign(ctx, sig, &n, (const uint8_t *)text, strlen(text)), 1);
	EVP_MD_CTX_free(ctx);
	if (EVP_PKEY_get_base_id(key) != EVP_PKEY_EC || der)
		return base64url(sig, n);
	raw_of(sig, n, raw);
	return base64url(raw, sizeof(raw));
}

/* Signs a text as HS256 does. */
_test_util_ char *hmac_of(const char *secret, const char *text)
{
	uint8_t mac[EVP_MAX_MD_SIZE];
	size_t n;

	assert_non_null(EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, secret, strlen(secret),
				  (const uint8_t *)text, strlen(text), mac, sizeof(mac), &n));
	return base64url(mac, n);
}

/* The first two parts of a token. The caller frees them. */
_test_util_ char *unsigned_text(const char *header, const char *claims)
{
	_cleanup_free_ char *h = base64url(header, strlen(header)),
			    *c = base64url(claims, strlen(claims));

	return xasprintf("%s.%s", h, c);
}

/* The caller frees the token. */
_test_util_ char *token_of(EVP_PKEY *key, const char *header, const char *claims)
{
	_cleanup_free_ char *text = unsigned_text(header, claims), *s = sign(key, text, false);

	return xasprintf("%s.%s", text, s);
}

/* A token of RS256 that is right for the issuer ISSUER for an hour. The caller frees it. */
_test_util_ char *good_token(EVP_PKEY *key, const char *kid, int now_s)
{
	_cleanup_free_ char *header = xasprintf("{\"alg\":\"RS256\",\"kid\":\"%s\"}", kid),
			    *claims = xasprintf("{\"iss\":\"" ISSUER "\",\"sub\":\"" SUBJECT
						"\",\"aud\":[\"podflame-ingest\"],\"exp\":%d}",
						now_s + 3600);

	return token_of(key, header, claims);
}

/* ---- the answer to a check ---- */

static struct {
	int status;
	char *cluster, *error;
	unsigned n;
} verdict;

_test_util_ void answer(int status, const char *cluster, const char *error, void *arg)
{
	(void)arg;
	free(verdict.cluster);
	free(verdict.error);
	verdict.status = status;
	verdict.cluster = xstrdup(cluster);
	verdict.error = xstrdup(error);
	verdict.n++;
}

_test_util_ void answer_done(void)
{
	answer(0, NULL, NULL, NULL);
	verdict.n = 0;
}
