// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * core: owns the shared maps, and answers who the agent is: which PID namespace
 * it lives in, at which depth. From inside, /proc does not tell the depth.
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
