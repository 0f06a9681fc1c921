/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the data about a JVM's code cache that the agent gives to the kernel's part. */
#include "node/runtime/jvm/jvm.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#define HEAP_AT 0x7f0000000000ull
#define PAGE	4096u

/* Every second page of the heap is mapped. No JVM does that, but a hostile process may. */
static struct mapping items[RUNTIME_RANGES_MAX + 1];
static struct mappings maps = {.items = items};
static struct elf_index *indexes[RUNTIME_RANGES_MAX + 1];

static void learn_ranges(size_t n, struct runtime_learnt *ret)
{
	struct runtime_look look = {.maps = &maps, .indexes = indexes};
	struct pf_jvm d = {.heaps[1] = {HEAP_AT, HEAP_AT + 2 * PAGE * (n - 1) + 16, 0, 6, 0}};

	*ret = (struct runtime_learnt){0};
	maps.n = n;
	runtime_jvm_ranges(&look, &d, ret);
	assert_int_equal(
		runtime_ranges_fit(&look, RUNTIME_RANGES_MAX, &ret->ranges, &ret->n_ranges), 0);
}

static void more_areas_than_are_told_are_told_of(void **state)
{
	struct counter *cut =
		counter("podflame_runtime_learn_failures_total", "reason", "over_limit");
	const struct runtime_range *last;
	struct runtime_learnt l;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		items[i] = (struct mapping){.start = HEAP_AT + 2 * PAGE * i,
					    .end = HEAP_AT + 2 * PAGE * i + PAGE,
					    .path = (char *)""};
	learn_ranges(RUNTIME_RANGES_MAX, &l);
	assert_int_equal(l.n_ranges, RUNTIME_RANGES_MAX);
	last = &l.ranges[RUNTIME_RANGES_MAX - 1];
	assert_true(last->start == items[RUNTIME_RANGES_MAX - 1].start);
	assert_int_equal(last->end - last->start, 16); /* up to the end of the heap */
	assert_true(last->managed);
	assert_string_equal(l.problem, "");
	assert_int_equal(counter_get(cut), 0);
	free(l.ranges);

	learn_ranges(RUNTIME_RANGES_MAX + 1, &l);
	assert_int_equal(l.n_ranges, RUNTIME_RANGES_MAX);
	assert_string_equal(l.problem, "it has more areas of generated code than podflame keeps");
	assert_int_equal(counter_get(cut), 1);
	free(l.ranges);
}

/*
 * A hostile process must not claim that a library is generated code: then the claim would hold for
 * all processes that map the library.
 */
static void a_file_is_no_area_of_generated_code(void **state)
{
	struct runtime_learnt l;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		items[i] = (struct mapping){.start = HEAP_AT + 2 * PAGE * i,
					    .end = HEAP_AT + 2 * PAGE * i + PAGE,
					    .path = (char *)""};
	indexes[1] = (struct elf_index *)&items; /* any value, because nothing reads it */
	learn_ranges(3, &l);
	indexes[1] = NULL;
	assert_int_equal(l.n_ranges, 2);
	assert_true(l.ranges[0].start == items[0].start && l.ranges[1].start == items[2].start);
	free(l.ranges);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(more_areas_than_are_told_are_told_of),
		cmocka_unit_test(a_file_is_no_area_of_generated_code),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
