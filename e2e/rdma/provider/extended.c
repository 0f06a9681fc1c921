/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the inline functions ibv_wr_*() of verbs.h call. From ibv_wr_start() on, requests are built
 * one after another; ibv_wr_complete() adds all of them to the send queue, or none.
 */
#include <errno.h>

#include "provider.h"

static struct queue_pair *pair_of(struct ibv_qp_ex *ex)
{
	return (struct queue_pair *)ex;
}

static void fail(struct queue_pair *q, int error)
{
	if (!q->error)
		q->error = error;
}

static void begin(struct ibv_qp_ex *ex, enum standin_operation operation)
{
	struct queue_pair *q = pair_of(ex);

	if (q->n_built == q->sends.capacity) {
		fail(q, ENOMEM);
		return;
	}
	q->built[q->n_built++] = (struct request){
		.wr_id = ex->wr_id,
		.operation = operation,
		.signaled = q->all_signaled || ex->wr_flags & IBV_SEND_SIGNALED,
	};
}

/* Gives the request that is being built its data. */
static void set_bytes(struct ibv_qp_ex *ex, uint64_t bytes)
{
	struct queue_pair *q = pair_of(ex);

	if (q->n_built)
		q->built[q->n_built - 1].bytes = bytes;
}

/* ---- requests ---- */

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, STANDIN_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 data)
{
	(void)data;
	begin(ex, STANDIN_SEND);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	(void)rkey;
	begin(ex, STANDIN_SEND);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address)
{
	(void)rkey;
	(void)address;
	begin(ex, STANDIN_WRITE);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, __be32 data)
{
	(void)rkey;
	(void)address;
	(void)data;
	begin(ex, STANDIN_WRITE);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address)
{
	(void)rkey;
	(void)address;
	begin(ex, STANDIN_READ);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address,
			      uint64_t old_value, uint64_t new_value)
{
	(void)rkey;
	(void)address;
	(void)old_value;
	(void)new_value;
	begin(ex, STANDIN_ATOMIC);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, uint64_t add)
{
	(void)rkey;
	(void)address;
	(void)add;
	begin(ex, STANDIN_ATOMIC);
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	(void)rkey;
	begin(ex, STANDIN_OTHER);
}

/* ---- their data ---- */

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t number, uint32_t key)
{
	(void)ex;
	(void)ah;
	(void)number;
	(void)key;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t address, uint32_t length)
{
	(void)lkey;
	(void)address;
	set_bytes(ex, length);
}

/* As in mlx5, datagrams have a function of their own. */
static void wr_set_sge_of_datagram(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t address,
				   uint32_t length)
{
	(void)lkey;
	(void)address;
	set_bytes(ex, length);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	uint64_t bytes = 0;

	if (n > pair_of(ex)->sends.max_sge)
		fail(pair_of(ex), EINVAL);
	for (size_t i = 0; i < n; i++)
		bytes += list[i].length;
	set_bytes(ex, bytes);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += list[i].length;
	if (bytes > pair_of(ex)->max_inline)
		fail(pair_of(ex), EINVAL);
	set_bytes(ex, bytes);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *data, size_t length)
{
	const struct ibv_data_buf one = {data, length};

	wr_set_inline_data_list(ex, 1, &one);
}

/* ---- from the start to the end ---- */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct queue_pair *q = pair_of(ex);

	pthread_mutex_lock(&q->lock);
	q->n_built = 0;
	q->error = pair_sends(q) ? 0 : EINVAL;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct queue_pair *q = pair_of(ex);
	int r = q->error ? q->error : queue_add(&q->sends, q->built, q->n_built);

	pthread_mutex_unlock(&q->lock);
	return r;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&pair_of(ex)->lock);
}

void extended_set_functions(struct queue_pair *q)
{
	struct ibv_qp_ex *ex = &q->ex;

	q->extended = true;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_sge = q->qp.qp_type == IBV_QPT_UD ? wr_set_sge_of_datagram : wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
}
