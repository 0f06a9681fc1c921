/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of many requests are stored together, and each request is answered when its own profiles
 * are stored. The store is ClickHouse's engine, behind a server that can fail (testproxy.h).
 */
#include "hub/ingest/ingest.h"
#include "hub/store/clickhouse/testengine.h"
#include "hub/store/clickhouse/testproxy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_BODIES 40

struct world {
	struct proxy *proxy;
	struct loop *loop;
	struct worker *writer;
	struct store *store;
	struct ingest *ingest;
	struct http_server *server;
	struct http_client *client;
	struct timer guard;
	size_t n_sent, n_answers, n_with[1000]; /* n_with: answers by their status */
};

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));

	*state = w;
	w->proxy = proxy_start();
	return 0;
}

static void end_hub(struct world *w)
{
	w->client = http_client_free(w->client);
	w->server = http_server_free(w->server);
	worker_free(TAKE_PTR(w->writer));
	w->ingest = ingest_free(w->ingest);
	timer_cancel(&w->guard);
	w->loop = loop_free(w->loop);
	w->store = store_close(w->store);
}

static int teardown(void **state)
{
	struct world *w = *state;

	if (w->loop)
		end_hub(w);
	proxy_stop(w->proxy);
	free(w);
	return 0;
}

static struct world *start(void **state)
{
	struct world *w = *state;
	char database[32];
	const struct store_config sc = {
		.kind = "clickhouse", .url = w->proxy ? w->proxy->url : NULL, .database = database};
	struct http_server_config hc = {.address = "127.0.0.1",
					.max_body_bytes = OTLP_MAX_BYTES,
					.head = ingest_http_head,
					.handler = ingest_http,
					.refuse = ingest_http_refuse};
	struct http_client_config cc = {.address = "127.0.0.1"};
	struct ingest_config ic = {0};

	need_engine();
	snprintf(database, sizeof(database), "g%llx", (unsigned long long)random_below(UINT64_MAX));
	assert_int_equal(loop_new(&w->loop), 0);
	assert_int_equal(store_open(&sc, &w->store, NULL), 0);
	assert_int_equal(worker_new(w->loop, "writer", 1 << 20, &w->writer), 0);
	ic.store = w->store;
	ic.writer = w->writer;
	assert_int_equal(ingest_new(w->loop, &ic, &w->ingest), 0);
	hc.arg = w->ingest;
	assert_int_equal(http_server_new(w->loop, &hc, &w->server, NULL), 0);
	cc.port = http_server_port(w->server);
	assert_int_equal(http_client_new(w->loop, &cc, &w->client), 0);
	return w;
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct world *w = arg;

	(void)body;
	(void)n;
	(void)error;
	w->n_with[MIN((size_t)status, ARRAY_SIZE(w->n_with) - 1)]++;
	if (++w->n_answers == w->n_sent)
		loop_stop(w->loop, 0);
}

static void send_one(struct world *w, unsigned nr)
{
	static const char *const headers[] = {"Content-Type: " OTLP_CONTENT_TYPE, NULL};
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	_cleanup_buf_ struct buf body = {0};
	struct profile *p = profile_batch_profile(b);
	struct http_request r = {.method = "POST",
				 .path = OTLP_PATH,
				 .headers = headers,
				 .timeout_ns = 300 * NSEC_PER_SEC,
				 .on_done = on_done,
				 .arg = w};

	memcpy(p->id, &nr, sizeof(nr));
	p->id[15] = 1;
	p->start_ns = 1763700000 * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	profile_add(b, p)->value = 1;
	assert_int_equal(otlp_encode(b, &body), 0);
	r.body = body.data;
	r.body_bytes = body.len;
	assert_int_equal(http_send(w->client, &r, NULL), 0);
	w->n_sent++;
}

static void guard(void *arg)
{
	loop_stop(((struct world *)arg)->loop, 1);
}

/* Sends all bodies at once, and waits for the answers. */
static void send_all(struct world *w)
{
	w->n_sent = w->n_answers = 0;
	memset(w->n_with, 0, sizeof(w->n_with));
	for (unsigned i = 0; i < N_BODIES; i++)
		send_one(w, i);
	timer_set(w->loop, &w->guard, 300 * NSEC_PER_SEC, guard, w);
	assert_int_equal(loop_run(w->loop), 0);
}

static uint64_t n_stored(struct world *w)
{
	struct store_stats st;

	store_stats(w->store, &st);
	return st.n_profiles;
}

static void bodies_are_stored_together(void **state)
{
	struct world *w = start(state);

	proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
	send_all(w);
	assert_int_equal(w->n_with[200], N_BODIES);
	assert_int_equal(n_stored(w), N_BODIES);
	/* one by one it would be an insert each, and those of the first stack and frame */
	assert_true(w->proxy->n_inserts < N_BODIES);
}

static void none_is_accepted_while_the_store_is_away(void **state)
{
	struct world *w = start(state);

	proxy_fault(w->proxy, PROXY_DOWN, NULL, 0, 0);
	send_all(w);
	assert_int_equal(w->n_with[503], N_BODIES);
	assert_int_equal(n_stored(w), 0);
	proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
	send_all(w);
	assert_int_equal(w->n_with[200], N_BODIES);
	assert_int_equal(n_stored(w), N_BODIES);
}

static void a_batch_that_the_store_refuses_does_not_keep_others_out(void **state)
{
	struct world *w = start(state);

	/* one insert fails for its data: then each batch has an insert of its own */
	proxy_fault(w->proxy, PROXY_REFUSE, "INSERT", 1, 117);
	send_all(w);
	assert_true(w->n_with[200] >= N_BODIES - 1);
	assert_int_equal(n_stored(w), w->n_with[200]);
}

static void a_hub_ends_while_a_group_waits(void **state)
{
	struct world *w = start(state);

	for (unsigned i = 0; i < N_BODIES; i++)
		send_one(w, i);
	timer_set(w->loop, &w->guard, NSEC_PER_MSEC * (10 + random_below(50)), guard, w);
	loop_run(w->loop);
	end_hub(w);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bodies_are_stored_together),
		TEST(none_is_accepted_while_the_store_is_away),
		TEST(a_batch_that_the_store_refuses_does_not_keep_others_out),
		TEST(a_hub_ends_while_a_group_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
