/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to record_probed.c and record_probes.c: the uprobes of one recorded process. A site is a
 * place in the process's code to which a probe is attached.
 */
#pragma once

#include "node/learn/sites.h"
#include "node/learn/unseen_memory.h"

struct record_probed {
	struct process_id id;
	uint32_t exec_id;
	struct alloc_sites *sites;
	struct mappings *m; /* the mappings in which `sites` were found */
	struct attached *attached;
	bool again; /* the process was just starting: its sites must be searched for again */
	/*
	 * the library that the process must load before podflame can probe it; the process may load
	 * it at any time. NULL: it lacks none. Kept after the process has ended
	 */
	const char *lacks;
	/*
	 * VmLib of the process when its mappings were last read because of `lacks`; 0: not read yet
	 */
	uint64_t library_bytes;
	/*
	 * CLOCK_MONOTONIC: when the process was first found without anything to probe that it may
	 * load at any time; 0: it is not so
	 */
	uint64_t lacks_ns;
	/* how many functions of RDMA providers were known when `sites` were found */
	uint32_t n_functions;
	uint64_t snapshot_ns;
	uint64_t attached_ns; /* CLOCK_MONOTONIC */
	/*
	 * why the probes miss a part of what the event counts; NULL: they miss nothing. Kept after
	 * the process has ended
	 */
	char *problem;
	/*
	 * on-gpu: why the library in the process did not report its work, now or at an earlier
	 * time; NULL: it did. Kept after the process has ended
	 */
	char *library_problems;
	/*
	 * how much memory the process got that its probes did not see. Kept after the process has
	 * ended
	 */
	struct unseen unseen;
};
/*
 * Sets the sites of the process, which the caller has just found. Takes ownership of s. Returns
 * whether the probes must be attached again.
 */
bool cli_record_probed_sites(struct record_probed *x, enum event event, struct alloc_sites *s,
			   struct mappings *m);
/*
 * on-gpu: notes what keeps the library in the process from its work. What has passed stays noted,
 * because the profile lacks that time. attached_ns: for how long the library has been probed.
 */
void cli_record_probed_library(struct record_probed *x, const struct on_gpu_status *s,
			       uint64_t attached_ns);
/* Notes whether the process may load at any time what the set probes, and since when. */
void cli_record_probed_lacks(struct record_probed *x, enum probe_set set,
			     const struct alloc_sites *s, uint64_t now_ns);
/*
 * Whether the process is likely to load it soon: most programs load their libraries in the first
 * seconds, and use them at once.
 */
bool cli_record_probed_loads_soon(const struct record_probed *x, uint64_t now_ns);
/* Forgets the problems. */
void cli_record_probed_forgive(struct record_probed *x);
/* Forgets the sites of the process. */
void cli_record_probed_reset(struct record_probed *x);
/*
 * Whether the growth of the process's memory can be compared with what its probes saw. This is not
 * possible for Go and Java, which have heaps of their own.
 */
bool cli_record_probed_is_compared(const struct record_probed *x);
/*
 * Returns the library that all processes lack, or NULL if a process lacks none or there are no
 * processes.
 */
const char *cli_record_probes_all_lack(const struct record_probed *probed, size_t n);
/* Prints what the profile lacks. */
void cli_record_probes_print_lack(const struct record_probed *probed, size_t n);
