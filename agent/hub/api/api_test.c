/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API over real HTTP on loopback: routes, replies, who is let in. The API
 * server of Kubernetes is a stub of kube_request here.
 */
#include "hub/api/api.h"
#include "hub/symbols/symbols.h"
#include "hub/symbols/testindex.h"
#include "lib/base/testclock.h"
#include "lib/base/testdir.h"

#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define T0	 1700000000
#define BUILD_ID "00112233445566778899aabbccddeeff00112233"

#define QUERY_MAILBOX (1 << 20)

struct fixture {
	struct loop *loop;
	struct store *store;
	struct symbols *symbols;
	char dir[TESTDIR_BYTES];
	struct worker *query, *uploads;
	struct api *api;
	struct http_server *server;
	struct http_client *client;
	struct timer guard;
	int status;
	char *body;
	json_t *json;
};

/* ---- a Kubernetes that knows five tokens ---- */

static struct {
	struct loop *loop;
	bool down;
	unsigned n_token, n_access;
} cluster;

struct asked {
	struct timer timer;
	kube_done_fn *fn;
	void *arg;
	json_t *answer;
};

static void answer(void *arg)
{
	struct asked *a = arg;

	if (a->answer)
		a->fn(201, a->answer, NULL, a->arg);
	else
		a->fn(0, NULL, "connection refused", a->arg);
	json_decref(a->answer);
	free(a);
}

static json_t *review(const char *path, const json_t *body)
{
	const char *token = json_str_at(body, "spec.token", "");
	const char *audience =
		json_string_value(json_array_get(json_at(body, "spec.audiences"), 0));
	const char *user = json_str_at(body, "spec.user", ""), *verb, *resource;
	bool for_ingest = streq(token, "agent") || streq(token, "stranger");

	if (cluster.down)
		return NULL;
	if (strstr(path, "subjectaccessreviews")) {
		cluster.n_access++;
		resource = json_str_at(body, "spec.resourceAttributes.resource", "");
		assert_string_equal(json_str_at(body, "spec.resourceAttributes.group", ""),
				    "podflame.io");
		verb = json_str_at(body, "spec.resourceAttributes.verb", "");
		if (streq(verb, "get"))
			assert_int_equal(json_array_size(json_at(body, "spec.groups")), 1);
		if (streq(resource, "symbols"))
			return json_pack("{s:{s:b}}", "status", "allowed", streq(user, "uploader"));
		assert_string_equal(resource, "profiles");
		return json_pack("{s:{s:b}}", "status", "allowed",
				 streq(user, streq(verb, "get") ? "viewer" : "agent"));
	}
	cluster.n_token++;
	if (!streq(token, "viewer") && !streq(token, "uploader") && !streq(token, "nobody") &&
	    !for_ingest)
		return json_pack("{s:{s:s}}", "status", "error", "token is unknown");
	if (audience)
		return json_pack("{s:{s:b, s:[s*], s:{s:s, s:{s:[s]}}}}", "status", "authenticated",
				 1, "audiences", for_ingest ? audience : NULL, "user", "username",
				 token, "extra", "authentication.kubernetes.io/node-name", "n1");
	return json_pack("{s:{s:b, s:{s:s, s:[s]}}}", "status", "authenticated", 1, "user",
			 "username", token, "groups", "system:authenticated");
}

/* In place of lib/kube's: answers on the loop, as the real one does. */
int kube_request(struct kube *k, const char *method, const char *path, const char *content_type,
		 const json_t *body, kube_done_fn *fn, void *arg)
{
	struct asked *a = xcalloc(1, sizeof(*a));

	assert_non_null(k);
	assert_string_equal(method, "POST");
	assert_null(content_type);
	*a = (struct asked){.fn = fn, .arg = arg, .answer = review(path, body)};
	timer_set(cluster.loop, &a->timer, 0, answer, a);
	return 0;
}

/* ---- fixture ---- */

static void timed_out(void *arg)
{
	struct fixture *f = arg;

	loop_stop(f->loop, -ETIMEDOUT);
}

static void fill(struct store *s)
{
	struct frame frames[] = {{.kind = FRAME_APP, .name = "main"},
				 {.kind = FRAME_LIBRARY, .name = "write"}};
	struct frame stripped[] = {{.kind = FRAME_APP, .name = "main"},
				   {.kind = FRAME_APP,
				    .module = "/bin/stripped",
				    .build_id = BUILD_ID,
				    .address = 0x1011}};
	struct batch *b = batch_new();
	struct profile *p = batch_profile(b);
	struct profile_sample *sample;
	size_t n_new;

	p->event = EVENT_ON_CPU;
	p->end_ns = T0 * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = batch_str(b, "api");
	p->process_id = 7;
	profile_tag(b, p, "pod_ns", "app");
	sample = profile_add(b, p);
	sample->thread_comm = batch_str(b, "worker");
	sample->cpu = -1;
	sample->value = 10101;
	sample->n_samples = 1;
	assert_int_equal(batch_stack(b, frames, ARRAY_SIZE(frames), &sample->stack), 0);
	p = batch_profile(b);
	p->event = EVENT_ON_CPU;
	p->id[0] = 1;
	p->end_ns = (T0 + 5000) * NSEC_PER_SEC; /* outside of QUERY */
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = batch_str(b, "stripped");
	p->process_id = 8;
	sample = profile_add(b, p);
	sample->cpu = -1;
	sample->value = 20202;
	sample->n_samples = 2;
	assert_int_equal(batch_stack(b, stripped, ARRAY_SIZE(stripped), &sample->stack), 0);
	assert_int_equal(store_write(s, b, &n_new), 0);
	batch_free(b);
}

/* As the hub's. */
static json_t *say_health(void *arg)
{
	struct store_stats s;

	store_stats(arg, &s);
	return json_pack("{s:s, s:s}", "store", s.error, "certificate", "");
}

/* path: of the store. */
static int setup_with(void **state, struct fixture *f, struct kube *kube, const char *path)
{
	const struct store_config sc = {.kind = "sqlite", .path = (char *)(uintptr_t)path};
	struct http_server_config server = {
		.address = "127.0.0.1", .head = api_http_head, .handler = api_http};
	_cleanup_free_ char *symbols_dir = xasprintf("%s/symbols", f->dir);
	struct symbols_config symbols = {.dir = symbols_dir, .max_bytes = 1 << 20};
	struct http_client_config client = {.address = "127.0.0.1"};
	struct api_config ac = {.kube = kube,
				.version = "9.9.9",
				.cluster_name = "c1",
				.token_hint = kube ? "kubectl create token x" : "",
				.store_note = "in memory",
				.health = say_health};
	struct field_error e = {0};

	assert_int_equal(loop_new(&f->loop), 0);
	memset(&cluster, 0, sizeof(cluster));
	cluster.loop = f->loop;
	assert_int_equal(store_open(&sc, &f->store, &e), 0);
	fill(f->store);
	assert_int_equal(worker_new(f->loop, "query", QUERY_MAILBOX, &f->query), 0);
	assert_int_equal(worker_new(f->loop, "uploads", 2 * SYMBOLS_UPLOAD_BYTES, &f->uploads), 0);
	assert_int_equal(symbols_open(&symbols, &f->symbols, &e), 0);
	ac.store = f->store;
	ac.health_arg = f->store;
	ac.symbols = f->symbols;
	ac.uploads = f->uploads;
	ac.query = f->query;
	assert_int_equal(api_new(f->loop, &ac, &f->api), 0);
	server.arg = f->api;
	assert_int_equal(http_server_new(f->loop, &server, &f->server, &e), 0);
	client.port = http_server_port(f->server);
	assert_int_equal(http_client_new(f->loop, &client, &f->client), 0);
	timer_set(f->loop, &f->guard, 30 * NSEC_PER_SEC, timed_out, f);
	*state = f;
	return 0;
}

static struct fixture *fixture_new(void)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	assert_int_equal(testdir_make(f->dir), 0);
	return f;
}

static int setup_local(void **state)
{
	return setup_with(state, fixture_new(), NULL, ":memory:");
}

static int setup_cluster(void **state)
{
	return setup_with(state, fixture_new(), (struct kube *)&cluster, ":memory:");
}

/* The store's file is no store. */
static int setup_damaged(void **state)
{
	struct fixture *f = fixture_new();
	_cleanup_free_ char *path = xasprintf("%s/profiles.sqlite", f->dir);
	char no_store[8192];

	memset(no_store, 'x', sizeof(no_store));
	assert_int_equal(file_write_atomic(path, no_store, sizeof(no_store), 0600), 0);
	return setup_with(state, f, NULL, f->dir);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	test_clock.asleep_ns = 0;
	timer_cancel(&f->guard);
	http_client_free(f->client);
	http_server_free(f->server);
	worker_free(f->query);
	worker_free(f->uploads);
	symbols_close(f->symbols);
	api_free(f->api);
	store_close(f->store);
	assert_int_equal(testdir_remove(f->dir), 0);
	loop_free(f->loop);
	json_decref(f->json);
	free(f->body);
	free(f);
	return 0;
}

static void done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct fixture *f = arg;

	(void)error;
	f->status = status;
	free(f->body);
	f->body = xstrndup(body ? body : "", n);
	json_decref(f->json);
	f->json = json_loadb(f->body, n, 0, NULL);
	loop_stop(f->loop, 0);
}

static int ask_bytes(struct fixture *f, const char *method, const char *path, const char *header,
		     const void *body, size_t n)
{
	const char *const headers[] = {header, NULL};
	struct http_request r = {.method = method,
				 .path = path,
				 .headers = headers,
				 .body = body,
				 .body_bytes = n,
				 .timeout_ns =
					 300 * NSEC_PER_SEC, /* a large body, a slow machine */
				 .on_done = done,
				 .arg = f};
	struct http_call *call;

	assert_int_equal(http_send(f->client, &r, &call), 0);
	assert_int_equal(loop_run(f->loop), 0);
	return f->status;
}

static int ask(struct fixture *f, const char *method, const char *path, const char *header,
	       const char *body)
{
	return ask_bytes(f, method, path, header, body, body ? strlen(body) : 0);
}

#define QUERY                                                                                      \
	"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","                   \
	"\"time_start\":1699999000,\"time_end\":1700001000"
#define TRACING "/v1/profile/ProfileTracing"

/* ---- tests ---- */

static void pages_without_sign_in(void **state)
{
	static const char *const open[] = {"/", "/healthz", "/readyz", "/v1/info"};

	for (size_t i = 0; i < ARRAY_SIZE(open); i++)
		assert_int_equal(ask(*state, "GET", open[i], NULL, NULL), 200);
}

static const char *const health_pages[] = {"/healthz", "/readyz"};

static void health(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(health_pages); i++) {
		assert_int_equal(ask(f, "GET", health_pages[i], NULL, NULL), 200);
		assert_string_equal(f->body,
				    "{\"store\":\"\",\"certificate\":\"\",\"status\":\"ok\"}");
	}
}

/* Anybody may ask: what is wrong is told, the folder is in the log. */
static void health_tells_no_path(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(health_pages); i++) {
		assert_int_equal(ask(f, "GET", health_pages[i], NULL, NULL), 200);
		assert_true(str_has_prefix(json_str_at(f->json, "store", ""),
					   "profiles.sqlite was damaged and is set aside as "
					   "profiles.sqlite.damaged-"));
		assert_string_equal(json_str_at(f->json, "status", "?"), "ok");
		assert_null(strchr(f->body, '/'));
	}
}

static void info(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "GET", "/v1/info", NULL, NULL), 200);
	assert_string_equal(json_str_at(f->json, "version", ""), "9.9.9");
	assert_string_equal(json_str_at(f->json, "store_note", ""), "in memory");
	assert_false(json_bool_at(f->json, "auth_required", true));
}

/* Everybody may ask: that something is wrong is told, by the sentence that docs/api.md has, and no path. */
static void info_tells_of_a_damaged_store(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *docs = NULL;
	const char *note;

	assert_int_equal(ask(f, "GET", "/v1/info", NULL, NULL), 200);
	note = json_str_at(f->json, "store_note", "");
	assert_string_equal(note, "The store has a problem: see /healthz.");
	assert_null(strstr(f->body, f->dir));
	assert_int_equal(file_read(AT_FDCWD, "docs/api.md", 1 << 20, &docs, NULL), 0);
	assert_non_null(strstr(docs, note));
}

static void tracing(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "POST", TRACING, NULL, QUERY "}"), 200);
	assert_true(str_has_prefix(
		f->body, "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":["
			 "{\"profile_location_str\":\"api\",\"node_id\":\"\","
			 "\"parent_node_id\":\"-1\",\"self_value\":0,\"total_value\":10101},"
			 "{\"profile_location_str\":\"[t] worker\""));
	assert_int_equal(ask(f, "POST", TRACING, NULL,
			     QUERY ",\"tag_filter\":\"pod_ns='app'\",\"result_format\":\"flat\"}"),
			 200);
	assert_int_equal(json_array_size(json_at(f->json, "result.functions")), 4);
	assert_int_equal(ask(f, "POST", TRACING, NULL, QUERY ",\"tag_filter\":\"pod_ns='x'\"}"),
			 200);
	assert_true(json_is_null(json_object_get(f->json, "result")));
}

static struct profile *add_event(struct batch *b, uint8_t id, enum event event, uint64_t end_s)
{
	struct profile *p = batch_profile(b);

	p->id[0] = id;
	p->event = event;
	p->end_ns = end_s * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = batch_str(b, "api");
	p->process_id = 7;
	p->process_start_ns = NSEC_PER_SEC;
	return p;
}

static void add_value(struct batch *b, struct profile *p, const char *name, int64_t value)
{
	const struct frame f = {.kind = FRAME_APP, .name = name};
	struct profile_sample *s = profile_add(b, p);

	s->thread_comm = batch_str(b, "worker");
	s->cpu = -1;
	s->value = value;
	s->n_samples = 1;
	assert_int_equal(batch_stack(b, &f, 1, &s->stack), 0);
}

#define OF(event)                                                                                  \
	"{\"profile_event_type\":\"" event "\",\"profile_language_type\":\"eBPF\","                \
	"\"time_start\":1699999000,\"time_end\":1700001000,\"result_format\":\"flat\""

static void events(void **state)
{
	struct fixture *f = *state;
	struct batch *b = batch_new();
	struct profile *p = add_event(b, 2, EVENT_OFF_CPU, T0);
	size_t n_new;

	add_value(b, p, "take", 500);
	p->samples[0].wait = WAIT_LOCK;
	add_value(b, p, "take", 200);
	p->samples[1].wait = WAIT_RUNQUEUE;
	p = add_event(b, 3, EVENT_MEM_INUSE, T0);
	add_value(b, p, "cache", 4096);
	add_value(b, p, "freed", 100);
	p = add_event(b, 4, EVENT_MEM_INUSE, T0 + 10);
	add_value(b, p, "cache", 8192);
	assert_int_equal(store_write(f->store, b, &n_new), 0);
	batch_free(b);

	assert_int_equal(ask(f, "POST", TRACING, NULL, OF("off-cpu") "}"), 200);
	assert_string_equal(json_str_at(f->json, "unit", ""), "microseconds");
	assert_non_null(strstr(f->body, "[\"api\",\"[wait: lock]\",\"take\",\"[t] worker\","
					"\"[wait: runqueue]\"]"));
	assert_int_equal(json_int_at(f->json, "summary.throttled_us", -1), 0);
	assert_int_equal(
		ask(f, "POST", TRACING, NULL, OF("off-cpu") ",\"tag_filter\":\"wait='lock'\"}"),
		200);
	assert_non_null(strstr(f->body, "[0,-1,0,500]"));
	assert_int_equal(ask(f, "POST", TRACING, NULL, OF("mem-inuse") "}"), 200);
	assert_string_equal(json_str_at(f->json, "unit", ""), "bytes");
	assert_non_null(strstr(f->body, "[\"api\",\"cache\",\"[t] worker\"]"));
	assert_non_null(strstr(f->body, "\"function_types\":[\"P\",\"O\",\"T\"]"));
	assert_non_null(strstr(f->body, "[0,-1,0,8192]"));
	assert_int_equal(ask(f, "POST", TRACING, NULL, OF("mem-alloc") "}"), 200);
	assert_non_null(strstr(f->body, "no mem-alloc profile is stored"));
	assert_int_equal(ask(f, "POST", "/v1/profile/values", NULL,
			     "{\"tag\":\"wait\",\"profile_event_type\":\"off-cpu\"}"),
			 200);
	assert_non_null(strstr(f->body, "[{\"value\":\"lock\",\"samples\":1},"
					"{\"value\":\"runqueue\",\"samples\":1}]"));
}

static void errors(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "POST", TRACING, NULL, "{"), 400);
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "INVALID_POST_DATA");
	assert_int_equal(ask(f, "POST", TRACING, NULL, QUERY ",\"tag_filter\":\"pod_ns=\"}"), 500);
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "FAIL");
	assert_non_null(strstr(f->body, "tag_filter: position 8: expected a value"));
	assert_int_equal(ask(f, "GET", TRACING, NULL, NULL), 405);
	assert_int_equal(ask(f, "POST", "/", NULL, "x"), 405);
	assert_int_equal(ask(f, "GET", "/v1/nothing", NULL, NULL), 404);
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "RESOURCE_NOT_FOUND");
}

static void choices(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(
		ask(f, "POST", "/v1/profile/values", NULL,
		    "{\"tag\":\"pod_ns\",\"profile_event_type\":\"on-cpu\",\"app_service\":"
		    "\"\",\"tag_filter\":\"\",\"time_start\":1699999000,\"time_end\":"
		    "1700001000,\"limit\":500}"),
		200);
	assert_string_equal(f->body, "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":["
				     "{\"value\":\"app\",\"samples\":1}],\"debug\":null}");
	assert_int_equal(
		ask(f, "POST", "/v1/profile/values", NULL, "{\"tag\":\"profile_event_type\"}"),
		200);
	assert_non_null(strstr(f->body, "on-cpu"));
	assert_int_equal(ask(f, "POST", "/v1/profile/values", NULL, "{\"tag\":\"nope\"}"), 400);
	assert_int_equal(ask(f, "GET", "/v1/profile/tags", NULL, NULL), 200);
	assert_true(json_array_size(json_object_get(f->json, "result")) > 40);
}

static void metrics(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "GET", "/metrics", NULL, NULL), 200);
	assert_non_null(strstr(f->body, "# TYPE podflame_store_profiles_total counter\n"
					"podflame_store_profiles_total 2\n"));
	assert_non_null(strstr(f->body, "podflame_api_requests_total{path=\"/metrics\"}"));
	assert_non_null(strstr(f->body, "\npodflame_queries_busy_seconds_total 0."));
	assert_non_null(strstr(f->body, "\nprocess_resident_memory_bytes "));
	assert_non_null(strstr(f->body, "\npodflame_worker_queued_jobs{worker=\"query\"} 0\n"));
}

static json_t *debug_page(void *arg)
{
	return json_pack("{s:s}", "said", (const char *)arg);
}

static void debug_pages(void **state)
{
	struct fixture *f = *state;

	api_debug(f->api, "/debug/x", debug_page, (void *)"hello");
	assert_int_equal(ask(f, "GET", "/debug/x", NULL, NULL), 200);
	assert_string_equal(json_str_at(f->json, "said", ""), "hello");
}

static void foreign_hosts_are_refused(void **state)
{
	static const struct {
		const char *header;
		int status;
	} cases[] = {
		{"Origin: http://localhost:20416", 200},
		{"Origin: http://127.0.0.1:20416", 200},
		{"Origin: http://evil.example", 403},
		{"Origin: null", 403},
		{"Origin: http://localhost.evil.example", 403},
	};
	struct fixture *f = *state;
	const struct http_client_config rebound = {.address = "127.0.0.1",
						   .port = http_server_port(f->server),
						   .host = "evil.example"};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(ask(f, "POST", TRACING, cases[i].header, QUERY "}"),
				 cases[i].status);
	http_client_free(f->client);
	assert_int_equal(http_client_new(f->loop, &rebound, &f->client), 0);
	assert_int_equal(ask(f, "GET", "/", NULL, NULL), 403);
	assert_int_equal(ask(f, "POST", TRACING, NULL, QUERY "}"), 403);
}

static const char *const guarded[][2] = {
	{"POST", TRACING},	     {"POST", "/v1/profile/values"},
	{"GET", "/v1/profile/tags"}, {"GET", "/metrics"},
	{"GET", "/debug/x"},	     {"GET", "/nothing"},
};

static void every_endpoint_wants_the_right(void **state)
{
	struct fixture *f = *state;

	api_debug(f->api, "/debug/x", debug_page, (void *)"hello");
	for (size_t i = 0; i < ARRAY_SIZE(guarded); i++) {
		const char *method = guarded[i][0], *path = guarded[i][1];

		assert_int_equal(ask(f, method, path, NULL, NULL), 401);
		assert_int_equal(ask(f, method, path, "Authorization: Basic dXNlcg==", NULL), 401);
		assert_int_equal(ask(f, method, path, "Authorization: Bearer ", NULL), 401);
		assert_int_equal(ask(f, method, path, "Authorization: Bearer wrong", NULL), 401);
		assert_int_equal(ask(f, method, path, "Authorization: Bearer nobody", NULL), 403);
		ask(f, method, path, "Authorization: Bearer viewer", NULL);
		assert_int_not_equal(f->status, 0);
		assert_int_not_equal(f->status, 401);
		assert_int_not_equal(f->status, 403);
	}
	/* one question a token, not one a request */
	assert_int_equal(cluster.n_token, 3);
	assert_int_equal(cluster.n_access, 2);
}

static void refusals_say_what_to_do(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "POST", TRACING, NULL, QUERY "}"), 401);
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "UNAUTHORIZED");
	assert_non_null(strstr(f->body, "kubectl create token x"));
	assert_int_equal(ask(f, "POST", TRACING, "Authorization: Bearer nobody", QUERY "}"), 403);
	assert_non_null(strstr(f->body, "profiles.podflame.io"));
	assert_int_equal(ask(f, "POST", TRACING, "Authorization: Bearer viewer", QUERY "}"), 200);
	assert_int_equal(ask(f, "GET", "/v1/info", NULL, NULL), 200);
	assert_true(json_bool_at(f->json, "auth_required", false));
}

static void no_answer_is_no_entry(void **state)
{
	struct fixture *f = *state;

	cluster.down = true;
	assert_int_equal(ask(f, "POST", TRACING, "Authorization: Bearer viewer", QUERY "}"), 503);
	assert_non_null(strstr(f->body, "cannot be asked"));
	assert_int_equal(ask(f, "GET", "/", NULL, NULL), 200);
	cluster.down = false; /* and is not remembered */
	assert_int_equal(ask(f, "POST", TRACING, "Authorization: Bearer viewer", QUERY "}"), 200);
	cluster.down = true; /* what was allowed stays so for a while */
	assert_int_equal(ask(f, "POST", TRACING, "Authorization: Bearer viewer", QUERY "}"), 200);
}

/* A token may have been taken back while the machine slept: what was allowed before is asked for again. */
static void what_was_allowed_ages_asleep(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 3; i++)
		assert_int_equal(ask(f, "POST", TRACING, "Authorization: Bearer viewer", QUERY "}"),
				 200);
	assert_int_equal(cluster.n_token, 1);
	assert_int_equal(cluster.n_access, 1);
	test_clock.asleep_ns = 61 * NSEC_PER_SEC;
	assert_int_equal(ask(f, "POST", TRACING, "Authorization: Bearer viewer", QUERY "}"), 200);
	assert_int_equal(cluster.n_token, 2);
	assert_int_equal(cluster.n_access, 2);
}

/* ---- uploaded symbols ---- */

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
	static const char uploader[] = "Authorization: Bearer uploader";
	static const char viewer[] = "Authorization: Bearer viewer";
	struct fixture *f = *state;

	assert_int_equal(upload(f, SYMBOLS, NULL), 401);
	assert_int_equal(upload(f, SYMBOLS, viewer), 403);
	assert_non_null(strstr(f->body, "verb create on symbols.podflame.io"));
	assert_int_equal(upload(f, SYMBOLS, uploader), 200);
	assert_int_equal(ask(f, "GET", "/v1/symbols", viewer, NULL), 403);
	assert_int_equal(ask(f, "GET", "/v1/symbols", uploader, NULL), 200);
	assert_int_equal(ask(f, "DELETE", SYMBOLS, viewer, NULL), 403);
	assert_int_equal(ask(f, "DELETE", SYMBOLS, uploader, NULL), 200);
	assert_int_equal(ask(f, "POST", TRACING, uploader, STRIPPED_QUERY), 403);
}

/* Who has no right cannot make the hub take a large body. */
static void a_large_body_waits_for_the_right(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *large = xcalloc(1, 8 << 20);

	assert_int_equal(
		ask_bytes(f, "PUT", SYMBOLS, "Authorization: Bearer wrong", large, 8 << 20), 401);
	assert_int_equal(
		ask_bytes(f, "PUT", SYMBOLS, "Authorization: Bearer nobody", large, 8 << 20), 403);
	cluster.down = true;
	assert_int_equal(
		ask_bytes(f, "PUT", SYMBOLS, "Authorization: Bearer uploader", large, 8 << 20),
		503);
}

/* More at a time than there is memory for are told to wait; who leaves makes room. */
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
	loop_run(f->loop); /* the first answer is a refusal */
	assert_int_equal(f->status, 503);
	assert_true(counter_get(busy) > n_busy);
	http_client_free(f->client);
	assert_int_equal(
		http_client_new(f->loop,
				&(struct http_client_config){.address = "127.0.0.1",
							     .port = http_server_port(f->server)},
				&f->client),
		0);
	for (int i = 0; i < 200 && upload(f, SYMBOLS, NULL) == 503; i++)
		; /* until the server has seen that they are gone */
	assert_int_equal(f->status, 200);
}

struct gate_got {
	struct loop *loop;
	int status;
	char node[64];
};

static void gate_got(int status, const char *node, const char *error, void *arg)
{
	struct gate_got *g = arg;

	(void)error;
	g->status = status;
	snprintf(g->node, sizeof(g->node), "%s", node);
	loop_stop(g->loop, 0);
}

static void audience_right_and_node(void **state)
{
	const struct gate_config c = {(struct kube *)&cluster, "podflame-ingest"};
	const struct gate_right send = {"create", "profiles"};
	struct fixture *f = *state;
	struct gate_got g = {.loop = f->loop};
	struct gate *gate = gate_new(&c);

	gate_check(gate, "Bearer agent", &send, gate_got, &g);
	loop_run(f->loop);
	assert_int_equal(g.status, 200);
	assert_string_equal(g.node, "n1");
	gate_check(gate, "Bearer viewer", &send, gate_got, &g); /* good, but not made for this */
	loop_run(f->loop);
	assert_int_equal(g.status, 401);
	gate_check(gate, "Bearer stranger", &send, gate_got,
		   &g); /* made for this, without the right */
	loop_run(f->loop);
	assert_int_equal(g.status, 403);
	gate_free(gate, false);
}

/* Equal ones that wait are asked for once; beyond what may wait each is told at once, and counted. */
static void few_wait_for_one_sign_in(void **state)
{
	enum { MOST = 256, MORE = 3 };
	const struct gate_config c = {(struct kube *)&cluster, "podflame-ingest"};
	const struct gate_right send = {"create", "profiles"};
	struct counter *busy = counter("api_refused_total", "reason", "reviews_busy");
	uint64_t n_busy = counter_get(busy);
	unsigned n_token = cluster.n_token;
	struct fixture *f = *state;
	struct gate *gate = gate_new(&c);
	struct gate_got got[MOST + MORE];

	for (size_t i = 0; i < MOST + MORE; i++) {
		got[i] = (struct gate_got){.loop = f->loop};
		gate_check(gate, "Bearer agent", &send, gate_got, &got[i]);
		assert_int_equal(got[i].status, i < MOST ? 0 : 503);
	}
	assert_int_equal(counter_get(busy), n_busy + MORE);
	while (!got[MOST - 1].status)
		loop_run(f->loop);
	for (size_t i = 0; i < MOST; i++)
		assert_int_equal(got[i].status, 200);
	assert_int_equal(cluster.n_token, n_token + 1);
	gate_free(gate, false);
}

struct blocker {
	struct job job;
	sem_t release;
};

static void block(struct job *job)
{
	struct blocker *b = (struct blocker *)job;

	while (sem_wait(&b->release) && errno == EINTR)
		;
}

static void nothing(struct job *job)
{
	(void)job;
}

static void stop_waiting(void *arg)
{
	loop_stop(arg, 0);
}

static bool await_more(struct fixture *f, const struct counter *c, uint64_t before)
{
	uint64_t deadline_ns = now_mono_ns() + 20 * NSEC_PER_SEC;
	struct timer t = {0};

	while (counter_get(c) == before && now_mono_ns() < deadline_ns) {
		timer_set(f->loop, &t, NSEC_PER_MSEC, stop_waiting, f->loop);
		loop_run(f->loop);
	}
	return counter_get(c) > before;
}

/* A query whose caller has left is told to end; the next one is answered. */
static void callers_may_leave(void **state)
{
	struct fixture *f = *state;
	struct counter *asked = counter("api_requests_total", "path", TRACING);
	struct counter *left = counter("api_refused_total", "reason", "caller_left");
	uint64_t n_asked = counter_get(asked), n_left = counter_get(left);
	struct blocker b = {.job = {.run = block, .done = nothing}};
	struct http_request r = {.method = "POST",
				 .path = TRACING,
				 .body = QUERY "}",
				 .body_bytes = strlen(QUERY "}"),
				 .on_done = done,
				 .arg = f};
	struct http_call *call;
	bool seen;

	sem_init(&b.release, 0, 0);
	assert_int_equal(worker_post(f->query, &b.job), 0);
	assert_int_equal(http_send(f->client, &r, &call), 0);
	seen = await_more(f, asked, n_asked);
	http_cancel(call);
	seen = seen && await_more(f, left, n_left);
	sem_post(&b.release); /* before anything may fail: teardown joins the worker */
	assert_true(seen);
	assert_int_equal(ask(f, "POST", TRACING, NULL, QUERY "}"), 200);
	assert_non_null(strstr(f->body, "[t] worker"));
	sem_destroy(&b.release);
}

/* The mailbox of queries is full: the next is refused at once, counted, and the worker goes on. */
static void too_many_queries_are_refused(void **state)
{
	struct fixture *f = *state;
	struct counter *busy = counter("api_refused_total", "reason", "queries_busy");
	uint64_t n_busy = counter_get(busy);
	struct blocker b = {.job = {.run = block, .done = nothing}};
	struct job filler = {.run = nothing, .done = nothing, .n_bytes = QUERY_MAILBOX};
	int status, r;

	sem_init(&b.release, 0, 0);
	assert_int_equal(worker_post(f->query, &b.job), 0);
	r = worker_post(f->query, &filler);
	status = ask(f, "POST", TRACING, NULL, QUERY "}");
	sem_post(&b.release); /* before anything may fail: teardown joins the worker */
	assert_int_equal(r, 0);
	assert_int_equal(status, 503);
	assert_non_null(strstr(f->body, "UNAVAILABLE"));
	assert_int_equal(counter_get(busy), n_busy + 1);
	do
		status = ask(f, "POST", TRACING, NULL, QUERY "}");
	while (status == 503); /* until the worker has begun with what blocked it */
	assert_int_equal(status, 200);
	sem_destroy(&b.release);
}

/* Everything is freed while questions and queries are open. */
static void ends_with_open_requests(void **state)
{
	struct fixture *f = *state;
	const char *const headers[] = {"Authorization: Bearer viewer", NULL};
	struct http_request r = {.method = "POST",
				 .path = TRACING,
				 .headers = headers,
				 .body = QUERY "}",
				 .body_bytes = strlen(QUERY "}"),
				 .on_done = done,
				 .arg = f};
	struct http_call *call;

	for (int i = 0; i < 4; i++)
		assert_int_equal(http_send(f->client, &r, &call), 0);
	loop_run(f->loop); /* until the first answer */
}

int main(void)
{
#define LOCAL(t)   cmocka_unit_test_setup_teardown(t, setup_local, teardown)
#define CLUSTER(t) cmocka_unit_test_setup_teardown(t, setup_cluster, teardown)
	const struct CMUnitTest tests[] = {
		LOCAL(pages_without_sign_in),
		LOCAL(health),
		cmocka_unit_test_setup_teardown(health_tells_no_path, setup_damaged, teardown),
		LOCAL(info),
		cmocka_unit_test_setup_teardown(info_tells_of_a_damaged_store, setup_damaged,
						teardown),
		LOCAL(tracing),
		LOCAL(events),
		LOCAL(errors),
		LOCAL(choices),
		LOCAL(metrics),
		LOCAL(debug_pages),
		LOCAL(foreign_hosts_are_refused),
		LOCAL(callers_may_leave),
		LOCAL(too_many_queries_are_refused),
		LOCAL(uploads_name_what_is_stored),
		LOCAL(bad_uploads),
		LOCAL(few_uploads_at_a_time),
		CLUSTER(uploads_want_their_own_right),
		CLUSTER(a_large_body_waits_for_the_right),
		CLUSTER(pages_without_sign_in),
		CLUSTER(health),
		CLUSTER(what_was_allowed_ages_asleep),
		CLUSTER(every_endpoint_wants_the_right),
		CLUSTER(refusals_say_what_to_do),
		CLUSTER(no_answer_is_no_entry),
		CLUSTER(audience_right_and_node),
		CLUSTER(few_wait_for_one_sign_in),
		CLUSTER(ends_with_open_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
