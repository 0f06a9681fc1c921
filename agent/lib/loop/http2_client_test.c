// SPDX-License-Identifier: Apache-2.0
/*
 * The HTTP client over HTTP/2: one connection for all requests, and what a server may do to it.
 * testserver.h serves each request over HTTP/2, too; TS_HTTP2=1 lets all its tests use that.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/loop/http_client_private.h"
#include "lib/loop/testserver.h"

#define N_AT_ONCE 5
#define LARGE	  (20 << 20) /* more than all windows */

struct asked {
	struct fixture *f;
	struct http_call *call;
	int n_done, status;
	char *body, *error;
	size_t n_body, n_data;
};
struct fixture {
	struct loop *loop;
	struct test_server *ts;
	struct tls *tls;
	struct http_client *client;
	struct timer guard, later;
	struct asked asked[N_AT_ONCE + 1];
	int n_wanted, n_done;
	void (*on_data)(struct asked *a);
};

static struct test_ca ca;
static struct test_cert cert;

/* What a path begins with says what is answered; the request's own text otherwise. */
static void serve(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	char *large;

	(void)arg;
	if (strstr(r->line, "/large")) {
		large = xmalloc(LARGE);
		memset(large, 'x', LARGE);
		ts_stream(c);
		ts_chunk_bytes(c, large, LARGE);
		ts_last_chunk(c);
		free(large);
	} else if (strstr(r->line, "/cut")) {
		ts_stream(c);
		ts_chunk(c, "part");
		c->over = true;
	} else if (strstr(r->line, "/close")) {
		c->over = true;
	} else if (strstr(r->line, "/stall")) {
		ts_stream(c);
		ts_chunk(c, "first");
		ts_stall(c);
	} else if (strstr(r->line, "/size")) {
		_cleanup_free_ char *text = xasprintf("%zu", r->body_bytes);

		ts_reply(c, 200, NULL, text);
	} else {
		ts_reply(c, 200, "X-Test: yes\r\n", r->head);
	}
}

static void too_late(void *arg)
{
	loop_stop(((struct fixture *)arg)->loop, -ETIMEDOUT);
}

static void make_client(struct fixture *f, bool http2)
{
	struct http_client_config c = {.address = "127.0.0.1",
				       .port = f->ts->port,
				       .tls_name = "localhost",
				       .tls = f->tls,
				       .http2 = http2};

	assert_int_equal(http_client_new(f->loop, &c, &f->client), 0);
}

static int setup_alpn(void **state, const char *alpn)
{
	struct fixture *f = *state = xcalloc(1, sizeof(*f));
	struct ts_config tc = {.cert = &cert, .alpn = alpn};
	struct tls_config c = {.ca_pem = ca.pem};
	struct field_error e = {0};

	ts_http2.n_conns = ts_http2.n_refuse = ts_http2.goaway_after = ts_http2.reset_with =
		ts_http2.n_fields = 0;
	ts_http2.deaf = ts_http2.resets = ts_http2.goes_away = false;
	ts_http2.max_streams = 0;
	ts_http2.on = true;
	assert_int_equal(loop_new(&f->loop), 0);
	f->ts = ts_start(&tc, serve, f);
	assert_int_equal(tls_new(&c, false, &f->tls, &e), 0);
	make_client(f, true);
	timer_set(f->loop, &f->guard, 60 * NSEC_PER_SEC, too_late, f);
	return 0;
}

static int setup(void **state)
{
	return setup_alpn(state, NULL);
}

static int setup_http1(void **state)
{
	return setup_alpn(state, "\x08http/1.1");
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	timer_cancel(&f->guard);
	timer_cancel(&f->later);
	http_client_free(f->client);
	ts_http2.deaf = false;
	ts_stop(f->ts);
	tls_unref(f->tls);
	loop_free(f->loop);
	for (size_t i = 0; i < ARRAY_SIZE(f->asked); i++) {
		free(f->asked[i].body);
		free(f->asked[i].error);
	}
	free(f);
	return 0;
}

static void done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct asked *a = arg;

	a->call = NULL;
	a->n_done++;
	a->status = status;
	a->body = xstrndup(body ?: "", n);
	a->n_body = n;
	a->error = xstrdup(error);
	if (++a->f->n_done == a->f->n_wanted)
		loop_stop(a->f->loop, 0);
}

static void data(const void *p, size_t n, void *arg)
{
	struct asked *a = arg;

	(void)p;
	a->n_data += n;
	if (a->f->on_data)
		a->f->on_data(a);
}

static struct asked *ask_with(struct fixture *f, int i, struct http_request r)
{
	struct asked *a = &f->asked[i];

	a->f = f;
	r.on_done = done;
	r.arg = a;
	f->n_wanted++;
	assert_int_equal(http_send(f->client, &r, &a->call), 0);
	return a;
}

static struct asked *ask(struct fixture *f, int i, const char *path)
{
	return ask_with(f, i, (struct http_request){.method = "GET", .path = path});
}

static void run(struct fixture *f)
{
	assert_int_equal(loop_run(f->loop), 0);
}

static void all_share_a_connection(void **state)
{
	static const char *const headers[] = {"Authorization: Bearer secret", "X-Mine: a: b", NULL};
	struct fixture *f = *state;

	for (int i = 0; i < N_AT_ONCE; i++)
		ask_with(f, i,
			 (struct http_request){
				 .method = "GET", .path = "/a?b=%20", .headers = headers});
	run(f);
	for (int i = 0; i < N_AT_ONCE; i++) {
		assert_int_equal(f->asked[i].status, 200);
		assert_true(str_has_prefix(f->asked[i].body, "GET /a?b=%20 HTTP/1.1\r\n"));
		assert_non_null(strstr(f->asked[i].body, "Authorization: Bearer secret\r\n"));
		assert_non_null(strstr(f->asked[i].body, "X-Mine: a: b\r\n"));
		assert_non_null(strstr(f->asked[i].body, "\r\nHost: 127.0.0.1:"));
	}
	assert_int_equal(ts_http2.n_conns, 1);
}

/* One connection a request, as always, and nobody waits for another one's connection. */
static void a_server_of_http1_gets_http1(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < N_AT_ONCE; i++)
		ask(f, i, "/x");
	run(f);
	for (int i = 0; i < N_AT_ONCE; i++)
		assert_int_equal(f->asked[i].status, 200);
	assert_int_equal(ts_http2.n_conns, 0);
	assert_int_equal(f->ts->n_conns, N_AT_ONCE);
}

static void bodies_larger_than_the_windows(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *body = xcalloc(1, LARGE);

	ask_with(f, 0,
		 (struct http_request){
			 .method = "POST", .path = "/size", .body = body, .body_bytes = LARGE});
	ask_with(f, 1, (struct http_request){.method = "GET", .path = "/large", .on_data = data});
	run(f);
	assert_string_equal(f->asked[0].body, "20971520");
	assert_int_equal(f->asked[1].status, 200);
	assert_int_equal(f->asked[1].n_data, LARGE);
}

static void an_answer_has_a_limit(void **state)
{
	struct fixture *f = *state;

	ask_with(f, 0,
		 (struct http_request){
			 .method = "GET", .path = "/large", .max_body_bytes = 1 << 20});
	ask(f, 1, "/x");
	run(f);
	assert_string_equal(f->asked[0].error, "the answer is larger than the limit");
	assert_int_equal(f->asked[1].status, 200);
	assert_int_equal(ts_http2.n_conns, 1);
}

/* ---- what a server does to streams and connections ---- */

/* The answer under way comes to its end; the next request goes to a new connection. */
static void goaway(void **state)
{
	struct fixture *f = *state;

	ts_http2.goaway_after = 1;
	ask(f, 0, "/x");
	run(f);
	ask(f, 1, "/y");
	run(f);
	assert_int_equal(f->asked[0].status, 200);
	assert_int_equal(f->asked[1].status, 200);
	assert_int_equal(ts_http2.n_conns, 2);
}

/* Whether the second request waits for room on the connection; if not, asks again soon. */
static bool it_waits(struct fixture *f, void (*again)(void *arg))
{
	const struct http_call *c = f->asked[1].call;

	if (!c->session)
		timer_set(f->loop, &f->later, NSEC_PER_MSEC, again, f);
	assert_false(c->on_wire);
	return c->session;
}

static void server_goes_away(void *arg)
{
	struct fixture *f = arg;

	ts_http2.goes_away = it_waits(f, server_goes_away);
}

static void asks_for_one_more(struct asked *a)
{
	struct fixture *f = a->f;

	if (f->asked[1].f)
		return;
	ask_with(f, 1,
		 (struct http_request){
			 .method = "POST", .path = "/size", .body = "abc", .body_bytes = 3});
	f->n_wanted = 1; /* the first one has no end */
	server_goes_away(f);
}

/* The server allows no more streams, so this request has not been sent when GOAWAY comes. */
static void goaway_before_a_request_is_sent(void **state)
{
	struct fixture *f = *state;

	ts_http2.max_streams = 1;
	f->on_data = asks_for_one_more;
	ask_with(f, 0, (struct http_request){.method = "GET", .path = "/stall", .on_data = data});
	run(f);
	assert_string_equal(f->asked[1].body, "3");
	assert_int_equal(ts_http2.n_conns, 2);
}

static void cancels_second(void *arg)
{
	struct fixture *f = arg;

	if (!it_waits(f, cancels_second))
		return;
	http_cancel(TAKE_PTR(f->asked[1].call));
	http_cancel(TAKE_PTR(f->asked[0].call));
	ask(f, 2, "/x");
	f->n_wanted = 1;
}

static void asks_and_cancels(struct asked *a)
{
	struct fixture *f = a->f;

	if (f->asked[1].f)
		return;
	ask(f, 1, "/x");
	cancels_second(f);
}

/* A request that waits for room on the connection is cancelled there, too. */
static void a_request_is_cancelled_before_it_is_sent(void **state)
{
	struct fixture *f = *state;

	ts_http2.max_streams = 1;
	f->on_data = asks_and_cancels;
	ask_with(f, 0, (struct http_request){.method = "GET", .path = "/stall", .on_data = data});
	run(f);
	assert_int_equal(f->asked[1].n_done, 0);
	assert_int_equal(f->asked[2].status, 200);
	assert_int_equal(ts_http2.n_conns, 1);
}

/* The server has not read these requests, so also a POST is sent again. */
static void refused_streams_are_sent_again(void **state)
{
	struct fixture *f = *state;

	ts_http2.n_refuse = 3;
	ask_with(f, 0,
		 (struct http_request){
			 .method = "POST", .path = "/size", .body = "abc", .body_bytes = 3});
	run(f);
	assert_string_equal(f->asked[0].body, "3");
	ts_http2.n_refuse = 1000;
	ask(f, 1, "/x");
	run(f);
	assert_int_equal(f->asked[1].status, 0);
	assert_string_equal(f->asked[1].error, "the server has reset the stream: REFUSED_STREAM");
}

static void a_reset_stream_harms_no_other(void **state)
{
	struct fixture *f = *state;

	ts_http2.resets = true;
	ask(f, 0, "/cut");
	ask(f, 1, "/close");
	ask(f, 2, "/x");
	run(f);
	assert_string_equal(f->asked[0].error, "the server has reset the stream: INTERNAL_ERROR");
	assert_string_equal(f->asked[1].error, "the server has reset the stream: INTERNAL_ERROR");
	assert_int_equal(f->asked[2].status, 200);
	assert_int_equal(ts_http2.n_conns, 1);
}

static void asks_for_a_cut_answer(struct asked *a)
{
	if (a == a->f->asked && a->f->n_wanted == 1)
		ask(a->f, 1, "/cut");
}

static void a_lost_connection_ends_all_its_calls(void **state)
{
	struct fixture *f = *state;

	f->on_data = asks_for_a_cut_answer;
	ask_with(f, 0, (struct http_request){.method = "GET", .path = "/stall", .on_data = data});
	run(f);
	assert_string_equal(f->asked[0].error, "connection closed before the end of the answer");
	assert_string_equal(f->asked[1].error, "connection closed before the end of the answer");
	ask(f, 2, "/x");
	run(f);
	assert_int_equal(f->asked[2].status, 200);
}

static void the_server_wants_http1(void **state)
{
	struct fixture *f = *state;

	ts_http2.reset_with = NGHTTP2_HTTP_1_1_REQUIRED;
	ask_with(f, 0, (struct http_request){.method = "POST", .path = "/x"});
	run(f);
	assert_int_equal(f->asked[0].status, 200);
}

static void a_head_has_a_limit(void **state)
{
	struct fixture *f = *state;

	ts_http2.n_fields = HTTP_MAX_HEADERS;
	ask(f, 0, "/x");
	run(f);
	assert_string_equal(f->asked[0].error,
			    "the answer's head has more than 64 KiB or 100 headers");
	ts_http2.n_fields = 0;
	ask(f, 1, "/x");
	run(f);
	assert_int_equal(f->asked[1].status, 200);
}

static void becomes_deaf(struct asked *a)
{
	(void)a;
	ts_http2.deaf = true;
}

static void no_answer_to_a_ping(void **state)
{
	struct http2_liveness before = http2_liveness;
	struct fixture *f = *state;

	http2_liveness.ping_after_ns = http2_liveness.ping_timeout_ns = 100 * NSEC_PER_MSEC;
	f->on_data = becomes_deaf;
	ask_with(f, 0, (struct http_request){.method = "GET", .path = "/stall", .on_data = data});
	run(f);
	http2_liveness = before;
	assert_string_equal(f->asked[0].error, "the server does not answer a PING");
}

/* ---- what the owner does ---- */

static void cancels_the_others(struct asked *a)
{
	struct fixture *f = a->f;

	for (int i = 0; i < 3; i++)
		if (f->asked[i].call) {
			http_cancel(TAKE_PTR(f->asked[i].call));
			f->n_wanted--;
		}
	f->on_data = NULL;
	ask(f, 3, "/x");
}

static void calls_are_cancelled_in_a_callback(void **state)
{
	struct fixture *f = *state;

	f->on_data = cancels_the_others;
	for (int i = 0; i < 3; i++)
		ask_with(f, i,
			 (struct http_request){.method = "GET", .path = "/stall", .on_data = data});
	run(f);
	for (int i = 0; i < 3; i++)
		assert_int_equal(f->asked[i].n_done, 0);
	assert_int_equal(f->asked[3].status, 200);
	assert_int_equal(ts_http2.n_conns, 1);
}

static void frees_the_client(struct asked *a)
{
	a->f->client = http_client_free(a->f->client);
	loop_stop(a->f->loop, 0);
}

static void the_client_is_freed_in_a_callback(void **state)
{
	struct fixture *f = *state;

	f->on_data = frees_the_client;
	for (int i = 0; i < 3; i++)
		ask_with(f, i,
			 (struct http_request){.method = "GET", .path = "/large", .on_data = data});
	run(f);
	assert_null(f->client);
	for (int i = 0; i < 3; i++)
		assert_int_equal(f->asked[i].n_done, 0);
}

static void takes_new_tls(struct asked *a)
{
	http_client_set_tls(a->f->client, a->f->tls);
	a->f->on_data = NULL;
	ask(a->f, 1, "/x");
}

/* A request under way goes on; the next one uses a connection with the new settings. */
static void new_tls_settings(void **state)
{
	struct fixture *f = *state;

	f->on_data = takes_new_tls;
	ask_with(f, 0, (struct http_request){.method = "GET", .path = "/large", .on_data = data});
	run(f);
	assert_int_equal(f->asked[0].n_data, LARGE);
	assert_int_equal(f->asked[1].status, 200);
	assert_int_equal(ts_http2.n_conns, 2);
}

static void cancel_first(void *arg)
{
	struct fixture *f = arg;

	http_cancel(TAKE_PTR(f->asked[0].call));
	f->n_wanted--;
}

/* The call that connects is given up: another one connects for the rest. */
static void another_call_connects(void **state)
{
	struct fixture *f = *state;
	struct timer t = {0};

	for (int i = 0; i < 3; i++)
		ask(f, i, "/x");
	timer_set(f->loop, &t, 0, cancel_first, f);
	run(f);
	assert_int_equal(f->asked[0].n_done, 0);
	assert_int_equal(f->asked[1].status, 200);
	assert_int_equal(f->asked[2].status, 200);
}

/* All that wait fail with the reason of the call that connects, and at once. */
static void nobody_listens(void **state)
{
	struct fixture *f = *state;

	http_client_free(f->client);
	shutdown(f->ts->fd, SHUT_RDWR);
	make_client(f, true);
	for (int i = 0; i < N_AT_ONCE; i++)
		ask(f, i, "/x");
	run(f);
	for (int i = 0; i < N_AT_ONCE; i++) {
		assert_int_equal(f->asked[i].status, 0);
		assert_string_equal(f->asked[i].error, f->asked[0].error);
		assert_non_null(strstr(f->asked[i].error, "Connection refused"));
	}
}

static int make_certs(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	test_ca_init(&ca, "ca");
	test_cert_init(&cert, &ca, "DNS:localhost");
	return 0;
}

static int free_certs(void **state)
{
	(void)state;
	test_ca_done(&ca);
	test_cert_done(&cert);
	return 0;
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(all_share_a_connection),
		cmocka_unit_test_setup_teardown(a_server_of_http1_gets_http1, setup_http1,
						teardown),
		T(bodies_larger_than_the_windows),
		T(an_answer_has_a_limit),
		T(a_head_has_a_limit),
		T(goaway),
		T(goaway_before_a_request_is_sent),
		T(a_request_is_cancelled_before_it_is_sent),
		T(refused_streams_are_sent_again),
		T(a_reset_stream_harms_no_other),
		T(a_lost_connection_ends_all_its_calls),
		T(the_server_wants_http1),
		T(no_answer_to_a_ping),
		T(calls_are_cancelled_in_a_callback),
		T(the_client_is_freed_in_a_callback),
		T(new_tls_settings),
		T(another_call_connects),
		T(nobody_listens),
	};

	return cmocka_run_group_tests(tests, make_certs, free_certs);
}
