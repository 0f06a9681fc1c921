// SPDX-License-Identifier: Apache-2.0
/*
 * Makes an SSL_CTX from certificates and keys in memory. Only the certificates of the CA bundle are
 * trusted.
 */
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>

#include "lib/loop/conn.h"

#define MAX_CA_CERTS 4096 /* certificates of one CA file; the largest have a few hundred */
#define MAX_TOLD     64	  /* limit of reported certificates; the counter counts all ignored ones */

#define HTTP11 "\x08http/1.1" /* in the form of ALPN */

static int no_password(char *buf, int n, int rw, void *arg)
{
	(void)buf;
	(void)n;
	(void)rw;
	(void)arg;
	return 0; /* OpenSSL's own function would ask for the password on the terminal */
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

static void x509_freep(X509 **x)
{
	X509_free(*x);
}

/* ---- certificates of a bundle that are ignored ---- */

static struct {
	pthread_mutex_t lock;
	tls_skipped_fn *fn;
	unsigned n;
	uint64_t told[MAX_TOLD];
} skips = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tls_on_skipped(tls_skipped_fn *fn)
{
	skips.fn = fn;
}

/*
 * Returns true if this certificate must be reported: it was not reported yet, and the limit is not
 * reached. A bundle is read again and again, also by several clients.
 */
static bool is_news(uint64_t hash)
{
	bool news = skips.n < MAX_TOLD;

	for (unsigned i = 0; i < skips.n; i++)
		news &= skips.told[i] != hash;
	if (news)
		skips.told[skips.n++] = hash;
	return news;
}

/* what: a hash of the bundle's name and the certificate */
static void tell_skipped(const char *bundle, unsigned nr, const X509 *x, const char *why,
			 uint64_t what)
{
	char subject[256] = "";

	counter_add(counter("tls_ca_skipped_total", NULL, NULL), 1);
	if (x)
		X509_NAME_oneline(X509_get_subject_name(x), subject, sizeof(subject));
	pthread_mutex_lock(&skips.lock);
	if (skips.fn && is_news(what))
		skips.fn(bundle, nr, subject, why);
	pthread_mutex_unlock(&skips.lock);
}

/*
 * Whether OpenSSL's error is that memory ran out (it has a code of its own). The certificate itself
 * may be fine.
 */
static bool lacks_memory(void)
{
	bool lacks = false;
	unsigned long e;

	while ((e = ERR_get_error()))
		lacks |= ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE ||
			 ERR_GET_REASON(e) == ERR_R_INIT_FAIL;
	return lacks;
}

/*
 * Returns why OpenSSL could not read a certificate: the first of its reasons, because the last one
 * is only "nested asn1 error". OpenSSL does not report every time that memory runs out.
 */
static const char *unread_reason(void)
{
	const char *s;

	if (!ERR_peek_error())
		ERR_raise(ERR_LIB_USER, ERR_R_MALLOC_FAILURE);
	s = ERR_reason_error_string(ERR_peek_error());
	return s ?: "unknown";
}

struct pem_block {
	char *name, *header;
	unsigned char *der;
	long n;
};

static void pem_block_done(struct pem_block *b)
{
	OPENSSL_free(b->name);
	OPENSSL_free(b->header);
	OPENSSL_free(b->der);
}

#define PEM_BEGIN "-----BEGIN "
#define PEM_END	  "\n-----END "

/*
 * Returns the next PEM block: the text from the next line that begins a block to the line that
 * begins another one. Each block is parsed by itself, so a block without an end does not hide the
 * next one. NULL: no block is left.
 */
static const char *next_piece(const char *text, size_t *ret_n)
{
	const char *p = text, *end;

	if (!str_has_prefix(p, PEM_BEGIN)) {
		p = strstr(p, "\n" PEM_BEGIN);
		if (!p)
			return NULL;
		p++;
	}
	end = strstr(p, "\n" PEM_BEGIN);
	*ret_n = end ? (size_t)(end + 1 - p) : strlen(p);
	return p;
}

/* Whether the block is a certificate, by its first line: the block may be cut. */
static bool is_certificate(const char *piece, size_t n)
{
	static const char *const labels[] = {PEM_BEGIN PEM_STRING_X509 "-",
					     PEM_BEGIN PEM_STRING_X509_OLD "-"};

	for (size_t i = 0; i < ARRAY_SIZE(labels); i++)
		if (strncmp(piece, labels[i], MIN(n, strlen(labels[i]))) == 0)
			return true;
	return false;
}

static bool is_whole(const char *piece, size_t n)
{
	const char *end = memmem(piece, n, PEM_END, strlen(PEM_END));

	if (!end)
		return false;
	end += strlen(PEM_END);
	return memmem(end, (size_t)(piece + n - end), "-----", 5) != NULL;
}

/*
 * Makes the store trust a certificate. Returns NULL, or the reason why the store does not trust it.
 * In both cases the caller owns *ret; *ret may be NULL. A certificate whose key cannot be decoded
 * is not trusted.
 */
static const char *trust(X509_STORE *store, const struct pem_block *b, X509 **ret)
{
	const unsigned char *p = b->der;

	X509_free(*ret);
	*ret = d2i_X509(NULL, &p, b->n);
	if (!*ret)
		return unread_reason();
	if (!X509_get0_pubkey(*ret))
		return "its key cannot be decoded";
	return X509_STORE_add_cert(store, *ret) ? NULL : unread_reason();
}

/* As trust(), but reads the certificate from the text of a block. */
static const char *trust_piece(X509_STORE *store, const char *piece, size_t n, X509 **ret)
{
	_cleanup_(bio_freep) BIO *b = BIO_new_mem_buf(piece, (int)n);
	_cleanup_(pem_block_done) struct pem_block block = {0};
	const char *why;

	if (!b || !PEM_read_bio(b, &block.name, &block.header, &block.der, &block.n))
		return unread_reason();
	why = trust(store, &block, ret);
	/* if memory runs out, OpenSSL leaves out the key and reports no error: read it again */
	if (why)
		why = trust(store, &block, ret);
	return why;
}

/*
 * Reads each certificate of a bundle by itself, as Go's AppendCertsFromPEM does. It ignores a
 * certificate that it cannot read. So a kind of certificate that this OpenSSL does not know does
 * not disable the others. It refuses a bundle without a readable certificate, and a bundle that
 * ends within a certificate, because the file is still being written.
 */
static int load_ca(SSL_CTX *ctx, const char *pem, const char *name, struct field_error *reterr)
{
	X509_STORE *store = SSL_CTX_get_cert_store(ctx);
	uint64_t name_hash = hash_str(name);
	unsigned n = 0, n_trusted = 0;
	const char *why = NULL, *piece;
	size_t n_bytes = 0;

	for (piece = pem; (piece = next_piece(piece, &n_bytes)); piece += n_bytes) {
		_cleanup_(x509_freep) X509 *x = NULL;

		if (!is_certificate(piece, n_bytes))
			continue;
		if (n++ == MAX_CA_CERTS)
			return field_error_set(reterr, "ca", "has more than %d certificates",
					       MAX_CA_CERTS);
		if (!piece[n_bytes] && !is_whole(piece, n_bytes))
			return field_error_set(reterr, "ca", "ends within certificate %u", n);
		ERR_clear_error();
		why = trust_piece(store, piece, n_bytes, &x);
		n_trusted += !why;
		if (why && lacks_memory())
			return field_error_set(reterr, "ca", "certificate %u: out of memory", n);
		if (why)
			tell_skipped(name, n, x, why, hash_bytes(piece, n_bytes, name_hash));
	}
	if (n == 0)
		return field_error_set(reterr, "ca", "holds no PEM certificate");
	if (n_trusted == 0)
		return field_error_set(reterr, "ca", "no certificate of %u can be read: %s", n,
				       why);
	/* the CA of a cluster may be signed by another CA, which its ca.crt may lack */
	X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
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
	/* the loop must have ended because no certificate was left, not because one is cut */
	ok = ok && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
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

/* Chooses a protocol that the connection offers (struct conn_ops). */
static int select_protocol(SSL *ssl, const unsigned char **out, unsigned char *outlen,
			   const unsigned char *in, unsigned int inlen, void *arg)
{
	const char *offered = SSL_get_app_data(ssl) ?: HTTP11;

	(void)arg;
	if (SSL_select_next_proto((unsigned char **)out, outlen, (const unsigned char *)offered,
				  (unsigned int)strlen(offered), in,
				  inlen) == OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_OK;
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int configure(SSL_CTX *ctx, const struct tls_config *c, bool server,
		     struct field_error *reterr)
{
	bool verify = server ? c->ca_pem != NULL : !c->insecure;
	int r = 0;

	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	/*
	 * HTTP itself shows whether a message is complete, so an end without TLS's alert is no
	 * error
	 */
	SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_verify(
		ctx, verify ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : SSL_VERIFY_NONE,
		NULL);
	if (server)
		SSL_CTX_set_alpn_select_cb(ctx, select_protocol, NULL);
	else
		SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)HTTP11, strlen(HTTP11));
	if (c->ca_pem)
		r = load_ca(ctx, c->ca_pem, c->ca_name && *c->ca_name ? c->ca_name : "ca", reterr);
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
	if (t) {
		assert_se(t->n_refs > 0);
		t->n_refs++;
	}
	return t;
}

struct tls *tls_unref(struct tls *t)
{
	if (!t)
		return NULL;
	assert_se(t->n_refs > 0);
	if (--t->n_refs == 0) {
		SSL_CTX_free(t->ctx);
		free(t);
	}
	return NULL;
}

int tls_set_verified_name(SSL *ssl, const char *host)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
	uint8_t ip[16];

	if (inet_pton(AF_INET, host, ip) == 1 || inet_pton(AF_INET6, host, ip) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(param, host) ? 0 : -EINVAL;
	/* As in Go and kubectl, the common name of a certificate's subject is no host name. */
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
						       X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	if (!*host || !X509_VERIFY_PARAM_set1_host(param, host, 0))
		return -EINVAL;
	return SSL_set_tlsext_host_name(ssl, host) ? 0 : -EINVAL;
}
