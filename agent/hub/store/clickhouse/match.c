/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LIKE and REGEXP. ClickHouse's own differ from the hub's (RE2 has no look-ahead, its LIKE no '*'),
 * so the hub reads the values that a tag has in the selection's time and in what the reader may
 * see, compares them itself, and asks for those that match.
 */
#include "hub/store/clickhouse/clickhouse.h"
#include "lib/base/regexp.h"

#include <stdlib.h>

#define VALUES_MAX   1000000 /* that are compared */
#define MATCHING_MAX 8000    /* that are asked for */
#define CHECK_EVERY  64	     /* comparisons between two looks at the deadline */

struct matching {
	struct ch_store *s;
	const struct selection *sel;
	bool every; /* event, not only that of the selection */
	const struct ch_limits *limits;
	struct field_error *reterr;
};

static bool is_match(enum predicate_op op)
{
	return op == PRED_LIKE || op == PRED_NOT_LIKE || op == PRED_REGEXP || op == PRED_NOT_REGEXP;
}

static bool must_end(const struct ch_limits *l)
{
	return now_mono_ns() >= l->deadline_ns || (l->given_up && atomic_load(l->given_up));
}

/* Returns a statement for the distinct values of the tag. */
static void put_values(struct ch_where *w, const struct selection *sel, bool every, const char *tag)
{
	const struct selection all = {.event = sel->event,
				      .time_start_s = sel->time_start_s,
				      .time_end_s = sel->time_end_s,
				      .scope = sel->scope,
				      .clusters = sel->clusters,
				      .n_clusters = sel->n_clusters};
	bool of_sample = store_ch_is_sample_tag(tag) && !streq(tag, "time");
	bool of_stack = of_sample && !streq(tag, "cpu") && !store_is_tag_of_calls(tag);

	store_ch_text(&w->sql, "SELECT DISTINCT toString(");
	store_ch_tag(w, tag);
	store_ch_text(&w->sql, ")");
	if (of_stack)
		store_ch_text(&w->sql, " FROM stacks WHERE id IN (SELECT stack");
	if (of_sample) {
		/* also of earlier snapshots, which a series reads */
		store_ch_samples(w, &all, every ? CH_EVERY_EVENT : CH_OF_EVENT);
	} else {
		/* of any event: losses are those of the containers and nodes that the filter has */
		store_ch_text(&w->sql, " FROM windows WHERE ");
		store_ch_overlap(w, &all);
	}
	store_ch_scope(w, &all);
	if (of_stack)
		store_ch_text(&w->sql, ")");
	store_ch_text(&w->sql, " AND ");
	store_ch_has(w, tag);
	store_ch_text(&w->sql, " LIMIT ");
	store_ch_int(&w->sql, VALUES_MAX + 1);
}

static int too_many(const struct matching *m, const struct predicate *p)
{
	field_error_set(m->reterr, "store",
			"the pattern for %.60s matches too many values; name some of them, or ask "
			"for less time",
			p->tag);
	return -E2BIG;
}

/* The comparison of a tag's values with one pattern. */
struct comparing {
	const struct matching *m;
	const struct predicate *p;
	struct regexp *regexp; /* NULL: LIKE */
	struct predicate *in;  /* gets the values that match */
	size_t n, cap;
};

static int take_value(struct ch_rows *rows, void *arg)
{
	struct comparing *c = arg;
	_cleanup_free_ char *value = store_ch_get_str(rows);
	int is;

	if (rows->failed)
		return 0;
	if (c->n % CHECK_EVERY == 0 && must_end(c->m->limits))
		return -ETIME;
	if (++c->n > VALUES_MAX)
		return too_many(c->m, c->p);
	is = c->regexp ? regexp_match(c->regexp, value) : store_match_like(c->p->values[0], value);
	if (is <= 0)
		return is;
	if (c->in->n_values == MATCHING_MAX)
		return too_many(c->m, c->p);
	GROW(c->in->values, c->in->n_values, c->cap);
	c->in->values[c->in->n_values++] = TAKE_PTR(value);
	return 0;
}

static int match(const struct matching *m, const struct predicate *p, struct predicate *in)
{
	struct comparing c = {.m = m, .p = p, .in = in};
	struct ch_where w = {.event = m->sel->event, .calls = store_is_tag_of_calls(p->tag)};
	struct field_error e;
	int r;

	in->op = p->op == PRED_LIKE || p->op == PRED_REGEXP ? PRED_IN : PRED_NOT_IN;
	if ((p->op == PRED_REGEXP || p->op == PRED_NOT_REGEXP) &&
	    regexp_new(p->values[0], &c.regexp, &e))
		return -EINVAL;
	put_values(&w, m->sel, m->every, p->tag);
	r = store_ch_each(m->s, &w.sql, m->limits, VALUES_MAX + 1, take_value, &c, m->reterr);
	regexp_free(c.regexp);
	return r;
}

static int copy(const struct matching *m, const struct predicate *p, struct predicate **ret)
{
	struct predicate *x = xcalloc(1, sizeof(*x));
	int r = 0;

	x->op = p->op;
	x->tag = xstrdup(p->tag);
	x->numeric = p->numeric && !is_match(p->op);
	x->children = xcalloc(p->n_children + 1, sizeof(*x->children));
	for (size_t i = 0; !r && i < p->n_children; i++) {
		r = copy(m, p->children[i], &x->children[i]);
		x->n_children += !r;
	}
	if (!r && is_match(p->op)) {
		r = match(m, p, x);
	} else if (!r) {
		x->values = xcalloc(p->n_values + 1, sizeof(*x->values));
		for (size_t i = 0; i < p->n_values; i++)
			x->values[x->n_values++] = xstrdup(p->values[i]);
	}
	if (r)
		store_predicate_free(x);
	else
		*ret = x;
	return r;
}

int store_ch_where_match(struct ch_store *s, const struct selection *sel, bool every,
			 const struct ch_limits *l, struct predicate **ret,
			 struct field_error *reterr)
{
	const struct matching m = {s, sel, every, l, reterr};

	*ret = NULL;
	return sel->where ? copy(&m, sel->where, ret) : 0;
}
