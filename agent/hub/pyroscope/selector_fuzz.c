/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arbitrary text as a selector: the filter that is made of it has the same rows as its matchers
 * have by Prometheus's rules. Fuzzes: hub/pyroscope/selector.c, hub/pyroscope/matchers.c
 */
#include "hub/pyroscope/internal.h"
#include "hub/pyroscope/pyroscope.h"
#include "lib/base/fuzzinput.h"
#include "lib/base/regexp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define SLOW (-1) /* an expression takes too many steps: there is no answer */

/* The tags of a row, in pairs. */
static const char *const rows[][9] = {
	{NULL},
	{"pod", "a", NULL},
	{"pod", "", "pod_ns", "a", NULL},
	{"pod_group", "a", "app_service", "b", NULL},
	{"app_service", "a", "k8s.label.a", "ab", NULL},
};

static const char *tag_of(const char *const *row, const char *tag)
{
	for (; *row; row += 2)
		if (streq(row[0], tag))
			return row[1];
	return NULL;
}

static int matches(const char *expression, const char *value)
{
	struct regexp *x = NULL;
	struct field_error e;
	int r;

	check(regexp_new(expression, &x, &e) == 0);
	r = regexp_match(x, value);
	regexp_free(x);
	return r < 0 ? SLOW : r;
}

/* ---- by the filter ---- */

static int filter(const struct predicate *p, const char *const *row);

static int filter_list(const struct predicate *p, const char *const *row)
{
	check(p->n_children > 1);
	for (size_t i = 0; i < p->n_children; i++) {
		int r = filter(p->children[i], row);

		if (r == SLOW || r == (p->op == PRED_OR))
			return r;
	}
	return p->op == PRED_AND;
}

static int filter(const struct predicate *p, const char *const *row)
{
	const char *value = p->tag ? tag_of(row, p->tag) : NULL;
	bool negative = p->op == PRED_NE || p->op == PRED_NOT_IN || p->op == PRED_NOT_REGEXP;
	bool found = false;
	int r;

	switch (p->op) {
	case PRED_AND:
	case PRED_OR:
		return filter_list(p, row);
	case PRED_FALSE:
		return 0;
	case PRED_IS_NULL:
		return !value;
	case PRED_NOT_NULL:
		return value != NULL;
	case PRED_REGEXP:
	case PRED_NOT_REGEXP:
		check(p->n_values == 1);
		r = value ? matches(p->values[0], value) : 0;
		return r == SLOW ? r : r != negative;
	default:
		check(p->op == PRED_EQ || p->op == PRED_NE || p->op == PRED_IN ||
		      p->op == PRED_NOT_IN);
		check(p->n_values > 0);
		for (size_t i = 0; i < p->n_values && value; i++)
			found |= streq(p->values[i], value);
		return found != negative;
	}
}

/* ---- by the matchers ---- */

static int match(const struct matcher *m, const char *const *row)
{
	_cleanup_free_ char *anchored = xasprintf("^(?:%s)$", m->value);
	bool negative = m->op == MATCH_NOT_EQUAL || m->op == MATCH_NOT_REGEXP;
	struct pyroscope_label l;
	const char *value = NULL;
	int r;

	if (pyroscope_label_find(m->label, NULL, &l))
		for (size_t i = 0; !value && l.tags[i]; i++)
			value = tag_of(row, l.tags[i]);
	if (m->op == MATCH_REGEXP || m->op == MATCH_NOT_REGEXP)
		r = matches(anchored, value ?: "");
	else
		r = streq(m->value, value ?: "");
	return r == SLOW ? r : r != negative;
}

static int match_all(const struct matcher_list *l, const char *const *row)
{
	for (size_t i = 0; i < l->n; i++) {
		int r = pyroscope_is_private(l->items[i].label) ? 1 : match(&l->items[i], row);

		if (r != 1)
			return r;
	}
	return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, n);
	const char *selector = text;
	struct pyroscope_matchers m = {0};
	struct matcher_list l = {0};
	struct field_error e = {0};

	if (pyroscope_matchers_parse(&selector, 1, NULL, &m, &e)) {
		check(e.reason[0] && e.path[0] && !m.where);
		return 0;
	}
	check(pyroscope_selector_parse(text, &l, &e) == 0);
	check(!(m.event_mask >> _EVENT_ALL));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int want = match_all(&l, rows[i]), got = m.where ? filter(m.where, rows[i]) : 1;

		check(want == got || want == SLOW || got == SLOW);
	}
	pyroscope_matcher_list_done(&l);
	pyroscope_matchers_done(&m);
	return 0;
}
