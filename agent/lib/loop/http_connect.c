// SPDX-License-Identifier: Apache-2.0
/*
 * Connections for requests: the name, its addresses in turn, TLS. If the server may speak HTTP/2,
 * one call connects, and the others wait, because they can share its connection.
 */
#include "lib/loop/http_client_private.h"

#include <utlist.h>

#define MIN_CONNECT_NS (2 * NSEC_PER_SEC)

/* ---- calls that wait ---- */

static struct http_call *first_waiting(struct http_client *h)
{
	struct http_call *c = h->calls;

	while (c && !c->waits)
		c = c->next;
	return c;
}

/* The waiting calls go on: with the new connection, with a connection of each, or they fail. */
static void wake(struct http_client *h, const char *failure)
{
	struct http_call *c;

	while ((c = first_waiting(h))) {
		c->waits = false;
		c->failure = failure ? xstrdup(failure) : NULL;
		http_call_soon(c);
	}
}

void http_connect_leave(struct http_call *c)
{
	struct http_client *h = c->client;
	struct http_call *next;

	if (h->connecting != c)
		return;
	h->connecting = NULL;
	next = first_waiting(h);
	if (!next)
		return;
	next->waits = false;
	http_call_soon(next);
}

/* ---- connecting ---- */

static void fail_to_connect(struct http_call *c, const char *why)
{
	const char *trouble = c->addresses.trouble;
	_cleanup_free_ char *text =
		trouble ? xasprintf("%s port %u: %s, at its last known address: %s",
				    c->client->address, c->client->port, why, trouble)
			: xasprintf("%s port %u: %s", c->client->address, c->client->port, why);

	if (c->client->connecting == c)
		wake(c->client, text);
	http_call_finish(c, 0, text);
}

static void opened(void *arg)
{
	struct http_call *c = arg;
	struct http_client *h = c->client;
	struct conn *conn = TAKE_PTR(c->conn);
	bool http2 = conn_speaks_http2(conn);

	timer_cancel(&c->connect_timeout);
	if (http2 && !conn_has_tls(conn, h->tls)) {
		/* the settings are newer than this connection, which others would use, too */
		conn_free(conn);
		if (h->connecting == c)
			h->connecting = NULL;
		http_connect(c);
		return;
	}
	h->speaks_http1 = !http2;
	if (h->connecting == c) {
		h->connecting = NULL;
		wake(h, NULL);
	}
	if (!http2) {
		http_call_over(c, conn);
		return;
	}
	http2_begin(h, conn);
	http2_send(c);
}

static int try_next_address(struct http_call *c);

static void closed(bool eof, const char *error, void *arg)
{
	struct http_call *c = arg;

	(void)eof;
	c->conn = conn_free(c->conn);
	if (try_next_address(c) < 0)
		fail_to_connect(c, error ?: "connection closed");
}

static const struct conn_ops http1_ops = {.opened = opened, .closed = closed},
			     any_ops = {.opened = opened,
					.closed = closed,
					.protocols = http2_protocols};

static void timed_out(void *arg)
{
	struct http_call *c = arg;

	c->conn = conn_free(c->conn);
	if (c->lookup)
		fail_to_connect(c, "timed out while its name was looked up");
	else if (try_next_address(c) < 0)
		fail_to_connect(c, "timed out while connecting");
}

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

		timer_set(h->loop, &c->connect_timeout, share_ns(c), timed_out, c);
		c->i_address++;
		r = conn_connect(h->loop, (const struct sockaddr *)a, address_len(a), h->tls,
				 h->tls_name, h->offers_http2 ? &any_ops : &http1_ops, c, &c->conn);
	}
	return r;
}

static void begin(struct http_call *c)
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
	begin(c);
}

void http_connect(struct http_call *c)
{
	struct http_client *h = c->client;
	int r;

	if (h->offers_http2 && !h->speaks_http1) {
		c->waits = h->connecting != NULL;
		if (c->waits)
			return;
		h->connecting = c;
	}
	c->connect_by_ns = now_mono_ns() + h->connect_timeout_ns;
	timer_set(h->loop, &c->connect_timeout, h->connect_timeout_ns, timed_out, c);
	c->i_address = 0;
	r = resolve(h->loop, h->address, h->port, looked_up, c, &c->addresses, &c->lookup);
	if (r < 0)
		fail_to_connect(c, "its name cannot be looked up: too many are being looked up");
	else if (r == 1)
		begin(c);
}
