/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only, part of testserver.h: its connections over HTTP/2, by nghttp2. Each stream is one
 * connection of HTTP/1.1 of the test server, over a pair of sockets, so every handler serves both.
 * If the handler closes it before the end of the answer, the server closes its whole connection,
 * or resets the stream.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "lib/loop/http_parse.h"

#define TS_MAX_STREAMS 256

/* What a test makes of HTTP/2 itself; the threads of connections read it. */
static struct ts_http2_plan {
	atomic_bool on;	     /* the server chooses HTTP/2 if the client offers it */
	atomic_int n_refuse; /* so many streams are refused */
	atomic_int
		goaway_after;  /* GOAWAY with the stream of this number, counted from 1; 0: never */
	atomic_int reset_with; /* each stream is reset with this code; 0: none is */
	atomic_int max_streams; /* at a time; 0: no limit */
	atomic_bool goes_away;	/* GOAWAY now */
	atomic_bool resets;	/* an answer that the handler cuts: resets only its stream */
	atomic_bool deaf;	/* reads nothing more, and so answers no PING */
	atomic_int n_fields;	/* so many more fields in each head */
	atomic_int n_conns;	/* connections so far */
} ts_http2;

/* TS_HTTP2=1: for a whole program. */
__attribute__((constructor)) _test_util_ void ts_http2_of_environment(void)
{
	ts_http2.on = getenv("TS_HTTP2") != NULL;
}

struct ts_stream {
	int32_t id;
	int fd; /* the handler's connection; -1: closed */
	struct buf request;
	struct http_msg answer;
	bool has_head, whole, cut, started;
	struct buf body;
	size_t sent;
};

struct ts_session {
	struct ts_conn *c;
	nghttp2_session *ng;
	struct ts_stream *streams[TS_MAX_STREAMS];
	struct buf body; /* of the request whose fields come now */
	int n_streams;
	bool has_gone;
	int (*serve)(struct test_server *s); /* a connection for a stream */
};

_test_util_ void ts_stream_free(struct ts_session *s, int i)
{
	struct ts_stream *t = s->streams[i];

	closep(&t->fd);
	buf_done(&t->request);
	buf_done(&t->body);
	http_msg_done(&t->answer);
	free(t);
	s->streams[i] = NULL;
}

_test_util_ struct ts_stream *ts_stream_of(struct ts_session *s, int32_t id)
{
	for (int i = 0; i < TS_MAX_STREAMS; i++)
		if (s->streams[i] && s->streams[i]->id == id)
			return s->streams[i];
	return NULL;
}

_test_util_ int ts_on_begin(nghttp2_session *ng, const nghttp2_frame *f, void *arg)
{
	struct ts_session *s = arg;
	struct ts_stream *t;
	int i = 0;

	if (f->hd.type != NGHTTP2_HEADERS || f->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	s->n_streams++;
	if (ts_http2.n_refuse > 0 || ts_http2.reset_with) {
		int code = ts_http2.reset_with ?: NGHTTP2_REFUSED_STREAM;

		ts_http2.n_refuse -= ts_http2.n_refuse > 0;
		nghttp2_submit_rst_stream(ng, 0, f->hd.stream_id, (uint32_t)code);
		return 0;
	}
	while (s->streams[i])
		if (++i == TS_MAX_STREAMS)
			ts_fatal("more streams than TS_MAX_STREAMS");
	t = s->streams[i] = xcalloc(1, sizeof(*t));
	*t = (struct ts_stream){.id = f->hd.stream_id, .fd = -1};
	http_msg_init(&t->answer, false);
	return 0;
}

/* As HTTP/1.1 says it: tests look for "Host: " and the like. */
_test_util_ int ts_on_field(nghttp2_session *ng, const nghttp2_frame *f, const uint8_t *name,
			    size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags,
			    void *arg)
{
	struct ts_stream *t = ts_stream_of(arg, f->hd.stream_id);
	_cleanup_free_ char *n = xstrndup((const char *)name, n_name);

	(void)ng, (void)flags, (void)n_value;
	if (!t)
		return 0;
	if (streq(n, ":method")) {
		buf_printf(&t->request, "%s ", value);
		return 0;
	}
	if (streq(n, ":path")) {
		buf_printf(&t->request, "%s HTTP/1.1\r\n", value);
		return 0;
	}
	if (streq(n, ":scheme"))
		return 0;
	if (streq(n, ":authority")) {
		free(n);
		n = xstrdup("host");
	}
	for (char *p = n; *p; p++)
		if (p == n || p[-1] == '-')
			*p = (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p);
	buf_printf(&t->request, "%s: %s\r\n", n, value);
	return 0;
}

_test_util_ void ts_request_over(struct ts_session *s, struct ts_stream *t)
{
	const char *p = t->request.data;

	t->fd = s->serve(s->c->server);
	for (size_t n = t->request.len; n;) {
		ssize_t put = send(t->fd, p, n, MSG_NOSIGNAL);

		if (put <= 0)
			return;
		p += put;
		n -= (size_t)put;
	}
}

_test_util_ int ts_on_frame(nghttp2_session *ng, const nghttp2_frame *f, void *arg)
{
	struct ts_session *s = arg;
	struct ts_stream *t = ts_stream_of(s, f->hd.stream_id);

	(void)ng;
	if (!t)
		return 0;
	if (f->hd.type == NGHTTP2_HEADERS)
		buf_puts(&t->request, "\r\n");
	if ((f->hd.type == NGHTTP2_HEADERS || f->hd.type == NGHTTP2_DATA) &&
	    f->hd.flags & NGHTTP2_FLAG_END_STREAM)
		ts_request_over(s, t);
	return 0;
}

_test_util_ int ts_on_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p,
			   size_t n, void *arg)
{
	struct ts_stream *t = ts_stream_of(arg, id);

	(void)ng, (void)flags;
	if (t)
		buf_add(&t->request, p, n);
	return 0;
}

_test_util_ int ts_on_close(nghttp2_session *ng, int32_t id, uint32_t code, void *arg)
{
	struct ts_session *s = arg;

	(void)ng, (void)code;
	for (int i = 0; i < TS_MAX_STREAMS; i++)
		if (s->streams[i] && s->streams[i]->id == id)
			ts_stream_free(s, i);
	return 0;
}

_test_util_ ssize_t ts_give_body(nghttp2_session *ng, int32_t id, uint8_t *to, size_t n,
				 uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct ts_stream *t = ts_stream_of(arg, id);

	(void)ng, (void)source;
	n = MIN(n, t->body.len - t->sent);
	if (n)
		memcpy(to, t->body.data + t->sent, n);
	t->sent += n;
	if (t->sent == t->body.len) {
		t->body.len = t->sent = 0;
		if (t->whole)
			*flags |= NGHTTP2_DATA_FLAG_EOF;
		else if (t->cut && ts_http2.resets)
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* resets the stream */
		else if (!n)
			return NGHTTP2_ERR_DEFERRED;
	}
	return (ssize_t)n;
}

_test_util_ void ts_submit_head(struct ts_session *s, struct ts_stream *t)
{
	const struct http_headers *h = &t->answer.headers;
	_cleanup_free_ char *status = xasprintf("%d", t->answer.status);
	nghttp2_nv fields[2 * HTTP_MAX_HEADERS + 1];
	nghttp2_data_provider body = {.read_callback = ts_give_body};
	size_t n = 0;

	fields[n++] = (nghttp2_nv){(uint8_t *)":status", (uint8_t *)status, 7, strlen(status), 0};
	for (unsigned i = 0; i < h->n; i++) {
		char *name = (char *)h->field[i].name;

		for (char *p = name; *p; p++)
			*p = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
		/* as Go's server says it in HTTP/2 */
		if (streq(name, "connection") && streq(h->field[i].value, "close"))
			nghttp2_submit_goaway(s->ng, 0, t->id, NGHTTP2_NO_ERROR, NULL, 0);
		if (streq(name, "transfer-encoding") || streq(name, "connection") ||
		    streq(name, "content-length"))
			continue;
		fields[n++] = (nghttp2_nv){(uint8_t *)name, (uint8_t *)h->field[i].value,
					   strlen(name), strlen(h->field[i].value), 0};
	}
	for (int i = 0; i < ts_http2.n_fields; i++)
		fields[n++] = (nghttp2_nv){(uint8_t *)"x", (uint8_t *)"y", 1, 1, 0};
	t->has_head = true;
	nghttp2_submit_response(s->ng, t->id, fields, n, &body);
}

/* Takes what the handler has sent. */
_test_util_ void ts_take_answer(struct ts_session *s, struct ts_stream *t)
{
	static _Thread_local char piece[65536];
	ssize_t n = recv(t->fd, piece, sizeof(piece), MSG_DONTWAIT);
	const char *p = piece;
	size_t left = n > 0 ? (size_t)n : 0;
	enum http_event e = HTTP_NEED_MORE;

	if (n < 0)
		return;
	t->started |= n > 0;
	while (n > 0 && (e = http_msg_feed(&t->answer, &p, &left)) != HTTP_NEED_MORE) {
		if (e == HTTP_HEAD && t->answer.status / 100 != 1)
			ts_submit_head(s, t);
		else if (e == HTTP_BODY)
			buf_add(&t->body, t->answer.piece, t->answer.n_piece);
		else if (e == HTTP_DONE && t->answer.status / 100 == 1) {
			http_msg_done(&t->answer);
			http_msg_init(&t->answer, false);
		} else if (e == HTTP_DONE || e == HTTP_BAD)
			break;
	}
	t->whole |= e == HTTP_DONE || (n == 0 && http_msg_ended_well(&t->answer));
	t->cut |= !t->whole && (n == 0 || e == HTTP_BAD);
	if (t->whole || t->cut)
		closep(&t->fd);
	if (t->has_head)
		nghttp2_session_resume_data(s->ng, t->id);
	else if (t->cut && ts_http2.resets)
		nghttp2_submit_rst_stream(s->ng, 0, t->id, NGHTTP2_INTERNAL_ERROR);
}

_test_util_ ssize_t ts_send(nghttp2_session *ng, const uint8_t *p, size_t n, int flags, void *arg)
{
	struct ts_session *s = arg;

	(void)ng, (void)flags;
	return ts_write(s->c, p, n) ? (ssize_t)n : NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* Whether a handler has closed its connection, and all that it has sent before is written. */
_test_util_ bool ts_is_cut(const struct ts_session *s)
{
	for (int i = 0; i < TS_MAX_STREAMS; i++)
		if (s->streams[i] && s->streams[i]->cut &&
		    s->streams[i]->sent == s->streams[i]->body.len)
			return true;
	return false;
}

/* Waits for the client or for a handler. Returns false at the end. */
_test_util_ bool ts_session_step(struct ts_session *s)
{
	struct pollfd at[TS_MAX_STREAMS + 1] = {{.fd = s->c->fd, .events = POLLIN}};
	uint8_t piece[16384];
	int n;

	for (int i = 0; i < TS_MAX_STREAMS; i++)
		at[i + 1] = (struct pollfd){.fd = s->streams[i] ? s->streams[i]->fd : -1,
					    .events = POLLIN};
	if (ts_http2.deaf)
		at[0].fd = -1;
	if (!SSL_pending(s->c->ssl) && poll(at, TS_MAX_STREAMS + 1, 20) < 0)
		return false;
	for (int i = 0; i < TS_MAX_STREAMS; i++)
		if (s->streams[i] && s->streams[i]->fd >= 0 && at[i + 1].revents)
			ts_take_answer(s, s->streams[i]);
	if (at[0].revents || SSL_pending(s->c->ssl)) {
		n = SSL_read(s->c->ssl, piece, sizeof(piece));
		if (n <= 0 || nghttp2_session_mem_recv(s->ng, piece, (size_t)n) < 0)
			return false;
	}
	if (!s->has_gone && (ts_http2.goes_away ||
			     (ts_http2.goaway_after && s->n_streams >= ts_http2.goaway_after))) {
		ts_http2.goes_away = false;
		s->has_gone = true;
		nghttp2_submit_goaway(s->ng, 0, nghttp2_session_get_last_proc_stream_id(s->ng),
				      NGHTTP2_NO_ERROR, NULL, 0);
	}
	return nghttp2_session_send(s->ng) == 0 && !ts_is_cut(s) &&
	       (nghttp2_session_want_read(s->ng) || nghttp2_session_want_write(s->ng));
}

_test_util_ bool ts_speaks_http2(const struct ts_conn *c)
{
	const unsigned char *name = NULL;
	unsigned n = 0;

	if (c->ssl)
		SSL_get0_alpn_selected(c->ssl, &name, &n);
	return n == 2;
}

_test_util_ void ts_http2_main(struct ts_conn *c, int (*serve)(struct test_server *s))
{
	struct ts_session s = {.c = c, .serve = serve};
	nghttp2_session_callbacks *cb;

	ts_http2.n_conns++;
	nghttp2_session_callbacks_new(&cb);
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, ts_on_begin);
	nghttp2_session_callbacks_set_on_header_callback(cb, ts_on_field);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, ts_on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, ts_on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, ts_on_close);
	nghttp2_session_callbacks_set_send_callback(cb, ts_send);
	nghttp2_session_server_new(&s.ng, cb, &s);
	nghttp2_session_callbacks_del(cb);
	nghttp2_submit_settings(s.ng, 0,
				&(nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
							  (uint32_t)ts_http2.max_streams},
				ts_http2.max_streams > 0);
	nghttp2_session_send(s.ng);
	while (!c->server->stopping && ts_session_step(&s))
		;
	nghttp2_session_del(s.ng);
	for (int i = 0; i < TS_MAX_STREAMS; i++)
		if (s.streams[i])
			ts_stream_free(&s, i);
}
