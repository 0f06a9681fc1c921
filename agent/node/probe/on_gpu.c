// SPDX-License-Identifier: Apache-2.0
/* on_gpu: the event on-gpu: how long work ran on GPUs, under the stack that launched it. */
#include "node/probe/sets.h"

_Static_assert((int)EVENT_ON_GPU == (int)PF_EVENT_ON_GPU, "abi");

/* ---- the probe set ---- */

static int on_gpu_open(struct probe_set_state *s, const struct pf_config *config)
{
	(void)s;
	(void)config;
	return -EOPNOTSUPP;
}

static void on_gpu_destroy(struct probe_set_state *s)
{
	(void)s;
}

static enum site_probed on_gpu_probed(const struct pf_site *s, unsigned event_mask)
{
	(void)s;
	(void)event_mask;
	return PROBED_NOT;
}

static bool never(const struct pf_site *s)
{
	(void)s;
	return false;
}

const struct set_ops probes_gpu_set = {
	.call_ns = 600 * NSEC_PER_SEC,
	.open = on_gpu_open,
	.destroy = on_gpu_destroy,
	.probed = on_gpu_probed,
	.live_needs = never,
};

/* ---- the library's status ---- */

int probes_on_gpu_status(struct probes *p, struct process_id id, struct on_gpu_status *ret)
{
	(void)p;
	(void)id;
	(void)ret;
	return -ENOENT;
}

/* ---- the event ---- */

static unsigned rate(const struct probes *p)
{
	return probes_event_is_wanted(p, EVENT_ON_GPU);
}

/* The event has no settings. */
static void no_fill(const struct event_probe *e, const struct wanted_events *w, struct pf_filter *f)
{
	(void)e;
	(void)w;
	(void)f;
}

const struct probe_ops probes_on_gpu_ops = {
	.load = probes_set_open,
	.unload = probes_set_unload,
	.rate = rate,
	.fill = no_fill,
	.attach = probes_set_attach,
	.detach = probes_set_detach,
	.check = probes_set_check,
};
