/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a test and of the process that it records. The test calls steps_open() first. */
#pragma once

#include "lib/base/base.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BEGIN, DONE };		 /* indexes in steps[] */
static volatile uint64_t *steps; /* shared by both processes; 0: not reached yet */

static inline void steps_open(void)
{
	steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(steps != MAP_FAILED);
}

static inline void say(int what)
{
	__atomic_store_n(&steps[what], 1, __ATOMIC_RELEASE);
}

static inline void wait_for(int what)
{
	uint64_t deadline_ns = now_mono_ns() + 300 * NSEC_PER_SEC;

	while (!__atomic_load_n(&steps[what], __ATOMIC_ACQUIRE)) {
		if (now_mono_ns() > deadline_ns)
			fail_msg("nothing was said for five minutes");
		usleep(1000);
	}
}

/* The end of what a recorded process does: it lives on. */
static inline void stay(void)
{
	say(DONE);
	for (;;)
		pause();
}
