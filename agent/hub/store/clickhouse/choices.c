/* SPDX-License-Identifier: Apache-2.0 */
/* The values that tags have, with their samples; namespaces; pods; the oldest data. */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

/* ---- choices ---- */

/* " ... AS value" of a window or a sample, and which rows have it */
static void put_choice(struct ch_where *w, const struct store_choice *c, bool samples)
{
	const char *n = samples ? "c" : "n";
	bool events = streq(c->tag, "profile_event_type"), labels = streq(c->tag, POD_LABEL);
	bool of_stack = samples && store_ch_is_sample_tag(c->tag) &&
			!store_is_tag_of_calls(c->tag) && !streq(c->tag, "cpu") &&
			!streq(c->tag, "time");

	text(w, "SELECT value, " CH_SUM("weight") " AS sum_n FROM (SELECT ");
	if (events)
		text(w, "toString(profile_event_type)");
	else if (labels)
		text(w, "substring(label, length('" POD_LABEL "')+1)");
	else if (of_stack)
		text(w, "stack");
	else {
		text(w, "toString(");
		store_ch_tag(w, c->tag);
		text(w, ")");
	}
	text(w, of_stack ? " AS id, " : " AS value, ");
	text(w, n);
	text(w, " AS weight");
	if (labels)
		text(w, ", arrayJoin(arrayFilter(x -> startsWith(x, '" POD_LABEL
			"'), tag_names)) AS label");
	if (samples)
		store_ch_samples(w, c->sel, events);
	else
		store_ch_windows(w, c->sel, events);
	store_ch_selection(w, c->sel);
	if (!events && !labels && !of_stack) {
		text(w, " AND ");
		store_ch_has(w, c->tag);
	}
	text(w, ")");
	if (of_stack) {
		/* the sums of stacks first, then the tag of each */
		text(w, " AS sums INNER JOIN (SELECT DISTINCT id, ");
		store_ch_tag(w, c->tag);
		text(w, " AS value FROM stacks WHERE ");
		store_ch_has(w, c->tag);
		text(w, ") AS names USING (id)");
	}
	text(w, " GROUP BY value HAVING sum_n>0 ORDER BY sum_n DESC, value LIMIT ");
	store_ch_int(&w->sql, (int64_t)MIN(c->limit, (size_t)INT32_MAX));
}

static bool needs_samples(const struct store_choice *c)
{
	return store_ch_is_sample_tag(c->tag) || store_ch_wants_samples(c->sel);
}

static int ask_choice(struct ch_store *s, const struct store_choice *c, const struct ch_limits *l,
		      store_choice_fn *fn, void *arg, struct field_error *reterr)
{
	struct ch_where w = {.event = c->sel->event,
			     .calls =
				     store_is_tag_of_calls(c->tag) || store_ch_wants_calls(c->sel)};
	struct http_answer a = {0};
	struct ch_rows rows;
	int e;

	put_choice(&w, c, needs_samples(c));
	e = store_ch_ask(s, &w.sql, l, &a, &rows, reterr);
	while (!e && store_ch_more(&rows)) {
		_cleanup_free_ char *value = store_ch_get_str(&rows);
		uint64_t n = store_ch_get_u64(&rows);

		if (!rows.failed)
			e = fn(c, value, n, arg);
	}
	http_answer_done(&a);
	store_ch_sql_done(&w.sql);
	return e;
}

static int read_choice(struct ch_store *s, const struct store_choice *c, const struct ch_limits *l,
		       store_choice_fn *fn, void *arg, struct field_error *reterr)
{
	struct selection matched = *c->sel;
	const struct store_choice choice = {c->tag, &matched, c->limit};
	int e = store_ch_where_match(s, c->sel, l, &matched.where, reterr);

	/* fn gets the caller's choice */
	if (!e)
		e = ask_choice(s, &choice, l, fn, arg, reterr);
	store_predicate_free(matched.where);
	return e;
}

int store_ch_choices(void *sink, const struct store_choice *choices, size_t n, store_choice_fn *fn,
		     void *arg, struct field_error *reterr)
{
	const struct ch_limits l = store_ch_limits(choices[0].sel);
	int e = 0;

	for (size_t i = 0; !e && i < n; i++)
		e = store_ch_error(read_choice(sink, &choices[i], &l, fn, arg, reterr),
				   choices[i].sel, reterr);
	return e;
}

/* ---- what the store has ---- */

/* "CLUSTER:" of another cluster, or "" */
static void put_cluster(struct ch_where *w, const struct ch_store *s)
{
	text(w, "if(pod_cluster IN (''");
	for (size_t i = 0; i < s->n_clusters; i++) {
		text(w, ",");
		store_ch_str(&w->sql, s->clusters[i]);
	}
	text(w, ") AND pod_cluster!='', concat(toString(pod_cluster), ':'), '')");
}

int store_ch_namespaces(void *sink, const atomic_bool *given_up, store_namespace_fn *fn, void *arg,
			struct field_error *reterr)
{
	const struct selection any = {.scope = &store_scope_all, .given_up = given_up};
	const struct ch_limits l = store_ch_limits(&any);
	struct ch_where w = {0};
	struct http_answer a = {0};
	struct ch_rows rows;
	int e;

	text(&w, "SELECT DISTINCT concat(");
	put_cluster(&w, sink);
	text(&w, ", toString(pod_ns)) AS place FROM windows WHERE pod_ns!='' AND unverified='' "
		 "ORDER BY place");
	e = store_ch_ask(sink, &w.sql, &l, &a, &rows, reterr);
	while (!e && store_ch_more(&rows)) {
		_cleanup_free_ char *place = store_ch_get_str(&rows);

		fn(place, arg);
	}
	http_answer_done(&a);
	store_ch_sql_done(&w.sql);
	return store_ch_error(e, &any, reterr);
}

int store_ch_oldest(void *sink, const struct selection *sel, store_oldest_fn *fn, void *arg,
		    struct field_error *reterr)
{
	const struct ch_limits l = store_ch_limits(sel);
	struct ch_where w = {0};
	struct http_answer a = {0};
	struct ch_rows rows;
	int e;

	text(&w, "SELECT ");
	put_cluster(&w, sink);
	text(&w, " AS other, if(unverified!='', '', toString(pod_ns)) AS ns, "
		 "toUInt8(unverified!='') AS of_unverified, toUInt32(min(start)) "
		 "FROM windows WHERE 1");
	store_ch_scope(&w, sel);
	text(&w, " GROUP BY other, ns, of_unverified ORDER BY other, ns, of_unverified");
	e = store_ch_ask(sink, &w.sql, &l, &a, &rows, reterr);
	while (!e && store_ch_more(&rows)) {
		_cleanup_free_ char *other = store_ch_get_str(&rows), *ns = store_ch_get_str(&rows);
		struct store_cut of = {.ns = *ns ? ns : NULL};
		int64_t oldest_s;

		of.unverified = store_ch_get_u8(&rows);
		oldest_s = store_ch_get_u32(&rows);
		if (*other) {
			other[strlen(other) - 1] = '\0';
			of.cluster = other;
		}
		if (!rows.failed)
			fn(&of, oldest_s, arg);
	}
	http_answer_done(&a);
	store_ch_sql_done(&w.sql);
	return store_ch_error(e, sel, reterr);
}

int store_ch_pods(void *sink, int64_t since_s, store_pod_fn *fn, void *arg,
		  struct field_error *reterr)
{
	const struct selection any = {.scope = &store_scope_all};
	const struct ch_limits l = store_ch_limits(&any);
	struct ch_where w = {0};
	struct http_answer a = {0};
	struct ch_rows rows;
	int e;

	text(&w, "SELECT DISTINCT toString(pod_cluster), toString(pod_ns), toString(pod), "
		 "toString(pod_uid), toString(pod_node) FROM windows WHERE time>=toDateTime(");
	store_ch_int(&w.sql, MIN(MAX(since_s, 0), (int64_t)UINT32_MAX));
	text(&w, ") AND pod_ns!='' AND pod!='' AND pod_uid!='' AND pod_node!='' AND "
		 "unverified=''");
	e = store_ch_ask(sink, &w.sql, &l, &a, &rows, reterr);
	while (!e && store_ch_more(&rows)) {
		_cleanup_free_ char *cluster = store_ch_get_str(&rows),
				    *ns = store_ch_get_str(&rows), *pod = store_ch_get_str(&rows),
				    *uid = store_ch_get_str(&rows), *node = store_ch_get_str(&rows);

		if (!rows.failed)
			fn(&(struct store_pod){*cluster ? cluster : NULL, ns, pod, uid, node}, arg);
	}
	http_answer_done(&a);
	store_ch_sql_done(&w.sql);
	return store_ch_error(e, &any, reterr);
}
