/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: HTTP/1.1 client and server on the loop. The client never follows
 * redirects, never uses a proxy from the environment, and trusts only the CA it
 * was given. References: shared facts on libwebsockets 4.1.6 in docs/decisions.md.
 */
#pragma once

#include "lib/loop/loop.h"

/* ---- TLS material, in memory; rotated by replacing it ---- */
struct tls_config {
	const char *ca_pem;		/* whole bundle (see tls_on_skipped); NULL: the system's */
	/* the name of the bundle in reports of ignored certificates: its file. NULL or "": "ca" */
	const char *ca_name;
	const char *cert_pem, *key_pem;	/* client or server certificate; NULL: none */
	bool insecure;			/* no verification: tests and explicit user wish only */
};
struct tls;				/* an SSL_CTX with a reference count */
int tls_new(const struct tls_config *c, bool server, struct tls **ret, struct field_error *reterr);
struct tls *tls_ref(struct tls *t);
struct tls *tls_unref(struct tls *t);
/*
 * A certificate of a CA bundle that cannot be read is ignored, as long as another one can be read.
 * fn is called once for each, on any thread: with the bundle's name, the certificate's number in it
 * from 1, its subject ("" if not known) and the reason. Set it before the first TLS context. A
 * bundle that ends within a certificate is refused.
 */
typedef void tls_skipped_fn(const char *bundle, unsigned nr, const char *subject, const char *why);
void tls_on_skipped(tls_skipped_fn *fn);

/* ---- names ---- */
/*
 * Each connection to a name looks it up, on another thread. While the resolver fails or is late,
 * connections go to the addresses of its last answer, for a day. fn is called when that begins
 * (error) and ends (NULL), on any thread, in order; it must not open a connection. Set it before
 * the first connection.
 */
typedef void resolve_change_fn(const char *name, const char *error);
void resolve_on_change(resolve_change_fn *fn);

/* ---- client ---- */
struct http_headers;
struct http_client;			/* connections to one origin */
struct http_client_config {
	const char *address;		/* IP literal or name to connect to */
	uint16_t port;
	const char *host;		/* Host header; NULL: address */
	const char *tls_name; /* the name that the certificate must have, and SNI; NULL: host */
	struct tls *tls;		/* NULL: plain HTTP. Borrowed: a reference is taken */
	const char *user_agent;
	uint64_t connect_timeout_ns;	/* 0: 15 s */
};
int http_client_new(struct loop *l, const struct http_client_config *c, struct http_client **ret);
/* Cancels requests without calling back. */
struct http_client *http_client_free(struct http_client *h);
void http_client_set_tls(struct http_client *h, struct tls *tls); /* for all later requests */

struct http_request {
	const char *method, *path;	/* path with query, already encoded */
	const char *const *headers;	/* "Name: value", NULL-terminated; may be NULL */
	const void *body;
	size_t body_bytes;
	/* for the head of a 2xx (streaming) or for the whole answer; 0: 30 s */
	uint64_t timeout_ns;
	size_t max_body_bytes;		/* of the answer, when not streaming; 0: 16 MiB */
	/* Streaming: on_data gets every piece as it comes. Without it the body is collected. */
	void (*on_head)(int status, const struct http_headers *h, void *arg);	/* may be NULL */
	void (*on_data)(const void *p, size_t n, void *arg);
	/* Exactly once, unless cancelled. status 0: no answer; error is a text for people. */
	void (*on_done)(int status, const char *body, size_t n, const char *error, void *arg);
	void *arg;
};
struct http_call;
/* Copies r. */
int http_send(struct http_client *h, const struct http_request *r, struct http_call **ret);
void http_cancel(struct http_call *c);	/* no callback after this */
uint64_t http_call_idle_ns(const struct http_call *c);	/* since the last byte came */
const char *http_header(const struct http_headers *h, const char *name);	/* NULL if absent */

/* ---- server ---- */
struct http_server;
struct http_conn;			/* one request being answered */
struct http_in {
	const char *method, *path, *query;	/* path decoded, query raw ("" if none) */
	/* "" if absent */
	const char *authorization, *content_type, *content_encoding, *host, *origin;
	const char *peer;			/* address text */
	const char *body;
	size_t body_bytes;
	uint64_t content_length;		/* as the head says; UINT64_MAX: it does not */
};
/*
 * Called once the whole request is in. Answer now or later with http_reply
 * (exactly once), on the loop thread. Too large a body is answered 413 by the
 * server itself, a bad request 400.
 */
typedef void http_handler_fn(struct http_conn *c, const struct http_in *in, void *arg);
struct http_server_config {
	/* section of the configuration: errors name SECTION.address, SECTION.port */
	const char *section;
	const char *address;		/* "127.0.0.1", "0.0.0.0", "::" */
	uint16_t port;			/* 0: any; see http_server_port */
	struct tls *tls;		/* NULL: plain */
	size_t max_body_bytes;		/* 0: 1 MiB */
	/*
	 * 0: 256. One more replaces the oldest connection whose request is not complete yet or was
	 * answered. If all are being answered, the new one is refused with 503. Both are counted.
	 */
	unsigned max_connections;
	/*
	 * Each connection has one request, and one that was answered makes room, too. So a client
	 * that asks much, or does not read its answers, keeps no other out for long.
	 */
	bool brief;
	uint64_t max_request_ns; /* 0: 60 s, from a request's first byte to its last; past it 408 */
	/*
	 * Called when the head of a request with a body is complete (in->body is empty then).
	 * Reading waits until http_accept_body or http_reply, now or later. NULL: every body may
	 * have max_body_bytes.
	 */
	http_handler_fn *head;
	http_handler_fn *handler;
	void *arg;
};
int http_server_new(struct loop *l, const struct http_server_config *c, struct http_server **ret,
		    struct field_error *reterr);
struct http_server *http_server_free(struct http_server *s);
uint16_t http_server_port(const struct http_server *s);
void http_server_set_tls(struct http_server *s, struct tls *tls);
/* headers like the request's; body is copied. */
void http_reply(struct http_conn *c, int status, const char *content_type,
		const char *const *headers,
		const void *body, size_t n);
void http_accept_body(struct http_conn *c, size_t max_body_bytes);
/*
 * Called when the peer closes before the reply, or when the server itself answered (the body was
 * too large or too late). Then http_reply must not be called.
 */
void http_conn_on_gone(struct http_conn *c, void (*fn)(void *arg), void *arg);
