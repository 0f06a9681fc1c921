/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploaded symbols: which frames they name, which files are refused, who may upload for which
 * namespace, and how much one user may have under way.
 */
#include "hub/api/testapi.h"
#include "hub/symbols/testindex.h"

#include <arpa/inet.h>
#include <unistd.h>

#define SYMBOLS "/v1/symbols/" BUILD_ID
#define STRIPPED_QUERY                                                                             \
	"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","                   \
	"\"time_start\":1700004000,\"time_end\":1700006000,\"result_format\":\"flat\"}"

static const char tenant[] = BEARER "tenant", viewer[] = BEARER "viewer",
		  uploader[] = BEARER "uploader";

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

static void damage(const struct fixture *f)
{
	_cleanup_free_ char *path = xasprintf("%s/symbols/" BUILD_ID ".pfindex", f->dir);

	assert_int_equal(truncate(path, 100), 0);
}

#define SIDE(start, end)                                                                           \
	"{\"profileTypeID\":\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\",\"labelSelector\":"    \
	"\"{}\",\"start\":" start ",\"end\":" end "}"
#define NAMED	 SIDE("1699999000000", "1700001000000")
#define STRIPPED SIDE("1700004000000", "1700006000000")

/* Frames without a name do not tell that a file for them was uploaded. */
static void an_answer_tells_which_files_name_nothing(void **state)
{
	static const char *const paths[] = {TRACING, "/v1/profile/tree"};
	static const char *const grafana[][2] = {
		{"SelectMergeProfile", STRIPPED},
		{"Diff", "{\"left\":" NAMED ",\"right\":" STRIPPED "}"},
		{"Diff", "{\"left\":" STRIPPED ",\"right\":" NAMED "}"}};
	static const char want[] = "the uploaded symbols of build id " BUILD_ID
				   " name nothing: the file is damaged: upload it again";
	struct fixture *f = *state;

	assert_int_equal(upload(f, SYMBOLS, NULL), 200);
	damage(f);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		const json_t *notes;

		assert_int_equal(ask(f, "POST", paths[i], NULL, STRIPPED_QUERY), 200);
		notes = json_at(f->json, "summary.notes");
		assert_int_equal(json_array_size(notes), 1);
		assert_string_equal(json_string_value(json_array_get(notes, 0)), want);
	}
	assert_int_equal(ask(f, "POST", "/v1/profile/folded", NULL, STRIPPED_QUERY), 200);
	assert_string_equal(f->left_out, "names");
	for (size_t i = 0; i < ARRAY_SIZE(grafana); i++) {
		_cleanup_free_ char *path =
			xasprintf("/querier.v1.QuerierService/%s", grafana[i][0]);

		assert_int_equal(
			ask(f, "POST", path, "Content-Type: application/json", grafana[i][1]), 200);
		assert_string_equal(f->left_out, "names");
	}
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
	struct fixture *f = *state;

	assert_int_equal(upload(f, SYMBOLS, NULL), 401);
	assert_int_equal(upload(f, SYMBOLS, viewer), 403);
	assert_non_null(strstr(f->body, "verb create on symbols.podflame.io"));
	assert_int_equal(upload(f, SYMBOLS "?namespace=app", viewer), 403);
	assert_int_equal(upload(f, SYMBOLS, uploader), 200);
	assert_int_equal(ask(f, "GET", "/v1/symbols", viewer, NULL), 200);
	assert_non_null(strstr(f->body, BUILD_ID));
	assert_int_equal(ask(f, "GET", "/v1/symbols", BEARER "nobody", NULL), 200);
	assert_int_equal(json_array_size(json_object_get(f->json, "result")), 0);
	assert_non_null(strstr(f->body, "verb get on symbols.podflame.io"));
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

/* ---- files of one namespace ---- */

/* The same stack in two namespaces and on the host. */
static void fill_three(struct store *s)
{
	static const char *const namespaces[] = {"app", "vault", NULL};
	struct frame frames[] = {{.kind = FRAME_APP, .name = "main"},
				 {.kind = FRAME_APP,
				  .module = "/bin/stripped",
				  .build_id = BUILD_ID,
				  .address = 0x1020}};
	struct batch *b = profile_batch_new();
	size_t n_new;

	for (int i = 0, value = 1; i < 3; i++, value *= 10) {
		struct profile *p = profile_batch_profile(b);
		struct profile_sample *sample = profile_add(b, p);

		p->id[0] = (uint8_t)i;
		p->event = EVENT_ON_CPU;
		p->end_ns = T0 * NSEC_PER_SEC;
		p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
		p->app_service = profile_batch_str(b, "web");
		p->process_id = 7;
		if (namespaces[i])
			profile_tag(b, p, "pod_ns", namespaces[i]);
		sample->cpu = -1;
		sample->value = value;
		sample->n_samples = 1;
		assert_int_equal(profile_batch_stack(b, frames, ARRAY_SIZE(frames), &sample->stack),
				 0);
	}
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

static int setup_three(void **state)
{
	fill_store = fill_three;
	return setup_cluster(state);
}

#define THREE(t) cmocka_unit_test_setup_teardown(t, setup_three, teardown)

/* Uploads an index in which app::work() has another name of the same length. */
static int upload_named(struct fixture *f, const char *path, const char *header, const char *name)
{
	struct test_index x = test_index(BUILD_ID);
	_cleanup_free_ void *body = NULL;
	size_t n;

	memcpy(strstr(x.strings + 1, "work"), name, 4);
	body = test_compressed(&x, sizeof(x), &n);
	return ask_bytes(f, "PUT", path, header, body, n);
}

static void assert_folded(struct fixture *f, const char *header, const char *expected)
{
	assert_int_equal(ask(f, "POST", "/v1/profile/folded", header, QUERY "}"), 200);
	assert_string_equal(f->body, expected);
}

#define APP   SYMBOLS "?namespace=app"
#define VAULT SYMBOLS "?namespace=vault"

static void a_namespace_names_only_its_own(void **state)
{
	struct fixture *f = *state;

	assert_folded(f, viewer, "web;main;[/bin/stripped] 111\n");
	assert_int_equal(upload_named(f, APP, tenant, "mine"), 200);
	assert_folded(f, viewer, "web;main;[/bin/stripped] 110\nweb;main;app::mine() 1\n");
	assert_folded(f, tenant, "web;main;app::mine() 1\n");
	/* a user with the right in all namespaces may name one, too */
	assert_int_equal(upload_named(f, VAULT, uploader, "evil"), 200);
	assert_folded(f, viewer,
		      "web;main;[/bin/stripped] 100\nweb;main;app::evil() 10\n"
		      "web;main;app::mine() 1\n");
	assert_folded(f, tenant, "web;main;app::mine() 1\n");
	/* a file of all namespaces names what has no file of its own */
	assert_int_equal(upload_named(f, SYMBOLS, uploader, "free"), 200);
	assert_folded(f, viewer,
		      "web;main;app::evil() 10\nweb;main;app::free() 100\n"
		      "web;main;app::mine() 1\n");
	assert_int_equal(ask(f, "DELETE", APP, tenant, NULL), 200);
	assert_folded(f, viewer, "web;main;app::evil() 10\nweb;main;app::free() 101\n");
	assert_folded(f, tenant, "web;main;app::free() 1\n");
	assert_int_equal(ask(f, "DELETE", APP, tenant, NULL), 404);
	assert_non_null(strstr(f->body, "this namespace has no symbols"));
}

/* Each kind of answer that names frames. */
static void every_answer_names_by_namespace(void **state)
{
	static const struct {
		const char *path, *more;
	} cases[] = {
		{TRACING, ""},
		{TRACING, ",\"result_format\":\"flat\""},
		{"/v1/profile/tree", ""},
		{"/v1/profile/tree", ",\"by_line\":true"},
		{"/v1/profile/tree", ",\"preview\":true"},
		{"/v1/profile/tree", ",\"group_by\":\"app_service\""},
		{"/v1/profile/tree", ",\"before\":{\"time_start\":1,\"time_end\":1700001000}"},
		{"/v1/profile/folded", ""},
		{"/v1/profile/speedscope", ""},
	};
	struct fixture *f = *state;

	assert_int_equal(upload_named(f, APP, tenant, "mine"), 200);
	assert_int_equal(upload_named(f, VAULT, uploader, "evil"), 200);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *body = xasprintf(QUERY "%s}", cases[i].more);

		assert_int_equal(ask(f, "POST", cases[i].path, viewer, body), 200);
		if (!strstr(f->body, "app::mine()") || !strstr(f->body, "app::evil()") ||
		    !strstr(f->body, "/bin/stripped"))
			fail_msg("%s%s: %s", cases[i].path, cases[i].more, f->body);
		assert_int_equal(ask(f, "POST", cases[i].path, tenant, body), 200);
		if (!strstr(f->body, "app::mine()") || strstr(f->body, "evil"))
			fail_msg("%s%s: %s", cases[i].path, cases[i].more, f->body);
	}
	assert_int_equal(ask(f, "POST", "/v1/profile/groups", viewer,
			     QUERY ",\"group_by\":\"pod_ns\",\"function\":"
				   "{\"name\":\"app::evil()\"}}"),
			 200);
	assert_non_null(
		strstr(f->body, "\"vault\",\"total\":10,\"samples\":1,\"function_total\":10"));
	assert_non_null(strstr(f->body, "\"app\",\"total\":1,\"samples\":1,\"function_total\":0"));
}

static size_t n_listed(struct fixture *f, const char *header, const char *path)
{
	assert_int_equal(ask(f, "GET", path, header, NULL), 200);
	return json_array_size(json_object_get(f->json, "result"));
}

static void the_list_has_what_the_user_may_see(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(upload(f, SYMBOLS, uploader), 200);
	assert_int_equal(upload(f, APP, tenant), 200);
	assert_int_equal(upload(f, VAULT, uploader), 200);
	assert_int_equal(n_listed(f, uploader, "/v1/symbols"), 3);
	assert_null(json_object_get(f->json, "notes"));
	assert_int_equal(n_listed(f, viewer, "/v1/symbols"), 3);
	assert_int_equal(n_listed(f, viewer, "/v1/symbols?namespace=vault"), 1);
	assert_int_equal(n_listed(f, tenant, "/v1/symbols"), 1);
	assert_string_equal(
		json_str_at(json_array_get(json_object_get(f->json, "result"), 0), "namespace", ""),
		"app");
	assert_non_null(strstr(f->body, "you do not see the symbols of all namespaces"));
	assert_int_equal(n_listed(f, tenant, "/v1/symbols?namespace=app"), 1);
	assert_int_equal(n_listed(f, BEARER "owner", "/v1/symbols"), 0);
	assert_int_equal(ask(f, "GET", "/v1/symbols?namespace=vault", tenant, NULL), 403);
	cluster.refuses = "vault"; /* the API server has answered about app, but not about vault */
	assert_int_equal(ask(f, "GET", "/v1/symbols", BEARER "last", NULL), 503);
}

static void refusals_say_what_to_do(void **state)
{
	static const char *const methods[] = {"PUT", "DELETE"};
	static const char *const wrong[] = {"?namespace=",	   "?namespace=App",
					    "?namespace=a.b",	   "?ns=app",
					    "?namespace",	   "?namespace=app&namespace=vault",
					    "?namespace=app%2f..", "?x=1&namespace=app"};
	static const char *const users[] = {tenant, uploader};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		assert_int_equal(ask(f, methods[i], SYMBOLS, tenant, NULL), 403);
		assert_non_null(strstr(f->body, "name one with the parameter namespace"));
		assert_non_null(strstr(f->body, "podflame-symbols-uploader"));
		assert_int_equal(ask(f, methods[i], VAULT, tenant, NULL), 403);
		assert_non_null(strstr(f->body, "in the namespace vault"));
		for (size_t k = 0; k < ARRAY_SIZE(wrong); k++) {
			_cleanup_free_ char *path = xasprintf(SYMBOLS "%s", wrong[k]);

			assert_int_equal(ask(f, methods[i], path, users[k % 2], NULL), 400);
			assert_non_null(strstr(f->body, "namespace"));
		}
	}
	assert_int_equal(n_listed(f, uploader, "/v1/symbols"), 0);
}

/*
 * No upload is read whose user has no right in the namespace that it names: else this body would be
 * refused as too large.
 */
static void a_large_body_waits_for_the_right_there(void **state)
{
	struct fixture *f = *state;
	size_t n = SYMBOLS_UPLOAD_BYTES + 1;
	_cleanup_free_ char *large = xcalloc(1, n);

	assert_int_equal(ask_bytes(f, "PUT", VAULT, tenant, large, n), 403);
	assert_int_equal(ask_bytes(f, "PUT", SYMBOLS, tenant, large, n), 403);
	assert_int_equal(ask_bytes(f, "PUT", APP, tenant, large, n), 413);
	cluster.refuses = "new";
	assert_int_equal(ask_bytes(f, "PUT", SYMBOLS "?namespace=new", BEARER "owner", large, n),
			 503);
}

/* ---- several uploads under way ---- */

/* Begins an upload of so many bytes and sends none of them. Returns its socket. */
static int begin_slowly(struct fixture *f, const char *path, const char *user, unsigned n_bytes)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(http_server_port(f->server))};
	_cleanup_free_ char *text = xasprintf("PUT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n"
					      "Expect: 100-continue\r\nContent-Length: %u\r\n\r\n",
					      path, user, n_bytes);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	return fd;
}

static void stop_waiting(void *arg)
{
	loop_stop(arg, 0);
}

/* The status that the server sends on the socket: 100 if it waits for the body. */
static int status_on(struct fixture *f, int fd)
{
	char head[13] = "";
	struct timer t = {0};

	while (recv(fd, head, 12, MSG_DONTWAIT | MSG_PEEK) < 12) {
		timer_set(f->loop, &t, NSEC_PER_MSEC, stop_waiting, f->loop);
		assert_int_equal(loop_run(f->loop), 0);
	}
	timer_cancel(&t);
	return atoi(head + strlen("HTTP/1.1 "));
}

/*
 * A user whose uploads are slow has half of the room for all. A further one of this user is
 * refused; the largest upload of another user is not. When the connections are closed, the room is
 * free again.
 */
static void slow_uploads_leave_room_to_others(void **state)
{
	struct fixture *f = *state;
	struct counter *refused = counter("api_refused_total", "reason", "user_upload_bytes");
	uint64_t before = counter_get(refused);
	_cleanup_free_ char *large = xcalloc(1, SYMBOLS_UPLOAD_BYTES);
	int fds[3];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = begin_slowly(f, APP, tenant, SYMBOLS_UPLOAD_BYTES);
		assert_int_equal(status_on(f, fds[i]), i < 2 ? 100 : 429);
	}
	assert_int_equal(counter_get(refused), before + 1);
	assert_int_equal(upload(f, APP, tenant), 429);
	assert_non_null(strstr(f->body, "your uploads that are under way"));
	/* it is read to its end, and then it is no index */
	assert_int_equal(ask_bytes(f, "PUT", SYMBOLS, uploader, large, SYMBOLS_UPLOAD_BYTES), 400);
	assert_int_equal(upload(f, SYMBOLS, uploader), 200);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	for (int i = 0; i < 200 && upload(f, APP, tenant) == 429; i++)
		; /* until the server has noticed that the connections are closed */
	assert_int_equal(f->status, 200);
}

/* Small uploads have connections, too: a user has a limit of them. */
static void small_uploads_have_a_limit(void **state)
{
	struct fixture *f = *state;
	int fds[4 * SYMBOLS_UPLOAD_BYTES / 2 / (4 << 20) + 1];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = begin_slowly(f, APP, tenant, 1);
		assert_int_equal(status_on(f, fds[i]), i + 1 < ARRAY_SIZE(fds) ? 100 : 429);
	}
	assert_int_equal(upload(f, SYMBOLS, uploader), 200);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

/* ---- uploads that the store keeps ---- */

/* Nobody answers there. */
static int setup_away(void **state)
{
	const struct store_config c = {.kind = "clickhouse", .url = "http://127.0.0.1:1"};

	assert_int_equal(store_open(&c, &with_symbols_store, NULL), 0);
	fill_store = fill_three;
	return setup_local(state);
}

static int teardown_away(void **state)
{
	int r = teardown(state);

	with_symbols_store = store_close(with_symbols_store);
	return r;
}

static void an_upload_waits_for_the_database(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(upload(f, SYMBOLS, NULL), 503);
	assert_non_null(strstr(f->body, "try again"));
	assert_int_equal(ask(f, "DELETE", SYMBOLS, NULL, NULL), 503);
	assert_int_equal(ask(f, "GET", "/v1/symbols", NULL, NULL), 200);
	assert_folded(f, NULL, "web;main;[/bin/stripped] 111\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(uploads_name_what_is_stored),
		LOCAL(an_answer_tells_which_files_name_nothing),
		LOCAL(bad_uploads),
		CLUSTER(uploads_want_their_own_right),
		CLUSTER(a_large_body_waits_for_the_right),
		THREE(a_namespace_names_only_its_own),
		THREE(every_answer_names_by_namespace),
		THREE(the_list_has_what_the_user_may_see),
		THREE(refusals_say_what_to_do),
		THREE(a_large_body_waits_for_the_right_there),
		THREE(slow_uploads_leave_room_to_others),
		THREE(small_uploads_have_a_limit),
		cmocka_unit_test_setup_teardown(an_upload_waits_for_the_database, setup_away,
						teardown_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
