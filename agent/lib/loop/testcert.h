/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: a certificate authority and certificates, made in memory when a test runs. */
#pragma once

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include "lib/base/base.h"

#define _test_util_ static __attribute__((unused))

struct test_ca {
	EVP_PKEY *key;
	X509 *cert;
	char *pem;
};

struct test_cert {
	char *cert_pem, *key_pem;
};

_test_util_ char *bio_text(BIO *b)
{
	char *data, *text;
	long n = BIO_get_mem_data(b, &data);

	text = xstrndup(data, (size_t)n);
	BIO_free(b);
	return text;
}

_test_util_ X509 *test_x509(EVP_PKEY *key, const char *cn, long from_s, long to_s)
{
	X509 *x = X509_new();

	X509_set_version(x, 2);
	ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), random_below(1ULL << 62) + 1);
	X509_gmtime_adj(X509_getm_notBefore(x), from_s);
	X509_gmtime_adj(X509_getm_notAfter(x), to_s);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
				   (const unsigned char *)cn, -1, -1, 0);
	X509_set_pubkey(x, key);
	return x;
}

_test_util_ void test_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;

	X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	if (!e || !X509_add_ext(x, e, -1))
		abort();
	X509_EXTENSION_free(e);
}

_test_util_ char *test_cert_pem(X509 *x)
{
	BIO *b = BIO_new(BIO_s_mem());

	PEM_write_bio_X509(b, x);
	return bio_text(b);
}

/* issuer NULL: the CA signs itself */
_test_util_ void test_ca_init_below(struct test_ca *ca, const char *cn,
				    const struct test_ca *issuer)
{
	ca->key = EVP_EC_gen("P-256");
	ca->cert = test_x509(ca->key, cn, -3600, 3600);
	if (!issuer)
		issuer = ca;
	X509_set_issuer_name(ca->cert, X509_get_subject_name(issuer->cert));
	test_extension(ca->cert, issuer->cert, NID_basic_constraints, "critical,CA:TRUE");
	X509_sign(ca->cert, issuer->key, EVP_sha256());
	ca->pem = test_cert_pem(ca->cert);
}

_test_util_ void test_ca_init(struct test_ca *ca, const char *cn)
{
	test_ca_init_below(ca, cn, NULL);
}

_test_util_ void test_ca_done(struct test_ca *ca)
{
	EVP_PKEY_free(ca->key);
	X509_free(ca->cert);
	free(ca->pem);
}

/* san: "DNS:a.example,IP:127.0.0.1". The certificate is valid from now + from_s to now + to_s. */
_test_util_ void test_cert_init_valid(struct test_cert *c, const struct test_ca *ca,
				      const char *san, long from_s, long to_s)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = test_x509(key, "leaf", from_s, to_s);
	BIO *b = BIO_new(BIO_s_mem());

	X509_set_issuer_name(x, X509_get_subject_name(ca->cert));
	test_extension(x, ca->cert, NID_subject_alt_name, san);
	X509_sign(x, ca->key, EVP_sha256());
	c->cert_pem = test_cert_pem(x);
	PEM_write_bio_PrivateKey(b, key, NULL, NULL, 0, NULL, NULL);
	c->key_pem = bio_text(b);
	X509_free(x);
	EVP_PKEY_free(key);
}

_test_util_ void test_cert_init(struct test_cert *c, const struct test_ca *ca, const char *san)
{
	test_cert_init_valid(c, ca, san, -3600, 3600);
}

_test_util_ void test_cert_done(struct test_cert *c)
{
	free(c->cert_pem);
	free(c->key_pem);
}

_test_util_ char *test_pem(const char *name, const unsigned char *der, long n)
{
	BIO *b = BIO_new(BIO_s_mem());

	PEM_write_bio(b, name, "", der, n);
	return bio_text(b);
}

/*
 * Makes a CA, and replaces the last byte of its key's object identifier, so that no program knows
 * the kind of its key.
 */
_test_util_ char *test_ca_patched(const char *cn, const unsigned char *oid, size_t oid_bytes)
{
	struct test_ca ca;
	unsigned char *der = NULL, *at;
	char *pem;
	int n;

	test_ca_init(&ca, cn);
	n = i2d_X509(ca.cert, &der);
	at = memmem(der, (size_t)n, oid, oid_bytes);
	if (!at)
		abort();
	at[oid_bytes - 1] = 0x7f;
	pem = test_pem(PEM_STRING_X509, der, n);
	OPENSSL_free(der);
	test_ca_done(&ca);
	return pem;
}

_test_util_ char *test_ca_of_unknown_curve(const char *cn)
{
	static const unsigned char p256[] = {0x06, 0x08, 0x2a, 0x86, 0x48,
					     0xce, 0x3d, 0x03, 0x01, 0x07};

	return test_ca_patched(cn, p256, sizeof(p256));
}

_test_util_ char *test_ca_of_unknown_algorithm(const char *cn)
{
	static const unsigned char ec_key[] = {0x06, 0x07, 0x2a, 0x86, 0x48,
					       0xce, 0x3d, 0x02, 0x01};

	return test_ca_patched(cn, ec_key, sizeof(ec_key));
}
