/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/loop: one TCP connection on the loop, plain or TLS, both sides
 * of HTTP. Non-blocking throughout; what is written waits in one buffer.
 *
 * TLS is driven here and not by libwebsockets: 4.1.6 makes the SSL object of a
 * raw client before there is a socket, cuts the verified name at the first ':',
 * keeps an old CA by its file name, and its HTTP role cuts request lines at 2 KiB
 * and does not decode chunked request bodies.
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
bool conn_is_idle(const struct conn *c); /* open, and all that was written is gone */
bool conn_has_tls(const struct conn *c, const struct tls *tls); /* made with it; NULL: plain */
uint64_t conn_last_read_ns(const struct conn *c);
uint64_t conn_last_write_ns(const struct conn *c); /* progress, not calls */

/* ---- finished connections that may be used again, for a few seconds ---- */
struct conn_pool;
struct conn_pool *conn_pool_new(struct loop *l);
struct conn_pool *conn_pool_free(struct conn_pool *p);
void conn_pool_clear(struct conn_pool *p);
void conn_pool_put(struct conn_pool *p, struct conn *c); /* takes c */
struct conn *conn_pool_take(struct conn_pool *p);	 /* NULL: none */

/* ---- names ---- */
/*
 * An IP literal is answered at once in *ret_now (else NULL); a name by fn, later, on the loop:
 * found is the receiver's to free, or NULL with a text. The wait can be cancelled.
 */
struct lookup;
typedef void resolve_fn(struct addrinfo *found, const char *error, void *arg);
int resolve(struct loop *l, const char *name, uint16_t port, resolve_fn *fn, void *arg,
	    struct addrinfo **ret_now, struct lookup **ret_wait);
void resolve_cancel(struct lookup *k); /* NULL is fine */
