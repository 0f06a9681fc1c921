/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of HTTP/2 (RFC 9113): gives the bytes of the peer to nghttp2, and those of nghttp2
 * to the socket, and ends a connection whose client costs more than it brings. Only as much is
 * taken from nghttp2 as the socket takes: what a client does not read stays in nghttp2, which has a
 * limit for it.
 */
#include "lib/loop/http2.h"

#include <stdlib.h>
#include <utlist.h>

#define WRITE_BYTES (64 << 10) /* written to the socket at a time, and one frame more */
/* what a client may do within this time */
#define PERIOD_NS	  (10 * NSEC_PER_SEC)
#define MAX_RESETS	  100  /* streams that it resets, or that are reset by its fault */
#define MAX_CONTROL	  1000 /* frames that are neither a head nor a part of a body... */
#define CONTROL_PER_DATA  2    /* ...and so many more for each frame of a body that it gets */
#define MAX_CONTINUATIONS 8    /* frames that continue a head */

static struct counter *refused(const char *reason)
{
	return counter("http_refused_total", "reason", reason);
}

/* ---- limits ---- */

/* Returns whether this is more than max within a period. */
static bool is_too_often(struct http2_count *k, unsigned max)
{
	uint64_t now_ns = now_mono_ns();

	if (now_ns - k->begun_ns > PERIOD_NS)
		*k = (struct http2_count){.begun_ns = now_ns};
	return ++k->n > max;
}

/* Ends the connection: its requests get no answer. */
static void give_up(struct http2 *h, const char *reason, uint32_t code)
{
	if (h->broken)
		return;
	h->broken = true;
	counter_add(refused(reason), 1);
	nghttp2_session_terminate_session(h->session, code);
}

static void count_reset(struct http2 *h)
{
	if (is_too_often(&h->resets, MAX_RESETS))
		give_up(h, "http2_resets", NGHTTP2_ENHANCE_YOUR_CALM);
}

/* ---- what nghttp2 reports ---- */

static struct http2_stream *stream(const struct http2 *h, int32_t id)
{
	return nghttp2_session_get_stream_user_data(h->session, id);
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *f, void *arg)
{
	bool empty = f->type == NGHTTP2_DATA && !f->length && !(f->flags & NGHTTP2_FLAG_END_STREAM);
	struct http2 *h = arg;

	(void)session;
	if (f->type == NGHTTP2_RST_STREAM)
		count_reset(h);
	if (f->type != NGHTTP2_HEADERS && (f->type != NGHTTP2_DATA || empty) &&
	    is_too_often(&h->control, MAX_CONTROL))
		give_up(h, "http2_control", NGHTTP2_ENHANCE_YOUR_CALM);
	return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
	struct http2 *h = arg;
	int32_t id = f->hd.stream_id;

	if (f->hd.type == NGHTTP2_HEADERS && f->headers.cat == NGHTTP2_HCAT_REQUEST && !h->broken)
		nghttp2_session_set_stream_user_data(session, id, http2_stream_new(h, id));
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
		     size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags, void *arg)
{
	struct http2_stream *s = stream(arg, f->hd.stream_id);

	(void)session;
	(void)flags;
	if (s && f->headers.cat == NGHTTP2_HCAT_REQUEST) /* else the request's trailers */
		http2_stream_field(s, name, n_name, value, n_value);
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
	struct http2_stream *s = stream(arg, f->hd.stream_id);
	bool end = f->hd.flags & NGHTTP2_FLAG_END_STREAM;

	(void)session;
	if (!s)
		return 0;
	if (f->hd.type == NGHTTP2_HEADERS && f->headers.cat == NGHTTP2_HCAT_REQUEST)
		http2_stream_head(s, end);
	else if ((f->hd.type == NGHTTP2_HEADERS || f->hd.type == NGHTTP2_DATA) && end)
		http2_stream_end(s);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
		   void *arg)
{
	struct http2_stream *s = stream(arg, id);

	(void)flags;
	if (s)
		http2_stream_data(s, p, n);
	else
		nghttp2_session_consume(session, id, n);
	return 0;
}

/* Counts what the server refuses because of the client. */
static void count_refusal(struct http2 *h, const nghttp2_frame *f)
{
	if (f->hd.type == NGHTTP2_GOAWAY && f->goaway.error_code != NGHTTP2_NO_ERROR && !h->broken)
		counter_add(refused("http2_invalid"), 1);
	if (f->hd.type != NGHTTP2_RST_STREAM || f->rst_stream.error_code == NGHTTP2_NO_ERROR)
		return;
	if (f->rst_stream.error_code == NGHTTP2_REFUSED_STREAM)
		counter_add(refused("http2_streams"), 1);
	count_reset(h);
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
	struct http2 *h = arg;
	struct http2_stream *s = stream(h, f->hd.stream_id);
	bool has_end = f->hd.type == NGHTTP2_HEADERS || f->hd.type == NGHTTP2_DATA;

	if (f->hd.type == NGHTTP2_DATA)
		h->control.n -= MIN(h->control.n, (unsigned)CONTROL_PER_DATA);
	count_refusal(h, f);
	/* the answer does not need the rest of the request */
	if (s && !s->ended && has_end && f->hd.flags & NGHTTP2_FLAG_END_STREAM)
		nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
	return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct http2_stream *s = stream(arg, id);

	(void)session;
	(void)code;
	if (s)
		http2_stream_close(s);
	return 0;
}

/* ---- the socket ---- */

/* Ends the requests whose answers the socket has taken. Returns whether there were any. */
static bool release_closed(struct http2 *h)
{
	struct http2_stream *s, *next;
	bool busy = h->busy, any = false;

	h->busy = true; /* a handler that is told and goes on elsewhere must not release any */
	DL_FOREACH_SAFE(h->streams, s, next)
	{
		if (!s->closed)
			continue;
		any = true;
		http_conn_drop(&s->c);
	}
	h->busy = busy;
	return any;
}

/* Tells handlers whose pieces are taken. Returns whether there were any. */
static bool tell_taken(struct http2 *h)
{
	struct http2_stream *s, *next;
	bool busy = h->busy, any = false;

	h->busy = true;
	DL_FOREACH_SAFE(h->streams, s, next)
	{
		if (!http2_stream_is_taken(s))
			continue;
		any = true;
		http_conn_tell_taken(&s->c);
	}
	h->busy = busy;
	return any;
}

static void drop_streams(struct http2 *h)
{
	bool busy = h->busy;

	h->busy = true; /* handlers that get a chance to answer others must not write any more */
	while (h->streams)
		http_conn_drop(&h->streams->c);
	h->busy = busy;
}

void http2_flush(struct http2 *h)
{
	const struct http_socket_ops *socket = h->conn->server->socket;
	const uint8_t *p;
	ssize_t n = 0;
	struct buf b;

	if (h->busy || h->writing || h->conn->phase == LINGERING)
		return;
	buf_init(&b, 0);
	h->busy = true;
	while (b.len < WRITE_BYTES && (n = nghttp2_session_mem_send(h->session, &p)) > 0)
		buf_add(&b, p, (size_t)n);
	h->busy = false;
	if (b.len) {
		h->writing = true;
		h->writing_ns = now_mono_ns();
		socket->write(h->conn->conn, &b);
		return;
	}
	if (release_closed(h) || tell_taken(h)) {
		http2_flush(h); /* what handlers have answered meanwhile */
		return;
	}
	if (n < 0 ||
	    (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session))) {
		drop_streams(h);
		http_conn_linger(h->conn);
	}
}

void http2_feed(struct http_conn *c, const char *p, size_t n)
{
	struct http2 *h = c->http2;
	ssize_t r;

	if (c->phase == LINGERING)
		return;
	h->busy = true;
	r = nghttp2_session_mem_recv(h->session, (const uint8_t *)p, n);
	h->busy = false;
	if (r < 0)
		give_up(h, r == NGHTTP2_ERR_FLOODED ? "http2_control" : "http2_invalid",
			r == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM
						 : NGHTTP2_PROTOCOL_ERROR);
	http2_flush(h);
}

void http2_drained(struct http_conn *c)
{
	struct http2 *h = c->http2;

	h->writing = false;
	release_closed(h);
	http2_flush(h);
}

/* ---- time and end ---- */

void http2_end(struct http_conn *c)
{
	struct http2 *h = c->http2;

	if (!h->ending)
		nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, h->last_id, NGHTTP2_NO_ERROR,
				      NULL, 0);
	h->ending = true;
	http2_flush(h);
}

/* A head that does not end keeps the connection from all other requests. */
static bool has_slow_head(const struct http2 *h, uint64_t now_ns)
{
	const struct http2_stream *s;

	DL_FOREACH (h->streams, s)
		if (s->c.msg.state == ST_HEAD &&
		    http_conn_is_overdue(&s->c, now_ns, s->read_ns, s->written_ns))
			return true;
	return false;
}

static void tick_streams(struct http2 *h, uint64_t now_ns)
{
	struct http2_stream *s, *next;

	DL_FOREACH_SAFE(h->streams, s, next)
	{
		if (!s->closed && http_conn_is_overdue(&s->c, now_ns, s->read_ns, s->written_ns))
			http_conn_end_overdue(&s->c);
	}
}

void http2_tick(struct http_conn *c, uint64_t now_ns)
{
	const struct http_socket_ops *socket = c->server->socket;
	struct http2 *h = c->http2;

	if (has_slow_head(h, now_ns))
		give_up(h, "too_slow", NGHTTP2_ENHANCE_YOUR_CALM);
	h->busy = true;
	if (!h->broken)
		tick_streams(h, now_ns);
	h->busy = false;
	if (h->writing &&
	    now_ns - MAX(h->writing_ns, socket->last_write_ns(c->conn)) > HTTP_TX_IDLE_NS)
		http_conn_end_overdue(c);
	else if (c->phase == IDLE && http_conn_is_overdue(c, now_ns, now_ns, now_ns))
		http2_end(c);
	else
		http2_flush(h);
}

struct http2 *http2_free(struct http2 *h)
{
	if (!h)
		return NULL;
	drop_streams(h);
	nghttp2_session_del(h->session);
	free(h);
	return NULL;
}

/* ---- start ---- */

static nghttp2_session *new_session(struct http2 *h)
{
	nghttp2_session_callbacks *k;
	nghttp2_session *session;
	nghttp2_option *o;

	if (nghttp2_session_callbacks_new(&k) || nghttp2_option_new(&o))
		out_of_memory();
	nghttp2_session_callbacks_set_on_begin_frame_callback(k, on_begin_frame);
	nghttp2_session_callbacks_set_on_begin_headers_callback(k, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(k, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(k, on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(k, on_data);
	nghttp2_session_callbacks_set_on_frame_send_callback(k, on_sent);
	nghttp2_session_callbacks_set_on_stream_close_callback(k, on_stream_close);
	nghttp2_option_set_max_continuations(o, MAX_CONTINUATIONS);
	/* a body that is not accepted yet opens no window */
	nghttp2_option_set_no_auto_window_update(o, 1);
	if (nghttp2_session_server_new2(&session, k, h, o))
		out_of_memory();
	nghttp2_session_callbacks_del(k);
	nghttp2_option_del(o);
	return session;
}

void http2_start(struct http_conn *c)
{
	static const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, HTTP2_MAX_STREAMS},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP2_STREAM_WINDOW},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP_MAX_HEAD_BYTES},
	};
	struct http2 *h = xcalloc(1, sizeof(*h));

	h->conn = c;
	h->session = new_session(h);
	c->http2 = h;
	c->served = true;
	http_conn_enter(c, IDLE);
	nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings));
	nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0,
					      HTTP2_CONNECTION_WINDOW);
	http2_feed(c, HTTP_PREFACE, strlen(HTTP_PREFACE));
}
