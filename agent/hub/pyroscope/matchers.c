/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matchers -> predicates. In Prometheus a label that is not there is "". In a predicate, a row
 * without the tag matches the negative conditions, and no other one: what differs is added here.
 */
#include "hub/pyroscope/internal.h"
#include "hub/pyroscope/pyroscope.h"
#include "lib/base/regexp.h"

#include <ctype.h>
#include <stdlib.h>

/* What a matcher asks of a value, in the words of predicates. */
struct condition {
	bool negative;
	bool takes_missing; /* the positive form matches "" */
	char **values;	    /* the value is one of these; NULL: it matches the expression */
	size_t n_values;
	char *expression; /* anchored */
	struct regexp *regexp;
};

static void condition_done(struct condition *c)
{
	for (size_t i = 0; i < c->n_values; i++)
		free(c->values[i]);
	free(c->values);
	free(c->expression);
	regexp_free(c->regexp);
}

/* ---- what is asked ---- */

static void add_value(struct condition *c, char *value)
{
	c->values = xrealloc(c->values, (c->n_values + 1) * sizeof(*c->values));
	c->values[c->n_values++] = value;
	c->takes_missing |= !*value;
}

/* Whether an expression is only a choice of words, such as "a|b\.c" or "(a|b)". Adds the words. */
static bool is_choice(const char *s, struct condition *c)
{
	_cleanup_free_ char *inner = NULL;
	struct buf word = {0};

	if (*s == '(' && str_has_suffix(s, ")") && s[1] != '?')
		s = inner = xstrndup(s + 1, strlen(s) - 2);
	for (; *s; s++) {
		if (*s == '\\' && ispunct((unsigned char)s[1]))
			buf_putc(&word, *++s);
		else if (*s == '|')
			add_value(c, buf_steal(&word));
		else if (strchr("\\.+*?()[]{}^$", *s))
			break;
		else
			buf_putc(&word, *s);
	}
	add_value(c, buf_steal(&word));
	return !*s;
}

static int take_expression(const char *s, struct condition *c, struct field_error *reterr)
{
	struct condition choice = {.negative = c->negative};
	bool plain = is_choice(s, &choice);
	int r = regexp_check(s, reterr); /* by itself: "a)|(b" is none */

	if (r)
		plain = false;
	if (plain)
		*c = choice;
	else
		condition_done(&choice);
	if (r || plain)
		return r;
	c->expression = xasprintf("^(?:%s)$", s);
	r = regexp_new(c->expression, &c->regexp, reterr);
	if (!r)
		c->takes_missing = regexp_match(c->regexp, "") == 1;
	return r;
}

static int condition_of(const struct matcher *m, struct condition *ret, struct field_error *reterr)
{
	*ret = (struct condition){.negative =
					  m->op == MATCH_NOT_EQUAL || m->op == MATCH_NOT_REGEXP};
	if (m->op == MATCH_REGEXP || m->op == MATCH_NOT_REGEXP)
		return take_expression(m->value, ret, reterr);
	add_value(ret, xstrdup(m->value));
	return 0;
}

/* 1: the value is one of those that are asked for; 0: it is not; -ELOOP: as regexp_match(). */
static int matches(const struct condition *c, const char *value)
{
	int found = c->regexp ? regexp_match(c->regexp, value) : 0;

	for (size_t i = 0; i < c->n_values && !found; i++)
		found = streq(c->values[i], value);
	return found < 0 ? found : found != c->negative;
}

/* ---- predicates ---- */

static struct predicate *leaf(enum predicate_op op, const char *tag, const char *const *values,
			      size_t n)
{
	struct predicate *p = xcalloc(1, sizeof(*p));

	p->op = op;
	p->tag = tag ? xstrdup(tag) : NULL;
	p->values = n ? xcalloc(n, sizeof(*p->values)) : NULL;
	for (; p->n_values < n; p->n_values++)
		p->values[p->n_values] = xstrdup(values[p->n_values]);
	return p;
}

/* A list of both; a list of the same kind as the first one grows. */
static struct predicate *join(enum predicate_op op, struct predicate *a, struct predicate *b)
{
	struct predicate *p = a;

	if (!a || !b)
		return a ?: b;
	if (a->op != op) {
		p = leaf(op, NULL, NULL, 0);
		p->children = xcalloc(2, sizeof(struct predicate *));
		p->children[p->n_children++] = a;
	} else {
		p->children =
			xrealloc(p->children, (p->n_children + 1) * sizeof(struct predicate *));
	}
	p->children[p->n_children++] = b;
	return p;
}

struct predicate *pyroscope_and(struct predicate *a, struct predicate *b)
{
	return join(PRED_AND, a, b);
}

struct predicate *pyroscope_or(struct predicate *a, struct predicate *b)
{
	if (a && b)
		return join(PRED_OR, a, b);
	store_predicate_free(a);
	store_predicate_free(b);
	return NULL;
}

struct predicate *pyroscope_tag_in(const char *tag, const char *const *values, size_t n)
{
	return n == 1  ? leaf(PRED_EQ, tag, values, n)
	       : n > 1 ? leaf(PRED_IN, tag, values, n)
		       : leaf(PRED_FALSE, NULL, NULL, 0);
}

/* The condition on one tag. */
static struct predicate *on_tag(const struct condition *c, const char *tag)
{
	const char *const *values = (const char *const *)c->values;
	const char *expression = c->expression;
	bool one = c->n_values == 1, not = c->negative;
	struct predicate *p =
		expression ? leaf(not ? PRED_NOT_REGEXP : PRED_REGEXP, tag, &expression, 1)
		: one	   ? leaf(not ? PRED_NE : PRED_EQ, tag, values, 1)
			   : leaf(not ? PRED_NOT_IN : PRED_IN, tag, values, c->n_values);

	if (!c->takes_missing)
		return p;
	if (not )
		return join(PRED_AND, p, leaf(PRED_NOT_NULL, tag, NULL, 0));
	return join(PRED_OR, p, leaf(PRED_IS_NULL, tag, NULL, 0));
}

/* The condition on a label: on the first of its tags that a row has. */
static struct predicate *on_label(const struct condition *c, const struct pyroscope_label *l)
{
	struct predicate *p = on_tag(c, l->tags[0]), *other;

	if (!l->tags[1])
		return p;
	p = join(PRED_AND, p, leaf(PRED_NOT_NULL, l->tags[0], NULL, 0));
	other = join(PRED_AND, on_tag(c, l->tags[1]), leaf(PRED_IS_NULL, l->tags[0], NULL, 0));
	return join(PRED_OR, p, other);
}

struct predicate *pyroscope_label_is(const struct pyroscope_label *l, const char *value)
{
	struct predicate *p = NULL;
	char *values[] = {(char *)(uintptr_t)value};

	if (value)
		return on_label(&(struct condition){.values = values, .n_values = 1}, l);
	for (size_t i = 0; l->tags[i]; i++)
		p = join(PRED_AND, p, leaf(PRED_IS_NULL, l->tags[i], NULL, 0));
	return p;
}

/* ---- selectors ---- */

/* Leaves the events whose types match the condition on a private label. */
static int limit_events(const struct condition *c, const char *label, unsigned *mask)
{
	struct pyroscope_type t;

	PROFILE_EACH_EVENT (e) {
		int r;

		pyroscope_type_of(e, &t);
		r = matches(c, pyroscope_private_value(label, &t));
		if (r < 0)
			return r;
		*mask &= ~(r ? 0 : 1u << e);
	}
	return 0;
}

/* "id:delta" is the same type as "id". */
static void forget_delta(struct matcher *m)
{
	enum event e;
	struct field_error ignored;
	struct pyroscope_type t;

	if (!streq(m->label, "__profile_type__") || m->op > MATCH_NOT_EQUAL ||
	    pyroscope_type_parse(m->value, &e, &ignored))
		return;
	pyroscope_type_of(e, &t);
	free(m->value);
	m->value = xstrdup(t.id);
}

/* How much of the limits of query_filter_parse() is used. */
struct used {
	size_t n_values, n_regexps;
};

/* n_tags: the condition is one on so many tags. */
static int check_limits(struct used *u, const struct condition *c, size_t n_tags,
			struct field_error *reterr)
{
	u->n_values += c->n_values * n_tags;
	u->n_regexps += c->expression ? n_tags : 0;
	if (u->n_values > FILTER_MAX_VALUES)
		return field_error_set(reterr, "selector", "more than %d values",
				       FILTER_MAX_VALUES);
	if (u->n_regexps > FILTER_MAX_REGEXPS)
		return field_error_set(reterr, "selector", "more than %d regular expressions",
				       FILTER_MAX_REGEXPS);
	return 0;
}

/* Adds a condition on a label that profiles have, or that none has: then it is "" everywhere. */
static void add_label(struct pyroscope_matchers *to, const struct condition *c,
		      const struct pyroscope_label *l)
{
	if (l->tags[0])
		to->where = pyroscope_and(to->where, on_label(c, l));
	else if (c->takes_missing == c->negative)
		to->where = pyroscope_and(to->where, leaf(PRED_FALSE, NULL, NULL, 0));
}

/*
 * ".*", which dashboards send for "All", and ".+": a store would read all values to match them.
 * false: the matcher is another one.
 */
static bool add_any(struct pyroscope_matchers *to, const struct matcher *m,
		    const struct pyroscope_label *l)
{
	const bool all = streq(m->value, ".*"), not = m->op == MATCH_NOT_REGEXP;
	char *empty[] = {(char *)(uintptr_t) ""};
	const struct condition has = {
		.negative = !not, .takes_missing = true, .values = empty, .n_values = 1};

	if ((!all && !streq(m->value, ".+")) || (!not &&m->op != MATCH_REGEXP))
		return false;
	if (!all)
		add_label(to, &has, l);
	else if (not )
		to->where = pyroscope_and(to->where, leaf(PRED_FALSE, NULL, NULL, 0));
	return true;
}

static int add_matcher(struct pyroscope_matchers *to, struct matcher *m,
		       const struct query_names *pods, struct used *used,
		       struct field_error *reterr)
{
	_cleanup_(condition_done) struct condition c = {0};
	struct pyroscope_label l = {0};
	int r;

	forget_delta(m);
	pyroscope_label_find(m->label, pods, &l);
	if (!pyroscope_is_private(m->label) && add_any(to, m, &l))
		return 0;
	r = condition_of(m, &c, reterr);
	if (!r)
		r = check_limits(used, &c, l.tags[0] && l.tags[1] ? 2 : 1, reterr);
	if (r)
		return r;
	if (!pyroscope_is_private(m->label))
		add_label(to, &c, &l);
	else if (limit_events(&c, m->label, &to->event_mask) < 0)
		r = field_error_set(reterr, "selector", "'%.200s' takes too many steps", m->value);
	return r;
}

int pyroscope_matchers_parse(const char *const *selectors, size_t n, const struct query_names *pods,
			     struct pyroscope_matchers *ret, struct field_error *reterr)
{
	_cleanup_(pyroscope_matcher_list_done) struct matcher_list list = {0};
	_cleanup_(pyroscope_matchers_done) struct pyroscope_matchers m = {0};
	struct used used = {0};
	int r = 0;

	PROFILE_EACH_EVENT (e)
		m.event_mask |= 1u << e;
	for (size_t i = 0; !r && i < n; i++)
		r = pyroscope_selector_parse(selectors[i], &list, reterr);
	for (size_t i = 0; !r && i < list.n; i++)
		r = add_matcher(&m, &list.items[i], pods, &used, reterr);
	if (r)
		return r;
	*ret = m;
	m.where = NULL;
	return 0;
}

void pyroscope_matchers_done(struct pyroscope_matchers *m)
{
	m->where = store_predicate_free(m->where);
}
