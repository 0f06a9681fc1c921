/* SPDX-License-Identifier: Apache-2.0 */
/* Types, labels and selectors of Pyroscope's API. */
#include "hub/pyroscope/pyroscope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- predicates as text ---- */

static void put(struct buf *b, const struct predicate *p)
{
	static const char *const words[] = {
		[PRED_AND] = " AND ",	[PRED_OR] = " OR ",	      [PRED_EQ] = "=",
		[PRED_NE] = "!=",	[PRED_IN] = " IN ",	      [PRED_NOT_IN] = " NOT IN ",
		[PRED_REGEXP] = "~",	[PRED_NOT_REGEXP] = "!~",     [PRED_IS_NULL] = " IS NULL",
		[PRED_FALSE] = "FALSE", [PRED_NOT_NULL] = " NOT NULL"};

	assert_non_null(words[p->op]);
	if (p->n_children)
		buf_putc(b, '(');
	for (size_t i = 0; i < p->n_children; i++) {
		buf_puts(b, i ? words[p->op] : "");
		put(b, p->children[i]);
	}
	if (p->n_children) {
		buf_putc(b, ')');
		return;
	}
	buf_printf(b, "%s%s", p->tag ?: "", words[p->op]);
	for (size_t i = 0; i < p->n_values; i++)
		buf_printf(b, "%s'%s'", i ? "," : "", p->values[i]);
}

/* What a selector means: "EVENTS: PREDICATE", or "error: ...". The caller frees it. */
static char *meaning(const char *selector)
{
	static char *tags[] = {(char *)"k8s.label.app", (char *)"k8s.label.x/y.z",
			       (char *)"label.region"};
	const struct query_names pods = {tags, ARRAY_SIZE(tags), 0};
	_cleanup_(pyroscope_matchers_done) struct pyroscope_matchers m = {0};
	struct field_error e = {0};
	struct buf b = {0};

	if (pyroscope_matchers_parse(&selector, 1, &pods, &m, &e))
		return xasprintf("error: %s", e.reason);
	buf_printf(&b, "%x: ", m.event_mask);
	if (m.where)
		put(&b, m.where);
	return buf_steal(&b);
}

#define ALL "7ff01ff" /* all events, as bits */

static const struct {
	const char *selector, *meaning;
} cases[] = {
	{"", ALL ": "},
	{" {} ", ALL ": "},
	{"{namespace=\"shop\",}", ALL ": pod_ns='shop'"},
	{"{ namespace = 'shop' , pod != `a\\b` }", ALL ": (pod_ns='shop' AND pod!='a\\b')"},
	{"{pod=\"a\\\"\\n\\x41\\101\\u00e9\"}", ALL ": pod='a\"\nAA\xc3\xa9'"},
	/* missing labels are "" */
	{"{pod=\"\"}", ALL ": (pod='' OR pod IS NULL)"},
	{"{pod!=\"\"}", ALL ": (pod!='' AND pod NOT NULL)"},
	{"{pod=~\"a*\"}", ALL ": (pod~'^(?:a*)$' OR pod IS NULL)"},
	{"{pod!~\"a*\"}", ALL ": (pod!~'^(?:a*)$' AND pod NOT NULL)"},
	{"{pod!~\"a.\"}", ALL ": pod!~'^(?:a.)$'"},
	/* any value: none is read */
	{"{pod=~\".*\"}", ALL ": "},
	{"{pod!~\".*\"}", ALL ": FALSE"},
	{"{pod=~\".+\"}", ALL ": (pod!='' AND pod NOT NULL)"},
	{"{pod!~\".+\"}", ALL ": (pod='' OR pod IS NULL)"},
	{"{service_name=~\".+\"}",
	 ALL ": ((pod_group!='' AND pod_group NOT NULL AND pod_group NOT NULL) OR (app_service!='' "
	     "AND app_service NOT NULL AND pod_group IS NULL))"},
	{"{service_name!~\".+\"}",
	 ALL ": (((pod_group='' OR pod_group IS NULL) AND pod_group NOT NULL) OR ((app_service='' "
	     "OR app_service IS NULL) AND pod_group IS NULL))"},
	{"{none=~\".*\",node=\"n\"}", ALL ": pod_node='n'"},
	{"{none=~\".+\"}", ALL ": FALSE"},
	{"{none!~\".+\"}", ALL ": "},
	{"{pod=\".*\"}", ALL ": pod='.*'"},
	/* choices of words */
	{"{pod=~\"a|b\\\\.c\"}", ALL ": pod IN 'a','b.c'"},
	{"{pod=~\"(a|b)\"}", ALL ": pod IN 'a','b'"},
	{"{pod!~\"a|\"}", ALL ": (pod NOT IN 'a','' AND pod NOT NULL)"},
	{"{pod=~\"a\"}", ALL ": pod='a'"},
	{"{pod=~\"(a)(b)\"}", ALL ": pod~'^(?:(a)(b))$'"},
	{"{pod=~\"a)|(b\"}", "error: 'a)|(b': unmatched closing parenthesis"},
	/* the workload, or else the process */
	{"{service_name=\"web\"}", ALL ": ((pod_group='web' AND pod_group NOT NULL) OR "
				       "(app_service='web' AND pod_group IS NULL))"},
	/* labels of pods, and labels that nothing has */
	{"{k8s_label_app=\"x\"}", ALL ": k8s.label.app='x'"},
	{"{k8s_label_x_y_z=\"x\"}", ALL ": k8s.label.x/y.z='x'"},
	{"{\"k8s.label.other\"=\"x\"}", ALL ": k8s.label.other='x'"},
	{"{label_region=\"eu\"}", ALL ": label.region='eu'"},
	{"{\"label.other\"=\"x\"}", ALL ": label.other='x'"},
	{"{\"label.\"=\"x\"}", ALL ": FALSE"},
	{"{k8s_label_none=\"x\"}", ALL ": FALSE"},
	{"{none=\"\",none!=\"x\"}", ALL ": "},
	{"{span_id=\"01\"}", ALL ": profile_id='01'"},
	/* types */
	{"process_cpu:cpu:nanoseconds:cpu:nanoseconds{}", "1: "},
	{"process_cpu:cpu:nanoseconds:cpu:nanoseconds:delta{pod='a'}", "1: pod='a'"},
	{"off_cpu:off_cpu:nanoseconds::", "2: "},
	{"{\"off_cpu:off_cpu:nanoseconds::\"}", "2: "},
	{"{__profile_type__=\"memory:alloc_space:bytes:space:bytes\"}", "4: "},
	{"{__profile_type__!=\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\"}", "7ff01fe: "},
	{"memory{__type__=~\"alloc.*\"}", "40004: "},
	{"{__unit__=\"nanoseconds\"}", "5030143: "},
	{"{__period_unit__=\"\"}", "2901f2: "},
	{"{__profile_type__=\"a:b:c:d:e\"}", "0: "},
	{"{__session_id__=\"x\"}", "0: "},
	{"{__session_id__=\"\"}", ALL ": "},
	/* no selectors */
	{"{", "error: selector '{': position 2: expected a label"},
	{"{pod}", "error: selector '{pod}': position 5: expected =, !=, =~ or !~"},
	{"{pod=x}", "error: selector '{pod=x}': position 6: expected a text in quotes"},
	{"{pod=\"x}", "error: selector '{pod=\"x}': position 9: expected the end of the text"},
	{"{pod=\"\\q\"}",
	 "error: selector '{pod=\"\\q\"}': position 8: a backslash with no meaning"},
	{"{pod=\"x\" a}", "error: selector '{pod=\"x\" a}': position 10: expected ',' or '}'"},
	{"{,}", "error: selector '{,}': position 2: expected a label"},
	{"{} or {}", "error: selector '{} or {}': position 4: expected the end"},
	{"1{}", "error: selector '1{}': position 1: expected the end"},
	{"{1=\"a\"}", "error: selector '{1=\"a\"}': position 2: expected a label"},
};

static void selectors(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *got = meaning(cases[i].selector);

		if (!streq(got, cases[i].meaning))
			print_error("%s\n", cases[i].selector);
		assert_string_equal(got, cases[i].meaning);
	}
}

static void several_selectors_must_all_match(void **state)
{
	static const char *const two[] = {"{pod='a'}", "off_cpu{node='n'}"};
	_cleanup_(pyroscope_matchers_done) struct pyroscope_matchers m = {0};
	_cleanup_buf_ struct buf b = {0};
	struct field_error e;

	(void)state;
	assert_int_equal(pyroscope_matchers_parse(two, 2, NULL, &m, &e), 0);
	put(&b, m.where);
	assert_string_equal(b.data, "(pod='a' AND pod_node='n')");
	assert_int_equal(m.event_mask, 1u << EVENT_OFF_CPU);
}

/* A selector of n items. */
static char *many(size_t n, const char *item)
{
	struct buf b = {0};

	buf_putc(&b, '{');
	for (size_t i = 0; i < n; i++)
		buf_puts(&b, item);
	buf_putc(&b, '}');
	return buf_steal(&b);
}

static void limits_of_selectors(void **state)
{
	static const struct {
		size_t n;
		const char *item, *error;
	} of[] = {
		{FILTER_MAX_CONDITIONS + 1, "a='b',", "there are too many matchers"},
		{FILTER_MAX_REGEXPS + 1, "pod=~'b.',", "more than 50 regular expressions"},
		{FILTER_MAX_REGEXPS / 2 + 1, "service_name=~'b.',",
		 "more than 50 regular expressions"},
		{20, "pod=~'a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a',", NULL},
		{FILTER_MAX_REGEXPS + 1, "__name__=~'b.',", "more than 50 regular expressions"},
		{1, "__name__=~'(((.+)+)+)+[0-9]'", "takes too many steps"},
		{FILTER_MAX_BYTES, "a", "a selector of more than 65536 bytes"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
		_cleanup_free_ char *selector = many(of[i].n, of[i].item);
		_cleanup_free_ char *got = meaning(selector);

		assert_int_equal(strncmp(got, "error: ", 7) == 0, of[i].error != NULL);
		if (of[i].error)
			assert_non_null(strstr(got, of[i].error));
	}
}

/* An id can be a name of Prometheus, and Grafana knows the unit, or shows it as it is. */
static void each_event_has_a_type(void **state)
{
	(void)state;
	for (enum event e = 0; e < _EVENT_MAX; e++) {
		const struct event_info *info = profile_event_info(e);
		struct pyroscope_type t;
		struct field_error error;
		enum event again;

		pyroscope_type_of(e, &t);
		assert_int_equal(strspn(t.id, "abcdefghijklmnopqrstuvwxyz_:"), strlen(t.id));
		assert_int_equal(pyroscope_type_parse(t.id, &again, &error), 0);
		assert_int_equal(again, e);
		assert_string_equal(t.parts[2], streq(info->unit, "microseconds") ? "nanoseconds"
						: e == EVENT_HBM_INUSE		  ? "decbytes"
										  : info->unit);
		assert_int_equal(t.factor, streq(info->unit, "microseconds") ? 1000 : 1);
	}
}

static void types_that_are_none(void **state)
{
	struct field_error error;
	enum event e;

	(void)state;
	assert_int_equal(pyroscope_type_parse("", &e, &error), -EINVAL);
	assert_int_equal(pyroscope_type_parse("a:b:c:d", &e, &error), -EINVAL);
	assert_int_equal(pyroscope_type_parse("a:b:c:d:e:f", &e, &error), -EINVAL);
	assert_int_equal(pyroscope_type_parse("a:b:c:d:e", &e, &error), -ENOENT);
	assert_int_equal(pyroscope_type_parse("off_cpu:off_cpu:nanoseconds:::delta", &e, &error),
			 0);
	assert_int_equal(e, EVENT_OFF_CPU);
}

/* Each tag of a label is one that the store knows. */
static void labels_have_tags(void **state)
{
	size_t n;
	const struct pyroscope_label *table = pyroscope_label_table(&n);

	(void)state;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; table[i].tags[k]; k++) {
			const struct tag_info *t = query_tag_lookup(table[i].tags[k]);

			assert_true(t && t->stored && !t->canonical);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(selectors),
		cmocka_unit_test(several_selectors_must_all_match),
		cmocka_unit_test(limits_of_selectors),
		cmocka_unit_test(each_event_has_a_type),
		cmocka_unit_test(types_that_are_none),
		cmocka_unit_test(labels_have_tags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
