/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: an HTTP message from outside. The first byte chooses a request or an answer. The
 * second byte chooses where the rest is cut into two parts. The body and the result must not depend
 * on the cut.
 * Fuzzes: lib/loop/http_parse.c
 */
#include "lib/loop/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct result {
	enum http_event last;
	struct buf body;
	size_t n_rest;
};

static enum http_event feed(struct http_msg *m, const char *p, size_t n, struct result *r)
{
	enum http_event e;

	do {
		e = http_msg_feed(m, &p, &n);
		if (e == HTTP_HEAD && m->is_request && (!m->method || !m->target))
			__builtin_trap();
		if (e == HTTP_BODY && !m->n_piece)
			__builtin_trap();
		if (e == HTTP_BODY)
			buf_add(&r->body, m->piece, m->n_piece);
	} while (e == HTTP_HEAD || e == HTTP_BODY);
	if (e == HTTP_BAD && (!m->error || (m->is_request && m->status < 400)))
		__builtin_trap();
	r->n_rest = n;
	return e;
}

static void parse(const char *p, size_t n, size_t cut, bool request, struct result *r)
{
	struct http_msg m;

	http_msg_init(&m, request);
	r->last = feed(&m, p, cut, r);
	if (r->last == HTTP_NEED_MORE)
		r->last = feed(&m, p + cut, n - cut, r);
	else
		r->n_rest += n - cut;
	http_msg_done(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct result whole = {0}, cut = {0};
	const char *text;

	if (n < 2)
		return 0;
	text = (const char *)p + 2;
	parse(text, n - 2, n - 2, p[0] & 1, &whole);
	parse(text, n - 2, MIN((size_t)p[1], n - 2), p[0] & 1, &cut);
	if (whole.last != cut.last || whole.body.len != cut.body.len ||
	    (whole.last != HTTP_BAD && whole.n_rest != cut.n_rest) ||
	    (whole.body.len && memcmp(whole.body.data, cut.body.data, whole.body.len) != 0))
		__builtin_trap();
	buf_done(&whole.body);
	buf_done(&cut.body);
	return 0;
}
