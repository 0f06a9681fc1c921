// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP/2 (RFC 9113) to a server that chooses it by ALPN: all calls of a client share a connection.
 * nghttp2 does the framing. A session takes new calls until the server says GOAWAY, or the client
 * has new TLS settings; it ends with its last call, some seconds later if nothing else ends it. If
 * a connection fails, its calls fail in the next turn of the loop, or start again where a call of
 * HTTP/1.1 would, too.
 */
#include "lib/loop/http2_fields.h"
#include "lib/loop/http_client_private.h"

#include <stdlib.h>
#include <utlist.h>

#define MAX_IDLE_NS    (15 * NSEC_PER_SEC) /* as of idle connections of HTTP/1.1 */
#define MAX_REFUSED    3		   /* a call whose stream is refused more often fails */
#define WRITE_BYTES    (64 << 10)	   /* taken from nghttp2 at a time */
#define STREAM_WINDOW  (1 << 20)	   /* bytes of one answer that may be on their way */
#define SESSION_WINDOW (4 << 20)	   /* of all answers */

const char http2_protocols[] = "\x02h2\x08http/1.1";

struct http2_liveness http2_liveness = {.ping_after_ns = 30 * NSEC_PER_SEC,
					.ping_timeout_ns = 15 * NSEC_PER_SEC};

struct http2_session {
	struct http_client *client; /* NULL: the session has ended while nghttp2 runs */
	struct conn *conn;
	nghttp2_session *ng;
	bool busy; /* nghttp2 runs, and calls what is below */
	bool used; /* it has had a call */
	bool retired, pinged;
	unsigned n_calls;
	uint64_t pinged_ns;
	struct timer check, idle;
	struct http2_session *prev, *next;
};

static void count(const char *event)
{
	counter_add(counter("http2_client_total", "event", event), 1);
}

/* ---- the end ---- */

static void session_free(struct http2_session *s)
{
	nghttp2_session_del(s->ng);
	free(s);
}

/* Forgets the connection. Its calls must be gone. While nghttp2 runs, is_left() frees the rest. */
static void session_end(struct http2_session *s)
{
	struct http_client *h = s->client;

	if (h->http2 == s)
		h->http2 = NULL;
	DL_DELETE(h->sessions, s);
	timer_cancel(&s->check);
	timer_cancel(&s->idle);
	s->conn = conn_free(s->conn);
	s->client = NULL;
	if (!s->busy)
		session_free(s);
}

/* nghttp2 has run. Returns true if the session still exists: no callback has ended it. */
static bool is_left(struct http2_session *s)
{
	bool left = s->client != NULL;

	s->busy = false;
	if (!left)
		session_free(s);
	return left;
}

static void leave_session(struct http_call *c)
{
	struct http2_session *s = c->session;

	c->session = NULL;
	c->stream = 0;
	s->n_calls--;
}

/* Also of a request that nghttp2 has not sent yet. */
static void give_up_stream(struct http_call *c)
{
	nghttp2_session *ng = c->session->ng;

	nghttp2_session_set_stream_user_data(ng, c->stream, NULL);
	nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, c->stream, NGHTTP2_CANCEL);
	leave_session(c);
}

/* Of a call without an answer: whether the server cannot have taken the request, or as HTTP/1.1. */
static bool is_to_be_sent_again(struct http_call *c)
{
	if (!c->on_wire)
		return c->n_refused++ < MAX_REFUSED;
	return c->reused && !c->got_bytes && c->may_retry;
}

static void session_fail(struct http2_session *s, const char *error)
{
	struct http_call *c;

	DL_FOREACH (s->client->calls, c) {
		if (c->session != s)
			continue;
		leave_session(c);
		if (is_to_be_sent_again(c)) {
			http_call_again(c);
			continue;
		}
		c->failure = xstrdup(error	    ? error
				     : c->got_bytes ? "connection closed before the end of the "
						      "answer"
						    : "connection closed without an answer");
		http_call_soon(c);
	}
	session_end(s);
}

static void idle_too_long(void *arg)
{
	session_end(arg);
}

/* Ends a session that nobody needs. Returns true if it still exists. */
static bool is_needed(struct http2_session *s)
{
	if (s->n_calls) {
		timer_cancel(&s->idle);
		return true;
	}
	if (s->retired) {
		session_end(s);
		return false;
	}
	if (!s->idle.impl)
		timer_set(s->client->loop, &s->idle, MAX_IDLE_NS, idle_too_long, s);
	return true;
}

/* ---- writing ---- */

/* Writes what is to be sent, as far as the socket takes it now. May end the session. */
static void flush(struct http2_session *s)
{
	_cleanup_buf_ struct buf b = {0};
	const uint8_t *p;
	ssize_t n = 0;

	if (s->busy)
		return;
	s->busy = true;
	while (s->client && conn_is_idle(s->conn) && b.len < WRITE_BYTES &&
	       (n = nghttp2_session_mem_send(s->ng, &p)) > 0)
		buf_add(&b, p, (size_t)n);
	if (!is_left(s))
		return;
	if (b.len)
		conn_write(s->conn, &b);
	if (n < 0)
		session_fail(s, nghttp2_strerror((int)n));
	else if (!nghttp2_session_want_read(s->ng) && !nghttp2_session_want_write(s->ng))
		session_fail(s, NULL);
	else
		is_needed(s);
}

/* nghttp2 asks for a part of a request's body. */
static ssize_t read_body(nghttp2_session *ng, int32_t id, uint8_t *to, size_t n, uint32_t *flags,
			 nghttp2_data_source *source, void *arg)
{
	struct http_call *c = nghttp2_session_get_stream_user_data(ng, id);

	(void)source;
	(void)arg;
	if (!c)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	n = MIN(n, c->request.len - c->sent);
	memcpy(to, c->request.data + c->sent, n);
	c->sent += n;
	if (c->sent == c->request.len)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

/* ---- reading ---- */

static struct http_call *call_of(nghttp2_session *ng, int32_t id)
{
	return nghttp2_session_get_stream_user_data(ng, id);
}

/* What a callback of nghttp2 returns: nghttp2 must read no further if the session has ended. */
static int go_on(const struct http2_session *s)
{
	return s->client ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void begin_head(struct http_call *c)
{
	http_msg_done(&c->msg);
	http_msg_init(&c->msg, false);
}

static int on_field(nghttp2_session *ng, const nghttp2_frame *f, const uint8_t *name, size_t n_name,
		    const uint8_t *value, size_t n_value, uint8_t flags, void *arg)
{
	struct http_call *c = call_of(ng, f->hd.stream_id);
	struct http_msg *m = c ? &c->msg : NULL;

	(void)flags;
	(void)arg;
	if (!c || m->state != ST_HEAD) /* else they are trailers */
		return 0;
	if (*name == ':') { /* of an answer there is only :status, and nghttp2 has checked it */
		m->status = (value[0] - '0') * 100 + (value[1] - '0') * 10 + value[2] - '0';
		return 0;
	}
	if (m->headers.n++ == HTTP_MAX_HEADERS || buf_add(&m->head, name, n_name + 1) ||
	    buf_add(&m->head, value, n_value + 1))
		m->state = ST_BAD;
	return 0;
}

/* The head is complete: its fields are where they stay. */
static void end_head(struct http_msg *m)
{
	char *p = m->head.data;

	for (unsigned i = 0; i < m->headers.n; i++) {
		m->headers.field[i].name = p;
		p += strlen(p) + 1;
		m->headers.field[i].value = p;
		p += strlen(p) + 1;
	}
	m->state = ST_UNTIL_CLOSE;
}

static void head_complete(struct http_call *c, bool ended)
{
	struct http_msg *m = &c->msg;

	if (m->state == ST_BAD) {
		http_call_finish(c, 0, "the answer's head has more than 64 KiB or 100 headers");
		return;
	}
	if (m->state != ST_HEAD) { /* trailers */
		m->state = ended ? ST_DONE : m->state;
		return;
	}
	if (m->status / 100 == 1) {
		begin_head(c);
		return;
	}
	end_head(m);
	m->state = ended ? ST_DONE : m->state;
	http_call_head(c);
}

/* The server takes no more requests: those that wait in nghttp2 go to another connection. */
static void go_away(struct http2_session *s)
{
	struct http_call *c;

	count("goaway");
	s->retired = true;
	if (s->client->http2 == s)
		s->client->http2 = NULL;
	DL_FOREACH (s->client->calls, c) {
		if (c->session != s || c->on_wire)
			continue;
		give_up_stream(c);
		http_call_again(c);
	}
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *f, void *arg)
{
	struct http2_session *s = arg;
	struct http_call *c = call_of(ng, f->hd.stream_id);
	bool ended = f->hd.flags & NGHTTP2_FLAG_END_STREAM;

	if (f->hd.type == NGHTTP2_GOAWAY)
		go_away(s);
	if (c && f->hd.type == NGHTTP2_HEADERS)
		head_complete(c, ended);
	else if (c && f->hd.type == NGHTTP2_DATA && ended)
		c->msg.state = ST_DONE;
	return go_on(s);
}

static int on_begin_frame(nghttp2_session *ng, const nghttp2_frame_hd *f, void *arg)
{
	struct http_call *c = call_of(ng, f->stream_id);

	(void)arg;
	if (c && (f->type == NGHTTP2_HEADERS || f->type == NGHTTP2_DATA)) {
		c->got_bytes = true;
		c->last_byte_ns = now_mono_ns();
	}
	return 0;
}

static int on_sent(nghttp2_session *ng, const nghttp2_frame *f, void *arg)
{
	struct http_call *c = call_of(ng, f->hd.stream_id);

	(void)arg;
	if (c && f->hd.type == NGHTTP2_HEADERS)
		c->on_wire = true;
	return 0;
}

static int on_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
		   void *arg)
{
	struct http_call *c = call_of(ng, id);

	(void)flags;
	if (c) {
		c->last_byte_ns = now_mono_ns();
		c->msg.piece = (const char *)p;
		c->msg.n_piece = n;
		http_call_body(c);
	}
	return go_on(arg);
}

static void stream_failed(struct http_call *c, uint32_t code)
{
	_cleanup_free_ char *text =
		xasprintf("the server has reset the stream: %s", nghttp2_http2_strerror(code));

	if ((code == NGHTTP2_REFUSED_STREAM || !c->on_wire) && c->n_refused++ < MAX_REFUSED) {
		count("stream_refused");
		http_call_again(c);
		return;
	}
	if (code == NGHTTP2_HTTP_1_1_REQUIRED && !c->got_bytes) {
		c->client->offers_http2 = false;
		http2_retire(c->client);
		http_call_again(c);
		return;
	}
	count("stream_reset");
	http_call_finish(c, 0, text);
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *arg)
{
	struct http_call *c = call_of(ng, id);

	if (!c)
		return 0;
	leave_session(c);
	if (c->msg.state == ST_DONE)
		http_call_finish(c, c->msg.status, NULL);
	else
		stream_failed(c, code);
	return go_on(arg);
}

static void received(const char *p, size_t n, void *arg)
{
	struct http2_session *s = arg;
	ssize_t r;

	s->busy = true;
	r = nghttp2_session_mem_recv(s->ng, (const uint8_t *)p, n);
	if (!is_left(s))
		return;
	s->pinged = false;
	if (r < 0)
		session_fail(s, nghttp2_strerror((int)r));
	else
		flush(s);
}

static void drained(void *arg)
{
	flush(arg);
}

static void closed(bool eof, const char *error, void *arg)
{
	(void)eof;
	session_fail(arg, error);
}

static const struct conn_ops ops = {.data = received, .drained = drained, .closed = closed};

/* ---- whether the server lives ---- */

static void check(void *arg)
{
	struct http2_session *s = arg;
	uint64_t now_ns = now_mono_ns(), read_ns = conn_last_read_ns(s->conn);
	uint64_t due_ns = s->pinged ? s->pinged_ns + http2_liveness.ping_timeout_ns
				    : read_ns + http2_liveness.ping_after_ns;

	if (now_ns < due_ns) {
		timer_set(s->client->loop, &s->check, due_ns - now_ns, check, s);
		return;
	}
	if (s->pinged) {
		count("ping_timeout");
		session_fail(s, "the server does not answer a PING");
		return;
	}
	s->pinged = true;
	s->pinged_ns = now_ns;
	timer_set(s->client->loop, &s->check, http2_liveness.ping_timeout_ns, check, s);
	nghttp2_submit_ping(s->ng, NGHTTP2_FLAG_NONE, NULL);
	flush(s);
}

/* ---- sessions ---- */

static nghttp2_session *ng_new(struct http2_session *s)
{
	static const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP_MAX_HEAD_BYTES},
	};
	nghttp2_session_callbacks *cb;
	nghttp2_session *ng;

	assert_se(nghttp2_session_callbacks_new(&cb) == 0);
	nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
	nghttp2_session_callbacks_set_on_header_callback(cb, on_field);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
	assert_se(nghttp2_session_client_new(&ng, cb, s) == 0);
	nghttp2_session_callbacks_del(cb);
	nghttp2_submit_settings(ng, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings));
	nghttp2_session_set_local_window_size(ng, NGHTTP2_FLAG_NONE, 0, SESSION_WINDOW);
	return ng;
}

void http2_begin(struct http_client *h, struct conn *conn)
{
	struct http2_session *s = xcalloc(1, sizeof(*s));

	http2_retire(h);
	count("connected");
	s->client = h;
	s->conn = conn;
	s->ng = ng_new(s);
	DL_APPEND(h->sessions, s);
	h->http2 = s;
	conn_set_arg(conn, &ops, s);
	timer_set(h->loop, &s->check, http2_liveness.ping_after_ns, check, s);
	flush(s);
}

void http2_retire(struct http_client *h)
{
	struct http2_session *s = TAKE_PTR(h->http2);

	if (!s)
		return;
	s->retired = true;
	if (!s->busy)
		is_needed(s);
}

void http2_end_all(struct http_client *h)
{
	while (h->sessions)
		session_end(h->sessions);
}

/* ---- calls ---- */

bool http2_send(struct http_call *c)
{
	struct http2_session *s = c->client->http2;
	nghttp2_data_provider body = {.read_callback = read_body};
	_cleanup_free_ char *head = NULL;
	nghttp2_nv fields[HTTP2_MAX_FIELDS];
	size_t n_head, n;

	if (!s)
		return false;
	c->reused = s->used;
	s->used = true;
	if (!http_call_may_send(c))
		return true;
	n_head = (size_t)(strstr(c->request.data, "\r\n\r\n") + 4 - c->request.data);
	head = xstrndup(c->request.data, n_head);
	n = http2_fields(head, c->client->tls != NULL, fields);
	c->sent = n_head;
	c->stream = nghttp2_submit_request(s->ng, NULL, fields, n,
					   c->request.len > n_head ? &body : NULL, c);
	if (c->stream < 0) { /* this connection has had all its 2^30 streams */
		http2_retire(c->client);
		http_call_again(c);
		return true;
	}
	c->session = s;
	s->n_calls++;
	flush(s);
	return true;
}

void http2_leave(struct http_call *c)
{
	struct http2_session *s = c->session;

	give_up_stream(c);
	flush(s);
}
