// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * oncpu: takes a sample at a tick of the CPU clock. While any process is selected, its programs run
 * in the timer interrupt of every CPU that is not idle.
 */
#include "capture.h"

static __always_inline void pf_sample(struct bpf_perf_event_data *ctx, struct task_struct *task,
				      uint64_t cgroup_id, const struct pf_filter *f,
				      const struct pf_settings *set)
{
	uint32_t tgid = pf_tgid_seen(task);
	uint64_t start = pf_start_of(task);
	uint64_t seed = pf_hash_start(start, task->tgid);
	bool user = pf_context_is_user(&ctx->regs), compat = false;
	uint32_t generation = set->generation;
	struct pf_scratch *s;

	if (!tgid) {
		pf_drop(PF_EVENT_ON_CPU, PF_DROP_NO_PID);
		return;
	}
	s = pf_scratch_get(PF_CONTEXT_INTERRUPT, PF_EVENT_ON_CPU);
	if (!s)
		return;
	s->value = f->period_us; /* kept here, because the BPF stack is small */
	s->context_wanted = f->flags & PF_FILTER_CONTEXT;
	s->key = (struct pf_count_key){
		.start_boottime_ns = start,
		.cgroup_id = cgroup_id,
		.tgid = tgid,
		.tid = pf_tid_seen(task),
		.cpu = pf_config.per_cpu ? bpf_get_smp_processor_id() : PF_CPU_ANY,
		.event = PF_EVENT_ON_CPU,
	};
	pf_find_process(s, task, set);
	s->key.names = pf_intern_names(task, &s->key, seed, generation);
	if (user)
		compat = pf_regs_of_context(&s->walk, &ctx->regs);
	if (user || pf_regs_of_task(&s->walk, task, &compat)) {
		s->key.ustack = pf_walk_user(s, task->self_exec_id, pf_hash_add(seed, PF_HASH_TICK),
					     false, compat);
		pf_intern_stack(s, s->key.ustack, generation);
	}
	pf_note_proc(s, task, generation);
	if (!user) {
		s->key.kstack = pf_walk_kernel(s, ctx, PF_HASH_TICK);
		if (s->key.kstack)
			pf_intern_stack(s, s->key.kstack, generation);
	}
	s->key.ctx = pf_intern_context(s, generation);
	if (pf_count(s, s->value, generation))
		PF_STAT(delivered);
	pf_scratch_put(s);
}

/* Runs at a tick at which the task's cgroup must be looked up. */
SEC("perf_event")
int pf_oncpu_ask(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pf_unselected *u = pf_unselected_here();
	const struct pf_settings *set;
	const struct pf_filter *f;
	uint64_t cgroup_id = 0;

	if (!u)
		return 0;
	/* Total counts before the filter, and only if an administrator has switched it on. */
	if (pf_config.total && (set = pf_settings_now()))
		pf_total_add(task, set);

	f = pf_filter_task_by(task, 1 << PF_EVENT_ON_CPU, &cgroup_id, u);
	if (!f) {
		pf_unselected_tick(u);
		return 0;
	}
	if (f->keep != PF_KEEP_ALL && bpf_get_prandom_u32() > f->keep) {
		PF_STAT(thinned);
		return 0;
	}
	set = pf_settings_now();
	if (!set)
		return 0;
	PF_STAT(taken);
	pf_sample(ctx, task, cgroup_id, f, set);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__array(values, int(void *));
} oncpu_next SEC(".maps") = {.values = {(void *)&pf_oncpu_ask}};

/*
 * The program that is attached. It is small and does not contain the other one, because at most
 * ticks of most nodes no selected process runs, and nothing is in the CPU's caches. In one program,
 * each tick would have to fetch the stack of the larger one (per-CPU memory since 6.13) and
 * pf_config into the caches.
 */
SEC("perf_event")
int pf_oncpu(struct bpf_perf_event_data *ctx)
{
	struct pf_unselected *u = pf_unselected_here();
	struct task_struct *task = bpf_get_current_task_btf();

	if (!u)
		return 0;
	if (pf_is_unselected(u, task->cgroups)) {
		pf_unselected_tick(u);
		return 0;
	}
	bpf_tail_call(ctx, &oncpu_next, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
