/* SPDX-License-Identifier: Apache-2.0 */
/* SelectHeatmap over HTTP: known answers and errors. */
#include "hub/api/testapi.h"

#define HEATMAP		"/querier.v1.QuerierService/SelectHeatmap"
#define CPU		"process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define LIVE		"memory:inuse_space:bytes:space:bytes"
#define OF(type, times) "{\"profile_typeID\":\"" type "\",\"label_selector\":\"{}\"," times
#define TIMES		"\"start\":1700000000000,\"end\":1700000060000,\"step\":30"

/* Two processes have the same number, on different nodes. */
static const struct stored {
	enum event event;
	int64_t end_s; /* after T0 */
	const char *ns, *node;
	int64_t value;
} stored[] = {
	{EVENT_ON_CPU, -30, "app", "n1", 1}, /* before the first slot */
	{EVENT_ON_CPU, 0, "app", "n1", 100},   {EVENT_ON_CPU, 10, "app", "n1", 200},
	{EVENT_ON_CPU, 10, "app", "n2", 200},  {EVENT_ON_CPU, 20, "vault", "n1", 2000},
	{EVENT_ON_CPU, 60, "app", "n1", 1100}, {EVENT_ON_CPU, 70, "app", "n1", 9999}, /* after it */
	{EVENT_MEM_INUSE, 10, "app", "n1", 7}, {EVENT_MEM_INUSE, 20, "app", "n1", 9},
};

static void fill_windows(struct store *s)
{
	struct frame frame = {.kind = FRAME_APP, .name = "main"};
	struct batch *b = profile_batch_new();
	size_t n_new;

	for (size_t i = 0; i < ARRAY_SIZE(stored); i++) {
		const struct stored *x = &stored[i];
		struct profile *p = profile_batch_profile(b);
		struct profile_sample *sample;

		p->id[0] = (uint8_t)(i + 1);
		p->event = x->event;
		p->end_ns = (uint64_t)(T0 + x->end_s) * NSEC_PER_SEC;
		p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
		p->app_service = profile_batch_str(b, "web");
		p->process_id = 7;
		profile_tag(b, p, "pod_ns", x->ns);
		profile_tag(b, p, "pod_node", x->node);
		sample = profile_add(b, p);
		sample->cpu = -1;
		sample->value = x->value;
		sample->n_samples = 1;
		assert_int_equal(profile_batch_stack(b, &frame, 1, &sample->stack), 0);
	}
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

/* A series as "LABEL: TIME after T0 COUNT from VALUE, ...; ...". The caller frees it. */
static char *text_of(const json_t *series)
{
	struct buf b = {0};
	const json_t *slot, *label, *count;
	size_t i, k;

	json_array_foreach (json_object_get(series, "labels"), i, label)
		buf_printf(&b, "%s=%s: ", json_str_at(label, "name", ""),
			   json_str_at(label, "value", ""));
	json_array_foreach (json_object_get(series, "slots"), i, slot) {
		const json_t *rows = json_object_get(slot, "yMin");
		int64_t ms = strtoll(json_str_at(slot, "timestamp", ""), NULL, 10);

		assert_int_equal(json_array_size(rows), 20);
		assert_int_equal(json_array_size(json_object_get(slot, "counts")), 20);
		buf_printf(&b, "%s%ld", i ? "; " : "", (long)(ms / 1000 - T0));
		json_array_foreach (json_object_get(slot, "counts"), k, count)
			if (json_integer_value(count))
				buf_printf(&b, " %d from %g", (int)json_integer_value(count),
					   json_number_value(json_array_get(rows, k)));
	}
	return buf_steal(&b);
}

/* Asks, and compares all series, a line each. */
static void check(struct fixture *f, const char *const *headers, const char *body, const char *want)
{
	_cleanup_buf_ struct buf b = {0};
	const json_t *series;
	size_t i;

	if (ask_headers(f, "POST", HEATMAP, headers, body, strlen(body)) != 200)
		fail_msg("%s: %d %s", body, f->status, f->body);
	json_array_foreach (json_object_get(f->json, "series"), i, series) {
		_cleanup_free_ char *text = text_of(series);

		buf_printf(&b, "%s%s", i ? "\n" : "", text);
	}
	assert_string_equal(b.data ?: "", want);
}

static const char *const json[] = {"Content-Type: application/json", NULL};

static void each_profile_counts(void **state)
{
	struct fixture *f = *state;

	/* from 100,000 to 2,000,000 ns, a row has 95,000 */
	check(f, json, OF(CPU, TIMES "}"),
	      "0 1 from 100000; 30 2 from 195000 1 from 1.905e+06; 60 1 from 1.05e+06");
	check(f, json,
	      OF(CPU, TIMES ",\"queryType\":\"HEATMAP_QUERY_TYPE_INDIVIDUAL\","
			    "\"exemplarType\":2,\"group_by\":[\"namespace\"]}"),
	      "namespace=app: 0 1 from 100000; 30 2 from 195000; 60 1 from 1.05e+06\n"
	      "namespace=vault: 30 1 from 1.905e+06");
	/* the greatest series, whose values alone make the rows */
	check(f, json, OF(CPU, TIMES ",\"groupBy\":[\"namespace\"],\"limit\":1}"),
	      "namespace=vault: 30 1 from 2e+06");
	check(f, json, OF("off_cpu:off_cpu:nanoseconds::", TIMES "}"), "");
}

static void of_a_snapshot_the_newest_counts(void **state)
{
	check(*state, json, OF(LIVE, TIMES "}"), "30 1 from 9; 60 1 from 9");
}

static void long_times_are_read_in_parts(void **state)
{
	check(*state, json, OF(CPU, "\"start\":1699995000000,\"end\":1700000100000,\"step\":1020}"),
	      "100 4 from 1000 1 from 1.0008e+06 1 from 1.5007e+06 1 from 9.4991e+06");
}

static void a_tenant_sees_its_namespace(void **state)
{
	static const char *const headers[] = {"Content-Type: application/json", BEARER "tenant",
					      NULL};

	check(*state, headers, OF(CPU, TIMES ",\"group_by\":[\"namespace\"]}"),
	      "namespace=app: 0 1 from 100000; 30 2 from 200000; 60 1 from 1.05e+06");
}

static void errors(void **state)
{
	static const struct {
		const char *body, *code, *message;
	} wrong[] = {
		{OF(CPU, "\"start\":1700000000000,\"end\":1700000060000}"), "invalid_argument",
		 "step"},
		{OF(CPU, "\"start\":1700000000000,\"end\":1700000060000,\"step\":0.0001}"),
		 "invalid_argument", "step"},
		{OF(CPU, "\"start\":1700000000000,\"end\":1700000060000,\"step\":0.01}"),
		 "invalid_argument", "more than 2000 slots"},
		{OF(CPU, TIMES ",\"query_type\":2}"), "unimplemented", "spans"},
		{OF(CPU, TIMES ",\"query_type\":\"HEATMAP_QUERY_TYPE_OTHER\"}"), "unimplemented",
		 "query_type"},
		{OF(CPU, TIMES ",\"limit\":-1}"), "invalid_argument", "limit"},
		{OF(CPU, TIMES ",\"group_by\":[\"span_id\"]}"), "unimplemented", "group_by"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		ask_headers(f, "POST", HEATMAP, json, wrong[i].body, strlen(wrong[i].body));
		if (!streq(json_str_at(f->json, "code", ""), wrong[i].code) ||
		    !strstr(json_str_at(f->json, "message", ""), wrong[i].message))
			fail_msg("%s: %s", wrong[i].body, f->body);
	}
}

static int fill_ours(void **state)
{
	(void)state;
	fill_store = fill_windows;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(each_profile_counts),
		LOCAL(of_a_snapshot_the_newest_counts),
		LOCAL(long_times_are_read_in_parts),
		CLUSTER(a_tenant_sees_its_namespace),
		LOCAL(errors),
	};

	return cmocka_run_group_tests(tests, fill_ours, NULL);
}
