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
	const char *ca_name;		/* told of what is left out: its file. NULL or "": "ca" */
	const char *cert_pem, *key_pem;	/* client or server certificate; NULL: none */
	bool insecure;			/* no verification: tests and explicit user wish only */
};
struct tls;				/* an SSL_CTX with a reference count */
int tls_new(const struct tls_config *c, bool server, struct tls **ret, struct field_error *reterr);
struct tls *tls_ref(struct tls *t);
struct tls *tls_unref(struct tls *t);
/*
 * A certificate of a CA bundle that cannot be read is left out, as long as another can be; fn is
 * told once of each: the bundle's name, its number there from 1, its subject ("" if that is not
 * known) and why, on any thread. Set it before the first. A bundle that ends within a certificate
 * is refused.
 */
typedef void tls_skipped_fn(const char *bundle, unsigned nr, const char *subject, const char *why);
void tls_on_skipped(tls_skipped_fn *fn);

/* ---- names ---- */
/*
 * A name that is connected to is looked up each time, beside the loop. While the resolver fails
 * or is late, connections go to the addresses that it gave last, for a day. fn is told when that
 * begins (error) and ends (NULL), on any thread, in order, and opens no connection; set it
 * before the first.
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
	const char *tls_name;		/* whom the certificate is to be of, and SNI; NULL: host */
	struct tls *tls;		/* NULL: plain HTTP. Borrowed: a reference is taken */
	const char *user_agent;
	uint64_t connect_timeout_ns;	/* 0: 15 s */
};
int http_client_new(struct loop *l, const struct http_client_config *c, struct http_client **ret);
/* cancels requests without calling back */
struct http_client *http_client_free(struct http_client *h);
void http_client_set_tls(struct http_client *h, struct tls *tls); /* for all requests from now on */

struct http_request {
	const char *method, *path;	/* path with query, already encoded */
	const char *const *headers;	/* "Name: value", NULL-terminated; may be NULL */
	const void *body;
	size_t body_bytes;
	uint64_t timeout_ns; /* for the head of a 2xx (streaming) or the whole; 0: 30 s */
	size_t max_body_bytes;		/* of the answer, when not streaming; 0: 16 MiB */
	/* Streaming: on_data gets every piece as it comes. Without it the body is collected. */
	void (*on_head)(int status, const struct http_headers *h, void *arg);	/* may be NULL */
	void (*on_data)(const void *p, size_t n, void *arg);
	/* Exactly once, unless cancelled. status 0: no answer; error is a text for people. */
	void (*on_done)(int status, const char *body, size_t n, const char *error, void *arg);
	void *arg;
};
struct http_call;
/* copies r */
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
	const char *section; /* of the configuration: errors name SECTION.address, SECTION.port */
	const char *address;		/* "127.0.0.1", "0.0.0.0", "::" */
	uint16_t port;			/* 0: any; see http_server_port */
	struct tls *tls;		/* NULL: plain */
	size_t max_body_bytes;		/* 0: 1 MiB */
	/*
	 * 0: 256. One more takes the place of the oldest whose request is not in yet or that
	 * was answered; where all are being answered it is refused with 503. Both are counted.
	 */
	unsigned max_connections;
	/*
	 * One request a connection, and one that is answered makes room, too: whoever asks much, or
	 * does not take what it asked for, shuts nobody out for long.
	 */
	bool brief;
	uint64_t max_request_ns; /* 0: 60 s, from a request's first byte to its last; past it 408 */
	/*
	 * Asked once the head of a request with a body is in (in->body is empty then): reading
	 * waits until http_accept_body or http_reply, now or later. NULL: every body may have
	 * max_body_bytes.
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
 * Called when the peer goes away before the reply, or the server itself answered (a body too large
 * or too late): then http_reply must not be called.
 */
void http_conn_on_gone(struct http_conn *c, void (*fn)(void *arg), void *arg);
