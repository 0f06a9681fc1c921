/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends requests to a central hub that answers as the test says: what arrives there, and what the
 * sender of a request is to be answered.
 */
#include "hub/forward/forward.h"
#include "lib/loop/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testdir.h"
#include "lib/loop/testserver.h"

#define MAX_SENDS 400
#define STALL	  1000 /* a status: the central hub does not answer */
#define BREAK	  1001 /* the connection breaks before the answer */
#define HOLD	  1002 /* it answers 200 when the test has set the flag of the server */

struct send {
	struct world *world;
	int status; /* 0: no answer yet */
	uint64_t n_rejected;
	char message[400], reason[64];
};

struct world {
	struct loop *loop;
	struct forward *forward;
	struct test_server *central;
	struct forward_config config;
	char dir[TESTDIR_BYTES], token[96], ca[96], url[96];
	/* how the central hub answers; under lock of the server */
	int status;
	const char *headers, *body;
	struct send sends[MAX_SENDS];
	size_t n_sends, n_answers;
	/* what run() waits for */
	size_t want_answers;
	int want_requests;
	uint64_t deadline_ns;
	struct timer poll;
};

/* ---- the central hub ---- */

static void central(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	struct world *w = arg;
	int status;

	(void)r;
	pthread_mutex_lock(&c->server->lock);
	status = w->status;
	pthread_mutex_unlock(&c->server->lock);
	if (status == STALL)
		ts_stall(c);
	else if (status == BREAK)
		ts_reset(c);
	else if (status == HOLD)
		ts_await_flag(c, 1);
	if (status < STALL || status == HOLD)
		ts_reply(c, status == HOLD ? 200 : status, w->headers, w->body);
}

static void central_start(struct world *w, const struct test_cert *cert, uint16_t port)
{
	const struct ts_config c = {.cert = cert, .port = port};

	w->central = ts_start(&c, central, w);
	snprintf(w->url, sizeof(w->url), "http%s://127.0.0.1:%u", cert ? "s" : "",
		 w->central->port);
}

static void central_answers(struct world *w, int status, const char *headers, const char *body)
{
	pthread_mutex_lock(&w->central->lock);
	w->status = status;
	w->headers = headers;
	w->body = body;
	pthread_mutex_unlock(&w->central->lock);
}

/* The process id of the profile in the request, -1 if there is no such request. */
static int pid_of_request(struct world *w, int i)
{
	const struct ts_request *r = &w->central->requests[i];
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_buf_ struct buf bytes = {0};

	if (i >= ts_n_requests(w->central))
		return -1;
	assert_int_equal(http_decompress("zstd", r->body, r->body_bytes, OTLP_MAX_BYTES, &bytes),
			 0);
	assert_int_equal(otlp_decode(bytes.data, bytes.len, &b, NULL), 0);
	assert_int_equal(b->n_profiles, 1);
	assert_string_equal(profile_tag_get(b->profiles[0], "pod_cluster"), "b");
	return (int)b->profiles[0]->process_id;
}

static void assert_head_has(struct world *w, int i, const char *text)
{
	if (!strstr(ts_request_head(w->central, i), text))
		fail_msg("%s is not in %s", text, ts_request_head(w->central, i));
}

/* ---- the forwarding hub ---- */

static void on_answer(const struct forward_answer *a, void *arg)
{
	struct send *s = arg;

	assert_int_equal(s->status, 0);
	s->status = a->status;
	s->n_rejected = a->n_rejected;
	snprintf(s->message, sizeof(s->message), "%s", a->message);
	snprintf(s->reason, sizeof(s->reason), "%s", a->reason);
	s->world->n_answers++;
}

static void forward_start(struct world *w)
{
	struct field_error e = {0};

	w->config.url = w->url;
	if (forward_new(w->loop, &w->config, &w->forward, &e) < 0)
		fail_msg("%s: %s", e.path, e.reason);
}

static struct send *send_one(struct world *w, uint32_t pid)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct send *s = &w->sends[w->n_sends++];
	struct forward_request *q;

	assert_true(w->n_sends <= MAX_SENDS);
	random_bytes(p->id, sizeof(p->id));
	p->start_ns = 1763700000 * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = pid;
	profile_tag(b, p, "pod_cluster", "b");
	profile_add(b, p)->value = 1;
	s->world = w;
	assert_int_equal(forward_pack(w->forward, b, &q), 0);
	assert_true(forward_request_bytes(q) > 0);
	forward_send(w->forward, q, on_answer, s);
	return s;
}

static void poll_world(void *arg)
{
	struct world *w = arg;

	if (w->n_answers >= w->want_answers && ts_n_requests(w->central) >= w->want_requests)
		loop_stop(w->loop, 0);
	else if (now_mono_ns() > w->deadline_ns)
		loop_stop(w->loop, 1);
	else
		timer_set(w->loop, &w->poll, NSEC_PER_MSEC, poll_world, w);
}

/* Runs until there are so many answers and requests, both since the start. */
static void run(struct world *w, size_t n_answers, int n_requests)
{
	w->want_answers = n_answers;
	w->want_requests = n_requests;
	w->deadline_ns = now_mono_ns() + 60 * NSEC_PER_SEC;
	timer_set(w->loop, &w->poll, 0, poll_world, w);
	if (loop_run(w->loop))
		fail_msg("%zu of %zu answers, %d of %d requests", w->n_answers, n_answers,
			 ts_n_requests(w->central), n_requests);
}

/* Sends one request and waits for its answer. */
static const struct send *answer_to(struct world *w, uint32_t pid)
{
	const struct send *s = send_one(w, pid);

	run(w, w->n_sends, 0);
	return s;
}

static void write_file(const char *path, const char *text)
{
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));

	assert_int_equal(testdir_make(w->dir), 0);
	assert_int_equal(loop_new(&w->loop), 0);
	snprintf(w->token, sizeof(w->token), "%s/token", w->dir);
	snprintf(w->ca, sizeof(w->ca), "%s/ca.crt", w->dir);
	write_file(w->token, "first\n");
	w->status = 200;
	w->body = "";
	w->config = (struct forward_config){
		.ca_file = "", .token_file = w->token, .calm_ns = NSEC_PER_MSEC};
	central_start(w, NULL, 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	w->forward = forward_free(w->forward);
	assert_int_equal(w->n_answers, w->n_sends); /* each request is answered once */
	ts_stop(w->central);
	timer_cancel(&w->poll);
	loop_free(w->loop);
	testdir_remove(w->dir);
	free(w);
	return 0;
}

/* ---- tests ---- */

static void test_stored(void **state)
{
	struct world *w = *state;
	const struct send *s;

	forward_start(w);
	s = answer_to(w, 7);
	assert_int_equal(s->status, 200);
	assert_int_equal(s->n_rejected, 0);
	assert_int_equal(pid_of_request(w, 0), 7);
	assert_head_has(w, 0, "POST " OTLP_PATH " HTTP/1.1\r\n");
	assert_head_has(w, 0, "Authorization: Bearer first\r\n");
	assert_string_equal(forward_problem(w->forward), "");
}

/* The API server gives the kubelet a new token each hour. A request has the one of its time. */
static void test_token_is_read_again(void **state)
{
	struct world *w = *state;

	forward_start(w);
	assert_int_equal(answer_to(w, 1)->status, 200);
	write_file(w->token, "second\n");
	assert_int_equal(answer_to(w, 2)->status, 200);
	assert_head_has(w, 1, "Authorization: Bearer second\r\n");
	assert_int_equal(unlink(w->token), 0);
	assert_int_equal(answer_to(w, 3)->status, 503);
	assert_non_null(strstr(w->sends[2].message, "the central hub"));
	assert_int_equal(ts_n_requests(w->central), 2); /* never without the token */
	assert_string_not_equal(forward_problem(w->forward), "");
	assert_null(strstr(forward_problem(w->forward), w->dir));
}

/*
 * What is about this hub, the address or the time: the agent keeps the window. A redirect is never
 * followed, because the token would go with it.
 */
static void test_answers_after_which_agents_send_again(void **state)
{
	static const int statuses[] = {301, 302, 307, 308, 401, 403, 404, 429, 500, 502, 503, 504};
	_cleanup_free_ char *to = NULL;
	struct world *w = *state;
	struct test_server *other = ts_start(&(struct ts_config){0}, central, w);

	to = xasprintf("Location: http://127.0.0.1:%u" OTLP_PATH "\r\n", other->port);
	forward_start(w);
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		char text[16];

		central_answers(w, statuses[i], to, "{\"message\": \"no\"}");
		if (answer_to(w, 1)->status != 503)
			fail_msg("%d: the agent gets %d", statuses[i], w->sends[i].status);
		snprintf(text, sizeof(text), "answered %d", statuses[i]);
		assert_non_null(strstr(w->sends[i].message, text));
		snprintf(text, sizeof(text), "answers %d", statuses[i]);
		assert_non_null(strstr(forward_problem(w->forward), text));
	}
	assert_int_equal(ts_n_requests(other), 0);
	ts_stop(other);
}

/* The central hub refuses one window of many: its status, text and reason reach the agent. */
static void test_one_is_refused(void **state)
{
	static const char ahead[] =
		"{\"code\":3,\"message\":\"time_unix_nano: 9 min\\u0007 ahead\",\"details\":[{"
		"\"@type\":\"" OTLP_ERROR_INFO "\",\"reason\":\"CLOCK_AHEAD\"}]}";
	static const char hostile[] =
		"{\"message\":\"m\",\"details\":[{\"@type\":\"" OTLP_ERROR_INFO
		"\",\"reason\":\"A\\\"}],\\\"x\\\":[{\"}]}";
	struct world *w = *state;
	const struct send *s;

	forward_start(w);
	assert_int_equal(answer_to(w, 1)->status, 200);
	central_answers(w, 422, NULL, ahead);
	s = answer_to(w, 2);
	assert_int_equal(s->status, 422);
	assert_string_equal(s->message, "the central hub: time_unix_nano: 9 min  ahead");
	assert_string_equal(s->reason, "CLOCK_AHEAD");
	central_answers(w, 400, NULL, hostile);
	s = answer_to(w, 3);
	assert_int_equal(s->status, 400);
	assert_string_equal(s->reason, ""); /* it goes into JSON: only a word */
	central_answers(w, 413, NULL, "too large");
	s = answer_to(w, 4);
	assert_int_equal(s->status, 413);
	assert_non_null(strstr(s->message, "answered 413: too large"));
	central_answers(w, 200, NULL, "");
	assert_int_equal(answer_to(w, 5)->status, 200);
	assert_int_equal(pid_of_request(w, 4), 5);
	assert_string_equal(forward_problem(w->forward), ""); /* the central hub works */
}

static void test_some_profiles_are_rejected(void **state)
{
	struct world *w = *state;
	const struct send *s;

	forward_start(w);
	/* partial_success {rejected_profiles: 2, error_message: "too old"} */
	central_answers(w, 200, NULL, "\x0a\x0b\x08\x02\x12\x07too old");
	s = answer_to(w, 1);
	assert_int_equal(s->status, 200);
	assert_int_equal(s->n_rejected, 2);
	assert_string_equal(s->message, "the central hub: too old");
}

/* The central hub is away, and comes back: what is said of it in between. */
static void test_away_and_back(void **state)
{
	struct world *w = *state;
	uint16_t port = w->central->port;

	forward_start(w);
	ts_stop(w->central);
	w->central = ts_start(&(struct ts_config){0}, central, w);
	assert_int_equal(answer_to(w, 1)->status, 503);
	assert_non_null(strstr(w->sends[0].message, "the central hub"));
	assert_string_not_equal(forward_problem(w->forward), "");
	ts_stop(w->central);
	central_start(w, NULL, port);
	do
		assert_int_equal(answer_to(w, 2)->status, 200);
	while (*forward_problem(w->forward)); /* calm_ns must pass */
	assert_int_equal(pid_of_request(w, 0), 2);
}

/* The agent does not learn that the central hub has stored the window: it must send it again. */
static void test_connection_breaks_before_the_answer(void **state)
{
	struct world *w = *state;

	forward_start(w);
	central_answers(w, BREAK, NULL, "");
	assert_int_equal(answer_to(w, 1)->status, 503);
	assert_int_equal(ts_n_requests(w->central), 1);
}

static void test_no_answer_in_time(void **state)
{
	struct world *w = *state;

	w->config.timeout_ns = 100 * NSEC_PER_MSEC;
	forward_start(w);
	central_answers(w, STALL, NULL, "");
	assert_int_equal(answer_to(w, 1)->status, 503);
	assert_non_null(strstr(w->sends[0].message, "timed out"));
}

static void test_few_are_under_way(void **state)
{
	struct world *w = *state;

	w->config.max_under_way = 2;
	forward_start(w);
	central_answers(w, HOLD, NULL, "");
	for (uint32_t i = 0; i < 5; i++)
		send_one(w, i);
	run(w, 0, 2);
	assert_int_equal(w->n_answers, 0);
	assert_int_equal(counter_get(counter("podflame_forward_requests_under_way", NULL, NULL)),
			 2);
	assert_int_equal(counter_get(counter("podflame_forward_requests_waiting", NULL, NULL)), 3);
	ts_set_flag(w->central, 1);
	run(w, 5, 5);
	for (int i = 0; i < 5; i++)
		assert_int_equal(w->sends[i].status, 200);
	for (int i = 2; i < 5; i++) /* in the order in which they came */
		assert_true(pid_of_request(w, i) >= 2);
}

static uint64_t n_busy(void)
{
	return counter_get(counter("podflame_forward_requests_total", "result", "busy"));
}

/* If there is no room to wait, the agent gets its request back at once. */
static void test_few_wait(void **state)
{
	struct world *w = *state;
	uint64_t before = n_busy();

	w->config.max_under_way = 1;
	forward_start(w);
	central_answers(w, HOLD, NULL, "");
	for (uint32_t i = 0; i < 1 + 256; i++)
		send_one(w, i);
	assert_int_equal(w->n_answers, 0);
	assert_int_equal(send_one(w, 300)->status, 503);
	assert_non_null(strstr(w->sends[257].message, "too many requests"));
	assert_int_equal(n_busy(), before + 1);
	ts_set_flag(w->central, 1);
	run(w, 258, 257);
	for (int i = 0; i < 257; i++)
		assert_int_equal(w->sends[i].status, 200);
}

/* A request that has waited too long goes back to its agent, which stops waiting soon. */
static void test_none_waits_for_long(void **state)
{
	struct world *w = *state;
	uint64_t before = n_busy();

	w->config.max_under_way = 1;
	w->config.max_waiting_ns = 50 * NSEC_PER_MSEC;
	forward_start(w);
	central_answers(w, HOLD, NULL, "");
	for (uint32_t i = 0; i < 4; i++)
		send_one(w, i);
	run(w, 3, 1);
	assert_int_equal(w->sends[0].status, 0); /* it is under way */
	for (int i = 1; i < 4; i++)
		assert_int_equal(w->sends[i].status, 503);
	assert_non_null(strstr(w->sends[1].message, "too slow"));
	assert_int_equal(n_busy(), before + 3);
	ts_set_flag(w->central, 1);
	run(w, 4, 1);
	assert_int_equal(w->sends[0].status, 200);
}

static void test_end_answers_all(void **state)
{
	struct world *w = *state;

	w->config.max_under_way = 1;
	forward_start(w);
	central_answers(w, HOLD, NULL, "");
	for (uint32_t i = 0; i < 3; i++)
		send_one(w, i);
	run(w, 0, 1);
	w->forward = forward_free(w->forward);
	for (int i = 0; i < 3; i++)
		assert_int_equal(w->sends[i].status, 503);
	assert_string_equal(w->sends[2].message, "the hub is stopping");
}

/* A foreign certificate: nothing is sent. Once the file has the right CA, the hub sends. */
static void test_wrong_ca(void **state)
{
	struct world *w = *state;
	struct test_ca ca[2];
	struct test_cert cert;

	for (int i = 0; i < 2; i++)
		test_ca_init(&ca[i], "ca");
	test_cert_init(&cert, &ca[0], "IP:127.0.0.1");
	ts_stop(w->central);
	central_start(w, &cert, 0);
	w->config.ca_file = w->ca;
	write_file(w->ca, ca[1].pem);
	forward_start(w);
	assert_int_equal(answer_to(w, 1)->status, 503);
	assert_non_null(strstr(w->sends[0].message, "certificate"));
	assert_int_equal(ts_n_requests(w->central), 0);
	write_file(w->ca, "no PEM");
	assert_int_equal(answer_to(w, 2)->status, 503);
	assert_non_null(strstr(w->sends[1].message, w->ca));
	write_file(w->ca, ca[0].pem);
	assert_int_equal(answer_to(w, 3)->status, 200);
	assert_int_equal(pid_of_request(w, 0), 3);
	for (int i = 0; i < 2; i++)
		test_ca_done(&ca[i]);
	test_cert_done(&cert);
}

static void test_wrong_keys(void **state)
{
	static const char *const urls[][2] = {
		{"", "the address of the central hub"},
		{"hub:4318", "begins neither"},
		{"http://hub.example:4318", "must begin with https://"},
		{"http://127.0.0.1.example", "must begin with https://"},
	};
	struct field_error e = {0};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		w->config.url = urls[i][0];
		assert_int_equal(forward_new(w->loop, &w->config, &w->forward, &e), -EINVAL);
		assert_string_equal(e.path, "store.url");
		if (!strstr(e.reason, urls[i][1]))
			fail_msg("%s: %s", urls[i][0], e.reason);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_stored),
		TEST(test_token_is_read_again),
		TEST(test_answers_after_which_agents_send_again),
		TEST(test_one_is_refused),
		TEST(test_some_profiles_are_rejected),
		TEST(test_away_and_back),
		TEST(test_connection_breaks_before_the_answer),
		TEST(test_no_answer_in_time),
		TEST(test_few_are_under_way),
		TEST(test_few_wait),
		TEST(test_none_waits_for_long),
		TEST(test_end_answers_all),
		TEST(test_wrong_ca),
		TEST(test_wrong_keys),
	};

	return cmocka_run_group_tests_name("forward", tests, NULL, NULL);
}
