/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP client and server with each other, and the client with servers that misbehave. */
#include <dirent.h>

#include "lib/loop/testhttp.h"

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
	assert_string_equal(f->in_query, "x=1&y=a%26b+c"); /* the query is not decoded */
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
	get(f, "/"); /* the next answer belongs to the next request */
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

	if (!f->held) { /* the request has not arrived yet */
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
	http_client_set_tls(f->client, f->client_tls); /* drops the keep-alive connection */
	get(f, "/");
	assert_int_equal(f->status, 0);
	assert_text(f->error, "certificate");
	/* the client gets the new CA, too */
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

	if (!f->held) { /* the request has not arrived yet */
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
	get(f, "/"); /* on a new connection */
	assert_int_equal(f->status, 0);
	assert_text(f->error, "certificate");
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
	struct ts_config c = {.cert = &local_cert}; /* one TLS record per byte */

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

/*
 * A stream has a time limit until the head with its final status arrives (103 is not final). If
 * that status is not 2xx, the limit holds until the end of the answer.
 */
static void silent_stream_that_was_not_granted_times_out(void **state)
{
	static const char *const before[] = {
		"HTTP/1.1 103 Early Hints\r\n\r\n",
		"HTTP/1.1 503 X\r\nContent-Length: 5\r\n\r\nab",
	};
	struct fixture *f = *state;
	struct ts_config c = {0};

	for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
		f->n_done = 0;
		f->ts = ts_start(&c, stall, (void *)(uintptr_t)before[i]);
		make_client(f, "127.0.0.1", NULL, f->ts->port, NULL, NULL);
		stream(f, "/");
		run(f);
		assert_int_equal(f->status, 0);
		assert_text(f->error, "timed out");
		f->client = http_client_free(f->client);
		ts_stop(TAKE_PTR(f->ts));
	}
	assert_int_equal(f->n_heads, 1);
	assert_int_equal(f->head_status, 503);
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
	/* the server may close its socket a little later */
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

static bool may_send(void *arg)
{
	const struct fixture *f = arg;

	return f->n_done < 1;
}

/* The sender is asked when the connection is ready: a new one, and one that was kept. */
static void a_request_may_be_withdrawn(void **state)
{
	struct fixture *f = *state;
	struct http_request r = {
		.method = "POST", .path = "/", .may_send = may_send, .on_done = on_done, .arg = f};

	start_both(f);
	assert_int_equal(http_send(f->client, &r, NULL), 0);
	run(f);
	assert_int_equal(f->status, 200);
	f->wanted_done = 3;
	assert_int_equal(http_send(f->client, &r, NULL), 0);
	assert_int_equal(http_send(f->client, &r, NULL), 0);
	run(f);
	assert_int_equal(f->status, 0);
	assert_text(f->error, "withdrawn before it was sent");
	assert_int_equal(f->n_in, 1);
	f->wanted_done = 1;
	get(f, "/");
	assert_int_equal(f->status, 200);
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
	T(silent_stream_that_was_not_granted_times_out),
	T(kept_connection_is_used_and_its_loss_hidden),
	T(reconnects_leave_no_file_open_64),
	T(answer_above_the_limit),
	T(headers_cannot_be_smuggled),
	T(a_request_may_be_withdrawn),
	T(free_with_calls_under_way),
};

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("http", tests, make_certs, free_certs);
}
