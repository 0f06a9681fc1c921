// SPDX-License-Identifier: Apache-2.0
/* The client against servers that behave and servers that do not, over real sockets. */
#include <dirent.h>
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
	/* of the last call */
	struct http_call *call;
	int status, n_done, wanted_done, n_heads, head_status;
	char *error, *retry_after;
	struct buf body;
	/* of the last request that the server saw */
	struct http_conn *held;
	char *in_path, *in_query, *in_method, *in_auth;
	size_t in_bytes;
	uint64_t in_hash;
	int n_in, n_gone;
	bool hold, cancel_in_data;
	const char *big;
	size_t n_big;
	uint64_t max_request_ns;
	http_handler_fn *head;
};

static struct test_ca ca, other_ca;
static struct test_cert local_cert, name_cert, v6_cert, other_cert, client_cert;

static int make_certs(void **state)
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

static int free_certs(void **state)
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

static void guard(void *arg)
{
	struct fixture *f = arg;

	loop_stop(f->loop, -ETIMEDOUT);
}

static int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	assert_int_equal(loop_new(&f->loop), 0);
	f->wanted_done = 1;
	*state = f;
	return 0;
}

static int teardown(void **state)
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

static void run(struct fixture *f)
{
	timer_set(f->loop, &f->guard, 30 * NSEC_PER_SEC, guard, f);
	assert_int_equal(loop_run(f->loop), 0);
}

/* ---- our server ---- */

static void set_text(char **p, const char *s)
{
	free(*p);
	*p = xstrdup(s);
}

static void gone(void *arg)
{
	struct fixture *f = arg;

	f->n_gone++;
	f->held = NULL;
	loop_stop(f->loop, 0);
}

static void handle(struct http_conn *c, const struct http_in *in, void *arg)
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

static void start_server(struct fixture *f, const struct test_cert *cert, size_t max_body,
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
	c.max_body_bytes = max_body;
	c.max_connections = max_connections;
	c.max_request_ns = f->max_request_ns;
	c.head = f->head;
	assert_int_equal(http_server_new(f->loop, &c, &f->server, &e), 0);
}

static void make_client(struct fixture *f, const char *address, const char *host, uint16_t port,
			const char *ca_pem, const struct test_cert *cert)
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

/* Plain client and server of ours. */
static void start_both(struct fixture *f)
{
	start_server(f, NULL, 64 << 20, 0);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), NULL, NULL);
}

/* ---- calls ---- */

static void on_head(int status, const struct http_headers *h, void *arg)
{
	struct fixture *f = arg;

	f->n_heads++;
	f->head_status = status;
	set_text(&f->retry_after, http_header(h, "retry-after"));
}

static void on_data(const void *p, size_t n, void *arg)
{
	struct fixture *f = arg;

	buf_add(&f->body, p, n);
	if (f->cancel_in_data) {
		http_cancel(f->call);
		loop_stop(f->loop, 0);
	}
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct fixture *f = arg;

	f->status = status;
	set_text(&f->error, error);
	buf_add(&f->body, body, n);
	if (++f->n_done == f->wanted_done)
		loop_stop(f->loop, 0);
}

static void start(struct fixture *f, const char *method, const char *path, const void *body,
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

static void call(struct fixture *f, const char *method, const char *path, const void *body,
		 size_t n)
{
	f->n_done = 0;
	start(f, method, path, body, n);
	assert_int_equal(f->n_done, 0); /* never inside http_send */
	run(f);
	assert_int_equal(f->n_done, 1);
}

static void get(struct fixture *f, const char *path)
{
	call(f, "GET", path, NULL, 0);
}

static void assert_text(const char *text, const char *part)
{
	if (!text || !strstr(text, part))
		fail_msg("\"%s\" does not contain \"%s\"", text ?: "(null)", part);
}

/* ---- client and server of ours ---- */

static void plain_get(void **state)
{
	struct fixture *f = *state;

	start_both(f);
	get(f, "/a%20b%2Fc?x=1&y=a%26b+c");
	assert_int_equal(f->status, 200);
	assert_null(f->error);
	assert_string_equal(f->body.data, "hello");
	assert_string_equal(f->in_path, "/a b/c");
	assert_string_equal(f->in_query, "x=1&y=a%26b+c"); /* raw */
	assert_string_equal(f->retry_after, "7");
	assert_int_equal(f->n_heads, 1);
}

static void head_has_no_body(void **state)
{
	struct fixture *f = *state;

	start_both(f);
	call(f, "HEAD", "/", NULL, 0);
	assert_int_equal(f->status, 200);
	assert_int_equal(f->body.len, 0);
	get(f, "/"); /* the connection is in step */
	assert_string_equal(f->body.data, "hello");
}

static void many_calls_at_once(void **state)
{
	struct fixture *f = *state;

	start_both(f);
	f->wanted_done = 100;
	for (int i = 0; i < 100; i++)
		start(f, "GET", "/", NULL, 0);
	run(f);
	assert_int_equal(f->n_done, 100);
	assert_int_equal(f->n_in, 100);
	assert_int_equal(f->status, 200);
}

static char *pattern(size_t n)
{
	char *p = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 131 + (i >> 12));
	return p;
}

static void big_body_up(void **state)
{
	struct fixture *f = *state;
	size_t n = 32 << 20;
	_cleanup_free_ char *p = pattern(n);

	start_both(f);
	call(f, "POST", "/up", p, n);
	assert_int_equal(f->status, 200);
	assert_int_equal(f->in_bytes, n);
	assert_true(f->in_hash == hash_bytes(p, n, 0));
}

static void big_body_down(void **state)
{
	struct fixture *f = *state;
	size_t n = 120 << 20;
	_cleanup_free_ char *p = pattern(n);

	start_both(f);
	f->big = p;
	f->n_big = n;
	get(f, "/");
	assert_int_equal(f->status, 200);
	assert_int_equal(f->body.len, n);
	assert_memory_equal(f->body.data, p, n);
}

static void big_bodies_over_tls(void **state)
{
	struct fixture *f = *state;
	size_t n = 20 << 20;
	_cleanup_free_ char *p = pattern(n);

	start_server(f, &local_cert, 32 << 20, 0);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), ca.pem, NULL);
	f->big = p;
	f->n_big = n;
	call(f, "PUT", "/", p, n);
	assert_int_equal(f->status, 200);
	assert_true(f->in_hash == hash_bytes(p, n, 0));
	assert_int_equal(f->body.len, n);
	assert_memory_equal(f->body.data, p, n);
}

static void too_large_a_body_gets_413(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *p = pattern(8 << 20);

	start_server(f, NULL, 1000, 0);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), NULL, NULL);
	call(f, "POST", "/", p, 8 << 20);
	assert_int_equal(f->status, 413);
	assert_text(f->body.data, "larger than the limit");
	assert_int_equal(f->n_in, 0);
	call(f, "POST", "/", p, 1000);
	assert_int_equal(f->status, 200);
}

static void bearer_token_of_16k(void **state)
{
	struct fixture *f = *state;
	char line[16500] = "Authorization: Bearer ";
	const char *headers[] = {line, NULL};
	struct http_request r = {
		.method = "GET", .path = "/", .headers = headers, .on_done = on_done, .arg = f};

	memset(line + strlen(line), 'x', 16000);
	start_server(f, &local_cert, 0, 0);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), ca.pem, NULL);
	assert_int_equal(http_send(f->client, &r, NULL), 0);
	run(f);
	assert_int_equal(f->status, 200);
	assert_string_equal(f->in_auth, line + strlen("Authorization: "));
}

static void reply_later(void *arg)
{
	struct fixture *f = arg;

	http_reply(TAKE_PTR(f->held), 202, NULL, NULL, "late", 4);
}

static void deferred_reply(void **state)
{
	struct fixture *f = *state;

	start_both(f);
	f->hold = true;
	timer_set(f->loop, &f->step, 50 * NSEC_PER_MSEC, reply_later, f);
	get(f, "/");
	assert_int_equal(f->status, 202);
	assert_string_equal(f->body.data, "late");
}

static void cancel_step(void *arg)
{
	struct fixture *f = arg;

	if (!f->held) { /* not there yet */
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, cancel_step, f);
		return;
	}
	http_cancel(f->call);
}

static void cancelled_call_makes_the_handler_see_gone(void **state)
{
	struct fixture *f = *state;

	start_both(f);
	f->hold = true;
	start(f, "GET", "/watched", NULL, 0);
	timer_set(f->loop, &f->step, 0, cancel_step, f);
	run(f);
	assert_int_equal(f->n_gone, 1);
	assert_int_equal(f->n_done, 0);
}

static void reply_and_stop(void *arg)
{
	struct fixture *f = arg;

	http_reply(TAKE_PTR(f->held), 200, NULL, NULL, "to nobody", 9);
	loop_stop(f->loop, 0);
}

static void cancel_then_reply(void *arg)
{
	struct fixture *f = arg;

	cancel_step(f);
	if (f->held)
		timer_set(f->loop, &f->step, 20 * NSEC_PER_MSEC, reply_and_stop, f);
}

static void reply_to_a_client_that_left_is_harmless(void **state)
{
	struct fixture *f = *state;

	start_both(f);
	f->hold = true;
	start(f, "GET", "/", NULL, 0);
	while (!f->held) {
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
		loop_run(f->loop);
	}
	timer_set(f->loop, &f->step, 0, cancel_then_reply, f);
	run(f);
	assert_null(f->held);
	assert_int_equal(f->n_done, 0);
}

static void held_reply_survives_the_server(void **state)
{
	struct fixture *f = *state;

	start_both(f);
	f->hold = true;
	start(f, "GET", "/", NULL, 0);
	while (!f->held) {
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
		loop_run(f->loop);
	}
	f->server = http_server_free(f->server);
	http_reply(f->held, 200, NULL, NULL, "", 0);
	run(f);
	assert_int_equal(f->status, 0);
	assert_text(f->error, "closed");
}

static void connections_are_bounded(void **state)
{
	struct fixture *f = *state;
	struct counter *refused = counter("http_refused_total", "reason", "too_many_connections");
	uint64_t before = counter_get(refused);

	start_server(f, NULL, 0, 1);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), NULL, NULL);
	f->hold = true;
	f->wanted_done = 1;
	start(f, "GET", "/first", NULL, 0);
	while (!f->held) {
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
		loop_run(f->loop);
	}
	start(f, "GET", "/second", NULL, 0);
	run(f);
	assert_int_equal(f->status, 503);
	assert_true(counter_get(refused) > before);
	f->wanted_done = 2;
	http_reply(TAKE_PTR(f->held), 200, NULL, NULL, "", 0);
	run(f);
	assert_int_equal(f->status, 200);
}

static void server_certificate_rotates(void **state)
{
	struct fixture *f = *state;
	struct tls_config t = {.cert_pem = other_cert.cert_pem, .key_pem = other_cert.key_pem};
	struct tls *next;
	struct field_error e;

	start_server(f, &local_cert, 0, 0);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), ca.pem, NULL);
	get(f, "/");
	assert_int_equal(f->status, 200);
	assert_int_equal(tls_new(&t, true, &next, &e), 0);
	http_server_set_tls(f->server, next);
	tls_unref(next);
	http_client_set_tls(f->client, f->client_tls); /* drops the kept connection */
	get(f, "/");
	assert_int_equal(f->status, 0);
	assert_text(f->error, "certificate");
	/* and the client's CA follows */
	t = (struct tls_config){.ca_pem = other_ca.pem};
	assert_int_equal(tls_new(&t, false, &next, &e), 0);
	http_client_set_tls(f->client, next);
	tls_unref(next);
	get(f, "/");
	assert_int_equal(f->status, 200);
}

static void change_trust_and_reply(void *arg)
{
	struct fixture *f = arg;
	struct tls_config t = {.ca_pem = other_ca.pem};
	struct field_error e;
	struct tls *next;

	if (!f->held) { /* not there yet */
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, change_trust_and_reply, f);
		return;
	}
	assert_int_equal(tls_new(&t, false, &next, &e), 0);
	http_client_set_tls(f->client, next);
	tls_unref(next);
	reply_later(f);
}

static void trust_changes_while_a_request_is_answered(void **state)
{
	struct fixture *f = *state;

	start_server(f, &local_cert, 0, 0);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), ca.pem, NULL);
	f->hold = true;
	timer_set(f->loop, &f->step, 0, change_trust_and_reply, f);
	get(f, "/");
	assert_int_equal(f->status, 202);
	f->hold = false;
	get(f, "/"); /* not on the connection of before */
	assert_int_equal(f->status, 0);
	assert_text(f->error, "certificate");
}

/* ---- raw requests to our server ---- */

static int raw_connect(uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

struct raw {
	struct fixture *f;
	int fd;
	struct watch *watch;
	struct buf got;
	bool eof;
};

static void raw_readable(int fd, void *arg)
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

/* Sends the text and gives back all that the server says until it hangs up. */
static char *raw_talk(struct fixture *f, const char *text, size_t n, bool half_close)
{
	struct raw r = {.f = f, .fd = raw_connect(http_server_port(f->server))};

	assert_int_equal(send(r.fd, text, n, 0), n);
	if (half_close)
		shutdown(r.fd, SHUT_WR);
	assert_int_equal(watch_new(f->loop, r.fd, raw_readable, &r, &r.watch), 0);
	run(f);
	close(r.fd);
	return buf_steal(&r.got);
}

static const char half_open[] = "GET / HTTP/1.1\r\nHost: a\r\nX-Half: ";

/* Whoever only holds connections open shuts nobody out. */
static void half_open_requests_make_room(void **state)
{
	struct fixture *f = *state;
	struct counter *made = counter("http_refused_total", "reason", "made_room");
	uint64_t before = counter_get(made);
	int fds[8];
	char byte;

	start_server(f, NULL, 0, ARRAY_SIZE(fds));
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), NULL, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = raw_connect(http_server_port(f->server));
		assert_int_equal(send(fds[i], half_open, strlen(half_open), 0), strlen(half_open));
	}
	get(f, "/");
	assert_int_equal(f->status, 200);
	assert_int_equal(counter_get(made), before + 1);
	/* it was the oldest that had to go, and no other */
	assert_true(recv(fds[0], &byte, 1, 0) <= 0);
	for (size_t i = 1; i < ARRAY_SIZE(fds); i++)
		assert_int_equal(recv(fds[i], &byte, 1, MSG_DONTWAIT), -1);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

static void idle_connections_make_room(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;
	static const char text[] = "GET /new HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

	start_server(f, NULL, 0, 1);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), NULL, NULL);
	get(f, "/kept");
	got = raw_talk(f, text, strlen(text), false);
	assert_text(got, "HTTP/1.1 200");
	get(f, "/kept"); /* the client sees nothing of it */
	assert_int_equal(f->status, 200);
}

static void slow_body_gets_408(void **state)
{
	static const char text[] = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc";
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;

	f->max_request_ns = NSEC_PER_MSEC;
	start_server(f, NULL, 0, 0);
	got = raw_talk(f, text, strlen(text), false);
	assert_text(got, "HTTP/1.1 408");
	assert_int_equal(f->n_in, 0);
}

static void bad_requests_get_their_status(void **state)
{
	static const struct {
		const char *request;
		const char *answer;
	} table[] = {
		{"GARBAGE\r\n\r\n", "HTTP/1.1 400"},
		{"GET /\r\n\r\n", "HTTP/1.1 400"},
		{"GET / HTTP/2.0\r\nHost: x\r\n\r\n", "HTTP/1.1 505"},
		{"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
		{"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "HTTP/1.1 400"},
		{"GET / HTTP/1.1\r\nHost: a\r\nX y: b\r\n\r\n", "HTTP/1.1 400"},
		{"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", "HTTP/1.1 400"},
		{"GET / HTTP/1.1\nHost: a\r\n\r\n", "HTTP/1.1 400"},
		{"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400"},
		{"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400"},
		{"GET relative HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x10\r\n\r\n", "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		 "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
		 "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: "
		 "1\r\n\r\n",
		 "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		 "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
		 "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", "HTTP/1.1 413"},
	};
	struct fixture *f = *state;

	start_server(f, NULL, 1000, 0);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_free_ char *got =
			raw_talk(f, table[i].request, strlen(table[i].request), false);

		if (!str_has_prefix(got, table[i].answer))
			fail_msg("%s -> %s", table[i].request, got);
		assert_text(got, "{\"error\":");
	}
	assert_int_equal(f->n_in, 0);
}

static void too_large_a_head_gets_431(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = xmalloc(70000);
	_cleanup_free_ char *got = NULL;

	start_server(f, NULL, 0, 0);
	memset(text, 'x', 70000);
	memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
	got = raw_talk(f, text, 70000, false);
	assert_text(got, "HTTP/1.1 431");
}

static void chunked_request_body_is_decoded(void **state)
{
	static const char text[] =
		"POST /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: "
		"chunked\r\n\r\n"
		"3;ext=\"1\"\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;

	start_server(f, NULL, 0, 0);
	got = raw_talk(f, text, strlen(text), false);
	assert_text(got, "HTTP/1.1 200");
	assert_int_equal(f->in_bytes, 13);
	assert_true(f->in_hash == hash_bytes("abc0123456789", 13, 0));
}

static void chunked_request_above_the_limit_gets_413(void **state)
{
	static const char text[] =
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
		"8\r\n01234567\r\n8\r\n01234567\r\n0\r\n\r\n";
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;

	start_server(f, NULL, 10, 0);
	got = raw_talk(f, text, strlen(text), false);
	assert_text(got, "HTTP/1.1 413");
	assert_int_equal(f->n_in, 0);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
	static const char text[] =
		"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
		"GET /3 HTTP/1.0\r\n\r\n";
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;

	start_server(f, NULL, 0, 0);
	got = raw_talk(f, text, strlen(text), false);
	assert_int_equal(f->n_in, 3);
	assert_string_equal(f->in_path, "/3");
	assert_text(got, "hello");
}

static void half_closed_client_still_gets_its_answer(void **state)
{
	static const char text[] = "GET /half HTTP/1.1\r\nHost: a\r\n\r\n";
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;

	start_server(f, NULL, 0, 0);
	f->hold = true;
	timer_set(f->loop, &f->step, 50 * NSEC_PER_MSEC, reply_later, f);
	got = raw_talk(f, text, strlen(text), true);
	assert_text(got, "late");
}

static void cut_request_is_dropped(void **state)
{
	static const char text[] = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc";
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;

	start_server(f, NULL, 0, 0);
	got = raw_talk(f, text, strlen(text), true);
	assert_string_equal(got, "");
	assert_int_equal(f->n_in, 0);
}

static void expect_100_continue(void **state)
{
	static const char text[] = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
				   "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc";
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;

	start_server(f, NULL, 0, 0);
	got = raw_talk(f, text, strlen(text), false);
	assert_true(str_has_prefix(got, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"));
}

/* ---- who asks before a body comes ---- */

#define LARGE (8 << 20)

static void accept_later(void *arg)
{
	struct fixture *f = arg;

	http_accept_body(TAKE_PTR(f->held), LARGE);
}

/* "/now", "/later": a large body; "/no": none; "/never": until the test says; else a small one. */
static void judge_head(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct fixture *f = arg;

	assert_int_equal(in->body_bytes, 0);
	f->n_heads++;
	f->held = c;
	if (streq(in->path, "/now"))
		accept_later(f);
	else if (streq(in->path, "/later"))
		timer_set(f->loop, &f->step, 20 * NSEC_PER_MSEC, accept_later, f);
	else if (streq(in->path, "/no"))
		http_reply(c, 403, "text/plain", NULL, "not you", 7);
	else if (!streq(in->path, "/never"))
		http_accept_body(c, 1000);
}

static void start_with_head(struct fixture *f)
{
	f->head = judge_head;
	start_server(f, NULL, 0, 0);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), NULL, NULL);
}

static void a_head_decides_how_large_the_body_may_be(void **state)
{
	static const char *const large[] = {"/now", "/later"};
	struct fixture *f = *state;
	_cleanup_free_ char *p = pattern(LARGE);

	start_with_head(f);
	for (size_t i = 0; i < ARRAY_SIZE(large); i++) {
		call(f, "PUT", large[i], p, LARGE);
		assert_int_equal(f->status, 200);
		assert_int_equal(f->in_bytes, LARGE);
		assert_true(f->in_hash == hash_bytes(p, LARGE, 0));
		call(f, "PUT", large[i], p, 1);
		assert_int_equal(f->in_bytes, 1);
	}
	call(f, "PUT", "/", p, 1001);
	assert_int_equal(f->status, 413);
	call(f, "PUT", "/no", p, LARGE);
	assert_int_equal(f->status, 403);
	assert_string_equal(f->body.data, "not you");
	f->n_heads = 0;
	get(f, "/no"); /* has no body */
	assert_int_equal(f->status, 200);
	assert_int_equal(f->n_heads, 1); /* the answer's */
}

static void a_refused_body_ends_the_connection(void **state)
{
	static const char text[] = "PUT /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
				   "Content-Length: 5\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n";
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;

	start_with_head(f);
	got = raw_talk(f, text, strlen(text), false);
	assert_true(str_has_prefix(got, "HTTP/1.1 403"));
	assert_int_equal(f->n_in, 0);
}

/* The peer leaves while it waits for the word: the word is harmless, and gone is told. */
static void who_waits_for_the_word_may_leave(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *p = pattern(LARGE);
	struct http_conn *held;

	start_with_head(f);
	for (int watched = 0; watched < 2; watched++) {
		start(f, "PUT", "/never", p, LARGE);
		while (!f->held) {
			timer_set(f->loop, &f->guard, NSEC_PER_MSEC, guard, f);
			loop_run(f->loop);
		}
		held = TAKE_PTR(f->held);
		http_cancel(f->call);
		timer_set(f->loop, &f->guard, 50 * NSEC_PER_MSEC, guard, f);
		loop_run(f->loop); /* until the server has seen it, or not: both must do */
		if (watched)
			http_conn_on_gone(held, gone, f);
		http_accept_body(held, LARGE);
		if (watched && f->n_gone == 0)
			run(f);
	}
	assert_int_equal(f->n_gone, 1);
	call(f, "PUT", "/now", "abc", 3);
	assert_int_equal(f->status, 200);
}

static void port_in_use_names_the_address(void **state)
{
	struct fixture *f = *state;
	struct http_server_config c = {.address = "127.0.0.1", .handler = handle, .arg = f};
	struct http_server *second = NULL;
	struct field_error e = {0};

	start_server(f, NULL, 0, 0);
	c.port = http_server_port(f->server);
	assert_int_equal(http_server_new(f->loop, &c, &second, &e), -EADDRINUSE);
	assert_text(e.reason, "127.0.0.1 port");
	c.address = "nonsense";
	assert_int_equal(http_server_new(f->loop, &c, &second, &e), -EINVAL);
	assert_null(second);
}

/* ---- TLS ---- */

static void tls_get(struct fixture *f, const struct test_cert *cert, const char *address,
		    const char *host, const char *ca_pem)
{
	start_server(f, cert, 0, 0);
	make_client(f, address, host, http_server_port(f->server), ca_pem, NULL);
	get(f, "/");
}

static void tls_by_ip(void **state)
{
	struct fixture *f = *state;

	tls_get(f, &local_cert, "127.0.0.1", NULL, ca.pem);
	assert_int_equal(f->status, 200);
}

static void tls_by_name_other_than_the_address(void **state)
{
	struct fixture *f = *state;

	tls_get(f, &local_cert, "127.0.0.1", "kubernetes.default.svc", ca.pem);
	assert_int_equal(f->status, 200);
}

static void tls_resolved_name(void **state)
{
	struct fixture *f = *state;

	tls_get(f, &name_cert, "localhost", NULL, ca.pem);
	assert_int_equal(f->status, 200);
}

static void tls_wrong_name_refused(void **state)
{
	struct fixture *f = *state;

	tls_get(f, &name_cert, "127.0.0.1", NULL, ca.pem);
	assert_int_equal(f->status, 0);
	assert_text(f->error, "IP address mismatch");
	assert_int_equal(f->n_in, 0); /* the request, and a token in it, never left */
}

static void tls_wrong_ca_refused(void **state)
{
	struct fixture *f = *state;

	tls_get(f, &local_cert, "127.0.0.1", NULL, other_ca.pem);
	assert_int_equal(f->status, 0);
	assert_text(f->error, "certificate of \"127.0.0.1\" refused");
	assert_int_equal(f->n_in, 0);
}

/* Our clock or the server's is wrong, by an hour or a year. */
static void tls_59_expired_or_not_yet_valid(void **state)
{
	static const struct {
		long from_s, to_s;
		const char *error;
	} table[] = {
		{-7200, -3600, "certificate has expired"},
		{-2 * 365 * 86400, -365 * 86400, "certificate has expired"},
		{3600, 7200, "certificate is not yet valid"},
		{365 * 86400, 2 * 365 * 86400, "certificate is not yet valid"},
		{-60, 3600, NULL},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct test_cert c;

		test_cert_init_valid(&c, &ca, "IP:127.0.0.1", table[i].from_s, table[i].to_s);
		tls_get(f, &c, "127.0.0.1", NULL, ca.pem);
		assert_int_equal(f->status, table[i].error ? 0 : 200);
		if (table[i].error)
			assert_text(f->error, table[i].error);
		f->client = http_client_free(f->client);
		f->server = http_server_free(f->server);
		f->client_tls = tls_unref(f->client_tls);
		f->server_tls = tls_unref(f->server_tls);
		test_cert_done(&c);
	}
}

static void tls_bundle_of_two(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *both = xasprintf("%s\n# comment\n%s", other_ca.pem, ca.pem);

	tls_get(f, &local_cert, "127.0.0.1", NULL, both);
	assert_int_equal(f->status, 200);
}

static void ts_hello(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)r;
	(void)arg;
	ts_reply(c, 200, NULL, "hi");
}

static void tls_49_ipv6_literal_is_verified(void **state)
{
	struct fixture *f = *state;
	struct ts_config good = {.cert = &v6_cert, .ipv6 = true};

	f->ts = ts_start(&good, ts_hello, NULL);
	make_client(f, "::1", NULL, f->ts->port, ca.pem, NULL);
	get(f, "/");
	assert_int_equal(f->status, 200);
}

static void tls_50_ipv6_literal_wrong_name_refused(void **state)
{
	struct fixture *f = *state;
	struct ts_config bad = {.cert = &name_cert, .ipv6 = true};

	f->ts = ts_start(&bad, ts_hello, NULL);
	make_client(f, "::1", NULL, f->ts->port, ca.pem, NULL);
	get(f, "/");
	assert_int_equal(f->status, 0);
	assert_text(f->error, "IP address mismatch");
	assert_int_equal(ts_n_requests(f->ts), 0);
}

static void tls_client_certificate(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {.cert = &local_cert, .client_ca_pem = ca.pem};

	f->ts = ts_start(&c, ts_hello, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, ca.pem, &client_cert);
	get(f, "/");
	assert_int_equal(f->status, 200);
}

static void tls_missing_client_certificate(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {.cert = &local_cert, .client_ca_pem = ca.pem};

	f->ts = ts_start(&c, ts_hello, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, ca.pem, NULL);
	get(f, "/");
	assert_int_equal(f->status, 0);
	assert_non_null(f->error);
}

static void tls_h2_only_server_62(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {.cert = &local_cert, .alpn = "\x02h2"};

	f->ts = ts_start(&c, ts_hello, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, ca.pem, NULL);
	get(f, "/");
	assert_int_equal(f->status, 0);
	assert_text(f->error, "no application protocol");
}

static void tls_material_errors_name_the_part(void **state)
{
	struct tls *t = NULL;
	struct field_error e = {0};
	struct tls_config c = {.ca_pem = "garbage"};

	(void)state;
	assert_int_equal(tls_new(&c, false, &t, &e), -EINVAL);
	assert_string_equal(e.path, "ca");
	c = (struct tls_config){.cert_pem = client_cert.cert_pem};
	assert_int_equal(tls_new(&c, false, &t, &e), -EINVAL);
	assert_string_equal(e.path, "key");
	c.key_pem = other_cert.key_pem;
	assert_int_equal(tls_new(&c, false, &t, &e), -EINVAL);
	assert_text(e.reason, "does not belong to the certificate");
	assert_null(t);
}

/* ---- servers that misbehave ---- */

static void answer(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)r;
	ts_puts(c, arg);
	c->over = true;
}

static void get_answer(struct fixture *f, const char *text)
{
	struct ts_config c = {0};

	f->ts = ts_start(&c, answer, (void *)(uintptr_t)text);
	make_client(f, "127.0.0.1", NULL, f->ts->port, NULL, NULL);
	get(f, "/");
}

static void answers_that_are_no_answers(void **state)
{
	static const struct {
		const char *text, *error;
	} table[] = {
		{"", "without an answer"},
		{"HTTP/1.1 200 OK\r\nContent-Le", "before the end"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "before the end"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "before the end"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
		 "before the end"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "hexadecimal"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nabc", "Content-Length"},
		{"HTTP/1.1 abc\r\n\r\n", "status"},
		{"HTTP/1.1 101 Switching\r\n\r\n", "switch protocols"},
		{"\r\n\r\n", "first line"},
		{"SSH-2.0-OpenSSH\r\n\r\n", "status line"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		get_answer(f, table[i].text);
		assert_int_equal(f->status, 0);
		assert_text(f->error, table[i].error);
		f->client = http_client_free(f->client);
		ts_stop(TAKE_PTR(f->ts));
	}
}

static void answers_in_unusual_form_63(void **state)
{
	static const char *const table[] = {
		"HTTP/1.1 200 OK\r\n\r\nok",
		"HTTP/1.0 200\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 9\r\n\r\n"
		"00002;a=b\r\nok\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\nok and more than was said",
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		get_answer(f, table[i]);
		assert_null(f->error);
		assert_int_equal(f->status, 200);
		assert_string_equal(f->body.data, "ok");
		f->client = http_client_free(f->client);
		ts_stop(TAKE_PTR(f->ts));
	}
}

static void byte_by_byte(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	static const char text[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
				   "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";

	(void)r;
	(void)arg;
	for (const char *p = text; *p; p++)
		ts_write(c, p, 1);
}

static void answer_byte_by_byte(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {.cert = &local_cert}; /* a TLS record a byte */

	f->ts = ts_start(&c, byte_by_byte, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, ca.pem, NULL);
	get(f, "/");
	assert_int_equal(f->status, 200);
	assert_string_equal(f->body.data, "abc0123456789");
}

static void redirect(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)r;
	(void)arg;
	ts_reply(c, 302, "Location: /elsewhere\r\n", "");
}

static void redirect_is_not_followed_44(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {0};

	f->ts = ts_start(&c, redirect, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, NULL, NULL);
	get(f, "/");
	assert_int_equal(f->status, 302);
	assert_int_equal(ts_n_requests(f->ts), 1);
}

static void connection_refused_45(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {0};
	uint16_t port;

	f->ts = ts_start(&c, redirect, NULL);
	port = f->ts->port;
	ts_stop(TAKE_PTR(f->ts));
	make_client(f, "127.0.0.1", NULL, port, NULL, NULL);
	get(f, "/");
	assert_int_equal(f->status, 0);
	assert_text(f->error, "refused");
}

static void unknown_name(void **state)
{
	struct fixture *f = *state;

	make_client(f, "no-such-host.invalid", NULL, 1, NULL, NULL);
	get(f, "/");
	assert_int_equal(f->status, 0);
	assert_text(f->error, "no-such-host.invalid");
}

static void proxy_of_the_environment_is_ignored_60(void **state)
{
	struct fixture *f = *state;

	setenv("http_proxy", "http://127.0.0.1:1", 1);
	setenv("https_proxy", "http://127.0.0.1:1", 1);
	start_both(f);
	get(f, "/");
	assert_int_equal(f->status, 200);
	unsetenv("http_proxy");
	unsetenv("https_proxy");
}

static void stall(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)r;
	ts_puts(c, arg);
	ts_stall(c);
}

static void timeout_waiting(void **state)
{
	static const char *const before[] = {"", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"};
	struct fixture *f = *state;
	struct ts_config c = {0};

	for (int i = 0; i < 2; i++) {
		struct http_request r = {.method = "GET",
					 .path = "/",
					 .on_done = on_done,
					 .arg = f,
					 .timeout_ns = 100 * NSEC_PER_MSEC};

		f->n_done = 0;
		f->ts = ts_start(&c, stall, (void *)(uintptr_t)before[i]);
		make_client(f, "127.0.0.1", NULL, f->ts->port, NULL, NULL);
		assert_int_equal(http_send(f->client, &r, NULL), 0);
		run(f);
		assert_int_equal(f->status, 0);
		assert_text(f->error, "timed out");
		f->client = http_client_free(f->client);
		ts_stop(TAKE_PTR(f->ts));
	}
}

static void reset_it(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)r;
	(void)arg;
	ts_puts(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");
	ts_reset(c);
}

static void reset_in_the_middle_20(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {0};

	f->ts = ts_start(&c, reset_it, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, NULL, NULL);
	get(f, "/");
	assert_int_equal(f->status, 0);
	assert_text(f->error, "reset");
}

static void stream_two(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)r;
	(void)arg;
	ts_stream(c);
	ts_chunk(c, "one ");
	ts_await_flag(c, 1);
	ts_chunk(c, "two");
	ts_last_chunk(c);
}

static void let_it_go_on(void *arg)
{
	struct fixture *f = arg;

	if (f->body.len == 4)
		ts_set_flag(f->ts, 1);
	else
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, let_it_go_on, f);
}

static void stream(struct fixture *f, const char *path)
{
	struct http_request r = {.method = "GET",
				 .path = path,
				 .on_head = on_head,
				 .on_data = on_data,
				 .on_done = on_done,
				 .arg = f,
				 .timeout_ns = 200 * NSEC_PER_MSEC};

	assert_int_equal(http_send(f->client, &r, &f->call), 0);
}

static void streaming_delivers_pieces_as_they_come(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {.cert = &local_cert};

	f->ts = ts_start(&c, stream_two, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, ca.pem, NULL);
	stream(f, "/");
	timer_set(f->loop, &f->step, 0, let_it_go_on, f);
	run(f);
	assert_int_equal(f->status, 200);
	assert_int_equal(f->head_status, 200);
	assert_string_equal(f->body.data, "one two");
}

static void cancel_inside_on_data(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {0};

	f->ts = ts_start(&c, stream_two, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, NULL, NULL);
	f->cancel_in_data = true;
	stream(f, "/");
	run(f);
	assert_string_equal(f->body.data, "one ");
	assert_int_equal(f->n_done, 0);
}

static void measure_idle(void *arg)
{
	struct fixture *f = arg;

	if (f->body.len == 4 && http_call_idle_ns(f->call) > 300 * NSEC_PER_MSEC)
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, measure_idle, f);
}

static void silent_stream_has_no_timeout_but_its_silence_is_known(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {0};

	f->ts = ts_start(&c, stream_two, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, NULL, NULL);
	stream(f, "/");
	timer_set(f->loop, &f->step, 0, measure_idle, f);
	run(f);
	assert_int_equal(f->n_done, 0);
	http_cancel(f->call);
}

static void twice_then_hang_up(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)arg;
	/* the second request on the first connection gets no answer */
	if (r->number == 1)
		c->over = true;
	else
		ts_reply(c, 200, NULL, "hi");
}

static void kept_connection_is_used_and_its_loss_hidden(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {0};

	f->ts = ts_start(&c, twice_then_hang_up, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, NULL, NULL);
	get(f, "/1");
	get(f, "/2");
	assert_int_equal(f->status, 200);
	assert_int_equal(ts_n_requests(f->ts), 3);
	assert_int_equal(f->ts->n_conns, 2);
}

static int n_open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void hang_up(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)arg;
	if (r->number % 3 == 0)
		ts_reply(c, 200, "Connection: close\r\n", "hi");
	else if (r->number % 3 == 1)
		ts_reset(c);
	c->over = true;
}

static void reconnects_leave_no_file_open_64(void **state)
{
	struct fixture *f = *state;
	struct ts_config c = {.cert = &local_cert};
	int before;

	f->ts = ts_start(&c, hang_up, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, ca.pem, NULL);
	get(f, "/");
	before = n_open_files();
	for (int i = 0; i < 600; i++)
		get(f, "/");
	/* the server's side may be a moment behind */
	assert_in_range(n_open_files(), 1, before + 3);
}

static void answer_above_the_limit(void **state)
{
	struct fixture *f = *state;
	struct http_request r = {
		.method = "GET", .path = "/", .on_done = on_done, .arg = f, .max_body_bytes = 4};

	start_both(f);
	assert_int_equal(http_send(f->client, &r, NULL), 0);
	run(f);
	assert_int_equal(f->status, 0);
	assert_text(f->error, "larger than the limit");
}

static void headers_cannot_be_smuggled(void **state)
{
	struct fixture *f = *state;
	const char *headers[] = {"X: a\r\nEvil: b", NULL};
	struct http_request r = {.method = "GET", .path = "/", .headers = headers};

	start_both(f);
	assert_int_equal(http_send(f->client, &r, NULL), -EINVAL);
	r.headers = NULL;
	r.path = "/a b";
	assert_int_equal(http_send(f->client, &r, NULL), -EINVAL);
}

static void free_with_calls_under_way(void **state)
{
	struct fixture *f = *state;

	start_both(f);
	f->hold = true;
	for (int i = 0; i < 5; i++)
		start(f, "GET", "/watched", NULL, 0);
	timer_set(f->loop, &f->step, 50 * NSEC_PER_MSEC, guard, f);
	loop_run(f->loop);
	f->client = http_client_free(f->client);
	assert_int_equal(f->n_done, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
	T(plain_get),
	T(head_has_no_body),
	T(many_calls_at_once),
	T(big_body_up),
	T(big_body_down),
	T(big_bodies_over_tls),
	T(too_large_a_body_gets_413),
	T(bearer_token_of_16k),
	T(deferred_reply),
	T(cancelled_call_makes_the_handler_see_gone),
	T(reply_to_a_client_that_left_is_harmless),
	T(held_reply_survives_the_server),
	T(connections_are_bounded),
	T(server_certificate_rotates),
	T(trust_changes_while_a_request_is_answered),
	T(half_open_requests_make_room),
	T(idle_connections_make_room),
	T(slow_body_gets_408),
	T(bad_requests_get_their_status),
	T(too_large_a_head_gets_431),
	T(chunked_request_body_is_decoded),
	T(chunked_request_above_the_limit_gets_413),
	T(pipelined_requests_are_answered_in_order),
	T(half_closed_client_still_gets_its_answer),
	T(cut_request_is_dropped),
	T(expect_100_continue),
	T(a_head_decides_how_large_the_body_may_be),
	T(a_refused_body_ends_the_connection),
	T(who_waits_for_the_word_may_leave),
	T(port_in_use_names_the_address),
	T(tls_by_ip),
	T(tls_by_name_other_than_the_address),
	T(tls_resolved_name),
	T(tls_wrong_name_refused),
	T(tls_wrong_ca_refused),
	T(tls_59_expired_or_not_yet_valid),
	T(tls_bundle_of_two),
	T(tls_49_ipv6_literal_is_verified),
	T(tls_50_ipv6_literal_wrong_name_refused),
	T(tls_client_certificate),
	T(tls_missing_client_certificate),
	T(tls_h2_only_server_62),
	T(tls_material_errors_name_the_part),
	T(answers_that_are_no_answers),
	T(answers_in_unusual_form_63),
	T(answer_byte_by_byte),
	T(redirect_is_not_followed_44),
	T(connection_refused_45),
	T(unknown_name),
	T(proxy_of_the_environment_is_ignored_60),
	T(timeout_waiting),
	T(reset_in_the_middle_20),
	T(streaming_delivers_pieces_as_they_come),
	T(cancel_inside_on_data),
	T(silent_stream_has_no_timeout_but_its_silence_is_known),
	T(kept_connection_is_used_and_its_loss_hidden),
	T(reconnects_leave_no_file_open_64),
	T(answer_above_the_limit),
	T(headers_cannot_be_smuggled),
	T(free_with_calls_under_way),
};

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("http", tests, make_certs, free_certs);
}
