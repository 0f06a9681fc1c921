/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploaded symbols: which frames they name, which files are refused, who may upload, and how many
 * uploads may run at a time.
 */
#include "hub/api/testapi.h"
#include "hub/symbols/testindex.h"

#define SYMBOLS "/v1/symbols/" BUILD_ID
#define STRIPPED_QUERY                                                                             \
	"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","                   \
	"\"time_start\":1700004000,\"time_end\":1700006000,\"result_format\":\"flat\"}"

static int upload(struct fixture *f, const char *path, const char *header)
{
	size_t n;
	_cleanup_free_ void *body = test_upload(BUILD_ID, &n);

	return ask_bytes(f, "PUT", path, header, body, n);
}

static void assert_functions(struct fixture *f, const char *functions, int64_t unnamed)
{
	_cleanup_free_ char *text = NULL;

	assert_int_equal(ask(f, "POST", TRACING, NULL, STRIPPED_QUERY), 200);
	text = json_dumps(json_at(f->json, "result.functions"), JSON_COMPACT);
	assert_string_equal(text, functions);
	assert_int_equal(json_int_at(f->json, "summary.unnamed_samples", -1), unnamed);
}

static void uploads_name_what_is_stored(void **state)
{
	struct fixture *f = *state;

	assert_functions(f, "[\"stripped\",\"[/bin/stripped]\",\"main\"]", 2);
	assert_int_equal(upload(f, SYMBOLS, NULL), 200);
	assert_functions(f, "[\"stripped\",\"inner()\",\"app::work()\",\"main\"]", 0);
	assert_int_equal(ask(f, "GET", "/v1/symbols", NULL, NULL), 200);
	assert_int_equal(json_array_size(json_object_get(f->json, "result")), 1);
	assert_non_null(strstr(f->body, BUILD_ID));
	assert_int_equal(ask(f, "DELETE", SYMBOLS, NULL, NULL), 200);
	assert_functions(f, "[\"stripped\",\"[/bin/stripped]\",\"main\"]", 2);
	assert_int_equal(ask(f, "DELETE", SYMBOLS, NULL, NULL), 404);
}

static void bad_uploads(void **state)
{
	static const char *const bad[] = {"/v1/symbols/xyz", "/v1/symbols/0011", "/v1/symbols/.."};
	struct fixture *f = *state;
	_cleanup_free_ char *large = xcalloc(1, SYMBOLS_UPLOAD_BYTES + 1);
	struct test_index index = test_index("0011");
	size_t n;
	_cleanup_free_ void *other = test_compressed(&index, sizeof(index), &n);

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(upload(f, bad[i], NULL), 400);
	assert_int_equal(ask(f, "DELETE", "/v1/symbols/xyz", NULL, NULL), 400);
	assert_non_null(strstr(f->body, "'xyz' is not 1 to"));
	assert_int_equal(ask(f, "DELETE", "/v1/symbols/0011", NULL, NULL), 404);
	assert_int_equal(ask(f, "PUT", SYMBOLS, NULL, "no index"), 400);
	assert_non_null(strstr(f->body, "zstd"));
	assert_int_equal(ask_bytes(f, "PUT", SYMBOLS, NULL, other, n), 400);
	assert_non_null(strstr(f->body, "build id '0011'"));
	assert_int_equal(ask_bytes(f, "PUT", SYMBOLS, NULL, large, SYMBOLS_UPLOAD_BYTES + 1), 413);
	assert_int_equal(ask_bytes(f, "PUT", SYMBOLS, NULL, large, SYMBOLS_UPLOAD_BYTES), 400);
	assert_int_equal(ask_bytes(f, "POST", TRACING, NULL, large, 2 << 20), 413);
	assert_int_equal(ask(f, "POST", SYMBOLS, NULL, "x"), 405);
	assert_int_equal(ask(f, "PUT", "/v1/symbols/", NULL, "x"), 404);
	assert_int_equal(ask(f, "PUT", "/v1/symbols/a/b", NULL, "x"), 404);
	assert_int_equal(upload(f, SYMBOLS, "Origin: http://evil.example"), 403);
}

static void uploads_want_their_own_right(void **state)
{
	static const char uploader[] = BEARER "uploader";
	static const char viewer[] = BEARER "viewer";
	struct fixture *f = *state;

	assert_int_equal(upload(f, SYMBOLS, NULL), 401);
	assert_int_equal(upload(f, SYMBOLS, viewer), 403);
	assert_non_null(strstr(f->body, "verb create on symbols.podflame.io"));
	assert_int_equal(upload(f, SYMBOLS, uploader), 200);
	assert_int_equal(ask(f, "GET", "/v1/symbols", viewer, NULL), 403);
	assert_int_equal(ask(f, "GET", "/v1/symbols", uploader, NULL), 200);
	assert_int_equal(ask(f, "DELETE", SYMBOLS, viewer, NULL), 403);
	assert_int_equal(ask(f, "DELETE", SYMBOLS, uploader, NULL), 200);
	assert_int_equal(ask(f, "POST", TRACING, uploader, STRIPPED_QUERY), 200);
	assert_null(strstr(f->body, "stripped"));
}

/* A user without the right to upload cannot make the hub read a large body. */
static void a_large_body_waits_for_the_right(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *large = xcalloc(1, 8 << 20);

	assert_int_equal(ask_bytes(f, "PUT", SYMBOLS, BEARER "wrong", large, 8 << 20), 401);
	assert_int_equal(ask_bytes(f, "PUT", SYMBOLS, BEARER "nobody", large, 8 << 20), 403);
	cluster.down = true;
	assert_int_equal(ask_bytes(f, "PUT", SYMBOLS, BEARER "uploader", large, 8 << 20), 503);
}

/*
 * Two uploads are being received, so further ones get 503. When a client closes its connection, the
 * next upload is accepted.
 */
static void few_uploads_at_a_time(void **state)
{
	struct fixture *f = *state;
	struct counter *busy = counter("api_refused_total", "reason", "uploads_busy");
	uint64_t n_busy = counter_get(busy);
	_cleanup_free_ char *large = xcalloc(1, (16u << 20));
	struct http_request r = {.method = "PUT",
				 .path = SYMBOLS,
				 .body = large,
				 .body_bytes = (16u << 20),
				 .on_done = done,
				 .arg = f};
	struct http_call *calls[6];

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		assert_int_equal(http_send(f->client, &r, &calls[i]), 0);
	loop_run(f->loop); /* run until the first answer, which is a refusal */
	assert_int_equal(f->status, 503);
	assert_true(counter_get(busy) > n_busy);
	connect_to(f, NULL);
	for (int i = 0; i < 200 && upload(f, SYMBOLS, NULL) == 503; i++)
		; /* until the server has noticed that the connections are closed */
	assert_int_equal(f->status, 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(uploads_name_what_is_stored),
		LOCAL(bad_uploads),
		LOCAL(few_uploads_at_a_time),
		CLUSTER(uploads_want_their_own_right),
		CLUSTER(a_large_body_waits_for_the_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
