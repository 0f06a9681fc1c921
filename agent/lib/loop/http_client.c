// SPDX-License-Identifier: Apache-2.0
/*
 * The HTTP client: requests and answers. http_connect.c makes the connections, http2_client.c has
 * those of HTTP/2. A connection of HTTP/1.1 has one request at a time and is kept for a few
 * seconds, to be used again. `on_done` is called exactly once for each request that is not
 * cancelled, always from the loop and never inside http_send.
 */
#include "lib/loop/http_client_private.h"

#include <stdlib.h>
#include <utlist.h>

#define MAX_REQUEST_BYTES  (65 << 20) /* bytes of a request; the largest are uploads of symbols */
#define DEFAULT_CONNECT_NS (15 * NSEC_PER_SEC)
#define DEFAULT_TIMEOUT_NS (30 * NSEC_PER_SEC)

/* ---- ending ---- */

static void call_free(struct http_call *c)
{
	if (c->freed)
		*c->freed = true;
	DL_DELETE(c->client->calls, c);
	http_connect_leave(c);
	if (c->session)
		http2_leave(c);
	timer_cancel(&c->start);
	timer_cancel(&c->timeout);
	timer_cancel(&c->connect_timeout);
	resolve_cancel(c->lookup);
	conn_free(c->conn);
	http_msg_done(&c->msg);
	buf_done(&c->request);
	buf_done(&c->body);
	free(c->failure);
	free(c);
}

void http_call_finish(struct http_call *c, int status, const char *error)
{
	void (*done)(int, const char *, size_t, const char *, void *) = c->r.on_done;
	void *arg = c->r.arg;
	_cleanup_free_ char *text = xstrdup(error);
	size_t n = c->body.len;
	_cleanup_free_ char *body = buf_steal(&c->body);

	call_free(c);
	if (done)
		done(status, body, n, text, arg);
}

static void on_timeout(void *arg)
{
	struct http_call *c = arg;

	http_call_finish(c, 0,
			 c->got_bytes ? "timed out while the answer came"
				      : "timed out waiting for the answer");
}

/* ---- the answer ---- */

static void answer_complete(struct http_call *c)
{
	/* a connection with the old TLS settings must not serve another request */
	if (c->msg.keep_alive && c->conn && conn_is_idle(c->conn) &&
	    conn_has_tls(c->conn, c->client->tls))
		conn_pool_put(c->client->idle, TAKE_PTR(c->conn));
	http_call_finish(c, c->msg.status, NULL);
}

bool http_call_head(struct http_call *c)
{
	const char *coding = http_header(&c->msg.headers, "Content-Encoding");
	bool freed = false;

	if (coding && !c->r.takes_packed && strcasecmp(coding, "identity") != 0) {
		_cleanup_free_ char *text = xasprintf(
			"the answer is compressed with %.20s, which was not asked for", coding);

		http_call_finish(c, 0, text);
		return false;
	}

	if (c->msg.status == 101) {
		http_call_finish(c, 0, "the server wants to switch protocols");
		return false;
	}
	if (c->r.on_data && c->msg.status / 100 == 2)
		timer_cancel(&c->timeout);
	if (!c->r.on_head || c->msg.status / 100 == 1)
		return true;
	c->freed = &freed;
	c->r.on_head(c->msg.status, &c->msg.headers, c->r.arg);
	if (!freed)
		c->freed = NULL;
	return !freed;
}

bool http_call_body(struct http_call *c)
{
	bool freed = false;

	if (!c->r.on_data) {
		if (buf_add(&c->body, c->msg.piece, c->msg.n_piece) == 0)
			return true;
		buf_reset(&c->body);
		http_call_finish(c, 0, "the answer is larger than the limit");
		return false;
	}
	c->freed = &freed;
	c->r.on_data(c->msg.piece, c->msg.n_piece, c->r.arg);
	if (!freed)
		c->freed = NULL;
	return !freed;
}

static void next_message(struct http_call *c)
{
	http_msg_done(&c->msg);
	http_msg_init(&c->msg, false);
	c->msg.no_body = c->head_only;
}

static void call_data(const char *p, size_t n, void *arg)
{
	struct http_call *c = arg;

	c->got_bytes = true;
	c->last_byte_ns = now_mono_ns();
	while (true) {
		switch (http_msg_feed(&c->msg, &p, &n)) {
		case HTTP_NEED_MORE:
			return;
		case HTTP_HEAD:
			if (!http_call_head(c))
				return;
			break;
		case HTTP_BODY:
			if (!http_call_body(c))
				return;
			break;
		case HTTP_BAD:
			http_call_finish(c, 0, c->msg.error);
			return;
		case HTTP_DONE:
			if (c->msg.status / 100 == 1) {
				next_message(c);
				break;
			}
			/*
			 * bytes after the answer belong to no request, so the connection is not
			 * used again
			 */
			c->msg.keep_alive &= n == 0;
			answer_complete(c);
			return;
		}
	}
}

static void call_closed(bool eof, const char *error, void *arg)
{
	struct http_call *c = arg;

	c->conn = conn_free(c->conn);
	if (eof && c->got_bytes && http_msg_ended_well(&c->msg)) {
		answer_complete(c);
	} else if (c->reused && !c->got_bytes && c->may_retry) {
		http_call_again(c);
	} else {
		http_call_finish(c, 0,
				 error		? error
				 : c->got_bytes ? "connection closed before the end of the answer"
						: "connection closed without an answer");
	}
}

/* ---- sending ---- */

static const struct conn_ops call_ops = {.data = call_data, .closed = call_closed};

bool http_call_may_send(struct http_call *c)
{
	if (c->r.may_send && !c->r.may_send(c->r.arg)) {
		http_call_finish(c, 0, "withdrawn before it was sent");
		return false;
	}
	c->last_byte_ns = now_mono_ns();
	next_message(c);
	return true;
}

void http_call_over(struct http_call *c, struct conn *conn)
{
	struct buf copy;

	c->conn = conn;
	conn_set_arg(conn, &call_ops, c);
	if (!http_call_may_send(c))
		return;
	if (!c->may_retry) {
		conn_write(conn, &c->request);
		return;
	}
	buf_init(&copy, 0);
	buf_add(&copy, c->request.data, c->request.len);
	conn_write(conn, &copy);
}

static void call_start(void *arg)
{
	struct http_call *c = arg;
	struct conn *kept;

	if (c->failure) {
		http_call_finish(c, 0, c->failure);
		return;
	}
	if (http2_send(c))
		return;
	kept = conn_pool_take(c->client->idle);
	c->reused = kept != NULL;
	if (kept)
		http_call_over(c, kept);
	else
		http_connect(c);
}

void http_call_soon(struct http_call *c)
{
	timer_set(c->client->loop, &c->start, 0, call_start, c);
}

void http_call_again(struct http_call *c)
{
	c->reused = c->got_bytes = c->on_wire = false;
	http_call_soon(c);
}

/* ---- requests ---- */

static bool is_clean(const char *s)
{
	return s && !s[strcspn(s, "\r\n")];
}

static int format_request(struct http_call *c, const struct http_request *r)
{
	struct http_client *h = c->client;
	struct buf *b = &c->request;
	bool body_is_meant = r->body || streq(r->method, "POST") || streq(r->method, "PUT") ||
			     streq(r->method, "PATCH");

	if (!is_clean(r->method) || !is_clean(r->path) || r->path[0] != '/' ||
	    r->path[strcspn(r->path, " ")])
		return -EINVAL;
	buf_printf(b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", r->method, r->path,
		   h->host_header, h->user_agent);
	for (const char *const *line = r->headers; line && *line; line++) {
		if (!is_clean(*line) || !strchr(*line, ':'))
			return -EINVAL;
		buf_printf(b, "%s\r\n", *line);
	}
	if (body_is_meant)
		buf_printf(b, "Content-Length: %zu\r\n", r->body_bytes);
	buf_puts(b, "\r\n");
	if (r->body_bytes)
		buf_add(b, r->body, r->body_bytes);
	return b->failed ? -E2BIG : 0;
}

int http_send(struct http_client *h, const struct http_request *r, struct http_call **ret)
{
	struct http_call *c = xcalloc(1, sizeof(*c));
	int err;

	loop_assert(h->loop);
	c->client = h;
	c->r = *r;
	DL_APPEND(h->calls, c);
	buf_init(&c->request, MAX_REQUEST_BYTES);
	buf_init(&c->body, r->max_body_bytes ?: HTTP_MAX_ANSWER);
	http_msg_init(&c->msg, false);
	c->head_only = streq(r->method, "HEAD");
	c->may_retry = r->repeatable || c->head_only || streq(r->method, "GET") ||
		       streq(r->method, "PUT") || streq(r->method, "DELETE");
	err = format_request(c, r);
	if (err < 0) {
		call_free(c);
		return err;
	}
	c->last_byte_ns = now_mono_ns();
	timer_set(h->loop, &c->timeout, r->timeout_ns ?: DEFAULT_TIMEOUT_NS, on_timeout, c);
	http_call_soon(c);
	if (ret)
		*ret = c;
	return 0;
}

void http_cancel(struct http_call *c)
{
	loop_assert(c->client->loop);
	call_free(c);
}

uint64_t http_call_idle_ns(const struct http_call *c)
{
	return now_mono_ns() - c->last_byte_ns;
}

/* ---- clients ---- */

int http_client_new(struct loop *l, const struct http_client_config *c, struct http_client **ret)
{
	struct http_client *h;
	bool default_port = c->port == (c->tls ? 443 : 80), ipv6;
	const char *host = c->host ?: c->address;

	if (!host || !c->address || !*c->address || !c->port || !is_clean(host) ||
	    (c->tls_name && !is_clean(c->tls_name)) || (c->user_agent && !is_clean(c->user_agent)))
		return -EINVAL;
	h = xcalloc(1, sizeof(*h));
	h->loop = l;
	h->address = xstrdup(c->address);
	h->port = c->port;
	h->tls_name = xstrdup(c->tls_name ?: host);
	ipv6 = strchr(host, ':') != NULL;
	h->host_header = default_port ? xasprintf(ipv6 ? "[%s]" : "%s", host)
				      : xasprintf(ipv6 ? "[%s]:%u" : "%s:%u", host, c->port);
	h->user_agent = xstrdup(c->user_agent ?: "podflame/" PODFLAME_VERSION);
	h->tls = tls_ref(c->tls);
	h->idle = conn_pool_new(l);
	h->offers_http2 = c->http2 && c->tls;
	h->connect_timeout_ns = c->connect_timeout_ns ?: DEFAULT_CONNECT_NS;
	*ret = h;
	return 0;
}

struct http_client *http_client_free(struct http_client *h)
{
	if (!h)
		return NULL;
	loop_assert(h->loop);
	while (h->calls)
		call_free(h->calls);
	http2_end_all(h);
	conn_pool_free(h->idle);
	tls_unref(h->tls);
	free(h->address);
	free(h->tls_name);
	free(h->host_header);
	free(h->user_agent);
	free(h);
	return NULL;
}

void http_client_set_tls(struct http_client *h, struct tls *tls)
{
	struct tls *old = h->tls;

	loop_assert(h->loop);
	h->tls = tls_ref(tls);
	tls_unref(old);
	conn_pool_clear(h->idle);
	http2_retire(h);
}
