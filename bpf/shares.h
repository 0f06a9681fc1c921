/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * shares: how many entries each namespace has in a table that all selected processes fill, and
 * whether it may add one: PF_SHARES_MAX of abi.h.
 */
#pragma once

#include "maps.h"

/* held: how many entries of the table each share has; max: max_entries of the table */
static __always_inline bool pf_share_has_room(const int32_t *held, uint32_t share, uint32_t max)
{
	int32_t all = held[0], last_quarter = max - max / 4;

	return all < last_quarter || all + held[share & (PF_SHARES_MAX - 1)] < (int32_t)max;
}

static __always_inline void pf_share_holds(int32_t *held, uint32_t share, int32_t more)
{
	share &= PF_SHARES_MAX - 1;
	__sync_fetch_and_add(&held[0], more);
	if (share)
		__sync_fetch_and_add(&held[share], more);
}

static __always_inline void pf_share_refuse(uint32_t *refused, uint32_t share)
{
	__sync_fetch_and_add(&refused[share & (PF_SHARES_MAX - 1)], 1);
}
