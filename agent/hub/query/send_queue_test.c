/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries of the event rdma: which operations an answer contains, depending on what the filter
 * names. The store has a sample of each operation, and one without a label.
 */
#include "hub/query/query.h"
#include "hub/store/teststore.h"

#define N_OPERATIONS 7 /* the texts of the label: profile_label_text() */
#define NO_LABEL     (10 << N_OPERATIONS)
#define ALL	     (2 * NO_LABEL - 10)
#define RECEIVE	     320
#define REGISTER     640
#define SEND_QUEUE   (10 + 20 + 40 + 80 + 160)

static void label(struct batch *b, struct profile_sample *s, unsigned operation)
{
	struct profile_labels l = {};
	char text[LABEL_TEXT_BYTES];

	profile_label_text(LABEL_RDMA_OPERATION, EVENT_RDMA, operation, text);
	l.values[LABEL_RDMA_OPERATION] = profile_batch_str(b, text);
	s->labels = profile_batch_labels(b, &l);
}

static int set_up(void **state)
{
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "a", "mpi", 10, "hpc", T0);

	memory_setup(state);
	p->event = EVENT_RDMA;
	for (unsigned i = 0; i <= N_OPERATIONS; i++)
		add_sample(b, p, "worker", false, "post", 10 << i);
	for (unsigned i = 0; i < N_OPERATIONS; i++)
		label(b, &p->samples[i], i);
	write_batch(*state, b, 1);
	return 0;
}

static char *body_of(const char *event, const char *filter, const char *tag)
{
	return xasprintf("{\"profile_event_type\":\"%s\",\"profile_language_type\":\"eBPF\","
			 "\"time_start\":%d,\"time_end\":%d,\"tag_filter\":\"%s\",\"tag\":\"%s\"}",
			 event, T0 - 10, T0 + 10, filter, tag);
}

static int add_value(const struct store_row *row, void *arg)
{
	*(int64_t *)arg += row->value;
	return 0;
}

static void an_answer_has_the_send_queue_or_what_is_named(void **state)
{
	static const struct {
		const char *filter;
		int64_t bytes;
		bool only;
	} cases[] = {
		{"", SEND_QUEUE, true},
		{"pod_ns='hpc'", SEND_QUEUE, true},
		{"pod_ns='hpc' OR pod_ns='web'", SEND_QUEUE, true},
		{"pod_ns='web'", 0, true},
		{"rdma_operation='receive'", RECEIVE, false},
		{"pod_ns='hpc' AND NOT (pod_ns='web' OR rdma_operation='register')", ALL - REGISTER,
		 false},
		{"rdma_operation IN ('write', 'register')", 20 + REGISTER, false},
		{"rdma_operation IS NULL", NO_LABEL, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *body = body_of("rdma", cases[i].filter, "");
		struct store_summary s = {0};
		struct tracing_request r;
		struct field_error e;
		int64_t bytes = 0;

		assert_int_equal(query_tracing_parse(body, strlen(body), &r, &e), 0);
		assert_int_equal(r.send_queue_only, cases[i].only);
		assert_int_equal(store_read(*state, &store_scope_all, r.selection, add_value,
					    &bytes, &s, &e),
				 0);
		if (bytes != cases[i].bytes)
			fail_msg("%s: %lld bytes", cases[i].filter, (long long)bytes);
		store_summary_done(&s);
		query_tracing_request_done(&r);
	}
}

static int add_name(const struct store_choice *c, const char *value, uint64_t n_samples, void *arg)
{
	(void)c;
	(void)n_samples;
	if (*value)
		buf_printf(arg, "%s ", value);
	return 0;
}

/* A user must be able to choose the operations that an answer does not have by default, too. */
static void choices_have_all_operations(void **state)
{
	static const struct {
		const char *tag, *filter, *values;
	} cases[] = {
		{"rdma_operation", "", "register receive other atomic read write send "},
		{"rdma_operation", "pod_ns='web'", ""},
		{"pod_ns", "", "hpc "},
		{"pod_ns", "rdma_operation='register'", "hpc "},
		{"profile_event_type", "", "rdma "},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *body = body_of("rdma", cases[i].filter, cases[i].tag);
		_cleanup_buf_ struct buf names = {0};
		struct values_request v;
		struct field_error e;

		assert_int_equal(query_values_parse(body, strlen(body), &v, &e), 0);
		assert_int_equal(
			read_values(*state, v.tracing.selection, v.tag, 20, add_name, &names, &e),
			0);
		assert_string_equal(names.data ? names.data : "", cases[i].values);
		query_values_request_done(&v);
	}
}

static void other_events_are_not_restricted(void **state)
{
	_cleanup_free_ char *body = body_of("on-cpu", "", "");
	struct tracing_request r;
	struct field_error e;

	(void)state;
	assert_int_equal(query_tracing_parse(body, strlen(body), &r, &e), 0);
	assert_false(r.send_queue_only);
	assert_null(r.selection->where);
	query_tracing_request_done(&r);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, memory_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_answer_has_the_send_queue_or_what_is_named),
		TEST(choices_have_all_operations),
		TEST(other_events_are_not_restricted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
