/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/loop: one TCP connection on the loop, plain or TLS, for both sides of HTTP. It
 * never blocks. Data that cannot be written yet waits in one buffer.
 *
 * This file uses OpenSSL itself, and not libwebsockets 4.1.6, for these reasons
 * (docs/decisions.md). libwebsockets makes the SSL object of a raw client before there is a socket,
 * cuts the verified name at the first ':', and caches the CA by its path, so it would not see a new
 * CA in the same file. Its HTTP role cuts request lines at 2 KiB and does not decode chunked
 * request bodies.
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

/* tls.c: the name or IP address that the peer's certificate must have; also sends the name. */
int tls_set_verified_name(SSL *ssl, const char *host);

/* `closed` is the last callback. Each callback may free the connection. */
struct conn_ops {
	void (*opened)(void *arg); /* the connection is open; with TLS, the handshake is done */
	void (*data)(const char *p, size_t n, void *arg);
	void (*drained)(void *arg); /* the kernel has taken all data that was written */
	/*
	 * The peer has ended its side; this side may still write. NULL: the connection closes then.
	 */
	void (*ended)(void *arg);
	/*
	 * eof: the peer has ended its side without an error; then error is NULL. Else error is a
	 * text for people.
	 */
	void (*closed)(bool eof, const char *error, void *arg);
	/*
	 * with TLS: the protocols that a connection offers by ALPN, or of which an accepted one may
	 * have one, in ALPN's form, the preferred one first; NULL: HTTP/1.1
	 */
	const char *protocols;
};
struct conn;
/*
 * host: the name that the server's certificate must have. If host is an IP address, the certificate
 * must have that address.
 */
int conn_connect(struct loop *l, const struct sockaddr *sa, socklen_t n, struct tls *tls,
		 const char *host, const struct conn_ops *ops, void *arg, struct conn **ret);
/* Owns fd from now on, also if it fails. */
int conn_accept(struct loop *l, int fd, struct tls *tls, const struct conn_ops *ops, void *arg,
		struct conn **ret);
struct conn *conn_free(struct conn *c);
void conn_set_arg(struct conn *c, const struct conn_ops *ops, void *arg);
/*
 * Takes the bytes of b (which is empty afterwards), and writes them when the peer can receive them.
 */
void conn_write(struct conn *c, struct buf *b);
void conn_read_enable(struct conn *c, bool on);
void conn_shutdown(struct conn *c);	 /* ends this side once all data is written */
/* When the connection is freed, its peer gets an error (RST), and no end of the data. */
void conn_reset(struct conn *c);
/* whether the connection is open and the kernel has taken all written data */
bool conn_is_idle(const struct conn *c);
/* whether the connection was made with tls; tls NULL: whether it has no TLS */
bool conn_has_tls(const struct conn *c, const struct tls *tls);
bool conn_speaks_http2(const struct conn *c); /* whether ALPN has chosen HTTP/2 */
uint64_t conn_last_read_ns(const struct conn *c);
/* when the kernel last took data, not when conn_write() was called */
uint64_t conn_last_write_ns(const struct conn *c);

/* How the kernel finds dead connections; tests make these times short. */
struct conn_liveness {
	/* TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT: keepalive probes */
	int idle_s, interval_s, count;
	unsigned user_timeout_ms;      /* how long sent data may stay without an acknowledgement */
};
extern struct conn_liveness conn_liveness;
/* The same of HTTP/2, whose PING an end of the connection answers that TCP does not reach. */
struct http2_liveness {
	uint64_t ping_after_ns;	  /* without a byte from the server */
	uint64_t ping_timeout_ns; /* without a byte since the PING: the connection has failed */
};
extern struct http2_liveness http2_liveness;

/* ---- finished connections that may be used again, for a few seconds ---- */
struct conn_pool;
struct conn_pool *conn_pool_new(struct loop *l);
struct conn_pool *conn_pool_free(struct conn_pool *p);
void conn_pool_clear(struct conn_pool *p);
void conn_pool_put(struct conn_pool *p, struct conn *c); /* takes ownership of c */
struct conn *conn_pool_take(struct conn_pool *p);	 /* NULL: the pool is empty */

/* ---- names ---- */
#define MAX_ADDRESSES 16 /* addresses of one name; further ones are not tried */
struct addresses {
	unsigned n;
	/* each address has the port; they are tried in this order */
	struct sockaddr_storage at[MAX_ADDRESSES];
	/*
	 * why the resolver failed or was late, so that these are the last known addresses; NULL:
	 * the resolver has just answered
	 */
	const char *trouble;
};
socklen_t address_len(const struct sockaddr_storage *a);
/*
 * Returns 1 if name is an IP address; *ret_now is this address. Returns 0 if name is a host name;
 * then fn is called later, on the loop thread, with the addresses, or with found NULL and an error
 * text. While the resolver fails or does not answer in time, found is its last answer. -EBUSY:
 * there are too many names or searches. The caller can cancel the wait, and must do so before it
 * frees the loop.
 */
struct lookup;
typedef void resolve_fn(const struct addresses *found, const char *error, void *arg);
int resolve(struct loop *l, const char *name, uint16_t port, resolve_fn *fn, void *arg,
	    struct addresses *ret_now, struct lookup **ret_wait);
void resolve_cancel(struct lookup *k); /* k may be NULL */
/* Tests make the times short and have their own `search`. */
struct resolve_config {
	int (*search)(const char *name, const char *service, const struct addrinfo *hints,
		      struct addrinfo **ret);
	uint64_t late_ns; /* after this time without an answer, the last known addresses are used */
	/*
	 * after this time a search counts as lost, and a new one may start. The time is longer than
	 * glibc can need
	 */
	uint64_t lost_ns;
	uint64_t keep_ns; /* for how long the last known addresses are used */
};
extern struct resolve_config resolve_config;
