/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP/gRPC: the same requests as by OTLP/HTTP, with gRPC's form of messages and of refusals, over
 * HTTP/2.
 */
#include "hub/ingest/ingest.h"
#include "lib/loop/grpc.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/loop/testhttp2.h"

struct world {
	struct loop *loop;
	struct worker *writer;
	struct store *store;
	struct ingest *ingest;
	struct http_server *server;
	struct timer step;
	struct h2_client client;
	int status;	 /* of the sender */
	int hold_fds[2]; /* the writer has a job that does not end before the test says so */
	struct job hold;
};

static void auth(const char *authorization, const char *peer,
		 void (*done)(const struct ingest_sender *s, void *arg), void *done_arg, void *arg)
{
	struct world *w = arg;

	assert_string_equal(authorization, "Bearer t");
	assert_string_equal(peer, "127.0.0.1");
	done(&(struct ingest_sender){.status = w->status,
				     .error = w->status == 200 ? "" : "because: 100 %\n",
				     .node = "node-a",
				     .hosts = true,
				     .agent = true},
	     done_arg);
}

static int setup(void **state)
{
	const struct store_config sc = {.kind = "null"};
	struct world *w = xcalloc(1, sizeof(*w));
	struct ingest_config ic = {.auth = auth, .auth_arg = w, .cluster_name = "c1"};
	struct http_server_config hc = {.address = "127.0.0.1",
					.http2 = true,
					.max_body_bytes = OTLP_MAX_BYTES,
					.head = ingest_http_head,
					.handler = ingest_http,
					.refuse = ingest_http_refuse};
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(loop_new(&w->loop), 0);
	assert_int_equal(store_open(&sc, &w->store, NULL), 0);
	assert_int_equal(worker_new(w->loop, "writer", 1 << 20, &w->writer), 0);
	ic.store = w->store;
	ic.writer = w->writer;
	assert_int_equal(ingest_new(w->loop, &ic, &w->ingest), 0);
	hc.arg = w->ingest;
	assert_int_equal(http_server_new(w->loop, &hc, &w->server, NULL), 0);
	w->status = 200;
	sa.sin_port = htons(http_server_port(w->server));
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	h2_start(&w->client, w->loop, fd, NULL);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	h2_stop(&w->client);
	http_server_free(w->server);
	worker_free(w->writer);
	ingest_free(w->ingest);
	timer_cancel(&w->step);
	loop_free(w->loop);
	store_close(w->store);
	free(w);
	return 0;
}

static void stop(void *arg)
{
	loop_stop(((struct world *)arg)->loop, 0);
}

static void await_end(struct world *w, const struct h2_answer *a)
{
	while (!a->closed) {
		timer_set(w->loop, &w->step, NSEC_PER_MSEC, stop, w);
		loop_run(w->loop);
	}
}

/* ---- the sender ---- */

static void one_profile(struct buf *ret)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);

	p->id[0] = 1;
	p->start_ns = 1763700000 * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	profile_tag(b, p, "pod_node", "node-a");
	profile_add(b, p)->value = 1;
	assert_int_equal(otlp_encode(b, ret), 0);
}

static void put_message(struct buf *b, bool packed, const void *p, size_t n)
{
	uint32_t be = htonl((uint32_t)n);

	buf_putc(b, packed);
	buf_add(b, &be, sizeof(be));
	buf_add(b, p, n);
}

/* more: a further field, NULL: none */
static const struct h2_answer *call_with(struct world *w, const char *path, const char *more,
					 const struct buf *body)
{
	const char *fields[] = {"content-type: application/grpc", "te: trailers",
				"authorization: Bearer t", more, NULL};
	const struct h2_answer *a =
		h2_send(&w->client, "POST", path, fields, body->data, body->len, false);

	await_end(w, a);
	assert_int_equal(a->status, 200);
	assert_non_null(strstr(a->fields.data, "content-type: application/grpc\n"));
	return a;
}

static const struct h2_answer *call(struct world *w, const char *path, const char *more,
				    bool packed, const void *p, size_t n)
{
	_cleanup_buf_ struct buf body = {0};

	put_message(&body, packed, p, n);
	return call_with(w, path, more, &body);
}

static int code_of(const struct h2_answer *a)
{
	const char *line = strstr(a->fields.data, "grpc-status: ");

	assert_non_null(line);
	return (int)strtol(line + strlen("grpc-status: "), NULL, 10);
}

static void assert_refused(const struct h2_answer *a, enum grpc_code code, const char *message)
{
	_cleanup_free_ char *line = xasprintf("grpc-message: %s\n", message);

	assert_int_equal(code_of(a), code);
	assert_int_equal(a->body.len, 0);
	if (!strstr(a->fields.data, line))
		fail_msg("%s is not in\n%s", line, a->fields.data);
}

static uint64_t n_stored(struct world *w)
{
	struct store_stats st;

	store_stats(w->store, &st);
	return st.n_profiles;
}

/* ---- tests ---- */

static void a_call_stores(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf bytes = {0}, gzip = {0}, zstd = {0};
	const struct h2_answer *a;

	one_profile(&bytes);
	a = call(w, OTLP_GRPC_PATH, NULL, false, bytes.data, bytes.len);
	assert_int_equal(code_of(a), GRPC_OK);
	assert_int_equal(a->body.len, GRPC_PREFIX_BYTES); /* an empty message */
	assert_memory_equal(a->body.data, "\0\0\0\0\0", 5);
	assert_int_equal(n_stored(w), 1);
	assert_int_equal(buf_add_gzip(&gzip, bytes.data, bytes.len, 6), 0);
	a = call(w, OTLP_GRPC_PATH, "grpc-encoding: gzip", true, gzip.data, gzip.len);
	assert_int_equal(code_of(a), GRPC_OK);
	assert_int_equal(http_compress(bytes.data, bytes.len, &zstd), 0);
	a = call(w, OTLP_GRPC_PATH, "grpc-encoding: zstd", true, zstd.data, zstd.len);
	assert_int_equal(code_of(a), GRPC_OK);
	/* a call that may compress its message need not do so */
	a = call(w, OTLP_GRPC_PATH, "grpc-encoding: gzip", false, bytes.data, bytes.len);
	assert_int_equal(code_of(a), GRPC_OK);
	a = call(w, OTLP_GRPC_PATH, "grpc-timeout: 1H", false, "", 0);
	assert_int_equal(code_of(a), GRPC_OK);
	assert_int_equal(n_stored(w), 4);
}

static void what_is_left_out_is_told(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf bytes = {0};
	const struct h2_answer *a;
	char *at, why[64];

	one_profile(&bytes);
	while ((at = memmem(bytes.data, bytes.len, "on_cpu", 6)) ||
	       (at = memmem(bytes.data, bytes.len, "on-cpu", 6)))
		*at = 'x'; /* an event that only a later version knows */
	a = call(w, OTLP_GRPC_PATH, NULL, false, bytes.data, bytes.len);
	assert_int_equal(code_of(a), GRPC_OK);
	assert_int_equal(otlp_rejected(a->body.data + GRPC_PREFIX_BYTES,
				       a->body.len - GRPC_PREFIX_BYTES, why, sizeof(why)),
			 1);
	assert_string_equal(why, "unsupported_event");
}

static void a_refusal_has_its_code(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf two = {0}, cut = {0}, large = {0};

	assert_refused(call(w, "/opentelemetry.proto.collector.trace.v1.TraceService/Export", NULL,
			    false, "", 0),
		       GRPC_UNIMPLEMENTED, "only " OTLP_GRPC_PATH " is here");
	assert_refused(call(w, OTLP_GRPC_PATH, "grpc-encoding: snappy", true, "", 0),
		       GRPC_UNIMPLEMENTED,
		       "grpc-encoding: \"snappy\" is not one of zstd, gzip, identity");
	assert_refused(call(w, OTLP_GRPC_PATH, "grpc-timeout: 1x", false, "", 0),
		       GRPC_INVALID_ARGUMENT, "grpc-timeout: \"1x\" is no time");
	assert_refused(call(w, OTLP_GRPC_PATH, NULL, false, "\x0a\x02\x12\x63", 4),
		       GRPC_INVALID_ARGUMENT,
		       "resource_profiles[0].scope_profiles[0]: runs past the end of its message");
	put_message(&two, false, "", 0);
	put_message(&two, false, "", 0);
	assert_refused(call_with(w, OTLP_GRPC_PATH, NULL, &two), GRPC_INVALID_ARGUMENT,
		       "the body has more than one message");
	put_message(&cut, false, "abc", 3);
	cut.len--;
	assert_refused(call_with(w, OTLP_GRPC_PATH, NULL, &cut), GRPC_INVALID_ARGUMENT,
		       "body: not one message of gRPC");
	cut.len = 3; /* not even the prefix of a message */
	assert_refused(call_with(w, OTLP_GRPC_PATH, NULL, &cut), GRPC_INVALID_ARGUMENT,
		       "body: not one message of gRPC");
	put_message(&large, false, "", 0);
	memcpy(large.data + 1, "\x02\0\0\x01", 4); /* 32 MiB and a byte */
	assert_refused(call_with(w, OTLP_GRPC_PATH, NULL, &large), GRPC_RESOURCE_EXHAUSTED,
		       "body: more than 33554432 bytes");
	assert_int_equal(n_stored(w), 0);
}

/* Returns the whole Status of a refusal, which the caller frees. */
static uint8_t *status_of(const struct h2_answer *a, size_t *ret_n)
{
	const char *line = strstr(a->fields.data, "grpc-status-details-bin: ");
	char text[512] = "";
	uint8_t *status;

	assert_non_null(line);
	line += strlen("grpc-status-details-bin: ");
	snprintf(text, sizeof(text), "%.*s", (int)strcspn(line, "\n"), line);
	assert_int_equal(base64_decode(text, &status, ret_n), 0);
	return status;
}

static void assert_status_says(const struct h2_answer *a, const char *want)
{
	char message[64], reason[64];
	size_t n;
	_cleanup_free_ uint8_t *status = status_of(a, &n);

	otlp_status_read(status, n, message, sizeof(message), reason, sizeof(reason));
	assert_string_equal(message, want);
}

/* The sender waits as long as a RetryInfo says, and reads the text in any language. */
static void a_refused_sender_is_told_when_to_come_again(void **state)
{
	struct world *w = *state;
	_cleanup_free_ uint8_t *details = NULL;
	const struct h2_answer *a;
	size_t n;

	w->status = 503;
	a = call(w, OTLP_GRPC_PATH, NULL, false, "", 0);
	assert_refused(a, GRPC_UNAVAILABLE, "because: 100 %25%0A");
	assert_status_says(a, "because: 100 %\n");
	details = status_of(a, &n);
	/* google.rpc.RetryInfo { retry_delay { seconds: 5 } } */
	assert_non_null(memmem(details, n, "google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x05", 26));
	w->status = 401;
	assert_int_equal(code_of(call(w, OTLP_GRPC_PATH, NULL, false, "", 0)),
			 GRPC_UNAUTHENTICATED);
}

static void hold_writer(struct job *j)
{
	struct world *w = (struct world *)((char *)j - offsetof(struct world, hold));
	char byte;

	assert_int_equal(read(w->hold_fds[0], &byte, 1), 1);
}

static void a_late_call_is_answered_and_stored(void **state)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf bytes = {0};

	one_profile(&bytes);
	assert_int_equal(pipe(w->hold_fds), 0);
	w->hold = (struct job){.run = hold_writer};
	assert_int_equal(worker_post(w->writer, &w->hold), 0);
	assert_refused(call(w, OTLP_GRPC_PATH, "grpc-timeout: 20m", false, bytes.data, bytes.len),
		       GRPC_DEADLINE_EXCEEDED, "the profiles are not stored yet");
	assert_int_equal(write(w->hold_fds[1], "x", 1), 1);
	assert_int_equal(code_of(call(w, OTLP_GRPC_PATH, NULL, false, "", 0)), GRPC_OK);
	assert_int_equal(n_stored(w), 1);
	close(w->hold_fds[0]);
	close(w->hold_fds[1]);
}

/*
 * Bodies count by the length that their message's prefix has: many small ones do not use up the
 * room of a sender, as bodies of unknown length would.
 */
static void many_small_calls_have_room(void **state)
{
	const char *fields[] = {"content-type: application/grpc", "authorization: Bearer t", NULL};
	struct world *w = *state;
	_cleanup_buf_ struct buf bytes = {0}, body = {0};
	struct h2_answer *a[16];

	one_profile(&bytes);
	put_message(&body, false, bytes.data, bytes.len);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = h2_send(&w->client, "POST", OTLP_GRPC_PATH, fields, body.data, body.len - 1,
			       true);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		h2_send_more(&w->client, a[i], body.data + body.len - 1, 1, false);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++) {
		await_end(w, a[i]);
		assert_int_equal(code_of(a[i]), GRPC_OK);
	}
	assert_int_equal(n_stored(w), ARRAY_SIZE(a));
}

/* The server itself refuses a call, too, in gRPC's form. */
static void the_server_refuses_calls_as_calls(void **state)
{
	const char *fields[] = {"content-type: application/grpc+proto", NULL};
	struct world *w = *state;
	const struct h2_answer *a =
		h2_send(&w->client, "POST", "/%zz", fields, "\0\0\0\0", 5, false);

	_cleanup_free_ char *large = xasprintf("x: %070000d", 0);
	_cleanup_buf_ struct buf two = {0};

	await_end(w, a);
	assert_refused(a, GRPC_INVALID_ARGUMENT, "the target is no path");
	assert_status_says(a, "the target is no path");
	put_message(&two, false, "", 0);
	put_message(&two, false, "", 0);
	a = call_with(w, OTLP_GRPC_PATH, NULL, &two);
	assert_status_says(a, "the body has more than one message");
	a = call_with(w, OTLP_GRPC_PATH, large, &two);
	assert_refused(a, GRPC_RESOURCE_EXHAUSTED, "the head has more than 64 KiB");
	assert_status_says(a, "the head has more than 64 KiB");
}

static void otlp_http_works_over_http2(void **state)
{
	const char *fields[] = {"content-type: " OTLP_CONTENT_TYPE, "authorization: Bearer t",
				NULL};
	struct world *w = *state;
	_cleanup_buf_ struct buf bytes = {0};
	const struct h2_answer *a;

	one_profile(&bytes);
	a = h2_send(&w->client, "POST", OTLP_PATH, fields, bytes.data, bytes.len, false);
	await_end(w, a);
	assert_int_equal(a->status, 200);
	assert_int_equal(n_stored(w), 1);
}

static void timeouts_are_read(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} cases[] = {{"1n", 1},
		     {"20u", 20000},
		     {"100m", 100 * NSEC_PER_MSEC},
		     {"99999999S", 99999999 * NSEC_PER_SEC},
		     {"2M", 120 * NSEC_PER_SEC},
		     {"3H", 10800 * NSEC_PER_SEC}};
	static const char *const bad[] = {"", "1", "m", "123456789m", "-1m", "1mm", "1 m", "1h"};
	uint64_t ns;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(grpc_timeout(cases[i].text, &ns), 0);
		assert_int_equal(ns, cases[i].ns);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(grpc_timeout(bad[i], &ns), -EINVAL);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
	T(a_call_stores),
	T(what_is_left_out_is_told),
	T(a_refusal_has_its_code),
	T(a_refused_sender_is_told_when_to_come_again),
	T(a_late_call_is_answered_and_stored),
	T(many_small_calls_have_room),
	T(the_server_refuses_calls_as_calls),
	T(otlp_http_works_over_http2),
	cmocka_unit_test(timeouts_are_read),
};

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("grpc", tests, NULL, NULL);
}
