/* SPDX-License-Identifier: Apache-2.0 */
/* alloc_go: a Go program's own heap profile as what a drain brings: stacks and samples. Files worker. */
#pragma once

#include "node/alloc/alloc.h"
#include "node/sample/sample.h"

struct go_process {
	uint32_t tgid, exec_id;
	uint64_t start_boottime_ns, cgroup_id;
	unsigned event_mask; /* 1 << EVENT_MEM_ALLOC, EVENT_MEM_INUSE */
};
/*
 * mem-alloc: what was allocated since the last call; mem-inuse: a snapshot, all its samples with one last_ns, one of
 * n 0 when nothing lives. *ret NULL: nothing to tell. -ESRCH: the process is gone.
 * -E2BIG: more than a limit, *ret is what there is. Others of alloc_go_read.
 */
int learn_go_heap(struct alloc_go_heap *g, const struct go_process *who, struct drain **ret);
