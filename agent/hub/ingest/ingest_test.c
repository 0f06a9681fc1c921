/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends requests over HTTP to a store that only counts profiles. Checks what is stored and, if
 * nothing is stored, what the answer says.
 */
#include "hub/ingest/ingest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct world {
	struct loop *loop;
	struct worker *writer;
	struct store *store;
	struct ingest *ingest;
	struct http_server *server;
	struct http_client *client;
	struct timer guard;
	/* the request */
	const char *method, *path, *type, *encoding, *authorization;
	/* changes to the times of the profile that one_profile makes */
	uint64_t ahead_ns, longer_ns;
	/* the answer */
	int status;
	char body[1024], retry_after[16], authenticate[32], accept[32];
	/* the result of auth */
	int auth_status;
	const char *auth_node, *auth_cluster;
	bool no_hosts; /* the sender has no right to send profiles of no namespace */
	bool any_node; /* a setting of the hub */
	/*
	 * auth_late: auth does not call done; the test calls it later. until_body: the loop stops
	 * when the body has arrived
	 */
	bool auth_late, until_body;
	struct {
		void (*done)(const struct ingest_sender *s, void *arg);
		void *arg;
	} asked;
	/* for ingest_bytes, which `podflame local` uses */
	struct job local;
	struct buf *local_body;
	int local_result;
};

/* ---- the hub ---- */

static void auth(const char *authorization, const char *peer,
		 void (*done)(const struct ingest_sender *s, void *arg), void *done_arg, void *arg)
{
	struct world *w = arg;

	assert_string_equal(authorization, "Bearer t");
	assert_string_equal(peer, "127.0.0.1");
	if (w->auth_late) {
		w->asked.done = done;
		w->asked.arg = done_arg;
		loop_stop(w->loop, 0);
		return;
	}
	done(&(struct ingest_sender){.status = w->auth_status,
				     .error = w->auth_status == 200 ? "" : "because",
				     .node = w->auth_node,
				     .hosts = !w->no_hosts,
				     .agent = true,
				     .cluster = w->auth_cluster},
	     done_arg);
}

static void answer(struct world *w, int status, const char *node)
{
	w->asked.done(
		&(struct ingest_sender){
			.status = status, .error = "", .node = node, .hosts = true, .agent = true},
		w->asked.arg);
}

static void head_in(struct http_conn *c, const struct http_in *in, void *arg)
{
	ingest_http_head(c, in, ((struct world *)arg)->ingest);
}

static void body_in(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct world *w = arg;

	ingest_http(c, in, w->ingest);
	if (w->until_body)
		loop_stop(w->loop, 0);
}

static void start(struct world *w, bool with_auth, size_t writer_bytes)
{
	const struct store_config sc = {.kind = "null"};
	struct ingest_config ic = {.auth = with_auth ? auth : NULL,
				   .auth_arg = w,
				   .cluster_name = "c1",
				   .any_node = w->any_node};
	struct http_server_config hc = {.address = "127.0.0.1",
					.max_body_bytes = OTLP_MAX_BYTES,
					.head = head_in,
					.handler = body_in};
	struct http_client_config cc = {.address = "127.0.0.1"};

	assert_int_equal(store_open(&sc, &w->store, NULL), 0);
	assert_int_equal(worker_new(w->loop, "writer", writer_bytes, &w->writer), 0);
	ic.store = w->store;
	ic.writer = w->writer;
	assert_int_equal(ingest_new(w->loop, &ic, &w->ingest), 0);
	hc.arg = w;
	assert_int_equal(http_server_new(w->loop, &hc, &w->server, NULL), 0);
	cc.port = http_server_port(w->server);
	assert_int_equal(http_client_new(w->loop, &cc, &w->client), 0);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));

	assert_int_equal(loop_new(&w->loop), 0);
	w->method = "POST";
	w->path = OTLP_PATH;
	w->type = OTLP_CONTENT_TYPE;
	w->encoding = "zstd";
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	http_client_free(w->client);
	http_server_free(w->server);
	worker_free(w->writer);
	ingest_free(w->ingest);
	timer_cancel(&w->guard);
	loop_free(w->loop);
	store_close(w->store);
	free(w);
	return 0;
}

/* ---- the sender ---- */

static struct batch *one_profile(const char *node)
{
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);

	p->id[0] = 1;
	p->start_ns = 1763700000 * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	if (node)
		profile_tag(b, p, "pod_node", node);
	profile_add(b, p)->value = 1;
	return b;
}

static void encode(const struct world *w, const char *node, bool compress, struct buf *out)
{
	_cleanup_(profile_batch_freep) struct batch *b = one_profile(node);
	_cleanup_buf_ struct buf bytes = {0};

	b->profiles[0]->start_ns += w->ahead_ns;
	b->profiles[0]->end_ns += w->ahead_ns + w->longer_ns;
	assert_int_equal(otlp_encode(b, &bytes), 0);
	if (compress)
		assert_int_equal(http_compress(bytes.data, bytes.len, out), 0);
	else
		buf_add(out, bytes.data, bytes.len);
}

static void on_head(int status, const struct http_headers *h, void *arg)
{
	const char *names[] = {"Retry-After", "WWW-Authenticate", "Accept-Encoding"};
	struct world *w = arg;
	char *to[] = {w->retry_after, w->authenticate, w->accept};
	size_t sizes[] = {sizeof(w->retry_after), sizeof(w->authenticate), sizeof(w->accept)};

	(void)status;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = http_header(h, names[i]);

		snprintf(to[i], sizes[i], "%s", value ? value : "");
	}
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct world *w = arg;

	if (!status)
		print_message("no answer: %s\n", error);
	w->status = status;
	snprintf(w->body, sizeof(w->body), "%.*s", (int)n, body ? body : "");
	loop_stop(w->loop, 0);
}

static void guard(void *arg)
{
	loop_stop(((struct world *)arg)->loop, 1);
}

static void run(struct world *w)
{
	timer_set(w->loop, &w->guard, 300 * NSEC_PER_SEC, guard, w);
	assert_int_equal(loop_run(w->loop), 0);
}

static void send(struct world *w, const void *body, size_t n)
{
	_cleanup_free_ char *type = xasprintf("Content-Type: %s", w->type);
	_cleanup_free_ char *encoding = xasprintf("Content-Encoding: %s", w->encoding);
	_cleanup_free_ char *authorization =
		w->authorization ? xasprintf("Authorization: %s", w->authorization) : NULL;
	const char *headers[] = {type, encoding, authorization, NULL};
	const struct http_request r = {.method = w->method,
				       .path = w->path,
				       .headers = headers,
				       .body = body,
				       .body_bytes = n,
				       /* long, for large bodies on a slow machine */
				       .timeout_ns = 900 * NSEC_PER_SEC,
				       .on_head = on_head,
				       .on_done = on_done,
				       .arg = w};
	struct http_call *call;

	assert_int_equal(http_send(w->client, &r, &call), 0);
	run(w);
}

static void post(struct world *w, const char *node)
{
	_cleanup_buf_ struct buf body = {0};

	encode(w, node, streq(w->encoding, "zstd"), &body);
	send(w, body.data, body.len);
}

static void post_gzip(struct world *w)
{
	_cleanup_buf_ struct buf body = {0}, packed = {0};

	encode(w, "node-a", false, &body);
	assert_int_equal(buf_add_gzip(&packed, body.data, body.len, 9), 0);
	w->encoding = "gzip";
	send(w, packed.data, packed.len);
}

static uint64_t n_stored(struct world *w)
{
	struct store_stats st;

	store_stats(w->store, &st);
	return st.n_profiles;
}

/* The body is a google.rpc.Status: its message begins so, and it has this reason ("": none). */
static void assert_refusal(const struct world *w, const char *message, const char *reason)
{
	char said[512], why[64];

	otlp_status_read(w->body, strlen(w->body), said, sizeof(said), why, sizeof(why));
	if (!str_has_prefix(said, message))
		fail_msg("\"%s\" does not begin with \"%s\"", said, message);
	assert_string_equal(why, reason);
}

/* ---- tests ---- */

static void test_stores(void **state)
{
	struct world *w = *state;

	start(w, false, 1 << 20);
	post(w, "node-a");
	assert_int_equal(w->status, 200);
	assert_string_equal(w->body, ""); /* an empty ExportProfilesServiceResponse */
	assert_int_equal(n_stored(w), 1);
	w->encoding = "identity";
	w->type = "application/x-protobuf; charset=utf-8";
	post(w, "node-a");
	assert_int_equal(w->status, 200);
	assert_int_equal(n_stored(w), 2);
	post_gzip(w);
	assert_int_equal(w->status, 200);
	assert_int_equal(n_stored(w), 3);
}

static void test_refuses(void **state)
{
	struct world *w = *state;

	start(w, false, 1 << 20);
	w->type = "text/plain";
	post(w, NULL);
	assert_int_equal(w->status, 415);
	assert_non_null(strstr(w->body, "Content-Type: \\\"text/plain\\\""));
	w->type = OTLP_CONTENT_TYPE;
	w->encoding = "br";
	post(w, NULL);
	assert_int_equal(w->status, 415);
	assert_string_equal(w->accept, "zstd, gzip");
	w->encoding = "zstd";
	send(w, "garbage", 7);
	assert_int_equal(w->status, 400);
	w->encoding = "identity";
	send(w, "\x0a\x02\x12\x63", 4); /* resource_profiles { scope_profiles: 99 bytes */
	assert_int_equal(w->status, 400);
	assert_refusal(
		w, "resource_profiles[0].scope_profiles[0]: runs past the end of its message", "");
	w->path = "/v1/traces";
	post(w, NULL);
	assert_int_equal(w->status, 404);
	w->path = OTLP_PATH;
	w->method = "PUT";
	post(w, NULL);
	assert_int_equal(w->status, 405);
	assert_int_equal(n_stored(w), 0);
}

/* The same by JSON, with answers and refusals in JSON. */
static void test_json(void **state)
{
	static const char one[] =
		"{\"resourceProfiles\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\","
		"\"value\":{\"stringValue\":\"web\"}}]},\"scopeProfiles\":[{\"profiles\":[{"
		"\"sampleType\":{\"typeStrindex\":1,\"unitStrindex\":2},\"timeUnixNano\":"
		"\"1763700000000000000\",\"durationNano\":\"10000000000\",\"samples\":[{"
		"\"stackIndex\":0,\"values\":[\"5\"]}]}]}]}],\"dictionary\":{\"stringTable\":[\"\","
		"\"on_cpu\",\"microseconds\"],\"stackTable\":[{}]}}";
	struct world *w = *state;
	_cleanup_free_ char *other = xstrdup(one);

	start(w, false, 1 << 20);
	w->type = "application/json; charset=utf-8";
	w->encoding = "identity";
	send(w, one, strlen(one));
	assert_int_equal(w->status, 200);
	assert_string_equal(w->body, "{}");
	assert_int_equal(n_stored(w), 1);
	*strstr(other, "on_cpu") = 'x';
	send(w, other, strlen(other));
	assert_int_equal(w->status, 200);
	assert_string_equal(w->body, "{\"partialSuccess\":{\"rejectedProfiles\":\"1\","
				     "\"errorMessage\":\"unsupported_event\"}}");
	send(w, one, strlen(one) - 1);
	assert_int_equal(w->status, 400);
	assert_non_null(strstr(w->body, "{\"code\":3,\"message\":\"body: byte "));
	assert_int_equal(n_stored(w), 1);
}

static void test_bomb(void **state)
{
	struct world *w = *state;
	size_t n = OTLP_MAX_BYTES + 1;
	_cleanup_free_ char *zeros = xcalloc(n, 1);
	_cleanup_buf_ struct buf body = {0};

	start(w, false, 1 << 20);
	assert_int_equal(http_compress(zeros, n, &body), 0);
	send(w, body.data, body.len);
	assert_int_equal(w->status, 413);
}

static void test_empty_body_is_an_empty_request(void **state)
{
	struct world *w = *state;

	start(w, false, 1 << 20);
	w->encoding = "identity";
	send(w, NULL, 0);
	assert_int_equal(w->status, 200);
}

static void test_sender_is_checked(void **state)
{
	struct world *w = *state;

	start(w, true, 1 << 20);
	post(w, "node-a");
	assert_int_equal(w->status, 401);
	assert_string_equal(w->authenticate, "Bearer");
	w->authorization = "Bearer t";
	w->auth_status = 401;
	post(w, "node-a");
	assert_int_equal(w->status, 401);
	assert_non_null(strstr(w->body, "because"));
	w->auth_status = 403;
	post(w, "node-a");
	assert_int_equal(w->status, 403);
	w->auth_status = 503; /* the API server is away: not the sender's fault */
	post(w, "node-a");
	assert_int_equal(w->status, 503);
	assert_int_equal(n_stored(w), 0);
	w->auth_status = 200;
	w->auth_node = "";
	post(w, "node-a");
	assert_int_equal(w->status, 403);
	assert_non_null(strstr(w->body, "the token names no node"));
	assert_int_equal(n_stored(w), 0);
}

/* On Kubernetes before 1.30, whose tokens name no node, a setting lets agents send. */
static void test_token_without_a_node(void **state)
{
	struct world *w = *state;

	w->any_node = true;
	start(w, true, 1 << 20);
	w->authorization = "Bearer t";
	w->auth_status = 200;
	w->auth_node = "";
	post(w, "node-a");
	assert_int_equal(w->status, 200);
	assert_int_equal(n_stored(w), 1);
}

/* The hub of another cluster has no node, and speaks for all nodes of that cluster. */
static void test_hub_of_another_cluster(void **state)
{
	struct world *w = *state;

	start(w, true, 1 << 20);
	w->authorization = "Bearer t";
	w->auth_status = 200;
	w->auth_node = "";
	w->auth_cluster = "prod";
	post(w, "node-a");
	assert_int_equal(w->status, 200);
	post(w, "node-b");
	assert_int_equal(w->status, 200);
	assert_int_equal(n_stored(w), 2);
}

static void test_agent_speaks_for_its_node(void **state)
{
	struct world *w = *state;

	start(w, true, 1 << 20);
	w->authorization = "Bearer t";
	w->auth_status = 200;
	w->auth_node = "node-a";
	/*
	 * The answer is 422, so that an agent whose node was renamed drops the profiles with the
	 * old name. After 403 it would send them again for ever.
	 */
	post(w, "node-b");
	assert_int_equal(w->status, 422);
	assert_non_null(strstr(w->body, "k8s.node.name"));
	post(w, NULL);
	assert_int_equal(w->status, 422);
	assert_int_equal(n_stored(w), 0);
	post(w, "node-a");
	assert_int_equal(w->status, 200);
}

static void test_profiles_that_are_skipped_are_told(void **state)
{
	_cleanup_buf_ struct buf body = {0};
	struct world *w = *state;
	char why[100];

	start(w, false, 1 << 20);
	encode(w, "node-a", false, &body);
	for (char *at = body.data;
	     (at = memmem(at, (size_t)(body.data + body.len - at), "on-cpu", 6));)
		*at = 'x'; /* an event that only a later version knows */
	w->encoding = "identity";
	send(w, body.data, body.len);
	assert_int_equal(w->status, 200);
	assert_int_equal(otlp_rejected(w->body, strlen(w->body), why, sizeof(why)), 1);
	assert_string_equal(why, "unsupported_event");
	assert_int_equal(n_stored(w), 0);
}

/* Each request counts what the hub refuses of it, when it is answered with 200. */
static void test_refused_profiles_count(void **state)
{
	struct counter *refused =
		counter("podflame_ingest_profiles_refused_total", "reason", OTLP_NO_HOSTS);
	uint64_t before = counter_get(refused);
	struct world *w = *state;

	start(w, true, 1 << 20);
	w->authorization = "Bearer t";
	w->auth_status = 200;
	w->auth_node = "node-a";
	w->no_hosts = true;
	post(w, "node-b");
	assert_int_equal(w->status, 422);
	assert_int_equal(counter_get(refused), before);
	post(w, "node-a");
	assert_int_equal(w->status, 200);
	assert_int_equal(n_stored(w), 0);
	assert_int_equal(counter_get(refused), before + 1);
}

static void test_far_ahead_of_the_clock(void **state)
{
	struct world *w = *state;
	uint64_t begin = 1763700000 * NSEC_PER_SEC;

	start(w, true, 1 << 20);
	w->authorization = "Bearer t";
	w->auth_status = 200;
	w->auth_node = "node-a";
	w->ahead_ns = now_wall_ns() - begin + 200 * NSEC_PER_SEC; /* the window is 10 s */
	post(w, "node-a");
	assert_int_equal(w->status, 200);
	w->ahead_ns += 1000 * NSEC_PER_SEC;
	post(w, "node-a");
	assert_int_equal(w->status, 422);
	assert_refusal(w, "time_unix_nano: a profile ends 20 min ahead of", OTLP_CLOCK_AHEAD);
	w->ahead_ns = 0;
	w->longer_ns = 10ULL * 365 * 24 * 3600 * NSEC_PER_SEC; /* the profile ends in the future */
	post(w, "node-a");
	assert_int_equal(w->status, 422);
	assert_int_equal(n_stored(w), 1);
}

static void test_writer_is_behind(void **state)
{
	struct world *w = *state;

	start(w, false, 1); /* a queue that refuses a job of more than one byte */
	post(w, NULL);
	assert_int_equal(w->status, 503);
	assert_string_equal(w->retry_after, "5");
	assert_int_equal(n_stored(w), 0);
}

/*
 * The client closes the connection while its token is checked: the hub sends no answer and does not
 * crash.
 */
static void test_peer_gone(void **state)
{
	struct world *w = *state;

	start(w, true, 1 << 20);
	w->authorization = "Bearer t";
	w->auth_late = true;
	post(w, "node-a"); /* runs until auth is asked */
	http_server_free(TAKE_PTR(w->server));
	answer(w, 200, "node-a");
	worker_free(TAKE_PTR(w->writer));
	assert_int_equal(n_stored(w), 0);
}

/*
 * The client closes the connection after it has sent everything: the profiles are stored all the
 * same.
 */
static void test_peer_gone_before_its_answer(void **state)
{
	struct world *w = *state;

	start(w, true, 1 << 20);
	w->authorization = "Bearer t";
	w->auth_status = 200;
	w->auth_node = "node-a";
	w->until_body = true;
	post(w, "node-a");
	http_server_free(TAKE_PTR(w->server));
	worker_free(TAKE_PTR(w->writer));
	assert_int_equal(n_stored(w), 1);
}

/* The hub ends while a request waits: the end of the last request frees the memory. */
static void test_freed_while_pending(void **state)
{
	struct world *w = *state;

	start(w, true, 1 << 20);
	w->authorization = "Bearer t";
	w->auth_late = true;
	post(w, "node-a");
	w->ingest = ingest_free(w->ingest);
	w->auth_late = false;
	answer(w, 200, "node-a");
	run(w);
	assert_int_equal(w->status, 503);
	assert_int_equal(n_stored(w), 0);
}

static void local_run(struct job *j)
{
	struct world *w = (struct world *)((char *)j - offsetof(struct world, local));

	w->local_result = ingest_bytes(w->ingest, w->local_body->data, w->local_body->len);
}

static void local_done(struct job *j)
{
	struct world *w = (struct world *)((char *)j - offsetof(struct world, local));

	loop_stop(w->loop, 0);
}

static void test_bytes_from_another_thread(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf body = {0};
	struct worker *os;

	start(w, false, 1 << 20);
	encode(w, "node-a", false, &body);
	w->local_body = &body;
	w->local = (struct job){.run = local_run, .done = local_done};
	assert_int_equal(worker_new(w->loop, "os", 1 << 20, &os), 0);
	assert_int_equal(worker_post(os, &w->local), 0);
	run(w);
	assert_int_equal(w->local_result, 0);
	assert_int_equal(n_stored(w), 1);
	assert_int_equal(ingest_bytes(w->ingest, "x", 1), -EBADMSG);
	worker_free(os);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_stores),
		TEST(test_refuses),
		TEST(test_json),
		TEST(test_bomb),
		TEST(test_empty_body_is_an_empty_request),
		TEST(test_sender_is_checked),
		TEST(test_token_without_a_node),
		TEST(test_hub_of_another_cluster),
		TEST(test_agent_speaks_for_its_node),
		TEST(test_profiles_that_are_skipped_are_told),
		TEST(test_refused_profiles_count),
		TEST(test_far_ahead_of_the_clock),
		TEST(test_writer_is_behind),
		TEST(test_peer_gone),
		TEST(test_peer_gone_before_its_answer),
		TEST(test_freed_while_pending),
		TEST(test_bytes_from_another_thread),
	};

	return cmocka_run_group_tests_name("ingest", tests, NULL, NULL);
}
