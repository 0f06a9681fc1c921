/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Label selectors with the semantics of k8s.io/apimachinery: a label set must satisfy all
 * requirements. NotIn is also satisfied if the label is missing. A selector is compared as JSON, or
 * compiled if it is compared often.
 */
#include "lib/select/select.h"

#include <stdlib.h>

enum operator{ EQUALS, IN, NOT_IN, EXISTS, DOES_NOT_EXIST, UNKNOWN_OPERATOR };

/* Borrows from the selector's JSON. */
struct requirement {
	const char *key;
	unsigned hash; /* of the key; only in a compiled selector */
	enum operator op;
	const char *value;    /* of EQUALS; NULL: none, so nothing satisfies it */
	const json_t *values; /* of IN and NOT_IN */
};
struct selector {
	bool matches_nothing;
	size_t n;
	struct requirement all[];
};

/* ---- one requirement ---- */

static bool value_in(const json_t *values, const char *label)
{
	const json_t *v;
	size_t i;

	json_array_foreach (values, i, v) {
		if (str_equal(json_string_value(v), label))
			return true;
	}
	return false;
}

/* label: the value of the requirement's key; NULL: the label is missing */
static bool holds(const struct requirement *r, const char *label)
{
	switch (r->op) {
	case EQUALS:
		return label && str_equal(label, r->value);
	case IN:
		return label && value_in(r->values, label);
	case NOT_IN:
		return !label || !value_in(r->values, label);
	case EXISTS:
		return label != NULL;
	case DOES_NOT_EXIST:
		return !label;
	default:
		return false;
	}
}

static enum operator operator_of(const char *name)
{
	static const char *const names[] = {[IN] = "In",
					    [NOT_IN] = "NotIn",
					    [EXISTS] = "Exists",
					    [DOES_NOT_EXIST] = "DoesNotExist"};

	for (enum operator op = IN; op < UNKNOWN_OPERATOR; op++)
		if (streq(name, names[op]))
			return op;
	return UNKNOWN_OPERATOR;
}

static struct requirement of_label(const char *key, const json_t *value)
{
	return (struct requirement){.key = key, .op = EQUALS, .value = json_string_value(value)};
}

static struct requirement of_expression(const json_t *e)
{
	return (struct requirement){
		.key = json_str_at(e, "key", ""),
		.op = operator_of(json_str_at(e, "operator", "")),
		.values = json_object_get(e, "values"),
	};
}

/* ---- a selector ---- */

/*
 * Whether words has all members of obj. A selector with an unknown member matches nothing, because
 * this member may exclude pods.
 */
static bool has_only(const json_t *obj, const char *const *words, size_t n)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++)
		found += json_object_get(obj, words[i]) != NULL;
	return found == json_object_size(obj);
}

static bool is_known(const json_t *sel)
{
	static const char *const members[] = {"matchLabels", "matchExpressions"},
				 *const of_one[] = {"key", "operator", "values"};
	const json_t *e;
	size_t i;

	json_array_foreach (json_object_get(sel, "matchExpressions"), i, e) {
		if (!has_only(e, of_one, ARRAY_SIZE(of_one)))
			return false;
	}
	return json_is_object(sel) && has_only(sel, members, ARRAY_SIZE(members));
}

static bool json_label_fits(const struct requirement *r, const json_t *labels)
{
	return holds(r, json_string_value(json_object_get(labels, r->key)));
}

bool select_selector_matches(const json_t *sel, const json_t *labels)
{
	struct requirement r;
	const json_t *v;
	const char *key;
	size_t i;

	if (!is_known(sel))
		return false;
	json_object_foreach ((json_t *)json_object_get(sel, "matchLabels"), key, v) {
		r = of_label(key, v);
		if (!json_label_fits(&r, labels))
			return false;
	}
	json_array_foreach (json_object_get(sel, "matchExpressions"), i, v) {
		r = of_expression(v);
		if (!json_label_fits(&r, labels))
			return false;
	}
	return true;
}

/* ---- compiled ---- */

static unsigned hash_of(const char *key)
{
	return hash_of_key(key, strlen(key));
}

static void add(struct selector *s, struct requirement r)
{
	r.hash = hash_of(r.key);
	s->all[s->n++] = r;
}

struct selector *select_compile(const json_t *sel)
{
	const json_t *labels = json_object_get(sel, "matchLabels"),
		     *expressions = json_object_get(sel, "matchExpressions"), *v;
	struct selector *s =
		xcalloc(1, sizeof(*s) + (json_object_size(labels) + json_array_size(expressions)) *
						sizeof(s->all[0]));
	const char *key;
	size_t i;

	s->matches_nothing = !is_known(sel);
	json_object_foreach ((json_t *)labels, key, v)
		add(s, of_label(key, v));
	json_array_foreach (expressions, i, v)
		add(s, of_expression(v));
	return s;
}

struct selector *select_compiled_free(struct selector *s)
{
	free(s);
	return NULL;
}

static int by_hash(const void *a, const void *b)
{
	const struct select_label *x = a, *y = b;

	return x->hash < y->hash ? -1 : x->hash > y->hash;
}

void select_labels_read(const json_t *labels, const char *ns, struct select_labels *ret)
{
	struct select_labels l = {xcalloc(json_object_size(labels) + 1, sizeof(*l.items)), 0};
	const char *key;
	const json_t *v;

	json_object_foreach ((json_t *)labels, key, v) {
		if (json_is_string(v) && !(ns && streq(key, SELECT_NAME_LABEL)))
			l.items[l.n++] =
				(struct select_label){hash_of(key), key, json_string_value(v)};
	}
	if (ns)
		l.items[l.n++] =
			(struct select_label){hash_of(SELECT_NAME_LABEL), SELECT_NAME_LABEL, ns};
	qsort(l.items, l.n, sizeof(*l.items), by_hash);
	*ret = l;
}

void select_labels_done(struct select_labels *l)
{
	free(l->items);
	*l = (struct select_labels){0};
}

static const char *label_of(const struct select_labels *l, const char *key, unsigned hash)
{
	size_t lo = 0, hi = l->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (l->items[mid].hash < hash)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < l->n && l->items[lo].hash == hash; lo++)
		if (streq(l->items[lo].key, key))
			return l->items[lo].value;
	return NULL;
}

const char *select_label(const struct select_labels *l, const char *key)
{
	return label_of(l, key, hash_of(key));
}

bool select_compiled_matches(const struct selector *s, const struct select_labels *l)
{
	if (s->matches_nothing)
		return false;
	for (size_t i = 0; i < s->n; i++)
		if (!holds(&s->all[i], label_of(l, s->all[i].key, s->all[i].hash)))
			return false;
	return true;
}
