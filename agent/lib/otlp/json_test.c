/* SPDX-License-Identifier: Apache-2.0 */
/* OTLP in JSON becomes the bytes that protobuf would have, or is refused where it is wrong. */
#include "lib/otlp/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static Otlp__ExportProfilesServiceRequest *read_json(const char *text)
{
	_cleanup_buf_ struct buf b = {0};
	struct field_error e = {0};
	Otlp__ExportProfilesServiceRequest *r;

	if (otlp_from_json(text, strlen(text), 1 << 20, &b, &e) < 0)
		fail_msg("%s: %s", e.path, e.reason);
	assert_int_equal(otlp_wire_check(&otlp__export_profiles_service_request__descriptor,
					 b.data ? b.data : "", b.len, NULL),
			 0);
	r = otlp__export_profiles_service_request__unpack(NULL, b.len, (uint8_t *)b.data);
	assert_non_null(r);
	return r;
}

static void free_request(Otlp__ExportProfilesServiceRequest *r)
{
	otlp__export_profiles_service_request__free_unpacked(r, NULL);
}

static void values_of_all_types(void **state)
{
	Otlp__ExportProfilesServiceRequest *r = read_json(
		" { \"unknown\" : [ {\"a\":[1,\"x\",true,null,-2.5e3]} ] ,\n"
		"\"resourceProfiles\":[{},{\"resource\":{\"attributes\":["
		"{\"key\":\"a\",\"value\":{\"intValue\":\"-9223372036854775808\"}},"
		"{\"key\":\"b\",\"value\":{\"intValue\":-7}},"
		"{\"key\":\"c\",\"value\":{\"doubleValue\":1.5}},"
		"{\"key\":\"d\",\"value\":{\"boolValue\":true}},"
		"{\"key\":\"e\",\"value\":{\"bytesValue\":\"AQID\"}},"
		"{\"key\":\"f\",\"value\":{\"stringValue\":"
		"\"\\u00e9\\ud83d\\ude00\\ud800x\\n\\\"\xc3\xa9\"}},"
		"{\"key\":\"g\",\"value\":{\"arrayValue\":{\"values\":[{\"intValue\":1},{}]}}}"
		"]},\"scope_profiles\":[{\"profiles\":[{"
		"\"profileId\":\"000102030405060708090a0b0c0d0e0f\","
		"\"timeUnixNano\":\"18446744073709551615\",\"durationNano\":3,"
		"\"samples\":[{\"values\":[\"5\",6],\"timestampsUnixNano\":[7]}]}]}]}],"
		"\"dictionary\":{\"linkTable\":[{\"traceId\":\"00FF\",\"spanId\":\"\"}],"
		"\"locationTable\":null,\"mappingTable\":[]}}");
	const Otlp__ResourceProfiles *p = r->resource_profiles[1];
	const Otlp__Profile *one = p->scope_profiles[0]->profiles[0];

	(void)state;
	assert_int_equal(r->n_resource_profiles, 2);
	assert_int_equal(p->resource->n_attributes, 7);
	assert_true(p->resource->attributes[0]->value->int_value == INT64_MIN);
	assert_int_equal(p->resource->attributes[1]->value->int_value, -7);
	assert_true(p->resource->attributes[2]->value->double_value == 1.5);
	assert_true(p->resource->attributes[3]->value->bool_value);
	assert_int_equal(p->resource->attributes[4]->value->bytes_value.len, 3);
	assert_memory_equal(p->resource->attributes[4]->value->bytes_value.data, "\1\2\3", 3);
	assert_string_equal(p->resource->attributes[5]->value->string_value,
			    "\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbdx\n\"\xc3\xa9");
	assert_int_equal(p->resource->attributes[6]->value->array_value->n_values, 2);
	assert_int_equal(one->profile_id.len, 16);
	assert_int_equal(one->profile_id.data[15], 15);
	assert_true(one->time_unix_nano == UINT64_MAX);
	assert_int_equal(one->duration_nano, 3);
	assert_int_equal(one->samples[0]->n_values, 2);
	assert_int_equal(one->samples[0]->values[1], 6);
	assert_int_equal(one->samples[0]->timestamps_unix_nano[0], 7);
	assert_memory_equal(r->dictionary->link_table[0]->trace_id.data, "\x00\xff", 2);
	assert_int_equal(r->dictionary->link_table[0]->span_id.len, 0);
	free_request(r);
}

static void an_empty_request(void **state)
{
	Otlp__ExportProfilesServiceRequest *r = read_json("{}");

	(void)state;
	assert_int_equal(r->n_resource_profiles, 0);
	free_request(r);
}

#define PROFILE(s) "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{" s "}]}]}]}"

static void what_is_wrong_is_named(void **state)
{
	static const struct {
		const char *text, *reason;
	} cases[] = {
		{"", "byte 0: expected '{'"},
		{"[]", "byte 0: expected '{'"},
		{"{", "byte 1: expected a name"},
		{"{}x", "byte 2: something follows the object"},
		{"{\"a\" 1}", "byte 5: expected ':'"},
		{"{\"a\":1 \"b\":2}", "byte 7: expected ','"},
		{"{\"a\":1,}", "byte 7: expected a name"},
		{"{\"a\":}", "byte 5: no value"},
		{"{\"a\":\"\x01\"}", "byte 6: a string does not end"},
		{"{\"a\":\"\\x\"}", "byte 8: no such escape in a string"},
		{"{\"a\":\"\\u12g4\"}", "not four hexadecimal digits after \\u"},
		{"{\"resourceProfiles\":{}}", "byte 20: expected '['"},
		{PROFILE("\"timeUnixNano\":\"x\""), "no whole number, or too large"},
		{PROFILE("\"timeUnixNano\":-1"), "no whole number, or too large"},
		{PROFILE("\"timeUnixNano\":18446744073709551616"), "no whole number, or too large"},
		{PROFILE("\"attributeIndices\":[2147483648]"), "no whole number, or too large"},
		{PROFILE("\"profileId\":\"0g\""), "an id is not hexadecimal"},
		{PROFILE("\"profileId\":\"012\""), "an id is not hexadecimal"},
		{PROFILE("\"originalPayload\":\"!\""), "bytes are not base64"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_buf_ struct buf b = {0};
		struct field_error e = {0};
		const char *text = cases[i].text;

		if (otlp_from_json(text, strlen(text), 1 << 20, &b, &e) != -EBADMSG)
			fail_msg("%s is accepted", text);
		assert_string_equal(e.path, "body");
		if (!strstr(e.reason, cases[i].reason))
			fail_msg("%s: %s", text, e.reason);
	}
}

static void depth_and_size_have_a_limit(void **state)
{
	static const char piece[] = "{\"a\":[";
	_cleanup_buf_ struct buf deep = {0}, large = {0}, out = {0};
	struct field_error e = {0};

	(void)state;
	for (int i = 0; i < 100000; i++)
		buf_puts(&deep, piece);
	assert_int_equal(otlp_from_json(deep.data, deep.len, 1 << 20, &out, &e), -E2BIG);
	assert_non_null(strstr(e.reason, "nested too deeply"));
	buf_done(&out);
	buf_puts(&large, "{\"resourceProfiles\":[{}");
	for (int i = 0; i < 1000; i++)
		buf_puts(&large, ",{}");
	buf_puts(&large, "]}");
	assert_int_equal(otlp_from_json(large.data, large.len, 1000, &out, &e), -E2BIG);
	assert_non_null(strstr(e.reason, "too large as protobuf"));
	assert_true(out.len <= 1000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_of_all_types),
		cmocka_unit_test(an_empty_request),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(depth_and_size_have_a_limit),
	};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
