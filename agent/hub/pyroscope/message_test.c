/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of Pyroscope's API in protobuf and JSON. The bytes are those that Go's client sends. */
#include "hub/pyroscope/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define REQUEST (&pyroscope_select_series_request)

/* What is read, as text; "error: ..." if it is refused. The caller frees it. */
static char *read_as(const struct pyroscope_message *m, enum pyroscope_codec codec, const char *p,
		     size_t n)
{
	_cleanup_json_ json_t *j = NULL;
	struct field_error e = {0};

	if (pyroscope_read(m, codec, p, n, &j, &e))
		return xasprintf("error: %s", e.reason);
	return json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
}

static void reads(const struct pyroscope_message *m, enum pyroscope_codec codec, const char *p,
		  size_t n, const char *expected)
{
	_cleanup_free_ char *got = read_as(m, codec, p, n);

	assert_string_equal(got, expected);
}

#define JSON_READS(m, text, expected) reads(m, PYROSCOPE_JSON, text, strlen(text), expected)
#define PROTO_READS(m, bytes, expected)                                                            \
	reads(m, PYROSCOPE_PROTO, bytes, sizeof(bytes) - 1, expected)

static void both_names_and_kinds_of_numbers(void **state)
{
	(void)state;
	JSON_READS(REQUEST,
		   "{\"profileTypeID\":\"a\",\"label_selector\":\"{}\",\"start\":\"1700000000000\","
		   "\"end\":1.7e12,\"step\":15,\"groupBy\":[\"pod\"],\"limit\":0,"
		   "\"aggregation\":\"TIME_SERIES_AGGREGATION_TYPE_AVERAGE\",\"new\":{}}",
		   "{\"aggregation\":1,\"end\":1700000000000,\"group_by\":[\"pod\"],"
		   "\"label_selector\":\"{}\",\"limit\":0,\"profile_typeID\":\"a\","
		   "\"start\":1700000000000,\"step\":15.0}");
	JSON_READS(REQUEST, "{\"profile_typeID\":\"a\",\"labelSelector\":\"{}\",\"limit\":null}",
		   "{\"label_selector\":\"{}\",\"profile_typeID\":\"a\"}");
	JSON_READS(&pyroscope_select_merge_stacktraces_request,
		   "{\"format\":\"PROFILE_FORMAT_FUNCTIONS\",\"maxNodes\":\"-1\","
		   "\"stackTraceSelector\":{\"call_site\":[{\"name\":\"main\"}]}}",
		   "{\"format\":-1,\"max_nodes\":-1,"
		   "\"stack_trace_selector\":{\"call_site\":[{\"name\":\"main\"}]}}");
}

static void protobuf(void **state)
{
	(void)state;
	PROTO_READS(REQUEST, "", "{}");
	PROTO_READS(REQUEST,
		    "\x0a\x01"
		    "a\x12\x02{}\x18\x80\xd0\x95\xff\xbc\x31\x2a\x03pod\x2a\x01n"
		    "\x31\0\0\0\0\0\0\x2e\x40\x38\x01\x48\0\xa2\x06\x01x",
		    "{\"aggregation\":1,\"group_by\":[\"pod\",\"n\"],\"label_selector\":\"{}\","
		    "\"limit\":0,\"profile_typeID\":\"a\",\"start\":1700000000000,\"step\":15.0}");
	/* two fields of a list with another between them; the last of a single one counts */
	PROTO_READS(REQUEST,
		    "\x2a\x01"
		    "a\x18\x01\x2a\x01"
		    "b\x18\x02",
		    "{\"group_by\":[\"a\",\"b\"],\"start\":2}");
	PROTO_READS(&pyroscope_diff_request, "\x0a\x02\x18\x07\x12\0",
		    "{\"left\":{\"start\":7},\"right\":{}}");
}

static void what_is_wrong_is_refused(void **state)
{
	(void)state;
	JSON_READS(REQUEST, "",
		   "error: bad JSON: line 1, column 0: '[' or '{' expected near end "
		   "of file");
	JSON_READS(REQUEST, "[]", "error: expected a JSON object");
	JSON_READS(REQUEST, "{\"start\":\"1x\"}", "error: start: expected an integer");
	JSON_READS(REQUEST, "{\"start\":\"\"}", "error: start: expected an integer");
	JSON_READS(REQUEST, "{\"start\":1.5}", "error: start: expected an integer");
	JSON_READS(REQUEST, "{\"start\":\"99999999999999999999\"}",
		   "error: start: expected an integer");
	JSON_READS(REQUEST, "{\"step\":\"NaN\"}", "error: step: expected a number");
	JSON_READS(REQUEST, "{\"groupBy\":\"pod\"}", "error: group_by: expected a list");
	JSON_READS(REQUEST, "{\"groupBy\":[null]}", "error: group_by: expected a text");
	JSON_READS(&pyroscope_diff_request, "{\"left\":1}", "error: expected a JSON object");
	PROTO_READS(REQUEST, "\x0a\x7f",
		    "error: profile_typeID: bad protobuf at or before this field");
	PROTO_READS(REQUEST, "\x0a", "error: profile_typeID: bad protobuf at or before this field");
	PROTO_READS(REQUEST, "\x08\x01", "error: profile_typeID: has another type in this message");
	PROTO_READS(REQUEST, "\x0a\x02x\0", "error: profile_typeID: a text with a null character");
	PROTO_READS(REQUEST, "\x2a\x02\xff\xff", "{\"group_by\":[\"\xef\xbf\xbd\xef\xbf\xbd\"]}");
	PROTO_READS(&pyroscope_diff_request, "\x0a\0\x0a\0", "error: left: is there twice");
}

static void answers(void **state)
{
	_cleanup_buf_ struct buf b = {0}, json = {0};
	struct pyroscope_writer w;
	struct field_error e;
	_cleanup_free_ char *name = xmalloc(301);

	(void)state;
	memset(name, 'x', 300);
	name[300] = '\0';
	pyroscope_write(&w, &pyroscope_select_series_response, &b);
	pyroscope_put_begin(&w, "series");
	pyroscope_put_begin(&w, "labels");
	pyroscope_put_text(&w, "name", "a\xff");
	pyroscope_put_text(&w, "value", name); /* so that two lengths need two bytes */
	pyroscope_put_end(&w);
	pyroscope_put_begin(&w, "points");
	pyroscope_put_double(&w, "value", 0.1);
	pyroscope_put_int(&w, "timestamp", 1700000000000);
	pyroscope_put_end(&w);
	pyroscope_put_begin(&w, "points"); /* of default values */
	pyroscope_put_double(&w, "value", 0);
	pyroscope_put_end(&w);
	pyroscope_put_end(&w);
	assert_int_equal(
		pyroscope_to_json(&pyroscope_select_series_response, b.data, b.len, &json, &e), 0);
	buf_reset(&b);
	buf_printf(&b,
		   "{\"series\":[{\"labels\":[{\"name\":\"a\xef\xbf\xbd\",\"value\":\"%s\"}],"
		   "\"points\":[{\"value\":0.1,\"timestamp\":\"1700000000000\"},{}]}]}",
		   name);
	assert_string_equal(json.data, b.data);
}

static void lists_of_numbers(void **state)
{
	static const int64_t values[] = {0, 300, -1};
	static const double lows[] = {0, 1.5};
	_cleanup_buf_ struct buf b = {0}, json = {0};
	struct pyroscope_writer w;
	struct field_error e;

	(void)state;
	pyroscope_write(&w, &pyroscope_select_merge_stacktraces_response, &b);
	pyroscope_put_begin(&w, "flamegraph");
	pyroscope_put_text(&w, "names", "");
	pyroscope_put_begin(&w, "levels");
	pyroscope_put_ints(&w, "values", values, ARRAY_SIZE(values));
	pyroscope_put_end(&w);
	pyroscope_put_begin(&w, "levels");
	pyroscope_put_end(&w);
	pyroscope_put_int(&w, "max_self", 7);
	pyroscope_put_end(&w);
	pyroscope_put_bytes(&w, "tree", "\0\1\2\3", 4);
	assert_int_equal(pyroscope_to_json(&pyroscope_select_merge_stacktraces_response, b.data,
					   b.len, &json, &e),
			 0);
	assert_string_equal(json.data, "{\"flamegraph\":{\"names\":[\"\"],\"levels\":[{\"values\":["
				       "\"0\",\"300\",\"-1\"]},{}],\"maxSelf\":\"7\"},"
				       "\"tree\":\"AAECAw==\"}");
	buf_reset(&b);
	buf_reset(&json);
	pyroscope_write(&w, &pyroscope_select_heatmap_response, &b);
	pyroscope_put_begin(&w, "series");
	pyroscope_put_begin(&w, "slots");
	pyroscope_put_doubles(&w, "y_min", lows, ARRAY_SIZE(lows));
	pyroscope_put_int(&w, "counts", 0);
	pyroscope_put_int(&w, "counts", 2);
	pyroscope_put_end(&w);
	pyroscope_put_end(&w);
	assert_int_equal(
		pyroscope_to_json(&pyroscope_select_heatmap_response, b.data, b.len, &json, &e), 0);
	assert_string_equal(json.data,
			    "{\"series\":[{\"slots\":[{\"yMin\":[0,1.5],\"counts\":[0,2]}]}]}");
}

/* A buffer that is full stays as it is, and the writer goes on without harm. */
static void an_answer_without_room(void **state)
{
	_cleanup_buf_ struct buf b, json = {0};
	struct pyroscope_writer w;

	(void)state;
	for (size_t room = 1; room < 40; room++) {
		buf_init(&b, room);
		pyroscope_write(&w, &pyroscope_series_response, &b);
		pyroscope_put_begin(&w, "labels_set");
		pyroscope_put_begin(&w, "labels");
		pyroscope_put_text(&w, "value", "0123456789012345678901234567890123456789");
		pyroscope_put_end(&w);
		pyroscope_put_end(&w);
		assert_true(b.failed && b.len <= room);
		buf_done(&b);
	}
	buf_init(&json, 3);
	assert_int_equal(
		pyroscope_to_json(&pyroscope_label_names_response, "\x0a\x01x", 3, &json, NULL),
		-E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_names_and_kinds_of_numbers),
		cmocka_unit_test(protobuf),
		cmocka_unit_test(what_is_wrong_is_refused),
		cmocka_unit_test(answers),
		cmocka_unit_test(lists_of_numbers),
		cmocka_unit_test(an_answer_without_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
