/* SPDX-License-Identifier: Apache-2.0 */
/* SelectSeries over HTTP: which series an answer has, if there are many, or some of one name. */
#include "hub/api/testapi.h"

#define SELECT_SERIES "/querier.v1.QuerierService/SelectSeries"
#define OF_CPU                                                                                     \
	"{\"profileTypeID\":\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\",\"labelSelector\":"    \
	"\"{}\",\"start\":1700000000000,\"end\":1700000000000,\"step\":10"

/* group: NULL: the process is of no workload */
static void add_process(struct batch *b, const char *group, const char *process, int64_t value)
{
	struct frame frame = {.kind = FRAME_APP, .name = "main"};
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *sample;
	const uint32_t number = (uint32_t)b->n_profiles;

	memcpy(p->id, &number, sizeof(number));
	p->end_ns = T0 * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, process);
	if (group)
		profile_tag(b, p, "pod_group", group);
	sample = profile_add(b, p);
	sample->thread_comm = profile_batch_str(b, process);
	sample->cpu = -1;
	sample->value = value;
	sample->n_samples = 1;
	assert_int_equal(profile_batch_stack(b, &frame, 1, &sample->stack), 0);
}

static void write_batch(struct store *s, struct batch *b)
{
	size_t n_new;

	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

/* Asks for CPU time by these labels, at most so many series; 0: all. */
static int ask_series(struct fixture *f, const char *groups, int limit)
{
	_cleanup_free_ char *body =
		xasprintf(OF_CPU ",\"limit\":%d,\"groupBy\":[%s]}", limit, groups);

	return ask(f, "POST", SELECT_SERIES, "Content-Type: application/json", body);
}

/* ---- of one name ---- */

static void fill_namesakes(struct store *s)
{
	struct batch *b = profile_batch_new();

	add_process(b, "redis", "redis-server", 50);
	add_process(b, NULL, "redis", 70);
	add_process(b, NULL, "sshd", 100);
	write_batch(s, b);
}

#define SERVICE(name, value)                                                                       \
	"{\"labels\":[{\"name\":\"service_name\",\"value\":\"" name "\"}],\"points\":[{"           \
	"\"value\":" value ",\"timestamp\":\"1700000000000\"}]}"

/* A workload, and a process that is named as it. Each alone has less than sshd. */
static void namesakes_are_one_series(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask_series(f, "\"service_name\"", 0), 200);
	assert_string_equal(f->body, "{\"series\":[" SERVICE("redis", "120000") "," SERVICE(
					     "sshd", "100000") "]}");
	assert_int_equal(ask_series(f, "\"service_name\"", 1), 200);
	assert_string_equal(f->body, "{\"series\":[" SERVICE("redis", "120000") "]}");
}

/* ---- many ---- */

#define MANY (QUERY_MAX_GROUPS + 1)

/* So many names of processes, the last one with the greatest value, in workloads and outside. */
static void fill_many(struct store *s)
{
	struct batch *b = profile_batch_new();

	for (int i = 1; i <= MANY; i++) {
		_cleanup_free_ char *name = xasprintf("p%d", i);

		add_process(b, i % 2 ? "odd" : "even", name, i);
		add_process(b, NULL, name, i);
	}
	write_batch(s, b);
}

static void a_limit_has_the_greatest_series(void **state)
{
	static const struct {
		const char *groups, *greatest;
	} of[] = {{"\"process\"", "\"value\":\"p1001\""},
		  {"\"pod\",\"process\"", "\"value\":\"p1001\""},
		  {"\"service_name\"", "\"value\":\"odd\""}};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
		assert_int_equal(ask_series(f, of[i].groups, 1), 200);
		assert_int_equal(json_array_size(json_object_get(f->json, "series")), 1);
		assert_non_null(strstr(f->body, of[i].greatest));
	}
	assert_int_equal(ask_series(f, "\"process\"", QUERY_MAX_GROUPS), 200);
	assert_int_equal(json_array_size(json_object_get(f->json, "series")), QUERY_MAX_GROUPS);
	/* these want more than an answer has */
	assert_int_equal(ask_series(f, "\"process\"", MANY), 429);
	assert_int_equal(ask_series(f, "\"service_name\"", 0), 429);
}

/* ---- of many namespaces ---- */

#define NAMESPACES 250
#define WORKLOADS  4 /* of each namespace */

static void fill_namespaces(struct store *s)
{
	struct batch *b = profile_batch_new();

	for (int i = 0; i < NAMESPACES * WORKLOADS; i++) {
		_cleanup_free_ char *group = xasprintf("w%d", i);
		_cleanup_free_ char *ns = xasprintf("n%d", i / WORKLOADS);

		add_process(b, group, "java", i + 1);
		profile_tag(b, b->profiles[i], "pod_ns", ns);
	}
	write_batch(s, b);
}

/* All are told apart by one read of the store, however many there are of each label. */
static void workloads_of_many_namespaces(void **state)
{
	static const char sets[] = "{\"start\":1699999990000,\"end\":1700000000000,"
				   "\"labelNames\":[\"namespace\",\"service_name\"]}";
	struct fixture *f = *state;
	const json_t *list, *x;
	int64_t sum = 0;
	size_t i;

	assert_int_equal(ask_series(f, "\"namespace\",\"service_name\"", 0), 200);
	list = json_object_get(f->json, "series");
	assert_int_equal(json_array_size(list), NAMESPACES * WORKLOADS);
	json_array_foreach ((json_t *)list, i, x)
		sum += (int64_t)json_number_value(
			json_object_get(json_array_get(json_object_get(x, "points"), 0), "value"));
	assert_int_equal(sum, 1000 * (int64_t)(NAMESPACES * WORKLOADS) *
				      (NAMESPACES * WORKLOADS + 1) / 2);
	assert_int_equal(ask_series(f, "\"namespace\",\"service_name\"", 1), 200);
	assert_non_null(strstr(f->body, "{\"name\":\"namespace\",\"value\":\"n249\"},{\"name\":"
					"\"service_name\",\"value\":\"w999\"}"));
	assert_int_equal(ask(f, "POST", "/querier.v1.QuerierService/Series",
			     "Content-Type: application/json", sets),
			 200);
	assert_int_equal(json_array_size(json_object_get(f->json, "labelsSet")),
			 NAMESPACES * WORKLOADS);
}

static int setup_namespaces(void **state)
{
	fill_store = fill_namespaces;
	return setup_local(state);
}

static int setup_namesakes(void **state)
{
	fill_store = fill_namesakes;
	return setup_local(state);
}

static int setup_many(void **state)
{
	fill_store = fill_many;
	return setup_local(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(namesakes_are_one_series, setup_namesakes,
						teardown),
		cmocka_unit_test_setup_teardown(workloads_of_many_namespaces, setup_namespaces,
						teardown),
		cmocka_unit_test_setup_teardown(a_limit_has_the_greatest_series, setup_many,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
