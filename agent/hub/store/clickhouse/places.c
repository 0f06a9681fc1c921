/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose data the store has: namespaces, their oldest data, what of them was deleted because the
 * store was full; pods. shares.h says what a place is.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

#define PLACES_MAX 1000000 /* in one answer of ClickHouse */
#define PODS_MAX   1000000 /* the same for pods */

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

/* ---- places ---- */

struct store_cut store_ch_get_place(struct ch_rows *rows)
{
	_cleanup_free_ char *other = store_ch_get_str(rows), *ns = store_ch_get_str(rows);

	return (struct store_cut){
		.cluster = *other ? TAKE_PTR(other) : NULL,
		.ns = *ns ? TAKE_PTR(ns) : NULL,
		.unverified = store_ch_get_u8(rows),
	};
}

void store_ch_place_done(struct store_cut *of)
{
	free(of->cluster);
	free(of->ns);
}

void store_ch_of_place(struct ch_where *w, const struct store_cut *of)
{
	text(w, "(");
	if (of->cluster) {
		text(w, "pod_cluster=");
		store_ch_str(&w->sql, of->cluster);
	} else {
		text(w, "NOT " CH_IS_OTHER);
	}
	if (of->unverified) {
		text(w, " AND unverified!='')");
		return;
	}
	text(w, " AND unverified='' AND pod_ns=");
	store_ch_str(&w->sql, of->ns ?: "");
	text(w, ")");
}

/* ---- what the store has ---- */

struct of_namespaces {
	store_namespace_fn *fn;
	void *arg;
};

static int take_namespace(struct ch_rows *rows, void *arg)
{
	const struct of_namespaces *o = arg;
	_cleanup_free_ char *place = store_ch_get_str(rows);

	if (!rows->failed)
		o->fn(place, o->arg);
	return 0;
}

int store_ch_namespaces(void *sink, const atomic_bool *given_up, store_namespace_fn *fn, void *arg,
			struct field_error *reterr)
{
	const struct selection any = {.scope = &store_scope_all, .given_up = given_up};
	const struct ch_limits l = store_ch_limits(&any);
	struct of_namespaces o = {fn, arg};
	struct ch_where w = {0};

	text(&w, "SELECT DISTINCT if(" CH_IS_OTHER
		 ", concat(toString(pod_cluster), ':'), '') || toString(pod_ns) AS place "
		 "FROM windows WHERE pod_ns!='' AND unverified='' ORDER BY place");
	return store_ch_error(
		store_ch_each(sink, &w.sql, &l, PLACES_MAX, take_namespace, &o, reterr), &any,
		reterr);
}

struct of_oldest {
	store_oldest_fn *fn;
	void *arg;
};

static int take_oldest(struct ch_rows *rows, void *arg)
{
	const struct of_oldest *o = arg;
	struct store_cut of = store_ch_get_place(rows);
	int64_t oldest_s = store_ch_get_u32(rows), newest_s = store_ch_get_u32(rows);

	of.until_s = store_ch_get_u32(rows);
	if (!rows->failed)
		o->fn(&of, oldest_s, newest_s, o->arg);
	store_ch_place_done(&of);
	return 0;
}

int store_ch_oldest(void *sink, const struct selection *sel, store_oldest_fn *fn, void *arg,
		    struct field_error *reterr)
{
	const struct ch_limits l = store_ch_limits(sel);
	struct of_oldest o = {fn, arg};
	struct ch_where w = {0};

	text(&w, "SELECT other, ns, of_unverified, oldest, newest, toUInt32(until_s) FROM "
		 "(SELECT " CH_PLACE_COLUMNS ", toUInt32(min(start)) AS oldest, "
		 "toUInt32(max(time)) AS newest FROM windows WHERE 1");
	store_ch_scope(&w, sel);
	text(&w,
	     " GROUP BY other, ns, of_unverified) AS has ANY LEFT JOIN (SELECT " CH_PLACE_COLUMNS
	     ", max(until) AS until_s FROM cuts GROUP BY other, ns, of_unverified) AS cut "
	     "USING (other, ns, of_unverified) ORDER BY other, ns, of_unverified");
	return store_ch_error(store_ch_each(sink, &w.sql, &l, PLACES_MAX, take_oldest, &o, reterr),
			      sel, reterr);
}

static int take_cut(struct ch_rows *rows, void *arg)
{
	struct store_summary *s = arg;
	struct store_cut of = store_ch_get_place(rows);

	of.until_s = store_ch_get_u32(rows);
	s->cuts[s->n_cuts++] = of;
	return 0;
}

void store_ch_cut_after(struct ch_where *w, const struct selection *sel, const char *until)
{
	text(w, until);
	text(w, ">=");
	store_ch_int(&w->sql, MAX(sel->time_start_s, 1));
}

int store_ch_cuts(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
		  struct store_summary *ret, struct field_error *reterr)
{
	struct ch_where w = {0};

	ret->cuts = xcalloc(STORE_MAX_CUTS, sizeof(*ret->cuts));
	text(&w, "SELECT " CH_PLACE_COLUMNS ", max(until) AS until_s FROM cuts WHERE 1");
	store_ch_scope(&w, sel);
	text(&w, " GROUP BY other, ns, of_unverified HAVING ");
	store_ch_cut_after(&w, sel, "until_s");
	text(&w, " ORDER BY until_s DESC, other, ns, of_unverified LIMIT ");
	store_ch_int(&w.sql, STORE_MAX_CUTS);
	return store_ch_each(s, &w.sql, l, STORE_MAX_CUTS, take_cut, ret, reterr);
}

/* ---- pods ---- */

struct of_pods {
	store_pod_fn *fn;
	void *arg;
};

static int take_pod(struct ch_rows *rows, void *arg)
{
	const struct of_pods *o = arg;
	_cleanup_free_ char *cluster = store_ch_get_str(rows), *ns = store_ch_get_str(rows),
			    *pod = store_ch_get_str(rows), *uid = store_ch_get_str(rows),
			    *node = store_ch_get_str(rows);

	if (!rows->failed)
		o->fn(&(struct store_pod){*cluster ? cluster : NULL, ns, pod, uid, node}, o->arg);
	return 0;
}

int store_ch_pods(void *sink, int64_t since_s, store_pod_fn *fn, void *arg,
		  struct field_error *reterr)
{
	const struct selection any = {.scope = &store_scope_all};
	const struct ch_limits l = store_ch_limits(&any);
	struct of_pods o = {fn, arg};
	struct ch_where w = {0};

	text(&w, "SELECT DISTINCT toString(pod_cluster), toString(pod_ns), toString(pod), "
		 "toString(pod_uid), toString(pod_node) FROM windows WHERE time>=toDateTime(");
	store_ch_int(&w.sql, MIN(MAX(since_s, 0), (int64_t)UINT32_MAX));
	text(&w, ") AND pod_ns!='' AND pod!='' AND pod_uid!='' AND pod_node!='' AND "
		 "unverified='' LIMIT ");
	store_ch_int(&w.sql, PODS_MAX + 1);
	return store_ch_error(store_ch_each(sink, &w.sql, &l, PODS_MAX, take_pod, &o, reterr), &any,
			      reterr);
}
