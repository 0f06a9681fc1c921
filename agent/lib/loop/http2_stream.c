/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of HTTP/2 and its answer. The bytes of a body that the handler has not accepted yet
 * wait in the server. Of a stream there are few, because they fill its window; the window of the
 * connection has room for those of all its streams; those of all connections have a limit.
 */
#include "lib/loop/http2.h"

#include <ctype.h>
#include <stdlib.h>
#include <utlist.h>

#define MAX_FIELDS 32 /* of an answer; handlers have less */

static struct http2_stream *stream_of(struct http_conn *c)
{
	return (struct http2_stream *)c;
}

/* ---- the request ---- */

static void refuse_head(struct http2_stream *s, int status, const char *why)
{
	if (s->refused)
		return;
	s->refused = status;
	s->why = why;
}

/* The peer may send n bytes more of this body: they have been used. */
static void consume(struct http2_stream *s, size_t n)
{
	nghttp2_session_consume(s->http2->session, s->id, n);
}

/* ---- bytes that wait: those in c.ahead ---- */

/* Whether n more bytes may wait: a peer must leave as much to all others as it has itself. */
static bool may_wait(const struct http_conn *c, size_t n)
{
	size_t with = c->server->waiting_bytes + n;

	return with <= HTTP2_MAX_WAITING && c->peer->waiting_bytes + n <= HTTP2_MAX_WAITING - with;
}

static void let_wait(struct http_conn *c, const uint8_t *p, size_t n)
{
	buf_add(&c->ahead, p, n);
	c->server->waiting_bytes += n;
	c->peer->waiting_bytes += n;
}

/* The caller frees the bytes. */
static struct buf take_waiting(struct http_conn *c)
{
	struct buf b = c->ahead;

	c->ahead = (struct buf){0};
	c->server->waiting_bytes -= b.len;
	c->peer->waiting_bytes -= b.len;
	return b;
}

/* What has come of a body is not read any more. */
static void drop_waiting(struct http2_stream *s)
{
	_cleanup_buf_ struct buf b = take_waiting(&s->c);

	consume(s, b.len);
}

/* A handler that has not said how to tell it still owes an answer: the request ends without. */
static void refuse_to_wait(struct http_conn *c)
{
	counter_add(counter("http_refused_total", "reason", "http2_waiting"), 1);
	if (c->phase == READING || c->on_gone)
		http_conn_refuse(c, 503, "too many bytes of requests wait to be accepted");
	else
		http_conn_drop(c);
}

/* ---- the head ---- */

void http2_stream_field(struct http2_stream *s, const uint8_t *name, size_t n_name,
			const uint8_t *value, size_t n_value)
{
	struct buf *b = &s->c.msg.head;
	size_t n = n_name + n_value + 2;

	/* beside the fields there are those of the request line, which begin with ':' */
	if (++s->n_fields > HTTP_MAX_HEADERS + 4)
		refuse_head(s, 431, "more than 100 headers");
	else if (b->len + n > HTTP_MAX_HEAD_BYTES)
		refuse_head(s, 431, "the head has more than 64 KiB");
	else if (s->http2->heads_bytes + n > HTTP2_MAX_HEADS_BYTES)
		refuse_head(s, 503, "the heads of this connection's requests are too large");
	if (s->refused)
		return;
	s->http2->heads_bytes += n;
	buf_add(b, name, n_name);
	buf_putc(b, '\0');
	buf_add(b, value, n_value);
	buf_putc(b, '\0');
}

static void put_field(struct http2_stream *s, const char *name, const char *value)
{
	struct http_msg *m = &s->c.msg;

	if (streq(name, ":method"))
		m->method = (char *)value;
	else if (streq(name, ":path"))
		m->target = (char *)value;
	if (streq(name, ":authority"))
		name = "host";
	if (*name == ':')
		return;
	if (m->headers.n == HTTP_MAX_HEADERS) {
		refuse_head(s, 431, "more than 100 headers");
		return;
	}
	m->headers.field[m->headers.n].name = name;
	m->headers.field[m->headers.n++].value = value;
}

static bool is_target(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f)
			return false;
	return true;
}

/* Reads the fields, as http_parse.c those of HTTP/1.1. nghttp2 has checked their form. */
static void parse_head(struct http2_stream *s)
{
	struct http_msg *m = &s->c.msg;
	const char *p = m->head.data, *end = p + m->head.len, *length, *expect;

	for (; p < end; p += strlen(p) + 1) {
		const char *name = p;

		p += strlen(p) + 1;
		put_field(s, name, p);
	}
	length = http_header(&m->headers, "content-length");
	if (length && str_to_u64(length, INT64_MAX, &m->length) < 0)
		refuse_head(s, 400, "Content-Length is not one number");
	expect = http_header(&m->headers, "expect");
	m->expects_continue = expect && streq(expect, "100-continue");
	if (!m->method || strlen(m->method) > 16 || !m->target || !is_target(m->target))
		refuse_head(s, 400, "the request has no method or no path");
}

static void go_on(struct http_conn *c)
{
	_cleanup_buf_ struct buf b = take_waiting(c);
	struct http2_stream *s = stream_of(c);

	if (!s->ended)
		nghttp2_session_set_local_window_size(s->http2->session, NGHTTP2_FLAG_NONE, s->id,
						      HTTP2_ACCEPTED_WINDOW);
	if (b.len)
		http2_stream_data(s, (uint8_t *)b.data, b.len);
	if (s->ended)
		http2_stream_end(s);
	http2_flush(s->http2);
}

static void take_head(struct http2_stream *s)
{
	if (http_conn_take_head(&s->c))
		go_on(&s->c);
}

void http2_stream_head(struct http2_stream *s, bool ended)
{
	const struct http_server_config *config = &s->c.server->config;
	struct http_conn *c = &s->c;

	s->ended = ended;
	c->msg.has_body = !ended;
	c->msg.state = ST_LENGTH;
	parse_head(s);
	if (s->refused) {
		http_conn_refuse(c, s->refused, s->why);
		return;
	}
	if (config->brief || http_conn_is_too_old(s->http2->conn))
		http2_end(s->http2->conn);
	s->waits = !ended && grpc_is_type(http_header(&c->msg.headers, "content-type") ?: "");
	if (!s->waits)
		take_head(s);
}

static bool is_waiting(const struct http2_stream *s)
{
	return s->waits && s->c.phase == READING; /* else it has been refused meanwhile */
}

/* A call of gRPC says how long its body is only in the body itself. */
static void take_prefix(struct http2_stream *s)
{
	const struct buf *b = &s->c.ahead;

	if (b->len < GRPC_PREFIX_BYTES && !s->ended)
		return;
	if (b->len >= GRPC_PREFIX_BYTES)
		s->c.msg.length = grpc_body_bytes(b->data);
	s->waits = false;
	take_head(s);
}

static void wait(struct http2_stream *s, const uint8_t *p, size_t n)
{
	if (!may_wait(&s->c, n)) {
		consume(s, n);
		refuse_to_wait(&s->c);
		return;
	}
	let_wait(&s->c, p, n);
	if (is_waiting(s))
		take_prefix(s);
}

void http2_stream_data(struct http2_stream *s, const uint8_t *p, size_t n)
{
	struct http_conn *c = &s->c;

	s->read_ns = now_mono_ns();
	if (c->phase == ASKING || is_waiting(s)) {
		wait(s, p, n);
		return;
	}
	consume(s, n);
	if (c->phase != READING)
		return;
	if (n > c->msg.length - c->body.len) /* of gRPC: nghttp2 looks at Content-Length */
		http_conn_refuse(c, 400, "the body has more than one message");
	else if (buf_add(&c->body, p, n) < 0)
		http_conn_refuse(c, 413, "the body is larger than the limit");
}

void http2_stream_end(struct http2_stream *s)
{
	s->ended = true;
	if (is_waiting(s))
		take_prefix(s);
	else if (s->c.phase == READING)
		http_conn_dispatch(&s->c);
}

/* ---- the answer ---- */

/* Adds a field "Name: value", in HTTP/2's form: name and value, each with its NUL. */
static void put_header(struct buf *b, const char *line)
{
	size_t n = strcspn(line, ":"), from = b->len;

	if (!line[n] || line[strcspn(line, "\r\n")])
		return;
	buf_add(b, line, n);
	for (char *p = b->data + from; p < b->data + b->len; p++)
		*p = (char)tolower((unsigned char)*p);
	line += n + 1;
	line += strspn(line, " ");
	buf_putc(b, '\0');
	buf_add(b, line, strlen(line) + 1);
}

/* Returns the number of fields that `fields` points to, which are in b. */
static size_t fields_of(const struct buf *b, nghttp2_nv fields[MAX_FIELDS])
{
	char *p = b->data, *end = p + b->len;
	size_t n = 0;

	while (p < end) {
		char *value = p + strlen(p) + 1;

		assert_se(n < MAX_FIELDS);
		fields[n++] = (nghttp2_nv){.name = (uint8_t *)p,
					   .namelen = strlen(p),
					   .value = (uint8_t *)value,
					   .valuelen = strlen(value)};
		p = value + strlen(value) + 1;
	}
	return n;
}

/* nghttp2 asks for the next bytes of the answer's body. */
static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *to, size_t n,
			   uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct http2_stream *s = source->ptr;
	nghttp2_nv fields[MAX_FIELDS];

	(void)arg;
	n = MIN(n, s->out.len - s->out_off);
	if (n == 0 && !s->whole)
		return NGHTTP2_ERR_DEFERRED;
	if (n)
		memcpy(to, s->out.data + s->out_off, n);
	s->out_off += n;
	s->written_ns = now_mono_ns();
	if (!s->whole || s->out_off < s->out.len)
		return (ssize_t)n;
	*flags |= NGHTTP2_DATA_FLAG_EOF;
	if (s->trailers.len) {
		*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		nghttp2_submit_trailer(session, id, fields, fields_of(&s->trailers, fields));
	}
	return (ssize_t)n;
}

/* whole: the answer has no further piece */
static void begin(struct http2_stream *s, const struct http_answer *a, bool whole)
{
	nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_answer};
	bool has_body =
		!streq(s->c.msg.method ?: "", "HEAD") && a->status != 204 && a->status != 304;
	_cleanup_buf_ struct buf b = {0};
	nghttp2_nv fields[MAX_FIELDS];
	char date[40];

	http_format_date(date);
	buf_printf(&b, ":status%c%d%cdate%c%s%c", 0, a->status, 0, 0, date, 0);
	if (a->content_type)
		buf_printf(&b, "content-type%c%s%c", 0, a->content_type, 0);
	if (whole && a->n && !a->trailers)
		buf_printf(&b, "content-length%c%zu%c", 0, a->n, 0);
	for (const char *const *h = a->headers; h && *h; h++)
		put_header(&b, *h);
	for (const char *const *h = a->trailers; h && *h; h++)
		put_header(&s->trailers, *h);
	if (has_body && a->n)
		buf_add(&s->out, a->body, a->n);
	s->whole = whole || !has_body;
	s->written_ns = now_mono_ns();
	nghttp2_submit_response(s->http2->session, s->id, fields, fields_of(&b, fields),
				has_body && (a->n || a->trailers || !whole) ? &provider : NULL);
}

static void reply(struct http_conn *c, const struct http_answer *a)
{
	struct http2_stream *s = stream_of(c);

	drop_waiting(s);
	http_conn_enter(c, REPLYING);
	begin(s, a, true);
	http2_flush(s->http2);
}

static void reply_first(struct http_conn *c, const struct http_answer *a)
{
	struct http2_stream *s = stream_of(c);

	begin(s, a, false);
	c->continues = true;
	http2_flush(s->http2);
}

/* What nghttp2 has taken before is not kept. */
static void add_piece(struct http2_stream *s, const void *body, size_t n)
{
	buf_consume(&s->out, s->out_off);
	s->out_off = 0;
	buf_add(&s->out, body, n);
	nghttp2_session_resume_data(s->http2->session, s->id);
}

static void reply_more(struct http_conn *c, const void *body, size_t n)
{
	struct http2_stream *s = stream_of(c);

	if (!s->whole)
		add_piece(s, body, n);
	http2_flush(s->http2);
}

static void reply_last(struct http_conn *c, const void *body, size_t n)
{
	struct http2_stream *s = stream_of(c);

	http_conn_enter(c, REPLYING);
	c->continues = false;
	if (!s->whole) { /* it is, if the answer has no body */
		s->whole = true;
		add_piece(s, body, n);
	}
	http2_flush(s->http2);
}

static void cut(struct http_conn *c)
{
	struct http2_stream *s = stream_of(c);

	http_conn_enter(c, REPLYING);
	c->continues = false;
	nghttp2_submit_rst_stream(s->http2->session, NGHTTP2_FLAG_NONE, s->id,
				  NGHTTP2_INTERNAL_ERROR);
	http2_flush(s->http2);
}

static void ask_body(struct http_conn *c)
{
	static const nghttp2_nv status = {.name = (uint8_t *)":status",
					  .value = (uint8_t *)"100",
					  .namelen = 7,
					  .valuelen = 3};
	struct http2_stream *s = stream_of(c);

	nghttp2_submit_headers(s->http2->session, NGHTTP2_FLAG_NONE, s->id, NULL, &status, 1, NULL);
	http2_flush(s->http2);
}

/* ---- the stream ---- */

/* The windows are what keeps a client from sending (http2_stream_data). */
static void read_enable(struct http_conn *c, bool on)
{
	(void)c;
	(void)on;
}

static void detach(struct http_conn *c)
{
	_cleanup_buf_ struct buf waiting = take_waiting(c);
	struct http2_stream *s = stream_of(c);
	struct http2 *h = s->http2;

	if (!s->closed) {
		nghttp2_session_set_stream_user_data(h->session, s->id, NULL);
		nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
	}
	nghttp2_session_consume_connection(h->session, waiting.len);
	h->heads_bytes -= c->msg.head.len;
	DL_DELETE(h->streams, s);
	if (!h->streams)
		http_conn_enter(h->conn, IDLE);
	http_peer_unref(c->server, TAKE_PTR(c->peer));
	c->server = NULL;
}

static void free_stream(struct http_conn *c)
{
	struct http2_stream *s = stream_of(c);

	buf_done(&s->out);
	buf_done(&s->trailers);
	free(s);
}

static const struct http_carrier http2 = {
	.read_enable = read_enable,
	.ask_body = ask_body,
	.go_on = go_on,
	.reply = reply,
	.reply_first = reply_first,
	.reply_more = reply_more,
	.reply_last = reply_last,
	.cut = cut,
	.detach = detach,
	.free = free_stream,
};

struct http2_stream *http2_stream_new(struct http2 *h, int32_t id)
{
	struct http2_stream *s = xcalloc(1, sizeof(*s));
	struct http_conn *c = &s->c;

	c->server = h->conn->server;
	c->carrier = &http2;
	c->peer = h->conn->peer;
	c->peer->n_refs++;
	http_msg_init(&c->msg, true);
	c->msg.minor = 1;
	buf_init(&c->body, c->server->config.max_body_bytes);
	http_conn_enter(c, READING);
	s->http2 = h;
	s->id = h->last_id = id;
	s->read_ns = s->written_ns = c->since_ns;
	if (!h->streams)
		http_conn_enter(h->conn, SERVING);
	DL_APPEND(h->streams, s);
	return s;
}

bool http2_stream_is_taken(const struct http2_stream *s)
{
	return s->c.continues && s->c.on_taken && !s->closed && s->out_off == s->out.len;
}

void http2_stream_close(struct http2_stream *s)
{
	s->closed = true;
	if (!s->whole || s->out_off < s->out.len)
		http_conn_drop(&s->c);
	/* else the socket may still have to take the end of the answer */
}
