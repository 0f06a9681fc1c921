/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: CUPTI from the subscription to the removal. It runs while a profiler is attached to the
 * probe `launch` or `work`. One thread calls all functions.
 */
#pragma once

#include <stdint.h>

/* Starts, flushes or stops CUPTI, as the semaphores say, and tells the status. */
void session_step(uint64_t now_ns);
/* How many sessions have begun. */
uint32_t session_number(void);

/* The process exits: tells the work that has ended. */
void session_at_exit(void);
