/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose profiles are deleted when the store is over its size: those of the places that have more
 * than their share, and of no other.
 */
#include "hub/store/teststore.h"

#define MAX_BYTES (3 << 20)
#define N_WINDOWS 300
#define MUCH	  100 /* times as many samples as the victim has, of stacks that never repeat */

static struct sqlite_store *open_sink(const char *path, uint64_t max_bytes)
{
	static const char *const others[] = {"far"};
	const struct store_config c = {.path = path,
				       .max_bytes = max_bytes,
				       .clusters = others,
				       .n_clusters = ARRAY_SIZE(others),
				       .own_cluster = "c1"};
	struct field_error e = {0};
	void *s;

	if (store_sqlite_sink.open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

/* A profile of a namespace (NULL: of the host) with n samples, of stacks of their own. */
struct writes {
	const char *ns, *cluster; /* cluster NULL: the hub's own */
	unsigned n;
	size_t name_bytes; /* of each function's name; 0: short */
	bool same;	   /* the stacks are the same in each profile */
	bool unverified;
};

static void write_one(struct sqlite_store *s, const struct writes *w, int64_t end_s)
{
	struct batch *b = profile_batch_new();
	_cleanup_free_ char *id =
		xasprintf("%s %s %lld", w->ns ?: "", w->cluster ?: "", (long long)end_s);
	struct profile *p = add_profile(b, id, "app", 10, w->ns, end_s);
	size_t n_new;

	if (w->cluster)
		profile_tag(b, p, "pod_cluster", w->cluster);
	if (w->unverified)
		profile_tag(b, p, TAG_UNVERIFIED, "true");
	for (unsigned i = 0; i < w->n; i++) {
		_cleanup_free_ char *name =
			xasprintf("%s %u %lld%*s", w->ns ?: "", i, w->same ? 0LL : (long long)end_s,
				  (int)w->name_bytes, "");

		add_sample(b, p, "worker", false, name, 10);
	}
	assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
	assert_int_equal(n_new, 1);
	profile_batch_free(b);
}

static int64_t value_where_of(struct sqlite_store *s, struct predicate *where)
{
	const struct selection sel = {.scope = &store_scope_all,
				      .event = EVENT_ON_CPU,
				      .time_end_s = 2LL * T0,
				      .where = where};
	_cleanup_(got_done) struct got g = {0};
	struct field_error e = {0};

	if (store_sqlite_read(s, &sel, take, &g, &g.summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	store_predicate_free(where);
	/* no row is of a stack that was deleted */
	for (size_t i = 0; i < MIN(g.n, ARRAY_SIZE(g.rows)); i++)
		assert_null(strstr(g.rows[i].text, STORE_LOST));
	return g.sum;
}

/* The value that is left of a namespace; NULL: of the host. */
static int64_t left(struct sqlite_store *s, const char *ns)
{
	return value_where_of(s, leaf(ns ? PRED_EQ : PRED_IS_NULL, "pod_ns", ns));
}

static void expire(struct sqlite_store *s)
{
	uint64_t used = 0, free_bytes;

	s->expire_ns = 600 * NSEC_PER_SEC; /* for a busy machine */
	assert_int_equal(store_sqlite_expire(s, (uint64_t)T0 * NSEC_PER_SEC), 0);
	assert_int_equal(store_sq_bytes(s, &used, &free_bytes), 0);
	assert_true(used <= s->max_bytes);
}

/* The triggers have counted what the tables have. */
static void assert_counts(struct sqlite_store *s)
{
	int64_t n = 0;

	assert_int_equal(store_sq_int(s->writer,
				      "SELECT COUNT(*) FROM series AS se WHERE "
				      "(se.profiles, se.bytes) IS NOT (SELECT COUNT(*), "
				      "IFNULL(SUM(160+LENGTH(samples)), 0)+"
				      "(SELECT 60*COUNT(*) FROM losses AS l WHERE l.series=se.id)+"
				      "(SELECT 192*COUNT(*) FROM links AS k WHERE k.series=se.id) "
				      "FROM profiles AS p WHERE p.series=se.id)",
				      &n),
			 0);
	assert_int_equal(n, 0);
}

/* Writes n links of a namespace that end in this second. */
static void write_links(struct sqlite_store *s, const char *ns, int n, int64_t end_s)
{
	struct batch *b = profile_batch_new();
	_cleanup_free_ char *id = xasprintf("%s %lld", ns, (long long)end_s);
	struct profile *p = add_profile(b, id, "app", 10, ns, end_s);
	size_t n_new;

	for (int i = 0; i < n; i++) {
		struct profile_link l = {.trace_id = {i, i >> 8, end_s, end_s >> 8},
					 .span_id = {*ns}};

		add_sample(b, p, "worker", false, "write", 10);
		assert_int_equal(profile_batch_link(b, &l, &p->samples[i].link), 0);
	}
	assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

/* The limit of the samples of traced requests takes from those who have many, too. */
static void links_have_shares(void **state)
{
	struct sqlite_store *s = open_sink(":memory:", 8 << 20); /* room for 5461 links */

	(void)state;
	for (int i = 0; i < 20; i++) {
		write_links(s, "victim", 10, T0 + i);
		write_links(s, "attacker", 1000, T0 + i);
	}
	expire(s);
	assert_int_equal(value_where_of(s, join(PRED_AND, leaf(PRED_EQ, "pod_ns", "victim"),
						leaf(PRED_NOT_NULL, "trace_id", NULL))),
			 20 * 10 * 10);
	assert_int_equal(value_where_of(s, join(PRED_AND, leaf(PRED_EQ, "pod_ns", "attacker"),
						leaf(PRED_NOT_NULL, "trace_id", NULL))),
			 5 * 1000 * 10);
	assert_counts(s);
	store_sqlite_sink.close(s);
}

/* Until when profiles of a namespace were deleted, as a reader is told; 0: none were. */
static int64_t told(struct sqlite_store *s, const struct scope *scope, const char *ns,
		    int64_t start_s)
{
	const struct selection sel = {.scope = scope,
				      .event = EVENT_ON_CPU,
				      .time_start_s = start_s,
				      .time_end_s = 2LL * T0};
	_cleanup_(got_done) struct got g = {0};
	struct field_error e = {0};

	assert_int_equal(store_sqlite_read(s, &sel, take, &g, &g.summary, &e), 0);
	for (size_t i = 0; i < g.summary.n_cuts; i++)
		if (str_equal(g.summary.cuts[i].ns, ns))
			return g.summary.cuts[i].until_s;
	return 0;
}

/* Both write windows, step_s apart, and the store expires after each tenth one. */
static void write_both(struct sqlite_store *s, const struct writes *a, const struct writes *b,
		       int from, int until, int step_s)
{
	for (int i = from; i < until; i++) {
		write_one(s, a, T0 + (int64_t)i * step_s);
		write_one(s, b, T0 + (int64_t)i * step_s);
		if (i % 10 == 9)
			expire(s);
	}
}

static const struct writes victim = {.ns = "victim", .n = 1, .same = true};

/* The attacker has lost much, but not all; the victim nothing. */
static void assert_whole(struct sqlite_store *s, const struct writes *attacker, int n_windows)
{
	int64_t of_attacker = value_where_of(s, leaf(PRED_NE, "pod_ns", "victim"));

	assert_int_equal(left(s, "victim"), 10 * n_windows);
	assert_in_range(of_attacker, attacker->n * 10, attacker->n * 10 * n_windows / 2);
	assert_counts(s);
	assert_int_equal(told(s, &store_scope_all, "victim", 0), 0);
	assert_true(told(s, &store_scope_all, "attacker", 0) > T0);
}

static void beside(const char *path, const struct writes *attacker, int step_s)
{
	struct sqlite_store *s = open_sink(path, MAX_BYTES);

	write_both(s, &victim, attacker, 0, N_WINDOWS, step_s);
	assert_whole(s, attacker, N_WINDOWS);
	store_sqlite_sink.close(s);
}

/* The victim's history of ten hours is whole beside one that writes a hundred times as much. */
static void a_victim_loses_nothing(void **state)
{
	static const struct writes attacker = {.ns = "attacker", .n = MUCH};

	beside(*state, &attacker, 120);
}

/* The same if the store has room for minutes, so that most of it is stacks. */
static void a_victim_of_minutes(void **state)
{
	static const struct writes attacker = {.ns = "attacker", .n = MUCH};

	(void)state;
	beside(":memory:", &attacker, 5);
}

/* Few samples, but names of functions that fill the store. */
static void long_names_count(void **state)
{
	static const struct writes attacker = {.ns = "attacker", .n = 4, .name_bytes = 3000};

	(void)state;
	beside(":memory:", &attacker, 120);
}

/* Processes of the host, and those of another cluster, are places like namespaces. */
static void hosts_and_clusters_have_shares(void **state)
{
	static const struct writes host = {.n = MUCH};
	static const struct writes far = {.ns = "victim", .cluster = "far", .n = MUCH};
	struct sqlite_store *s = open_sink(":memory:", MAX_BYTES);

	(void)state;
	write_both(s, &victim, &host, 0, N_WINDOWS, 120);
	assert_int_equal(left(s, "victim"), 10 * N_WINDOWS);
	assert_in_range(left(s, NULL), MUCH * 10, MUCH * 10 * N_WINDOWS / 2);
	/* the namespace of the same name in another cluster writes much */
	for (int i = 0; i < N_WINDOWS; i++) {
		write_one(s, &far, T0 + i * 120);
		if (i % 10 == 9)
			expire(s);
	}
	assert_int_equal(value_where_of(s, join(PRED_AND, leaf(PRED_EQ, "pod_ns", "victim"),
						leaf(PRED_EQ, "pod_cluster", "c1"))),
			 10 * N_WINDOWS);
	assert_counts(s);
	store_sqlite_sink.close(s);
}

/*
 * A sender invents a namespace for each window. The hub cannot verify them, so they have one share
 * together, and the victim's is not the smaller for it.
 */
static void invented_namespaces_have_one_share(void **state)
{
	struct sqlite_store *s = open_sink(":memory:", MAX_BYTES);
	static const struct writes large = {.ns = "victim", .n = 10};
	int64_t n_places = 0;

	(void)state;
	for (int i = 0; i < N_WINDOWS; i++) {
		_cleanup_free_ char *ns = xasprintf("invented-%d", i);
		const struct writes w = {.ns = ns, .n = MUCH, .unverified = true};

		write_one(s, &large, T0 + i * 120);
		write_one(s, &w, T0 + i * 120);
		if (i % 10 == 9)
			expire(s);
	}
	assert_int_equal(store_sq_int(s->writer, "SELECT COUNT(*) FROM places", &n_places), 0);
	assert_int_equal(n_places, 2);
	assert_int_equal(left(s, "victim"), 100 * N_WINDOWS);
	assert_counts(s);
	store_sqlite_sink.close(s);
}

/* Of two thousand namespaces that are there, each keeps its little beside one that has much. */
static void thousands_of_small_ones_lose_nothing(void **state)
{
	enum { N = 2000 };
	static const struct writes attacker = {.ns = "attacker", .n = MUCH};
	struct sqlite_store *s = open_sink(":memory:", 2 * MAX_BYTES);

	(void)state;
	for (int i = 0; i < N; i++) {
		_cleanup_free_ char *ns = xasprintf("small-%d", i);
		const struct writes w = {.ns = ns, .n = 1, .same = true};

		write_one(s, &w, T0 + i);
	}
	for (int i = 0; i < N_WINDOWS; i++)
		write_one(s, &attacker, T0 + N + i * 120);
	expire(s);
	assert_int_equal(value_where_of(s, leaf(PRED_NE, "pod_ns", "attacker")), 10 * N);
	assert_in_range(left(s, "attacker"), 1, MUCH * 10 * (N_WINDOWS - 1));
	store_sqlite_sink.close(s);
}

/* Of two that write as much, each loses its own oldest profiles; a third one has little. */
static void equals_lose_alike(void **state)
{
	static const struct writes one = {.ns = "one", .n = MUCH}, two = {.ns = "two", .n = MUCH};
	struct sqlite_store *s = open_sink(":memory:", MAX_BYTES);
	int64_t a, b;

	(void)state;
	for (int i = 0; i < N_WINDOWS; i++)
		write_one(s, &victim, T0 + i * 120);
	write_both(s, &one, &two, 0, N_WINDOWS, 120);
	a = left(s, "one");
	b = left(s, "two");
	assert_in_range(a, b - b / 10, b + b / 10);
	assert_in_range(a, MUCH * 10, MUCH * 10 * N_WINDOWS / 2);
	assert_int_equal(left(s, "victim"), 10 * N_WINDOWS);
	store_sqlite_sink.close(s);
}

/*
 * A registered cluster whose hub invents namespaces has no more room than with one. A namespace of
 * the hub's own cluster keeps all, although it has more than a share of a namespace would be if
 * clusters had none.
 */
static void invented_namespaces_take_no_more(void **state)
{
	static const struct writes own = {.ns = "own", .n = MUCH / 4};
	struct writes far = {.cluster = "far", .n = MUCH};
	struct sqlite_store *s = open_sink(":memory:", MAX_BYTES);
	int64_t n = 0;

	(void)state;
	for (int i = 0; i < N_WINDOWS; i++) {
		_cleanup_free_ char *ns = xasprintf("invented-%d", i);

		far.ns = ns;
		if (i % 10 == 0)
			write_one(s, &own, T0 + i * 120);
		write_one(s, &far, T0 + i * 120);
		if (i % 10 == 9)
			expire(s);
	}
	assert_int_equal(left(s, "own"), MUCH / 4 * 10 * N_WINDOWS / 10);
	assert_int_equal(
		store_sq_int(s->writer,
			     "SELECT COUNT(DISTINCT pl.id) FROM series AS se JOIN places AS "
			     "pl ON pl.id=se.place WHERE pl.name LIKE 'far:%'",
			     &n),
		0);
	assert_in_range(n, 0, N_WINDOWS - 1);
	store_sqlite_sink.close(s);
}

/* A stack that both have stays as long as one of them has it. */
static void shared_stacks_stay(void **state)
{
	static const struct writes attacker = {.ns = "attacker", .n = MUCH};
	struct sqlite_store *s = open_sink(":memory:", MAX_BYTES);

	(void)state;
	for (int i = 0; i < N_WINDOWS; i++) {
		struct batch *b = profile_batch_new();
		_cleanup_free_ char *leaf = xasprintf("function %d", i), *id = xasprintf("%d", i);
		size_t n_new;

		/* the attacker stores it first */
		add_sample(b, add_profile(b, leaf, "app", 10, "attacker", T0 + i * 120), "worker",
			   false, leaf, 10);
		add_sample(b, add_profile(b, id, "app", 10, "victim", T0 + i * 120), "worker",
			   false, leaf, 10);
		assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
		assert_int_equal(n_new, 2);
		profile_batch_free(b);
	}
	for (int i = 0; i < N_WINDOWS; i++) {
		write_one(s, &attacker, T0 + i * 120 + 1);
		if (i % 10 == 9)
			expire(s);
	}
	assert_int_equal(left(s, "victim"), 10 * N_WINDOWS);
	assert_true(left(s, "attacker") < MUCH * 10 * N_WINDOWS / 2);
	store_sqlite_sink.close(s);
}

/* A store that the hub opens again goes on with the same counts. */
static void shares_survive_a_restart(void **state)
{
	static const struct writes attacker = {.ns = "attacker", .n = MUCH};
	struct sqlite_store *s = NULL;

	for (int part = 0; part < 3; part++) {
		s = open_sink(*state, MAX_BYTES);
		write_both(s, &victim, &attacker, part * N_WINDOWS / 3, (part + 1) * N_WINDOWS / 3,
			   120);
		if (part < 2)
			store_sqlite_sink.close(s);
	}
	assert_whole(s, &attacker, N_WINDOWS);
	store_sqlite_sink.close(s);
}

/* The same of a store of the version before, which has no counts. */
static void an_older_store_gets_counts(void **state)
{
	static const struct writes attacker = {.ns = "attacker", .n = MUCH};
	static const struct writes far = {.ns = "victim", .cluster = "far", .n = 1};
	static const struct writes unknown = {.ns = "victim", .n = 1, .unverified = true};
	struct sqlite_store *s = open_sink(*state, 0);
	int64_t n = 0;

	for (int i = 0; i < N_WINDOWS / 2; i++) {
		write_one(s, &victim, T0 + i * 120);
		write_one(s, &attacker, T0 + i * 120);
	}
	write_one(s, &far, T0 + 1);
	write_one(s, &unknown, T0 + 2);
	store_sqlite_sink.close(s);
	sql(*state, UNDO_8);
	s = open_sink(*state, MAX_BYTES);
	assert_counts(s);
	assert_int_equal(store_sq_int(s->writer,
				      "SELECT COUNT(*) FROM places WHERE name IN ('victim', "
				      "'attacker', 'far:victim', '" STORE_PLACE_UNVERIFIED "')",
				      &n),
			 0);
	assert_int_equal(n, 4);
	write_both(s, &victim, &attacker, N_WINDOWS / 2, N_WINDOWS, 120);
	assert_int_equal(value_where_of(s, join(PRED_AND, leaf(PRED_EQ, "pod_ns", "victim"),
						leaf(PRED_IS_NULL, TAG_UNVERIFIED, NULL))),
			 10 * N_WINDOWS + 10);
	store_sqlite_sink.close(s);
}

/*
 * Whoever may see a namespace is told until when its profiles were deleted, if the question is
 * about a time before.
 */
static void readers_are_told(void **state)
{
	static char *attacker_place[] = {(char *)"attacker"}, *victim_place[] = {(char *)"victim"};
	static const struct writes attacker = {.ns = "attacker", .n = MUCH};
	const struct scope own = {.own = true},
			   of_attacker = {.places = attacker_place, .n_places = 1},
			   of_victim = {.places = victim_place, .n_places = 1};
	struct sqlite_store *s = open_sink(":memory:", MAX_BYTES);
	int64_t until_s, oldest_s = 0;

	(void)state;
	write_both(s, &victim, &attacker, 0, N_WINDOWS, 120);
	until_s = told(s, &store_scope_all, "attacker", 0);
	assert_int_equal(store_sq_int(s->writer,
				      "SELECT MIN(p.time) FROM profiles AS p JOIN series AS se ON "
				      "se.id=p.series JOIN places AS pl ON pl.id=se.place WHERE "
				      "pl.name='attacker'",
				      &oldest_s),
			 0);
	assert_in_range(until_s, oldest_s - 120, oldest_s - 1);
	assert_int_equal(told(s, &store_scope_all, "attacker", until_s), until_s);
	assert_int_equal(told(s, &store_scope_all, "attacker", until_s + 1), 0);
	assert_int_equal(told(s, &own, "attacker", 0), until_s);
	assert_int_equal(told(s, &of_attacker, "attacker", 0), until_s);
	assert_int_equal(told(s, &of_victim, "attacker", 0), 0);
	assert_int_equal(told(s, &(struct scope){0}, "attacker", 0), 0);
	store_sqlite_sink.close(s);
}

struct oldest { /* of one namespace, as a reader is told */
	const char *ns;
	unsigned n_places;  /* that the reader is told of */
	int64_t s, until_s; /* s 0: the reader is told nothing of the namespace */
};

static void note_oldest(const struct store_cut *of, int64_t oldest_s, int64_t newest_s, void *arg)
{
	struct oldest *o = arg;

	(void)newest_s;
	o->n_places++;
	if (!str_equal(of->ns, o->ns))
		return;
	o->s = oldest_s;
	o->until_s = of->until_s;
}

static struct oldest oldest_of(struct sqlite_store *s, const struct scope *scope, const char *ns)
{
	struct oldest o = {.ns = ns};
	struct field_error e = {0};

	assert_int_equal(
		store_sqlite_oldest(s, &(struct selection){.scope = scope}, note_oldest, &o, &e),
		0);
	return o;
}

/* A reader is told from when on the store has data of each namespace that the reader may see. */
static void readers_are_told_of_the_oldest(void **state)
{
	static char *victim_place[] = {(char *)"victim"};
	static const struct writes attacker = {.ns = "attacker", .n = MUCH};
	const struct scope of_victim = {.places = victim_place, .n_places = 1};
	struct sqlite_store *s = open_sink(":memory:", MAX_BYTES);
	struct oldest o;

	(void)state;
	write_both(s, &victim, &attacker, 0, N_WINDOWS, 120);
	o = oldest_of(s, &store_scope_all, "victim");
	assert_int_equal(o.n_places, 2);
	assert_in_range(o.s, T0 - 60, T0);
	assert_int_equal(o.until_s, 0);
	o = oldest_of(s, &store_scope_all, "attacker");
	assert_int_equal(o.until_s, told(s, &store_scope_all, "attacker", 0));
	assert_in_range(o.s, o.until_s + 1, o.until_s + 120);
	/* a reader of the victim is told nothing of the other */
	o = oldest_of(s, &of_victim, "attacker");
	assert_int_equal(o.n_places, 1);
	assert_int_equal(o.s, 0);
	assert_int_equal(oldest_of(s, &(struct scope){0}, "victim").n_places, 0);
	store_sqlite_sink.close(s);
}

/* The hub ends while it counts what an older store has: the next start counts nothing twice. */
static void counting_goes_on_after_an_end(void **state)
{
	struct sqlite_store *s = open_sink(*state, 0);
	struct store_stats stats;

	for (int i = 0; i < 20; i++)
		write_one(s, &victim, T0 + i * 120);
	store_sqlite_sink.close(s);
	sql(*state, UNDO_8);
	/* the last step fails */
	sql(*state, "CREATE TRIGGER links_DELETE AFTER DELETE ON links BEGIN SELECT 1; END");
	s = open_sink(*state, 0);
	store_sqlite_stats(s, &stats);
	assert_string_not_equal(stats.error, "");
	store_sqlite_sink.close(s);
	sql(*state, "DROP TRIGGER links_DELETE");
	s = open_sink(*state, 0);
	store_sqlite_stats(s, &stats);
	assert_string_equal(stats.error, "");
	assert_counts(s);
	assert_int_equal(left(s, "victim"), 200);
	store_sqlite_sink.close(s);
}

/* ---- known answers ---- */

/* until when a place loses its profiles, by the plan; 0: it loses none */
static int64_t until(struct sqlite_store *s, const struct store_plan *p, const char *place)
{
	_cleanup_free_ char *text = xasprintf("SELECT id FROM places WHERE name='%s'", place);
	int64_t id = 0, ret = 0;

	assert_int_equal(store_sq_int(s->writer, text, &id), 0);
	assert_true(id > 0);
	for (size_t i = 0; i < p->n; i++)
		if (p->slices[i].place == id)
			ret = p->slices[i].until_s;
	return ret;
}

/*
 * Places with 10, 20, 40 and 130 equal profiles: a tenth of 200 is 20, which the largest loses. Its
 * profiles are the newest, and it does not matter.
 */
static void the_largest_loses_a_tenth(void **state)
{
	static const struct {
		const char *ns;
		int n;
	} all[] = {{"a", 10}, {"b", 20}, {"c", 40}, {"d", 130}};
	struct sqlite_store *s = open_sink(":memory:", 0);
	_cleanup_(store_plan_done) struct store_plan plan = {0};
	int64_t t = T0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		for (int k = 0; k < all[i].n; k++) {
			const struct writes w = {.ns = all[i].ns, .n = 20};

			write_one(s, &w, ++t);
		}
	assert_int_equal(store_shares_plan(s, UINT64_MAX, &plan), 0);
	assert_int_equal(plan.n, 1);
	assert_int_equal(until(s, &plan, "a"), 0);
	assert_int_equal(until(s, &plan, "b"), 0);
	assert_int_equal(until(s, &plan, "c"), 0);
	assert_in_range(until(s, &plan, "d"), T0 + 70 + 19, T0 + 70 + 21);
	store_sqlite_sink.close(s);
}

/* Two that are equal lose a tenth each; an empty store loses nothing. */
static void equals_lose_a_tenth_each(void **state)
{
	static const struct writes one = {.ns = "one", .n = 20}, two = {.ns = "two", .n = 20};
	struct sqlite_store *s = open_sink(":memory:", 0);
	_cleanup_(store_plan_done) struct store_plan plan = {0};

	(void)state;
	assert_int_equal(store_shares_plan(s, UINT64_MAX, &plan), 0);
	assert_int_equal(plan.n, 0);
	for (int i = 1; i <= 100; i++) {
		write_one(s, &one, T0 + i);
		write_one(s, &two, T0 + i);
	}
	assert_int_equal(store_shares_plan(s, UINT64_MAX, &plan), 0);
	assert_int_equal(plan.n, 2);
	assert_in_range(until(s, &plan, "one"), T0 + 9, T0 + 11);
	assert_in_range(until(s, &plan, "two"), T0 + 9, T0 + 11);
	store_sqlite_sink.close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(a_victim_loses_nothing),
		cmocka_unit_test(a_victim_of_minutes),
		cmocka_unit_test(long_names_count),
		cmocka_unit_test(hosts_and_clusters_have_shares),
		cmocka_unit_test(invented_namespaces_have_one_share),
		cmocka_unit_test(thousands_of_small_ones_lose_nothing),
		cmocka_unit_test(equals_lose_alike),
		cmocka_unit_test(invented_namespaces_take_no_more),
		cmocka_unit_test(shared_stacks_stay),
		ON_DISK(shares_survive_a_restart),
		ON_DISK(an_older_store_gets_counts),
		cmocka_unit_test(links_have_shares),
		cmocka_unit_test(readers_are_told),
		cmocka_unit_test(readers_are_told_of_the_oldest),
		ON_DISK(counting_goes_on_after_an_end),
		cmocka_unit_test(the_largest_loses_a_tenth),
		cmocka_unit_test(equals_lose_a_tenth_each),
	};

	return cmocka_run_group_tests_name("shares", tests, NULL, NULL);
}
