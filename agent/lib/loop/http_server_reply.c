// SPDX-License-Identifier: Apache-2.0
/* How the server writes replies of HTTP/1.1: as one, or in pieces. */
#include <stdlib.h>
#include <time.h>

#include "lib/loop/http_server_private.h"

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

void http_format_date(char out[40])
{
	time_t now = (time_t)(now_wall_ns() / NSEC_PER_SEC);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(out, 40, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

/* Adds the head of a reply. framing: the header that says where the body ends; "": there is none */
static void put_head(struct buf *b, const struct http_conn *c, const struct http_answer *a,
		     const char *framing)
{
	const char *const *headers = a->headers;
	char date[40];

	http_format_date(date);
	buf_printf(b, "HTTP/1.1 %d %s\r\nDate: %s\r\n", a->status, status_text(a->status), date);
	if (a->content_type)
		buf_printf(b, "Content-Type: %s\r\n", a->content_type);
	buf_puts(b, framing);
	if (c->close_after)
		buf_puts(b, "Connection: close\r\n");
	else if (c->msg.minor == 0)
		buf_puts(b, "Connection: keep-alive\r\n");
	for (; headers && *headers; headers++)
		if (!(*headers)[strcspn(*headers, "\r\n")])
			buf_printf(b, "%s\r\n", *headers);
	buf_puts(b, "\r\n");
}

static bool is_head(const struct http_conn *c)
{
	return c->msg.method && streq(c->msg.method, "HEAD");
}

/* Writes the last bytes of a reply; there may be none if the connection ends. */
static void write_last(struct http_conn *c, struct buf *b)
{
	http_conn_enter(c, REPLYING);
	c->carrier->read_enable(c, c->close_after);
	if (b->len)
		c->server->socket->write(c->conn, b);
	if (c->close_after)
		c->server->socket->shutdown(c->conn);
}

void http1_reply(struct http_conn *c, const struct http_answer *a)
{
	bool has_body = a->status != 204 && a->status != 304 && a->status / 100 != 1;
	char length[48] = "";
	struct buf b;

	/* if the body has not arrived, the next bytes would not be a new request */
	c->close_after |= c->phase == ASKING;
	if (has_body)
		snprintf(length, sizeof(length), "Content-Length: %zu\r\n", a->n);
	buf_init(&b, 0);
	put_head(&b, c, a, length);
	if (!is_head(c) && has_body && a->n)
		buf_add(&b, a->body, a->n);
	write_last(c, &b);
}

/* The body of a reply in pieces: RFC 9112, section 7.1. HTTP/1.0 ends it with the connection. */
static bool is_chunked(const struct http_conn *c)
{
	return c->msg.minor > 0;
}

static void put_piece(struct buf *b, const struct http_conn *c, const void *body, size_t n)
{
	if (is_head(c) || !n)
		return;
	if (is_chunked(c))
		buf_printf(b, "%zx\r\n", n);
	buf_add(b, body, n);
	if (is_chunked(c))
		buf_puts(b, "\r\n");
}

void http1_reply_first(struct http_conn *c, const struct http_answer *a)
{
	struct buf b;

	/* without a last piece that says that it is the last */
	c->close_after |= !is_chunked(c) || is_head(c);
	buf_init(&b, 0);
	put_head(&b, c, a, is_chunked(c) ? "Transfer-Encoding: chunked\r\n" : "");
	put_piece(&b, c, a->body, a->n);
	c->server->socket->write(c->conn, &b);
	c->continues = true;
}

void http1_reply_more(struct http_conn *c, const void *body, size_t n)
{
	struct buf b;

	buf_init(&b, 0);
	put_piece(&b, c, body, n);
	if (b.len)
		c->server->socket->write(c->conn, &b);
}

void http1_reply_last(struct http_conn *c, const void *body, size_t n)
{
	struct buf b;

	buf_init(&b, 0);
	put_piece(&b, c, body, n);
	if (is_chunked(c) && !is_head(c))
		buf_puts(&b, "0\r\n\r\n");
	write_last(c, &b);
	c->continues = false;
}

/* By a reset, because the end of the connection is the end of an answer of HTTP/1.0. */
void http1_cut(struct http_conn *c)
{
	c->server->socket->reset(c->conn);
	http_conn_enter(c, REPLYING);
	http_conn_drop(c);
}
