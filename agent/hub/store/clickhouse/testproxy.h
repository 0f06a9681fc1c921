/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a server between the sink and the engine at CLICKHOUSE_URL. The test says what
 * goes wrong there.
 */
#pragma once

#include "lib/loop/http_ask.h"
#include "lib/loop/testserver.h"

enum proxy_fault {
	PROXY_PASS,
	PROXY_DOWN,   /* the connection ends without an answer */
	PROXY_LOST,   /* the engine does what it was asked, and the connection ends then */
	PROXY_STALL,  /* no answer */
	PROXY_SLOW,   /* the engine does what it was asked, and no answer comes */
	PROXY_HALF,   /* half of an answer */
	PROXY_NOISE,  /* an answer of other bytes, of the right length */
	PROXY_REFUSE, /* `code` */
};
struct proxy {
	struct test_server *server;
	struct http_asker *engine;
	char url[64];
	pthread_mutex_t lock; /* guards what follows */
	enum proxy_fault fault;
	/* only for requests whose line or body has this text; NULL: for all */
	const char *only;
	/* after this many such requests the fault is over; 0: it stays */
	unsigned times;
	int code;
	unsigned n_inserts;	/* that were passed on */
	char user[64], key[64]; /* with which the last request signed in */
};

static inline void proxy_header(const struct ts_request *r, const char *name, char *out, size_t n)
{
	const char *at = strstr(r->head, name);

	out[0] = '\0';
	if (at)
		snprintf(out, n, "%.*s", (int)strcspn(at + strlen(name), "\r"), at + strlen(name));
}

static inline bool proxy_concerns(const struct proxy *p, const struct ts_request *r)
{
	return !p->only || strstr(r->line, p->only) ||
	       memmem(r->body ?: "", r->body_bytes, p->only, strlen(p->only));
}

/* Takes the fault of this request. */
static inline enum proxy_fault proxy_take(struct proxy *p, const struct ts_request *r, int *code)
{
	enum proxy_fault f = PROXY_PASS;

	pthread_mutex_lock(&p->lock);
	proxy_header(r, "X-ClickHouse-User: ", p->user, sizeof(p->user));
	proxy_header(r, "X-ClickHouse-Key: ", p->key, sizeof(p->key));
	if (proxy_concerns(p, r)) {
		f = p->fault;
		*code = p->code;
		if (p->times && --p->times == 0)
			p->fault = PROXY_PASS;
	}
	if ((f == PROXY_PASS || f == PROXY_LOST) && strstr(r->line, "INSERT"))
		p->n_inserts++;
	pthread_mutex_unlock(&p->lock);
	return f;
}

static inline void proxy_forward(struct proxy *p, const struct ts_request *r,
				 struct http_answer *ret)
{
	char type[256], encoding[64];
	const char *headers[] = {type, NULL, NULL};
	const char *from = strchr(r->line, ' ') + 1;
	_cleanup_free_ char *path = xstrndup(from, strcspn(from, " "));
	struct http_question q = {
		.method = "POST",
		.path = path,
		.headers = headers,
		.body = r->body,
		.body_bytes = r->body_bytes,
		.deadline_ns = now_mono_ns() + 600 * NSEC_PER_SEC,
		.max_body_bytes = 64 << 20,
		.want = {"X-ClickHouse-Exception-Code"},
	};

	snprintf(type, sizeof(type), "Content-Type: ");
	proxy_header(r, type, type + strlen(type), sizeof(type) - strlen(type));
	snprintf(encoding, sizeof(encoding), "Content-Encoding: ");
	proxy_header(r, encoding, encoding + strlen(encoding), sizeof(encoding) - strlen(encoding));
	if (!str_has_suffix(encoding, " "))
		headers[1] = encoding;
	if (http_ask(p->engine, &q, ret))
		ts_fatal("the engine gives no answer");
}

static inline void proxy_answer(struct ts_conn *c, const struct http_answer *a, size_t n)
{
	const char *code = a->headers[0];
	_cleanup_free_ char *head = xasprintf(
		"HTTP/1.1 %d X\r\n%s%s%sContent-Length: %zu\r\n\r\n", a->status,
		code ? "X-ClickHouse-Exception-Code: " : "", code ?: "", code ? "\r\n" : "", a->n);

	ts_puts(c, head);
	ts_write(c, a->body, n);
}

static inline void proxy_serve(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	_cleanup_(http_answer_done) struct http_answer a = {0};
	_cleanup_free_ char *refused = NULL;
	struct proxy *p = arg;
	int code = 0;
	enum proxy_fault f = proxy_take(p, r, &code);

	c->over = f != PROXY_PASS;
	switch (f) {
	case PROXY_DOWN:
		return;
	case PROXY_STALL:
		ts_stall(c);
		return;
	case PROXY_REFUSE:
		refused = xasprintf("X-ClickHouse-Exception-Code: %d\r\n", code);
		ts_reply(c, 500, refused, "Code: DB::Exception: because\nmore");
		return;
	default:
		proxy_forward(p, r, &a);
	}
	if (f == PROXY_SLOW)
		ts_stall(c);
	if (f == PROXY_LOST || f == PROXY_SLOW)
		return;
	if (f == PROXY_NOISE)
		memset(a.body, 0xa5, a.n);
	proxy_answer(c, &a, f == PROXY_HALF ? a.n / 2 : a.n);
}

static inline void proxy_fault(struct proxy *p, enum proxy_fault f, const char *only,
			       unsigned times, int code)
{
	pthread_mutex_lock(&p->lock);
	p->fault = f;
	p->only = only;
	p->times = times;
	p->code = code;
	p->n_inserts = 0;
	pthread_mutex_unlock(&p->lock);
}

/* NULL: CLICKHOUSE_URL is not set. */
static inline struct proxy *proxy_start(void)
{
	struct http_asker_config c = {0};
	_cleanup_(url_done) struct url u = {0};
	struct proxy *p;

	if (!getenv("CLICKHOUSE_URL"))
		return NULL;
	p = xcalloc(1, sizeof(*p));
	if (url_parse(getenv("CLICKHOUSE_URL"), &u, NULL))
		ts_fatal("CLICKHOUSE_URL");
	c.host = u.host;
	c.port = u.port;
	if (http_asker_new(&c, &p->engine))
		ts_fatal("no client of the engine");
	pthread_mutex_init(&p->lock, NULL);
	p->server = ts_start(&(struct ts_config){.forgets = true}, proxy_serve, p);
	snprintf(p->url, sizeof(p->url), "http://127.0.0.1:%u", p->server->port);
	return p;
}

static inline void proxy_stop(struct proxy *p)
{
	if (!p)
		return;
	ts_stop(p->server);
	http_asker_free(p->engine);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
