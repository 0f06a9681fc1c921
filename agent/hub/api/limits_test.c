/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that close their connection, and too many queries. auth_test.c and uploads_test.c test
 * other limits on waiting requests.
 */
#include "hub/api/testapi.h"

#include <semaphore.h>

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
