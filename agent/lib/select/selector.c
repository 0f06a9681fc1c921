/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Label selectors with the semantics of k8s.io/apimachinery: a label set must satisfy all
 * requirements. NotIn is also satisfied if the label is missing.
 */
#include "lib/select/select.h"

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

static bool expression_holds(const json_t *e, const json_t *labels)
{
	const char *op = json_str_at(e, "operator", "");
	const char *label = json_string_value(json_object_get(labels, json_str_at(e, "key", "")));
	const json_t *values = json_object_get(e, "values");

	if (streq(op, "In"))
		return label && value_in(values, label);
	if (streq(op, "NotIn"))
		return !label || !value_in(values, label);
	if (streq(op, "Exists"))
		return label != NULL;
	return streq(op, "DoesNotExist") && !label;
}

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
				 *const of_expression[] = {"key", "operator", "values"};
	const json_t *e;
	size_t i;

	json_array_foreach (json_object_get(sel, "matchExpressions"), i, e) {
		if (!has_only(e, of_expression, ARRAY_SIZE(of_expression)))
			return false;
	}
	return json_is_object(sel) && has_only(sel, members, ARRAY_SIZE(members));
}

bool select_selector_matches(const json_t *sel, const json_t *labels)
{
	const json_t *v;
	const char *key;
	size_t i;

	if (!is_known(sel))
		return false;
	json_object_foreach ((json_t *)json_object_get(sel, "matchLabels"), key, v) {
		const char *label = json_string_value(json_object_get(labels, key));

		if (!label || !str_equal(label, json_string_value(v)))
			return false;
	}
	json_array_foreach (json_object_get(sel, "matchExpressions"), i, v) {
		if (!expression_holds(v, labels))
			return false;
	}
	return true;
}
