/* SPDX-License-Identifier: Apache-2.0 */
/* The API's routes and the replies to queries. */
#include "hub/api/testapi.h"

#include <fcntl.h>
#include <unistd.h>

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

static void info(void **state)
{
	struct fixture *f = *state;
	int64_t before = (int64_t)(now_wall_ns() / NSEC_PER_SEC);

	assert_int_equal(ask(f, "GET", "/v1/info", NULL, NULL), 200);
	assert_in_range(json_int_at(f->json, "time", 0), before, now_wall_ns() / NSEC_PER_SEC);
	assert_string_equal(json_str_at(f->json, "version", ""), "9.9.9");
	assert_string_equal(json_str_at(f->json, "store_note", ""), "in memory");
	assert_false(json_bool_at(f->json, "auth_required", true));
	assert_true(json_array_size(json_object_get(f->json, "tags")) > 40);
	assert_int_equal(json_array_size(json_object_get(f->json, "files")), _FILE_FORMAT_MAX);
	assert_string_equal(
		json_str_at(json_array_get(json_object_get(f->json, "files"), FILE_PPROF), "ending",
			    ""),
		"pb.gz");
}

/* ---- a store whose file is damaged ---- */

/* The store's file is not an SQLite file. */
static int setup_damaged(void **state)
{
	struct fixture *f = fixture_new();
	_cleanup_free_ char *path = xasprintf("%s/profiles.sqlite", f->dir);
	char no_store[8192];

	memset(no_store, 'x', sizeof(no_store));
	assert_int_equal(file_write_atomic(path, no_store, sizeof(no_store), 0600), 0);
	return setup_with(state, f, NULL, f->dir);
}

static int setup_file(void **state)
{
	struct fixture *f = fixture_new();

	return setup_with(state, f, NULL, f->dir);
}

#define IN_FILE(t) cmocka_unit_test_setup_teardown(t, setup_file, teardown)
#define DAMAGED(t) cmocka_unit_test_setup_teardown(t, setup_damaged, teardown)

/*
 * Anybody may ask for /healthz, so it reports the damage but names no directory. Only the log names
 * it.
 */
static void health_tells_no_path(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(health_pages); i++) {
		assert_int_equal(ask(f, "GET", health_pages[i], NULL, NULL), 200);
		assert_true(str_has_prefix(json_str_at(f->json, "store", ""),
					   "profiles.sqlite was damaged. The hub renamed it to "
					   "profiles.sqlite.damaged-"));
		assert_string_equal(json_str_at(f->json, "status", "?"), "ok");
		assert_null(strchr(f->body, '/'));
	}
}

/*
 * Anybody may ask for /v1/info, so it reports only that something is wrong, in the sentence of
 * docs/api.md, and names no path.
 */
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

/* ---- a hub that forwards ---- */

static int setup_forwarding(void **state)
{
	with_forwards_to = "https://central.example:4318";
	return setup_local(state);
}

static int teardown_forwarding(void **state)
{
	with_forwards_to = NULL;
	return teardown(state);
}

/* Every query says where the profiles are: an empty picture would look like an answer. */
static void a_hub_that_forwards(void **state)
{
	static const char *const posts[] = {"ProfileTracing", "folded", "pprof",  "speedscope",
					    "otlp",	      "groups", "series", "choices",
					    "tree",	      "values", "why"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(posts); i++) {
		_cleanup_free_ char *path = xasprintf("/v1/profile/%s", posts[i]);

		assert_int_equal(ask(f, "POST", path, NULL, QUERY), 404);
		assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "RESOURCE_NOT_FOUND");
		assert_string_equal(json_str_at(f->json, "DESCRIPTION", ""),
				    "this hub keeps no profiles and no symbols: it forwards "
				    "profiles to https://central.example:4318. Ask the hub there");
	}
	/* anybody may ask for these: they do not name the central hub */
	assert_int_equal(ask(f, "GET", "/v1/info", NULL, NULL), 200);
	assert_null(strstr(f->body, "central.example"));
	assert_int_equal(ask(f, "GET", "/metrics", NULL, NULL), 200);
}

/* ---- queries ---- */

static void tracing(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(query(f, NULL), 200);
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
	struct profile *p = profile_batch_profile(b);

	p->id[0] = id;
	p->event = event;
	p->end_ns = end_s * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "api");
	p->process_id = 7;
	p->process_start_ns = NSEC_PER_SEC;
	return p;
}

static void add_value(struct batch *b, struct profile *p, const char *name, int64_t value)
{
	const struct frame f = {.kind = FRAME_APP, .name = name};
	struct profile_sample *s = profile_add(b, p);

	s->thread_comm = profile_batch_str(b, "worker");
	s->cpu = -1;
	s->value = value;
	s->n_samples = 1;
	assert_int_equal(profile_batch_stack(b, &f, 1, &s->stack), 0);
}

#define OF(event)                                                                                  \
	"{\"profile_event_type\":\"" event "\",\"profile_language_type\":\"eBPF\","                \
	"\"time_start\":1699999000,\"time_end\":1700001000,\"result_format\":\"flat\""

static void events(void **state)
{
	struct fixture *f = *state;
	struct batch *b = profile_batch_new();
	struct profile *p = add_event(b, 2, EVENT_OFF_CPU, T0);
	size_t n_new;

	add_value(b, p, "take", 500);
	p->samples[0].wait = WAIT_LOCK;
	add_value(b, p, "take", 200);
	p->samples[1].wait = WAIT_RUNQUEUE;
	/* a sample without a wait: the tag "wait" has no value for it */
	add_value(b, p, "take", 100);
	p->samples[2].n_samples = 5;
	p = add_event(b, 3, EVENT_MEM_INUSE, T0);
	add_value(b, p, "cache", 4096);
	add_value(b, p, "freed", 100);
	p = add_event(b, 4, EVENT_MEM_INUSE, T0 + 10);
	add_value(b, p, "cache", 8192);
	assert_int_equal(store_write(f->store, b, &n_new), 0);
	profile_batch_free(b);

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
	assert_false(json_bool_at(f->json, "truncated", true));
	assert_int_equal(ask(f, "POST", "/v1/profile/values", NULL,
			     "{\"tag\":\"wait\",\"profile_event_type\":\"off-cpu\",\"limit\":1}"),
			 200);
	assert_int_equal(json_array_size(json_object_get(f->json, "result")), 1);
	assert_true(json_bool_at(f->json, "truncated", false));
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

/* The same selection as a file, by POST and by GET. */
static void files(void **state)
{
	struct fixture *f = *state;
	static const char get[] = "/v1/profile/folded?profile_event_type=on-cpu&"
				  "time_start=1699999000&time_end=1700001000";

	assert_int_equal(ask(f, "POST", "/v1/profile/folded", NULL, QUERY "}"), 200);
	assert_string_equal(f->body, "api;[t] worker;main;[l] write 10101\n");
	assert_int_equal(ask(f, "GET", get, NULL, NULL), 200);
	assert_string_equal(f->body, "api;[t] worker;main;[l] write 10101\n");
	assert_int_equal(ask(f, "GET", "/v1/profile/folded?time_start=x", NULL, NULL), 400);
	assert_int_equal(ask(f, "GET", "/v1/profile/folded", NULL, NULL), 400);
	assert_int_equal(ask(f, "POST", "/v1/profile/speedscope", NULL, QUERY "}"), 200);
	assert_int_equal(
		json_int_at(json_array_get(json_object_get(f->json, "profiles"), 0), "endValue", 0),
		10101);
	assert_int_equal(ask(f, "POST", "/v1/profile/pprof", NULL, QUERY "}"), 200);
	assert_memory_equal(f->body, "\x1f\x8b", 2); /* a gzip file: RFC 1952 */
	assert_int_equal(ask(f, "POST", "/v1/profile/otlp", NULL, QUERY ",\"group_by\":\"pod\"}"),
			 200);
	assert_memory_equal(f->body, "\x0a", 1); /* ProfilesData.resource_profiles */
	assert_int_equal(
		ask(f, "POST", "/v1/profile/folded", NULL, QUERY ",\"group_by\":\"pod_ns,pod\"}"),
		200);
	assert_string_equal(f->body, "pod_ns=app;api;[t] worker;main;[l] write 10101\n");
	assert_int_equal(ask(f, "POST", "/v1/profile/folded", NULL, QUERY ",\"group_by\":\"no\"}"),
			 400);
	assert_non_null(strstr(f->body, "group_by: unknown tag 'no'"));
}

static void leave(const void *p, size_t n, void *arg)
{
	struct fixture *f = arg;

	(void)p, (void)n;
	http_cancel(TAKE_PTR(f->leaving));
	loop_stop(f->loop, 0);
}

static void series_and_trees(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "POST", "/v1/profile/groups", NULL,
			     QUERY ",\"group_by\":\"pod_ns\",\"function\":{\"name\":\"write\","
				   "\"kind\":\"library\"}}"),
			 200);
	assert_non_null(strstr(f->body,
			       "\"result\":{\"groups\":[{\"value\":\"app\",\"total\":10101,"
			       "\"samples\":1,\"function_total\":10101,\"function_samples\":1}],"
			       "\"total\":10101,\"samples\":1,"
			       "\"function_total\":10101,\"function_samples\":1,"
			       "\"others\":{\"groups\":0,"));
	assert_int_equal(ask(f, "POST", "/v1/profile/groups", NULL, QUERY "}"), 400);
	assert_int_equal(ask(f, "POST", "/v1/profile/groups", NULL,
			     QUERY ",\"group_by\":\"pod_ns\",\"function\":{\"name\":\"write\","
				   "\"kind\":\"libary\"}}"),
			 400);
	assert_int_equal(ask(f, "POST", "/v1/profile/series", NULL,
			     QUERY ",\"step\":1000,\"group_by\":\"pod_ns\"}"),
			 200);
	assert_string_equal(f->body,
			    "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":{"
			    "\"unit\":\"microseconds\",\"start\":1699999000,\"step\":1000,"
			    "\"steps\":3,\"groups\":[{\"value\":\"app\",\"values\":[10101,0,0]}],"
			    "\"others\":null,\"cut_groups\":false,\"losses\":[],\"starts\":[],"
			    "\"more_starts\":false,\"notes\":[]},\"debug\":null}");
	assert_int_equal(ask(f, "POST", "/v1/profile/tree", NULL,
			     QUERY ",\"group_by\":\"pod_ns\",\"before\":{\"time_start\":1700004000,"
				   "\"time_end\":1700006000}}"),
			 200);
	assert_non_null(strstr(f->body, "\"nodes\":{\"function\":[0,1,2,3,4,5,6,7,3,8],"
					"\"depth\":[0,1,2,3,4,1,2,3,4,5],"
					"\"self\":[0,0,0,0,0,0,0,0,0,10101],"
					"\"samples\":[0,0,0,0,0,0,0,0,0,1],"
					"\"before\":[0,0,0,0,20202,0,0,0,0,0],"
					"\"before_samples\":[0,0,0,0,2,0,0,0,0,0]}"));
}

/*
 * Adds a profile of more than 100,000 frames, of which one stack has nearly all. The others differ
 * in their leaves, so that few names are read.
 */
static void fill_large(struct store *s)
{
	enum { STACKS = 4000, DEPTH = 30 };
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	size_t n_new;

	p->event = EVENT_ON_CPU;
	p->id[0] = 2;
	p->end_ns = (T0 + 20000) * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "large");
	p->process_id = 9;
	for (unsigned i = 0; i < STACKS; i++) {
		struct frame frames[DEPTH] = {};
		struct profile_sample *sample = profile_add(b, p);

		for (unsigned d = 0; d < DEPTH; d++) {
			_cleanup_free_ char *name =
				d + 1 == DEPTH ? xasprintf("leaf%u", i)
					       : xasprintf("%s%u", i ? "f" : "large", d);

			frames[d] = (struct frame){.kind = FRAME_APP,
						   .name = profile_batch_str(b, name)};
		}
		sample->cpu = -1;
		sample->value = i ? 1 : 1000 * STACKS;
		sample->n_samples = 1;
		assert_int_equal(profile_batch_stack(b, frames, DEPTH, &sample->stack), 0);
	}
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

#define LARGE                                                                                      \
	"{\"app_service\":\"large\",\"tag_filter\":\"\",\"profile_event_type\":\"on-cpu\","        \
	"\"profile_language_type\":\"eBPF\",\"time_start\":1700019000,\"time_end\":1700021000,"

/* The first line has only the largest nodes; the second one is the answer without a preview. */
static void a_preview_before_a_large_tree(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *whole = NULL;
	_cleanup_json_ json_t *first = NULL;
	const char *rest;

	fill_large(f->store);
	assert_int_equal(ask(f, "POST", "/v1/profile/tree", NULL, LARGE "\"preview\":false}"), 200);
	whole = TAKE_PTR(f->body);
	assert_null(strchr(whole, '\n'));
	assert_int_equal(ask(f, "POST", "/v1/profile/tree", NULL, LARGE "\"preview\":true}"), 200);
	rest = strchr(f->body, '\n');
	assert_non_null(rest);
	assert_string_equal(rest + 1, whole);
	first = json_loadb(f->body, (size_t)(rest - f->body), 0, NULL);
	assert_true(json_is_true(json_object_get(first, "preview")));
	/* the root, the largest stack, and what is left out */
	assert_int_equal(json_array_size(json_at(first, "result.nodes.self")), 1 + 30 + 1);
	assert_string_equal(json_str_at(first, "OPT_STATUS", ""), "SUCCESS");
}

/* A client that leaves after the preview ends its query, and the worker serves the next one. */
static void after_a_preview_a_client_may_leave(void **state)
{
	struct fixture *f = *state;
	struct http_request r = {.method = "POST",
				 .path = "/v1/profile/tree",
				 .body = LARGE "\"preview\":true}",
				 .on_data = leave,
				 .on_done = done,
				 .arg = f};

	fill_large(f->store);
	r.body_bytes = strlen(r.body);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(http_send(f->client, &r, &f->leaving), 0);
		assert_int_equal(loop_run(f->loop), 0);
		assert_null(f->leaving);
	}
	assert_int_equal(ask(f, "POST", "/v1/profile/tree", NULL, LARGE "\"preview\":true}"), 200);
	assert_non_null(strchr(f->body, '\n'));
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
				     "{\"value\":\"app\",\"samples\":1}],\"debug\":null,"
				     "\"truncated\":false}");
	assert_int_equal(
		ask(f, "POST", "/v1/profile/values", NULL, "{\"tag\":\"profile_event_type\"}"),
		200);
	assert_non_null(strstr(f->body, "on-cpu"));
	assert_int_equal(ask(f, "POST", "/v1/profile/values", NULL, "{\"tag\":\"nope\"}"), 400);
	assert_int_equal(ask(f, "POST", "/v1/profile/choices", NULL,
			     "{\"tags\":[\"pod_ns\",\"app_service\",\"region\"],\"limit\":1,"
			     "\"tag_filter\":\"pod_ns='app'\"}"),
			 200);
	assert_string_equal(
		f->body,
		"{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":{"
		"\"pod_ns\":{\"values\":[{\"value\":\"app\",\"samples\":1}],\"truncated\":false},"
		"\"app_service\":{\"values\":[{\"value\":\"api\",\"samples\":1}],"
		"\"truncated\":false},"
		"\"region\":{\"values\":[],\"truncated\":false}},\"debug\":null}");
	/* the page finds the names of labels under this key */
	assert_int_equal(ask(f, "POST", "/v1/profile/choices", NULL, "{\"tags\":[\"k8s.label.\"]}"),
			 200);
	assert_non_null(strstr(f->body, "{\"k8s.label.\":{\"values\":[],\"truncated\":false}}"));
	assert_int_equal(ask(f, "POST", "/v1/profile/choices", NULL, "{\"tags\":[\"nope\"]}"), 400);
	assert_int_equal(ask(f, "GET", "/v1/profile/tags", NULL, NULL), 200);
	assert_true(json_array_size(json_object_get(f->json, "result")) > 40);
	/* the page needs these members to offer the tags that only some events have */
	assert_non_null(strstr(f->body, "{\"name\":\"gpu_device\",\"stored\":true,"
					"\"type\":\"string\",\"same_as\":\"\","
					"\"help\":\"number of the GPU\","
					"\"events\":[\"hbm-alloc\",\"hbm-inuse\",\"on-gpu\"],"
					"\"title\":\"GPU\"}"));
	assert_non_null(strstr(f->body, "\"events\":[\"rdma\",\"rdma-latency\"],"
					"\"title\":\"RDMA operation\","
					"\"unset\":\"send queue\"}"));
	assert_non_null(strstr(f->body, "\"help\":\"event: on-cpu, off-cpu, "));
	assert_non_null(strstr(f->body, "waited for: runqueue, disk, lock, "));
	assert_null(strstr(f->body, "\"name\":\"pod\",\"stored\":true,\"type\":\"string\","
				    "\"same_as\":\"\",\"help\":\"pod\",\"events\""));
}

/* Every route that reads the store answers a damaged file with the same error. */
static void a_file_that_goes_bad(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *wal = xasprintf("%s/profiles.sqlite-wal", f->dir);
	_cleanup_close_ int fd = open(wal, O_WRONLY | O_CLOEXEC);
	char junk[4096];

	assert_true(fd >= 0);
	memset(junk, 0xa5, sizeof(junk));
	for (off_t at = 0, end = lseek(fd, 0, SEEK_END); at < end; at += (off_t)sizeof(junk))
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at), sizeof(junk));
	assert_int_equal(query(f, NULL), 500);
	assert_true(str_has_prefix(json_str_at(f->json, "DESCRIPTION", ""), "the file is damaged"));
	assert_int_equal(ask(f, "POST", "/v1/profile/values", NULL, "{\"tag\":\"pod_ns\"}"), 500);
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "FAIL");
	assert_true(str_has_prefix(json_str_at(f->json, "DESCRIPTION", ""), "the file is damaged"));
}

/* ---- metrics, debug pages ---- */

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

static json_t *nothing_yet(void *arg)
{
	(void)arg;
	return json_null();
}

static void debug_pages(void **state)
{
	struct fixture *f = *state;

	api_debug(f->api, "/debug/x", debug_page, (void *)"hello");
	assert_int_equal(ask(f, "GET", "/debug/x", NULL, NULL), 200);
	assert_string_equal(json_str_at(f->json, "said", ""), "hello");
	api_debug(f->api, "/debug/none", nothing_yet, NULL);
	assert_int_equal(ask(f, "GET", "/debug/none", NULL, NULL), 200);
	assert_string_equal(f->body, "null");
}

/* A long answer is compressed in the way that the client names; a short one is not. */
static void answers_are_compressed(void **state)
{
	struct fixture *f = *state;
	/* the answer contains the SQL of all conditions */
	static const char long_query[] = QUERY
		", \"debug\": true, \"tag_filter\": \"pod != 'a' AND pod_ns != 'b' AND pod_node"
		" != 'c' AND container != 'd' AND image != 'e' AND pod_cluster != 'f'\"}";

	/* the client of this test reads no compressed answer, and says so */
	assert_int_equal(ask(f, "POST", TRACING, "Accept-Encoding: gzip, zstd", long_query), 0);
	assert_non_null(strstr(f->error, "compressed with zstd"));
	assert_int_equal(ask(f, "POST", TRACING, "Accept-Encoding: gzip", long_query), 0);
	assert_non_null(strstr(f->error, "compressed with gzip"));
	assert_int_equal(ask(f, "POST", TRACING, "Accept-Encoding: br", long_query), 200);
	assert_non_null(f->json);
	assert_int_equal(query(f, "Accept-Encoding: zstd"), 200);
	assert_non_null(f->json);
}

/* ---- the page ---- */

static struct {
	char etag[128], caching[64], vary[64], policy[512];
} page_head;

static void keep(char *to, size_t n, const struct http_headers *h, const char *name)
{
	snprintf(to, n, "%s", http_header(h, name) ?: "");
}

static void keep_head(int status, const struct http_headers *h, void *arg)
{
	(void)status;
	(void)arg;
	keep(page_head.etag, sizeof(page_head.etag), h, "ETag");
	keep(page_head.caching, sizeof(page_head.caching), h, "Cache-Control");
	keep(page_head.vary, sizeof(page_head.vary), h, "Vary");
	keep(page_head.policy, sizeof(page_head.policy), h, "Content-Security-Policy");
}

static int ask_page(struct fixture *f, const char *header)
{
	const char *const all[] = {header, NULL};
	const struct http_request r = {.method = "GET",
				       .path = "/",
				       .headers = all,
				       .on_head = keep_head,
				       .on_done = done,
				       .arg = f};
	struct http_call *call;

	memset(&page_head, 0, sizeof(page_head));
	assert_int_equal(http_send(f->client, &r, &call), 0);
	assert_int_equal(loop_run(f->loop), 0);
	return f->status;
}

static void the_page(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask_page(f, NULL), 200);
	assert_true(str_has_prefix(f->body, "<!doctype html>"));
	assert_true(str_has_suffix(f->body, "</html>\n"));
	assert_true(str_has_prefix(page_head.policy, "default-src 'none'; script-src 'sha256-"));
	/* the client of this test reads no compressed answer, and says so */
	assert_int_equal(ask_page(f, "Accept-Encoding: gzip, deflate, br, zstd"), 0);
	assert_non_null(strstr(f->error, "compressed with gzip"));
	assert_int_equal(ask_page(f, "Accept-Encoding: zstd, gzip;q=0"), 200);
	assert_true(str_has_prefix(f->body, "<!doctype html>"));
}

/* A browser asks each time, but gets the page only if it is another one. */
static void the_page_once_more(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *kept = NULL, *others = NULL;

	assert_int_equal(ask_page(f, NULL), 200);
	assert_string_equal(page_head.caching, "no-cache");
	assert_string_equal(page_head.vary, "Accept-Encoding");
	kept = xasprintf("If-None-Match: %s", page_head.etag);
	others = xasprintf("If-None-Match: \"of another hub\", %s", page_head.etag);
	assert_int_equal(ask_page(f, kept), 304);
	assert_string_equal(f->body, "");
	assert_string_equal(page_head.caching, "no-cache");
	assert_true(str_has_prefix(page_head.policy, "default-src 'none'"));
	assert_int_equal(ask_page(f, others), 304);
	assert_int_equal(ask_page(f, "If-None-Match: W/\"of another hub\""), 200);
	/* what the page shows is not kept */
	assert_int_equal(ask(f, "GET", "/v1/info", kept, NULL), 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(pages_without_sign_in),
		LOCAL(health),
		DAMAGED(health_tells_no_path),
		LOCAL(info),
		DAMAGED(info_tells_of_a_damaged_store),
		LOCAL(tracing),
		LOCAL(events),
		LOCAL(errors),
		LOCAL(choices),
		LOCAL(series_and_trees),
		LOCAL(a_preview_before_a_large_tree),
		LOCAL(after_a_preview_a_client_may_leave),
		LOCAL(files),
		IN_FILE(a_file_that_goes_bad),
		cmocka_unit_test_setup_teardown(a_hub_that_forwards, setup_forwarding,
						teardown_forwarding),
		LOCAL(metrics),
		LOCAL(debug_pages),
		LOCAL(answers_are_compressed),
		LOCAL(the_page),
		LOCAL(the_page_once_more),
		CLUSTER(pages_without_sign_in),
		CLUSTER(health),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
