/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reader must know besides the stacks: how many windows the answer uses, what was lost, how
 * exact estimates are, and how long CPU limits kept containers from running.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <math.h>
#include <stdlib.h>

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

/* the loss of some process of a node: the agent does not know which */
#define OF_NODE "(process_id=0 AND pod_ns='')"
/* a loss of a whole node is stored as a profile for each event; it is no window */
#define IS_WINDOW   "NOT (app_service='' AND " OF_NODE ")"
#define REASONS_MAX 1000 /* reasons in one answer */
#define CONTAINER   "(pod_cluster, pod_node, pod_ns, container_id)"

static int take_windows(struct ch_rows *rows, void *arg)
{
	struct store_summary *s = arg;
	int64_t first_s, last_s;
	double error;

	s->n_profiles = store_ch_get_u64(rows);
	s->n_processes = store_ch_get_u64(rows);
	s->n_unverified = store_ch_get_u64(rows);
	s->estimate_ppm = store_ch_get_u32(rows);
	error = store_ch_get_double(rows);
	s->estimate_error = error > 0 ? (uint64_t)MIN(error, (double)CH_MAX_VALUE) : 0;
	first_s = store_ch_get_u32(rows);
	last_s = store_ch_get_u32(rows);
	if (last_s) {
		s->first_s = first_s;
		s->last_s = last_s;
	}
	return 0;
}

static int read_windows(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
			struct store_summary *ret, struct field_error *reterr)
{
	struct ch_where w = {.event = sel->event, .windows_only = true};

	text(&w, "SELECT countIf(" IS_WINDOW "), uniqExactIf((process_id, process_start_ms, ");
	store_ch_node(&w);
	text(&w, ", unverified), process_id!=0), countIf(unverified!=''), "
		 "minIf(estimate_ppm, estimate_ppm!=0), "
		 "sqrt(sumIf(toFloat64(estimate_error)*estimate_error, estimate_ppm!=0))");
	/* else read.c has the times, of the samples. size0: the length, without the array */
	text(&w, store_ch_wants_whole_windows(sel) ? ", toUInt32(minIf(time, stacks.size0>0)), "
						     "toUInt32(maxIf(time, stacks.size0>0))"
						   : ", toUInt32(0), toUInt32(0)");
	store_ch_windows(&w, sel, CH_NEWEST);
	store_ch_selection(&w, sel);
	return store_ch_each(s, &w.sql, l, 1, take_windows, ret, reterr);
}

/*
 * The windows that overlap the selection's time, of any event: whose containers or nodes it has.
 * For a set, so one that is there twice does no harm.
 */
static void put_selected(struct ch_where *w, const struct selection *sel)
{
	text(w, " FROM windows WHERE ");
	store_ch_overlap(w, sel);
	store_ch_selection(w, sel);
}

static void of_its_containers(struct ch_where *w, const struct selection *sel)
{
	text(w, "(container_id!='' AND " CONTAINER " IN (SELECT " CONTAINER);
	put_selected(w, sel);
	text(w, " AND container_id!=''))");
}

void store_ch_losses(struct ch_where *w, const struct selection *sel)
{
	/* few have losses; one that is there twice says the same, so PREWHERE may choose */
	text(w, " FROM windows FINAL ARRAY JOIN loss_reasons AS reason, loss_counts AS lost, "
		"loss_times AS lost_ns PREWHERE notEmpty(loss_reasons) WHERE profile_event_type='");
	text(w, profile_event_info(sel->event)->name);
	text(w, "' AND ");
	store_ch_overlap(w, sel);
	text(w, " AND ((1");
	store_ch_selection(w, sel);
	/* of a container: it counts for each process of it */
	text(w, ") OR (process_id=0");
	store_ch_scope(w, sel);
	text(w, " AND ");
	of_its_containers(w, sel);
	/* of a node: it counts for all containers of it */
	text(w, ") OR (" OF_NODE " AND ");
	store_ch_node(w);
	text(w, " IN (SELECT ");
	store_ch_node(w);
	put_selected(w, sel);
	text(w, ")))");
}

enum { IS_LOST = 1, IS_CUT };

static int take_missing(struct ch_rows *rows, void *arg)
{
	struct ch_missing *m = arg;
	uint8_t what = store_ch_get_u8(rows);

	m->lost |= what == IS_LOST;
	m->cut |= what == IS_CUT;
	return 0;
}

static void put_missing(struct ch_where *w, int what)
{
	text(w, "SELECT toUInt8(");
	store_ch_int(&w->sql, what);
	text(w, ") AS missing FROM ");
}

int store_ch_any_missing(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
			 struct ch_missing *ret, struct field_error *reterr)
{
	struct ch_where w = {.event = sel->event};

	*ret = (struct ch_missing){0};
	put_missing(&w, IS_LOST);
	text(&w, "windows PREWHERE notEmpty(loss_reasons) WHERE profile_event_type='");
	text(&w, profile_event_info(sel->event)->name);
	text(&w, "' AND ");
	store_ch_overlap(&w, sel);
	text(&w, " LIMIT 1 UNION ALL ");
	put_missing(&w, IS_CUT);
	text(&w, "cuts WHERE ");
	store_ch_cut_after(&w, sel, "until");
	text(&w, " LIMIT 1");
	return store_ch_each(s, &w.sql, l, 2, take_missing, ret, reterr);
}

static int take_loss(struct ch_rows *rows, void *arg)
{
	struct store_summary *s = arg;
	struct store_loss x = {.reason = store_ch_get_str(rows)};

	x.of_node = store_ch_get_u8(rows);
	x.hidden = store_ch_get_u8(rows);
	x.n_samples = store_ch_get_u64(rows);
	x.time_ns = store_ch_get_u64(rows);
	s->losses[s->n_losses++] = x;
	return 0;
}

static int read_losses(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
		       struct store_summary *ret, struct field_error *reterr)
{
	struct ch_where w = {.event = sel->event, .windows_only = true};

	ret->losses = xcalloc(REASONS_MAX, sizeof(*ret->losses));
	text(&w, "SELECT toString(reason) AS why, toUInt8(" OF_NODE ") AS of_node, toUInt8(of_node "
		 "AND NOT ");
	store_ch_sees_cluster(&w, sel);
	text(&w, ") AS hidden, if(hidden, 0, " CH_SUM("lost") ") AS n_lost, if(hidden, 0, " CH_SUM(
			 "lost_ns") ") AS ns_lost");
	store_ch_losses(&w, sel);
	text(&w, " GROUP BY why, of_node, hidden "
		 "ORDER BY hidden, n_lost DESC, ns_lost DESC, of_node, why LIMIT ");
	store_ch_int(&w.sql, REASONS_MAX);
	return store_ch_each(s, &w.sql, l, REASONS_MAX, take_loss, ret, reterr);
}

static int take_throttled(struct ch_rows *rows, void *arg)
{
	struct store_summary *s = arg;

	s->throttled_us = store_ch_get_u64(rows);
	return 0;
}

/* The throttled time is a value of a whole container. */
static int read_throttled(struct ch_store *s, const struct selection *sel,
			  const struct ch_limits *l, struct store_summary *ret,
			  struct field_error *reterr)
{
	struct ch_where w = {.event = sel->event, .windows_only = true};
	struct selection any = *sel;

	if (sel->event != EVENT_OFF_CPU)
		return 0;
	any.with_total = true;
	text(&w, "SELECT " CH_SUM("value"));
	store_ch_windows(&w, sel, CH_NEWEST);
	text(&w, " AND process_id=0 AND app_service='Throttled'");
	store_ch_scope(&w, sel);
	text(&w, " AND (");
	of_its_containers(&w, sel);
	if (!sel->n_app_services) {
		text(&w, " OR (1");
		store_ch_selection(&w, &any);
		text(&w, ")");
	}
	text(&w, ")");
	return store_ch_each(s, &w.sql, l, 1, take_throttled, ret, reterr);
}

int store_ch_summary(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
		     struct store_summary *ret, struct field_error *reterr)
{
	struct ch_missing any = {0};
	int e = read_windows(s, sel, l, ret, reterr);

	if (!e)
		e = store_ch_any_missing(s, sel, l, &any, reterr);
	if (!e && any.lost)
		e = read_losses(s, sel, l, ret, reterr);
	if (!e && any.cut)
		e = store_ch_cuts(s, sel, l, ret, reterr);
	return e ? e : read_throttled(s, sel, l, ret, reterr);
}
