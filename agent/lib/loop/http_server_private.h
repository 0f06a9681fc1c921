/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to http_server.c (listening, limits, times), http_server_room.c (which connection makes
 * room for a new one), http_server_conn.c (the requests of a connection) and http_server_reply.c
 * (its replies).
 */
#pragma once

#include "lib/loop/conn.h"
#include "lib/loop/http_parse.h"

#include <uthash.h>

#define HTTP_MAX_REFUSING 32 /* connections over the maximum that still get a 503 */
#define PEER_BYTES	  64

/* ASKING: the handler has the head and decides whether it accepts the body */
enum phase { IDLE, READING, ASKING, HANDLING, REPLYING, LINGERING };

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
	uint64_t (*last_read_ns)(const struct conn *c);
	uint64_t (*last_write_ns)(const struct conn *c);
};

struct http_peer {
	char name[PEER_BYTES]; /* as in struct http_in */
	unsigned n_refs;
	unsigned n_conns; /* without those beyond the maximum */
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
	bool draining;
	struct timer tick, resume_accept;
	struct counter *refused, *made_room, *peer_share, *slow, *paused;
};

struct http_conn {
	/* NULL: server and connection are freed, but the handler must still reply */
	struct http_server *server;
	struct conn *conn;
	enum phase phase;
	uint64_t since_ns; /* when the phase began */
	uint64_t accepted_ns;
	bool refuse, close_after, eof, served, in_head;
	bool continues; /* the first of two pieces of the reply was written */
	struct http_peer *peer;
	struct http_msg msg;
	struct buf body, ahead; /* ahead: bytes of the next request */
	char *path;
	struct http_in in;
	void (*on_gone)(void *arg), (*on_sent)(void *arg);
	void *gone_arg, *sent_arg;
	struct http_conn *prev, *next;
};

int http_server_new_over(const struct http_socket_ops *socket, struct loop *l,
			 const struct http_server_config *c, struct http_server **ret,
			 struct field_error *reterr);
/* ---- http_server_room.c ---- */
/* The caller returns the peer by http_peer_unref. */
struct http_peer *http_peer_ref(struct http_server *s, const struct sockaddr_storage *sa);
void http_peer_unref(struct http_server *s, struct http_peer *p);
/*
 * Closes a connection for a new one of the peer. false: there is none that may be closed for it.
 */
bool http_server_make_room(struct http_server *s, const struct http_peer *from);

/* Takes ownership of fd. */
void http_conn_start(struct http_server *s, int fd, const struct sockaddr_storage *peer,
		     bool refuse);
/*
 * Called when the peer has closed the connection. If the handler still owes a reply, calls its
 * on_gone, or keeps c until it replies.
 */
void http_conn_drop(struct http_conn *c);
void http_conn_enter(struct http_conn *c, enum phase phase);
void http_conn_read_enable(struct http_conn *c, bool on);
void http_conn_destroy(struct http_conn *c);
/* Sends the reply: http_reply, or an answer of the server itself. */
void http_conn_write_reply(struct http_conn *c, int status, const char *content_type,
			   const char *const *headers, const void *body, size_t n);
/* Sends an answer of the server itself; the connection ends after the answer. */
void http_conn_refuse(struct http_conn *c, int status, const char *why);
