// SPDX-License-Identifier: Apache-2.0
/*
 * How many connections each peer has, and which of them is closed for a new one. As long as there
 * is room, a peer may have all. A full server first closes what serves nobody, and then those of
 * peers that have more than the new connection's peer would have. So a client that holds all
 * connections loses some of them to any other client.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <utlist.h>

#include "lib/loop/http_server_private.h"

/* ---- peers ---- */

/*
 * The network of an IPv6 address, since a machine or a node may use all addresses of its network of
 * 64 bits.
 */
static void put_network(const struct in6_addr *a, char out[PEER_BYTES])
{
	struct in6_addr network = {0};

	memcpy(&network, a, 8);
	inet_ntop(AF_INET6, &network, out, PEER_BYTES);
}

static void put_peer(const struct sockaddr_storage *sa, char out[PEER_BYTES])
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)sa)->sin6_addr;

	out[0] = '\0';
	if (sa->ss_family == AF_INET)
		inet_ntop(AF_INET, &v4->sin_addr, out, PEER_BYTES);
	else if (sa->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(v6))
		inet_ntop(AF_INET, &v6->s6_addr[12], out, PEER_BYTES);
	else if (sa->ss_family == AF_INET6)
		put_network(v6, out);
}

struct http_peer *http_peer_ref(struct http_server *s, const struct sockaddr_storage *sa)
{
	char name[PEER_BYTES];
	struct http_peer *p;

	put_peer(sa, name);
	HASH_FIND_STR(s->peers, name, p);
	if (!p) {
		p = xcalloc(1, sizeof(*p));
		memcpy(p->name, name, sizeof(name));
		HASH_ADD_STR(s->peers, name, p);
	}
	p->n_refs++;
	return p;
}

void http_peer_unref(struct http_server *s, struct http_peer *p)
{
	if (--p->n_refs)
		return;
	HASH_DEL(s->peers, p);
	free(p);
}

/* ---- room ---- */

/* The lower, the less is lost if the connection is closed. */
static unsigned loss_of(const struct http_conn *c)
{
	switch (c->phase) {
	case IDLE:
	case LINGERING:
		return 0;
	case READING:
		return 1;
	case REPLYING:
		return c->server->config.brief ? 1 : 2;
	default:
		return 3;
	}
}

/* Of two connections, whether a is closed rather than b. */
static bool is_before(const struct http_conn *a, const struct http_conn *b)
{
	if (a->peer->n_conns != b->peer->n_conns)
		return a->peer->n_conns > b->peer->n_conns;
	if (loss_of(a) != loss_of(b))
		return loss_of(a) < loss_of(b);
	return a->since_ns < b->since_ns;
}

/*
 * The connection that is closed first, of those that lose at most max_loss by it, and whose peer
 * has at least min_conns, or is the new connection's.
 */
static struct http_conn *choose(const struct http_server *s, const struct http_peer *from,
				unsigned max_loss, unsigned min_conns)
{
	struct http_conn *c, *first = NULL;

	DL_FOREACH (s->conns, c) {
		bool may = c->peer->n_conns >= min_conns || (c->peer == from && max_loss < 2);

		if (!c->refuse && may && loss_of(c) <= max_loss && (!first || is_before(c, first)))
			first = c;
	}
	return first;
}

/* If the request is still being read, the peer gets 503. */
static void close_for_other(struct http_server *s, struct http_conn *c)
{
	counter_add(s->peer_share, 1);
	if (c->phase != READING || s->n_refused >= HTTP_MAX_REFUSING) {
		http_conn_drop(c);
		return;
	}
	c->refuse = true;
	c->peer->n_conns--;
	s->n_refused++;
	http_conn_refuse(c, 503, "too many connections of this address");
}

bool http_server_make_room(struct http_server *s, const struct http_peer *from)
{
	struct http_conn *c = choose(s, from, 0, from->n_conns + 1);

	if (!c) {
		/* of peers that have more than this one would have */
		c = choose(s, NULL, 3, from->n_conns + 2);
		if (c) {
			close_for_other(s, c);
			return true;
		}
		c = choose(s, from, 1, from->n_conns + 1);
	}
	if (!c)
		return false;
	counter_add(s->made_room, 1);
	http_conn_drop(c);
	return true;
}
