/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retention: what the store deletes and what it keeps, also if it has far more to delete than one
 * call has time for.
 */
#include <time.h>

/* ClickHouse deletes what is older than the retention by its own clock, too: so T0 is now. */
#define T0 (start_s())
static inline int start_s(void)
{
	static int s;

	if (!s)
		s = (int)time(NULL);
	return s;
}

#include "hub/store/teststore.h"

#define N_PROFILES    17000
#define STACK_GRACE_S 3600 /* last_s of a stack is rounded to this number of seconds */

static void retention_by_age(void **state)
{
	const char *dir = *state;
	struct store *s = open_at(dir, 100 * NSEC_PER_SEC, 0);
	struct store_stats stats;
	struct batch *b;

	write_batch(s, two_services(), 3);
	assert_int_equal(store_expire(s, (T0 + 50) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, NULL), 240);
	b = profile_batch_new();
	add_sample(b, add_profile(b, "late", "db", 11, "data", T0 + 90), "db", true, "late", 5);
	write_batch(s, b, 1);
	assert_int_equal(store_expire(s, (T0 + 120) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, NULL), 5);
	assert_int_equal(store_expire(s, (T0 + 5000) * NSEC_PER_SEC), 0);
	store_stats(s, &stats);
	assert_int_equal(stats.n_expired, 4);
	write_batch(s, two_services(), 3);
	assert_int_equal(value_where(s, NULL), 240);
	store_close(s);
}

/* Stacks are kept an hour longer than the profiles that use them, counted in whole hours. */
static void stacks_stay_an_hour_longer(void **state)
{
	struct store *s = open_at(":memory:", 100 * NSEC_PER_SEC, 0);
	struct batch *b = profile_batch_new();
	struct store_stats stats;

	(void)state;
	write_batch(s, two_services(), 3);
	add_sample(b, add_profile(b, "late", "api", 10, "app", T0 + 1000), "api", true, "late", 5);
	write_batch(s, b, 1);
	assert_int_equal(store_expire(s, (T0 + 1000) * NSEC_PER_SEC), 0);
	store_stats(s, &stats);
	assert_true(stats.n_stacks > 0);
	assert_int_equal(stats.n_expired, 3);
	assert_int_equal(store_expire(s, (T0 + 9000) * NSEC_PER_SEC), 0);
	store_stats(s, &stats);
	assert_int_equal(stats.n_stacks, 0);
	store_close(s);
}

/*
 * The retention counts from now, but at most from a day after the newest profile, because the hub's
 * clock may be wrong.
 */
static void a_clock_that_is_ahead_deletes_little(void **state)
{
	enum { HOUR = 3600, DAY = 24 * HOUR };
	struct store *s = open_at(":memory:", 3 * DAY * NSEC_PER_SEC, 0);
	struct store_stats stats;
	struct batch *b;

	(void)state;
	write_batch(s, two_services(), 3);
	assert_int_equal(store_expire(s, (T0 + 4ULL * DAY) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, NULL), 240);
	b = profile_batch_new();
	add_sample(b, add_profile(b, "late", "db", 11, "data", T0 + 2 * DAY + HOUR), "db", true,
		   "late", 5);
	write_batch(s, b, 1);
	assert_int_equal(store_expire(s, (T0 + 30ULL * DAY) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, NULL), 0);
	store_stats(s, &stats);
	assert_int_equal(stats.n_expired, 3);
	assert_true(stats.oldest_ns > (T0 + 2ULL * DAY) * NSEC_PER_SEC);
	store_close(s);
}

static void retention_by_size(void **state)
{
	const char *dir = *state;
	struct store *s = open_at(dir, 0, 1 << 20);
	struct store_stats stats;

	many_rows(s, 0, 60, 2000);
	assert_int_equal(store_expire(s, T0 * NSEC_PER_SEC), 0);
	store_stats(s, &stats);
	assert_true(stats.bytes <= 1 << 20);
	assert_true(stats.n_expired > 0 && stats.n_expired < 60);
	assert_true(stats.oldest_ns > T0 * NSEC_PER_SEC); /* the oldest profile was deleted */
	store_close(s);
}

/* Links (samples of traced requests) over their own limit are deleted; the profiles stay. */
static void links_have_a_budget(void **state)
{
	struct store *s = open_at(":memory:", 0, 8 << 20); /* 1 MiB of links */

	(void)state;
	for (int window = 0; window < 2; window++) {
		struct batch *b = profile_batch_new();
		struct profile *p =
			add_profile(b, window ? "2" : "1", "api", 10, "app", T0 + 10 * window);

		for (int i = 0; i < 5000; i++) {
			struct profile_link l = {.trace_id = {i, i >> 8, window, 1},
						 .span_id = {1}};

			add_sample(b, p, "worker", false, "write", 10);
			assert_int_equal(profile_batch_link(b, &l, &p->samples[i].link), 0);
		}
		write_batch(s, b, 1);
	}
	assert_int_equal(value_where(s, leaf(PRED_NOT_NULL, "trace_id", NULL)), 100000);
	assert_int_equal(store_expire(s, (uint64_t)(T0 + 20) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, leaf(PRED_NOT_NULL, "trace_id", NULL)), 50000);
	assert_int_equal(value_where(s, NULL), 100000);
	store_close(s);
}

static void snapshots_expire(void **state)
{
	static const struct live some[] = {{"cache", 100}, {0}};
	struct store *s = open_at(":memory:", 100 * NSEC_PER_SEC, 0);

	(void)state;
	write_snapshot(s, "api", 10, T0, some);
	write_snapshot(s, "db", 11, T0 + 90, some);
	assert_int_equal(live_until(s, T0 + 90, 2), 200);
	assert_int_equal(store_expire(s, (T0 + 120) * NSEC_PER_SEC), 0);
	assert_int_equal(live_until(s, T0 + 90, 1), 100);
	store_close(s);
}

/* ---- by event and by namespace ---- */

static void write_one(struct store *s, enum event event, const char *ns, bool unverified,
		      int64_t end_s)
{
	_cleanup_free_ char *id =
		xasprintf("%d %s %d %lld", event, ns, unverified, (long long)end_s);
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, id, "api", 10, ns, end_s);

	p->event = event;
	add_sample(b, p, "worker", false, "write", 10);
	if (unverified)
		profile_tag(b, p, TAG_UNVERIFIED, "true");
	write_batch(s, b, 1);
}

/* Expires, and compares the samples of events and of namespaces with those that should be left. */
static void assert_left(struct store *s, int64_t now_s, const char *want)
{
	static const enum event events[] = {EVENT_ON_CPU, EVENT_OFF_CPU, EVENT_MEM_ALLOC};
	struct selection sel = {.time_start_s = T0 - 1000, .time_end_s = T0 + 10000};
	struct values v = {""};

	assert_int_equal(store_expire(s, (uint64_t)now_s * NSEC_PER_SEC), 0);
	read_values(s, &sel, "profile_event_type", 10, take_value, &v, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		sel.event = events[i];
		strcat(v.text, "| ");
		read_values(s, &sel, "pod_ns", 10, take_value, &v, NULL);
	}
	assert_string_equal(v.text, want);
}

static void retention_by_event_and_namespace(void **state)
{
	static const struct named_duration events[] = {{"off-cpu", 100 * NSEC_PER_SEC},
						       {"mem-alloc", 5000 * NSEC_PER_SEC}},
					   spaces[] = {{"data", 200 * NSEC_PER_SEC}};
	char database[32];
	struct store_config c = config_at(*state, database);
	struct field_error e = {0};
	struct store_stats stats;
	struct store *s;

	c.retention_ns = 1000 * NSEC_PER_SEC;
	c.event_retention = events;
	c.n_event_retention = ARRAY_SIZE(events);
	c.ns_retention = spaces;
	c.n_ns_retention = ARRAY_SIZE(spaces);
	if (store_open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	write_one(s, EVENT_ON_CPU, "app", false, T0);
	write_one(s, EVENT_ON_CPU, "data", false, T0);
	write_one(s, EVENT_OFF_CPU, "app", false, T0);
	write_one(s, EVENT_OFF_CPU, "data", false, T0);
	write_one(s, EVENT_OFF_CPU, "data", true, T0); /* it may be of any namespace */
	write_one(s, EVENT_MEM_ALLOC, "app", false, T0);
	assert_left(s, T0 + 50,
		    "off-cpu=3 on-cpu=2 mem-alloc=1 | app=1 data=1 | data=2 app=1 | app=1 ");
	assert_left(s, T0 + 150, "on-cpu=2 mem-alloc=1 off-cpu=1 | app=1 data=1 | data=1 | app=1 ");
	/* what comes late goes, too */
	write_one(s, EVENT_OFF_CPU, "app", false, T0 + 1);
	assert_left(s, T0 + 300, "mem-alloc=1 on-cpu=1 | app=1 | | app=1 ");
	assert_left(s, T0 + 1100, "mem-alloc=1 | | | app=1 ");
	assert_left(s, T0 + 5200, "| | | ");
	store_stats(s, &stats);
	assert_int_equal(stats.n_expired, 7);
	store_close(s);
}

static void a_bad_event_is_named(void **state)
{
	static const struct named_duration events[] = {{"gpu", NSEC_PER_SEC}};
	char database[32];
	struct store_config c = config_at(*state, database);
	struct field_error e = {0};
	struct store *s;

	c.event_retention = events;
	c.n_event_retention = ARRAY_SIZE(events);
	assert_int_equal(store_open(&c, &s, &e), -EINVAL);
	assert_string_equal(e.path, "store.event_retention");
	assert_string_equal(e.reason, "'gpu' is no event");
}

/* ---- in slices, one per call ---- */

static struct sqlite_store *open_store(uint64_t retention_ns, uint64_t max_bytes)
{
	const struct store_config c = {
		.path = ":memory:", .retention_ns = retention_ns, .max_bytes = max_bytes};
	struct field_error e;
	void *s;

	if (store_sqlite_sink.open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

/* Writes N_PROFILES profiles, step_ns apart. Each has its own stack, with value 1. */
static void fill_at(struct sqlite_store *s, const char *turn, uint64_t step_ns)
{
	struct batch *b = profile_batch_new();
	size_t n_new;

	for (unsigned i = 0; i < N_PROFILES; i++) {
		struct profile *p = profile_batch_profile(b);
		struct profile_sample *sample = profile_add(b, p);
		char name[32];
		const char *parts[] = {turn, name};
		struct frame f = {.kind = FRAME_APP, .name = name, .module = "/bin/web"};

		snprintf(name, sizeof(name), "function %u", i);
		profile_id_make(parts, 2, p->id);
		p->end_ns = T0 * NSEC_PER_SEC + i * step_ns;
		p->start_ns = p->end_ns - NSEC_PER_SEC;
		p->app_service = "web";
		p->process_id = 1;
		sample->cpu = -1;
		sample->value = sample->n_samples = 1;
		assert_int_equal(profile_batch_stack(b, &f, 1, &sample->stack), 0);
	}
	assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
	assert_int_equal(n_new, N_PROFILES);
	profile_batch_free(b);
}

static void fill(struct sqlite_store *s)
{
	fill_at(s, "1", NSEC_PER_SEC);
}

static int add_value(const struct store_row *row, void *arg)
{
	assert_non_null(row->frames[0]->name);
	*(uint64_t *)arg += (uint64_t)row->value;
	return 0;
}

static uint64_t n_left(struct sqlite_store *s)
{
	const struct selection sel = {
		.scope = &store_scope_all, .time_start_s = 1, .time_end_s = T0 * 2LL};
	struct store_summary summary;
	struct field_error e;
	uint64_t n = 0;

	if (store_sqlite_read(s, &sel, add_value, &n, &summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	store_summary_done(&summary);
	return n;
}

/*
 * Calls store_sqlite_expire() with a time limit of 0, so each call deletes one slice, until at most
 * most_left profiles are left. After each call the others must be complete.
 */
static void slices(struct sqlite_store *s, uint64_t now_s, uint64_t most_left)
{
	struct store_stats stats;
	uint64_t left = N_PROFILES;
	unsigned n_calls = 0;
	int64_t n = 0;

	s->expire_ns = 0;
	for (; left > most_left; n_calls++) {
		assert_int_equal(store_sqlite_expire(s, now_s * NSEC_PER_SEC), 0);
		assert_true(n_left(s) < left);
		left = n_left(s);
		store_sqlite_stats(s, &stats);
		assert_int_equal(stats.n_expired, N_PROFILES - left);
	}
	assert_true(n_calls > 1);
	/*
	 * No slice is due any more, so this call deletes names without a reference. Stacks stay
	 * until their hour is over.
	 */
	assert_int_equal(store_sqlite_expire(s, now_s * NSEC_PER_SEC), 0);
	assert_int_equal(store_sq_int(s->writer, "SELECT COUNT(*) FROM frames", &n), 0);
	assert_true((uint64_t)n <= left + STACK_GRACE_S + 1);
	store_sqlite_sink.close(s);
}

static void by_age(void **state)
{
	struct sqlite_store *s = open_store(100 * NSEC_PER_SEC, 0);

	(void)state;
	fill(s);
	slices(s, T0 + 10 * N_PROFILES, 0);
}

static void by_size(void **state)
{
	struct sqlite_store *s = open_store(0, 128 << 10);

	(void)state;
	fill(s);
	slices(s, T0, N_PROFILES / 2);
}

/*
 * All profiles are younger than an hour, so the stacks take most of the bytes. The store deletes
 * the stacks of deleted profiles at once.
 */
static void by_size_within_an_hour(void **state)
{
	struct sqlite_store *s = open_store(0, 1 << 20);
	uint64_t left;
	int64_t n_stacks = 0;

	(void)state;
	fill_at(s, "1", 100 * NSEC_PER_MSEC);
	assert_int_equal(store_sqlite_expire(s, (T0 + N_PROFILES / 10) * NSEC_PER_SEC), 0);
	left = n_left(s);
	assert_in_range(left, N_PROFILES / 10, N_PROFILES / 2);
	assert_int_equal(store_sq_int(s->writer, "SELECT COUNT(*) FROM stacks", &n_stacks), 0);
	/* at most the stacks of the last deleted tenth are still stored */
	assert_in_range(n_stacks, left, left + left / 8);
	fill_at(s, "2", 100 * NSEC_PER_MSEC); /* the deleted stacks are stored again */
	assert_int_equal(n_left(s), left + N_PROFILES);
	store_sqlite_sink.close(s);
}

/*
 * With enough time, one call deletes all that is due. Of the dictionaries, only stacks whose hour
 * is not over stay.
 */
static void all_at_once(void **state)
{
	struct sqlite_store *s = open_store(100 * NSEC_PER_SEC, 0);
	int64_t n = 1;

	(void)state;
	fill(s);
	assert_int_equal(store_sqlite_expire(s, (T0 + 10 * N_PROFILES) * NSEC_PER_SEC), 0);
	assert_int_equal(n_left(s), 0);
	assert_int_equal(store_sq_int(s->writer, "SELECT COUNT(*) FROM frames", &n), 0);
	assert_int_equal(n, 0);
	store_sqlite_sink.close(s);
}

int main(void)
{
	const struct CMUnitTest of_each_sink[] = {
		ON_DISK(retention_by_age),
		cmocka_unit_test(a_clock_that_is_ahead_deletes_little),
		cmocka_unit_test(snapshots_expire),
		ON_DISK(retention_by_event_and_namespace),
		ON_DISK(a_bad_event_is_named),
	};
	const struct CMUnitTest of_sqlite[] = {
		cmocka_unit_test(stacks_stay_an_hour_longer),
		ON_DISK(retention_by_size),
		cmocka_unit_test(links_have_a_budget),
		cmocka_unit_test(by_age),
		cmocka_unit_test(by_size),
		cmocka_unit_test(by_size_within_an_hour),
		cmocka_unit_test(all_at_once),
	};
	int failed = cmocka_run_group_tests_name("expire", of_each_sink, NULL, NULL);

	if (!getenv("CLICKHOUSE_URL"))
		failed += cmocka_run_group_tests_name("expire, SQLite", of_sqlite, NULL, NULL);
	return failed;
}
