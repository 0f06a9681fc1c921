/* SPDX-License-Identifier: Apache-2.0 */
/* tag_filter: texts become trees, and an error has the position of the mistake. */
#include "hub/query/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Writes the tree as text: (and (= pod_ns app) (in pod a b)). */
static void show(const struct predicate *p, struct buf *b)
{
	static const char *const names[] = {
		[PRED_AND] = "and",
		[PRED_OR] = "or",
		[PRED_NOT] = "not",
		[PRED_EQ] = "=",
		[PRED_NE] = "!=",
		[PRED_LT] = "<",
		[PRED_GT] = ">",
		[PRED_LE] = "<=",
		[PRED_GE] = ">=",
		[PRED_IN] = "in",
		[PRED_NOT_IN] = "not-in",
		[PRED_LIKE] = "like",
		[PRED_NOT_LIKE] = "not-like",
		[PRED_REGEXP] = "regexp",
		[PRED_NOT_REGEXP] = "not-regexp",
		[PRED_IS_NULL] = "null",
		[PRED_NOT_NULL] = "not-null",
	};

	if (!p) {
		buf_puts(b, "all");
		return;
	}
	buf_printf(b, "(%s", names[p->op]);
	if (p->tag)
		buf_printf(b, " %s%s", p->tag, p->numeric ? "#" : "");
	for (size_t i = 0; i < p->n_values; i++)
		buf_printf(b, " %s", p->values[i]);
	for (size_t i = 0; i < p->n_children; i++) {
		buf_putc(b, ' ');
		show(p->children[i], b);
	}
	buf_putc(b, ')');
}

static const struct {
	const char *text, *tree;
} good[] = {
	{"", "all"},
	{"  \t\n", "all"},
	{"pod_cluster='prod-cluster' AND pod_ns='app'",
	 "(and (= pod_cluster prod-cluster) (= pod_ns app))"},
	{"pod_ns='a' or pod_ns='b' and pod='c'", "(or (= pod_ns a) (and (= pod_ns b) (= pod c)))"},
	{"(pod_ns='a' OR pod_ns='b') AND pod='c'",
	 "(and (or (= pod_ns a) (= pod_ns b)) (= pod c))"},
	{"NOT pod_ns='a' AND pod='c'", "(and (not (= pod_ns a)) (= pod c))"},
	{"not (pod_ns='a' and not pod='c')", "(not (and (= pod_ns a) (not (= pod c))))"},
	{"pod!='a' AND pod<>'b'", "(and (!= pod a) (!= pod b))"},
	{"process_id>=10 and process_id<20", "(and (>= process_id# 10) (< process_id# 20))"},
	{"process_id='10'", "(= process_id# 10)"},
	{"cpu > -1", "(> cpu# -1)"},
	{"process_id LIKE '1%'", "(like process_id# 1%)"},
	{"pod IN ('a','b' , \"c\")", "(in pod a b c)"},
	{"pod not in ('a')", "(not-in pod a)"},
	{"pod LIKE 'web-*' AND pod NOT LIKE '%canary%'",
	 "(and (like pod web-*) (not-like pod %canary%))"},
	{"pod REGEXP '^a.*$' OR pod NOT REGEXP 'x\\.y'",
	 "(or (regexp pod ^a.*$) (not-regexp pod x\\.y))"},
	{"pod IS NULL or pod is not null", "(or (null pod) (not-null pod))"},
	{"exist(pod)", "(not-null pod)"},
	{"`k8s.label.a``b`='x'", "(= k8s.label.a`b x)"},
	{"NOT EXIST(`k8s.label.app`)", "(not (not-null k8s.label.app))"},
	{"`k8s.label.git_commit_id`='abc'", "(= k8s.label.git_commit_id abc)"},
	{"k8s.label.app.kubernetes.io/name='x'", "(= k8s.label.app.kubernetes.io/name x)"},
	{"pod='it''s'", "(= pod it's)"},
	{"pod='it\\'s \\\\ \\d'", "(= pod it's \\ \\d)"},
	{"pod=\"say \"\"hi\"\"\"", "(= pod say \"hi\")"},
	{"pod=''", "(= pod )"},
	{"pod=12", "(= pod 12)"},
	{"gprocess='x' and auto_service='y'", "(and (= app_service x) (= pod_group y))"},
	{"pod_service='x' and pod_ns_id=12", "(and (= pod_service x) (= pod_ns_id 12))"},
	{"pod='\xe4\xb8\xad'", "(= pod \xe4\xb8\xad)"},
};

static void good_texts(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_buf_ struct buf b = {0};
		struct predicate *p = NULL;
		struct field_error e = {0};
		int r = query_filter_parse(good[i].text, &p, &e);

		if (r)
			fail_msg("%s: %s: %s", good[i].text, e.path, e.reason);
		show(p, &b);
		assert_string_equal(b.data, good[i].tree);
		store_predicate_free(p);
	}
}

static const struct {
	const char *text, *path, *says;
} bad[] = {
	{"pod_ns", "tag_filter:7", "expected =, !=, <"},
	{"pod_ns=", "tag_filter:8", "expected a value"},
	{"pod_ns=app", "tag_filter:8", "expected a value ('text' or a number), found 'app'"},
	{"pod_ns='app", "tag_filter:8", "closing '"},
	{"pod_ns='app' pod='x'", "tag_filter:14", "expected AND, OR or the end, found 'pod'"},
	{"pod_ns='app' AND", "tag_filter:17", "expected a tag, found the end"},
	{"pod_ns='app')", "tag_filter:13", "expected AND, OR or the end"},
	{"(pod_ns='app'", "tag_filter:14", "expected AND, OR or ')'"},
	{"()", "tag_filter:2", "expected a tag"},
	{"pod_nss='app'", "tag_filter:1", "did you mean pod_ns?"},
	{"k8s.label.='app'", "tag_filter:1", "tag 'k8s.label.' needs a name behind it"},
	{"a='x'", "tag_filter:1", "unknown tag 'a'"},
	{"pod='x' OR 1=1", "tag_filter:12", "expected a tag"},
	{"'a'='a'", "tag_filter:1", "expected a tag"},
	{"pod='x'; DROP TABLE samples", "tag_filter:8", "';'"},
	{"pod='x' -- c", "tag_filter:9", "'-'"},
	{"pod='x' /* c */", "tag_filter:9", "'/'"},
	{"pod=='x'", "tag_filter:5", "expected a value"},
	{"pod IN 'x'", "tag_filter:8", "expected '(' after IN"},
	{"pod IN ()", "tag_filter:9", "expected a value"},
	{"pod IN ('a' 'b')", "tag_filter:13", "expected ',' or ')'"},
	{"pod NOT 'x'", "tag_filter:9", "IN, LIKE or REGEXP"},
	{"pod IS 'x'", "tag_filter:8", "expected NULL"},
	{"exist pod", "tag_filter:7", "expected '('"},
	{"process_id='ten'", "tag_filter:12", "process_id compares with whole numbers"},
	{"process_id=1.5", "tag_filter:12", "whole numbers"},
	{"process_id=99999999999999999999", "tag_filter:12", "whole numbers"},
	{"pod REGEXP '(a'", "tag_filter:12", "bad regular expression"},
	{"pod REGEXP '(a)\\1'", "tag_filter:12", "non-existent"},
	{"`pod='x'", "tag_filter:1", "closing `"},
	{"pod between 1 and 2", "tag_filter:5", "found 'between'"},
	{"``='x'", "tag_filter:1", "unknown tag ''"},
};

static void bad_texts_name_the_position(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct predicate *p = (struct predicate *)1;
		struct field_error e = {0};

		assert_int_equal(query_filter_parse(bad[i].text, &p, &e), -EINVAL);
		assert_ptr_equal(p, 1); /* p is unchanged */
		if (!streq(e.path, bad[i].path) || !strstr(e.reason, bad[i].says))
			fail_msg("%s: %s: %s", bad[i].text, e.path, e.reason);
	}
}

static int parse_repeated(const char *before, int n, const char *between, const char *after)
{
	_cleanup_buf_ struct buf b = {0};
	struct predicate *p = NULL;
	struct field_error e = {0};
	int r;

	for (int i = 0; i < n; i++)
		buf_puts(&b, before);
	buf_puts(&b, "pod='x'");
	for (int i = 0; i < n; i++)
		buf_puts(&b, between);
	buf_puts(&b, after);
	r = query_filter_parse(b.data, &p, &e);
	store_predicate_free(p);
	return r;
}

static void limits(void **state)
{
	(void)state;
	assert_int_equal(parse_repeated("(", FILTER_MAX_DEPTH - 1, ")", ""), 0);
	assert_int_equal(parse_repeated("(", FILTER_MAX_DEPTH, ")", ""), -EINVAL);
	assert_int_equal(parse_repeated("NOT ", FILTER_MAX_DEPTH, "", ""), -EINVAL);
	assert_int_equal(parse_repeated("(", 30000, "", ""), -EINVAL);
	assert_int_equal(parse_repeated("", FILTER_MAX_CONDITIONS - 1, " OR pod='x'", ""), 0);
	assert_int_equal(parse_repeated("", FILTER_MAX_CONDITIONS, " OR pod='x'", ""), -EINVAL);
	assert_int_equal(parse_repeated("", 70000, " ", ""), -EINVAL);
	assert_int_equal(parse_repeated("", FILTER_MAX_REGEXPS, " OR pod REGEXP 'a'", ""), 0);
	assert_int_equal(parse_repeated("", FILTER_MAX_REGEXPS + 1, " OR pod REGEXP 'a'", ""),
			 -EINVAL);
}

static void long_values(void **state)
{
	_cleanup_buf_ struct buf b = {0};
	struct predicate *p = NULL;
	struct field_error e = {0};

	(void)state;
	buf_puts(&b, "pod='");
	for (int i = 0; i < FILTER_MAX_VALUE; i++)
		buf_putc(&b, 'v');
	buf_putc(&b, '\'');
	assert_int_equal(query_filter_parse(b.data, &p, &e), 0);
	p = store_predicate_free(p);
	b.data[b.len - 1] = 'v';
	buf_putc(&b, '\'');
	assert_int_equal(query_filter_parse(b.data, &p, &e), -EINVAL);
	assert_string_equal(e.path, "tag_filter:5");
}

/* The limit on values counts the values of all lists together. */
static void many_values(void **state)
{
	_cleanup_buf_ struct buf b = {0};
	struct predicate *p = NULL;
	struct field_error e = {0};

	(void)state;
	buf_puts(&b, "pod NOT IN (");
	for (int i = 0; i < FILTER_MAX_VALUES - 2; i++)
		buf_puts(&b, "'x',");
	buf_puts(&b, "'x') AND cpu IN (7)");
	assert_int_equal(query_filter_parse(b.data, &p, &e), 0);
	p = store_predicate_free(p);
	b.data[b.len - 1] = ',';
	buf_puts(&b, "8)");
	assert_int_equal(query_filter_parse(b.data, &p, &e), -EINVAL);
	assert_string_equal(e.reason, "more than 8000 values");
}

static void tags(void **state)
{
	(void)state;
	assert_true(query_tag_lookup("pod_ns")->stored);
	assert_true(query_tag_lookup("k8s.label.app")->stored);
	assert_false(query_tag_lookup("k8s.env.X")->stored);
	assert_false(query_tag_lookup("pod_ns_id")->stored);
	assert_true(query_tag_lookup("process_id")->numeric);
	assert_true(query_tag_lookup("container_id")->stored);
	assert_true(query_tag_lookup("gpu_device")->stored);
	assert_false(query_tag_lookup("gpu_device")->numeric); /* the values of this tag are text */
	assert_int_equal(query_tag_lookup("wait")->event_mask, 1u << EVENT_OFF_CPU);
	assert_int_equal(query_tag_lookup("pod")->event_mask, 0);
	assert_string_equal(query_tag_lookup("span_id")->canonical, "profile_id");
	assert_null(query_tag_lookup("k8s.label."));
	assert_null(query_tag_lookup("Pod_ns"));
	assert_null(query_tag_lookup(""));
	assert_string_equal(query_tag_suggest("namespaces_pod") ?: "none", "none");
	assert_string_equal(query_tag_suggest("pod_name"), "pod_node");
	assert_string_equal(query_tag_suggest("gpu_devices"), "gpu_device");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_texts),  cmocka_unit_test(bad_texts_name_the_position),
		cmocka_unit_test(limits),      cmocka_unit_test(many_values),
		cmocka_unit_test(long_values), cmocka_unit_test(tags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
