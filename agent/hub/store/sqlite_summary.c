/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reader must know besides the stacks: how many profiles the answer uses, how many samples
 * were lost, how exact estimates are, and how long CPU limits kept containers from running.
 */
#include "hub/store/sqlite.h"

#include <math.h>

/* Runs the statement in w. *ret is then at its first row. Returns -ENODATA if there is none. */
static int first_row(struct where *w, sqlite3 *db, sqlite3_stmt **ret)
{
	int e = store_where_prepare(w, db, ret), rc;

	if (e)
		return e;
	rc = sqlite3_step(*ret);
	return rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENODATA : store_sq_errno(rc);
}

/* Adds the condition on event and time for the table named `x`. */
static void of_time(struct where *w, const struct selection *sel)
{
	store_where_text(w, "x.event=");
	store_where_int(w, sel->event);
	store_where_text(w, " AND x.time BETWEEN ");
	store_where_int(w, sel->time_start_s);
	store_where_text(w, " AND ");
	store_where_int(w, sel->time_end_s);
}

/* Adds the condition for the table of profiles named `x`, whose series is `se`. */
static void of_selection(struct where *w, const struct selection *sel)
{
	of_time(w, sel);
	if (profile_event_info(sel->event)->snapshot) {
		store_where_text(w, " AND (x.series, x.time) IN ");
		store_where_newest(w, sel);
	}
	store_where_selection(w, sel);
}

/* Adds the condition that a series has what some process of a node has lost. */
static void of_some_process(struct where *w)
{
	store_where_text(w, "(se.pid=0 AND ");
	store_where_tag(w, "pod_ns");
	store_where_text(w, " IS NULL)");
}

/*
 * Adds 1 for a profile of series `se` that is a window, else 0. A loss of a whole node, such as the
 * time without an agent, is stored as a profile per event. It is not a window.
 */
void store_summary_is_window(struct where *w)
{
	store_where_text(w, "CASE WHEN se.pid=0 THEN NOT (se.app IS (SELECT id FROM strings WHERE "
			    "s='') AND ");
	of_some_process(w);
	store_where_text(w, ") ELSE 1 END");
}

void store_summary_processes(struct where *w)
{
	store_where_text(w, "COUNT(DISTINCT CASE WHEN se.pid!=0 THEN ");
	store_where_process(w);
	store_where_text(w, " END)");
}

static int count_profiles(sqlite3 *db, const struct selection *sel, struct store_summary *s)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event, .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int e;

	store_where_text(&w, "SELECT COUNT(*), ");
	store_summary_processes(&w);
	store_where_text(&w, " FROM profiles x JOIN series se ON se.id=x.series WHERE ");
	of_selection(&w, sel);
	if (profile_event_info(sel->event)->snapshot)
		store_where_one_of_second(&w, "x");
	store_where_text(&w, " AND ");
	store_summary_is_window(&w);
	e = first_row(&w, db, &st);
	if (!e)
		s->n_profiles = (uint64_t)sqlite3_column_int64(st, 0);
	if (!e)
		s->n_processes = (uint64_t)sqlite3_column_int64(st, 1);
	return e;
}

/* Returns -ENODATA if no profile was ever stored that could not be verified. */
static int any_unverified(sqlite3 *db)
{
	_cleanup_(store_where_done) struct where w = {0};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;

	store_where_text(&w, "SELECT 1 FROM strings WHERE s=");
	store_where_str(&w, TAG_UNVERIFIED);
	return first_row(&w, db, &st);
}

static int count_unverified(sqlite3 *db, const struct selection *sel, struct store_summary *s)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event, .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int e = any_unverified(db);

	if (e)
		return e == -ENODATA ? 0 : e;
	store_where_text(&w, "SELECT COUNT(*) FROM series se CROSS JOIN profiles x ON "
			     "x.series=se.id WHERE ");
	of_selection(&w, sel);
	store_where_text(&w, " AND ");
	store_where_tag(&w, TAG_UNVERIFIED);
	store_where_text(&w, " IS NOT NULL");
	e = first_row(&w, db, &st);
	if (!e)
		s->n_unverified = (uint64_t)sqlite3_column_int64(st, 0);
	return e;
}

/*
 * Returns -ENODATA if no profile of the event in the selection's time is an estimate. This query
 * runs before the full one, because most answers have no estimate and SQLite compiles a long filter
 * slowly.
 */
static int any_estimate(sqlite3 *db, const struct selection *sel)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;

	store_where_text(&w, "SELECT 1 FROM estimates x WHERE ");
	of_time(&w, sel);
	store_where_text(&w, " LIMIT 1");
	return first_row(&w, db, &st);
}

/*
 * Reads the smallest share and the error of the estimates. The errors of different processes and
 * windows are independent, so their squares are added.
 */
static int read_estimates(sqlite3 *db, const struct selection *sel, struct store_summary *s)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event, .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int e = any_estimate(db, sel);

	if (e)
		return e == -ENODATA ? 0 : e;
	store_where_text(&w, "SELECT MIN(x.ppm), TOTAL(1.0 * x.error * x.error) FROM estimates x "
			     "JOIN series se ON se.id=x.series WHERE ");
	of_selection(&w, sel);
	e = first_row(&w, db, &st);
	if (e)
		return e;
	s->estimate_ppm = (uint32_t)sqlite3_column_int64(st, 0);
	s->estimate_error = (uint64_t)store_sq_clamp(sqrt(sqlite3_column_double(st, 1)));
	return 0;
}

/*
 * Adds a text that is the same for all series of a container; NULL: the series is of none. The id
 * alone is what a node says: it may be that of another node's container.
 */
static void put_container(struct where *w)
{
	store_where_text(w, "CASE WHEN ");
	store_where_tag(w, "container_id");
	store_where_text(w, " IS NOT NULL THEN printf('%s %s %s',");
	store_where_node(w);
	store_where_text(w, ",");
	store_where_tag(w, "pod_ns");
	store_where_text(w, ",");
	store_where_tag(w, "container_id");
	store_where_text(w, ") END");
}

/* Adds the condition that a series belongs to a container of the selection. */
static void of_its_containers(struct where *w, const struct selection *sel)
{
	put_container(w);
	store_where_text(w, " IN (SELECT ");
	put_container(w);
	store_where_text(w, " FROM series se WHERE se.last_s>=");
	store_where_int(w, sel->time_start_s);
	store_where_text(w, " AND se.first_s<=");
	store_where_int(w, sel->time_end_s);
	store_where_selection(w, sel);
	store_where_text(w, ")");
}

void store_summary_losses(struct where *w, const struct selection *sel)
{
	store_where_text(w, " FROM losses l JOIN series se ON se.id=l.series WHERE l.event=");
	store_where_int(w, sel->event);
	store_where_text(w, " AND l.time>=");
	store_where_int(w, sel->time_start_s);
	store_where_text(w, " AND l.time<=");
	store_where_int(w, store_losses_until_s(sel));
	store_where_text(w, " AND l.start_s<=");
	store_where_int(w, sel->time_end_s);
	store_where_text(w, " AND ((1");
	store_where_selection(w, sel);
	/*
	 * a loss of a container has pid 0, because nobody knows which process lost the samples; so
	 * it counts for each process of the container
	 */
	store_where_text(w, ") OR (se.pid=0");
	store_where_allowed(w, sel);
	store_where_text(w, " AND ");
	of_its_containers(w, sel);
	store_where_text(w, ")");
	/*
	 * a loss of a node without a namespace concerns all containers of that node, because the
	 * agent does not know which container it was
	 */
	store_where_text(w, " OR (");
	of_some_process(w);
	store_where_text(w, " AND ");
	store_where_node(w);
	store_where_text(w, " IN (SELECT ");
	store_where_node(w);
	store_where_text(w, " FROM series se WHERE se.last_s>=");
	store_where_int(w, sel->time_start_s);
	store_where_text(w, " AND se.first_s<=");
	store_where_int(w, sel->time_end_s);
	store_where_selection(w, sel);
	store_where_text(w, ")))");
}

static int read_losses(sqlite3 *db, const struct selection *sel, struct store_summary *s)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event, .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int rc, e;

	store_where_text(&w, "SELECT (SELECT s FROM strings WHERE id=l.reason), TOTAL(l.n), "
			     "TOTAL(l.time_ns), ");
	of_some_process(&w);
	/* the numbers of a node are those of all its namespaces together */
	store_where_text(&w, " AS of_node, ");
	of_some_process(&w);
	store_where_text(&w, " AND NOT ");
	store_where_sees_cluster(&w, sel);
	store_where_text(&w, " AS hidden");
	store_summary_losses(&w, sel);
	/* of what is hidden, the order must tell nothing either */
	store_where_text(&w, " GROUP BY l.reason, of_node, hidden ORDER BY hidden, "
			     "CASE WHEN hidden THEN 0 ELSE TOTAL(l.n) END DESC, "
			     "CASE WHEN hidden THEN 0 ELSE TOTAL(l.time_ns) END DESC, 4, 1");
	e = store_where_prepare(&w, db, &st);
	if (e)
		return e;
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *reason = (const char *)sqlite3_column_text(st, 0);
		bool of_node = sqlite3_column_int(st, 3), hidden = sqlite3_column_int(st, 4);

		GROW(s->losses, s->n_losses, cap);
		s->losses[s->n_losses++] = (struct store_loss){
			.reason = xstrdup(reason ? reason : "unknown"),
			.n_samples =
				hidden ? 0 : (uint64_t)store_sq_clamp(sqlite3_column_double(st, 1)),
			.time_ns =
				hidden ? 0 : (uint64_t)store_sq_clamp(sqlite3_column_double(st, 2)),
			.of_node = of_node,
			.hidden = hidden,
		};
	}
	return store_sq_errno(rc);
}

/*
 * Adds the query for the throttled time, which is a value of a whole container. So this query
 * selects the containers that have a process of the selection, and those that the conditions on
 * containers select.
 */
static void throttled_where(struct where *w, const struct selection *sel)
{
	store_where_text(w, "SELECT TOTAL(p.value) FROM series se CROSS JOIN profiles p WHERE "
			    "se.pid=0 AND se.app=(SELECT id FROM strings WHERE s='Throttled') AND "
			    "p.series=se.id AND p.event=");
	store_where_int(w, sel->event);
	store_where_text(w, " AND p.time BETWEEN ");
	store_where_int(w, sel->time_start_s);
	store_where_text(w, " AND ");
	store_where_int(w, sel->time_end_s);
	store_where_allowed(w, sel);
	store_where_text(w, " AND (");
	of_its_containers(w, sel);
	if (sel->n_app_services == 0) {
		struct selection any = *sel;

		any.with_total = true;
		store_where_text(w, " OR (1");
		store_where_selection(w, &any);
		store_where_text(w, ")");
	}
	store_where_text(w, ")");
}

static int read_throttled(sqlite3 *db, const struct selection *sel, struct store_summary *s)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event, .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int e;

	if (sel->event != EVENT_OFF_CPU)
		return 0;
	throttled_where(&w, sel);
	e = first_row(&w, db, &st);
	if (!e)
		s->throttled_us = (uint64_t)store_sq_clamp(sqlite3_column_double(st, 0));
	return e;
}

struct store_cut store_sq_cut_of(const char *place, int64_t until_s)
{
	size_t ns_at = store_place_ns_at(place);
	const char *ns = place + ns_at;
	bool unverified = streq(ns, STORE_PLACE_UNVERIFIED);

	return (struct store_cut){
		.cluster = ns_at ? xstrndup(place, ns_at - 1) : NULL,
		.ns = *ns && !unverified ? xstrdup(ns) : NULL,
		.unverified = unverified,
		.until_s = until_s,
	};
}

int store_sqlite_cut(void *sink, const struct store_cut *cut)
{
	struct sqlite_store *s = sink;
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	_cleanup_free_ char *place =
		xasprintf("%s%s%s", cut->cluster ?: "", cut->cluster ? ":" : "",
			  cut->unverified ? STORE_PLACE_UNVERIFIED : cut->ns ?: "");
	int r = s->writer ? store_sq_errno(sqlite3_prepare_v2(
				    s->writer,
				    "INSERT INTO places(name, until_s) VALUES(?,?) ON CONFLICT "
				    "DO UPDATE SET until_s=MAX(until_s, excluded.until_s)",
				    -1, &st, NULL))
			  : -ENOTCONN;

	if (r)
		return r;
	sqlite3_bind_text(st, 1, place, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 2, cut->until_s);
	return store_sq_run(st);
}

int store_sqlite_oldest(void *sink, const struct selection *sel, store_oldest_fn *fn, void *arg,
			struct field_error *reterr)
{
	sqlite3_stmt *st = NULL;
	struct query q;
	int rc = SQLITE_OK, e = store_query_begin(&q, sink, sel);

	if (!e)
		e = store_sq_errno(sqlite3_prepare_v2(
			q.db,
			"SELECT pl.name, MIN(se.first_s), pl.until_s, MAX(se.last_s) FROM series "
			"AS se JOIN places AS pl ON pl.id=se.place GROUP BY se.place "
			"ORDER BY pl.name",
			-1, &st, NULL));
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *place = (const char *)sqlite3_column_text(st, 0);
		struct store_cut of;

		if (!store_scope_sees_place(sel, place))
			continue;
		of = store_sq_cut_of(place, sqlite3_column_int64(st, 2));
		fn(&of, sqlite3_column_int64(st, 1), sqlite3_column_int64(st, 3), arg);
		free(of.cluster);
		free(of.ns);
	}
	if (!e)
		e = store_sq_errno(rc);
	sqlite3_finalize(st);
	return store_query_end(&q, sel, e, reterr);
}

static int read_cuts(sqlite3 *db, const struct selection *sel, struct store_summary *s)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db,
				    "SELECT name, until_s FROM places WHERE until_s>=? "
				    "ORDER BY until_s DESC, name",
				    -1, &st, NULL);

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	/* a row with until_s 0 has lost nothing */
	sqlite3_bind_int64(st, 1, MAX(sel->time_start_s, (int64_t)1));
	s->cuts = xcalloc(STORE_MAX_CUTS, sizeof(*s->cuts));
	while (s->n_cuts < STORE_MAX_CUTS && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *place = (const char *)sqlite3_column_text(st, 0);

		if (store_scope_sees_place(sel, place))
			s->cuts[s->n_cuts++] = store_sq_cut_of(place, sqlite3_column_int64(st, 1));
	}
	return store_sq_errno(rc);
}

int store_summary_read(sqlite3 *db, const struct selection *sel, bool counted,
		       struct store_summary *s)
{
	int e = counted ? 0 : count_profiles(db, sel, s);

	if (!e)
		e = count_unverified(db, sel, s);
	if (!e)
		e = read_estimates(db, sel, s);
	if (!e)
		e = read_losses(db, sel, s);
	if (!e)
		e = read_cuts(db, sel, s);
	return e ? e : read_throttled(db, sel, s);
}
