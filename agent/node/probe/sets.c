/* SPDX-License-Identifier: Apache-2.0 */
/* The table of probe sets: see probe.h. */
#include "node/probe/probe.h"

static const struct probe_set_info sets[_PROBES_SET_MAX] = {
	[PROBES_MEMORY] = {"memory", EVENT_MEM_ALLOC, EVENT_MEM_INUSE},
	[PROBES_GPU_MEMORY] = {"gpu_memory", EVENT_HBM_ALLOC, EVENT_HBM_INUSE},
};

const struct probe_set_info *probes_set_info(enum probe_set s)
{
	return &sets[s];
}

unsigned probes_set_events(enum probe_set s)
{
	return 1u << sets[s].counted | 1u << sets[s].live;
}

enum probe_set probes_set_of(enum event e)
{
	for (enum probe_set s = 0; s < _PROBES_SET_MAX; s++)
		if (probes_set_events(s) & 1u << e)
			return s;
	return _PROBES_SET_MAX;
}
