/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that tags have within selections, with their samples. Most tags belong to series. For
 * these, one scan of an index counts the samples of each series and event, and all tags of the
 * request use these counts. A tag of samples, or a condition on one, needs all samples. A series
 * has a value for each of its labels: the label's name.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>
#include <uthash.h>

struct value {
	char *text;
	uint64_t n_samples;
	UT_hash_handle hh;
};

struct choosing {
	struct query query;
	int64_t start_s, end_s; /* the time of `counts`; end before start: they are not read yet */
	struct id_map counts;	/* series -> struct counts */
};
/* The samples of a series; of snapshots, those in the newest one of its process. */
struct counts {
	uint64_t of[_EVENT_ALL];
};

/* ---- values and their sums ---- */

static void add_value(struct value **values, const char *text, uint64_t n_samples)
{
	struct value *v;

	if (!text || !n_samples)
		return;
	HASH_FIND_STR(*values, text, v);
	if (!v) {
		v = xcalloc(1, sizeof(*v));
		v->text = xstrdup(text);
		HASH_ADD_KEYPTR(hh, *values, v->text, strlen(v->text), v);
	}
	v->n_samples += n_samples;
}

static int by_samples(struct value *a, struct value *b)
{
	if (a->n_samples != b->n_samples)
		return a->n_samples > b->n_samples ? -1 : 1;
	return strcmp(a->text, b->text);
}

/* Passes the values with most samples to fn, and frees all. */
static int hand_out(struct value *values, const struct store_choice *c, store_choice_fn *fn,
		    void *arg)
{
	struct value *v, *next;
	size_t n = 0;
	int e = 0;

	HASH_SORT(values, by_samples);
	HASH_ITER (hh, values, v, next) {
		if (!e && n++ < MAX(c->limit, (size_t)1))
			e = fn(c, v->text, v->n_samples, arg);
		HASH_DEL(values, v);
		free(v->text);
		free(v);
	}
	return e;
}

/* ---- tags of series ---- */

static struct counts *counts_of(struct choosing *c, int64_t series)
{
	struct counts *counts = store_id_map_get(&c->counts, series);

	if (!counts) {
		counts = xcalloc(1, sizeof(*counts));
		store_id_map_put(&c->counts, series, counts);
	}
	return counts;
}

static void forget_counts(struct choosing *c)
{
	store_id_map_free(&c->counts);
	c->start_s = 0;
	c->end_s = -1;
}

/* Runs a statement that selects series and samples of an event, and puts these into the counts. */
static int put_counts(struct choosing *c, struct where *w, enum event event)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, e = store_where_prepare(w, c->query.db, &st);

	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW)
		counts_of(c, sqlite3_column_int64(st, 0))->of[event] =
			(uint64_t)store_sq_clamp(sqlite3_column_double(st, 1));
	return e ? e : store_sq_errno(rc);
}

/* Counts the samples in the newest snapshots of the event. */
static int count_newest(struct choosing *c, enum event event)
{
	const struct selection all = {.event = event,
				      .time_start_s = c->start_s,
				      .time_end_s = c->end_s,
				      .with_total = true,
				      .scope = &store_scope_all};
	_cleanup_(store_where_done) struct where w = {.event = event};

	store_where_text(&w, "SELECT se.id, TOTAL(p.n)");
	store_where_samples(&w, &all, false, false);
	store_where_text(&w, " GROUP BY 1");
	return put_counts(c, &w, event);
}

/* Counts the samples in the selection's time. The index of profiles by time has all columns. */
static int count_samples(struct choosing *c, const struct selection *sel)
{
	_cleanup_(store_where_done) struct where w = {0};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	bool snapshots[_EVENT_ALL] = {false}; /* whether the event has some */
	int rc, e;

	if (c->start_s == sel->time_start_s && c->end_s == sel->time_end_s)
		return 0;
	forget_counts(c);
	store_where_text(&w, "SELECT event, series, n FROM profiles WHERE time BETWEEN ");
	store_where_int(&w, c->start_s = sel->time_start_s);
	store_where_text(&w, " AND ");
	store_where_int(&w, c->end_s = sel->time_end_s);
	e = store_where_prepare(&w, c->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		int event = sqlite3_column_int(st, 0);
		int64_t series = sqlite3_column_int64(st, 1), n = sqlite3_column_int64(st, 2);

		if (event < 0 || event >= _EVENT_ALL || series <= 0 || n <= 0)
			continue;
		if (profile_event_info((enum event)event)->snapshot)
			snapshots[event] = true;
		else
			counts_of(c, series)->of[event] += (uint64_t)MIN(n, SQ_MAX_VALUE);
	}
	if (!e)
		e = store_sq_errno(rc);
	for (enum event of = 0; !e && of < _EVENT_ALL; of++)
		if (snapshots[of])
			e = count_newest(c, of);
	return e;
}

static void add_events(struct value **values, const struct counts *counts)
{
	PROFILE_EACH_EVENT (e)
		add_value(values, profile_event_info(e)->name, counts->of[e]);
}

/* Adds the value of the tag, and the tables that it is in: a series, or each of its labels. */
static void put_value(struct where *w, const char *tag)
{
	if (!store_is_names_of_labels(tag)) {
		store_where_tag(w, tag);
		store_where_text(w, " FROM series se WHERE ");
		return;
	}
	store_where_text(w, "(SELECT SUBSTR(s, ");
	store_where_int(w, (int64_t)strlen(tag) + 1);
	store_where_text(w, ") FROM strings WHERE id=t.key) FROM series se CROSS JOIN tags t"
			    " WHERE t.tagset=se.tagset AND t.key IN"
			    " (SELECT id FROM strings WHERE s GLOB '");
	store_where_text(w, tag);
	store_where_text(w, "*') AND ");
}

/* Adds up the samples that were counted of each series of the selection under its values. */
static int add_series(struct choosing *c, const struct store_choice *choice, struct value **values)
{
	const struct selection *sel = choice->sel;
	_cleanup_(store_where_done) struct where w = {.event = sel->event, .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	bool events = streq(choice->tag, "profile_event_type");
	int rc, e;

	store_where_text(&w, "SELECT se.id, ");
	put_value(&w, events ? "pod" : choice->tag);
	store_where_text(&w, "se.last_s>=");
	store_where_int(&w, sel->time_start_s);
	store_where_text(&w, " AND se.first_s<=");
	store_where_int(&w, sel->time_end_s);
	store_where_selection(&w, sel);
	e = store_where_prepare(&w, c->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const struct counts *counts =
			store_id_map_get(&c->counts, sqlite3_column_int64(st, 0));

		if (counts && events)
			add_events(values, counts);
		else if (counts)
			add_value(values, (const char *)sqlite3_column_text(st, 1),
				  counts->of[sel->event]);
	}
	return e ? e : store_sq_errno(rc);
}

/* ---- tags of samples ---- */

/* Whether the choice must be answered from samples. */
static bool needs_samples(const struct store_choice *c)
{
	_cleanup_(store_where_done) struct where w = {.event = c->sel->event};

	store_where_tag(&w, c->tag);
	return w.needs_samples || store_is_tag_of_calls(c->tag) ||
	       store_where_wants_links(c->sel) || store_where_wants_samples(c->sel);
}

static void put_sums(struct where *w, const struct store_choice *c)
{
	store_where_text(w, "SELECT ");
	store_where_tag(w, c->tag);
	store_where_text(w, ", TOTAL(sa.n)");
	store_where_samples(w, c->sel, true, false);
	store_where_text(w, " GROUP BY 1");
}

/* Finds one sample that has the tag. SQLite ends with the first one. */
static void put_any(struct where *w, const struct store_choice *c)
{
	store_where_text(w, "SELECT '', 1");
	store_where_samples(w, c->sel, true, false);
	store_where_text(w, " AND sa.n>0 AND ");
	store_where_tag(w, c->tag);
	store_where_text(w, " IS NOT NULL LIMIT 1");
}

/* Adds up samples under their value of the tag. */
static int add_samples(struct choosing *c, const struct store_choice *choice, struct value **values)
{
	const struct selection *sel = choice->sel;
	_cleanup_(store_where_done) struct where w = {
		.event = sel->event,
		.links = store_is_tag_of_calls(choice->tag) || store_where_wants_links(sel),
	};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, e;

	if (choice->limit)
		put_sums(&w, choice);
	else
		put_any(&w, choice);
	e = store_where_prepare(&w, c->query.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW)
		add_value(values, (const char *)sqlite3_column_text(st, 0),
			  (uint64_t)store_sq_clamp(sqlite3_column_double(st, 1)));
	return e ? e : store_sq_errno(rc);
}

/*
 * Counts the samples of each series by reading all samples of the event, under a condition on
 * samples. No other choice uses these counts. w.event stays that of the selection, because its
 * conditions may name it.
 */
static int count_each_sample(struct choosing *c, const struct selection *sel, enum event event)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event,
						      .links = store_where_wants_links(sel)};
	struct selection of = *sel;

	of.event = event;
	store_where_text(&w, "SELECT se.id, TOTAL(sa.n)");
	store_where_samples(&w, &of, true, false);
	store_where_text(&w, " GROUP BY 1");
	return put_counts(c, &w, event);
}

/*
 * Counts the samples that a choice of a tag of series is about. For the tag of events these are
 * those of all events.
 */
static int count(struct choosing *c, const struct store_choice *choice)
{
	bool events = streq(choice->tag, "profile_event_type");
	int e = 0;

	if (!needs_samples(choice))
		return count_samples(c, choice->sel);
	forget_counts(c);
	PROFILE_EACH_EVENT (of)
		if (!e && (events || of == choice->sel->event))
			e = count_each_sample(c, choice->sel, of);
	return e;
}

static int read_choice(struct choosing *c, const struct store_choice *choice, store_choice_fn *fn,
		       void *arg)
{
	bool of_series =
		store_is_names_of_labels(choice->tag) || streq(choice->tag, "profile_event_type");
	struct value *values = NULL;
	int e, handed;

	if (needs_samples(choice) && !of_series) {
		e = add_samples(c, choice, &values);
	} else {
		e = count(c, choice);
		if (!e)
			e = add_series(c, choice, &values);
	}
	handed = hand_out(values, choice, fn, arg);
	return e ? e : handed;
}

int store_sqlite_namespaces(void *sink, const atomic_bool *given_up, store_namespace_fn *fn,
			    void *arg, struct field_error *reterr)
{
	const struct sqlite_store *s = sink;
	const struct selection any = {.scope = &store_scope_all, .given_up = given_up};
	_cleanup_(store_where_done) struct where w = {0};
	sqlite3_stmt *st = NULL;
	struct query q;
	int rc, e = store_query_begin(&q, sink, &any);

	store_where_text(&w, "SELECT DISTINCT ");
	store_where_place(&w, s->clusters, s->n_clusters);
	store_where_text(&w, " FROM tags t JOIN strings v ON v.id=t.value WHERE "
			     "t.key=(SELECT id FROM strings WHERE s='pod_ns') AND NOT EXISTS "
			     "(SELECT 1 FROM tags u WHERE u.tagset=t.tagset AND u.key=(SELECT id "
			     "FROM strings WHERE s='" TAG_UNVERIFIED "')) ORDER BY 1");
	if (!e)
		e = store_where_prepare(&w, q.db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW)
		fn((const char *)sqlite3_column_text(st, 0), arg);
	if (!e)
		e = store_sq_errno(rc);
	sqlite3_finalize(st);
	return store_query_end(&q, &any, e, reterr);
}

/* The value of a tag in the text of a set of tags (store_tags_text); NULL: it is not there. */
static const char *tag_in(const char *text, size_t n, const char *key)
{
	const char *end = text + n, *k, *v;

	for (k = text; k < end; k = v + strlen(v) + 1) {
		v = k + strlen(k) + 1;
		if (v >= end)
			return NULL;
		if (streq(k, key))
			return v;
	}
	return NULL;
}

static void hand_pod(const char *text, size_t n, store_pod_fn *fn, void *arg)
{
	const struct store_pod p = {
		.cluster = tag_in(text, n, "pod_cluster"),
		.ns = tag_in(text, n, "pod_ns"),
		.name = tag_in(text, n, "pod"),
		.uid = tag_in(text, n, "pod_uid"),
		.node = tag_in(text, n, "pod_node"),
	};

	if (p.ns && p.name && p.uid && p.node && !tag_in(text, n, TAG_UNVERIFIED))
		fn(&p, arg);
}

int store_sqlite_pods(void *sink, int64_t since_s, store_pod_fn *fn, void *arg,
		      struct field_error *reterr)
{
	const struct selection any = {.scope = &store_scope_all};
	sqlite3_stmt *st = NULL;
	struct query q;
	int rc = SQLITE_OK, e = store_query_begin(&q, sink, &any);

	if (!e)
		e = store_sq_errno(sqlite3_prepare_v2(
			q.db,
			"SELECT text FROM tagsets WHERE id IN (SELECT tagset FROM series WHERE "
			"last_s>=?)",
			-1, &st, NULL));
	if (!e)
		sqlite3_bind_int64(st, 1, since_s);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *text = sqlite3_column_blob(st, 0);
		size_t n = (size_t)sqlite3_column_bytes(st, 0);

		if (n && !text[n - 1]) /* else the file is damaged */
			hand_pod(text, n, fn, arg);
	}
	if (!e)
		e = store_sq_errno(rc);
	sqlite3_finalize(st);
	return store_query_end(&q, &any, e, reterr);
}

int store_sqlite_choices(void *sink, const struct store_choice *choices, size_t n,
			 store_choice_fn *fn, void *arg, struct field_error *reterr)
{
	struct choosing c = {.end_s = -1};
	size_t i = 0;
	int e = store_query_begin(&c.query, sink, choices[0].sel);

	for (; !e && i < n; i++)
		e = read_choice(&c, &choices[i], fn, arg);
	store_id_map_free(&c.counts);
	return store_query_end(&c.query, choices[i ? i - 1 : 0].sel, e, reterr);
}
