/* SPDX-License-Identifier: Apache-2.0 */
/* Several tags as one: names and values, and what a store tells apart by them. */
#include "hub/store/teststore.h"

#include <inttypes.h>

static char *name_of(const struct store_joined *items, size_t n)
{
	char *name = store_join(items, n);

	assert_true(store_is_joint(name));
	return name;
}

static void names_have_their_tags(void **state)
{
	static const struct store_joined items[] = {
		{"pod_ns", NULL}, {"pod_group", "app_service"}, {"k8s.label.a/b,c|d", NULL}};
	_cleanup_free_ char *name = name_of(items, ARRAY_SIZE(items)), *text = NULL;
	struct store_joined got[STORE_MAX_JOINED];

	(void)state;
	assert_int_equal(store_joined(name, got, &text), ARRAY_SIZE(items));
	for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
		assert_string_equal(got[i].tag, items[i].tag);
		assert_true(str_equal(got[i].otherwise, items[i].otherwise));
	}
	assert_false(store_is_joint("pod"));
	assert_false(store_is_joint(""));
}

/* A name that a user wrote cannot become two. */
static void marks_in_names_are_none(void **state)
{
	static const struct store_joined items[] = {{"label.a\x1fpod\x1enode", NULL}};
	_cleanup_free_ char *name = name_of(items, 1), *text = NULL;
	struct store_joined got[STORE_MAX_JOINED];

	(void)state;
	assert_int_equal(store_joined(name, got, &text), 1);
	assert_string_equal(got[0].tag, "label.a\x1dpod\x1dnode");
	assert_null(got[0].otherwise);
}

static void values_are_lists(void **state)
{
	char *values[2] = {NULL, NULL};

	(void)state;
	assert_int_equal(store_joined_values("\"a\\\"b\",null", 2, values), 0);
	assert_string_equal(values[0], "a\"b");
	assert_null(values[1]);
	free(values[0]);
	/* a name that was cut within a character */
	assert_int_equal(store_joined_values("null,\"b\xc3\"", 2, values), 0);
	assert_string_equal(values[1], "b" UTF8_REPLACEMENT);
	free(TAKE_PTR(values[1]));
	assert_int_equal(store_joined_values("\"a\"", 2, values), -EBADMSG);
	assert_int_equal(store_joined_values("\"a\",", 2, values), -EBADMSG);
}

/* ---- in a store ---- */

static const struct store_joined joined[] = {
	{"pod_ns", NULL}, {"k8s.label.tier", "app_service"}, {"process_id", NULL}};

/* "app|it's|10:170 ": the values of a row or a group, and a number. */
static void put(struct buf *b, const char *value, int64_t n)
{
	char *values[ARRAY_SIZE(joined)];

	assert_non_null(value);
	assert_int_equal(store_joined_values(value, ARRAY_SIZE(joined), values), 0);
	for (size_t i = 0; i < ARRAY_SIZE(joined); i++) {
		buf_printf(b, "%s%s", i ? "|" : "", values[i] ?: "-");
		free(values[i]);
	}
	buf_printf(b, ":%" PRId64 " ", n);
}

static int put_row(const struct store_row *row, void *arg)
{
	put(arg, row->group, row->value);
	return 0;
}

static int put_choice(const struct store_choice *c, const char *value, uint64_t n, void *arg)
{
	(void)c;
	put(arg, value, (int64_t)n);
	return 0;
}

static void a_store_groups_by_several_tags(void **state)
{
	_cleanup_free_ char *name = name_of(joined, ARRAY_SIZE(joined));
	struct store *s = *state;
	struct selection sel = {.event = EVENT_ON_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 10,
				.with_total = true,
				.group_by = name};
	const struct series_request series = {&sel, 100, name, 10};
	const struct store_choice choice = {name, &sel, 10};
	_cleanup_buf_ struct buf rows = {0}, groups = {0}, choices = {0};
	struct store_summary summary;
	struct store_series got;
	struct field_error e;

	write_batch(s, two_services(), 3);
	assert_int_equal(store_read(s, &store_scope_all, &sel, put_row, &rows, &summary, &e), 0);
	store_summary_done(&summary);
	assert_string_equal(rows.data, "-|Total|0:1000 app|it's \"web\"; --|10:150 data|db|11:70 "
				       "app|it's \"web\"; --|10:20 ");
	assert_int_equal(store_series(s, &store_scope_all, &series, &got, &e), 0);
	for (size_t i = 0; i < got.n_groups; i++)
		put(&groups, got.groups[i].value, got.groups[i].values[0]);
	store_series_done(&got);
	assert_string_equal(groups.data,
			    "-|Total|0:1000 app|it's \"web\"; --|10:170 data|db|11:70 ");
	assert_int_equal(store_choices(s, &store_scope_all, &choice, 1, put_choice, &choices, &e),
			 0);
	assert_string_equal(choices.data, "-|Total|0:100 app|it's \"web\"; --|10:17 data|db|11:7 ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_have_their_tags),
		cmocka_unit_test(marks_in_names_are_none),
		cmocka_unit_test(values_are_lists),
		IN_MEMORY(a_store_groups_by_several_tags),
	};

	return cmocka_run_group_tests_name("hub/store/joint", tests, NULL, NULL);
}
