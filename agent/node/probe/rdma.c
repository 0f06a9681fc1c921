// SPDX-License-Identifier: Apache-2.0
/* rdma: the event rdma: how many bytes selected processes post to RDMA devices. */
#include "node/probe/sets.h"

#include "rdma.skel.h"

_Static_assert((int)EVENT_RDMA == (int)PF_EVENT_RDMA, "abi");

/* ---- the probe set ---- */

static int rdma_open(struct probe_set_state *s, const struct pf_config *config)
{
	struct rdma_bpf *o = rdma_bpf__open();

	if (!o)
		return -errno;
	o->rodata->pf_config = *config;
	s->object = (struct set_object){
		.bpf = o,
		.skeleton = o->skeleton,
		.obj = o->obj,
		.of_many = {[PROGRAM_RETURN] = o->progs.pf_rdma_return,
			    [PROGRAM_SESSION] = o->progs.pf_rdma_session,
			    [PROGRAM_ENTRY] = o->progs.pf_rdma_entry},
		.of_one = {[PROGRAM_RETURN] = o->progs.pf_rdma_1_return,
			   [PROGRAM_ENTRY] = o->progs.pf_rdma_1_entry},
		.procs = o->maps.rdma_procs,
		.functions = o->maps.rdma_functions,
	};
	s->shares.of[SHARED_FUNCTIONS] = &o->bss->pf_function_shares;
	return 0;
}

static void rdma_destroy(struct probe_set_state *s)
{
	s->shares = (struct shared_tables){};
	rdma_bpf__destroy(s->object.bpf);
}

static enum site_probed rdma_probed(const struct pf_site *s, unsigned event_mask)
{
	(void)event_mask;
	switch (s->kind) {
	case PF_SITE_RDMA_CONTEXT:
	case PF_SITE_RDMA_OBJECT:
	case PF_SITE_RDMA_USED:
	case PF_SITE_RDMA_MODIFY:
	case PF_SITE_RDMA_DESTROY:
	case PF_SITE_RDMA_START:
	case PF_SITE_RDMA_ABORT:
	case PF_SITE_RDMA_REQUEST:
	case PF_SITE_RDMA_DATA:
	case PF_SITE_RDMA_SGES:
	case PF_SITE_RDMA_BUFFERS:
		return PROBED_AT_ENTRY;
	case PF_SITE_RDMA_POLL:
		return PROBED_NOT;
	}
	return PROBED_AT_BOTH;
}

static void functions_remove(struct probe_set_state *s, const struct pf_process_key *key)
{
	int map = bpf_map__fd(s->object.functions);
	struct pf_rdma_functions f;

	if (!bpf_map_lookup_elem(map, key, &f) && !bpf_map_delete_elem(map, key))
		probes_share_less(s->shares.of[SHARED_FUNCTIONS], f.share);
}

void probes_rdma_forget(struct probe_set_state *s)
{
	int map = bpf_map__fd(s->object.functions);
	struct pf_process_key at, key, *from = NULL;

	while (!bpf_map_get_next_key(map, from, &key)) {
		bool ended =
			proc_check((struct process_id){key.start_boottime_ns, key.tgid}) == -ESRCH;

		if (ended) {
			functions_remove(s, &key);
			continue;
		}
		at = key;
		from = &at;
	}
}

const struct set_ops probes_rdma_set = {
	.need_returns = 1u << EVENT_RDMA,
	.has_entries = true,
	.twice_is_once = true,
	.forget = probes_rdma_forget,
	.open = rdma_open,
	.destroy = rdma_destroy,
	.probed = rdma_probed,
};

int probes_rdma_functions(struct probes *p, enum probe_set set, struct process_id id,
			  uint32_t exec_id, struct pf_rdma_functions *ret)
{
	const struct probe_set_state *s = probes_set_loaded(p, set);
	const struct bpf_map *map = s ? s->object.functions : NULL;
	struct pf_process_key key = {id.start_boottime_ns, (uint32_t)id.tgid, 0};
	struct pf_rdma_functions f;
	int r = map ? bpf_map_lookup_elem(bpf_map__fd(map), &key, &f) : -ENOENT;

	if (r || f.exec_id != exec_id)
		return r ? r : -ENOENT;
	/*
	 * A function without an address is just being written by a program. The result ends before
	 * it, so the caller finds it as a new one next time.
	 */
	for (uint32_t i = 0; i < MIN(f.n, (uint32_t)PF_RDMA_FUNCTIONS_MAX); i++)
		if (!f.items[i].address)
			f.n = i;
	*ret = f;
	return 0;
}

/* ---- the event ---- */

const struct probe_ops probes_rdma_ops = {
	PROBES_SET_EVENT,
	.shares = probes_set_shares,
};
