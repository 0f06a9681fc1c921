// SPDX-License-Identifier: Apache-2.0
/*
 * Idle connections that wait for their next request. A connection leaves the pool if the peer sends
 * anything or closes it, or if it gets too old.
 */
#include <stdlib.h>
#include <utlist.h>

#include "lib/loop/conn.h"

/*
 * As many as the hub asks the API server at once: a new connection costs a TLS handshake, which
 * took ten times as long as all else of 1,000 reviews (hub/api/rights_bench.c).
 */
#define MAX_IDLE_CONNS 32		   /* idle connections of a pool; a further one is closed */
#define MAX_IDLE_NS    (15 * NSEC_PER_SEC) /* servers keep idle connections longer than this */

struct idle_conn {
	struct conn_pool *pool;
	struct conn *conn;
	struct timer expire;
	struct idle_conn *prev, *next;
};

struct conn_pool {
	struct loop *loop;
	struct idle_conn *idle;
	unsigned n;
};

static void idle_free(struct idle_conn *i)
{
	DL_DELETE(i->pool->idle, i);
	i->pool->n--;
	timer_cancel(&i->expire);
	conn_free(i->conn);
	free(i);
}

static void expired(void *arg)
{
	idle_free(arg);
}

static void unasked_data(const char *p, size_t n, void *arg)
{
	(void)p;
	(void)n;
	idle_free(arg);
}

static void closed(bool eof, const char *error, void *arg)
{
	(void)eof;
	(void)error;
	idle_free(arg);
}

static const struct conn_ops idle_ops = {.data = unasked_data, .closed = closed};

struct conn_pool *conn_pool_new(struct loop *l)
{
	struct conn_pool *p = xcalloc(1, sizeof(*p));

	p->loop = l;
	return p;
}

void conn_pool_clear(struct conn_pool *p)
{
	while (p->idle)
		idle_free(p->idle);
}

struct conn_pool *conn_pool_free(struct conn_pool *p)
{
	if (p)
		conn_pool_clear(p);
	free(p);
	return NULL;
}

void conn_pool_put(struct conn_pool *p, struct conn *c)
{
	struct idle_conn *i;

	loop_assert(p->loop);
	if (p->n == MAX_IDLE_CONNS) {
		conn_free(c);
		return;
	}
	i = xcalloc(1, sizeof(*i));
	i->pool = p;
	i->conn = c;
	conn_set_arg(c, &idle_ops, i);
	DL_APPEND(p->idle, i);
	p->n++;
	timer_set(p->loop, &i->expire, MAX_IDLE_NS, expired, i);
}

struct conn *conn_pool_take(struct conn_pool *p)
{
	struct idle_conn *i = p->idle;
	struct conn *c;

	loop_assert(p->loop);
	if (!i)
		return NULL;
	c = TAKE_PTR(i->conn);
	idle_free(i);
	return c;
}
