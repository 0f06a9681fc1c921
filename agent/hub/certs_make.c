/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and checks certificates with openssl. Keys that it makes are EC P-256. */
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

static void free_certs(STACK_OF(X509) * *c)
{
	sk_X509_pop_free(*c, X509_free);
}

static void free_bio(BIO **b)
{
	BIO_free(*b);
}

static void free_store(X509_STORE **s)
{
	X509_STORE_free(*s);
}

static void free_check(X509_STORE_CTX **c)
{
	X509_STORE_CTX_free(*c);
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

/* Reads all certificates of a text; none if one is damaged. */
static STACK_OF(X509) * read_certs(const char *pem)
{
	_cleanup_(free_bio) BIO *b = BIO_new_mem_buf(pem, -1);
	STACK_OF(X509) *all = sk_X509_new_null();
	X509 *c;

	while ((c = PEM_read_bio_X509(b, NULL, NULL, NULL)))
		sk_X509_push(all, c);
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		while ((c = sk_X509_pop(all)))
			X509_free(c);
	ERR_clear_error();
	return all;
}

static EVP_PKEY *read_key(const char *pem)
{
	_cleanup_(free_bio) BIO *b = BIO_new_mem_buf(pem, -1);

	/* a text instead of NULL: openssl would ask for a password on the terminal */
	return PEM_read_bio_PrivateKey(b, NULL, NULL, (void *)"");
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

static bool is_ip(const char *name, int family)
{
	uint8_t address[16];

	return inet_pton(family, name, address) == 1;
}

static bool is_any_ip(const char *name)
{
	return is_ip(name, AF_INET) || is_ip(name, AF_INET6);
}

/* Returns the constraint to names in the form of openssl's configuration. */
static char *constraint(const char *const *names)
{
	char *all = xstrdup("critical");

	for (; *names; names++) {
		_cleanup_free_ char *before = all;

		if (is_ip(*names, AF_INET))
			all = xasprintf("%s,permitted;IP:%s/255.255.255.255", before, *names);
		else if (is_ip(*names, AF_INET6))
			all = xasprintf("%s,permitted;IP:%s/ffff:ffff:ffff:ffff:ffff:ffff:ffff:"
					"ffff",
					before, *names);
		else
			all = xasprintf("%s,permitted;DNS:%s", before, *names);
	}
	return all;
}

int hub_certs_make_ca(const char *common_name, const char *const *names, uint64_t now_wall_ns,
		      struct cert_pair *ret)
{
	_cleanup_free_ char *may = constraint(names);
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
	if (!r)
		r = add_extension(cert, cert, NID_name_constraints, may);
	if (r)
		return r;
	return X509_sign(cert, key, EVP_sha256()) ? to_pem(cert, key, ret) : -EIO;
}

int hub_certs_make_server(const struct cert_pair *ca, const char *const *names,
			  uint64_t now_wall_ns, struct cert_pair *ret)
{
	_cleanup_(free_key) EVP_PKEY *key = EVP_EC_gen("P-256");
	_cleanup_(free_key) EVP_PKEY *ca_key = read_key(ca->key_pem);
	_cleanup_(free_cert) X509 *ca_cert = read_cert(ca->cert_pem);
	_cleanup_(free_cert) X509 *cert = NULL;
	_cleanup_buf_ struct buf san = {0};
	int r;

	ERR_clear_error();
	if (!key || !ca_key || !ca_cert || !names[0])
		return -EINVAL;
	/* not the name of a host: if names has only addresses, clients hold it against the CA's */
	cert = new_cert("podflame hub", key, now_wall_ns, SERVER_DAYS);
	X509_set_issuer_name(cert, X509_get_subject_name(ca_cert));
	for (size_t i = 0; names[i]; i++)
		buf_printf(&san, "%s%s:%s", i ? "," : "", is_any_ip(names[i]) ? "IP" : "DNS",
			   names[i]);
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

static int check_names(X509 *cert, const char *const *names, struct field_error *reterr)
{
	for (; *names; names++) {
		int ok = is_any_ip(*names) ? X509_check_ip_asc(cert, *names, 0)
					   : X509_check_host(cert, *names, 0, 0, NULL);

		if (ok != 1)
			return field_error_set(reterr, "tls.crt", "lacks the name %s", *names);
	}
	return 0;
}

/* Checks a chain as a client does that trusts these CAs. */
static int check_chain(STACK_OF(X509) * chain, STACK_OF(X509) * cas, uint64_t now_ns,
		       struct field_error *reterr)
{
	_cleanup_(free_store) X509_STORE *store = X509_STORE_new();
	_cleanup_(free_check) X509_STORE_CTX *check = X509_STORE_CTX_new();

	for (int i = 0; i < sk_X509_num(cas); i++)
		X509_STORE_add_cert(store, sk_X509_value(cas, i));
	if (!X509_STORE_CTX_init(check, store, sk_X509_value(chain, 0), chain))
		return -ENOMEM;
	X509_STORE_CTX_set_flags(check, X509_V_FLAG_PARTIAL_CHAIN); /* as lib/loop/tls.c */
	X509_STORE_CTX_set_time(check, 0, (time_t)(now_ns / NSEC_PER_SEC));
	X509_STORE_CTX_set_purpose(check, X509_PURPOSE_SSL_SERVER);
	if (X509_verify_cert(check) == 1)
		return 0;
	return field_error_set(reterr, "tls.crt", "clients that trust ca.crt refuse it: %s",
			       X509_verify_cert_error_string(X509_STORE_CTX_get_error(check)));
}

int hub_certs_check(const struct cert_pair *server, const char *ca_pem, const char *const *names,
		    uint64_t now_wall_ns, struct field_error *reterr)
{
	_cleanup_(free_certs) STACK_OF(X509) *chain = read_certs(server->cert_pem ?: "");
	_cleanup_(free_certs) STACK_OF(X509) *cas = read_certs(ca_pem ?: "");
	_cleanup_(free_key) EVP_PKEY *key = read_key(server->key_pem ?: "");
	int r;

	if (sk_X509_num(chain) == 0)
		r = field_error_set(reterr, "tls.crt", "holds no PEM certificate");
	else if (sk_X509_num(cas) == 0)
		r = field_error_set(reterr, "ca.crt", "holds no PEM certificate");
	else if (strstr(ca_pem, "PRIVATE KEY"))
		r = field_error_set(reterr, "ca.crt",
				    "holds a private key, which agents would get");
	else if (!key || X509_check_private_key(sk_X509_value(chain, 0), key) != 1)
		r = field_error_set(reterr, "tls.key", "is not the PEM key of tls.crt");
	else
		r = check_names(sk_X509_value(chain, 0), names, reterr);
	if (!r)
		r = check_chain(chain, cas, now_wall_ns, reterr);
	ERR_clear_error();
	return r;
}

static int64_t unix_s(const ASN1_TIME *t)
{
	struct tm tm;

	return ASN1_TIME_to_tm(t, &tm) ? (int64_t)timegm(&tm) : 0;
}

int hub_certs_facts(const char *pem, struct cert_facts *ret)
{
	_cleanup_(free_cert) X509 *cert = read_cert(pem ?: "");

	ERR_clear_error();
	if (!cert)
		return -EINVAL;
	*ret = (struct cert_facts){
		.constrained = X509_get_ext_by_NID(cert, NID_name_constraints, -1) >= 0,
		.made_s = unix_s(X509_get0_notBefore(cert)) + CLOCK_SKEW_S,
		.ends_s = unix_s(X509_get0_notAfter(cert)),
	};
	return 0;
}

bool hub_certs_usable(const struct cert_pair *server, const char *ca_pem, const char *const *names,
		      uint64_t now_wall_ns)
{
	int64_t limit = (int64_t)(now_wall_ns / NSEC_PER_SEC) + RENEW_DAYS * DAY_S;
	struct cert_facts s, ca;

	return !hub_certs_check(server, ca_pem, names, now_wall_ns, NULL) &&
	       !hub_certs_facts(server->cert_pem, &s) && !hub_certs_facts(ca_pem, &ca) &&
	       s.ends_s > limit && ca.ends_s > limit;
}
