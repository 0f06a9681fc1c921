/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The migration of the tables, against the real engine: e2e/clickhouse/run.sh starts it; without it
 * the tests are skipped, but for those of the configuration's names.
 */
#include "hub/store/clickhouse/testsql.h"

#include <fcntl.h>
#include <semaphore.h>

#define N_TABLES    7  /* of the steps */
#define FRESH_LINES 21 /* database, seed, and ten steps with their records; one is only recorded */

/* ---- a migration, and what it printed ---- */

static void add_line(const char *line, void *arg)
{
	buf_printf(arg, "%s\n", line);
}

static struct store_config config_of(const char *database)
{
	return (struct store_config){.kind = "clickhouse",
				     .path = "",
				     .url = getenv("CLICKHOUSE_URL") ?: "http://127.0.0.1:1",
				     .database = database};
}

/* The lines of a migration; the caller frees them. */
static char *lines(const struct store_config *c, bool dry_run)
{
	struct buf b = {0};
	struct field_error e = {0};

	if (store_migrate(c, dry_run, add_line, &b, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return buf_steal(&b);
}

static size_t count(const char *text, const char *what)
{
	size_t n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

/* Only a dry run prints the seed that it has drawn. */
static char *without_seed(char *text)
{
	char *seed = strstr(text, "COMMENT '") + strlen("COMMENT '");

	assert_int_equal(strspn(seed, "0123456789abcdef"), 32);
	memcpy(seed, "SECRET", 6);
	memmove(seed + 6, seed + 32, strlen(seed + 32) + 1);
	return text;
}

static void assert_refused(const struct store_config *c, const char *reason)
{
	struct field_error e = {0};
	struct ch_store *s;

	/* a store opens in any case; each statement then says what is wrong */
	assert_int_equal(store_clickhouse_sink.open(c, (void **)&s, NULL), 0);
	if (!store_ch_ready(s, &e))
		fail_msg("not refused: %s", reason);
	store_clickhouse_sink.close(s);
	if (!strstr(e.reason, reason))
		fail_msg("%s\n--- does not say\n%s", e.reason, reason);
}

/* A database of its own, which the test has not made. */
struct fresh {
	char name[32];
	struct store_config config;
};

static void fresh(struct fresh *f)
{
	snprintf(f->name, sizeof(f->name), "f%llx", (unsigned long long)random_below(UINT64_MAX));
	f->config = config_of(f->name);
}

/* Runs SQL in which each # stands for the database. */
static void run_in(struct ch_store *s, const char *database, const char *sql)
{
	struct buf b = {0};
	_cleanup_free_ char *text = NULL;

	for (; *sql; sql++)
		if (*sql == '#')
			buf_puts(&b, database);
		else
			buf_putc(&b, *sql);
	text = buf_steal(&b);
	run_sql(s, text);
}

static char *lines_in(struct ch_store *s, const char *database, const char *before,
		      const char *after)
{
	_cleanup_free_ char *sql = xasprintf("%s%s%s", before, database, after);

	return lines_of(s, sql);
}

/* ---- tests ---- */

static void a_second_migration_runs_nothing(void **state)
{
	struct fresh f;
	_cleanup_free_ char *first = NULL, *second = NULL, *versions = NULL;
	struct ch_store *s = engine(state);

	fresh(&f);
	f.config.retention_ns = 72 * 3600 * NSEC_PER_SEC;
	first = lines(&f.config, false);
	assert_int_equal(count(first, ";\n"), FRESH_LINES);
	second = lines(&f.config, false);
	assert_string_equal(second, "");
	versions =
		lines_in(s, f.name, "SELECT toString(version) FROM ", ".podflame ORDER BY version");
	assert_string_equal(versions, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
}

static void a_dry_run_prints_what_then_runs(void **state)
{
	struct fresh f;
	_cleanup_free_ char *dry = NULL, *none = NULL, *wet = NULL, *there = NULL;
	struct ch_store *s = engine(state);

	fresh(&f);
	none = lines(&f.config, true);
	there = lines_in(s, f.name, "SELECT name FROM system.databases WHERE name='", "'");
	assert_string_equal(there, "");
	wet = lines(&f.config, false);
	assert_string_equal(without_seed(none), wet);
	f.config.retention_ns = 3600 * NSEC_PER_SEC;
	free(wet);
	dry = lines(&f.config, true);
	wet = lines(&f.config, false);
	assert_string_equal(dry, wet);
	assert_int_equal(count(dry, "MODIFY TTL"), 3);
	assert_int_equal(count(dry, "MODIFY COMMENT"), 3);
}

static void a_dry_run_needs_no_database(void **state)
{
	struct fresh f;
	_cleanup_free_ char *dry = NULL;
	struct store_config c;

	(void)state;
	fresh(&f);
	c = f.config;
	c.url = "http://127.0.0.1:1";
	dry = lines(&c, true);
	assert_int_equal(strncmp(dry, "-- ClickHouse: ", 15), 0);
	assert_int_equal(count(dry, ";\n"), FRESH_LINES);
}

struct hub {
	pthread_t thread;
	const struct store_config *config;
	struct field_error error;
	int result;
	uint8_t seed[16];
};

static void *migrate_and_open(void *arg)
{
	struct hub *h = arg;
	void *sink;

	h->result = store_migrate(h->config, false, NULL, NULL, &h->error);
	if (!h->result)
		h->result = store_clickhouse_sink.open(h->config, &sink, &h->error);
	if (h->result)
		return NULL;
	memcpy(h->seed, ((struct ch_store *)sink)->seed, sizeof(h->seed));
	store_clickhouse_sink.close(sink);
	return NULL;
}

static void hubs_may_migrate_at_once(void **state)
{
	struct hub hubs[4] = {0};

	(void)engine(state);
	for (int round = 0; round < 3; round++) {
		struct fresh f;

		fresh(&f);
		for (size_t i = 0; i < ARRAY_SIZE(hubs); i++) {
			hubs[i].config = &f.config;
			assert_int_equal(
				pthread_create(&hubs[i].thread, NULL, migrate_and_open, &hubs[i]),
				0);
		}
		for (size_t i = 0; i < ARRAY_SIZE(hubs); i++)
			pthread_join(hubs[i].thread, NULL);
		for (size_t i = 0; i < ARRAY_SIZE(hubs); i++) {
			if (hubs[i].result)
				fail_msg("%s", hubs[i].error.reason);
			assert_memory_equal(hubs[i].seed, hubs[0].seed, sizeof(hubs[i].seed));
		}
	}
}

/* The tables as the first version of this sink made them, before versions were recorded. */
static const char *const first_version[] = {
	"CREATE DATABASE #",
	"CREATE TABLE #.podflame (version UInt32, made DateTime) ENGINE = MergeTree "
	"ORDER BY version COMMENT '000102030405060708090a0b0c0d0e0f'",
	"CREATE TABLE #.windows (time DateTime, start DateTime, profile_id FixedString(16), "
	"profile_event_type LowCardinality(String), app_service LowCardinality(String), "
	"process_id UInt32, process_start_ms UInt64, pod_cluster LowCardinality(String), "
	"pod_ns LowCardinality(String), pod_node LowCardinality(String), "
	"pod_group LowCardinality(String), pod_group_type LowCardinality(String), "
	"pod LowCardinality(String), pod_uid LowCardinality(String), "
	"container LowCardinality(String), container_id LowCardinality(String), "
	"image LowCardinality(String), unverified LowCardinality(String), "
	"tag_names Array(LowCardinality(String)), tag_values Array(String), value UInt64, "
	"n UInt64, stacks Array(UInt64), `values` Array(UInt64), counts Array(UInt64), "
	"cpus Array(Int32), traces Array(FixedString(16)), spans Array(FixedString(8)), "
	"call_stacks Array(UInt64), call_values Array(UInt64), call_counts Array(UInt64), "
	"call_cpus Array(Int32), loss_reasons Array(LowCardinality(String)), "
	"loss_counts Array(UInt64), loss_times Array(UInt64), estimate_ppm UInt32, "
	"estimate_error UInt64, snapshot UInt8, stored UInt64) "
	"ENGINE = ReplacingMergeTree PARTITION BY toDate(time, 'UTC') ORDER BY "
	"(profile_event_type, "
	"pod_cluster, pod_ns, toStartOfHour(time), app_service, process_id, process_start_ms, "
	"time, profile_id)",
	"CREATE TABLE #.stacks (id UInt64, process LowCardinality(String), "
	"thread LowCardinality(String), main UInt8, wait UInt8, "
	"label_names Array(LowCardinality(String)), label_values Array(String), "
	"frames Array(UInt64), last Date) ENGINE = ReplacingMergeTree(last) ORDER BY id",
	"CREATE TABLE #.frames (id UInt64, kind UInt8, inlined UInt8, line UInt32, "
	"address UInt64, name String, has_name UInt8, module LowCardinality(String), "
	"build_id LowCardinality(String), file LowCardinality(String), last Date) "
	"ENGINE = ReplacingMergeTree(last) ORDER BY id",
	/* a view that the next version has changed */
	"CREATE VIEW #.in_process AS SELECT 'old' AS profile_location_str, 0 AS profile_value",
	"INSERT INTO #.podflame SELECT 5, now()",
};
#define OLD_WINDOW                                                                                 \
	"INSERT INTO %s.windows (time, start, profile_id, profile_event_type, app_service, "       \
	"process_id, pod_ns, value, n, stacks, `values`, counts) VALUES (1700000000, 1699999990, " \
	"unhex('%032x'), 'on-cpu', 'api', 9, 'app', 10, 1, [5], [10], [1])"

/* A hub of the first version that writes until it is told to stop. */
struct old_hub {
	pthread_t thread;
	struct ch_store *s;
	const char *database;
	atomic_bool stop;
	unsigned n;
	sem_t wrote;
	int result;
};

static void *write_old_windows(void *arg)
{
	struct old_hub *h = arg;

	while (!atomic_load(&h->stop) && !h->result) {
		_cleanup_free_ char *sql = xasprintf(OLD_WINDOW, h->database, h->n + 1);

		h->result = store_ch_run(h->s, sql, NULL);
		h->n += !h->result;
		sem_post(&h->wrote);
	}
	return NULL;
}

static void make_first_version(struct ch_store *s, const char *database)
{
	for (size_t i = 0; i < ARRAY_SIZE(first_version); i++)
		run_in(s, database, first_version[i]);
	run_in(s, database,
	       "INSERT INTO #.frames (id, kind, name, has_name, last) "
	       "VALUES (7, 0, 'old', 1, today())");
	run_in(s, database,
	       "INSERT INTO #.stacks (id, thread, frames, last) VALUES (5, 't', [7], today())");
}

static void wait_for_writes(struct old_hub *h, unsigned n)
{
	while (n-- && !h->result)
		sem_wait(&h->wrote);
}

static void older_tables_migrate_while_an_older_hub_writes(void **state)
{
	struct ch_store *s = engine(state);
	struct old_hub old = {.s = s};
	struct fresh f;
	_cleanup_free_ char *ran = NULL, *got = NULL, *want = NULL;
	struct field_error e = {0};
	void *sink;

	fresh(&f);
	old.database = f.name;
	assert_int_equal(sem_init(&old.wrote, 0, 0), 0);
	make_first_version(s, f.name);
	assert_int_equal(pthread_create(&old.thread, NULL, write_old_windows, &old), 0);
	wait_for_writes(&old, 2);
	f.config.ns_retention = &(struct named_duration){"app", 0};
	f.config.n_ns_retention = 1;
	ran = lines(&f.config, false);
	wait_for_writes(&old, 2);
	atomic_store(&old.stop, true);
	pthread_join(old.thread, NULL);
	assert_int_equal(old.result, 0);
	got = lines_in(
		s, f.name,
		"SELECT concat(any(profile_location_str), ' ', toString(sum(profile_value))) "
		"FROM ",
		".in_process");
	want = xasprintf("[t] t;old %u0\n", old.n);
	assert_string_equal(got, want);
	if (store_clickhouse_sink.open(&f.config, &sink, &e))
		fail_msg("%s", e.reason);
	assert_int_equal(((struct ch_store *)sink)->seed[15], 0x0f);
	store_clickhouse_sink.close(sink);
}

static void what_somebody_dropped_or_altered_is_named(void **state)
{
	static const struct {
		const char *sql, *reason;
	} cases[] = {
		{"DROP TABLE #.stacks", ".stacks is not there"},
		{"ALTER TABLE #.frames DROP COLUMN build_id",
		 ".frames has no column build_id (LowCardinality(String))"},
		{"ALTER TABLE #.frames MODIFY COLUMN line UInt64", "the column line of the table "},
		{"DROP TABLE #.podflame", ".podflame is not there, but "},
		{"ALTER TABLE #.podflame MODIFY COMMENT 'mine'", "somebody has altered it"},
		{"INSERT INTO #.podflame SELECT 1000, now()", "it needs a newer podflame"},
		{"RENAME TABLE #.windows TO #.w2, #.stacks TO #.windows",
		 ".windows has no column time (DateTime)"},
	};
	struct ch_store *s = engine(state);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fresh f;

		fresh(&f);
		free(lines(&f.config, false));
		run_in(s, f.name, cases[i].sql);
		assert_refused(&f.config, cases[i].reason);
	}
}

static void what_newer_hubs_added_stays(void **state)
{
	struct ch_store *s = engine(state);
	struct fresh f;
	_cleanup_free_ char *second = NULL, *third = NULL;

	fresh(&f);
	free(lines(&f.config, false));
	run_in(s, f.name, "INSERT INTO #.podflame SELECT 999, now()");
	run_in(s, f.name, "ALTER TABLE #.windows ADD COLUMN later String");
	second = lines(&f.config, false);
	assert_string_equal(second, "");
	run_in(s, f.name, "DROP VIEW #.in_process");
	third = lines(&f.config, false);
	assert_int_equal(count(third, "CREATE OR REPLACE VIEW"), 1);
}

static void tables_of_a_cluster_are_not_those_of_one_server(void **state)
{
	struct fresh f;

	(void)engine(state);
	fresh(&f);
	free(lines(&f.config, false));
	f.config.cluster = "prod";
	assert_refused(&f.config, "it was made with another store.clickhouse.cluster");
}

/* A table that somebody has made anew: equal rows would be others, or no day could be dropped. */
static void a_table_with_other_keys_is_named(void **state)
{
	static const struct {
		const char *order, *reason;
	} cases[] = {
		{"PARTITION BY tuple() ORDER BY (profile_event_type, pod_cluster, pod_ns, "
		 "toStartOfHour(time), app_service, process_id, process_start_ms, time, "
		 "profile_id)",
		 "the partition key of the table"},
		{"PARTITION BY toDate(time, 'UTC') ORDER BY (time, profile_id)",
		 "windows is 'time, profile_id', not 'profile_event_type, pod_cluster"},
	};
	struct ch_store *s = engine(state);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *make =
			xasprintf("CREATE TABLE #.windows ENGINE = ReplacingMergeTree %s EMPTY AS "
				  "SELECT * FROM #.old",
				  cases[i].order);
		struct fresh f;

		fresh(&f);
		free(lines(&f.config, false));
		run_in(s, f.name, "RENAME TABLE #.windows TO #.old");
		run_in(s, f.name, make);
		assert_refused(&f.config, cases[i].reason);
	}
}

/* ---- how long rows stay ---- */

static void each_event_and_namespace_has_its_time(void **state)
{
	static const struct named_duration events[] = {{"mem-alloc", 0}, {"off-cpu", NSEC_PER_SEC}},
					   spaces[] = {{"it's", 0}};
	struct ch_store *s = engine(state);
	struct fresh f;
	_cleanup_free_ char *changed = NULL, *again = NULL, *back = NULL, *left = NULL;

	fresh(&f);
	f.config.retention_ns = 3600 * NSEC_PER_SEC;
	free(lines(&f.config, false));
	f.config.event_retention = events;
	f.config.n_event_retention = ARRAY_SIZE(events);
	f.config.ns_retention = spaces;
	f.config.n_ns_retention = ARRAY_SIZE(spaces);
	changed = lines(&f.config, false);
	assert_int_equal(count(changed, "MODIFY TTL"), 1);
	assert_int_equal(count(changed, "REMOVE TTL"), 2); /* names of what stays for ever */
	again = lines(&f.config, false);
	assert_string_equal(again, "");
	run_in(s, f.name,
	       "INSERT INTO #.windows (time, profile_event_type, pod_ns, unverified) VALUES "
	       "(now() - 180000, 'on-cpu', 'a', ''), (now() - 173000, 'on-cpu', 'b', ''), "
	       "(now() - 173000, 'off-cpu', 'c', ''), (now() - 173000, 'off-cpu', 'it\\'s', ''), "
	       "(now() - 172000, 'off-cpu', 'e', ''), (now() - 180000, 'on-cpu', 'it\\'s', "
	       "'true'), "
	       "(toDateTime('2001-01-01 00:00:00'), 'mem-alloc', 'd', '')");
	run_in(s, f.name, "OPTIMIZE TABLE #.windows FINAL");
	left = lines_in(s, f.name, "SELECT pod_ns FROM ", ".windows ORDER BY pod_ns");
	assert_string_equal(left, "b\nd\ne\nit's\n");
	f.config.n_event_retention = f.config.n_ns_retention = 0;
	f.config.retention_ns = 0;
	back = lines(&f.config, false);
	assert_int_equal(count(back, "REMOVE TTL"), 1);
}

/* ---- names of the configuration ---- */

static void names_that_are_no_names_are_refused(void **state)
{
	static const struct named_duration none[] = {{"on-cpus", 0}};
	static const struct {
		struct store_config c;
		const char *path;
	} cases[] = {
		{{.database = "a b"}, "store.clickhouse.database"},
		{{.database = "1a"}, "store.clickhouse.database"},
		{{.database = ""}, "store.clickhouse.database"},
		{{.database = "a`; DROP"}, "store.clickhouse.database"},
		{{.cluster = "x'y"}, "store.clickhouse.cluster"},
		{{.storage_policy = "a\\"}, "store.clickhouse.storage_policy"},
		{{.event_retention = none, .n_event_retention = 1}, "store.event_retention"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct store_config c = cases[i].c;
		struct field_error e = {0};

		c.kind = "clickhouse";
		c.url = "http://127.0.0.1:1";
		assert_int_equal(store_migrate(&c, true, NULL, NULL, &e), -EINVAL);
		assert_string_equal(e.path, cases[i].path);
	}
}

static void assert_parsed(struct ch_store *s, const char *sql)
{
	_cleanup_free_ char *explain = xasprintf("EXPLAIN AST %s", sql);

	free(lines_of(s, explain));
}

/* chdb has no other servers, so the statements are parsed, and do not run. */
static void the_engine_parses_what_a_cluster_needs(void **state)
{
	static const struct named_duration events[] = {{"off-cpu", NSEC_PER_SEC}};
	struct ch_store *s = engine(state);
	struct fresh f;
	_cleanup_free_ char *all = NULL;

	fresh(&f);
	f.config.url = "http://127.0.0.1:1";
	f.config.cluster = "prod-1";
	f.config.storage_policy = "hot_cold";
	f.config.retention_ns = 3600 * NSEC_PER_SEC;
	f.config.event_retention = events;
	f.config.n_event_retention = 1;
	all = lines(&f.config, true);
	assert_int_equal(count(all, ";\n"), FRESH_LINES + N_TABLES);
	assert_int_equal(count(all, " ON CLUSTER `prod-1`"), 2 + N_TABLES * 2 + 2);
	assert_int_equal(count(all, "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/"),
			 N_TABLES);
	for (char *line = strchr(all, '\n') + 1, *end; *line; line = end + 1) {
		end = strchr(line, '\n');
		*end = '\0';
		assert_parsed(s, line);
	}
}

/* The blocks of SQL in docs/clickhouse.md. */
static void the_engine_parses_what_the_page_says(void **state)
{
	struct ch_store *s = engine(state);
	_cleanup_free_ char *page = NULL;
	size_t n = 0, n_statements = 0;

	assert_int_equal(file_read(AT_FDCWD, "docs/clickhouse.md", 1 << 20, &page, &n), 0);
	for (char *block = page, *end; (block = strstr(block, "```sql\n")); block = end + 3) {
		block += strlen("```sql\n");
		end = strstr(block, "```");
		*end = '\0';
		for (char *sql = strtok(block, ";"); sql; sql = strtok(NULL, ";")) {
			if (!sql[strspn(sql, "\n")])
				continue;
			assert_parsed(s, sql);
			n_statements++;
		}
	}
	assert_true(n_statements > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OVER_ENGINE(a_second_migration_runs_nothing),
		OVER_ENGINE(a_dry_run_prints_what_then_runs),
		cmocka_unit_test(a_dry_run_needs_no_database),
		OVER_ENGINE(hubs_may_migrate_at_once),
		OVER_ENGINE(older_tables_migrate_while_an_older_hub_writes),
		OVER_ENGINE(what_somebody_dropped_or_altered_is_named),
		OVER_ENGINE(what_newer_hubs_added_stays),
		OVER_ENGINE(tables_of_a_cluster_are_not_those_of_one_server),
		OVER_ENGINE(a_table_with_other_keys_is_named),
		OVER_ENGINE(each_event_and_namespace_has_its_time),
		cmocka_unit_test(names_that_are_no_names_are_refused),
		OVER_ENGINE(the_engine_parses_what_a_cluster_needs),
		OVER_ENGINE(the_engine_parses_what_the_page_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
