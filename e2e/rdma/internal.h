/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stand-in libibverbs.so.1 (verbs/) and its providers (provider/) share. As in the real
 * library, a provider is a library of its own for one kind of device. libibverbs opens it with
 * dlopen(), and the provider makes the contexts. The inline functions of verbs.h call the provider
 * through the tables in the context and in the queue pair, without a call of libibverbs.
 */
#pragma once

#include <infiniband/verbs.h>

#include "standin.h"

#define N_DEVICES 2

/* ---- what a provider does for libibverbs ---- */
struct provider {
	struct ibv_device device;
	struct ibv_context *(*open)(struct ibv_device *device);
	void (*close)(struct ibv_context *context);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe,
				    struct ibv_comp_channel *channel, void *cq_context);
	void (*destroy_cq)(struct ibv_cq *cq);
	void (*await_cq)(struct ibv_cq *cq); /* until it has a completion, or will have none */
	struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
	void (*destroy_srq)(struct ibv_srq *srq);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	void (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr,
			 struct ibv_qp_init_attr *init_attr);
	void (*destroy_qp)(struct ibv_qp *qp);
	struct ibv_qp_ex *(*extended)(struct ibv_qp *qp); /* NULL: made without send_ops_flags */
};
/* The symbol of each provider's library. */
#define PROVIDER_SYMBOL "standin_provider"

/* libibverbs and its providers alone know this structure, which verbs.h declares. */
struct verbs_ex_private {
	const struct provider *provider;
};

/* A completion channel is a pipe of addresses of completion queues. */
struct standin_channel {
	struct ibv_comp_channel channel;
	int write_fd;
};

/* ---- verbs/counts.c ---- */
/* Returns 0, or the error that the test has ordered for this request or registration. */
int standin_rdma_failure(void);
/* How long this thread's next request to send takes, and how it ends. */
uint64_t standin_rdma_delay_ns(void);
enum ibv_wc_status standin_rdma_end(void);
void standin_rdma_add(const struct ibv_device *device, int qp_type,
		      enum standin_operation operation, uint64_t bytes);
