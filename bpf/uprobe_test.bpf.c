// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * uprobe_test: only for tests; no released binary has it. Takes a stack at each hit of a function's
 * first instruction, through the same maps as the ticks of oncpu, which may run at the same time.
 * Each sample has its process as a label.
 */
#include "labels.h"

#define PF_EVENT_TEST 15

static __always_inline void pf_hit(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pf_settings *set = pf_settings_now();
	uint64_t cgroup_id = 0, seed;
	struct pf_scratch *s;

	if (!pf_filter_task(task, 1 << PF_EVENT_ON_CPU, &cgroup_id) || !set)
		return;
	PF_STAT(taken);
	s = pf_scratch_get(PF_CONTEXT_TASK, PF_EVENT_TEST);
	if (!s)
		return;
	s->key = (struct pf_count_key){
		.start_boottime_ns = pf_start_of(task),
		.cgroup_id = cgroup_id,
		.tgid = pf_tgid_seen(task),
		.cpu = PF_CPU_ANY,
		.event = PF_EVENT_TEST,
	};
	seed = pf_hash_start(s->key.start_boottime_ns, task->tgid);
	pf_find_process(s, task, set);
	pf_regs_of_context(&s->walk, ctx);
	s->key.ustack = pf_walk_user(s, task->self_exec_id, seed, true, false);
	pf_intern_stack(s, s->key.ustack, set->generation);
	pf_labels_begin(s);
	pf_label(s, PF_LABEL_GPU_STREAM, 2);
	pf_label(s, PF_LABEL_GPU_DEVICE, s->key.tgid);
	s->key.ctx = pf_intern_labels(s, true, set->generation);
	if (pf_count(s, 1, set->generation))
		PF_STAT(delivered);
	pf_scratch_put(s);
}

PF_UPROBE(pf_uprobe_test, pf_hit)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
