/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP server: any bytes as requests, handlers that decide by the head how the body is read, and
 * TLS on both sides.
 */

#include <sys/resource.h>
#include <utlist.h>

#include "lib/base/testclock.h"
#include "lib/loop/http_server_private.h"
#include "lib/loop/testhttp.h"

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

/* Sends the text. When the server closes the connection, the loop stops. */
static void raw_begin(struct fixture *f, const char *text, size_t n, struct raw *r)
{
	*r = (struct raw){.f = f, .fd = raw_connect(http_server_port(f->server))};
	assert_int_equal(send(r->fd, text, n, 0), n);
	assert_int_equal(watch_new(f->loop, r->fd, raw_readable, r, &r->watch), 0);
}

/* Sends the text and returns all that the server sends until it closes the connection. */
static char *raw_talk(struct fixture *f, const char *text, size_t n, bool half_close)
{
	struct raw r;

	raw_begin(f, text, n, &r);
	if (half_close)
		shutdown(r.fd, SHUT_WR);
	run(f);
	close(r.fd);
	return buf_steal(&r.got);
}

static const char half_open[] = "GET / HTTP/1.1\r\nHost: a\r\nX-Half: ";

/* A client that only holds connections open does not keep other clients out. */
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
	/* only the oldest connection was closed */
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
	get(f, "/kept"); /* the client connects again, and reports no error */
	assert_int_equal(f->status, 200);
}

/* A client that connects while no descriptor is left waits until there is one. */
static void without_descriptors_connections_wait(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
	struct fixture *f = *state;
	struct counter *pauses = counter("http_accept_pauses_total", NULL, NULL);
	uint64_t before = counter_get(pauses);
	_cleanup_free_ char *got = NULL;
	struct raw r = {.f = f};
	struct rlimit old, none;
	int next;

	start_server(f, NULL, 0, 0);
	r.fd = raw_connect(http_server_port(f->server));
	assert_int_equal(send(r.fd, text, strlen(text), 0), strlen(text));
	assert_int_equal(watch_new(f->loop, r.fd, raw_readable, &r, &r.watch), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	next = dup(r.fd); /* all lower descriptors are in use */
	close(next);
	none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (unsigned i = 0; i < 10000 && counter_get(pauses) == before; i++) {
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
		loop_run(f->loop);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_true(counter_get(pauses) > before);
	assert_int_equal(f->n_in, 0);
	run(f);
	close(r.fd);
	got = buf_steal(&r.got);
	assert_text(got, "HTTP/1.1 200");
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

/* Runs the loop until the server has read so many bytes of bodies. */
static void await_bytes(struct fixture *f, size_t n)
{
	const struct http_conn *c;
	size_t n_read = 0;

	while (n_read < n) {
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
		loop_run(f->loop);
		n_read = 0;
		DL_FOREACH (f->server->conns, c)
			n_read += c->body.len;
	}
}

/*
 * A sender that announces much and sends little does not hold the room for it until the time for a
 * request ends. One beside it, whose body would be in by then, goes on.
 */
static void a_body_that_comes_too_slowly_ends_early(void **state)
{
	enum { LENGTH = 6000, LITTLE = 10, ENOUGH = 2000 };
	struct fixture *f = *state;
	struct counter *refused = counter("http_refused_total", "reason", "too_slow");
	uint64_t before = counter_get(refused), began_ns = now_mono_ns(), took_ns;
	_cleanup_free_ char *bytes = pattern(LENGTH),
			    *head = xasprintf("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
					      "Content-Length: %d\r\n\r\n",
					      LENGTH);
	struct raw slow, fast;

	start_server(f, NULL, 0, 0);
	raw_begin(f, head, strlen(head), &slow);
	raw_begin(f, head, strlen(head), &fast);
	assert_int_equal(send(slow.fd, bytes, LITTLE, 0), LITTLE);
	assert_int_equal(send(fast.fd, bytes, ENOUGH, 0), ENOUGH);
	await_bytes(f, LITTLE + ENOUGH);
	/* the server's next look is set already: later timers would follow the machine's clock */
	test_clock.later_ns = 20 * NSEC_PER_SEC;
	run(f);
	took_ns = now_mono_ns() - began_ns;
	test_clock.later_ns = 0;
	assert_true(slow.eof && !fast.eof);
	assert_text(slow.got.data, "HTTP/1.1 408");
	assert_true(took_ns < 28 * NSEC_PER_SEC);
	assert_int_equal(counter_get(refused), before + 1);
	assert_int_equal(send(fast.fd, bytes + ENOUGH, LENGTH - ENOUGH, 0), LENGTH - ENOUGH);
	run(f);
	assert_text(fast.got.data, "HTTP/1.1 200");
	assert_int_equal(f->in_bytes, LENGTH);
	close(slow.fd);
	close(fast.fd);
	buf_done(&slow.got);
	buf_done(&fast.got);
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

static void last_piece(void *arg)
{
	struct fixture *f = arg;

	f->hold = false;
	http_reply_last(TAKE_PTR(f->held), "last", 4);
}

static void first_piece(void *arg)
{
	struct fixture *f = arg;

	if (f->held)
		http_reply_first(f->held, 200, "text/plain", NULL, "first,", 6);
	timer_set(f->loop, &f->step, NSEC_PER_MSEC, f->held ? last_piece : first_piece, f);
}

/* The body is in chunks; for HTTP/1.0, it ends with the connection; for HEAD, there is none. */
static void a_reply_may_come_in_two_pieces(void **state)
{
	static const struct {
		const char *request, *framing, *body;
	} cases[] = {
		{"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		 "\r\nTransfer-Encoding: chunked\r\n",
		 "\r\n\r\n6\r\nfirst,\r\n4\r\nlast\r\n0\r\n\r\n"},
		{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "\r\nConnection: close\r\n",
		 "\r\n\r\nfirst,last"},
		{"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n",
		 "\r\n\r\n"},
	};
	struct fixture *f = *state;

	start_server(f, NULL, 0, 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *got = NULL;

		f->hold = true;
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, first_piece, f);
		got = raw_talk(f, cases[i].request, strlen(cases[i].request), false);
		assert_text(got, cases[i].framing);
		assert_string_equal(strstr(got, "\r\n\r\n"), cases[i].body);
	}
}

/* After the last piece, the connection serves the next request. */
static void a_request_after_two_pieces(void **state)
{
	static const char text[] = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.0\r\n\r\n";
	struct fixture *f = *state;
	_cleanup_free_ char *got = NULL;

	start_server(f, NULL, 0, 0);
	f->hold = true;
	timer_set(f->loop, &f->step, NSEC_PER_MSEC, first_piece, f);
	got = raw_talk(f, text, strlen(text), false);
	assert_text(got, "0\r\n\r\nHTTP/1.1 200");
	assert_string_equal(f->in_path, "/2");
}

static unsigned n_sent;

static void count_sent(void *arg)
{
	(void)arg;
	n_sent++;
}

static void stop_now(void *arg)
{
	loop_stop(arg, 0);
}

/* Replies to the request that is held, with more than the buffers of a socket take, if large. */
static void reply_and_stop(struct fixture *f, bool large)
{
	static char body[16 << 20];

	while (!f->held) {
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, stop_now, f->loop);
		run(f);
	}
	http_conn_on_sent(f->held, count_sent, NULL);
	http_reply(TAKE_PTR(f->held), 200, "text/plain", NULL, body, large ? sizeof(body) : 1);
}

static void run_for_ms(struct fixture *f, unsigned ms)
{
	timer_set(f->loop, &f->step, ms * NSEC_PER_MSEC, stop_now, f->loop);
	run(f);
}

/* The handler hears once that a reply has left, or that its connection has ended before. */
static void the_end_of_a_reply_is_told(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
	struct fixture *f = *state;
	int fd;

	start_server(f, NULL, 0, 0);
	fd = raw_connect(http_server_port(f->server));
	for (unsigned i = 0; i < 2; i++) {
		f->hold = true;
		n_sent = 0;
		assert_int_equal(send(fd, text, strlen(text), 0), strlen(text));
		reply_and_stop(f, i == 1);
		run_for_ms(f, 50);
		assert_int_equal(n_sent, i == 0);
	}
	close(fd);
	while (!n_sent)
		run_for_ms(f, 1);
	run_for_ms(f, 10);
	assert_int_equal(n_sent, 1);
}

static unsigned count_of(const char *text, const char *part)
{
	unsigned n = 0;

	for (const char *at = text ?: ""; (at = strstr(at, part)); at += strlen(part))
		n++;
	return n;
}

/* A connection serves many requests, until it is too old. */
static void old_connections_end_with_a_reply(void **state)
{
	static const char one[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
	struct fixture *f = *state;
	struct raw r;

	f->max_age_ns = 100 * NSEC_PER_SEC;
	start_server(f, NULL, 0, 0);
	raw_begin(f, "", 0, &r);
	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(send(r.fd, one, strlen(one), 0), strlen(one));
		while (count_of(r.got.data, "hello") < i) {
			timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
			loop_run(f->loop);
		}
		assert_int_equal(count_of(r.got.data, "Connection: close"), i == 3);
		test_clock.later_ns = i * 51 * NSEC_PER_SEC;
	}
	test_clock.later_ns = 0;
	while (!r.eof) {
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
		loop_run(f->loop);
	}
	close(r.fd);
	buf_done(&r.got);
}

/*
 * A server that ends answers what it has: a request that waits for its reply, and one that is still
 * coming. A connection without a request is closed, and a new one is refused.
 */
static void a_server_drains(void **state)
{
	static const char held[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			  coming[] = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na";
	struct fixture *f = *state;
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct raw idle, a, b;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	start_server(f, NULL, 0, 0);
	f->hold = true;
	raw_begin(f, "", 0, &idle);
	raw_begin(f, coming, strlen(coming), &b);
	await_bytes(f, 1);
	raw_begin(f, held, strlen(held), &a);
	while (!f->held) {
		timer_set(f->loop, &f->step, NSEC_PER_MSEC, guard, f);
		loop_run(f->loop);
	}
	f->hold = false;
	sa.sin_port = htons(http_server_port(f->server));
	http_server_drain(f->server);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), -1);
	run(f);
	assert_true(idle.eof);
	assert_false(http_server_is_drained(f->server));
	reply_later(f);
	run(f);
	assert_text(a.got.data, "HTTP/1.1 202");
	assert_text(a.got.data, "Connection: close");
	assert_false(http_server_is_drained(f->server));
	assert_int_equal(send(b.fd, "bc", 2, 0), 2);
	run(f);
	assert_text(b.got.data, "HTTP/1.1 200");
	assert_true(http_server_is_drained(f->server));
	close(fd);
	close(idle.fd);
	close(a.fd);
	close(b.fd);
	buf_done(&a.got);
	buf_done(&b.got);
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

/* ---- handlers that see the head of a request before its body ---- */

#define LARGE (8 << 20)

static void accept_later(void *arg)
{
	struct fixture *f = arg;

	http_accept_body(TAKE_PTR(f->held), LARGE);
}

/*
 * Decides by the path of a request. "/now", "/later": a large body is accepted; "/no": none;
 * "/never": the test decides later; else a small one.
 */
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
	/* only the client has counted a head, that of the answer: judge_head() was not called */
	assert_int_equal(f->n_heads, 1);
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

/*
 * The peer leaves while the server waits for the handler's decision. The decision that comes later
 * must do no harm, and the handler's on_gone is called.
 */
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
		loop_run(f->loop); /* the server may have noticed the end or not: both must work */
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

static void what_cannot_be_served_names_the_key(void **state)
{
	struct fixture *f = *state;
	struct http_server_config c = {
		.section = "api", .address = "127.0.0.1", .handler = handle, .arg = f};
	struct http_server *second = NULL;
	struct field_error e = {0};

	start_server(f, NULL, 0, 0);
	c.port = http_server_port(f->server);
	assert_int_equal(http_server_new(f->loop, &c, &second, &e), -EADDRINUSE);
	assert_string_equal(e.path, "api.port");
	assert_text(e.reason, "127.0.0.1 port");
	c.address = "nonsense";
	assert_int_equal(http_server_new(f->loop, &c, &second, &e), -EINVAL);
	assert_string_equal(e.path, "api.address");
	c.address = "192.0.2.1"; /* an address that no machine has: RFC 5737 */
	assert_int_equal(http_server_new(f->loop, &c, &second, &e), -EADDRNOTAVAIL);
	assert_string_equal(e.path, "api.address");
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
	assert_int_equal(f->n_in, 0); /* the request, which may contain a token, was never sent */
}

/*
 * The subject of each certificate is CN=leaf. OpenSSL would accept a CN as a host name if there is
 * no other name; the client must not.
 */
static void tls_subject_is_no_name(void **state)
{
	struct fixture *f = *state;

	tls_get(f, &v6_cert, "127.0.0.1", "leaf", ca.pem);
	assert_int_equal(f->status, 0);
	assert_text(f->error, "hostname mismatch");
	assert_int_equal(f->n_in, 0);
}

static void tls_wrong_ca_refused(void **state)
{
	struct fixture *f = *state;

	tls_get(f, &local_cert, "127.0.0.1", NULL, other_ca.pem);
	assert_int_equal(f->status, 0);
	assert_text(f->error, "certificate of \"127.0.0.1\" refused");
	assert_int_equal(f->n_in, 0);
}

/* The clock of this side or of the server is wrong, by an hour or a year. */
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

/*
 * The CA of a cluster was signed by another CA, which its ca.crt lacks: kubectl trusts it, and so
 * does podflame.
 */
static void tls_ca_that_another_has_signed(void **state)
{
	struct fixture *f = *state;
	struct test_ca below;
	struct test_cert cert;

	test_ca_init_below(&below, "cluster", &other_ca);
	test_cert_init(&cert, &below, "IP:127.0.0.1");
	start_server(f, &cert, 0, 0);
	make_client(f, "127.0.0.1", NULL, http_server_port(f->server), below.pem, NULL);
	get(f, "/");
	assert_null(f->error);
	assert_int_equal(f->status, 200);
	test_cert_done(&cert);
	test_ca_done(&below);
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
	_cleanup_free_ char *host = NULL;

	if (!ts_has_ipv6())
		skip();
	f->ts = ts_start(&good, ts_hello, NULL);
	make_client(f, "::1", NULL, f->ts->port, ca.pem, NULL);
	get(f, "/");
	assert_int_equal(f->status, 200);
	host = xasprintf("\r\nHost: [::1]:%u\r\n", f->ts->port);
	assert_text(ts_request_head(f->ts, 0), host);
	assert_string_equal(ts_sni(f->ts), ""); /* RFC 6066: only names are sent, not addresses */
}

static void tls_50_ipv6_literal_wrong_name_refused(void **state)
{
	struct fixture *f = *state;
	struct ts_config bad = {.cert = &name_cert, .ipv6 = true};

	if (!ts_has_ipv6())
		skip();
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

/*
 * The file was read while it was being written. A chain that is cut is refused: clients that know
 * only the CA would refuse a server whose chain lacks a part.
 */
static void tls_certificate_chain_that_is_cut(void **state)
{
	_cleanup_free_ char *chain = xasprintf("%s%s", client_cert.cert_pem, ca.pem);
	const struct tls_config c = {.cert_pem = chain, .key_pem = client_cert.key_pem};
	struct tls *t = NULL;
	struct field_error e = {0};

	(void)state;
	assert_int_equal(tls_new(&c, true, &t, &e), 0);
	tls_unref(TAKE_PTR(t));
	chain[strlen(chain) - 100] = '\0';
	assert_int_equal(tls_new(&c, true, &t, &e), -EINVAL);
	assert_string_equal(e.path, "certificate");
	assert_null(t);
}

/* ---- a CA bundle with certificates that cannot be read ---- */

static struct buf skipped;

static void note_skipped(const char *bundle, unsigned nr, const char *subject, const char *why)
{
	assert_true(*why);
	/* OpenSSL has this text for every block that is no certificate */
	assert_string_not_equal(why, "nested asn1 error");
	buf_printf(&skipped, "%s %u %s;", bundle, nr, subject);
}

static struct counter *n_skipped(void)
{
	return counter("tls_ca_skipped_total", NULL, NULL);
}

#define GARBAGE(text) "-----BEGIN CERTIFICATE-----\n" text "\n-----END CERTIFICATE-----\n"

/* Returns how many certificates of the bundle are trusted, or -errno. */
static int trusted(const char *bundle, const char *name, struct field_error *ret)
{
	const struct tls_config c = {.ca_pem = bundle, .ca_name = name};
	struct tls *t = NULL;
	int r = tls_new(&c, false, &t, ret);

	if (r < 0) {
		assert_null(t);
		return r;
	}
	r = sk_X509_OBJECT_num(X509_STORE_get0_objects(SSL_CTX_get_cert_store(t->ctx)));
	tls_unref(t);
	return r;
}

static void tls_ca_bundle_without_what_cannot_be_read(void **state)
{
	struct fixture *f = *state;
	struct ts_config good = {.cert = &local_cert};
	_cleanup_free_ char *curve = test_ca_of_unknown_curve("strange curve"),
			    *algorithm = test_ca_of_unknown_algorithm("strange key"),
			    *der = test_pem("CERTIFICATE", (const unsigned char *)"0\x82", 2),
			    *other = test_pem("PUBLIC KEY", (const unsigned char *)"0\x82", 2);
	_cleanup_free_ char *bundle = xasprintf("# ours\n%s%s%s%s" GARBAGE("%%%%%%") "%s%s", curve,
						other_ca.pem, other, der, algorithm, ca.pem);
	uint64_t before = counter_get(n_skipped());

	tls_on_skipped(note_skipped);
	f->ts = ts_start(&good, ts_hello, NULL);
	make_client(f, "127.0.0.1", NULL, f->ts->port, bundle, NULL);
	assert_string_equal(skipped.data,
			    "ca 1 /CN=strange curve;ca 3 ;ca 4 ;ca 5 /CN=strange key;");
	get(f, "/");
	assert_int_equal(f->status, 200);
	http_client_free(TAKE_PTR(f->client));
	tls_unref(TAKE_PTR(f->client_tls));
	/* a certificate that was reported before is only counted */
	buf_reset(&skipped);
	make_client(f, "127.0.0.1", NULL, f->ts->port, bundle, NULL);
	assert_int_equal(skipped.len, 0);
	assert_int_equal(counter_get(n_skipped()) - before, 8);
	tls_on_skipped(NULL);
	buf_done(&skipped);
}

/*
 * A certificate that cannot be read is reported once for each name of a bundle, and again if its
 * bytes have changed.
 */
static void tls_ca_bundle_is_named(void **state)
{
	_cleanup_free_ char *one = xasprintf("%s" GARBAGE("%%1"), ca.pem),
			    *two = xasprintf("%s" GARBAGE("%%2"), ca.pem);
	struct field_error e = {0};

	(void)state;
	tls_on_skipped(note_skipped);
	assert_int_equal(trusted(one, "/a", &e), 1);
	assert_int_equal(trusted(one, "/b", &e), 1);
	assert_int_equal(trusted(two, "/b", &e), 1);
	assert_int_equal(trusted(one, "/a", &e), 1);
	assert_string_equal(skipped.data, "/a 2 ;/b 2 ;/b 2 ;");
	tls_on_skipped(NULL);
	buf_done(&skipped);
}

/* A block without an end hides no other block, wherever it was cut. */
static void tls_ca_bundle_with_a_block_that_does_not_end(void **state)
{
	static const char *const left[] = {
		"-----BEGIN CERTIFICATE-----\n",
		"-----BEGIN CERTIFICATE-----\nMIIB\n",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE\n",
		"-----BEGIN CERTIFICATE--\nMIIB\n-----END CERTIFICATE-----\n",
		"-----BEGIN X509 CERTIFICATE-----\nMIIB\n",
	};
	static const char *const ignored[] = {
		"-----BEGIN PUBLIC KEY-----\nMIIB\n",
		"-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n",
	};
	struct field_error e = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(left) + ARRAY_SIZE(ignored); i++) {
		bool is_left = i < ARRAY_SIZE(left);
		_cleanup_free_ char *bundle =
			xasprintf("%s%s%s", other_ca.pem,
				  is_left ? left[i] : ignored[i - ARRAY_SIZE(left)], ca.pem);
		uint64_t before = counter_get(n_skipped());

		assert_int_equal(trusted(bundle, NULL, &e), 2);
		assert_int_equal(counter_get(n_skipped()) - before, is_left);
	}
}

/*
 * The file was read while it was being written. If it ends within a certificate, it is refused, and
 * the old settings stay.
 */
static void tls_ca_bundle_that_is_cut(void **state)
{
	_cleanup_free_ char *bundle = xasprintf("%s# other\n%s", ca.pem, other_ca.pem);
	size_t first = strlen(ca.pem), n = strlen(bundle);
	size_t begin = n - strlen(other_ca.pem) + strlen("-----BEGIN ");
	struct field_error e = {0};

	(void)state;
	assert_int_equal(trusted(bundle, NULL, &e), 2);
	bundle[--n] = '\0';
	assert_int_equal(trusted(bundle, NULL, &e), 2); /* the last line needs no newline */
	while (n-- > begin) {
		bundle[n] = '\0';
		assert_int_equal(trusted(bundle, NULL, &e), -EINVAL);
		assert_string_equal(e.path, "ca");
		assert_string_equal(e.reason, "ends within certificate 2");
	}
	bundle[first] = '\0';
	assert_int_equal(trusted(bundle, NULL, &e), 1);
}

static void tls_ca_bundle_of_too_many(void **state)
{
	enum { MAX_CA_CERTS = 4096 };
	struct buf b = {0};
	struct field_error e = {0};

	(void)state;
	for (int i = 0; i < MAX_CA_CERTS - 1; i++)
		buf_puts(&b, GARBAGE("%"));
	buf_puts(&b, ca.pem);
	assert_int_equal(trusted(b.data, NULL, &e), 1);
	buf_puts(&b, other_ca.pem);
	assert_int_equal(trusted(b.data, NULL, &e), -EINVAL);
	assert_string_equal(e.path, "ca");
	assert_string_equal(e.reason, "has more than 4096 certificates");
	buf_done(&b);
}

static void tls_ca_bundle_of_which_nothing_can_be_read(void **state)
{
	_cleanup_free_ char *curve = test_ca_of_unknown_curve("strange curve"),
			    *algorithm = test_ca_of_unknown_algorithm("strange key");
	const char *const bundles[] = {curve, algorithm};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bundles); i++) {
		struct field_error e = {0};

		assert_int_equal(trusted(bundles[i], NULL, &e), -EINVAL);
		assert_string_equal(e.path, "ca");
		assert_string_equal(e.reason,
				    "no certificate of 1 can be read: its key cannot be decoded");
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
	T(half_open_requests_make_room),
	T(idle_connections_make_room),
	T(without_descriptors_connections_wait),
	T(slow_body_gets_408),
	T(a_body_that_comes_too_slowly_ends_early),
	T(bad_requests_get_their_status),
	T(too_large_a_head_gets_431),
	T(chunked_request_body_is_decoded),
	T(chunked_request_above_the_limit_gets_413),
	T(pipelined_requests_are_answered_in_order),
	T(half_closed_client_still_gets_its_answer),
	T(a_reply_may_come_in_two_pieces),
	T(a_request_after_two_pieces),
	T(the_end_of_a_reply_is_told),
	T(old_connections_end_with_a_reply),
	T(a_server_drains),
	T(cut_request_is_dropped),
	T(expect_100_continue),
	T(a_head_decides_how_large_the_body_may_be),
	T(a_refused_body_ends_the_connection),
	T(who_waits_for_the_word_may_leave),
	T(what_cannot_be_served_names_the_key),
	T(tls_by_ip),
	T(tls_by_name_other_than_the_address),
	T(tls_resolved_name),
	T(tls_wrong_name_refused),
	T(tls_subject_is_no_name),
	T(tls_wrong_ca_refused),
	T(tls_59_expired_or_not_yet_valid),
	T(tls_bundle_of_two),
	T(tls_ca_that_another_has_signed),
	T(tls_49_ipv6_literal_is_verified),
	T(tls_50_ipv6_literal_wrong_name_refused),
	T(tls_client_certificate),
	T(tls_missing_client_certificate),
	T(tls_h2_only_server_62),
	T(tls_material_errors_name_the_part),
	T(tls_certificate_chain_that_is_cut),
	T(tls_ca_bundle_without_what_cannot_be_read),
	T(tls_ca_bundle_is_named),
	T(tls_ca_bundle_with_a_block_that_does_not_end),
	T(tls_ca_bundle_that_is_cut),
	T(tls_ca_bundle_of_too_many),
	T(tls_ca_bundle_of_which_nothing_can_be_read),
};

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("http_server", tests, make_certs, free_certs);
}
