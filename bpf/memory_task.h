/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * memory_task: finds the process that hit a uprobe, and what the samples of the process need. The
 * includer defines PF_COUNTED_EVENT and PF_LIVE_EVENT, the events of its probe set, and PF_PROCS,
 * the map of the processes that are probed for them (struct pf_mem_proc).
 */
#pragma once

#include "capture.h"
#include "usage.h"

/* ---- the task and process of a hit ---- */

struct pf_mem_who {
	struct task_struct *task;
	const struct pf_filter *filter;
	struct pf_mem_proc *proc;
	uint64_t cgroup_id;
	uint32_t events; /* which of the events that the caller asks for are wanted; 0: none */
};

/*
 * Of PF_USAGE_EACH hits of a process, one is added to `usage` and counts for all of them. Which one
 * depends on the golden ratio, so no loop of the program has the same rhythm.
 */
#define PF_USAGE_EACH_BITS 4
#define PF_USAGE_EACH	   (1u << PF_USAGE_EACH_BITS)
#define PF_GOLDEN_RATIO	   0x9e3779b1u

/* Returns how many of the first n hits are added. */
static __always_inline uint32_t pf_mem_added(uint32_t n)
{
	uint32_t group = n >> PF_USAGE_EACH_BITS;

	return group +
	       (n % PF_USAGE_EACH > group * PF_GOLDEN_RATIO >> (32 - PF_USAGE_EACH_BITS));
}

static __noinline void pf_mem_used(uint64_t cgroup_id, uint32_t events, uint32_t n)
{
	struct pf_usage *u = pf_usage_of(
		cgroup_id, events & 1 << PF_COUNTED_EVENT ? PF_COUNTED_EVENT : PF_LIVE_EVENT);

	if (u)
		u->hits += PF_USAGE_EACH * n;
}

/* Returns the task's process, if it is probed. */
static __always_inline struct pf_mem_proc *pf_mem_proc_of(struct task_struct *task)
{
	struct pf_process_key key = {
		.start_boottime_ns = pf_start_of(task),
		.tgid = pf_tgid_seen(task),
		.exec_id = task->self_exec_id,
	};

	return bpf_map_lookup_elem(&PF_PROCS, &key);
}

/* Returns the share of the current process's namespace; 0: the process is not probed any more. */
static __always_inline uint32_t pf_mem_share(void)
{
	const struct pf_mem_proc *proc = pf_mem_proc_of(bpf_get_current_task_btf());

	return proc ? proc->share & (PF_SHARES_MAX - 1) : 0;
}

/*
 * Called first at every hit. hits: the cost of this hit, as a multiple of a hit's cost at a site
 * without PF_SITE_MORE. The cost counts for one of the wanted events: PF_COUNTED_EVENT if it is
 * wanted, else PF_LIVE_EVENT.
 */
static __always_inline struct pf_mem_who pf_mem_who_is(uint32_t events, uint32_t hits)
{
	struct pf_mem_who who = {.task = bpf_get_current_task_btf()};
	struct pf_mem_proc *proc;
	uint32_t number, added;

	who.filter = pf_filter_task(who.task, events, &who.cgroup_id);
	if (!who.filter)
		return who;
	who.proc = proc = pf_mem_proc_of(who.task);
	if (!proc)
		return who;
	who.events = events & who.filter->event_mask & proc->event_mask;
	if (!who.events)
		return who;
	proc->cgroup_id = who.cgroup_id;
	proc->share = who.filter->share;
	/*
	 * Unlike `usage`, `hits` counts each hit: while the agent attaches the probes for a short
	 * trial, there may be few.
	 */
	number = __sync_fetch_and_add(&proc->hits, hits);
	added = pf_mem_added(number + hits) - pf_mem_added(number);
	if (added)
		pf_mem_used(who.cgroup_id, who.events, added);
	return who;
}

/* ---- the costs and the variance of taken allocations ---- */

/*
 * Adds a taken allocation to `usage`. Its part of the variance, (1 - p) * value^2, is value *
 * (value - size), because p = size / value. If one allocation has two chosen bytes
 * (memory_sample.h), this is more than the true variance.
 */
static __noinline void pf_mem_taken(uint64_t cgroup_id, uint32_t event, uint64_t value,
				    uint64_t size)
{
	struct pf_usage *u = pf_usage_of(cgroup_id, event);

	PF_STAT(taken);
	if (!u)
		return;
	u->taken++;
	u->value += value;
	if (value > size)
		u->square += value * (value - size) >> 20;
}

/* ---- before the stack is walked ---- */

/* Sets the part of the key that does not depend on the stack. */
static __always_inline void pf_mem_key_set(struct pf_scratch *s, const struct pf_mem_who *who)
{
	s->key = (struct pf_count_key){
		.start_boottime_ns = pf_start_of(who->task),
		.cgroup_id = who->cgroup_id,
		.tgid = pf_tgid_seen(who->task),
		.tid = pf_tid_seen(who->task),
		.cpu = pf_config.per_cpu ? bpf_get_smp_processor_id() : PF_CPU_ANY,
	};
	s->context_wanted = who->filter->flags & PF_FILTER_CONTEXT;
}

/*
 * Sets what the walk needs, and sends the names of the process. generation: the one in which the
 * allocation is counted; a later one may have begun.
 */
static __noinline void pf_mem_before_walk(struct pf_scratch *s, struct pt_regs *ctx,
					  const struct pf_settings *set, uint32_t generation)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t seed;

	if (!s || !set)
		return;
	seed = pf_hash_start(s->key.start_boottime_ns, task->tgid);
	pf_find_process(s, task, set);
	s->key.names = pf_intern_names(task, &s->key, seed, generation);
	pf_regs_of_context(&s->walk, ctx);
}
