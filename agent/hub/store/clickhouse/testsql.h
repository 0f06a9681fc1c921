/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the tables only: SQL against the engine that e2e/clickhouse/run.sh starts. */
#pragma once

#include "hub/store/clickhouse/clickhouse.h"
#include "hub/store/clickhouse/testengine.h"
#include "hub/store/teststore.h"

/*
 * Setup and teardown of a test: struct ch_store *s = *state, with a database of its own; NULL:
 * there is no engine.
 */
static inline int engine_setup(void **state)
{
	char database[32];
	const struct store_config c = {.path = "",
				       .url = getenv("CLICKHOUSE_URL"),
				       .cluster = getenv("CLICKHOUSE_CLUSTER"),
				       .database = database};
	struct field_error e = {0};

	*state = NULL;
	snprintf(database, sizeof(database), "s%llx", (unsigned long long)random_below(UINT64_MAX));
	if (c.url && store_clickhouse_sink.open(&c, state, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return 0;
}

static inline int engine_teardown(void **state)
{
	if (*state)
		store_clickhouse_sink.close(*state);
	return 0;
}

#define OVER_ENGINE(t) cmocka_unit_test_setup_teardown(t, engine_setup, engine_teardown)

static inline struct ch_store *engine(void **state)
{
	need_engine();
	return *state;
}

/* Runs SQL without an answer. */
static inline void run_sql(struct ch_store *s, const char *sql)
{
	struct field_error e = {0};

	if (store_ch_run(s, sql, &e))
		fail_msg("%s: %s", sql, e.reason);
}

/*
 * Each window is there twice, as when two hubs were given it, and the engine has not merged the
 * rows yet.
 */
static inline void write_windows_again(struct ch_store *s)
{
	_cleanup_free_ char *stop = xasprintf("SYSTEM STOP MERGES %s.windows", s->database),
			    *again = xasprintf("INSERT INTO %s.windows SELECT * FROM %s.windows",
					       s->database, s->database);

	run_sql(s, stop);
	run_sql(s, again);
}

/* The texts of a query's only column, a line each. The caller frees them. */
static inline char *lines_of(struct ch_store *s, const char *sql)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + 600 * NSEC_PER_SEC};
	struct ch_sql q = {0};
	struct http_answer a = {0};
	struct ch_rows rows;
	struct field_error e = {0};
	struct buf b = {0};

	store_ch_text(&q, sql);
	if (store_ch_ask(s, &q, &l, &a, &rows, &e))
		fail_msg("%s: %s", sql, e.reason);
	while (store_ch_more(&rows)) {
		_cleanup_free_ char *text = store_ch_get_str(&rows);

		buf_printf(&b, "%s\n", text);
	}
	assert_false(rows.failed);
	http_answer_done(&a);
	store_ch_sql_done(&q);
	return buf_steal(&b);
}

static inline void assert_lines(struct ch_store *s, const char *sql, const char *want)
{
	_cleanup_free_ char *got = lines_of(s, sql);

	assert_string_equal(got, want);
}
