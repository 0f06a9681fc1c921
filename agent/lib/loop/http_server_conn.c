// SPDX-License-Identifier: Apache-2.0
/*
 * One connection of the server. It collects a request, passes it to the handler, and writes the one
 * reply, now or later. Requests that the client sends before the reply wait.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <time.h>
#include <utlist.h>

#include "lib/loop/http_server_private.h"

static void enter(struct http_conn *c, enum phase phase)
{
	c->phase = phase;
	c->since_ns = now_mono_ns();
}

static void read_enable(struct http_conn *c, bool on)
{
	c->server->socket->read_enable(c->conn, on);
}

/* ---- ending ---- */

static void destroy(struct http_conn *c)
{
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
	destroy(c);
}

/* ---- replying ---- */

static const char *status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} table[] = {
		{200, "OK"},
		{201, "Created"},
		{202, "Accepted"},
		{204, "No Content"},
		{301, "Moved Permanently"},
		{302, "Found"},
		{304, "Not Modified"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{406, "Not Acceptable"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{411, "Length Required"},
		{413, "Content Too Large"},
		{415, "Unsupported Media Type"},
		{422, "Unprocessable Content"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"},
		{507, "Insufficient Storage"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].status == status)
			return table[i].text;
	return "Status";
}

static void format_date(char out[40])
{
	time_t now = (time_t)(now_wall_ns() / NSEC_PER_SEC);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(out, 40, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

static void write_reply(struct http_conn *c, int status, const char *content_type,
			const char *const *headers, const void *body, size_t n)
{
	bool head_only = c->msg.method && streq(c->msg.method, "HEAD");
	bool no_body = status == 204 || status == 304 || status / 100 == 1;
	char date[40];
	struct buf b;

	format_date(date);
	buf_init(&b, 0);
	buf_printf(&b, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, status_text(status), date);
	if (content_type)
		buf_printf(&b, "Content-Type: %s\r\n", content_type);
	if (!no_body)
		buf_printf(&b, "Content-Length: %zu\r\n", n);
	if (c->close_after)
		buf_puts(&b, "Connection: close\r\n");
	else if (c->msg.minor == 0)
		buf_puts(&b, "Connection: keep-alive\r\n");
	for (; headers && *headers; headers++)
		if (!(*headers)[strcspn(*headers, "\r\n")])
			buf_printf(&b, "%s\r\n", *headers);
	buf_puts(&b, "\r\n");
	if (!head_only && !no_body && n)
		buf_add(&b, body, n);
	enter(c, REPLYING);
	read_enable(c, c->close_after);
	c->server->socket->write(c->conn, &b);
	if (c->close_after)
		c->server->socket->shutdown(c->conn);
}

void http_reply(struct http_conn *c, int status, const char *content_type,
		const char *const *headers, const void *body, size_t n)
{
	if (!c->server) { /* the peer has closed, and the handler has no on_gone */
		destroy(c);
		return;
	}
	loop_assert(c->server->loop);
	assert_se(c->phase == ASKING || c->phase == HANDLING); /* the handler replies only once */
	c->on_gone = NULL;
	/* the body has not arrived, so the next bytes would not be a new request */
	c->close_after |= c->phase == ASKING;
	write_reply(c, status, content_type, headers, body, n);
}

void http_conn_on_gone(struct http_conn *c, void (*fn)(void *arg), void *arg)
{
	c->on_gone = fn;
	c->gone_arg = arg;
}

void http_conn_refuse(struct http_conn *c, int status, const char *why)
{
	_cleanup_buf_ struct buf b = {0};
	void (*on_gone)(void *arg) = TAKE_PTR(c->on_gone);

	if (on_gone)
		on_gone(c->gone_arg);
	buf_puts(&b, "{\"error\":");
	buf_json_string(&b, why);
	buf_puts(&b, "}\n");
	c->close_after = true;
	write_reply(c, status, "application/json", NULL, b.data, b.len);
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
	enter(c, IDLE);
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
		.peer = c->peer,
		.body = c->body.data ?: "",
		.body_bytes = c->body.len,
		.content_length = c->msg.length,
	};
}

static void dispatch(struct http_conn *c)
{
	fill_in(c);
	enter(c, HANDLING);
	read_enable(c, c->ahead.len == 0);
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
	enter(c, ASKING);
	c->in_head = true;
	c->server->config.head(c, &c->in, c->server->config.arg);
	c->in_head = false;
	now = c->phase == READING;
	if (c->phase == ASKING)
		read_enable(c, false);
	return now && accept_body(c);
}

static bool on_head(struct http_conn *c)
{
	c->close_after |= !c->msg.keep_alive || c->server->config.brief;
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
			enter(c, READING);
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
		read_enable(c, false);
	}
	if (c->phase == READING && c->msg.state == ST_DONE)
		dispatch(c);
}

static void serve_ahead(struct http_conn *c)
{
	_cleanup_buf_ struct buf b = c->ahead;

	c->ahead = (struct buf){0};
	read_enable(c, true);
	on_data(b.data ?: "", b.len, c);
}

void http_accept_body(struct http_conn *c, size_t max_body_bytes)
{
	if (!c->server) { /* the peer has closed meanwhile */
		if (c->on_gone)
			c->on_gone(c->gone_arg);
		destroy(c);
		return;
	}
	loop_assert(c->server->loop);
	assert_se(c->phase == ASKING);
	enter(c, READING);
	c->body.max_bytes = max_body_bytes;
	if (!c->in_head && accept_body(c))
		serve_ahead(c);
}

static void on_drained(void *arg)
{
	struct http_conn *c = arg;

	if (c->phase != REPLYING)
		return; /* the data that was written is 100 Continue, not the reply */
	if (c->close_after) {
		if (c->eof)
			http_conn_drop(c);
		else
			enter(c, LINGERING);
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
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;

	if (sa->ss_family == AF_INET)
		inet_ntop(AF_INET, &v4->sin_addr, c->peer, sizeof(c->peer));
	else if (sa->ss_family == AF_INET6)
		inet_ntop(AF_INET6, &v6->sin6_addr, c->peer, sizeof(c->peer));
	c->server = s;
	c->refuse = refuse;
	http_msg_init(&c->msg, true);
	buf_init(&c->body, s->config.max_body_bytes);
	enter(c, IDLE);
	DL_APPEND(s->conns, c);
	s->n_conns++;
	s->n_refused += refuse;
	if (s->socket->accept(s->loop, fd, s->tls, &server_ops, c, &c->conn) < 0)
		http_conn_drop(c);
}
