/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/reason/reason.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static void every_reason_has_a_row(void **state)
{
	(void)state;
	assert_string_equal(reason_name(REASON_NONE), "");
	for (enum reason r = REASON_NONE + 1; r < _REASON_MAX; r++) {
		const struct reason_info *i = reason_info(r);

		if (!i->name || !i->meaning)
			fail_msg("reason %d has no row", r);
		if (!i->condition == !i->weight && r != REASON_FAILURES_OMITTED)
			fail_msg("%s needs either a weight or the condition that has it", i->name);
		if (i->about_pods && i->weight == WEIGHT_NONE)
			fail_msg("%s is of pods, and no node reports it", i->name);
	}
}

/* The API server allows only such names as the reason of a condition. */
static void names_are_camel_case(void **state)
{
	(void)state;
	for (enum reason r = REASON_NONE + 1; r < _REASON_MAX; r++) {
		const char *name = reason_name(r);
		size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

		assert_in_range(name[0], 'A', 'Z');
		assert_int_equal(n, strlen(name));
		assert_in_range(n, 1, 64); /* messages show at most 64 bytes of a name */
	}
}

/* Also checks that no two reasons have the same name. */
static void a_name_finds_its_reason(void **state)
{
	(void)state;
	for (enum reason r = REASON_NONE + 1; r < _REASON_MAX; r++)
		assert_int_equal(reason_by_name(reason_name(r)), r);
	assert_int_equal(reason_by_name("OfANewerAgent"), REASON_NONE);
	assert_int_equal(reason_by_name("nopodsmatched"), REASON_NONE);
	assert_int_equal(reason_by_name(""), REASON_NONE);
	assert_int_equal(reason_by_name(NULL), REASON_NONE);
}

static void messages_about_pods(void **state)
{
	_cleanup_free_ char *one = reason_about_pods(REASON_CONTAINERS_NOT_RUNNING, 1, "a/p"),
			    *two = reason_about_pods(REASON_TOO_MANY_PODS, 2, "a/p");

	(void)state;
	assert_string_equal(one, "no selected container runs yet in 1 pod (a/p)");
	assert_string_equal(
		two, "beyond the pods of one node that are profiled: 2 pods (for example a/p)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_reason_has_a_row),
		cmocka_unit_test(names_are_camel_case),
		cmocka_unit_test(a_name_finds_its_reason),
		cmocka_unit_test(messages_about_pods),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
