/* SPDX-License-Identifier: Apache-2.0 */
/* With api.audit, each query is a line of JSON on standard output: who read what. */
#include "hub/api/testapi.h"

#include <fcntl.h>
#include <unistd.h>

static int saved_stdout, captured;

static int setup_audited(void **state)
{
	with_audit = true;
	return setup_cluster(state);
}

#define AUDITED(t) cmocka_unit_test_setup_teardown(t, setup_audited, teardown)

static void capture(struct fixture *f)
{
	_cleanup_free_ char *path = xasprintf("%s/lines", f->dir);

	fflush(stdout);
	saved_stdout = dup(STDOUT_FILENO);
	captured = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_true(captured >= 0);
	assert_true(dup2(captured, STDOUT_FILENO) >= 0);
}

/* What was written since. The caller frees it. */
static char *written(void)
{
	char *text = xcalloc(1, 64 << 10);

	fflush(stdout);
	assert_true(dup2(saved_stdout, STDOUT_FILENO) >= 0);
	assert_true(pread(captured, text, (64 << 10) - 1, 0) >= 0);
	close(captured);
	close(saved_stdout);
	return text;
}

/* The lines of an answer, which must be so many. The caller frees the list. */
static json_t *lines_of(char *text, size_t n)
{
	json_t *list = json_array();

	for (char *end, *line = text; (end = strchr(line, '\n')); line = end + 1) {
		json_t *j = json_loadb(line, (size_t)(end - line), 0, NULL);

		assert_non_null(j);
		json_array_append_new(list, j);
	}
	assert_int_equal(json_array_size(list), n);
	return list;
}

static void who_read_what(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *lines = NULL;
	const json_t *l;

	capture(f);
	ask(f, "POST", TRACING, BEARER "viewer",
	    QUERY ",\"tag_filter\":\"pod_ns='app'\",\"app_service\":\"api\"}");
	ask(f, "POST", "/v1/profile/values", BEARER "tenant",
	    QUERY ",\"tag\":\"app_service\",\"tag_filter\":\"pod!='x'\"}");
	ask(f, "POST", TRACING, BEARER "viewer", QUERY ",\"tag_filter\":\"pod_ns=\"}");
	ask(f, "POST", TRACING, BEARER "wrong", QUERY "}");
	ask(f, "GET", "/v1/info", NULL, NULL);
	text = written();
	lines = lines_of(text, 3);
	l = json_array_get(lines, 0);
	assert_string_equal(json_str_at(l, "audit", ""), "read");
	assert_string_equal(json_str_at(l, "user", ""), "viewer");
	assert_string_equal(json_str_at(l, "path", ""), TRACING);
	assert_string_equal(json_str_at(l, "namespaces", ""), "all");
	assert_string_equal(json_str_at(l, "tag_filter", ""), "pod_ns='app'");
	assert_string_equal(json_str_at(l, "app_service", ""), "api");
	assert_string_equal(json_str_at(l, "profile_event_type", ""), "on-cpu");
	assert_int_equal(json_int_at(l, "time_start", 0), 1699999000);
	assert_int_equal(json_int_at(l, "rows", 0), 1);
	assert_int_equal(json_int_at(l, "status", 0), 200);
	assert_int_equal(strlen(json_str_at(l, "time", "")), strlen("2026-11-29T10:00:00Z"));
	l = json_array_get(lines, 1);
	assert_string_equal(json_str_at(l, "user", ""), "tenant");
	assert_string_equal(json_str_at(l, "tag", ""), "app_service");
	assert_string_equal(json_string_value(json_array_get(json_object_get(l, "namespaces"), 0)),
			    "app");
	assert_int_equal(json_int_at(l, "n_namespaces", 0), 1);
	assert_int_equal(json_int_at(l, "rows", 0), 1);
	l = json_array_get(lines, 2);
	assert_int_equal(json_int_at(l, "status", 0), 500);
	assert_int_equal(json_int_at(l, "rows", 9), 0);
}

#define CPU_ID "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define SIDE(selector)                                                                             \
	"{\"profileTypeID\":\"" CPU_ID "\",\"labelSelector\":\"" selector "\","                    \
	"\"start\":1699999000000,\"end\":1700001000000}"

static void calls_of_grafana(void **state)
{
	static const char *const headers[] = {BEARER "viewer", "Content-Type: application/json",
					      NULL};
	static const char body[] = "{\"left\":" SIDE("{}") ",\"right\":" SIDE("{pod!='x'}") "}";
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *lines = NULL;
	const json_t *l;

	capture(f);
	ask_headers(f, "POST", "/querier.v1.QuerierService/Diff", headers, body, strlen(body));
	ask(f, "GET", "/pyroscope/render?query=" CPU_ID "{}&from=1699999000&until=1700001000",
	    BEARER "viewer", NULL);
	text = written();
	lines = lines_of(text, 2);
	l = json_array_get(lines, 0);
	assert_string_equal(json_str_at(l, "path", ""), "/querier.v1.QuerierService/Diff");
	assert_string_equal(json_str_at(l, "left.label_selector", ""), "{}");
	assert_string_equal(json_str_at(l, "right.label_selector", ""), "{pod!='x'}");
	assert_string_equal(json_str_at(l, "right.profile_typeID", ""), CPU_ID);
	assert_int_equal(json_int_at(l, "rows", 0), 2);
	l = json_array_get(lines, 1);
	assert_string_equal(json_str_at(l, "path", ""), "/pyroscope/render");
	assert_string_equal(json_str_at(l, "label_selector", ""), "{}");
	assert_int_equal(json_int_at(l, "start", 0), 1699999000000);
	assert_int_equal(json_int_at(l, "rows", 0), 1);
}

/* No text of a request ends a line, or is a line of its own. */
static void no_user_writes_a_line(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL, *long_name = xcalloc(1, 20001), *body = NULL;
	_cleanup_json_ json_t *lines = NULL;

	memset(long_name, 'x', 20000);
	body = xasprintf(QUERY ",\"app_service\":\"%s\"}", long_name);
	capture(f);
	ask(f, "POST", TRACING, BEARER "viewer",
	    QUERY ",\"app_service\":\"a\\n{\\\"audit\\\":\\\"read\\\"}\\u2028\\u001b[2J\"}");
	ask(f, "POST", TRACING, BEARER "viewer", body);
	text = written();
	lines = lines_of(text, 2);
	for (const char *p = text; *p; p++)
		assert_true(*p == '\n' || (*p >= ' ' && *p < 127));
	assert_string_equal(json_str_at(json_array_get(lines, 0), "app_service", ""),
			    "a\n{\"audit\":\"read\"}\xe2\x80\xa8\x1b[2J");
	assert_true(strlen(json_str_at(json_array_get(lines, 1), "app_service", "")) <= 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AUDITED(who_read_what),
		AUDITED(calls_of_grafana),
		AUDITED(no_user_writes_a_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
