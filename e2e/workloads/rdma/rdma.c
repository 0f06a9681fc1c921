/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Known answer in C: posts requests to queue pairs of two RDMA devices, each kind in a function of
 * its own. Once a second it prints "known SECONDS FUNCTION=SUM ...". SUM is the number of bytes
 * that the function has posted or registered since the program began, the number of its calls that
 * failed, or for how many microseconds its requests were under way.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../../rdma/standin.h"

#define PLACES	 8
#define PAUSE_MS 50

static struct ibv_pd *pds[2];
static char memory[65536];

static void must(int is_right)
{
	if (!is_right)
		abort();
}

#define FUNCTION(name) __attribute__((noinline)) static uint64_t name(struct ibv_qp *qp)

static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t bytes)
{
	static _Atomic uint64_t number;
	struct ibv_sge sge = {(uintptr_t)memory, bytes, 0};
	struct ibv_send_wr wr = {
		.wr_id = number++, .sg_list = &sge, .num_sge = 1, .opcode = opcode};
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, &wr, &bad);
}

FUNCTION(sends)
{
	must(post(qp, IBV_WR_SEND, 60000) == 0);
	return 60000;
}

FUNCTION(writes)
{
	must(post(qp, IBV_WR_RDMA_WRITE, 30000) == 0);
	return 30000;
}

FUNCTION(sends_datagrams)
{
	must(post(qp, IBV_WR_SEND, 1000) == 0);
	must(post(qp, IBV_WR_SEND, 200) == 0);
	return 1200;
}

FUNCTION(builds)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(ex);
	for (int i = 0; i < 2; i++) {
		ibv_wr_rdma_read(ex, 0, 0);
		ibv_wr_set_sge(ex, 0, (uintptr_t)memory, 20000);
	}
	must(ibv_wr_complete(ex) == 0);
	return 40000;
}

/* The device has no such request: the call fails. Returns one call. */
FUNCTION(fails)
{
	must(post(qp, IBV_WR_BIND_MW, 50000) != 0);
	return 1;
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* The request has no bytes and takes 20 ms. Returns for how many microseconds it was under way. */
FUNCTION(is_slow)
{
	__typeof__(&standin_rdma_set_delay) set_delay =
		(__typeof__(set_delay))dlsym(RTLD_DEFAULT, "standin_rdma_set_delay");
	uint64_t began = now_us();
	struct ibv_wc wc;

	set_delay(20000000);
	must(post(qp, IBV_WR_RDMA_WRITE, 0) == 0);
	while (ibv_poll_cq(qp->send_cq, 1, &wc) == 0)
		nanosleep(&(struct timespec){0, 100000}, NULL);
	return now_us() - began;
}

FUNCTION(receives)
{
	struct ibv_sge sge = {(uintptr_t)memory, 10000, 0};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	must(ibv_post_recv(qp, &wr, &bad) == 0);
	return 10000;
}

FUNCTION(registers)
{
	struct ibv_mr *mr = ibv_reg_mr(qp->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);

	must(mr && ibv_dereg_mr(mr) == 0);
	return sizeof(memory);
}

static struct row {
	const char *name;
	uint64_t (*function)(struct ibv_qp *qp);
	int device;
	enum ibv_qp_type type;
	uint64_t operations; /* of the extended queue pair; 0: it is not extended */
	_Atomic uint64_t sum;
} rows[] = {
	{"sends", sends, 0, IBV_QPT_RC, 0, 0},
	{"writes", writes, 1, IBV_QPT_RC, 0, 0},
	{"sends_datagrams", sends_datagrams, 0, IBV_QPT_UD, 0, 0},
	{"builds", builds, 0, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_READ, 0},
	{"fails", fails, 0, IBV_QPT_RC, 0, 0},
	{"is_slow", is_slow, 0, IBV_QPT_UC, 0, 0},
	{"receives", receives, 0, IBV_QPT_RC, 0, 0},
	{"registers", registers, 0, IBV_QPT_RC, 0, 0},
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))

/* ---- queue pairs ---- */

static struct ibv_qp *make_pair(const struct row *r)
{
	struct ibv_context *context = pds[r->device]->context;
	struct ibv_cq *cq = ibv_create_cq(context, 2 * PLACES, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {PLACES, PLACES, 1, 1, 0},
		.qp_type = r->type,
		.sq_sig_all = 1,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | (r->operations ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = pds[r->device],
		.send_ops_flags = r->operations,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);

	must(qp != NULL);
	for (enum ibv_qp_state s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++)
		must(ibv_modify_qp(qp, &(struct ibv_qp_attr){.qp_state = s}, IBV_QP_STATE) == 0);
	return qp;
}

/*
 * Asks for the state of the queue pair, as programs do that watch their connections. The queue pair
 * is older than podflame's probes, which learn of it now.
 */
static void watch(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	must(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_RTS);
}

static void *works(void *arg)
{
	struct row *r = arg;
	struct ibv_qp *qp = make_pair(r);
	struct ibv_wc wc[PLACES];

	for (unsigned n = 0;; n++) {
		if (n % 20 == 0)
			watch(qp);
		r->sum += r->function(qp);
		while (ibv_poll_cq(qp->send_cq, PLACES, wc) > 0)
			;
		nanosleep(&(struct timespec){0, PAUSE_MS * 1000000}, NULL);
	}
	return NULL;
}

static void open_devices(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	must(list && n == 2);
	for (int i = 0; i < 2; i++) {
		struct ibv_context *context = ibv_open_device(list[i]);

		must(context != NULL);
		pds[i] = ibv_alloc_pd(context);
	}
}

int main(void)
{
	pthread_t t;

	open_devices();
	for (size_t i = 0; i < N_ROWS; i++)
		must(pthread_create(&t, NULL, works, &rows[i]) == 0);
	for (;; sleep(1)) {
		printf("known %jd", (intmax_t)time(NULL));
		for (size_t i = 0; i < N_ROWS; i++)
			printf(" %s=%" PRIu64, rows[i].name, rows[i].sum);
		puts("");
		fflush(stdout);
	}
}
