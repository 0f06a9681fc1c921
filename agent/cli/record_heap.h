/* SPDX-License-Identifier: Apache-2.0 */
/* Private to record_heap.c and record_memory.c: the memory of one recorded process. */
#pragma once

#include "node/learn/sites.h"
#include "node/learn/unseen_memory.h"

struct record_heap {
	struct process_id id;
	uint32_t exec_id;
	struct alloc_sites *sites;
	struct mappings *m; /* of sites */
	struct attached *attached;
	bool again; /* it was just starting */
	uint64_t snapshot_ns;
	/* why not all is seen; NULL: all is. Kept after the process has ended */
	char *problem;
	struct unseen unseen; /* whether its memory grew unseen. Kept after the process has ended */
};
/* Its allocators, found now. Takes s over. Returns whether its probes must be attached anew. */
bool cli_record_heap_sites(struct record_heap *h, enum event event, struct alloc_sites *s,
			   struct mappings *m);
/* Forgets its allocators. */
void cli_record_heap_reset(struct record_heap *h);
/*
 * Whether the growth of its memory can be compared with what its probes saw. Not for Go and Java,
 * which have heaps of their own.
 */
bool cli_record_heap_is_compared(const struct record_heap *h);
/* Prints which memory the profile lacks. */
void cli_record_heaps_print_lack(const struct record_heap *heaps, size_t n);
