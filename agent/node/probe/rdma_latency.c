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
	s->held = (struct gpu_held){.requests = o->bss->pf_rdma_held_requests,
				    .queues = o->bss->pf_rdma_held_queues};
	return 0;
}

static void latency_destroy(struct probe_set_state *s)
{
	s->held = (struct gpu_held){};
	rdma_latency_bpf__destroy(s->object.bpf);
}

static enum site_probed latency_probed(const struct pf_site *s, unsigned event_mask)
{
	(void)event_mask;
	switch (s->kind) {
	case PF_SITE_RDMA_OPEN:
	case PF_SITE_RDMA_EXTEND:
	case PF_SITE_RDMA_POST_SEND:
	case PF_SITE_RDMA_POLL:
	case PF_SITE_RDMA_COMPLETE:
		return PROBED_AT_BOTH;
	case PF_SITE_RDMA_REGISTER:
	case PF_SITE_RDMA_POST_RECEIVE:
	case PF_SITE_RDMA_POST_SHARED:
	case PF_SITE_RDMA_DATA:
	case PF_SITE_RDMA_SGES:
	case PF_SITE_RDMA_BUFFERS:
		return PROBED_NOT;
	}
	return PROBED_AT_ENTRY;
}

/* ---- requests of processes that are not attached ---- */

struct stale_key {
	struct pf_rdma_request_key key;
	uint32_t slot; /* of its process; 0: the process is not attached */
};

struct stale_keys {
	struct probe_set_state *set;
	struct stale_key *items;
	size_t n, cap;
};

static void add_stale(const void *key, const void *value, void *arg)
{
	const struct pf_rdma_request_key *k = key;
	struct stale_keys *stale = arg;
	struct attached *a;

	(void)value;
	HASH_FIND(hh, stale->set->attached, &k->process, sizeof(k->process), a);
	if (a && !a->ended)
		return;
	GROW(stale->items, stale->n, stale->cap);
	stale->items[stale->n++] = (struct stale_key){*k, a ? a->slot : 0};
}

/*
 * Removes entries of processes that are not attached any more. held: the member of s->held for the
 * map. The caller holds the lock.
 */
static void remove_stale(struct probe_set_state *s, int map, size_t value_bytes, int32_t *held)
{
	struct stale_keys stale = {.set = s};

	if (probes_map_each(map, sizeof(struct pf_rdma_request_key), value_bytes, false, add_stale,
			    &stale))
		counter_add(counter("podflame_drain_failures_total", NULL, NULL), 1);
	for (size_t i = 0; i < stale.n; i++)
		if (!bpf_map_delete_elem(map, &stale.items[i].key))
			probes_share_less(held, stale.items[i].slot);
	free(stale.items);
}

static void latency_forget(struct probe_set_state *s)
{
	const struct rdma_latency_bpf *o = s->object.bpf;

	probes_rdma_forget(s);
	pthread_mutex_lock(&s->lock);
	remove_stale(s, bpf_map__fd(o->maps.rdma_requests), sizeof(struct pf_rdma_pending),
		     s->held.requests);
	remove_stale(s, bpf_map__fd(o->maps.rdma_queues), sizeof(struct pf_rdma_queue),
		     s->held.queues);
	pthread_mutex_unlock(&s->lock);
}

const struct set_ops probes_rdma_latency_set = {
	.need_returns = 1u << EVENT_RDMA_LATENCY,
	.has_entries = true,
	.twice_is_once = true,
	.forget = latency_forget,
	.open = latency_open,
	.destroy = latency_destroy,
	.probed = latency_probed,
	.slot = probes_gpu_slot,
};

/* ---- the event ---- */

const struct probe_ops probes_rdma_latency_ops = {
	PROBES_SET_EVENT,
};
