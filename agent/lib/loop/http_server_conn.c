// SPDX-License-Identifier: Apache-2.0
/*
 * A connection of the server. With HTTP/1.1 it collects a request after the other; what the client
 * sends before the reply waits. If the client begins with HTTP/2, http2_server.c gets its bytes.
 */
#include <stdlib.h>
#include <utlist.h>

#include "lib/loop/http_server_private.h"

static void read_enable(struct http_conn *c, bool on)
{
	c->server->socket->read_enable(c->conn, on);
}

static void detach(struct http_conn *c)
{
	DL_DELETE(c->server->conns, c);
	c->server->n_conns--;
	c->server->n_refused -= c->refuse;
	c->peer->n_conns -= !c->refuse;
	c->http2 = http2_free(c->http2);
	http_peer_unref(c->server, TAKE_PTR(c->peer));
	c->conn = c->server->socket->free(c->conn);
	c->server = NULL;
}

static void free_conn(struct http_conn *c)
{
	free(c);
}

void http_conn_linger(struct http_conn *c)
{
	http_conn_enter(c, LINGERING);
	read_enable(c, true);
	c->server->socket->shutdown(c->conn);
}

/* ---- requests ---- */

static void next_request(struct http_conn *c)
{
	http_msg_done(&c->msg);
	http_msg_init(&c->msg, true);
	buf_done(&c->body);
	buf_init(&c->body, c->server->config.max_body_bytes);
	free(TAKE_PTR(c->path));
	c->on_gone = NULL;
	c->served = true;
	http_conn_enter(c, IDLE);
}

static void ask_body(struct http_conn *c)
{
	struct buf b;

	buf_init(&b, 0);
	buf_puts(&b, "HTTP/1.1 100 Continue\r\n\r\n");
	c->server->socket->write(c->conn, &b);
}

static bool on_head(struct http_conn *c)
{
	c->close_after |= !c->msg.keep_alive || c->server->config.brief || http_conn_is_too_old(c);
	if (c->refuse) {
		http_conn_refuse(c, 503, "too many connections");
		return false;
	}
	return http_conn_take_head(c);
}

/* A client that is refused gets its 503 by HTTP/1.1. */
static bool may_be_http2(const struct http_conn *c)
{
	return c->server->config.http2 && !c->served && !c->refuse;
}

/* Consumes the bytes of the current request. */
static void read_request(struct http_conn *c, const char **p, size_t *n)
{
	while (c->phase == IDLE || c->phase == READING) {
		if (c->phase == IDLE && *n)
			http_conn_enter(c, READING);
		switch (http_msg_feed(&c->msg, p, n)) {
		case HTTP_NEED_MORE:
			return;
		case HTTP_HEAD:
			if (!on_head(c))
				return;
			break;
		case HTTP_BODY:
			if (buf_add(&c->body, c->msg.piece, c->msg.n_piece) < 0)
				http_conn_refuse(c, 413, "the body is larger than the limit");
			break;
		case HTTP_BAD:
			if (c->msg.is_preface && may_be_http2(c))
				http2_start(c);
			else
				http_conn_refuse(c, c->msg.status, c->msg.error);
			return;
		case HTTP_DONE:
			return;
		}
	}
}

static void on_data(const char *p, size_t n, void *arg)
{
	struct http_conn *c = arg;

	if (c->http2) {
		http2_feed(c, p, n);
		return;
	}
	if (c->phase == LINGERING || (c->phase == REPLYING && c->close_after))
		return;
	if (c->phase == IDLE || c->phase == READING) {
		read_request(c, &p, &n);
		if (c->phase == REPLYING) /* the request was refused */
			return;
	}
	if (c->http2) {
		http2_feed(c, p, n);
		return;
	}
	if (n) { /* the next request: bytes already read are kept, the rest waits in the kernel */
		buf_add(&c->ahead, p, n);
		read_enable(c, false);
	}
	if (c->phase == READING && c->msg.state == ST_DONE)
		http_conn_dispatch(c);
}

static void serve_ahead(struct http_conn *c)
{
	_cleanup_buf_ struct buf b = c->ahead;

	c->ahead = (struct buf){0};
	read_enable(c, true);
	on_data(b.data ?: "", b.len, c);
}

static void on_drained(void *arg)
{
	struct http_conn *c = arg;

	if (c->http2) {
		http2_drained(c);
		return;
	}
	if (c->phase != REPLYING) { /* the data that was written is 100 Continue, or a piece */
		http_conn_tell_taken(c);
		return;
	}
	http_conn_tell_sent(c);
	if (c->close_after) {
		if (c->eof)
			http_conn_drop(c);
		else
			http_conn_enter(c, LINGERING);
		return;
	}
	if (c->server->draining) {
		http_conn_drop(c);
		return;
	}
	next_request(c);
	serve_ahead(c);
}

static void on_closed(bool eof, const char *error, void *arg)
{
	struct http_conn *c = arg;

	(void)eof;
	(void)error;
	http_conn_drop(c);
}

/*
 * The peer has ended its side. It may still wait for the reply. But if the handler has set on_gone,
 * the peer counts as gone, as in Go's net/http.
 */
static void on_ended(void *arg)
{
	struct http_conn *c = arg;

	if ((c->phase != HANDLING && c->phase != REPLYING) || c->on_gone) {
		http_conn_drop(c);
		return;
	}
	c->eof = true;
	c->close_after = true;
}

static const struct http_carrier http1 = {
	.read_enable = read_enable,
	.ask_body = ask_body,
	.go_on = serve_ahead,
	.reply = http1_reply,
	.reply_first = http1_reply_first,
	.reply_more = http1_reply_more,
	.reply_last = http1_reply_last,
	.cut = http1_cut,
	.detach = detach,
	.free = free_conn,
};

static const struct conn_ops http1_ops = {
	.data = on_data,
	.drained = on_drained,
	.ended = on_ended,
	.closed = on_closed,
};
static const struct conn_ops http2_ops = {
	.data = on_data,
	.drained = on_drained,
	.ended = on_ended,
	.closed = on_closed,
	.protocols = "\x02h2\x08http/1.1",
};

void http_conn_start(struct http_server *s, int fd, const struct sockaddr_storage *sa, bool refuse)
{
	const struct conn_ops *ops = s->config.http2 ? &http2_ops : &http1_ops;
	struct http_conn *c = xcalloc(1, sizeof(*c));

	c->server = s;
	c->carrier = &http1;
	c->peer = http_peer_ref(s, sa);
	c->peer->n_conns += !refuse;
	c->refuse = refuse;
	http_msg_init(&c->msg, true);
	buf_init(&c->body, s->config.max_body_bytes);
	http_conn_enter(c, IDLE);
	c->accepted_ns = c->since_ns;
	DL_APPEND(s->conns, c);
	s->n_conns++;
	s->n_refused += refuse;
	if (s->socket->accept(s->loop, fd, s->tls, ops, c, &c->conn) < 0)
		http_conn_drop(c);
}
