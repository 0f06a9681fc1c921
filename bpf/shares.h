/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * shares: how many entries each namespace has in a table that all selected processes fill, and
 * whether it may add one: struct pf_shares of abi.h.
 */
#pragma once

#include "maps.h"

/* Whether a namespace may add an entry. max: max_entries of the table */
static __always_inline bool pf_share_has_room(const struct pf_shares *t, uint32_t share,
					      uint32_t max)
{
	int32_t all = t->held[0], last_quarter = max - max / 4;

	return all < last_quarter || all + t->held[share & (PF_SHARES_MAX - 1)] < (int32_t)max;
}

/* Notes that a namespace was refused an entry. events: 1 << enum pf_event: those that lack it */
static __always_inline void pf_share_refuse(struct pf_shares *t, uint32_t share, uint32_t events)
{
	uint32_t *refused = &t->refused[share & (PF_SHARES_MAX - 1)];

	if (events & ~*refused)
		__sync_fetch_and_or(refused, events);
}

/* As pf_share_has_room(), but notes a refusal. */
static __always_inline bool pf_share_may_add(struct pf_shares *t, uint32_t share, uint32_t max,
					     uint32_t events)
{
	if (pf_share_has_room(t, share, max))
		return true;
	pf_share_refuse(t, share, events);
	return false;
}

/* To be called after `more` entries were added, or -more removed. */
static __always_inline void pf_share_holds(struct pf_shares *t, uint32_t share, int32_t more)
{
	share &= PF_SHARES_MAX - 1;
	__sync_fetch_and_add(&t->held[0], more);
	if (share)
		__sync_fetch_and_add(&t->held[share], more);
}
