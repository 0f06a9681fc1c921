/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that is not reachable or is silent: resets, lost packets, slow answers, other addresses;
 * and the recovery from each.
 */
#include "lib/kube/testwatch.h"
#include "lib/loop/testconn.h"

#include <stdatomic.h>

static const struct row rows[] = {
	{"watch_18_silent_stream_is_given_up",
	 {{REPLY, LIST("10", "")},
	  {HOLD, ADD("a", "11")},
	  {HOLD, ADD("b", "12"), .expect = {"resourceVersion=11 "}}},
	 "synced ok +n/a=11 +n/b=12",
	 .silence_ns = NSEC_PER_SEC},
	{"watch_18_silent_server_is_probed",
	 {{REPLY, LIST("10", "")},
	  {HOLD, ADD("a", "11")},
	  {CLOSE, .expect = {"limit=1"}},
	  {HOLD, ADD("b", "12"), .expect = {"watch=true", "resourceVersion=11 "}}},
	 "synced ok +n/a=11 err ok +n/b=12",
	 .probe_ns = NSEC_PER_SEC,
	 .resets = true},
	{"watch_20_reset",
	 {{REPLY, LIST("10", "")},
	  {RESET, ADD("a", "11"), .headers = "+n/a=11"},
	  {HOLD, ADD("b", "12"), .expect = {"resourceVersion=11 "}}},
	 "synced ok +n/a=11 +n/b=12"},
	{"watch_45_connection_closed_without_answer",
	 {{CLOSE},
	  {REPLY, LIST("10", "")},
	  {CLOSE},
	  {HOLD, ADD("a", "11"), .expect = {"resourceVersion=10 "}}},
	 /* the second CLOSE ends a keep-alive connection, and the client silently asks again */
	 "err(connection closed without an answer) synced ok +n/a=11",
	 .min_backoffs = 1},
	{"watch_46_list_that_stops_coming",
	 {{SILENT}, {REPLY, LIST("10", "")}, {HOLD, ""}},
	 "err synced ok",
	 .min_backoffs = 1,
	 .probe_ns = NSEC_PER_SEC},
	/*
	 * two servers are behind one address, and one of them closes each connection without an
	 * answer
	 */
	{"watch_48_every_other_connection_is_closed",
	 {{CLOSE},
	  {REPLY, LIST("10", ""), .headers = "Connection: close\r\n"},
	  {CLOSE, .expect = {"watch=true"}},
	  {CUT, ADD("a", "11")},
	  {CLOSE, .expect = {"resourceVersion=11 "}},
	  {HOLD, ADD("b", "12"), .expect = {"resourceVersion=11 "}}},
	 "err(connection closed without an answer) synced ok "
	 "err(connection closed without an answer) ok +n/a=11 "
	 "err(connection closed without an answer) ok +n/b=12"},
	/* one of the servers behind the address accepts the request and never answers it */
	{"watch_48_silent_backend_is_left",
	 {{REPLY, LIST("10", "")},
	  {SILENT, .expect = {"watch=true"}},
	  {HOLD, ADD("a", "11"), .expect = {"watch=true", "resourceVersion=10 "}}},
	 "synced ok err ok +n/a=11",
	 .watch_head_ns = 3 * NSEC_PER_SEC},
};

/* ---- 46: an answer that is slow ---- */

static void set_flag(void *arg)
{
	ts_set_flag(((struct fixture *)arg)->ts, 1);
}

static void run_slow(const struct kube_times *times, uint64_t slow_ns)
{
	static const struct row row = {"",
				       {{SLOW, LIST("10", POD("a", "1"))},
					{HOLD, ADD("b", "11"), .expect = {"resourceVersion=10 "}}},
				       "+n/a=1 synced ok +n/b=11",
				       .no_backoff = true};
	struct fixture *f = start(&row, times);

	f->deadline_ns += slow_ns;
	timer_set(f->loop, &f->guard, slow_ns, set_flag, f);
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	finish(f);
}

static void watch_46_slow_list_is_waited_for(void **state)
{
	(void)state;
	run_slow(&fast, 200 * NSEC_PER_MSEC);
}

static void watch_46_sixty_seconds_to_headers_long(void **state)
{
	(void)state;
	if (!getenv("LONG")) {
		print_message("skip: a list whose head takes 60 s: LONG=1\n");
		skip();
	}
	run_slow(&kube_times_default, 60 * NSEC_PER_SEC);
}

/* ---- 19: packets are lost, and neither side gets an error ---- */

struct half_open {
	struct fixture *f;
	struct timer timer;
	uint64_t watches, lost_ns, noticed_ns;
};

/* Loses all packets from the first event on. Once the client has noticed, packets arrive again. */
static void lose_and_restore(void *arg)
{
	struct half_open *h = arg;

	if (!h->lost_ns && str_has_suffix(h->f->log.data ?: "", "+n/a=11")) {
		ts_lose_packets(h->f->ts, true);
		h->lost_ns = now_mono_ns();
		h->watches = total("kube_watch_total", "event", "watch");
	}
	if (h->lost_ns && total("kube_watch_total", "event", "watch") > h->watches) {
		h->noticed_ns = now_mono_ns();
		ts_lose_packets(h->f->ts, false);
		return;
	}
	timer_set(h->f->loop, &h->timer, 5 * NSEC_PER_MSEC, lose_and_restore, h);
}

static uint64_t run_half_open(void)
{
	static const struct row row = {"",
				       {{REPLY, LIST("10", "")},
					{HOLD, ADD("a", "11")},
					{HOLD, ADD("b", "12"), .expect = {"resourceVersion=11 "}}},
				       "synced ok +n/a=11 +n/b=12"};
	struct half_open h = {.f = start(&row, &fast)};

	h.f->deadline_ns += 100 * NSEC_PER_SEC;
	lose_and_restore(&h);
	assert_int_equal(loop_run(h.f->loop), 0);
	assert_null(h.f->wrong);
	timer_cancel(&h.timer);
	finish(h.f);
	print_message("noticed after %.1f s\n", (double)(h.noticed_ns - h.lost_ns) / 1e9);
	return h.noticed_ns - h.lost_ns;
}

static void watch_19_half_open_connection(void **state)
{
	struct conn_liveness usual = conn_liveness;

	(void)state;
	conn_liveness = (struct conn_liveness){
		.idle_s = 1, .interval_s = 1, .count = 2, .user_timeout_ms = 2000};
	run_half_open();
	conn_liveness = usual;
}

static void watch_19_half_open_connection_long(void **state)
{
	(void)state;
	if (!getenv("LONG")) {
		print_message("skip: a connection that is dead for 30 to 50 s: LONG=1\n");
		skip();
	}
	assert_true(run_half_open() < 60 * NSEC_PER_SEC);
}

/* ---- 51: the service's name, and where it leads to ---- */

static atomic_int name_leads_to; /* 127.0.0.X; 0: the resolver fails */

static int search(const char *name, const char *service, const struct addrinfo *hints,
		  struct addrinfo **ret)
{
	struct addrinfo numeric = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
	char address[16];

	(void)name;
	(void)service;
	(void)hints;
	if (name_leads_to == 0)
		return EAI_AGAIN;
	snprintf(address, sizeof(address), "127.0.0.%d", name_leads_to);
	return getaddrinfo(address, NULL, &numeric, ret);
}

static const struct row moving_row = {
	"",
	{{REPLY, LIST("10", "")},
	 {HOLD, ADD("a", "11")},
	 {HOLD, ADD("b", "12"), .expect = {"watch=true", "resourceVersion=11 "}}},
	"synced ok +n/a=11 +n/b=12",
	.address = "api.podflame.example"};

/* Ends the loop after the first event. */
static void until_first_event(void *arg)
{
	struct fixture *f = arg;

	if (str_has_suffix(f->log.data ?: "", "+n/a=11"))
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->guard, NSEC_PER_MSEC, until_first_event, f);
}

static void run_by_name(int then_leads_to, bool server_moves)
{
	struct fixture *f;
	struct ts_config two = {.cert = &cert, .address = "127.0.0.2"};
	struct test_server *old = NULL;

	resolve_config.search = search;
	name_leads_to = 1;
	f = start(&moving_row, &fast);
	until_first_event(f);
	assert_int_equal(loop_run(f->loop), 0);
	name_leads_to = then_leads_to;
	if (server_moves) {
		two.port = f->ts->port;
		old = f->ts;
		f->ts = ts_start(&two, serve, f);
		ts_stop(old);
	} else {
		ts_end_all(f->ts);
	}
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	finish(f);
	resolve_config.search = getaddrinfo;
}

static void watch_51_service_moves_to_another_address(void **state)
{
	(void)state;
	run_by_name(2, true);
}

static void watch_51_goes_on_without_dns(void **state)
{
	(void)state;
	run_by_name(0, false);
}

/* ---- 45: an outage ---- */

/*
 * After an outage, the first request that succeeds (here a ping) ends the waits of the watches that
 * failed because of the outage. Otherwise they would wait for an hour.
 */
static const char *const away_paths[] = {"/closed", "/unready", "/forbidden", "/busy"};
enum { BUSY = 3, N_AWAY };

struct outage {
	struct fixture *f;
	struct kube_watch *watches[N_AWAY];
	atomic_bool away;
	atomic_int n_tries;
	int n_failed, n_synced, n_pings;
	bool pinging;
};

static void serve_outage(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	struct outage *o = arg;
	bool away = atomic_load(&o->away) && !strstr(r->line, "/ping");

	o->n_tries += !strstr(r->line, "/ping");
	if (away && strstr(r->line, "/closed"))
		c->over = true;
	else if (away && strstr(r->line, "/unready"))
		ts_reply(c, 503, NULL, "");
	else if (away && strstr(r->line, "/forbidden"))
		ts_reply(c, 403, NULL, STATUS("403", "no roles yet"));
	else if (away)
		ts_reply(c, 429, "Retry-After: 0\r\n", "");
	else if (strstr(r->line, "watch=true"))
		perform(c, &(struct step){HOLD, ""});
	else
		ts_reply(c, 200, NULL, LIST("10", ""));
}

static void pinged(int status, const json_t *body, const char *error, void *arg)
{
	struct outage *o = arg;

	(void)body;
	(void)error;
	assert_int_equal(status, 200);
	o->n_pings++;
	o->pinging = false;
}

static void ping(struct outage *o)
{
	if (o->pinging)
		return;
	o->pinging = true;
	assert_int_equal(kube_request(o->f->kube, "GET", "/ping", NULL, NULL, pinged, o), 0);
}

static void outage_state(const char *error, void *arg)
{
	struct outage *o = arg;

	if (!error || ++o->n_failed < N_AWAY)
		return;
	atomic_store(&o->away, false);
	ping(o);
}

static void outage_synced(void *arg)
{
	struct outage *o = arg;

	if (++o->n_synced == N_AWAY - 1)
		loop_stop(o->f->loop, 0);
}

static void too_late(void *arg)
{
	loop_stop(((struct outage *)arg)->f->loop, -ETIMEDOUT);
}

static struct outage *start_outage(void)
{
	struct outage *o = xcalloc(1, sizeof(*o));
	struct ts_config tc = {.cert = &cert};
	struct kube_times t = fast;

	t.backoff_first_ns = t.backoff_max_ns = t.slow_ns = 3600 * NSEC_PER_SEC;
	o->away = true;
	o->f = xcalloc(1, sizeof(*o->f));
	assert_int_equal(loop_new(&o->f->loop), 0);
	o->f->ts = ts_start(&tc, serve_outage, o);
	make_kube(o->f, NULL, &t);
	timer_set(o->f->loop, &o->f->guard, 20 * NSEC_PER_SEC, too_late, o);
	return o;
}

static void end_outage(struct outage *o)
{
	for (size_t i = 0; i < N_AWAY; i++)
		kube_watch_free(o->watches[i]);
	finish(o->f);
	free(o);
}

static void watch_45_all_come_back_with_the_first(void **state)
{
	static const struct kube_watch_ops outage_ops = {.synced = outage_synced,
							 .state = outage_state};
	uint64_t before = total("kube_watch_total", "event", "hurry");
	struct outage *o = start_outage();

	(void)state;
	for (size_t i = 0; i < N_AWAY; i++) {
		struct kube_watch_spec spec = {.path = away_paths[i]};

		assert_int_equal(kube_watch_new(o->f->kube, &spec, &outage_ops, o, &o->watches[i]),
				 0);
	}
	assert_int_equal(loop_run(o->f->loop), 0);
	assert_int_equal(total("kube_watch_total", "event", "hurry") - before, N_AWAY - 1);
	/* a watch that got 429 still waits, because the server was not away */
	assert_false(kube_watch_synced(o->watches[BUSY]));
	end_outage(o);
}

/*
 * Sends pings, which succeed and so end the waits of the watch early, until it has used its early
 * retries (MAX_HURRIED), and then 20 pings more.
 */
static void ping_on(void *arg)
{
	struct outage *o = arg;

	if (atomic_load(&o->n_tries) < 4)
		o->n_pings = 0;
	if (o->n_pings >= 20) {
		loop_stop(o->f->loop, 0);
		return;
	}
	ping(o);
	timer_set(o->f->loop, &o->f->check, NSEC_PER_MSEC, ping_on, o);
}

static void watch_45_a_failure_of_its_own_is_not_hurried_for_good(void **state)
{
	static const struct kube_watch_ops quiet = {0};
	static const struct kube_watch_spec spec = {.path = "/unready"};
	struct outage *o = start_outage();

	(void)state;
	assert_int_equal(kube_watch_new(o->f->kube, &spec, &quiet, o, &o->watches[0]), 0);
	ping_on(o);
	assert_int_equal(loop_run(o->f->loop), 0);
	assert_int_equal(o->n_tries, 4);
	end_outage(o);
}

int main(void)
{
	const struct CMUnitTest more[] = {
		cmocka_unit_test(watch_46_slow_list_is_waited_for),
		cmocka_unit_test(watch_46_sixty_seconds_to_headers_long),
		cmocka_unit_test(watch_19_half_open_connection),
		cmocka_unit_test(watch_19_half_open_connection_long),
		cmocka_unit_test(watch_51_service_moves_to_another_address),
		cmocka_unit_test(watch_51_goes_on_without_dns),
		cmocka_unit_test(watch_45_all_come_back_with_the_first),
		cmocka_unit_test(watch_45_a_failure_of_its_own_is_not_hurried_for_good),
	};

	return run_rows("watch_conn", rows, ARRAY_SIZE(rows), more, ARRAY_SIZE(more));
}
