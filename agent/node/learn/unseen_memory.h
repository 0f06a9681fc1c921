/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unseen_memory: decides whether a process gets memory that the probes of its allocators do not
 * see. With this mem-alloc and mem-inuse check themselves, on the node and in `podflame record`.
 * See docs/memory.md.
 */
#pragma once

#include "node/proc/proc.h"

struct unseen {
	bool begun;
	bool excused; /* the probes have seen much memory, part of which may not be in use yet */
	struct proc_memory base; /* memory at the moment from which growth counts */
	uint64_t base_seen;	 /* what the probes had seen at that moment */
	uint64_t told_bytes;	 /* the growth that was reported last; 0: none */
};
/*
 * seen_bytes: what the probes have seen since they were attached. each_bytes: the most that one
 * sample stands for. Returns whether there is more to report than before.
 */
bool learn_unseen(struct unseen *u, const struct proc_memory *now, uint64_t seen_bytes,
		 uint64_t each_bytes);
/*
 * The caller says that it attached probes anew. Growth counts from the next call. What was reported
 * stays.
 */
void learn_unseen_begin_anew(struct unseen *u);
/* What was reported, as text for the user. Returns a new string, or NULL if nothing was. */
char *learn_unseen_text(const struct unseen *u);
