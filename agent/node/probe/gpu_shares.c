// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_shares: how many entries each process has in the maps about GPUs and RDMA
 * (bpf/gpu_shares.h). The programs count. This file gives slots to processes.
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
