/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * filter: who is selected. The first statement of every program is a call of
 * pf_filter_task or pf_filter_cgroup; nothing else decides. A miss costs one
 * hash look-up, two with the process list on.
 */
#pragma once

#include "maps.h"

/* The cgroup in the hierarchy that the agent chose. */
static __always_inline uint64_t pf_cgroup_of(struct task_struct *task)
{
	struct css_set *set = task->cgroups;
	struct cgroup_subsys_state **css;

	if (!pf_config.have_hierarchy)
		return 0;
	if (pf_config.v2)
		return set->dfl_cgrp->kn->id;
	/* The index is known to the verifier: a constant of the frozen read-only data. */
	css = (void *)set + bpf_core_field_offset(set->subsys) +
	      pf_config.subsys_index * sizeof(void *);
	return (*css)->cgroup->kn->id;
}

/* A thread's PID as the agent sees it: its own namespace's level of the number list; 0 if not visible there. */
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

static __noinline const struct pf_filter *pf_filter_listed(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	uint32_t tgid = pf_config.pid_level ? pf_pid_seen(leader) : leader->tgid;
	struct pf_listed *l = bpf_map_lookup_elem(&filter_tgids, &tgid);
	uint64_t start = leader->start_boottime;

	if (!l || start - start % PF_USER_HZ_NS != l->start_boottime_ns)
		return NULL;
	return &l->filter;
}

/* NULL: not selected. *ret_cgroup_id is set when it is. */
static __always_inline const struct pf_filter *
pf_filter_task(struct task_struct *task, uint32_t event_mask, uint64_t *ret_cgroup_id)
{
	const struct pf_filter *f = NULL;
	uint64_t id = 0;

	if (pf_config.use_cgroups) {
		id = pf_cgroup_of(task);
		f = bpf_map_lookup_elem(&filter_cgroups, &id);
		*ret_cgroup_id = id;
		if (f && !(f->flags & PF_FILTER_LISTED))
			return f->event_mask & event_mask ? f : NULL;
	}
	if (!pf_config.use_list)
		return NULL;
	f = pf_filter_listed(task);
	if (!f || !(f->event_mask & event_mask))
		return NULL;
	if (!pf_config.use_cgroups)
		*ret_cgroup_id = pf_cgroup_of(task);
	return f;
}

/* For programs about a cgroup instead of a task. */
static __always_inline const struct pf_filter *pf_filter_cgroup(uint64_t id)
{
	return bpf_map_lookup_elem(&filter_cgroups, &id);
}
