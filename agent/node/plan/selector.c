/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Label selectors with the semantics of k8s.io/apimachinery: all requirements
 * must hold; NotIn also holds where the label is missing.
 */
#include "node/plan/internal.h"

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

bool plan_selector_matches(const json_t *sel, const json_t *labels)
{
	const json_t *v;
	const char *key;
	size_t i;

	if (!json_is_object(sel))
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

int plan_selector_check(const json_t *sel, const char *path, struct field_error *reterr)
{
	const json_t *e;
	size_t i;

	json_array_foreach (json_object_get(sel, "matchExpressions"), i, e) {
		const char *op = json_str_at(e, "operator", "");
		size_t n = json_array_size(json_object_get(e, "values"));
		_cleanup_free_ char *at = NULL;

		if ((n > 0) == str_has_suffix(op, "In"))
			continue;
		at = xasprintf("%s.matchExpressions[%zu].values", path, i);
		return field_error_set(reterr, at,
				       n ? "Exists and DoesNotExist take none"
					 : "In and NotIn need at least one");
	}
	return 0;
}
