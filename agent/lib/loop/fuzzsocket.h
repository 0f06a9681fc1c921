/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For fuzzers of an HTTP server only: connections without sockets. The fuzzer is the peer. It calls
 * the conn_ops of the server and sees what the server has written.
 */
#pragma once

#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include "lib/base/fuzzinput.h"
#include "lib/loop/http_server_private.h"

struct conn {
	const struct conn_ops *ops;
	void *arg;
	int fd;
	bool reading, ends, ended; /* ends: closes once all is sent; ended: the peer has closed */
	struct buf out;		   /* all bytes written */
	size_t n_out;		   /* bytes of `out` that the peer has not taken */
	uint64_t last_read_ns, last_write_ns;
	struct conn *prev, *next;
};

static struct conn *conns;

static int socket_accept(struct loop *l, int fd, struct tls *tls, const struct conn_ops *ops,
			 void *arg, struct conn **ret)
{
	struct conn *c = xcalloc(1, sizeof(*c));

	(void)l;
	(void)tls;
	*c = (struct conn){.ops = ops, .arg = arg, .fd = fd, .reading = true};
	buf_init(&c->out, 0);
	c->last_read_ns = c->last_write_ns = now_mono_ns();
	DL_APPEND(conns, c);
	*ret = c;
	return 0;
}

static struct conn *socket_free(struct conn *c)
{
	if (c) {
		DL_DELETE(conns, c);
		closep(&c->fd);
		buf_done(&c->out);
	}
	free(c);
	return NULL;
}

static void socket_write(struct conn *c, struct buf *b)
{
	const struct http_conn *h = c->arg;

	check(!c->ends && b->len);
	/* the other pieces of a reply continue the first one */
	check(h->http2 || str_has_prefix(b->data, "HTTP/1.1 ") != h->continues);
	buf_add(&c->out, b->data, b->len);
	c->n_out += b->len;
	buf_done(b);
}

static void socket_read_enable(struct conn *c, bool on)
{
	c->reading = on;
}

static void socket_shutdown(struct conn *c)
{
	c->ends = true;
}

static void socket_reset(struct conn *c)
{
	check(!c->ends);
}

static uint64_t socket_last_read_ns(const struct conn *c)
{
	return c->last_read_ns;
}

static uint64_t socket_last_write_ns(const struct conn *c)
{
	return c->last_write_ns;
}

static const struct http_socket_ops socket_ops = {
	.accept = socket_accept,
	.free = socket_free,
	.write = socket_write,
	.read_enable = socket_read_enable,
	.shutdown = socket_shutdown,
	.reset = socket_reset,
	.last_read_ns = socket_last_read_ns,
	.last_write_ns = socket_last_write_ns,
};

/*
 * The peer sends a copy of p, so that a sanitizer reports a read behind its end. The server may
 * free c.
 */
static inline void socket_give(struct conn *c, const void *p, size_t n)
{
	char *copy;

	if (!c || !c->reading || c->ended || n == 0)
		return;
	copy = xmemdup(p, n);
	c->last_read_ns = now_mono_ns();
	c->ops->data(copy, n, c->arg);
	free(copy);
}
