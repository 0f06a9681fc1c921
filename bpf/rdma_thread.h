/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rdma_thread: what a thread is doing: the call that it has entered, and the requests that it gives
 * to extended queue pairs. This is task storage, which the kernel frees with the thread.
 */
#pragma once

#include "rdma_verbs.h"

/* The requests between ibv_wr_start and ibv_wr_complete. */
struct pf_rdma_batch {
	uint64_t queue; /* 0: none */
	uint64_t bytes[_PF_RDMA_OPERATION_MAX];
	uint32_t operation; /* of the last request */
	uint32_t pad;
};
#define PF_RDMA_BATCHES_MAX 4 /* of one thread: queue pairs that it fills at once */

struct pf_rdma_thread {
	uint64_t attached_ns; /* pf_mem_proc.attached_ns; if they differ, the rest is not valid */
	/*
	 * The call. A call inside another one replaces it: it has the same requests or the same
	 * memory, and only one of the two must count. A call that never returns is replaced, too.
	 */
	uint64_t sp; /* at the entry; 0: no call */
	struct pf_site site;
	uint64_t queue, list, bad; /* arguments */
	struct pf_count_key key;   /* its sample, without ctx */
	uint64_t bytes[_PF_RDMA_OPERATION_MAX];
	uint64_t ctx[_PF_RDMA_OPERATION_MAX]; /* pf_count_key.ctx of each operation */
	struct pf_rdma_batch batches[PF_RDMA_BATCHES_MAX];
	struct pf_rdma_hit last; /* of a function of an extended queue pair */
	/* The state of rdma_list.h while it reads a list: bpf_loop() must not change the stack. */
	struct {
		uint64_t next, stop; /* requests */
		uint64_t at, sum;    /* the next piece of memory, and the bytes of those before */
		uint32_t n;	     /* pieces of memory left */
		uint32_t operation;
		uint32_t end; /* enum pf_rdma_end */
		uint32_t pad;
	} read;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pf_rdma_thread);
} rdma_threads SEC(".maps");

/*
 * Returns what the thread is doing since its process was last attached. While the process is not
 * attached, the programs see neither the ends of calls nor those of batches, so older state is
 * cleared. NULL: make is false and the thread has done nothing, or the kernel has no memory.
 */
static __always_inline struct pf_rdma_thread *pf_rdma_thread(const struct pf_mem_proc *proc,
							     bool make)
{
	struct pf_rdma_thread *t =
		bpf_task_storage_get(&rdma_threads, bpf_get_current_task_btf(), NULL,
				     make ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);

	if (!t || t->attached_ns == proc->attached_ns)
		return t;
	t->attached_ns = proc->attached_ns;
	t->sp = 0;
	t->last.is_first = false;
	for (int i = 0; i < PF_RDMA_BATCHES_MAX; i++)
		t->batches[i].queue = 0;
	return t;
}

static __always_inline void pf_rdma_clear(uint64_t bytes[_PF_RDMA_OPERATION_MAX])
{
	for (int i = 0; i < _PF_RDMA_OPERATION_MAX; i++)
		bytes[i] = 0;
}

static __always_inline uint64_t pf_rdma_total(const uint64_t bytes[_PF_RDMA_OPERATION_MAX])
{
	uint64_t total = 0;

	for (int i = 0; i < _PF_RDMA_OPERATION_MAX; i++)
		total += bytes[i];
	return total;
}

/* No call posts PF_MEM_SIZE_MAX bytes or more, so the sum of a call that says so ends there. */
static __always_inline void pf_rdma_add(uint64_t bytes[_PF_RDMA_OPERATION_MAX], uint32_t operation,
					uint64_t more)
{
	uint64_t sum;

	if (operation >= _PF_RDMA_OPERATION_MAX)
		return;
	sum = bytes[operation] + more;
	bytes[operation] = sum < PF_MEM_SIZE_MAX ? sum : PF_MEM_SIZE_MAX;
}
