/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value of a selection over time, by a tag. ClickHouse adds up the values of each step; of
 * snapshots it gives the value of each, because a snapshot lives until the next one of its process.
 */
#include "hub/store/clickhouse/clickhouse.h"
#include "hub/store/series_sums.h"

#include <stdlib.h>
#include <uthash.h>

#define VALUES_MAX 4000000
#define SEEN_S	   3600 /* in which a process that has begun has a window */

struct group_name {
	char *text; /* NULL: samples without the tag */
	size_t group;
	UT_hash_handle hh;
};
struct summing {
	struct ch_store *s;
	const struct selection *sel; /* of the request; its conditions have no LIKE */
	struct ch_limits limits;
	struct field_error *reterr;
	struct store_series *ret;
	struct series_sums sums;
	const char *group_by;
	bool samples, of_stack; /* whether samples are read; whether stacks have the tag */
	struct group_name *names;
	size_t n_names;
};

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

static size_t group_of(struct summing *s, const char *name)
{
	struct group_name *x;
	const char *key = name ?: "";
	size_t n = name ? strlen(name) + 1 : 0; /* "" is another group than NULL */

	HASH_FIND(hh, s->names, key, n, x);
	if (!x) {
		x = xcalloc(1, sizeof(*x));
		x->text = xstrdup(name);
		x->group = s->n_names++;
		HASH_ADD_KEYPTR(hh, s->names, x->text ?: "", n, x);
	}
	return x->group;
}

/* "has_group, of_group": of a window, a sample, or of the row of its stack */
static void put_group(struct summing *s, struct ch_where *w)
{
	if (!s->group_by) {
		text(w, "toUInt8(0) AS has_group, '' AS of_group");
		return;
	}
	text(w, "toUInt8(");
	store_ch_has(w, s->group_by);
	text(w, ") AS has_group, toString(");
	store_ch_tag(w, s->group_by);
	text(w, ") AS of_group");
}

/* The number of the step in which a window ends; for snapshots, its second. */
static void put_step(struct summing *s, struct ch_where *w, const struct selection *sel)
{
	if (s->sums.snapshot) {
		text(w, "toInt64(toUnixTimestamp(time))");
		return;
	}
	text(w, "intDiv(toInt64(toUnixTimestamp(time))-");
	store_ch_int(&w->sql, sel->time_start_s);
	text(w, ",");
	store_ch_int(&w->sql, s->sums.r->step_s);
	text(w, ")");
}

/* The selection's windows or samples; snapshots: all of them, not only the newest. */
static void put_rows(struct summing *s, struct ch_where *w, const struct selection *sel)
{
	if (s->samples)
		store_ch_samples(w, sel, CH_OF_EVENT);
	else
		store_ch_windows(w, sel, CH_OF_EVENT);
	if (s->sums.snapshot)
		store_ch_one_of_second(w, sel);
	store_ch_selection(w, sel);
}

/* " ANY LEFT JOIN": the tag of each selected stack. The tag's table may have it in parts. */
static void put_tags(struct summing *s, struct ch_where *w, const struct selection *sel)
{
	text(w, " AS sums ANY LEFT JOIN (SELECT id, ");
	put_group(s, w);
	text(w, " FROM stacks WHERE id IN (SELECT stack");
	put_rows(s, w, sel);
	text(w, ")) AS names USING (id)");
}

static void put_sums(struct summing *s, struct ch_where *w, const struct selection *sel)
{
	text(w, "SELECT has_group, of_group, process, step, " CH_SUM("v") " FROM (SELECT ");
	if (s->of_stack)
		text(w, "stack AS id");
	else
		put_group(s, w);
	text(w, ", ");
	if (s->sums.snapshot) {
		text(w, "reinterpretAsInt64(cityHash64(");
		store_ch_process(w);
		text(w, "))");
	} else {
		text(w, "toInt64(0)");
	}
	text(w, " AS process, ");
	put_step(s, w, sel);
	text(w, s->samples ? " AS step, v" : " AS step, value AS v");
	put_rows(s, w, sel);
	text(w, ")");
	if (s->of_stack)
		put_tags(s, w, sel);
	text(w, " GROUP BY has_group, of_group, process, step LIMIT ");
	store_ch_int(&w->sql, VALUES_MAX + 1);
}

static int take_sum(struct ch_rows *rows, void *arg)
{
	struct summing *s = arg;
	bool has_group = store_ch_get_u8(rows);
	_cleanup_free_ char *name = store_ch_get_str(rows);
	int64_t process = (int64_t)store_ch_get_u64(rows), step = (int64_t)store_ch_get_u64(rows);
	int64_t value = store_ch_get_sum(rows);

	if (rows->failed || !value)
		return 0;
	if (s->sums.snapshot)
		return store_series_add_live(
			&s->sums,
			&(struct live_value){.process = process,
					     .time_s = step,
					     .value = value,
					     .group = group_of(s, has_group ? name : NULL)});
	if (step < 0 || step >= (int64_t)s->sums.n_steps)
		return store_ch_ends_early(s->reterr);
	store_series_add(&s->sums, group_of(s, has_group ? name : NULL),
			 s->sel->time_start_s + step * s->sums.r->step_s, value);
	return 0;
}

static int read_values(struct summing *s, const struct selection *sel)
{
	struct ch_where w = {.event = sel->event, .calls = store_ch_wants_calls(sel)};

	put_sums(s, &w, sel);
	return store_ch_each(s->s, &w.sql, &s->limits, VALUES_MAX, take_sum, s, s->reterr);
}

/* ---- snapshots that end those before ---- */

static int take_snapshot(struct ch_rows *rows, void *arg)
{
	struct summing *s = arg;
	struct live_value v = {.process = (int64_t)store_ch_get_u64(rows)};

	v.time_s = (int64_t)store_ch_get_u64(rows);
	return rows->failed ? 0 : store_series_add_live(&s->sums, &v);
}

/* A snapshot of a selected process ends the one before, also if it is not of the selection. */
static int read_snapshots(struct summing *s, const struct selection *sel)
{
	struct ch_where w = {.event = sel->event, .windows_only = true, .distinct = true};

	text(&w, "SELECT DISTINCT reinterpretAsInt64(cityHash64(");
	store_ch_process(&w);
	text(&w, ")) AS process, toInt64(toUnixTimestamp(time))");
	store_ch_windows(&w, sel, CH_EVERY_EVENT);
	text(&w, " AND profile_event_type='");
	text(&w, profile_event_info(sel->event)->name);
	text(&w, "' AND snapshot AND process IN (SELECT reinterpretAsInt64(cityHash64(");
	store_ch_process(&w);
	text(&w, "))");
	store_ch_windows(&w, sel, CH_EVERY_EVENT);
	store_ch_selection(&w, sel);
	text(&w, ") LIMIT ");
	store_ch_int(&w.sql, VALUES_MAX + 1);
	return store_ch_each(s->s, &w.sql, &s->limits, VALUES_MAX, take_snapshot, s, s->reterr);
}

/* ---- losses, starts of processes ---- */

static int take_loss(struct ch_rows *rows, void *arg)
{
	struct summing *s = arg;
	_cleanup_free_ char *reason = store_ch_get_str(rows);
	int64_t time_s = store_ch_get_u32(rows);
	int64_t n = store_ch_get_sum(rows), ns = store_ch_get_sum(rows);

	if (!rows->failed)
		store_series_add_loss(&s->sums, s->ret, reason, time_s, n, ns);
	return 0;
}

static int read_losses(struct summing *s)
{
	struct ch_where w = {.event = s->sel->event, .windows_only = true};
	struct ch_missing any;
	int e = store_ch_any_missing(s->s, s->sel, &s->limits, &any, s->reterr);

	if (e || !any.lost)
		return e;
	text(&w, "SELECT toString(reason) AS why, toUInt32(time) AS at, " CH_SUM(
			 "lost") ", " CH_SUM("lost_ns"));
	store_ch_losses(&w, s->sel);
	store_ch_scope(&w, s->sel);
	text(&w, " GROUP BY why, at ORDER BY at, why");
	return store_ch_each(s->s, &w.sql, &s->limits, VALUES_MAX, take_loss, s, s->reterr);
}

static int take_start(struct ch_rows *rows, void *arg)
{
	struct summing *s = arg;
	uint64_t start_ms = store_ch_get_u64(rows);

	if (!rows->failed)
		store_series_add_start(s->ret, (int64_t)(start_ms / 1000));
	return 0;
}

static int read_starts(struct summing *s)
{
	struct ch_where w = {.event = s->sel->event, .windows_only = true, .distinct = true};
	struct selection since = *s->sel;

	since.time_end_s += SEEN_S;
	text(&w, "SELECT start_ms FROM (SELECT DISTINCT process_id, process_start_ms AS start_ms");
	store_ch_windows(&w, &since, CH_EVERY_EVENT);
	text(&w, " AND process_start_ms BETWEEN ");
	store_ch_int(&w.sql, s->sel->time_start_s * 1000);
	text(&w, " AND ");
	store_ch_int(&w.sql, s->sel->time_end_s * 1000 + 999);
	store_ch_selection(&w, s->sel);
	text(&w, ") ORDER BY start_ms LIMIT ");
	store_ch_int(&w.sql, STORE_MAX_STARTS + 1);
	return store_ch_each(s->s, &w.sql, &s->limits, STORE_MAX_STARTS + 1, take_start, s,
			     s->reterr);
}

/* ---- the whole ---- */

static void hand_out(struct summing *s)
{
	_cleanup_free_ char **names = xcalloc(s->n_names + 1, sizeof(*names));

	for (struct group_name *x = s->names; x; x = x->hh.next)
		names[x->group] = xstrdup(x->text);
	store_series_hand_out(&s->sums, names, s->ret);
	for (size_t g = 0; g < s->n_names; g++)
		free(names[g]);
}

static int read_series(struct summing *s)
{
	struct selection sel = store_series_reach(&s->sums);
	int e;

	sel.where = s->sel->where;
	s->group_by = s->sums.r->group_by;
	s->of_stack = s->group_by && store_ch_is_sample_tag(s->group_by);
	s->samples = s->of_stack || store_ch_wants_samples(&sel);
	e = read_values(s, &sel);
	if (!e && s->sums.snapshot)
		e = read_snapshots(s, &sel);
	if (!e)
		hand_out(s);
	if (!e)
		e = read_losses(s);
	return e ? e : read_starts(s);
}

int store_ch_series(void *sink, const struct series_request *r, struct store_series *ret,
		    struct field_error *reterr)
{
	struct selection matched = *r->sel;
	struct store_series got = {0};
	struct summing s = {.s = sink,
			    .sel = &matched,
			    .limits = store_ch_limits(r->sel),
			    .reterr = reterr,
			    .ret = &got};
	struct group_name *x, *next;
	struct selection wide;
	int e = store_series_begin(&s.sums, r, VALUES_MAX, &got, reterr);

	if (e)
		return e;
	/* all windows that the statements look at: snapshots before, starts of processes behind */
	wide = store_series_reach(&s.sums);
	wide.time_end_s += SEEN_S;
	e = store_ch_where_match(s.s, &wide, false, &s.limits, &matched.where, reterr);
	if (!e)
		e = read_series(&s);
	store_predicate_free(matched.where);
	store_series_end(&s.sums);
	HASH_ITER (hh, s.names, x, next) {
		HASH_DEL(s.names, x);
		free(x->text);
		free(x);
	}
	if (e)
		store_series_done(&got);
	else
		*ret = got;
	return store_ch_error(e, r->sel, reterr);
}
