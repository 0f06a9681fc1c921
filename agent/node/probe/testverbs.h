/* SPDX-License-Identifier: Apache-2.0 */
/*
 * testverbs: for tests only: the structures of <infiniband/verbs.h> that a provider and a program
 * share, with the same layout. rdma_layout_test.c compares them with the installed header.
 */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct testverbs_queue;
struct testverbs_context;
struct testverbs_sge {
	uint64_t addr;
	uint32_t length, lkey;
};
struct testverbs_buffer {
	void *addr;
	size_t length;
};
struct testverbs_send {
	uint64_t wr_id;
	struct testverbs_send *next;
	struct testverbs_sge *sg_list;
	int num_sge;
	uint32_t opcode;
	unsigned send_flags;
	uint8_t rest[92];
};
struct testverbs_receive {
	uint64_t wr_id;
	struct testverbs_receive *next;
	struct testverbs_sge *sg_list;
	int num_sge;
};
struct testverbs_completions { /* struct ibv_cq */
	struct testverbs_context *context;
};
struct testverbs_completion { /* struct ibv_wc */
	uint64_t wr_id;
	uint32_t status, opcode, vendor_err, byte_len, imm_data, qp_num, rest[4];
};
struct testverbs_device {
	void *ops[2];
	uint32_t node_type, transport_type;
	char name[64];
	char rest[64 + 2 * 256];
};
struct testverbs_ops {
	void *before[11];
	int (*poll_cq)(struct testverbs_completions *q, int n, struct testverbs_completion *list);
	void *after_poll[8];
	int (*post_srq_recv)(struct testverbs_queue *q, struct testverbs_receive *wr,
			     struct testverbs_receive **bad);
	void *between[4];
	int (*post_send)(struct testverbs_queue *q, struct testverbs_send *wr,
			 struct testverbs_send **bad);
	int (*post_recv)(struct testverbs_queue *q, struct testverbs_receive *wr,
			 struct testverbs_receive **bad);
	void *after[5];
};
struct testverbs_context {
	struct testverbs_device *device;
	struct testverbs_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};
struct testverbs_queue { /* struct ibv_qp */
	struct testverbs_context *context;
	void *qp_context, *pd, *send_cq, *recv_cq, *srq;
	uint32_t handle, qp_num, state, qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};
struct testverbs_queue_ex { /* struct ibv_qp_ex */
	struct testverbs_queue base;
	uint64_t comp_mask, wr_id;
	unsigned wr_flags;
	void (*atomic_cmp_swp)(struct testverbs_queue_ex *q, uint32_t rkey, uint64_t remote,
			       uint64_t compare, uint64_t swap);
	void (*atomic_fetch_add)(struct testverbs_queue_ex *q, uint32_t rkey, uint64_t remote,
				 uint64_t add);
	void (*bind_mw)(struct testverbs_queue_ex *q, void *mw, uint32_t rkey, const void *info);
	void (*local_inv)(struct testverbs_queue_ex *q, uint32_t rkey);
	void (*rdma_read)(struct testverbs_queue_ex *q, uint32_t rkey, uint64_t remote);
	void (*rdma_write)(struct testverbs_queue_ex *q, uint32_t rkey, uint64_t remote);
	void (*rdma_write_imm)(struct testverbs_queue_ex *q, uint32_t rkey, uint64_t remote,
			       uint32_t imm);
	void (*send)(struct testverbs_queue_ex *q);
	void (*send_imm)(struct testverbs_queue_ex *q, uint32_t imm);
	void (*send_inv)(struct testverbs_queue_ex *q, uint32_t rkey);
	void (*send_tso)(struct testverbs_queue_ex *q, void *header, uint16_t n, uint16_t mss);
	void (*set_ud_addr)(struct testverbs_queue_ex *q, void *ah, uint32_t qpn, uint32_t qkey);
	void (*set_xrc_srqn)(struct testverbs_queue_ex *q, uint32_t srqn);
	void (*set_inline_data)(struct testverbs_queue_ex *q, void *addr, size_t length);
	void (*set_inline_data_list)(struct testverbs_queue_ex *q, size_t n,
				     const struct testverbs_buffer *list);
	void (*set_sge)(struct testverbs_queue_ex *q, uint32_t lkey, uint64_t addr,
			uint32_t length);
	void (*set_sge_list)(struct testverbs_queue_ex *q, size_t n,
			     const struct testverbs_sge *list);
	void (*start)(struct testverbs_queue_ex *q);
	int (*complete)(struct testverbs_queue_ex *q);
	void (*abort)(struct testverbs_queue_ex *q);
	void (*atomic_write)(struct testverbs_queue_ex *q, uint32_t rkey, uint64_t remote,
			     const void *word);
};
