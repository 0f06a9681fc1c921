/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that the stand-in for libibverbs does what the tests of podflame expect. Other programs
 * check that it counts what they post (e2e/accuracy/programs/rdma.h). This program is linked with
 * the real library, and the linker tells it to run with the stand-in.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "standin.h"

#define PLACES 4
#define NEVER  (3600 * 1000000000ULL) /* a request that takes so long does not end in a test */

struct fabric {
	struct ibv_context *contexts[2];
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	assert_int_equal(ibv_modify_qp(qp, &(struct ibv_qp_attr){.qp_state = state}, IBV_QP_STATE),
			 0);
}

static void to_rts(struct ibv_qp *qp)
{
	to_state(qp, IBV_QPS_INIT);
	to_state(qp, IBV_QPS_RTR);
	to_state(qp, IBV_QPS_RTS);
}

static struct ibv_qp *make_pair(struct fabric *f, enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = f->cq,
		.recv_cq = f->cq,
		.cap = {PLACES, PLACES, 2, 2, 16},
		.qp_type = type,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | (operations ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = f->pd,
		.send_ops_flags = operations,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(f->contexts[0], &attr);

	assert_non_null(qp);
	return qp;
}

static void begin(struct fabric *f)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(list);
	for (int i = 0; i < 2; i++) {
		f->contexts[i] = ibv_open_device(list[i]);
		assert_non_null(f->contexts[i]);
	}
	ibv_free_device_list(list);
	f->pd = ibv_alloc_pd(f->contexts[0]);
	f->channel = ibv_create_comp_channel(f->contexts[0]);
	f->cq = ibv_create_cq(f->contexts[0], 2 * PLACES, f, f->channel, 0);
	f->qp = make_pair(f, IBV_QPT_RC, 0);
}

static void end(struct fabric *f)
{
	assert_int_equal(ibv_destroy_qp(f->qp), 0);
	assert_int_equal(ibv_destroy_cq(f->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(f->channel), 0);
	assert_int_equal(ibv_dealloc_pd(f->pd), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ibv_close_device(f->contexts[i]), 0);
}

static void *standin(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);

	if (!p)
		fail_msg("%s", dlerror());
	return p;
}

static uint64_t sent(int type)
{
	struct standin_rdma_counts c;

	((__typeof__(&standin_rdma_count))standin("standin_rdma_count"))(NULL, type, &c);
	return c.bytes[STANDIN_SEND];
}

static void fail_after(unsigned int passing, int error)
{
	((__typeof__(&standin_rdma_fail_after))standin("standin_rdma_fail_after"))(passing, error);
}

static void set_delay(uint64_t ns)
{
	((__typeof__(&standin_rdma_set_delay))standin("standin_rdma_set_delay"))(ns);
}

static void end_with(unsigned int passing, enum ibv_wc_status status)
{
	((__typeof__(&standin_rdma_end_with))standin("standin_rdma_end_with"))(passing, status);
}

/* Posts n requests of 1, 2, 4, 8, ... bytes. The last one is signaled. Returns how many it took. */
static int post(struct ibv_qp *qp, int n, enum ibv_wr_opcode opcode, int error)
{
	struct ibv_sge sge[8];
	struct ibv_send_wr wr[8] = {0}, *bad = &wr[n];

	for (int i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){.length = 1U << i};
		wr[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i,
					     .next = i < n - 1 ? &wr[i + 1] : NULL,
					     .sg_list = &sge[i],
					     .num_sge = 1,
					     .opcode = opcode,
					     .send_flags = i < n - 1 ? 0 : IBV_SEND_SIGNALED};
	}
	assert_int_equal(ibv_post_send(qp, wr, &bad), error);
	return (int)(bad - wr);
}

/* ---- devices ---- */

static void test_each_device_has_a_provider(void **state)
{
	struct ibv_device **list;
	struct fabric f;
	Dl_info library[2];
	int n;

	(void)state;
	begin(&f);
	list = ibv_get_device_list(&n);
	assert_int_equal(n, 2);
	assert_string_equal(ibv_get_device_name(list[0]), "standin_0");
	assert_string_equal(ibv_get_device_name(list[1]), "standin_1");
	ibv_free_device_list(list);
	for (int i = 0; i < 2; i++)
		assert_true(dladdr(f.contexts[i]->ops.post_send, &library[i]));
	assert_non_null(strstr(library[0].dli_fname, "/libibverbs/libstandin0-rdmav34.so"));
	assert_non_null(strstr(library[1].dli_fname, "/libibverbs/libstandin1-rdmav34.so"));
	end(&f);
}

static void test_functions_that_post_have_no_name(void **state)
{
	struct fabric f;
	Dl_info its;

	(void)state;
	begin(&f);
	assert_true(dladdr(f.contexts[0]->ops.post_send, &its));
	assert_ptr_not_equal(its.dli_saddr, f.contexts[0]->ops.post_send);
	assert_true(dladdr(f.contexts[0]->ops.poll_cq, &its));
	assert_ptr_not_equal(its.dli_saddr, f.contexts[0]->ops.poll_cq);
	end(&f);
}

/* ---- queue pairs ---- */

static void test_send_queue_is_bounded(void **state)
{
	uint64_t before = sent(0);
	struct ibv_wc wc[2];
	struct fabric f;

	(void)state;
	begin(&f);
	to_rts(f.qp);
	assert_int_equal(post(f.qp, 3, IBV_WR_SEND, 0), 3);
	assert_int_equal(post(f.qp, 3, IBV_WR_SEND, ENOMEM), 1);
	assert_int_equal(sent(0) - before, 7 + 1);
	/* The completion of the third request frees the places of the first three. */
	assert_int_equal(ibv_poll_cq(f.cq, 2, wc), 1);
	assert_int_equal(wc[0].wr_id, 2);
	assert_int_equal(wc[0].qp_num, f.qp->qp_num);
	assert_int_equal(post(f.qp, 3, IBV_WR_SEND, 0), 3);
	assert_int_equal(post(f.qp, 1, IBV_WR_SEND, ENOMEM), 0);
	assert_int_equal(sent(0) - before, 8 + 7);
	end(&f);
}

static void test_state_and_type_limit_requests(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct fabric f;
	struct ibv_qp *ud;

	(void)state;
	begin(&f);
	assert_int_equal(post(f.qp, 1, IBV_WR_SEND, EINVAL), 0);
	assert_int_equal(
		ibv_modify_qp(f.qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RTS}, IBV_QP_STATE),
		EINVAL);
	ud = make_pair(&f, IBV_QPT_UD, 0);
	to_rts(ud);
	assert_int_equal(ibv_query_qp(ud, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(init.qp_type, IBV_QPT_UD);
	assert_int_equal(post(ud, 2, IBV_WR_RDMA_WRITE, EINVAL), 0);
	assert_int_equal(sent(IBV_QPT_UD), 0);
	assert_int_equal(post(ud, 2, IBV_WR_SEND, 0), 2);
	assert_int_equal(sent(IBV_QPT_UD), 3);
	assert_int_equal(ibv_destroy_qp(ud), 0);
	end(&f);
}

static void test_failure_is_at_the_ordered_request(void **state)
{
	uint64_t before = sent(0);
	struct fabric f;

	(void)state;
	begin(&f);
	to_rts(f.qp);
	fail_after(2, EIO);
	assert_int_equal(post(f.qp, 4, IBV_WR_SEND, EIO), 2);
	assert_int_equal(sent(0) - before, 3);
	fail_after(0, EPERM);
	assert_null(ibv_reg_mr(f.pd, &f, sizeof(f), 0));
	assert_int_equal(errno, EPERM);
	end(&f);
}

static void test_receive_gets_a_message(void **state)
{
	struct ibv_sge sge[2] = {{.length = 100}, {.length = 20}};
	struct ibv_recv_wr wr = {.wr_id = 9, .sg_list = sge, .num_sge = 2}, *bad;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	struct fabric f;
	void *its;

	(void)state;
	begin(&f);
	to_state(f.qp, IBV_QPS_INIT);
	assert_int_equal(ibv_req_notify_cq(f.cq, 0), 0);
	assert_int_equal(ibv_post_recv(f.qp, &wr, &bad), 0);
	assert_int_equal(ibv_get_cq_event(f.channel, &cq, &its), 0);
	ibv_ack_cq_events(cq, 1);
	assert_ptr_equal(cq, f.cq);
	assert_ptr_equal(its, &f);
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 9);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 120);
	end(&f);
}

/* ---- how requests end ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void completed(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = {.opcode = IBV_WC_TSO};

	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
	/* A failed request has no opcode, so the member has the value from before the call. */
	assert_int_equal(wc.opcode, status == IBV_WC_SUCCESS ? IBV_WC_SEND : IBV_WC_TSO);
}

static void nothing_completed(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
}

static void test_request_ends_after_the_ordered_time(void **state)
{
	uint64_t ns = 20 * 1000000, begin_ns;
	struct ibv_cq *cq;
	struct fabric f;
	void *its;

	(void)state;
	begin(&f);
	to_rts(f.qp);
	set_delay(ns);
	assert_int_equal(ibv_req_notify_cq(f.cq, 0), 0);
	begin_ns = now_ns();
	post(f.qp, 1, IBV_WR_SEND, 0);
	assert_int_equal(ibv_get_cq_event(f.channel, &cq, &its), 0);
	assert_true(now_ns() - begin_ns >= ns);
	ibv_ack_cq_events(cq, 1);
	completed(f.cq, 0, IBV_WC_SUCCESS);
	set_delay(0);
	end(&f);
}

static void test_requests_end_in_the_order_of_their_queue(void **state)
{
	struct fabric f;
	struct ibv_qp *other;

	(void)state;
	begin(&f);
	to_rts(f.qp);
	other = make_pair(&f, IBV_QPT_RC, 0);
	to_rts(other);
	set_delay(NEVER);
	post(f.qp, 1, IBV_WR_SEND, 0);
	set_delay(0);
	post(f.qp, 2, IBV_WR_SEND, 0);
	nothing_completed(f.cq);
	/* A request of another queue pair does not wait for them. */
	post(other, 3, IBV_WR_SEND, 0);
	completed(f.cq, 2, IBV_WC_SUCCESS);
	nothing_completed(f.cq);
	assert_int_equal(ibv_destroy_qp(other), 0);
	end(&f);
}

static void test_an_error_flushes_the_queue_pair(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct fabric f;

	(void)state;
	begin(&f);
	to_rts(f.qp);
	end_with(1, IBV_WC_REM_ACCESS_ERR);
	post(f.qp, 3, IBV_WR_SEND, 0);
	completed(f.cq, 1, IBV_WC_REM_ACCESS_ERR);
	completed(f.cq, 2, IBV_WC_WR_FLUSH_ERR);
	nothing_completed(f.cq);
	assert_int_equal(ibv_query_qp(f.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	post(f.qp, 1, IBV_WR_SEND, 0);
	completed(f.cq, 0, IBV_WC_WR_FLUSH_ERR);
	to_state(f.qp, IBV_QPS_RESET);
	to_rts(f.qp);
	post(f.qp, 1, IBV_WR_SEND, 0);
	completed(f.cq, 0, IBV_WC_SUCCESS);
	end(&f);
}

static void test_a_new_state_ends_what_is_in_flight(void **state)
{
	struct fabric f;

	(void)state;
	begin(&f);
	to_rts(f.qp);
	set_delay(NEVER);
	post(f.qp, 2, IBV_WR_SEND, 0);
	to_state(f.qp, IBV_QPS_ERR);
	completed(f.cq, 0, IBV_WC_WR_FLUSH_ERR);
	completed(f.cq, 1, IBV_WC_WR_FLUSH_ERR);
	to_state(f.qp, IBV_QPS_RESET);
	to_rts(f.qp);
	post(f.qp, PLACES, IBV_WR_SEND, 0);
	to_state(f.qp, IBV_QPS_RESET);
	nothing_completed(f.cq);
	set_delay(0);
	end(&f);
}

static void test_extended_completion_queue(void **state)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = PLACES, .wc_flags = IBV_WC_EX_WITH_QP_NUM};
	struct ibv_poll_cq_attr none = {0};
	struct fabric f;
	struct ibv_cq_ex *ex;
	struct ibv_qp *qp;

	(void)state;
	begin(&f);
	ex = ibv_create_cq_ex(f.contexts[0], &attr);
	assert_non_null(ex);
	qp = ibv_create_qp(f.pd, &(struct ibv_qp_init_attr){.send_cq = ibv_cq_ex_to_cq(ex),
							    .recv_cq = ibv_cq_ex_to_cq(ex),
							    .cap = {PLACES, PLACES, 1, 1, 0},
							    .qp_type = IBV_QPT_RC});
	assert_non_null(qp);
	to_rts(qp);
	assert_int_equal(ibv_start_poll(ex, &none), ENOENT);
	post(qp, 3, IBV_WR_SEND, 0);
	post(qp, 1, IBV_WR_RDMA_WRITE, 0);
	assert_int_equal(ibv_start_poll(ex, &none), 0);
	assert_int_equal(ex->status, IBV_WC_SUCCESS);
	assert_int_equal(ex->wr_id, 2);
	assert_int_equal(ibv_wc_read_opcode(ex), IBV_WC_SEND);
	assert_int_equal(ibv_wc_read_qp_num(ex), qp->qp_num);
	assert_int_equal(ibv_next_poll(ex), 0);
	assert_int_equal(ibv_wc_read_opcode(ex), IBV_WC_RDMA_WRITE);
	assert_int_equal(ibv_next_poll(ex), ENOENT);
	ibv_end_poll(ex);
	nothing_completed(ibv_cq_ex_to_cq(ex));
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
	end(&f);
}

/* ---- ibv_wr_*() ---- */

static int build(struct ibv_qp_ex *ex, int n, uint32_t bytes)
{
	ibv_wr_start(ex);
	for (int i = 0; i < n; i++) {
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, 1, 0, bytes);
	}
	return ibv_wr_complete(ex);
}

static void test_built_requests_are_posted_all_or_none(void **state)
{
	uint64_t before = sent(0);
	struct ibv_qp_ex *ex;
	struct fabric f;
	struct ibv_qp *qp;

	(void)state;
	begin(&f);
	assert_null(ibv_qp_to_qp_ex(f.qp));
	qp = make_pair(&f, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
	ex = ibv_qp_to_qp_ex(qp);
	assert_ptr_equal(ex, qp);
	assert_int_equal(build(ex, 1, 10), EINVAL);
	to_rts(qp);
	assert_int_equal(build(ex, 3, 10), 0);
	assert_int_equal(build(ex, 2, 10), ENOMEM);
	fail_after(0, EIO);
	assert_int_equal(build(ex, 1, 10), EIO);
	assert_int_equal(sent(0) - before, 30);
	assert_int_equal(build(ex, 1, 5), 0);
	assert_int_equal(sent(0) - before, 35);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_device_has_a_provider),
		cmocka_unit_test(test_functions_that_post_have_no_name),
		cmocka_unit_test(test_send_queue_is_bounded),
		cmocka_unit_test(test_state_and_type_limit_requests),
		cmocka_unit_test(test_failure_is_at_the_ordered_request),
		cmocka_unit_test(test_receive_gets_a_message),
		cmocka_unit_test(test_request_ends_after_the_ordered_time),
		cmocka_unit_test(test_requests_end_in_the_order_of_their_queue),
		cmocka_unit_test(test_an_error_flushes_the_queue_pair),
		cmocka_unit_test(test_a_new_state_ends_what_is_in_flight),
		cmocka_unit_test(test_extended_completion_queue),
		cmocka_unit_test(test_built_requests_are_posted_all_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
