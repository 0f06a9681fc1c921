// SPDX-License-Identifier: Apache-2.0
/* rdma: the event rdma: how many bytes selected processes post to RDMA devices. */
#include "node/probe/sets.h"

_Static_assert((int)EVENT_RDMA == (int)PF_EVENT_RDMA, "abi");

/* ---- the probe set ---- */

static int rdma_open(struct probe_set_state *s, const struct pf_config *config)
{
	(void)s;
	(void)config;
	return -EOPNOTSUPP;
}

static void rdma_destroy(struct probe_set_state *s)
{
	(void)s;
}

static enum site_probed rdma_probed(const struct pf_site *s, unsigned event_mask)
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

const struct set_ops probes_rdma_set = {
	.call_ns = 600 * NSEC_PER_SEC,
	.open = rdma_open,
	.destroy = rdma_destroy,
	.probed = rdma_probed,
	.live_needs = never,
};

/* ---- the event ---- */

static unsigned rate(const struct probes *p)
{
	return probes_event_is_wanted(p, EVENT_RDMA);
}

/* The event has no settings. */
static void no_fill(const struct event_probe *e, const struct wanted_events *w, struct pf_filter *f)
{
	(void)e;
	(void)w;
	(void)f;
}

const struct probe_ops probes_rdma_ops = {
	.load = probes_set_open,
	.unload = probes_set_unload,
	.rate = rate,
	.fill = no_fill,
	.attach = probes_set_attach,
	.detach = probes_set_detach,
	.check = probes_set_check,
};
