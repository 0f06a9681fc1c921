/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gpu_shares: how many entries of gpu_objects and gpu_live each process has, and whether it may add
 * one. So a process, for example one with a false driver, cannot fill a table for all others.
 */
#pragma once

#include "memory_task.h"

/* Negative for a moment, if a program and user space count at the same time. */
int32_t pf_gpu_held_objects[PF_GPU_SLOTS], pf_gpu_held_live[PF_GPU_SLOTS];

/* Returns the slot of the current process; 0: it is not probed any more. */
static __always_inline uint32_t pf_gpu_slot(void)
{
	const struct pf_mem_proc *proc = pf_mem_proc_of(bpf_get_current_task_btf());

	return proc ? proc->slot & (PF_GPU_SLOTS - 1) : 0;
}

/*
 * The functions below are not static, so the verifier looks at them once, and not again at each of
 * their calls.
 */

__noinline int pf_gpu_objects_have_room(void)
{
	return pf_gpu_held_objects[0] + pf_gpu_held_objects[pf_gpu_slot() & (PF_GPU_SLOTS - 1)] <
	       PF_GPU_OBJECTS_MAX;
}

__noinline int pf_gpu_live_has_room(void)
{
	return pf_gpu_held_live[0] + pf_gpu_held_live[pf_gpu_slot() & (PF_GPU_SLOTS - 1)] <
	       PF_LIVE_MAX;
}

static __always_inline void pf_gpu_holds(int32_t *held, int32_t more)
{
	uint32_t slot = pf_gpu_slot() & (PF_GPU_SLOTS - 1);

	__sync_fetch_and_add(&held[0], more);
	if (slot)
		__sync_fetch_and_add(&held[slot], more);
}

__noinline int pf_gpu_holds_objects(int32_t more)
{
	pf_gpu_holds(pf_gpu_held_objects, more);
	return 0;
}

__noinline int pf_gpu_holds_live(int32_t more)
{
	pf_gpu_holds(pf_gpu_held_live, more);
	return 0;
}
