/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A selection as SQL. The SQL is put together from constants of this file only; everything that a
 * user wrote is a bound parameter. Each tag is an SQL value that is NULL if a row has no such tag.
 * Each comparison is true or false, never NULL: a row without the tag matches !=, NOT IN, NOT LIKE,
 * NOT REGEXP and IS NULL.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

void store_where_done(struct where *w)
{
	buf_done(&w->sql);
	free(w->bound);
	free(w->joined);
}

void store_where_text(struct where *w, const char *sql)
{
	buf_puts(&w->sql, sql);
}

static void where_bound(struct where *w, struct bound b)
{
	GROW(w->bound, w->n, w->cap);
	w->bound[w->n++] = b;
	store_where_text(w, "?");
}

void store_where_int(struct where *w, int64_t value)
{
	where_bound(w, (struct bound){.is_int = true, .i = value});
}

void store_where_str(struct where *w, const char *value)
{
	where_bound(w, (struct bound){.s = value});
}

/* Tags that are columns. All others are rows of `tags`: tags of series, and labels of samples. */
static const struct {
	const char *tag, *sql;
	bool of_sample;
} columns[] = {
	{"app_service", "(SELECT s FROM strings WHERE id=se.app)", false},
	{"process_id", "se.pid", false},
	{"process_start_time", "se.start_ms", false},
	{STORE_TAG_PROCESS, "se.id", false},
	{"time", "sa.time", true},
	{"cpu", "NULLIF(sa.cpu,-1)", true},
	{"thread",
	 "(SELECT (SELECT s FROM strings WHERE id=x.thread) FROM stacks x WHERE x.id=sa.stack)",
	 true},
	{"wait", "(SELECT pf_wait(x.wait) FROM stacks x WHERE x.id=sa.stack)", true},
	{"sample_id", "(SELECT printf('%016x',x.hash) FROM stacks x WHERE x.id=sa.stack)", true},
	{"trace_id", "sa.trace", true},
	{"profile_id", "sa.span", true},
};

static bool where_constant(struct where *w, const char *tag)
{
	const char *value = NULL;

	if (streq(tag, "profile_event_type"))
		value = profile_event_info(w->event)->name;
	else if (streq(tag, "profile_value_unit"))
		value = profile_event_info(w->event)->unit;
	else if (streq(tag, "profile_language_type") && profile_event_info(w->event)->spec_field)
		value = "eBPF"; /* of what programs push it is a tag */
	if (value)
		store_where_str(w, value);
	return value != NULL;
}

static bool is_label(const char *tag)
{
	return profile_label_of_tag(tag) != _LABEL_MAX;
}

/*
 * Adds the value of a tag in a set of tags. set is the SQL expression for the set's row in tagsets.
 */
static void put_tag_of(struct where *w, const char *set, const char *tag)
{
	store_where_text(w, "(SELECT v.s FROM tags t JOIN strings v ON v.id=t.value"
			    " WHERE t.tagset=");
	store_where_text(w, set);
	store_where_text(w, " AND t.key=(SELECT id FROM strings WHERE s=");
	store_where_str(w, tag);
	store_where_text(w, "))");
}

/* A list of JSON without brackets. */
static void put_joint(struct where *w, const char *tag)
{
	struct store_joined items[STORE_MAX_JOINED];
	size_t n;

	assert_se(!w->joined);
	n = store_joined(tag, items, &w->joined);
	for (size_t i = 0; i < n; i++) {
		store_where_text(w, i ? "||','||json_quote(CAST(coalesce("
				      : "json_quote(CAST(coalesce(");
		store_where_tag(w, items[i].tag);
		store_where_text(w, ",");
		if (items[i].otherwise)
			store_where_tag(w, items[i].otherwise);
		else
			store_where_text(w, "NULL");
		store_where_text(w, ") AS TEXT))");
	}
}

void store_where_tag(struct where *w, const char *tag)
{
	if (store_is_joint(tag)) {
		put_joint(w, tag);
		return;
	}
	if (where_constant(w, tag))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
		if (!streq(columns[i].tag, tag))
			continue;
		w->needs_samples |= columns[i].of_sample;
		if ((columns[i].of_sample && w->series_only) ||
		    (store_is_tag_of_calls(tag) && !w->links))
			store_where_text(w, "NULL");
		else
			store_where_text(w, columns[i].sql);
		return;
	}
	if (!is_label(tag)) {
		put_tag_of(w, "se.tagset", tag);
		return;
	}
	w->needs_samples = true;
	if (w->series_only)
		store_where_text(w, "NULL");
	else
		put_tag_of(w, "(SELECT x.labels FROM stacks x WHERE x.id=sa.stack)", tag);
}

static bool is_column(const char *tag)
{
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		if (streq(columns[i].tag, tag))
			return true;
	return false;
}

static bool is_sample_tag(const char *tag)
{
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		if (streq(columns[i].tag, tag))
			return columns[i].of_sample;
	return is_label(tag);
}

static void put_value(struct where *w, const struct predicate *p, size_t i)
{
	if (p->numeric)
		store_where_int(w, strtoll(p->values[i], NULL, 10));
	else
		store_where_str(w, p->values[i]);
}

/*
 * Adds a tag, cast to a number if the comparison is one of numbers. A tag that is no column is
 * stored as a string, and as strings "9" is greater than "10".
 */
static void put_tag(struct where *w, const struct predicate *p)
{
	bool as_number = p->numeric && !is_column(p->tag);

	store_where_text(w, as_number ? "CAST(" : "");
	store_where_tag(w, p->tag);
	store_where_text(w, as_number ? " AS INT)" : "");
}

/* Adds IFNULL(tag OP ?, missing): missing is the answer for a row without the tag. */
static void put_compare(struct where *w, const struct predicate *p, const char *op, bool missing)
{
	store_where_text(w, "IFNULL(");
	put_tag(w, p);
	store_where_text(w, op);
	put_value(w, p, 0);
	store_where_text(w, missing ? ",1)" : ",0)");
}

static void put_in(struct where *w, const struct predicate *p, bool not )
{
	store_where_text(w, "IFNULL(");
	put_tag(w, p);
	store_where_text(w, not ? " NOT IN (" : " IN (");
	for (size_t i = 0; i < p->n_values; i++) {
		if (i)
			store_where_text(w, ",");
		put_value(w, p, i);
	}
	store_where_text(w, not ? "),1)" : "),0)");
}

static void put_match(struct where *w, const struct predicate *p, const char *function, bool not )
{
	store_where_text(w, not ? "NOT IFNULL(" : "IFNULL(");
	store_where_text(w, function);
	store_where_text(w, "(");
	store_where_str(w, p->values[0]);
	store_where_text(w, ",");
	store_where_tag(w, p->tag);
	store_where_text(w, "),0)");
}

static void put_null(struct where *w, const struct predicate *p, const char *test)
{
	store_where_tag(w, p->tag);
	store_where_text(w, test);
}

static void put_leaf(struct where *w, const struct predicate *p)
{
	if (p->tag && w->series_only && is_sample_tag(p->tag)) {
		store_where_text(w, "NULL");
		return;
	}
	switch (p->op) {
	case PRED_EQ:
		return put_compare(w, p, "=", false);
	case PRED_NE:
		return put_compare(w, p, "<>", true);
	case PRED_LT:
		return put_compare(w, p, "<", false);
	case PRED_GT:
		return put_compare(w, p, ">", false);
	case PRED_LE:
		return put_compare(w, p, "<=", false);
	case PRED_GE:
		return put_compare(w, p, ">=", false);
	case PRED_IN:
	case PRED_NOT_IN:
		return put_in(w, p, p->op == PRED_NOT_IN);
	case PRED_LIKE:
	case PRED_NOT_LIKE:
		return put_match(w, p, "pf_like", p->op == PRED_NOT_LIKE);
	case PRED_REGEXP:
	case PRED_NOT_REGEXP:
		return put_match(w, p, "pf_regexp", p->op == PRED_NOT_REGEXP);
	case PRED_IS_NULL:
		return put_null(w, p, " IS NULL");
	case PRED_NOT_NULL:
		return put_null(w, p, " IS NOT NULL");
	case PRED_TRUE:
		return store_where_text(w, "1");
	default:
		return store_where_text(w, "0");
	}
}

static void put_predicate(struct where *w, const struct predicate *p);

static unsigned nesting(const struct predicate *p)
{
	unsigned deepest = 0;

	for (size_t i = 0; i < p->n_children; i++) {
		/* in a variable, because MAX() may evaluate its arguments twice */
		unsigned n = nesting(p->children[i]);

		deepest = MAX(deepest, n);
	}
	return p->n_children ? deepest + 1 : 0;
}

/*
 * SQLite's parser has a stack of 100 symbols. While it parses a nested term, three symbols of each
 * level outside wait on the stack (parenthesis, term, operator). If the nested term comes first,
 * only one symbol of each level waits. So the deepest child comes first.
 */
struct ordered {
	const struct predicate *p;
	size_t first;
};

static const struct predicate *child(const struct ordered *o, size_t i)
{
	return o->p->children[i == 0 ? o->first : i <= o->first ? i - 1 : i];
}

static struct ordered deepest_first(const struct predicate *p)
{
	struct ordered o = {.p = p};

	for (size_t i = 1; i < p->n_children; i++)
		if (nesting(p->children[i]) > nesting(p->children[o.first]))
			o.first = i;
	return o;
}

/*
 * Adds the children as a balanced tree, not as a chain, because SQLite allows expressions up to
 * 1000 levels deep.
 */
static void put_children(struct where *w, const struct ordered *o, size_t from, size_t to)
{
	/*
	 * the deepest child stands without parentheses, because each level would add a pair around
	 * it
	 */
	size_t middle = from ? from + (to - from) / 2 : 1;

	if (to - from == 1) {
		put_predicate(w, child(o, from));
		return;
	}
	store_where_text(w, "(");
	put_children(w, o, from, middle);
	store_where_text(w, o->p->op == PRED_AND ? " AND " : " OR ");
	put_children(w, o, middle, to);
	store_where_text(w, ")");
}

/* Adds the SQL of a predicate, with at most one pair of parentheses per level. */
static void put_predicate(struct where *w, const struct predicate *p)
{
	if (p->op == PRED_NOT) {
		store_where_text(w, "NOT ");
		put_predicate(w, p->children[0]);
	} else if ((p->op == PRED_AND || p->op == PRED_OR) && p->n_children) {
		struct ordered o = deepest_first(p);

		put_children(w, &o, 0, p->n_children);
	} else if (p->op == PRED_AND || p->op == PRED_OR) {
		store_where_text(w, p->op == PRED_AND ? "1" : "0");
	} else {
		store_where_text(w, "(");
		put_leaf(w, p);
		store_where_text(w, ")");
	}
}

static bool has_tag(const struct predicate *p, bool (*is)(const char *tag))
{
	bool has = p->tag && is(p->tag);

	for (size_t i = 0; i < p->n_children && !has; i++)
		has = has_tag(p->children[i], is);
	return has;
}

bool store_where_wants_links(const struct selection *sel)
{
	return (sel->group_by && store_is_tag_of_calls(sel->group_by)) ||
	       (sel->where && has_tag(sel->where, store_is_tag_of_calls));
}

bool store_where_wants_samples(const struct selection *sel)
{
	return sel->where && has_tag(sel->where, is_sample_tag);
}

/* The trace id that every match must have, if the top of the predicate requires one; else NULL. */
static const char *one_trace(const struct predicate *p)
{
	const char *trace = NULL;

	if (p->op == PRED_EQ && streq(p->tag, "trace_id"))
		return p->values[0];
	for (size_t i = 0; p->op == PRED_AND && i < p->n_children && !trace; i++)
		trace = one_trace(p->children[i]);
	return trace;
}

void store_where_list(struct where *w, const char *tag, char *const *items, size_t n)
{
	store_where_text(w, "IFNULL(");
	store_where_tag(w, tag);
	store_where_text(w, " IN (");
	for (size_t i = 0; i < n; i++) {
		if (i)
			store_where_text(w, ",");
		store_where_str(w, items[i]);
	}
	store_where_text(w, "),0)");
}

/*
 * A condition on series only is put into a subquery, so that it is evaluated once per series, not
 * per row. The '+' keeps SQLite from using it to choose the order of the joins. If the reader may
 * not see all, SQLite evaluates the condition only on what the reader may see: its errors and its
 * time would tell something of the rest.
 */
static void where_predicate(struct where *w, const struct selection *sel)
{
	const char *trace = w->links ? one_trace(sel->where) : NULL;
	bool once = !has_tag(sel->where, is_sample_tag);

	if (once) {
		store_where_text(w,
				 " AND +se.id IN (SELECT se.id FROM series se WHERE se.last_s>=");
		store_where_int(w, sel->time_start_s);
	}
	if (trace) { /* the column without a function around it, so that SQLite uses the index */
		store_where_text(w, " AND sa.trace=");
		store_where_str(w, trace);
	}
	store_where_text(w, " AND ");
	if (!store_where_sees_all(sel)) {
		store_where_text(w, "CASE WHEN ");
		store_where_sees(w, sel);
		store_where_text(w, " THEN ");
	}
	store_where_text(w, "IFNULL(");
	put_predicate(w, sel->where);
	store_where_text(w, w->series_only ? ",1)" : ",0)");
	if (!store_where_sees_all(sel))
		store_where_text(w, " ELSE 0 END");
	if (once)
		store_where_text(w, ")");
}

void store_where_selection(struct where *w, const struct selection *sel)
{
	/* Total and Throttled have no process. But a process may have one of these names, too. */
	static const char total[] =
		"se.app IN (SELECT id FROM strings WHERE s IN ('Total', 'Throttled')))";

	if (sel->n_app_services) {
		store_where_text(w, " AND ");
		store_where_list(w, "app_service", sel->app_services, sel->n_app_services);
		store_where_text(w, " AND NOT (se.pid<>0 AND ");
		store_where_text(w, total);
	} else if (!sel->with_total) {
		store_where_text(w, " AND NOT (se.pid=0 AND ");
		store_where_text(w, total);
	}
	store_where_allowed(w, sel);
	if (sel->where)
		where_predicate(w, sel);
}

void store_where_node(struct where *w)
{
	store_where_text(w, "printf('%s %s',");
	store_where_tag(w, "pod_cluster");
	store_where_text(w, ",");
	store_where_tag(w, "pod_node");
	store_where_text(w, ")");
}

void store_where_process(struct where *w)
{
	store_where_text(w, "printf('%s %d %d %s %s', CASE WHEN se.pid=0 OR se.start_ms=0 THEN "
			    "se.id END, se.pid, se.start_ms, ");
	store_where_node(w);
	store_where_text(w, ",");
	store_where_tag(w, TAG_UNVERIFIED);
	store_where_text(w, ")");
}

int store_where_prepare(struct where *w, sqlite3 *db, sqlite3_stmt **ret)
{
	sqlite3_stmt *st = NULL;
	int rc;

	if (w->sql.failed || w->sql.len > 1000000 || w->n > 30000)
		return -E2BIG;
	rc = sqlite3_prepare_v2(db, w->sql.data, (int)w->sql.len, &st, NULL);
	for (size_t i = 0; rc == SQLITE_OK && i < w->n; i++) {
		const struct bound *b = &w->bound[i];

		rc = b->is_int ? sqlite3_bind_int64(st, (int)i + 1, b->i)
			       : sqlite3_bind_text(st, (int)i + 1, b->s, -1, SQLITE_STATIC);
	}
	if (rc != SQLITE_OK) {
		sqlite3_finalize(st);
		/* this file makes the SQL, so only its size can be wrong */
		return rc == SQLITE_ERROR ? -E2BIG : store_sq_errno(rc);
	}
	*ret = st;
	return 0;
}
