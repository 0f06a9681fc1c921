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
	PF_SITE_RDMA_MODIFY,  /* the same: ibv_modify_qp (queue pair, attributes, mask) */
	PF_SITE_RDMA_DESTROY, /* the same: ibv_destroy_qp */
	PF_SITE_RDMA_OPEN,    /* returns a context */
	PF_SITE_RDMA_EXTEND,	    /* ibv_qp_to_qp_ex: returns an extended queue pair */
	/* ---- functions of a provider; argument 1 is the queue ---- */
	/* (queue, list of requests, where the first that failed is stored); returns 0 or errno */
	PF_SITE_RDMA_POST_SEND,
	PF_SITE_RDMA_POST_RECEIVE,
	PF_SITE_RDMA_POST_SHARED, /* the queue is a shared receive queue */
	/* (completion queue, n, array of struct ibv_wc); returns how many it has filled in */
	PF_SITE_RDMA_POLL,
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
 * The functions of a provider that have no symbols. The first is a member of struct ibv_cq_ex, the
 * next four are members of struct ibv_context_ops, the others those of struct ibv_qp_ex, in their
 * order.
 */
enum pf_rdma_slot {
	PF_RDMA_START_POLL, /* only rdma-latency learns these two */
	PF_RDMA_POLL_CQ,
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
#define PF_RDMA_CONTEXT_POLL	 96  /* ibv_context.ops.poll_cq */
#define PF_RDMA_CONTEXT_SRQ_RECV 168 /* ibv_context.ops.post_srq_recv */
#define PF_RDMA_OPS_SEND	 5   /* in words from there: post_send; post_recv follows */
#define PF_RDMA_OPS_WORDS	 7
#define PF_RDMA_QP_SEND_CQ	 24  /* ibv_qp.send_cq */
#define PF_RDMA_QP_NUMBER	 52  /* ibv_qp.qp_num; then come state and qp_type */
#define PF_RDMA_QP_TYPE		 60  /* ibv_qp.qp_type */
#define PF_RDMA_QP_EX_ID	 168 /* ibv_qp_ex.wr_id; wr_flags follows */
#define PF_RDMA_QP_EX_WR	 184 /* ibv_qp_ex.wr_atomic_cmp_swp */
#define PF_RDMA_CQ_EX_START_POLL 144 /* ibv_cq_ex.start_poll */
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
	uint32_t late;	     /* n when PF_DROP_RDMA_LATE was last counted */
	uint32_t share, pad; /* pf_filter.share when the entry was made */
	struct pf_rdma_function items[PF_RDMA_FUNCTIONS_MAX];
};
/* A list of requests is followed for this many requests and elements of their lists of memory. */
#define PF_RDMA_STEPS_MAX 2048

/*
 * rdma-latency: map `rdma_requests`, hash: requests for send queues that have no completion yet.
 * Map `rdma_queues`, hash, has the same key, with the number 0.
 */
#define PF_RDMA_REQUESTS_MAX 65536
#define PF_RDMA_QUEUES_MAX   16384
#define PF_RDMA_OF_QUEUE_MAX 1024 /* requests of a queue */
struct pf_rdma_request_key {
	struct pf_process_key process;
	uint64_t context; /* address of struct ibv_context: each device has numbers of its own */
	uint32_t queue;	  /* ibv_qp.qp_num */
	uint32_t number;  /* requests of a queue are numbered in the order of their posts */
};
struct pf_rdma_pending {
	struct pf_count_key key; /* the sample; until it is posted, only the tid */
	uint64_t wr_id;
	uint64_t posted_ns; /* CLOCK_MONOTONIC; 0: the call that posts it was not seen yet */
	uint16_t signaled;  /* IBV_SEND_SIGNALED was set */
	uint16_t share;	    /* pf_filter.share */
	uint32_t operation; /* enum pf_rdma_operation */
};
#define PF_RDMA_CHANGED	 (1u << 16) /* see pf_mem_proc.gaps */
#define PF_RDMA_DISTINCT 8	    /* a power of two */
struct pf_rdma_queue {
	uint64_t attached_ns; /* of struct pf_mem_proc, when the queue began */
	uint32_t gaps;	      /* the same */
	uint32_t first, next; /* numbers of the oldest request and of the next one */
	uint32_t batch;	      /* number of the first request since ibv_wr_start() */
	/*
	 * Of the requests since ibv_wr_start(): 1 << enum pf_rdma_operation for each, and
	 * PF_RDMA_FILLING; 0: they were posted or aborted.
	 */
	uint8_t operations;
	uint8_t whole;	 /* when the queue began, no request was under way */
	uint8_t flagged; /* a request had IBV_SEND_SIGNALED */
	uint8_t pad;
	uint32_t n_distinct;  /* so many of the last posts had different wr_ids */
	uint32_t share, pad2; /* pf_filter.share */
	/* the last wr_ids: that of request N is at N % PF_RDMA_DISTINCT */
	uint64_t recent[PF_RDMA_DISTINCT];
};
#define PF_RDMA_FILLING (1u << PF_RDMA_RECEIVE)

_Static_assert(sizeof(struct pf_rdma_request_key) == 32, "abi");
_Static_assert(sizeof(struct pf_rdma_pending) == 88, "abi");
_Static_assert(sizeof(struct pf_rdma_queue) == 40 + 8 * PF_RDMA_DISTINCT, "abi");
_Static_assert(sizeof(struct pf_rdma_functions) == 24 + 16 * PF_RDMA_FUNCTIONS_MAX, "abi");
