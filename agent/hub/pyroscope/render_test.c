/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of /pyroscope/render and what they are read as. */
#include "hub/pyroscope/render.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define NOW_MS 1700000000123

static void check(const char *parameters, bool diff, const char *want)
{
	_cleanup_json_ json_t *request = NULL;
	_cleanup_free_ char *text = NULL;
	struct field_error e = {0};

	if (pyroscope_read_render(parameters, diff, NOW_MS, &request, &e)) {
		text = xasprintf("%s: %s", e.path, e.reason);
		assert_null(request);
	} else {
		text = json_dumps(request, JSON_COMPACT);
	}
	assert_string_equal(text, want);
}

static void test_a_selection(void **state)
{
	(void)state;
	check("query=process_cpu%3Acpu%7Ba%3D%22x+y%22%7D&from=1700000000000&until=1700000001000"
	      "&max-nodes=100&format=json&other=1",
	      false,
	      "{\"profile_typeID\":\"process_cpu:cpu\",\"label_selector\":\"{a=\\\"x y\\\"}\","
	      "\"start\":1700000000000,\"end\":1700000001000,\"max_nodes\":100,\"format\":1}");
	check("query=id&format=dot&maxNodes=7", false,
	      "{\"profile_typeID\":\"id\",\"label_selector\":\"{}\",\"start\":1699996400123,"
	      "\"end\":1700000000123,\"max_nodes\":7,\"format\":3}");
}

static void test_times(void **state)
{
	static const struct {
		const char *text, *want;
	} times[] = {
		{"1700000000", "1700000000000"},
		{"1700000000123", "1700000000123"},
		{"1700000000123456", "1700000000123"},
		{"1700000000123456789", "1700000000123"},
		{"now", "1700000000123"},
		{"now-1h30m", "1699994600123"},
		{"now-2d", "1699827200123"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		_cleanup_free_ char *p = xasprintf("query=id&until=%s&from=0", times[i].text);
		_cleanup_free_ char *want = xasprintf(
			"{\"profile_typeID\":\"id\",\"label_selector\":\"{}\",\"start\":0,"
			"\"end\":%s,\"max_nodes\":0,\"format\":1}",
			times[i].want);

		check(p, false, want);
	}
}

static void test_a_difference(void **state)
{
	(void)state;
	check("leftQuery=id{a%3D%22x%22}&leftFrom=1&leftUntil=2&rightQuery=id&rightFrom=3"
	      "&rightUntil=4&maxNodes=5",
	      true,
	      "{\"left\":{\"profile_typeID\":\"id\",\"label_selector\":\"{a=\\\"x\\\"}\","
	      "\"start\":1000,\"end\":2000,\"max_nodes\":5,\"format\":1},"
	      "\"right\":{\"profile_typeID\":\"id\",\"label_selector\":\"{}\",\"start\":3000,"
	      "\"end\":4000,\"max_nodes\":5,\"format\":1}}");
}

static void test_what_is_not_served_is_in_the_request(void **state)
{
	(void)state;
	check("query=id&from=0&until=0&format=svg", false,
	      "{\"profile_typeID\":\"id\",\"label_selector\":\"{}\",\"start\":0,\"end\":0,"
	      "\"max_nodes\":0,\"format\":-1}");
	check("query=id&from=0&until=0&groupBy=pod", false,
	      "{\"profile_typeID\":\"id\",\"label_selector\":\"{}\",\"start\":0,\"end\":0,"
	      "\"max_nodes\":0,\"format\":1,\"group_by\":[true]}");
}

static void test_wrong_parameters(void **state)
{
	static const struct {
		const char *parameters, *want;
	} wrong[] = {
		{"", "query: must begin with the id of a profile type"},
		{"query={a%3D%22x%22}", "query: must begin with the id of a profile type"},
		{"query=id&from=yesterday", "from: yesterday is no time"},
		{"query=id&from=now-1y", "from: now-1y is no time"},
		{"query=id&from=now-99999999999999d", "from: now-99999999999999d is no time"},
		{"query=id&until=-1", "until: -1 is no time"},
		{"query=id&max-nodes=many", "max-nodes: many is no number"},
		{"query=%zz", "parameters: wrong parameter: query=%zz"},
		{"query=%00", "parameters: wrong parameter: query=%00"},
		{"query=%ff", "parameters: wrong parameter: query=%ff"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		check(wrong[i].parameters, false, wrong[i].want);
	check("leftQuery=id", true, "rightQuery: must begin with the id of a profile type");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_selection),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_a_difference),
		cmocka_unit_test(test_what_is_not_served_is_in_the_request),
		cmocka_unit_test(test_wrong_parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
