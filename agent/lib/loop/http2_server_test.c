/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server with clients of HTTP/2: the same handlers as with HTTP/1.1, several requests on a
 * connection, and clients that break limits.
 */

#include <utlist.h>

#include "lib/loop/http2.h"
#include "lib/loop/testhttp.h"
#include "lib/loop/testhttp2.h"

static int connect_from(const struct fixture *f, const char *address)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons(http_server_port(f->server)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
			   from = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static int connect_to(const struct fixture *f)
{
	return connect_from(f, "127.0.0.1");
}

static uint64_t refusals(const char *reason)
{
	return counter_get(counter("http_refused_total", "reason", reason));
}

static void step_loop(struct fixture *f)
{
	timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
	loop_run(f->loop);
}

/* Waits for a condition; testlimit.c ends a test that waits for too long. */
#define await(f, condition)                                                                        \
	do {                                                                                       \
		step_loop(f);                                                                      \
	} while (!(condition))

static void begin(struct fixture *f, struct h2_client *c)
{
	f->http2 = true;
	if (!f->server)
		start_server(f, NULL, 4 << 20, 0);
	h2_start(c, f->loop, connect_to(f), NULL);
}

/* ---- requests and answers ---- */

static void a_handler_serves_both_versions(void **state)
{
	static const char *const fields[] = {"authorization: Bearer t", NULL};
	struct fixture *f = *state;
	struct h2_client c;
	struct h2_answer *a;

	begin(f, &c);
	a = h2_send(&c, "POST", "/a%41?q=1", fields, "body!", 5, false);
	await(f, a->closed);
	assert_int_equal(a->status, 200);
	assert_int_equal(a->error, NGHTTP2_NO_ERROR);
	assert_string_equal(a->body.data, "hello");
	assert_text(a->fields.data, "content-type: text/plain\n");
	assert_text(a->fields.data, "content-length: 5\n");
	assert_text(a->fields.data, "retry-after: 7\n");
	assert_text(a->fields.data, "date: ");
	assert_string_equal(f->in_method, "POST");
	assert_string_equal(f->in_path, "/aA");
	assert_string_equal(f->in_query, "q=1");
	assert_string_equal(f->in_auth, "Bearer t");
	assert_int_equal(f->in_bytes, 5);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), NULL, NULL);
	get(f, "/one");
	assert_int_equal(f->status, 200);
	assert_string_equal(f->in_path, "/one");
	h2_stop(&c);
}

static void a_server_without_it_refuses_http2(void **state)
{
	struct fixture *f = *state;
	struct h2_client c;

	start_server(f, NULL, 0, 0);
	h2_start(&c, f->loop, connect_to(f), NULL);
	await(f, c.eof);
	assert_int_equal(f->n_in, 0);
	h2_stop(&c);
}

static void bodies_pass_the_windows(void **state)
{
	enum { N = 3 << 20 };
	struct fixture *f = *state;
	_cleanup_free_ char *big = pattern(N);
	struct h2_client c;
	struct h2_answer *a, *b;

	f->big = big;
	f->n_big = N;
	begin(f, &c);
	a = h2_send(&c, "POST", "/", NULL, big, N, false);
	b = h2_send(&c, "POST", "/", NULL, big, N, false);
	await(f, a->closed && b->closed);
	assert_int_equal(f->in_bytes, N);
	assert_int_equal(f->in_hash, hash_bytes(big, N, 0));
	assert_int_equal(a->body.len, N);
	assert_memory_equal(a->body.data, big, N);
	assert_memory_equal(b->body.data, big, N);
	h2_stop(&c);
}

struct held {
	struct http_conn *conns[300];
	unsigned n, n_gone;
};
static struct held held;

static void one_gone(void *arg)
{
	*(struct http_conn **)arg = NULL;
	held.n_gone++;
}

static void hold(struct http_conn *c, const struct http_in *in, void *arg)
{
	(void)in;
	(void)arg;
	http_conn_on_gone(c, one_gone, &held.conns[held.n]);
	held.conns[held.n++] = c;
}

static void begin_holding(struct fixture *f, struct h2_client *c)
{
	const struct http_server_config config = {
		.address = "127.0.0.1", .handler = hold, .http2 = true, .head = f->head};

	held = (struct held){0};
	assert_int_equal(http_server_new(f->loop, &config, &f->server, NULL), 0);
	begin(f, c);
}

static void requests_share_a_connection(void **state)
{
	struct fixture *f = *state;
	struct h2_answer *a[HTTP2_MAX_STREAMS];
	struct h2_client c;

	begin_holding(f, &c);
	for (unsigned i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, held.n == ARRAY_SIZE(a));
	for (unsigned i = held.n; i-- > 0;) {
		char text[8];

		snprintf(text, sizeof(text), "%u", i);
		http_reply(held.conns[i], 200, NULL, NULL, text, strlen(text));
		await(f, a[i]->closed);
		assert_int_equal(strtoul(a[i]->body.data, NULL, 10), i);
		assert_int_equal(c.n_closed, ARRAY_SIZE(a) - i);
	}
	h2_stop(&c);
}

static void requests_beyond_the_limit_are_refused(void **state)
{
	struct fixture *f = *state;
	struct h2_answer *a[HTTP2_MAX_STREAMS + 8];
	struct h2_client c;

	uint64_t before = refusals("http2_streams");

	begin_holding(f, &c);
	for (unsigned i = 0; i < ARRAY_SIZE(a); i++) /* the client does not know the limit yet */
		a[i] = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, c.n_closed == 8);
	assert_int_equal(held.n, HTTP2_MAX_STREAMS);
	assert_int_equal(refusals("http2_streams"), before + 8);
	for (unsigned i = 0; i < 8; i++) /* which lets the client send them again */
		assert_int_equal(a[HTTP2_MAX_STREAMS + i]->error, NGHTTP2_REFUSED_STREAM);
	h2_stop(&c);
	await(f, held.n_gone == held.n);
}

static void pieces(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct fixture *f = arg;

	f->held = c;
	http_reply_first(c, 200, "text/plain", NULL, "first ", streq(in->path, "/empty") ? 0 : 6);
}

static void a_reply_may_come_in_pieces(void **state)
{
	const struct http_server_config config = {
		.address = "127.0.0.1", .handler = pieces, .http2 = true, .arg = *state};
	struct fixture *f = *state;
	struct h2_client c;
	struct h2_answer *a;

	assert_int_equal(http_server_new(f->loop, &config, &f->server, NULL), 0);
	begin(f, &c);
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, a->body.len == 6);
	assert_false(a->closed);
	http_reply_last(TAKE_PTR(f->held), "last", 4);
	await(f, a->closed);
	assert_string_equal(a->body.data, "first last");
	a = h2_send(&c, "GET", "/empty", NULL, NULL, 0, false);
	await(f, a->status == 200);
	http_reply_last(TAKE_PTR(f->held), "", 0);
	await(f, a->closed);
	assert_int_equal(a->body.len, 0);
	a = h2_send(&c, "HEAD", "/", NULL, NULL, 0, false);
	await(f, a->closed);
	http_reply_last(TAKE_PTR(f->held), "last", 4);
	assert_int_equal(a->status, 200);
	assert_int_equal(a->body.len, 0);
	h2_stop(&c);
}

/* ---- heads that decide ---- */

/* What has come of a body before the handler has accepted it fills the window, and no more. */
static void a_body_waits_for_the_word(void **state)
{
	enum { N = 300 << 10 };
	struct fixture *f = *state;
	_cleanup_free_ char *big = pattern(N);
	struct h2_client c;
	struct h2_answer *a;

	f->head = hold;
	begin_holding(f, &c);
	a = h2_send(&c, "POST", "/", NULL, big, N, false);
	await(f, held.n == 1 && held.conns[0]->ahead.len == HTTP2_STREAM_WINDOW);
	step_loop(f);
	assert_int_equal(a->n_send, N - HTTP2_STREAM_WINDOW);
	http_accept_body(held.conns[0], N);
	await(f, held.n == 2);
	assert_ptr_equal(held.conns[0], held.conns[1]);
	assert_int_equal(held.conns[1]->in.body_bytes, N);
	assert_memory_equal(held.conns[1]->in.body, big, N);
	http_reply(held.conns[1], 200, NULL, NULL, NULL, 0);
	await(f, a->closed);
	h2_stop(&c);
}

/* As many bodies as may wait for the word do not stop one that has it. */
static void waiting_bodies_leave_room_for_an_accepted_one(void **state)
{
	enum { N = HTTP2_STREAM_WINDOW, LAST = HTTP2_MAX_STREAMS - 1 };
	struct fixture *f = *state;
	_cleanup_free_ char *big = pattern(N);
	struct h2_client c;
	struct h2_answer *a;

	f->head = hold;
	begin_holding(f, &c);
	for (unsigned i = 0; i < LAST; i++) {
		h2_send(&c, "POST", "/", NULL, big, N, false);
		await(f, held.n == i + 1 && held.conns[i]->ahead.len == N);
	}
	a = h2_send(&c, "POST", "/", NULL, big, N, false);
	await(f, held.n == LAST + 1);
	http_accept_body(held.conns[LAST], N);
	await(f, held.n == LAST + 2);
	assert_int_equal(held.conns[LAST + 1]->in.body_bytes, N);
	http_reply(held.conns[LAST + 1], 200, NULL, NULL, NULL, 0);
	await(f, a->closed);
	h2_stop(&c);
}

/*
 * A peer with many connections has as many waiting bodies as it may. Its next one is refused;
 * another peer has room, and the hog has it again when its connections have ended.
 */
static void waiting_bodies_of_a_peer_leave_room(void **state)
{
	enum {
		N = HTTP2_STREAM_WINDOW,
		EACH = HTTP2_MAX_STREAMS - 1,
		ALL = HTTP2_MAX_WAITING / 2 / N,
		HOGS = ALL / EACH + 1
	};
	struct fixture *f = *state;
	_cleanup_free_ char *big = pattern(N);
	uint64_t before = refusals("http2_waiting");
	struct h2_client c, hogs[HOGS];
	struct h2_answer *a;

	f->head = hold;
	begin_holding(f, &c);
	for (unsigned i = 0; i < ALL; i++) {
		if (i % EACH == 0)
			h2_start(&hogs[i / EACH], f->loop, connect_from(f, "127.0.0.2"), NULL);
		h2_send(&hogs[i / EACH], "POST", "/", NULL, big, N, false);
		await(f, held.n == i + 1 && held.conns[i]->ahead.len == N);
	}
	assert_int_equal(refusals("http2_waiting"), before);
	a = h2_send(&hogs[HOGS - 1], "POST", "/", NULL, big, N, false);
	await(f, a->closed);
	assert_int_equal(a->status, 503);
	assert_int_equal(held.n_gone, 1);
	assert_int_equal(refusals("http2_waiting"), before + 1);
	a = h2_send(&c, "POST", "/", NULL, big, N, false);
	await(f, held.n == ALL + 2 && held.conns[ALL + 1]->ahead.len == N);
	http_reply(held.conns[ALL + 1], 200, NULL, NULL, NULL, 0);
	await(f, a->closed);
	assert_int_equal(f->server->waiting_bytes, ALL * N);
	for (unsigned i = 0; i < HOGS; i++)
		h2_stop(&hogs[i]);
	await(f, held.n_gone == ALL + 1);
	assert_int_equal(f->server->waiting_bytes, 0);
	h2_stop(&c);
}

/* What a stream has brought that its client resets takes nothing from the connection's window. */
static void a_body_that_is_reset_gives_its_window_back(void **state)
{
	enum { N = HTTP2_STREAM_WINDOW, RESETS = HTTP2_CONNECTION_WINDOW / N + 1 };
	struct fixture *f = *state;
	_cleanup_free_ char *big = pattern(N);
	struct h2_client c;
	struct h2_answer *a;

	f->head = hold;
	begin_holding(f, &c);
	for (unsigned i = 0; i < RESETS; i++) {
		a = h2_send(&c, "POST", "/", NULL, big, N, false);
		await(f, held.n == i + 1 && held.conns[i]->ahead.len == N);
		nghttp2_submit_rst_stream(c.session, NGHTTP2_FLAG_NONE, a->id, NGHTTP2_CANCEL);
		h2_flush(&c);
		await(f, held.n_gone == i + 1);
	}
	h2_send(&c, "POST", "/", NULL, big, N, false);
	await(f, held.n == RESETS + 1);
	http_accept_body(held.conns[RESETS], N);
	await(f, held.n == RESETS + 2);
	assert_int_equal(held.conns[RESETS + 1]->in.body_bytes, N);
	http_reply(held.conns[RESETS + 1], 200, NULL, NULL, NULL, 0);
	h2_stop(&c);
}

static void say_no(struct http_conn *c, const struct http_in *in, void *arg)
{
	(void)in;
	(void)arg;
	http_reply(c, 401, NULL, NULL, "no", 2);
}

static void a_refused_body_ends_its_stream_only(void **state)
{
	enum { N = 2 << 20 };
	struct fixture *f = *state;
	_cleanup_free_ char *big = pattern(N);
	struct h2_client c;
	struct h2_answer *a;

	f->head = say_no;
	begin_holding(f, &c);
	for (int i = 0; i < 5; i++) { /* together more than the window of the connection */
		a = h2_send(&c, "POST", "/", NULL, big, N, false);
		await(f, a->closed);
		assert_int_equal(a->status, 401);
		assert_string_equal(a->body.data, "no");
		assert_int_equal(a->error, NGHTTP2_NO_ERROR);
	}
	assert_false(c.goaway);
	h2_stop(&c);
}

static void too_large_heads_and_bodies_are_refused(void **state)
{
	static const char *const bad_length[] = {"content-length: x", NULL};
	struct fixture *f = *state;
	_cleanup_free_ char *big = pattern(5 << 20), *field = xmalloc(60001);
	const char *const fields[] = {field, field, NULL};
	struct h2_client c;
	struct h2_answer *a;

	memset(field, 'x', 60000);
	memcpy(field, "x: ", 3);
	field[60000] = '\0';
	begin(f, &c);
	a = h2_send(&c, "GET", "/", fields, NULL, 0, false);
	await(f, a->closed);
	assert_int_equal(a->status, 431);
	a = h2_send(&c, "GET", "/%zz", NULL, NULL, 0, false);
	await(f, a->closed);
	assert_int_equal(a->status, 400);
	a = h2_send(&c, "POST", "/", NULL, big, 5 << 20, false); /* the limit is 4 MiB */
	await(f, a->closed);
	assert_int_equal(a->status, 413);
	assert_text(a->body.data, "{\"error\":");
	a = h2_send(&c, "GET", "/", bad_length, NULL, 0, false);
	await(f, a->closed);
	assert_int_equal(a->error, NGHTTP2_PROTOCOL_ERROR);
	assert_int_equal(f->n_in, 0);
	h2_stop(&c);
}

/* All heads of a connection have one budget, so many small streams cost no more than a few. */
static void heads_of_a_connection_have_a_budget(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *field = xmalloc(60001);
	const char *const fields[] = {field, NULL};
	struct h2_client c;
	struct h2_answer *a[5];

	memset(field, 'x', 60000);
	memcpy(field, "x: ", 3);
	field[60000] = '\0';
	begin_holding(f, &c);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++) {
		a[i] = h2_send(&c, "GET", "/", fields, NULL, 0, false);
		await(f, held.n == i + 1 || a[i]->closed);
	}
	assert_int_equal(held.n, 4);
	assert_int_equal(a[4]->status, 503);
	http_reply(held.conns[0], 200, NULL, NULL, NULL, 0);
	await(f, a[0]->closed);
	h2_send(&c, "GET", "/", fields, NULL, 0, false);
	await(f, held.n == 5);
	h2_stop(&c);
	await(f, held.n_gone == 4);
}

/* ---- clients that break limits ---- */

/* The server ends the connection, says why, counts it, and serves others. */
static void assert_given_up(struct fixture *f, struct h2_client *c, const char *reason,
			    uint64_t before, uint32_t error)
{
	struct h2_client other;
	struct h2_answer *a;

	await(f, c->eof);
	if (c->goaway)
		assert_int_equal(c->goaway_error, error);
	else /* of answers to what it has not asked */
		assert_true(c->failed);
	assert_int_equal(refusals(reason), before + 1);
	h2_stop(c);
	f->hold = false;
	begin(f, &other);
	a = h2_send(&other, "GET", "/", NULL, NULL, 0, false);
	await(f, a->closed || held.n);
	h2_stop(&other);
}

static void a_reset_is_told(void **state)
{
	struct fixture *f = *state;
	struct h2_client c;
	struct h2_answer *a;

	begin_holding(f, &c);
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, held.n == 1);
	nghttp2_submit_rst_stream(c.session, NGHTTP2_FLAG_NONE, a->id, NGHTTP2_CANCEL);
	h2_flush(&c);
	await(f, held.n_gone == 1);
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, held.n == 2);
	h2_stop(&c);
	await(f, held.n_gone == 2);
}

static void resets_have_a_limit(void **state)
{
	struct fixture *f = *state;
	uint64_t before = refusals("http2_resets");
	struct h2_client c;

	begin(f, &c);
	f->hold = true;
	for (unsigned i = 0; i < 102 && !c.eof; i++) {
		struct h2_answer *a = h2_send(&c, "GET", "/watched", NULL, NULL, 0, false);

		nghttp2_submit_rst_stream(c.session, NGHTTP2_FLAG_NONE, a->id, NGHTTP2_CANCEL);
		h2_flush(&c);
		await(f, a->closed);
		buf_done(&a->fields);
		*a = (struct h2_answer){0};
	}
	assert_given_up(f, &c, "http2_resets", before, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void frames_of_no_use_have_a_limit(void **state)
{
	static const struct {
		uint8_t type, flags;
		size_t n;
	} frames[] = {
		{NGHTTP2_PING, NGHTTP2_FLAG_NONE, 8},
		{NGHTTP2_SETTINGS, NGHTTP2_FLAG_NONE, 0},
		{NGHTTP2_PRIORITY, NGHTTP2_FLAG_NONE, 5},
		{NGHTTP2_DATA, NGHTTP2_FLAG_NONE, 0},
	};
	struct fixture *f = *state;

	for (size_t k = 0; k < ARRAY_SIZE(frames); k++) {
		uint64_t before = refusals("http2_control");
		bool of_stream =
			frames[k].type == NGHTTP2_DATA || frames[k].type == NGHTTP2_PRIORITY;
		struct h2_client c;

		f->hold = true;
		begin(f, &c);
		h2_send(&c, "POST", "/watched", NULL, NULL, 0, true);
		for (unsigned i = 0; i < 1100; i++)
			h2_send_frame(&c, frames[k].type, frames[k].flags, of_stream,
				      "\0\0\0\0\0\0\0", frames[k].n);
		assert_given_up(f, &c, "http2_control", before, NGHTTP2_ENHANCE_YOUR_CALM);
	}
}

/* A client that asks for answers (to PING) and does not read them does not fill the memory. */
static void who_does_not_read_is_given_up(void **state)
{
	struct fixture *f = *state;
	uint64_t before = refusals("http2_control");
	struct h2_client c;

	begin(f, &c);
	await(f, f->server->conns);
	c.deaf = true;
	f->server->conns->http2->writing = true; /* the socket takes nothing */
	for (unsigned i = 0; i < 1100; i++)
		h2_send_frame(&c, NGHTTP2_PING, NGHTTP2_FLAG_NONE, 0, "\0\0\0\0\0\0\0", 8);
	await(f, refusals("http2_control") > before);
	h2_stop(&c);
}

static void a_head_of_many_frames_is_refused(void **state)
{
	struct fixture *f = *state;
	uint64_t before = refusals("http2_invalid");
	struct h2_client c;

	begin(f, &c);
	/* :method GET, :scheme http, :path / */
	h2_send_frame(&c, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, "\x82\x86\x84", 3);
	for (unsigned i = 0; i < 20; i++)
		h2_send_frame(&c, NGHTTP2_CONTINUATION, NGHTTP2_FLAG_NONE, 1, "", 0);
	await(f, c.eof);
	assert_true(refusals("http2_invalid") > before);
	assert_int_equal(f->n_in, 0);
	h2_stop(&c);
}

static void bytes_that_are_no_frames_end_the_connection(void **state)
{
	struct fixture *f = *state;
	uint64_t before = refusals("http2_invalid");
	struct h2_client c;

	begin(f, &c);
	h2_send_frame(&c, NGHTTP2_PING, NGHTTP2_FLAG_NONE, 0, "short", 5);
	assert_given_up(f, &c, "http2_invalid", before, NGHTTP2_FRAME_SIZE_ERROR);
}

/* ---- time ---- */

/* So many seconds pass for the connections, and the server looks at them. */
static void pass(struct fixture *f, unsigned seconds)
{
	uint64_t ns = seconds * NSEC_PER_SEC;
	struct http2_stream *s;
	struct http_conn *c;

	DL_FOREACH (f->server->conns, c) {
		c->since_ns -= ns;
		DL_FOREACH (c->http2->streams, s) {
			s->c.since_ns -= ns;
			s->read_ns -= ns;
			s->written_ns -= ns;
		}
	}
	timer_cancel(&f->server->tick);
	f->server->tick.fn(f->server->tick.arg);
}

static void a_slow_body_gets_408(void **state)
{
	struct fixture *f = *state;
	uint64_t before = refusals("too_slow");
	struct h2_client c;
	struct h2_answer *a, *b;

	begin(f, &c);
	a = h2_send(&c, "POST", "/", NULL, "x", 1, true);
	await(f, f->server->conns && f->server->conns->http2 && f->server->conns->http2->streams);
	pass(f, 31);
	await(f, a->closed);
	assert_int_equal(a->status, 408);
	assert_int_equal(refusals("too_slow"), before + 1);
	b = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, b->closed);
	assert_int_equal(b->status, 200);
	h2_stop(&c);
}

static void a_head_that_does_not_end_ends_the_connection(void **state)
{
	struct fixture *f = *state;
	uint64_t before = refusals("too_slow");
	struct h2_client c;

	begin(f, &c);
	c.deaf = true; /* it acknowledges no settings, since nothing may come between */
	h2_send_frame(&c, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, "\x82\x86\x84", 3);
	await(f, f->server->conns && f->server->conns->http2 && f->server->conns->http2->streams);
	pass(f, 21);
	c.deaf = false;
	assert_given_up(f, &c, "too_slow", before, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* The client opens no window for the answer: the server takes the stream back. */
static void an_answer_that_is_not_taken_ends(void **state)
{
	enum { N = 1 << 20 };
	const nghttp2_settings_entry none = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
	struct fixture *f = *state;
	_cleanup_free_ char *big = pattern(N);
	uint64_t before = refusals("not_taken");
	struct h2_client c;
	struct h2_answer *a;

	f->big = big;
	f->n_big = N;
	begin(f, &c);
	nghttp2_submit_settings(c.session, NGHTTP2_FLAG_NONE, &none, 1);
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, a->status == 200);
	pass(f, 61);
	await(f, a->closed);
	assert_int_equal(a->error, NGHTTP2_CANCEL);
	assert_int_equal(refusals("not_taken"), before + 1);
	assert_int_equal(a->body.len, 0);
	h2_stop(&c);
}

static void idle_connections_end(void **state)
{
	struct fixture *f = *state;
	struct h2_client c;
	struct h2_answer *a;

	begin(f, &c);
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, a->closed);
	pass(f, 74);
	step_loop(f);
	assert_false(c.goaway);
	pass(f, 2);
	await(f, c.eof);
	assert_true(c.goaway);
	assert_int_equal(c.goaway_error, NGHTTP2_NO_ERROR);
	h2_stop(&c);
}

static void old_connections_end_with_a_request(void **state)
{
	struct fixture *f = *state;
	struct h2_client c;
	struct h2_answer *a;

	f->max_age_ns = 100 * NSEC_PER_SEC;
	begin(f, &c);
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, a->closed);
	assert_false(c.goaway);
	f->server->conns->accepted_ns -= 101 * NSEC_PER_SEC;
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, c.eof);
	assert_true(c.goaway);
	assert_int_equal(a->status, 200);
	assert_string_equal(a->body.data, "hello");
	h2_stop(&c);
}

/* A server that ends answers what it has, and says that there will be no more. */
static void a_server_drains(void **state)
{
	struct fixture *f = *state;
	struct h2_client c, idle;
	struct h2_answer *a;

	begin_holding(f, &c);
	begin(f, &idle);
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, held.n == 1);
	http_server_drain(f->server);
	await(f, c.goaway && idle.eof);
	assert_true(idle.goaway);
	assert_false(http_server_is_drained(f->server));
	http_reply(held.conns[0], 200, NULL, NULL, "late", 4);
	await(f, c.eof);
	assert_string_equal(a->body.data, "late");
	await(f, http_server_is_drained(f->server));
	h2_stop(&c);
	h2_stop(&idle);
}

static void sent(void *arg)
{
	(*(unsigned *)arg)++;
}

static void told_when_sent(struct http_conn *c, const struct http_in *in, void *arg)
{
	static char big[1 << 20];

	(void)in;
	http_conn_on_sent(c, sent, arg);
	http_reply(c, 200, NULL, NULL, big, sizeof(big));
}

static void the_end_of_a_reply_is_told(void **state)
{
	unsigned n_sent = 0;
	const struct http_server_config config = {
		.address = "127.0.0.1", .handler = told_when_sent, .http2 = true, .arg = &n_sent};
	struct fixture *f = *state;
	struct h2_client c;
	struct h2_answer *a;

	assert_int_equal(http_server_new(f->loop, &config, &f->server, NULL), 0);
	begin(f, &c);
	c.deaf = true; /* the window is full before the end of the answer */
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, f->server->conns && f->server->conns->http2 && f->server->conns->http2->streams);
	step_loop(f);
	assert_int_equal(n_sent, 0);
	c.deaf = false;
	await(f, a->closed && n_sent == 1);
	assert_int_equal(a->body.len, 1 << 20);
	h2_stop(&c);
}

struct end {			  /* of an answer */
	struct http_conn *accept; /* whose body is accepted at this moment; NULL: none */
	unsigned n;
};

static void accept_at_the_end(void *arg)
{
	struct end *end = arg;
	struct http_conn *c = TAKE_PTR(end->accept);

	end->n++;
	if (c)
		http_accept_body(c, 1);
}

/* The end of an answer lets the handler go on with another request: it has nothing to send yet. */
static void two_answers_end_at_a_time(void **state)
{
	struct end ends[2] = {0};
	struct fixture *f = *state;
	struct h2_answer *a;
	struct h2_client c;
	struct http2 *h;

	f->head = hold;
	begin_holding(f, &c);
	h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	a = h2_send(&c, "POST", "/", NULL, "x", 1, false);
	await(f, held.n == 3);
	h = f->server->conns->http2;
	await(f, h->streams->prev->ended);
	ends[0].accept = held.conns[2];
	h->busy = true; /* so that both answers are written at a time */
	for (int i = 0; i < 2; i++) {
		http_conn_on_sent(held.conns[i], accept_at_the_end, &ends[i]);
		http_reply(held.conns[i], 200, NULL, NULL, NULL, 0);
	}
	h->busy = false;
	http2_flush(h);
	await(f, ends[0].n && ends[1].n && held.n == 4);
	assert_int_equal(ends[0].n, 1);
	assert_int_equal(ends[1].n, 1);
	http_reply(held.conns[3], 200, NULL, NULL, NULL, 0);
	await(f, a->closed);
	assert_int_equal(a->status, 200);
	h2_stop(&c);
}

/* ---- TLS ---- */

/* Makes a connection whose client offers these protocols (in ALPN's form). NULL: it was refused. */
static SSL *connect_tls(struct fixture *f, const char *protocols)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *ssl = SSL_new(ctx);
	int fd = connect_to(f), r;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	SSL_set_fd(ssl, fd);
	SSL_set_alpn_protos(ssl, (const uint8_t *)protocols, (unsigned)strlen(protocols));
	SSL_CTX_free(ctx);
	while ((r = SSL_connect(ssl)) < 0 && SSL_get_error(ssl, r) == SSL_ERROR_WANT_READ)
		step_loop(f);
	if (r == 1)
		return ssl;
	SSL_free(ssl);
	close(fd);
	return NULL;
}

static void assert_chosen(struct fixture *f, const char *protocols, const char *want)
{
	SSL *ssl = connect_tls(f, protocols);
	const uint8_t *chosen = NULL;
	unsigned n = 0;

	if (ssl)
		SSL_get0_alpn_selected(ssl, &chosen, &n);
	assert_int_equal(n, strlen(want));
	assert_memory_equal(chosen ? chosen : (const uint8_t *)"", want, n);
	if (ssl)
		close(SSL_get_fd(ssl));
	SSL_free(ssl);
}

static void alpn_chooses(void **state)
{
	struct fixture *f = *state;
	struct h2_client c;
	struct h2_answer *a;
	SSL *ssl;

	f->http2 = true;
	start_server(f, &local_cert, 0, 0);
	assert_chosen(f, "\x08http/1.1\x02h2", "h2");
	assert_chosen(f, "\x08http/1.1", "http/1.1");
	assert_chosen(f, "\x03xyz", "");
	ssl = connect_tls(f, "\x02h2");
	assert_non_null(ssl);
	h2_start(&c, f->loop, SSL_get_fd(ssl), ssl);
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, a->closed);
	assert_string_equal(a->body.data, "hello");
	h2_stop(&c);
	f->server = http_server_free(f->server);
	f->server_tls = tls_unref(f->server_tls);
	f->http2 = false;
	start_server(f, &local_cert, 0, 0);
	assert_chosen(f, "\x02h2\x08http/1.1", "http/1.1");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
	T(a_handler_serves_both_versions),
	T(a_server_without_it_refuses_http2),
	T(bodies_pass_the_windows),
	T(requests_share_a_connection),
	T(requests_beyond_the_limit_are_refused),
	T(a_reply_may_come_in_pieces),
	T(a_body_waits_for_the_word),
	T(waiting_bodies_leave_room_for_an_accepted_one),
	T(waiting_bodies_of_a_peer_leave_room),
	T(a_body_that_is_reset_gives_its_window_back),
	T(a_refused_body_ends_its_stream_only),
	T(too_large_heads_and_bodies_are_refused),
	T(heads_of_a_connection_have_a_budget),
	T(a_reset_is_told),
	T(resets_have_a_limit),
	T(frames_of_no_use_have_a_limit),
	T(who_does_not_read_is_given_up),
	T(a_head_of_many_frames_is_refused),
	T(bytes_that_are_no_frames_end_the_connection),
	T(a_slow_body_gets_408),
	T(a_head_that_does_not_end_ends_the_connection),
	T(an_answer_that_is_not_taken_ends),
	T(idle_connections_end),
	T(old_connections_end_with_a_request),
	T(a_server_drains),
	T(the_end_of_a_reply_is_told),
	T(two_answers_end_at_a_time),
	T(alpn_chooses),
};

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("http2_server", tests, make_certs, free_certs);
}
