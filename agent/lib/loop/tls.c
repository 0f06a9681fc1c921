// SPDX-License-Identifier: Apache-2.0
/*
 * TLS material -> SSL_CTX. Everything comes from memory, the CA bundle is read
 * whole, and nothing but it is trusted.
 */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdlib.h>

#include "lib/loop/conn.h"

#define MAX_CA_CERTS 4096 /* the largest system bundles hold a few hundred */

static int no_password(char *buf, int n, int rw, void *arg)
{
	(void)buf;
	(void)n;
	(void)rw;
	(void)arg;
	return 0; /* the default asks on the terminal */
}

static const char *ssl_reason(void)
{
	const char *s = ERR_reason_error_string(ERR_peek_last_error());

	return s ?: "unknown";
}

static void bio_freep(BIO **b)
{
	BIO_free(*b);
}

/*
 * A certificate whose key could not be decoded is read all the same: nothing it signed would verify. Keys of a kind
 * that OpenSSL does not know are left, as in the bundles of systems.
 */
static bool key_is_missing(X509 *x)
{
	ASN1_OBJECT *kind = NULL;

	if (X509_get0_pubkey(x))
		return false;
	X509_PUBKEY_get0_param(&kind, NULL, NULL, NULL, X509_get_X509_PUBKEY(x));
	return EVP_PKEY_asn1_find(NULL, OBJ_obj2nid(kind)) != NULL;
}

static int load_ca(SSL_CTX *ctx, const char *pem, struct field_error *reterr)
{
	_cleanup_(bio_freep) BIO *b = BIO_new_mem_buf(pem, -1);
	X509_STORE *store = SSL_CTX_get_cert_store(ctx);
	unsigned n = 0;
	X509 *x;

	while (n < MAX_CA_CERTS && (x = PEM_read_bio_X509(b, NULL, no_password, NULL))) {
		int ok = !key_is_missing(x) && X509_STORE_add_cert(store, x);

		X509_free(x);
		if (!ok)
			return field_error_set(reterr, "ca", "certificate %u: %s", n + 1,
					       ssl_reason());
		n++;
	}
	if (n == 0)
		return field_error_set(reterr, "ca", "holds no PEM certificate");
	/* the end of the text looks like an error; a damaged certificate is one */
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return field_error_set(reterr, "ca", "certificate %u: %s", n + 1, ssl_reason());
	return 0;
}

static int load_chain(SSL_CTX *ctx, const char *pem, struct field_error *reterr)
{
	_cleanup_(bio_freep) BIO *b = BIO_new_mem_buf(pem, -1);
	X509 *x = PEM_read_bio_X509(b, NULL, no_password, NULL);
	int ok;

	if (!x)
		return field_error_set(reterr, "certificate", "holds no PEM certificate");
	ok = SSL_CTX_use_certificate(ctx, x);
	X509_free(x);
	while (ok && (x = PEM_read_bio_X509(b, NULL, no_password, NULL)))
		ok = SSL_CTX_add0_chain_cert(ctx, x);
	return ok ? 0 : field_error_set(reterr, "certificate", "%s", ssl_reason());
}

static int load_key(SSL_CTX *ctx, const char *pem, struct field_error *reterr)
{
	_cleanup_(bio_freep) BIO *b = BIO_new_mem_buf(pem, -1);
	EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, no_password, NULL);
	int ok;

	if (!key)
		return field_error_set(reterr, "key", "is no unencrypted PEM private key");
	ok = SSL_CTX_use_PrivateKey(ctx, key);
	EVP_PKEY_free(key);
	if (!ok || !SSL_CTX_check_private_key(ctx))
		return field_error_set(reterr, "key", "does not belong to the certificate: %s",
				       ssl_reason());
	return 0;
}

static int select_http11(SSL *ssl, const unsigned char **out, unsigned char *outlen,
			 const unsigned char *in, unsigned int inlen, void *arg)
{
	static const unsigned char want[] = "\x08http/1.1";

	(void)ssl;
	(void)arg;
	if (SSL_select_next_proto((unsigned char **)out, outlen, want, sizeof(want) - 1, in,
				  inlen) == OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_OK;
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int configure(SSL_CTX *ctx, const struct tls_config *c, bool server,
		     struct field_error *reterr)
{
	static const unsigned char alpn[] = "\x08http/1.1";
	bool verify = server ? c->ca_pem != NULL : !c->insecure;
	int r = 0;

	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	/* HTTP's own framing tells a cut message from a whole one */
	SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_verify(
		ctx, verify ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : SSL_VERIFY_NONE,
		NULL);
	if (server)
		SSL_CTX_set_alpn_select_cb(ctx, select_http11, NULL);
	else
		SSL_CTX_set_alpn_protos(ctx, alpn, sizeof(alpn) - 1);
	if (c->ca_pem)
		r = load_ca(ctx, c->ca_pem, reterr);
	else if (verify)
		SSL_CTX_set_default_verify_paths(ctx);
	if (r == 0 && c->cert_pem)
		r = load_chain(ctx, c->cert_pem, reterr);
	if (r == 0 && c->key_pem)
		r = load_key(ctx, c->key_pem, reterr);
	return r;
}

int tls_new(const struct tls_config *c, bool server, struct tls **ret, struct field_error *reterr)
{
	struct tls *t;
	int r;

	if (!!c->cert_pem != !!c->key_pem)
		return field_error_set(reterr, c->cert_pem ? "key" : "certificate",
				       "is missing, but the %s is given",
				       c->cert_pem ? "certificate" : "key");
	if (server && !c->cert_pem)
		return field_error_set(reterr, "certificate", "a server needs one");
	ERR_clear_error();
	t = xcalloc(1, sizeof(*t));
	t->n_refs = 1;
	t->insecure = c->insecure;
	t->ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
	r = t->ctx ? configure(t->ctx, c, server, reterr) : -ENOMEM;
	ERR_clear_error();
	if (r < 0) {
		tls_unref(t);
		return r;
	}
	*ret = t;
	return 0;
}

struct tls *tls_ref(struct tls *t)
{
	if (t)
		t->n_refs++;
	return t;
}

struct tls *tls_unref(struct tls *t)
{
	if (t && --t->n_refs == 0) {
		SSL_CTX_free(t->ctx);
		free(t);
	}
	return NULL;
}
