/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_clocks: the CPU time that a process uses in a short time, precise to a microsecond. While
 * threads of the process run, the process's own clock changes only at the scheduler's ticks
 * (kernel/sched/cputime.c, thread_group_cputime), which is too rough for a span. Any thread may use
 * this.
 */
#pragma once

#include "lib/base/base.h"

struct limit_clocks {
	int *fds;
	size_t n;
};
/*
 * Starts the measurement of the threads that exist now and of those that they start later. It
 * misses a thread that starts during the call, or whose creator ends during the call. On failure it
 * returns a negative errno and opens nothing.
 */
int limit_clocks_open(uint32_t tgid, struct limit_clocks *ret);
/* Returns the CPU time of the measured threads since limit_clocks_open(). */
uint64_t limit_clocks_ns(const struct limit_clocks *c);
void limit_clocks_close(struct limit_clocks *c);
