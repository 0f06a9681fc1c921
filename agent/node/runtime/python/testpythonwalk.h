/* SPDX-License-Identifier: Apache-2.0 */
/* For tests and the fuzzer: runs the walk of bpf/python.h as a plain program (testwalk.h). */
#pragma once

#include "node/runtime/testwalk.h"

static unsigned host_turns;

/* Begins a walk of the thread with this thread pointer. */
static inline void host_begin(uint64_t thread_pointer)
{
	memset(&host.walk, 0, sizeof(host.walk));
	host.walk.thread_pointer = thread_pointer;
	/* needed with pf_config.sees_mappings: native frames become frames of a file */
	host.walk.mm = 1;
	host.walk.mapping.tag = PF_TAG_FIRST;
	host_reads = host_turns = 0;
}

/*
 * Lets the walk meet an activation of the loop, as in pf_step(). Returns how many frames the walk
 * added.
 */
static inline uint32_t host_activation(const struct pf_python *d, uint64_t address,
				       uint64_t frame_sp, uint64_t sp)
{
	struct pf_walk *w = &host.walk;
	uint32_t before = w->n_frames + 1;

	pf_push_native(&host, address);
	w->frame_sp = frame_sp;
	w->sp = sp;
	w->first = true;
	for (unsigned turns = 0; turns < PF_STEPS; turns++) {
		if (pf_python_frame(&host, d, &w->runtimes[0]))
			break;
		w->first = false;
		host_turns++;
	}
	return w->n_frames - before;
}
