/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the ingest with any head and body. The first three bytes choose the head, the
 * sender's rights, and what the writer does. The rest is the body, which is read only if the head
 * is accepted. Each request must be answered exactly once, unless its sender has left. A refusal
 * must give its reason in the request's own form. Profiles answered with 200 must be of the
 * sender's node. The SQLite store must accept them, and must skip them all if they are written
 * again. The answer must say how many profiles were left out.
 * Fuzzes: hub/ingest/ingest.c, hub/ingest/judge.c, lib/otlp/decode.c, lib/otlp/decode_dict.c,
 * lib/otlp/decode_event.c, lib/otlp/decode_resource.c, lib/otlp/decode_sample.c,
 * lib/otlp/attr_names.c, lib/otlp/wire.c, lib/otlp/answer.c, hub/store/sqlite_write.c
 */
#include "hub/ingest/ingest.h"

#include <semaphore.h>
#include <stdlib.h>

#include "lib/loop/fuzzsocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct ingest *ingest;

/* ---- the hub's HTTP server and writers ---- */

static struct {
	struct loop *loop;
	struct http_server *server;
	struct worker *writer, *full_writer; /* full_writer refuses each job that has bytes */
	struct pods *pods;
} hub;

static void head_in(struct http_conn *c, const struct http_in *r, void *arg)
{
	(void)arg;
	ingest_http_head(c, r, ingest);
}

static void body_in(struct http_conn *c, const struct http_in *r, void *arg)
{
	(void)arg;
	ingest_http(c, r, ingest);
}

/* ---- an API server without a pod ---- */

static int watch_nothing(struct kube *k, const struct kube_watch_spec *s,
			 const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret);
static void free_nothing(struct kube_watch *w)
{
	(void)w;
}

static const struct kube_ops no_cluster = {.watch_new = watch_nothing, .watch_free = free_nothing};

static int watch_nothing(struct kube *k, const struct kube_watch_spec *s,
			 const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret)
{
	static struct kube_base w = {&no_cluster};

	(void)k, (void)s;
	*ret = (struct kube_watch *)&w;
	if (ops->synced)
		ops->synced(arg);
	return 0;
}

static void start_hub(void)
{
	static struct kube_base kube = {&no_cluster};
	const struct http_server_config c = {
		.address = "127.0.0.1", .head = head_in, .handler = body_in};

	check(loop_new(&hub.loop) == 0);
	check(pods_new(hub.loop, (struct kube *)&kube, &hub.pods) == 0);
	check(http_server_new_over(&socket_ops, hub.loop, &c, &hub.server, NULL) == 0);
	check(worker_new(hub.loop, "writer", 64 << 20, &hub.writer) == 0);
	check(worker_new(hub.loop, "full-writer", 0, &hub.full_writer) == 0);
}

static sem_t reached;

static void reach(struct job *j)
{
	(void)j;
	sem_post(&reached);
}

static void stop_loop(struct job *j)
{
	(void)j;
	loop_stop(hub.loop, 0);
}

/* Returns when the writer has run its jobs, and the loop has ended them. */
static void finish_jobs(struct worker *writer)
{
	struct job last = {.run = reach}, stop = {.done = stop_loop};

	sem_init(&reached, 0, 0);
	check(worker_post(writer, &last) == 0);
	while (sem_wait(&reached) < 0)
		; /* a signal of libFuzzer has interrupted the wait */
	loop_post(hub.loop, &stop);
	check(loop_run(hub.loop) == 0);
}

/* ---- the sender's side of the connection ---- */

static void connect_sender(void)
{
	const struct sockaddr_storage from = {.ss_family = AF_INET};

	http_conn_start(hub.server, -1, &from, false);
}

static void leave(void)
{
	conns->ops->closed(true, NULL, conns->arg);
	check(!conns);
}

static void send_head(const struct http_in *r)
{
	struct buf b = {0};

	buf_printf(&b, "%s %s HTTP/1.1\r\nHost: h\r\n", r->method, r->path);
	if (*r->content_type)
		buf_printf(&b, "Content-Type: %s\r\n", r->content_type);
	if (*r->content_encoding)
		buf_printf(&b, "Content-Encoding: %s\r\n", r->content_encoding);
	if (*r->authorization)
		buf_printf(&b, "Authorization: %s\r\n", r->authorization);
	if (r->content_length != UINT64_MAX)
		buf_printf(&b, "Content-Length: %zu\r\n\r\n", r->body_bytes);
	else
		buf_puts(&b, "Transfer-Encoding: chunked\r\n\r\n");
	socket_give(conns, b.data, b.len);
	buf_done(&b);
}

static void send_body(const struct http_in *r)
{
	struct buf b = {0};

	if (r->content_length != UINT64_MAX) {
		socket_give(conns, r->body, r->body_bytes);
		return;
	}
	buf_printf(&b, "%zx\r\n", r->body_bytes);
	buf_add(&b, r->body, r->body_bytes);
	buf_puts(&b, "\r\n0\r\n\r\n");
	socket_give(conns, b.data, b.len);
	buf_done(&b);
}

/*
 * Reads the one answer. Returns its status. *ret_n_rejected: how many profiles the hub left out
 * although it answered 200.
 */
static int read_answer(uint64_t *ret_n_rejected)
{
	_cleanup_(http_msg_done) struct http_msg m;
	_cleanup_buf_ struct buf body = {0};
	_cleanup_json_ json_t *text = NULL;
	const char *p = conns->out.data;
	size_t left = conns->out.len;
	enum http_event e;
	char why[64], reason[64];

	http_msg_init(&m, false);
	do {
		e = http_msg_feed(&m, &p, &left);
		check(e == HTTP_HEAD || e == HTTP_BODY || e == HTTP_DONE);
		if (e == HTTP_BODY)
			buf_add(&body, m.piece, m.n_piece);
	} while (e != HTTP_DONE);
	check(left == 0);
	if (m.status == 200) {
		*ret_n_rejected = otlp_rejected(body.data ?: "", body.len, why, sizeof(why));
		check(!*ret_n_rejected == !body.len && !*ret_n_rejected == !*why);
		check(str_equal(http_header(&m.headers, "Content-Type"), OTLP_CONTENT_TYPE));
		return m.status;
	}
	if (str_equal(http_header(&m.headers, "Content-Type"), OTLP_CONTENT_TYPE)) {
		otlp_status_read(body.data ?: "", body.len, why, sizeof(why), reason,
				 sizeof(reason));
		check(*why);
		return m.status;
	}
	text = json_loadb(body.data ?: "", body.len, 0, NULL);
	check(json_int_at(text, "code", 0) && *json_str_at(text, "message", ""));
	return m.status;
}

/* ---- the sender ---- */

static int auth_status;
static const char *auth_node;

static void auth(const char *authorization, const char *peer,
		 void (*done)(const struct ingest_sender *s, void *arg), void *done_arg, void *arg)
{
	(void)arg;
	check(*authorization && *peer);
	done(&(struct ingest_sender){.status = auth_status,
				     .error = auth_status == 200 ? NULL : "because",
				     .node = auth_node,
				     .hosts = true,
				     .agent = true},
	     done_arg);
}

/*
 * Checks that the profiles are of the sender's node, and writes them to SQLite twice. The second
 * write finds no new profile, because the store knows them.
 */
static void store_twice(const char *encoding, const uint8_t *body, size_t n, const char *node,
			uint64_t n_rejected)
{
	const struct store_config sc = {.kind = "sqlite", .path = ":memory:"};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_buf_ struct buf bytes = {0};
	struct store *s;
	size_t n_new;

	check(http_decompress(encoding, body, n, OTLP_MAX_BYTES, &bytes) == 0);
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
	struct http_in r = {.method = "POST"};
	struct ingest_config ic = {.cluster_name = "c", .any_node = n % 2};
	uint64_t n_rejected = 0;
	int status = 0;

	if (n < 3)
		return 0;
	if (!hub.loop)
		start_hub();
	r.path = paths[data[0] & 3];
	r.content_encoding = encodings[data[0] >> 2 & 3];
	r.content_type = types[data[0] >> 4 & 3];
	r.authorization = data[0] & 64 ? "" : "Bearer t";
	r.method = data[0] & 128 ? "GET" : "POST";
	auth_status = statuses[data[1] % ARRAY_SIZE(statuses)];
	auth_node = data[1] & 64 ? "n" : "";
	ic.auth = data[1] & 128 ? NULL : auth;
	ic.pods = hub.pods;
	ic.writer = data[2] == 1 ? hub.full_writer : hub.writer;
	r.body = (const char *)data + 3;
	r.body_bytes = n - 3;
	r.content_length = data[2] & 128 && n > 3 ? UINT64_MAX : n - 3;
	check(store_open(&sc, &ic.store, NULL) == 0);
	check(ingest_new(hub.loop, &ic, &ingest) == 0);
	connect_sender();
	send_head(&r);
	if (data[2] == 4 && n > 3 && conns->n_out == 0)
		leave();
	else if (n > 3 && conns->n_out == 0)
		send_body(&r);
	if (data[2] == 2 && conns && conns->n_out == 0)
		leave(); /* the sender leaves after the writer has received the body */
	if (data[2] == 3)
		ingest = ingest_free(ingest); /* the hub stops while the request waits */
	finish_jobs(ic.writer);
	if (conns) {
		status = read_answer(&n_rejected);
		leave();
	}
	if (status == 200 && data[1] & 32) /* not always: SQLite is slow */
		store_twice(r.content_encoding, data + 3, n - 3, ic.auth ? auth_node : "",
			    n_rejected);
	ingest = ingest_free(ingest);
	store_close(ic.store);
	return 0;
}
