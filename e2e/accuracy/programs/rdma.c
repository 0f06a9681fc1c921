/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma: requests in C, by ibv_post_send() and ibv_post_recv(), and memory regions. It makes its
 * queue pairs before podflame profiles it, so podflame does not see how they are made.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "rdma.h"

static struct ibv_qp *rc, *uc, *ud, *on_second;
static struct ibv_srq *srq;
static struct ibv_ah *ah;
static char memory[4096];

/* ---- requests ---- */

/* A list of requests, which each have one or more buffers of the same length. */
struct list {
	struct ibv_send_wr wr[PLACES];
	struct ibv_sge sge[PLACES][MAX_SGE];
	int n;
};

static struct ibv_send_wr *add(struct list *l, enum ibv_wr_opcode opcode, int n_sge,
			       uint32_t length)
{
	struct ibv_send_wr *wr = &l->wr[l->n];

	memset(wr, 0, sizeof(*wr));
	for (int i = 0; i < n_sge; i++)
		l->sge[l->n][i] = (struct ibv_sge){(uintptr_t)memory, length, 1};
	wr->wr_id = (uint64_t)l->n;
	wr->sg_list = l->sge[l->n];
	wr->num_sge = n_sge;
	wr->opcode = opcode;
	if (l->n)
		wr[-1].next = wr;
	l->n++;
	return wr;
}

static void post(struct ibv_qp *qp, struct list *l)
{
	struct ibv_send_wr *bad;

	WORKS(ibv_post_send(qp, l->wr, &bad));
}

/* Posts a list whose request number `bad` fails with this error. */
static void post_until(struct ibv_qp *qp, struct list *l, int bad, int error)
{
	struct ibv_send_wr *its = NULL;

	GIVES(error, ibv_post_send(qp, l->wr, &its));
	GIVES(bad, (int)(its - l->wr));
}

#define ONE(name, qp, opcode, n_sge, length)                                                       \
	FUNCTION(name)                                                                             \
	{                                                                                          \
		struct list l = {.n = 0};                                                          \
		add(&l, opcode, n_sge, length);                                                    \
		post(qp, &l);                                                                      \
	}

ONE(sends, rc, IBV_WR_SEND, 1, 1000)
ONE(sends_from_many, rc, IBV_WR_SEND_WITH_IMM, 4, 111)
ONE(sends_large, rc, IBV_WR_SEND, 4, 0xc0000000)
ONE(sends_nothing, rc, IBV_WR_SEND, 0, 0)
ONE(writes, rc, IBV_WR_RDMA_WRITE, 2, 2000)
ONE(writes_with_imm, rc, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 2100)
ONE(reads, rc, IBV_WR_RDMA_READ, 3, 3000)
ONE(adds, rc, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8)
ONE(swaps, rc, IBV_WR_ATOMIC_CMP_AND_SWP, 1, 8)
ONE(sends_deep, rc, IBV_WR_SEND, 1, 1700)
ONE(invalidates, rc, IBV_WR_LOCAL_INV, 0, 0)
ONE(unreliable, uc, IBV_WR_RDMA_WRITE, 1, 4000)
ONE(sends_on_second, on_second, IBV_WR_SEND_WITH_INV, 1, 5000)

FUNCTION(sends_inline)
{
	struct list l = {.n = 0};

	add(&l, IBV_WR_SEND, 2, 60)->send_flags = IBV_SEND_INLINE;
	post(rc, &l);
}

FUNCTION(datagrams)
{
	struct list l = {.n = 0};

	for (int i = 0; i < 3; i++) {
		struct ibv_send_wr *wr = add(&l, IBV_WR_SEND, 1, 600);

		wr->wr.ud.ah = ah;
		wr->wr.ud.remote_qpn = 1;
	}
	post(ud, &l);
}

FUNCTION(mixes)
{
	struct list l = {.n = 0};

	add(&l, IBV_WR_SEND, 1, 700);
	add(&l, IBV_WR_RDMA_WRITE, 2, 710);
	add(&l, IBV_WR_RDMA_READ, 3, 720);
	add(&l, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8);
	add(&l, IBV_WR_LOCAL_INV, 0, 0);
	add(&l, IBV_WR_SEND_WITH_IMM, 1, 730);
	post(rc, &l);
}

FUNCTION(sends_long_list)
{
	struct list l = {.n = 0};

	while (l.n < PLACES)
		add(&l, IBV_WR_SEND, MAX_SGE, 10);
	post(rc, &l);
}

FUNCTION(receives)
{
	struct ibv_sge sge[2] = {{(uintptr_t)memory, 800, 1}, {(uintptr_t)memory, 80, 1}};
	struct ibv_recv_wr wr[3] = {{0, &wr[1], sge, 2}, {1, &wr[2], sge, 1}, {2, NULL, sge, 0}};
	struct ibv_recv_wr *bad;

	WORKS(ibv_post_recv(rc, wr, &bad));
}

FUNCTION(receives_shared)
{
	struct ibv_sge sge = {(uintptr_t)memory, 870, 1};
	struct ibv_recv_wr wr[2] = {{0, &wr[1], &sge, 1}, {1, NULL, &sge, 1}}, *bad;

	WORKS(ibv_post_srq_recv(srq, wr, &bad));
}

__attribute__((noinline)) static void deeper(int n)
{
	if (n)
		deeper(n - 1);
	else
		sends_deep();
}

static void recurses(void)
{
	deeper(20);
}

static void *of_thread(void *qp)
{
	struct list l = {.n = 0};

	add(&l, IBV_WR_SEND, 1, 900);
	post(qp, &l);
	return NULL;
}

static void starts_threads(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		WORKS(pthread_create(&threads[i], NULL, of_thread, rc));
	for (int i = 0; i < 4; i++)
		WORKS(pthread_join(threads[i], NULL));
}

/* ---- failures ---- */

FUNCTION(fails)
{
	struct list l = {.n = 0};

	add(&l, IBV_WR_SEND, 1, 1000);
	fail_after(0, EIO);
	post_until(rc, &l, 0, EIO);
}

FUNCTION(fails_later)
{
	struct list l = {.n = 0};

	add(&l, IBV_WR_SEND, 1, 1);
	add(&l, IBV_WR_RDMA_WRITE, 1, 20);
	add(&l, IBV_WR_SEND, 1, 300);
	add(&l, IBV_WR_SEND, 1, 4000);
	fail_after(2, EIO);
	post_until(rc, &l, 2, EIO);
}

/* The last of these requests do not fit into the queue. */
FUNCTION(overflows)
{
	struct list l = {.n = 0};

	while (l.n < PLACES)
		add(&l, IBV_WR_SEND, 1, 10);
	l.wr[PLACES - 4].next = NULL;
	post(rc, &l);
	l.wr[PLACES - 4].next = &l.wr[PLACES - 3];
	post_until(rc, &l, 3, ENOMEM);
}

FUNCTION(cannot_be_read) /* a UC queue pair cannot read */
{
	struct list l = {.n = 0};

	add(&l, IBV_WR_RDMA_READ, 1, 1000);
	post_until(uc, &l, 0, EINVAL);
}

FUNCTION(receives_one)
{
	struct ibv_sge sge = {(uintptr_t)memory, 850, 1};
	struct ibv_recv_wr wr[2] = {{0, &wr[1], &sge, 1}, {1, NULL, &sge, 1}};
	struct ibv_recv_wr *bad;

	fail_after(1, EIO);
	GIVES(EIO, ibv_post_recv(rc, wr, &bad));
	GIVES(1, (int)(bad - wr));
}

/* ---- memory regions ---- */

FUNCTION(registers)
{
	struct ibv_mr *mr = ibv_reg_mr(pds[0], memory, 1100, IBV_ACCESS_LOCAL_WRITE);

	WORKS(ibv_dereg_mr(mr));
}

/* The macro of verbs.h calls ibv_reg_mr_iova2() if it does not know the access. */
FUNCTION(registers_with)
{
	volatile int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
	int of_volatile = access;

	MADE(ibv_reg_mr(pds[0], memory, 1200, of_volatile));
}

FUNCTION(registers_at)
{
	MADE(ibv_reg_mr_iova(pds[0], memory, 1300, 4096, 0));
}

FUNCTION(registers_dmabuf)
{
	MADE(ibv_reg_dmabuf_mr(pds[1], 0, 1400, 0, -1, 0));
}

/* As a program of 2006: the oldest version of the function, with that version's structure. */
FUNCTION(registers_as_of_old)
{
	struct {
		void *context;
		uint32_t handle;
		struct ibv_pd *newer;
	} pd = {NULL, 0, pds[0]};
	void *(*oldest)(void *, void *, size_t, int) =
		(void *(*)(void *, void *, size_t, int))dlvsym(RTLD_DEFAULT, "ibv_reg_mr",
							       "IBVERBS_1.0");

	MADE(oldest(&pd, memory, 1500, 0));
}

FUNCTION(fails_to_register)
{
	fail_after(0, ENOMEM);
	MADE(!ibv_reg_mr(pds[0], memory, 1600, 0));
}

/* ---- all ---- */

#define POSTS(name, f, queue, ...) posts(#name, f, queue, (struct sums){{__VA_ARGS__}})
#define POSTS_NOTHING(name)	   posts(#name, name, "", (struct sums){{0}})

static void post_all(void)
{
	const char *on_rc = "RC@standin_0";

	POSTS(sends, sends, on_rc, [STANDIN_SEND] = 1000);
	POSTS(sends_from_many, sends_from_many, on_rc, [STANDIN_SEND] = 444);
	POSTS(sends_large, sends_large, on_rc, [STANDIN_SEND] = 4 * 0xc0000000ULL);
	POSTS(writes, writes, on_rc, [STANDIN_WRITE] = 4000);
	POSTS(writes_with_imm, writes_with_imm, on_rc, [STANDIN_WRITE] = 2100);
	POSTS(reads, reads, on_rc, [STANDIN_READ] = 9000);
	POSTS(adds, adds, on_rc, [STANDIN_ATOMIC] = 8);
	POSTS(swaps, swaps, on_rc, [STANDIN_ATOMIC] = 8);
	POSTS(unreliable, unreliable, "UC@standin_0", [STANDIN_WRITE] = 4000);
	POSTS(sends_on_second, sends_on_second, "RC@standin_1", [STANDIN_SEND] = 5000);
	POSTS(sends_inline, sends_inline, on_rc, [STANDIN_SEND] = 120);
	POSTS(datagrams, datagrams, "UD@standin_0", [STANDIN_SEND] = 1800);
	POSTS(mixes, mixes, on_rc, [STANDIN_SEND] = 1430, [STANDIN_WRITE] = 1420,
	      [STANDIN_READ] = 2160, [STANDIN_ATOMIC] = 8);
	POSTS(sends_long_list, sends_long_list, on_rc, [STANDIN_SEND] = 40 * PLACES);
	POSTS(receives, receives, on_rc, [STANDIN_RECEIVE] = 1680);
	POSTS(receives_shared, receives_shared, "@standin_0", [STANDIN_RECEIVE] = 1740);
	POSTS(sends_deep, recurses, on_rc, [STANDIN_SEND] = 1700);
	POSTS(of_thread, starts_threads, on_rc, [STANDIN_SEND] = 3600);
	POSTS(fails_later, fails_later, on_rc, [STANDIN_SEND] = 1, [STANDIN_WRITE] = 20);
	POSTS(overflows, overflows, on_rc, [STANDIN_SEND] = 10 * PLACES);
	POSTS(receives_one, receives_one, on_rc, [STANDIN_RECEIVE] = 850);
	POSTS(registers, registers, "@standin_0", [STANDIN_REGISTER] = 1100);
	POSTS(registers_with, registers_with, "@standin_0", [STANDIN_REGISTER] = 1200);
	POSTS(registers_at, registers_at, "@standin_0", [STANDIN_REGISTER] = 1300);
	POSTS(registers_dmabuf, registers_dmabuf, "@standin_1", [STANDIN_REGISTER] = 1400);
	POSTS(registers_as_of_old, registers_as_of_old, "@standin_0", [STANDIN_REGISTER] = 1500);
	POSTS_NOTHING(sends_nothing);
	POSTS_NOTHING(invalidates);
	POSTS_NOTHING(fails);
	POSTS_NOTHING(cannot_be_read);
	POSTS_NOTHING(fails_to_register);
}

/* Makes the shared receive queue, and a queue pair that uses it. */
static void make_shared(void)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = PLACES, .max_sge = 1}};
	struct ibv_qp_init_attr its = {.send_cq = cqs[0],
				       .recv_cq = cqs[0],
				       .cap = {1, 0, 1, 0, 0},
				       .qp_type = IBV_QPT_RC};

	MADE(srq = ibv_create_srq(pds[0], &attr));
	its.srq = srq;
	MADE(ibv_create_qp(pds[0], &its));
}

int main(int argc, char **argv)
{
	struct ibv_ah_attr to = {.port_num = 1};

	open_told(argc, argv);
	open_devices();
	rc = make_pair(0, IBV_QPT_RC, 0);
	uc = make_pair(0, IBV_QPT_UC, 0);
	ud = make_pair(0, IBV_QPT_UD, 0);
	on_second = make_pair(1, IBV_QPT_RC, 0);
	make_shared();
	MADE(ah = ibv_create_ah(pds[0], &to));
	wait_for_order();
	show(rc);
	show(on_second);
	await_counts();
	post_all();
	compare_with_library();
	end();
}
