/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's API with known answers. e2e/grafana has the same with the client that Grafana uses.
 */
#include "hub/api/connect.h"
#include "hub/api/testapi.h"
#include "hub/api/testknown.h"

#define QUERIER "/querier.v1.QuerierService/"
#define CPU	"process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define LIVE	"memory:inuse_space:bytes:space:bytes"

static void fill_known(struct store *s)
{
	assert_int_equal(known_write(s, T0), 0);
}

/* ---- calls ---- */

#define TIMES "\"start\":\"1699999990000\",\"end\":\"1700000020000\""

static int call_as(struct fixture *f, const char *token, const char *method, const char *body)
{
	_cleanup_free_ char *path = xasprintf(QUERIER "%s", method);
	const char *const headers[] = {"Content-Type: application/json", token, NULL};

	return ask_headers(f, "POST", path, headers, body, strlen(body));
}

static void answers_as(struct fixture *f, const char *token, const char *method, const char *body,
		       const char *expected)
{
	call_as(f, token, method, body);
	if (f->status != 200 || !streq(f->body, expected))
		fail_msg("%s %s:\n%d %s\nnot\n%s", method, body, f->status, f->body, expected);
}

static void answers(struct fixture *f, const char *method, const char *body, const char *expected)
{
	answers_as(f, NULL, method, body, expected);
}

static void refuses(struct fixture *f, const char *method, const char *body, int status,
		    const char *text)
{
	call_as(f, NULL, method, body);
	if (f->status != status || !strstr(f->body, text))
		fail_msg("%s %s: %d %s", method, body, f->status, f->body);
}

/* ---- which there are ---- */

static void types(void **state)
{
	call_as(*state, NULL, "ProfileTypes", "{" TIMES "}");
	for (enum event e = 0; e < _EVENT_MAX; e++) {
		static const char *const ids[_EVENT_MAX] = {[EVENT_ON_CPU] = "\"" CPU "\"",
							    [EVENT_OFF_CPU] = "\"off_cpu:off_cpu:"
									      "nanoseconds::\"",
							    [EVENT_MEM_INUSE] = "\"" LIVE "\""};

		if (ids[e])
			assert_non_null(strstr(((struct fixture *)*state)->body, ids[e]));
	}
	/* without times, the last hour */
	answers(*state, "ProfileTypes", "{}", "{}");
	answers(*state, "ProfileTypes", "{\"start\":1000,\"end\":4000}", "{}");
	refuses(*state, "ProfileTypes", "{\"start\":4000,\"end\":1000}", 400, "invalid_argument");
}

#define PRIVATE                                                                                    \
	"\"__name__\",\"__period_type__\",\"__period_unit__\",\"__profile_type__\","               \
	"\"__type__\",\"__unit__\""

static void names(void **state)
{
	static const char *const any_names[] = {
		"Content-Type: application/json",
		"Accept: application/json; allow-utf8-labelnames=true", NULL};

	answers(*state, "LabelNames", "{" TIMES "}",
		"{\"names\":[" PRIVATE ",\"cluster\",\"k8s_label_app_kubernetes_io_name\","
		"\"namespace\",\"node\",\"pod\",\"process\",\"service_name\",\"thread\"]}");
	answers(*state, "LabelNames",
		"{" TIMES ",\"matchers\":[\"{__profile_type__=\\\"" CPU
		"\\\",service_name=\\\"sshd\\\"}\"]}",
		"{\"names\":[" PRIVATE ",\"cluster\",\"node\",\"process\",\"service_name\","
		"\"thread\"]}");
	ask_headers(*state, "POST", QUERIER "LabelNames", any_names, "{" TIMES "}",
		    strlen("{" TIMES "}"));
	assert_non_null(
		strstr(((struct fixture *)*state)->body, "\"k8s.label.app.kubernetes.io/name\""));
	answers(*state, "LabelNames", "{" TIMES ",\"matchers\":[\"{pod=\\\"none\\\"}\"]}", "{}");
	refuses(*state, "LabelNames", "{}", 400, "invalid_argument");
	refuses(*state, "LabelNames", "{\"start\":5000,\"end\":1000}", 400, "start is after end");
	refuses(*state, "LabelNames", "{" TIMES ",\"matchers\":[\"{pod\"]}", 400, "position 5");
}

static void values(void **state)
{
	static const struct {
		const char *name, *matchers, *expected;
	} of[] = {
		{"service_name", "", "{\"names\":[\"keys\",\"sshd\",\"web\"]}"},
		{"namespace", "", "{\"names\":[\"app\",\"vault\"]}"},
		{"namespace", "\"" CPU "{}\"", "{\"names\":[\"app\",\"vault\"]}"},
		{"namespace", "\"" LIVE "{}\"", "{\"names\":[\"app\"]}"},
		{"pod", "\"{namespace=\\\"app\\\"}\"", "{\"names\":[\"web-1\",\"web-2\"]}"},
		{"pod", "\"{namespace!=\\\"app\\\"}\"", "{\"names\":[\"keys-1\"]}"},
		{"pod", "\"{pod=~\\\"web-.\\\"}\",\"{node=\\\"n2\\\"}\"",
		 "{\"names\":[\"web-2\"]}"},
		{"process", "\"{namespace=\\\"\\\"}\"", "{\"names\":[\"sshd\"]}"},
		{"k8s_label_app_kubernetes_io_name", "", "{\"names\":[\"keys\",\"web\"]}"},
		{"k8s.label.app.kubernetes.io/name",
		 "\"{k8s_label_app_kubernetes_io_name=\\\"web\\\"}\"", "{\"names\":[\"web\"]}"},
		{"__profile_type__", "\"{__unit__=\\\"bytes\\\"}\"", "{\"names\":[\"" LIVE "\"]}"},
		{"__type__", "\"{pod=\\\"keys-1\\\"}\"", "{\"names\":[\"cpu\"]}"},
		{"__session_id__", "", "{}"},
		{"nothing", "", "{}"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
		_cleanup_free_ char *body =
			xasprintf("{" TIMES ",\"name\":\"%s\",\"matchers\":[%s]}", of[i].name,
				  of[i].matchers);

		answers(*state, "LabelValues", body, of[i].expected);
	}
	refuses(*state, "LabelValues", "{" TIMES "}", 400, "name: expected");
}

#define SET(...)   "{\"labels\":[" __VA_ARGS__ "]}"
#define PAIR(n, v) "{\"name\":\"" n "\",\"value\":\"" v "\"}"
#define OFF_CPU	   "off_cpu:off_cpu:nanoseconds::"
#define TYPE(t)	   PAIR("__profile_type__", t)
#define SERVICE(s) PAIR("service_name", s)

#define OF_TYPE(type, service)	      SET(TYPE(type) "," SERVICE(service))
#define WHERE(namespace, name, value) SET(PAIR("namespace", namespace) "," PAIR(name, value))
#define SETS(...)		      "{\"labelsSet\":[" __VA_ARGS__ "]}"

static void series(void **state)
{
	static const char all_of_keys[] = PAIR("__unit__", "nanoseconds") "," PAIR(
		"namespace", "vault") "," SERVICE("keys") "]}]}";

	/* the first call of Profiles Drilldown */
	answers(*state, "Series",
		"{" TIMES ",\"matchers\":[],\"labelNames\":[\"service_name\","
		"\"__profile_type__\"]}",
		SETS(OF_TYPE(LIVE, "web") "," OF_TYPE(OFF_CPU, "web") "," OF_TYPE(
			CPU, "keys") "," OF_TYPE(CPU, "sshd") "," OF_TYPE(CPU, "web")));
	/* the same set of several types is one */
	answers(*state, "Series",
		"{" TIMES ",\"matchers\":[\"{pod=~\\\"web.+\\\"}\"],\"label_names\":[\"pod\","
		"\"namespace\",\"pod\",\"nothing\"]}",
		SETS(WHERE("app", "pod", "web-1") "," WHERE("app", "pod", "web-2")));
	/* a set lacks what its profiles lack */
	answers(*state, "Series", "{" TIMES ",\"labelNames\":[\"namespace\",\"node\"]}",
		SETS(SET(PAIR("node", "n1")) "," WHERE("app", "node", "n1") "," WHERE(
			"app", "node", "n2") "," WHERE("vault", "node", "n1")));
	call_as(*state, NULL, "Series", "{" TIMES ",\"matchers\":[\"{pod=\\\"keys-1\\\"}\"]}");
	assert_non_null(strstr(((struct fixture *)*state)->body, all_of_keys));
}

/* ---- values over time ---- */

/* a profile that ends at the start is in the first point, but not in the time of TIMES */
#define STEPS	    "\"start\":\"1700000000000\",\"end\":\"1700000020000\""
#define POINT(v, s) "{\"value\":" v ",\"timestamp\":\"17000000" s "000\"}"
#define POINTS(...) "\"points\":[" __VA_ARGS__ "]"
#define LABELS(...) "\"labels\":[" __VA_ARGS__ "],"
#define OF(type)    "\"profileTypeID\":\"" type "\",\"labelSelector\":\"{}\"," STEPS
#define SERIES(...) "{\"series\":[" __VA_ARGS__ "]}"

static void over_time(void **state)
{
	static const struct {
		const char *body, *expected;
	} of[] = {
		{"{" OF(CPU) ",\"step\":10}",
		 SERIES("{" POINTS(POINT("1079000", "00") "," POINT("2500000", "10") "," POINT(
			 "3000000", "20")) "}")},
		/* a point has what came in the step before it */
		{"{\"profileTypeID\":\"" CPU "\",\"start\":1700000005000,\"end\":1700000034999,"
		 "\"step\":15}",
		 SERIES("{" POINTS(POINT("1079000", "05") "," POINT("5500000", "20")) "}")},
		/* a step without data has no point; the last value of what lives */
		{"{" OF(OFF_CPU) ",\"step\":10}", SERIES("{" POINTS(POINT("40000", "10")) "}")},
		{"{" OF(LIVE) ",\"step\":10}", SERIES("{" POINTS(POINT("500", "00") "," POINT(
						       "700", "10") "," POINT("700", "20")) "}")},
		{"{" OF(LIVE) ",\"step\":20,\"aggregation\":1}",
		 SERIES("{" POINTS(POINT("500", "00") "," POINT("700", "20")) "}")},
		{"{" OF(CPU) ",\"step\":20,\"groupBy\":[\"service_name\"]}",
		 SERIES("{" LABELS(SERVICE("keys")) POINTS(POINT("70000", "00")) "},{" LABELS(
			 SERVICE("sshd")) POINTS(POINT("9000", "00")) "},{" LABELS(SERVICE("web"))
				POINTS(POINT("1000000", "00") "," POINT("5500000", "20")) "}")},
		/* what lacks the label is a series without it */
		{"{" OF(CPU) ",\"step\":20,\"groupBy\":[\"namespace\"],\"limit\":2}",
		 SERIES("{" LABELS(PAIR("namespace", "app"))
				POINTS(POINT("1000000", "00") "," POINT(
					"5500000", "20")) "},{" LABELS(PAIR("namespace", "vault"))
					POINTS(POINT("70000", "00")) "}")},
		{"{" OF(CPU) ",\"step\":30,\"groupBy\":[\"pod\",\"namespace\",\"pod\"]}",
		 SERIES("{" POINTS(POINT("9000", "00")) "},{" LABELS(
			 PAIR("namespace", "app") "," PAIR("pod", "web-1"))
				POINTS(POINT("1000000", "00")) "},{" LABELS(
					PAIR("namespace", "vault") "," PAIR("pod", "keys-1"))
					POINTS(POINT("70000", "00")) "}")},
		{"{" OF(CPU) ",\"step\":30,\"groupBy\":[\"__type__\",\"none\"]}",
		 SERIES("{" LABELS(PAIR("__type__", "cpu")) POINTS(POINT("1079000", "00")) "}")},
		{"{\"profileTypeID\":\"" CPU "\",\"labelSelector\":"
		 "\"{k8s_label_app_kubernetes_io_name=\\\"keys\\\"}\"," STEPS ",\"step\":30}",
		 SERIES("{" POINTS(POINT("70000", "00")) "}")},
		{"{" OF("a:b:c:d:e") ",\"step\":10}", "{}"},
		{"{\"profileTypeID\":\"" CPU "\",\"labelSelector\":\"" OFF_CPU "{}\"," STEPS
		 ",\"step\":10}",
		 "{}"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(of); i++)
		answers(*state, "SelectSeries", of[i].body, of[i].expected);
}

static void over_time_refused(void **state)
{
	static const struct {
		const char *body;
		int status;
		const char *text;
	} of[] = {
		{"{\"profileTypeID\":\"" CPU "\",\"step\":10}", 400, "invalid_argument"},
		{"{\"profileTypeID\":\"" CPU "\",\"step\":10,\"start\":2,\"end\":1}", 400,
		 "start is after end"},
		{"{\"profileTypeID\":\"" CPU "\",\"step\":10,\"start\":1000,\"end\":2000}", 400,
		 "less than a step after 1970"},
		{"{\"profileTypeID\":\"" CPU "\",\"step\":10,\"start\":1,"
		 "\"end\":9223372036854775807}",
		 400, "expected Unix milliseconds"},
		{"{" OF("cpu") ",\"step\":10}", 400, "no type of profiles"},
		{"{" OF(CPU) "}", 400, "step: expected seconds"},
		{"{" OF(CPU) ",\"step\":0.5}", 400, "whole seconds"},
		{"{\"profileTypeID\":\"" CPU "\",\"step\":1,\"start\":1700000000000,"
		 "\"end\":1700002000000}",
		 400, "more than 2000 points"},
		{"{" OF(CPU) ",\"step\":10,\"limit\":-1}", 400, "limit"},
		{"{" OF(CPU) ",\"step\":10,\"aggregation\":\"TIME_SERIES_AGGREGATION_TYPE_AVERAGE\""
			     "}",
		 501, "unimplemented"},
		{"{" OF(CPU) ",\"step\":10,\"groupBy\":[\"trace_id\"]}", 501, "unimplemented"},
		{"{" OF(CPU) ",\"step\":10,\"stackTraceSelector\":{\"callSite\":[{\"name\":"
			     "\"main\"}]}}",
		 501, "unimplemented"},
		{"{" OF(CPU) ",\"step\":10,\"stackTraceSelector\":{\"frameFilter\":"
			     "{\"excludeNames\":[\"main\"]}}}",
		 501, "stack_trace_selector"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(of); i++)
		refuses(*state, "SelectSeries", of[i].body, of[i].status, of[i].text);
}

/* ---- one namespace ---- */

static void stats(void **state)
{
	answers(*state, "GetProfileStats", "{}",
		"{\"dataIngested\":true,\"oldestProfileTime\":\"1699999990000\","
		"\"newestProfileTime\":\"1700000019000\"}");
	answers(*state, "AnalyzeQuery", "{" STEPS ",\"query\":\"{}\"}", "{}");
}

static void a_tenant_sees_its_namespace(void **state)
{
	static const char tenant[] = BEARER "tenant";

	answers_as(*state, tenant, "LabelValues", "{" TIMES ",\"name\":\"service_name\"}",
		   "{\"names\":[\"web\"]}");
	answers_as(*state, tenant, "LabelValues",
		   "{" TIMES ",\"name\":\"pod\",\"matchers\":[\"{namespace=\\\"vault\\\"}\"]}",
		   "{}");
	answers_as(*state, tenant, "SelectSeries", "{" OF(CPU) ",\"step\":30}",
		   SERIES("{" POINTS(POINT("1000000", "00")) "}"));
	answers_as(*state, BEARER "owner", "ProfileTypes", "{" TIMES "}", "{}");
	answers_as(*state, BEARER "owner", "GetProfileStats", "{}", "{}");
	answers_as(*state, tenant, "GetProfileStats", "{}",
		   "{\"dataIngested\":true,\"oldestProfileTime\":\"1699999990000\","
		   "\"newestProfileTime\":\"1700000019000\"}");
}

/* ---- more than an answer has room for ---- */

#define MANY (PYROSCOPE_MAX_VALUES + 1)

/* Two pods with so many threads each. */
static void fill_many(struct store *s)
{
	struct frame frame = {.kind = FRAME_APP, .name = "main"};
	struct batch *b = profile_batch_new();
	size_t n_new;

	for (uint8_t i = 1; i <= 2; i++) {
		struct profile *p = profile_batch_profile(b);
		char name[16];

		p->id[0] = i;
		p->end_ns = (T0 + 10) * NSEC_PER_SEC;
		p->start_ns = T0 * NSEC_PER_SEC;
		p->app_service = profile_batch_str(b, "java");
		p->process_id = i;
		profile_tag(b, p, "pod", i == 1 ? "a" : "b");
		for (unsigned k = 0; k < MANY; k++) {
			struct profile_sample *sample = profile_add(b, p);

			snprintf(name, sizeof(name), "t%05u", k);
			sample->thread_comm = profile_batch_str(b, name);
			sample->cpu = -1;
			sample->value = 1;
			sample->n_samples = 1;
			assert_int_equal(profile_batch_stack(b, &frame, 1, &sample->stack), 0);
		}
	}
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

static int setup_many(void **state)
{
	fill_store = fill_many;
	return setup_local(state);
}

static void too_many_values(void **state)
{
	refuses(*state, "LabelValues", "{" TIMES ",\"name\":\"thread\"}", 429,
		"more than 10000 values");
	call_as(*state, NULL, "LabelValues",
		"{" TIMES ",\"name\":\"thread\",\"matchers\":[\"{thread!=\\\"t00000\\\"}\"]}");
	assert_int_equal(((struct fixture *)*state)->status, 200);
	assert_int_equal(
		json_array_size(json_object_get(((struct fixture *)*state)->json, "names")),
		PYROSCOPE_MAX_VALUES);
}

static void too_many_sets(void **state)
{
	refuses(*state, "Series",
		"{" TIMES ",\"labelNames\":[\"pod\",\"thread\"],"
		"\"matchers\":[\"{thread!=\\\"t00000\\\"}\"]}",
		429, "more than 10000 sets");
}

/* So many processes. */
static void fill_processes(struct store *s)
{
	struct frame frame = {.kind = FRAME_APP, .name = "main"};
	struct batch *b = profile_batch_new();
	size_t n_new;

	for (unsigned i = 0; i < 210; i++) {
		struct profile *p = profile_batch_profile(b);
		_cleanup_free_ char *name = xasprintf("p%u", i);
		struct profile_sample *sample;

		memcpy(p->id, &i, sizeof(i));
		p->end_ns = (T0 + 10) * NSEC_PER_SEC;
		p->start_ns = T0 * NSEC_PER_SEC;
		p->app_service = profile_batch_str(b, name);
		profile_tag(b, p, "pod", name);
		if (!i)
			profile_tag(b, p, "label.cloud.region", "eu");
		sample = profile_add(b, p);
		sample->cpu = -1;
		sample->value = 1;
		sample->n_samples = 1;
		sample->wait = WAIT_LOCK; /* which no agent says of this event */
		assert_int_equal(profile_batch_stack(b, &frame, 1, &sample->stack), 0);
	}
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

static int setup_processes(void **state)
{
	fill_store = fill_processes;
	return setup_local(state);
}

static void too_many_combinations(void **state)
{
	/* each process would be asked for its waits */
	refuses(*state, "Series", "{" TIMES ",\"labelNames\":[\"process\",\"wait\"]}", 429,
		"too many combinations");
	refuses(*state, "SelectSeries",
		"{" OF(CPU) ",\"step\":10,\"groupBy\":[\"process\",\"wait\"]}", 429,
		"too many combinations");
	/* without labels, pods are not told apart */
	call_as(*state, NULL, "Series", "{" TIMES "}");
	assert_int_equal(((struct fixture *)*state)->status, 200);
	/* the store tells these apart at once */
	call_as(*state, NULL, "SelectSeries",
		"{" OF(CPU) ",\"step\":10,\"groupBy\":[\"__type__\",\"process\"]}");
	assert_int_equal(((struct fixture *)*state)->status, 200);
}

static void tags_of_other_events_are_not_read(void **state)
{
	answers(*state, "LabelNames", "{" TIMES "}",
		"{\"names\":[" PRIVATE
		",\"label_cloud_region\",\"pod\",\"process\",\"service_name\"]}");
}

static void labels_of_pushed_profiles(void **state)
{
	answers(*state, "LabelValues", "{" TIMES ",\"name\":\"label_cloud_region\"}",
		"{\"names\":[\"eu\"]}");
	answers(*state, "LabelValues",
		"{" TIMES ",\"name\":\"pod\",\"matchers\":[\"{label_cloud_region=\\\"eu\\\"}\"]}",
		"{\"names\":[\"p0\"]}");
	answers(*state, "LabelValues",
		"{" TIMES ",\"name\":\"pod\",\"matchers\":"
		"[\"{\\\"label.cloud.region\\\"=\\\"eu\\\"}\"]}",
		"{\"names\":[\"p0\"]}");
}

static int no_combination(const char *const *values, const struct selection *sel, void *arg)
{
	(void)values, (void)sel, (void)arg;
	fail_msg("the time is over");
	return 0;
}

static void is_over(struct connect_job *j, int r)
{
	assert_int_equal(r, -EINVAL);
	assert_non_null(strstr(j->q.reply, "deadline_exceeded"));
	free(TAKE_PTR(j->q.reply));
}

/* Once the call's time is over, no read begins, whatever time its selection was given before. */
static void reads_share_the_time_of_a_call(void **state)
{
	const struct fixture *f = *state;
	struct call over = {.scope.all = true}; /* its time was over long ago */
	struct connect_job j = {.q = {.call = &over, .store = f->store}};
	const struct selection sel = {
		.time_start_s = T0, .time_end_s = T0 + 20, .max_time_ns = 30 * NSEC_PER_SEC};
	const struct pyroscope_label label = {.name = "pod", .tags = {"pod"}};
	struct query_names names = {0};
	bool has;

	is_over(&j, api_pyroscope_values(&j, &sel, &label, &names));
	is_over(&j, api_pyroscope_has_values(&j, &sel, &label, 1, &has));
	is_over(&j, api_pyroscope_combinations(&j, &sel, &label, 1, no_combination, NULL));
	is_over(&j, api_pyroscope_combinations(&j, &sel, NULL, 0, no_combination, NULL));
	assert_int_equal(names.n, 0);
}

static void too_many_labels(void **state)
{
	_cleanup_buf_ struct buf list = {0};
	_cleanup_free_ char *sets = NULL, *series = NULL;

	for (unsigned i = 0; i <= PYROSCOPE_MAX_LABELS; i++)
		buf_printf(&list, "%s\"l%u\"", i ? "," : "", i);
	sets = xasprintf("{" TIMES ",\"labelNames\":[%s]}", list.data);
	series = xasprintf("{" OF(CPU) ",\"step\":10,\"groupBy\":[%s]}", list.data);
	refuses(*state, "Series", sets, 400, "more than 32 labels");
	refuses(*state, "SelectSeries", series, 400, "more than 32 labels");
}

static void too_many_series(void **state)
{
	refuses(*state, "SelectSeries", "{" OF(CPU) ",\"step\":10,\"groupBy\":[\"thread\"]}", 429,
		"more series than the hub can tell apart");
	/* 600 of each pod */
	refuses(*state, "SelectSeries",
		"{\"profileTypeID\":\"" CPU
		"\",\"labelSelector\":\"{thread=~\\\"t00[0-5]..\\\"}\"," STEPS
		",\"step\":10,\"groupBy\":[\"pod\",\"thread\"]}",
		429, "more than 1000 series");
}

#define MANY_OF(t)   cmocka_unit_test_setup_teardown(t, setup_many, teardown)
#define PROCESSES(t) cmocka_unit_test_setup_teardown(t, setup_processes, teardown)
#define KNOWN(t)     cmocka_unit_test_setup_teardown(t, setup_local, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		KNOWN(types),
		KNOWN(names),
		KNOWN(values),
		KNOWN(series),
		KNOWN(over_time),
		KNOWN(over_time_refused),
		KNOWN(stats),
		KNOWN(too_many_labels),
		KNOWN(reads_share_the_time_of_a_call),
		CLUSTER(a_tenant_sees_its_namespace),
		MANY_OF(too_many_values),
		MANY_OF(too_many_sets),
		PROCESSES(too_many_combinations),
		PROCESSES(tags_of_other_events_are_not_read),
		PROCESSES(labels_of_pushed_profiles),
		MANY_OF(too_many_series),
	};

	fill_store = fill_known;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
