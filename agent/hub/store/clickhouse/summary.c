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
#define IS_WINDOW "NOT (app_service='' AND " OF_NODE ")"
#define CONTAINER "(pod_cluster, pod_node, pod_ns, container_id)"

static int ask(struct ch_store *s, struct ch_where *w, const struct ch_limits *l,
	       struct http_answer *a, struct ch_rows *rows, struct field_error *reterr)
{
	return store_ch_ask(s, &w->sql, l, a, rows, reterr);
}

static void done(struct ch_where *w, struct http_answer *a)
{
	http_answer_done(a);
	store_ch_sql_done(&w->sql);
}

static int read_windows(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
			struct store_summary *ret, struct field_error *reterr)
{
	struct ch_where w = {.event = sel->event, .windows_only = true};
	struct http_answer a = {0};
	struct ch_rows rows;
	double error;
	int e;

	text(&w, "SELECT countIf(" IS_WINDOW "), countIf(unverified!=''), "
		 "minIf(estimate_ppm, estimate_ppm!=0), "
		 "sqrt(sumIf(toFloat64(estimate_error)*estimate_error, estimate_ppm!=0))");
	store_ch_windows(&w, sel, false);
	store_ch_selection(&w, sel);
	e = ask(s, &w, l, &a, &rows, reterr);
	if (!e) {
		ret->n_profiles = store_ch_get_u64(&rows);
		ret->n_unverified = store_ch_get_u64(&rows);
		ret->estimate_ppm = store_ch_get_u32(&rows);
		error = store_ch_get_double(&rows);
		ret->estimate_error = (uint64_t)MIN(error, (double)CH_MAX_VALUE);
	}
	done(&w, &a);
	return e;
}

/* The windows that overlap the selection's time, of any event: whose containers or nodes it has. */
static void put_selected(struct ch_where *w, const struct selection *sel)
{
	text(w, " FROM windows FINAL WHERE ");
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
	text(w, " FROM windows FINAL ARRAY JOIN loss_reasons AS reason, loss_counts AS lost, "
		"loss_times AS lost_ns WHERE profile_event_type='");
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

static int read_losses(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
		       struct store_summary *ret, struct field_error *reterr)
{
	struct ch_where w = {.event = sel->event, .windows_only = true};
	struct http_answer a = {0};
	struct ch_rows rows;
	size_t cap = 0;
	int e;

	text(&w, "SELECT toString(reason) AS why, toUInt8(" OF_NODE ") AS of_node, toUInt8(of_node "
		 "AND NOT ");
	store_ch_sees_cluster(&w, sel);
	text(&w, ") AS hidden, if(hidden, 0, " CH_SUM("lost") ") AS n_lost, "
							      "if(hidden, 0, " CH_SUM(
								      "lost_ns") ") AS ns_lost");
	store_ch_losses(&w, sel);
	text(&w, " GROUP BY why, of_node, hidden "
		 "ORDER BY hidden, n_lost DESC, ns_lost DESC, of_node, why");
	e = ask(s, &w, l, &a, &rows, reterr);
	while (!e && store_ch_more(&rows)) {
		struct store_loss x = {.reason = store_ch_get_str(&rows)};

		x.of_node = store_ch_get_u8(&rows);
		x.hidden = store_ch_get_u8(&rows);
		x.n_samples = store_ch_get_u64(&rows);
		x.time_ns = store_ch_get_u64(&rows);
		GROW(ret->losses, ret->n_losses, cap);
		ret->losses[ret->n_losses++] = x;
	}
	done(&w, &a);
	return e;
}

/* The throttled time is a value of a whole container. */
static int read_throttled(struct ch_store *s, const struct selection *sel,
			  const struct ch_limits *l, struct store_summary *ret,
			  struct field_error *reterr)
{
	struct ch_where w = {.event = sel->event, .windows_only = true};
	struct selection any = *sel;
	struct http_answer a = {0};
	struct ch_rows rows;
	int e;

	if (sel->event != EVENT_OFF_CPU)
		return 0;
	any.with_total = true;
	text(&w, "SELECT " CH_SUM("value"));
	store_ch_windows(&w, sel, false);
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
	e = ask(s, &w, l, &a, &rows, reterr);
	if (!e)
		ret->throttled_us = store_ch_get_u64(&rows);
	done(&w, &a);
	return e;
}

int store_ch_summary(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
		     struct store_summary *ret, struct field_error *reterr)
{
	int e = read_windows(s, sel, l, ret, reterr);

	if (!e)
		e = read_losses(s, sel, l, ret, reterr);
	return e ? e : read_throttled(s, sel, l, ret, reterr);
}
