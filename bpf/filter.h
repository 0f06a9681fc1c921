/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * filter: decides whether a task or cgroup is selected. Every program calls pf_filter_task or
 * pf_filter_cgroup first; nothing else decides. For a task that is not selected, the decision costs
 * one hash look-up, or two with the process list. At a tick it usually costs none.
 */
#pragma once

#include "maps.h"

/* Returns the id of the css_set's cgroup in the hierarchy that the agent chose. */
static __always_inline uint64_t pf_cgroup_of_set(struct css_set *set)
{
	struct cgroup_subsys_state **css;

	if (!pf_config.have_hierarchy)
		return 0;
	if (pf_config.v2)
		return set->dfl_cgrp->kn->id;
	/* For the verifier, the index is a constant, because the read-only data is frozen. */
	css = (void *)set + bpf_core_field_offset(set->subsys) +
	      pf_config.subsys_index * sizeof(void *);
	return (*css)->cgroup->kn->id;
}

/*
 * Returns a thread's PID as the agent sees it: the number in the agent's PID namespace; 0: not
 * visible there.
 */
static __always_inline uint32_t pf_pid_seen(struct task_struct *task)
{
	struct pid *pid = PF_POINTER(task, thread_pid);
	struct pid_namespace *ns = NULL;
	unsigned int inum = 0, level = 0;
	struct upid *at;
	int nr = 0;

	at = (void *)pid + bpf_core_field_offset(pid->numbers) +
	     pf_config.pid_level * bpf_core_type_size(struct upid);
	if (bpf_core_read(&nr, sizeof(nr), &at->nr))
		return 0;
	if (pf_config.pid_level == 0)
		return nr;
	if (bpf_core_read(&level, sizeof(level), &pid->level) || level < pf_config.pid_level ||
	    bpf_core_read(&ns, sizeof(ns), &at->ns) ||
	    bpf_core_read(&inum, sizeof(inum), &ns->ns.inum) || inum != pf_config.pid_ns_inum)
		return 0;
	return nr;
}

/*
 * Returns the PIDs of a thread and of its process as the agent sees them. If the agent is in the
 * initial namespace, as most agents are, these functions read only the task.
 */
static __always_inline uint32_t pf_tid_seen(struct task_struct *task)
{
	return pf_config.pid_level ? pf_pid_seen(task) : task->pid;
}

static __always_inline uint32_t pf_tgid_seen(struct task_struct *task)
{
	return pf_config.pid_level ? pf_pid_seen(pf_leader(task)) : task->tgid;
}

static __noinline const struct pf_filter *pf_filter_listed(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	uint32_t tgid = pf_tgid_seen(task);
	struct pf_listed *l = bpf_map_lookup_elem(&filter_tgids, &tgid);
	uint64_t start = leader->start_boottime;

	if (!l || start - start % PF_USER_HZ_NS != l->start_boottime_ns)
		return NULL;
	return &l->filter;
}

/*
 * A shorter way for ticks. When a tick comes, nothing is in the CPU's caches, and a hash look-up
 * touches ten cache lines. So each CPU remembers the last css_sets that belonged to no selected
 * cgroup. Most threads of a cgroup share one css_set.
 *
 * The remembered sets are valid while `asked` equals `additions`. `additions` is read before a set
 * is looked up, and raised after every addition to the filter (pf_filter_added; filter.c). A
 * removal from the filter does not make a remembered set wrong. A css_set never changes its cgroup.
 * But its memory may be used again for a css_set of a selected cgroup, when a task is moved to or
 * forked into that cgroup, or moved in another hierarchy. So such a move raises `additions`, too
 * (proc.bpf.c). Three changes do not raise it: a controller is switched on in cgroup v2, a v1
 * cpuset loses its last CPU, or a task is moved on a kernel without the tracepoints of proc.bpf.c.
 * After PF_ASK_AGAIN ticks, a CPU looks up all sets again, so their effect ends.
 *
 * Only ticks write `asked`, `next` and `sets`, and a tick does not interrupt another one.
 */
#define PF_ASK_AGAIN 256 /* ticks of a CPU */

static __always_inline struct pf_unselected *pf_unselected_here(void)
{
	uint32_t cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&unselected, &cpu);
}

static __always_inline bool pf_is_unselected(struct pf_unselected *u, struct css_set *set)
{
	uint64_t address = (uint64_t)set;

	return u->asked == *(volatile uint64_t *)&u->additions &&
	       (u->sets[0] == address || u->sets[1] == address || u->sets[2] == address ||
		u->sets[3] == address);
}

/* Counts a tick at which no selected process ran. */
static __always_inline void pf_unselected_tick(struct pf_unselected *u)
{
	if (++u->ticks % PF_ASK_AGAIN == 0)
		u->asked = u->additions - 1;
}

/* Remembers a css_set that was looked up while `additions` was the given number. */
static __always_inline void pf_unselected_note(struct pf_unselected *u, struct css_set *set,
					       uint64_t additions)
{
	uint64_t place = u->next++ % PF_UNSELECTED_SETS;

	if (u->asked != additions)
		for (int i = 0; i < PF_UNSELECTED_SETS; i++)
			u->sets[i] = 0;
	u->asked = additions;
	u->sets[place] = (uint64_t)set;
}

static long pf_filter_raise(void *map, const uint32_t *cpu, struct pf_unselected *u, void *ctx)
{
	__sync_fetch_and_add(&u->additions, 1);
	return 0;
}

/* To be called after every addition to filter_cgroups. */
static __always_inline void pf_filter_added(void)
{
	bpf_for_each_map_elem(&unselected, pf_filter_raise, NULL, 0);
}

/*
 * Returns the filter that selects the task for an event of the mask, and its cgroup in
 * *ret_cgroup_id. NULL: the task is not selected. u: at a tick, the css_sets that this CPU
 * remembers as not selected; else NULL.
 */
static __always_inline const struct pf_filter *pf_filter_task_by(struct task_struct *task,
								 uint32_t event_mask,
								 uint64_t *ret_cgroup_id,
								 struct pf_unselected *u)
{
	const struct pf_filter *f = NULL;
	struct css_set *set = task->cgroups;
	uint64_t id = 0, additions = 0;

	if (pf_config.use_cgroups) {
		if (u)
			additions = *(volatile uint64_t *)&u->additions;
		id = pf_cgroup_of_set(set);
		f = bpf_map_lookup_elem(&filter_cgroups, &id);
		*ret_cgroup_id = id;
		if (f && !(f->flags & PF_FILTER_LISTED))
			return f->event_mask & event_mask ? f : NULL;
		/*
		 * With the process list or Total, each tick needs a look-up anyway, so no set is
		 * remembered.
		 */
		if (!f && u && !pf_config.use_list && !pf_config.total)
			pf_unselected_note(u, set, additions);
	}
	if (!pf_config.use_list)
		return NULL;
	f = pf_filter_listed(task);
	if (!f || !(f->event_mask & event_mask))
		return NULL;
	if (!pf_config.use_cgroups)
		*ret_cgroup_id = pf_cgroup_of_set(set);
	return f;
}

static __always_inline const struct pf_filter *
pf_filter_task(struct task_struct *task, uint32_t event_mask, uint64_t *ret_cgroup_id)
{
	return pf_filter_task_by(task, event_mask, ret_cgroup_id, NULL);
}

/* Returns the filter entry of a cgroup; NULL: the cgroup is not selected. */
static __always_inline const struct pf_filter *pf_filter_cgroup(uint64_t id)
{
	return bpf_map_lookup_elem(&filter_cgroups, &id);
}
