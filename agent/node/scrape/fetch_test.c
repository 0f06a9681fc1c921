/* SPDX-License-Identifier: Apache-2.0 */
/* One request to a program, against a real server: what it answers, and each way to fail. */
#include "node/scrape/internal.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

static struct {
	struct loop *loop;
	struct http_server *server;
	struct http_client *client;
	struct timer guard;
	int status; /* what the program answers; 0: nothing */
	const char *headers[2];
	size_t n;		/* bytes of the answer */
	struct http_conn *held; /* a request that is not answered; NULL: none */
	char *path, *authorization;
	unsigned n_requests;
	bool no_room;
	struct fetch *fetch;
	bool ended;
} t;

static void gone(void *arg)
{
	(void)arg;
	t.held = NULL;
}

static void program(struct http_conn *c, const struct http_in *in, void *arg)
{
	_cleanup_free_ char *body = xcalloc(1, t.n + 1);

	(void)arg;
	t.n_requests++;
	free(t.path);
	free(t.authorization);
	t.path = xasprintf("%s%s%s", in->path, *in->query ? "?" : "", in->query);
	t.authorization = xstrdup(in->authorization);
	if (t.status) {
		http_reply(c, t.status, "text/html", t.headers, body, t.n);
		return;
	}
	t.held = c;
	http_conn_on_gone(c, gone, NULL);
}

static void too_long(void *arg)
{
	(void)arg;
	loop_stop(t.loop, -ETIMEDOUT);
}

static bool may_take(size_t n, void *arg)
{
	assert_ptr_equal(arg, &t);
	return n && !t.no_room;
}

static void done(struct fetch *f, void *arg)
{
	(void)arg;
	assert_false(t.ended);
	t.ended = true;
	t.fetch = f;
	loop_stop(t.loop, 0);
}

static enum scrape_result fetch(enum plan_profile profile, uint64_t interval_ns, uint64_t answer_ns)
{
	const struct fetch_config c = {.loop = t.loop,
				       .client = t.client,
				       .profile = profile,
				       .interval_ns = interval_ns,
				       .answer_ns = answer_ns,
				       .may_take = may_take,
				       .done = done,
				       .arg = &t};

	t.fetch = scrape_fetch_free(t.fetch);
	t.ended = false;
	assert_int_equal(scrape_fetch(&c, &t.fetch), 0);
	timer_set(t.loop, &t.guard, 30 * NSEC_PER_SEC, too_long, NULL);
	assert_int_equal(loop_run(t.loop), 0);
	assert_true(t.ended);
	return t.fetch->result;
}

static enum scrape_result fetch_heap(void)
{
	return fetch(PLAN_PROFILE_HEAP, 30 * NSEC_PER_SEC, 10 * NSEC_PER_SEC);
}

static int setup(void **state)
{
	const struct http_server_config sc = {.address = "127.0.0.1", .handler = program};
	struct http_client_config cc = {.address = "127.0.0.1"};

	(void)state;
	memset(&t, 0, sizeof(t));
	t.status = 200;
	t.n = 100;
	assert_int_equal(loop_new(&t.loop), 0);
	assert_int_equal(http_server_new(t.loop, &sc, &t.server, NULL), 0);
	cc.port = http_server_port(t.server);
	return http_client_new(t.loop, &cc, &t.client);
}

static int teardown(void **state)
{
	(void)state;
	scrape_fetch_free(t.fetch);
	http_client_free(t.client);
	if (t.held)
		http_reply(t.held, 204, "", NULL, "", 0);
	http_server_free(t.server);
	timer_cancel(&t.guard);
	loop_free(t.loop);
	free(t.path);
	free(t.authorization);
	return 0;
}

static void test_a_moment(void **state)
{
	(void)state;
	assert_int_equal(fetch_heap(), SCRAPE_STORED);
	assert_string_equal(t.path, "/debug/pprof/heap");
	assert_string_equal(t.authorization, "");
	assert_int_equal(t.fetch->body.len, 100);
	assert_true(t.fetch->start_ns < t.fetch->end_ns);
	assert_true(t.fetch->cost_ns > 0);
}

static void test_a_window(void **state)
{
	(void)state;
	assert_int_equal(fetch(PLAN_PROFILE_MUTEX, NSEC_PER_SEC, NSEC_PER_SEC), SCRAPE_STORED);
	assert_string_equal(t.path, "/debug/pprof/mutex?seconds=1");
	assert_int_equal(fetch(PLAN_PROFILE_CPU, NSEC_PER_SEC, NSEC_PER_SEC), SCRAPE_STORED);
	assert_string_equal(t.path, "/debug/pprof/profile?seconds=1");
}

/* Go before 1.17 knows no `seconds`: its answer has everything since the program began. */
static void test_all_instead_of_a_window(void **state)
{
	(void)state;
	assert_int_equal(fetch(PLAN_PROFILE_ALLOCS, 30 * NSEC_PER_SEC, NSEC_PER_SEC),
			 SCRAPE_NO_DELTA);
	assert_non_null(strstr(t.fetch->text, "1.17"));
	assert_int_equal(t.fetch->body.len, 0);
}

static void test_other_status(void **state)
{
	(void)state;
	t.status = 404;
	assert_int_equal(fetch_heap(), SCRAPE_STATUS);
	assert_string_equal(t.fetch->text, "it answered 404");
}

static void test_redirects_are_not_followed(void **state)
{
	(void)state;
	t.status = 302;
	t.headers[0] = "Location: /debug/pprof/heap";
	assert_int_equal(fetch_heap(), SCRAPE_REDIRECT);
	assert_int_equal(t.n_requests, 1);
}

/* What unpacks to much is not unpacked here. */
static void test_packed_answers(void **state)
{
	(void)state;
	t.headers[0] = "Content-Encoding: gzip";
	assert_int_equal(fetch_heap(), SCRAPE_UNREACHABLE);
	assert_non_null(strstr(t.fetch->text, "compressed with gzip"));
}

static void test_large_answers_are_cut_off(void **state)
{
	(void)state;
	t.n = SCRAPE_BODY_BYTES;
	assert_int_equal(fetch_heap(), SCRAPE_STORED);
	t.n = SCRAPE_BODY_BYTES + 1;
	assert_int_equal(fetch_heap(), SCRAPE_TOO_LARGE);
	assert_int_equal(t.fetch->n_bytes, 0);
}

static void test_no_room(void **state)
{
	(void)state;
	t.no_room = true;
	assert_int_equal(fetch_heap(), SCRAPE_NO_ROOM);
}

static void test_no_answer(void **state)
{
	(void)state;
	t.status = 0;
	assert_int_equal(fetch(PLAN_PROFILE_HEAP, NSEC_PER_SEC, NSEC_PER_MSEC), SCRAPE_TIMEOUT);
}

static void test_nobody_listens(void **state)
{
	(void)state;
	t.server = http_server_free(t.server);
	assert_int_equal(fetch_heap(), SCRAPE_UNREACHABLE);
	assert_non_null(strstr(t.fetch->text, "refused"));
	assert_int_equal(t.fetch->cost_ns, 0);
}

static void test_a_fetch_that_is_freed(void **state)
{
	(void)state;
	t.status = 0;
	assert_int_equal(fetch(PLAN_PROFILE_HEAP, NSEC_PER_SEC, NSEC_PER_MSEC), SCRAPE_TIMEOUT);
	t.fetch = scrape_fetch_free(t.fetch);
	assert_int_equal(scrape_fetch(&(struct fetch_config){.loop = t.loop,
							     .client = t.client,
							     .answer_ns = NSEC_PER_SEC,
							     .done = done},
				      &t.fetch),
			 0);
	t.ended = false;
	t.fetch = scrape_fetch_free(t.fetch);
	assert_false(t.ended);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_moment, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_window, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all_instead_of_a_window, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_status, setup, teardown),
		cmocka_unit_test_setup_teardown(test_redirects_are_not_followed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_packed_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_large_answers_are_cut_off, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_listens, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_fetch_that_is_freed, setup, teardown),
	};

	return cmocka_run_group_tests_name("fetch", tests, NULL, NULL);
}
