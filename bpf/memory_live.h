/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * memory_live: sampled memory that is in use, by address. An entry stays from the return of the
 * allocating call until the memory is freed. The includer defines PF_LIVE, the map of struct
 * pf_live, PF_LIVE_STATS, and PF_LIVE_EVENT. If the map evicts entries when it is full, user space
 * counts the evicted ones. If it does not, the includer defines PF_LIVE_HAS_ROOM(), whether the
 * process may add an entry, and PF_LIVE_HOLDS(n): the process has n more entries.
 */
#pragma once

#include "capture.h"

#ifndef PF_LIVE_HAS_ROOM
#define PF_LIVE_HAS_ROOM() true
#define PF_LIVE_HOLDS(n)
#endif

static __always_inline struct pf_live_key pf_live_key_of(struct task_struct *task, uint64_t address)
{
	return (struct pf_live_key){
		.start_boottime_ns = pf_start_of(task),
		.tgid_root = task->tgid,
		.exec_id = task->self_exec_id,
		.address = address,
	};
}

static __always_inline struct pf_live_stats *pf_live_stats_here(void)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&PF_LIVE_STATS, &zero);
}

/* Removes an entry; *ret_was, if not NULL, gets it. Returns whether there was one. */
static __noinline bool pf_live_remove(uint64_t address, struct pf_live *ret_was)
{
	struct pf_live_key key = pf_live_key_of(bpf_get_current_task_btf(), address);
	struct pf_live_stats *stats = pf_live_stats_here();
	struct pf_live *l = bpf_map_lookup_elem(&PF_LIVE, &key);

	if (!l || !stats)
		return false;
	if (ret_was)
		*ret_was = *l;
	if (bpf_map_delete_elem(&PF_LIVE, &key))
		return false;
	stats->removed++;
	PF_LIVE_HOLDS(-1);
	return true;
}

/*
 * Adds an entry. If the address has an entry already, no probe saw the call that freed that memory:
 * the old entry is replaced.
 */
static __noinline void pf_live_add(const struct pf_live *l, uint64_t address)
{
	struct pf_live_key key = pf_live_key_of(bpf_get_current_task_btf(), address);
	struct pf_live_stats *stats = pf_live_stats_here();

	if (!l || !stats)
		return;
	pf_live_remove(address, NULL);
	if (!PF_LIVE_HAS_ROOM() || bpf_map_update_elem(&PF_LIVE, &key, l, BPF_ANY)) {
		pf_drop(PF_LIVE_EVENT, PF_DROP_LIVE_EVICTED);
		return;
	}
	stats->added++;
	PF_LIVE_HOLDS(1);
	PF_STAT(delivered);
}

/*
 * Puts an entry back that pf_live_remove() has removed. If the address has an entry again, that one
 * is of newer memory, and stays.
 */
static __noinline void pf_live_put_back(const struct pf_live *l, uint64_t address)
{
	struct pf_live_key key = pf_live_key_of(bpf_get_current_task_btf(), address);
	struct pf_live_stats *stats = pf_live_stats_here();
	int err;

	if (!l || !stats)
		return;
	err = bpf_map_update_elem(&PF_LIVE, &key, l, BPF_NOEXIST);
	if (!err) {
		stats->added++;
		PF_LIVE_HOLDS(1);
	} else if (err != -EEXIST) {
		pf_drop(PF_LIVE_EVENT, PF_DROP_LIVE_EVICTED);
	}
}

static __always_inline bool pf_live_has(struct task_struct *task, uint64_t address)
{
	struct pf_live_key key = pf_live_key_of(task, address);

	return address && bpf_map_lookup_elem(&PF_LIVE, &key);
}
