/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server with clients of HTTP/2 that send anything: frames of the input, requests, parts
 * of bodies, and answers that are read or not, with ends, resets and time. What must be true is
 * that of http_server_fuzz.c: each request that the handler got is answered once, or the server
 * calls its on_gone; nothing is written after an end, no body is larger than its limit, and no
 * memory is lost.
 * Fuzzes: lib/loop/http2_server.c, lib/loop/http2_stream.c, lib/loop/http_server_request.c
 */
#include "lib/loop/fuzzserver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Heads in HPACK (RFC 7541), from its static table and as literals. */
static const struct {
	const char *text;
	size_t n;
} heads[] = {
#define HEAD(s)                                                                                    \
	{                                                                                          \
		s, sizeof(s) - 1                                                                   \
	}
#define GET  "\x82\x86\x84\x01\x01h"
#define POST "\x83\x86\x84\x01\x01h"
	HEAD(GET),
	HEAD(POST),
	HEAD(POST "\x0f\x0d\x01"
		  "5"), /* content-length: 5 */
	HEAD(POST "\x0f\x0d\x03"
		  "999"),
	HEAD(POST "\x00\x06"
		  "expect\x0c"
		  "100-continue"),
	HEAD("\x02\x04HEAD\x86\x84\x01\x01h"),
	HEAD("\x82\x86\x04\x04/%00\x01\x01h"),
	HEAD("\x82\x86\x04\x01*\x01\x01h"),
	HEAD("\x82\x86\x04\x05/?a=b\x01\x01h\x0f\x08\x01t"), /* authorization: t */
	HEAD(GET "\x40\x01"
		 "a\x01"
		 "b\xbe\xbe\xbe"), /* from the dynamic table */
	HEAD(""),
};

static void give_frame(struct conn *c, unsigned type, unsigned flags, unsigned id, const void *p,
		       size_t n)
{
	uint8_t head[9] = {(uint8_t)(n >> 16),
			   (uint8_t)(n >> 8),
			   (uint8_t)n,
			   (uint8_t)type,
			   (uint8_t)flags,
			   0,
			   0,
			   0,
			   (uint8_t)id};
	struct buf b;

	buf_init(&b, 0);
	buf_add(&b, head, sizeof(head));
	buf_add(&b, p, n);
	socket_give(c, b.data, b.len);
	buf_done(&b);
}

static void step_preface(void)
{
	socket_give(choose(), NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
}

static void step_request(void)
{
	struct conn *c = choose();
	unsigned flags = take(), id = take(), k = take() % ARRAY_SIZE(heads);

	give_frame(c, NGHTTP2_HEADERS, flags & 64 ? flags : NGHTTP2_FLAG_END_HEADERS | (flags & 1),
		   id, heads[k].text, heads[k].n);
}

static void step_body(void)
{
	static const char zeros[300];
	struct conn *c = choose();
	unsigned flags = take(), id = take();

	give_frame(c, NGHTTP2_DATA, flags & 1, id, zeros, take());
}

/* A frame of any kind, with bytes of the input. */
static void step_frame(void)
{
	struct conn *c = choose();
	unsigned type = take(), flags = take(), id = take();
	size_t n = take();
	const uint8_t *p = in.data;

	n = MIN(n, in.n);
	in.data += n;
	in.n -= n;
	give_frame(c, type, flags, id, p, n);
}

static void step(struct http_server *s)
{
	switch (take() % 10) {
	case 0:
		step_connect(s);
		break;
	case 1:
		step_literal();
		break;
	case 2:
		step_preface();
		break;
	case 3:
		step_request();
		break;
	case 4:
		step_body();
		break;
	case 5:
		step_frame();
		break;
	case 6:
		step_take();
		break;
	case 7:
		step_end();
		break;
	case 8:
		answer(&owed[take() % 4]);
		break;
	default:
		step_time(s);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	fuzz_server(data, n, true, step);
	return 0;
}
