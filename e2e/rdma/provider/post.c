/* SPDX-License-Identifier: Apache-2.0 */
/* What the inline functions ibv_post_send() and ibv_post_recv() of verbs.h call. */
#include <errno.h>

#include "provider.h"

static bool sum_up(const struct ibv_sge *list, int n, unsigned int max, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	if (n < 0 || (unsigned int)n > max)
		return false;
	for (int i = 0; i < n; i++)
		*ret_bytes += list[i].length;
	return true;
}

static enum standin_operation operation_of(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return STANDIN_SEND;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return STANDIN_WRITE;
	case IBV_WR_RDMA_READ:
		return STANDIN_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return STANDIN_ATOMIC;
	case IBV_WR_LOCAL_INV:
		return STANDIN_OTHER;
	default:
		return _STANDIN_OPERATIONS; /* this provider does not have it */
	}
}

/* Returns whether a queue pair of this type can do this: datagrams only send, UC cannot read. */
static bool can_do(enum ibv_qp_type type, enum standin_operation operation)
{
	if (operation == _STANDIN_OPERATIONS)
		return false;
	if (type == IBV_QPT_UD)
		return operation == STANDIN_SEND;
	return type != IBV_QPT_UC || (operation != STANDIN_READ && operation != STANDIN_ATOMIC);
}

static int send_one(struct queue_pair *q, const struct ibv_send_wr *wr)
{
	struct request r = {.wr_id = wr->wr_id,
			    .operation = operation_of(wr->opcode),
			    .signaled = q->all_signaled || wr->send_flags & IBV_SEND_SIGNALED};

	if (!pair_sends(q) || !can_do(q->qp.qp_type, r.operation) ||
	    !sum_up(wr->sg_list, wr->num_sge, q->sends.max_sge, &r.bytes) ||
	    (wr->send_flags & IBV_SEND_INLINE && r.bytes > q->max_inline))
		return EINVAL;
	return queue_add(&q->sends, &r, 1);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct queue_pair *q = (struct queue_pair *)qp;
	int r = 0;

	pthread_mutex_lock(&q->lock);
	for (; wr && !r; wr = wr->next) {
		r = send_one(q, wr);
		if (r)
			*bad_wr = wr;
	}
	pthread_mutex_unlock(&q->lock);
	return r;
}

bool receive_request(const struct ibv_recv_wr *wr, unsigned int max_sge, struct request *ret)
{
	*ret = (struct request){.wr_id = wr->wr_id, .operation = STANDIN_RECEIVE, .signaled = true};
	return sum_up(wr->sg_list, wr->num_sge, max_sge, &ret->bytes);
}

static int receive_one(struct queue_pair *q, const struct ibv_recv_wr *wr)
{
	struct request r;

	if (q->qp.state == IBV_QPS_RESET || !receive_request(wr, q->receives.max_sge, &r))
		return EINVAL;
	return queue_add(&q->receives, &r, 1);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct queue_pair *q = (struct queue_pair *)qp;
	int r = 0;

	pthread_mutex_lock(&q->lock);
	for (; wr && !r; wr = wr->next) {
		r = receive_one(q, wr);
		if (r)
			*bad_wr = wr;
	}
	pthread_mutex_unlock(&q->lock);
	return r;
}

void post_set_ops(struct ibv_context_ops *ops)
{
	ops->post_send = post_send;
	ops->post_recv = post_recv;
}
