/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of blocks: an answer that uses them is the same as one that reads each sample, whatever was
 * written, deleted or came late.
 */
#include "hub/store/teststore.h"

#define B0 (T0 / BLOCK_S * BLOCK_S) /* the begin of a block */

static struct sqlite_store *open_sink(const char *path)
{
	const struct store_config c = {.path = path};
	struct field_error e = {0};
	void *sink;

	if (store_sqlite_sink.open(&c, &sink, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return sink;
}

static int64_t number_of(struct sqlite_store *s, const char *sql)
{
	int64_t n = 0;

	assert_int_equal(store_sq_int(s->writer, sql, &n), 0);
	return n;
}

static void write_one(struct sqlite_store *s, enum event event, unsigned series, int64_t end_s,
		      unsigned stack)
{
	static unsigned n_written;
	struct batch *b = profile_batch_new();
	char id[16], app[16], ns[16], leaf[16];
	struct profile *p;
	size_t n_new;

	snprintf(id, sizeof(id), "%u", ++n_written);
	snprintf(app, sizeof(app), "app%u", series / 2);
	snprintf(ns, sizeof(ns), "ns%u", series % 3);
	p = add_profile(b, id, app, 10 + series, ns, end_s);
	p->event = event;
	for (unsigned i = 0; i < stack % 4; i++) { /* some have no samples */
		snprintf(leaf, sizeof(leaf), "f%u", (stack + i) % 7);
		add_sample(b, p, i % 2 ? "worker" : "main", false, leaf, 10 * (1 + stack % 5));
	}
	assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
	assert_int_equal(n_new, 1);
	profile_batch_free(b);
}

static void make(struct sqlite_store *s, int64_t now_s)
{
	assert_int_equal(store_blocks_make(s, now_s, now_mono_ns() + 60 * NSEC_PER_SEC), 0);
}

/* ---- answers ---- */

/* All of an answer as text. The caller frees it. */
static char *text_of(struct sqlite_store *s, const struct selection *sel)
{
	_cleanup_(got_done) struct got g = {0};
	struct field_error e = {0};
	struct buf b = {0};

	if (store_sqlite_read(s, sel, take, &g, &g.summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	/* profiles of snapshots are counted apart from what is read */
	buf_printf(&b, "%llu profiles, %llu samples, %lld to %lld\n",
		   profile_event_info(sel->event)->snapshot
			   ? 0ULL
			   : (unsigned long long)g.summary.n_profiles,
		   (unsigned long long)g.summary.n_samples, (long long)g.summary.first_s,
		   (long long)g.summary.last_s);
	for (size_t i = 0; i < g.n; i++)
		buf_printf(&b, "%s %lld\n", g.rows[i].text, (long long)g.rows[i].value);
	return buf_steal(&b);
}

/* A condition that is true for all samples: with it, no sum of a block can be used. */
static struct predicate *each_sample(struct predicate *and)
{
	struct predicate *p = leaf(PRED_GE, "time", "0");

	p->numeric = true;
	return and? join(PRED_AND, and, p) : p;
}

static struct predicate *filter(unsigned choice)
{
	switch (choice % 4) {
	case 0:
		return leaf(PRED_EQ, "pod_ns", "ns1");
	case 1:
		return leaf(PRED_REGEXP, "app_service", "app[01]");
	default:
		return NULL;
	}
}

static void compare(struct sqlite_store *s, enum event event, int64_t start_s, int64_t end_s,
		    unsigned choice)
{
	static char *apart[] = {(char *)"ns0", (char *)"ns2", (char *)"nsx"};
	struct selection sel = {.scope = &store_scope_all,
				.event = event,
				.time_start_s = start_s,
				.time_end_s = end_s,
				.apart = apart,
				.n_apart = choice % 3 ? ARRAY_SIZE(apart) : 0,
				.group_by = choice % 5 == 0 ? "pod_ns" : NULL,
				.where = filter(choice)};
	_cleanup_free_ char *fast = text_of(s, &sel), *each;

	sel.where = each_sample(sel.where);
	each = text_of(s, &sel);
	store_predicate_free(sel.where);
	if (!streq(fast, each))
		fail_msg(
			"event %d, %lld to %lld, choice %u: with sums of blocks\n%sand without\n%s",
			event, (long long)(start_s - B0), (long long)(end_s - B0), choice, fast,
			each);
}

/* A store that is over its size once. */
static int is_large_once(struct sqlite_store *s, void *arg, bool *ret)
{
	unsigned *n = arg;

	(void)s;
	*ret = (*n)++ == 0;
	return 0;
}

static unsigned next(unsigned *seed)
{
	return *seed = *seed * 1103515245 + 12345, *seed >> 16;
}

/* Ranges whose edges lie at, before and behind those of blocks. */
static void compare_some(struct sqlite_store *s, unsigned *seed, int n)
{
	static const enum event events[] = {EVENT_ON_CPU, EVENT_OFF_CPU, EVENT_MEM_INUSE};

	for (int i = 0; i < n; i++) {
		int64_t a = next(seed) % 12, b = a + next(seed) % 8;

		compare(s, events[next(seed) % 3], B0 + a * BLOCK_S + (int64_t)(next(seed) % 3) - 1,
			B0 + b * BLOCK_S + (int64_t)(next(seed) % 3) - 1, next(seed));
	}
}

/* ---- tests ---- */

/* What is written, added up, deleted and opened again, in any order. */
static void answers_stay_the_same(void **state)
{
	static const enum event events[] = {EVENT_ON_CPU, EVENT_OFF_CPU, EVENT_MEM_INUSE};

	for (unsigned run = 1; run <= 6; run++) {
		_cleanup_free_ char *dir = xasprintf("%s/%u", (const char *)*state, run);
		struct sqlite_store *s = open_sink(dir);
		int64_t now_s = B0, cut_s = B0 - 1;
		unsigned seed = run;

		for (int i = 0; i < 150; i++) {
			unsigned what = next(&seed) % 21, n_asked = 0;
			bool more;
			/* most profiles come in time, some late */
			int64_t end_s = what < 3 ? B0 + next(&seed) % (12 * BLOCK_S)
						 : now_s - next(&seed) % 90;

			/* many at the edges of blocks */
			if (next(&seed) % 2)
				end_s = end_s / BLOCK_S * BLOCK_S + next(&seed) % 3;
			if (what < 15)
				write_one(s, events[next(&seed) % 3], next(&seed) % 6,
					  MAX(end_s, B0), next(&seed));
			else if (what < 18)
				make(s, now_s);
			else if (what == 18) {
				cut_s = MIN(now_s - 3 * BLOCK_S, cut_s + next(&seed) % 900);
				s->keeps.longest_ns = (uint64_t)(now_s - cut_s) * NSEC_PER_SEC;
				assert_int_equal(
					store_sqlite_expire(s, (uint64_t)now_s * NSEC_PER_SEC), 0);
				s->keeps.longest_ns = 0;
			} else if (what == 19) { /* some places lose their oldest profiles */
				s->unswept = false;
				assert_int_equal(store_expire_tenths(s, is_large_once, &n_asked,
								     "size", UINT64_MAX, &more),
						 0);
			} else {
				store_sqlite_sink.close(s);
				s = open_sink(dir);
			}
			now_s += next(&seed) % 120;
			compare_some(s, &seed, 2);
		}
		compare_some(s, &seed, 60);
		assert_true(number_of(s, "SELECT COUNT(*) FROM blocks") > 0);
		store_sqlite_sink.close(s);
	}
}

static int64_t value_of(struct sqlite_store *s, int64_t start_s, int64_t end_s)
{
	const struct selection sel = {.scope = &store_scope_all,
				      .event = EVENT_ON_CPU,
				      .time_start_s = start_s,
				      .time_end_s = end_s};
	_cleanup_(got_done) struct got g = {0};
	struct field_error e = {0};
	int64_t value = 0;

	if (store_sqlite_read(s, &sel, take, &g, &g.summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	for (size_t i = 0; i < g.n; i++)
		value += g.rows[i].value;
	return value;
}

/* Whole blocks come from their sums, and only these. */
static void only_whole_blocks_are_sums(void **state)
{
	struct sqlite_store *s = open_sink(*state);

	for (int i = 0; i < 3 * BLOCK_S / 10; i++)
		write_one(s, EVENT_ON_CPU, 0, B0 + 10 * (i + 1), 5); /* 10 each */
	assert_int_equal(value_of(s, B0, B0 + 3 * BLOCK_S - 1), 1800);
	make(s, B0 + BLOCK_S + 119); /* not yet */
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM blocks"), 0);
	make(s, B0 + 2 * BLOCK_S + 120);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM blocks"), 2);
	/* from here on, what comes from a sum is missing */
	assert_int_equal(store_sq_exec(s->writer, "UPDATE blocks SET samples=x''"), 0);
	assert_int_equal(value_of(s, B0, B0 + 3 * BLOCK_S - 1), 600);
	assert_int_equal(value_of(s, B0 + 1, B0 + 3 * BLOCK_S - 1), 1200);
	assert_int_equal(value_of(s, B0, B0 + 2 * BLOCK_S - 2), 600 - 10);
	assert_int_equal(value_of(s, B0 + 10, B0 + BLOCK_S + 10), 590 + 10);
	/* a profile that comes late makes its block one without a sum, until that is made again */
	write_one(s, EVENT_ON_CPU, 0, B0 + 15, 5);
	assert_int_equal(value_of(s, B0, B0 + 3 * BLOCK_S - 1), 600 + 610);
	make(s, B0 + 2 * BLOCK_S + 120);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM late"), 0);
	assert_int_equal(value_of(s, B0, B0 + 3 * BLOCK_S - 1), 600 + 610);
	store_sqlite_sink.close(s);
}

/* A file of an older version, or of a hub that was away, is added up from its oldest profile on. */
static void old_profiles_are_added_up(void **state)
{
	struct sqlite_store *s = open_sink(*state);

	for (int i = 0; i < 20; i++)
		write_one(s, EVENT_ON_CPU, 0, B0 + i * 3 * BLOCK_S + 5, 5);
	/* the deadline is over: one block */
	assert_int_equal(store_blocks_make(s, B0 + 1000 * BLOCK_S, 0), 0);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM blocks"), 1);
	make(s, B0 + 1000 * BLOCK_S);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM blocks"), 20);
	assert_int_equal(value_of(s, B0, B0 + 100 * BLOCK_S), 200);
	store_sqlite_sink.close(s);
}

/* A block with more stacks than a sum may have: queries read its profiles. */
static void a_block_of_too_many_stacks(void **state)
{
	struct sqlite_store *s = open_sink(*state);
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "many", "app", 10, "ns", B0 + 5);
	char name[24];
	size_t n_new;

	s->block_stacks = 20; /* a sum is cut when it has some more (SLACK_MIN) */
	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		add_sample(b, p, "main", false, name, 10);
	}
	assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
	profile_batch_free(b);
	write_one(s, EVENT_ON_CPU, 1, B0 + 5, 1);
	make(s, B0 + 2 * BLOCK_S);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM blocks"), 1);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM late WHERE given_up"), 1);
	compare(s, EVENT_ON_CPU, B0, B0 + BLOCK_S - 1, 0);
	/* it is not tried again, whatever comes */
	write_one(s, EVENT_ON_CPU, 0, B0 + 15, 5);
	make(s, B0 + 2 * BLOCK_S);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM late WHERE given_up"), 1);
	store_sqlite_sink.close(s);
}

/* The clock of the hub was ahead, and is set back. */
static void a_clock_that_was_ahead(void **state)
{
	struct sqlite_store *s = open_sink(*state);

	for (int i = 0; i < 6; i++)
		write_one(s, EVENT_ON_CPU, 0, B0 + i * BLOCK_S + 5, 1);
	make(s, B0 + 100 * BLOCK_S);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM blocks"), 6);
	make(s, B0 + 3 * BLOCK_S + 120);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM blocks"), 3);
	write_one(s, EVENT_ON_CPU, 0, B0 + 4 * BLOCK_S + 9, 1);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM late"), 0);
	compare(s, EVENT_ON_CPU, B0, B0 + 10 * BLOCK_S, 2);
	make(s, B0 + 10 * BLOCK_S);
	assert_int_equal(number_of(s, "SELECT COUNT(*) FROM blocks"), 6);
	compare(s, EVENT_ON_CPU, B0, B0 + 10 * BLOCK_S, 2);
	store_sqlite_sink.close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(answers_stay_the_same),	    ON_DISK(only_whole_blocks_are_sums),
		ON_DISK(old_profiles_are_added_up), ON_DISK(a_block_of_too_many_stacks),
		ON_DISK(a_clock_that_was_ahead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
