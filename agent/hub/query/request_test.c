/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the API: which values are read from them, and the text of every refusal. */
#include "hub/query/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define WHOLE                                                                                      \
	"\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","                    \
	"\"time_start\":1708479421,\"time_end\":1708480321"

static int parse(const char *body, struct tracing_request *r, struct field_error *e)
{
	*e = (struct field_error){0};
	return query_tracing_parse(body, strlen(body), r, e);
}

static void defaults(void **state)
{
	struct tracing_request r;
	struct field_error e;

	(void)state;
	assert_int_equal(parse("{" WHOLE "}", &r, &e), 0);
	assert_int_equal(r.selection->event, EVENT_ON_CPU);
	assert_int_equal(r.selection->time_start_s, 1708479421);
	assert_int_equal(r.selection->time_end_s, 1708480321);
	assert_int_equal(r.selection->n_app_services, 0);
	assert_null(r.selection->where);
	assert_int_equal(r.format, RESULT_LIST);
	assert_int_equal(r.max_kernel_stack_depth, -1);
	assert_false(r.debug);
	assert_false(r.selection->unnamed_by_start);
	assert_string_equal(r.app_service, "");
	assert_int_equal(r.n_notes, 0);
	query_tracing_request_done(&r);
}

static void everything(void **state)
{
	struct tracing_request r;
	struct field_error e;

	(void)state;
	assert_int_equal(parse("{" WHOLE ",\"app_service\":\"it's\",\"tag_filter\":\"pod_ns='a'\","
			       "\"debug\":true,\"max_kernel_stack_depth\":3,\"group_by\":\"\","
			       "\"result_format\":\"flat\",\"unnamed\":\"start\","
			       "\"unknown\":[{}]}",
			       &r, &e),
			 0);
	assert_string_equal(r.selection->app_services[0], "it's");
	assert_string_equal(r.selection->where->tag, "pod_ns");
	assert_int_equal(r.format, RESULT_FLAT);
	assert_int_equal(r.max_kernel_stack_depth, 3);
	assert_true(r.debug);
	assert_true(r.selection->unnamed_by_start);
	query_tracing_request_done(&r);
}

static void events(void **state)
{
	static const struct {
		const char *name;
		enum event event;
	} cases[] = {{"on-cpu", EVENT_ON_CPU},
		     {"off-cpu", EVENT_OFF_CPU},
		     {"mem-alloc", EVENT_MEM_ALLOC},
		     {"mem-inuse", EVENT_MEM_INUSE}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *body =
			xasprintf("{\"profile_event_type\":\"%s\",\"profile_language_type\":"
				  "\"eBPF\",\"time_start\":1,\"time_end\":2,\"tag_filter\":"
				  "\"wait='lock'\"}",
				  cases[i].name);
		struct tracing_request r;
		struct field_error e;

		assert_int_equal(parse(body, &r, &e), 0);
		assert_int_equal(r.selection->event, cases[i].event);
		assert_string_equal(r.selection->where->tag, "wait");
		assert_int_equal(r.n_notes, 0);
		query_tracing_request_done(&r);
	}
}

/* The queries compute with times, which fit in 64 bits then. */
static void times_are_within_bounds(void **state)
{
	static const char body[] =
		"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","
		"\"time_start\":-9223372036854775808,\"time_end\":9223372036854775807}";
	struct tracing_request r;
	struct series_query q;
	struct field_error e = {0};

	(void)state;
	assert_int_equal(query_tracing_parse(body, strlen(body), &r, &e), 0);
	assert_int_equal(r.selection->time_start_s, 0);
	assert_int_equal(r.selection->time_end_s, 1LL << 40);
	query_tracing_request_done(&r);
	assert_int_equal(query_series_parse(body, strlen(body), &q, &e), 0);
	assert_int_equal(q.step_s, INT32_MAX); /* 2^40 s have 512 such steps */
	query_series_done(&q);
}

/* Of what programs push the language is a tag. */
static void the_language_of_what_is_pushed(void **state)
{
	static const char head[] = "{\"profile_event_type\":\"goroutines\","
				   "\"profile_language_type\":\"Golang\","
				   "\"time_start\":1,\"time_end\":2";
	_cleanup_free_ char *plain = xasprintf("%s}", head),
			    *more = xasprintf("%s,\"tag_filter\":\"pod='x'\"}", head);
	struct tracing_request a, b;
	const struct predicate *is;

	(void)state;
	assert_int_equal(query_tracing_parse(plain, strlen(plain), &a, NULL), 0);
	assert_int_equal(query_tracing_parse(more, strlen(more), &b, NULL), 0);
	is = a.selection->where;
	assert_int_equal(is->op, PRED_EQ);
	assert_string_equal(is->tag, "profile_language_type");
	assert_string_equal(is->values[0], "Golang");
	assert_int_equal(b.selection->where->op, PRED_AND);
	assert_string_equal(b.selection->where->children[0]->tag, "pod");
	assert_string_equal(b.selection->where->children[1]->values[0], "Golang");
	assert_int_equal(a.n_notes + b.n_notes, 0);
	query_tracing_request_done(&a);
	query_tracing_request_done(&b);
}

static void nothing_to_find_is_said(void **state)
{
	static const struct {
		const char *body, *note;
	} cases[] = {
		{"{\"profile_event_type\":\"itimer\",\"profile_language_type\":\"eBPF\","
		 "\"time_start\":1,\"time_end\":2}",
		 "itimer is not recorded"},
		{"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"Java\","
		 "\"time_start\":1,\"time_end\":2}",
		 "only eBPF is recorded"},
		{"{" WHOLE ",\"tag_filter\":\"pod_service='x' AND pod_service!='y'\"}",
		 "tag_filter: pod_service matches nothing here"},
		{"{" WHOLE ",\"tag_filter\":\"pod_ns_id=1\"}", "names, not numbers"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct tracing_request r;
		struct field_error e;

		if (parse(cases[i].body, &r, &e))
			fail_msg("%s: %s", cases[i].body, e.reason);
		assert_int_equal(r.n_notes, 1);
		assert_non_null(strstr(r.notes[0], cases[i].note));
		query_tracing_request_done(&r);
	}
}

/* Each tag gets one note, also if its name contains the name of another tag. */
static void each_tag_has_its_note(void **state)
{
	static const char *const notes[] = {"tag_filter: host_ip matches nothing here: ",
					    "tag_filter: ip matches nothing here: "};
	struct tracing_request r;
	struct field_error e;

	(void)state;
	assert_int_equal(parse("{" WHOLE ",\"tag_filter\":\"host_ip='1' AND (ip='2' OR ip='3' OR "
			       "host_ip='4')\"}",
			       &r, &e),
			 0);
	assert_int_equal(r.n_notes, ARRAY_SIZE(notes));
	for (size_t i = 0; i < ARRAY_SIZE(notes); i++)
		assert_true(str_has_prefix(r.notes[i], notes[i]));
	query_tracing_request_done(&r);
}

/* A filter with the most conditions: there is a note for each tag. */
static void all_notes_are_there(void **state)
{
	_cleanup_buf_ struct buf body = {0};
	struct tracing_request r;
	struct field_error e;

	(void)state;
	buf_puts(&body, "{" WHOLE ",\"tag_filter\":\"");
	for (int i = 0; i < FILTER_MAX_CONDITIONS; i++)
		buf_printf(&body, "%sk8s.annotation.a%d='x'", i ? " OR " : "", i);
	buf_puts(&body, "\"}");
	assert_int_equal(parse(body.data, &r, &e), 0);
	assert_int_equal(r.n_notes, FILTER_MAX_CONDITIONS);
	assert_string_equal(r.notes[FILTER_MAX_CONDITIONS - 1],
			    "tag_filter: k8s.annotation.a499 matches nothing here: "
			    "known to DeepFlow, not stored here");
	query_tracing_request_done(&r);
}

static const struct {
	const char *body;
	int http;
	const char *status, *description;
} refused[] = {
	{"", 400, "INVALID_POST_DATA", "EOF: the body is empty, expected JSON"},
	{"{", 400, "INVALID_POST_DATA", "bad JSON: line 1, column 1:"},
	{"[]", 400, "INVALID_POST_DATA",
	 "json: cannot unmarshal array into Go value of type model.Profile"},
	{"12", 400, "INVALID_POST_DATA", "not a JSON object"},
	{"{\"tag_filter: \"\",1}", 400, "INVALID_POST_DATA", "bad JSON: line 1, column"},
	{"{}", 400, "INVALID_POST_DATA",
	 "Key: 'Profile.ProfileEventType' Error:Field validation for 'ProfileEventType' failed on "
	 "the "
	 "'required' tag\nKey: 'Profile.ProfileLanguageType' Error:"},
	{"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\",\"time_start\":0,"
	 "\"time_end\":5}",
	 400, "INVALID_POST_DATA",
	 "Key: 'Profile.TimeStart' Error:Field validation for 'TimeStart' failed on the 'required' "
	 "tag"},
	{"{" WHOLE ",\"debug\":\"yes\"}", 400, "INVALID_POST_DATA",
	 "json: cannot unmarshal string into Go struct field Profile.debug of type bool"},
	{"{\"time_start\":\"1\"}", 400, "INVALID_POST_DATA",
	 "json: cannot unmarshal string into Go struct field Profile.time_start of type int"},
	{"{\"time_start\":1.5}", 400, "INVALID_POST_DATA", "Profile.time_start of type int"},
	{"{\"app_service\":[1]}", 400, "INVALID_POST_DATA",
	 "json: cannot unmarshal array into Go struct field Profile.app_service of type string"},
	{"{\"profile_event_type\":\"nonsense\",\"profile_language_type\":\"eBPF\",\"time_start\":1,"
	 "\"time_end\":5}",
	 400, "INVALID_POST_DATA",
	 "'nonsense' is not known; known: on-cpu, off-cpu, mem-alloc, mem-inuse, hbm-alloc, "
	 "hbm-inuse, on-gpu, rdma, rdma-latency"},
	{"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\",\"time_start\":9,"
	 "\"time_end\":5}",
	 400, "INVALID_POST_DATA", "time_end is before time_start"},
	{"{" WHOLE ",\"result_format\":\"xml\"}", 400, "INVALID_POST_DATA",
	 "not one of list, flat"},
	{"{" WHOLE ",\"unnamed\":\"address\"}", 400, "INVALID_POST_DATA",
	 "unnamed: 'address' is not one of module, start"},
	{"{" WHOLE ",\"app_service\":\"a\\u0000b\"}", 400, "INVALID_POST_DATA", "bad JSON"},
	{"{" WHOLE ",\"time_end\":5}", 400, "INVALID_POST_DATA", "duplicate"},
	{"{" WHOLE ",\"tag_filter\":\"pod_ns='a' AND nope='b'\"}", 500, "FAIL",
	 "tag_filter: position 16: unknown tag 'nope'"},
};

static void refusals(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		struct tracing_request r;
		struct field_error e;
		_cleanup_free_ char *text = NULL;
		_cleanup_json_ json_t *reply = NULL;
		size_t n;
		int http;

		assert_int_equal(parse(refused[i].body, &r, &e), -EINVAL);
		text = query_tracing_refused(&e, &http, &n);
		assert_int_equal(n, strlen(text));
		reply = json_loads(text, 0, NULL);
		assert_non_null(reply);
		assert_int_equal(http, refused[i].http);
		assert_string_equal(json_str_at(reply, "OPT_STATUS", ""), refused[i].status);
		if (!strstr(json_str_at(reply, "DESCRIPTION", ""), refused[i].description))
			fail_msg("%s: %s", refused[i].body, text);
		assert_true(json_is_null(json_object_get(reply, "result")));
	}
}

static void values_bodies(void **state)
{
	static const char good[] =
		"{\"tag\":\"gprocess\",\"time_start\":5,\"tag_filter\":\"pod='x'\"}";
	static const char *const bad[] = {"{}",
					  "{\"tag\":\"x\"}",
					  "{\"tag\":\"pod\",\"limit\":0}",
					  "{\"tag\":\"pod\",\"limit\":\"1\"}",
					  "[",
					  "{\"tag\":7}"};
	static const char labels[] = "{\"tag\":\"k8s.label.\"}";
	static const char nulls[] = "{\"tag\":\"pod\",\"limit\":null,\"time_end\":null,"
				    "\"profile_event_type\":null}";
	struct values_request v;
	struct field_error e;

	(void)state;
	assert_int_equal(query_values_parse(good, strlen(good), &v, &e), 0);
	assert_string_equal(v.tag, "app_service");
	assert_int_equal(v.tracing.selection->time_start_s, 5);
	assert_int_equal(v.limit, 100);
	query_values_request_done(&v);
	assert_int_equal(query_values_parse(labels, strlen(labels), &v, &e), 0);
	assert_true(v.stored);
	query_values_request_done(&v);
	assert_int_equal(query_values_parse(nulls, strlen(nulls), &v, &e), 0);
	assert_int_equal(v.limit, 100);
	query_values_request_done(&v);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(query_values_parse(bad[i], strlen(bad[i]), &v, &e), -EINVAL);
}

/* Each tag has its own conditions taken out, if all of the filter must hold. */
static void choices_bodies(void **state)
{
	static const char good[] =
		"{\"tags\":[\"pod\",\"pod_ns\",\"comm\"],\"app_service\":\"web\",\"limit\":7,"
		"\"tag_filter\":\"pod='a' AND (pod_ns='n' OR pod_ns='m') AND (pod='b' OR cpu=1)\"}";
	static const char *const bad[] = {"{}",
					  "{\"tags\":[]}",
					  "{\"tags\":\"pod\"}",
					  "{\"tags\":[\"pod\",7]}",
					  "{\"tags\":[\"x\"]}",
					  "{\"tags\":[\"pod_node\",\"agent\"]}",
					  "{\"tags\":[\"pod\"],\"limit\":0}"};
	struct choices_request c;
	struct field_error e;

	(void)state;
	assert_int_equal(query_choices_parse(good, strlen(good), &c, &e), 0);
	assert_int_equal(c.n_tags, 3);
	/* pod: without pod='a'; the last condition is not about pod alone, so it stays */
	assert_string_equal(c.tags[0].tag, "pod");
	assert_int_equal(c.tags[0].limit, 7);
	assert_int_equal(c.tags[0].tracing.selection->where->n_children, 2);
	assert_int_equal(c.tags[0].tracing.selection->n_app_services, 1);
	assert_int_equal(c.tags[1].tracing.selection->where->n_children, 2);
	assert_string_equal(c.tags[1].tracing.selection->where->children[0]->tag, "pod");
	assert_string_equal(c.tags[2].tag, "app_service");
	assert_int_equal(c.tags[2].tracing.selection->where->n_children, 3);
	assert_int_equal(c.tags[2].tracing.selection->n_app_services, 0);
	assert_true(c.tags[2].tracing.selection->with_total);
	query_choices_request_done(&c);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(query_choices_parse(bad[i], strlen(bad[i]), &c, &e), -EINVAL);
}

#define SELECTION                                                                                  \
	"\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","                    \
	"\"time_start\":1000,\"time_end\":4599"

static void series_bodies(void **state)
{
	static const char plain[] = "{" SELECTION "}";
	static const char years[] = "{\"profile_event_type\":\"on-cpu\","
				    "\"profile_language_type\":\"eBPF\","
				    "\"time_start\":1577836800,\"time_end\":1767225600}";
	static const char given[] = "{" SELECTION ",\"step\":7,\"limit\":3,\"group_by\":\"comm\"}";
	static const struct {
		const char *body, *field;
	} bad[] = {
		{"{}", "body"},
		{"{" SELECTION ",\"step\":1}", "step"},
		{"{" SELECTION ",\"step\":-1}", "step"},
		{"{" SELECTION ",\"step\":\"1\"}", "step"},
		{"{" SELECTION ",\"group_by\":\"nope\"}", "group_by"},
		{"{" SELECTION ",\"group_by\":\"cpu\"}", "group_by"},
		{"{" SELECTION ",\"group_by\":\"span_id\"}", "group_by"},
		{"{" SELECTION ",\"group_by\":7}", "group_by"},
		{"{" SELECTION ",\"limit\":1001}", "limit"},
	};
	struct series_query q;
	struct field_error e;

	(void)state;
	assert_int_equal(query_series_parse(plain, strlen(plain), &q, &e), 0);
	assert_null(q.group_by);
	assert_int_equal(q.step_s, 10); /* an hour has 360 such steps */
	assert_int_equal(q.limit, 10);
	query_series_done(&q);
	assert_int_equal(query_series_parse(years, strlen(years), &q, &e), 0);
	assert_int_equal(q.step_s, 5 * 86400);
	query_series_done(&q);
	assert_int_equal(query_series_parse(given, strlen(given), &q, &e), 0);
	assert_string_equal(q.group_by, "app_service");
	assert_int_equal(q.step_s, 7);
	assert_int_equal(q.limit, 3);
	query_series_done(&q);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(query_series_parse(bad[i].body, strlen(bad[i].body), &q, &e),
				 -EINVAL);
		assert_string_equal(e.path, bad[i].field);
	}
}

/* An answer about the send queue only says so. */
static void series_notes(void **state)
{
	static const char body[] = "{\"profile_event_type\":\"rdma\",\"time_start\":1,"
				   "\"time_end\":9,\"profile_language_type\":\"eBPF\"}";
	int64_t values[1] = {7};
	struct series_group group = {.values = values};
	const struct store_series s = {.n_steps = 1, .groups = &group, .n_groups = 1};
	_cleanup_free_ char *text = NULL;
	struct series_query q;
	struct field_error e;
	size_t n;

	(void)state;
	assert_int_equal(query_series_parse(body, strlen(body), &q, &e), 0);
	text = query_series_reply(&q, &s, &n);
	assert_non_null(strstr(text, "\"notes\":[\"only requests for the send queue"));
	query_series_done(&q);
}

static void tree_bodies(void **state)
{
	static const char plain[] = "{" SELECTION "}";
	static const char calls[] = "{" SELECTION ",\"group_by\":\"span_id\"}";
	static const char given[] =
		"{" SELECTION
		",\"max_nodes\":7,\"by_line\":true,\"preview\":true,\"group_by\":\"pod\","
		"\"before\":{\"time_start\":5,\"time_end\":6,\"tag_filter\":\"pod='x'\"}}";
	static const struct {
		const char *body, *field;
	} bad[] = {
		{"{" SELECTION ",\"max_nodes\":1000001}", "max_nodes"},
		{"{" SELECTION ",\"by_line\":1}", "by_line"},
		{"{" SELECTION ",\"preview\":\"yes\"}", "preview"},
		{"{" SELECTION ",\"group_by\":\"sample_id\"}", "group_by"},
		{"{" SELECTION ",\"before\":[]}", "before"},
		{"{" SELECTION ",\"before\":{}}", "body"},
		{"{" SELECTION ",\"before\":{\"time_start\":9,\"time_end\":6}}", "time_end"},
	};
	struct tree_query q;
	struct field_error e;

	(void)state;
	assert_int_equal(query_tree_parse(plain, strlen(plain), &q, &e), 0);
	assert_int_equal(q.max_nodes, QUERY_MAX_COLUMNS);
	assert_false(q.by_line);
	assert_false(q.preview);
	assert_null(q.before.selection);
	query_tree_query_done(&q);
	assert_int_equal(query_tree_parse(given, strlen(given), &q, &e), 0);
	assert_int_equal(q.max_nodes, 7);
	assert_true(q.by_line);
	assert_true(q.preview);
	assert_string_equal(q.tracing.selection->group_by, "pod");
	assert_string_equal(q.before.selection->group_by, "pod");
	assert_int_equal(q.before.selection->time_end_s, 6);
	assert_int_equal(q.before.selection->event, EVENT_ON_CPU);
	query_tree_query_done(&q);
	assert_int_equal(query_tree_parse(calls, strlen(calls), &q, &e), 0);
	assert_string_equal(q.tracing.selection->group_by, "profile_id");
	query_tree_query_done(&q);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(query_tree_parse(bad[i].body, strlen(bad[i].body), &q, &e),
				 -EINVAL);
		assert_string_equal(e.path, bad[i].field);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(everything),
		cmocka_unit_test(events),
		cmocka_unit_test(times_are_within_bounds),
		cmocka_unit_test(the_language_of_what_is_pushed),
		cmocka_unit_test(nothing_to_find_is_said),
		cmocka_unit_test(each_tag_has_its_note),
		cmocka_unit_test(all_notes_are_there),
		cmocka_unit_test(refusals),
		cmocka_unit_test(values_bodies),
		cmocka_unit_test(choices_bodies),
		cmocka_unit_test(series_bodies),
		cmocka_unit_test(series_notes),
		cmocka_unit_test(tree_bodies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
