/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gpu_shares: how many entries each process has in a map about GPUs or RDMA, and whether it may add
 * one. So a process, for example one with a false driver, cannot fill a map for all others.
 * PF_GPU_SLOTS (gpu_abi.h) describes the maps and their counts.
 */
#pragma once

#include "memory_task.h"
#include "shares.h"

/* Returns the slot of the current process; 0: it is not probed any more. */
static __always_inline uint32_t pf_gpu_slot(void)
{
	const struct pf_mem_proc *proc = pf_mem_proc_of(bpf_get_current_task_btf());

	return proc ? proc->slot & (PF_GPU_SLOTS - 1) : 0;
}

/* held: how many entries of a map each slot has (PF_GPU_SLOTS); max: max_entries of that map */
static __always_inline bool pf_gpu_slot_has_room(const int32_t *held, uint32_t slot, int32_t max)
{
	return held[0] + held[slot & (PF_GPU_SLOTS - 1)] < max;
}

/* The same, for the slot of the current process. */
static __always_inline bool pf_gpu_has_room(const int32_t *held, int32_t max)
{
	return pf_gpu_slot_has_room(held, pf_gpu_slot(), max);
}

static __always_inline void pf_gpu_holds(int32_t *held, int32_t more)
{
	pf_share_holds(held, pf_gpu_slot(), more);
}
