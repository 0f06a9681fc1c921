// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP/1.1 server: collects a request, hands it to the handler, writes the one
 * reply, now or later. A connection has one request at a time; what a client
 * sends ahead waits in the kernel.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "lib/loop/conn.h"
#include "lib/loop/http_parse.h"

#define DEFAULT_MAX_BODY	(1 << 20)
#define DEFAULT_MAX_CONNECTIONS 256
#define MAX_REFUSING		32 /* connections beyond the maximum that still get a 503 */
#define ACCEPT_BATCH		16
#define ACCEPT_PAUSE_NS		(100 * NSEC_PER_MSEC)
#define TICK_NS			(1 * NSEC_PER_SEC)
#define HEAD_LIMIT_NS		(20 * NSEC_PER_SEC)  /* first byte (or connect) to end of head */
#define REQUEST_LIMIT_NS	(300 * NSEC_PER_SEC) /* and to the end of the body */
#define RX_IDLE_NS		(30 * NSEC_PER_SEC)  /* no byte of an unfinished request */
#define KEEP_ALIVE_NS		(75 * NSEC_PER_SEC)
#define TX_IDLE_NS		(60 * NSEC_PER_SEC) /* no byte of the reply taken */
#define LINGER_NS		(2 * NSEC_PER_SEC)  /* so that a refused upload sees its reply */

enum phase { IDLE, READING, HANDLING, REPLYING, LINGERING };

struct http_server {
	struct loop *loop;
	struct http_server_config config;
	int fd;
	uint16_t port;
	struct io io;
	struct tls *tls;
	struct http_conn *conns;
	unsigned n_conns;
	struct timer tick, resume_accept;
	struct counter *refused;
};

struct http_conn {
	struct http_server *server; /* NULL: server and connection are gone, the reply is not */
	struct conn *conn;
	enum phase phase;
	uint64_t since_ns;
	bool refuse, close_after, eof, served;
	char peer[INET6_ADDRSTRLEN + 8];
	struct http_msg msg;
	struct buf body, ahead; /* ahead: bytes of the next request */
	char *path;
	struct http_in in;
	void (*on_gone)(void *arg);
	void *gone_arg;
	struct http_conn *prev, *next;
};

static void enter(struct http_conn *c, enum phase phase)
{
	c->phase = phase;
	c->since_ns = now_mono_ns();
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
	c->server = NULL;
	c->conn = conn_free(c->conn);
}

/* The peer is gone. Whoever still owes a reply is told, or keeps c until it replies. */
static void drop(struct http_conn *c)
{
	bool owed = c->phase == HANDLING;

	detach(c);
	if (owed && !c->on_gone)
		return;
	if (owed)
		c->on_gone(c->gone_arg);
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
	conn_read_enable(c->conn, c->close_after);
	conn_write(c->conn, &b);
	if (c->close_after)
		conn_shutdown(c->conn);
}

void http_reply(struct http_conn *c, int status, const char *content_type,
		const char *const *headers, const void *body, size_t n)
{
	if (!c->server) { /* the peer went away and nobody asked to be told */
		destroy(c);
		return;
	}
	c->on_gone = NULL;
	write_reply(c, status, content_type, headers, body, n);
}

void http_conn_on_gone(struct http_conn *c, void (*fn)(void *arg), void *arg)
{
	c->on_gone = fn;
	c->gone_arg = arg;
}

/* An answer of the server itself; the connection ends after it. */
static void refuse(struct http_conn *c, int status, const char *why)
{
	_cleanup_buf_ struct buf b = {0};

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

/* "/path?query", "http://host/path?query", "*" */
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

static void dispatch(struct http_conn *c)
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
		.host = http_header(h, "Host") ?: "",
		.origin = http_header(h, "Origin") ?: "",
		.peer = c->peer,
		.body = c->body.data ?: "",
		.body_bytes = c->body.len,
	};
	enter(c, HANDLING);
	conn_read_enable(c->conn, c->ahead.len == 0);
	c->server->config.handler(c, &c->in, c->server->config.arg);
}

/* true: go on with the body */
static bool on_head(struct http_conn *c)
{
	struct buf b;

	c->close_after |= !c->msg.keep_alive;
	if (c->refuse) {
		refuse(c, 503, "too many connections");
		return false;
	}
	if (!split_target(c)) {
		refuse(c, 400, "the target is no path");
		return false;
	}
	if (c->msg.length != UINT64_MAX && c->msg.length > c->server->config.max_body_bytes) {
		refuse(c, 413, "the body is larger than the limit");
		return false;
	}
	if (c->msg.expects_continue && c->msg.has_body) {
		buf_init(&b, 0);
		buf_puts(&b, "HTTP/1.1 100 Continue\r\n\r\n");
		conn_write(c->conn, &b);
	}
	return true;
}

/* Consumes what belongs to the current request. */
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
			if (c->msg.n_piece && buf_add(&c->body, c->msg.piece, c->msg.n_piece) < 0)
				refuse(c, 413, "the body is larger than the limit");
			c->msg.n_piece = 0;
			break;
		case HTTP_BAD:
			refuse(c, c->msg.status, c->msg.error);
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
		if (c->phase == REPLYING) /* refused */
			return;
	}
	if (n) { /* sent ahead; one read at most, then the kernel keeps it */
		buf_add(&c->ahead, p, n);
		conn_read_enable(c->conn, false);
	}
	if (c->phase == READING && c->msg.state == ST_DONE)
		dispatch(c);
}

static void serve_ahead(struct http_conn *c)
{
	_cleanup_buf_ struct buf b = c->ahead;

	c->ahead = (struct buf){0};
	conn_read_enable(c->conn, true);
	if (b.len)
		on_data(b.data, b.len, c);
}

static void on_drained(void *arg)
{
	struct http_conn *c = arg;

	if (c->phase != REPLYING)
		return; /* 100 Continue */
	if (c->close_after) {
		if (c->eof)
			drop(c);
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
	drop(c);
}

/*
 * The peer sends no more. It may only have closed its side and wait for the
 * reply, unless the handler asked to be told: as in Go's net/http that counts as
 * gone then.
 */
static void on_ended(void *arg)
{
	struct http_conn *c = arg;

	if ((c->phase != HANDLING && c->phase != REPLYING) || c->on_gone) {
		drop(c);
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

/* ---- connections ---- */

static void add_conn(struct http_server *s, int fd, const struct sockaddr_storage *sa)
{
	struct http_conn *c = xcalloc(1, sizeof(*c));
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;

	if (sa->ss_family == AF_INET)
		inet_ntop(AF_INET, &v4->sin_addr, c->peer, sizeof(c->peer));
	else if (sa->ss_family == AF_INET6)
		inet_ntop(AF_INET6, &v6->sin6_addr, c->peer, sizeof(c->peer));
	c->server = s;
	c->refuse = s->n_conns >= s->config.max_connections;
	if (c->refuse)
		counter_add(s->refused, 1);
	http_msg_init(&c->msg, true);
	buf_init(&c->body, s->config.max_body_bytes);
	enter(c, IDLE);
	DL_APPEND(s->conns, c);
	s->n_conns++;
	if (conn_accept(s->loop, fd, s->tls, &server_ops, c, &c->conn) < 0)
		drop(c);
}

static void resume_accept(void *arg)
{
	struct http_server *s = arg;

	io_set(&s->io, EPOLLIN);
}

static void on_listen(uint32_t events, void *arg)
{
	struct http_server *s = arg;

	(void)events;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		struct sockaddr_storage sa = {0};
		socklen_t n = sizeof(sa);
		int fd = accept4(s->fd, (struct sockaddr *)&sa, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
			io_set(&s->io, 0); /* else the loop would spin */
			timer_set(s->loop, &s->resume_accept, ACCEPT_PAUSE_NS, resume_accept, s);
		}
		if (fd < 0)
			return;
		if (s->n_conns < s->config.max_connections + MAX_REFUSING) {
			add_conn(s, fd, &sa);
		} else {
			counter_add(s->refused, 1);
			close(fd);
		}
	}
}

static bool overdue(const struct http_conn *c, uint64_t now_ns)
{
	uint64_t in_phase_ns = now_ns - c->since_ns;
	uint64_t rx_idle_ns = now_ns - conn_last_read_ns(c->conn);

	switch (c->phase) {
	case IDLE: /* a fresh connection has not even shaken hands */
		return in_phase_ns > (c->served ? KEEP_ALIVE_NS : HEAD_LIMIT_NS);
	case READING:
		return rx_idle_ns > RX_IDLE_NS || in_phase_ns > REQUEST_LIMIT_NS ||
		       (c->msg.state == ST_HEAD && in_phase_ns > HEAD_LIMIT_NS);
	case HANDLING:
		return false;
	case REPLYING:
		return MIN(in_phase_ns, now_ns - conn_last_write_ns(c->conn)) > TX_IDLE_NS;
	default:
		return in_phase_ns > LINGER_NS;
	}
}

static void tick(void *arg)
{
	struct http_server *s = arg;
	struct http_conn *c, *next;
	uint64_t now_ns = now_mono_ns();

	timer_set(s->loop, &s->tick, TICK_NS, tick, s);
	DL_FOREACH_SAFE(s->conns, c, next)
	{
		if (!overdue(c, now_ns))
			continue;
		if (c->phase == READING)
			refuse(c, 408, "the request did not come in time");
		else
			drop(c);
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

int http_server_new(struct loop *l, const struct http_server_config *c, struct http_server **ret,
		    struct field_error *reterr)
{
	struct http_server *s;
	int fd = -1, r;

	r = listen_on(c, &fd);
	if (r < 0) {
		field_error_set(reterr, "listen", "%s port %u: %s", c->address, c->port,
				r == -EINVAL ? "is no IP address" : strerror(-r));
		return r;
	}
	s = xcalloc(1, sizeof(*s));
	s->loop = l;
	s->fd = fd;
	s->config = *c;
	s->config.max_body_bytes = c->max_body_bytes ?: DEFAULT_MAX_BODY;
	s->config.max_connections = c->max_connections ?: DEFAULT_MAX_CONNECTIONS;
	s->tls = tls_ref(c->tls);
	s->port = bound_port(fd);
	s->refused = counter("http_refused_total", "reason", "too_many_connections");
	r = io_add(l, &s->io, fd, EPOLLIN, on_listen, s);
	if (r < 0) {
		http_server_free(s);
		return r;
	}
	timer_set(l, &s->tick, TICK_NS, tick, s);
	*ret = s;
	return 0;
}

struct http_server *http_server_free(struct http_server *s)
{
	if (!s)
		return NULL;
	while (s->conns)
		drop(s->conns);
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
