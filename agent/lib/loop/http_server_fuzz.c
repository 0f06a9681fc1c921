/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server with clients that send anything. The input is a script of connections, bytes of
 * requests in pieces, replies that are read or not, ends, and time. It also chooses whether the
 * handler answers now, later, or when the client has left. Each request that the handler got must
 * be answered once, or the server must call its on_gone. Nothing may be written after an end, no
 * body may be larger than its limit, and no memory may be lost. The connections of each of the two
 * peers must be counted.
 * Fuzzes: lib/loop/http_server.c, lib/loop/http_server_conn.c, lib/loop/http_server_reply.c,
 * lib/loop/http_server_request.c, lib/loop/http_server_room.c
 */
#include "lib/loop/fuzzserver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const pieces[] = {
	"GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n",
	"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n",
	"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
	"PUT /%41%2f HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 70\r\n\r\n",
	"HEAD http://h/x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: h\r\nOrigin: o\r\nAuthorization: b\r\n\r\n",
	"POST /big HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n",
	"GET x HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n",
	"hello",
	"5\r\nhello\r\n",
	"40\r\n0123456789012345678901234567890123456789012345678901234567890123\r\n",
	"0\r\n\r\n",
	"GET / HT",
	"TP/1.1\r\nHost: h\r\n\r\n",
};

static void step_piece(void)
{
	struct conn *c = choose();
	unsigned how = take(), which = take();
	const char *p = pieces[how % ARRAY_SIZE(pieces)], *q = pieces[which % ARRAY_SIZE(pieces)];
	_cleanup_free_ char *both = xasprintf("%s%s", p, how & 128 ? q : "");

	socket_give(c, both, strlen(both));
}

static void step(struct http_server *s)
{
	switch (take() % 8) {
	case 0:
		step_connect(s);
		break;
	case 1:
		step_literal();
		break;
	case 2:
	case 3:
		step_piece();
		break;
	case 4:
		step_take();
		break;
	case 5:
		step_end();
		break;
	case 6:
		answer(&owed[take() % 4]);
		break;
	default:
		step_time(s);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	fuzz_server(data, n, false, step);
	return 0;
}
