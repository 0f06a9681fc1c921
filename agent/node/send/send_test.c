/* SPDX-License-Identifier: Apache-2.0 */
/* Sending to a hub that answers, cannot be reached, refuses, and comes back. */
#include "node/send/testsend.h"

/* ---- conditions ---- */

static bool direct_wanted(struct world *w)
{
	return w->n_told >= n_wanted;
}

/* ---- tests ---- */

static void test_delivers(void **state)
{
	struct world *w = *state;
	struct sender_stats st;

	agent_start(w);
	send_one(w, 1, 5);
	n_wanted = 5;
	run_until(w, direct_wanted);
	run_until(w, settled);
	assert_int_equal(w->n_samples, 5);
	assert_string_equal(w->auth, "Bearer old");
	assert_string_equal(w->type, "application/x-protobuf");
	assert_string_equal(w->encoding, "zstd");
	assert_string_equal(w->told_pod, "uid-1");
	assert_string_equal(w->told_container, "c0ffee");
	send_stats(w->sender, &st);
	assert_int_equal(st.n_sent, 1);
	assert_int_equal(st.spool_bytes, 0);
	assert_string_equal(st.last_error, "");
}

static void test_hub_away_and_back(void **state)
{
	struct world *w = *state;
	struct sender_stats st;

	hub_stop(w);
	agent_start(w);
	for (uint32_t i = 1; i <= 3; i++)
		send_one(w, i, i);
	n_wanted = 3;
	run_until(w, spooled_wanted);
	run_until(w, has_failed);
	assert_int_equal(n_files(w, "0"), 3);
	send_stats(w->sender, &st);
	assert_true(st.last_error[0]);
	assert_true(st.spool_bytes > 3000);
	hub_start(w);
	run_until(w, settled);
	assert_int_equal(w->n_samples, 6);
	assert_int_equal(w->n_lost, 0);
	assert_int_equal(w->n_repeats, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(w->order[i], i + 1);
}

static void test_answers_that_are_tried_again(void **state)
{
	static const int statuses[] = {500, 503, 429, 404, 301};
	struct world *w = *state;

	agent_start(w);
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		w->status = statuses[i];
		w->n_fails = 1;
		send_one(w, 1, 1);
		n_wanted = i + 1;
		run_until(w, seen_wanted);
	}
	run_until(w, settled);
	assert_int_equal(w->n_samples, ARRAY_SIZE(statuses));
	assert_int_equal(w->n_lost, 0);
}

static void test_token_is_read_again(void **state)
{
	struct world *w = *state;

	w->status = 401;
	w->n_fails = 1;
	w->new_token = "new";
	agent_start(w);
	send_one(w, 1, 1);
	n_wanted = 1;
	run_until(w, seen_wanted);
	assert_string_equal(w->auth, "Bearer new");
	assert_int_equal(w->n_lost, 0);
}

/* Adds a profile of a process with a name of n_bytes, which stands for many names of functions. */
static void add_large(struct batch *b, const char *pod, uint32_t pid, size_t n_bytes)
{
	_cleanup_free_ char *name = xmalloc(n_bytes + 1);
	const struct frame f = {.kind = FRAME_APP, .name = name};
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s;

	memset(name, 'x', n_bytes);
	snprintf(name, n_bytes, "%s%u", pod, pid);
	name[strlen(name)] = 'x';
	name[n_bytes] = '\0';
	random_bytes(p->id, sizeof(p->id));
	p->start_ns = 1763700000 * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = pid;
	profile_tag(b, p, "pod", pod);
	s = profile_add(b, p);
	assert_int_equal(profile_batch_stack(b, &f, 1, &s->stack), 0);
	s->n_samples = pid;
	s->value = 1;
}

/*
 * Sends a window with more names than one request may have. It is sent in several requests. One
 * profile alone has too many names for a request. Only this one is lost.
 */
static void send_large_window(struct world *w)
{
	struct batch *b = profile_batch_new();

	add_large(b, "pod-1", 1, 14u << 20);
	add_large(b, "pod-2", 2, 14u << 20);
	add_large(b, "pod-4", 4, OTLP_MAX_BYTES);
	add_large(b, "pod-8", 8, 100);
	assert_int_equal(send_send(w->sender, b), 0);
}

static void check_large_window(struct world *w)
{
	struct sender_stats st;

	assert_int_equal(w->n_samples, 1 + 2 + 8);
	assert_int_equal(w->n_lost, 4);
	assert_int_equal(w->n_repeats, 0);
	assert_string_equal(w->loss_reason, "too_large");
	assert_string_equal(w->loss_pod, "pod-4");
	send_stats(w->sender, &st);
	assert_int_equal(st.n_dropped_profiles, 1);
	assert_int_equal(st.n_dropped_samples, 4);
	assert_int_equal(st.n_spooled, 0);
}

static void test_a_window_of_several_requests(void **state)
{
	struct world *w = *state;

	agent_start(w);
	send_large_window(w);
	n_wanted = 15;
	run_until(w, accounted);
	run_until(w, settled);
	check_large_window(w);
}

/* A window may be larger than its limit by its last stack. The worker's mailbox has room for it. */
static void test_the_largest_window(void **state)
{
	struct world *w = *state;
	struct batch *b = profile_batch_new();

	agent_start(w);
	for (uint32_t i = 0; i < 3; i++)
		add_large(b, "pod", 1 << i, 25u << 20);
	assert_true(profile_batch_bytes(b) > BATCH_MAX_BYTES);
	assert_int_equal(send_send(w->sender, b), 0);
	n_wanted = 7;
	run_until(w, accounted);
	run_until(w, settled);
	assert_int_equal(w->n_samples, 7);
}

static void test_missing_token_waits(void **state)
{
	struct world *w = *state;
	struct sender_stats st;

	unlink(w->token);
	agent_start(w);
	send_one(w, 1, 1);
	run_until(w, has_failed);
	send_stats(w->sender, &st);
	assert_non_null(strstr(st.last_error, "/token"));
	assert_int_equal(w->n_requests, 0);
	assert_int_equal(file_write_atomic(w->token, "t", 1, 0600), 0);
	n_wanted = 1;
	run_until(w, seen_wanted);
}

static bool second_is_stored(struct world *w)
{
	return w->n_samples == 2;
}

static bool clock_is_ahead(struct world *w)
{
	struct sender_stats st;

	send_stats(w->sender, &st);
	return st.clock_ahead[0];
}

/* A batch that the hub will never accept is counted as lost, and does not block the others. */
static void test_refused_batch(void **state)
{
	struct world *w = *state;
	struct sender_stats st;

	w->status = 400;
	w->n_fails = 1;
	agent_start(w);
	send_one(w, 1, 7);
	send_one(w, 2, 2);
	n_wanted = 9;
	run_until(w, accounted);
	run_until(w, settled);
	assert_int_equal(w->n_samples, 2);
	assert_int_equal(w->n_lost, 7);
	assert_string_equal(w->loss_reason, "hub_refused");
	assert_string_equal(w->loss_pod, "web-1");
	send_stats(w->sender, &st);
	assert_int_equal(st.n_dropped_samples, 7);
}

/* The hub refuses what is dated ahead of its clock. The agent says so until it stores again. */
static void test_clock_ahead(void **state)
{
	struct world *w = *state;
	struct sender_stats st;

	w->status = 422;
	w->refusal =
		"{\"code\":3,\"message\":\"a profile ends 7 min ahead\",\"details\":[{\"@type\":"
		"\"" OTLP_ERROR_INFO "\",\"reason\":\"" OTLP_CLOCK_AHEAD "\"}]}";
	w->n_fails = 1000;
	agent_start(w);
	send_one(w, 1, 7);
	run_until(w, clock_is_ahead);
	send_stats(w->sender, &st);
	assert_string_equal(st.clock_ahead, "a profile ends 7 min ahead");
	w->n_fails = 0;
	send_one(w, 2, 2);
	run_until(w, second_is_stored);
	run_until(w, settled);
	send_stats(w->sender, &st);
	assert_string_equal(st.clock_ahead, "");
}

/*
 * The receiver answers 200 but stores only a part. The agent counts the rest as dropped, and
 * reports nothing as stored.
 */
static void test_partial_success(void **state)
{
	struct counter *c = counter("podflame_profiles_dropped_total", "reason", "hub_rejected");
	uint64_t before = counter_get(c);
	struct world *w = *state;
	struct sender_stats st;

	w->rejects = true;
	agent_start(w);
	send_one(w, 1, 7);
	n_wanted = 1;
	run_until(w, seen_wanted);
	run_until(w, settled);
	send_stats(w->sender, &st);
	assert_int_equal(st.n_sent, 1);
	assert_int_equal(st.n_dropped_profiles, 2);
	assert_non_null(strstr(st.last_error, "rejected 2 profiles: too old"));
	assert_int_equal(counter_get(c), before + 2);
	assert_int_equal(w->n_told, 0);
	w->rejects = false;
	send_one(w, 2, 3);
	n_wanted = 2;
	run_until(w, seen_wanted);
	run_until(w, settled);
	send_stats(w->sender, &st);
	assert_string_equal(st.last_error, "");
	assert_int_equal(st.n_dropped_profiles, 2);
	assert_int_equal(w->n_told, 3);
}

/* The account of losses is refused, too. It is then dropped and not sent again. */
static void test_everything_refused(void **state)
{
	struct world *w = *state;

	w->status = 400;
	w->n_fails = 2;
	agent_start(w);
	send_one(w, 1, 7);
	n_wanted = 2;
	run_until(w, settled);
	while (w->n_requests < 2)
		run_until(w, settled);
	run_until(w, settled);
	assert_int_equal(w->n_requests, 2);
	assert_int_equal(w->n_seen, 0);
}

static void hub_with_cert(struct world *w, const struct test_cert *cert)
{
	const struct tls_config tc = {.cert_pem = cert->cert_pem, .key_pem = cert->key_pem};

	w->tls = tls_unref(w->tls);
	assert_int_equal(tls_new(&tc, true, &w->tls, NULL), 0);
	hub_stop(w);
	hub_start(w);
}

/*
 * The hub gets a certificate of another CA. The agent trusts it when the CA file has this CA,
 * without a restart.
 */
static void test_ca_is_read_again(void **state)
{
	struct world *w = *state;
	struct test_ca ca[2];
	struct test_cert cert[2];
	char file[96];

	snprintf(file, sizeof(file), "%s/ca.crt", w->dir);
	for (int i = 0; i < 2; i++) {
		test_ca_init(&ca[i], "ca");
		test_cert_init(&cert[i], &ca[i], "IP:127.0.0.1");
	}
	assert_int_equal(file_write_atomic(file, ca[0].pem, strlen(ca[0].pem), 0600), 0);
	w->config.ca_file = file;
	hub_with_cert(w, &cert[0]);
	agent_start(w);
	send_one(w, 1, 1);
	n_wanted = 1;
	run_until(w, seen_wanted);
	run_until(w, settled);
	hub_with_cert(w, &cert[1]);
	send_one(w, 2, 1);
	run_until(w, has_failed);
	assert_int_equal(w->n_seen, 1);
	assert_int_equal(file_write_atomic(file, ca[1].pem, strlen(ca[1].pem), 0600), 0);
	n_wanted = 2;
	run_until(w, seen_wanted);
	for (int i = 0; i < 2; i++) {
		test_ca_done(&ca[i]);
		test_cert_done(&cert[i]);
	}
}

/* hub.url contains an IPv6 address: the hub's certificate must contain this address. */
static void test_hub_at_an_ipv6_literal(void **state)
{
	static const char *const names[] = {"IP:127.0.0.1,DNS:localhost", "IP:::1"};
	struct world *w = *state;
	struct sender_stats st;
	struct test_ca ca;
	struct test_cert cert;
	char file[96], host[64];

	if (!ts_has_ipv6())
		skip();
	snprintf(file, sizeof(file), "%s/ca.crt", w->dir);
	test_ca_init(&ca, "ca");
	assert_int_equal(file_write_atomic(file, ca.pem, strlen(ca.pem), 0600), 0);
	w->config.ca_file = file;
	w->ipv6 = true;
	w->port = 0;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		test_cert_init(&cert, &ca, names[i]);
		hub_with_cert(w, &cert);
		test_cert_done(&cert);
		if (i) {
			n_wanted = 1;
			run_until(w, seen_wanted);
			continue;
		}
		agent_start(w);
		send_one(w, 1, 3);
		run_until(w, has_failed);
		send_stats(w->sender, &st);
		assert_non_null(strstr(st.last_error, "IP address mismatch"));
		assert_int_equal(w->n_requests, 0);
	}
	run_until(w, settled);
	assert_int_equal(w->n_samples, 3);
	snprintf(host, sizeof(host), "[::1]:%u", w->port);
	assert_string_equal(w->host, host);
	test_ca_done(&ca);
}

static int direct_take(struct world *w, const void *body, size_t n)
{
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	w->n_direct++;
	if (w->direct_fails && w->n_direct > w->fails_after) {
		w->direct_fails--;
		return -ENOSPC;
	}
	assert_int_equal(otlp_decode(body, n, &b, NULL), 0);
	note_batch(w, b);
	return 0;
}

static int direct(const void *body, size_t n, void *arg)
{
	int r;

	pthread_mutex_lock(&lock);
	r = direct_take(arg, body, n);
	pthread_mutex_unlock(&lock);
	return r;
}

static void test_direct(void **state)
{
	struct world *w = *state;

	w->config.direct = direct;
	w->config.direct_arg = w;
	w->direct_fails = 1;
	agent_start(w);
	send_one(w, 1, 3);
	n_wanted = 3;
	run_until(w, direct_wanted);
	assert_int_equal(w->n_direct, 2);
	assert_int_equal(w->n_samples, 3);
	assert_int_equal(w->n_requests, 0);
	send_one(w, 2, 4); /* the last window of an agent that ends is stored without the loop */
	agent_stop(w);
	assert_int_equal(w->n_samples, 7);
}

static void test_direct_of_several(void **state)
{
	struct world *w = *state;

	w->config.direct = direct;
	w->config.direct_arg = w;
	w->fails_after = 1;
	w->direct_fails = 2;
	agent_start(w);
	send_large_window(w);
	n_wanted = 15;
	run_until(w, accounted);
	run_until(w, settled);
	check_large_window(w);
	assert_int_equal(w->n_direct, 5); /* two parts, two calls that fail, and the account */
}

static void test_null(void **state)
{
	struct world *w = *state;
	struct sender_stats st;

	w->config.url = "";
	agent_start(w);
	send_one(w, 1, 3);
	n_wanted = 3;
	run_until(w, direct_wanted);
	send_stats(w->sender, &st);
	assert_int_equal(st.n_sent, 1);
	assert_int_equal(w->n_requests, 0);
}

static void test_bad_urls(void **state)
{
	static const char *const urls[] = {"ftp://x",	     "hub:4318",
					   "http://",	     "http://h:0",
					   "http://h:99999", "http://h:12x",
					   "http://u@h:80",  "http://[::1",
					   "http://h?x",     "http://[]:80",
					   "http://[hub]",   "http://::1:80",
					   "http://[a:b]",   "http://[fe80::1%25eth0]",
					   "http://h/a b",   "http://h/?x"};
	struct world *w = *state;

	assert_int_equal(worker_new(w->loop, "disk", 1 << 20, &w->disk), 0);
	w->config.disk = w->disk;
	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		struct field_error err = {0};

		w->config.url = urls[i];
		if (send_new(w->loop, &w->config, &w->sender, &err) != -EINVAL)
			fail_msg("accepted %s", urls[i]);
		assert_string_equal(err.path, "url");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_delivers),
		TEST(test_hub_away_and_back),
		TEST(test_answers_that_are_tried_again),
		TEST(test_token_is_read_again),
		TEST(test_a_window_of_several_requests),
		TEST(test_the_largest_window),
		TEST(test_missing_token_waits),
		TEST(test_refused_batch),
		TEST(test_clock_ahead),
		TEST(test_partial_success),
		TEST(test_everything_refused),
		TEST(test_ca_is_read_again),
		TEST(test_hub_at_an_ipv6_literal),
		TEST(test_direct),
		TEST(test_direct_of_several),
		TEST(test_null),
		TEST(test_bad_urls),
	};

	return cmocka_run_group_tests_name("send", tests, NULL, NULL);
}
