/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * memory_pending: calls between entry and return. The includer defines PF_PENDING, the map of
 * struct pf_pending.
 */
#pragma once

#include "memory_live.h"

struct pf_shares pf_pending_shares; /* of PF_PENDING */

/*
 * Keeps a call until it returns. An earlier call with the same key did not return: it is forgotten.
 * Returns false if there is no room. events: 1 << enum pf_event: those that lack the call then
 */
static __always_inline bool pf_pending_put(const struct pf_pending_key *key,
					   const struct pf_pending *p, uint32_t events)
{
	uint32_t share = p->live.key.share;
	bool room = pf_share_has_room(&pf_pending_shares, share, PF_PENDING_MAX);

	if (room && !bpf_map_update_elem(&PF_PENDING, key, p, BPF_NOEXIST)) {
		pf_share_holds(&pf_pending_shares, share, 1);
		return true;
	}
	if (!bpf_map_update_elem(&PF_PENDING, key, p, BPF_EXIST))
		return true;
	if (!room)
		pf_share_refuse(&pf_pending_shares, share, events);
	return false;
}

/* p: the entry of the key; it may be in use by this program only. */
static __always_inline void pf_pending_remove(const struct pf_pending_key *key,
					      const struct pf_pending *p)
{
	uint32_t share = p->live.key.share;

	if (!bpf_map_delete_elem(&PF_PENDING, key))
		pf_share_holds(&pf_pending_shares, share, -1);
}
