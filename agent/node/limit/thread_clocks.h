/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_clocks: the CPU time of a process to the microsecond, over a short time. A process's own
 * clock moves with the scheduler's ticks while its threads run (kernel/sched/cputime.c,
 * thread_group_cputime), which is too coarse for a span. Any thread.
 */
#pragma once

#include "lib/base/base.h"

struct limit_clocks {
	int *fds;
	size_t n;
};
/*
 * Measures the threads that exist now and those that they start later. A thread is missed if it
 * starts, or if the thread that starts it ends, during the call. Returns a negative errno and opens
 * nothing if it fails.
 */
int limit_clocks_open(uint32_t tgid, struct limit_clocks *ret);
/* CPU time since limit_clocks_open(). */
uint64_t limit_clocks_ns(const struct limit_clocks *c);
void limit_clocks_close(struct limit_clocks *c);
