/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of a test that posts to queue pairs of the stand-in libibverbs. It reads names of steps
 * from stdin, runs the function of each step, and prints the name when the step is done.
 * rdma_live_test.c knows what each step posts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PLACES	   16
#define STEP(name) __attribute__((noinline, noclone)) static void with_##name(void)

static void must(int is_right, const char *what)
{
	if (is_right)
		return;
	printf("%s\n", what);
	exit(1);
}
#define MUST(is_right) must(!!(is_right), #is_right)

static struct ibv_context *contexts[2];
static struct ibv_pd *pds[2];
static struct ibv_cq *cqs[2];
static struct ibv_qp *pair;
static struct ibv_qp_ex *extended;
static char memory[8192];

/* ---- objects ---- */

STEP(devices)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0] && list[1]);
	for (int i = 0; i < 2; i++) {
		MUST(contexts[i] = ibv_open_device(list[i]));
		MUST(pds[i] = ibv_alloc_pd(contexts[i]));
		MUST(cqs[i] = ibv_create_cq(contexts[i], 4 * PLACES, NULL, NULL, 0));
	}
	ibv_free_device_list(list);
}

static struct ibv_qp *make_pair_with(struct ibv_cq *cq, int device, unsigned operations)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {PLACES, PLACES, 2, 2, 64},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | (operations ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = pds[device],
		.send_ops_flags = operations,
	};
	struct ibv_qp *qp;

	MUST(qp = ibv_create_qp_ex(contexts[device], &attr));
	for (enum ibv_qp_state s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++)
		MUST(!ibv_modify_qp(qp, &(struct ibv_qp_attr){.qp_state = s}, IBV_QP_STATE));
	return qp;
}

static struct ibv_qp *make_pair(int device, unsigned operations)
{
	return make_pair_with(cqs[device], device, operations);
}

STEP(pair)
{
	pair = make_pair(0, 0);
}

/* A queue pair whose completions the program takes by ibv_start_poll(). */
STEP(readers)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = PLACES};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(contexts[0], &attr);

	MUST(cq && make_pair_with(ibv_cq_ex_to_cq(cq), 0, 0));
}

STEP(extended)
{
	MUST(extended = ibv_qp_to_qp_ex(
		     make_pair(1, IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE)));
}

static void query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(!ibv_query_qp(pair, &attr, IBV_QP_STATE, &init));
}

STEP(query)
{
	query();
}

/*
 * For a moment, the context's post_send points to what is no function of a file: anonymous memory,
 * data, and address 1.
 */
STEP(lies)
{
	__typeof__(pair->context->ops.post_send) real = pair->context->ops.post_send;
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(code != MAP_FAILED);
	pair->context->ops.post_send = (__typeof__(real))code;
	query();
	pair->context->ops.post_send = (__typeof__(real))memory;
	query();
	pair->context->ops.post_send = (__typeof__(real))(uintptr_t)1;
	query();
	pair->context->ops.post_send = real;
}

/* ---- requests ---- */

STEP(sends)
{
	struct ibv_sge sge = {(uintptr_t)memory, 1000, 0}, last = {(uintptr_t)memory, 200, 0};
	struct ibv_send_wr wr[2] = {
		{.next = &wr[1], .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
		{.sg_list = &last, .num_sge = 1, .opcode = IBV_WR_SEND},
	};
	struct ibv_send_wr *bad;

	MUST(!ibv_post_send(pair, wr, &bad));
}

STEP(receives)
{
	struct ibv_sge sge = {(uintptr_t)memory, 300, 0};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	MUST(!ibv_post_recv(pair, &wr, &bad));
}

STEP(builds)
{
	ibv_wr_start(extended);
	ibv_wr_rdma_read(extended, 0, 0);
	ibv_wr_set_sge(extended, 0, (uintptr_t)memory, 4000);
	ibv_wr_rdma_write(extended, 0, 0);
	ibv_wr_set_inline_data(extended, memory, 50);
	MUST(!ibv_wr_complete(extended));
}

STEP(registers)
{
	struct ibv_mr *mr = ibv_reg_mr(pds[0], memory, 6000, 0);

	MUST(mr && !ibv_dereg_mr(mr));
}

static int poll_all(void)
{
	struct ibv_wc wc[4 * PLACES];
	int n, all = 0;

	for (int i = 0; i < 2; i++) {
		MUST((n = ibv_poll_cq(cqs[i], 4 * PLACES, wc)) >= 0);
		all += n;
	}
	return all;
}

STEP(polls)
{
	poll_all();
}

/* Requests that this thread posts end so much later. */
static void set_delay(uint64_t ns)
{
	void (*set)(uint64_t ns) = (__typeof__(set))dlsym(RTLD_DEFAULT, "standin_rdma_set_delay");

	MUST(set);
	set(ns);
}

/* Posts two requests, which end after 10 ms, and polls until they have ended. */
STEP(waits)
{
	set_delay(10000000);
	with_sends();
	set_delay(0);
	for (int n = 0; n < 2;)
		n += poll_all();
}

static const struct {
	const char *name;
	void (*step)(void);
} steps[] = {
#define X(name)                                                                                    \
	{                                                                                          \
#name, with_##name                                                                 \
	}
	X(devices), X(pair),	 X(readers), X(extended),  X(query), X(lies),
	X(sends),   X(receives), X(builds),  X(registers), X(polls), X(waits),
#undef X
};

int main(void)
{
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
			if (strcmp(steps[i].name, line) == 0)
				steps[i].step();
		puts(line);
	}
	return 0;
}
