/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of older versions. A file of version 3 is converted in slices. If the hub ends at any point
 * of the conversion, the next start continues.
 */
#include "hub/store/teststore.h"

#define N_SECONDS  1250 /* two profiles in each: more than two slices */
#define SUM	   (N_SECONDS * 100)
#define SECOND_SUM (700 * 100) /* sum of the values of the first 700 seconds */

static const char version_3[] =
	"PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; BEGIN;"
	"CREATE TABLE strings(id INTEGER PRIMARY KEY, s TEXT NOT NULL UNIQUE);"
	"CREATE TABLE frames(id INTEGER PRIMARY KEY, name INT, module INT, build_id INT,"
	" address INT, file INT, line INT, kind INT, inlined INT,"
	" UNIQUE(name, module, address, build_id, file, line, kind, inlined));"
	"CREATE TABLE stacks(id INTEGER PRIMARY KEY, hash INT NOT NULL, last_s INT NOT NULL,"
	" process INT NOT NULL, thread INT NOT NULL, main INT NOT NULL, frames BLOB NOT NULL,"
	" wait INT NOT NULL DEFAULT 0);"
	"CREATE INDEX stacks_hash ON stacks(hash); CREATE INDEX stacks_last ON stacks(last_s);"
	"CREATE TABLE tagsets(id INTEGER PRIMARY KEY, text BLOB NOT NULL UNIQUE);"
	"CREATE TABLE tags(tagset INT, key INT, value INT, PRIMARY KEY(tagset, key)) WITHOUT ROWID;"
	"CREATE TABLE series(id INTEGER PRIMARY KEY, app INT NOT NULL, pid INT NOT NULL,"
	" start_ms INT NOT NULL, tagset INT NOT NULL, first_s INT NOT NULL, last_s INT NOT NULL,"
	" UNIQUE(tagset, app, pid, start_ms));"
	"CREATE TABLE profiles(id BLOB PRIMARY KEY, time INT NOT NULL, event INT NOT NULL,"
	" series INT NOT NULL, n INT NOT NULL) WITHOUT ROWID;"
	"CREATE INDEX profiles_time ON profiles(time, event, series, n);"
	"CREATE TABLE samples(event INT, series INT, time INT, stack INT, cpu INT,"
	" value INT NOT NULL, n INT NOT NULL,"
	" PRIMARY KEY(event, series, time, stack, cpu)) WITHOUT ROWID;"
	"CREATE TABLE losses(time INT NOT NULL, start_s INT NOT NULL, event INT NOT NULL,"
	" series INT NOT NULL, reason INT NOT NULL, n INT NOT NULL, time_ns INT NOT NULL);"
	"CREATE INDEX losses_time ON losses(time);"
	"CREATE TABLE links(trace TEXT, span TEXT, event INT, series INT, time INT, stack INT,"
	" cpu INT, value INT NOT NULL, n INT NOT NULL,"
	" PRIMARY KEY(trace, span, event, series, time, stack, cpu)) WITHOUT ROWID;"
	"CREATE INDEX links_time ON links(time);"
	"CREATE TABLE snapshots(event INT, series INT, time INT,"
	" PRIMARY KEY(event, series, time)) WITHOUT ROWID;"
	"CREATE TABLE estimates(time INT NOT NULL, event INT NOT NULL, series INT NOT NULL,"
	" ppm INT NOT NULL, error INT NOT NULL);"
	"CREATE INDEX estimates_time ON estimates(time);"
	"CREATE TABLE meta(key TEXT PRIMARY KEY, value INT);"
	"INSERT INTO meta VALUES('seed', 42);"
	"INSERT INTO strings VALUES(1, 'web'), (2, 'worker'), (3, 'read'), (4, '/bin/web'), (5, "
	"'write');"
	"INSERT INTO frames VALUES(1, 3, 4, 0, 0, 0, 0, 0, 0), (2, 5, 4, 0, 0, 0, 0, 0, 0);"
	"INSERT INTO stacks VALUES(1, 7, 1700001249, 1, 2, 0, x'01', 0),"
	" (2, 8, 1700001249, 1, 2, 0, x'0102', 0);"
	"INSERT INTO tagsets VALUES(1, x'');"
	"INSERT INTO series VALUES(1, 1, 10, 0, 1, 1700000000, 1700001249);"
	"WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM c WHERE i<1249)"
	" INSERT INTO samples SELECT 0, 1, 1700000000+i, 1, -1, 70, 7 FROM c UNION ALL"
	" SELECT 0, 1, 1700000000+i, 2, 3, 30, 3 FROM c;"
	"WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM c WHERE i<2499)"
	" INSERT INTO profiles SELECT CAST(PRINTF('%016d', i*7%2500) AS BLOB),"
	" 1700000000+i/2, 0, 1, 5 FROM c;"
	"PRAGMA user_version=3; COMMIT";

static int64_t number(const char *dir, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/profiles.sqlite", dir);
	sqlite3 *db = NULL;
	int64_t n = -1;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(store_sq_int(db, text, &n), 0);
	sqlite3_close(db);
	return n;
}

struct parts {
	int64_t value, read, write;
	uint64_t n;
};

static int take_parts(const struct store_row *row, void *arg)
{
	struct parts *g = arg;
	const char *leaf = row->frames[row->n_frames - 1]->name;

	assert_string_equal(row->app_service, "web");
	assert_string_equal(row->head.thread_comm, "worker");
	g->value += row->value;
	g->n += row->n_samples;
	*(streq(leaf, "read") ? &g->read : &g->write) += row->value;
	return 0;
}

static struct parts read_until(struct store *s, int64_t end_s)
{
	const struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0, .time_end_s = end_s};
	struct store_summary summary = {};
	struct parts g = {};

	assert_int_equal(store_read(s, &store_scope_all, &sel, take_parts, &g, &summary, NULL), 0);
	store_summary_done(&summary);
	return g;
}

static void assert_whole(struct store *s)
{
	struct parts g = read_until(s, T0 + N_SECONDS);

	assert_int_equal(g.value, SUM);
	assert_int_equal(g.read, N_SECONDS * 70);
	assert_int_equal(g.write, N_SECONDS * 30);
	assert_int_equal(g.n, N_SECONDS * 10);
	assert_int_equal(read_until(s, T0 + 699).value, SECOND_SUM);
}

static void assert_raised(const char *dir)
{
	assert_int_equal(number(dir, "PRAGMA user_version"), SCHEMA_VERSION);
	assert_int_equal(number(dir, "SELECT COUNT(*) FROM stacks WHERE labels=0"), 2);
	assert_int_equal(number(dir, "SELECT COUNT(*) FROM sqlite_schema WHERE name IN "
				     "('before', 'samples')"),
			 0);
	/*
	 * The ids stay, so a profile that is sent again is not stored twice. Of two profiles with
	 * the same process and second, one has the whole value.
	 */
	assert_int_equal(number(dir, "SELECT COUNT(DISTINCT id) FROM profiles"), 2 * N_SECONDS);
	assert_int_equal(number(dir, "SELECT COUNT(*) FROM profiles WHERE id="
				     "CAST('0000000000002499' AS BLOB)"),
			 1);
	assert_int_equal(number(dir, "SELECT SUM(value) FROM profiles"), SUM);
	assert_int_equal(number(dir, "SELECT SUM(n) FROM profiles"), 2 * N_SECONDS * 5);
}

static void raised(void **state)
{
	const char *dir = *state;
	struct store *s;

	sql(dir, version_3);
	s = open_at(dir, 0, 0);
	assert_whole(s);
	if (!getenv("SQLITE_TMPDIR"))
		assert_string_equal(sqlite3_temp_directory, dir);
	store_close(s);
	assert_raised(dir);
	s = open_at(dir, 0, 0);
	assert_whole(s);
	store_close(s);
}

/*
 * Profiles that were converted stay converted, and the others are unchanged. The next start
 * continues.
 */
static void ended_in_between(void **state)
{
	const char *dir = *state;
	struct store_stats stats;
	struct store *s;
	int64_t n;

	sql(dir, version_3);
	sql(dir, "CREATE TRIGGER stop BEFORE DELETE ON profiles WHEN old.time=1700000900 "
		 "BEGIN SELECT RAISE(FAIL, 'stop'); END");
	s = open_at(dir, 0, 0); /* the store reports the error, and each write tries again */
	store_stats(s, &stats);
	assert_string_not_equal(stats.error, "");
	store_close(s);
	n = number(dir, "SELECT COUNT(*) FROM profiles");
	assert_in_range(n, 1000, 1800);
	assert_int_equal(number(dir, "SELECT COUNT(*) FROM before"), 2 * N_SECONDS - n);
	assert_int_equal(number(dir, "SELECT COUNT(*) FROM samples"), 2 * N_SECONDS - n);
	assert_int_equal(number(dir, "PRAGMA user_version"), 3);
	sql(dir, "DROP TRIGGER stop");
	s = open_at(dir, 0, 0);
	assert_whole(s);
	store_close(s);
	assert_raised(dir);
}

/* Makes a profile with one stack, which two_services() has, too. */
static struct batch *one_allocation(const char *device)
{
	struct batch *b = profile_batch_new();
	struct profile_labels l = {.values = {[LABEL_GPU_DEVICE] = profile_batch_str(b, device)}};
	struct profile *p = add_profile(b, "labelled", "api", 10, "app", T0);

	add_sample(b, p, "worker", false, "write", 100);
	p->samples[0].labels = profile_batch_labels(b, &l);
	return b;
}

/* Files of older versions are converted with their profiles, and take new ones. */
static void older_files(void **state)
{
	static const struct live some[] = {{"cache", 100}, {0}};
	/*
	 * undo[n] turns a file of version n + 1 into one of version n. Before version 4, the
	 * samples of two profiles of the same process and second were added up.
	 */
	static const char *const undo[SCHEMA_VERSION] = {
		[7] = UNDO_8,
		[6] = "DROP TABLE clusters; PRAGMA user_version=6",
		[5] = "DROP TABLE blocks; DROP TABLE late; DELETE FROM meta WHERE key LIKE "
		      "'blocks%'; PRAGMA user_version=5",
		[4] = "ALTER TABLE stacks DROP COLUMN labels; PRAGMA user_version=4",
		[3] = "CREATE TABLE samples(event INT, series INT, time INT, stack INT, cpu INT,"
		      " value INT NOT NULL, n INT NOT NULL,"
		      " PRIMARY KEY(event, series, time, stack, cpu)) WITHOUT ROWID;"
		      "INSERT INTO samples SELECT p.event, p.series, p.time, sa.stack, sa.cpu, "
		      "SUM(sa.value), SUM(sa.n) FROM profiles p "
		      "CROSS JOIN pf_samples(p.samples, p.time) sa GROUP BY 1, 2, 3, 4, 5;"
		      "CREATE TABLE old(id BLOB PRIMARY KEY, time INT NOT NULL, event INT NOT "
		      "NULL, series INT NOT NULL, n INT NOT NULL) WITHOUT ROWID;"
		      "INSERT INTO old SELECT id, time, event, series, n FROM profiles;"
		      "DROP TABLE profiles; ALTER TABLE old RENAME TO profiles;"
		      "CREATE INDEX profiles_time ON profiles(time, event, series, n);"
		      "PRAGMA user_version=3",
		[2] = "ALTER TABLE stacks DROP COLUMN wait; DROP TABLE snapshots;"
		      "DROP TABLE estimates; PRAGMA user_version=2;",
		[1] = "DROP TABLE links; PRAGMA user_version=1;",
	};

	for (int version = 1; version < SCHEMA_VERSION; version++) {
		_cleanup_free_ char *dir = xasprintf("%s/%d", (const char *)*state, version);
		struct store *s = open_at(dir, 0, 0);
		struct batch *b = profile_batch_new();

		write_batch(s, two_services(), 3);
		for (int i = 0; i < 2; i++)
			add_sample(b, add_profile(b, i ? "x" : "y", "twice", 11, "app", T0 + 5),
				   "worker", false, "function", i ? 1000 : 3000);
		write_batch(s, b, 2);
		store_close(s);
		for (int to = SCHEMA_VERSION - 1; to >= version; to--)
			sql(dir, undo[to]);
		s = open_at(dir, 0, 0);
		assert_int_equal(value_where(s, NULL), 4240);
		assert_int_equal(value_where(s, leaf(PRED_EQ, "app_service", "twice")), 4000);
		assert_int_equal(value_where(s, leaf(PRED_EQ, "thread", "worker")), 4150);
		write_batch(s, two_services(), 0);
		write_snapshot(s, "api", 10, T0, some);
		write_snapshot(s, "api", 10, T0 + 10, some);
		assert_int_equal(live_until(s, T0 + 90, 1), 100);
		write_batch(s, one_allocation("0"), 1);
		assert_int_equal(value_where(s, leaf(PRED_EQ, "gpu_device", "0")), 100);
		assert_int_equal(value_where(s, leaf(PRED_IS_NULL, "gpu_device", NULL)), 4240);
		store_close(s);
	}
}

static void newer_files_are_refused(void **state)
{
	const char *dir = *state;
	struct store_config c = {.kind = "sqlite", .path = dir};
	struct field_error e = {0};
	struct store *s = open_at(dir, 0, 0);

	store_close(s);
	sql(dir, "PRAGMA user_version=99;");
	assert_int_equal(store_open(&c, &s, &e), -EINVAL);
	assert_non_null(strstr(e.reason, "another version (99,"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(raised),
		ON_DISK(ended_in_between),
		ON_DISK(older_files),
		ON_DISK(newer_files_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
