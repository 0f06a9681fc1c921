/* SPDX-License-Identifier: Apache-2.0 */
/* Private to record_probed.c and record_probes.c: the uprobes of one recorded process. */
#pragma once

#include "node/learn/sites.h"
#include "node/learn/unseen_memory.h"

struct record_probed {
	struct process_id id;
	uint32_t exec_id;
	struct alloc_sites *sites;
	struct mappings *m; /* of sites */
	struct attached *attached;
	bool again; /* it was just starting */
	/*
	 * what it lacks so that it can be probed, and may load at any time; NULL: nothing. Kept
	 * after the process has ended
	 */
	const char *lacks;
	/* VmLib before its mappings were last read because it lacks something; 0: not read yet */
	uint64_t library_bytes;
	uint64_t snapshot_ns;
	/* why not all is seen; NULL: all is. Kept after the process has ended */
	char *problem;
	struct unseen unseen; /* whether its memory grew unseen. Kept after the process has ended */
};
/* Its places, found now. Takes s over. Returns whether its probes must be attached anew. */
bool cli_record_probed_sites(struct record_probed *x, enum event event, struct alloc_sites *s,
			   struct mappings *m);
/* Forgets its places. */
void cli_record_probed_reset(struct record_probed *x);
/*
 * Whether the growth of its memory can be compared with what its probes saw. Not for Go and Java,
 * which have heaps of their own.
 */
bool cli_record_probed_is_compared(const struct record_probed *x);
/* What all processes lack; NULL: nothing, or there are none. */
const char *cli_record_probes_all_lack(const struct record_probed *probed, size_t n);
/* Prints which memory the profile lacks. */
void cli_record_probes_print_lack(const struct record_probed *probed, size_t n);
