/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of http only: a client, and the server of http.h or a scripted one (testserver.h), on a
 * loop of their own.
 */
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/loop/http.h"
#include "lib/loop/testserver.h"

struct fixture {
	struct loop *loop;
	struct timer guard, step;
	struct http_server *server;
	struct http_client *client;
	struct test_server *ts;
	struct tls *server_tls, *client_tls;
	/* results of the last call */
	struct http_call *call;
	int status, n_done, wanted_done, n_heads, head_status;
	char *error, *retry_after;
	struct buf body;
	/* the last request that the server got */
	struct http_conn *held;
	char *in_path, *in_query, *in_method, *in_auth;
	size_t in_bytes;
	uint64_t in_hash;
	int n_in, n_gone;
	bool hold, cancel_in_data;
	bool http2; /* the server also speaks HTTP/2 */
	const char *big;
	size_t n_big;
	uint64_t max_request_ns, max_age_ns;
	http_handler_fn *head;
};

static struct test_ca ca, other_ca;
static struct test_cert local_cert, name_cert, v6_cert, other_cert, client_cert;

static inline int make_certs(void **state)
{
	(void)state;
	test_ca_init(&ca, "ca");
	test_ca_init(&other_ca, "other ca");
	test_cert_init(&local_cert, &ca, "IP:127.0.0.1,DNS:kubernetes.default.svc");
	test_cert_init(&name_cert, &ca, "DNS:somebody.else,DNS:localhost");
	test_cert_init(&v6_cert, &ca, "IP:::1");
	test_cert_init(&other_cert, &other_ca, "IP:127.0.0.1");
	test_cert_init(&client_cert, &ca, "DNS:client");
	return 0;
}

static inline int free_certs(void **state)
{
	(void)state;
	test_ca_done(&ca);
	test_ca_done(&other_ca);
	test_cert_done(&local_cert);
	test_cert_done(&name_cert);
	test_cert_done(&v6_cert);
	test_cert_done(&other_cert);
	test_cert_done(&client_cert);
	return 0;
}

static inline void guard(void *arg)
{
	struct fixture *f = arg;

	loop_stop(f->loop, -ETIMEDOUT);
}

static inline int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	assert_int_equal(loop_new(&f->loop), 0);
	f->wanted_done = 1;
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	http_client_free(f->client);
	http_server_free(f->server);
	ts_stop(f->ts);
	tls_unref(f->server_tls);
	tls_unref(f->client_tls);
	timer_cancel(&f->guard);
	timer_cancel(&f->step);
	loop_free(f->loop);
	buf_done(&f->body);
	free(f->error);
	free(f->retry_after);
	free(f->in_path);
	free(f->in_query);
	free(f->in_method);
	free(f->in_auth);
	free(f);
	return 0;
}

static inline void run(struct fixture *f)
{
	timer_set(f->loop, &f->guard, 30 * NSEC_PER_SEC, guard, f);
	assert_int_equal(loop_run(f->loop), 0);
}

/* ---- the server of http.h ---- */

static inline void set_text(char **p, const char *s)
{
	free(*p);
	*p = xstrdup(s);
}

static inline void gone(void *arg)
{
	struct fixture *f = arg;

	f->n_gone++;
	f->held = NULL;
	loop_stop(f->loop, 0);
}

static inline void handle(struct http_conn *c, const struct http_in *in, void *arg)
{
	static const char *const headers[] = {"Retry-After: 7", NULL};
	struct fixture *f = arg;

	set_text(&f->in_method, in->method);
	set_text(&f->in_path, in->path);
	set_text(&f->in_query, in->query);
	set_text(&f->in_auth, in->authorization);
	f->in_bytes = in->body_bytes;
	f->in_hash = hash_bytes(in->body, in->body_bytes, 0);
	f->n_in++;
	if (f->hold) {
		f->held = c;
		if (streq(in->path, "/watched"))
			http_conn_on_gone(c, gone, f);
	} else if (f->big) {
		http_reply(c, 200, "application/octet-stream", NULL, f->big, f->n_big);
	} else {
		http_reply(c, 200, "text/plain", headers, "hello", 5);
	}
}

static inline void start_server(struct fixture *f, const struct test_cert *cert, size_t max_body,
				unsigned max_connections)
{
	struct tls_config t = {0};
	struct http_server_config c = {.address = "127.0.0.1", .handler = handle, .arg = f};
	struct field_error e = {0};

	if (cert) {
		t.cert_pem = cert->cert_pem;
		t.key_pem = cert->key_pem;
		assert_int_equal(tls_new(&t, true, &f->server_tls, &e), 0);
		c.tls = f->server_tls;
	}
	c.http2 = f->http2;
	c.max_body_bytes = max_body;
	c.max_connections = max_connections;
	c.max_request_ns = f->max_request_ns;
	c.max_age_ns = f->max_age_ns;
	c.head = f->head;
	assert_int_equal(http_server_new(f->loop, &c, &f->server, &e), 0);
}

static inline void make_client(struct fixture *f, const char *address, const char *host,
			       uint16_t port, const char *ca_pem, const struct test_cert *cert)
{
	struct tls_config t = {.ca_pem = ca_pem};
	struct http_client_config c = {.address = address, .host = host, .port = port};
	struct field_error e = {0};

	if (cert) {
		t.cert_pem = cert->cert_pem;
		t.key_pem = cert->key_pem;
	}
	if (ca_pem)
		assert_int_equal(tls_new(&t, false, &f->client_tls, &e), 0);
	c.tls = f->client_tls;
	assert_int_equal(http_client_new(f->loop, &c, &f->client), 0);
}

/* Starts a client and a server without TLS, both of http.h. */
static inline void start_both(struct fixture *f)
{
	start_server(f, NULL, 64 << 20, 0);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), NULL, NULL);
}

/* ---- calls ---- */

static inline void on_head(int status, const struct http_headers *h, void *arg)
{
	struct fixture *f = arg;

	f->n_heads++;
	f->head_status = status;
	set_text(&f->retry_after, http_header(h, "retry-after"));
}

static inline void on_data(const void *p, size_t n, void *arg)
{
	struct fixture *f = arg;

	buf_add(&f->body, p, n);
	if (f->cancel_in_data) {
		http_cancel(f->call);
		loop_stop(f->loop, 0);
	}
}

static inline void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct fixture *f = arg;

	f->status = status;
	set_text(&f->error, error);
	buf_add(&f->body, body, n);
	if (++f->n_done == f->wanted_done)
		loop_stop(f->loop, 0);
}

static inline void start(struct fixture *f, const char *method, const char *path, const void *body,
			 size_t n)
{
	struct http_request r = {.method = method,
				 .path = path,
				 .body = body,
				 .body_bytes = n,
				 .on_head = on_head,
				 .on_done = on_done,
				 .arg = f,
				 .max_body_bytes = 200 << 20};

	buf_reset(&f->body);
	assert_int_equal(http_send(f->client, &r, &f->call), 0);
}

static inline void call(struct fixture *f, const char *method, const char *path, const void *body,
			size_t n)
{
	f->n_done = 0;
	start(f, method, path, body, n);
	assert_int_equal(f->n_done, 0); /* no callback runs inside http_send */
	run(f);
	assert_int_equal(f->n_done, 1);
}

static inline void get(struct fixture *f, const char *path)
{
	call(f, "GET", path, NULL, 0);
}

static inline void assert_text(const char *text, const char *part)
{
	if (!text || !strstr(text, part))
		fail_msg("\"%s\" does not contain \"%s\"", text ?: "(null)", part);
}

static inline char *pattern(size_t n)
{
	char *p = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 131 + (i >> 12));
	return p;
}

static inline void reply_later(void *arg)
{
	struct fixture *f = arg;

	http_reply(TAKE_PTR(f->held), 202, NULL, NULL, "late", 4);
}

/* A client that only sends and receives bytes. The loop stops when the server has closed. */
struct raw {
	struct fixture *f;
	int fd;
	struct watch *watch;
	struct buf got;
	bool eof;
};

_test_util_ void raw_readable(int fd, void *arg)
{
	struct raw *r = arg;
	char piece[4096];
	ssize_t n = recv(fd, piece, sizeof(piece), 0);

	if (n > 0) {
		buf_add(&r->got, piece, (size_t)n);
		return;
	}
	r->eof = true;
	r->watch = watch_free(r->watch);
	loop_stop(r->f->loop, 0);
}
