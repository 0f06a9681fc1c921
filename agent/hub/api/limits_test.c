/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that close their connection, and too many queries. auth_test.c and uploads_test.c test
 * other limits on waiting requests.
 */
#include "hub/api/testapi.h"
#include "hub/api/teststacks.h"

#include <arpa/inet.h>
#include <semaphore.h>
#include <unistd.h>

struct blocker {
	struct job job;
	sem_t release;
};

static void block(struct job *job)
{
	struct blocker *b = (struct blocker *)job;

	while (sem_wait(&b->release) && errno == EINTR)
		;
}

static void nothing(struct job *job)
{
	(void)job;
}

static void stop_waiting(void *arg)
{
	loop_stop(arg, 0);
}

static bool await_more(struct fixture *f, const struct counter *c, uint64_t before)
{
	uint64_t deadline_ns = now_mono_ns() + 20 * NSEC_PER_SEC;
	struct timer t = {0};

	while (counter_get(c) == before && now_mono_ns() < deadline_ns) {
		timer_set(f->loop, &t, NSEC_PER_MSEC, stop_waiting, f->loop);
		loop_run(f->loop);
	}
	timer_cancel(&t);
	return counter_get(c) > before;
}

/* If a client closes its connection, its query ends early, and the next one is answered. */
static void callers_may_leave(void **state)
{
	struct fixture *f = *state;
	struct counter *asked = counter("api_requests_total", "path", TRACING);
	struct counter *left = counter("api_refused_total", "reason", "caller_left");
	uint64_t n_asked = counter_get(asked), n_left = counter_get(left);
	struct blocker b = {.job = {.run = block, .done = nothing}};
	struct http_request r = {.method = "POST",
				 .path = TRACING,
				 .body = QUERY "}",
				 .body_bytes = strlen(QUERY "}"),
				 .on_done = done,
				 .arg = f};
	struct http_call *call;
	bool seen;

	sem_init(&b.release, 0, 0);
	assert_int_equal(worker_post(f->query, &b.job), 0);
	assert_int_equal(http_send(f->client, &r, &call), 0);
	seen = await_more(f, asked, n_asked);
	http_cancel(call);
	seen = seen && await_more(f, left, n_left);
	/* release the worker before any assertion can fail, because the teardown waits for it */
	sem_post(&b.release);
	assert_true(seen);
	assert_int_equal(query(f, NULL), 200);
	assert_non_null(strstr(f->body, "[t] worker"));
	sem_destroy(&b.release);
}

/*
 * Sends a query whose body has so many bytes, and returns when the API has it. The answer is in
 * f->status, once it comes.
 */
static struct http_call *send_query(struct fixture *f, size_t n_bytes)
{
	struct counter *asked = counter("api_requests_total", "path", TRACING);
	uint64_t before = counter_get(asked);
	_cleanup_free_ char *body = xasprintf("%s}%*s", QUERY, (int)n_bytes, "");
	struct http_request r = {.method = "POST",
				 .path = TRACING,
				 .body = body,
				 .body_bytes = strlen(body),
				 .timeout_ns = 300 * NSEC_PER_SEC,
				 .on_done = done,
				 .arg = f};
	struct http_call *call;

	assert_int_equal(http_send(f->client, &r, &call), 0);
	assert_true(await_more(f, asked, before));
	return call;
}

/* Waits for the answer of a query that was sent. Returns its status. */
static int next_answer(struct fixture *f)
{
	int status;

	while (!f->status)
		loop_run(f->loop);
	status = f->status;
	f->status = 0;
	return status;
}

/*
 * The worker has a query, and as many others wait as may: the next one is refused at once and
 * counted. The worker then answers those that wait.
 */
static void too_many_queries_are_refused(void **state)
{
	struct fixture *f = *state;
	struct counter *busy = counter("api_refused_total", "reason", "queries_busy");
	uint64_t n_busy = counter_get(busy);
	struct blocker b = {.job = {.run = block, .done = nothing}};
	int status;

	sem_init(&b.release, 0, 0);
	assert_int_equal(worker_post(f->query, &b.job), 0);
	send_query(f, 0);
	send_query(f, QUERY_MAILBOX - 4096);
	send_query(f, 8192);
	status = next_answer(f);
	/* release the worker before any assertion can fail, because the teardown waits for it */
	sem_post(&b.release);
	assert_int_equal(status, 503);
	assert_non_null(strstr(f->body, "UNAVAILABLE"));
	assert_int_equal(counter_get(busy), n_busy + 1);
	assert_int_equal(next_answer(f), 200);
	assert_int_equal(next_answer(f), 200);
	sem_destroy(&b.release);
}

/* ---- of one user beside another ---- */

#define MAX_REQUESTS 192 /* of all users: one alone may have half of them under way */

struct answers {
	struct fixture *f;
	unsigned n, n_refused;
	bool has_retry_after;
};

static void take_head(int status, const struct http_headers *h, void *arg)
{
	struct answers *a = arg;

	a->n_refused += status == 429;
	a->has_retry_after |= status == 429 && http_header(h, "Retry-After");
}

static void count_answer(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct answers *a = arg;

	a->n++;
	if (status == 429)
		assert_non_null(memmem(body, n, "too many of your requests", 25));
	else
		assert_int_equal(status, 200);
	assert_null(error);
	loop_stop(a->f->loop, 0);
}

static void send_as(struct answers *a, const char *user)
{
	_cleanup_free_ char *bearer = xasprintf(BEARER "%s", user);
	const char *const headers[] = {bearer, NULL};
	struct http_request r = {.method = "POST",
				 .path = TRACING,
				 .headers = headers,
				 .body = QUERY "}",
				 .body_bytes = strlen(QUERY "}"),
				 .timeout_ns = 300 * NSEC_PER_SEC,
				 .on_head = take_head,
				 .on_done = count_answer,
				 .arg = a};
	struct http_call *call;

	assert_int_equal(http_send(a->f->client, &r, &call), 0);
}

/* A user with many queries under way is refused some; another user's one is not. */
static void many_queries_are_refused_to_their_user(void **state)
{
	struct fixture *f = *state;
	struct counter *refused = counter("api_refused_total", "reason", "user_requests");
	uint64_t before = counter_get(refused);
	struct answers many = {.f = f}, other = {.f = f};
	struct blocker b = {.job = {.run = block, .done = nothing}};

	sem_init(&b.release, 0, 0);
	assert_int_equal(worker_post(f->query, &b.job), 0);
	for (int i = 0; i < MAX_REQUESTS / 2 + 10; i++)
		send_as(&many, "viewer");
	while (many.n < 10)
		loop_run(f->loop);
	send_as(&other, "second-viewer");
	sem_post(&b.release);
	while (many.n < MAX_REQUESTS / 2 + 10 || !other.n)
		loop_run(f->loop);
	assert_int_equal(many.n_refused, 10);
	assert_true(many.has_retry_after);
	assert_int_equal(other.n_refused, 0);
	assert_int_equal(counter_get(refused), before + 10);
	/* what was answered counts no more */
	many = (struct answers){.f = f};
	send_as(&many, "viewer");
	while (!many.n)
		loop_run(f->loop);
	assert_int_equal(many.n_refused, 0);
	sem_destroy(&b.release);
}

#define N_LEAVES 20000 /* an answer of some MB, more than a socket's buffers take */

static void leaf_name(unsigned i, unsigned k, char ret[static TEST_NAME_BYTES])
{
	(void)k;
	snprintf(ret, TEST_NAME_BYTES, "%200u", i);
}

static void fill_large(struct store *s)
{
	const struct test_stacks stacks = {.n = N_LEAVES, .depth = 1, .name = leaf_name};

	assert_int_equal(test_stacks_write(s, T0 * NSEC_PER_SEC, &stacks), 0);
}

/* A client that asks and does not read the answer. Returns its socket. */
static int ask_without_reading(struct fixture *f, const char *user)
{
	struct counter *asked = counter("api_requests_total", "path", TRACING);
	uint64_t before = counter_get(asked);
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(http_server_port(f->server))};
	_cleanup_free_ char *text = xasprintf("POST " TRACING " HTTP/1.1\r\nHost: x\r\n" BEARER
					      "%s\r\nContent-Length: %zu\r\n\r\n" QUERY "}",
					      user, strlen(QUERY "}"));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	assert_true(await_more(f, asked, before));
	return fd;
}

/*
 * Answers that a user does not read take memory: further ones of this user are refused, those of
 * another user are not. When the connections are closed, the memory is free again.
 */
static void unread_answers_are_their_users(void **state)
{
	struct fixture *f = *state;
	struct counter *refused = counter("api_refused_total", "reason", "user_reply_bytes");
	uint64_t before = counter_get(refused);
	int fds[16], n = 0;

	assert_int_equal(query(f, BEARER "viewer"), 200);
	while (counter_get(refused) == before && n < 16) {
		fds[n++] = ask_without_reading(f, "viewer");
		/* the worker takes queries of this user in turn: this one's answer comes last */
		if (query(f, BEARER "viewer") == 429)
			break;
	}
	assert_in_range(n, 1, 15);
	assert_int_equal(f->status, 429);
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "TOO_MANY_REQUESTS");
	assert_non_null(strstr(f->body, "memory for answers"));
	assert_int_equal(query(f, BEARER "second-viewer"), 200);
	for (int i = 0; i < n; i++)
		close(fds[i]);
	for (int i = 0; i < 1000 && query(f, BEARER "viewer") == 429; i++)
		;
	assert_int_equal(f->status, 200);
}

static int setup_small(void **state)
{
	fill_store = fill_large;
	with_reply_bytes = 64u << 20;
	return setup_cluster(state);
}

/*
 * The tree of which a small answer is made counts, too: it is refused to its user, and takes no
 * more once the query has ended.
 */
static void a_large_tree_is_refused(void **state)
{
	static const char groups[] = QUERY ",\"group_by\":\"pod_ns\"}";
	struct fixture *f = *state;
	struct counter *refused = counter("api_refused_total", "reason", "user_reply_bytes");
	uint64_t before = counter_get(refused);

	for (int i = 0; i < 4; i++) {
		assert_int_equal(ask(f, "POST", "/v1/profile/groups", BEARER "viewer", groups),
				 429);
		assert_non_null(strstr(f->body, "memory for answers"));
		assert_int_equal(ask(f, "POST", "/v1/profile/groups", BEARER "viewer",
				     "{\"profile_event_type\":\"off-cpu\","
				     "\"profile_language_type\":\"eBPF\",\"time_start\":1,"
				     "\"time_end\":2,\"group_by\":\"pod_ns\"}"),
				 200);
	}
	assert_int_equal(counter_get(refused), before + 4);
}

/* The rows of which a file is made count: all of its text together is never in memory. */
static void a_large_file_is_refused(void **state)
{
	static const char *const paths[] = {"/v1/profile/folded", "/v1/profile/pprof",
					    "/v1/profile/speedscope", "/v1/profile/otlp"};
	struct fixture *f = *state;
	struct counter *refused = counter("api_refused_total", "reason", "user_reply_bytes");
	uint64_t before = counter_get(refused);

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		assert_int_equal(ask(f, "POST", paths[i], BEARER "viewer", QUERY "}"), 429);
		assert_non_null(strstr(f->body, "memory for answers"));
		assert_int_equal(ask(f, "POST", paths[i], BEARER "viewer",
				     "{\"profile_event_type\":\"off-cpu\","
				     "\"profile_language_type\":\"eBPF\",\"time_start\":1,"
				     "\"time_end\":2}"),
				 200);
	}
	assert_int_equal(counter_get(refused), before + ARRAY_SIZE(paths));
}

static int setup_tiny(void **state)
{
	fill_store = fill_large;
	with_reply_bytes = 8u << 20;
	return setup_cluster(state);
}

static int teardown_small(void **state)
{
	fill_store = fill;
	with_reply_bytes = 0;
	return teardown(state);
}

/* Everything is freed while requests to the API server and queries are open. */
static void ends_with_open_requests(void **state)
{
	struct fixture *f = *state;
	const char *const headers[] = {BEARER "viewer", NULL};
	struct http_request r = {.method = "POST",
				 .path = TRACING,
				 .headers = headers,
				 .body = QUERY "}",
				 .body_bytes = strlen(QUERY "}"),
				 .on_done = done,
				 .arg = f};
	struct http_call *call;

	for (int i = 0; i < 4; i++)
		assert_int_equal(http_send(f->client, &r, &call), 0);
	loop_run(f->loop); /* run until the first answer */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(callers_may_leave),
		LOCAL(too_many_queries_are_refused),
		CLUSTER(ends_with_open_requests),
		CLUSTER(many_queries_are_refused_to_their_user),
		cmocka_unit_test_setup_teardown(unread_answers_are_their_users, setup_small,
						teardown_small),
		cmocka_unit_test_setup_teardown(a_large_tree_is_refused, setup_tiny,
						teardown_small),
		cmocka_unit_test_setup_teardown(a_large_file_is_refused, setup_tiny,
						teardown_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
