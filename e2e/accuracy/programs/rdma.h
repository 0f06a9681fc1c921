/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma: what the programs in C and C++ share that post requests to queue pairs. They are linked
 * with the real libibverbs and run with the stand-in (e2e/rdma), whose sums must be the program's.
 * A line of TOLD has the event "rdma:OPERATION", and as its cause the queue pair's "TYPE@DEVICE".
 */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <unistd.h>

#include "../../rdma/standin.h"
#include "told.h"

/* Ends the program if a call does not return `wanted`. */
#define GIVES(wanted, call)                                                                       \
	do {                                                                                      \
		int gave = (call);                                                                \
		if (gave != (wanted)) {                                                           \
			fprintf(stderr, "%s:%d: %d: %s\n", __FILE__, __LINE__, gave, #call);      \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)
#define WORKS(call)   GIVES(0, call)
#define MADE(pointer) GIVES(1, !!(pointer))

#define PLACES	   128 /* of a send queue or a receive queue */
#define MAX_SGE	   4
#define MAX_INLINE 256

/* ---- the library ---- */

static __typeof__(&standin_rdma_count) count_all;
static __typeof__(&standin_rdma_fail_after) fail_after;
static struct ibv_context *contexts[2];
static struct ibv_pd *pds[2];
static struct ibv_cq *cqs[2];

static void open_devices(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	count_all = (__typeof__(count_all))dlsym(RTLD_DEFAULT, "standin_rdma_count");
	fail_after = (__typeof__(fail_after))dlsym(RTLD_DEFAULT, "standin_rdma_fail_after");
	if (!count_all || !list || n != 2)
		fail("this is not the stand-in");
	for (int i = 0; i < 2; i++) {
		MADE(contexts[i] = ibv_open_device(list[i]));
		MADE(pds[i] = ibv_alloc_pd(contexts[i]));
		MADE(cqs[i] = ibv_create_cq(contexts[i], 8 * PLACES, NULL, NULL, 0));
	}
	ibv_free_device_list(list);
}

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = state;
	WORKS(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Makes a queue pair that can send. operations: those that it can build with ibv_wr_*(). */
static struct ibv_qp *make_pair(int device, enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_qp_init_attr_ex attr;
	struct ibv_qp *qp;

	memset(&attr, 0, sizeof(attr));
	attr.send_cq = attr.recv_cq = cqs[device];
	attr.cap.max_send_wr = attr.cap.max_recv_wr = PLACES;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = MAX_SGE;
	attr.cap.max_inline_data = MAX_INLINE;
	attr.qp_type = type;
	attr.sq_sig_all = 1;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	attr.pd = pds[device];
	if (operations) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = operations;
	}
	MADE(qp = ibv_create_qp_ex(contexts[device], &attr));
	to_state(qp, IBV_QPS_INIT);
	to_state(qp, IBV_QPS_RTR);
	to_state(qp, IBV_QPS_RTS);
	return qp;
}

/* ---- podflame ---- */

/*
 * podflame learns the functions of a queue pair when the program calls libibverbs with it, and
 * probes them some time later. The probe's instruction is then one of the function's first ones.
 */
static void await_probe(void *function)
{
	const volatile unsigned char *code = (const volatile unsigned char *)function;

	for (int i = 0; code[i] != 0xcc; i = (i + 1) % 16)
		if (!i)
			usleep(1000);
}

/*
 * Says that the functions are probed, and waits until podflame counts: it begins when all probes
 * are in place, which the program cannot see.
 */
static void await_counts(void)
{
	printf("shown %d\n", getpid());
	if (fflush(stdout) || getchar() == EOF)
		fail("shown");
}

/* Shows podflame a queue pair, and waits until it probes the functions that post to it. */
static inline void show(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	WORKS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	await_probe((void *)qp->context->ops.post_send);
	await_probe((void *)qp->context->ops.post_recv);
	await_probe((void *)qp->context->ops.post_srq_recv);
}

/* The same for the functions ibv_wr_*() of an extended queue pair. */
static inline struct ibv_qp_ex *show_extended(struct ibv_qp *qp)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	void *const functions[] = {
		(void *)ex->wr_atomic_cmp_swp,	(void *)ex->wr_atomic_fetch_add,
		(void *)ex->wr_local_inv,	(void *)ex->wr_rdma_read,
		(void *)ex->wr_rdma_write,	(void *)ex->wr_rdma_write_imm,
		(void *)ex->wr_send,		(void *)ex->wr_send_imm,
		(void *)ex->wr_send_inv,	(void *)ex->wr_set_inline_data,
		(void *)ex->wr_set_sge,		(void *)ex->wr_set_inline_data_list,
		(void *)ex->wr_set_sge_list,	(void *)ex->wr_start,
		(void *)ex->wr_complete,	(void *)ex->wr_abort,
	};

	show(qp);
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		await_probe(functions[i]);
	return ex;
}

/* Polls all completions, so the queues are empty. */
static inline void poll_all(void)
{
	struct ibv_wc wc[16];

	for (int i = 0; i < 2; i++)
		while (ibv_poll_cq(cqs[i], 16, wc) > 0)
			;
}

/* ---- what is known ---- */

static const char *const operation_names[] = {"send",  "write",	  "read",    "atomic",
					      "other", "receive", "register"};
static struct standin_rdma_counts known;

/* Bytes of each operation, by enum standin_operation. */
struct sums {
	uint64_t bytes[_STANDIN_OPERATIONS];
};

/*
 * Runs a function that posts these bytes each time to queue pairs of this type and device, and
 * prints the sums of its operations. If there are none, a line says that nothing is sent.
 */
static inline void posts(const char *name, void (*f)(void), const char *queue, struct sums p)
{
	uint64_t any = 0;

	for (unsigned i = 0; i < rounds; i++) {
		f();
		poll_all();
	}
	for (int i = 0; i < _STANDIN_OPERATIONS; i++) {
		known.bytes[i] += p.bytes[i] * rounds;
		if (p.bytes[i])
			fprintf(told, "rdma:%s %s %llu %s\n", operation_names[i], name,
				(unsigned long long)p.bytes[i] * rounds, queue);
		any |= p.bytes[i];
	}
	if (!any)
		fprintf(told, "rdma:send %s 0\n", name);
}

/* Ends the program if the library has counted other sums than the program. */
static inline void compare_with_library(void)
{
	struct standin_rdma_counts c;

	count_all(NULL, 0, &c);
	GIVES(0, memcmp(c.bytes, known.bytes, sizeof(c.bytes)));
}
