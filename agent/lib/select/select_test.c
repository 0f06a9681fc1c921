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

static bool compiled_matches(const json_t *sel, const json_t *labels)
{
	struct selector *s = select_compile(sel);
	struct select_labels l;
	bool matches;

	select_labels_read(labels, NULL, &l);
	matches = select_compiled_matches(s, &l);
	select_labels_done(&l);
	select_compiled_free(s);
	return matches;
}

static void test_selectors(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(selectors); i++) {
		_cleanup_json_ json_t *sel =
			json_loads(selectors[i].selector, JSON_DECODE_ANY, NULL);
		_cleanup_json_ json_t *labels = json_loads(selectors[i].labels, 0, NULL);

		if (select_selector_matches(sel, labels) != selectors[i].matches ||
		    compiled_matches(sel, labels) != selectors[i].matches)
			fail_msg("%s of %s", selectors[i].selector, selectors[i].labels);
	}
	assert_false(select_selector_matches(NULL, NULL));
}

/* A label or expression for one of 8 keys, with one of 3 values. */
static json_t *some_selector(void)
{
	static const char *const operators[] = {"In", "NotIn", "Exists", "DoesNotExist", "Other"};
	json_t *labels = json_object(), *expressions = json_array();

	for (int i = rand() % 3; i; i--)
		json_object_set_new(labels, (char[]){(char)('a' + rand() % 8), 0},
				    rand() % 8 ? json_sprintf("%d", rand() % 3) : json_null());
	for (int i = rand() % 3; i; i--)
		json_array_append_new(expressions,
				      json_pack("{s:o, s:s, s:[o, o]}", "key",
						json_sprintf("%c", 'a' + rand() % 8), "operator",
						operators[(size_t)rand() % ARRAY_SIZE(operators)],
						"values", json_sprintf("%d", rand() % 3),
						json_sprintf("%d", rand() % 3)));
	return json_pack("{s:o, s:o}", "matchLabels", labels, "matchExpressions", expressions);
}

/* A compiled selector matches what the selector itself matches. */
static void test_compiled(void **state)
{
	unsigned n_match = 0;

	(void)state;
	srand(1);
	for (unsigned i = 0; i < 3000; i++) {
		_cleanup_json_ json_t *sel = some_selector(), *labels = json_object();
		bool matches;

		for (char key[] = "a"; *key < 'i'; ++*key)
			if (rand() % 2)
				json_object_set_new(labels, key,
						    rand() % 8 ? json_sprintf("%d", rand() % 3)
							       : json_integer(1));
		matches = select_selector_matches(sel, labels);
		assert_int_equal(compiled_matches(sel, labels), matches);
		n_match += matches;
	}
	assert_in_range(n_match, 300, 2700);
}

/* A namespace has a label with its name, whatever its object says, and also without one. */
static void test_labels_of_a_namespace(void **state)
{
	_cleanup_json_ json_t *labels =
		json_pack("{s:s, s:s}", SELECT_NAME_LABEL, "other", "team", "a");
	struct select_labels l;

	(void)state;
	select_labels_read(labels, "app", &l);
	assert_string_equal(select_label(&l, SELECT_NAME_LABEL), "app");
	assert_string_equal(select_label(&l, "team"), "a");
	assert_null(select_label(&l, "tea"));
	select_labels_done(&l);
	select_labels_read(NULL, "app", &l);
	assert_int_equal(l.n, 1);
	assert_string_equal(select_label(&l, SELECT_NAME_LABEL), "app");
	select_labels_done(&l);
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
		cmocka_unit_test(test_compiled),
		cmocka_unit_test(test_labels_of_a_namespace),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
