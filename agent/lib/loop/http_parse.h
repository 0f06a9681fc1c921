/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/loop: HTTP/1.x messages (RFC 9112) from a stream of bytes, for both sides. Strict:
 * a message that could be read in two ways is refused.
 */
#pragma once

#include "lib/loop/http.h"

#define HTTP_MAX_HEAD_BYTES (64 << 10) /* bytes of a head; a bearer token alone may have 16 KiB */
#define HTTP_MAX_HEADERS    100	       /* headers of one message; a message with more is refused */

#define HTTP_PREFACE "PRI * HTTP/2.0\r\n\r\n"

enum http_event { HTTP_NEED_MORE, HTTP_HEAD, HTTP_BODY, HTTP_DONE, HTTP_BAD };

struct http_headers {
	unsigned n;
	struct {
		const char *name, *value;
	} field[HTTP_MAX_HEADERS];
};

enum http_state {
	ST_HEAD,
	ST_LENGTH,
	ST_UNTIL_CLOSE,
	ST_CHUNK_SIZE,
	ST_CHUNK_DATA,
	ST_CHUNK_END,
	ST_TRAILER,
	ST_DONE,
	ST_BAD,
};

struct http_msg {
	bool is_request;
	bool no_body; /* the answer to HEAD; set by the caller */
	enum http_state state;
	struct buf head;       /* memory of the strings of head and of the members below */
	char *method, *target; /* set for a request */
	int status;	       /* status; for a bad request: the status to answer with */
	int minor;	       /* HTTP/1.minor */
	bool keep_alive, has_body, expects_continue;
	/*
	 * the head is the first line of HTTP/2 (RFC 9113, section 3.4), which is no request of
	 * HTTP/1: HTTP_BAD
	 */
	bool is_preface;
	uint64_t length; /* Content-Length, UINT64_MAX: not known */
	struct http_headers headers;
	uint64_t remaining;
	char line[64]; /* a line of the chunk framing */
	unsigned n_line, n_trailer;
	const char *piece; /* with HTTP_BODY: the next bytes of the body, one or more */
	size_t n_piece;
	const char *error; /* with HTTP_BAD: why the message is bad */
};

void http_msg_init(struct http_msg *m, bool is_request);
void http_msg_done(struct http_msg *m);
/*
 * Reads from *p at most *n bytes, and advances *p and *n by what it has read. Call it until it
 * returns HTTP_NEED_MORE, HTTP_DONE or HTTP_BAD.
 */
enum http_event http_msg_feed(struct http_msg *m, const char **p, size_t *n);
/* Called when the peer has closed the connection. Returns whether the message is complete. */
bool http_msg_ended_well(const struct http_msg *m);
