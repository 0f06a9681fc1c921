// SPDX-License-Identifier: Apache-2.0
/* Losses of the same events and reason add up. A move neither counts a loss twice nor omits one. */
#include "lib/profile/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define ON_CPU	(1u << EVENT_ON_CPU)
#define OFF_CPU (1u << EVENT_OFF_CPU)

static uint64_t of(const struct losses *l, unsigned event_mask, const char *reason)
{
	uint64_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		if (l->items[i].event_mask == event_mask && streq(l->items[i].reason, reason))
			n += l->items[i].n;
	return n;
}

static void losses_of_a_kind_add_up(void **state)
{
	struct losses l = {0};

	(void)state;
	profile_losses_add(&l, ON_CPU, "counts_full", 2);
	profile_losses_add(&l, OFF_CPU, "counts_full", 3);
	profile_losses_add(&l, ON_CPU, "counts_full", 4);
	profile_losses_add(&l, ON_CPU, "no_pid", 0);
	assert_int_equal(l.n, 2); /* 0 losses make no row */
	assert_int_equal(of(&l, ON_CPU, "counts_full"), 6);
	assert_int_equal(of(&l, OFF_CPU, "counts_full"), 3);
	assert_int_equal(profile_losses_sum(&l), 9);
	profile_losses_done(&l);
	assert_int_equal(profile_losses_sum(&l), 0);
}

static void lost_samples_are_counted_once(void **state)
{
	struct counter *c = counter("podflame_samples_dropped_total", "reason", "counts_full");
	struct losses l = {0}, into = {0};

	(void)state;
	profile_samples_lost(&l, ON_CPU, "counts_full", 2);
	profile_samples_lost(&l, OFF_CPU, "counts_full", 3);
	profile_losses_move(&into, &l);
	assert_int_equal(counter_get(c), 5);
	assert_int_equal(profile_losses_sum(&into), 5);
	profile_losses_done(&into);
}

static void moved_losses_are_in_one_place(void **state)
{
	struct losses into = {0}, from = {0};

	(void)state;
	profile_losses_add(&into, ON_CPU, "counts_full", 1);
	profile_losses_add(&from, ON_CPU, "counts_full", 2);
	profile_losses_add(&from, OFF_CPU, "waits_full", 3);
	profile_losses_move(&into, &from);
	assert_int_equal(from.n, 0);
	profile_losses_move(&into, &from);
	assert_int_equal(of(&into, ON_CPU, "counts_full"), 3);
	assert_int_equal(of(&into, OFF_CPU, "waits_full"), 3);
	profile_losses_done(&into);
}

static void kinds_beyond_the_limit_are_in_other(void **state)
{
	char reasons[2 * LOSSES_MAX][8];
	struct losses l = {0}, into = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		snprintf(reasons[i], sizeof(reasons[i]), "r%zu", i);
		profile_losses_add(&l, ON_CPU, reasons[i], 10);
	}
	assert_int_equal(l.n, LOSSES_MAX);
	assert_int_equal(of(&l, ON_CPU, "r0"), 10);
	assert_int_equal(of(&l, 0, "other"), 10 * (LOSSES_MAX + 1));
	profile_losses_add(&into, OFF_CPU, "waits_full", 1);
	profile_losses_move(&into, &l); /* the list is full, so this kind counts in the last row */
	assert_int_equal(into.n, LOSSES_MAX);
	assert_int_equal(of(&into, 0, "other"), 10 * (LOSSES_MAX + 2));
	assert_int_equal(profile_losses_sum(&into), 20 * LOSSES_MAX + 1);
	profile_losses_done(&into);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(losses_of_a_kind_add_up),
		cmocka_unit_test(lost_samples_are_counted_once),
		cmocka_unit_test(moved_losses_are_in_one_place),
		cmocka_unit_test(kinds_beyond_the_limit_are_in_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
