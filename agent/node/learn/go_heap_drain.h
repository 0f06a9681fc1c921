/* SPDX-License-Identifier: Apache-2.0 */
/*
 * go_heap_drain: turns a Go program's own heap profile into a drain with stacks and samples. Runs
 * on the files worker.
 */
#pragma once

#include "node/alloc/alloc.h"
#include "node/proc/proc.h"
#include "node/sample/sample.h"

struct go_process {
	struct process_id id;
	uint32_t exec_id;
	uint64_t cgroup_id;
	uint64_t charged_ns; /* of struct charged: whose child reads it */
	unsigned event_mask; /* 1 << EVENT_MEM_ALLOC, EVENT_MEM_INUSE */
};
/*
 * Reads the heap profile of a process and makes a drain of it. For mem-alloc the samples are the
 * allocations since the last call. For mem-inuse they are a snapshot: all samples have the same
 * last_ns, and if no memory is in use, there is one sample with n 0. *ret is NULL if there is
 * nothing to report. Returns -ESRCH if the process has ended, -E2BIG if a limit was reached (*ret
 * has the part below the limit), or another error of alloc_go_read(). After the other errors *ret
 * has no samples, but may have losses.
 */
int learn_go_heap(struct alloc_go_heap *g, const struct go_process *who, struct drain **ret);
