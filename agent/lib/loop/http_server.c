// SPDX-License-Identifier: Apache-2.0
/*
 * The HTTP server: listens, limits the number of connections, and ends those that take too long.
 * http_server_conn.c has the connections themselves.
 */
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include "lib/loop/http_server_private.h"

#define DEFAULT_MAX_BODY	(1 << 20) /* bytes of a request's body, by default */
#define DEFAULT_MAX_CONNECTIONS 256
#define ACCEPT_BATCH		16
#define ACCEPT_PAUSE_NS		(100 * NSEC_PER_MSEC)
#define TICK_NS			(1 * NSEC_PER_SEC)
#define HEAD_LIMIT_NS		(20 * NSEC_PER_SEC) /* from first byte or connect to end of head */
#define REQUEST_LIMIT_NS	(60 * NSEC_PER_SEC) /* default; from first byte to end of body */
#define RX_IDLE_NS		(30 * NSEC_PER_SEC) /* longest silence within a request */
#define KEEP_ALIVE_NS		(75 * NSEC_PER_SEC)
/* how long a connection is read after its last reply, so that the client gets the reply */
#define LINGER_NS (2 * NSEC_PER_SEC)
/* the part of max_request_ns in which a body may come as slowly as it likes: one in so many */
#define BODY_GRACE_PART 6
/* bytes in a second, after that time, of a body whose length is not known */
#define MIN_BODY_RATE (16 << 10)

static void resume_accept(void *arg)
{
	struct http_server *s = arg;

	io_set(&s->io, EPOLLIN);
}

/* Takes a new connection, or refuses it. */
static void take(struct http_server *s, int fd, const struct sockaddr_storage *sa)
{
	struct http_peer *from = http_peer_ref(s, sa);
	bool full = s->n_conns - s->n_refused >= s->config.max_connections &&
		    !http_server_make_room(s, from);

	if (full)
		counter_add(s->refused, 1);
	if (!full || s->n_refused < HTTP_MAX_REFUSING)
		http_conn_start(s, fd, sa, full);
	else
		close(fd);
	http_peer_unref(s, from);
}

static void on_listen(uint32_t events, void *arg)
{
	struct http_server *s = arg;

	(void)events;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		struct sockaddr_storage sa = {0};
		socklen_t n = sizeof(sa);
		int fd = accept4(s->fd, (struct sockaddr *)&sa, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 &&
		    (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
			counter_add(s->paused, 1);
			/* otherwise the loop would report the waiting client again and again */
			io_set(&s->io, 0);
			timer_set(s->loop, &s->resume_accept, ACCEPT_PAUSE_NS, resume_accept, s);
		}
		if (fd < 0)
			return;
		take(s, fd, &sa);
	}
}

/*
 * Whether a body comes so slowly that at this rate it would not be in when its time ends. So a
 * client that announces much and sends little does not hold the room for it all this time.
 */
static bool comes_too_slowly(const struct http_conn *c, uint64_t in_phase_ns)
{
	uint64_t limit_ns = c->server->config.max_request_ns, grace_ns = limit_ns / BODY_GRACE_PART,
		 counted_ms = in_phase_ns > grace_ns ? (in_phase_ns - grace_ns) / NSEC_PER_MSEC : 0;

	if (c->msg.state == ST_HEAD)
		return false;
	if (c->msg.length == UINT64_MAX)
		return c->body.len < counted_ms * MIN_BODY_RATE / 1000;
	return c->body.len < c->msg.length * counted_ms / MAX(limit_ns / NSEC_PER_MSEC, 1u);
}

bool http_conn_is_overdue(const struct http_conn *c, uint64_t now_ns, uint64_t read_ns,
			  uint64_t written_ns)
{
	uint64_t in_phase_ns = now_ns - c->since_ns, rx_idle_ns = now_ns - read_ns;

	switch (c->phase) {
	case IDLE: /* no byte of a request has come yet */
		return in_phase_ns > (c->served ? KEEP_ALIVE_NS : HEAD_LIMIT_NS);
	case READING:
		/*
		 * The connection does not read while the handler decides about the head, so this
		 * time is not counted.
		 */
		return MIN(in_phase_ns, rx_idle_ns) > RX_IDLE_NS ||
		       in_phase_ns > c->server->config.max_request_ns ||
		       comes_too_slowly(c, in_phase_ns) ||
		       (c->msg.state == ST_HEAD && in_phase_ns > HEAD_LIMIT_NS);
	case ASKING:
		return false;
	case HANDLING:
		if (!c->continues || !c->on_taken)
			return false; /* nothing is to be written */
		__attribute__((fallthrough));
	case REPLYING:
		return MIN(in_phase_ns, now_ns - written_ns) > HTTP_TX_IDLE_NS;
	case SERVING: /* its requests have times of their own; so it must take the answers */
		return false;
	default:
		return in_phase_ns > LINGER_NS;
	}
}

void http_conn_end_overdue(struct http_conn *c)
{
	if (c->phase == HANDLING || c->phase == REPLYING || c->phase == SERVING)
		counter_add(c->server->not_taken, 1);
	if (c->phase != READING) {
		http_conn_drop(c);
		return;
	}
	counter_add(c->server->slow, 1);
	http_conn_refuse(c, 408, "the request did not come in time");
}

static void tick(void *arg)
{
	struct http_server *s = arg;
	struct http_conn *c, *next;
	uint64_t now_ns = now_mono_ns();

	timer_set(s->loop, &s->tick, TICK_NS, tick, s);
	DL_FOREACH_SAFE(s->conns, c, next)
	{
		if (c->http2 && c->phase != LINGERING)
			http2_tick(c, now_ns);
		else if (http_conn_is_overdue(c, now_ns, s->socket->last_read_ns(c->conn),
					      s->socket->last_write_ns(c->conn)))
			http_conn_end_overdue(c);
	}
}

/* ---- servers ---- */

static int listen_on(const struct http_server_config *c, int *ret_fd)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICHOST | AI_PASSIVE};
	struct addrinfo *a;
	_cleanup_close_ int fd = -1;
	char port[8];
	int on = 1, off = 0, r = 0;

	snprintf(port, sizeof(port), "%u", c->port);
	if (getaddrinfo(c->address, port, &hints, &a) != 0)
		return -EINVAL;
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		r = -errno;
		freeaddrinfo(a);
		return r;
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (a->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, 1024) < 0)
		r = -errno;
	freeaddrinfo(a);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static uint16_t bound_port(int fd)
{
	struct sockaddr_storage sa = {0};
	socklen_t n = sizeof(sa);

	getsockname(fd, (struct sockaddr *)&sa, &n);
	return ntohs(sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
					      : ((struct sockaddr_in *)&sa)->sin_port);
}

/*
 * Fills reterr with the key that is wrong: the address, if it is not one of this machine, else the
 * port (in use, not allowed).
 */
static void refuse(const struct http_server_config *c, int error, struct field_error *reterr)
{
	bool address = error == -EINVAL || error == -EADDRNOTAVAIL || error == -EAFNOSUPPORT;
	_cleanup_free_ char *path =
		xasprintf("%s.%s", c->section ?: "listen", address ? "address" : "port");

	if (error == -EINVAL)
		field_error_set(reterr, path, "'%s' is no IP address", c->address);
	else
		field_error_set(reterr, path, "%s port %u: %s", c->address, c->port,
				strerror(-error));
}

static const struct http_socket_ops conn_socket = {
	.accept = conn_accept,
	.free = conn_free,
	.write = conn_write,
	.read_enable = conn_read_enable,
	.shutdown = conn_shutdown,
	.reset = conn_reset,
	.last_read_ns = conn_last_read_ns,
	.last_write_ns = conn_last_write_ns,
};

int http_server_new(struct loop *l, const struct http_server_config *c, struct http_server **ret,
		    struct field_error *reterr)
{
	return http_server_new_over(&conn_socket, l, c, ret, reterr);
}

int http_server_new_over(const struct http_socket_ops *socket, struct loop *l,
			 const struct http_server_config *c, struct http_server **ret,
			 struct field_error *reterr)
{
	struct http_server *s;
	int fd = -1, r;

	r = listen_on(c, &fd);
	if (r < 0) {
		refuse(c, r, reterr);
		return r;
	}
	s = xcalloc(1, sizeof(*s));
	s->socket = socket;
	s->loop = l;
	s->fd = fd;
	s->config = *c;
	s->config.max_body_bytes = c->max_body_bytes ?: DEFAULT_MAX_BODY;
	s->config.max_connections = c->max_connections ?: DEFAULT_MAX_CONNECTIONS;
	s->config.max_request_ns = c->max_request_ns ?: REQUEST_LIMIT_NS;
	s->tls = tls_ref(c->tls);
	s->port = bound_port(fd);
	s->refused = counter("http_refused_total", "reason", "too_many_connections");
	s->made_room = counter("http_refused_total", "reason", "made_room");
	s->peer_share = counter("http_refused_total", "reason", "peer_share");
	s->slow = counter("http_refused_total", "reason", "too_slow");
	s->not_taken = counter("http_refused_total", "reason", "not_taken");
	s->paused = counter("http_accept_pauses_total", NULL, NULL);
	r = io_add(l, &s->io, fd, EPOLLIN, on_listen, s);
	if (r < 0) {
		http_server_free(s);
		return r;
	}
	timer_set(l, &s->tick, TICK_NS, tick, s);
	*ret = s;
	return 0;
}

void http_server_drain(struct http_server *s)
{
	struct http_conn *c, *next;

	s->draining = true;
	timer_cancel(&s->resume_accept);
	io_del(&s->io);
	closep(&s->fd);
	s->fd = -1;
	DL_FOREACH_SAFE(s->conns, c, next)
	{
		if (c->http2)
			http2_end(c);
		else if (c->phase == IDLE)
			http_conn_drop(c);
		else if (c->phase != REPLYING) /* the head of its reply says that it ends */
			c->close_after = true;
	}
}

bool http_server_is_drained(const struct http_server *s)
{
	const struct http_conn *c;

	DL_FOREACH (s->conns, c)
		if (c->phase != IDLE && c->phase != LINGERING)
			return false;
	return true;
}

struct http_server *http_server_free(struct http_server *s)
{
	if (!s)
		return NULL;
	while (s->conns)
		http_conn_drop(s->conns);
	timer_cancel(&s->tick);
	timer_cancel(&s->resume_accept);
	io_del(&s->io);
	closep(&s->fd);
	tls_unref(s->tls);
	free(s);
	return NULL;
}

uint16_t http_server_port(const struct http_server *s)
{
	return s->port;
}

void http_server_set_tls(struct http_server *s, struct tls *tls)
{
	struct tls *old = s->tls;

	s->tls = tls_ref(tls);
	tls_unref(old);
}
