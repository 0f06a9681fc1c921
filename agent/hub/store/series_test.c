/* SPDX-License-Identifier: Apache-2.0 */
/* Values over time: by series and by stack, of profiles and of snapshots. */
#include "hub/store/teststore.h"

#include <inttypes.h>

/* Reads the series of on-cpu or mem-inuse from T0 - 10 on, in steps of 10 s, as text. */
static char *series_of(struct store *s, enum event event, const char *group_by, size_t limit,
		       size_t n_steps, struct predicate *where)
{
	const struct selection sel = {.event = event,
				      .time_start_s = T0 - 10,
				      .time_end_s = T0 - 11 + 10 * (int64_t)n_steps,
				      .where = where};
	const struct series_request r = {&sel, 10, group_by, limit};
	struct store_series got = {0};
	struct field_error e = {0};
	struct buf b = {0};

	buf_init(&b, 0);
	if (store_series(s, &store_scope_all, &r, &got, &e))
		fail_msg("%s: %s", e.path, e.reason);
	assert_int_equal(got.n_steps, n_steps);
	for (size_t g = 0; g < got.n_groups; g++) {
		/* stores call processes what they like */
		buf_printf(&b, "%s%s:", g ? "; " : "",
			   str_equal(group_by, STORE_TAG_PROCESS) ? "process"
			   : got.groups[g].value		  ? got.groups[g].value
								  : "none");
		for (size_t i = 0; i < n_steps; i++)
			buf_printf(&b, " %" PRId64, got.groups[g].values[i]);
	}
	for (size_t i = 0; got.others && i < n_steps; i++)
		buf_printf(&b, "%s %" PRId64, i ? "" : "; others:", got.others[i]);
	for (size_t l = 0; l < got.n_losses; l++) {
		buf_printf(&b, "; lost %s:", got.losses[l].reason);
		for (size_t i = 0; i < n_steps; i++)
			buf_printf(&b, " %" PRIu64, got.losses[l].n_samples[i]);
	}
	for (size_t i = 0; i < got.n_starts; i++)
		buf_printf(&b, "%s %" PRId64, i ? "" : "; starts:", got.starts[i] - T0);
	store_series_done(&got);
	store_predicate_free(where);
	return buf_steal(&b);
}

static void assert_series(struct store *s, const char *group_by, size_t limit,
			  struct predicate *where, const char *expected)
{
	_cleanup_free_ char *got = series_of(s, EVENT_ON_CPU, group_by, limit, 3, where);

	assert_string_equal(got, expected);
}

/* A tag of series, a tag of stacks, conditions on both, and groups beyond the limit. */
static void by_tag(void **state)
{
	struct store *s = *state;

	write_batch(s, two_services(), 3);
	assert_series(s, NULL, 9, NULL, "none: 170 70 0; lost ring_full: 3 0 0");
	assert_series(s, "pod_ns", 9, NULL, "app: 170 0 0; data: 0 70 0; lost ring_full: 3 0 0");
	assert_series(s, "pod_ns", 1, NULL, "app: 170 0 0; others: 0 70 0; lost ring_full: 3 0 0");
	assert_series(s, "thread", 9, NULL,
		      "worker: 150 0 0; db: 0 70 0; api: 20 0 0; lost ring_full: 3 0 0");
	assert_series(s, "thread", 9, leaf(PRED_EQ, "pod_ns", "data"), "db: 0 70 0");
	assert_series(s, "pod_ns", 9, leaf(PRED_EQ, "thread", "worker"),
		      "app: 150 0 0; lost ring_full: 3 0 0");
	assert_series(s, "image", 9, NULL, "none: 170 70 0; lost ring_full: 3 0 0");
	assert_series(s, STORE_TAG_PROCESS, 9, NULL,
		      "process: 170 0 0; process: 0 70 0; lost ring_full: 3 0 0");
	assert_series(s, "pod_ns", 9, leaf(PRED_EQ, "pod_ns", "other"), "");
}

static struct profile *versioned(struct batch *b, const char *id, uint32_t pid, const char *version,
				 int64_t time_s)
{
	struct profile *p = add_profile(b, id, "web", pid, "app", time_s);

	p->event = EVENT_MEM_INUSE;
	p->start_ns = p->end_ns;
	p->process_start_ns = (uint64_t)(T0 + 5) * NSEC_PER_SEC;
	profile_tag(b, p, "k8s.label.version", version);
	return p;
}

/*
 * Process 10: 100 bytes, then nothing, then 40 under another label. Process 11: 7 bytes once, which
 * count until the snapshot is 90 s old.
 */
static void snapshots(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	_cleanup_free_ char *all = NULL, *by_version = NULL, *by_thread = NULL, *one = NULL;

	add_sample(b, versioned(b, "1", 10, "1", T0), "a", false, "x", 100);
	versioned(b, "2", 10, "1", T0 + 10);
	add_sample(b, versioned(b, "3", 10, "2", T0 + 20), "b", false, "x", 40);
	add_sample(b, versioned(b, "4", 11, "1", T0), "b", false, "x", 7);
	write_batch(s, b, 4);
	all = series_of(s, EVENT_MEM_INUSE, NULL, 9, 12, NULL);
	assert_string_equal(all, "none: 107 7 47 47 47 47 47 47 47 40 40 0; starts: 5 5");
	by_version = series_of(s, EVENT_MEM_INUSE, "k8s.label.version", 9, 4, NULL);
	assert_string_equal(by_version, "1: 107 7 7 7; 2: 0 0 40 40; starts: 5 5");
	by_thread = series_of(s, EVENT_MEM_INUSE, "thread", 9, 4, NULL);
	assert_string_equal(by_thread, "b: 7 7 47 47; a: 100 0 0 0; starts: 5 5");
	/* the snapshots of process 10 that do not match end those that do */
	one = series_of(s, EVENT_MEM_INUSE, "pod_ns", 9, 4, leaf(PRED_EQ, "thread", "a"));
	assert_string_equal(one, "app: 100 0 0 0; starts: 5 5");
}

/*
 * A profile that only reports a loss is no snapshot, so it does not end one. Of two snapshots of a
 * second, the one that was stored last counts.
 */
static void what_is_no_snapshot(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	_cleanup_free_ char *all = NULL, *by_thread = NULL;

	add_sample(b, versioned(b, "1", 10, "1", T0), "a", false, "x", 100);
	add_sample(b, versioned(b, "2", 10, "1", T0), "a", false, "x", 60);
	profile_lose(b, versioned(b, "3", 10, "1", T0 + 10), "ring_full", 3, 0);
	write_batch(s, b, 3);
	all = series_of(s, EVENT_MEM_INUSE, NULL, 9, 3, NULL);
	assert_string_equal(all, "none: 60 60 60; lost ring_full: 0 3 0; starts: 5");
	by_thread = series_of(s, EVENT_MEM_INUSE, "pod_ns", 9, 3, leaf(PRED_EQ, "thread", "a"));
	assert_string_equal(by_thread, "app: 60 60 60; lost ring_full: 0 3 0; starts: 5");
}

/* Reasons of losses come from agents: of many, the rest is one. */
static void many_reasons(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	const struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 19};
	const struct series_request r = {&sel, 10, NULL, 1};
	struct store_series got;
	struct field_error e;

	for (uint32_t i = 0; i < LOSSES_MAX + 9; i++) {
		_cleanup_free_ char *text = xasprintf("%u", i);

		profile_lose(b, add_profile(b, text, "web", i + 1, "app", T0), text, 1, 0);
	}
	write_batch(s, b, LOSSES_MAX + 9);
	assert_int_equal(store_series(s, &store_scope_all, &r, &got, &e), 0);
	assert_int_equal(got.n_losses, LOSSES_MAX + 1);
	assert_string_equal(got.losses[LOSSES_MAX].reason, "other");
	assert_int_equal(got.losses[LOSSES_MAX].n_samples[0], 9);
	store_series_done(&got);
}

/* Snapshots from before the time count at its begin. */
static void snapshots_before_the_time(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	_cleanup_free_ char *got = NULL;

	add_sample(b, versioned(b, "1", 10, "1", T0 - 60), "a", false, "x", 100);
	add_sample(b, versioned(b, "2", 11, "1", T0 - 90), "a", false, "x", 5);
	write_batch(s, b, 2);
	got = series_of(s, EVENT_MEM_INUSE, NULL, 9, 4, NULL);
	assert_string_equal(got, "none: 100 100 100 0");
}

/* A store whose queries for values over time have little memory. */
static void memory_has_a_limit(void **state)
{
	const struct store_config c = {.path = *state};
	const struct selection sel = {.scope = &store_scope_all,
				      .event = EVENT_ON_CPU,
				      .time_start_s = T0 - 10,
				      .time_end_s = T0 + 19};
	struct series_request r = {&sel, 10, "pod_ns", 9};
	struct selection live = sel;
	struct batch *b = two_services();
	struct store_series got;
	struct field_error e;
	struct sqlite_store *s;
	size_t n_new;
	void *sink;

	add_sample(b, versioned(b, "4", 11, "1", T0), "b", false, "x", 7);
	if (store_sqlite_sink.open(&c, &sink, &e))
		fail_msg("%s: %s", e.path, e.reason);
	s = sink;
	assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
	profile_batch_free(b);
	s->series_values = 3; /* one group of three steps */
	assert_int_equal(store_sqlite_series(s, &r, &got, &e), 0);
	assert_int_equal(got.n_groups, 1);
	assert_non_null(got.others);
	assert_true(got.cut_groups);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(got.groups[0].values[i] + got.others[i], i == 0   ? 170
									  : i == 1 ? 70
										   : 0);
	store_series_done(&got);
	s->series_values = 0;
	live.event = EVENT_MEM_INUSE;
	r.sel = &live;
	assert_int_equal(store_sqlite_series(s, &r, &got, &e), -EFBIG);
	assert_non_null(strstr(e.reason, "too many snapshots"));
	store_sqlite_sink.close(s);
}

/* Neither a step of no length nor a time that no step divides into few steps ends the hub. */
static void steps_that_are_refused(void **state)
{
	const struct selection all = {
		.event = EVENT_ON_CPU, .time_start_s = INT64_MIN, .time_end_s = INT64_MAX};
	struct store_series got;
	struct field_error e;

	for (uint32_t step_s = 0; step_s <= 2; step_s++) {
		const struct series_request r = {&all, step_s, NULL, 1};

		assert_int_equal(store_series(*state, &store_scope_all, &r, &got, &e), -EINVAL);
		assert_string_equal(e.path, "step");
	}
}

/* Of many processes that began, the answer has the first ones, and says that there are more. */
static void many_starts(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	const struct selection sel = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = T0 + 19};
	const struct series_request r = {&sel, 10, NULL, 1};
	struct store_series got;
	struct field_error e;

	for (uint32_t pid = 0; pid <= STORE_MAX_STARTS; pid++) {
		_cleanup_free_ char *id = xasprintf("%u", pid);

		versioned(b, id, pid + 1, "1", T0 + 10);
	}
	write_batch(s, b, STORE_MAX_STARTS + 1);
	assert_int_equal(store_series(s, &store_scope_all, &r, &got, &e), 0);
	assert_int_equal(got.n_starts, STORE_MAX_STARTS);
	assert_true(got.more_starts);
	store_series_done(&got);
}

static void too_many_steps(void **state)
{
	const struct selection sel = {.time_start_s = 1, .time_end_s = INT64_MAX};
	const struct series_request r = {&sel, 1, NULL, 1};
	struct store_series got;
	struct field_error e;

	assert_int_equal(store_series(*state, &store_scope_all, &r, &got, &e), -EINVAL);
	assert_string_equal(e.path, "step");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_MEMORY(by_tag),
		IN_MEMORY(snapshots),
		IN_MEMORY(what_is_no_snapshot),
		IN_MEMORY(many_reasons),
		IN_MEMORY(snapshots_before_the_time),
		ON_DISK(memory_has_a_limit),
		IN_MEMORY(many_starts),
		IN_MEMORY(steps_that_are_refused),
		IN_MEMORY(too_many_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
