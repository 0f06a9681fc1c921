// SPDX-License-Identifier: Apache-2.0
/*
 * The requests of one connection of the server. It collects a request and passes it to the handler,
 * which replies now or later. Requests that the client sends before the reply wait.
 */
#include <stdlib.h>
#include <utlist.h>

#include "lib/loop/http_server_private.h"

void http_conn_enter(struct http_conn *c, enum phase phase)
{
	c->phase = phase;
	c->since_ns = now_mono_ns();
}

void http_conn_read_enable(struct http_conn *c, bool on)
{
	c->server->socket->read_enable(c->conn, on);
}

/* ---- ending ---- */

static void tell_sent(struct http_conn *c)
{
	void (*on_sent)(void *arg) = TAKE_PTR(c->on_sent);

	if (on_sent)
		on_sent(c->sent_arg);
}

void http_conn_destroy(struct http_conn *c)
{
	tell_sent(c);
	http_msg_done(&c->msg);
	buf_done(&c->body);
	buf_done(&c->ahead);
	free(c->path);
	free(c);
}

static void detach(struct http_conn *c)
{
	DL_DELETE(c->server->conns, c);
	c->server->n_conns--;
	c->server->n_refused -= c->refuse;
	c->peer->n_conns -= !c->refuse;
	http_peer_unref(c->server, TAKE_PTR(c->peer));
	c->conn = c->server->socket->free(c->conn);
	c->server = NULL;
}

void http_conn_drop(struct http_conn *c)
{
	bool owed = c->phase == ASKING || c->phase == HANDLING;

	detach(c);
	if (c->on_gone)
		c->on_gone(c->gone_arg);
	else if (owed)
		return;
	http_conn_destroy(c);
}

/* ---- requests that are refused ---- */

void http_conn_on_gone(struct http_conn *c, void (*fn)(void *arg), void *arg)
{
	c->on_gone = fn;
	c->gone_arg = arg;
}

void http_conn_on_sent(struct http_conn *c, void (*fn)(void *arg), void *arg)
{
	c->on_sent = fn;
	c->sent_arg = arg;
}

void http_conn_refuse(struct http_conn *c, int status, const char *why)
{
	static const char *const again[] = {"Retry-After: 5", NULL};
	_cleanup_buf_ struct buf b = {0};
	void (*on_gone)(void *arg) = TAKE_PTR(c->on_gone);

	if (on_gone)
		on_gone(c->gone_arg);
	buf_puts(&b, "{\"error\":");
	buf_json_string(&b, why);
	buf_puts(&b, "}\n");
	c->close_after = true;
	http_conn_write_reply(c, status, "application/json", status == 503 ? again : NULL, b.data,
			      b.len);
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

static bool decode_path(const char *raw, size_t n, char **ret)
{
	_cleanup_buf_ struct buf b = {0};

	for (size_t i = 0; i < n; i++) {
		uint8_t byte = (uint8_t)raw[i];
		char hex[3] = {0};
		size_t got;

		if (raw[i] == '%') {
			if (i + 2 >= n)
				return false;
			memcpy(hex, raw + i + 1, 2);
			if (hex_decode(hex, 1, &byte, &got) < 0 || got != 1 || byte == 0)
				return false;
			i += 2;
		}
		buf_putc(&b, (char)byte);
	}
	*ret = buf_steal(&b);
	return true;
}

/* Splits the target of a request: "/path?query", "http://host/path?query" or "*". */
static bool split_target(struct http_conn *c)
{
	const char *t = c->msg.target, *authority;
	size_t n;

	if (str_has_prefix(t, "http://") || str_has_prefix(t, "https://")) {
		authority = strstr(t, "//") + 2;
		t = authority + strcspn(authority, "/?");
		if (*t != '/')
			return false;
	}
	if (*t != '/' && !streq(t, "*"))
		return false;
	n = strcspn(t, "?#");
	c->in.query = t[n] == '?' ? t + n + 1 : "";
	return decode_path(t, n, &c->path);
}

static void fill_in(struct http_conn *c)
{
	const struct http_headers *h = &c->msg.headers;
	const char *query = c->in.query;

	c->in = (struct http_in){
		.method = c->msg.method,
		.path = c->path,
		.query = query,
		.authorization = http_header(h, "Authorization") ?: "",
		.content_type = http_header(h, "Content-Type") ?: "",
		.content_encoding = http_header(h, "Content-Encoding") ?: "",
		.accept_encoding = http_header(h, "Accept-Encoding") ?: "",
		.host = http_header(h, "Host") ?: "",
		.origin = http_header(h, "Origin") ?: "",
		.if_none_match = http_header(h, "If-None-Match") ?: "",
		.accept = http_header(h, "Accept") ?: "",
		.connect_timeout_ms = http_header(h, "Connect-Timeout-Ms") ?: "",
		.peer = c->peer->name,
		.body = c->body.data ?: "",
		.body_bytes = c->body.len,
		.content_length = c->msg.length,
	};
}

static void dispatch(struct http_conn *c)
{
	fill_in(c);
	http_conn_enter(c, HANDLING);
	http_conn_read_enable(c, c->ahead.len == 0);
	c->server->config.handler(c, &c->in, c->server->config.arg);
}

/* Returns true if the body is to be read. Sends 100 Continue if the client waits for it. */
static bool accept_body(struct http_conn *c)
{
	struct buf b;

	if (c->msg.length != UINT64_MAX && c->msg.length > c->body.max_bytes) {
		http_conn_refuse(c, 413, "the body is larger than the limit");
		return false;
	}
	if (c->msg.expects_continue && c->msg.has_body) {
		buf_init(&b, 0);
		buf_puts(&b, "HTTP/1.1 100 Continue\r\n\r\n");
		c->server->socket->write(c->conn, &b);
	}
	return true;
}

/*
 * Asks the handler by the head alone. Returns true if the body is to be read now. If the handler
 * has not decided, it calls http_accept_body or http_reply later.
 */
static bool ask_head(struct http_conn *c)
{
	bool now;

	fill_in(c);
	http_conn_enter(c, ASKING);
	c->in_head = true;
	c->server->config.head(c, &c->in, c->server->config.arg);
	c->in_head = false;
	now = c->phase == READING;
	if (c->phase == ASKING)
		http_conn_read_enable(c, false);
	return now && accept_body(c);
}

static bool is_too_old(const struct http_conn *c)
{
	uint64_t max_age_ns = c->server->config.max_age_ns;

	return max_age_ns && now_mono_ns() - c->accepted_ns > max_age_ns;
}

static bool on_head(struct http_conn *c)
{
	c->close_after |= !c->msg.keep_alive || c->server->config.brief || is_too_old(c);
	if (c->refuse) {
		http_conn_refuse(c, 503, "too many connections");
		return false;
	}
	if (!split_target(c)) {
		http_conn_refuse(c, 400, "the target is no path");
		return false;
	}
	if (c->server->config.head && c->msg.has_body)
		return ask_head(c);
	return accept_body(c);
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

	if (c->phase == LINGERING || (c->phase == REPLYING && c->close_after))
		return;
	if (c->phase == IDLE || c->phase == READING) {
		read_request(c, &p, &n);
		if (c->phase == REPLYING) /* the request was refused */
			return;
	}
	if (n) { /* the next request: bytes already read are kept, the rest waits in the kernel */
		buf_add(&c->ahead, p, n);
		http_conn_read_enable(c, false);
	}
	if (c->phase == READING && c->msg.state == ST_DONE)
		dispatch(c);
}

static void serve_ahead(struct http_conn *c)
{
	_cleanup_buf_ struct buf b = c->ahead;

	c->ahead = (struct buf){0};
	http_conn_read_enable(c, true);
	on_data(b.data ?: "", b.len, c);
}

void http_accept_body(struct http_conn *c, size_t max_body_bytes)
{
	if (!c->server) { /* the peer has closed meanwhile */
		if (c->on_gone)
			c->on_gone(c->gone_arg);
		http_conn_destroy(c);
		return;
	}
	loop_assert(c->server->loop);
	assert_se(c->phase == ASKING);
	http_conn_enter(c, READING);
	c->body.max_bytes = max_body_bytes;
	if (!c->in_head && accept_body(c))
		serve_ahead(c);
}

static void on_drained(void *arg)
{
	struct http_conn *c = arg;

	if (c->phase != REPLYING)
		return; /* the data that was written is 100 Continue, or a first piece */
	tell_sent(c);
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

static const struct conn_ops server_ops = {
	.data = on_data,
	.drained = on_drained,
	.ended = on_ended,
	.closed = on_closed,
};

void http_conn_start(struct http_server *s, int fd, const struct sockaddr_storage *sa, bool refuse)
{
	struct http_conn *c = xcalloc(1, sizeof(*c));

	c->server = s;
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
	if (s->socket->accept(s->loop, fd, s->tls, &server_ops, c, &c->conn) < 0)
		http_conn_drop(c);
}
