/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: CUPTI from the subscription to the removal. It runs while a profiler is attached to the
 * probe `launch` or `work`. The callers hold the lock of inject.c: one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Starts, flushes or stops CUPTI, as the semaphores say, and tells the status. */
void session_step(uint64_t now_ns);
bool session_is_running(void);

/* The process exits: tells the work that has ended. */
void session_at_exit(void);
