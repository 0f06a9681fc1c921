/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a loop that does not run. The test fires the timer that is due first. Include
 * this file after cmocka.h.
 */
#pragma once

#include "lib/loop/loop_private.h"

/* Returns the one loop of the program; it belongs to the thread of the first caller. */
static inline struct loop *timer_loop(void)
{
	static struct loop *l;

	if (!l)
		assert_int_equal(loop_new(&l), 0);
	return l;
}

static inline bool timer_armed(void)
{
	uint64_t delay_ns;

	return loop_next_timer(timer_loop(), &delay_ns) != NULL;
}

static inline uint64_t timer_delay_ns(void)
{
	uint64_t delay_ns = 0;

	assert_non_null(loop_next_timer(timer_loop(), &delay_ns));
	return delay_ns;
}

static inline void timer_fire(void)
{
	uint64_t delay_ns;
	struct timer *t = loop_next_timer(timer_loop(), &delay_ns);

	assert_non_null(t);
	timer_cancel(t);
	t->fn(t->arg);
}
