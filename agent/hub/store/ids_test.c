/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are years old (row ids beyond 2^32), ids that come again, profiles of the second 0,
 * and numbers that are stored as text.
 */
#include "hub/store/sqlite.h"
#include "lib/base/testdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define T0	 1700000000
#define HIGH_ID	 "5000000000" /* beyond 2^32 */
#define RETAIN_S 7200

static char dir[TESTDIR_BYTES];

static struct sqlite_store *open_store(uint64_t max_bytes)
{
	const struct store_config c = {
		.path = dir, .retention_ns = RETAIN_S * NSEC_PER_SEC, .max_bytes = max_bytes};
	struct field_error e;
	void *s;

	if (store_sqlite_sink.open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

/*
 * Writes a profile that ended at end_ns, of a process with the PID container_pid in its container.
 */
static void put(struct sqlite_store *s, uint64_t end_ns, const char *app, const char *container_pid)
{
	struct frame f[] = {{.kind = FRAME_APP, .name = "main", .module = "/bin/web"},
			    {.kind = FRAME_APP, .name = app, .module = "/bin/web"}};
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *sample = profile_add(b, p);
	size_t n_new = 0;

	random_bytes(p->id, sizeof(p->id));
	p->end_ns = end_ns;
	p->start_ns = end_ns > NSEC_PER_SEC ? end_ns - NSEC_PER_SEC : 0;
	p->app_service = profile_batch_str(b, app);
	p->process_id = 1;
	profile_tag(b, p, "pod", "web-1");
	if (container_pid)
		profile_tag(b, p, "container_pid", container_pid);
	sample->thread_comm = profile_batch_str(b, "worker");
	sample->cpu = -1;
	sample->value = sample->n_samples = 1;
	assert_int_equal(profile_batch_stack(b, f, ARRAY_SIZE(f), &sample->stack), 0);
	assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
	assert_int_equal(n_new, 1);
	profile_batch_free(b);
}

static int add_text(const struct store_row *row, void *arg)
{
	struct buf *b = arg;

	buf_printf(b, "%s/%s:", row->app_service ? row->app_service : "?",
		   row->head.thread_comm ? row->head.thread_comm : "?");
	for (size_t i = 0; i < row->n_frames; i++)
		buf_printf(b, " %s", row->frames[i]->name ? row->frames[i]->name : "?");
	buf_puts(b, "\n");
	return 0;
}

/* All matching rows, one per line. The caller frees the string. */
static char *matches(struct sqlite_store *s, struct predicate *where)
{
	const struct selection sel = {
		.scope = &store_scope_all, .time_end_s = T0 * 2LL, .where = where};
	struct store_summary summary;
	struct field_error e;
	struct buf b = {0};

	buf_puts(&b, "");
	if (store_sqlite_read(s, &sel, add_text, &b, &summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	store_summary_done(&summary);
	return buf_steal(&b);
}

static void assert_matches(struct sqlite_store *s, struct predicate *where, const char *want)
{
	_cleanup_free_ char *got = matches(s, where);

	assert_string_equal(got, want);
}

/*
 * Gives the dictionaries an entry with a very high id, as if many rows had been written and
 * deleted.
 */
static void make_old(struct sqlite_store *s)
{
	assert_int_equal(
		store_sq_exec(s->writer,
			      "INSERT INTO strings(id, s) VALUES(" HIGH_ID ", 'old');"
			      "INSERT INTO frames(id, name) VALUES(" HIGH_ID ", 0);"
			      "INSERT INTO stacks(id, hash, last_s, process, thread, main, "
			      "frames) VALUES(" HIGH_ID ", 1, 0, 0, 0, 0, x'');"
			      "INSERT INTO tagsets(id, text) VALUES(" HIGH_ID ", 'old');"
			      "INSERT INTO series(id, app, pid, start_ms, tagset, first_s, last_s) "
			      "VALUES(" HIGH_ID ", 0, 0, 0, " HIGH_ID ", 0, 0)"),
		0);
}

static int64_t count(struct sqlite_store *s, const char *table)
{
	_cleanup_free_ char *sql = xasprintf("SELECT COUNT(*) FROM %s", table);
	int64_t n = -1;

	assert_int_equal(store_sq_int(s->writer, sql, &n), 0);
	return n;
}

/*
 * Names are stored and read whatever their ids are, and the memory does not depend on the greatest
 * id.
 */
static void ids_of_years(void **state)
{
	struct sqlite_store *s;
	int64_t least = 0;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(0);
	put(s, (T0 - 5 * RETAIN_S) * NSEC_PER_SEC, "gone", NULL);
	make_old(s);
	put(s, T0 * NSEC_PER_SEC, "web", NULL);
	assert_int_equal(store_sq_int(s->writer, "SELECT MAX(id) FROM strings", &least), 0);
	assert_true(least > INT64_C(5000000000));
	assert_matches(s, NULL, "gone/worker: main gone\nweb/worker: main web\n");
	/* old profiles are deleted, and the names that only they used; the other names stay */
	assert_int_equal(store_sqlite_expire(s, T0 * NSEC_PER_SEC), 0);
	assert_matches(s, NULL, "web/worker: main web\n");
	assert_int_equal(count(s, "frames"), 2);
	assert_int_equal(count(s, "strings WHERE s IN ('old', 'gone')"), 0);
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

/*
 * A connection keeps the names that it has read for its next query. After a sweep, a new name may
 * have the id of one that was deleted: the query finds the new one.
 */
static void an_id_that_a_new_name_gets(void **state)
{
	struct sqlite_store *s;
	int64_t before = 0, after = 0;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(0);
	put(s, (T0 - 5 * RETAIN_S) * NSEC_PER_SEC, "gone", NULL);
	assert_matches(s, NULL, "gone/worker: main gone\n");
	assert_int_equal(store_sq_int(s->writer, "SELECT id FROM strings WHERE s='gone'", &before),
			 0);
	assert_int_equal(store_sqlite_expire(s, T0 * NSEC_PER_SEC), 0);
	assert_int_equal(count(s, "strings"), 0);
	put(s, T0 * NSEC_PER_SEC, "come", NULL);
	assert_int_equal(store_sq_int(s->writer, "SELECT id FROM strings WHERE s='come'", &after),
			 0);
	assert_int_equal(after, before);
	assert_matches(s, NULL, "come/worker: main come\n");
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

/* A query that begins just before a deletion is committed still reads what is deleted. */
static int ask_before_commit(void *arg)
{
	struct sqlite_store *s = arg;

	sqlite3_commit_hook(s->writer, NULL, NULL);
	assert_matches(s, NULL, "gone/worker: main gone\n");
	return 0;
}

/* The next transaction, which deletes strings, finds that what the query has read counts as old. */
static void look_after_commit(void *arg, int what, const char *db, const char *table,
			      sqlite3_int64 id)
{
	struct sqlite_store *s = arg;

	(void)what, (void)db, (void)id;
	if (!streq(table, "strings"))
		return;
	assert_true(s->readers.all[0].names.strings.n > 0);
	assert_true(s->readers.all[0].names.n_reused != atomic_load(&s->n_reused));
}

static void a_query_while_a_deletion_is_committed(void **state)
{
	struct sqlite_store *s;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(0);
	put(s, (T0 - 5 * RETAIN_S) * NSEC_PER_SEC, "gone", NULL);
	sqlite3_commit_hook(s->writer, ask_before_commit, s);
	sqlite3_update_hook(s->writer, look_after_commit, s);
	assert_int_equal(store_sqlite_expire(s, T0 * NSEC_PER_SEC), 0);
	sqlite3_update_hook(s->writer, NULL, NULL);
	assert_int_equal(count(s, "strings"), 0);
	put(s, T0 * NSEC_PER_SEC, "come", NULL);
	assert_matches(s, NULL, "come/worker: main come\n");
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

/* Other deletions let the connections keep what they have. */
static void names_outlive_deletions_of_older_ones(void **state)
{
	struct sqlite_store *s;
	int64_t gone = 0;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(0);
	put(s, (T0 - 5 * RETAIN_S) * NSEC_PER_SEC, "gone", NULL);
	put(s, T0 * NSEC_PER_SEC, "web", NULL);
	assert_matches(s, NULL, "gone/worker: main gone\nweb/worker: main web\n");
	assert_int_equal(store_sq_int(s->writer, "SELECT id FROM strings WHERE s='gone'", &gone),
			 0);
	assert_int_equal(store_sqlite_expire(s, T0 * NSEC_PER_SEC), 0);
	assert_int_equal(count(s, "strings WHERE s='gone'"), 0);
	assert_matches(s, NULL, "web/worker: main web\n");
	/* which no query has asked for since they were deleted */
	assert_non_null(store_id_map_get(&s->readers.all[0].names.strings, gone));
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

/* What a query could not read is not kept, because the next one may be able to read it. */
static void nothing_of_a_failed_query_is_kept(void **state)
{
	const struct selection sel = {.time_end_s = T0 * 2LL};
	struct store_row row = {0};
	struct field_error e;
	struct sqlite_store *s;
	struct query q;
	int64_t stack = 0;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(0);
	put(s, T0 * NSEC_PER_SEC, "web", NULL);
	assert_int_equal(store_sq_int(s->writer, "SELECT id FROM stacks", &stack), 0);
	for (int error = 0; error >= -EIO; error -= EIO) {
		assert_int_equal(store_query_begin(&q, s, &sel), 0);
		assert_int_equal(store_names_begin(&q.reader->names, &q), 0);
		assert_int_equal(store_names_stack(&q.reader->names, stack, &row), 0);
		assert_int_equal(row.n_frames, 2);
		q.reader->names.error = error;
		store_names_end(&q.reader->names, s);
		assert_true((atomic_load(&s->kept_bytes) > 0) == (error == 0));
		assert_int_equal(store_query_end(&q, &sel, 0, &e), 0);
	}
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

/* A frame that the file lacks is shown as lost; the other frames of its stack stay. */
static void a_lost_frame(void **state)
{
	struct sqlite_store *s;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(0);
	put(s, T0 * NSEC_PER_SEC, "web", NULL);
	assert_int_equal(store_sq_exec(s->writer, "DELETE FROM frames WHERE name="
						  "(SELECT id FROM strings WHERE s='main')"),
			 0);
	assert_matches(s, NULL, "web/worker: " STORE_LOST " web\n");
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

/*
 * A sender without a clock sends a profile of the second 0. This profile is the oldest one and is
 * deleted first. It does not keep other profiles from being deleted.
 */
static void the_second_0(void **state)
{
	struct sqlite_store *s;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(0);
	put(s, 1, "early", NULL);
	put(s, (T0 - 2 * RETAIN_S) * NSEC_PER_SEC, "old", NULL);
	put(s, T0 * NSEC_PER_SEC, "new", NULL);
	assert_int_equal(store_sqlite_expire(s, T0 * NSEC_PER_SEC), 0);
	assert_matches(s, NULL, "new/worker: main new\n");
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

static void the_second_0_by_size(void **state)
{
	struct sqlite_store *s;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(1);
	put(s, 1, "early", NULL);
	put(s, T0 * NSEC_PER_SEC, "new", NULL);
	assert_int_equal(store_sqlite_expire(s, T0 * NSEC_PER_SEC), 0);
	assert_matches(s, NULL, "");
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

/* A PID compares as a number, also if it is stored as a tag. */
static void numbers_compare_as_numbers(void **state)
{
	char *values[] = {"10", "100"};
	struct predicate p = {
		.tag = "container_pid", .numeric = true, .values = values, .n_values = 1};
	static const struct {
		enum predicate_op op;
		const char *want;
	} cases[] = {
		{PRED_LT, "nine/worker: main nine\n"},
		{PRED_LE, "nine/worker: main nine\nten/worker: main ten\n"},
		{PRED_GT, "hundred/worker: main hundred\n"},
		{PRED_GE, "ten/worker: main ten\nhundred/worker: main hundred\n"},
		{PRED_EQ, "ten/worker: main ten\n"},
		{PRED_NE,
		 "nine/worker: main nine\nhundred/worker: main hundred\nnone/worker: main none\n"},
	};
	struct sqlite_store *s;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(0);
	put(s, T0 * NSEC_PER_SEC, "nine", "9");
	put(s, T0 * NSEC_PER_SEC, "ten", "10");
	put(s, T0 * NSEC_PER_SEC, "hundred", "100");
	put(s, T0 * NSEC_PER_SEC, "none", NULL);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		p.op = cases[i].op;
		assert_matches(s, &p, cases[i].want);
	}
	p.op = PRED_IN;
	p.n_values = 2;
	assert_matches(s, &p, "ten/worker: main ten\nhundred/worker: main hundred\n");
	p.op = PRED_NOT_IN;
	assert_matches(s, &p, "nine/worker: main nine\nnone/worker: main none\n");
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

static int add_up(const struct store_row *row, void *arg)
{
	*(int64_t *)arg += row->value;
	return 0;
}

/*
 * The names of an answer may take limited memory. The smallest stacks are added up, and the totals
 * stay right.
 */
static void names_of_an_answer_have_a_limit(void **state)
{
	const struct selection sel = {.scope = &store_scope_all, .time_end_s = T0 * 2LL};
	struct store_summary summary;
	struct sqlite_store *s;
	int64_t sum = 0;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	s = open_store(0);
	put(s, T0 * NSEC_PER_SEC, "nine", NULL);
	put(s, T0 * NSEC_PER_SEC, "ten", NULL);
	put(s, T0 * NSEC_PER_SEC, "hundred", NULL);
	s->names_bytes = 1;
	assert_matches(s, NULL, "nine/worker: main nine\n?/?: " STORE_OTHERS "\n");
	assert_int_equal(store_sqlite_read(s, &sel, add_up, &sum, &summary, NULL), 0);
	assert_int_equal(sum, 3);
	assert_int_equal(summary.n_samples, 3);
	assert_true(summary.truncated);
	/* the stacks that are shown have their whole value */
	assert_int_equal(summary.short_by, 0);
	store_summary_done(&summary);
	s->names_bytes = 1 << 20;
	assert_matches(s, NULL,
		       "nine/worker: main nine\nten/worker: main ten\n"
		       "hundred/worker: main hundred\n");
	store_sqlite_sink.close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_of_years),
		cmocka_unit_test(an_id_that_a_new_name_gets),
		cmocka_unit_test(a_query_while_a_deletion_is_committed),
		cmocka_unit_test(names_outlive_deletions_of_older_ones),
		cmocka_unit_test(nothing_of_a_failed_query_is_kept),
		cmocka_unit_test(a_lost_frame),
		cmocka_unit_test(the_second_0),
		cmocka_unit_test(the_second_0_by_size),
		cmocka_unit_test(numbers_compare_as_numbers),
		cmocka_unit_test(names_of_an_answer_have_a_limit),
	};

	return cmocka_run_group_tests_name("ids", tests, NULL, NULL);
}
