/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_memory: the events hbm-alloc and hbm-inuse: what selected processes allocate on GPUs, and
 * which of that memory lives.
 */
#include "node/probe/internal.h"

_Static_assert((int)EVENT_HBM_ALLOC == (int)PF_EVENT_HBM_ALLOC, "abi");
_Static_assert((int)EVENT_HBM_INUSE == (int)PF_EVENT_HBM_INUSE, "abi");

static int gpu_memory_load(struct probes *p, struct event_probe *e)
{
	probes_feature_missing(p, (int)(e - p->events), "podflame cannot see GPU memory yet");
	return -EOPNOTSUPP;
}

static void gpu_memory_unload(struct event_probe *e)
{
	(void)e;
}

static unsigned hbm_alloc_rate(const struct probes *p)
{
	return probes_event_is_wanted(p, EVENT_HBM_ALLOC);
}

static unsigned hbm_inuse_rate(const struct probes *p)
{
	return probes_event_is_wanted(p, EVENT_HBM_INUSE);
}

static void gpu_memory_fill(const struct event_probe *e, const struct wanted_events *w,
			    struct pf_filter *f)
{
	(void)e;
	(void)w;
	(void)f;
}

const struct probe_ops probes_hbm_alloc_ops = {
	.load = gpu_memory_load,
	.unload = gpu_memory_unload,
	.rate = hbm_alloc_rate,
	.fill = gpu_memory_fill,
};
const struct probe_ops probes_hbm_inuse_ops = {
	.load = gpu_memory_load,
	.unload = gpu_memory_unload,
	.rate = hbm_inuse_rate,
	.fill = gpu_memory_fill,
};
