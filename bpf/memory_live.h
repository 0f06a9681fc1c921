/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * memory_live: sampled memory that is in use, by address. An entry stays from the return of the
 * allocating call until the memory is freed. The includer defines PF_LIVE, the map of struct
 * pf_live, and PF_LIVE_EVENT.
 */
#pragma once

#include "capture.h"
#include "shares.h"

struct pf_shares pf_live_shares; /* of PF_LIVE */

/* The next two functions are not static, so the verifier checks each once, not at each call. */

__noinline int pf_live_may_add(uint32_t share)
{
	return pf_share_may_add(&pf_live_shares, share, PF_LIVE_MAX, 1 << PF_LIVE_EVENT);
}

__noinline int pf_live_holds(uint32_t share, int32_t more)
{
	pf_share_holds(&pf_live_shares, share, more);
	return 0;
}

static __always_inline struct pf_live_key pf_live_key_of(struct task_struct *task, uint64_t address)
{
	return (struct pf_live_key){
		.start_boottime_ns = pf_start_of(task),
		.tgid_root = task->tgid,
		.exec_id = task->self_exec_id,
		.address = address,
	};
}

/* Removes an entry; *ret_was, if not NULL, gets it. Returns whether there was one. */
static __noinline bool pf_live_remove(uint64_t address, struct pf_live *ret_was)
{
	struct pf_live_key key = pf_live_key_of(bpf_get_current_task_btf(), address);
	struct pf_live *l = bpf_map_lookup_elem(&PF_LIVE, &key);
	uint32_t share;

	if (!l)
		return false;
	if (ret_was)
		*ret_was = *l;
	share = l->key.share;
	if (bpf_map_delete_elem(&PF_LIVE, &key))
		return false;
	pf_live_holds(share, -1);
	return true;
}

/*
 * Adds an entry. If the address has an entry already, no probe saw the call that freed that memory:
 * the old entry is replaced.
 */
static __noinline void pf_live_add(const struct pf_live *l, uint64_t address)
{
	struct pf_live_key key = pf_live_key_of(bpf_get_current_task_btf(), address);

	if (!l)
		return;
	pf_live_remove(address, NULL);
	if (!pf_live_may_add(l->key.share) || bpf_map_update_elem(&PF_LIVE, &key, l, BPF_ANY)) {
		pf_drop(PF_LIVE_EVENT, PF_DROP_LIVE_EVICTED);
		return;
	}
	pf_live_holds(l->key.share, 1);
	PF_STAT(delivered);
}

/*
 * Puts an entry back that pf_live_remove() has removed. If the address has an entry again, that one
 * is of newer memory, and stays.
 */
static __noinline void pf_live_put_back(const struct pf_live *l, uint64_t address)
{
	struct pf_live_key key = pf_live_key_of(bpf_get_current_task_btf(), address);
	int err;

	if (!l)
		return;
	err = bpf_map_update_elem(&PF_LIVE, &key, l, BPF_NOEXIST);
	if (!err)
		pf_live_holds(l->key.share, 1);
	else if (err != -EEXIST)
		pf_drop(PF_LIVE_EVENT, PF_DROP_LIVE_EVICTED);
}

static __always_inline bool pf_live_has(struct task_struct *task, uint64_t address)
{
	struct pf_live_key key = pf_live_key_of(task, address);

	return address && bpf_map_lookup_elem(&PF_LIVE, &key);
}
