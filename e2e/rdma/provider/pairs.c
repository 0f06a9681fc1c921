/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs and their states. */
#include <errno.h>
#include <stdlib.h>

#include "provider.h"

static bool type_is_known(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD ||
	       type == IBV_QPT_XRC_SEND;
}

static void set_up(struct queue_pair *q, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	static _Atomic uint32_t last_number;

	pthread_mutex_init(&q->lock, NULL);
	q->qp.context = pd->context;
	q->qp.qp_context = attr->qp_context;
	q->qp.pd = pd;
	q->qp.send_cq = attr->send_cq;
	q->qp.recv_cq = attr->recv_cq;
	q->qp.srq = attr->srq;
	q->qp.qp_num = ++last_number;
	q->qp.qp_type = attr->qp_type;
	q->max_inline = attr->cap.max_inline_data;
	q->all_signaled = attr->sq_sig_all;
	queue_set_pair(&q->sends, q, attr->send_cq);
	queue_set_pair(&q->receives, q, attr->recv_cq);
}

static void release(struct queue_pair *q)
{
	queue_close(&q->sends);
	queue_close(&q->receives);
	free(q->built);
	free(q);
}

static struct queue_pair *allocate(const struct ibv_qp_cap *cap)
{
	struct queue_pair *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->built = calloc(cap->max_send_wr + 1, sizeof(*q->built));
	if (q->built && queue_open(&q->sends, cap->max_send_wr, cap->max_send_sge) &&
	    queue_open(&q->receives, cap->max_recv_wr, cap->max_recv_sge))
		return q;
	release(q);
	return NULL;
}

struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct queue_pair *q;

	if (!type_is_known(attr->qp_type)) {
		errno = EINVAL;
		return NULL;
	}
	q = allocate(&attr->cap);
	if (!q)
		return NULL;
	set_up(q, pd, attr);
	if (attr->srq)
		srq_add_pair(attr->srq, q);
	return &q->qp;
}

/* The inline ibv_create_qp_ex() of verbs.h calls this function through the context. */
struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp;

	(void)context;
	if (attr->comp_mask &
		    ~(unsigned int)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) ||
	    !(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	/* The older structure is the beginning of the newer one. */
	qp = qp_create(attr->pd, (struct ibv_qp_init_attr *)attr);
	if (qp && attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		extended_set_functions((struct queue_pair *)qp);
	return qp;
}

struct ibv_qp_ex *qp_extended(struct ibv_qp *qp)
{
	struct queue_pair *q = (struct queue_pair *)qp;

	return q->extended ? &q->ex : NULL;
}

bool pair_sends(const struct queue_pair *q)
{
	return q->qp.state == IBV_QPS_RTS || q->failed;
}

static bool may_follow(enum ibv_qp_state from, enum ibv_qp_state to)
{
	return to == IBV_QPS_RESET || to == IBV_QPS_ERR || to == from ||
	       (from == IBV_QPS_RESET && to == IBV_QPS_INIT) ||
	       (from == IBV_QPS_INIT && to == IBV_QPS_RTR) ||
	       (from == IBV_QPS_RTR && to == IBV_QPS_RTS);
}

int qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct queue_pair *q = (struct queue_pair *)qp;
	int r = 0;

	if (!(mask & IBV_QP_STATE))
		return 0;
	pthread_mutex_lock(&q->lock);
	if (may_follow(qp->state, attr->qp_state))
		qp->state = attr->qp_state;
	else
		r = EINVAL;
	if (qp->state == IBV_QPS_RESET) {
		queue_empty(&q->sends);
		queue_empty(&q->receives);
		q->failed = false;
	}
	if (qp->state == IBV_QPS_ERR)
		queue_flush(&q->sends);
	pthread_mutex_unlock(&q->lock);
	return r;
}

void qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init_attr)
{
	const struct queue_pair *q = (const struct queue_pair *)qp;
	const struct ibv_qp_cap cap = {.max_send_wr = q->sends.capacity,
				       .max_recv_wr = q->receives.capacity,
				       .max_send_sge = q->sends.max_sge,
				       .max_recv_sge = q->receives.max_sge,
				       .max_inline_data = q->max_inline};
	const enum ibv_qp_state state = q->failed ? IBV_QPS_ERR : qp->state;

	*attr = (struct ibv_qp_attr){.qp_state = state, .cur_qp_state = state, .cap = cap};
	*init_attr = (struct ibv_qp_init_attr){.qp_context = qp->qp_context,
					       .send_cq = qp->send_cq,
					       .recv_cq = qp->recv_cq,
					       .cap = cap,
					       .qp_type = qp->qp_type,
					       .sq_sig_all = q->all_signaled};
}

void qp_destroy(struct ibv_qp *qp)
{
	struct queue_pair *q = (struct queue_pair *)qp;

	pthread_mutex_destroy(&q->lock);
	release(q);
}
