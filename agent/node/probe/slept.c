/* SPDX-License-Identifier: Apache-2.0 */
/* slept: how long the machine was suspended: CLOCK_MONOTONIC stands meanwhile, CLOCK_BOOTTIME goes on. */
#include "node/probe/internal.h"

#define SLEPT_NS ((int64_t)(500 * NSEC_PER_MSEC))

/*
 * Who is preempted between two clocks reads them seconds apart: that looks like a sleep. Of the difference only what both
 * orders of reading agree on is told.
 */
uint64_t probes_slept_now(struct slept *s)
{
	uint64_t before_ns = now_mono_ns(), boot_ns = now_boot_ns(), mono_ns = now_mono_ns();
	int64_t ns = s->boot_ns ? (int64_t)(boot_ns - mono_ns) - s->most_ns : 0;

	*s = (struct slept){boot_ns, mono_ns, (int64_t)(boot_ns - before_ns)};
	return ns < SLEPT_NS ? 0 : (uint64_t)ns;
}
