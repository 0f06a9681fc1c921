/* SPDX-License-Identifier: Apache-2.0 */
/* For tests and the fuzzer: runs the walk of bpf/lua.h as a plain program (testwalk.h). */
#pragma once

#include "node/runtime/testwalk.h"

static inline void host_begin(void)
{
	memset(&host, 0, sizeof(host));
	/* needed with pf_config.sees_mappings: native frames become frames of a file */
	host.walk.mm = 1;
	host.walk.mapping.tag = PF_TAG_FIRST;
}

/*
 * Lets the walk meet a frame of the loop, as in pf_step(): code at `address` with rsp frame_sp,
 * which returns to `back` with rsp sp. Returns how many frames the walk added.
 */
static inline uint32_t host_loop(const struct pf_lua *d, uint64_t address, uint64_t frame_sp,
				 uint64_t back, uint64_t sp)
{
	struct pf_walk *w = &host.walk;
	uint32_t before = w->n_frames + 1;

	pf_push_native(&host, address);
	w->frame_sp = frame_sp;
	w->sp = sp;
	w->ip = back;
	w->first = true;
	for (unsigned turns = 0; turns < PF_STEPS; turns++) {
		if (pf_lua_frame(&host, d, &w->runtimes[0]))
			break;
		w->first = false;
	}
	return w->n_frames - before;
}
