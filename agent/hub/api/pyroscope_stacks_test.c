/* SPDX-License-Identifier: Apache-2.0 */
/* Pyroscope's methods whose answers are made of stacks, over HTTP: known answers and errors. */
#include "hub/api/pyroscope_stacks.h"
#include "hub/api/testapi.h"
#include "hub/pyroscope/message.h"

#define QUERIER "/querier.v1.QuerierService/"
#define STACKS	QUERIER "SelectMergeStacktraces"
#define CPU	"process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define OF(type, selector)                                                                         \
	"\"profile_typeID\":\"" type "\",\"label_selector\":\"" selector "\","                     \
	"\"start\":\"1699999000000\",\"end\":1700001000000"
#define OF_CPU	 OF(CPU, "{}")
#define OF_MEM	 OF("memory:inuse_space:bytes:space:bytes", "{}")
#define APP_ONLY OF(CPU, "{namespace=\\\"app\\\"}")
#define OF_TIER                                                                                    \
	"\"profile_typeID\":\"" CPU "\",\"label_selector\":\"{k8s_label_tier=\\\"front\\\"}\","    \
	"\"start\":1699999000000,"
#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN  "00f067aa0ba902b7"

/* ---- a store: a process each in the namespaces app and vault ---- */

static const struct frame f_main = {.kind = FRAME_APP, .name = "main", .module = "/bin/web"};
static const struct frame f_read = {.kind = FRAME_KERNEL, .name = "read"};
static const struct frame f_write = {
	.kind = FRAME_LIBRARY, .name = "write", .file = "w.c", .line = 7};

/* Adds a sample of main and another frame. */
static struct profile_sample *add_sample(struct batch *b, struct profile *p,
					 const struct frame *leaf, int64_t value)
{
	const struct frame frames[] = {f_main, *leaf};
	struct profile_sample *s = profile_add(b, p);

	s->thread_comm = profile_batch_str(b, "worker");
	s->cpu = -1;
	s->value = value;
	s->n_samples = 1;
	assert_int_equal(profile_batch_stack(b, frames, 2, &s->stack), 0);
	return s;
}

static struct profile *add_profile(struct batch *b, enum event e, const char *ns, uint32_t pid,
				   int64_t end_s)
{
	static uint8_t number;
	struct profile *p = profile_batch_profile(b);

	p->id[0] = ++number;
	p->event = e;
	p->end_ns = (uint64_t)end_s * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = pid;
	profile_tag(b, p, "pod_ns", ns);
	return p;
}

static void fill_stacks(struct store *s)
{
	static const struct profile_link link = {{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd,
						  0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c},
						 {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}};
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, EVENT_ON_CPU, "app", 7, T0);
	size_t n_new;

	add_sample(b, p, &f_read, 300);
	assert_int_equal(profile_batch_link(b, &link, &add_sample(b, p, &f_write, 40)->link), 0);
	p = add_profile(b, EVENT_ON_CPU, "app", 7, T0 + 10);
	profile_tag(b, p, "k8s.label.tier", "front");
	add_sample(b, p, &f_read, 100);
	p = add_profile(b, EVENT_ON_CPU, "vault", 8, T0);
	add_sample(b, p, &f_write, 2);
	p = add_profile(b, EVENT_MEM_INUSE, "app", 7, T0);
	add_sample(b, p, &f_write, 5000);
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

/* ---- calls ---- */

static int call(struct fixture *f, const char *path, const char *body)
{
	return ask(f, "POST", path, "Content-Type: application/json", body);
}

static void check(struct fixture *f, const char *path, const char *body, const char *want)
{
	call(f, path, body);
	if (f->status != 200 || !streq(f->body, want))
		fail_msg("%s: %d %s, not %s", body, f->status, f->body, want);
}

static void check_error(struct fixture *f, const char *path, const char *body, int status,
			const char *code, const char *message)
{
	call(f, path, body);
	if (f->status != status || !streq(json_str_at(f->json, "code", ""), code) ||
	    !strstr(json_str_at(f->json, "message", ""), message))
		fail_msg("%s: %d %s", body, f->status, f->body);
}

/* A flame graph as "names|row|row|...": "total,main|0,5,0,0|0,5,5,1". */
static char *text_of(const json_t *flame)
{
	struct buf b = {0};
	const json_t *item, *value;
	size_t i, k;

	json_array_foreach (json_object_get(flame, "names"), i, item)
		buf_printf(&b, "%s%s", i ? "," : "", json_string_value(item));
	json_array_foreach (json_object_get(flame, "levels"), i, item)
		json_array_foreach (json_object_get(item, "values"), k, value)
			buf_printf(&b, "%s%s", k ? "," : "|", json_string_value(value));
	return buf_steal(&b);
}

static void check_flame(struct fixture *f, const char *path, const char *body, const char *want)
{
	_cleanup_free_ char *text = NULL;

	call(f, path, body);
	text = text_of(json_at(f->json, "flamegraph"));
	if (f->status != 200 || !streq(text, want))
		fail_msg("%s: %d %s, not %s", body, f->status, f->body, want);
}

static void flame_graphs(void **state)
{
	struct fixture *f = *state;

	check_flame(f, STACKS, "{" OF_CPU "}",
		    "total,main,[k] read,[l] write|0,442000,0,0|0,442000,0,1|"
		    "0,400000,400000,2,0,42000,42000,3");
	assert_string_equal(json_str_at(f->json, "flamegraph.total", ""), "442000");
	assert_string_equal(json_str_at(f->json, "flamegraph.maxSelf", ""), "400000");
	check_flame(f, STACKS, "{" OF_MEM ",\"format\":\"PROFILE_FORMAT_FLAMEGRAPH\"}",
		    "total,main,[l] write|0,5000,0,0|0,5000,0,1|0,5000,5000,2");
	check_flame(f, STACKS, "{" OF_CPU ",\"max_nodes\":2}",
		    "total,main,[k] read,other|0,442000,0,0|0,442000,0,1|"
		    "0,400000,400000,2,0,42000,42000,3");
	check_flame(f, STACKS,
		    "{" OF_CPU ",\"stackTraceSelector\":{\"call_site\":[{\"name\":\"main\"},"
		    "{\"name\":\"[l] write\"}]}}",
		    "total,main,[l] write|0,42000,0,0|0,42000,0,1|0,42000,42000,2");
	check_flame(f, STACKS, "{" OF("off_cpu:off_cpu:nanoseconds::", "{}") "}", "total|0,0,0,0");
}

static void other_formats(void **state)
{
	struct fixture *f = *state;

	/* a tree as base64: the root, main, [k] read, [l] write */
	check(f, STACKS, "{" OF_CPU ",\"format\":2}",
	      "{\"tree\":\"AAABBG1haW4AAghba10gcmVhZIC1GAAJW2xdIHdyaXRlkMgCAA==\"}");
	call(f, STACKS, "{" OF_CPU ",\"format\":\"PROFILE_FORMAT_DOT\",\"maxNodes\":100}");
	assert_int_equal(f->status, 200);
	assert_non_null(strstr(json_str_at(f->json, "dot", ""),
			       "label=\"[l] write\\nself 42000 nanoseconds (9.50%)"));
	check(f, STACKS, "{" OF("off_cpu:off_cpu:nanoseconds::", "{}") ",\"format\":3}", "{}");
	check(f, STACKS, "{" OF("off_cpu:off_cpu:nanoseconds::", "{}") ",\"format\":2}", "{}");
	call(f, STACKS, "{" OF_CPU ",\"format\":4}");
	assert_int_equal(f->status, 200);
	assert_int_equal(json_array_size(json_at(f->json, "pprof.profile.sample")), 2);
}

/* The leaf's name, the value and the number of locations of a sample, as PD finds them. */
static void check_sample(const json_t *profile, size_t i, const char *leaf, const char *value,
			 size_t n)
{
	const json_t *sample = json_array_get(json_object_get(profile, "sample"), i);
	const json_t *ids = json_object_get(sample, "locationId"), *at;
	const char *id = json_string_value(json_array_get(ids, 0)), *function = "", *name = "0";
	size_t k;

	json_array_foreach (json_object_get(profile, "location"), k, at)
		if (streq(json_str_at(at, "id", ""), id))
			function = json_str_at(json_array_get(json_object_get(at, "line"), 0),
					       "functionId", "");
	json_array_foreach (json_object_get(profile, "function"), k, at)
		if (streq(json_str_at(at, "id", ""), function))
			name = json_str_at(at, "name", "");
	assert_string_equal(json_string_value(json_array_get(json_at(profile, "stringTable"),
							     strtoul(name, NULL, 10))),
			    leaf);
	assert_int_equal(json_array_size(json_object_get(sample, "value")), 1);
	assert_string_equal(json_string_value(json_array_get(json_object_get(sample, "value"), 0)),
			    value);
	assert_int_equal(json_array_size(ids), n);
}

static void a_profile_in_both_codecs(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	_cleanup_buf_ struct buf request = {0};
	struct pyroscope_writer w;

	call(f, QUERIER "SelectMergeProfile", "{" OF_CPU "}");
	assert_int_equal(f->status, 200);
	check_sample(f->json, 0, "[k] read", "400000", 2);
	check_sample(f->json, 1, "[l] write", "42000", 2);
	assert_int_equal(json_array_size(json_at(f->json, "sampleType")), 1);
	call(f, QUERIER "SelectMergeProfile",
	     "{" OF_CPU ",\"stack_trace_selector\":{\"call_site\":[{\"name\":\"main\"},{\"name\":"
	     "\"[l] write\"}]}}");
	assert_int_equal(json_array_size(json_at(f->json, "sample")), 1);
	check_sample(f->json, 0, "[l] write", "42000", 2);
	pyroscope_write(&w, &pyroscope_select_merge_profile_request, &request);
	pyroscope_put_text(&w, "profile_typeID", CPU);
	pyroscope_put_text(&w, "label_selector", "{}");
	pyroscope_put_int(&w, "start", 1699999000000);
	pyroscope_put_int(&w, "end", 1700001000000);
	assert_int_equal(ask_bytes(f, "POST", QUERIER "SelectMergeProfile",
				   "Content-Type: application/proto", request.data, request.len),
			 200);
	assert_true(str_has_prefix(f->body, "\x32")); /* the string table, whose first is "" */
}

static void calls(void **state)
{
	static const char one[] = "total,main,[l] write|0,40000,0,0|0,40000,0,1|0,40000,40000,2";
	struct fixture *f = *state;

	check_flame(f, STACKS, "{" OF_CPU ",\"span_selector\":[\"" SPAN "\"]}", one);
	check_flame(f, STACKS, "{" OF_CPU ",\"span_selector\":[\"00F067AA0BA902B7\"]}", one);
	check_flame(f, STACKS, "{" OF_CPU ",\"traceIdSelector\":[\"" TRACE "\"]}", one);
	check_flame(f, QUERIER "SelectMergeSpanProfile",
		    "{" OF_CPU ",\"spanSelector\":[\"" SPAN "\"]}", one);
	check_flame(f, QUERIER "SelectMergeSpanProfile",
		    "{" OF_CPU ",\"spanSelector\":[\"ffffffffffffffff\"]}", "total|0,0,0,0");
	check_error(f, QUERIER "SelectMergeSpanProfile", "{" OF_CPU "}", 400, "invalid_argument",
		    "span_selector");
	check_error(f, STACKS, "{" OF_CPU ",\"span_selector\":[\"12\"]}", 400, "invalid_argument",
		    "'12' is no id of 16");
	check_error(f, STACKS,
		    "{" OF_CPU ",\"span_selector\":[\"" SPAN "\"],\"trace_id_selector\":[\"" TRACE
		    "\"]}",
		    400, "invalid_argument", "one of them");
}

static void spans_of_one_call_have_a_limit(void **state)
{
	_cleanup_buf_ struct buf b = {0};

	buf_puts(&b, "{" OF_CPU ",\"span_selector\":[");
	for (int i = 0; i < 1001; i++)
		buf_printf(&b, "%s\"%016x\"", i ? "," : "", i);
	buf_puts(&b, "]}");
	check_error(*state, STACKS, b.data, 400, "invalid_argument", "more than 1000 ids");
}

static void differences(void **state)
{
	struct fixture *f = *state;

	check_flame(f, QUERIER "Diff", "{\"left\":{" APP_ONLY "},\"right\":{" OF_CPU "}}",
		    "total,main,[k] read,[l] write|0,440000,0,0,442000,0,0|"
		    "0,440000,0,0,442000,0,1|0,400000,400000,0,400000,400000,2,"
		    "0,40000,40000,0,42000,42000,3");
	assert_string_equal(json_str_at(f->json, "flamegraph.leftTicks", ""), "440000");
	assert_string_equal(json_str_at(f->json, "flamegraph.rightTicks", ""), "442000");
	assert_string_equal(json_str_at(f->json, "flamegraph.total", ""), "882000");
	check_error(f, QUERIER "Diff", "{\"left\":{" OF_CPU "},\"right\":{" OF_MEM "}}", 400,
		    "invalid_argument", "different types");
	check_error(f, QUERIER "Diff", "{\"left\":{" OF_CPU "}}", 400, "invalid_argument", "start");
	call(f, QUERIER "Diff",
	     "{\"left\":{" OF_CPU ",\"format\":5},\"right\":{" OF_CPU ",\"format\":3}}");
	assert_string_equal(json_str_at(f->json, "flamegraph.total", ""), "884000");
	check_error(f, QUERIER "Diff",
		    "{\"left\":{" OF_CPU "},\"right\":{" OF_CPU
		    ",\"stack_trace_selector\":{\"call_site\":[{\"name\":\"main\"}]}}}",
		    400, "invalid_argument", "different call sites");
}

/* What the left side's time has no pod with may be in the right side's. */
static void labels_of_pods_are_those_of_each_side(void **state)
{
	struct fixture *f = *state;

	call(f, QUERIER "Diff",
	     "{\"left\":{" OF_TIER "\"end\":1700000005000},"
	     "\"right\":{" OF_TIER "\"end\":1700000015000}}");
	assert_string_equal(json_str_at(f->json, "flamegraph.leftTicks", "0"), "0");
	assert_string_equal(json_str_at(f->json, "flamegraph.rightTicks", ""), "100000");
}

/* Once the call's time is over, no read begins, whatever time its selection was given before. */
static void stacks_are_read_in_the_time_of_the_call(void **state)
{
	const struct fixture *f = *state;
	struct call over = {.scope.all = true}; /* its time was over long ago */
	struct connect_job j = {.q = {.call = &over, .store = f->store}};
	struct selection sel = {
		.time_start_s = T0, .time_end_s = T0 + 20, .max_time_ns = 30 * NSEC_PER_SEC};
	const struct stacks_query q = {.selection = &sel, .cut.max_nodes = 10};
	struct stacks stacks;

	assert_int_equal(api_stacks_read(&j, &q, NULL, &stacks), -EINVAL);
	assert_non_null(strstr(j.q.reply, "deadline_exceeded"));
	free(j.q.reply);
}

static void what_is_not_served(void **state)
{
	static const char *const more[] = {
		",\"format\":\"PROFILE_FORMAT_FUNCTIONS\"",
		",\"format\":5",
		",\"async\":{\"request_id\":\"x\"}",
		",\"profile_id_selector\":[\"7c9e6679-7425-40de-944b-e07fc1f90ae7\"]",
		",\"stack_trace_selector\":{\"go_pgo\":{\"keep_locations\":5}}",
		",\"stack_trace_selector\":{\"frame_filter\":{\"include_names\":[\"main\"]}}",
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
		_cleanup_free_ char *body = xasprintf("{" OF_CPU "%s}", more[i]);

		check_error(f, STACKS, body, 501, "unimplemented", "this hub has no");
	}
	check_error(f, QUERIER "SelectMergeSpanProfile",
		    "{" OF_CPU ",\"span_selector\":[\"" SPAN "\"],\"format\":4}", 501,
		    "unimplemented", "format");
	check_error(f, STACKS, "{" OF_CPU ",\"max_nodes\":-1}", 400, "invalid_argument",
		    "max_nodes");
	check_error(f, STACKS, "{" OF_CPU ",\"max_nodes\":1048577}", 400, "invalid_argument",
		    "max_nodes");
	check_error(f, STACKS, "{" OF("on-cpu", "{}") "}", 400, "invalid_argument", "on-cpu");
	check_error(f, STACKS, "{" OF(CPU, "{a=") "}", 400, "invalid_argument", "selector");
}

#define RENDER "/pyroscope/render"
#define CPU_QUERY                                                                                  \
	"uery=process_cpu%3Acpu%3Ananoseconds%3Acpu%3Ananoseconds%7Bnamespace%3D~%22.%2B%22%7D"

static void rendered(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *levels = NULL;

	assert_int_equal(ask(f, "GET",
			     RENDER "?q" CPU_QUERY
				    "&from=1699999900000&until=1700000100&format=json",
			     NULL, NULL),
			 200);
	levels = json_dumps(json_at(f->json, "flamebearer.levels"), JSON_COMPACT);
	assert_string_equal(levels, "[[0,442000,0,0],[0,442000,0,1],[0,400000,400000,2,0,42000,"
				    "42000,3]]");
	assert_string_equal(json_str_at(f->json, "metadata.units", ""), "samples");
	assert_int_equal(json_int_at(f->json, "metadata.sampleRate", 0), 1000000000);
	assert_string_equal(json_str_at(f->json, "metadata.format", ""), "single");
	assert_int_equal(json_int_at(f->json, "timeline.startTime", 0), T0 - 100);
	assert_int_equal(json_int_at(f->json, "timeline.durationDelta", 0), 10);
	assert_int_equal(json_array_size(json_at(f->json, "timeline.samples")), 21);
	assert_int_equal(
		json_integer_value(json_array_get(json_at(f->json, "timeline.samples"), 9)),
		342000);
	assert_int_equal(
		json_integer_value(json_array_get(json_at(f->json, "timeline.samples"), 10)),
		100000);
	assert_int_equal(ask(f, "GET",
			     RENDER "?q" CPU_QUERY "&from=1699999900&until=1700000100"
				    "&format=dot&max-nodes=1",
			     NULL, NULL),
			 200);
	assert_non_null(strstr(f->body, "the 1 greatest of 3 functions"));
	assert_int_equal(
		ask(f, "GET", RENDER "?query=off_cpu:off_cpu:nanoseconds::&format=dot", NULL, NULL),
		200);
	assert_string_equal(f->body, "");
}

static void rendered_differences(void **state)
{
	static const char path[] =
		RENDER "-diff?leftQ" CPU_QUERY "&leftFrom=1699999900&leftUntil=1700000000"
		       "&rightQ" CPU_QUERY "&rightFrom=1700000000&rightUntil=1700000100";
	struct fixture *f = *state;
	_cleanup_free_ char *levels = NULL;

	assert_int_equal(ask(f, "GET", path, NULL, NULL), 200);
	levels = json_dumps(json_at(f->json, "flamebearer.levels"), JSON_COMPACT);
	assert_string_equal(levels, "[[0,342000,0,0,100000,0,0],[0,342000,0,0,100000,0,1],"
				    "[0,300000,300000,0,100000,100000,2,0,42000,42000,0,0,0,3]]");
	assert_string_equal(json_str_at(f->json, "metadata.format", ""), "double");
	assert_int_equal(json_int_at(f->json, "leftTicks", 0), 342000);
	assert_int_equal(json_int_at(f->json, "rightTicks", 0), 100000);
}

static void check_render_error(struct fixture *f, const char *path, int status, const char *code,
			       const char *message)
{
	assert_int_equal(ask(f, "GET", path, NULL, NULL), status);
	assert_string_equal(json_str_at(f->json, "code", ""), code);
	if (!strstr(json_str_at(f->json, "message", ""), message))
		fail_msg("%s: %s", path, f->body);
}

static void errors_of_render(void **state)
{
	struct fixture *f = *state;

	check_render_error(f, RENDER, 400, "invalid_argument", "query");
	check_render_error(f, RENDER "?q" CPU_QUERY "&from=x", 400, "invalid_argument",
			   "x is no time");
	check_render_error(f, RENDER "?q" CPU_QUERY "&from=5&until=4", 400, "invalid_argument",
			   "start is after end");
	check_render_error(f, RENDER "?q" CPU_QUERY "&format=svg", 501, "unimplemented", "format");
	check_render_error(f, RENDER "?q" CPU_QUERY "&groupBy=pod", 501, "unimplemented",
			   "groupBy");
	check_render_error(f, RENDER "?query=cpu", 400, "invalid_argument", "type");
	check_render_error(f, RENDER "-diff?leftQ" CPU_QUERY, 400, "invalid_argument",
			   "rightQuery");
	check_render_error(f, RENDER "-diff?leftQ" CPU_QUERY "&rightQ" CPU_QUERY "&format=dot", 501,
			   "unimplemented", "format");
	check_error(f, RENDER, "{}", 405, "unimplemented", "");
}

static void a_tenant_gets_stacks_of_its_namespace(void **state)
{
	static const char *const headers[] = {"Content-Type: application/json", BEARER "tenant",
					      NULL};
	static const char *const paths[] = {STACKS, QUERIER "SelectMergeProfile"};
	struct fixture *f = *state;

	ask_headers(f, "POST", STACKS, headers, "{" OF_CPU "}", strlen("{" OF_CPU "}"));
	assert_string_equal(json_str_at(f->json, "flamegraph.total", ""), "440000");
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		static const char body[] = "{" OF(CPU, "{namespace=\\\"vault\\\"}") "}";

		assert_int_equal(ask_headers(f, "POST", paths[i], headers, body, strlen(body)),
				 200);
		assert_null(strstr(f->body, "write"));
	}
	assert_int_equal(ask(f, "GET", RENDER "?q" CPU_QUERY "&from=1699999900&until=1700000100",
			     BEARER "tenant", NULL),
			 200);
	assert_int_equal(json_int_at(f->json, "flamebearer.numTicks", 0), 440000);
	assert_int_equal(ask(f, "GET", RENDER "?q" CPU_QUERY, NULL, NULL), 401);
}

static void what_has_no_room_is_an_error(void **state)
{
	struct fixture *f = *state;

	check_error(f, STACKS, "{" OF_CPU "}", 429, "resource_exhausted", "memory");
	check_error(f, QUERIER "SelectMergeProfile", "{" OF_CPU "}", 429, "resource_exhausted",
		    "memory");
}

static int setup_small(void **state)
{
	with_reply_bytes = 4096;
	return setup_local(state);
}

static int fill_ours(void **state)
{
	(void)state;
	fill_store = fill_stacks;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(flame_graphs),
		LOCAL(other_formats),
		LOCAL(a_profile_in_both_codecs),
		LOCAL(calls),
		LOCAL(spans_of_one_call_have_a_limit),
		LOCAL(differences),
		LOCAL(stacks_are_read_in_the_time_of_the_call),
		LOCAL(labels_of_pods_are_those_of_each_side),
		LOCAL(what_is_not_served),
		LOCAL(rendered),
		LOCAL(rendered_differences),
		LOCAL(errors_of_render),
		CLUSTER(a_tenant_gets_stacks_of_its_namespace),
		cmocka_unit_test_setup_teardown(what_has_no_room_is_an_error, setup_small,
						teardown),
	};

	return cmocka_run_group_tests(tests, fill_ours, NULL);
}
