/* SPDX-License-Identifier: Apache-2.0 */
/* Which windows, and samples of windows, a statement reads: its FROM and its WHERE. */
#include "hub/store/clickhouse/clickhouse.h"

#define MAX_TIME_S 4294967295LL /* of a DateTime */

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

void store_ch_node(struct ch_where *w)
{
	text(w, "(pod_cluster, pod_node)");
}

void store_ch_process(struct ch_where *w)
{
	text(w, "(if(process_id=0 OR process_start_ms=0, " CH_ITS_TAGS ", 0), " CH_PROCESS ")");
}

static void put_second(struct ch_where *w, const char *compare, int64_t s)
{
	text(w, compare);
	text(w, "toDateTime(");
	store_ch_int(&w->sql, MIN(MAX(s, 0), MAX_TIME_S));
	text(w, ")");
}

static void put_time(struct ch_where *w, const struct selection *sel)
{
	put_second(w, "time>=", sel->time_start_s);
	put_second(w, " AND time<=", sel->time_end_s);
}

/* `time` is in the keys of the table, and `start` is not: without a bound of it, days are read. */
void store_ch_overlap(struct ch_where *w, const struct selection *sel)
{
	put_second(w, "time>=", sel->time_start_s);
	put_second(w, " AND time<=", store_losses_until_s(sel));
	put_second(w, " AND start<=", sel->time_end_s);
}

static void put_event(struct ch_where *w, const struct selection *sel)
{
	text(w, "profile_event_type='");
	text(w, profile_event_info(sel->event)->name);
	text(w, "' AND ");
}

/*
 * The newest snapshot of a process, whatever its name and labels were; which of one second counts:
 * store.h, struct store_row. every: of each event; what is no snapshot stays.
 */
static void put_newest(struct ch_where *w, const struct selection *sel, bool every)
{
	text(w, every ? " AND (NOT snapshot OR " : " AND ");
	text(w, "profile_id IN (SELECT argMax(profile_id, (time, n>0, profile_id)) FROM "
		"windows FINAL WHERE ");
	if (!every)
		put_event(w, sel);
	put_time(w, sel);
	text(w, " AND snapshot GROUP BY profile_event_type, ");
	store_ch_process(w);
	text(w, every ? "))" : ")");
}

static void put_where(struct ch_where *w, const struct selection *sel, enum ch_which which)
{
	text(w, " WHERE ");
	if (which == CH_NEWEST || which == CH_OF_EVENT)
		put_event(w, sel);
	put_time(w, sel);
	if (which == CH_EVERY_NEWEST)
		put_newest(w, sel, true);
	else if (which == CH_NEWEST && profile_event_info(sel->event)->snapshot)
		put_newest(w, sel, false);
}

void store_ch_one_of_second(struct ch_where *w, const struct selection *sel)
{
	text(w, " AND snapshot AND profile_id IN (SELECT argMax(profile_id, (n>0, profile_id)) "
		"FROM windows FINAL WHERE ");
	put_event(w, sel);
	put_time(w, sel);
	text(w, " AND snapshot GROUP BY time, ");
	store_ch_process(w);
	text(w, ")");
}

void store_ch_windows(struct ch_where *w, const struct selection *sel, enum ch_which which)
{
	text(w, w->distinct ? " FROM windows" : " FROM windows FINAL");
	put_where(w, sel, which);
}

void store_ch_samples(struct ch_where *w, const struct selection *sel, enum ch_which which)
{
	text(w, " FROM windows FINAL ARRAY JOIN ");
	text(w, w->calls ? "traces AS trace, spans AS span, call_stacks AS stack, "
			   "call_values AS v, call_counts AS c"
			 : "stacks AS stack, `values` AS v, counts AS c");
	/* ClickHouse reads each column of an ARRAY JOIN, also if the statement has no use for it */
	if (store_ch_wants_cpu(w, sel))
		text(w, w->calls ? ", arrayResize(call_cpus, length(call_stacks), -1) AS cpu"
				 : ", arrayResize(cpus, length(stacks), -1) AS cpu");
	put_where(w, sel, which);
}
