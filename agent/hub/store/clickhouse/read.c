/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: ClickHouse adds up the equal stacks of a selection and gives the greatest sums first.
 * Then the hub asks for the names of these stacks.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

#define DEFAULT_MAX_ROWS    4000000
#define DEFAULT_MAX_TIME_NS (30 * NSEC_PER_SEC)

struct sum {
	char *app, *group, *ns;
	bool has_group;
	uint64_t stack;
	int64_t value;
	uint64_t n_samples;
};
struct reading {
	struct ch_store *s;
	const struct selection *sel; /* its conditions have no LIKE */
	struct ch_limits limits;
	struct field_error *reterr;
	bool group_of_stack;
	struct sum *sums;
	size_t n, cap;
	int64_t first_s, last_s;
	int64_t total;
	uint64_t total_samples;
	struct store_summary summary;
};

struct ch_limits store_ch_limits(const struct selection *sel)
{
	return (struct ch_limits){
		.deadline_ns = now_mono_ns() + (sel->max_time_ns ?: DEFAULT_MAX_TIME_NS),
		.given_up = sel->given_up,
	};
}

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

/* The namespace, if it is one of those that stay apart; else "". */
static void put_apart(struct ch_where *w, const struct selection *sel)
{
	text(w, "if(pod_ns IN (");
	for (size_t i = 0; i < sel->n_apart; i++) {
		text(w, i ? "," : "");
		store_ch_str(&w->sql, sel->apart[i]);
	}
	text(w, ")");
	for (size_t i = 0; i < sel->n_clusters; i++) {
		text(w, " AND pod_cluster!=");
		store_ch_str(&w->sql, sel->clusters[i]);
	}
	text(w, ", toString(pod_ns), '')");
}

/* limit 0: one row, the sum of all */
static void put_sums(struct reading *r, struct ch_where *w, size_t limit)
{
	const struct selection *sel = r->sel;

	text(w, "SELECT ");
	if (limit) {
		text(w, "toString(app_service) AS app, ");
		if (sel->group_by && !r->group_of_stack) {
			text(w, "toUInt8(");
			store_ch_has(w, sel->group_by);
			text(w, ") AS has_group, toString(");
			store_ch_tag(w, sel->group_by);
			text(w, ") AS of_group, ");
		} else {
			text(w, "toUInt8(0) AS has_group, '' AS of_group, ");
		}
		if (sel->n_apart)
			put_apart(w, sel);
		else
			text(w, "''");
		text(w, " AS ns, stack, ");
	}
	text(w, "" CH_SUM("v") " AS s, "
			       "" CH_SUM("c") ", "
					      "toUInt32(min(time)), toUInt32(max(time))");
	store_ch_samples(w, sel, false);
	store_ch_selection(w, sel);
	if (limit) {
		text(w, " GROUP BY app, has_group, of_group, ns, stack "
			"ORDER BY s DESC, app, of_group, ns, stack LIMIT ");
		store_ch_int(&w->sql, (int64_t)limit);
	}
}

static void get_times(struct reading *r, struct ch_rows *rows)
{
	int64_t first_s = store_ch_get_u32(rows), last_s = store_ch_get_u32(rows);

	if (!last_s)
		return;
	r->first_s = r->first_s ? MIN(r->first_s, first_s) : first_s;
	r->last_s = MAX(r->last_s, last_s);
}

static void get_sum(struct reading *r, struct ch_rows *rows)
{
	struct sum x = {.app = store_ch_get_str(rows)};

	x.has_group = store_ch_get_u8(rows);
	x.group = store_ch_get_str(rows);
	x.ns = store_ch_get_str(rows);
	x.stack = store_ch_get_u64(rows);
	x.value = (int64_t)store_ch_get_u64(rows);
	x.n_samples = store_ch_get_u64(rows);
	get_times(r, rows);
	GROW(r->sums, r->n, r->cap);
	r->sums[r->n++] = x;
}

static int early_end(struct reading *r)
{
	field_error_set(r->reterr, "store", "ClickHouse's answer ends early");
	return -EIO;
}

static int ask_sums(struct reading *r, size_t limit)
{
	struct ch_where w = {.event = r->sel->event, .calls = store_ch_wants_calls(r->sel)};
	struct http_answer a = {0};
	struct ch_rows rows;
	int e;

	put_sums(r, &w, limit);
	e = store_ch_ask(r->s, &w.sql, &r->limits, &a, &rows, r->reterr);
	while (!e && limit && store_ch_more(&rows))
		get_sum(r, &rows);
	if (!e && !limit) {
		r->total = (int64_t)store_ch_get_u64(&rows);
		r->total_samples = store_ch_get_u64(&rows);
		get_times(r, &rows);
	}
	if (!e && rows.failed)
		e = early_end(r);
	if (limit)
		r->summary.statement = xstrndup(w.sql.text.data, w.sql.text.len);
	http_answer_done(&a);
	store_ch_sql_done(&w.sql);
	return e;
}

/* ---- the rows of the answer ---- */

static int hand_others(struct reading *r, store_row_fn *fn, void *arg)
{
	static const struct frame frame = {.kind = FRAME_MARKER, .name = STORE_OTHERS};
	const struct frame *const frames[] = {&frame};
	struct store_row row = {.frames = frames, .n_frames = 1};
	int64_t shown = 0;
	uint64_t n_shown = 0;

	for (size_t i = 0; i < r->summary.n_rows; i++) {
		shown = MIN(shown + r->sums[i].value, CH_MAX_VALUE);
		n_shown += r->sums[i].n_samples;
	}
	row.value = MAX(r->total - shown, 0);
	row.n_samples = r->total_samples > n_shown ? r->total_samples - n_shown : 0;
	r->summary.n_samples += row.n_samples;
	return fn(&row, arg);
}

static int hand_out(struct reading *r, size_t max_rows, store_row_fn *fn, void *arg)
{
	struct ch_names *names = store_ch_names_new(r->s, &r->limits);
	size_t n = MIN(r->n, max_rows);
	_cleanup_free_ uint64_t *ids = xcalloc(n + 1, sizeof(*ids));
	int e;

	for (size_t i = 0; i < n; i++)
		ids[i] = r->sums[i].stack;
	e = store_ch_names_read(names, ids, n, r->reterr);
	for (size_t i = 0; !e && i < n; i++) {
		const struct sum *x = &r->sums[i];
		struct store_row row = {
			.app_service = x->app, .value = x->value, .n_samples = x->n_samples};

		store_ch_names_stack(names, x->stack, &row);
		row.ns = *x->ns ? x->ns : NULL;
		row.group = r->group_of_stack
				    ? store_ch_names_tag(names, x->stack, r->sel->group_by)
			    : x->has_group ? x->group
					   : NULL;
		r->summary.n_rows++;
		r->summary.n_samples += x->n_samples;
		e = fn(&row, arg);
	}
	if (!e && r->n > max_rows) {
		r->summary.truncated = true;
		e = hand_others(r, fn, arg);
	}
	store_ch_names_free(names);
	return e;
}

static int read_rows(struct reading *r, store_row_fn *fn, void *arg)
{
	size_t max_rows = r->sel->max_rows ?: DEFAULT_MAX_ROWS;
	int e;

	r->group_of_stack = r->sel->group_by && store_ch_is_sample_tag(r->sel->group_by) &&
			    !store_is_tag_of_calls(r->sel->group_by);
	e = ask_sums(r, max_rows + 1);
	if (!e && r->n > max_rows)
		e = ask_sums(r, 0);
	if (!e)
		e = hand_out(r, max_rows, fn, arg);
	r->summary.first_s = r->first_s;
	r->summary.last_s = r->last_s;
	return e ? e : store_ch_summary(r->s, r->sel, &r->limits, &r->summary, r->reterr);
}

int store_ch_error(int e, const struct selection *sel, struct field_error *reterr)
{
	if (e == -ETIME)
		field_error_set(reterr, "store",
				"the query took longer than %.1f s; ask for less time or name the "
				"process with app_service",
				(double)(sel->max_time_ns ?: DEFAULT_MAX_TIME_NS) /
					(double)NSEC_PER_SEC);
	else if (e == -ELOOP)
		field_error_set(reterr, "store",
				"a REGEXP takes too many steps on one of the values; nest fewer "
				"repetitions");
	return e;
}

int store_ch_read(void *sink, const struct selection *sel, store_row_fn *fn, void *arg,
		  struct store_summary *ret, struct field_error *reterr)
{
	struct reading r = {.s = sink, .limits = store_ch_limits(sel), .reterr = reterr};
	struct selection matched = *sel;
	uint64_t began_ns = now_mono_ns();
	int e = store_ch_where_match(r.s, sel, &r.limits, &matched.where, reterr);

	r.sel = &matched;
	if (!e)
		e = read_rows(&r, fn, arg);
	store_predicate_free(matched.where);
	for (size_t i = 0; i < r.n; i++) {
		free(r.sums[i].app);
		free(r.sums[i].group);
		free(r.sums[i].ns);
	}
	free(r.sums);
	if (e) {
		store_summary_done(&r.summary);
		return store_ch_error(e, sel, reterr);
	}
	r.summary.query_ns = now_mono_ns() - began_ns;
	*ret = r.summary;
	return 0;
}
