/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspended: how long the machine was suspended. Meanwhile CLOCK_MONOTONIC stands still, and
 * CLOCK_BOOTTIME goes on.
 */
#include "node/probe/internal.h"

#define SLEPT_NS ((int64_t)(500 * NSEC_PER_MSEC))

/*
 * If a thread is preempted between the reads of two clocks, it reads them seconds apart, which
 * looks like a suspension. So CLOCK_MONOTONIC is read before and after CLOCK_BOOTTIME. This gives
 * the least and the most by which CLOCK_BOOTTIME is ahead. The result is the least now minus the
 * most at the last call: the machine was suspended at least that long.
 */
uint64_t probes_slept_now(struct slept *s)
{
	uint64_t before_ns = now_mono_ns(), boot_ns = now_boot_ns(), mono_ns = now_mono_ns();
	int64_t ns = s->boot_ns ? (int64_t)(boot_ns - mono_ns) - s->most_ns : 0;

	*s = (struct slept){boot_ns, mono_ns, (int64_t)(boot_ns - before_ns)};
	return ns < SLEPT_NS ? 0 : (uint64_t)ns;
}
