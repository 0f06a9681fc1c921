/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of heat maps, read back as JSON. */
#include "hub/pyroscope/heatmap.h"
#include "hub/pyroscope/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* The slots of one series. The caller owns them. */
static json_t *slots_of(const struct pyroscope_heat *h, const struct pyroscope_point *points,
			size_t n)
{
	_cleanup_buf_ struct buf proto = {0}, text = {0};
	_cleanup_json_ json_t *answer = NULL;
	struct pyroscope_writer w;
	struct field_error e = {0};

	pyroscope_write(&w, &pyroscope_select_heatmap_response, &proto);
	pyroscope_put_begin(&w, "series");
	pyroscope_put_heat(&w, h, points, n);
	pyroscope_put_end(&w);
	assert_int_equal(pyroscope_to_json(&pyroscope_select_heatmap_response, proto.data,
					   proto.len, &text, &e),
			 0);
	answer = json_loads(text.data, 0, NULL);
	return json_incref(
		json_object_get(json_array_get(json_object_get(answer, "series"), 0), "slots"));
}

/* A slot as "TIME: COUNT from VALUE, ..." of its rows that have a count. */
static char *text_of(const json_t *slot)
{
	const json_t *counts = json_object_get(slot, "counts"),
		     *rows = json_object_get(slot, "yMin");
	struct buf b = {0};
	const char *before = ": ";

	assert_int_equal(json_array_size(counts), PYROSCOPE_HEAT_ROWS);
	assert_int_equal(json_array_size(rows), PYROSCOPE_HEAT_ROWS);
	buf_puts(&b, json_string_value(json_object_get(slot, "timestamp")));
	for (size_t i = 0; i < PYROSCOPE_HEAT_ROWS; i++) {
		json_int_t n = json_integer_value(json_array_get(counts, i));

		if (!n)
			continue;
		buf_printf(&b, "%s%d from %g", before, (int)n,
			   json_number_value(json_array_get(rows, i)));
		before = ", ";
	}
	return buf_steal(&b);
}

static void check(const struct pyroscope_heat *range, const struct pyroscope_point *points,
		  size_t n, const char *const *want, size_t n_want)
{
	struct pyroscope_heat h = *range;
	_cleanup_json_ json_t *slots = NULL;

	pyroscope_heat_widen(&h, points, n);
	slots = slots_of(&h, points, n);
	assert_int_equal(json_array_size(slots), n_want);
	for (size_t i = 0; i < n_want; i++) {
		_cleanup_free_ char *text = text_of(json_array_get(slots, i));

		assert_string_equal(text, want[i]);
	}
}

static const struct pyroscope_heat range = {
	.start_ms = 1000, .end_ms = 4500, .step_ms = 1000, PYROSCOPE_HEAT_EMPTY};

static void test_slots_have_what_ended_up_to_them(void **state)
{
	static const struct pyroscope_point points[] = {{500, 0},     {1000, 100}, {1001, 100},
							{2000, 49},   {2000, 50},  {2000, 54},
							{4001, 1000}, {4500, 999}};

	(void)state;
	check(&range, points, ARRAY_SIZE(points),
	      (const char *const[]){"1000: 1 from 0, 1 from 100",
				    "2000: 1 from 0, 2 from 50, 1 from 100", "4000: 2 from 950"},
	      3);
}

static void test_one_value(void **state)
{
	static const struct pyroscope_point points[] = {{2000, 7}, {2000, 7}};

	(void)state;
	check(&range, points, ARRAY_SIZE(points), (const char *const[]){"2000: 2 from 7"}, 1);
}

static void test_nothing(void **state)
{
	(void)state;
	check(&range, NULL, 0, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots_have_what_ended_up_to_them),
		cmocka_unit_test(test_one_value),
		cmocka_unit_test(test_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
