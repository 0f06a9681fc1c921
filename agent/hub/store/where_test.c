/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a filter selects: each operator, the deepest nesting, hostile values, the trace and span of
 * a request, also as groups.
 */
#include "hub/store/teststore.h"

#include <inttypes.h>

/* The samples: api has 170 (worker 150, main 20), db 70. Only api has the label. */
static void predicates(void **state)
{
	struct store *s = *state;
	struct predicate *p;

	write_batch(s, two_services(), 3);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "pod_ns", "app")), 170);
	assert_int_equal(value_where(s, leaf(PRED_NE, "pod_ns", "app")), 70);
	assert_int_equal(value_where(s, leaf(PRED_GT, "pod_ns", "app")), 70);
	assert_int_equal(value_where(s, leaf(PRED_LIKE, "pod_ns", "AP*")), 170);
	assert_int_equal(value_where(s, leaf(PRED_LIKE, "pod_ns", "_at%")), 70);
	assert_int_equal(value_where(s, leaf(PRED_NOT_LIKE, "pod_ns", "%a%")), 0);
	assert_int_equal(value_where(s, leaf(PRED_REGEXP, "pod_ns", "^(app|x)$")), 170);
	assert_int_equal(value_where(s, leaf(PRED_NOT_REGEXP, "pod_ns", "^a")), 70);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "thread", "worker")), 150);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "app_service", "db")), 70);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "profile_event_type", "on-cpu")), 240);
	assert_int_equal(value_where(s, leaf(PRED_IS_NULL, "cpu", NULL)), 240);
	/* a row without the tag matches every negation */
	assert_int_equal(value_where(s, leaf(PRED_IS_NULL, "k8s.label.tier", NULL)), 70);
	assert_int_equal(value_where(s, leaf(PRED_NE, "k8s.label.tier", "x")), 240);
	assert_int_equal(value_where(s, leaf(PRED_NOT_IN, "k8s.label.tier", "x")), 240);
	assert_int_equal(value_where(s, leaf(PRED_NOT_LIKE, "k8s.label.tier", "it*")), 70);
	assert_int_equal(value_where(s, leaf(PRED_NOT_REGEXP, "k8s.label.tier", ".")), 70);
	p = join(PRED_NOT, leaf(PRED_EQ, "k8s.label.tier", "x"), NULL);
	assert_int_equal(value_where(s, p), 240);
	p = leaf(PRED_EQ, "process_id", "11");
	p->numeric = true;
	assert_int_equal(value_where(s, p), 70);
	p = leaf(PRED_GE, "time", "1700000000");
	p->numeric = true;
	assert_int_equal(value_where(s, p), 70);
	p = join(PRED_AND, leaf(PRED_EQ, "pod_ns", "app"),
		 join(PRED_NOT, leaf(PRED_EQ, "thread", "worker"), NULL));
	assert_int_equal(value_where(s, p), 20);
}

static void deep_predicates(void **state)
{
	struct store *s = *state;
	struct predicate *p = leaf(PRED_EQ, "pod_ns", "app");

	write_batch(s, two_services(), 3);
	assert_int_equal(value_where(s, nested("thread", "worker")), 150);
	assert_int_equal(value_where(s, nested("pod_ns", "app")), 170);
	for (int i = 0; i < 31; i++)
		p = join(i % 2 ? PRED_AND : PRED_OR, leaf(PRED_EQ, "pod_ns", "app"), p);
	assert_int_equal(value_where(s, p), 170);
	p = leaf(PRED_EQ, "pod_ns", "app");
	for (int i = 0; i < 32; i++)
		p = join(PRED_NOT, p, NULL);
	assert_int_equal(value_where(s, p), 170);
}

static void hostile_values(void **state)
{
	static const char *const hostile[] = {
		"' OR 1=1 --", "app' OR 'a'='a",
		"\"",	       "');DROP TABLE samples;--",
		"?1",	       "\\",
		"%00",	       "app\xff\xfe",
		"*/ OR /*",    ":memory:",
	};
	struct store *s = *state;
	struct predicate *p;

	write_batch(s, two_services(), 3);
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		assert_int_equal(value_where(s, leaf(PRED_EQ, "pod_ns", hostile[i])), 0);
		assert_int_equal(value_where(s, leaf(PRED_EQ, hostile[i], "app")), 0);
		assert_int_equal(value_where(s, leaf(PRED_NE, hostile[i], "app")), 240);
		assert_int_equal(value_where(s, leaf(PRED_LIKE, "pod_ns", hostile[i])), 0);
	}
	assert_int_equal(value_where(s, leaf(PRED_EQ, "k8s.label.tier", "it's \"web\"; --")), 170);
	p = xcalloc(1, sizeof(*p));
	p->op = PRED_OR;
	p->children = xcalloc(2000, sizeof(*p->children));
	while (p->n_children < 2000)
		p->children[p->n_children++] = leaf(PRED_EQ, "pod_ns", "app");
	assert_int_equal(value_where(s, p), 170);
}

/* As many as a query may have; two of the windows' namespaces are among them. */
static void lists_are_long(void **state)
{
	enum { MANY = 8000 };
	struct predicate *p = leaf(PRED_IN, "pod_ns", "data");
	struct store *s = *state;

	write_batch(s, two_services(), 3);
	p->values = xrealloc(p->values, MANY * sizeof(*p->values));
	/* with hostile ends, and longer than a field of a form to ClickHouse */
	for (int i = 1; i < MANY - 1; i++)
		p->values[p->n_values++] = xasprintf("it's\t\\\xff\n%d-%0100d", i, 0);
	p->values[p->n_values++] = xstrdup("app");
	assert_int_equal(value_where(s, p), 170 + 70);
}

static void like(void **state)
{
	char many[400];

	(void)state;
	assert_true(store_match_like("a%c", "abbbc"));
	assert_false(store_match_like("a%c", "abbb"));
	assert_true(store_match_like("\\*x", "*x"));
	assert_false(store_match_like("\\*x", "axx"));
	assert_true(store_match_like("a_c", "a\xc3\xa9"
					    "c"));
	assert_true(store_match_like("%", ""));
	memset(many, 'a', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	/* the match must also be quick */
	assert_false(store_match_like("%a%a%a%a%a%a%a%a%a%a%b", many));
}

/* A pattern that is over the limit of steps is an error, not "no match". */
static void a_pattern_of_too_many_steps_is_told(void **state)
{
	struct store *s = *state;
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	struct got got = {0};
	struct field_error e = {0};

	write_batch(s, two_services(), 3);
	sel.where = leaf(PRED_REGEXP, "k8s.label.tier", "^(((.+)+)+)+\\d$");
	assert_int_equal(store_read(s, &store_scope_all, &sel, take, &got, &got.summary, &e),
			 -ELOOP);
	assert_non_null(strstr(e.reason, "too many steps"));
	store_predicate_free(sel.where);
	got_done(&got);
}

/*
 * SQLite checks the deadline every 20000 of its steps. A long match is few steps, so the match must
 * check it, too.
 */
static void a_match_ends_with_its_query(void **state)
{
	static const enum predicate_op ops[] = {PRED_REGEXP, PRED_LIKE};
	const atomic_bool given_up = true;
	struct store *s = *state;
	struct batch *b = two_services();
	char text[400] = "";

	profile_tag(b, b->profiles[0], "image", memset(text, 'x', sizeof(text) - 1));
	write_batch(s, b, 3);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct selection sel = {
			.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
		_cleanup_(got_done) struct got got = {0};
		struct field_error e = {0};

		sel.where = leaf(ops[i], "image", "no such");
		sel.max_time_ns = 1;
		assert_int_equal(
			store_read(s, &store_scope_all, &sel, take, &got, &got.summary, &e),
			-ETIME);
		assert_true(str_has_prefix(e.reason, "the query took longer than "));
		sel.max_time_ns = 0;
		sel.given_up = &given_up;
		assert_int_equal(
			store_read(s, &store_scope_all, &sel, take, &got, &got.summary, &e),
			-ETIME);
		sel.given_up = NULL;
		assert_int_equal(
			store_read(s, &store_scope_all, &sel, take, &got, &got.summary, &e), 0);
		store_predicate_free(sel.where);
	}
}

/* ---- traces ---- */

static uint32_t a_link(struct batch *b, uint8_t trace, uint8_t span)
{
	struct profile_link l = {.trace_id = {[15] = trace}, .span_id = {[7] = span}};
	uint32_t link;

	assert_int_equal(profile_batch_link(b, &l, &link), 0);
	return link;
}

#define TRACE_1 "00000000000000000000000000000001"

/*
 * The same stack in two spans of a trace and outside of any trace. It is one row, and each span
 * selects its part of the value.
 */
static struct batch *two_calls(void)
{
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "1", "api", 10, "app", T0);

	add_sample(b, p, "worker", false, "write", 100);
	add_sample(b, p, "worker", false, "write", 50);
	p->samples[1].link = a_link(b, 1, 7);
	add_sample(b, p, "worker", false, "write", 30);
	p->samples[2].link = a_link(b, 2, 8);
	add_sample(b, p, "worker", false, "read", 20);
	p->samples[3].link = a_link(b, 1, 9);
	return b;
}

static int64_t value_and_rows(struct store *s, struct predicate *where, size_t want_rows)
{
	_cleanup_(got_done) struct got g = {0};

	read_where(s, where, &g);
	assert_int_equal(g.n, want_rows);
	return g.sum;
}

static int count_value(const struct store_choice *c, const char *value, uint64_t n_samples,
		       void *arg)
{
	(void)c;
	(void)n_samples;
	assert_int_equal(strlen(value), 32);
	++*(size_t *)arg;
	return 0;
}

static void traces(void **state)
{
	struct store *s = *state;
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	size_t n_traces = 0;

	write_batch(s, two_calls(), 1);
	assert_int_equal(value_and_rows(s, NULL, 2), 200);
	assert_int_equal(value_and_rows(s, leaf(PRED_EQ, "trace_id", TRACE_1), 2), 70);
	assert_int_equal(value_and_rows(s,
					join(PRED_AND, leaf(PRED_EQ, "pod_ns", "app"),
					     leaf(PRED_EQ, "trace_id", TRACE_1)),
					2),
			 70);
	assert_int_equal(value_where(s, join(PRED_AND, leaf(PRED_EQ, "pod_ns", "other"),
					     leaf(PRED_EQ, "trace_id", TRACE_1))),
			 0);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "profile_id", "0000000000000008")), 30);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "trace_id", "0")), 0);
	assert_int_equal(read_values(s, &sel, "trace_id", 10, count_value, &n_traces, NULL), 0);
	assert_int_equal(n_traces, 2);
	assert_int_equal(store_expire(s, (uint64_t)(T0 + 10) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "trace_id", TRACE_1)), 70);
}

/* The group of each row and its value. Of the group, the last digit is enough. */
static int join_groups(const struct store_row *row, void *arg)
{
	buf_printf(arg, "%s:%" PRId64 " ", row->group + strlen(row->group) - 1, row->value);
	return 0;
}

/* Equal stacks in different calls are different rows. Samples of no call are in no group. */
static void calls_are_groups(void **state)
{
	static const struct {
		const char *group_by, *trace, *want;
	} cases[] = {
		{"profile_id", TRACE_1, "7:50 9:20 "},
		{"trace_id", NULL, "1:50 2:30 1:20 "},
		{"profile_id", NULL, "7:50 8:30 9:20 "},
	};
	struct store *s = *state;

	write_batch(s, two_calls(), 1);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct selection sel = {.event = EVENT_ON_CPU,
					.time_start_s = T0 - 10,
					.time_end_s = T0 + 10,
					.group_by = cases[i].group_by};
		_cleanup_buf_ struct buf got = {0};
		struct store_summary summary;
		struct field_error e;

		if (cases[i].trace)
			sel.where = leaf(PRED_EQ, "trace_id", cases[i].trace);
		assert_int_equal(
			store_read(s, &store_scope_all, &sel, join_groups, &got, &summary, &e), 0);
		assert_string_equal(got.data, cases[i].want);
		store_summary_done(&summary);
		store_predicate_free(sel.where);
	}
}

static int join_apart(const struct store_row *row, void *arg)
{
	buf_printf(arg, "%s/%s:%" PRId64 " ", row->ns ?: "-", row->group ?: "-", row->value);
	return 0;
}

/* Equal stacks of the namespaces that stay apart are different rows, in each group. */
static void namespaces_stay_apart(void **state)
{
	static char *apart[] = {(char *)"app", (char *)"data", (char *)"nobody"};
	static const struct {
		const char *group_by;
		size_t n_apart;
		const char *trace, *want;
	} cases[] = {
		{NULL, 0, NULL, "-/-:1111 "},
		{NULL, 3, NULL, "-/-:1010 data/-:100 app/-:1 "},
		{NULL, 1, NULL, "-/-:1110 app/-:1 "},
		{"pod_ns", 1, NULL, "-/-:1000 -/data:100 -/other:10 app/app:1 "},
		{"thread", 3, NULL, "-/worker:1010 data/worker:100 app/worker:1 "},
		{NULL, 3, TRACE_1, "data/-:100 app/-:1 "},
		{"trace_id", 2, NULL, "data/" TRACE_1 ":100 app/" TRACE_1 ":1 "},
	};
	static const char *const namespaces[] = {"app", "other", "data", NULL};
	struct batch *b = profile_batch_new();
	struct store *s = *state;

	for (int i = 0, value = 1; i < 4; i++, value *= 10) {
		struct profile *p =
			add_profile(b, (char[]){(char)('0' + i), 0}, "api", 10, namespaces[i], T0);

		add_sample(b, p, "worker", false, "write", value);
		p->samples[0].link = i % 2 ? 0 : a_link(b, 1, 7);
	}
	write_batch(s, b, 4);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct selection sel = {.event = EVENT_ON_CPU,
					.time_start_s = T0 - 10,
					.time_end_s = T0 + 10,
					.apart = apart,
					.n_apart = cases[i].n_apart,
					.group_by = cases[i].group_by};
		_cleanup_buf_ struct buf got = {0};
		struct store_summary summary;
		struct field_error e;

		if (cases[i].trace)
			sel.where = leaf(PRED_EQ, "trace_id", cases[i].trace);
		assert_int_equal(
			store_read(s, &store_scope_all, &sel, join_apart, &got, &summary, &e), 0);
		assert_string_equal(got.data, cases[i].want);
		store_summary_done(&summary);
		store_predicate_free(sel.where);
	}
}

static int ignore_row(const struct store_row *row, void *arg)
{
	(void)row;
	(void)arg;
	return 0;
}

/* More groups than there is memory for are an error that says what to do. */
static void groups_have_a_limit(void **state)
{
	const struct store_config c = {.path = ":memory:"};
	struct selection sel = {.scope = &store_scope_all,
				.event = EVENT_ON_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 10,
				.group_by = "profile_id"};
	struct batch *b = two_calls();
	_cleanup_buf_ struct buf got = {0};
	struct store_summary summary;
	struct field_error e;
	size_t n_new;
	void *sink;

	(void)state;
	assert_int_equal(store_sqlite_sink.open(&c, &sink, &e), 0);
	assert_int_equal(store_sqlite_write(sink, b, &n_new), 0);
	profile_batch_free(b);
	((struct sqlite_store *)sink)->names_bytes = 300; /* two groups */
	assert_int_equal(store_sqlite_read(sink, &sel, join_groups, &got, &summary, &e), -ENOBUFS);
	assert_non_null(strstr(e.reason, "too many values of the tag group_by"));
	/* many stacks of few groups are no error, whatever is cut */
	b = profile_batch_new();
	for (char leaf[] = "a"; *leaf <= 'z'; ++*leaf)
		add_sample(b, add_profile(b, leaf, "api", 10, "app", T0), "worker", false, leaf, 1);
	assert_int_equal(store_sqlite_write(sink, b, &n_new), 0);
	profile_batch_free(b);
	sel.group_by = "thread";
	assert_int_equal(store_sqlite_read(sink, &sel, ignore_row, NULL, &summary, &e), 0);
	store_summary_done(&summary);
	store_sqlite_sink.close(sink);
}

static int join_values(const struct store_choice *c, const char *value, uint64_t n_samples,
		       void *arg)
{
	(void)c;
	(void)n_samples;
	buf_printf(arg, "%s%s", ((struct buf *)arg)->len ? " " : "", value);
	return 0;
}

/* Asserts the values of a tag. where is a condition on samples or on their links. */
static void assert_values(struct store *s, const char *tag, struct predicate *where,
			  const char *expected)
{
	struct selection sel = {.event = EVENT_ON_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 10,
				.where = where};
	_cleanup_buf_ struct buf all = {0};

	buf_init(&all, 0);
	assert_int_equal(read_values(s, &sel, tag, 10, join_values, &all, NULL), 0);
	assert_string_equal(all.data ? all.data : "", expected);
	store_predicate_free(where);
}

static void values_where_samples_are(void **state)
{
	struct store *s = *state;
	struct batch *b = two_calls();
	struct profile *p = add_profile(b, "2", "db", 11, "data", T0);

	add_sample(b, p, "flusher", false, "fsync", 40);
	p = add_profile(b, "3", "db", 11, "data", T0);
	p->event = EVENT_OFF_CPU;
	add_sample(b, p, "flusher", false, "fsync", 40);
	write_batch(s, b, 3);
	assert_values(s, "profile_event_type", leaf(PRED_EQ, "trace_id", TRACE_1), "on-cpu");
	assert_values(s, "profile_event_type", leaf(PRED_EQ, "thread", "flusher"),
		      "off-cpu on-cpu");
	assert_values(s, "profile_event_type", NULL, "on-cpu off-cpu");
	assert_values(s, "pod_ns", leaf(PRED_EQ, "thread", "flusher"), "data");
	assert_values(s, "pod_ns", leaf(PRED_EQ, "trace_id", TRACE_1), "app");
	assert_values(s, "pod_ns", NULL, "app data");
}

static int keep_value(const struct store_choice *c, const char *value, uint64_t n_samples,
		      void *arg)
{
	(void)c;
	(void)n_samples;
	snprintf(arg, 33, "%s", value);
	return 0;
}

static void samples_have_an_identity(void **state)
{
	struct store *s = *state;
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	char last[33] = "";

	write_batch(s, two_calls(), 1);
	assert_int_equal(read_values(s, &sel, "sample_id", 1, keep_value, last, NULL), 0);
	assert_int_equal(strlen(last), 16);
	assert_int_equal(value_and_rows(s, leaf(PRED_EQ, "sample_id", last), 1), 180);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_MEMORY(predicates),
		IN_MEMORY(deep_predicates),
		IN_MEMORY(hostile_values),
		IN_MEMORY(lists_are_long),
		cmocka_unit_test(like),
		IN_MEMORY(a_pattern_of_too_many_steps_is_told),
		IN_MEMORY(a_match_ends_with_its_query),
		IN_MEMORY(traces),
		IN_MEMORY(calls_are_groups),
		IN_MEMORY(namespaces_stay_apart),
		cmocka_unit_test(groups_have_a_limit),
		IN_MEMORY(samples_have_an_identity),
		IN_MEMORY(values_where_samples_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
