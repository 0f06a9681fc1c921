/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: sets the clocks of this process, for all its threads, but not of its children.
 * Include it once per program.
 */
#pragma once

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/base.h"

static struct {
	_Atomic uint64_t stands_ns; /* not 0: all clocks show this time */
	_Atomic uint64_t later_ns;  /* all clocks are this much ahead of the machine's */
	_Atomic uint64_t asleep_ns; /* how long the machine was suspended, as the clocks show it */
} test_clock;

int clock_gettime(clockid_t id, struct timespec *t)
{
	/* whether this clock goes on while the machine is suspended */
	bool went_on = id == CLOCK_BOOTTIME || id == CLOCK_REALTIME;
	int r = (int)syscall(SYS_clock_gettime, id, t);
	uint64_t ns = (uint64_t)t->tv_sec * NSEC_PER_SEC + (uint64_t)t->tv_nsec;

	ns += test_clock.later_ns + (went_on ? test_clock.asleep_ns : 0);
	ns = test_clock.stands_ns ?: ns;
	*t = (struct timespec){(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
	return r;
}
