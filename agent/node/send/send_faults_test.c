/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub can be reached, but system calls of the agent fail. Each sample of a batch reaches the
 * hub (once, or again with the same id), or is counted as lost.
 */
#include "lib/base/fault.h"
#include "lib/base/testdir.h"
#include "node/send/send.h"

#include <setjmp.h>
#include <cmocka.h>

#define N_SAMPLES   7
#define OUTAGE_NS   (20 * NSEC_PER_MSEC)
#define LOOK_NS	    (2 * NSEC_PER_MSEC)
#define DEADLINE_NS (300 * NSEC_PER_SEC)

static char dir[TESTDIR_BYTES], spool[96], token[96];

struct world {
	struct loop *loop;
	struct worker *disk;
	struct http_server *hub;
	struct sender *sender;
	struct timer outage, look;
	uint64_t deadline_ns, n_unreadable;
	uint64_t n_samples, n_lost, n_stored;
	uint8_t id[16];
	bool seen, too_late;
};

/* ---- the hub ---- */

static void take(struct world *w, const struct profile *p)
{
	for (size_t i = 0; i < p->n_losses; i++)
		w->n_lost += p->losses[i].n_samples;
	if (memcmp(p->id, w->id, sizeof(w->id)) != 0 || w->seen)
		return;
	w->seen = true;
	for (size_t i = 0; i < p->n_samples; i++)
		w->n_samples += p->samples[i].n_samples;
}

static void hub(struct http_conn *c, const struct http_in *in, void *arg)
{
	_cleanup_buf_ struct buf body = {0};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	assert_string_equal(in->authorization, "Bearer secret");
	assert_int_equal(http_decompress(in->content_encoding, in->body, in->body_bytes,
					 OTLP_MAX_BYTES, &body),
			 0);
	assert_int_equal(otlp_decode(body.data, body.len, &b, NULL), 0);
	for (size_t i = 0; i < b->n_profiles; i++)
		take(arg, b->profiles[i]);
	http_reply(c, 200, OTLP_CONTENT_TYPE, NULL, "", 0);
}

/* ---- the agent ---- */

static void stored(const struct stored_event *e, size_t n, void *arg)
{
	for (size_t i = 0; i < n; i++)
		((struct world *)arg)->n_stored += e[i].n_samples;
}

static uint64_t n_unreadable(void)
{
	return counter_get(counter("podflame_spool_files_total", "reason", "unreadable")) +
	       counter_get(counter("podflame_spool_files_total", "reason", "corrupt"));
}

static void look(void *arg)
{
	struct world *w = arg;
	struct sender_stats st;

	send_stats(w->sender, &st);
	w->too_late = now_mono_ns() > w->deadline_ns;
	if (w->too_late || ((w->n_samples + w->n_lost >= N_SAMPLES || st.n_dropped_samples ||
			     n_unreadable() > w->n_unreadable) &&
			    !st.n_spooled))
		loop_stop(w->loop, 0);
	else
		timer_set(w->loop, &w->look, LOOK_NS, look, w);
}

static int world_make(struct world *w)
{
	struct http_server_config hc = {
		.address = "127.0.0.1", .max_body_bytes = OTLP_MAX_BYTES, .handler = hub, .arg = w};
	struct send_config c = {.token_file = token,
				.spool_dir = spool,
				.spool_max_bytes = 1 << 20,
				.user_agent = "podflame-test"};
	_cleanup_free_ char *url = NULL;
	int r = loop_new(&w->loop);

	if (!r)
		r = worker_new(w->loop, "disk", 256u << 20, &w->disk);
	if (!r)
		r = http_server_new(w->loop, &hc, &w->hub, NULL);
	if (r)
		return r;
	url = xasprintf("http://127.0.0.1:%u", http_server_port(w->hub));
	c.url = url;
	c.disk = w->disk;
	r = send_new(w->loop, &c, &w->sender, NULL);
	if (r)
		assert_null(w->sender);
	return r;
}

static void world_done(struct world *w)
{
	if (w->loop) {
		timer_cancel(&w->outage);
		timer_cancel(&w->look);
	}
	send_free(w->sender);
	http_server_free(w->hub);
	worker_free(w->disk);
	loop_free(w->loop);
}

static struct batch *one_window(struct world *w)
{
	struct frame f = {.kind = FRAME_APP, .name = "main", .module = "/bin/x"};
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s;

	random_bytes(w->id, sizeof(w->id));
	memcpy(p->id, w->id, sizeof(p->id));
	p->event = EVENT_ON_CPU;
	p->start_ns = NSEC_PER_SEC;
	p->end_ns = 2 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "api");
	profile_tag(b, p, "pod_uid", "u");
	profile_tag(b, p, "container_id", "c");
	s = profile_add(b, p);
	s->cpu = -1;
	s->value = 1;
	s->n_samples = N_SAMPLES;
	assert_int_equal(profile_batch_stack(b, &f, 1, &s->stack), 0);
	return b;
}

static void empty(void *arg)
{
	(void)arg;
	testdir_remove(spool);
}

static int deliver(void *arg)
{
	struct world w = {.n_unreadable = n_unreadable()};
	int r = world_make(&w);

	(void)arg;
	if (!r) {
		send_on_stored(w.sender, stored, &w);
		timer_set(w.loop, &w.outage, OUTAGE_NS, fault_outage_ends, &w);
		w.deadline_ns = now_mono_ns() + DEADLINE_NS;
		look(&w);
		assert_int_equal(send_send(w.sender, one_window(&w)), 0);
		r = loop_run(w.loop);
		assert_false(w.too_late);
		assert_true(w.n_samples == 0 || w.n_samples == N_SAMPLES);
		assert_true(w.n_stored <= w.n_samples);
	}
	world_done(&w);
	return r;
}

static void test_deliver(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "sender: connection",
		 .calls = FAULT(FD) | FAULT(CONNECT) | FAULT(SEND) | FAULT(RECV) | FAULT(POLL) |
			  FAULT(EPOLL) | FAULT(START),
		 .before = empty,
		 .run = deliver,
		 .step = 3,
		 .threads = true},
		{.name = "sender: files",
		 .calls = FAULT_FILES,
		 .before = empty,
		 .run = deliver,
		 .step = 7,
		 .threads = true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_deliver)};
	int r;

	if (testdir_make(dir))
		return 1;
	snprintf(spool, sizeof(spool), "%s/spool", dir);
	snprintf(token, sizeof(token), "%s/token", dir);
	r = file_write_atomic(token, "secret", 6, 0600);
	r = r < 0 ? 1 : cmocka_run_group_tests_name("send_faults", tests, NULL, NULL);
	return testdir_remove(dir) ? 1 : r;
}
