/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies in many pieces, by HTTP/1.1 and HTTP/2: the handler makes a piece when the peer has taken
 * the one before, and a reply that is cut does not look whole.
 */

#include "lib/loop/http2.h"
#include "lib/loop/testhttp.h"
#include "lib/loop/testhttp2.h"

#define PIECE	 (256u << 10)
#define N_PIECES 64 /* more than the sockets of both sides take */

/* A reply that the handler makes. */
static struct made {
	struct http_conn *conn;
	char *piece;
	unsigned n, end; /* pieces so far, and when the reply ends */
	bool cut;	 /* it ends before its end */
	unsigned n_gone;
} made;

static void reply_gone(void *arg)
{
	(void)arg;
	made.conn = NULL;
	made.n_gone++;
}

static void next_piece(void *arg)
{
	(void)arg;
	if (made.n < made.end) {
		made.n++;
		http_conn_on_taken(made.conn, next_piece, NULL);
		http_reply_more(made.conn, made.piece, PIECE);
	} else if (made.cut) {
		http_reply_cut(TAKE_PTR(made.conn));
	} else {
		http_reply_last(TAKE_PTR(made.conn), "end", 3);
	}
}

static void make_pieces(struct http_conn *c, const struct http_in *in, void *arg)
{
	(void)in, (void)arg;
	made.conn = c;
	made.n = 1;
	http_conn_on_gone(c, reply_gone, NULL);
	http_conn_on_taken(c, next_piece, NULL);
	http_reply_first(c, 200, "text/plain", NULL, made.piece, PIECE);
}

static void serve(struct fixture *f, unsigned end, bool cut)
{
	const struct http_server_config config = {
		.address = "127.0.0.1", .handler = make_pieces, .http2 = true, .arg = f};

	free(made.piece);
	made = (struct made){.piece = pattern(PIECE), .end = end, .cut = cut};
	assert_int_equal(http_server_new(f->loop, &config, &f->server, NULL), 0);
}

static int stop(void **state)
{
	int r = teardown(state);

	free(TAKE_PTR(made.piece));
	return r;
}

static int connect_to(const struct fixture *f)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons(http_server_port(f->server)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
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

/* Runs the loop until no more pieces are made. */
static void await_rest(struct fixture *f)
{
	unsigned before;

	await(f, made.n);
	do {
		before = made.n;
		for (int i = 0; i < 20; i++)
			step_loop(f);
	} while (made.n != before);
}

static char *ask(struct fixture *f, const char *request, int *ret_error)
{
	struct raw r = {.f = f, .fd = connect_to(f)};

	assert_int_equal(send(r.fd, request, strlen(request), 0), strlen(request));
	assert_int_equal(watch_new(f->loop, r.fd, raw_readable, &r, &r.watch), 0);
	errno = 0;
	run(f);
	*ret_error = errno;
	close(r.fd);
	return buf_steal(&r.got);
}

static const char http1[] = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		  http0[] = "GET / HTTP/1.0\r\n\r\n";

static void pieces_wait_for_the_peer(void **state)
{
	struct fixture *f = *state;
	struct raw r = {.f = f};

	serve(f, N_PIECES, false);
	r.fd = connect_to(f);
	assert_int_equal(send(r.fd, http0, strlen(http0), 0), strlen(http0));
	await_rest(f);
	assert_in_range(made.n, 1, N_PIECES - 1);
	assert_int_equal(watch_new(f->loop, r.fd, raw_readable, &r, &r.watch), 0);
	run(f);
	close(r.fd);
	assert_int_equal(made.n, N_PIECES);
	assert_int_equal(r.got.len - (size_t)(strstr(r.got.data, "\r\n\r\n") + 4 - r.got.data),
			 N_PIECES * PIECE + 3);
	assert_memory_equal(r.got.data + r.got.len - 3 - PIECE, made.piece, PIECE);
	buf_done(&r.got);
}

static void pieces_wait_for_the_window(void **state)
{
	struct fixture *f = *state;
	struct h2_client c;
	struct h2_answer *a;

	serve(f, N_PIECES, false);
	h2_start(&c, f->loop, connect_to(f), NULL);
	c.deaf = true;
	a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await_rest(f);
	assert_int_equal(made.n, 1); /* its window has less than a piece */
	c.deaf = false;
	await(f, a->closed);
	assert_int_equal(a->error, NGHTTP2_NO_ERROR);
	assert_int_equal(a->body.len, N_PIECES * PIECE + 3);
	assert_memory_equal(a->body.data + (N_PIECES - 1) * PIECE, made.piece, PIECE);
	h2_stop(&c);
}

/* HTTP/1.0 has nothing but the reset that tells a cut reply from a whole one. */
static void a_cut_reply_ends_with_a_reset(void **state)
{
	static const char *const requests[] = {http1, http0};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		_cleanup_free_ char *got = NULL;
		int error;

		serve(f, 2, true);
		got = ask(f, requests[i], &error);
		assert_int_equal(error, ECONNRESET);
		assert_text(got, "200 OK");
		assert_false(str_has_suffix(got, "0\r\n\r\n"));
		assert_int_equal(made.n_gone, 0);
		f->server = http_server_free(f->server);
	}
}

static void a_cut_stream_ends_with_an_error(void **state)
{
	struct fixture *f = *state;
	struct h2_client c;
	struct h2_answer *a;

	serve(f, 2, true);
	h2_start(&c, f->loop, connect_to(f), NULL);
	for (int i = 0; i < 2; i++) { /* the connection goes on */
		a = h2_send(&c, "GET", "/", NULL, NULL, 0, false);
		await(f, a->closed);
		assert_int_equal(a->status, 200);
		assert_int_equal(a->error, NGHTTP2_INTERNAL_ERROR);
		assert_null(made.conn);
	}
	assert_int_equal(made.n_gone, 0);
	h2_stop(&c);
}

/* A peer that takes nothing of a piece for a minute counts as gone. */
static void assert_ends_when_overdue(void)
{
	struct counter *not_taken = counter("http_refused_total", "reason", "not_taken");
	uint64_t before = counter_get(not_taken), now_ns = now_mono_ns();
	uint64_t later_ns = now_ns + HTTP_TX_IDLE_NS + 1;
	unsigned n_gone = made.n_gone;

	assert_false(http_conn_is_overdue(made.conn, now_ns, now_ns, now_ns));
	assert_false(http_conn_is_overdue(made.conn, later_ns, now_ns, later_ns));
	assert_true(http_conn_is_overdue(made.conn, later_ns, now_ns, now_ns));
	http_conn_end_overdue(made.conn);
	assert_int_equal(made.n_gone, n_gone + 1);
	assert_int_equal(counter_get(not_taken), before + 1);
}

static void a_piece_that_is_not_taken_ends_the_reply(void **state)
{
	struct fixture *f = *state;
	struct h2_client c;
	int fd;

	serve(f, N_PIECES, false);
	fd = connect_to(f);
	assert_int_equal(send(fd, http1, strlen(http1), 0), strlen(http1));
	await_rest(f);
	assert_ends_when_overdue();
	close(fd);
	h2_start(&c, f->loop, connect_to(f), NULL);
	c.deaf = true;
	h2_send(&c, "GET", "/", NULL, NULL, 0, false);
	await(f, made.conn);
	await_rest(f);
	assert_ends_when_overdue();
	h2_stop(&c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, stop)

static const struct CMUnitTest tests[] = {
	T(pieces_wait_for_the_peer),
	T(pieces_wait_for_the_window),
	T(a_cut_reply_ends_with_a_reset),
	T(a_cut_stream_ends_with_an_error),
	T(a_piece_that_is_not_taken_ends_the_reply),
};

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("http_pieces", tests, make_certs, free_certs);
}
