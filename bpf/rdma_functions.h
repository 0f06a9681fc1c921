/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rdma_functions: learns the functions of providers. ibv_post_send and others are inline: they call
 * a pointer in the queue pair or in its context. So no symbol names these functions. The programs
 * read the pointers when a function of libibverbs gets such an object. The includer defines
 * PF_COUNTED_EVENT, the event of its probe set.
 */
#pragma once

#include "capture.h"
#include "memory_task.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_MEM_PROCS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_process_key);
	__type(value, struct pf_rdma_functions);
} rdma_functions SEC(".maps");
struct pf_shares pf_function_shares; /* of rdma_functions */

/*
 * A value of zeros, which nothing changes: the first value of a process in rdma_functions. It is
 * too big for the BPF stack.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_rdma_functions);
} rdma_no_functions SEC(".maps");

/* Returns the functions of the task's program. NULL: there is no room for its process. */
static __noinline struct pf_rdma_functions *pf_rdma_functions(struct task_struct *task)
{
	struct pf_process_key key = {};
	struct pf_rdma_functions *f, *none;
	uint32_t zero = 0, share;
	int err = -1; /* no memory */

	key.start_boottime_ns = pf_start_of(task);
	key.tgid = pf_tgid_seen(task);
	f = bpf_map_lookup_elem(&rdma_functions, &key);
	if (f && f->exec_id == task->self_exec_id)
		return f;
	share = f ? f->share : pf_mem_share();
	if (!f &&
	    !pf_share_may_add(&pf_function_shares, share, PF_MEM_PROCS_MAX, 1 << PF_COUNTED_EVENT))
		return NULL;
	none = bpf_map_lookup_elem(&rdma_no_functions, &zero);
	if (none)
		err = bpf_map_update_elem(&rdma_functions, &key, none, f ? BPF_EXIST : BPF_NOEXIST);
	if (!f && !err)
		pf_share_holds(&pf_function_shares, share, 1);
	f = bpf_map_lookup_elem(&rdma_functions, &key);
	if (f) {
		f->exec_id = task->self_exec_id;
		f->share = share;
	}
	return f;
}

/* Adds a function, unless it is known. If two threads add it at once, it may be there twice. */
PF_ONCE int pf_rdma_function_add(struct pf_rdma_functions *f, uint64_t address, uint32_t slot)
{
	uint32_t n;

	if (!f || !address)
		return 0;
	for (uint32_t i = 0; i < PF_RDMA_FUNCTIONS_MAX; i++) {
		if (i >= f->n)
			break;
		if (f->items[i].address == address && f->items[i].slot == slot)
			return 0;
	}
	if (f->n > PF_RDMA_FUNCTIONS_MAX)
		return 0;
	n = __sync_fetch_and_add(&f->n, 1);
	if (n >= PF_RDMA_FUNCTIONS_MAX)
		return 0;
	f->items[n].slot = slot;
	f->items[n].address = address;
	return 0;
}

static __noinline void pf_rdma_ops_add(struct pf_rdma_functions *f, uint64_t context)
{
	uint64_t ops[PF_RDMA_OPS_WORDS];

	if (!pf_read(ops, sizeof(ops), context + PF_RDMA_CONTEXT_SRQ_RECV))
		return;
	pf_rdma_function_add(f, ops[0], PF_RDMA_POST_SRQ_RECV);
	pf_rdma_function_add(f, ops[PF_RDMA_OPS_SEND], PF_RDMA_POST_SEND);
	pf_rdma_function_add(f, ops[PF_RDMA_OPS_SEND + 1], PF_RDMA_POST_RECV);
}

static __always_inline bool pf_rdma_is_pair(uint32_t kind)
{
	return kind == PF_SITE_RDMA_MODIFY || kind == PF_SITE_RDMA_DESTROY ||
	       kind == PF_SITE_RDMA_EXTEND;
}

#define PF_RDMA_NEAR (1 << 20) /* bytes: the functions of a provider are closer to each other */

/*
 * Adds the functions that take completions. If the completion queue of a queue pair is not an
 * extended one, what is read as its start_poll is data of the provider or 0, not a function.
 */
static __noinline void pf_rdma_polls_add(struct pf_rdma_functions *f, uint64_t context,
					 uint64_t object, uint32_t kind)
{
	uint64_t poll, queue, start;

	if (!pf_read(&poll, sizeof(poll), context + PF_RDMA_CONTEXT_POLL))
		return;
	pf_rdma_function_add(f, poll, PF_RDMA_POLL_CQ);
	if (pf_rdma_is_pair(kind) && pf_read(&queue, sizeof(queue), object + PF_RDMA_QP_SEND_CQ) &&
	    pf_read(&start, sizeof(start), queue + PF_RDMA_CQ_EX_START_POLL) &&
	    start - poll + PF_RDMA_NEAR < 2 * PF_RDMA_NEAR)
		pf_rdma_function_add(f, start, PF_RDMA_START_POLL);
}

static __noinline void pf_rdma_wr_add(struct pf_rdma_functions *f, uint64_t queue)
{
	uint64_t wr[PF_RDMA_SLOTS_OF_QP];

	if (!pf_read(wr, sizeof(wr), queue + PF_RDMA_QP_EX_WR))
		return;
	for (uint32_t i = 0; i < PF_RDMA_SLOTS_OF_QP; i++)
		pf_rdma_function_add(f, wr[i], PF_RDMA_WR_ATOMIC_CMP_SWP + i);
}

/*
 * Returns whether the process may have posted by functions that are not probed, or may do so now:
 * it uses a queue while more functions are known than are probed, or a device whose functions no
 * earlier call has shown. n_before: the number of functions that were known before this call.
 */
static __always_inline bool pf_rdma_may_be_late(uint32_t kind, uint32_t n_before, uint32_t n,
						uint32_t n_probed)
{
	switch (kind) {
	case PF_SITE_RDMA_OPEN: /* the device, or the queue pair, has just been made */
	case PF_SITE_RDMA_EXTEND:
		return false;
	case PF_SITE_RDMA_USED:
	case PF_SITE_RDMA_MODIFY:
	case PF_SITE_RDMA_DESTROY:
		return n > n_probed;
	}
	return n > n_before;
}

/*
 * Learns the functions of a context, or of the context of an object. queue: also those of an
 * extended queue pair. Reports new ones to user space; a report that did not fit is sent again at
 * the next call. If requests may be unseen, that counts as a loss. Returns whether all known
 * functions are probed.
 */
static __noinline bool pf_rdma_learn(uint64_t at, uint32_t kind, uint64_t cgroup_id,
				     uint32_t generation, uint32_t n_probed)
{
	struct task_struct *task = bpf_get_current_task_btf();
	bool is_context = kind == PF_SITE_RDMA_CONTEXT || kind == PF_SITE_RDMA_OPEN;
	struct pf_rdma_functions *f;
	uint64_t context = at;
	uint32_t n, n_before;

	if (!at || (!is_context && !pf_read(&context, sizeof(context), at)))
		return false;
	f = pf_rdma_functions(task);
	if (!f)
		return false;
	n_before = f->n;
	pf_rdma_ops_add(f, context);
	if (PF_COUNTED_EVENT == PF_EVENT_RDMA_LATENCY)
		pf_rdma_polls_add(f, context, at, kind);
	if (kind == PF_SITE_RDMA_EXTEND)
		pf_rdma_wr_add(f, at);
	n = f->n;
	if (n != f->told && pf_send_proc(task, PF_PROC_FUNCTIONS, false, cgroup_id, generation))
		f->told = n;
	if (n != f->late && pf_rdma_may_be_late(kind, n_before, n, n_probed)) {
		f->late = n;
		pf_drop(PF_COUNTED_EVENT, PF_DROP_RDMA_LATE);
	}
	return n <= n_probed;
}
