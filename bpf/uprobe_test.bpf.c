// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * uprobe_test: for tests alone, in no product binary: one stack per hit of a function's first
 * instruction, beside the ticks of oncpu, through the same maps.
 */
#include "capture.h"

#define PF_EVENT_TEST 15

SEC("uprobe")
int pf_uprobe_test(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pf_settings *set = pf_settings_now();
	struct pf_count_key key = {.event = PF_EVENT_TEST, .cpu = PF_CPU_ANY};
	struct pf_scratch *s;
	uint64_t seed;

	if (!pf_filter_task(task, 1 << PF_EVENT_ON_CPU, &key.cgroup_id) || !set)
		return 0;
	PF_STAT(taken);
	s = pf_scratch_get(PF_CONTEXT_TASK);
	if (!s)
		return 0;
	key.start_boottime_ns = task->group_leader->start_boottime;
	key.tgid = pf_pid_seen(task->group_leader->thread_pid);
	seed = pf_hash_start(key.start_boottime_ns, task->tgid);
	pf_find_process(&s->walk, task, set);
	pf_regs_of_context(&s->walk, ctx);
	key.ustack = pf_walk_user(s, task->self_exec_id, seed, true, false);
	pf_intern_stack(s, key.ustack, set->generation);
	if (pf_count(&key, 1, set->generation))
		PF_STAT(delivered);
	pf_scratch_put(s);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
