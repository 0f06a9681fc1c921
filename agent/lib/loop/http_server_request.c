/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of the server, by HTTP/1.1 or HTTP/2: from its head to the handler, which replies now
 * or later. Its carrier brings the bytes.
 */
#include <stdlib.h>

#include "lib/loop/http_server_private.h"

void http_conn_enter(struct http_conn *c, enum phase phase)
{
	c->phase = phase;
	c->since_ns = now_mono_ns();
}

void http_conn_tell_sent(struct http_conn *c)
{
	void (*on_sent)(void *arg) = TAKE_PTR(c->on_sent);

	if (on_sent)
		on_sent(c->sent_arg);
}

void http_conn_tell_taken(struct http_conn *c)
{
	void (*on_taken)(void *arg) = c->continues ? TAKE_PTR(c->on_taken) : NULL;

	if (on_taken)
		on_taken(c->taken_arg);
}

/* ---- ending ---- */

void http_conn_destroy(struct http_conn *c)
{
	http_conn_tell_sent(c);
	http_msg_done(&c->msg);
	buf_done(&c->body);
	buf_done(&c->ahead);
	free(c->path);
	c->carrier->free(c);
}

void http_conn_drop(struct http_conn *c)
{
	bool owed = c->phase == ASKING || c->phase == HANDLING;

	c->carrier->detach(c);
	if (c->on_gone)
		c->on_gone(c->gone_arg);
	else if (owed)
		return;
	http_conn_destroy(c);
}

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

void http_conn_on_taken(struct http_conn *c, void (*fn)(void *arg), void *arg)
{
	c->on_taken = fn;
	c->taken_arg = arg;
}

/* ---- the head ---- */

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
		.method = c->msg.method ?: "",
		.path = c->path ?: "",
		.query = query ?: "",
		.authorization = http_header(h, "Authorization") ?: "",
		.content_type = http_header(h, "Content-Type") ?: "",
		.content_encoding = http_header(h, "Content-Encoding") ?: "",
		.accept_encoding = http_header(h, "Accept-Encoding") ?: "",
		.host = http_header(h, "Host") ?: "",
		.origin = http_header(h, "Origin") ?: "",
		.grpc_encoding = http_header(h, "grpc-encoding") ?: "",
		.grpc_timeout = http_header(h, "grpc-timeout") ?: "",
		.if_none_match = http_header(h, "If-None-Match") ?: "",
		.accept = http_header(h, "Accept") ?: "",
		.connect_timeout_ms = http_header(h, "Connect-Timeout-Ms") ?: "",
		.peer = c->peer->name,
		.body = c->body.data ?: "",
		.body_bytes = c->body.len,
		.content_length = c->msg.length,
		.http2 = !c->conn,
	};
}

/* ---- refusing ---- */

static bool is_grpc(const struct http_conn *c)
{
	return !c->conn && grpc_is_type(http_header(&c->msg.headers, "content-type") ?: "");
}

static void refuse_call(struct http_conn *c, int status, const char *why, const struct buf *details)
{
	_cleanup_(grpc_fields_done) struct grpc_fields f;

	grpc_fields_init(&f, grpc_code(status), why, details->data, details->len);
	c->carrier->reply(c, &(struct http_answer){.status = 200,
						   .content_type = GRPC_CONTENT_TYPE,
						   .headers = f.lines});
}

static void refusal_done(struct http_refusal *r)
{
	buf_done(&r->body);
}

static void write_refusal(struct http_conn *c, const char *why, struct http_refusal *r)
{
	if (c->server->config.refuse) {
		if (!c->path && c->msg.target)
			(void)split_target(c); /* if that fails, the path is not known */
		fill_in(c);
		c->server->config.refuse(&c->in, r->status, why, r);
	} else if (!is_grpc(c)) {
		buf_puts(&r->body, "{\"error\":");
		buf_json_string(&r->body, why);
		buf_puts(&r->body, "}\n");
	}
}

void http_conn_refuse(struct http_conn *c, int status, const char *why)
{
	static const char *const again[] = {"Retry-After: 5", NULL};
	_cleanup_(refusal_done) struct http_refusal r = {.status = status,
							 .content_type = "application/json"};
	void (*on_gone)(void *arg) = TAKE_PTR(c->on_gone);

	if (on_gone)
		on_gone(c->gone_arg);
	write_refusal(c, why, &r);
	if (is_grpc(c)) {
		refuse_call(c, status, why, &r.body);
		return;
	}
	c->close_after = true;
	c->carrier->reply(c, &(struct http_answer){.status = r.status,
						   .content_type = r.content_type,
						   .headers = status == 503 ? again : NULL,
						   .body = r.body.data,
						   .n = r.body.len});
}

/* ---- the request ---- */

void http_conn_dispatch(struct http_conn *c)
{
	fill_in(c);
	http_conn_enter(c, HANDLING);
	c->carrier->read_enable(c, c->ahead.len == 0);
	c->server->config.handler(c, &c->in, c->server->config.arg);
}

/* Returns true if the body is to be read. Sends 100 Continue if the client waits for it. */
static bool accept_body(struct http_conn *c)
{
	if (c->msg.length != UINT64_MAX && c->msg.length > c->body.max_bytes) {
		http_conn_refuse(c, 413, "the body is larger than the limit");
		return false;
	}
	if (c->msg.expects_continue && c->msg.has_body)
		c->carrier->ask_body(c);
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
		c->carrier->read_enable(c, false);
	return now && accept_body(c);
}

bool http_conn_is_too_old(const struct http_conn *c)
{
	uint64_t max_age_ns = c->server->config.max_age_ns;

	return max_age_ns && now_mono_ns() - c->accepted_ns > max_age_ns;
}

bool http_conn_take_head(struct http_conn *c)
{
	if (!split_target(c)) {
		http_conn_refuse(c, 400, "the target is no path");
		return false;
	}
	if (c->server->config.head && c->msg.has_body)
		return ask_head(c);
	return accept_body(c);
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
		c->carrier->go_on(c);
}

/* ---- the reply ---- */

/* Whether the peer is still there. If not, c is gone. */
static bool may_reply(struct http_conn *c)
{
	if (!c->server) { /* the peer has closed, and the handler has no on_gone */
		http_conn_destroy(c);
		return false;
	}
	loop_assert(c->server->loop);
	/* the handler replies only once */
	assert_se(c->phase == ASKING || (c->phase == HANDLING && !c->continues));
	c->on_gone = NULL;
	return true;
}

void http_reply(struct http_conn *c, int status, const char *content_type,
		const char *const *headers, const void *body, size_t n)
{
	if (may_reply(c))
		c->carrier->reply(c, &(struct http_answer){.status = status,
							   .content_type = content_type,
							   .headers = headers,
							   .body = body,
							   .n = n});
}

void http_reply_trailed(struct http_conn *c, const char *content_type, const void *body, size_t n,
			const char *const *trailers)
{
	if (!may_reply(c))
		return;
	assert_se(!c->conn);
	c->carrier->reply(c, &(struct http_answer){.status = 200,
						   .content_type = content_type,
						   .trailers = trailers,
						   .body = body,
						   .n = n});
}

void http_reply_first(struct http_conn *c, int status, const char *content_type,
		      const char *const *headers, const void *body, size_t n)
{
	if (!c->server)
		return;
	loop_assert(c->server->loop);
	assert_se(c->phase == HANDLING && !c->continues);
	http_conn_enter(c, HANDLING); /* the time for the piece begins */
	c->carrier->reply_first(c, &(struct http_answer){.status = status,
							 .content_type = content_type,
							 .headers = headers,
							 .body = body,
							 .n = n});
}

void http_reply_more(struct http_conn *c, const void *body, size_t n)
{
	if (!c->server)
		return;
	loop_assert(c->server->loop);
	assert_se(c->phase == HANDLING && c->continues);
	http_conn_enter(c, HANDLING);
	c->carrier->reply_more(c, body, n);
}

/* As may_reply(), of a reply whose first piece was written. */
static bool may_end(struct http_conn *c)
{
	if (!c->server) {
		http_conn_destroy(c);
		return false;
	}
	loop_assert(c->server->loop);
	assert_se(c->phase == HANDLING && c->continues);
	c->on_gone = c->on_taken = NULL;
	return true;
}

void http_reply_last(struct http_conn *c, const void *body, size_t n)
{
	if (may_end(c))
		c->carrier->reply_last(c, body, n);
}

void http_reply_cut(struct http_conn *c)
{
	if (may_end(c))
		c->carrier->cut(c);
}
