/* SPDX-License-Identifier: Apache-2.0 */
/* A hub that is there, is away, refuses, comes back; an agent that is ended and started again. */
#include "lib/base/testdir.h"
#include "node/send/send.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/loop/testserver.h"

#define DEADLINE_NS (120 * NSEC_PER_SEC)
#define MAX_SEEN    4096

struct world {
	struct loop *loop;
	struct worker *os;
	struct sender *sender;
	struct http_server *hub;
	struct tls *tls; /* of the hub; NULL: plain */
	bool ipv6;	 /* it listens at ::1 */
	uint16_t port;
	char dir[TESTDIR_BYTES], spool[96], token[96], url[64];
	struct send_config config;

	/* what the hub does */
	int status;	       /* answer */
	unsigned n_fails;      /* so many times, then 200 */
	const char *new_token; /* written to the token file at the first failure */
	bool rejects;	       /* 200, but for 2 profiles that it does not take */
	/* what the hub got */
	unsigned n_requests;
	char auth[64], type[64], encoding[16], host[64];
	uint8_t ids[MAX_SEEN][16];
	size_t n_seen, n_repeats;
	uint64_t n_samples, n_lost;
	char loss_reason[32], loss_pod[32];
	int64_t order[MAX_SEEN]; /* process ids in order of arrival */
	size_t n_order;

	/* what the sender told */
	uint64_t n_told;
	char told_pod[32], told_container[32];
	/* direct */
	unsigned n_direct, direct_fails, fails_after; /* so many, when it took some */

	bool (*until)(struct world *w);
	struct timer poll;
	uint64_t deadline_ns;
};

/* ---- running until something holds ---- */

/* A worker's thread notes what it got, too. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void poll_until(void *arg)
{
	struct world *w = arg;
	bool reached;

	pthread_mutex_lock(&lock);
	reached = w->until(w);
	pthread_mutex_unlock(&lock);
	if (reached)
		loop_stop(w->loop, 0);
	else if (now_mono_ns() > w->deadline_ns)
		loop_stop(w->loop, 1);
	else
		timer_set(w->loop, &w->poll, 2 * NSEC_PER_MSEC, poll_until, w);
}

static void run_until(struct world *w, bool (*until)(struct world *w))
{
	struct sender_stats st;

	w->until = until;
	w->deadline_ns = now_mono_ns() + DEADLINE_NS;
	timer_set(w->loop, &w->poll, 0, poll_until, w);
	if (loop_run(w->loop) == 0)
		return;
	sender_stats(w->sender, &st);
	fail_msg("not in time: %u requests, %zu seen, %zu spooled, last error \"%s\"",
		 w->n_requests, w->n_seen, (size_t)st.n_spooled, st.last_error);
}

/* ---- the hub ---- */

static void note_batch(struct world *w, const struct batch *b)
{
	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];
		size_t k = 0;

		while (k < w->n_seen && memcmp(w->ids[k], p->id, 16) != 0)
			k++;
		if (k < w->n_seen) {
			w->n_repeats++;
			continue;
		}
		assert_true(w->n_seen < MAX_SEEN);
		memcpy(w->ids[w->n_seen++], p->id, 16);
		if (p->n_samples)
			w->order[w->n_order++] = p->process_id;
		for (k = 0; k < p->n_samples; k++)
			w->n_samples += p->samples[k].n_samples;
		for (k = 0; k < p->n_losses; k++) {
			const char *pod = profile_tag_get(p, "pod");

			w->n_lost += p->losses[k].n_samples;
			snprintf(w->loss_reason, sizeof(w->loss_reason), "%s", p->losses[k].reason);
			snprintf(w->loss_pod, sizeof(w->loss_pod), "%s", pod ? pod : "");
		}
	}
}

static void hub_http(struct http_conn *c, const struct http_in *in, void *arg)
{
	_cleanup_buf_ struct buf body = {0};
	_cleanup_(batch_freep) struct batch *b = NULL;
	struct world *w = arg;

	w->n_requests++;
	snprintf(w->auth, sizeof(w->auth), "%s", in->authorization);
	snprintf(w->type, sizeof(w->type), "%s", in->content_type);
	snprintf(w->encoding, sizeof(w->encoding), "%s", in->content_encoding);
	snprintf(w->host, sizeof(w->host), "%s", in->host);
	assert_string_equal(in->path, OTLP_PATH);
	if (w->n_fails) {
		w->n_fails--;
		if (w->new_token)
			assert_int_equal(file_write_atomic(w->token, w->new_token,
							   strlen(w->new_token), 0600),
					 0);
		http_reply(c, w->status, "text/plain",
			   (const char *const[]){"Retry-After: 0", NULL}, "no", 2);
		return;
	}
	assert_int_equal(otlp_decompress(in->content_encoding, in->body, in->body_bytes,
					 OTLP_MAX_BYTES, &body),
			 0);
	assert_int_equal(otlp_decode(body.data, body.len, &b, NULL), 0);
	note_batch(w, b);
	/* partial_success {rejected_profiles: 2, error_message: "too old"} */
	http_reply(c, 200, OTLP_CONTENT_TYPE, NULL, "\x0a\x0b\x08\x02\x12\x07too old",
		   w->rejects ? 13 : 0);
}

static void hub_start(struct world *w)
{
	const struct http_server_config hc = {.address = w->ipv6 ? "::1" : "127.0.0.1",
					      .port = w->port,
					      .tls = w->tls,
					      .max_body_bytes = OTLP_MAX_BYTES,
					      .handler = hub_http,
					      .arg = w};

	assert_int_equal(http_server_new(w->loop, &hc, &w->hub, NULL), 0);
	w->port = http_server_port(w->hub);
	snprintf(w->url, sizeof(w->url), "http%s://%s:%u", w->tls ? "s" : "",
		 w->ipv6 ? "[::1]" : "127.0.0.1", w->port);
}

static void hub_stop(struct world *w)
{
	w->hub = http_server_free(w->hub);
}

/* ---- the agent ---- */

static void stored(const struct stored_event *e, size_t n, void *arg)
{
	struct world *w = arg;

	for (size_t i = 0; i < n; i++) {
		w->n_told += e[i].n_samples;
		snprintf(w->told_pod, sizeof(w->told_pod), "%s", e[i].pod_uid);
		snprintf(w->told_container, sizeof(w->told_container), "%s", e[i].container_id);
	}
}

static void agent_start(struct world *w)
{
	struct field_error err = {0};

	assert_int_equal(worker_new(w->loop, "os", SEND_MAILBOX_BYTES, &w->os), 0);
	w->config.os = w->os;
	if (sender_new(w->loop, &w->config, &w->sender, &err) < 0)
		fail_msg("%s: %s", err.path, err.reason);
	sender_on_stored(w->sender, stored, w);
}

static void agent_stop(struct world *w)
{
	w->sender = sender_free(w->sender);
	w->os = worker_free(w->os);
}

/* One process, one sample of n, with some bytes that do not compress. */
static void send_one(struct world *w, uint32_t pid, uint64_t n)
{
	struct batch *b = batch_new();
	struct profile *p = batch_profile(b);
	struct profile_sample *s;
	char name[2049];
	uint8_t noise[1024];
	struct frame f = {.kind = FRAME_APP, .name = name};

	random_bytes(noise, sizeof(noise));
	hex_encode(noise, sizeof(noise), name);
	random_bytes(p->id, sizeof(p->id));
	p->start_ns = 1763700000 * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = batch_str(b, "web");
	p->process_id = pid;
	profile_tag(b, p, "pod", "web-1");
	profile_tag(b, p, "pod_uid", "uid-1");
	profile_tag(b, p, "container_id", "c0ffee");
	s = profile_add(b, p);
	assert_int_equal(batch_stack(b, &f, 1, &s->stack), 0);
	s->n_samples = n;
	s->value = 1;
	assert_int_equal(sender_send(w->sender, b), 0);
}

static size_t n_files(const struct world *w, const char *prefix)
{
	DIR *d = opendir(w->spool);
	const struct dirent *e;
	size_t n = 0;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.' && str_has_prefix(e->d_name, prefix);
	if (d)
		closedir(d);
	return n;
}

/* ---- conditions ---- */

static size_t n_wanted;

static bool seen_wanted(struct world *w)
{
	return w->n_seen >= n_wanted;
}

static bool spooled_wanted(struct world *w)
{
	struct sender_stats st;

	sender_stats(w->sender, &st);
	return st.n_spooled >= n_wanted;
}

static bool settled(struct world *w)
{
	struct sender_stats st;

	sender_stats(w->sender, &st);
	return st.n_spooled == 0 && n_files(w, "") == 0;
}

static bool accounted(struct world *w)
{
	return w->n_samples + w->n_lost >= n_wanted;
}

static bool has_failed(struct world *w)
{
	struct sender_stats st;

	sender_stats(w->sender, &st);
	return st.n_failed > 0;
}

static bool direct_wanted(struct world *w)
{
	return w->n_told >= n_wanted;
}

/* ---- fixture ---- */

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));

	assert_int_equal(testdir_make(w->dir), 0);
	snprintf(w->spool, sizeof(w->spool), "%s/spool", w->dir);
	snprintf(w->token, sizeof(w->token), "%s/token", w->dir);
	assert_int_equal(file_write_atomic(w->token, "old\n", 4, 0600), 0);
	assert_int_equal(loop_new(&w->loop), 0);
	hub_start(w);
	w->config = (struct send_config){.url = w->url,
					 .token_file = w->token,
					 .spool_dir = w->spool,
					 .spool_max_bytes = 1 << 20,
					 .user_agent = "podflame-test"};
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	sender_free(w->sender);
	http_server_free(w->hub);
	tls_unref(w->tls);
	timer_cancel(&w->poll);
	loop_free(w->loop);
	testdir_remove(w->dir);
	free(w);
	return 0;
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
	sender_stats(w->sender, &st);
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
	sender_stats(w->sender, &st);
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

/* A process with a name of so many bytes, as long names of many functions are. */
static void add_large(struct batch *b, const char *pod, uint32_t pid, size_t n_bytes)
{
	_cleanup_free_ char *name = xmalloc(n_bytes + 1);
	const struct frame f = {.kind = FRAME_APP, .name = name};
	struct profile *p = batch_profile(b);
	struct profile_sample *s;

	memset(name, 'x', n_bytes);
	snprintf(name, n_bytes, "%s%u", pod, pid);
	name[strlen(name)] = 'x';
	name[n_bytes] = '\0';
	random_bytes(p->id, sizeof(p->id));
	p->start_ns = 1763700000 * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = batch_str(b, "web");
	p->process_id = pid;
	profile_tag(b, p, "pod", pod);
	s = profile_add(b, p);
	assert_int_equal(batch_stack(b, &f, 1, &s->stack), 0);
	s->n_samples = pid;
	s->value = 1;
}

/*
 * A window holds more names than a request may: it becomes several, and who has too many for one by himself loses what
 * is his alone.
 */
static void send_large_window(struct world *w)
{
	struct batch *b = batch_new();

	add_large(b, "pod-1", 1, 14u << 20);
	add_large(b, "pod-2", 2, 14u << 20);
	add_large(b, "pod-4", 4, OTLP_MAX_BYTES);
	add_large(b, "pod-8", 8, 100);
	assert_int_equal(sender_send(w->sender, b), 0);
}

static void check_large_window(struct world *w)
{
	struct sender_stats st;

	assert_int_equal(w->n_samples, 1 + 2 + 8);
	assert_int_equal(w->n_lost, 4);
	assert_int_equal(w->n_repeats, 0);
	assert_string_equal(w->loss_reason, "too_large");
	assert_string_equal(w->loss_pod, "pod-4");
	sender_stats(w->sender, &st);
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

/* The last stack may take a window beyond its limit: the mailbox of the worker has room for it. */
static void test_the_largest_window(void **state)
{
	struct world *w = *state;
	struct batch *b = batch_new();

	agent_start(w);
	for (uint32_t i = 0; i < 3; i++)
		add_large(b, "pod", 1 << i, 25u << 20);
	assert_true(batch_bytes(b) > BATCH_MAX_BYTES);
	assert_int_equal(sender_send(w->sender, b), 0);
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
	sender_stats(w->sender, &st);
	assert_non_null(strstr(st.last_error, "/token"));
	assert_int_equal(w->n_requests, 0);
	assert_int_equal(file_write_atomic(w->token, "t", 1, 0600), 0);
	n_wanted = 1;
	run_until(w, seen_wanted);
}

/* What the hub will never take is told as loss, and does not stop the others. */
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
	sender_stats(w->sender, &st);
	assert_int_equal(st.n_dropped_samples, 7);
}

/* A receiver that answers 200 and takes not all of it: told and counted, and nobody is told that it is stored. */
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
	sender_stats(w->sender, &st);
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
	sender_stats(w->sender, &st);
	assert_string_equal(st.last_error, "");
	assert_int_equal(st.n_dropped_profiles, 2);
	assert_int_equal(w->n_told, 3);
}

/* Also the account is refused: that is the end of it, not a loop. */
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

static void test_restart_takes_over_the_spool(void **state)
{
	struct world *w = *state;

	hub_stop(w);
	agent_start(w);
	send_one(w, 1, 1);
	send_one(w, 2, 2);
	n_wanted = 2;
	run_until(w, spooled_wanted);
	agent_stop(w);
	assert_int_equal(n_files(w, "0"), 2);
	agent_start(w);
	send_one(w, 3, 3); /* before the old ones are listed: no name is used twice */
	hub_start(w);
	run_until(w, settled);
	assert_int_equal(w->n_samples, 6);
	for (int i = 0; i < 3; i++)
		assert_int_equal(w->order[i], i + 1);
}

/* Ended between the hub's answer and the removal of the file: the hub sees a repeat, by its id. */
static void test_batch_of_one_window_has_one_id(void **state)
{
	struct world *w = *state;
	char from[160], copy[160];
	_cleanup_free_ char *data = NULL;
	size_t n;

	hub_stop(w);
	agent_start(w);
	send_one(w, 1, 1);
	n_wanted = 1;
	run_until(w, spooled_wanted);
	agent_stop(w);
	snprintf(from, sizeof(from), "%s/%016x.otlp", w->spool, 0);
	snprintf(copy, sizeof(copy), "%s/%016x.otlp", w->spool, 1);
	assert_int_equal(file_read(AT_FDCWD, from, 1 << 20, &data, &n), 0);
	assert_int_equal(file_write_atomic(copy, data, n, 0600), 0);
	hub_start(w);
	agent_start(w);
	run_until(w, settled);
	assert_int_equal(w->n_requests, 2);
	assert_int_equal(w->n_repeats, 1);
	assert_int_equal(w->n_samples, 1);
}

/* All that was sent is stored or counted, and the directory stays within its limit. */
static void test_overflow(void **state)
{
	struct world *w = *state;
	struct sender_stats st;
	uint64_t n_sent = 0;

	hub_stop(w);
	w->config.spool_max_bytes = 10000;
	agent_start(w);
	for (uint32_t i = 1; i <= 40; i++) {
		send_one(w, i, i);
		n_sent += i;
	}
	n_wanted = 5;
	run_until(w, has_failed);
	sender_stats(w->sender, &st);
	assert_true(st.n_dropped_samples > 0);
	assert_true(st.spool_bytes <= 10000 + 2000); /* the one on its way is not touched */
	hub_start(w);
	n_wanted = n_sent;
	run_until(w, accounted);
	run_until(w, settled);
	assert_int_equal(w->n_samples + w->n_lost, n_sent);
	assert_true(w->n_lost > 0);
	assert_string_equal(w->loss_reason, "spool_full");
	assert_string_equal(w->loss_pod, "web-1");
	assert_int_equal(w->order[w->n_order - 1], 40); /* the newest were kept */
}

static void test_account_survives_a_restart(void **state)
{
	struct world *w = *state;
	uint64_t n_sent = 0;

	hub_stop(w);
	w->config.spool_max_bytes = 10000;
	agent_start(w);
	for (uint32_t i = 1; i <= 40; i++) {
		send_one(w, i, i);
		n_sent += i;
	}
	run_until(w, has_failed);
	agent_stop(w);
	assert_int_equal(n_files(w, "losses"), 1);
	hub_start(w);
	agent_start(w);
	n_wanted = n_sent;
	run_until(w, accounted);
	run_until(w, settled);
	assert_int_equal(w->n_samples + w->n_lost, n_sent);
}

static void test_damaged_file_is_set_aside(void **state)
{
	struct world *w = *state;
	struct counter *corrupt = counter("podflame_spool_files_total", "reason", "corrupt");
	uint64_t before = counter_get(corrupt);
	char path[160];
	int fd;

	hub_stop(w);
	agent_start(w);
	for (uint32_t i = 1; i <= 4; i++)
		send_one(w, i, 1);
	n_wanted = 4;
	run_until(w, spooled_wanted);
	agent_stop(w);
	snprintf(path, sizeof(path), "%s/%016x.otlp", w->spool, 1);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, 100), 1); /* one byte of the body */
	close(fd);
	snprintf(path, sizeof(path), "%s/%016x.otlp", w->spool, 2);
	assert_int_equal(truncate(path, 10), 0);
	snprintf(path, sizeof(path), "%s/%016x.otlp.tmp", w->spool, 9);
	assert_int_equal(file_write_atomic(path, "", 0, 0600), 0); /* killed while it wrote */
	hub_start(w);
	agent_start(w);
	n_wanted = 2;
	run_until(w, seen_wanted);
	assert_int_equal(w->order[0], 1);
	assert_int_equal(w->order[1], 4);
	assert_int_equal(counter_get(corrupt), before + 2);
	assert_int_equal(n_files(w, "corrupt-"), 2);
	assert_int_equal(n_files(w, "0000000000000009"), 0);
}

static uint64_t n_left(void)
{
	return counter_get(counter("podflame_spool_files_total", "reason", "left"));
}

static bool three_are_left(struct world *w)
{
	(void)w;
	return n_left() == 3;
}

/* What is left for the next start is told. */
static void test_more_files_than_are_taken_over(void **state)
{
	struct world *w = *state;

	assert_int_equal(n_left(), 0);
	hub_stop(w);
	assert_int_equal(mkdir_parents(w->spool, 0700), 0);
	for (unsigned i = 1; i <= 65536 + 3; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%016x.otlp", w->spool, i);
		_cleanup_close_ int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

		assert_true(fd >= 0);
	}
	agent_start(w);
	run_until(w, three_are_left);
	agent_stop(w);
	/* an empty one may have been tried */
	assert_int_equal(n_files(w, "0") + n_files(w, "corrupt-"), 65536 + 3);
}

/* A directory that cannot be written: the batch goes out of memory. */
static void test_spool_that_cannot_be_written(void **state)
{
	struct world *w = *state;
	struct sender_stats st;

	assert_int_equal(file_write_atomic(w->spool, "", 0, 0600), 0); /* a file of that name */
	agent_start(w);
	send_one(w, 1, 3);
	n_wanted = 1;
	run_until(w, seen_wanted);
	assert_int_equal(w->n_samples, 3);
	sender_stats(w->sender, &st);
	assert_int_equal(st.n_dropped_samples, 0);
}

/* kill -9 while it writes: whole files are sent once, the half one is no harm. */
static void test_killed(void **state)
{
	struct world *w = *state;
	struct counter *corrupt = counter("podflame_spool_files_total", "reason", "corrupt");
	uint64_t before = counter_get(corrupt), deadline_ns = now_mono_ns() + DEADLINE_NS;
	size_t n;
	pid_t pid;

	hub_stop(w);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (loop_new(&w->loop) < 0)
			_exit(1);
		agent_start(w);
		for (uint32_t i = 1;; i++)
			send_one(w, i, 1);
	}
	while (n_files(w, "0") < 20 && now_mono_ns() < deadline_ns)
		usleep(1000);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	n = n_files(w, "0");
	assert_true(n >= 20);
	hub_start(w);
	agent_start(w);
	run_until(w, settled);
	assert_true(w->n_seen >= n - 1); /* one may have been half written */
	assert_int_equal(w->n_samples, w->n_seen);
	assert_int_equal(w->n_repeats, 0);
	assert_int_equal(counter_get(corrupt), before);
}

static void hub_with_cert(struct world *w, const struct test_cert *cert)
{
	const struct tls_config tc = {.cert_pem = cert->cert_pem, .key_pem = cert->key_pem};

	w->tls = tls_unref(w->tls);
	assert_int_equal(tls_new(&tc, true, &w->tls, NULL), 0);
	hub_stop(w);
	hub_start(w);
}

/* The hub gets a certificate of another CA: trusted once the file says so, without a restart. */
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

/* hub.url is an IPv6 literal: the certificate has to bear it. */
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
		sender_stats(w->sender, &st);
		assert_non_null(strstr(st.last_error, "IP address mismatch"));
		assert_int_equal(w->n_requests, 0);
	}
	run_until(w, settled);
	assert_int_equal(w->n_samples, 3);
	snprintf(host, sizeof(host), "[::1]:%u", w->port);
	assert_string_equal(w->host, host);
	test_ca_done(&ca);
}

static void test_memory_only(void **state)
{
	struct world *w = *state;

	hub_stop(w);
	w->config.spool_dir = "";
	agent_start(w);
	send_one(w, 1, 3);
	n_wanted = 1;
	run_until(w, has_failed);
	hub_start(w);
	run_until(w, seen_wanted);
	assert_int_equal(w->n_samples, 3);
}

static int direct_take(struct world *w, const void *body, size_t n)
{
	_cleanup_(batch_freep) struct batch *b = NULL;

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
	send_one(w, 2, 4); /* the last window of a role that ends: stored without the loop */
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
	assert_int_equal(w->n_direct, 5); /* two parts, two failures, the account */
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
	sender_stats(w->sender, &st);
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

	assert_int_equal(worker_new(w->loop, "os", 1 << 20, &w->os), 0);
	w->config.os = w->os;
	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		struct field_error err = {0};

		w->config.url = urls[i];
		if (sender_new(w->loop, &w->config, &w->sender, &err) != -EINVAL)
			fail_msg("accepted %s", urls[i]);
		assert_string_equal(err.path, "url");
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

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
		TEST(test_partial_success),
		TEST(test_everything_refused),
		TEST(test_restart_takes_over_the_spool),
		TEST(test_batch_of_one_window_has_one_id),
		TEST(test_overflow),
		TEST(test_account_survives_a_restart),
		TEST(test_damaged_file_is_set_aside),
		TEST(test_more_files_than_are_taken_over),
		TEST(test_spool_that_cannot_be_written),
		TEST(test_killed),
		TEST(test_ca_is_read_again),
		TEST(test_hub_at_an_ipv6_literal),
		TEST(test_memory_only),
		TEST(test_direct),
		TEST(test_direct_of_several),
		TEST(test_null),
		TEST(test_bad_urls),
	};

	return cmocka_run_group_tests_name("send", tests, NULL, NULL);
}
