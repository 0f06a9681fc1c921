/* SPDX-License-Identifier: Apache-2.0 */
/* What the store says about a selection without data. */
#include "hub/store/teststore.h"

#include "hub/why/testwhy.h"

#define NOW (T0 + 100000)

static json_t *why(struct store *s, const char *event, int64_t from, int64_t to, const char *filter,
		   const char *more)
{
	struct why_question q;
	struct field_error e = {0};
	json_t *reasons = NULL;

	ask_why(&q, event, from, to, filter, more);
	if (why_of_store(s, &q, NOW, &reasons, &e))
		fail_msg("%s: %s", e.path, e.reason);
	why_question_done(&q);
	return reasons;
}

/* api in app (17 samples, 3 lost) until T0, db in data (7) until T0 + 10. */
static struct store *filled(void **state)
{
	write_batch(*state, two_services(), 3);
	return *state;
}

/* Each condition is dropped in turn: only without that on pod_ns is there something. */
static void a_condition_that_matches_nothing(void **state)
{
	struct store *s = filled(state);
	_cleanup_json_ json_t *r =
		why(s, "on-cpu", T0 - 10, T0 + 10, "pod_ns='ap' AND pod_node='n1'", "");
	const json_t *c = reason_of(r, "condition");

	assert_codes(r, "condition");
	assert_string_equal(json_str_at(c, "text", ""),
			    "Nothing matches the condition on pod_ns together with the others. "
			    "Without it, there are 24 samples of on-cpu.");
	assert_string_equal(json_str_at(c, "tag", ""), "pod_ns");
	assert_int_equal(json_int_at(c, "samples", 0), 24);
	assert_string_equal(json_string_value(json_array_get(json_at(c, "values"), 0)), "app");
	assert_string_equal(json_string_value(json_array_get(json_at(c, "values"), 1)), "data");
}

static void a_process_that_the_namespace_lacks(void **state)
{
	struct store *s = filled(state);
	_cleanup_json_ json_t *r =
		why(s, "on-cpu", T0 - 10, T0 + 10, "pod_ns='app'", ",\"app_service\":\"db\"");
	const json_t *c;
	size_t i, n = 0;

	json_array_foreach (r, i, c)
		n += streq(json_str_at(c, "reason", ""), "condition");
	assert_int_equal(n, 2);
	assert_string_equal(json_str_at(json_array_get(r, 0), "tag", ""), "pod_ns");
	assert_int_equal(json_int_at(json_array_get(r, 0), "samples", 0), 7);
	assert_string_equal(json_str_at(json_array_get(r, 1), "tag", ""), "app_service");
	assert_int_equal(json_int_at(json_array_get(r, 1), "samples", 0), 17);
}

/* A condition that nothing matches hides behind another one. */
static void two_conditions_that_match_nothing(void **state)
{
	struct store *s = filled(state);
	_cleanup_json_ json_t *r =
		why(s, "on-cpu", T0 - 10, T0 + 10, "pod_ns='ap'", ",\"app_service\":\"ap\"");

	assert_codes(r, "condition");
	assert_string_equal(text_of(r, "condition"),
			    "No condition alone is the reason. Without all of them, there are 24 "
			    "samples of on-cpu.");
}

static void another_event(void **state)
{
	struct store *s = filled(state);
	_cleanup_json_ json_t *r = why(s, "off-cpu", T0 - 10, T0 + 10, "pod_ns='data'", "");
	const json_t *c = reason_of(r, "other_event");

	assert_string_equal(json_str_at(c, "text", ""),
			    "For this selection other events have data, and off-cpu has none.");
	assert_int_equal(json_array_size(json_at(c, "events")), 1);
	assert_string_equal(json_string_value(json_array_get(json_at(c, "events"), 0)), "on-cpu");
}

/* The time that is offered is not shorter than the question's, and has the nearest data. */
static void another_time(void **state)
{
	static const int64_t afar[] = {100, 5000, 50000};
	struct store *s = filled(state);

	for (size_t i = 0; i < ARRAY_SIZE(afar); i++) {
		int64_t from = T0 + afar[i];
		_cleanup_json_ json_t *r = why(s, "on-cpu", from, from + 60, "pod_ns='app'", "");
		const json_t *c = reason_of(r, "other_time");
		int64_t start = json_int_at(c, "time_start", 0),
			end = json_int_at(c, "time_end", 0);

		assert_codes(r, "other_time");
		assert_true(end - start >= 60 && start <= T0);
		assert_true(end >= T0 && end <= T0 + 1 + afar[i] / 10);
		assert_true(str_has_prefix(
			json_str_at(c, "text", ""),
			"The last data before this time is from about 2023-11-14T22:"));
	}
}

static void a_later_time(void **state)
{
	struct store *s = filled(state);
	_cleanup_json_ json_t *r = why(s, "on-cpu", T0 - 500, T0 - 400, "pod_ns='app'", "");
	const json_t *c = reason_of(r, "other_time");

	assert_codes(r, "other_time");
	assert_true(str_has_prefix(json_str_at(c, "text", ""),
				   "The first data after this time is from about 2023-11-14T22:"));
	assert_true(json_int_at(c, "time_start", 0) <= T0 && json_int_at(c, "time_end", 0) >= T0);
}

/* The agent of the node was away, in the middle of a process's life. */
static void losses(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	struct profile *p;
	_cleanup_json_ json_t *r = NULL;
	const json_t *lost;

	add_sample(b, add_profile(b, "1", "api", 10, "app", T0), "api", true, "read", 20);
	add_sample(b, add_profile(b, "2", "api", 10, "app", T0 + 100), "api", true, "read", 20);
	p = add_profile(b, "3", "", 0, NULL, T0 + 80);
	p->start_ns = (T0 + 20) * NSEC_PER_SEC;
	profile_lose(b, p, "agent_down", 0, 60 * NSEC_PER_SEC);
	write_batch(s, b, 3);
	r = why(s, "on-cpu", T0 + 30, T0 + 70, "pod_ns='app'", "");
	assert_codes(r, "lost other_time other_time");
	lost = json_array_get(json_at(reason_of(r, "lost"), "losses"), 0);
	assert_string_equal(json_str_at(lost, "reason", ""), "agent_down");
	assert_int_equal(json_int_at(lost, "time_ns", 0), 60 * NSEC_PER_SEC);
}

static void a_tag_that_is_not_stored(void **state)
{
	struct store *s = filled(state);
	_cleanup_json_ json_t *r = why(s, "on-cpu", T0 - 10, T0 + 10, "pod_ns_id=7", "");

	assert_true(str_has_prefix(text_of(r, "condition"),
				   "tag_filter: pod_ns_id matches nothing here"));
}

/* ", there are N samples" counts what lacks the tag, too. */
static void a_tag_that_the_data_lacks(void **state)
{
	static const char *const filters[][2] = {
		{"trace_id='0123456789abcdef0123456789abcdef'", "trace_id"},
		{"k8s.label.app='web'", "k8s.label.app"},
		{"wait='lock'", "wait"},
		{"pod_ns='app' AND container='x'", "container"},
	};
	struct store *s = filled(state);

	for (size_t i = 0; i < ARRAY_SIZE(filters); i++) {
		_cleanup_json_ json_t *r = why(s, "on-cpu", T0 - 10, T0 + 10, filters[i][0], "");
		const json_t *c = reason_of(r, "condition");

		assert_string_equal(json_str_at(c, "tag", ""), filters[i][1]);
		assert_int_equal(json_int_at(c, "samples", 0), i == 3 ? 17 : 24);
	}
}

/* The condition on the event is no reason of its own: the other events are named. */
static void a_condition_on_the_event(void **state)
{
	struct store *s = filled(state);
	_cleanup_json_ json_t *r = why(s, "on-cpu", T0 - 10, T0 + 10,
				       "profile_event_type='on-cpu' AND pod_ns='ap'", "");

	assert_codes(r, "condition");
	assert_string_equal(json_str_at(reason_of(r, "condition"), "tag", ""), "pod_ns");
}

/* A value that is too long for a button is not cut: it would match nothing. */
static void long_values(void **state)
{
	struct store *s = *state;
	struct batch *b = two_services();
	_cleanup_json_ json_t *r = NULL;
	const json_t *values;
	char name[150];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	for (int i = 0; i < 40; i++)
		add_sample(b, b->profiles[0], name, false, "write", 1);
	write_batch(s, b, 3);
	r = why(s, "on-cpu", T0 - 10, T0 + 10, "thread='x'", "");
	values = json_at(reason_of(r, "condition"), "values");
	assert_int_equal(json_array_size(values), 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(strlen(json_string_value(json_array_get(values, i))) < 10);
}

/* Data that came after the question's answer: nothing else is said. */
static void data_now(void **state)
{
	struct store *s = filled(state);
	_cleanup_json_ json_t *r = why(s, "on-cpu", T0 - 10, T0 + 10, "pod_ns='app'", "");

	assert_codes(r, "has_data");
	assert_true(why_has_data(r));
}

/* No filter is to blame if the hub does not record the event. */
static void events_of_deepflow(void **state)
{
	struct store *s = filled(state);
	_cleanup_json_ json_t *r = why(s, "itimer", T0 - 10, T0 + 10, "pod_ns='ap'", "");

	assert_codes(r, "condition");
	assert_true(str_has_prefix(text_of(r, "condition"), "profile_event_type: itimer"));
}

/* It is not claimed of conditions that were not looked at that they are no reason. */
static void many_conditions(void **state)
{
	struct store *s = filled(state);
	_cleanup_buf_ struct buf filter = {0};
	_cleanup_json_ json_t *r = NULL;

	for (int i = 0; i < 17; i++)
		buf_printf(&filter, "%sk8s.label.l%d='x'", i ? " AND " : "", i);
	r = why(s, "on-cpu", T0 - 10, T0 + 10, filter.data, "");
	assert_codes(r, "condition");
	assert_string_equal(text_of(r, "condition"),
			    "Without all conditions, there are 24 samples of on-cpu.");
}

/* Each step that takes too long is left out, and the answer says so. */
static void what_takes_too_long(void **state)
{
	static const atomic_bool given_up = true;
	struct store *s = filled(state);
	struct why_question q;
	struct field_error e;
	_cleanup_json_ json_t *r = NULL;

	ask_why(&q, "on-cpu", T0 + 5, T0 + 20, "pod_ns='app'", "");
	q.tracing.selection->given_up = &given_up;
	assert_int_equal(why_of_store(s, &q, NOW, &r, &e), 0);
	why_question_done(&q);
	assert_codes(r, "condition not_finished");
}

/* A user who may read one namespace is not told of data of others. */
static void other_namespaces(void **state)
{
	static char *names[] = {"data"};
	static const struct scope data = {.places = names, .n_places = 1};
	struct store *s = filled(state);
	struct why_question q;
	struct field_error e;
	_cleanup_json_ json_t *r = NULL;

	ask_why(&q, "on-cpu", T0 - 10, T0 + 10, "pod_ns='ap'", "");
	q.scope = &data;
	assert_int_equal(why_of_store(s, &q, NOW, &r, &e), 0);
	why_question_done(&q);
	assert_int_equal(json_int_at(reason_of(r, "condition"), "samples", 0), 7);
	assert_int_equal(json_array_size(json_at(reason_of(r, "condition"), "values")), 1);
}

/* Differences of such times do not fit in 64 bits. */
static void times_out_of_all_bounds(void **state)
{
	static const int64_t times[][2] = {
		{-9223370490666548889, INT64_MAX},
		{INT64_MIN, INT64_MAX},
		{INT64_MIN, INT64_MIN + 1},
		{INT64_MAX - 1, INT64_MAX},
		{1, INT64_MAX},
	};
	static const char *const events[] = {"on-cpu", "mem-inuse"};
	struct store *s = filled(state);

	for (size_t i = 0; i < ARRAY_SIZE(times) * 2; i++) {
		const int64_t *t = times[i / 2];
		_cleanup_json_ json_t *r =
			why(s, events[i % 2], t[0], t[1], "pod_ns='app' AND pod='x'", "");

		assert_non_null(r);
	}
}

static void an_empty_store(void **state)
{
	_cleanup_json_ json_t *r = why(*state, "on-cpu", T0, T0 + 60, "pod_ns='app'", "");

	assert_codes(r, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_MEMORY(a_condition_that_matches_nothing),
		IN_MEMORY(a_process_that_the_namespace_lacks),
		IN_MEMORY(two_conditions_that_match_nothing),
		IN_MEMORY(another_event),
		IN_MEMORY(another_time),
		IN_MEMORY(a_later_time),
		IN_MEMORY(losses),
		IN_MEMORY(a_tag_that_is_not_stored),
		IN_MEMORY(a_tag_that_the_data_lacks),
		IN_MEMORY(a_condition_on_the_event),
		IN_MEMORY(long_values),
		IN_MEMORY(data_now),
		IN_MEMORY(events_of_deepflow),
		IN_MEMORY(many_conditions),
		IN_MEMORY(what_takes_too_long),
		IN_MEMORY(other_namespaces),
		IN_MEMORY(times_out_of_all_bounds),
		IN_MEMORY(an_empty_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
