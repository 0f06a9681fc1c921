// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * rdma_latency: the programs of uprobes for rdma-latency: how long a request is under way, from its
 * post until the program takes its completion.
 */
#include "capture.h"

#define PF_COUNTED_EVENT PF_EVENT_RDMA_LATENCY
#define PF_LIVE_EVENT	 PF_EVENT_RDMA_LATENCY /* the set has no other event */
#define PF_PROCS	 latency_procs

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_MEM_PROCS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_process_key);
	__type(value, struct pf_mem_proc);
} latency_procs SEC(".maps");

#include "memory_site.h"
#include "memory_task.h"
#include "rdma_functions.h"

static __always_inline bool pf_latency_enter(struct pt_regs *ctx)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_site site = pf_site_of(ctx);
	struct pf_mem_who who = pf_mem_who_is(1 << PF_EVENT_RDMA_LATENCY, 1 + PF_SITE_MORE(site));

	if (!who.proc || !set || PF_CONTEXT_REG(ctx, cs) != PF_USER_CS_64)
		return false;
	if (site.kind <= PF_SITE_RDMA_USED)
		pf_rdma_learn(PF_CONTEXT_REG(ctx, rdi), site.kind, who.cgroup_id, set->generation,
			      who.proc->n_functions);
	return site.kind == PF_SITE_RDMA_OPEN || site.kind == PF_SITE_RDMA_EXTEND;
}

static __always_inline void pf_latency_leave(struct pt_regs *ctx)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_mem_who who = pf_mem_who_is(1 << PF_EVENT_RDMA_LATENCY, 1);
	struct pf_site site = pf_site_of(ctx);

	if (who.proc && set)
		pf_rdma_learn(PF_CONTEXT_REG(ctx, rax), site.kind, who.cgroup_id, set->generation,
			      who.proc->n_functions);
}

/* ---- programs ---- */

PF_UPROBE_SESSION(pf_latency_session, pf_latency_enter, pf_latency_leave)
PF_UPROBE(pf_latency_entry, pf_latency_enter)
PF_UPROBE(pf_latency_return, pf_latency_leave)
PF_UPROBE(pf_latency_1_entry, pf_latency_enter)
PF_UPROBE(pf_latency_1_return, pf_latency_leave)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
