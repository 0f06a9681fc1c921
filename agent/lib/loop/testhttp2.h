/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a client of HTTP/2 by nghttp2, on the test's loop. It collects the answers of a
 * few streams, and can also send bytes that nghttp2 would not.
 */
#pragma once

#include <fcntl.h>
#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>

#include "lib/loop/loop.h"

#define H2_MAX_ANSWERS 64

struct h2_answer {
	int32_t id; /* 0: none */
	int status;
	bool closed;
	uint32_t error;	   /* with which the stream was closed */
	struct buf fields; /* "name: value\n", also of trailers */
	struct buf body;
	const char *send; /* the request's body */
	size_t n_send;
	bool holds; /* keeps the end of the request back */
};

struct h2_client {
	struct loop *loop;
	int fd;
	SSL *ssl; /* NULL: plain */
	struct watch *watch;
	nghttp2_session *session;
	struct h2_answer answers[H2_MAX_ANSWERS];
	unsigned n_closed, n_rst;
	bool eof, goaway, deaf; /* deaf: does not read */
	bool failed;		/* nghttp2 does not take the server's bytes: they answer a lie */
	uint32_t goaway_error;
};

static inline struct h2_answer *h2_answer(struct h2_client *c, int32_t id)
{
	for (size_t i = 0; i < H2_MAX_ANSWERS; i++)
		if (c->answers[i].id == id)
			return &c->answers[i];
	return NULL;
}

static inline int h2_on_header(nghttp2_session *s, const nghttp2_frame *f, const uint8_t *name,
			       size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags,
			       void *arg)
{
	struct h2_answer *a = h2_answer(arg, f->hd.stream_id);
	(void)s, (void)flags;
	if (n_name == 7 && memcmp(name, ":status", 7) == 0)
		a->status = (value[0] - '0') * 100 + (value[1] - '0') * 10 + value[2] - '0';
	buf_printf(&a->fields, "%.*s: %.*s\n", (int)n_name, (const char *)name, (int)n_value,
		   (const char *)value);
	return 0;
}

static inline int h2_on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *p,
			     size_t n, void *arg)
{
	(void)s, (void)flags;
	buf_add(&h2_answer(arg, id)->body, p, n);
	return 0;
}

static inline int h2_on_frame(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
	struct h2_client *c = arg;

	(void)s;
	if (f->hd.type == NGHTTP2_GOAWAY) {
		c->goaway = true;
		c->goaway_error = f->goaway.error_code;
	}
	c->n_rst += f->hd.type == NGHTTP2_RST_STREAM;
	return 0;
}

static inline int h2_on_close(nghttp2_session *s, int32_t id, uint32_t error, void *arg)
{
	struct h2_client *c = arg;
	struct h2_answer *a = h2_answer(c, id);

	(void)s;
	a->closed = true;
	a->error = error;
	c->n_closed++;
	return 0;
}

/* Sends all; the server reads only when the loop runs, so it must fit into the socket. */
static inline void h2_write(struct h2_client *c, const void *p, size_t n)
{
	if (c->ssl)
		(void)SSL_write(c->ssl, p, (int)n);
	else
		(void)!send(c->fd, p, n, MSG_NOSIGNAL);
}

static inline void h2_flush(struct h2_client *c)
{
	const uint8_t *p;
	ssize_t n;

	while ((n = nghttp2_session_mem_send(c->session, &p)) > 0)
		h2_write(c, p, (size_t)n);
}

static inline void h2_readable(int fd, void *arg)
{
	static char piece[64 << 10];
	struct h2_client *c = arg;
	ssize_t n;

	(void)fd;
	if (c->deaf)
		return;
	do {
		n = c->ssl ? SSL_read(c->ssl, piece, sizeof(piece))
			   : recv(c->fd, piece, sizeof(piece), MSG_DONTWAIT);
		if (n > 0 && !c->failed)
			c->failed = nghttp2_session_mem_recv(c->session, (uint8_t *)piece,
							     (size_t)n) < 0 ||
				    !nghttp2_session_want_read(c->session);
	} while (n > 0);
	c->eof = n == 0 || (!c->ssl && errno != EAGAIN);
	if (c->eof)
		c->watch = watch_free(c->watch);
	else
		h2_flush(c);
}

static inline ssize_t h2_read_body(nghttp2_session *s, int32_t id, uint8_t *to, size_t n,
				   uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct h2_answer *a = source->ptr;

	(void)s, (void)id, (void)arg;
	n = MIN(n, a->n_send);
	if (n == 0 && a->holds)
		return NGHTTP2_ERR_DEFERRED;
	if (n)
		memcpy(to, a->send, n);
	a->send += n;
	a->n_send -= n;
	if (!a->n_send && !a->holds)
		*flags = NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

/*
 * Sends a request, with fields "name: value" (NULL: none), and with a body if there is one or its
 * end is held back.
 */
static inline struct h2_answer *h2_send(struct h2_client *c, const char *method, const char *path,
					const char *const *fields, const void *body, size_t n,
					bool holds)
{
	const char *pairs[40] = {":method",    method, ":path",	  path,
				 ":authority", "h",    ":scheme", "http"};
	struct h2_answer *a = h2_answer(c, 0);
	nghttp2_data_provider provider = {.source.ptr = a, .read_callback = h2_read_body};
	nghttp2_nv nv[20];
	char *texts[20] = {0};
	size_t k = 4;

	for (; fields && *fields; fields++, k++) {
		texts[k] = xstrdup(*fields);
		texts[k][strcspn(texts[k], ":") +
			 (*texts[k] == ':' ? strcspn(texts[k] + 1, ":") + 1 : 0)] = '\0';
		pairs[2 * k] = texts[k];
		pairs[2 * k + 1] = texts[k] + strlen(texts[k]) + 2;
	}
	for (size_t i = 0; i < k; i++)
		nv[i] = (nghttp2_nv){.name = (uint8_t *)pairs[2 * i],
				     .namelen = strlen(pairs[2 * i]),
				     .value = (uint8_t *)pairs[2 * i + 1],
				     .valuelen = strlen(pairs[2 * i + 1])};
	a->send = body;
	a->n_send = n;
	a->holds = holds;
	a->id = nghttp2_submit_request(c->session, NULL, nv, k, n || holds ? &provider : NULL, a);
	if (a->id <= 0)
		abort();
	h2_flush(c);
	for (size_t i = 0; i < k; i++)
		free(texts[i]);
	return a;
}

/* Sends more of a body that was held back; with its end, unless it still is. */
static inline void h2_send_more(struct h2_client *c, struct h2_answer *a, const void *body,
				size_t n, bool holds)
{
	a->send = body;
	a->n_send = n;
	a->holds = holds;
	nghttp2_session_resume_data(c->session, a->id);
	h2_flush(c);
}

/* Sends a frame of any kind. */
static inline void h2_send_frame(struct h2_client *c, uint8_t type, uint8_t flags, int32_t id,
				 const void *p, size_t n)
{
	uint8_t frame[9 + 256] = {0, (uint8_t)(n >> 8), (uint8_t)n, type, flags, 0, 0,
				  0, (uint8_t)id};

	memcpy(frame + 9, p, n);
	h2_write(c, frame, 9 + n);
}

/* fd: a connection to the server, which the client owns; ssl too, whose handshake is done. */
static inline void h2_start(struct h2_client *c, struct loop *l, int fd, SSL *ssl)
{
	nghttp2_session_callbacks *k;
	nghttp2_option *o;

	*c = (struct h2_client){.loop = l, .fd = fd, .ssl = ssl};
	nghttp2_session_callbacks_new(&k);
	nghttp2_session_callbacks_set_on_header_callback(k, h2_on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(k, h2_on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(k, h2_on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(k, h2_on_close);
	nghttp2_option_new(&o);
	nghttp2_option_set_max_send_header_block_length(o, 1 << 20);
	nghttp2_session_client_new2(&c->session, k, c, o);
	nghttp2_option_del(o);
	nghttp2_session_callbacks_del(k);
	nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, NULL, 0);
	h2_flush(c);
	if (watch_new(l, fd, h2_readable, c, &c->watch) < 0)
		abort();
}

static inline void h2_stop(struct h2_client *c)
{
	watch_free(c->watch);
	nghttp2_session_del(c->session);
	for (size_t i = 0; i < H2_MAX_ANSWERS; i++) {
		buf_done(&c->answers[i].fields);
		buf_done(&c->answers[i].body);
	}
	SSL_free(c->ssl);
	close(c->fd);
}
