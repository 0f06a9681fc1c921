// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_shares: how many entries each process has in the maps about GPUs and RDMA
 * (bpf/gpu_shares.h). The programs count too, at the same time. This file gives slots to processes,
 * and subtracts the entries that user space removes.
 */
#include "node/probe/sets.h"

uint32_t probes_gpu_slot(struct probe_set_state *s)
{
	bool used[PF_GPU_SLOTS] = {true}; /* slot 0 is that of all processes together */
	int32_t *const counts[] = {s->held.objects, s->held.live, s->held.launches,
				   s->held.requests, s->held.queues};
	uint32_t slot = 0;

	for (const struct attached *a = s->attached; a; a = a->hh.next)
		used[a->slot] = true;
	while (slot < PF_GPU_SLOTS && used[slot])
		slot++;
	if (slot == PF_GPU_SLOTS)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
		if (counts[i])
			__atomic_store_n(&counts[i][slot], 0, __ATOMIC_RELAXED);
	return slot;
}

void probes_gpu_held_less(int32_t *held, uint32_t slot)
{
	if (!held)
		return;
	__atomic_fetch_sub(&held[0], 1, __ATOMIC_RELAXED);
	if (slot)
		__atomic_fetch_sub(&held[slot], 1, __ATOMIC_RELAXED);
}
