/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A selection as SQL. The SQL is put together from constants of this file only; everything that a
 * user wrote is a parameter. A comparison with a tag that a row lacks is false, and its negation
 * true, as in the other sinks.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

static void str(struct ch_where *w, const char *value)
{
	store_ch_str(&w->sql, value);
}

/* ---- tags ---- */

/*
 * sql: of a window, a sample, or (of_stack) a row of `stacks`. has: NULL: each row has the tag. ""
 * as value: the row lacks it.
 */
struct tag_sql {
	const char *tag, *sql, *has;
	bool number, of_sample, of_stack, of_call;
};
static const struct tag_sql table[] = {
	{"app_service", "app_service", NULL, false, false, false, false},
	{"process_id", "process_id", NULL, true, false, false, false},
	{"process_start_time", "process_start_ms", NULL, true, false, false, false},
	{STORE_TAG_PROCESS, "(" CH_PROCESS ", " CH_ITS_TAGS ")", NULL, false, false, false, false},
	{"time", "toUnixTimestamp(time)", NULL, true, true, false, false},
	{"cpu", "cpu", "cpu>=0", true, true, false, false},
	{"trace_id", "lower(hex(trace))", NULL, false, true, false, true},
	{"profile_id", "lower(hex(span))", NULL, false, true, false, true},
	{"thread", "thread", "thread!=''", false, true, true, false},
	{"wait", "", "wait!=0", false, true, true, false},
	{"sample_id", "leftPad(lower(hex(id)),16,'0')", NULL, false, true, true, false},
	{"pod_cluster", "pod_cluster", "pod_cluster!=''", false, false, false, false},
	{"pod_ns", "pod_ns", "pod_ns!=''", false, false, false, false},
	{"pod_node", "pod_node", "pod_node!=''", false, false, false, false},
	{"pod_group", "pod_group", "pod_group!=''", false, false, false, false},
	{"pod_group_type", "pod_group_type", "pod_group_type!=''", false, false, false, false},
	{"pod", "pod", "pod!=''", false, false, false, false},
	{"pod_uid", "pod_uid", "pod_uid!=''", false, false, false, false},
	{"container", "container", "container!=''", false, false, false, false},
	{"container_id", "container_id", "container_id!=''", false, false, false, false},
	{"image", "image", "image!=''", false, false, false, false},
	{TAG_UNVERIFIED, "unverified", "unverified!=''", false, false, false, false},
};

static const struct tag_sql *known(const char *tag)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (streq(table[i].tag, tag))
			return &table[i];
	return NULL;
}

static bool is_label(const char *tag)
{
	return profile_label_of_tag(tag) != _LABEL_MAX;
}

static bool is_of_stack(const char *tag)
{
	const struct tag_sql *t = known(tag);

	return t ? t->of_stack : is_label(tag);
}

bool store_ch_is_sample_tag(const char *tag)
{
	const struct tag_sql *t = known(tag);

	return t ? t->of_sample : is_label(tag);
}

static const char *constant(const struct ch_where *w, const char *tag)
{
	if (streq(tag, "profile_event_type"))
		return profile_event_info(w->event)->name;
	if (streq(tag, "profile_value_unit"))
		return profile_event_info(w->event)->unit;
	/* of what programs push it is a tag */
	return streq(tag, "profile_language_type") && profile_event_info(w->event)->spec_field
		       ? "eBPF"
		       : NULL;
}

/* An array of names, to look one up by its number. */
static void wait_name(struct ch_where *w)
{
	text(w, "[");
	for (int i = 0; i < _WAIT_MAX; i++) {
		text(w, i ? ",'" : "'");
		text(w, profile_wait_name((enum wait)i));
		text(w, "'");
	}
	text(w, "][wait+1]");
}

/* The value as JSON, or what follows it if a row lacks the tag. */
static void put_joined(struct ch_where *w, const char *tag)
{
	text(w, "if(");
	store_ch_has(w, tag);
	text(w, ", toJSONString(toString(");
	store_ch_tag(w, tag);
	text(w, ")), ");
}

/* A list of JSON without brackets. */
static void put_joint(struct ch_where *w, const char *tag)
{
	struct store_joined items[STORE_MAX_JOINED];
	_cleanup_free_ char *names = NULL;
	size_t n = store_joined(tag, items, &names);

	text(w, "concat(''");
	for (size_t i = 0; i < n; i++) {
		text(w, i ? ", ',', " : ", ");
		put_joined(w, items[i].tag);
		if (items[i].otherwise)
			put_joined(w, items[i].otherwise);
		text(w, items[i].otherwise ? "'null'))" : "'null')");
	}
	text(w, ")");
}

void store_ch_tag(struct ch_where *w, const char *tag)
{
	const struct tag_sql *t = known(tag);

	if (store_is_joint(tag)) {
		put_joint(w, tag);
		return;
	}
	w->cpu |= streq(tag, "cpu");
	if (constant(w, tag)) {
		str(w, constant(w, tag));
	} else if (t && t->of_call && !w->calls) {
		text(w, "''");
	} else if (streq(tag, "wait")) {
		wait_name(w);
	} else if (t) {
		text(w, t->sql);
	} else {
		text(w, is_label(tag) ? "label_values[indexOf(label_names,"
				      : "tag_values[indexOf(tag_names,");
		str(w, tag);
		text(w, ")]");
	}
}

void store_ch_has(struct ch_where *w, const char *tag)
{
	const struct tag_sql *t = known(tag);

	if (store_is_joint(tag) || constant(w, tag)) {
		text(w, "1");
	} else if (t && t->of_call && !w->calls) {
		text(w, "0");
	} else if (t) {
		text(w, t->has ?: "1");
	} else {
		text(w, is_label(tag) ? "has(label_names," : "has(tag_names,");
		str(w, tag);
		text(w, ")");
	}
}

/* ---- conditions ---- */

static bool has_tag(const struct predicate *p, bool (*is)(const char *tag))
{
	bool has = p->tag && is(p->tag);

	for (size_t i = 0; i < p->n_children && !has; i++)
		has = has_tag(p->children[i], is);
	return has;
}

bool store_ch_wants_calls(const struct selection *sel)
{
	return (sel->group_by && store_is_tag_of_calls(sel->group_by)) ||
	       (sel->where && has_tag(sel->where, store_is_tag_of_calls));
}

bool store_ch_wants_samples(const struct selection *sel)
{
	return sel->where && has_tag(sel->where, store_ch_is_sample_tag);
}

static bool is_cpu(const char *tag)
{
	return streq(tag, "cpu");
}

bool store_ch_wants_cpu(const struct ch_where *w, const struct selection *sel)
{
	return w->cpu || (sel->where && has_tag(sel->where, is_cpu));
}

bool store_ch_wants_whole_windows(const struct selection *sel)
{
	return !store_ch_wants_samples(sel) && !store_ch_wants_calls(sel);
}

static void put_value(struct ch_where *w, const struct predicate *p, size_t i)
{
	if (p->numeric)
		store_ch_int(&w->sql, strtoll(p->values[i], NULL, 10));
	else
		str(w, p->values[i]);
}

static void put_tag(struct ch_where *w, const struct predicate *p)
{
	const struct tag_sql *t = known(p->tag);
	bool as_number = p->numeric && !(t && t->number);
	bool as_text = !p->numeric && t && t->number;

	text(w, as_number ? "toInt64OrZero(" : as_text ? "toString(" : "");
	store_ch_tag(w, p->tag);
	text(w, as_number || as_text ? ")" : "");
}

/* Adds whether the row has the tag, and its value is one of those of p. */
static void put_compare(struct ch_where *w, const struct predicate *p, const char *op)
{
	if (!p->n_values) { /* no value matched a pattern */
		text(w, "0");
		return;
	}
	text(w, "(");
	store_ch_has(w, p->tag);
	text(w, " AND ");
	put_tag(w, p);
	text(w, op);
	if ((p->op == PRED_IN || p->op == PRED_NOT_IN) && !p->numeric) {
		store_ch_strs(&w->sql, (const char *const *)p->values, p->n_values);
		text(w, ")");
		return;
	}
	if (p->op == PRED_IN || p->op == PRED_NOT_IN) {
		text(w, "(");
		for (size_t i = 0; i < p->n_values; i++) {
			text(w, i ? "," : "");
			put_value(w, p, i);
		}
		text(w, "))");
		return;
	}
	put_value(w, p, 0);
	text(w, ")");
}

static void put_condition(struct ch_where *w, const struct predicate *p)
{
	switch (p->op) {
	case PRED_EQ:
		return put_compare(w, p, "=");
	case PRED_NE:
		text(w, "NOT ");
		return put_compare(w, p, "=");
	case PRED_LT:
		return put_compare(w, p, "<");
	case PRED_GT:
		return put_compare(w, p, ">");
	case PRED_LE:
		return put_compare(w, p, "<=");
	case PRED_GE:
		return put_compare(w, p, ">=");
	case PRED_IN:
		return put_compare(w, p, " IN ");
	case PRED_NOT_IN:
		text(w, "NOT ");
		return put_compare(w, p, " IN ");
	case PRED_IS_NULL:
		text(w, "NOT (");
		store_ch_has(w, p->tag);
		return text(w, ")");
	case PRED_NOT_NULL:
		text(w, "(");
		store_ch_has(w, p->tag);
		return text(w, ")");
	default:
		return text(w, p->op == PRED_TRUE ? "1" : "0");
	}
}

static void put_leaf(struct ch_where *w, const struct predicate *p)
{
	bool of_stack = p->tag && is_of_stack(p->tag) && !constant(w, p->tag);

	if (p->tag && w->windows_only && store_ch_is_sample_tag(p->tag)) {
		text(w, "NULL");
		return;
	}
	if (of_stack)
		text(w, "stack IN (SELECT id FROM stacks WHERE ");
	put_condition(w, p);
	if (of_stack)
		text(w, ")");
}

static void put_predicate(struct ch_where *w, const struct predicate *p)
{
	if (p->op == PRED_NOT) {
		text(w, "NOT (");
		put_predicate(w, p->children[0]);
		text(w, ")");
		return;
	}
	if (p->op != PRED_AND && p->op != PRED_OR) {
		put_leaf(w, p);
		return;
	}
	text(w, "(");
	for (size_t i = 0; i < p->n_children; i++) {
		text(w, !i ? "" : p->op == PRED_AND ? " AND " : " OR ");
		put_predicate(w, p->children[i]);
	}
	text(w, p->n_children ? ")" : p->op == PRED_AND ? "1)" : "0)");
}

/*
 * Of windows: what is neither true nor false counts as true. Conditions on windows alone stay as
 * they are, so that the key of the table finds their rows.
 */
static void put_of_windows(struct ch_where *w, const struct predicate *p)
{
	if (!has_tag(p, store_ch_is_sample_tag)) {
		put_predicate(w, p);
		return;
	}
	if (p->op != PRED_AND) {
		text(w, "ifNull(");
		put_predicate(w, p);
		text(w, ",1)");
		return;
	}
	text(w, "(");
	for (size_t i = 0; i < p->n_children; i++) {
		text(w, i ? " AND " : "");
		put_of_windows(w, p->children[i]);
	}
	text(w, ")");
}

void store_ch_selection(struct ch_where *w, const struct selection *sel)
{
	/* Total and Throttled have no process. But a process may have one of these names, too. */
	static const char total[] = "app_service IN ('Total', 'Throttled'))";

	if (sel->n_app_services) {
		text(w, " AND app_service IN ");
		store_ch_strs(&w->sql, (const char *const *)sel->app_services, sel->n_app_services);
		text(w, " AND NOT (process_id!=0 AND ");
		text(w, total);
	} else if (!sel->with_total) {
		text(w, " AND NOT (process_id=0 AND ");
		text(w, total);
	}
	store_ch_scope(w, sel);
	if (!sel->where)
		return;
	text(w, " AND (");
	if (w->windows_only)
		put_of_windows(w, sel->where);
	else
		put_predicate(w, sel->where);
	text(w, ")");
}
