/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unseen: whether a process gets memory that the probes of its allocators do not see. By this
 * mem-alloc and mem-inuse check themselves, on the node and in `podflame record`: docs/memory.md.
 */
#pragma once

#include "node/proc/proc.h"

struct unseen {
	bool begun;
	bool excused;		 /* the probes have seen much, which may not be in use yet */
	struct proc_memory base; /* memory at the moment that growth is counted from, */
	uint64_t base_seen;	 /* and what the probes had seen until then */
	uint64_t told_bytes;	 /* the growth that was told last; 0: none was */
};
/*
 * seen_bytes: what the probes have seen since they were attached. each_bytes: what one sample
 * stands for, at most. Returns whether there is more to tell than before.
 */
bool learn_unseen(struct unseen *u, const struct proc_memory *now, uint64_t seen_bytes,
		 uint64_t each_bytes);
/* Probes were attached anew: growth counts from the next look. What was told stays. */
void learn_unseen_begin_anew(struct unseen *u);
/* What was told, as text for the user; a new string. NULL: nothing was. */
char *learn_unseen_text(const struct unseen *u);
