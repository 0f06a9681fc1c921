/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended completion queues: what the inline functions ibv_start_poll(), ibv_next_poll(),
 * ibv_end_poll() and ibv_wc_read_*() of verbs.h call. A program reads one completion after another.
 */
#include <errno.h>

#include "provider.h"

static struct completion_queue *queue_of(struct ibv_cq_ex *ex)
{
	return (struct completion_queue *)ex;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct completion_queue *c = queue_of(ex);

	if (!cq_take(c, &c->current))
		return ENOENT;
	ex->wr_id = c->current.wr_id;
	ex->status = c->current.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	int r;

	if (attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&queue_of(ex)->lock);
	r = next_poll(ex);
	if (r) /* the program does not call ibv_end_poll() then */
		pthread_mutex_unlock(&queue_of(ex)->lock);
	return r;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	pthread_mutex_unlock(&queue_of(ex)->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return queue_of(ex)->current.opcode;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return queue_of(ex)->current.byte_len;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return queue_of(ex)->current.qp_num;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return queue_of(ex)->current.vendor_err;
}

/* The inline ibv_create_cq_ex() of verbs.h calls this function through the context. */
struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t members = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM;
	struct completion_queue *c;

	if (attr->comp_mask || attr->wc_flags & ~members) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	c = (struct completion_queue *)cq_create(context, (int)attr->cqe, attr->channel,
						 attr->cq_context);
	if (!c)
		return NULL;
	c->ex.start_poll = start_poll;
	c->ex.next_poll = next_poll;
	c->ex.end_poll = end_poll;
	c->ex.read_opcode = read_opcode;
	c->ex.read_byte_len = read_byte_len;
	c->ex.read_qp_num = read_qp_num;
	c->ex.read_vendor_err = read_vendor_err;
	return &c->ex;
}
