/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rdma_list: adds up the bytes of a list of requests, or of a list of pieces of memory. The lists
 * are in the process's memory, so they may lie, have no end, or change.
 */
#pragma once

#include "rdma_thread.h"

struct pf_rdma_sge {
	uint64_t address;
	uint32_t length, lkey;
};
struct pf_rdma_buffer { /* struct ibv_data_buf */
	uint64_t address, length;
};

/* Counts a list that was not read to its end. */
static __always_inline void pf_rdma_tell_end(uint32_t end)
{
	if (end == PF_RDMA_GOES_ON)
		pf_drop(PF_EVENT_RDMA, PF_DROP_RDMA_LONG);
	if (end == PF_RDMA_UNREADABLE)
		pf_drop(PF_EVENT_RDMA, PF_DROP_RDMA_UNREAD);
}

/* Returns a size that the process has stated, or 0 if no memory can be so large. */
static __always_inline uint64_t pf_rdma_bytes(uint64_t size)
{
	return size < PF_MEM_SIZE_MAX ? size : 0;
}

/* ---- a list of requests ---- */

struct pf_rdma_loop {
	struct pf_rdma_thread *t;
};

/* Returns PF_RDMA_GOES_ON if the list has another request, or why it ends here. */
static __always_inline uint32_t pf_rdma_has_next(const struct pf_rdma_thread *t)
{
	if (!t->read.next)
		return PF_RDMA_ENDED;
	return t->read.next == t->read.stop ? PF_RDMA_STOPPED : PF_RDMA_GOES_ON;
}

/* Goes on to the next request. Returns PF_RDMA_GOES_ON, or why the list ends here. */
static __always_inline uint32_t pf_rdma_next(struct pf_rdma_thread *t)
{
	bool receives = t->site.kind != PF_SITE_RDMA_POST_SEND;
	uint32_t end = pf_rdma_has_next(t);
	struct pf_rdma_request r = {};

	if (end != PF_RDMA_GOES_ON)
		return end;
	if (!pf_read(&r, PF_RDMA_OPCODE, t->read.next))
		return PF_RDMA_UNREADABLE;
	if (!receives && !pf_read(&r.opcode, sizeof(r.opcode), t->read.next + PF_RDMA_OPCODE))
		return PF_RDMA_UNREADABLE;
	t->read.next = r.next;
	t->read.at = r.sg_list;
	t->read.n = r.num_sge > 0 ? r.num_sge : 0;
	t->read.operation = receives ? PF_RDMA_RECEIVE : pf_rdma_operation_of(r.opcode);
	if (!receives && (r.opcode == PF_RDMA_LOCAL_INV || r.opcode == PF_RDMA_BIND_MW))
		t->read.n = 0;
	return PF_RDMA_GOES_ON;
}

/* Adds the next piece of memory of the request. */
static __always_inline uint32_t pf_rdma_piece(struct pf_rdma_thread *t)
{
	struct pf_rdma_sge sge;

	if (!pf_read(&sge, sizeof(sge), t->read.at))
		return PF_RDMA_UNREADABLE;
	t->read.at += sizeof(sge);
	t->read.n--;
	pf_rdma_add(t->bytes, t->read.operation, sge.length);
	return PF_RDMA_GOES_ON;
}

static long pf_rdma_step(uint32_t i, struct pf_rdma_loop *loop)
{
	struct pf_rdma_thread *t = loop->t;

	t->read.end = t->read.n ? pf_rdma_piece(t) : pf_rdma_next(t);
	return t->read.end != PF_RDMA_GOES_ON;
}

/*
 * Sets t->bytes to what the requests of the call's list ask for, up to the request `stop`; 0: all.
 * Returns why the reading of the list ended: enum pf_rdma_end.
 */
static __noinline uint32_t pf_rdma_sum(struct pf_rdma_thread *t, uint64_t stop)
{
	struct pf_rdma_loop loop = {t};

	if (!t)
		return PF_RDMA_UNREADABLE;
	pf_rdma_clear(t->bytes);
	t->read.next = t->list;
	t->read.stop = stop;
	t->read.n = 0;
	t->read.end = PF_RDMA_GOES_ON;
	bpf_loop(PF_RDMA_STEPS_MAX, pf_rdma_step, &loop, 0);
	if (t->read.end == PF_RDMA_GOES_ON && !t->read.n)
		t->read.end = pf_rdma_has_next(t);
	return t->read.end;
}

/* ---- pieces of memory of one request, in an array ---- */

static long pf_rdma_array_step(uint32_t i, struct pf_rdma_loop *loop)
{
	struct pf_rdma_thread *t = loop->t;
	bool buffers = t->read.operation;
	struct pf_rdma_buffer b;
	struct pf_rdma_sge sge;

	if (!t->read.n) {
		t->read.end = PF_RDMA_ENDED;
		return 1;
	}
	if (!pf_read(&b, sizeof(b), t->read.at)) {
		t->read.end = PF_RDMA_UNREADABLE;
		return 1;
	}
	__builtin_memcpy(&sge, &b, sizeof(sge));
	t->read.at += sizeof(b);
	t->read.n--;
	t->read.sum += buffers ? pf_rdma_bytes(b.length) : sge.length;
	return 0;
}

/* Returns the bytes of an array of struct ibv_sge, or of struct ibv_data_buf. */
static __noinline uint64_t pf_rdma_sum_array(struct pf_rdma_thread *t, uint64_t at, uint64_t n,
					     bool buffers)
{
	struct pf_rdma_loop loop = {t};

	if (!t)
		return 0;
	t->read.at = at;
	t->read.n = n <= PF_RDMA_STEPS_MAX ? n : PF_RDMA_STEPS_MAX + 1;
	t->read.sum = 0;
	t->read.operation = buffers;
	t->read.end = PF_RDMA_GOES_ON;
	bpf_loop(PF_RDMA_STEPS_MAX, pf_rdma_array_step, &loop, 0);
	if (!t->read.n)
		t->read.end = PF_RDMA_ENDED;
	pf_rdma_tell_end(t->read.end);
	return t->read.sum;
}
