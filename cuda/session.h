/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: the use of CUPTI from the subscription to the removal. CUPTI runs while a profiler is
 * attached to the probe `launch` or `work`. One thread calls all functions.
 */
#pragma once

#include <stdint.h>

/* Starts, flushes or stops CUPTI, as the semaphores demand, and reports the status. */
void session_step(uint64_t now_ns);
/* Returns how many sessions have begun. */
uint32_t session_number(void);

/* Called when the process exits: reports the work that has ended, and the status. */
void session_at_exit(void);
