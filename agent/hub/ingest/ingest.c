/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the hub receives profiles. On the loop thread, this file checks the head of a request and
 * asks the API server about the sender. Only then does the hub read the body. The writer's worker
 * unpacks, checks and stores the body, and the loop thread answers. The hub answers 200 only when
 * the profiles are stored, so that the sender may forget them.
 */
#include "hub/ingest/ingest.h"

#include <stdlib.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

#define MAX_PENDING_BYTES (128u << 20) /* limit for the bytes of bodies that the hub has accepted */
#define WRITE_LIMIT_NS	  (10 * 60 * NSEC_PER_SEC)   /* if a write takes longer, /healthz fails */
#define MAX_AHEAD_NS	  (24 * 3600 * NSEC_PER_SEC) /* how far a profile may end in the future */
#define RETRY_AFTER	  "Retry-After: 5"

struct ingest {
	struct ingest_config config;
	unsigned n_pending; /* requests that still use this struct */
	size_t pending_bytes;
	struct ingest_request *coming; /* list of the requests whose bodies are being read */
	bool closed;
};

struct ingest_request {
	struct job job; /* must be the first member */
	struct ingest *ingest;
	struct ingest_request *next; /* the next one in ingest.coming */
	struct http_conn *conn;	     /* NULL: the client has closed the connection */
	char *encoding, *node;
	char *body; /* NULL: not read yet */
	size_t n;   /* length of body; until the body is read: bytes that are reserved for it */
	/* value of the header Content-Length; UINT64_MAX: there is no such header */
	uint64_t content_length;
	int status;
	char message[800];
	size_t n_skipped;	 /* profiles that the hub left out although it answers 200 */
	const char *skipped_for; /* why these profiles were left out */
};

/* ---- answering ---- */

/* Returns the google.rpc.Code for an HTTP status. OTLP clients read it in the answer's body. */
static int rpc_code(int status)
{
	switch (status) {
	case 401:
		return 16; /* UNAUTHENTICATED */
	case 403:
		return 7; /* PERMISSION_DENIED */
	case 413:
		return 8; /* RESOURCE_EXHAUSTED */
	case 404:
	case 405:
		return 12; /* UNIMPLEMENTED */
	case 400:
	case 415:
	case 422:
		return 3; /* INVALID_ARGUMENT */
	default:
		return 14; /* UNAVAILABLE */
	}
}

static const char *header_of(int status)
{
	switch (status) {
	case 401:
		return "WWW-Authenticate: Bearer";
	case 405:
		return "Allow: POST";
	case 415:
		return "Accept-Encoding: zstd, gzip";
	case 503:
		return RETRY_AFTER;
	default:
		return NULL;
	}
}

static void count_answer(int status)
{
	char code[12];

	snprintf(code, sizeof(code), "%d", status);
	counter_add(counter("podflame_ingest_requests_total", "code", code), 1);
}

static void accept_request(struct ingest_request *q)
{
	_cleanup_buf_ struct buf b = {0};

	count_answer(200);
	otlp_answer(q->n_skipped, q->skipped_for, &b);
	http_reply(q->conn, 200, OTLP_CONTENT_TYPE, NULL, b.data ? b.data : "", b.len);
}

static void refuse(struct http_conn *c, int status, const char *message)
{
	const char *headers[] = {header_of(status), NULL};
	_cleanup_buf_ struct buf b = {0};

	count_answer(status);
	buf_printf(&b, "{\"code\":%d,\"message\":", rpc_code(status));
	buf_json_string(&b, message);
	buf_puts(&b, "}\n");
	http_reply(c, status, "application/json", headers, b.data, b.len);
}

static void _printf_(3, 4) verdict(struct ingest_request *q, int status, const char *fmt, ...)
{
	va_list ap;

	q->status = status;
	va_start(ap, fmt);
	vsnprintf(q->message, sizeof(q->message), fmt, ap);
	va_end(ap);
}

static void ingest_destroy(struct ingest *i)
{
	free(i);
}

static void request_end(struct ingest_request *q)
{
	struct ingest *i = q->ingest;

	if (q->conn && q->status == 200)
		accept_request(q);
	else if (q->conn)
		refuse(q->conn, q->status, q->message);
	i->pending_bytes -= q->n;
	i->n_pending--;
	free(q->encoding);
	free(q->node);
	free(q->body);
	free(q);
	if (i->closed && i->n_pending == 0)
		ingest_destroy(i);
}

/* ---- on the writer ---- */

/*
 * Returns the node of the first profile that is not of this node ("": that profile names no node);
 * NULL: all profiles are of this node. An agent may only send profiles of its own node.
 */
static const char *foreign_node(const struct batch *b, const char *node)
{
	for (size_t i = 0; i < b->n_profiles; i++) {
		const char *said = profile_tag_get(b->profiles[i], "pod_node");

		if (!str_equal(said, node))
			return said ? said : "";
	}
	return NULL;
}

/*
 * Returns the latest end of a profile, CLOCK_REALTIME. The caller refuses an end that is far in the
 * future: the store would keep such a profile longer than all profiles that come after it.
 */
static uint64_t latest_ns(const struct batch *b)
{
	uint64_t latest = 0;

	for (size_t i = 0; i < b->n_profiles; i++)
		latest = MAX(latest, b->profiles[i]->end_ns);
	return latest;
}

static void store(struct ingest_request *q, const struct batch *b)
{
	const char *foreign = *q->node ? foreign_node(b, q->node) : NULL;
	uint64_t latest = latest_ns(b), now = now_wall_ns();
	size_t n_new;
	int r;

	worker_assert(q->ingest->config.writer);
	if (foreign) {
		/*
		 * Not 403: a sender that gets 403 waits for somebody to give it a right. The hub
		 * will never take these profiles.
		 */
		verdict(q, 422,
			"k8s.node.name: the token is of node \"%.100s\", a profile of \"%.100s\"",
			q->node, foreign);
		return;
	}
	if (latest > now + MAX_AHEAD_NS) {
		verdict(q, 422,
			"time_unix_nano: a profile ends %llu s ahead of the hub's clock: one of "
			"the two clocks is wrong",
			(unsigned long long)((latest - now) / NSEC_PER_SEC));
		return;
	}
	r = store_write(q->ingest->config.store, b, &n_new);
	if (r < 0) {
		verdict(q, 503, "the store failed: %s", strerror(-r));
		return;
	}
	q->status = 200;
	q->n_skipped = b->n_skipped;
	q->skipped_for = b->skipped_for;
}

/* Unpacks and decodes the body. On an error, sets the verdict and returns NULL. */
static struct batch *decode(struct ingest_request *q)
{
	_cleanup_buf_ struct buf bytes = {0};
	struct field_error err = {0};
	struct batch *b = NULL;
	_stage_("decode");
	int r = otlp_decompress(q->encoding, q->body, q->n, OTLP_MAX_BYTES, &bytes);

	if (r == -E2BIG)
		verdict(q, 413, "body: more than %u bytes when unpacked", OTLP_MAX_BYTES);
	else if (r < 0)
		verdict(q, 400, "body: cannot be unpacked as Content-Encoding \"%.60s\"",
			q->encoding);
	if (r < 0)
		return NULL;
	r = otlp_decode(bytes.data ? bytes.data : "", bytes.len, &b, &err);
	if (r < 0)
		verdict(q, r == -E2BIG ? 413 : 400, "%s: %s", err.path, err.reason);
	return b;
}

static void request_run(struct job *job)
{
	struct ingest_request *q = (struct ingest_request *)job;
	_cleanup_(profile_batch_freep) struct batch *b = decode(q);

	if (b)
		store(q, b);
}

/* ---- on the loop ---- */

static void request_done(struct job *job)
{
	request_end((struct ingest_request *)job);
}

static void peer_gone(void *arg)
{
	struct ingest_request *q = arg;

	/*
	 * The hub stores the profiles all the same. If the sender sends them again, the store skips
	 * them.
	 */
	q->conn = NULL;
}

static bool is_protobuf(const char *type)
{
	size_t n = strcspn(type, "; ");

	return n == strlen(OTLP_CONTENT_TYPE) && strncasecmp(type, OTLP_CONTENT_TYPE, n) == 0;
}

static void end_as(struct ingest_request *q, int status, const char *message)
{
	verdict(q, status, "%s", message);
	request_end(q);
}

static void set_bytes(struct ingest_request *q, size_t n)
{
	q->ingest->pending_bytes -= q->n;
	q->ingest->pending_bytes += n;
	q->n = n;
}

static void write_body(struct ingest_request *q)
{
	q->job = (struct job){.run = request_run,
			      .done = request_done,
			      .n_bytes = q->n,
			      .deadline_ns = WRITE_LIMIT_NS};
	if (worker_post(q->ingest->config.writer, &q->job) < 0)
		end_as(q, 503, "too many profiles wait for the store");
}

static void body_lost(void *arg)
{
	struct ingest_request *q = arg;

	LL_DELETE(q->ingest->coming, q);
	q->conn = NULL;
	request_end(q);
}

/*
 * Reserves the announced length in pending_bytes, so that all accepted bodies together stay within
 * the limit. Then lets the HTTP server read the body.
 */
static void read_body(struct ingest_request *q)
{
	struct ingest *i = q->ingest;
	size_t n = MIN(q->content_length, (uint64_t)OTLP_MAX_BYTES);

	if (n > MAX_PENDING_BYTES - i->pending_bytes) {
		end_as(q, 503, "too many requests at once");
		return;
	}
	set_bytes(q, n);
	LL_PREPEND(i->coming, q);
	http_conn_on_gone(q->conn, body_lost, q);
	http_accept_body(q->conn, OTLP_MAX_BYTES); /* http_accept_body() may free q */
}

/* Continues a request whose sender may send profiles: stores the body, or reads it first. */
static void go_on(struct ingest_request *q)
{
	if (q->ingest->closed)
		end_as(q, 503, "the hub is stopping");
	else if (q->body)
		write_body(q);
	else if (q->conn)
		read_body(q);
	else
		request_end(q);
}

static void sender_checked(int status, const char *node, const char *error, void *arg)
{
	struct ingest_request *q = arg;

	if (status != 200) {
		end_as(q, status == 403 || status == 503 ? status : 401,
		       error && *error ? error : "the bearer token is not accepted");
		return;
	}
	q->node = xstrdup(node ? node : "");
	go_on(q);
}

/* Checks the head of a request. Returns the HTTP status of the refusal, or 0. */
static int judge_head(const struct ingest *i, const struct http_in *in, char *why, size_t n_why)
{
	if (!streq(in->path, OTLP_PATH)) {
		snprintf(why, n_why, "only " OTLP_PATH " is here");
		return 404;
	}
	if (!streq(in->method, "POST")) {
		snprintf(why, n_why, "only POST");
		return 405;
	}
	if (i->config.auth && !*in->authorization) {
		snprintf(why, n_why, "no bearer token");
		return 401;
	}
	if (!is_protobuf(in->content_type)) {
		snprintf(why, n_why, "Content-Type: \"%.100s\" is not " OTLP_CONTENT_TYPE,
			 in->content_type);
		return 415;
	}
	if (!otlp_knows_encoding(in->content_encoding)) {
		snprintf(why, n_why,
			 "Content-Encoding: \"%.60s\" is not one of zstd, gzip, identity",
			 in->content_encoding);
		return 415;
	}
	if (in->content_length != UINT64_MAX && in->content_length > OTLP_MAX_BYTES) {
		snprintf(why, n_why, "body: more than %u bytes", OTLP_MAX_BYTES);
		return 413;
	}
	return 0;
}

/* Makes a request from its head. If the head is wrong, answers the refusal and returns NULL. */
static struct ingest_request *request_new(struct ingest *i, struct http_conn *c,
					  const struct http_in *in)
{
	struct ingest_request *q;
	char why[200];
	int status = judge_head(i, in, why, sizeof(why));

	if (status) {
		refuse(c, status, why);
		return NULL;
	}
	q = xcalloc(1, sizeof(*q));
	q->ingest = i;
	q->conn = c;
	q->encoding = xstrdup(in->content_encoding);
	q->content_length = in->content_length;
	i->n_pending++;
	http_conn_on_gone(c, peer_gone, q);
	return q;
}

static void check_sender(struct ingest_request *q, const char *authorization)
{
	const struct ingest_config *c = &q->ingest->config;

	if (c->auth)
		c->auth(authorization, sender_checked, q, c->auth_arg);
	else
		sender_checked(200, "", NULL, q);
}

void ingest_http_head(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct ingest_request *q = request_new(arg, c, in);

	if (q)
		check_sender(q, in->authorization);
}

static void take_body(struct ingest_request *q, const struct http_in *in)
{
	set_bytes(q, in->body_bytes);
	q->body = xmemdup(in->body_bytes ? in->body : "", MAX(in->body_bytes, (size_t)1));
	http_conn_on_gone(q->conn, peer_gone, q);
}

void ingest_http(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct ingest *i = arg;
	struct ingest_request *q;

	LL_SEARCH_SCALAR(i->coming, q, conn, c);
	if (q) {
		LL_DELETE(i->coming, q);
		take_body(q, in);
		go_on(q);
		return;
	}
	q = request_new(i, c, in); /* a request without a body: its head has not been checked yet */
	if (q) {
		take_body(q, in);
		check_sender(q, in->authorization);
	}
}

/* ---- without HTTP ---- */

struct write_job {
	struct job job; /* must be the first member */
	struct store *store;
	const struct batch *batch;
	int fd, r;
};

/*
 * The job is on the stack of write_and_wait. So this function does not use it after the write to
 * fd.
 */
static void write_run(struct job *job)
{
	struct write_job *w = (struct write_job *)job;
	uint64_t one = 1;
	size_t n_new;
	int fd = w->fd;

	w->r = store_write(w->store, w->batch, &n_new);
	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static int write_and_wait(struct ingest *i, const struct batch *b)
{
	_cleanup_close_ int fd = eventfd(0, EFD_CLOEXEC);
	struct write_job w = {.job.run = write_run, .store = i->config.store, .batch = b, .fd = fd};
	uint64_t value;

	assert_se(!worker_is_current(i->config.writer)); /* else the worker would wait for itself */
	if (fd < 0)
		return -errno;
	if (worker_post(i->config.writer, &w.job) < 0)
		return -EAGAIN;
	while (read(fd, &value, sizeof(value)) < 0 && errno == EINTR)
		;
	return w.r;
}

int ingest_bytes(struct ingest *i, const void *body, size_t n)
{
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	int r = otlp_decode(body, n, &b, NULL);

	return r < 0 ? r : write_and_wait(i, b);
}

int ingest_new(struct loop *l, const struct ingest_config *c, struct ingest **ret)
{
	(void)l;
	*ret = xcalloc(1, sizeof(**ret));
	(*ret)->config = *c;
	return 0;
}

struct ingest *ingest_free(struct ingest *i)
{
	if (!i)
		return NULL;
	i->closed = true;
	if (i->n_pending == 0)
		ingest_destroy(i);
	return NULL;
}
