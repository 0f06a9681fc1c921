/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server while its system calls fail. Each request that the handler got must end once, by
 * a reply or because the peer left. After the outage, the next request must get a whole answer.
 */
#include "lib/base/fault.h"
#include "lib/loop/conn.h"

#include <setjmp.h>
#include <cmocka.h>
#include <openssl/pem.h>
#include <stdlib.h>

#include "lib/loop/testcert.h"

#define BODY_BYTES   200000 /* more than a socket takes at once */
#define OUTAGE_NS    (5 * NSEC_PER_MSEC)
#define TRY_AGAIN_NS (NSEC_PER_MSEC)
#define DEADLINE_NS  (300 * NSEC_PER_SEC)

static struct test_ca ca;
static struct test_cert cert;
static char sent_up[BODY_BYTES], sent_down[BODY_BYTES];

struct world {
	struct loop *loop;
	struct http_server *server;
	struct http_client *client;
	struct tls *server_tls, *client_tls;
	struct timer outage, again, deadline;
	unsigned n_handled, n_ended, n_sent, n_done;
	bool too_late;
};

/* ---- the server's owner: answers a moment later ---- */

struct asked {
	struct world *w;
	struct http_conn *conn;
	struct timer timer;
};

static void asked_end(struct asked *a)
{
	a->w->n_ended++;
	timer_cancel(&a->timer);
	free(a);
}

static void gone(void *arg)
{
	asked_end(arg);
}

static void reply(void *arg)
{
	struct asked *a = arg;

	http_reply(a->conn, 200, "application/octet-stream", NULL, sent_down, BODY_BYTES);
	asked_end(a);
}

static void handle(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct asked *a = xcalloc(1, sizeof(*a));

	*a = (struct asked){.w = arg, .conn = c};
	a->w->n_handled++;
	assert_int_equal(in->body_bytes, BODY_BYTES);
	assert_memory_equal(in->body, sent_up, BODY_BYTES);
	http_conn_on_gone(c, gone, a);
	timer_set(a->w->loop, &a->timer, 0, reply, a);
}

static void accept_body(struct http_conn *c, const struct http_in *in, void *arg)
{
	(void)in;
	(void)arg;
	http_accept_body(c, BODY_BYTES);
}

/* ---- the client: it asks again until the status is 200 ---- */

static void ask(void *arg);

static void answered(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct world *w = arg;

	w->n_done++;
	if (status == 200) {
		assert_int_equal(n, BODY_BYTES);
		assert_memory_equal(body, sent_down, n);
		loop_stop(w->loop, 0);
		return;
	}
	assert_true(status || error);
	timer_set(w->loop, &w->again, TRY_AGAIN_NS, ask, w);
}

static void ask(void *arg)
{
	struct world *w = arg;
	const struct http_request r = {.method = "POST",
				       .path = "/x",
				       .body = sent_up,
				       .body_bytes = BODY_BYTES,
				       .on_done = answered,
				       .arg = w};
	struct http_call *call;

	if (http_send(w->client, &r, &call) < 0)
		timer_set(w->loop, &w->again, TRY_AGAIN_NS, ask, w);
	else
		w->n_sent++;
}

static void late(void *arg)
{
	struct world *w = arg;

	w->too_late = true;
	loop_stop(w->loop, 0);
}

/* ---- a run ---- */

static int world_make(struct world *w, bool tls)
{
	struct tls_config st = {.cert_pem = cert.cert_pem, .key_pem = cert.key_pem};
	struct tls_config ct = {.ca_pem = ca.pem};
	struct http_server_config sc = {.address = "127.0.0.1",
					.head = accept_body,
					.handler = handle,
					.max_connections = 4,
					.arg = w};
	struct http_client_config cc = {.address = "127.0.0.1"};
	int r = loop_new(&w->loop);

	if (!r && tls)
		r = tls_new(&st, true, &w->server_tls, NULL);
	if (!r && tls)
		r = tls_new(&ct, false, &w->client_tls, NULL);
	sc.tls = w->server_tls;
	cc.tls = w->client_tls;
	if (!r)
		r = http_server_new(w->loop, &sc, &w->server, NULL);
	if (r) {
		assert_null(w->server);
		return r;
	}
	cc.port = http_server_port(w->server);
	return http_client_new(w->loop, &cc, &w->client);
}

static void world_done(struct world *w)
{
	if (w->loop) {
		timer_cancel(&w->outage);
		timer_cancel(&w->again);
		timer_cancel(&w->deadline);
	}
	http_client_free(w->client);
	http_server_free(w->server);
	tls_unref(w->server_tls);
	tls_unref(w->client_tls);
	loop_free(w->loop);
	assert_int_equal(w->n_ended, w->n_handled);
}

static int serve(void *arg)
{
	struct world w = {0};
	int r = world_make(&w, arg != NULL);

	if (!r) {
		timer_set(w.loop, &w.outage, OUTAGE_NS, fault_outage_ends, &w);
		timer_set(w.loop, &w.deadline, DEADLINE_NS, late, &w);
		ask(&w);
		r = loop_run(w.loop);
		assert_false(w.too_late);
		assert_int_equal(w.n_done, w.n_sent);
		assert_true(w.n_handled >= 1);
	}
	world_done(&w);
	return r;
}

#define CONNECTION                                                                                 \
	(FAULT(FD) | FAULT(READ) | FAULT(WRITE) | FAULT(CONNECT) | FAULT(SEND) | FAULT(RECV) |     \
	 FAULT(POLL) | FAULT(EPOLL))

static void test_plain(void **state)
{
	static const struct fault_row row = {
		.name = "http_server", .calls = CONNECTION, .run = serve};

	(void)state;
	fault_each(&row, NULL);
}

static void test_tls(void **state)
{
	static const struct fault_row row = {
		.name = "http_server: TLS", .calls = CONNECTION, .run = serve, .step = 7};

	(void)state;
	fault_each(&row, &cert);
}

static X509 *read_cert(const char *pem)
{
	BIO *b = BIO_new_mem_buf(pem, -1);
	X509 *x = PEM_read_bio_X509(b, NULL, NULL, NULL);

	BIO_free(b);
	assert_non_null(x);
	return x;
}

static int n_certs(const char *pem)
{
	int n = 0;

	while ((pem = strstr(pem, "-----BEGIN "))) {
		n++;
		pem++;
	}
	return n;
}

/*
 * Loads TLS settings. If this succeeds, the settings must work: they have the CA's key and their
 * own, and every certificate of the bundle.
 */
static int context(void *arg)
{
	const struct tls_config c = {
		.ca_pem = arg, .cert_pem = cert.cert_pem, .key_pem = cert.key_pem};
	struct tls *t = NULL;
	int r = tls_new(&c, false, &t, NULL);
	X509_STORE_CTX *verify;
	X509_STORE *store;
	X509 *leaf;

	fault_outage_ends(NULL);
	if (r) {
		assert_null(t);
		return r;
	}
	leaf = read_cert(cert.cert_pem);
	verify = X509_STORE_CTX_new();
	assert_int_equal(X509_STORE_CTX_init(verify, SSL_CTX_get_cert_store(t->ctx), leaf, NULL),
			 1);
	assert_int_equal(X509_verify_cert(verify), 1);
	assert_int_equal(SSL_CTX_check_private_key(t->ctx), 1);
	store = SSL_CTX_get_cert_store(t->ctx);
	assert_int_equal(sk_X509_OBJECT_num(X509_STORE_get0_objects(store)), n_certs(arg));
	X509_STORE_CTX_free(verify);
	X509_free(leaf);
	tls_unref(t);
	return 0;
}

static void test_context(void **state)
{
	static const struct fault_row row = {
		.name = "tls_new", .calls = FAULT(MALLOC), .run = context, .step = 17};

	static struct test_ca other;
	_cleanup_free_ char *bundle = NULL;

	(void)state;
	fault_each(&row, ca.pem);
	/* no certificate of a bundle may be left out because memory ran out */
	test_ca_init(&other, "other");
	bundle = xasprintf("%s%s", ca.pem, other.pem);
	test_ca_done(&other);
	fault_each(&row, bundle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_context),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_tls),
	};
	int r;

	test_ca_init(&ca, "ca");
	test_cert_init(&cert, &ca, "IP:127.0.0.1");
	random_bytes(sent_up, sizeof(sent_up));
	random_bytes(sent_down, sizeof(sent_down));
	r = cmocka_run_group_tests_name("http_faults", tests, NULL, NULL);
	test_cert_done(&cert);
	test_ca_done(&ca);
	return r;
}
