/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: the one timer that is set, without a loop or time. The test fires it. Include it
 * once per program.
 */
#pragma once

#include "lib/loop/loop.h"

static struct {
	bool armed;
	uint64_t delay_ns;
	timer_fn *fn;
	void *arg;
} timer;

void timer_set(struct loop *l, struct timer *t, uint64_t delay_ns, timer_fn *fn, void *arg)
{
	(void)l;
	(void)t;
	timer.armed = true;
	timer.delay_ns = delay_ns;
	timer.fn = fn;
	timer.arg = arg;
}

void timer_cancel(struct timer *t)
{
	(void)t;
	timer.armed = false;
}

static inline void timer_fire(void)
{
	assert_true(timer.armed);
	timer.armed = false;
	timer.fn(timer.arg);
}
