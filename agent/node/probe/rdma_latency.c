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
	s->shares.of[SHARED_FUNCTIONS] = &o->bss->pf_function_shares;
	s->shares.of[SHARED_REQUESTS] = &o->bss->pf_request_shares;
	s->shares.of[SHARED_QUEUES] = &o->bss->pf_queue_shares;
	return 0;
}

static void latency_destroy(struct probe_set_state *s)
{
	s->shares = (struct shared_tables){};
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
	uint32_t share;
};

struct stale_keys {
	struct probe_set_state *set;
	enum shared_table table;
	struct stale_key *items;
	size_t n, cap;
};

static uint32_t share_of(enum shared_table table, const void *value)
{
	const struct pf_rdma_pending *request = value;
	const struct pf_rdma_queue *queue = value;

	return table == SHARED_REQUESTS ? request->share : queue->share;
}

static void add_stale(const void *key, const void *value, void *arg)
{
	const struct pf_rdma_request_key *k = key;
	struct stale_keys *stale = arg;
	struct attached *a;

	HASH_FIND(hh, stale->set->attached, &k->process, sizeof(k->process), a);
	if (a && !a->ended)
		return;
	GROW(stale->items, stale->n, stale->cap);
	stale->items[stale->n++] = (struct stale_key){*k, share_of(stale->table, value)};
}

/* Removes entries of processes that are not attached any more. The caller holds the lock. */
static void remove_stale(struct probe_set_state *s, int map, size_t value_bytes,
			 enum shared_table table)
{
	struct stale_keys stale = {.set = s, .table = table};

	if (probes_map_each(map, sizeof(struct pf_rdma_request_key), value_bytes, false, add_stale,
			    &stale))
		counter_add(counter("podflame_drain_failures_total", NULL, NULL), 1);
	for (size_t i = 0; i < stale.n; i++)
		if (!bpf_map_delete_elem(map, &stale.items[i].key))
			probes_share_less(s->shares.of[table], stale.items[i].share);
	free(stale.items);
}

static void latency_forget(struct probe_set_state *s)
{
	const struct rdma_latency_bpf *o = s->object.bpf;

	probes_rdma_forget(s);
	pthread_mutex_lock(&s->lock);
	remove_stale(s, bpf_map__fd(o->maps.rdma_requests), sizeof(struct pf_rdma_pending),
		     SHARED_REQUESTS);
	remove_stale(s, bpf_map__fd(o->maps.rdma_queues), sizeof(struct pf_rdma_queue),
		     SHARED_QUEUES);
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
};

/* ---- the event ---- */

const struct probe_ops probes_rdma_latency_ops = {
	PROBES_SET_EVENT,
	.shares = probes_set_shares,
};
