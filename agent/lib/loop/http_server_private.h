/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to http_server.c (listening, limits, times), http_server_room.c (which connection makes
 * room for a new one), http_server_request.c (a request, however it came), http_server_conn.c and
 * http_server_reply.c (HTTP/1.1), http2_server.c (connections of HTTP/2) and http2_stream.c (their
 * requests and replies).
 */
#pragma once

#include "lib/loop/conn.h"
#include "lib/loop/grpc.h"
#include "lib/loop/http_parse.h"

#include <uthash.h>

#define HTTP_MAX_REFUSING 32 /* connections over the maximum that still get a 503 */
#define HTTP_TX_IDLE_NS	  (60 * NSEC_PER_SEC) /* longest time without progress of a reply */
#define PEER_BYTES	  64

/*
 * ASKING: the handler has the head and decides whether it accepts the body. SERVING: a connection
 * of HTTP/2 that has requests; their phases are their own
 */
enum phase { IDLE, READING, ASKING, HANDLING, REPLYING, SERVING, LINGERING };

/*
 * The functions that a connection of the server calls: those of conn.h with these names, or those
 * of a fuzzer.
 */
struct http_socket_ops {
	int (*accept)(struct loop *l, int fd, struct tls *tls, const struct conn_ops *ops,
		      void *arg, struct conn **ret);
	struct conn *(*free)(struct conn *c);
	void (*write)(struct conn *c, struct buf *b);
	void (*read_enable)(struct conn *c, bool on);
	void (*shutdown)(struct conn *c);
	void (*reset)(struct conn *c);
	uint64_t (*last_read_ns)(const struct conn *c);
	uint64_t (*last_write_ns)(const struct conn *c);
};

struct http_answer {
	int status;
	const char *content_type;    /* NULL: none */
	const char *const *headers;  /* NULL: none */
	const char *const *trailers; /* HTTP/2 only; NULL: none */
	const void *body;
	size_t n;
};

/* How a request and its answer travel: by HTTP/1.1, or by a stream of HTTP/2. */
struct http_carrier {
	void (*read_enable)(struct http_conn *c, bool on);
	void (*ask_body)(struct http_conn *c); /* sends 100 Continue */
	/* The handler has accepted the body: reads what had come before that. */
	void (*go_on)(struct http_conn *c);
	/* The answer, whole or in pieces (http.h). */
	void (*reply)(struct http_conn *c, const struct http_answer *a);
	void (*reply_first)(struct http_conn *c, const struct http_answer *a);
	void (*reply_more)(struct http_conn *c, const void *body, size_t n);
	void (*reply_last)(struct http_conn *c, const void *body, size_t n);
	void (*cut)(struct http_conn *c);
	/* The request leaves its connection, which ends or has lost it: c->server is NULL then. */
	void (*detach)(struct http_conn *c);
	void (*free)(struct http_conn *c);
};

struct http_peer {
	char name[PEER_BYTES]; /* as in struct http_in */
	unsigned n_refs;
	unsigned n_conns; /* without those beyond the maximum */
	size_t waiting_bytes;
	UT_hash_handle hh;
};

struct http_server {
	const struct http_socket_ops *socket;
	struct loop *loop;
	struct http_server_config config;
	int fd;
	uint16_t port;
	struct io io;
	struct tls *tls;
	struct http_conn *conns;
	struct http_peer *peers;
	unsigned n_conns, n_refused; /* n_refused: those beyond the maximum, which get a 503 */
	size_t waiting_bytes; /* of bodies that came by HTTP/2 and are not accepted yet */
	bool draining;
	struct timer tick, resume_accept;
	struct counter *refused, *made_room, *peer_share, *slow, *not_taken, *paused;
};

/*
 * A connection of HTTP/1.1 and its request; a request of HTTP/2; or a connection of HTTP/2, which
 * has requests of its own.
 */
struct http_conn {
	/* NULL: server and connection are freed, but the handler must still reply */
	struct http_server *server;
	const struct http_carrier *carrier;
	struct conn *conn;   /* NULL: a request of HTTP/2 */
	struct http2 *http2; /* a connection of HTTP/2; else NULL */
	enum phase phase;
	uint64_t since_ns; /* when the phase began */
	uint64_t accepted_ns;
	bool refuse, close_after, eof, served, in_head;
	bool continues; /* the first piece of the reply was written, and the last one was not */
	struct http_peer *peer;
	struct http_msg msg;
	struct buf body, ahead; /* ahead: bytes of the next request */
	char *path;
	struct http_in in;
	void (*on_gone)(void *arg), (*on_sent)(void *arg), (*on_taken)(void *arg);
	void *gone_arg, *sent_arg, *taken_arg;
	struct http_conn *prev, *next;
};

/* ---- grpc.c ---- */
/* The end of an answer: what grpc_reply() puts behind it, and grpc_refuse() into its head. */
struct grpc_fields {
	char status[24];
	struct buf message, details;
	const char *lines[5];
};
void grpc_fields_init(struct grpc_fields *f, enum grpc_code code, const char *message,
		      const void *details, size_t n);
void grpc_fields_done(struct grpc_fields *f);

/* ---- http_server.c ---- */
int http_server_new_over(const struct http_socket_ops *socket, struct loop *l,
			 const struct http_server_config *c, struct http_server **ret,
			 struct field_error *reterr);
/* Whether a phase takes too long. The times are those of the last byte from and to the peer. */
bool http_conn_is_overdue(const struct http_conn *c, uint64_t now_ns, uint64_t read_ns,
			  uint64_t written_ns);
void http_conn_end_overdue(struct http_conn *c); /* refuses what is being read, drops others */

/* ---- http_server_room.c ---- */
/* The caller returns the peer by http_peer_unref. */
struct http_peer *http_peer_ref(struct http_server *s, const struct sockaddr_storage *sa);
void http_peer_unref(struct http_server *s, struct http_peer *p);
/*
 * Closes a connection for a new one of the peer. false: there is none that may be closed for it.
 */
bool http_server_make_room(struct http_server *s, const struct http_peer *from);

/* ---- http_server_request.c ---- */
/*
 * Called when the peer has closed the connection. If the handler still owes a reply, calls its
 * on_gone, or keeps c until it replies.
 */
void http_conn_drop(struct http_conn *c);
void http_conn_enter(struct http_conn *c, enum phase phase);
void http_conn_destroy(struct http_conn *c);
void http_conn_tell_sent(struct http_conn *c); /* calls on_sent, once */
void http_conn_tell_taken(struct http_conn *c); /* calls on_taken, once */
/* Sends an answer of the server itself; a connection of HTTP/1.1 ends after the answer. */
void http_conn_refuse(struct http_conn *c, int status, const char *why);
/*
 * c->msg has the head of a request. Returns true if its body, which may be empty, is to be read
 * now. Otherwise the handler has not decided yet, or the request is answered.
 */
bool http_conn_take_head(struct http_conn *c);
/* Gives the whole request to the handler. */
void http_conn_dispatch(struct http_conn *c);
/* Whether the connection ends with the reply to its next request. */
bool http_conn_is_too_old(const struct http_conn *c);

/* ---- http_server_conn.c ---- */
/* Takes ownership of fd. */
void http_conn_start(struct http_server *s, int fd, const struct sockaddr_storage *peer,
		     bool refuse);
/* The connection has nothing more to do: ends this side, and waits for the peer's end. */
void http_conn_linger(struct http_conn *c);

/* ---- http_server_reply.c: HTTP/1.1 ---- */
void http1_reply(struct http_conn *c, const struct http_answer *a);
void http1_reply_first(struct http_conn *c, const struct http_answer *a);
void http1_reply_more(struct http_conn *c, const void *body, size_t n);
void http1_reply_last(struct http_conn *c, const void *body, size_t n);
void http1_cut(struct http_conn *c);
void http_format_date(char out[40]);

/* ---- http2_server.c ---- */
/* The client has sent HTTP_PREFACE. What follows is to be fed. */
void http2_start(struct http_conn *c);
/* The functions for the events of the connection. Each may drop it. */
void http2_feed(struct http_conn *c, const char *p, size_t n);
void http2_drained(struct http_conn *c);
void http2_tick(struct http_conn *c, uint64_t now_ns);
/* Tells the client to send no more requests here. The connection ends when it has none. */
void http2_end(struct http_conn *c);
/* Called by detach of the connection: drops the requests. */
struct http2 *http2_free(struct http2 *h);
