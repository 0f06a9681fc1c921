// SPDX-License-Identifier: Apache-2.0
/* One connection: connect, TLS handshake, read, buffered write, end. See conn.h. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/loop/conn.h"

#define READ_BYTES	(64 << 10)
#define WRITE_PER_EVENT (1 << 20) /* limit in bytes: with TLS, more would take some ms */

/* With these times the kernel notices after 30 to 50 s that a peer is gone without closing. */
struct conn_liveness conn_liveness = {
	.idle_s = 20, .interval_s = 10, .count = 3, .user_timeout_ms = 30000};

enum conn_state { CONNECTING, HANDSHAKE, OPEN, CLOSED };

struct conn {
	struct loop *loop;
	struct io io;
	int fd;
	SSL *ssl; /* NULL: the connection has no TLS */
	char *host;
	enum conn_state state;
	bool reading, end_after_write, ended, ssl_wants_write;
	bool broken; /* a write failed: nothing more is written */
	struct buf out;
	size_t out_off;
	uint64_t last_read_ns, last_write_ns;
	bool *freed; /* a callback that frees the connection sets *freed */
	const struct conn_ops *ops;
	void *arg;
};

static void tune(int fd)
{
	const struct conn_liveness *t = &conn_liveness;
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &t->idle_s, sizeof(t->idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &t->interval_s, sizeof(t->interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &t->count, sizeof(t->count));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &t->user_timeout_ms,
		   sizeof(t->user_timeout_ms));
}

static void update_interest(struct conn *c)
{
	bool want_out = c->state == CONNECTING || c->ssl_wants_write ||
			(c->state == OPEN && c->out.len > c->out_off);
	bool want_in = c->state == HANDSHAKE || (c->state == OPEN && c->reading);

	io_set(&c->io, (want_in ? EPOLLIN : 0) | (want_out ? EPOLLOUT : 0));
}

/* Calls the owner's `closed`. Returns true if the connection still exists. */
static bool report_closed(struct conn *c, bool eof, const char *error)
{
	bool freed = false;

	if (c->state == CLOSED)
		return true;
	c->state = CLOSED;
	io_del(&c->io);
	c->freed = &freed;
	c->ops->closed(eof, error, c->arg);
	if (!freed)
		c->freed = NULL;
	return !freed;
}

static bool fail(struct conn *c, const char *what, int err)
{
	_cleanup_free_ char *text = xasprintf("%s: %s", what, strerror(err));

	return report_closed(c, false, text);
}

static bool fail_tls(struct conn *c, const char *what)
{
	long verify = c->ssl ? SSL_get_verify_result(c->ssl) : X509_V_OK;
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	_cleanup_free_ char *text = NULL;

	if (verify != X509_V_OK && !SSL_is_server(c->ssl) &&
	    SSL_get_verify_mode(c->ssl) != SSL_VERIFY_NONE)
		text = xasprintf("%s: certificate of \"%s\" refused: %s", what, c->host ?: "peer",
				 X509_verify_cert_error_string(verify));
	else
		text = xasprintf("%s: %s", what, reason ?: "connection closed");
	ERR_clear_error();
	return report_closed(c, false, text);
}

/* ---- reading and writing, plain and TLS. Result: > 0 bytes, 0 end, -EAGAIN, other errors ---- */

static ssize_t ssl_result(struct conn *c, int n)
{
	int e, err = errno;

	if (n > 0)
		return n;
	e = SSL_get_error(c->ssl, n);
	if (e == SSL_ERROR_WANT_READ)
		return -EAGAIN;
	if (e == SSL_ERROR_WANT_WRITE) {
		c->ssl_wants_write = true;
		return -EAGAIN;
	}
	if (e == SSL_ERROR_ZERO_RETURN)
		return 0;
	return e == SSL_ERROR_SYSCALL ? (err ? -err : 0) : -EPROTO;
}

static ssize_t raw_read(struct conn *c, void *p, size_t n)
{
	ssize_t got = c->ssl ? 0 : recv(c->fd, p, n, 0);

	if (!c->ssl)
		return got < 0 ? -errno : got;
	ERR_clear_error();
	errno = 0;
	return ssl_result(c, SSL_read(c->ssl, p, (int)n));
}

static ssize_t raw_write(struct conn *c, const void *p, size_t n)
{
	ssize_t put;

	if (c->ssl) {
		ERR_clear_error();
		errno = 0;
		put = ssl_result(c, SSL_write(c->ssl, p, (int)MIN(n, (size_t)(16 << 10))));
		return put == 0 ? -EPIPE : put;
	}
	put = send(c->fd, p, n, MSG_NOSIGNAL);
	return put < 0 ? -errno : put;
}

static void end_now(struct conn *c)
{
	if (c->ended)
		return;
	c->ended = true;
	if (c->ssl)
		SSL_shutdown(c->ssl);
	ERR_clear_error();
	shutdown(c->fd, SHUT_WR);
}

static bool after_drain(struct conn *c)
{
	bool freed = false;

	buf_done(&c->out);
	c->out_off = 0;
	if (c->end_after_write)
		end_now(c);
	c->freed = &freed;
	if (c->ops->drained)
		c->ops->drained(c->arg);
	if (!freed)
		c->freed = NULL;
	return !freed;
}

/*
 * A write failed. The peer may have sent the reason before it closed, so the connection goes on
 * reading. It shuts down its writing side: else the peer would wait for the rest of the data, and
 * this side for the peer's answer.
 */
static bool on_write_error(struct conn *c, int err)
{
	if (!c->reading)
		return fail(c, "write", err);
	c->out.len = c->out_off = 0;
	c->broken = c->ended = true;
	shutdown(c->fd, SHUT_WR);
	return true;
}

static bool do_write(struct conn *c)
{
	size_t budget = WRITE_PER_EVENT;

	if (c->out.len == c->out_off)
		return true;
	while (c->out_off < c->out.len && budget) {
		ssize_t n = raw_write(c, c->out.data + c->out_off,
				      MIN(c->out.len - c->out_off, budget));

		if (n == -EAGAIN || n == -EINTR)
			return true;
		if (n < 0)
			return on_write_error(c, (int)-n);
		c->out_off += (size_t)n;
		budget -= (size_t)n;
		c->last_write_ns = now_mono_ns();
	}
	return c->out_off == c->out.len ? after_drain(c) : true;
}

static bool peer_ended(struct conn *c)
{
	bool freed = false;

	if (!c->ops->ended || c->broken)
		return report_closed(c, true, NULL);
	c->reading = false;
	c->freed = &freed;
	c->ops->ended(c->arg);
	if (!freed)
		c->freed = NULL;
	return !freed;
}

static bool do_read(struct conn *c)
{
	/* the loop thread's own: the owner gets the data before the next read on this thread */
	static _Thread_local char piece[READ_BYTES];
	bool freed = false;
	ssize_t n = raw_read(c, piece, sizeof(piece));

	if (n == -EAGAIN || n == -EINTR)
		return true;
	if (n == -EPROTO && c->ssl)
		return fail_tls(c, "TLS");
	if (n < 0)
		return fail(c, "read", (int)-n);
	if (n == 0)
		return peer_ended(c);
	c->last_read_ns = now_mono_ns();
	c->freed = &freed;
	c->ops->data(piece, (size_t)n, c->arg);
	if (!freed)
		c->freed = NULL;
	return !freed;
}

/* ---- opening ---- */

static bool opened(struct conn *c)
{
	bool freed = false;

	c->state = OPEN;
	c->last_read_ns = c->last_write_ns = now_mono_ns();
	c->freed = &freed;
	if (c->ops->opened)
		c->ops->opened(c->arg);
	if (!freed)
		c->freed = NULL;
	return !freed;
}

static bool do_handshake(struct conn *c)
{
	ssize_t n;

	if (!c->ssl)
		return opened(c);
	c->state = HANDSHAKE;
	c->ssl_wants_write = false;
	ERR_clear_error();
	errno = 0;
	n = ssl_result(c, SSL_do_handshake(c->ssl));
	if (n > 0)
		return opened(c);
	if (n == -EAGAIN)
		return true;
	if (n < 0 && n != -EPROTO)
		return fail(c, "TLS handshake", (int)-n);
	return fail_tls(c, "TLS handshake");
}

static bool do_connect(struct conn *c)
{
	int err = 0;
	socklen_t n = sizeof(err);

	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &n);
	return err ? fail(c, "connect", err) : do_handshake(c);
}

static bool on_error_event(struct conn *c)
{
	int err = 0;
	socklen_t n = sizeof(err);

	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &n);
	return fail(c, "connection", err ?: ECONNRESET);
}

static void on_event(uint32_t events, void *arg)
{
	struct conn *c = arg;
	bool alive = true;

	if (c->state == CONNECTING) {
		alive = do_connect(c);
	} else if (c->state == HANDSHAKE) {
		alive = do_handshake(c);
	} else {
		/* an SSL_read had to write first, and can go on now */
		bool retry = c->ssl_wants_write && (events & EPOLLOUT);

		if (events & EPOLLOUT) {
			c->ssl_wants_write = false;
			alive = do_write(c);
		}
		if (alive && c->state == OPEN && c->reading &&
		    (retry || (events & (EPOLLIN | EPOLLHUP))))
			alive = do_read(c);
		else if (alive && c->state == OPEN && (events & (EPOLLERR | EPOLLHUP)))
			alive = on_error_event(c);
	}
	if (alive && c->state != CLOSED)
		update_interest(c);
}

static struct conn *new_conn(struct loop *l, int fd, const struct conn_ops *ops, void *arg)
{
	struct conn *c = xcalloc(1, sizeof(*c));

	c->loop = l;
	c->fd = fd;
	c->ops = ops;
	c->arg = arg;
	c->reading = true;
	c->last_read_ns = c->last_write_ns = now_mono_ns();
	buf_init(&c->out, 0);
	return c;
}

static int start_tls(struct conn *c, struct tls *tls, const char *host)
{
	int r = 0;

	c->ssl = SSL_new(tls->ctx);
	if (!c->ssl || !SSL_set_fd(c->ssl, c->fd))
		return -ENOMEM;
	if (!host) {
		SSL_set_accept_state(c->ssl);
		SSL_set_app_data(c->ssl, (void *)c->ops->protocols);
		return 0;
	}
	SSL_set_connect_state(c->ssl);
	if (c->ops->protocols)
		SSL_set_alpn_protos(c->ssl, (const unsigned char *)c->ops->protocols,
				    (unsigned int)strlen(c->ops->protocols));
	c->host = xstrdup(host);
	r = tls_set_verified_name(c->ssl, host);
	/* insecure: the name is only sent as SNI, and need not be that of the certificate */
	return tls->insecure ? 0 : r;
}

int conn_connect(struct loop *l, const struct sockaddr *sa, socklen_t n, struct tls *tls,
		 const char *host, const struct conn_ops *ops, void *arg, struct conn **ret)
{
	_cleanup_close_ int fd =
		socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct conn *c;
	int r;

	if (fd < 0)
		return -errno;
	tune(fd);
	if (connect(fd, sa, n) < 0 && errno != EINPROGRESS)
		return -errno;
	c = new_conn(l, TAKE_FD(fd), ops, arg);
	r = tls ? start_tls(c, tls, host) : 0;
	if (r == 0)
		r = io_add(l, &c->io, c->fd, EPOLLOUT, on_event, c);
	if (r < 0) {
		conn_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

int conn_accept(struct loop *l, int fd, struct tls *tls, const struct conn_ops *ops, void *arg,
		struct conn **ret)
{
	struct conn *c = new_conn(l, fd, ops, arg);
	int r;

	tune(fd);
	c->state = tls ? HANDSHAKE : OPEN;
	r = tls ? start_tls(c, tls, NULL) : 0;
	if (r == 0)
		r = io_add(l, &c->io, c->fd, EPOLLIN, on_event, c);
	if (r < 0) {
		conn_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct conn *conn_free(struct conn *c)
{
	if (!c)
		return NULL;
	loop_assert(c->loop);
	if (c->freed)
		*c->freed = true;
	io_del(&c->io);
	if (c->ssl && c->state == OPEN && !c->ended)
		SSL_shutdown(c->ssl); /* tries once to send TLS's closing alert; awaits none */
	SSL_free(c->ssl);
	ERR_clear_error();
	closep(&c->fd);
	buf_done(&c->out);
	free(c->host);
	free(c);
	return NULL;
}

void conn_set_arg(struct conn *c, const struct conn_ops *ops, void *arg)
{
	c->ops = ops;
	c->arg = arg;
}

void conn_write(struct conn *c, struct buf *b)
{
	loop_assert(c->loop);
	if (c->broken) {
		buf_done(b);
		return;
	}
	if (c->out.len == c->out_off) {
		buf_done(&c->out);
		c->out = *b;
		c->out_off = 0;
		*b = (struct buf){0};
	} else {
		buf_add(&c->out, b->data, b->len);
		buf_done(b);
	}
	if (c->state == OPEN)
		update_interest(c);
}

void conn_read_enable(struct conn *c, bool on)
{
	c->reading = on;
	if (c->state != CLOSED)
		update_interest(c);
}

void conn_reset(struct conn *c)
{
	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
	c->ended = true; /* so that TLS sends no closing alert */
}

void conn_shutdown(struct conn *c)
{
	c->end_after_write = true;
	if (c->state == OPEN && c->out.len == c->out_off)
		end_now(c);
}

bool conn_is_idle(const struct conn *c)
{
	return c->state == OPEN && !c->ended && c->out.len == c->out_off;
}

bool conn_has_tls(const struct conn *c, const struct tls *tls)
{
	return (c->ssl ? SSL_get_SSL_CTX(c->ssl) : NULL) == (tls ? tls->ctx : NULL);
}

bool conn_speaks_http2(const struct conn *c)
{
	const unsigned char *name = NULL;
	unsigned int n = 0;

	if (c->ssl)
		SSL_get0_alpn_selected(c->ssl, &name, &n);
	return n == 2 && memcmp(name, "h2", n) == 0;
}

uint64_t conn_last_read_ns(const struct conn *c)
{
	return c->last_read_ns;
}

uint64_t conn_last_write_ns(const struct conn *c)
{
	return c->last_write_ns;
}
