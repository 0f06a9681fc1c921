/* SPDX-License-Identifier: Apache-2.0 */
/* probes: the three probes of podflame_cuda.h. A caller asks usdt_wanted(&..._semaphore) first. */
#pragma once

#include "podflame_cuda.h"
#include "usdt.h"

extern uint16_t probe_launch_semaphore, probe_work_semaphore, probe_status_semaphore;

void probe_launch(uint32_t correlation, uint32_t level, uint32_t kind, const char *function,
		  const char *kernel, uint32_t context);
void probe_work(const struct podflame_cuda_work *work, uint32_t n, uint32_t size);
void probe_status(const struct podflame_cuda_status *status, uint32_t size);
