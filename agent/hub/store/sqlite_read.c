/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: adds up the equal stacks of a selection and passes them to the caller with their frames,
 * the greatest first.
 */
#include "hub/store/sqlite.h"

#include <inttypes.h>

#include <stdlib.h>

#define DEFAULT_MAX_ROWS 4000000

#define SERIES_LIST_MAX (64u << 20) /* bytes; more series are too many rows for any query, too */

struct store_reading {
	struct query query;
	struct names *names; /* those of the query's connection */
	bool counted;	     /* n_profiles of the summary is known */
	/* the series of the profiles that were read; only if `counted` will be true */
	struct id_set series;
	struct buf series_list; /* the same as JSON, without the brackets */
	struct groups groups;
	char **group_names; /* for each group; NULL: there are no groups */
	struct apart {	    /* the selection's namespaces whose rows stay apart */
		size_t n;
		char *const *names;
		struct groups by_ns; /* the namespace of each series */
		size_t *of;	     /* for each group of by_ns: which of the names, + 1; 0: none */
		struct groups by_cluster; /* if there are other clusters than the hub's own */
		bool *is_other;		  /* for each group of by_cluster; NULL: there are none */
	} apart;
	struct store_summary summary;
};

static void reading_done(struct store_reading *r)
{
	if (r->names)
		store_names_end(r->names, r->query.s);
	store_summary_done(&r->summary);
	for (size_t i = 0; r->group_names && i < r->groups.n; i++)
		free(r->group_names[i]);
	free(r->group_names);
	store_id_set_done(&r->series);
	buf_done(&r->series_list);
	store_groups_done(&r->groups);
	store_groups_done(&r->apart.by_ns);
	store_groups_done(&r->apart.by_cluster);
	free(r->apart.of);
	free(r->apart.is_other);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The position of a name in a sorted list, + 1; 0: it is not there. */
static size_t position(const char *name, char *const *names, size_t n)
{
	char *const *found = name && n ? bsearch(&name, names, n, sizeof(*names), by_name) : NULL;

	return found ? (size_t)(found - names) + 1 : 0;
}

/* The names that are apart are those of namespaces of the hub's own cluster. */
static int begin_other_clusters(struct store_reading *r, const struct selection *sel)
{
	struct apart *a = &r->apart;
	char **names;
	int e;

	if (!sel->n_clusters)
		return 0;
	e = store_groups_begin(&a->by_cluster, &r->query, sel, "pod_cluster");
	if (e)
		return e;
	a->is_other = xcalloc(a->by_cluster.n + 1, sizeof(*a->is_other));
	names = store_groups_names(&a->by_cluster);
	for (size_t i = 0; i < a->by_cluster.n; i++) {
		a->is_other[i] = position(names[i], sel->clusters, sel->n_clusters);
		free(names[i]);
	}
	free(names);
	return 0;
}

static int begin_apart(struct store_reading *r, const struct selection *sel)
{
	struct apart *a = &r->apart;
	char **names;
	int e;

	if (!sel->n_apart)
		return 0;
	e = store_groups_begin(&a->by_ns, &r->query, sel, "pod_ns");
	if (e)
		return e;
	a->n = sel->n_apart;
	a->names = sel->apart;
	a->of = xcalloc(a->by_ns.n + 1, sizeof(*a->of));
	names = store_groups_names(&a->by_ns);
	for (size_t i = 0; i < a->by_ns.n; i++) {
		a->of[i] = position(names[i], a->names, a->n);
		free(names[i]);
	}
	free(names);
	return begin_other_clusters(r, sel);
}

/*
 * The number of a sum's group says both its group and its namespace, if that stays apart. The group
 * in *group becomes it. -ENOENT: the series was added after the groups were looked up.
 */
static int set_apart(struct store_reading *r, int64_t series, size_t *group)
{
	struct apart *a = &r->apart;
	size_t ns, cluster = 0;
	int e = store_groups_of(&a->by_ns, series, 0, &ns);

	if (!e && a->is_other)
		e = store_groups_of(&a->by_cluster, series, 0, &cluster);
	if (!e)
		*group =
			*group * (a->n + 1) + (a->is_other && a->is_other[cluster] ? 0 : a->of[ns]);
	return e;
}

/* The group of a sum, and its namespace. */
static void put_groups(const struct store_reading *r, const struct stored_sum *x,
		       struct store_row *row)
{
	size_t of = x->group % (r->apart.n + 1);

	row->group = r->group_names ? r->group_names[x->group / (r->apart.n + 1)] : NULL;
	row->ns = of ? r->apart.names[of - 1] : NULL;
}

/* The process of samples, their first and last window, and the call to whose group they belong. */
struct of_profile {
	int64_t app, series, first_s, last_s;
	const char *call; /* the value of a tag of calls */
};

/*
 * Makes the sum to which a sample is added. -ENOENT: to none, because its series was added after
 * the groups were looked up.
 */
static int sum_of(struct store_reading *r, const struct of_profile *of,
		  const struct stored_sample *x, struct stored_sum *ret)
{
	*ret = (struct stored_sum){.app = of->app,
				   .stack = x->stack > 0 ? x->stack : INT64_MAX, /* no such row */
				   .value = MIN(MAX(x->value, 0), SQ_MAX_VALUE),
				   .n_samples = MIN(MAX(x->n, 0), SQ_MAX_VALUE)};
	int e = 0;

	if (r->groups.of_calls)
		ret->group = store_groups_named(&r->groups, of->call);
	else if (r->groups.tag)
		e = store_groups_of(&r->groups, of->series, ret->stack, &ret->group);
	return !e && r->apart.n ? set_apart(r, of->series, &ret->group) : e;
}

/* Adds the sums of samples of one profile. */
static void add_sums(struct store_reading *r, struct sums *sums, const struct of_profile *of,
		     const struct stored_sum *list, size_t n)
{
	struct store_summary *s = &r->summary;

	if (!n)
		return;
	s->first_s = s->first_s ? MIN(s->first_s, of->first_s) : of->first_s;
	s->last_s = MAX(s->last_s, of->last_s);
	store_sums_add(sums, list, n);
}

/* If the query takes much memory: waits until it may. -ENOBUFS: it has too many groups. */
static int wait_for_memory(struct store_reading *r, const struct sums *sums)
{
	if (r->groups.names_bytes > r->query.s->names_bytes)
		return -ENOBUFS;
	return store_query_takes(&r->query, sums->cap * sizeof(*sums->items) +
						    r->names->query_bytes + r->groups.bytes +
						    r->apart.by_ns.bytes +
						    r->apart.by_cluster.bytes);
}

static struct of_profile profile_of(sqlite3_stmt *st)
{
	return (struct of_profile){.app = sqlite3_column_int64(st, 0),
				   .series = sqlite3_column_int64(st, 1),
				   .first_s = sqlite3_column_int64(st, 2),
				   .last_s = sqlite3_column_int64(st, 2)};
}

/*
 * Adds up the rows of a query; each row is (app, series, time, one sample), and if the groups are
 * of calls, the call's tag.
 */
static int add_each(struct store_reading *r, sqlite3_stmt *st, struct sums *sums)
{
	int rc, e = 0;

	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct of_profile of = profile_of(st);
		const struct stored_sample x = {.stack = sqlite3_column_int64(st, 3),
						.value = sqlite3_column_int64(st, 4),
						.n = sqlite3_column_int64(st, 5)};
		struct stored_sum sum;

		if (r->groups.of_calls)
			of.call = (const char *)sqlite3_column_text(st, 6);
		e = sum_of(r, &of, &x, &sum);
		if (!e)
			add_sums(r, sums, &of, &sum, 1);
		if (!e || e == -ENOENT)
			e = wait_for_memory(r, sums);
	}
	return e ? e : store_sq_errno(rc);
}

/* Adds up the samples of a profile, some at a time. */
static int add_profile(struct store_reading *r, struct sums *sums, const struct of_profile *of,
		       const uint8_t *p, const uint8_t *end)
{
	struct stored_sum some[64];
	struct stored_sample x;
	size_t n = 0;

	while (store_samples_get(&p, end, &x)) {
		int e = sum_of(r, of, &x, &some[n]);

		if (e && e != -ENOENT)
			return e;
		n += !e;
		if (n == ARRAY_SIZE(some)) {
			add_sums(r, sums, of, some, n);
			n = 0;
		}
	}
	add_sums(r, sums, of, some, n);
	return 0;
}

static void note_series(struct store_reading *r, int64_t series)
{
	if (store_id_set_has(&r->series, series))
		return;
	store_id_set_add(&r->series, series);
	buf_printf(&r->series_list, "%s%" PRId64, r->series_list.len ? "," : "", series);
}

/* A process has several series if its name or a label changed. */
static int count_processes(struct store_reading *r)
{
	_cleanup_(store_where_done) struct where w = {0};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	_cleanup_free_ char *list =
		xasprintf("[%.*s]", (int)r->series_list.len, r->series_list.data ?: "");
	int rc, e;

	if (r->series_list.failed)
		return -E2BIG;
	store_where_text(&w, "SELECT ");
	store_summary_processes(&w);
	store_where_text(&w, " FROM json_each(");
	store_where_str(&w, list);
	store_where_text(&w, ") j CROSS JOIN series se ON se.id=j.value");
	e = store_where_prepare(&w, r->query.db, &st);
	if (e)
		return e;
	rc = sqlite3_step(st);
	if (rc != SQLITE_ROW)
		return store_sq_errno(rc);
	r->summary.n_processes = (uint64_t)sqlite3_column_int64(st, 0);
	return 0;
}

/*
 * Adds up the rows of a query; each row is (app, series, first time, all samples of profiles, how
 * many windows these are, last time). This is ten times as fast as add_each, and is used if the
 * query has no condition on single samples.
 */
static int add_profiles(struct store_reading *r, sqlite3_stmt *st, struct sums *sums)
{
	int rc, e = 0;

	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct of_profile of = profile_of(st);
		const uint8_t *p = sqlite3_column_blob(st, 3);
		const uint8_t *end = p + sqlite3_column_bytes(st, 3);

		of.last_s = sqlite3_column_int64(st, 5);
		r->summary.n_profiles += (uint64_t)sqlite3_column_int64(st, 4);
		note_series(r, of.series);
		/*
		 * SQLite checks the deadline after a number of its steps. Such a row is few steps
		 * for SQLite, but much work here, so this loop checks the deadline, too.
		 */
		if (store_query_must_end(&r->query.reader->limit))
			return -ETIME;
		e = add_profile(r, sums, &of, p, end);
		if (!e)
			e = wait_for_memory(r, sums);
	}
	return e ? e : store_sq_errno(rc);
}

/*
 * Passes the stacks to fn until their names take max_bytes of memory. The remaining stacks are the
 * smallest. They are added up in one row.
 */
static int hand_out(struct store_reading *r, struct sums *sums, size_t max_bytes, store_row_fn *fn,
		    void *arg)
{
	int e = 0;

	for (size_t i = 0; !e && i < sums->n; i++) {
		if (r->names->query_bytes > max_bytes)
			store_sums_cut(sums, i);
		if (i == sums->n)
			break;
		const struct stored_sum *x = &sums->items[i];
		struct store_row row = {
			.app_service = store_names_string(r->names, x->app),
			.value = x->value,
			.n_samples = (uint64_t)x->n_samples,
		};

		put_groups(r, x, &row);
		e = wait_for_memory(r, sums);
		if (!e)
			e = store_names_stack(r->names, x->stack, &row);
		if (!e)
			e = fn(&row, arg);
		r->summary.n_rows++;
		r->summary.n_samples += row.n_samples;
	}
	return e;
}

/* Passes the row [others] of an answer that had too many stacks to fn. */
static int hand_out_others(struct store_reading *r, const struct sums *sums, store_row_fn *fn,
			   void *arg)
{
	static const struct frame frame = {.kind = FRAME_MARKER, .name = STORE_OTHERS};
	const struct frame *const frames[] = {&frame};
	const struct store_row row = {
		.frames = frames,
		.n_frames = 1,
		.value = sums->others.value,
		.n_samples = (uint64_t)sums->others.n_samples,
	};

	if (!sums->truncated)
		return 0;
	r->summary.truncated = true;
	r->summary.short_by = (uint64_t)sums->short_by;
	r->summary.n_samples += row.n_samples;
	return fn(&row, arg);
}

typedef int add_rows_fn(struct store_reading *r, sqlite3_stmt *st, struct sums *sums);

/* Adds up the rows of a query. The summary has the first query of an answer. */
static int run(struct store_reading *r, struct where *w, add_rows_fn *add, struct sums *sums)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int e = store_where_prepare(w, r->query.db, &st);

	if (e)
		return e;
	if (!r->summary.statement)
		r->summary.statement = xstrndup(w->sql.data, w->sql.len);
	return add(r, st, sums);
}

/* The filter has a condition on single samples, or the groups are those of calls. */
static int read_each(struct store_reading *r, const struct selection *sel, struct sums *sums)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event,
						      .links = store_where_wants_links(sel)};

	store_where_text(&w, "SELECT se.app, se.id, sa.time, sa.stack, sa.value, sa.n");
	if (r->groups.of_calls) {
		store_where_text(&w, ", ");
		store_where_tag(&w, sel->group_by);
	}
	store_where_samples(&w, sel, true, false);
	return run(r, &w, add_each, sums);
}

static int read_profiles(struct store_reading *r, const struct selection *sel, struct sums *sums)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event};

	store_where_text(&w, "SELECT se.app, se.id, p.time, p.samples, ");
	store_summary_is_window(&w);
	store_where_text(&w, ", p.time");
	store_where_samples(&w, sel, false, false);
	return run(r, &w, add_profiles, sums);
}

/* Reads the sums of blocks, and then the profiles of blocks that are late. */
static int read_blocks(struct store_reading *r, const struct selection *sel, const struct blocks *b,
		       struct sums *sums)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event},
						 late = {.event = sel->event};
	int e;

	store_where_text(&w, "SELECT se.app, se.id, p.first_s, p.samples, p.n*(");
	store_summary_is_window(&w);
	store_where_text(&w, "), p.last_s FROM series se CROSS JOIN blocks p WHERE ");
	store_blocks_where(&w, sel, b, "p");
	e = run(r, &w, add_profiles, sums);
	if (e)
		return e;
	store_where_text(&late, "SELECT se.app, se.id, p.time, p.samples, ");
	store_summary_is_window(&late);
	store_where_text(&late, ", p.time FROM late l CROSS JOIN series se CROSS JOIN profiles p "
				"WHERE p.series=l.series AND p.event=l.event AND p.time>=l.block*");
	store_where_int(&late, BLOCK_S);
	store_where_text(&late, " AND p.time<(l.block+1)*");
	store_where_int(&late, BLOCK_S);
	store_where_text(&late, " AND ");
	store_blocks_where(&late, sel, b, "l");
	return run(r, &late, add_profiles, sums);
}

/* The profiles before the first whole block, the blocks, and the profiles behind the last one. */
static int read_parts(struct store_reading *r, const struct selection *sel, struct sums *sums)
{
	struct selection before = *sel, after = *sel;
	struct blocks b;
	int e = store_blocks_of(r->query.db, sel, &b);

	if (e || b.until < b.from)
		return e ? e : read_profiles(r, sel, sums);
	before.time_end_s = b.from * BLOCK_S - 1;
	after.time_start_s = (b.until + 1) * BLOCK_S;
	if (before.time_start_s <= before.time_end_s)
		e = read_profiles(r, &before, sums);
	if (!e && after.time_start_s <= after.time_end_s)
		e = read_profiles(r, &after, sums);
	return e ? e : read_blocks(r, sel, &b, sums);
}

static int read_samples(struct store_reading *r, const struct selection *sel, size_t max_bytes,
			store_row_fn *fn, void *arg)
{
	_cleanup_(store_sums_done) struct sums sums;
	bool each = store_where_wants_links(sel) || store_where_wants_samples(sel);
	int e = sel->group_by ? store_groups_begin(&r->groups, &r->query, sel, sel->group_by) : 0;

	store_sums_init(&sums, sel->max_rows ? sel->max_rows : DEFAULT_MAX_ROWS);
	if (!e)
		e = begin_apart(r, sel);
	if (!e)
		e = each ? read_each(r, sel, &sums) : read_parts(r, sel, &sums);
	r->counted = !each;
	if (e)
		return e;
	store_sums_sort(&sums);
	if (sel->group_by)
		r->group_names = store_groups_names(&r->groups);
	e = hand_out(r, &sums, max_bytes, fn, arg);
	return e ? e : hand_out_others(r, &sums, fn, arg);
}

int store_sqlite_read(void *sink, const struct selection *sel, store_row_fn *fn, void *arg,
		      struct store_summary *ret, struct field_error *reterr)
{
	struct sqlite_store *s = sink;
	struct store_reading r = {0};
	uint64_t start_ns = now_mono_ns();
	int e;

	buf_init(&r.series_list, SERIES_LIST_MAX);
	e = store_query_begin(&r.query, s, sel);
	if (!e)
		e = store_names_begin(&r.query.reader->names, &r.query);
	if (!e) {
		r.names = &r.query.reader->names;
		e = read_samples(&r, sel, s->names_bytes, fn, arg);
	}
	if (!e && r.counted)
		e = count_processes(&r);
	if (!e)
		e = store_summary_read(r.query.db, sel, r.counted, &r.summary);
	if (!e) {
		r.summary.query_ns = now_mono_ns() - start_ns;
		*ret = r.summary;
		r.summary = (struct store_summary){0};
	}
	reading_done(&r);
	return store_query_end(&r.query, sel, e, reterr);
}
