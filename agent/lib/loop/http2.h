/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to http2_server.c (a connection: frames, limits, the end) and http2_stream.c (a stream,
 * which is a request and its answer). nghttp2 does the framing.
 */
#pragma once

#include "lib/loop/http_server_private.h"

#include <nghttp2/nghttp2.h>

#define HTTP2_MAX_STREAMS     32	  /* requests of a connection at a time */
#define HTTP2_MAX_HEADS_BYTES (256 << 10) /* of the heads of all requests of a connection */
#define HTTP2_STREAM_WINDOW   (64 << 10)  /* bytes of a body before it is accepted */
#define HTTP2_MAX_WAITING     (32u << 20) /* such bytes of all connections; each peer has a share */
#define HTTP2_ACCEPTED_WINDOW (256 << 10) /* bytes on their way of an accepted body */
/* of all bodies together: however many streams wait, those that are accepted have room */
#define HTTP2_CONNECTION_WINDOW (HTTP2_MAX_STREAMS * HTTP2_STREAM_WINDOW + HTTP2_ACCEPTED_WINDOW)

struct http2_count { /* events of the last few seconds */
	unsigned n;
	uint64_t begun_ns;
};

struct http2 {
	struct http_conn *conn; /* of the whole connection */
	nghttp2_session *session;
	struct http2_stream *streams; /* also those whose answer is being written to the socket */
	size_t heads_bytes;
	int32_t last_id;     /* the newest stream */
	bool busy;	     /* nghttp2 runs, so it must not be asked for what is to be sent */
	bool writing;	     /* the socket has not taken yet what was written last */
	uint64_t writing_ns; /* since when */
	bool ending, broken;
	struct http2_count resets, control;
};

struct http2_stream {
	struct http_conn c; /* must be the first member */
	struct http2 *http2;
	int32_t id;
	unsigned n_fields; /* of the head, with those of the request line */
	bool ended;	   /* the whole request has come */
	bool closed;	   /* nghttp2 has forgotten it; the socket may still have to take its end */
	bool waits;	   /* the head is given to the handler with the prefix of gRPC's message */
	/* the head is refused: with this status, and for this reason */
	int refused;
	const char *why;
	struct buf out; /* the body of the answer */
	size_t out_off;
	bool whole;	     /* `out` has the end of the body */
	struct buf trailers; /* as the fields in c.msg.head */
	uint64_t read_ns, written_ns;
	struct http2_stream *prev, *next;
};

/* ---- http2_server.c ---- */
/* Writes what is to be sent, as far as the socket takes it now. */
void http2_flush(struct http2 *h);

/* ---- http2_stream.c ---- */
struct http2_stream *http2_stream_new(struct http2 *h, int32_t id);
/* A field of the head. */
void http2_stream_field(struct http2_stream *s, const uint8_t *name, size_t n_name,
			const uint8_t *value, size_t n_value);
/* The head is complete. ended: the request has no body. */
void http2_stream_head(struct http2_stream *s, bool ended);
void http2_stream_data(struct http2_stream *s, const uint8_t *p, size_t n);
/* The request is complete. */
void http2_stream_end(struct http2_stream *s);
/* Whether the handler waits for that nghttp2 takes a piece of the answer, and it has. */
bool http2_stream_is_taken(const struct http2_stream *s);
/* nghttp2 forgets the stream: it has ended on both sides, or was reset. May free s. */
void http2_stream_close(struct http2_stream *s);
