/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provider's device, contexts and memory regions. Two libraries are made of this folder, with
 * different names of the device (DEVICE).
 */
#include <errno.h>
#include <stdlib.h>

#include "provider.h"

extern const struct provider standin_provider __attribute__((visibility("default")));

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		      size_t bytes)
{
	(void)context;
	(void)bytes;
	if (port != 1)
		return EINVAL;
	*attr = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
				       .max_mtu = IBV_MTU_4096,
				       .active_mtu = IBV_MTU_4096,
				       .lid = 1};
	return 0;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
	static struct verbs_ex_private private = {&standin_provider};
	struct verbs_context *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->sz = sizeof(*v);
	v->priv = &private;
	v->query_port = query_port;
	v->create_cq_ex = cq_create_ex;
	v->create_qp_ex = qp_create_ex;
	v->context.device = device;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->context.num_comp_vectors = 1;
	post_set_ops(&v->context.ops);
	shared_set_ops(&v->context.ops);
	completions_set_ops(&v->context.ops);
	return &v->context;
}

static void close_device(struct ibv_context *context)
{
	free(verbs_get_ctx(context));
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length)
{
	static _Atomic uint32_t last_key;
	int error = standin_rdma_failure();
	struct ibv_mr *mr = error ? NULL : calloc(1, sizeof(*mr));

	if (!mr) {
		errno = error ? error : ENOMEM;
		return NULL;
	}
	*mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length};
	mr->lkey = mr->rkey = ++last_key;
	standin_rdma_add(pd->context->device, 0, STANDIN_REGISTER, length);
	return mr;
}

const struct provider standin_provider = {
	.device = {.node_type = IBV_NODE_CA,
		   .transport_type = IBV_TRANSPORT_IB,
		   .name = DEVICE,
		   .dev_name = "uverbs"},
	.open = open_device,
	.close = close_device,
	.reg_mr = reg_mr,
	.create_cq = cq_create,
	.destroy_cq = cq_destroy,
	.await_cq = cq_await,
	.create_srq = srq_create,
	.destroy_srq = srq_destroy,
	.create_qp = qp_create,
	.modify_qp = qp_modify,
	.query_qp = qp_query,
	.destroy_qp = qp_destroy,
	.extended = qp_extended,
};
