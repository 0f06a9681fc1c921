/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value of a selection over time, by a tag. Profiles are read as whole as the question allows:
 * their sums if it is about series, their samples if the tag belongs to stacks, and single samples
 * by SQL if the filter has a condition on samples.
 */
#include "hub/store/series_sums.h"
#include "hub/store/sqlite.h"

#include <stdlib.h>

struct summing {
	struct query query;
	struct groups groups;
	struct series_sums sums;
	/* snapshots only */
	struct id_map processes; /* series -> int64_t, the number of its process */
	struct id_set selected;	 /* numbers of processes that have a series in the selection */
	struct id_set renamed;	 /* numbers of processes that have several series */
	sqlite3_stmt *id_of;	 /* the id of a snapshot of (event, series, time) */
};

/* Reads the first bytes of the id of a snapshot of a series that has samples; 0: there is none. */
static int read_id(struct summing *s, int64_t series, int64_t time_s, uint64_t *ret)
{
	const uint8_t *id;
	int rc;

	sqlite3_bind_int64(s->id_of, 1, s->sums.r->sel->event);
	sqlite3_bind_int64(s->id_of, 2, series);
	sqlite3_bind_int64(s->id_of, 3, time_s);
	rc = sqlite3_step(s->id_of);
	id = rc == SQLITE_ROW ? sqlite3_column_blob(s->id_of, 0) : NULL;
	*ret = 0;
	for (int i = 0; id && i < MIN(sqlite3_column_bytes(s->id_of, 0), (int)sizeof(*ret)); i++)
		*ret = *ret << 8 | id[i];
	sqlite3_reset(s->id_of);
	return store_sq_errno(rc);
}

/* Only a process with several series may have two snapshots in one second. */
static int add_live(struct summing *s, int64_t series, struct live_value v)
{
	int e = store_id_set_has(&s->renamed, v.process) ? read_id(s, series, v.time_s, &v.id) : 0;

	if (!e)
		e = store_series_add_live(&s->sums, &v);
	return e ? e
		 : store_query_takes(&s->query,
				     s->sums.cap_live * sizeof(*s->sums.live) + s->groups.bytes);
}

/* The number of the series' process. A series that began since read_processes() has none. */
static int64_t process_of(const struct summing *s, int64_t series)
{
	const int64_t *process = store_id_map_get(&s->processes, series);

	return process ? *process : -series;
}

/* Adds a value of a series, or of one of its stacks. */
static int add(struct summing *s, int64_t series, int64_t stack, int64_t time_s, int64_t value)
{
	size_t group;
	int e = store_groups_of(&s->groups, series, stack, &group);

	value = MIN(MAX(value, 0), SQ_MAX_VALUE);
	if (e)
		return e == -ENOENT ? 0 : e;
	/* an empty snapshot, which read_snapshots() adds, or losses without a snapshot */
	if (!value)
		return 0;
	if (s->sums.snapshot)
		return add_live(s, series,
				(struct live_value){.process = process_of(s, series),
						    .time_s = time_s,
						    .value = value,
						    .group = group});
	store_series_add(&s->sums, group, time_s, value);
	return 0;
}

static int add_profile(struct summing *s, int64_t series, int64_t time_s, const uint8_t *p,
		       const uint8_t *end)
{
	struct stored_sample x;
	int e = 0;

	while (!e && store_samples_get(&p, end, &x))
		e = add(s, series, x.stack, time_s, x.value);
	return e;
}

/* ---- reading ---- */

/* Reads profiles: their sums, or their samples if the groups are those of stacks. */
static int read_profiles(struct summing *s, const struct selection *sel)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, e;

	store_where_text(&w, s->groups.of_stacks ? "SELECT p.series, p.time, p.samples"
						 : "SELECT p.series, p.time, p.value");
	store_where_text(&w, " FROM series se CROSS JOIN profiles p WHERE se.last_s>=");
	store_where_int(&w, sel->time_start_s);
	store_where_text(&w, " AND se.first_s<=");
	store_where_int(&w, sel->time_end_s);
	store_where_text(&w, " AND p.series=se.id AND p.event=");
	store_where_int(&w, sel->event);
	store_where_text(&w, " AND p.time>=");
	store_where_int(&w, sel->time_start_s);
	store_where_text(&w, " AND p.time<=");
	store_where_int(&w, sel->time_end_s);
	if (s->sums.snapshot)
		store_where_one_of_second(&w, "p");
	store_where_selection(&w, sel);
	e = store_where_prepare(&w, s->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		int64_t series = sqlite3_column_int64(st, 0), time_s = sqlite3_column_int64(st, 1);
		const uint8_t *p = s->groups.of_stacks ? sqlite3_column_blob(st, 2) : NULL;

		if (store_query_must_end(&s->query.reader->limit))
			return -ETIME;
		e = s->groups.of_stacks
			    ? add_profile(s, series, time_s, p, p + sqlite3_column_bytes(st, 2))
			    : add(s, series, 0, time_s, sqlite3_column_int64(st, 2));
	}
	return e ? e : store_sq_errno(rc);
}

/* Reads single samples, because the filter has a condition on them. */
static int read_samples(struct summing *s, const struct selection *sel)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event,
						      .links = store_where_wants_links(sel)};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, e;

	store_where_text(&w, "SELECT se.id, sa.time, sa.stack, sa.value");
	store_where_samples(&w, sel, true, true);
	store_where_text(&w, w.links ? " AND sa.event=" : " AND p.event=");
	store_where_int(&w, sel->event);
	if (s->sums.snapshot && !w.links)
		store_where_one_of_second(&w, "p");
	e = store_where_prepare(&w, s->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW)
		e = add(s, sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 2),
			sqlite3_column_int64(st, 1), sqlite3_column_int64(st, 3));
	return e ? e : store_sq_errno(rc);
}

/*
 * Numbers the processes: the series of a process whose name or label changed have the same number,
 * because the newest snapshot of any of them counts.
 */
static int read_processes(struct summing *s, const struct selection *sel)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event, .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, e;

	store_where_text(&w, "SELECT se.id, MIN(se.id) OVER (PARTITION BY ");
	store_where_process(&w);
	store_where_text(&w, ") FROM series se WHERE se.last_s>=");
	store_where_int(&w, sel->time_start_s);
	e = store_where_prepare(&w, s->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		int64_t *process = xmalloc(sizeof(*process));

		*process = sqlite3_column_int64(st, 1);
		if (*process != sqlite3_column_int64(st, 0))
			store_id_set_add(&s->renamed, *process);
		store_id_map_put(&s->processes, sqlite3_column_int64(st, 0), process);
		if (store_groups_has(&s->groups, sqlite3_column_int64(st, 0)))
			store_id_set_add(&s->selected, *process);
	}
	return e ? e : store_sq_errno(rc);
}

/*
 * Adds a zero for each snapshot of the selected processes. A snapshot in which nothing matches, or
 * whose series does not, ends the one before, too.
 */
static int read_snapshots(struct summing *s, const struct selection *sel)
{
	_cleanup_(store_where_done) struct where w = {0};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, e;

	store_where_text(&w, "SELECT y.series, y.time FROM series se CROSS JOIN snapshots y WHERE "
			     "se.last_s>=");
	store_where_int(&w, sel->time_start_s);
	store_where_text(&w, " AND y.series=se.id AND y.event=");
	store_where_int(&w, sel->event);
	store_where_text(&w, " AND y.time BETWEEN ");
	store_where_int(&w, sel->time_start_s);
	store_where_text(&w, " AND ");
	store_where_int(&w, sel->time_end_s);
	e = store_where_prepare(&w, s->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		int64_t series = sqlite3_column_int64(st, 0);
		struct live_value v = {.process = process_of(s, series),
				       .time_s = sqlite3_column_int64(st, 1)};

		if (store_id_set_has(&s->selected, v.process))
			e = add_live(s, series, v);
	}
	return e ? e : store_sq_errno(rc);
}

static void hand_out(struct summing *s, struct store_series *ret)
{
	char **names = store_groups_names(&s->groups);

	store_series_hand_out(&s->sums, names, ret);
	for (size_t g = 0; g < s->groups.n; g++)
		free(names[g]);
	free(names);
}

/* ---- losses, starts of processes ---- */

static int read_losses(struct summing *s, struct store_series *ret)
{
	_cleanup_(store_where_done) struct where w = {.event = s->sums.r->sel->event,
						      .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, e;

	store_where_text(&w, "SELECT (SELECT s FROM strings WHERE id=l.reason), l.time, l.n, "
			     "l.time_ns");
	store_summary_losses(&w, s->sums.r->sel);
	store_where_allowed(&w, s->sums.r->sel);
	e = store_where_prepare(&w, s->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *reason = (const char *)sqlite3_column_text(st, 0);

		store_series_add_loss(&s->sums, ret, reason ? reason : "unknown",
				      sqlite3_column_int64(st, 1), sqlite3_column_int64(st, 2),
				      sqlite3_column_int64(st, 3));
	}
	return e ? e : store_sq_errno(rc);
}

static int read_starts(struct summing *s, struct store_series *ret)
{
	const struct selection *sel = s->sums.r->sel;
	_cleanup_(store_where_done) struct where w = {.event = sel->event, .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, e;

	store_where_text(&w, "SELECT DISTINCT se.pid, se.start_ms FROM series se WHERE "
			     "se.start_ms BETWEEN ");
	store_where_int(&w, sel->time_start_s * 1000);
	store_where_text(&w, " AND ");
	store_where_int(&w, sel->time_end_s * 1000 + 999);
	store_where_text(&w, " AND se.last_s>=");
	store_where_int(&w, sel->time_start_s);
	store_where_selection(&w, sel);
	store_where_text(&w, " ORDER BY se.start_ms LIMIT ");
	store_where_int(&w, STORE_MAX_STARTS + 1);
	e = store_where_prepare(&w, s->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW)
		store_series_add_start(ret, sqlite3_column_int64(st, 1) / 1000);
	return e ? e : store_sq_errno(rc);
}

static int read_series(struct summing *s, struct store_series *ret)
{
	const struct selection sel = store_series_reach(&s->sums);
	bool each = store_where_wants_links(&sel) || store_where_wants_samples(&sel);
	int e = store_groups_begin(&s->groups, &s->query, &sel, s->sums.r->group_by);

	if (!e)
		e = store_sq_errno(sqlite3_prepare_v2(
			s->query.db,
			"SELECT MAX(id) FROM profiles WHERE event=? AND series=? AND time=? AND "
			"n>0",
			-1, &s->id_of, NULL));
	if (!e && s->sums.snapshot)
		e = read_processes(s, &sel);
	if (!e && s->sums.snapshot)
		e = read_snapshots(s, &sel);
	if (!e)
		e = each ? read_samples(s, &sel) : read_profiles(s, &sel);
	if (!e)
		hand_out(s, ret);
	if (!e)
		e = read_losses(s, ret);
	return e ? e : read_starts(s, ret);
}

int store_sqlite_series(void *sink, const struct series_request *r, struct store_series *ret,
			struct field_error *reterr)
{
	const struct sqlite_store *store = sink;
	struct summing s = {0};
	struct store_series got = {0};
	int e = store_series_begin(&s.sums, r, store->series_values, &got, reterr);

	if (e)
		return e;
	e = store_query_begin(&s.query, sink, r->sel);
	if (!e)
		e = read_series(&s, &got);
	store_series_end(&s.sums);
	store_id_map_free(&s.processes);
	store_id_set_done(&s.selected);
	store_id_set_done(&s.renamed);
	sqlite3_finalize(s.id_of);
	store_groups_done(&s.groups);
	if (e)
		store_series_done(&got);
	else
		*ret = got;
	return store_query_end(&s.query, r->sel, e, reterr);
}
