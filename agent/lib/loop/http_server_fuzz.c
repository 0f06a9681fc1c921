/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server with clients that send anything. The input is a script of connections, bytes of
 * requests in pieces, replies that are read or not, ends, and time. It also chooses whether the
 * handler answers now, later, or when the client has left. Each request that the handler got must
 * be answered once, or the server must call its on_gone. Nothing may be written after an end, no
 * body may be larger than its limit, and no memory may be lost. The connections of each of the two
 * peers must be counted.
 * Fuzzes: lib/loop/http_server.c, lib/loop/http_server_conn.c, lib/loop/http_server_reply.c,
 * lib/loop/http_server_room.c
 */
#include "lib/loop/fuzzsocket.h"

#define MAX_STEPS	400
#define MAX_CONNECTIONS 3
#define MAX_BODY	64
#define MAX_OWED	64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct loop *loop; /* does not run */

/* ---- the handler ---- */

/* A request that is not answered yet. */
static struct owed {
	struct http_conn *c;
	bool at_head, told; /* told: the handler has set on_gone */
	bool reading;	    /* the request's body was accepted and is being read */
	bool begun;	    /* the first piece of the answer was sent */
} owed[MAX_OWED];

static void forget(struct owed *o)
{
	*o = (struct owed){0};
}

static void on_gone(void *arg)
{
	struct owed *o = arg;

	check(o->c && o->told);
	forget(o);
}

static void reply(struct http_conn *c, unsigned how)
{
	static const int statuses[] = {200, 201, 204, 304, 400, 404, 413, 500, 299};
	static const char *const headers[] = {"X-A: b", "X-Cut: a\r\nX-B: c", NULL};
	char body[200] = {0};

	memset(body, 'x', sizeof(body));
	http_reply(c, statuses[how % ARRAY_SIZE(statuses)], how & 16 ? "text/plain" : NULL,
		   how & 32 ? headers : NULL, body,
		   how & 64    ? sizeof(body)
		   : how & 128 ? 1
			       : 0);
}

static void reply_later(struct http_conn *c, bool at_head, bool told)
{
	for (size_t i = 0; i < MAX_OWED; i++) {
		if (owed[i].c)
			continue;
		owed[i] = (struct owed){.c = c, .at_head = at_head, .told = told};
		if (told)
			http_conn_on_gone(c, on_gone, &owed[i]);
		return;
	}
	reply(c, 0);
}

static void check_request(const struct http_in *r, bool at_head)
{
	check(r->method[0] && (r->path[0] == '/' || streq(r->path, "*")) && r->query && r->host);
	check(r->authorization && r->content_type && r->content_encoding && r->accept_encoding &&
	      r->origin && r->if_none_match);
	check(r->body && r->body_bytes <= (at_head ? 0 : 2 * MAX_BODY));
	check(streq(r->peer, "127.0.0.1") || streq(r->peer, "127.0.0.2"));
}

static void on_head(struct http_conn *c, const struct http_in *r, void *arg)
{
	unsigned how = take();

	(void)arg;
	check_request(r, true);
	if (how % 4 == 0)
		reply(c, take());
	else if (how % 4 == 1)
		reply_later(c, true, how & 4);
	else
		http_accept_body(c, how & 4 ? 2 * MAX_BODY : MAX_BODY);
}

static void on_request(struct http_conn *c, const struct http_in *r, void *arg)
{
	unsigned how = take();

	(void)arg;
	check_request(r, false);
	for (size_t i = 0; i < MAX_OWED; i++)
		if (owed[i].c == c) {
			check(owed[i].reading && owed[i].told);
			forget(&owed[i]);
			http_conn_on_gone(c, NULL, NULL);
		}
	if (how % 2)
		reply(c, take());
	else
		reply_later(c, false, how & 2);
}

static void answer(struct owed *o)
{
	struct http_conn *c = o->c;
	unsigned how = take();
	bool accepts = o->at_head && how % 2;

	if (!c || o->reading)
		return;
	if (o->begun) {
		forget(o);
		http_reply_last(c, "last", how & 16 ? 4 : 0);
		return;
	}
	if (!o->at_head && how & 8) {
		o->begun = true;
		http_reply_first(c, 200, "text/plain", NULL, "first", how & 16 ? 5 : 0);
		return;
	}
	if (accepts && o->told && how & 2) {
		o->reading = true;
		http_accept_body(c, MAX_BODY);
		return;
	}
	if (accepts) { /* from now on, no on_gone is called */
		http_conn_on_gone(c, NULL, NULL);
		forget(o);
		http_accept_body(c, MAX_BODY);
		return;
	}
	forget(o);
	reply(c, how);
}

/* ---- the clients ---- */

static unsigned n_clients;

static void step_connect(const struct http_server *s)
{
	struct sockaddr_in from = {.sin_family = AF_INET},
			   to = {.sin_family = AF_INET, .sin_port = htons(http_server_port(s))};
	const struct linger reset = {1, 0}; /* leaves no port in TIME_WAIT */
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + n_clients++ / 2 % 2);
	/*
	 * libFuzzer's alarm interrupts some of these calls, so their result must not change the
	 * coverage.
	 */
	(void)!bind(fd, (struct sockaddr *)&from, sizeof(from));
	(void)!connect(fd, (struct sockaddr *)&to, sizeof(to));
	s->io.fn(EPOLLIN, s->io.arg);
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		close(fd);
	}
}

static struct conn *choose(void)
{
	unsigned k = take();
	struct conn *c = conns;

	for (; c && k % 4 && c->next; k--)
		c = c->next;
	return c;
}

static const char *const pieces[] = {
	"GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n",
	"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n",
	"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
	"PUT /%41%2f HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 70\r\n\r\n",
	"HEAD http://h/x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: h\r\nOrigin: o\r\nAuthorization: b\r\n\r\n",
	"POST /big HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n",
	"GET x HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n",
	"hello",
	"5\r\nhello\r\n",
	"40\r\n0123456789012345678901234567890123456789012345678901234567890123\r\n",
	"0\r\n\r\n",
	"GET / HT",
	"TP/1.1\r\nHost: h\r\n\r\n",
};

static void step_literal(void)
{
	struct conn *c = choose();
	size_t n = take() + 1u;
	const uint8_t *p = in.data;

	n = MIN(n, in.n);
	in.data += n;
	in.n -= n;
	socket_give(c, p, n);
}

static void step_piece(void)
{
	struct conn *c = choose();
	unsigned how = take(), which = take();
	const char *p = pieces[how % ARRAY_SIZE(pieces)], *q = pieces[which % ARRAY_SIZE(pieces)];
	_cleanup_free_ char *both = xasprintf("%s%s", p, how & 128 ? q : "");

	socket_give(c, both, strlen(both));
}

/* The peer reads all bytes written, or a part of them. */
static void step_take(void)
{
	struct conn *c = choose();
	size_t n = take();

	if (!c || !c->n_out)
		return;
	c->last_write_ns = now_mono_ns();
	c->n_out -= n < 200 ? c->n_out : MIN(n, c->n_out);
	if (!c->n_out)
		c->ops->drained(c->arg);
}

static void step_end(void)
{
	struct conn *c = choose();
	unsigned how = take();

	if (!c)
		return;
	if (how & 1) {
		c->ops->closed(false, "reset", c->arg);
	} else if (c->reading && !c->ended) {
		c->ended = true;
		c->reading = false;
		c->ops->ended(c->arg);
	}
}

static void step_time(struct http_server *s)
{
	uint64_t ns = (uint64_t)take() * NSEC_PER_SEC / 2;
	struct http_conn *h;
	struct conn *c;

	DL_FOREACH (s->conns, h)
		h->since_ns -= ns;
	DL_FOREACH (conns, c) {
		c->last_read_ns -= ns;
		c->last_write_ns -= ns;
	}
	timer_cancel(&s->tick);
	s->tick.fn(s->tick.arg);
}

static void step(struct http_server *s)
{
	switch (take() % 8) {
	case 0:
		step_connect(s);
		break;
	case 1:
		step_literal();
		break;
	case 2:
	case 3:
		step_piece();
		break;
	case 4:
		step_take();
		break;
	case 5:
		step_end();
		break;
	case 6:
		answer(&owed[take() % 4]);
		break;
	default:
		step_time(s);
	}
}

static void check_server(const struct http_server *s)
{
	const struct http_conn *c;
	unsigned n = 0, refused = 0, of_peers = 0;

	DL_FOREACH (s->conns, c) {
		n++;
		refused += c->refuse;
	}
	for (const struct http_peer *p = s->peers; p; p = p->hh.next)
		of_peers += p->n_conns;
	check(of_peers == n - refused);
	check(n == s->n_conns && refused == s->n_refused && n - refused <= MAX_CONNECTIONS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct http_server_config config = {
		.address = "127.0.0.1",
		.max_body_bytes = MAX_BODY,
		.max_connections = MAX_CONNECTIONS,
		.handler = on_request,
	};
	struct http_server *s;
	unsigned shape;

	in.data = data;
	in.n = n;
	n_clients = 0;
	shape = take();
	config.head = shape & 1 ? on_head : NULL;
	config.brief = shape & 2;
	config.max_request_ns = shape & 4 ? NSEC_PER_SEC : 0;
	check(loop || loop_new(&loop) == 0);
	if (http_server_new_over(&socket_ops, loop, &config, &s, NULL) < 0)
		return 0;
	step_connect(s);
	for (int i = 0; i < MAX_STEPS && in.n; i++) {
		step(s);
		check_server(s);
	}
	http_server_free(s);
	check(!conns);
	for (size_t i = 0; i < MAX_OWED; i++) { /* handlers without on_gone answer later */
		check(!owed[i].told);
		while (owed[i].c)
			answer(&owed[i]);
	}
	return 0;
}
