/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which snapshot of a process counts, as SQL: the newest one, per process, not per series. If the
 * name or a label of a process changes, it gets a new series, and the snapshot of the old series
 * must not be counted, too. Which of one second counts: store.h, struct store_row.
 */
#include "hub/store/sqlite.h"

static void put_time(struct where *w, const struct selection *sel, const char *least,
		     const char *most)
{
	store_where_text(w, least);
	store_where_int(w, sel->time_start_s);
	store_where_text(w, most);
	store_where_int(w, sel->time_end_s);
}

/* The newest snapshot of each series. */
static void put_newest_of_series(struct where *w, const struct selection *sel)
{
	store_where_text(w, "(SELECT se.id AS series, ");
	store_where_process(w);
	store_where_text(w, " AS process, (SELECT MAX(y.time) FROM snapshots y WHERE y.event=");
	store_where_int(w, sel->event);
	store_where_text(w, " AND y.series=se.id");
	put_time(w, sel, " AND y.time>=", " AND y.time<=");
	store_where_text(w, ") AS time FROM series se");
	put_time(w, sel, " WHERE se.last_s>=", " AND se.first_s<=");
	store_where_text(w, ")");
}

/*
 * A process has several series with a newest snapshot only if it had two names in one second. Few
 * have, so only those are sorted once more, by ids, which are in the table of profiles.
 */
void store_where_newest(struct where *w, const struct selection *sel)
{
	store_where_text(w, "(WITH newest AS MATERIALIZED (SELECT series, process, time, tied FROM "
			    "(SELECT series, process, time, FIRST_VALUE(time) OVER by_time AS "
			    "last, LAG(time) OVER by_time IS time OR LEAD(time) OVER by_time IS "
			    "time AS tied FROM ");
	put_newest_of_series(w, sel);
	store_where_text(w, " WHERE time IS NOT NULL WINDOW by_time AS (PARTITION BY process "
			    "ORDER BY time DESC)) WHERE time=last) "
			    "SELECT series, time FROM newest WHERE NOT tied UNION ALL "
			    "SELECT series, time FROM (SELECT series, time, ROW_NUMBER() OVER "
			    "(PARTITION BY process ORDER BY (SELECT MAX((y.n>0)||hex(y.id)) FROM "
			    "profiles y WHERE y.series=x.series AND y.time=x.time AND y.event=");
	store_where_int(w, sel->event);
	store_where_text(w, ") DESC) AS nr FROM newest x WHERE tied) WHERE nr=1)");
}

void store_where_one_of_second(struct where *w, const char *p)
{
	_cleanup_free_ char *sql =
		xasprintf(" AND NOT EXISTS (SELECT 1 FROM profiles y WHERE y.event=%1$s.event AND "
			  "y.series=%1$s.series AND y.time=%1$s.time AND y.key<>%1$s.key AND "
			  "(y.n>0, y.id)>(%1$s.n>0, %1$s.id))",
			  p);

	store_where_text(w, sql);
}
