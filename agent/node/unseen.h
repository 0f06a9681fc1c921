/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unseen: whether a process gets memory that the probes of its allocators do not see: the check of mem-alloc and
 * mem-inuse on themselves, which the node and `podflame record` share. docs/memory.md.
 */
#pragma once

#include "node/proc/proc.h"

struct unseen {
	bool begun;
	bool excused;		 /* the probes have seen much, which may not be in use yet */
	struct proc_memory base; /* what is compared with: of one moment, */
	uint64_t base_seen;	 /* and what the probes had seen until then */
	uint64_t told_bytes;	 /* 0: nothing is to be told */
};
/*
 * seen_bytes: what the probes have seen since they were attached. each_bytes: what one sample stands for, at most. Returns
 * whether there is more to tell than before.
 */
bool unseen_look(struct unseen *u, const struct proc_memory *now, uint64_t seen_bytes,
		 uint64_t each_bytes);
/* Probes were attached anew: what is compared with is of the next look. What was told stays. */
void unseen_begin_anew(struct unseen *u);
/* For its user; a new string. NULL: all is seen, as far as is known. */
char *unseen_text(const struct unseen *u);
