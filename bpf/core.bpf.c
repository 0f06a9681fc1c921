// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * core: has the shared maps, and two programs that the agent runs on itself. One finds the agent's
 * PID namespace and its depth, which /proc does not show from inside. The other finds what is
 * mapped at an address.
 */
#include "capture.h"

SEC("raw_tp")
int pf_whoami(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pid_namespace *ns = NULL;
	struct pf_self me = {};
	struct upid *at = pf_own_upid(task, &me.pid_level);
	uint32_t zero = 0;

	if (bpf_core_read(&ns, sizeof(ns), &at->ns))
		return 1;
	if (bpf_core_read(&me.pid_ns_inum, sizeof(me.pid_ns_inum), &ns->ns.inum))
		return 1;
	bpf_map_update_elem(&self, &zero, &me, BPF_ANY);
	return 0;
}

/* Map `looked`: an address of the agent, and what BPF finds mapped there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_vma);
} looked SEC(".maps");

/*
 * Finds what is mapped at looked.address. The agent runs this program on itself. For a file that
 * the agent has mapped, the result has the tag that a walk sees in any process. stat() cannot give
 * the tag: it may describe another layer (overlayfs), or another device (btrfs).
 */
SEC("raw_tp")
int pf_look_self(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint32_t zero = 0;
	struct pf_vma *l = bpf_map_lookup_elem(&looked, &zero);

	if (!l)
		return PF_VMA_NOTHING;
	l->mm = (uint64_t)PF_POINTER(task, mm);
	return pf_find_vma(l);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
