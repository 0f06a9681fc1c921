/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the ingest with any head and body. The first three bytes choose the head, the
 * sender's rights, and what the writer does. The rest is the body, which is read only if the head
 * is accepted. Each request must be answered exactly once, unless its sender has left. A refusal
 * must give its reason in JSON. Profiles answered with 200 must be of that sender; SQLite must take
 * them, and a second time none of them may be new. The answer must say how many profiles were left
 * out.
 * Fuzzes: hub/ingest/ingest.c, lib/otlp/decode.c, lib/otlp/decode_dict.c,
 * lib/otlp/decode_resource.c, lib/otlp/attr.c, lib/otlp/wire.c, lib/otlp/answer.c,
 * hub/store/sqlite_write.c
 */
#include "hub/ingest/ingest.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* ---- in the place of the HTTP server and the worker ---- */

struct http_conn {
	unsigned n_replies;
	int status;
	uint64_t n_rejected; /* of a 200 */
	bool gone, accepted;
	void (*on_gone)(void *arg);
	void *arg;
};
static bool writer_full, writer_late;
static struct job *queued;

void http_reply(struct http_conn *c, int status, const char *content_type,
		const char *const *headers, const void *body, size_t n)
{
	_cleanup_json_ json_t *text = NULL;
	char why[64];

	check(!c->gone && c->n_replies++ == 0);
	for (const char *const *h = headers; h && *h; h++)
		check(!strpbrk(*h, "\r\n"));
	c->status = status;
	if (status == 200) {
		c->n_rejected = otlp_rejected(body, n, why, sizeof(why));
		check(!c->n_rejected == !n && !c->n_rejected == !*why);
		check(streq(content_type, OTLP_CONTENT_TYPE));
		return;
	}
	text = json_loadb(body, n, 0, NULL);
	check(json_int_at(text, "code", 0) && *json_str_at(text, "message", ""));
}

void http_conn_on_gone(struct http_conn *c, void (*fn)(void *arg), void *arg)
{
	c->on_gone = fn;
	c->arg = arg;
}

void http_accept_body(struct http_conn *c, size_t max_body_bytes)
{
	check(!c->gone && !c->n_replies && !c->accepted && max_body_bytes == OTLP_MAX_BYTES);
	c->accepted = true;
}

int worker_post(struct worker *w, struct job *j)
{
	(void)w;
	if (writer_full)
		return -ENOBUFS;
	queued = j;
	return 0;
}

bool worker_is_current(const struct worker *w)
{
	(void)w;
	return true;
}

static void leave(struct http_conn *c)
{
	c->gone = true;
	c->on_gone(c->arg);
}

static void ask_head(struct ingest *i, struct http_conn *c, struct http_in in)
{
	in.body = "";
	in.body_bytes = 0;
	ingest_http_head(c, &in, i);
	check(c->accepted != (c->n_replies == 1));
}

static void run_queued(struct http_conn *c)
{
	struct job *j = TAKE_PTR(queued);

	if (!j)
		return;
	if (writer_late && !c->n_replies)
		leave(c);
	j->run(j);
	j->done(j);
}

/* ---- the sender ---- */

static int auth_status;
static const char *auth_node;

static void auth(const char *authorization,
		 void (*done)(int status, const char *node, const char *error, void *arg),
		 void *done_arg, void *arg)
{
	(void)arg;
	check(*authorization);
	done(auth_status, auth_node, auth_status == 200 ? NULL : "because", done_arg);
}

/* A sender may repeat stored profiles, and the store knows them. */
static void store_twice(const char *encoding, const uint8_t *body, size_t n, const char *node,
			uint64_t n_rejected)
{
	const struct store_config sc = {.kind = "sqlite", .path = ":memory:"};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_buf_ struct buf bytes = {0};
	struct store *s;
	size_t n_new;

	check(otlp_decompress(encoding, body, n, OTLP_MAX_BYTES, &bytes) == 0);
	check(otlp_decode(bytes.data ?: "", bytes.len, &b, NULL) == 0 &&
	      b->n_skipped == n_rejected);
	for (size_t i = 0; *node && i < b->n_profiles; i++)
		check(str_equal(profile_tag_get(b->profiles[i], "pod_node"), node));
	if (b->n_profiles == 0)
		return;
	check(store_open(&sc, &s, NULL) == 0);
	check(store_write(s, b, &n_new) == 0 && n_new <= b->n_profiles);
	check(store_write(s, b, &n_new) == 0 && n_new == 0);
	store_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const paths[] = {OTLP_PATH, OTLP_PATH, OTLP_PATH, "/x"};
	static const char *const encodings[] = {"", "gzip", "zstd", "br"};
	static const char *const types[] = {OTLP_CONTENT_TYPE, OTLP_CONTENT_TYPE "; a=b",
					    "application/json", ""};
	static const int statuses[] = {200, 200, 401, 403, 503, 500};
	const struct store_config sc = {.kind = "null"};
	struct http_conn c = {0};
	struct http_in in = {.method = "POST"};
	struct ingest_config ic = {0};
	struct ingest *i;

	if (n < 3)
		return 0;
	in.path = paths[data[0] & 3];
	in.content_encoding = encodings[data[0] >> 2 & 3];
	in.content_type = types[data[0] >> 4 & 3];
	in.authorization = data[0] & 64 ? "" : "Bearer t";
	in.method = data[0] & 128 ? "GET" : "POST";
	auth_status = statuses[data[1] % ARRAY_SIZE(statuses)];
	auth_node = data[1] & 64 ? "n" : "";
	ic.auth = data[1] & 128 ? NULL : auth;
	writer_full = data[2] == 1;
	writer_late = data[2] == 2;
	in.body = (const char *)data + 3;
	in.body_bytes = n - 3;
	check(store_open(&sc, &ic.store, NULL) == 0);
	check(ingest_new(NULL, &ic, &i) == 0);
	in.content_length = data[2] & 128 ? UINT64_MAX : n - 3;
	if (n == 3) {
		ingest_http(&c, &in, i);
	} else {
		ask_head(i, &c, in);
		if (c.accepted && data[2] == 4)
			leave(&c);
		else if (c.accepted)
			ingest_http(&c, &in, i);
	}
	if (data[2] == 3)
		i = ingest_free(i); /* the hub stops while the writer has it */
	run_queued(&c);
	check(c.gone ? c.n_replies == 0 : c.n_replies == 1);
	if (c.status == 200 && data[1] & 32) /* not always: SQLite is slow */
		store_twice(in.content_encoding, data + 3, n - 3, ic.auth ? auth_node : "",
			    c.n_rejected);
	ingest_free(i);
	store_close(ic.store);
	return 0;
}
