/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* usage: the entries of map `usage`, of which each namespace has a share. */
#pragma once

#include "filter.h"
#include "shares.h"

/*
 * Adds an entry, and returns it. NULL: the namespace has its share of the map already. A listed
 * process outside of the selected cgroups belongs to no namespace.
 */
static __noinline struct pf_usage *pf_usage_add(const struct pf_usage_key *key)
{
	const struct pf_filter *f = pf_filter_cgroup(key->cgroup_id);
	uint32_t share = f ? f->share & (PF_SHARES_MAX - 1) : 0, zero = 0;
	struct pf_shares *shares = bpf_map_lookup_elem(&usage_shares, &zero);
	struct pf_usage first = {.share = share};

	if (!shares || !pf_share_may_add(shares, share, PF_USAGE_MAX,
					 1u << (key->event & (_PF_EVENT_MAX - 1)))) {
		PF_STAT(usage_full);
		return NULL;
	}
	if (!bpf_map_update_elem(&usage, key, &first, BPF_NOEXIST))
		pf_share_holds(shares, share, 1);
	return bpf_map_lookup_elem(&usage, key);
}

/* Returns the counters for an event of a selected task; NULL: as pf_usage_add(). */
static __noinline struct pf_usage *pf_usage_of(uint64_t cgroup_id, uint32_t event)
{
	struct pf_usage_key key = {.cgroup_id = cgroup_id, .event = event};
	struct pf_usage *u = bpf_map_lookup_elem(&usage, &key);

	return u ? u : pf_usage_add(&key);
}
