/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/loop: one TCP connection on the loop, plain or TLS, for both sides of HTTP. It
 * never blocks; bytes to write wait in one buffer.
 *
 * This file drives TLS itself, without libwebsockets: 4.1.6 makes the SSL object of a raw client
 * before there is a socket, cuts the verified name at the first ':', keeps an old CA by its file
 * name, and its HTTP role cuts request lines at 2 KiB and does not decode chunked request bodies
 * (docs/decisions.md).
 */
#pragma once

#include <netdb.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "lib/loop/http.h"
#include "lib/loop/loop_private.h"

struct tls {
	SSL_CTX *ctx;
	bool insecure;
	unsigned n_refs;
};

/* The last callback is closed; the conn may be freed in any of them. */
struct conn_ops {
	void (*opened)(void *arg); /* connected, TLS done */
	void (*data)(const char *p, size_t n, void *arg);
	void (*drained)(void *arg); /* everything written is with the kernel */
	/* The peer ended its side, ours may still write. NULL: that closes the connection. */
	void (*ended)(void *arg);
	/* eof: the peer ended its side in order; error is NULL then. Else a text for people. */
	void (*closed)(bool eof, const char *error, void *arg);
};
struct conn;
/* host: the name that the server's certificate must bear (IP literals are checked as IPs). */
int conn_connect(struct loop *l, const struct sockaddr *sa, socklen_t n, struct tls *tls,
		 const char *host, const struct conn_ops *ops, void *arg, struct conn **ret);
/* Takes fd also on failure. */
int conn_accept(struct loop *l, int fd, struct tls *tls, const struct conn_ops *ops, void *arg,
		struct conn **ret);
struct conn *conn_free(struct conn *c);
void conn_set_arg(struct conn *c, const struct conn_ops *ops, void *arg);
/* Takes the bytes of b (b is empty after). Written as the peer takes them. */
void conn_write(struct conn *c, struct buf *b);
void conn_read_enable(struct conn *c, bool on);
void conn_shutdown(struct conn *c);	 /* ends our side once all is written */
/* whether it is open and has sent everything that was written */
bool conn_is_idle(const struct conn *c);
bool conn_has_tls(const struct conn *c, const struct tls *tls); /* made with it; NULL: plain */
uint64_t conn_last_read_ns(const struct conn *c);
uint64_t conn_last_write_ns(const struct conn *c); /* progress, not calls */

/* TCP's own watch over a connection; tests make it short. */
struct conn_liveness {
	int idle_s, interval_s, count; /* of keepalive probes */
	unsigned user_timeout_ms;      /* for data that is not acknowledged */
};
extern struct conn_liveness conn_liveness;

/* ---- finished connections that may be used again, for a few seconds ---- */
struct conn_pool;
struct conn_pool *conn_pool_new(struct loop *l);
struct conn_pool *conn_pool_free(struct conn_pool *p);
void conn_pool_clear(struct conn_pool *p);
void conn_pool_put(struct conn_pool *p, struct conn *c); /* takes c */
struct conn *conn_pool_take(struct conn_pool *p);	 /* NULL: none */

/* ---- names ---- */
#define MAX_ADDRESSES 16
struct addresses {
	unsigned n;
	struct sockaddr_storage at[MAX_ADDRESSES]; /* with the port, in the order to try them */
	const char *trouble; /* why these are the last known ones; NULL: they are of now */
};
socklen_t address_len(const struct sockaddr_storage *a);
/*
 * 1: an IP literal, in *ret_now. 0: a name; fn gets its addresses later, on the loop: found, or
 * NULL with a text. While the resolver fails or is late, found is its last answer. -EBUSY: too many
 * names or searches. The caller can cancel the wait, and must do so before it frees the loop.
 */
struct lookup;
typedef void resolve_fn(const struct addresses *found, const char *error, void *arg);
int resolve(struct loop *l, const char *name, uint16_t port, resolve_fn *fn, void *arg,
	    struct addresses *ret_now, struct lookup **ret_wait);
void resolve_cancel(struct lookup *k); /* NULL is fine */
/* Tests make these short and answer themselves. */
struct resolve_config {
	int (*search)(const char *name, const char *service, const struct addrinfo *hints,
		      struct addrinfo **ret);
	uint64_t late_ns; /* the last known addresses stand in after this */
	uint64_t lost_ns; /* a search that runs as long is given up: longer than glibc can take */
	uint64_t keep_ns; /* how long an address is known */
};
extern struct resolve_config resolve_config;
