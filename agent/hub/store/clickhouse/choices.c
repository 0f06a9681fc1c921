/* SPDX-License-Identifier: Apache-2.0 */
/* The values that tags have, with their samples. */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

#define CHOICES_MAX 1000000 /* of one tag */

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

/*
 * The tag of each stack, which is then joined with the sums of stacks. These are on the right side,
 * which ClickHouse keeps in memory: the stacks of all programs may be many. ANY: a stack may be
 * there twice.
 */
static void put_stack_tags(struct ch_where *w, const char *tag)
{
	text(w, "(SELECT id, ");
	store_ch_tag(w, tag);
	text(w, " AS value FROM stacks WHERE ");
	store_ch_has(w, tag);
	text(w, ") AS names ANY INNER JOIN ");
}

static bool is_of_events(const struct store_choice *c)
{
	return streq(c->tag, "profile_event_type");
}

/* " ... AS value" of a window or a sample, and which rows have it */
static void put_choice(struct ch_where *w, const struct store_choice *c, bool samples)
{
	const char *n = samples ? "c" : "n";
	bool events = is_of_events(c), labels = store_is_names_of_labels(c->tag);
	enum ch_which which = events ? CH_EVERY_NEWEST : CH_NEWEST;
	bool of_stack = samples && store_ch_is_sample_tag(c->tag) &&
			!store_is_tag_of_calls(c->tag) && !streq(c->tag, "cpu") &&
			!streq(c->tag, "time");

	text(w, "SELECT value, " CH_SUM("weight") " AS sum_n FROM ");
	if (of_stack)
		put_stack_tags(w, c->tag);
	text(w, "(SELECT ");
	if (events) {
		text(w, "toString(profile_event_type)");
	} else if (labels) {
		text(w, "substring(label, length('");
		text(w, c->tag);
		text(w, "')+1)");
	} else if (of_stack) {
		text(w, "stack");
	} else {
		text(w, "toString(");
		store_ch_tag(w, c->tag);
		text(w, ")");
	}
	text(w, of_stack ? " AS id, sum(toFloat64(" : " AS value, ");
	text(w, n);
	text(w, of_stack ? ")) AS weight" : " AS weight");
	if (labels) {
		text(w, ", arrayJoin(arrayFilter(x -> startsWith(x, '");
		text(w, c->tag);
		text(w, "'), tag_names)) AS label");
	}
	if (samples)
		store_ch_samples(w, c->sel, which);
	else
		store_ch_windows(w, c->sel, which);
	store_ch_selection(w, c->sel);
	if (!events && !labels && !of_stack) {
		text(w, " AND ");
		store_ch_has(w, c->tag);
	}
	text(w, of_stack ? " GROUP BY id) AS sums USING (id)" : ")");
	text(w, " GROUP BY value HAVING sum_n>0 ORDER BY sum_n DESC, value LIMIT ");
	store_ch_int(&w->sql, (int64_t)c->limit);
}

/* Finds a window, or a sample, that has the tag. ClickHouse ends with the first one. */
static void put_any(struct ch_where *w, const struct store_choice *c, bool samples)
{
	struct predicate has = {.op = PRED_NOT_NULL, .tag = (char *)c->tag};
	struct predicate *children[] = {&has, c->sel->where};
	struct predicate all = {
		.op = PRED_AND, .children = children, .n_children = c->sel->where ? 2 : 1};
	struct selection sel = *c->sel;

	sel.where = &all;
	text(w, "SELECT '', toUInt64(1)");
	if (samples)
		store_ch_samples(w, &sel, CH_NEWEST);
	else
		store_ch_windows(w, &sel, CH_NEWEST);
	store_ch_selection(w, &sel);
	text(w, samples ? " AND c>0 LIMIT 1" : " AND n>0 LIMIT 1");
}

static bool needs_samples(const struct store_choice *c)
{
	return store_ch_is_sample_tag(c->tag) || store_ch_wants_samples(c->sel);
}

struct asked {
	const struct store_choice *choice; /* the caller's */
	store_choice_fn *fn;
	void *arg;
};

static int take_choice(struct ch_rows *rows, void *arg)
{
	const struct asked *a = arg;
	_cleanup_free_ char *value = store_ch_get_str(rows);
	uint64_t n = store_ch_get_u64(rows);

	return rows->failed ? 0 : a->fn(a->choice, value, n, a->arg);
}

/* matched: the conditions of the choice's selection, without LIKE */
static int ask_choice(struct ch_store *s, struct asked *a, struct predicate *matched,
		      const struct ch_limits *l, struct field_error *reterr)
{
	struct selection sel = *a->choice->sel;
	const struct store_choice c = {a->choice->tag, &sel, MIN(a->choice->limit, CHOICES_MAX)};
	struct ch_where w = {.event = sel.event};

	sel.where = matched;
	w.calls = store_is_tag_of_calls(c.tag) || store_ch_wants_calls(&sel);
	if (c.limit)
		put_choice(&w, &c, needs_samples(&c));
	else
		put_any(&w, &c, needs_samples(&c));
	return store_ch_each(s, &w.sql, l, MAX(c.limit, (size_t)1), take_choice, a, reterr);
}

static int read_choice(struct ch_store *s, struct asked *a, const struct ch_limits *l,
		       struct field_error *reterr)
{
	struct predicate *matched;
	int e = store_ch_where_match(s, a->choice->sel, is_of_events(a->choice), l, &matched,
				     reterr);

	if (!e)
		e = ask_choice(s, a, matched, l, reterr);
	store_predicate_free(matched);
	return e;
}

int store_ch_choices(void *sink, const struct store_choice *choices, size_t n, store_choice_fn *fn,
		     void *arg, struct field_error *reterr)
{
	const struct ch_limits l = store_ch_limits(choices[0].sel);
	int e = 0;

	for (size_t i = 0; !e && i < n; i++) {
		struct asked a = {&choices[i], fn, arg};

		e = store_ch_error(read_choice(sink, &a, &l, reterr), choices[i].sel, reterr);
	}
	return e;
}
