/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rdma_abi: the part of abi.h for rdma and rdma-latency: the functions of libibverbs and of its
 * providers, which drive the devices. Names, layouts and numbers are those of
 * <infiniband/verbs.h>, rdma-core 44 (x86-64). agent/node/probe/rdma_layout_test.c compares them
 * with the installed header.
 */
#pragma once

/* The label rdma_operation. All before PF_RDMA_RECEIVE are requests of the send queue. */
enum pf_rdma_operation {
	PF_RDMA_SEND,
	PF_RDMA_WRITE,
	PF_RDMA_READ,
	PF_RDMA_ATOMIC,
	PF_RDMA_OTHER,
	PF_RDMA_RECEIVE,
	PF_RDMA_REGISTER,
	_PF_RDMA_OPERATION_MAX,
};

/* Kinds of struct pf_site. Arguments are numbered as in struct pf_site. */
enum pf_rdma_site_kind {
	/* ---- functions of libibverbs ---- */
	PF_SITE_RDMA_REGISTER = 96, /* size_arg: bytes; returns NULL if it has failed */
	PF_SITE_RDMA_CONTEXT,	    /* argument 1 is a context */
	PF_SITE_RDMA_OBJECT,	    /* argument 1 is an object whose first member is its context */
	/* the same; at such a call the process may have posted already, or posts from now on */
	PF_SITE_RDMA_USED,
	PF_SITE_RDMA_OPEN,	    /* returns a context */
	PF_SITE_RDMA_EXTEND,	    /* ibv_qp_to_qp_ex: returns an extended queue pair */
	/* ---- functions of a provider; argument 1 is the queue ---- */
	/* (queue, list of requests, where the first that failed is stored); returns 0 or errno */
	PF_SITE_RDMA_POST_SEND,
	PF_SITE_RDMA_POST_RECEIVE,
	PF_SITE_RDMA_POST_SHARED, /* the queue is a shared receive queue */
	/* The functions ibv_wr_* of an extended queue pair. */
	PF_SITE_RDMA_START,
	PF_SITE_RDMA_COMPLETE, /* returns 0 or errno */
	PF_SITE_RDMA_ABORT,
	/* flags: enum pf_rdma_operation; max_bytes: bytes that are in the request itself */
	PF_SITE_RDMA_REQUEST,
	/* size_arg: bytes; flags: PF_RDMA_32 or 0 */
	PF_SITE_RDMA_DATA,
	PF_SITE_RDMA_SGES,    /* count_arg: number, ptr_arg: array of struct ibv_sge */
	PF_SITE_RDMA_BUFFERS, /* the same, with struct ibv_data_buf */
	_PF_SITE_RDMA_MAX,
};
/* The size is an uint32_t. The upper half of the register may have any value. */
#define PF_RDMA_32 1

/*
 * The functions of a provider that have no symbols. The first three are members of struct
 * ibv_context_ops, the others those of struct ibv_qp_ex, in their order.
 */
enum pf_rdma_slot {
	PF_RDMA_POST_SRQ_RECV,
	PF_RDMA_POST_SEND,
	PF_RDMA_POST_RECV,
	PF_RDMA_WR_ATOMIC_CMP_SWP,
	PF_RDMA_WR_ATOMIC_FETCH_ADD,
	PF_RDMA_WR_BIND_MW,
	PF_RDMA_WR_LOCAL_INV,
	PF_RDMA_WR_RDMA_READ,
	PF_RDMA_WR_RDMA_WRITE,
	PF_RDMA_WR_RDMA_WRITE_IMM,
	PF_RDMA_WR_SEND,
	PF_RDMA_WR_SEND_IMM,
	PF_RDMA_WR_SEND_INV,
	PF_RDMA_WR_SEND_TSO,
	PF_RDMA_WR_SET_UD_ADDR,
	PF_RDMA_WR_SET_XRC_SRQN,
	PF_RDMA_WR_SET_INLINE_DATA,
	PF_RDMA_WR_SET_INLINE_DATA_LIST,
	PF_RDMA_WR_SET_SGE,
	PF_RDMA_WR_SET_SGE_LIST,
	PF_RDMA_WR_START,
	PF_RDMA_WR_COMPLETE,
	PF_RDMA_WR_ABORT,
	PF_RDMA_WR_ATOMIC_WRITE, /* since rdma-core 44 */
	PF_RDMA_WR_FLUSH,	 /* since rdma-core 46 */
	_PF_RDMA_SLOT_MAX,
};
#define PF_RDMA_SLOTS_OF_QP (_PF_RDMA_SLOT_MAX - PF_RDMA_WR_ATOMIC_CMP_SWP)

/* Offsets of members. */
#define PF_RDMA_CONTEXT_SRQ_RECV 168 /* ibv_context.ops.post_srq_recv */
#define PF_RDMA_OPS_SEND	 5   /* in words from there: post_send; post_recv follows */
#define PF_RDMA_OPS_WORDS	 7
#define PF_RDMA_QP_TYPE		 60  /* ibv_qp.qp_type */
#define PF_RDMA_QP_EX_WR	 184 /* ibv_qp_ex.wr_atomic_cmp_swp */
#define PF_RDMA_DEVICE_NAME	 24  /* ibv_device.name */

/*
 * Map `rdma_functions`, hash, key: struct pf_process_key with exec_id 0: addresses of functions of
 * the process, which the programs have read from its memory, so they may be false. An entry with
 * the address 0 is being written. After an exec, the functions of the new program replace the old
 * ones.
 */
#define PF_RDMA_FUNCTIONS_MAX 96
struct pf_rdma_function {
	uint64_t address;
	uint32_t slot; /* enum pf_rdma_slot */
	uint32_t pad;
};
struct pf_rdma_functions {
	uint32_t n;    /* more than PF_RDMA_FUNCTIONS_MAX: there are more than these */
	uint32_t told; /* n when PF_PROC_FUNCTIONS was last sent */
	uint32_t exec_id;
	uint32_t late; /* n when PF_DROP_RDMA_LATE was last counted */
	struct pf_rdma_function items[PF_RDMA_FUNCTIONS_MAX];
};
/* A list of requests is followed for this many requests and elements of their lists of memory. */
#define PF_RDMA_STEPS_MAX 2048

_Static_assert(sizeof(struct pf_rdma_functions) == 16 + 16 * PF_RDMA_FUNCTIONS_MAX, "abi");
