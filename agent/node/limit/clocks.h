/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_clocks: CPU time of a process to the microsecond, over a short time. A process's own clock moves with
 * the scheduler's ticks while its threads run (kernel/sched/cputime.c, thread_group_cputime): too coarse for a span.
 */
#pragma once

#include "lib/base/base.h"

struct limit_clocks {
	int *fds;
	size_t n;
};
/*
 * Of the threads that are there now, and of those that they start later; an error leaves none. Missing is who starts, or
 * is started by somebody who ends, within the call.
 */
int limit_clocks_open(uint32_t tgid, struct limit_clocks *ret);
/* Since they were opened. */
uint64_t limit_clocks_ns(const struct limit_clocks *c);
void limit_clocks_close(struct limit_clocks *c);
