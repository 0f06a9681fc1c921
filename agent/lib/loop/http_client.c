// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP/1.1 client. A connection has one request at a time and is kept for a few seconds, to be used
 * again. `on_done` is called exactly once for each request that is not cancelled, always from the
 * loop and never inside http_send.
 */
#include <stdlib.h>
#include <utlist.h>

#include "lib/loop/conn.h"
#include "lib/loop/http_parse.h"

#define MAX_REQUEST_BYTES  (65 << 20) /* bytes of a request; the largest are uploads of symbols */
#define DEFAULT_CONNECT_NS (15 * NSEC_PER_SEC)
#define MIN_CONNECT_NS	   (2 * NSEC_PER_SEC)
#define DEFAULT_TIMEOUT_NS (30 * NSEC_PER_SEC)

struct http_client {
	struct loop *loop;
	char *address, *tls_name, *host_header, *user_agent;
	uint16_t port;
	struct tls *tls;
	uint64_t connect_timeout_ns;
	struct http_call *calls;
	struct conn_pool *idle;
};

struct http_call {
	struct http_client *client;
	struct http_request r; /* a copy; only its member arg points to the caller's memory */
	struct buf request;
	size_t max_body_bytes;
	bool may_retry, head_only;
	struct conn *conn;
	bool reused, got_bytes;
	struct lookup *lookup;
	struct addresses addresses;
	unsigned i_address; /* index of the address to try next */
	uint64_t connect_by_ns;
	struct timer start, timeout, connect_timeout;
	struct http_msg msg;
	struct buf body;
	uint64_t last_byte_ns;
	bool *freed;
	struct http_call *prev, *next;
};

static void call_start(void *arg);

/* ---- ending ---- */

static void call_free(struct http_call *c)
{
	if (c->freed)
		*c->freed = true;
	DL_DELETE(c->client->calls, c);
	timer_cancel(&c->start);
	timer_cancel(&c->timeout);
	timer_cancel(&c->connect_timeout);
	resolve_cancel(c->lookup);
	conn_free(c->conn);
	http_msg_done(&c->msg);
	buf_done(&c->request);
	buf_done(&c->body);
	free(c);
}

static void finish(struct http_call *c, int status, const char *error)
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

static void fail_to_connect(struct http_call *c, const char *why)
{
	const char *trouble = c->addresses.trouble;
	_cleanup_free_ char *text =
		trouble ? xasprintf("%s port %u: %s, at its last known address: %s",
				    c->client->address, c->client->port, why, trouble)
			: xasprintf("%s port %u: %s", c->client->address, c->client->port, why);

	finish(c, 0, text);
}

static void on_timeout(void *arg)
{
	struct http_call *c = arg;

	finish(c, 0,
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
	finish(c, c->msg.status, NULL);
}

/* on_head() and on_body() return true if the call still exists. */
static bool on_head(struct http_call *c)
{
	const char *coding = http_header(&c->msg.headers, "Content-Encoding");
	bool freed = false;

	if (coding && !c->r.takes_packed && strcasecmp(coding, "identity") != 0) {
		_cleanup_free_ char *text = xasprintf(
			"the answer is compressed with %.20s, which was not asked for", coding);

		finish(c, 0, text);
		return false;
	}

	if (c->msg.status == 101) {
		finish(c, 0, "the server wants to switch protocols");
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

static bool on_body(struct http_call *c)
{
	bool freed = false;

	if (!c->r.on_data) {
		if (buf_add(&c->body, c->msg.piece, c->msg.n_piece) == 0)
			return true;
		buf_reset(&c->body);
		finish(c, 0, "the answer is larger than the limit");
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
			if (!on_head(c))
				return;
			break;
		case HTTP_BODY:
			if (!on_body(c))
				return;
			break;
		case HTTP_BAD:
			finish(c, 0, c->msg.error);
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

static int try_next_address(struct http_call *c);
static void connect_timed_out(void *arg);

static void call_closed(bool eof, const char *error, void *arg)
{
	struct http_call *c = arg;
	bool was_open = !c->connect_timeout.impl;

	c->conn = conn_free(c->conn);
	if (!was_open) {
		if (try_next_address(c) < 0)
			fail_to_connect(c, error ?: "connection closed");
		return;
	}
	if (eof && c->got_bytes && http_msg_ended_well(&c->msg)) {
		answer_complete(c);
	} else if (c->reused && !c->got_bytes && c->may_retry) {
		c->reused = false;
		timer_set(c->client->loop, &c->start, 0, call_start, c);
	} else {
		finish(c, 0,
		       error	      ? error
		       : c->got_bytes ? "connection closed before the end of the answer"
				      : "connection closed without an answer");
	}
}

/* ---- connecting ---- */

static void send_request(struct http_call *c)
{
	struct buf copy;

	timer_cancel(&c->connect_timeout);
	if (c->r.may_send && !c->r.may_send(c->r.arg)) {
		finish(c, 0, "withdrawn before it was sent");
		return;
	}
	c->last_byte_ns = now_mono_ns();
	next_message(c);
	if (!c->may_retry) {
		conn_write(c->conn, &c->request);
		return;
	}
	buf_init(&copy, 0);
	buf_add(&copy, c->request.data, c->request.len);
	conn_write(c->conn, &copy);
}

static void call_opened(void *arg)
{
	send_request(arg);
}

static const struct conn_ops call_ops = {
	.opened = call_opened, .data = call_data, .closed = call_closed};

/*
 * Returns the time for one attempt to connect: the time that is left, divided among the addresses,
 * so that an address without an answer leaves time for the next. The time is long enough to send a
 * lost packet again. Go's net.Dialer does the same.
 */
static uint64_t share_ns(const struct http_call *c)
{
	uint64_t now_ns = now_mono_ns(), left_ns = c->connect_by_ns - MIN(now_ns, c->connect_by_ns);

	return MIN(left_ns, MAX(left_ns / (c->addresses.n - c->i_address), MIN_CONNECT_NS));
}

static int try_next_address(struct http_call *c)
{
	struct http_client *h = c->client;
	int r = -EHOSTUNREACH;

	while (r < 0 && c->i_address < c->addresses.n) {
		const struct sockaddr_storage *a = &c->addresses.at[c->i_address];

		timer_set(h->loop, &c->connect_timeout, share_ns(c), connect_timed_out, c);
		c->i_address++;
		r = conn_connect(h->loop, (const struct sockaddr *)a, address_len(a), h->tls,
				 h->tls_name, &call_ops, c, &c->conn);
	}
	return r;
}

static void connect_timed_out(void *arg)
{
	struct http_call *c = arg;

	c->conn = conn_free(c->conn);
	if (c->lookup)
		fail_to_connect(c, "timed out while its name was looked up");
	else if (try_next_address(c) < 0)
		fail_to_connect(c, "timed out while connecting");
}

static void begin_connect(struct http_call *c)
{
	int r = try_next_address(c);

	if (r < 0)
		fail_to_connect(c, r == -EINVAL && c->client->tls
					   ? "its host name cannot be verified"
					   : strerror(-r));
}

static void looked_up(const struct addresses *found, const char *error, void *arg)
{
	struct http_call *c = arg;

	c->lookup = NULL;
	if (!found) {
		fail_to_connect(c, error);
		return;
	}
	c->addresses = *found;
	begin_connect(c);
}

static void call_start(void *arg)
{
	struct http_call *c = arg;
	struct http_client *h = c->client;
	int r;

	c->conn = conn_pool_take(h->idle);
	if (c->conn) {
		c->reused = true;
		conn_set_arg(c->conn, &call_ops, c);
		send_request(c);
		return;
	}
	c->connect_by_ns = now_mono_ns() + h->connect_timeout_ns;
	timer_set(h->loop, &c->connect_timeout, h->connect_timeout_ns, connect_timed_out, c);
	c->i_address = 0;
	r = resolve(h->loop, h->address, h->port, looked_up, c, &c->addresses, &c->lookup);
	if (r < 0)
		fail_to_connect(c, "its name cannot be looked up: too many are being looked up");
	else if (r == 1)
		begin_connect(c);
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
	timer_set(h->loop, &c->start, 0, call_start, c);
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
}
