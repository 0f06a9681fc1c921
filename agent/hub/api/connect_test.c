/* SPDX-License-Identifier: Apache-2.0 */
/* The Connect protocol: codecs, encodings, time limits, errors. */
#include "hub/api/testapi.h"

#define TYPES "/querier.v1.QuerierService/ProfileTypes"
#define TIMES "{\"start\":\"1699999000000\",\"end\":1700001000000}"
#define JSON  "Content-Type: application/json"

static int call(struct fixture *f, const char *path, const char *header, const char *more,
		const char *body, size_t n)
{
	const char *const headers[] = {header, more, NULL};

	return ask_headers(f, "POST", path, headers, body, n);
}

static void assert_error(struct fixture *f, int status, const char *code, const char *message)
{
	assert_int_equal(f->status, status);
	assert_string_equal(json_str_at(f->json, "code", ""), code);
	if (!strstr(json_str_at(f->json, "message", ""), message))
		fail_msg("%s", f->body);
}

static void both_codecs(void **state)
{
	static const char proto[] = "\x08\xc0\xcb\xd8\xfe\xbc\x31\x10\xc0\xd4\xd2\xff\xbc\x31";
	struct fixture *f = *state;

	assert_int_equal(call(f, TYPES, JSON, NULL, TIMES, strlen(TIMES)), 200);
	assert_string_equal(f->body,
			    "{\"profileTypes\":[{\"ID\":\"process_cpu:cpu:nanoseconds:cpu:"
			    "nanoseconds\",\"name\":\"process_cpu\",\"sampleType\":\"cpu\","
			    "\"sampleUnit\":\"nanoseconds\",\"periodType\":\"cpu\","
			    "\"periodUnit\":\"nanoseconds\"}]}");
	assert_int_equal(call(f, TYPES, "Content-Type: Application/JSON; charset=UTF-8", NULL,
			      "{\"start\":1,\"end\":2}", 19),
			 200);
	assert_string_equal(f->body, "{}");
	assert_int_equal(
		call(f, TYPES, "Content-Type: application/proto", NULL, proto, sizeof(proto) - 1),
		200);
	assert_true(str_has_prefix(f->body, "\x0a"));
	assert_non_null(strstr(f->body, "process_cpu:cpu:nanoseconds:cpu:nanoseconds"));
	/* an empty message has no bytes */
	assert_int_equal(call(f, "/settings.v1.SettingsService/Get",
			      "Content-Type: application/proto", "Content-Encoding: gzip", "", 0),
			 200);
	assert_string_equal(f->body, "");
}

static void compressed_requests(void **state)
{
	struct fixture *f = *state;
	_cleanup_buf_ struct buf b = {0}, large = {0};

	buf_add_gzip(&b, TIMES, strlen(TIMES), 6);
	assert_int_equal(call(f, TYPES, JSON, "Content-Encoding: gzip", b.data, b.len), 200);
	assert_non_null(strstr(f->body, "process_cpu"));
	call(f, TYPES, JSON, "Content-Encoding: gzip", TIMES, strlen(TIMES));
	assert_error(f, 400, "invalid_argument", "cannot be unpacked");
	call(f, TYPES, JSON, "Content-Encoding: br", TIMES, strlen(TIMES));
	assert_error(f, 501, "unimplemented", "gzip");
	for (size_t i = 0; i <= QUERY_MAX_BODY_BYTES; i++)
		buf_putc(&large, ' ');
	buf_reset(&b);
	buf_add_gzip(&b, large.data, large.len, 6);
	call(f, TYPES, JSON, "Content-Encoding: gzip", b.data, b.len);
	assert_error(f, 429, "resource_exhausted", "larger than 1 MiB");
}

static void errors(void **state)
{
	struct fixture *f = *state;

	call(f, TYPES, JSON, NULL, "{\"start\":\"x\"}", 13);
	assert_error(f, 400, "invalid_argument", "start: expected an integer");
	call(f, TYPES, JSON, NULL, "", 0);
	assert_error(f, 400, "invalid_argument", "bad JSON");
	call(f, TYPES, "Content-Type: application/proto", NULL, "\x0a\x7f", 2);
	assert_error(f, 400, "invalid_argument", "bad protobuf");
	call(f, TYPES, "Content-Type: application/json; charset=latin1", NULL, TIMES,
	     strlen(TIMES));
	assert_error(f, 415, "unknown", "Content-Type");
	call(f, TYPES, "Content-Type: application/connect+proto", NULL, "", 0);
	assert_error(f, 415, "unknown", "Content-Type");
	call(f, "/querier.v1.QuerierService/Nothing", JSON, NULL, "{}", 2);
	assert_error(f, 501, "unimplemented", "does not have this method");
	call(f, "/settings.v1.SettingsService/Set", JSON, NULL, "{}", 2);
	assert_error(f, 501, "unimplemented", "does not have this method");
	ask(f, "GET", TYPES, NULL, NULL);
	assert_error(f, 405, "unimplemented", "");
}

static void time_limits(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(
		call(f, TYPES, JSON, "Connect-Timeout-Ms: 9999999999", TIMES, strlen(TIMES)), 200);
	call(f, TYPES, JSON, "Connect-Timeout-Ms: 0", TIMES, strlen(TIMES));
	assert_error(f, 504, "deadline_exceeded", "time limit");
	call(f, TYPES, JSON, "Connect-Timeout-Ms: 10000000000", TIMES, strlen(TIMES));
	assert_error(f, 400, "invalid_argument", "10 digits");
	call(f, TYPES, JSON, "Connect-Timeout-Ms: -1", TIMES, strlen(TIMES));
	assert_error(f, 400, "invalid_argument", "10 digits");
}

static void errors_of_sign_in(void **state)
{
	struct fixture *f = *state;

	call(f, TYPES, JSON, NULL, TIMES, strlen(TIMES));
	assert_error(f, 401, "unauthenticated", "kubectl create token");
	call(f, TYPES, JSON, BEARER "unknown", TIMES, strlen(TIMES));
	assert_error(f, 401, "unauthenticated", "");
	/* who may see nothing gets an empty answer, as everywhere */
	assert_int_equal(call(f, TYPES, JSON, BEARER "nobody", TIMES, strlen(TIMES)), 200);
	assert_string_equal(f->body, "{}");
	assert_int_equal(call(f, TYPES, JSON, BEARER "tenant", TIMES, strlen(TIMES)), 200);
	assert_non_null(strstr(f->body, "process_cpu"));
	cluster.refuses = "app";
	call(f, TYPES, JSON, BEARER "owner", TIMES, strlen(TIMES));
	assert_error(f, 503, "unavailable", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(both_codecs), LOCAL(compressed_requests), LOCAL(errors),
		LOCAL(time_limits), CLUSTER(errors_of_sign_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
