/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the fuzzers of the HTTP server only: handlers that answer now, later, or when the client has
 * left, as the input says; what clients do in all versions of HTTP; and what must be true of the
 * server after each step.
 */
#pragma once

#include "lib/loop/fuzzsocket.h"
#include "lib/loop/http2.h"

#define MAX_STEPS	400
#define MAX_CONNECTIONS 3
#define MAX_BODY	64
#define MAX_OWED	64

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
	if (o->begun && how & 32) {
		http_reply_more(c, "more", 4);
		return;
	}
	if (o->begun && how & 64) {
		forget(o);
		http_reply_cut(c);
		return;
	}
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

static void pass(struct http_conn *h, uint64_t ns)
{
	struct http2_stream *s;

	h->since_ns -= ns;
	if (!h->http2)
		return;
	DL_FOREACH (h->http2->streams, s) {
		s->c.since_ns -= ns;
		s->read_ns -= ns;
		s->written_ns -= ns;
	}
}

static void step_time(struct http_server *s)
{
	uint64_t ns = (uint64_t)take() * NSEC_PER_SEC / 2;
	struct http_conn *h;
	struct conn *c;

	DL_FOREACH (s->conns, h)
		pass(h, ns);
	DL_FOREACH (conns, c) {
		c->last_read_ns -= ns;
		c->last_write_ns -= ns;
	}
	timer_cancel(&s->tick);
	s->tick.fn(s->tick.arg);
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

/* step: does what the input says next. */
static void fuzz_server(const uint8_t *data, size_t n, bool http2,
			void (*step)(struct http_server *s))
{
	struct http_server_config config = {
		.address = "127.0.0.1",
		.max_body_bytes = MAX_BODY,
		.max_connections = MAX_CONNECTIONS,
		.http2 = http2,
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
		return;
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
}
