/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the HTTP client: http_client.c (requests and answers), http_connect.c (connections),
 * http2_client.c (HTTP/2).
 */
#pragma once

#include "lib/loop/conn.h"
#include "lib/loop/http_parse.h"

struct http2_session;
struct http_client {
	struct loop *loop;
	char *address, *tls_name, *host_header, *user_agent;
	uint16_t port;
	struct tls *tls;
	uint64_t connect_timeout_ns;
	struct http_call *calls;
	struct conn_pool *idle;
	bool offers_http2;
	bool speaks_http1; /* the server has chosen HTTP/1.1, so calls do not wait for each other */
	/* the call that connects to a server that may speak HTTP/2; others wait. NULL: none */
	struct http_call *connecting;
	/* the session that takes new calls, or NULL; it is one of all sessions */
	struct http2_session *http2, *sessions;
};

struct http_call {
	struct http_client *client;
	struct http_request r; /* a copy; only its member arg points to the caller's memory */
	struct buf request;    /* as HTTP/1.1; HTTP/2 sends the same fields */
	size_t max_body_bytes;
	bool may_retry, head_only;
	struct conn *conn;
	bool reused, got_bytes;
	struct lookup *lookup;
	struct addresses addresses;
	unsigned i_address; /* index of the address to try next */
	uint64_t connect_by_ns;
	struct timer start, timeout, connect_timeout;
	bool waits;		       /* for the call that connects */
	char *failure;		       /* why that one failed, so this one fails, too */
	struct http2_session *session; /* NULL: the call goes over HTTP/1.1 */
	int32_t stream;		       /* of the session; 0: it has none yet, or no more */
	bool on_wire; /* HTTP/2: the head has been written, so that the server may have read it */
	size_t sent;		       /* bytes of request that a stream has taken */
	unsigned n_refused;	       /* how often a server has refused its stream unread */
	struct http_msg msg;
	struct buf body;
	uint64_t last_byte_ns;
	bool *freed;
	struct http_call *prev, *next;
};

/* ---- http_client.c ---- */
/* Ends the call and calls on_done. status 0: there is no answer, because of the error. */
void http_call_finish(struct http_call *c, int status, const char *error);
/* Starts the call, or starts it again, in the next turn of the loop. */
void http_call_soon(struct http_call *c);
void http_call_again(struct http_call *c);
/* The request is about to be sent. Returns false if it must not be: the call is freed then. */
bool http_call_may_send(struct http_call *c);
/* Sends the request over an open connection of HTTP/1.1, which the call then owns. */
void http_call_over(struct http_call *c, struct conn *conn);
/* The head, a piece of the body has come into c->msg. Returns true if the call still exists. */
bool http_call_head(struct http_call *c);
bool http_call_body(struct http_call *c);

/* ---- http_connect.c ---- */
/* Makes a connection for the call, or lets it wait for one that is being made. */
void http_connect(struct http_call *c);
/* The call is freed: if others wait for it, one of them connects. */
void http_connect_leave(struct http_call *c);

/* ---- http2_client.c ---- */
/* what a connection with TLS offers, by ALPN */
extern const char http2_protocols[];
/* Sends the request over the client's session. Returns false if it has none for new calls. */
bool http2_send(struct http_call *c);
/* Makes an open connection the session for the client's next calls. */
void http2_begin(struct http_client *h, struct conn *conn);
/* The call is freed before its answer has come: its stream is reset. */
void http2_leave(struct http_call *c);
/* The session takes no further calls; it ends with its last one. */
void http2_retire(struct http_client *h);
void http2_end_all(struct http_client *h);
