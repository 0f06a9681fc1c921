/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value of a selection over time, by a tag. Profiles are read as whole as the question allows:
 * their sums if it is about series, their samples if the tag belongs to stacks, and single samples
 * by SQL if the filter has a condition on samples.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

/* What a snapshot of a process has in one group; 0: it ends the snapshot before. */
struct live_value {
	int64_t process, time_s, value;
	size_t group;
};

struct summing {
	struct query query;
	const struct series_request *r;
	bool snapshot;
	struct groups groups;
	size_t n_steps;
	int64_t *
		*sums; /* for each group one value for each step; NULL: the group has nothing yet */
	size_t n_sums, cap_sums;
	int64_t *others; /* the sum of groups for which there was no room; NULL: none */
	/* snapshots only */
	struct live_value *live;
	size_t n_live, cap_live;
	struct id_map processes; /* series -> int64_t, the number of its process */
	struct id_set selected;	 /* numbers of processes that have a series in the selection */
};

static int64_t *sums_of(struct summing *s, size_t group)
{
	if (group >= s->cap_sums) {
		size_t cap = MAX(s->cap_sums * 2, group + 64);

		s->sums = xrealloc(s->sums, cap * sizeof(*s->sums));
		memset(s->sums + s->cap_sums, 0, (cap - s->cap_sums) * sizeof(*s->sums));
		s->cap_sums = cap;
	}
	if (s->sums[group])
		return s->sums[group];
	if ((s->n_sums + 1) * s->n_steps > s->query.s->series_values)
		return s->others = s->others ?: xcalloc(s->n_steps, sizeof(int64_t));
	s->n_sums++;
	return s->sums[group] = xcalloc(s->n_steps, sizeof(int64_t));
}

static void add_at(struct summing *s, size_t group, size_t step, int64_t value)
{
	int64_t *sums = sums_of(s, group);

	sums[step] = MIN(sums[step] + value, SQ_MAX_VALUE);
}

/* The step of a second. The time before the selection is negative. */
static int64_t step_of(const struct summing *s, int64_t time_s)
{
	int64_t after_s = time_s - s->r->sel->time_start_s;

	return after_s < 0 ? -1 : after_s / s->r->step_s;
}

static int add_live(struct summing *s, const struct live_value *v)
{
	if (s->n_live >= s->query.s->series_values)
		return -EFBIG;
	GROW(s->live, s->n_live, s->cap_live);
	s->live[s->n_live++] = *v;
	return store_query_takes(&s->query, s->cap_live * sizeof(*s->live) + s->groups.bytes);
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
	int64_t step = step_of(s, time_s);
	int e = store_groups_of(&s->groups, series, stack, &group);

	value = MIN(MAX(value, 0), SQ_MAX_VALUE);
	if (e)
		return e == -ENOENT ? 0 : e;
	/* an empty snapshot, which read_snapshots() adds, or losses without a snapshot */
	if (!value)
		return 0;
	if (s->snapshot)
		return add_live(s,
				&(struct live_value){process_of(s, series), time_s, value, group});
	if (step >= 0 && (size_t)step < s->n_steps)
		add_at(s, group, (size_t)step, value);
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

/* How old a snapshot may be at the end of a step. */
static int64_t snapshot_s(const struct series_request *r)
{
	return MAX((int64_t)r->step_s, (int64_t)STORE_SNAPSHOT_S);
}

/* The selection whose profiles are read: snapshots before its time count in its first steps. */
static struct selection reach(const struct summing *s)
{
	struct selection sel = *s->r->sel;

	if (s->snapshot)
		sel.time_start_s -= MIN(sel.time_start_s, snapshot_s(s->r));
	return sel;
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
	if (s->snapshot)
		store_where_stored_last(&w);
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
	if (s->snapshot && !w.links)
		store_where_stored_last(&w);
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
		struct live_value v = {.process = process_of(s, sqlite3_column_int64(st, 0)),
				       .time_s = sqlite3_column_int64(st, 1)};

		if (store_id_set_has(&s->selected, v.process))
			e = add_live(s, &v);
	}
	return e ? e : store_sq_errno(rc);
}

/* ---- snapshots: each lives until the next one of its process, or until it is too old ---- */

static int by_process_and_time(const void *a, const void *b)
{
	const struct live_value *x = a, *y = b;

	if (x->process != y->process)
		return x->process < y->process ? -1 : 1;
	return x->time_s < y->time_s ? -1 : x->time_s > y->time_s;
}

/* The last second of a step. */
static int64_t end_of(const struct summing *s, size_t step)
{
	return MIN(s->r->sel->time_start_s + (int64_t)(step + 1) * s->r->step_s - 1,
		   s->r->sel->time_end_s);
}

/* Adds a value to each step that ends from its own time until before until_s. */
static void spread(struct summing *s, const struct live_value *v, int64_t until_s)
{
	int64_t step = MAX(step_of(s, v->time_s), 0);

	for (; v->value && (size_t)step < s->n_steps && end_of(s, (size_t)step) < until_s; step++)
		if (end_of(s, (size_t)step) >= v->time_s)
			add_at(s, v->group, (size_t)step, v->value);
}

static void spread_snapshots(struct summing *s)
{
	size_t next = 0;

	if (s->n_live)
		qsort(s->live, s->n_live, sizeof(*s->live), by_process_and_time);
	for (size_t i = 0; i < s->n_live; i++) {
		const struct live_value *v = &s->live[i];
		int64_t until_s = v->time_s + snapshot_s(s->r);

		for (next = MAX(next, i);
		     next < s->n_live && by_process_and_time(&s->live[next], v) == 0; next++)
			;
		if (next < s->n_live && s->live[next].process == v->process)
			until_s = MIN(until_s, s->live[next].time_s);
		spread(s, v, until_s);
	}
}

/* ---- the result ---- */

struct group_sum {
	size_t group;
	int64_t sum;
};

static int by_sum(const void *a, const void *b)
{
	const struct group_sum *x = a, *y = b;

	if (x->sum != y->sum)
		return x->sum > y->sum ? -1 : 1;
	return x->group < y->group ? -1 : x->group > y->group;
}

static struct group_sum *order_groups(const struct summing *s, size_t *ret_n)
{
	struct group_sum *order = xcalloc(s->cap_sums + 1, sizeof(*order));
	size_t n = 0;

	for (size_t g = 0; g < s->cap_sums; g++) {
		if (!s->sums[g])
			continue;
		order[n] = (struct group_sum){.group = g};
		for (size_t i = 0; i < s->n_steps; i++)
			order[n].sum = MIN(order[n].sum + s->sums[g][i], SQ_MAX_VALUE);
		n++;
	}
	qsort(order, n, sizeof(*order), by_sum);
	*ret_n = n;
	return order;
}

static void add_others(struct store_series *ret, const int64_t *values)
{
	if (!ret->others)
		ret->others = xcalloc(ret->n_steps, sizeof(int64_t));
	for (size_t i = 0; i < ret->n_steps; i++)
		ret->others[i] = MIN(ret->others[i] + values[i], SQ_MAX_VALUE);
}

/* Moves the sums to the result. */
static void hand_out(struct summing *s, struct store_series *ret)
{
	char **names = store_groups_names(&s->groups);
	size_t n;
	_cleanup_free_ struct group_sum *order = order_groups(s, &n);

	ret->cut_groups = s->others != NULL;
	ret->others = TAKE_PTR(s->others);
	ret->groups = xcalloc(MIN(n, s->r->limit) + 1, sizeof(*ret->groups));
	for (size_t i = 0; i < n; i++) {
		size_t g = order[i].group;

		if (i >= s->r->limit) {
			add_others(ret, s->sums[g]);
			continue;
		}
		ret->groups[ret->n_groups++] = (struct series_group){
			.value = TAKE_PTR(names[g]), .values = TAKE_PTR(s->sums[g])};
	}
	for (size_t g = 0; g < s->groups.n; g++)
		free(names[g]);
	free(names);
}

/* ---- losses, starts of processes ---- */

static struct series_loss *loss_of(struct store_series *ret, size_t *cap, const char *reason)
{
	if (ret->n_losses >= LOSSES_MAX)
		reason = "other";
	for (size_t i = 0; i < ret->n_losses; i++)
		if (streq(ret->losses[i].reason, reason))
			return &ret->losses[i];
	GROW(ret->losses, ret->n_losses, *cap);
	ret->losses[ret->n_losses] = (struct series_loss){
		.reason = xstrdup(reason),
		.n_samples = xcalloc(ret->n_steps, sizeof(uint64_t)),
		.time_ns = xcalloc(ret->n_steps, sizeof(uint64_t)),
	};
	return &ret->losses[ret->n_losses++];
}

static void add_loss(uint64_t *sum, int64_t n)
{
	*sum = MIN(*sum + (uint64_t)MIN(MAX(n, 0), SQ_MAX_VALUE), (uint64_t)SQ_MAX_VALUE);
}

static int read_losses(struct summing *s, struct store_series *ret)
{
	_cleanup_(store_where_done) struct where w = {.event = s->r->sel->event,
						      .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int rc, e;

	store_where_text(&w, "SELECT (SELECT s FROM strings WHERE id=l.reason), l.time, l.n, "
			     "l.time_ns");
	store_summary_losses(&w, s->r->sel);
	store_where_allowed(&w, s->r->sel);
	e = store_where_prepare(&w, s->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *reason = (const char *)sqlite3_column_text(st, 0);
		/* a loss that began before the time or ends after it counts at its edge */
		int64_t time_s = MIN(MAX(sqlite3_column_int64(st, 1), s->r->sel->time_start_s),
				     s->r->sel->time_end_s);
		struct series_loss *l = loss_of(ret, &cap, reason ? reason : "unknown");
		size_t step = (size_t)step_of(s, time_s);

		add_loss(&l->n_samples[step], sqlite3_column_int64(st, 2));
		add_loss(&l->time_ns[step], sqlite3_column_int64(st, 3));
	}
	return e ? e : store_sq_errno(rc);
}

static int read_starts(struct summing *s, struct store_series *ret)
{
	const struct selection *sel = s->r->sel;
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
	ret->starts = xcalloc(STORE_MAX_STARTS, sizeof(int64_t));
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		ret->more_starts = ret->n_starts == STORE_MAX_STARTS;
		if (!ret->more_starts)
			ret->starts[ret->n_starts++] = sqlite3_column_int64(st, 1) / 1000;
	}
	return e ? e : store_sq_errno(rc);
}

static int read_series(struct summing *s, struct store_series *ret)
{
	const struct selection sel = reach(s);
	bool each = store_where_wants_links(&sel) || store_where_wants_samples(&sel);
	int e = store_groups_begin(&s->groups, &s->query, &sel, s->r->group_by);

	if (!e && s->snapshot)
		e = read_processes(s, &sel);
	if (!e && s->snapshot)
		e = read_snapshots(s, &sel);
	if (!e)
		e = each ? read_samples(s, &sel) : read_profiles(s, &sel);
	if (!e && s->snapshot)
		spread_snapshots(s);
	if (!e)
		hand_out(s, ret);
	if (!e)
		e = read_losses(s, ret);
	return e ? e : read_starts(s, ret);
}

int store_sqlite_series(void *sink, const struct series_request *r, struct store_series *ret,
			struct field_error *reterr)
{
	const uint64_t last_s = (uint64_t)r->sel->time_end_s - (uint64_t)r->sel->time_start_s;
	struct summing s = {.r = r, .snapshot = profile_event_info(r->sel->event)->snapshot};
	struct store_series got = {0};
	int e;

	if (!r->step_s)
		return field_error_set(reterr, "step", "step: expected at least 1 second");
	if (last_s / r->step_s >= STORE_MAX_STEPS)
		return field_error_set(reterr, "step", "step: more than %d steps", STORE_MAX_STEPS);
	got.n_steps = s.n_steps = (size_t)(last_s / r->step_s + 1);
	e = store_query_begin(&s.query, sink, r->sel);
	if (!e)
		e = read_series(&s, &got);
	for (size_t g = 0; g < s.cap_sums; g++)
		free(s.sums[g]);
	free(s.sums);
	free(s.others);
	free(s.live);
	store_id_map_free(&s.processes);
	store_id_set_done(&s.selected);
	store_groups_done(&s.groups);
	if (e)
		store_series_done(&got);
	else
		*ret = got;
	return store_query_end(&s.query, r->sel, e, reterr);
}
