// SPDX-License-Identifier: Apache-2.0
/*
 * How long a watch waits for a server that always gives the same answer. client.c and the watch use
 * their default waiting times; the test sets the clock and replaces the HTTP client. A stream makes
 * progress if it brings a newer resourceVersion. After a short stream without progress, the watch
 * waits. Numbers in names are those of docs/watch-cases.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/kube/kube_private.h"
#include "lib/loop/testconn.h"
#include "lib/loop/testtimer.h" /* has assertions, so it must come after cmocka.h */

/*
 * Waits of client-go's reflector: 800 ms, doubled up to 30 s, each plus a random time up to its own
 * length. If the last wait began more than 2 minutes ago, the next is 800 ms again
 */
#define FIRST_NS   ((uint64_t)800 * NSEC_PER_MSEC)
#define MAX_NS	   (30 * NSEC_PER_SEC)
#define RESET_NS   (120 * NSEC_PER_SEC)
#define AT_ONCE_NS 1 /* the least that a timer waits */

#define LIST                                                                                       \
	"{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"10\"},"   \
	"\"items\":[]}"
#define BOOKMARK(rv)                                                                               \
	"{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":"   \
	"\"" rv "\"}}}\n"
#define ERROR(code, reason)                                                                        \
	"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":"    \
	"\"Failure\",\"message\":\"told by the test\",\"reason\":\"" reason "\",\"code\":" code    \
	"}}\n"

/* ---- the server ---- */

static struct {
	struct http_request r; /* the one request that has no answer yet */
	bool out, watch;
	char path[512];
	unsigned n_lists, n_watches;
} server;

static int client_new(struct loop *l, const struct http_client_config *c, struct http_client **ret)
{
	(void)l;
	(void)c;
	*ret = (struct http_client *)&server;
	return 0;
}

static struct http_client *client_free(struct http_client *h)
{
	(void)h;
	return NULL;
}

static void client_set_tls(struct http_client *h, struct tls *tls)
{
	(void)h;
	(void)tls;
}

static int request_sent(struct http_client *h, const struct http_request *r, struct http_call **ret)
{
	(void)h;
	assert_false(server.out);
	server.out = true;
	server.r = *r;
	snprintf(server.path, sizeof(server.path), "%s", r->path);
	server.watch = strstr(r->path, "watch=true") != NULL;
	if (server.watch)
		server.n_watches++;
	else
		server.n_lists++;
	*ret = (struct http_call *)&server;
	return 0;
}

static void request_canceled(struct http_call *c)
{
	(void)c;
	assert_true(server.out);
	server.out = false;
}

static uint64_t request_idle_ns(const struct http_call *c)
{
	(void)c;
	return 0;
}

static const struct kube_http_ops http_ops = {
	.client_new = client_new,
	.client_free = client_free,
	.client_set_tls = client_set_tls,
	.send = request_sent,
	.cancel = request_canceled,
	.call_idle_ns = request_idle_ns,
};

/*
 * Answers with status 200, the text, and a clean end unless the client has cancelled the request.
 */
static void answer(const char *text)
{
	static const struct http_headers none;
	struct http_request r = server.r;

	assert_true(server.out);
	r.on_head(200, &none, r.arg);
	if (*text)
		r.on_data(text, strlen(text), r.arg);
	if (!server.out)
		return;
	server.out = false;
	r.on_done(200, NULL, 0, NULL, r.arg);
}

static void refuse(int status, const char *retry_after)
{
	const struct http_headers headers = {.n = 1, .field = {{"Retry-After", retry_after}}};
	struct http_request r = server.r;

	assert_true(server.out);
	server.out = false;
	r.on_head(status, &headers, r.arg);
	r.on_done(status, NULL, 0, NULL, r.arg);
}

/* ---- the owner ---- */

static struct kube *kube;
static struct kube_watch *watch;

static void no_upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)key;
	(void)obj;
	(void)old;
	(void)arg;
}

static void no_remove(const char *key, const json_t *last, void *arg)
{
	(void)key;
	(void)last;
	(void)arg;
}

/* Makes a watch, and answers until its first stream begins. */
static int setup(void **state)
{
	const struct kube_config c = {
		.address = (char *)"192.0.2.1", .port = 80, .plain_http = true};
	const struct kube_watch_spec spec = {.path = "/api/v1/pods"};
	const struct kube_watch_ops ops = {.upsert = no_upsert, .remove = no_remove};
	struct field_error e = {0};

	(void)state;
	test_clock.stands_ns = 3600 * NSEC_PER_SEC;
	memset(&server, 0, sizeof(server));
	assert_int_equal(kube_new_over(&http_ops, timer_loop(), &c, "test", &kube, &e), 0);
	assert_int_equal(kube_watch_new(kube, &spec, &ops, NULL, &watch), 0);
	timer_fire();
	answer(LIST);
	assert_true(server.watch);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	watch = kube_watch_free(watch);
	kube = kube_free(kube);
	return 0;
}

/*
 * Sets the clock to the time at which the client's wait ends. Checks that the client sends no
 * request before, and one then. Returns the length of the wait.
 */
static uint64_t wait_is_over(void)
{
	uint64_t ns = timer_delay_ns();

	assert_true(timer_armed());
	assert_false(server.out);
	test_clock.stands_ns += ns;
	timer_fire();
	assert_true(server.out);
	return ns;
}

/* Checks the length of the i-th wait in a row. */
static void expect_wait(unsigned i)
{
	uint64_t base = i < 6 ? FIRST_NS << i : MAX_NS;

	assert_in_range(wait_is_over(), base, 2 * base);
}

/* If the client asks for a list, answers it. Then a stream must follow at once. */
static void to_the_next_stream(void)
{
	if (!server.watch)
		answer(LIST);
	assert_true(server.out && server.watch);
}

/* For ten minutes, answers every stream with the same text. */
static void ten_minutes_of(const char *text, bool lists)
{
	uint64_t begin_ns = test_clock.stands_ns;
	unsigned n = 0;

	while (test_clock.stands_ns - begin_ns < 600 * NSEC_PER_SEC) {
		answer(text);
		expect_wait(n++);
		to_the_next_stream();
	}
	/* the first six waits take at least 50.4 s, the others at least 30 s each */
	assert_in_range(n, 13, 6 + 19);
	assert_int_equal(server.n_watches, 1 + n);
	if (lists)
		assert_true(server.n_lists > 1 && server.n_lists <= 1 + n / 2);
	else
		assert_int_equal(server.n_lists, 1);
}

static void watch_22_error_events_of_5xx_are_waited_for(void **state)
{
	static const char *const said[] = {
		ERROR("500", "InternalError"),
		ERROR("503", "ServiceUnavailable"),
		ERROR("504", "Timeout"),
		BOOKMARK("10") ERROR("500", "InternalError"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
		if (i) {
			teardown(state);
			setup(state);
		}
		ten_minutes_of(said[i], true);
	}
}

static void watch_21_error_events_of_429_are_waited_for(void **state)
{
	(void)state;
	ten_minutes_of(ERROR("429", "TooManyRequests"), false);
}

/* The watch waits as long as Retry-After says, but at most ten minutes. */
static void watch_21_long_retry_after(void **state)
{
	(void)state;
	refuse(503, "599");
	assert_int_equal(wait_is_over(), 599 * NSEC_PER_SEC);
	refuse(429, "3600");
	assert_int_equal(wait_is_over(), 600 * NSEC_PER_SEC);
	refuse(429, "99999999999999999999999");
	assert_int_equal(wait_is_over(), 600 * NSEC_PER_SEC);
	refuse(429, "Wed, 21 Oct 2026 07:28:00 GMT");
	assert_true(wait_is_over() <= 2 * MAX_NS);
}

/*
 * After the first error event the watch goes on. A second one probably comes from an object at this
 * version, so the watch asks for a list, which has another version.
 */
static void watch_22_error_event_twice_at_a_version_lists(void **state)
{
	(void)state;
	answer(ERROR("500", "InternalError"));
	wait_is_over();
	assert_true(server.watch);
	answer(ERROR("500", "InternalError"));
	wait_is_over();
	assert_false(server.watch);
	assert_non_null(strstr(server.path, "resourceVersion=10"));
	answer(LIST);
	answer(BOOKMARK("20") ERROR("500", "InternalError"));
	wait_is_over();
	assert_true(server.watch);
	answer(BOOKMARK("30") ERROR("500", "InternalError"));
	wait_is_over();
	assert_true(server.watch); /* newer versions came between the error events */
	assert_non_null(strstr(server.path, "resourceVersion=30"));
}

static void watch_17_streams_that_end_at_once_are_waited_for(void **state)
{
	(void)state;
	ten_minutes_of("", false);
}

/* Events without a newer version are no progress, so the watch waits before the next stream. */
static void watch_17_streams_that_repeat_themselves_are_waited_for(void **state)
{
	(void)state;
	ten_minutes_of(BOOKMARK("10"), false);
}

static void watch_16_streams_that_lead_on_are_not(void **state)
{
	(void)state;
	answer(BOOKMARK("11"));
	assert_true(wait_is_over() <= AT_ONCE_NS);
	answer(BOOKMARK("12"));
	assert_true(wait_is_over() <= AT_ONCE_NS);
	assert_non_null(strstr(server.path, "resourceVersion=12"));
}

/*
 * Two servers are behind one address, and one is not up to date: every other stream has an older
 * version.
 */
static void watch_17_streams_that_lead_back_are_waited_for(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		answer(BOOKMARK("11"));
		assert_true(wait_is_over() <= AT_ONCE_NS);
		answer(BOOKMARK("10"));
		expect_wait(i);
		assert_true(server.watch);
		assert_non_null(strstr(server.path, "resourceVersion=10"));
	}
}

/*
 * A stream that goes back to an old version and then to the last one again makes no progress, so
 * the watch waits.
 */
static void watch_17_streams_that_lead_back_and_forth_are_waited_for(void **state)
{
	(void)state;
	answer(BOOKMARK("12"));
	assert_true(wait_is_over() <= AT_ONCE_NS);
	for (unsigned i = 0; i < 8; i++) {
		answer(BOOKMARK("9") BOOKMARK("12"));
		expect_wait(i);
		assert_non_null(strstr(server.path, "resourceVersion=12"));
	}
}

/* An older version is no progress either, so the second error event leads to a list. */
static void watch_22_error_event_after_a_step_back_lists(void **state)
{
	(void)state;
	answer(BOOKMARK("11") ERROR("500", "InternalError"));
	wait_is_over();
	assert_true(server.watch);
	answer(BOOKMARK("10") ERROR("500", "InternalError"));
	wait_is_over();
	assert_false(server.watch);
}

/* A lost event leads to a list, even if an error event follows that alone would not lead to one. */
static void watch_25_loss_with_an_error_event_behind_it_lists(void **state)
{
	static const char error[] = "\n" ERROR("429", "TooManyRequests");
	size_t n = kube_times_default.max_object_bytes + 1;
	_cleanup_free_ char *text = xcalloc(1, n + sizeof(error));

	(void)state;
	memset(text, 'x', n);
	memcpy(text + n, error, sizeof(error));
	answer(text);
	expect_wait(0);
	assert_true(server.watch);
	answer(BOOKMARK("11"));
	expect_wait(1);
	assert_false(server.watch);
	assert_non_null(strstr(server.path, "resourceVersion=11"));
	answer(LIST);
	answer(BOOKMARK("12"));
	assert_true(wait_is_over() <= AT_ONCE_NS);
	assert_true(server.watch);
}

/* A server may leave out the newline at the end, because JSON needs none. */
static void watch_22_error_event_without_end_of_line(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		_cleanup_free_ char *text =
			xasprintf("%s%s", BOOKMARK("11"), ERROR("500", "InternalError"));

		text[strlen(text) - 1] = '\0';
		answer(text);
		expect_wait(i);
		to_the_next_stream();
	}
}

static void watch_22_two_good_minutes_begin_anew(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		answer(ERROR("503", "ServiceUnavailable"));
		expect_wait(i);
		to_the_next_stream();
	}
	test_clock.stands_ns += RESET_NS + NSEC_PER_SEC;
	answer(ERROR("503", "ServiceUnavailable"));
	expect_wait(0);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(watch_22_error_events_of_5xx_are_waited_for),
		T(watch_21_error_events_of_429_are_waited_for),
		T(watch_21_long_retry_after),
		T(watch_22_error_event_twice_at_a_version_lists),
		T(watch_17_streams_that_end_at_once_are_waited_for),
		T(watch_17_streams_that_repeat_themselves_are_waited_for),
		T(watch_16_streams_that_lead_on_are_not),
		T(watch_17_streams_that_lead_back_are_waited_for),
		T(watch_17_streams_that_lead_back_and_forth_are_waited_for),
		T(watch_22_error_event_after_a_step_back_lists),
		T(watch_25_loss_with_an_error_event_behind_it_lists),
		T(watch_22_error_event_without_end_of_line),
		T(watch_22_two_good_minutes_begin_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
