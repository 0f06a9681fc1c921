/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: ClickHouse adds up the equal stacks of a selection and gives the greatest sums first.
 * Then the hub asks for the names of these stacks, some at a time. If the names take too much
 * memory, the rest of the stacks are in the row [others]. So are the smaller sums, if the sums do.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

#define DEFAULT_MAX_ROWS    1000000 /* about 64 MiB of an answer */
#define DEFAULT_MAX_TIME_NS (30 * NSEC_PER_SEC)
#define STACKS_A_TIME	    10000 /* stacks whose names are asked for at once */

/* A row of the answer; its texts lie there. */
struct sum {
	const char *app, *group, *ns;
	size_t app_bytes, group_bytes, ns_bytes;
	bool has_group;
	uint64_t stack;
	int64_t value;
	uint64_t n_samples;
	int64_t first_s, last_s;
};
struct reading {
	struct ch_store *s;
	const struct selection *sel; /* its conditions have no LIKE */
	struct ch_limits limits;
	struct field_error *reterr;
	bool group_of_stack;
	struct http_answer answer; /* the sums stay there until their rows are handed out */
	struct ch_rows sums;
	size_t n, n_kept; /* of the sums; of those that found room */
	struct ch_names *names;
	bool full;     /* there is no room for more names, or for the sums */
	int64_t shown; /* sum of the rows that were handed out */
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
	text(w, "if(pod_ns IN ");
	store_ch_strs(&w->sql, (const char *const *)sel->apart, sel->n_apart);
	text(w, " AND NOT " CH_IS_OTHER ", toString(pod_ns), '')");
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
	text(w, CH_SUM("v") " AS s, " CH_SUM("c"));
	/* else summary.c has the times, of the windows, which are fewer */
	text(w, store_ch_wants_whole_windows(sel) ? ", toUInt32(0), toUInt32(0)"
						  : ", toUInt32(min(time)), toUInt32(max(time))");
	store_ch_samples(w, sel, CH_NEWEST);
	store_ch_selection(w, sel);
	if (limit) {
		/* each key costs time, also a constant; LowCardinality costs less than String */
		text(w, " GROUP BY app_service, stack");
		text(w, sel->group_by && !r->group_of_stack ? ", has_group, of_group" : "");
		text(w, sel->n_apart ? ", ns" : "");
		text(w, " ORDER BY s DESC, app, of_group, ns, stack LIMIT ");
		store_ch_int(&w->sql, (int64_t)limit);
	}
}

static struct sum get_sum(struct ch_rows *rows)
{
	struct sum x = {0};

	x.app = store_ch_get_text(rows, &x.app_bytes);
	x.has_group = store_ch_get_u8(rows);
	x.group = store_ch_get_text(rows, &x.group_bytes);
	x.ns = store_ch_get_text(rows, &x.ns_bytes);
	x.stack = store_ch_get_u64(rows);
	x.value = store_ch_get_sum(rows);
	x.n_samples = store_ch_get_u64(rows);
	x.first_s = store_ch_get_u32(rows);
	x.last_s = store_ch_get_u32(rows);
	return x;
}

static void add_times(struct store_summary *s, int64_t first_s, int64_t last_s)
{
	if (!last_s)
		return;
	s->first_s = s->first_s ? MIN(s->first_s, first_s) : first_s;
	s->last_s = MAX(s->last_s, last_s);
}

/* Asks for the sums of the stacks, and counts them. */
static int ask_sums(struct reading *r, size_t limit)
{
	struct ch_where w = {.event = r->sel->event, .calls = store_ch_wants_calls(r->sel)};
	struct ch_rows rows;
	int e;

	put_sums(r, &w, limit);
	e = store_ch_ask(r->s, &w.sql, &r->limits, &r->answer, &rows, r->reterr);
	r->summary.statement = xstrndup(w.sql.text.data, w.sql.text.len);
	store_ch_sql_done(&w.sql);
	if (e)
		return e;
	r->sums = rows;
	for (; store_ch_more(&rows) && r->n <= limit; r->n++) {
		struct sum x = get_sum(&rows);

		add_times(&r->summary, x.first_s, x.last_s);
	}
	return rows.failed || r->n > limit ? store_ch_ends_early(r->reterr) : 0;
}

/* Keeps the greatest sums, in half of the room: their names need the rest. */
static void keep_greatest(struct reading *r)
{
	const size_t max = store_ch_names_room(r->names) / 2;
	struct ch_rows rows = r->sums;
	size_t n = 0, bytes = 0, end;

	for (; n < r->n; n++, bytes = end) {
		(void)get_sum(&rows);
		end = (size_t)(rows.p - r->answer.body);
		if (end > max)
			break;
	}
	r->n_kept = n;
	r->answer.n = bytes;
	r->answer.body = xrealloc(r->answer.body, bytes + 1);
	r->answer.body[bytes] = '\0';
	r->sums = (struct ch_rows){r->answer.body, r->answer.body + bytes, false};
}

/* Counts the memory of the sums as that of names. Forgets those for which there is no room. */
static void count_sums(struct reading *r)
{
	int e = store_ch_names_count(r->names, r->answer.n);

	r->n_kept = r->n;
	if (e == -EFBIG) {
		keep_greatest(r);
		e = store_ch_names_count(r->names, r->answer.n);
	}
	r->full = e == -EFBIG; /* another query was faster */
	if (r->full)
		http_answer_done(&r->answer);
}

/* ---- the rows of the answer ---- */

/* The name of the namespace in the selection's list; NULL: it is not there. */
static const char *apart_of(const struct selection *sel, const struct sum *x)
{
	for (size_t i = 0; x->ns_bytes && i < sel->n_apart; i++)
		if (strlen(sel->apart[i]) == x->ns_bytes &&
		    memcmp(sel->apart[i], x->ns, x->ns_bytes) == 0)
			return sel->apart[i];
	return NULL;
}

static int hand_row(struct reading *r, const struct sum *x, store_row_fn *fn, void *arg)
{
	_cleanup_free_ char *app = xstrndup(x->app, x->app_bytes),
			    *group = x->has_group ? xstrndup(x->group, x->group_bytes) : NULL;
	struct store_row row = {.app_service = app,
				.group = r->group_of_stack ? store_ch_names_tag(r->names, x->stack,
										r->sel->group_by)
							   : group,
				.ns = apart_of(r->sel, x),
				.value = x->value,
				.n_samples = x->n_samples};

	store_ch_names_stack(r->names, x->stack, &row);
	r->shown = MIN(r->shown + x->value, CH_MAX_VALUE);
	r->summary.n_rows++;
	r->summary.n_samples += x->n_samples;
	return fn(&row, arg);
}

/* Hands out the next rows, at most STACKS_A_TIME of n. Sets full if their names find no room. */
static int hand_some(struct reading *r, size_t n, store_row_fn *fn, void *arg)
{
	struct ch_rows ahead = r->sums;
	_cleanup_free_ uint64_t *ids = NULL;
	int e;

	n = MIN(n, (size_t)STACKS_A_TIME);
	ids = xcalloc(n, sizeof(*ids));
	for (size_t i = 0; i < n; i++)
		ids[i] = get_sum(&ahead).stack;
	e = store_ch_names_read(r->names, ids, n, r->reterr);
	r->full = e == -EFBIG;
	if (r->full)
		return 0;
	for (size_t i = 0; !e && i < n; i++) {
		const struct sum x = get_sum(&r->sums);

		e = hand_row(r, &x, fn, arg);
	}
	return e;
}

struct total {
	int64_t value, first_s, last_s;
	uint64_t n_samples;
};

static int take_total(struct ch_rows *rows, void *arg)
{
	struct total *t = arg;

	t->value = store_ch_get_sum(rows);
	t->n_samples = store_ch_get_u64(rows);
	t->first_s = store_ch_get_u32(rows);
	t->last_s = store_ch_get_u32(rows);
	return 0;
}

/* One row more, with all that is not in the rows before. */
static int hand_others(struct reading *r, store_row_fn *fn, void *arg)
{
	static const struct frame frame = {.kind = FRAME_MARKER, .name = STORE_OTHERS};
	static const struct frame *const frames[] = {&frame};
	struct ch_where w = {.event = r->sel->event, .calls = store_ch_wants_calls(r->sel)};
	struct store_row row = {.frames = frames, .n_frames = 1};
	struct total all = {0};
	int e;

	put_sums(r, &w, 0);
	e = store_ch_each(r->s, &w.sql, &r->limits, 1, take_total, &all, r->reterr);
	if (e)
		return e;
	add_times(&r->summary, all.first_s, all.last_s);
	r->summary.truncated = true;
	row.value = MAX(all.value - r->shown, 0);
	row.n_samples = all.n_samples - MIN(all.n_samples, r->summary.n_samples);
	r->summary.n_samples += row.n_samples;
	return fn(&row, arg);
}

static int hand_out(struct reading *r, size_t max_rows, store_row_fn *fn, void *arg)
{
	size_t n = MIN(r->n_kept, max_rows);
	int e = 0;

	while (!e && !r->full && r->summary.n_rows < n)
		e = hand_some(r, n - r->summary.n_rows, fn, arg);
	return e || r->summary.n_rows == r->n ? e : hand_others(r, fn, arg);
}

static int read_rows(struct reading *r, store_row_fn *fn, void *arg)
{
	size_t max_rows = r->sel->max_rows ?: DEFAULT_MAX_ROWS;
	int e;

	r->group_of_stack = r->sel->group_by && store_ch_is_sample_tag(r->sel->group_by) &&
			    !store_is_tag_of_calls(r->sel->group_by);
	e = ask_sums(r, max_rows + 1);
	if (!e)
		count_sums(r);
	if (!e)
		e = hand_out(r, max_rows, fn, arg);
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
	else if (e == -ENOBUFS)
		field_error_set(
			reterr, "store",
			"the answer is too large for ClickHouse or the hub; ask for less time "
			"or name the process with app_service");
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
	int e = store_ch_where_match(r.s, sel, false, &r.limits, &matched.where, reterr);

	r.sel = &matched;
	r.names = store_ch_names_new(r.s, &r.limits);
	if (!e)
		e = read_rows(&r, fn, arg);
	store_predicate_free(matched.where);
	store_ch_names_free(r.names);
	http_answer_done(&r.answer);
	if (e) {
		store_summary_done(&r.summary);
		return store_ch_error(e, sel, reterr);
	}
	r.summary.query_ns = now_mono_ns() - began_ns;
	*ret = r.summary;
	return 0;
}
