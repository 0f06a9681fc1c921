/* SPDX-License-Identifier: Apache-2.0 */
/* Events besides on-CPU: waits, memory in use, estimates, throttled time. */
#include "hub/store/teststore.h"

static void waits_are_kept_apart(void **state)
{
	static const enum wait waits[] = {WAIT_LOCK, WAIT_RUNQUEUE, WAIT_LOCK};
	struct store *s = *state;
	struct selection sel = {
		.event = EVENT_OFF_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "1", "api", 10, "app", T0);
	struct values v = {""};
	_cleanup_(got_done) struct got g = {0};

	p->event = EVENT_OFF_CPU;
	for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
		add_sample(b, p, "worker", false, "futex", 100 + 10 * (int64_t)i);
		p->samples[i].wait = waits[i];
	}
	write_batch(s, b, 1);
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 2);
	assert_string_equal(g.rows[0].text, "api: [t] worker;main;[l] futex;[/bin/x];[wait: lock]");
	assert_int_equal(g.rows[0].value, 220);
	assert_string_equal(g.rows[1].text,
			    "api: [t] worker;main;[l] futex;[/bin/x];[wait: runqueue]");
	assert_int_equal(g.rows[1].value, 110);
	sel.where = leaf(PRED_EQ, "wait", "lock");
	read_rows(s, &sel, &g);
	assert_int_equal(g.sum, 220);
	store_predicate_free(sel.where);
	sel.where = leaf(PRED_NOT_IN, "wait", "lock");
	read_rows(s, &sel, &g);
	assert_int_equal(g.sum, 110);
	store_predicate_free(sel.where);
	sel.where = NULL;
	read_values(s, &sel, "wait", 10, take_value, &v, NULL);
	assert_string_equal(v.text, "lock=22 runqueue=11 ");
	/* a profile of another event has no such tag */
	write_batch(s, two_services(), 2);
	assert_int_equal(value_where(s, leaf(PRED_IS_NULL, "wait", NULL)), 70);
}

/* ---- snapshots ---- */

static const struct live nothing[] = {{0}};

static void snapshots_replace(void **state)
{
	static const struct live first[] = {{"cache", 100}, {"buffer", 50}, {0}},
				 second[] = {{"cache", 120}, {0}}, other[] = {{"table", 70}, {0}};
	struct store *s = *state;
	struct selection late = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 + 15, .time_end_s = T0 + 15};
	_cleanup_(got_done) struct got g = {0};

	write_snapshot(s, "api", 10, T0, first);
	write_snapshot(s, "db", 11, T0, other);
	write_snapshot(s, "api", 10, T0 + 10, second);
	assert_int_equal(live_until(s, T0 - 1, 3), 220);
	/* "buffer" was freed, so the new snapshot lacks it; db has sent no newer snapshot */
	assert_int_equal(live_until(s, T0 + 9, 2), 190);
	write_snapshot(s, "api", 10, T0 + 20, nothing);
	assert_int_equal(live_until(s, T0 + 18, 2), 190);
	assert_int_equal(live_until(s, T0 + 19, 1), 70);
	read_rows(s, &late, &g);
	assert_int_equal(g.n, 0);
	/* now both processes have no memory in use */
	write_snapshot(s, "db", 11, T0 + 20, nothing);
	assert_int_equal(live_until(s, T0 + 19, 0), 0);
}

static void snapshots_by_process(void **state)
{
	static const struct live some[] = {{"cache", 100}, {0}}, more[] = {{"cache", 7}, {0}};
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	struct selection sel = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = T0 + 100};
	char *old[] = {"sh"};
	_cleanup_(got_done) struct got g = {0};

	/* after its exec the process is "api", so the memory of "sh" is freed */
	write_snapshot(s, "sh", 10, T0, some);
	write_snapshot(s, "api", 10, T0 + 10, more);
	assert_int_equal(live_until(s, T0 + 9, 1), 7);
	sel.app_services = old;
	sel.n_app_services = 1;
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 0);
	sel.n_app_services = 0;
	/* other processes with the same id: one has another start time, one is on another node */
	add_snapshot(b, "api", 10, T0 + 11, some)->process_start_ns = 5 * NSEC_PER_SEC;
	profile_tag(b, add_snapshot(b, "api", 10, T0 + 12, some), "pod_node", "n2");
	/* a snapshot without a process id replaces no other one */
	add_snapshot(b, "x", 0, T0 + 13, more);
	add_snapshot(b, "y", 0, T0 + 14, more);
	write_batch(s, b, 4);
	assert_int_equal(live_until(s, T0 + 90, 3), 100 + 100 + 7 + 7 + 7);
}

static void losses_are_no_snapshot(void **state)
{
	static const struct live some[] = {{"cache", 100}, {0}};
	struct selection sel = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = T0 + 100};
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	_cleanup_(got_done) struct got g = {0};

	write_snapshot(s, "api", 10, T0, some);
	profile_lose(b, add_snapshot(b, "api", 10, T0 + 10, nothing), "live_evicted", 3, 0);
	write_batch(s, b, 1);
	read_rows(s, &sel, &g);
	assert_int_equal(g.sum, 100);
	assert_int_equal(g.summary.n_profiles, 1);
	assert_int_equal(g.summary.first_s, T0 - 1);
	assert_int_equal(g.summary.n_losses, 1);
	assert_int_equal(g.summary.losses[0].n_samples, 3);
}

/* A snapshot whose id begins with this byte. */
static void write_snapshot_as(struct store *s, uint8_t id, const char *app, uint32_t pid,
			      const struct live *live)
{
	struct batch *b = profile_batch_new();

	add_snapshot(b, app, pid, T0, live)->id[0] = id;
	write_batch(s, b, 1);
}

static int64_t live_at(struct store *s, const char *app)
{
	struct selection sel = {.event = EVENT_MEM_INUSE, .time_start_s = T0 - 1, .time_end_s = T0};
	const struct series_request r = {.sel = &sel, .step_s = 2, .limit = 10};
	struct store_series x = {0};
	struct field_error e = {0};
	int64_t value;

	sel.app_services = (char **)&app;
	sel.n_app_services = app ? 1 : 0;
	if (store_series(s, &store_scope_all, &r, &x, &e))
		fail_msg("%s: %s", e.path, e.reason);
	value = x.n_groups ? x.groups[0].values[0] : 0;
	store_series_done(&x);
	return value;
}

/* After a node's clock was set back, two snapshots of a process may end in the same second. */
static void snapshots_of_one_second(void **state)
{
	static const struct live first[] = {{"cache", 100}, {"buffer", 50}, {0}},
				 second[] = {{"cache", 120}, {0}};
	struct store *s = *state;
	struct batch *b = profile_batch_new();

	/* the larger id counts, whichever came last, as it may come to several hubs */
	write_snapshot_as(s, 5, "api", 10, first);
	write_snapshot_as(s, 6, "api", 10, second);
	assert_int_equal(live_until(s, T0, 1), 120);
	assert_int_equal(live_at(s, NULL), 120);
	write_snapshot_as(s, 4, "api", 10, first);
	assert_int_equal(live_until(s, T0, 1), 120);
	assert_int_equal(live_at(s, NULL), 120);
	/* one without samples counts only if there is no other */
	write_snapshot_as(s, 7, "api", 10, nothing);
	assert_int_equal(live_until(s, T0, 1), 120);
	assert_int_equal(live_at(s, NULL), 120);
	/* a profile that only reports a loss replaces no snapshot */
	profile_lose(b, add_snapshot(b, "api", 10, T0, nothing), "live_evicted", 3, 0);
	b->profiles[0]->id[0] = 8;
	write_batch(s, b, 1);
	assert_int_equal(live_until(s, T0, 1), 120);
}

/* A process that execs has two names in one second, but its memory counts once. */
static void snapshots_of_two_names(void **state)
{
	static const struct live of_shell[] = {{"cache", 100}, {"buffer", 50}, {0}},
				 of_program[] = {{"cache", 120}, {0}};
	struct store *s = *state;

	write_snapshot_as(s, 5, "sh", 10, of_shell);
	write_snapshot_as(s, 6, "api", 10, of_program);
	write_snapshot_as(s, 7, "", 10, nothing);
	assert_int_equal(live_until(s, T0, 1), 120);
	assert_int_equal(live_at(s, NULL), 120);
	assert_int_equal(live_at(s, "sh"), 0);
	assert_int_equal(live_at(s, "api"), 120);
	write_snapshot_as(s, 6, "sh", 11, of_shell);
	write_snapshot_as(s, 5, "api", 11, of_program);
	assert_int_equal(live_until(s, T0, 3), 120 + 150);
	assert_int_equal(live_at(s, NULL), 120 + 150);
	assert_int_equal(live_at(s, "api"), 120);
}

/* The samples of a choice are those of the rows that a query with that choice has. */
static void choices_of_snapshots(void **state)
{
	static const struct live first[] = {{"cache", 100}, {0}}, second[] = {{"cache", 70}, {0}},
				 other[] = {{"buffer", 20}, {0}};
	struct selection sel = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = T0 + 90};
	static const char *const tags[] = {"app_service", "thread", "profile_event_type"};
	static const char want[] = "api=7 db=2 worker=9 mem-inuse=9 ";
	struct store *s = *state;
	struct values all = {""}, of_thread = {""}, until = {""};

	write_snapshot(s, "api", 10, T0, first);
	write_snapshot(s, "api", 10, T0 + 10, second);
	write_snapshot(s, "db", 11, T0, other);
	write_snapshot(s, "ended", 12, T0, other);
	write_snapshot(s, "ended", 12, T0 + 10, nothing);
	for (size_t i = 0; i < ARRAY_SIZE(tags); i++)
		read_values(s, &sel, tags[i], 10, take_value, &all, NULL);
	assert_string_equal(all.text, want);
	sel.where = leaf(PRED_EQ, "thread", "worker");
	for (size_t i = 0; i < ARRAY_SIZE(tags); i++)
		read_values(s, &sel, tags[i], 10, take_value, &of_thread, NULL);
	assert_string_equal(of_thread.text, want);
	store_predicate_free(sel.where);
	sel.where = NULL;
	sel.time_end_s = T0 + 8;
	read_values(s, &sel, "app_service", 10, take_value, &until, NULL);
	assert_string_equal(until.text, "api=10 db=2 ended=2 ");
}

/* The choice of an event is of all events, also where a pattern is compared with samples. */
static void events_by_a_pattern(void **state)
{
	static const struct live lives[] = {{"cache", 100}, {0}};
	struct selection sel = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = T0 + 90};
	static const struct profile_link call = {.trace_id = {1}, .span_id = {1}};
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	struct values by_thread = {""}, by_call = {""};
	struct profile *p = add_profile(b, "c", "api", 10, "app", T0);

	p->event = EVENT_ON_CPU;
	add_sample(b, p, "pool", false, "run", 100);
	assert_int_equal(profile_batch_link(b, &call, &p->samples[0].link), 0);
	write_batch(s, b, 1);
	write_snapshot(s, "api", 10, T0, lives);
	sel.where = leaf(PRED_LIKE, "thread", "po*");
	read_values(s, &sel, "profile_event_type", 10, take_value, &by_thread, NULL);
	assert_string_equal(by_thread.text, "on-cpu=10 ");
	store_predicate_free(sel.where);
	sel.where = leaf(PRED_REGEXP, "trace_id", "^01");
	read_values(s, &sel, "profile_event_type", 10, take_value, &by_call, NULL);
	assert_string_equal(by_call.text, "on-cpu=10 ");
	store_predicate_free(sel.where);
}

/* ---- estimates, throttled time ---- */

static void estimates_are_told(void **state)
{
	struct selection sel = {
		.event = EVENT_MEM_ALLOC, .time_start_s = T0 - 10, .time_end_s = T0 + 100};
	static const uint32_t ppm[] = {500000, 120000, 0};
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	_cleanup_(got_done) struct got g = {0};

	for (unsigned i = 0; i < ARRAY_SIZE(ppm); i++) {
		_cleanup_free_ char *id = xasprintf("e%u", i);
		struct profile *p = add_profile(b, id, i ? "api" : "db", 10, "app", T0);

		p->event = EVENT_MEM_ALLOC;
		p->estimate_ppm = ppm[i];
		p->estimate_error = 3 + i;
		add_sample(b, p, "w", false, "malloc", 100);
	}
	write_batch(s, b, 3);
	read_rows(s, &sel, &g);
	assert_int_equal(g.summary.estimate_ppm, 120000);
	assert_int_equal(g.summary.estimate_error, 5);
	sel.where = leaf(PRED_EQ, "app_service", "db");
	read_rows(s, &sel, &g);
	assert_int_equal(g.summary.estimate_ppm, 500000);
	assert_int_equal(g.summary.estimate_error, 3);
	store_predicate_free(sel.where);
	sel.where = NULL;
	sel.time_start_s = T0;
	read_rows(s, &sel, &g);
	assert_int_equal(g.summary.estimate_ppm, 0);
}

static void add_off_cpu(struct batch *b, const char *app, uint32_t pid, const char *ns,
			const char *container, int64_t value)
{
	_cleanup_free_ char *id = xasprintf("%s %s %s", app, ns, container);
	struct profile *p = add_profile(b, id, app, pid, ns, T0);
	struct profile_sample *sample;

	p->event = EVENT_OFF_CPU;
	profile_tag(b, p, "container_id", container);
	if (pid) {
		add_sample(b, p, "w", false, "futex", value);
		return;
	}
	sample = profile_add(b, p);
	sample->stack = STACK_NONE;
	sample->cpu = -1;
	sample->value = value;
}

static uint64_t throttled(struct store *s, const char *app, const char *ns, struct predicate *where)
{
	char *apps[] = {(char *)app}, *namespaces[] = {(char *)ns};
	const struct scope scope = {.places = namespaces, .n_places = 1};
	struct selection sel = {.event = EVENT_OFF_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 10,
				.app_services = apps,
				.n_app_services = app ? 1 : 0,
				.scope = ns ? &scope : NULL,
				.where = where};
	_cleanup_(got_done) struct got g = {0};
	uint64_t us;

	read_rows(s, &sel, &g);
	for (size_t i = 0; i < g.n; i++)
		assert_true(app || !str_has_prefix(g.rows[i].text, "Throttled"));
	us = g.summary.throttled_us;
	store_predicate_free(where);
	return us;
}

/*
 * Throttled time, for which a limit kept containers from running, is shown beside the waits of
 * their processes.
 */
static void throttled_time_is_beside(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();

	add_off_cpu(b, "api", 10, "app", "c1", 100);
	add_off_cpu(b, "Throttled", 0, "app", "c1", 4000);
	add_off_cpu(b, "db", 11, "data", "c2", 100);
	add_off_cpu(b, "Throttled", 0, "data", "c2", 500);
	write_batch(s, b, 4);
	assert_int_equal(throttled(s, NULL, NULL, NULL), 4500);
	assert_int_equal(throttled(s, "api", NULL, NULL), 4000);
	assert_int_equal(throttled(s, "nobody", NULL, NULL), 0);
	assert_int_equal(throttled(s, NULL, "data", NULL), 500);
	assert_int_equal(throttled(s, "api", "data", NULL), 0);
	assert_int_equal(throttled(s, NULL, NULL, leaf(PRED_EQ, "pod_ns", "app")), 4000);
	assert_int_equal(throttled(s, NULL, NULL, leaf(PRED_EQ, "app_service", "db")), 500);
	assert_int_equal(throttled(s, "Throttled", NULL, NULL), 4500);
	assert_int_equal(throttled(s, NULL, NULL, nested("pod_ns", "app")), 4000);
	/* the id of a container in another namespace is that of another container */
	b = profile_batch_new();
	add_off_cpu(b, "Throttled", 0, "other", "c1", 7);
	write_batch(s, b, 1);
	assert_int_equal(throttled(s, "api", NULL, NULL), 4000);
	assert_int_equal(throttled(s, "api", "app", NULL), 4000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_MEMORY(waits_are_kept_apart),    IN_MEMORY(snapshots_replace),
		IN_MEMORY(snapshots_by_process),    IN_MEMORY(losses_are_no_snapshot),
		IN_MEMORY(snapshots_of_one_second), IN_MEMORY(snapshots_of_two_names),
		IN_MEMORY(estimates_are_told),	    IN_MEMORY(throttled_time_is_beside),
		IN_MEMORY(choices_of_snapshots),    IN_MEMORY(events_by_a_pattern),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
