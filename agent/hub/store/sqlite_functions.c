/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQL functions for LIKE, REGEXP and the names of waits, and the check whether a query must end.
 * SQLite makes this check between its own steps. One step may be a long match, so the matches make
 * the check, too.
 */
#include "hub/store/sqlite.h"
#include "lib/base/regexp.h"

/*
 * Length of a text in bytes. For longer text, the functions read the clock (40 ns) before the
 * match, because LIKE may take as many steps as the square of the length.
 */
#define LONG_TEXT 256

int store_query_must_end(void *limit)
{
	const struct query_limit *l = limit;

	return (l->deadline_ns && now_mono_ns() > l->deadline_ns) ||
	       (l->given_up && atomic_load(l->given_up));
}

/*
 * Whether the query may continue. If not, it fails with the same error as when SQLite's own check
 * ends it.
 */
static bool goes_on(sqlite3_context *ctx)
{
	if (!store_query_must_end(sqlite3_user_data(ctx)))
		return true;
	sqlite3_result_error_code(ctx, SQLITE_INTERRUPT);
	return false;
}

static void fn_like(sqlite3_context *ctx, int n, sqlite3_value **v)
{
	const char *pattern = (const char *)sqlite3_value_text(v[0]);
	const char *text = (const char *)sqlite3_value_text(v[1]);

	(void)n;
	if (!pattern || !text || (sqlite3_value_bytes(v[1]) > LONG_TEXT && !goes_on(ctx)))
		return;
	sqlite3_result_int(ctx, store_match_like(pattern, text));
}

/*
 * The function pf_regexp. The pattern is a bound constant, so SQLite keeps its compiled form for
 * the whole statement.
 */
static void fn_regexp(sqlite3_context *ctx, int n, sqlite3_value **v)
{
	const char *pattern = (const char *)sqlite3_value_text(v[0]);
	const char *text = (const char *)sqlite3_value_text(v[1]);
	struct regexp *known = sqlite3_get_auxdata(ctx, 0), *x = known;
	struct field_error e;
	int r;

	(void)n;
	if (!pattern || !text || !goes_on(ctx))
		return;
	if (!known && regexp_new(pattern, &x, &e)) {
		sqlite3_result_error(ctx, e.reason, -1);
		return;
	}
	r = regexp_match(x, text);
	if (r < 0)
		sqlite3_result_error_code(ctx, SQ_REGEXP_LIMIT);
	else
		sqlite3_result_int(ctx, r);
	if (!known)
		sqlite3_set_auxdata(ctx, 0, x, regexp_free);
}

/* The function pf_wait: returns the name of a wait; NULL if no wait has the number. */
static void fn_wait(sqlite3_context *ctx, int n, sqlite3_value **v)
{
	int wait = sqlite3_value_int(v[0]);

	(void)n;
	if (wait != WAIT_NONE)
		sqlite3_result_text(ctx, profile_wait_name((enum wait)wait), -1, SQLITE_STATIC);
}

int store_match_functions(sqlite3 *db, struct query_limit *l)
{
	const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY;
	int rc = sqlite3_create_function(db, "pf_like", 2, flags, l, fn_like, NULL, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(db, "pf_regexp", 2, flags, l, fn_regexp, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(db, "pf_wait", 1, flags, NULL, fn_wait, NULL, NULL);
	return store_sq_errno(rc);
}
