/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every query does: it takes a connection, begins a read transaction with a deadline, and ends
 * both. As a query is one transaction, the rows and the dictionaries that it reads belong together.
 */
#include "hub/store/sqlite.h"

#define DEFAULT_MAX_TIME_NS (30 * NSEC_PER_SEC)
/* after this many steps of its virtual machine, SQLite checks whether the query must end */
#define PROGRESS_STEPS 20000

static uint64_t time_limit_ns(const struct selection *sel)
{
	return sel->max_time_ns ? sel->max_time_ns : DEFAULT_MAX_TIME_NS;
}

int store_query_begin(struct query *q, struct sqlite_store *s, const struct selection *sel)
{
	int e;

	*q = (struct query){.s = s, .n_reused = atomic_load(&s->n_reused)};
	e = store_reader_take(s, &q->reader);
	if (e)
		return e;
	q->db = q->reader->db;
	q->reader->limit = (struct query_limit){
		.deadline_ns = now_mono_ns() + time_limit_ns(sel),
		.given_up = sel->given_up,
	};
	sqlite3_progress_handler(q->db, PROGRESS_STEPS, store_query_must_end, &q->reader->limit);
	/*
	 * A store in memory has one connection. The writer may have a transaction open on it, so no
	 * other can begin.
	 */
	if (s->file)
		(void)store_sq_exec(q->db, "BEGIN");
	return 0;
}

int store_query_takes(struct query *q, size_t n_bytes)
{
	return n_bytes > q->s->large_bytes ? store_reader_large(q->s, q->reader) : 0;
}

static int read_error(struct sqlite_store *s, int e, const struct selection *sel,
		      struct field_error *reterr)
{
	struct store_stats stats;

	if (e == -EBADMSG)
		field_error_set(reterr, "store",
				"the file is damaged; if the hub finds the damage again within 10 "
				"minutes, it renames the file at the next write and begins an "
				"empty store");
	else if (e == -ENOTCONN) {
		store_sqlite_stats(s, &stats);
		field_error_set(reterr, "store", "is not open: %s", stats.error);
	} else if (e == -ETIME)
		field_error_set(reterr, "store",
				"the query took longer than %.1f s; ask for less time or name the "
				"process with app_service",
				(double)time_limit_ns(sel) / (double)NSEC_PER_SEC);
	else if (e == -EFBIG)
		field_error_set(reterr, "store",
				"there are too many snapshots in this time; ask for less time or "
				"name the process with app_service");
	else if (e == -ENOBUFS)
		field_error_set(reterr, "store",
				"there are too many values of the tag group_by; ask for less time "
				"or name the process with app_service");
	else if (e == -E2BIG)
		field_error_set(reterr, "store",
				"the filter is nested too deep or has too many conditions");
	else if (e == -ELOOP)
		field_error_set(reterr, "store",
				"a REGEXP takes too many steps on one of the values; nest fewer "
				"repetitions");
	else
		field_error_set(reterr, "store", "cannot be read: %s", strerror(-e));
	return e;
}

int store_query_end(struct query *q, const struct selection *sel, int e, struct field_error *reterr)
{
	struct sqlite_store *s = q->s;

	if (e == -EBADMSG && s->file)
		atomic_store(&s->damaged, true);
	if (q->reader) {
		sqlite3_progress_handler(q->db, 0, NULL, NULL);
		if (s->file && !sqlite3_get_autocommit(q->db))
			(void)store_sq_exec(q->db, "ROLLBACK");
		store_reader_give_back(s, q->reader);
	}
	return e ? read_error(s, e, sel, reterr) : 0;
}

/* Adds a condition on the table that holds the samples. */
static void of_place(struct where *w, const char *condition)
{
	store_where_text(w, w->links ? " AND sa." : " AND p.");
	store_where_text(w, condition);
}

void store_where_samples(struct where *w, const struct selection *sel, bool each, bool all_events)
{
	bool snapshot = profile_event_info(sel->event)->snapshot && !all_events;

	/* a query with a condition on a trace reads only the samples that belong to a trace */
	store_where_text(w, w->links ? " FROM links sa CROSS JOIN series se" : " FROM ");
	if (snapshot) {
		store_where_text(w, w->links ? " CROSS JOIN " : "");
		store_where_newest(w, sel);
		store_where_text(w, w->links ? " nw" : " nw CROSS JOIN ");
	}
	if (!w->links)
		store_where_text(w, "series se CROSS JOIN profiles p");
	if (!w->links && each)
		store_where_text(w, " CROSS JOIN pf_samples(p.samples, p.time) sa");
	store_where_text(w, " WHERE se.last_s>=");
	store_where_int(w, sel->time_start_s);
	store_where_text(w, " AND se.first_s<=");
	store_where_int(w, sel->time_end_s);
	of_place(w, "series=se.id");
	if (!all_events) {
		of_place(w, "event=");
		store_where_int(w, sel->event);
	}
	of_place(w, "time>=");
	store_where_int(w, sel->time_start_s);
	of_place(w, "time<=");
	store_where_int(w, sel->time_end_s);
	if (snapshot) {
		store_where_text(w, " AND se.id=nw.series");
		of_place(w, "time=nw.time");
		if (!w->links)
			store_where_one_of_second(w, "p");
	}
	store_where_selection(w, sel);
}
