/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: HTTP/1.1 client, and server of HTTP/1.1 and HTTP/2, on the loop. The client never follows
 * redirects, never uses a proxy from the environment, and trusts only the CA it was given.
 * docs/decisions.md has the facts on libwebsockets 4.1.6 behind this.
 */
#pragma once

#include "lib/loop/loop.h"

/* ---- certificates and keys for TLS, in memory; never changed, only replaced ---- */
struct tls_config {
	/* one or more certificates (see tls_on_skipped); NULL: the system's certificates */
	const char *ca_pem;
	/* the name of ca_pem in reports of ignored certificates: its file. NULL or "": "ca" */
	const char *ca_name;
	const char *cert_pem, *key_pem;	/* client or server certificate; NULL: none */
	/* does not check the peer's certificate: for tests, and if the user has asked for it */
	bool insecure;
};
struct tls;				/* an SSL_CTX with a reference count */
int tls_new(const struct tls_config *c, bool server, struct tls **ret, struct field_error *reterr);
struct tls *tls_ref(struct tls *t);
struct tls *tls_unref(struct tls *t);
/*
 * Sets the function that reports ignored certificates. If one certificate of a CA bundle cannot be
 * read, but another one can, the first is ignored. fn is called once for each ignored certificate,
 * on any thread. nr: its number in the bundle, from 1. subject: "" if not known. Set fn before the
 * first TLS context is made. A bundle that ends within a certificate is refused.
 */
typedef void tls_skipped_fn(const char *bundle, unsigned nr, const char *subject, const char *why);
void tls_on_skipped(tls_skipped_fn *fn);

/* ---- names ---- */
/*
 * Each new connection looks its host name up, on another thread. While the resolver fails or does
 * not answer in time, connections go to the addresses of its last answer, for up to a day. fn is
 * called when this begins (error: why) and when it ends (error NULL), on any thread, one call after
 * another. fn must not open a connection. Set it before the first connection.
 */
typedef void resolve_change_fn(const char *name, const char *error);
void resolve_on_change(resolve_change_fn *fn);

/* ---- client ---- */
struct http_headers;
struct http_client;			/* connections to one server */
struct http_client_config {
	const char *address;		/* IP address or host name to connect to */
	uint16_t port;
	const char *host;		/* Host header; NULL: address */
	const char *tls_name; /* the name that the certificate must have, and SNI; NULL: host */
	/* NULL: plain HTTP. The client takes a reference of its own */
	struct tls *tls;
	const char *user_agent;
	/*
	 * with TLS: offers HTTP/2, too. If the server chooses it, all requests share one connection
	 */
	bool http2;
	uint64_t connect_timeout_ns;	/* 0: 15 s */
};
int http_client_new(struct loop *l, const struct http_client_config *c, struct http_client **ret);
/* Cancels the requests of h. Their callbacks are not called. */
struct http_client *http_client_free(struct http_client *h);
void http_client_set_tls(struct http_client *h, struct tls *tls); /* used for all later requests */

#define HTTP_MAX_ANSWER (16u << 20) /* bytes of an answer's body, by default */
struct http_request {
	const char *method, *path;	/* path with query, already encoded */
	const char *const *headers;	/* "Name: value", NULL-terminated; may be NULL */
	const void *body;
	size_t body_bytes;
	/*
	 * If a server closes a kept connection while the request is on its way, the client sends
	 * the request again. It does so for GET, HEAD, PUT and DELETE without asking.
	 */
	bool repeatable;
	/*
	 * The caller asks for a compressed answer by a header, and unpacks it. false: the client
	 * refuses a compressed answer.
	 */
	bool takes_packed;
	/*
	 * limit of the time until the answer: until its head if on_data is set and the status is
	 * 2xx, else until its end. 0: 30 s
	 */
	uint64_t timeout_ns;
	/* limit of the answer's body, if on_data is not set; 0: HTTP_MAX_ANSWER */
	size_t max_body_bytes;
	/*
	 * Streaming: on_data gets each piece of the body when it arrives. on_data NULL: the body is
	 * collected for on_done.
	 */
	void (*on_head)(int status, const struct http_headers *h, void *arg);	/* may be NULL */
	void (*on_data)(const void *p, size_t n, void *arg);
	/*
	 * Asked when the connection is ready, just before the request's bytes go to it. false: the
	 * request is not sent, and on_done gets status 0. NULL: it is always sent.
	 */
	bool (*may_send)(void *arg);
	/*
	 * Called exactly once, unless the request is cancelled. status 0: there is no answer, and
	 * error is a text for people.
	 */
	void (*on_done)(int status, const char *body, size_t n, const char *error, void *arg);
	void *arg;
};
struct http_call;
/* The client copies r. */
int http_send(struct http_client *h, const struct http_request *r, struct http_call **ret);
void http_cancel(struct http_call *c);	/* no callback is called after this */
uint64_t http_call_idle_ns(const struct http_call *c);	/* time since the last byte arrived */
const char *http_header(const struct http_headers *h, const char *name);	/* NULL if absent */

/* ---- server ---- */
struct http_server;
/* one request that waits for its answer: with HTTP/2, a connection may have several */
struct http_conn;
struct http_in {
	const char *method, *path, *query;	/* path: decoded; query: as sent, "" if none */
	/* values of headers; "" if absent */
	const char *authorization, *content_type, *content_encoding, *accept_encoding, *host,
		*origin, *if_none_match, *accept, *connect_timeout_ms, *grpc_encoding,
		*grpc_timeout;
	/*
	 * The peer, as limits count peers: its IPv4 address, or the network of 64 bits of its IPv6
	 * address, as text. A node, a machine behind NAT, and the users of a proxy or of a
	 * port-forward are one peer each
	 */
	const char *peer;
	const char *body;
	size_t body_bytes;
	/* the length of the body in the request's head; UINT64_MAX: the head has no length */
	uint64_t content_length;
	bool http2; /* the request came by HTTP/2, so the answer may have trailers */
};
/*
 * Called when the whole request has arrived. The handler replies exactly once, now or
 * later, on the loop thread. The server itself answers 413 if the body is too large, and 400 to a
 * bad request.
 */
typedef void http_handler_fn(struct http_conn *c, const struct http_in *in, void *arg);
/* An answer that refuses a request. */
struct http_refusal {
	int status;
	const char *content_type; /* a constant */
	struct buf body;	  /* of a call of gRPC: its google.rpc.Status */
};
/*
 * Writes a refusal of the server itself (400, 408, 413, 431, 501, 503, 505) in the form of the
 * request. Of a head that is refused, in has what could be read of it; the rest is "".
 */
typedef void http_refuse_fn(const struct http_in *in, int status, const char *why,
			    struct http_refusal *ret);
struct http_server_config {
	/* section of the configuration, for errors: they name SECTION.address or SECTION.port */
	const char *section;
	const char *address;		/* "127.0.0.1", "0.0.0.0", "::" */
	uint16_t port;			/* 0: the kernel chooses one; http_server_port returns it */
	struct tls *tls;		/* NULL: plain */
	/*
	 * also speaks HTTP/2 (RFC 9113), to clients that choose it by ALPN, or that begin with it
	 * (prior knowledge)
	 */
	bool http2;
	size_t max_body_bytes;		/* 0: 1 MiB */
	/*
	 * 0: 256. If one more client connects, the server closes a connection: first one without a
	 * request, then one of a peer that has more connections than the new one's peer would have,
	 * then one that waits for its request. It prefers the peer with the most connections, and
	 * closes none of a peer that has fewer than the new one's. If there is none, it refuses the
	 * new connection with 503. It counts each case.
	 */
	unsigned max_connections;
	/*
	 * Each connection serves one request. A connection whose answer is still being sent may
	 * also be closed for a new one. So a client that sends many requests, or does not read its
	 * answers, does not keep others out for long.
	 */
	bool brief;
	/*
	 * 0: no limit. An older connection ends with its next reply. So clients that keep their
	 * connections come to each of several servers behind one address, also to new ones
	 */
	uint64_t max_age_ns;
	/*
	 * 0: 60 s. Limit of the time from a request's first byte to its last. If `head` is set, the
	 * time begins again when it accepts the body. A slower request gets the answer 408: as soon
	 * as a sixth of this time is over and the body comes at a rate at which it would not be in
	 * by then (if its length is not known: at less than 16 KiB/s)
	 */
	uint64_t max_request_ns;
	/*
	 * Called when the head of a request with a body has arrived (in->body is empty then). The
	 * server reads the body only after http_accept_body. `head` calls http_accept_body or
	 * http_reply, now or later. NULL: every body may have max_body_bytes.
	 */
	http_handler_fn *head;
	http_handler_fn *handler;
	http_refuse_fn *refuse; /* NULL: {"error": WHY}, and for gRPC a code without details */
	void *arg;
};
int http_server_new(struct loop *l, const struct http_server_config *c, struct http_server **ret,
		    struct field_error *reterr);
struct http_server *http_server_free(struct http_server *s);
/*
 * Before the server is freed: takes no more connections, closes those without a request, and each
 * other one when its request is answered.
 */
void http_server_drain(struct http_server *s);
bool http_server_is_drained(const struct http_server *s); /* whether no request is left */
uint16_t http_server_port(const struct http_server *s);
void http_server_set_tls(struct http_server *s, struct tls *tls);
/* headers: as those of struct http_request. The body is copied. */
void http_reply(struct http_conn *c, int status, const char *content_type,
		const char *const *headers,
		const void *body, size_t n);
/* HTTP/2 only. The same with status 200 and with fields after the body (its trailers). */
void http_reply_trailed(struct http_conn *c, const char *content_type, const void *body, size_t n,
			const char *const *trailers);
/*
 * The same in pieces, for an answer whose first part is known earlier, or which is too large to be
 * kept whole. The handler calls http_reply_first instead of http_reply, then http_reply_more for
 * each piece between, if there are any, and at last http_reply_last, whose piece may be empty, or
 * http_reply_cut: the answer ends before its end, and the peer sees that.
 */
void http_reply_first(struct http_conn *c, int status, const char *content_type,
		      const char *const *headers, const void *body, size_t n);
void http_reply_more(struct http_conn *c, const void *body, size_t n);
void http_reply_last(struct http_conn *c, const void *body, size_t n);
void http_reply_cut(struct http_conn *c);
/*
 * fn is called once: when the peer's socket has taken the next piece, which has bytes and is not
 * the last one. Set it before the piece. A peer that takes nothing of it for a minute counts as
 * gone, and so does one that has asked by HEAD.
 */
void http_conn_on_taken(struct http_conn *c, void (*fn)(void *arg), void *arg);
void http_accept_body(struct http_conn *c, size_t max_body_bytes);
/*
 * fn is called if the peer closes before the reply or its last piece, or if the server itself has
 * answered because the body was too large or too late. Then the handler must not reply any more.
 */
void http_conn_on_gone(struct http_conn *c, void (*fn)(void *arg), void *arg);
/*
 * fn is called once: when the whole reply has been written to the peer's socket, or the connection
 * has ended before that. Set it before the reply.
 */
void http_conn_on_sent(struct http_conn *c, void (*fn)(void *arg), void *arg);

/* ---- Content-Encoding; any thread ---- */
/* Compresses with zstd. */
int http_compress(const void *p, size_t n, struct buf *out);
/*
 * encoding: a Content-Encoding: "", "identity", "zstd" or "gzip"; -EOPNOTSUPP for others. -E2BIG:
 * the result has more than max_bytes; -EBADMSG: the data is damaged.
 */
int http_decompress(const char *encoding, const void *p, size_t n, size_t max_bytes,
		    struct buf *out);
bool http_knows_encoding(const char *encoding);
