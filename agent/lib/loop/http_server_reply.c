// SPDX-License-Identifier: Apache-2.0
/* How the server writes replies: as one, or in two pieces. */
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

static void format_date(char out[40])
{
	time_t now = (time_t)(now_wall_ns() / NSEC_PER_SEC);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(out, 40, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

/* Adds the head of a reply. framing: the header that says where the body ends; "": there is none */
static void put_head(struct buf *b, const struct http_conn *c, int status, const char *content_type,
		     const char *framing, const char *const *headers)
{
	char date[40];

	format_date(date);
	buf_printf(b, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, status_text(status), date);
	if (content_type)
		buf_printf(b, "Content-Type: %s\r\n", content_type);
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
	http_conn_read_enable(c, c->close_after);
	if (b->len)
		c->server->socket->write(c->conn, b);
	if (c->close_after)
		c->server->socket->shutdown(c->conn);
}

void http_conn_write_reply(struct http_conn *c, int status, const char *content_type,
			   const char *const *headers, const void *body, size_t n)
{
	bool has_body = status != 204 && status != 304 && status / 100 != 1;
	char length[48] = "";
	struct buf b;

	if (has_body)
		snprintf(length, sizeof(length), "Content-Length: %zu\r\n", n);
	buf_init(&b, 0);
	put_head(&b, c, status, content_type, length, headers);
	if (!is_head(c) && has_body && n)
		buf_add(&b, body, n);
	write_last(c, &b);
}

void http_reply(struct http_conn *c, int status, const char *content_type,
		const char *const *headers, const void *body, size_t n)
{
	if (!c->server) { /* the peer has closed, and the handler has no on_gone */
		http_conn_destroy(c);
		return;
	}
	loop_assert(c->server->loop);
	/* the handler replies only once */
	assert_se(c->phase == ASKING || (c->phase == HANDLING && !c->continues));
	c->on_gone = NULL;
	/* the body has not arrived, so the next bytes would not be a new request */
	c->close_after |= c->phase == ASKING;
	http_conn_write_reply(c, status, content_type, headers, body, n);
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

void http_reply_first(struct http_conn *c, int status, const char *content_type,
		      const char *const *headers, const void *body, size_t n)
{
	struct buf b;

	if (!c->server)
		return;
	loop_assert(c->server->loop);
	assert_se(c->phase == HANDLING && !c->continues);
	/* without a last piece that says that it is the last */
	c->close_after |= !is_chunked(c) || is_head(c);
	buf_init(&b, 0);
	put_head(&b, c, status, content_type, is_chunked(c) ? "Transfer-Encoding: chunked\r\n" : "",
		 headers);
	put_piece(&b, c, body, n);
	c->server->socket->write(c->conn, &b);
	c->continues = true;
}

void http_reply_last(struct http_conn *c, const void *body, size_t n)
{
	struct buf b;

	if (!c->server) { /* the peer has closed, and the handler has no on_gone */
		http_conn_destroy(c);
		return;
	}
	loop_assert(c->server->loop);
	assert_se(c->phase == HANDLING && c->continues);
	c->on_gone = NULL;
	buf_init(&b, 0);
	put_piece(&b, c, body, n);
	if (is_chunked(c) && !is_head(c))
		buf_puts(&b, "0\r\n\r\n");
	write_last(c, &b);
	c->continues = false;
}
