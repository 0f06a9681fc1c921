/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rdma_verbs: what the programs of rdma and of rdma-latency read of the structures of libibverbs,
 * and how they recognize a hit that another link's program has handled.
 */
#pragma once

#include "labels.h"
#include "memory_site.h"

/* The first members of struct ibv_send_wr. struct ibv_recv_wr ends before opcode. */
struct pf_rdma_request {
	uint64_t wr_id, next, sg_list;
	int32_t num_sge;
	uint32_t opcode, send_flags;
};
#define PF_RDMA_OPCODE __builtin_offsetof(struct pf_rdma_request, opcode)

/* Why the reading of a list of requests ended. */
enum pf_rdma_end {
	PF_RDMA_GOES_ON,
	PF_RDMA_ENDED,
	PF_RDMA_STOPPED, /* at the request that was looked for */
	PF_RDMA_UNREADABLE,
};

#define PF_RDMA_LOCAL_INV 7 /* enum ibv_wr_opcode: requests without data */
#define PF_RDMA_BIND_MW	  8

/* Returns the operation of a request; enum ibv_wr_opcode has the numbers. */
static __always_inline uint32_t pf_rdma_operation_of(uint32_t opcode)
{
	switch (opcode) {
	case 0: /* RDMA_WRITE, RDMA_WRITE_WITH_IMM */
	case 1:
		return PF_RDMA_WRITE;
	case 2: /* SEND, SEND_WITH_IMM, SEND_WITH_INV, TSO */
	case 3:
	case 9:
	case 10:
		return PF_RDMA_SEND;
	case 4: /* RDMA_READ */
		return PF_RDMA_READ;
	case 5: /* ATOMIC_CMP_AND_SWP, ATOMIC_FETCH_AND_ADD, ATOMIC_WRITE */
	case 6:
	case 15:
		return PF_RDMA_ATOMIC;
	}
	return PF_RDMA_OTHER;
}

/* Returns the label of the device of a queue or a protection domain; 0: it cannot be read. */
static __noinline uint64_t pf_rdma_device(const struct pf_scratch *s, uint64_t object,
					  uint32_t generation)
{
	uint64_t context, device;

	if (!pf_read(&context, sizeof(context), object) ||
	    !pf_read(&device, sizeof(device), context))
		return 0;
	return pf_intern_text(s, device + PF_RDMA_DEVICE_NAME, generation);
}

/* ---- a hit that two links see ---- */

/* The last hit in a thread, at the entry of a function. */
struct pf_rdma_hit {
	uint64_t ip, sp;
	uint32_t link; /* PF_SITE_LINK of the site */
	bool is_first; /* false: no hit, or another link's program had counted it */
};

/*
 * Returns whether the program of another link has handled this hit. While the agent changes the
 * probes of a process, an old link and a new one may probe the same place. The kernel runs their
 * programs for a hit one directly after the other. So if a loop comes to the place again, the
 * program of the same link runs first, or those of both links have run: this is a new hit. If the
 * whole change takes place between two hits of one place, the second hit is lost.
 */
static __noinline bool pf_rdma_is_again(struct pt_regs *ctx, struct pf_rdma_hit *last)
{
	uint32_t link = pf_site_of(ctx).flags & PF_SITE_LINK;
	uint64_t ip = PF_CONTEXT_REG(ctx, rip), sp = PF_CONTEXT_REG(ctx, rsp);
	bool again;

	if (!last)
		return false;
	again = last->is_first && last->link != link && last->ip == ip && last->sp == sp;
	last->ip = ip;
	last->sp = sp;
	last->link = link;
	last->is_first = !again;
	return again;
}
