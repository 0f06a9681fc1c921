// SPDX-License-Identifier: Apache-2.0
/*
 * The layouts that the BPF programs and the tests assume, compared with the installed
 * <infiniband/verbs.h>. Without that header, only the layouts of the programs are compared with
 * those of the tests.
 */
#include "lib/profile/profile.h"

#include <setjmp.h>
#include <cmocka.h>

#include "bpf/abi.h"
#include "node/probe/testverbs.h"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#endif

static void the_programs_and_the_tests_agree(void **state)
{
	(void)state;
	assert_int_equal(PF_RDMA_CONTEXT_SRQ_RECV,
			 offsetof(struct testverbs_context, ops.post_srq_recv));
	assert_int_equal(PF_RDMA_CONTEXT_SRQ_RECV + 8 * PF_RDMA_OPS_SEND,
			 offsetof(struct testverbs_context, ops.post_send));
	assert_int_equal(PF_RDMA_CONTEXT_SRQ_RECV + 8 * (PF_RDMA_OPS_SEND + 1),
			 offsetof(struct testverbs_context, ops.post_recv));
	assert_int_equal(PF_RDMA_CONTEXT_POLL, offsetof(struct testverbs_context, ops.poll_cq));
	assert_int_equal(PF_RDMA_QP_SEND_CQ, offsetof(struct testverbs_queue, send_cq));
	assert_int_equal(PF_RDMA_QP_NUMBER, offsetof(struct testverbs_queue, qp_num));
	assert_int_equal(PF_RDMA_QP_NUMBER + 4, offsetof(struct testverbs_queue, state));
	assert_int_equal(PF_RDMA_QP_TYPE, offsetof(struct testverbs_queue, qp_type));
	assert_int_equal(PF_RDMA_QP_EX_ID, offsetof(struct testverbs_queue_ex, wr_id));
	assert_int_equal(PF_RDMA_QP_EX_ID + 8, offsetof(struct testverbs_queue_ex, wr_flags));
	assert_int_equal(PF_RDMA_DEVICE_NAME, offsetof(struct testverbs_device, name));
	assert_int_equal(PF_RDMA_QP_EX_WR, offsetof(struct testverbs_queue_ex, atomic_cmp_swp));
	assert_int_equal(PF_TEXT_BYTES, sizeof(((struct testverbs_device *)0)->name));
}

#ifdef INFINIBAND_VERBS_H /* the header is there */
#define SAME(ours, member, theirs, their_member)                                                   \
	assert_int_equal(offsetof(struct ours, member), offsetof(struct theirs, their_member))
/* The slots are in the order of the members of struct ibv_qp_ex. */
#define SLOT(SLOT, member, their_member)                                                           \
	do {                                                                                       \
		SAME(testverbs_queue_ex, member, ibv_qp_ex, their_member);                         \
		assert_int_equal(PF_RDMA_QP_EX_WR +                                                \
					 8 * (PF_RDMA_WR_##SLOT - PF_RDMA_WR_ATOMIC_CMP_SWP),      \
				 offsetof(struct ibv_qp_ex, their_member));                        \
	} while (0)

static void completions_are_those_of_the_header(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct testverbs_completion), sizeof(struct ibv_wc));
	SAME(testverbs_completion, status, ibv_wc, status);
	SAME(testverbs_completion, opcode, ibv_wc, opcode);
	SAME(testverbs_completion, qp_num, ibv_wc, qp_num);
	SAME(testverbs_context, ops.poll_cq, ibv_context, ops.poll_cq);
	assert_int_equal(offsetof(struct ibv_cq, context), 0);
	assert_int_equal(offsetof(struct ibv_cq_ex, start_poll), PF_RDMA_CQ_EX_START_POLL);
	assert_int_equal(offsetof(struct ibv_qp_attr, qp_state), 0);
	/* bpf/rdma_latency.bpf.c assumes these numbers */
	assert_int_equal(IBV_WC_RECV, 1 << 7);
	assert_int_equal(IBV_SEND_SIGNALED, 2);
	assert_int_equal(IBV_QP_STATE, 1);
	assert_int_equal(IBV_QPS_RESET, 0);
	assert_int_equal(IBV_QPS_INIT, 1);
	assert_int_equal(IBV_QPS_RTR, 2);
	assert_int_equal(IBV_QPS_ERR, 6);
}

static void requests_are_those_of_the_header(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct testverbs_send), sizeof(struct ibv_send_wr));
	SAME(testverbs_send, next, ibv_send_wr, next);
	SAME(testverbs_send, sg_list, ibv_send_wr, sg_list);
	SAME(testverbs_send, num_sge, ibv_send_wr, num_sge);
	SAME(testverbs_send, opcode, ibv_send_wr, opcode);
	SAME(testverbs_send, send_flags, ibv_send_wr, send_flags);
	assert_int_equal(sizeof(struct testverbs_receive), sizeof(struct ibv_recv_wr));
	SAME(testverbs_receive, next, ibv_recv_wr, next);
	SAME(testverbs_receive, sg_list, ibv_recv_wr, sg_list);
	SAME(testverbs_receive, num_sge, ibv_recv_wr, num_sge);
	assert_int_equal(sizeof(struct testverbs_sge), sizeof(struct ibv_sge));
	SAME(testverbs_sge, length, ibv_sge, length);
	assert_int_equal(sizeof(struct testverbs_buffer), sizeof(struct ibv_data_buf));
	SAME(testverbs_buffer, length, ibv_data_buf, length);
}

static void objects_are_those_of_the_header(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct testverbs_device), sizeof(struct ibv_device));
	SAME(testverbs_device, name, ibv_device, name);
	assert_int_equal(sizeof(struct testverbs_context), sizeof(struct ibv_context));
	SAME(testverbs_context, device, ibv_context, device);
	SAME(testverbs_context, ops.post_srq_recv, ibv_context, ops.post_srq_recv);
	SAME(testverbs_context, ops.post_send, ibv_context, ops.post_send);
	SAME(testverbs_context, ops.post_recv, ibv_context, ops.post_recv);
	assert_int_equal(sizeof(struct testverbs_queue), sizeof(struct ibv_qp));
	SAME(testverbs_queue, context, ibv_qp, context);
	SAME(testverbs_queue, qp_type, ibv_qp, qp_type);
	assert_int_equal(0, offsetof(struct ibv_pd, context));
	assert_int_equal(0, offsetof(struct ibv_cq, context));
	assert_int_equal(0, offsetof(struct ibv_srq, context));
	assert_int_equal(0, offsetof(struct ibv_mr, context));
	assert_int_equal(0, offsetof(struct ibv_ah, context));
	assert_int_equal(0, offsetof(struct ibv_comp_channel, context));
	assert_int_equal(PF_TEXT_BYTES, IBV_SYSFS_NAME_MAX);
}

static void slots_are_those_of_the_header(void **state)
{
	(void)state;
	SLOT(ATOMIC_CMP_SWP, atomic_cmp_swp, wr_atomic_cmp_swp);
	SLOT(ATOMIC_FETCH_ADD, atomic_fetch_add, wr_atomic_fetch_add);
	SLOT(BIND_MW, bind_mw, wr_bind_mw);
	SLOT(LOCAL_INV, local_inv, wr_local_inv);
	SLOT(RDMA_READ, rdma_read, wr_rdma_read);
	SLOT(RDMA_WRITE, rdma_write, wr_rdma_write);
	SLOT(RDMA_WRITE_IMM, rdma_write_imm, wr_rdma_write_imm);
	SLOT(SEND, send, wr_send);
	SLOT(SEND_IMM, send_imm, wr_send_imm);
	SLOT(SEND_INV, send_inv, wr_send_inv);
	SLOT(SEND_TSO, send_tso, wr_send_tso);
	SLOT(SET_UD_ADDR, set_ud_addr, wr_set_ud_addr);
	SLOT(SET_XRC_SRQN, set_xrc_srqn, wr_set_xrc_srqn);
	SLOT(SET_INLINE_DATA, set_inline_data, wr_set_inline_data);
	SLOT(SET_INLINE_DATA_LIST, set_inline_data_list, wr_set_inline_data_list);
	SLOT(SET_SGE, set_sge, wr_set_sge);
	SLOT(SET_SGE_LIST, set_sge_list, wr_set_sge_list);
	SLOT(START, start, wr_start);
	SLOT(COMPLETE, complete, wr_complete);
	SLOT(ABORT, abort, wr_abort);
	SLOT(ATOMIC_WRITE, atomic_write, wr_atomic_write);
}

static void numbers_are_those_of_the_header(void **state)
{
	static const char *const types[] = {"RC",	"UC",	    "UD",    "RAW_PACKET",
					    "XRC_SEND", "XRC_RECV", "DRIVER"};
	static const int numbers[] = {IBV_QPT_RC,	  IBV_QPT_UC,	    IBV_QPT_UD,
				      IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
				      IBV_QPT_DRIVER};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		char text[LABEL_TEXT_BYTES];

		profile_label_text(LABEL_RDMA_QP_TYPE, EVENT_RDMA, numbers[i], text);
		assert_string_equal(text, types[i]);
	}
	/* pf_rdma_operation_of() in bpf/rdma_list.h assumes these numbers */
	assert_int_equal(IBV_WR_RDMA_WRITE, 0);
	assert_int_equal(IBV_WR_RDMA_WRITE_WITH_IMM, 1);
	assert_int_equal(IBV_WR_SEND, 2);
	assert_int_equal(IBV_WR_SEND_WITH_IMM, 3);
	assert_int_equal(IBV_WR_RDMA_READ, 4);
	assert_int_equal(IBV_WR_ATOMIC_CMP_AND_SWP, 5);
	assert_int_equal(IBV_WR_ATOMIC_FETCH_AND_ADD, 6);
	assert_int_equal(IBV_WR_LOCAL_INV, 7);
	assert_int_equal(IBV_WR_BIND_MW, 8);
	assert_int_equal(IBV_WR_SEND_WITH_INV, 9);
	assert_int_equal(IBV_WR_TSO, 10);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_programs_and_the_tests_agree),
#ifdef INFINIBAND_VERBS_H
		cmocka_unit_test(completions_are_those_of_the_header),
		cmocka_unit_test(requests_are_those_of_the_header),
		cmocka_unit_test(objects_are_those_of_the_header),
		cmocka_unit_test(slots_are_those_of_the_header),
		cmocka_unit_test(numbers_are_those_of_the_header),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
