/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases that are not in controller-spec/ (plan_test.c runs the cases of that directory): an unknown
 * or wrong value matches nothing.
 */
#include "lib/select/select.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

static const struct {
	const char *selector, *labels;
	bool matches;
} selectors[] = {
	{"{}", "{}", true},
	{"{}", "{\"a\": \"1\"}", true},
	{"null", "{\"a\": \"1\"}", false},
	{"[]", "{\"a\": \"1\"}", false},
	{"\"a=1\"", "{\"a\": \"1\"}", false},
	{"{\"matchLabels\": {\"a\": \"1\"}}", "{\"a\": \"1\", \"b\": \"2\"}", true},
	{"{\"matchLabels\": {\"a\": \"1\"}}", "{\"a\": 1}", false},
	{"{\"matchLabels\": {\"a\": null}}", "{\"b\": \"1\"}", false},
	{"{\"matchLabels\": {\"a\": \"1\"}, \"matchFields\": {}}", "{\"a\": \"1\"}", false},
	{"{\"matchExpressions\": [{\"key\": \"a\", \"operator\": \"Exists\"}]}", "{\"a\": \"\"}",
	 true},
	{"{\"matchExpressions\": [{\"key\": \"a\", \"operator\": \"Matches\"}]}", "{\"a\": \"1\"}",
	 false},
	{"{\"matchExpressions\": [{\"key\": \"a\", \"operator\": \"NotIn\", \"values\": [\"1\"]}]}",
	 "{}", true},
	{"{\"matchExpressions\": [{\"key\": \"a\", \"operator\": \"NotIn\", \"values\": [\"1\"], "
	 "\"fold\": true}]}",
	 "{}", false},
	{"{\"matchExpressions\": [3]}", "{\"a\": \"1\"}", false},
};

static void test_selectors(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(selectors); i++) {
		_cleanup_json_ json_t *sel =
			json_loads(selectors[i].selector, JSON_DECODE_ANY, NULL);
		_cleanup_json_ json_t *labels = json_loads(selectors[i].labels, 0, NULL);

		if (select_selector_matches(sel, labels) != selectors[i].matches)
			fail_msg("%s of %s", selectors[i].selector, selectors[i].labels);
	}
	assert_false(select_selector_matches(NULL, NULL));
}

static void test_nodes(void **state)
{
	_cleanup_json_ json_t *empty = json_object(), *gpu = json_pack("{s:s}", "gpu", "yes");
	_cleanup_json_ json_t *wants = json_pack("{s:O}", "matchLabels", gpu);
	const struct target_selection any = {0}, all = {.nodes = empty}, some = {.nodes = wants};

	(void)state;
	assert_true(select_takes_node(&any, NULL) && select_takes_node(&all, NULL));
	assert_true(select_takes_node(&some, gpu));
	assert_false(select_takes_node(&some, empty) || select_takes_node(&some, NULL));
}

static enum reason refusal(bool cluster, bool opt_in, const char *ns_label, const char *pod_label)
{
	_cleanup_json_ json_t *ns = json_pack("{s:s*}", SELECT_LABEL, ns_label);
	_cleanup_json_ json_t *pod = json_pack("{s:s*}", SELECT_LABEL, pod_label);
	const struct target_selection s = {.cluster = cluster, .ns = "app"};
	const struct selected as_label = {"app", ns, pod, NULL},
			      as_annotation = {"app", ns, NULL, pod};
	enum reason r = select_refusal(&s, &as_label, opt_in);

	assert_int_equal(select_refusal(&s, &as_annotation, opt_in), r);
	return r;
}

static void test_refusals(void **state)
{
	(void)state;
	assert_int_equal(refusal(false, true, NULL, NULL), REASON_NONE);
	assert_int_equal(refusal(false, true, "disabled", "enabled"), REASON_NAMESPACE_DISABLED);
	assert_int_equal(refusal(true, true, NULL, NULL), REASON_NAMESPACE_NOT_OPTED_IN);
	assert_int_equal(refusal(true, false, NULL, NULL), REASON_NONE);
	assert_int_equal(refusal(true, true, "enabled", NULL), REASON_NONE);
	assert_int_equal(refusal(true, true, "enabled", "false"), REASON_POD_OPTED_OUT);
	assert_int_equal(refusal(false, true, NULL, "enabled"), REASON_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_selectors),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
