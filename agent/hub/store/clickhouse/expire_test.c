/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose windows are deleted when the database is over store.max_bytes: those of the places that
 * have more than their share, and of no other. e2e/clickhouse/run.sh starts the engine; without it
 * the tests are skipped.
 */
#include <limits.h>
#include <sched.h>
#include <time.h>

#define T0 (yesterday()) /* its first second */
static inline int yesterday(void)
{
	static int s;

	if (!s)
		s = (int)time(NULL) / 86400 * 86400 - 86400;
	return s;
}

#include "hub/store/clickhouse/clickhouse.h"
#include "hub/store/teststore.h"

#define N_WINDOWS 500
#define STEP_S	  60
#define MUCH	  400 /* samples of a window of the attacker */
#define MAX_BYTES (600 << 10)
#define DAY_S	  86400

static struct ch_store *open_sink(uint64_t max_bytes)
{
	char database[32];
	const struct store_config c = {.url = getenv("CLICKHOUSE_URL"),
				       .cluster = getenv("CLICKHOUSE_CLUSTER"),
				       .database = database,
				       .max_bytes = max_bytes};
	struct field_error e = {0};
	void *s;

	if (!c.url)
		skip();
	snprintf(database, sizeof(database), "x%llx", (unsigned long long)random_below(UINT64_MAX));
	if (store_clickhouse_sink.open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

/* Windows of a namespace with n samples each, of stacks that are the same in each window. */
struct writes {
	const char *ns;
	unsigned n;
	bool unverified, invented; /* invented: each window names another namespace */
	bool new_stacks;	   /* the stacks of each window are new */
};

static void add_window(struct batch *b, const struct writes *w, int i)
{
	_cleanup_free_ char *ns = w->invented ? xasprintf("%s-%d", w->ns, i) : xstrdup(w->ns),
			    *id = xasprintf("%s %d", w->ns, i);
	struct profile *p = add_profile(b, id, "app", 10, ns, T0 + i * STEP_S);

	if (w->unverified)
		profile_tag(b, p, TAG_UNVERIFIED, "true");
	for (unsigned k = 0; k < w->n; k++) {
		_cleanup_free_ char *name = xasprintf("%s %u %d", w->ns, k, w->new_stacks ? i : 0);

		/* values that do not compress; the sum of a window is known */
		add_sample(b, p, "worker", false, name,
			   k % 2 ? 10 : (int64_t)random_below(1 << 20));
	}
}

static void write_all(struct ch_store *s, const struct writes *w)
{
	const int a_batch = N_WINDOWS / 5;

	for (int i = 0; i < N_WINDOWS; i += a_batch) {
		struct batch *b = profile_batch_new();
		size_t n_new;

		for (int k = 0; k < a_batch; k++)
			add_window(b, w, i + k);
		assert_int_equal(store_ch_write(s, (const struct batch *const *)&b, 1, &n_new), 0);
		assert_int_equal(n_new, a_batch);
		profile_batch_free(b);
	}
}

static void merge(struct ch_store *s, const char *table)
{
	_cleanup_free_ char *sql =
		xasprintf("OPTIMIZE TABLE %s.%s%s FINAL", s->database, table, store_ch_suffix(s));
	struct field_error e = {0};

	if (store_ch_run(s, sql, &e))
		fail_msg("%s", e.reason);
}

/* what: "STOP", "START" */
static void system_merges(struct ch_store *s, const char *what)
{
	_cleanup_free_ char *sql =
		xasprintf("SYSTEM %s MERGES %s.windows%s", what, s->database, store_ch_suffix(s));
	struct field_error e = {0};

	if (store_ch_run(s, sql, &e))
		fail_msg("%s", e.reason);
}

/* "STATEMENT windows REST" */
static void change_windows(struct ch_store *s, const char *statement, const char *rest)
{
	struct ch_where w = {0};
	struct field_error e = {0};

	store_ch_put_change(&w, s, statement, " windows");
	store_ch_text(&w.sql, " ");
	store_ch_text(&w.sql, rest);
	if (store_ch_change(s, &w, &e))
		fail_msg("%s", e.reason);
}

/* How many deletions ClickHouse has been given of which the condition is true. */
static uint64_t deletions(struct ch_store *s, const char *condition)
{
	struct ch_where w = {0};
	struct field_error e = {0};
	uint64_t n = 0;

	store_ch_text(&w.sql, "SELECT count() FROM system.mutations WHERE database=");
	store_ch_str(&w.sql, s->database);
	store_ch_text(&w.sql, " AND startsWith(table, 'windows') AND ");
	store_ch_text(&w.sql, condition);
	if (store_ch_ask_each(s, &w, 1, store_ch_take_u64, &n, &e))
		fail_msg("%s", e.reason);
	return n;
}

static void wait_for_deletions(struct ch_store *s)
{
	while (deletions(s, "NOT is_done"))
		sched_yield();
}

static void expire(struct ch_store *s, int days_later)
{
	merge(s, "windows"); /* else the size of small parts is that of their files */
	assert_int_equal(
		store_ch_expire(s, (T0 + (uint64_t)(1 + days_later) * DAY_S) * NSEC_PER_SEC), 0);
	store_ch_size_wait(s);
	store_ch_measure(s);
}

static uint64_t bytes_of(struct ch_store *s)
{
	struct store_stats stats;

	store_ch_stats(s, &stats);
	return stats.bytes;
}

/* How many windows are left. */
static uint64_t left(struct ch_store *s, const char *tag, const char *value)
{
	const struct selection sel = {.scope = &store_scope_all,
				      .event = EVENT_ON_CPU,
				      .time_end_s = T0 + 2 * DAY_S,
				      .where = leaf(PRED_EQ, tag, value)};
	_cleanup_(got_done) struct got g = {0};
	struct field_error e = {0};

	if (store_ch_read(s, &sel, take, &g, &g.summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	store_predicate_free(sel.where);
	for (size_t i = 0; i < MIN(g.n, ARRAY_SIZE(g.rows)); i++)
		assert_null(strstr(g.rows[i].text, STORE_LOST));
	return g.summary.n_profiles;
}

/* What a reader is told of a namespace: until when its profiles were deleted. 0: nothing. */
static int64_t told(struct ch_store *s, const struct scope *scope, const char *ns, int64_t start_s)
{
	const struct selection sel = {.scope = scope,
				      .event = EVENT_ON_CPU,
				      .time_start_s = start_s,
				      .time_end_s = T0 + 2 * DAY_S};
	_cleanup_(got_done) struct got g = {0};
	struct field_error e = {0};

	if (store_ch_read(s, &sel, take, &g, &g.summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	for (size_t i = 0; i < g.summary.n_cuts; i++)
		if (str_equal(g.summary.cuts[i].ns, ns))
			return g.summary.cuts[i].until_s;
	return 0;
}

struct oldest {
	const char *ns;
	unsigned n_places;
	int64_t s, until_s;
};

static void note_oldest(const struct store_cut *of, int64_t oldest_s, int64_t newest_s, void *arg)
{
	struct oldest *o = arg;

	(void)newest_s;
	o->n_places++;
	if (str_equal(of->ns, o->ns))
		o->s = oldest_s, o->until_s = of->until_s;
}

static struct oldest oldest_of(struct ch_store *s, const struct scope *scope, const char *ns)
{
	struct oldest o = {.ns = ns};
	struct field_error e = {0};

	if (store_ch_oldest(s, &(struct selection){.scope = scope}, note_oldest, &o, &e))
		fail_msg("%s", e.reason);
	return o;
}

static const struct writes victim = {.ns = "victim", .n = 2},
			   attacker = {.ns = "attacker", .n = MUCH};

static void a_victim_loses_nothing(void **state)
{
	static char *victim_place[] = {(char *)"victim"};
	const struct scope of_victim = {.places = victim_place, .n_places = 1};
	struct ch_store *s = open_sink(MAX_BYTES);
	struct oldest o;
	int64_t until_s;

	(void)state;
	write_all(s, &victim);
	expire(s, 0);
	assert_int_equal(told(s, &store_scope_all, "victim", 0), 0);
	write_all(s, &attacker);
	expire(s, 0);
	assert_in_range(bytes_of(s), 1, MAX_BYTES);
	assert_int_equal(left(s, "pod_ns", "victim"), N_WINDOWS);
	assert_in_range(left(s, "pod_ns", "attacker"), 10, N_WINDOWS - 10);
	/* readers are told, those of the victim nothing */
	until_s = told(s, &store_scope_all, "attacker", 0);
	assert_in_range(until_s, T0, T0 + N_WINDOWS * STEP_S);
	assert_int_equal(told(s, &store_scope_all, "attacker", until_s), until_s);
	assert_int_equal(told(s, &store_scope_all, "attacker", until_s + 1), 0);
	assert_int_equal(told(s, &store_scope_all, "victim", 0), 0);
	assert_int_equal(told(s, &of_victim, "attacker", 0), 0);
	o = oldest_of(s, &store_scope_all, "attacker");
	assert_int_equal(o.n_places, 2);
	assert_int_equal(o.until_s, until_s);
	assert_in_range(o.s, until_s + 1, until_s + STEP_S);
	o = oldest_of(s, &of_victim, "victim");
	assert_int_equal(o.n_places, 1);
	assert_int_equal(o.until_s, 0);
	assert_in_range(o.s, T0 - 20, T0);
	/* what is under the limit stays */
	until_s = (int64_t)left(s, "pod_ns", "attacker");
	expire(s, 0);
	assert_int_equal(left(s, "pod_ns", "attacker"), until_s);
	store_clickhouse_sink.close(s);
}

/* Begins a deletion by size of which the engine does nothing until it may merge again. */
static void begin_slow_deletion(struct ch_store *s, struct store_stats *ret)
{
	write_all(s, &attacker);
	merge(s, "windows");
	system_merges(s, "STOP");
	assert_int_equal(store_ch_expire(s, (T0 + (uint64_t)DAY_S) * NSEC_PER_SEC), 0);
	while (!ret->n_expired && atomic_load(&s->sizing.running)) {
		sched_yield();
		store_ch_stats(s, ret);
	}
}

/* A deletion that takes long counts once ClickHouse has taken it, and the writer goes on. */
static void a_slow_deletion_counts_and_blocks_nothing(void **state)
{
	struct ch_store *s = open_sink(MAX_BYTES);
	struct store_stats stats = {0};

	(void)state;
	begin_slow_deletion(s, &stats);
	assert_in_range(stats.n_expired, 10, N_WINDOWS - 10);
	assert_int_equal(left(s, "pod_ns", "attacker"), N_WINDOWS);
	write_all(s, &victim);
	assert_true(atomic_load(&s->sizing.running));
	system_merges(s, "START");
	store_ch_size_wait(s);
	assert_in_range(left(s, "pod_ns", "attacker"), 10, N_WINDOWS - 10);
	assert_int_equal(left(s, "pod_ns", "victim"), N_WINDOWS);
	store_clickhouse_sink.close(s);
}

/* The number of the lead, until it was asked for so often. */
static struct {
	_Atomic uint64_t term;
	atomic_int asks_left;
} lead;

static uint64_t lead_term(void *arg)
{
	(void)arg;
	return atomic_fetch_sub(&lead.asks_left, 1) > 0 ? lead.term : 0;
}

static void lead_for(uint64_t term, int n_asks)
{
	atomic_store(&lead.term, term);
	atomic_store(&lead.asks_left, n_asks);
}

/* Its expiry stays in the queue, or begins, and its lead is over before the first deletion. */
static void a_hub_that_was_stopped_deletes_nothing(void **state)
{
	const uint64_t now_ns = (T0 + (uint64_t)DAY_S) * NSEC_PER_SEC;
	struct ch_store *s = open_sink(0);

	(void)state;
	write_all(s, &victim);
	s->keeps.longest_ns = 4 * 3600 * NSEC_PER_SEC;
	store_ch_set_lead(s, lead_term, NULL);
	for (int n_asks = 0; n_asks < 2; n_asks++) {
		lead_for(1, n_asks);
		assert_int_equal(store_ch_expire(s, now_ns), -ECANCELED);
		assert_int_equal(left(s, "pod_ns", "victim"), N_WINDOWS);
	}
	lead_for(1, INT_MAX);
	assert_int_equal(store_ch_expire(s, now_ns), 0);
	assert_true(left(s, "pod_ns", "victim") < N_WINDOWS);
	store_clickhouse_sink.close(s);
}

/*
 * A hub that leads no longer waits for no deletion, and begins none, also if it leads again. Its
 * next expiry does.
 */
static void a_hub_that_leads_no_longer_stops(void **state)
{
	struct ch_store *s = open_sink(MAX_BYTES);
	struct store_stats stats = {0};
	uint64_t n;

	(void)state;
	store_ch_set_lead(s, lead_term, NULL);
	lead_for(1, INT_MAX);
	begin_slow_deletion(s, &stats);
	lead_for(2, INT_MAX);
	store_ch_size_wait(s);
	assert_int_equal(left(s, "pod_ns", "attacker"), N_WINDOWS);
	system_merges(s, "START");
	wait_for_deletions(s);
	s->max_bytes = MAX_BYTES / 2;
	assert_int_equal(store_ch_size_begin(s, (T0 + (uint64_t)DAY_S) * NSEC_PER_SEC), 0);
	store_ch_size_wait(s);
	n = stats.n_expired;
	store_ch_stats(s, &stats);
	assert_int_equal(stats.n_expired, n);
	expire(s, 0);
	store_ch_stats(s, &stats);
	assert_true(stats.n_expired > n);
	assert_in_range(bytes_of(s), 1, MAX_BYTES / 2);
	store_clickhouse_sink.close(s);
}

/* Rows that are marked as deleted have bytes until they are merged: no deletion is for them. */
static void nothing_to_lose(void **state)
{
	struct ch_store *s = open_sink(MAX_BYTES);
	struct store_stats stats;

	(void)state;
	write_all(s, &attacker);
	merge(s, "windows");
	change_windows(s, "DELETE FROM", "WHERE 1");
	assert_int_equal(left(s, "pod_ns", "attacker"), 0);
	assert_int_equal(deletions(s, "1"), 1);
	assert_int_equal(store_ch_expire(s, (T0 + (uint64_t)DAY_S) * NSEC_PER_SEC), 0);
	store_ch_size_wait(s);
	store_ch_measure(s);
	assert_true(bytes_of(s) > MAX_BYTES);
	assert_int_equal(deletions(s, "1"), 1);
	store_ch_stats(s, &stats);
	assert_int_equal(stats.n_expired, 0);
	store_clickhouse_sink.close(s);
}

/* A deletion that ClickHouse cannot end is told each time, and none is begun behind it. */
static void a_deletion_that_cannot_end(void **state)
{
	struct ch_store *s = open_sink(MAX_BYTES);
	struct field_error e = {0};
	bool busy;

	(void)state;
	write_all(s, &attacker);
	merge(s, "windows");
	change_windows(s, "ALTER TABLE",
		       "DELETE WHERE throwIf(toUInt32(time)>0)=0 SETTINGS mutations_sync=0");
	while (!deletions(s, "latest_fail_reason!=''"))
		sched_yield();
	assert_int_equal(store_ch_is_deleting(s, &busy, &e), -EIO);
	assert_true(busy);
	assert_non_null(strstr(e.reason, "throwIf"));
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(store_ch_expire(s, (T0 + (uint64_t)DAY_S) * NSEC_PER_SEC), -EIO);
	assert_false(s->sizing.started);
	assert_int_equal(left(s, "pod_ns", "attacker"), N_WINDOWS);
	store_clickhouse_sink.close(s);
}

/* What the hub could not verify is one place, whatever namespaces its senders name. */
static void invented_namespaces_have_one_share(void **state)
{
	static const struct writes large = {.ns = "large", .n = MUCH / 10},
				   invented = {.ns = "invented",
					       .n = MUCH,
					       .unverified = true,
					       .invented = true};
	struct ch_store *s = open_sink(MAX_BYTES);

	(void)state;
	write_all(s, &large);
	write_all(s, &invented);
	expire(s, 0);
	assert_in_range(bytes_of(s), 1, MAX_BYTES);
	assert_int_equal(left(s, "pod_ns", "large"), N_WINDOWS);
	assert_in_range(left(s, TAG_UNVERIFIED, "true"), 10, N_WINDOWS - 10);
	assert_int_equal(oldest_of(s, &store_scope_all, "large").n_places, 2);
	store_clickhouse_sink.close(s);
}

static void equals_lose_alike(void **state)
{
	static const struct writes one = {.ns = "one", .n = MUCH}, two = {.ns = "two", .n = MUCH};
	struct ch_store *s = open_sink(MAX_BYTES);
	uint64_t a;

	(void)state;
	write_all(s, &one);
	write_all(s, &two);
	expire(s, 0);
	a = left(s, "pod_ns", "one");
	assert_in_range(a, 10, N_WINDOWS / 2);
	assert_in_range(left(s, "pod_ns", "two"), a - a / 5, a + a / 5);
	store_clickhouse_sink.close(s);
}

/*
 * Stacks that fill the database take at most half of it from windows. Two days later those that no
 * window uses are deleted.
 */
static void stacks_leave_half_to_windows(void **state)
{
	static const struct writes inventor = {
		.ns = "inventor", .n = MUCH / 10, .new_stacks = true};
	struct ch_store *s = open_sink(MAX_BYTES);
	struct store_stats stats;
	uint64_t n_stacks;

	(void)state;
	write_all(s, &victim);
	write_all(s, &inventor);
	expire(s, 0);
	assert_true(bytes_of(s) > MAX_BYTES);
	assert_int_equal(left(s, "pod_ns", "victim"), N_WINDOWS);
	store_ch_stats(s, &stats);
	n_stacks = stats.n_stacks;
	assert_true(n_stacks >= N_WINDOWS * MUCH / 10);
	s->max_bytes = 100 << 10;
	s->sizing.swept_ns = 0;
	expire(s, 4);
	merge(s, "stacks");
	expire(s, 4);
	store_ch_stats(s, &stats);
	assert_true(stats.n_stacks < n_stacks);
	assert_int_equal(left(s, "pod_ns", "victim"), N_WINDOWS);
	assert_true(left(s, "pod_ns", "inventor") > 0);
	store_clickhouse_sink.close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_victim_loses_nothing),
		cmocka_unit_test(invented_namespaces_have_one_share),
		cmocka_unit_test(a_slow_deletion_counts_and_blocks_nothing),
		cmocka_unit_test(a_hub_that_was_stopped_deletes_nothing),
		cmocka_unit_test(a_hub_that_leads_no_longer_stops),
		cmocka_unit_test(nothing_to_lose),
		cmocka_unit_test(a_deletion_that_cannot_end),
		cmocka_unit_test(equals_lose_alike),
		cmocka_unit_test(stacks_leave_half_to_windows),
	};

	return cmocka_run_group_tests_name("expire, ClickHouse", tests, NULL, NULL);
}
