/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to http_server.c (listening, limits, times), http_server_conn.c (the requests of a
 * connection) and http_server_reply.c (its replies).
 */
#pragma once

#include "lib/loop/conn.h"
#include "lib/loop/http_parse.h"

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

struct http_server {
	const struct http_socket_ops *socket;
	struct loop *loop;
	struct http_server_config config;
	int fd;
	uint16_t port;
	struct io io;
	struct tls *tls;
	struct http_conn *conns;
	unsigned n_conns, n_refused; /* n_refused: those beyond the maximum, which get a 503 */
	struct timer tick, resume_accept;
	struct counter *refused, *made_room, *paused;
};

struct http_conn {
	/* NULL: server and connection are freed, but the handler must still reply */
	struct http_server *server;
	struct conn *conn;
	enum phase phase;
	uint64_t since_ns;
	bool refuse, close_after, eof, served, in_head;
	bool continues; /* the first of two pieces of the reply was written */
	char peer[64];
	struct http_msg msg;
	struct buf body, ahead; /* ahead: bytes of the next request */
	char *path;
	struct http_in in;
	void (*on_gone)(void *arg);
	void *gone_arg;
	struct http_conn *prev, *next;
};

int http_server_new_over(const struct http_socket_ops *socket, struct loop *l,
			 const struct http_server_config *c, struct http_server **ret,
			 struct field_error *reterr);
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
