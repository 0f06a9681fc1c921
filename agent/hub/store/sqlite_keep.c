/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletes what is kept for less time than other profiles (keep.h), in slices, until the deadline.
 * What is older than all are kept, sqlite_expire.c deletes with its stacks and its series. So the
 * stacks of an event or a namespace stay until then, and the series of an event, too.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

#define SLICE 5000 /* profiles that one slice deletes, and all others of its last second */

/* Runs a statement of the writer, and frees its text. */
static int run(struct sqlite_store *s, struct where *w)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int r = store_where_prepare(w, s->writer, &st);

	store_where_done(w);
	return r ?: store_sq_run(st);
}

static void put_namespaces(struct where *w, char *const *namespaces, size_t n)
{
	/* a place is "NS" or "CLUSTER:NS" */
	store_where_text(w, "place IN (SELECT id FROM places WHERE substr(name, instr(name, ':')+1)"
			    " IN (");
	for (size_t i = 0; i < n; i++) {
		store_where_text(w, i ? "," : "");
		store_where_str(w, namespaces[i]);
	}
	store_where_text(w, "))");
}

/* Puts the series to which the rule applies into the table `cut`. */
static int choose_series(struct sqlite_store *s, const struct keep_rule *rule, int64_t cut_s)
{
	struct where w = {0};
	int r = store_sq_exec(s->writer, "DELETE FROM cut");

	if (r)
		return r;
	store_where_text(&w, "INSERT INTO cut SELECT id FROM series WHERE first_s<=");
	store_where_int(&w, cut_s);
	store_where_text(&w, rule->ns ? " AND " : " AND NOT ");
	if (rule->ns)
		put_namespaces(&w, &rule->ns, 1);
	else
		put_namespaces(&w, s->keeps.namespaces, s->keeps.n_namespaces);
	return run(s, &w);
}

/* *ret_s: the last second of the next slice; cut_s: it is the last one. */
static int slice_end(struct sqlite_store *s, const struct keep_rule *rule, int64_t cut_s,
		     int64_t *ret_s)
{
	_cleanup_(store_where_done) struct where w = {0};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, r;

	store_where_text(&w, "SELECT time FROM profiles WHERE time>");
	store_where_int(&w, rule->cut_s);
	store_where_text(&w, " AND time<=");
	store_where_int(&w, cut_s);
	if (!rule->ns) {
		store_where_text(&w, " AND event=");
		store_where_int(&w, rule->event);
	}
	/* the + keeps SQLite at the index of times, which it reads from cut_s of the rule on */
	store_where_text(&w, " AND +series IN (SELECT series FROM cut) ORDER BY time LIMIT 1 "
			     "OFFSET ");
	store_where_int(&w, SLICE);
	r = store_where_prepare(&w, s->writer, &st);
	if (r)
		return r;
	rc = sqlite3_step(st);
	*ret_s = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : cut_s;
	return rc == SQLITE_ROW ? 0 : store_sq_errno(rc);
}

/* "DELETE FROM TABLE" of the event in the series of `cut`, from the last slice until this one. */
static int delete_from(struct sqlite_store *s, const char *table, const struct keep_rule *rule,
		       enum event event, int64_t until_s)
{
	struct where w = {0};

	store_where_text(&w, "DELETE FROM ");
	store_where_text(&w, table);
	store_where_text(&w, " WHERE time>");
	store_where_int(&w, rule->cut_s);
	store_where_text(&w, " AND time<=");
	store_where_int(&w, until_s);
	store_where_text(&w, " AND +event=");
	store_where_int(&w, event);
	store_where_text(&w, " AND +series IN (SELECT series FROM cut)");
	return run(s, &w);
}

static int delete_event(struct sqlite_store *s, const struct keep_rule *rule, enum event event,
			int64_t until_s, uint64_t *n_profiles)
{
	static const char *const tables[] = {"losses", "links", "estimates"};
	int r = store_expire_event(s->writer, event, &(struct store_slice){.until_s = until_s},
				   n_profiles);

	for (size_t i = 0; !r && i < ARRAY_SIZE(tables); i++)
		r = delete_from(s, tables[i], rule, event, until_s);
	return r;
}

/* All events of a namespace are kept equally long, so its series end, too. */
static int end_series(struct sqlite_store *s, int64_t until_s)
{
	struct where ended = {0}, cut = {0};
	int r;

	store_where_text(&ended, "DELETE FROM series WHERE id IN (SELECT series FROM cut) AND "
				 "last_s<=");
	store_where_int(&ended, until_s);
	r = run(s, &ended);
	if (r)
		return r;
	store_where_text(&cut, "UPDATE series SET first_s=");
	store_where_int(&cut, until_s + 1);
	store_where_text(&cut, " WHERE id IN (SELECT series FROM cut) AND first_s<=");
	store_where_int(&cut, until_s);
	return run(s, &cut);
}

static int expire_slice(struct sqlite_store *s, struct keep_rule *rule, int64_t until_s)
{
	struct store_deletion before;
	uint64_t n_profiles = 0;
	int r = store_deletion_begin(s, &before);

	if (r)
		return r;
	PROFILE_EACH_EVENT (e)
		if (!r && (rule->ns || rule->event == e))
			r = delete_event(s, rule, e, until_s, &n_profiles);
	if (!r && rule->ns)
		r = end_series(s, until_s);
	r = store_deletion_end(s, r, &before);
	if (r)
		return r;
	rule->cut_s = until_s;
	store_count_expired(s, "age", n_profiles);
	return 0;
}

static int expire_rule(struct sqlite_store *s, struct keep_rule *rule, int64_t cut_s,
		       uint64_t deadline_ns)
{
	int64_t until_s = 0;
	int r = choose_series(s, rule, cut_s);

	while (!r && until_s < cut_s) {
		r = slice_end(s, rule, cut_s, &until_s);
		if (!r)
			r = expire_slice(s, rule, until_s);
		if (now_mono_ns() >= deadline_ns)
			break;
	}
	return r;
}

int store_keeps_expire(struct sqlite_store *s, int64_t now_s, int64_t newest_s,
		       uint64_t deadline_ns, bool *ret_more)
{
	int64_t late_s = s->wrote_from_s;
	int r = 0;

	s->wrote_from_s = 0;
	for (size_t i = 0; late_s && i < s->keeps.n; i++)
		s->keeps.rules[i].cut_s = MIN(s->keeps.rules[i].cut_s, late_s - 1);
	for (size_t i = 0; !r && i < s->keeps.n; i++) {
		struct keep_rule *rule = &s->keeps.rules[i];
		int64_t cut_s = store_keep_until(rule->retention_ns, now_s, newest_s),
			slack_s = store_keep_slack(rule->retention_ns, SLACK_MAX_S);

		if (!cut_s || cut_s - rule->cut_s < slack_s)
			continue;
		if (now_mono_ns() >= deadline_ns) {
			*ret_more = true;
			break;
		}
		r = expire_rule(s, rule, cut_s, deadline_ns);
		*ret_more |= rule->cut_s < cut_s;
	}
	return r;
}
