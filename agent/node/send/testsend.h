/* SPDX-License-Identifier: Apache-2.0 */
/* Only for tests of send: an agent that sends, and a hub that records what it gets. */
#pragma once

#include "lib/base/testdir.h"
#include "node/send/send.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/loop/testserver.h"

#define DEADLINE_NS (120 * NSEC_PER_SEC)
#define MAX_SEEN    4096

struct world {
	struct loop *loop;
	struct worker *disk;
	struct sender *sender;
	struct http_server *hub;
	struct tls *tls; /* the TLS settings of the hub; NULL: HTTP without TLS */
	bool ipv6;	 /* the hub listens at ::1 */
	uint16_t port;
	char dir[TESTDIR_BYTES], spool[96], token[96], url[64];
	struct send_config config;

	/* how the hub behaves */
	int status;	       /* status of the hub's answers */
	unsigned n_fails;      /* this many answers have `status`, all later ones 200 */
	const char *refusal;   /* the body of these answers; NULL: "no" */
	const char *new_token; /* written to the token file at the first failure */
	bool rejects;	       /* the hub answers 200 with partial success: it rejects 2 profiles */
	/* what the hub has received */
	unsigned n_requests;
	char auth[64], type[64], encoding[16], host[64];
	uint8_t ids[MAX_SEEN][16];
	size_t n_seen, n_repeats;
	uint64_t n_samples, n_lost;
	char loss_reason[32], loss_pod[32];
	int64_t order[MAX_SEEN]; /* the process ids in the order in which they arrived */
	size_t n_order;

	/* what send_on_stored() reported */
	uint64_t n_told;
	char told_pod[32], told_container[32];
	/* the direct sink */
	/* direct_fails: how many calls fail, after fails_after calls that succeed */
	unsigned n_direct, direct_fails, fails_after;

	bool (*until)(struct world *w);
	struct timer poll;
	uint64_t deadline_ns;
};

/* ---- run the loop until a condition is true ---- */

/* a lock is needed, because a worker's thread also writes to struct world */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static inline void poll_until(void *arg)
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
	send_stats(w->sender, &st);
	fail_msg("not in time: %u requests, %zu seen, %zu spooled, last error \"%s\"",
		 w->n_requests, w->n_seen, (size_t)st.n_spooled, st.last_error);
}

/* ---- the hub ---- */

static inline void note_batch(struct world *w, const struct batch *b)
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

static inline void hub_http(struct http_conn *c, const struct http_in *in, void *arg)
{
	_cleanup_buf_ struct buf body = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
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
			   (const char *const[]){"Retry-After: 0", NULL}, w->refusal ?: "no",
			   strlen(w->refusal ?: "no"));
		return;
	}
	assert_int_equal(http_decompress(in->content_encoding, in->body, in->body_bytes,
					 OTLP_MAX_BYTES, &body),
			 0);
	assert_int_equal(otlp_decode(body.data, body.len, &b, NULL), 0);
	note_batch(w, b);
	/* partial_success {rejected_profiles: 2, error_message: "too old"} */
	http_reply(c, 200, OTLP_CONTENT_TYPE, NULL, "\x0a\x0b\x08\x02\x12\x07too old",
		   w->rejects ? 13 : 0);
}

static inline void hub_start(struct world *w)
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

static inline void hub_stop(struct world *w)
{
	w->hub = http_server_free(w->hub);
}

/* ---- the agent ---- */

static inline void stored(const struct stored_event *e, size_t n, void *arg)
{
	struct world *w = arg;

	for (size_t i = 0; i < n; i++) {
		w->n_told += e[i].n_samples;
		snprintf(w->told_pod, sizeof(w->told_pod), "%s", e[i].pod_uid);
		snprintf(w->told_container, sizeof(w->told_container), "%s", e[i].container_id);
	}
}

static inline void agent_start(struct world *w)
{
	struct field_error err = {0};

	assert_int_equal(worker_new(w->loop, "disk", SEND_MAILBOX_BYTES, &w->disk), 0);
	w->config.disk = w->disk;
	if (send_new(w->loop, &w->config, &w->sender, &err) < 0)
		fail_msg("%s: %s", err.path, err.reason);
	send_on_stored(w->sender, stored, w);
}

static inline void agent_stop(struct world *w)
{
	w->sender = send_free(w->sender);
	w->disk = worker_free(w->disk);
}

/*
 * Sends a profile of one process with one entry that stands for n samples, and some bytes that do
 * not compress.
 */
/* Adds a profile of pod "web-1" with n samples: about 2 KiB. */
static inline struct profile *add_profile(struct batch *b, uint32_t pid, uint64_t n)
{
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s;
	char name[2049];
	uint8_t noise[1024];
	struct frame f = {.kind = FRAME_APP, .name = name};

	random_bytes(noise, sizeof(noise));
	hex_encode(noise, sizeof(noise), name);
	random_bytes(p->id, sizeof(p->id));
	p->start_ns = 1763700000 * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = pid;
	profile_tag(b, p, "pod", "web-1");
	profile_tag(b, p, "pod_uid", "uid-1");
	profile_tag(b, p, "container_id", "c0ffee");
	s = profile_add(b, p);
	assert_int_equal(profile_batch_stack(b, &f, 1, &s->stack), 0);
	s->n_samples = n;
	s->value = 1;
	return p;
}

static inline void send_one(struct world *w, uint32_t pid, uint64_t n)
{
	struct batch *b = profile_batch_new();

	add_profile(b, pid, n);
	assert_int_equal(send_send(w->sender, b), 0);
}

static inline size_t n_files(const struct world *w, const char *prefix)
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

static inline bool seen_wanted(struct world *w)
{
	return w->n_seen >= n_wanted;
}

static inline bool spooled_wanted(struct world *w)
{
	struct sender_stats st;

	send_stats(w->sender, &st);
	return st.n_spooled >= n_wanted;
}

static inline bool settled(struct world *w)
{
	struct sender_stats st;

	send_stats(w->sender, &st);
	return st.n_spooled == 0 && n_files(w, "") == 0;
}

static inline bool accounted(struct world *w)
{
	return w->n_samples + w->n_lost >= n_wanted;
}

static inline bool has_failed(struct world *w)
{
	struct sender_stats st;

	send_stats(w->sender, &st);
	return st.n_failed > 0;
}

/* ---- fixture ---- */

static inline int setup(void **state)
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

static inline int teardown(void **state)
{
	struct world *w = *state;

	send_free(w->sender);
	http_server_free(w->hub);
	tls_unref(w->tls);
	timer_cancel(&w->poll);
	loop_free(w->loop);
	testdir_remove(w->dir);
	free(w);
	return 0;
}

/* ---- tests ---- */

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
