/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and checks certificates with openssl. All keys are EC P-256. */
#include "hub/certs.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#define CA_DAYS	    3650
#define SERVER_DAYS 365
#define RENEW_DAYS  30
#define DAY_S	    86400L
/* a new certificate is valid from this long before now: an agent's clock may be behind */
#define CLOCK_SKEW_S 300L

static void free_key(EVP_PKEY **k)
{
	EVP_PKEY_free(*k);
}

static void free_cert(X509 **c)
{
	X509_free(*c);
}

static void free_bio(BIO **b)
{
	BIO_free(*b);
}

void hub_cert_pair_done(struct cert_pair *c)
{
	free(c->cert_pem);
	free(c->key_pem);
	*c = (struct cert_pair){0};
}

static X509 *read_cert(const char *pem)
{
	_cleanup_(free_bio) BIO *b = BIO_new_mem_buf(pem, -1);

	return PEM_read_bio_X509(b, NULL, NULL, NULL);
}

static EVP_PKEY *read_key(const char *pem)
{
	_cleanup_(free_bio) BIO *b = BIO_new_mem_buf(pem, -1);

	return PEM_read_bio_PrivateKey(b, NULL, NULL, NULL);
}

static char *bio_text(BIO *b)
{
	char *data;
	long n = BIO_get_mem_data(b, &data);

	return xstrndup(data, (size_t)n);
}

static int to_pem(X509 *cert, EVP_PKEY *key, struct cert_pair *ret)
{
	_cleanup_(free_bio) BIO *c = BIO_new(BIO_s_mem());
	_cleanup_(free_bio) BIO *k = BIO_new(BIO_s_mem());

	if (!PEM_write_bio_X509(c, cert) ||
	    !PEM_write_bio_PrivateKey(k, key, NULL, NULL, 0, NULL, NULL))
		return -EIO;
	*ret = (struct cert_pair){bio_text(c), bio_text(k)};
	return 0;
}

static int add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;
	int ok;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	if (!e)
		return -EINVAL;
	ok = X509_add_ext(cert, e, -1);
	X509_EXTENSION_free(e);
	return ok ? 0 : -EIO;
}

static X509 *new_cert(const char *cn, EVP_PKEY *key, uint64_t now_ns, long days)
{
	X509 *c = X509_new();
	time_t now = (time_t)(now_ns / NSEC_PER_SEC);
	uint64_t serial;

	random_bytes(&serial, sizeof(serial));
	X509_set_version(c, X509_VERSION_3);
	ASN1_INTEGER_set_uint64(X509_get_serialNumber(c), serial >> 1);
	X509_time_adj_ex(X509_getm_notBefore(c), 0, -CLOCK_SKEW_S, &now);
	X509_time_adj_ex(X509_getm_notAfter(c), (int)days, 0, &now);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_UTF8,
				   (const uint8_t *)cn, -1, -1, 0);
	X509_set_pubkey(c, key);
	return c;
}

int hub_certs_make_ca(const char *common_name, uint64_t now_wall_ns, struct cert_pair *ret)
{
	_cleanup_(free_key) EVP_PKEY *key = EVP_EC_gen("P-256");
	_cleanup_(free_cert) X509 *cert = NULL;
	int r;

	if (!key)
		return -EIO;
	cert = new_cert(common_name, key, now_wall_ns, CA_DAYS);
	X509_set_issuer_name(cert, X509_get_subject_name(cert));
	r = add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
	if (!r)
		r = add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign");
	if (!r)
		r = add_extension(cert, cert, NID_subject_key_identifier, "hash");
	if (r)
		return r;
	return X509_sign(cert, key, EVP_sha256()) ? to_pem(cert, key, ret) : -EIO;
}

static bool is_ip(const char *name)
{
	uint8_t address[16];

	return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

int hub_certs_make_server(const struct cert_pair *ca, const char *const *names,
			  uint64_t now_wall_ns, struct cert_pair *ret)
{
	_cleanup_(free_key) EVP_PKEY *key = EVP_EC_gen("P-256");
	_cleanup_(free_key) EVP_PKEY *ca_key = read_key(ca->key_pem);
	_cleanup_(free_cert) X509 *ca_cert = read_cert(ca->cert_pem);
	_cleanup_(free_cert) X509 *cert = NULL;
	_cleanup_buf_ struct buf san;
	int r;

	buf_init(&san, 0);
	if (!key || !ca_key || !ca_cert)
		return -EINVAL;
	cert = new_cert(names[0], key, now_wall_ns, SERVER_DAYS);
	X509_set_issuer_name(cert, X509_get_subject_name(ca_cert));
	for (size_t i = 0; names[i]; i++)
		buf_printf(&san, "%s%s:%s", i ? "," : "", is_ip(names[i]) ? "IP" : "DNS", names[i]);
	r = add_extension(cert, ca_cert, NID_basic_constraints, "critical,CA:FALSE");
	if (!r)
		r = add_extension(cert, ca_cert, NID_key_usage, "critical,digitalSignature");
	if (!r)
		r = add_extension(cert, ca_cert, NID_ext_key_usage, "serverAuth");
	if (!r)
		r = add_extension(cert, ca_cert, NID_subject_alt_name, san.data);
	if (!r)
		r = add_extension(cert, ca_cert, NID_authority_key_identifier, "keyid");
	if (r)
		return r;
	return X509_sign(cert, ca_key, EVP_sha256()) ? to_pem(cert, key, ret) : -EIO;
}

static bool names_all(X509 *cert, const char *const *names)
{
	for (; *names; names++) {
		int ok = is_ip(*names) ? X509_check_ip_asc(cert, *names, 0)
				       : X509_check_host(cert, *names, 0, 0, NULL);

		if (ok != 1)
			return false;
	}
	return true;
}

bool hub_certs_usable(const struct cert_pair *server, const char *ca_pem, const char *const *names,
		      uint64_t now_wall_ns)
{
	_cleanup_(free_cert) X509 *cert = read_cert(server->cert_pem);
	_cleanup_(free_cert) X509 *ca = read_cert(ca_pem);
	_cleanup_(free_key) EVP_PKEY *key = read_key(server->key_pem);
	time_t now = (time_t)(now_wall_ns / NSEC_PER_SEC), limit = now + RENEW_DAYS * DAY_S;
	bool ok = cert && ca && key && X509_check_private_key(cert, key) == 1 &&
		  X509_verify(cert, X509_get0_pubkey(ca)) == 1 &&
		  X509_cmp_time(X509_get0_notBefore(cert), &now) < 0 &&
		  X509_cmp_time(X509_get0_notAfter(cert), &limit) > 0 &&
		  X509_cmp_time(X509_get0_notAfter(ca), &limit) > 0 && names_all(cert, names);

	ERR_clear_error();
	return ok;
}
