/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unseen_memory: decides whether a process gets memory that the probes of its allocators do not
 * see. In this way mem-alloc and mem-inuse check themselves, on the node and in `podflame record`.
 * See docs/memory.md.
 */
#pragma once

#include "node/proc/proc.h"

struct unseen {
	bool begun;
	/*
	 * the probes have seen the allocation of much memory, and the process may not use all of it
	 * yet
	 */
	bool excused;
	/* the memory of the process at the base, which is the moment from which growth counts */
	struct proc_memory base;
	uint64_t base_seen;	 /* the bytes that the probes had seen at the base */
	uint64_t told_bytes;	 /* the growth that was reported last; 0: none */
};
/*
 * Checks the growth since the base. seen_bytes: the bytes that the probes have seen since they were
 * attached. each_bytes: the largest number of bytes for which one sample stands. Returns true if
 * there is something new to report.
 */
bool learn_unseen(struct unseen *u, const struct proc_memory *now, uint64_t seen_bytes,
		 uint64_t each_bytes);
/*
 * To be called after new probes were attached. The next call of learn_unseen() sets a new base.
 * What was reported before still counts as reported.
 */
void learn_unseen_begin_anew(struct unseen *u);
/*
 * Returns what was reported, as text for the user: a new string, or NULL if nothing was reported.
 */
char *learn_unseen_text(const struct unseen *u);
