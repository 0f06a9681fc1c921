// SPDX-License-Identifier: Apache-2.0
/*
 * rdma_latency: the event rdma-latency: how long the requests that selected processes post to RDMA
 * devices are under way. It is a set of its own, because it also probes the functions that poll,
 * which programs call in loops.
 */
#include "node/probe/sets.h"

#include "rdma_latency.skel.h"

_Static_assert((int)EVENT_RDMA_LATENCY == (int)PF_EVENT_RDMA_LATENCY, "abi");

/* ---- the probe set ---- */

static int latency_open(struct probe_set_state *s, const struct pf_config *config)
{
	struct rdma_latency_bpf *o = rdma_latency_bpf__open();

	if (!o)
		return -errno;
	o->rodata->pf_config = *config;
	s->object = (struct set_object){
		.bpf = o,
		.skeleton = o->skeleton,
		.obj = o->obj,
		.of_many = {[PROGRAM_RETURN] = o->progs.pf_latency_return,
			    [PROGRAM_SESSION] = o->progs.pf_latency_session,
			    [PROGRAM_ENTRY] = o->progs.pf_latency_entry},
		.of_one = {[PROGRAM_RETURN] = o->progs.pf_latency_1_return,
			   [PROGRAM_ENTRY] = o->progs.pf_latency_1_entry},
		.procs = o->maps.latency_procs,
		.functions = o->maps.rdma_functions,
	};
	return 0;
}

static void latency_destroy(struct probe_set_state *s)
{
	rdma_latency_bpf__destroy(s->object.bpf);
}

static enum site_probed latency_probed(const struct pf_site *s, unsigned event_mask)
{
	(void)event_mask;
	switch (s->kind) {
	case PF_SITE_RDMA_OPEN:
	case PF_SITE_RDMA_EXTEND:
		return PROBED_AT_BOTH;
	}
	return PROBED_AT_ENTRY;
}

const struct set_ops probes_rdma_latency_set = {
	.need_returns = 1u << EVENT_RDMA_LATENCY,
	.has_entries = true,
	.twice_is_once = true,
	.forget = probes_rdma_forget,
	.open = latency_open,
	.destroy = latency_destroy,
	.probed = latency_probed,
};

/* ---- the event ---- */

const struct probe_ops probes_rdma_latency_ops = {
	PROBES_SET_EVENT,
};
