/* SPDX-License-Identifier: Apache-2.0 */
/* rdma_ex: requests in C, by ibv_wr_*() on extended queue pairs. */
#include <pthread.h>

#include "rdma.h"

static struct ibv_qp *pair;
static struct ibv_qp_ex *rc, *ud, *on_second;
static struct ibv_ah *ah;
static char memory[4096];

#define AT	   ((uintptr_t)memory)
#define REMOTE	   4096, 8192 /* key and address */
#define DONE(pair) WORKS(ibv_wr_complete(pair))

/* ---- one request ---- */

FUNCTION(sends)
{
	ibv_wr_start(rc);
	ibv_wr_send(rc);
	ibv_wr_set_sge(rc, 1, AT, 1000);
	DONE(rc);
}

FUNCTION(sends_from_many)
{
	const struct ibv_sge list[3] = {{AT, 1, 1}, {AT, 20, 1}, {AT, 300, 1}};

	ibv_wr_start(rc);
	ibv_wr_send_imm(rc, 7);
	ibv_wr_set_sge_list(rc, 3, list);
	DONE(rc);
}

FUNCTION(sends_large)
{
	const struct ibv_sge list[2] = {{AT, 0xc0000000, 1}, {AT, 0xc0000000, 1}};

	ibv_wr_start(rc);
	ibv_wr_send_inv(rc, 1);
	ibv_wr_set_sge_list(rc, 2, list);
	DONE(rc);
}

FUNCTION(sends_inline)
{
	ibv_wr_start(rc);
	ibv_wr_send(rc);
	ibv_wr_set_inline_data(rc, memory, 111);
	DONE(rc);
}

FUNCTION(sends_inline_from_many)
{
	const struct ibv_data_buf list[2] = {{memory, 40}, {memory, 4}};

	ibv_wr_start(rc);
	ibv_wr_send(rc);
	ibv_wr_set_inline_data_list(rc, 2, list);
	DONE(rc);
}

FUNCTION(sends_nothing)
{
	ibv_wr_start(rc);
	ibv_wr_send(rc);
	DONE(rc);
}

FUNCTION(writes)
{
	ibv_wr_start(rc);
	ibv_wr_rdma_write(rc, REMOTE);
	ibv_wr_set_sge(rc, 1, AT, 2000);
	DONE(rc);
}

FUNCTION(writes_with_imm)
{
	ibv_wr_start(rc);
	ibv_wr_rdma_write_imm(rc, REMOTE, 7);
	ibv_wr_set_sge(rc, 1, AT, 2100);
	DONE(rc);
}

FUNCTION(reads)
{
	ibv_wr_start(rc);
	ibv_wr_rdma_read(rc, REMOTE);
	ibv_wr_set_sge(rc, 1, AT, 3000);
	DONE(rc);
}

FUNCTION(adds)
{
	ibv_wr_start(rc);
	ibv_wr_atomic_fetch_add(rc, REMOTE, 1);
	ibv_wr_set_sge(rc, 1, AT, 8);
	DONE(rc);
}

FUNCTION(swaps)
{
	ibv_wr_start(rc);
	ibv_wr_atomic_cmp_swp(rc, REMOTE, 1, 2);
	ibv_wr_set_sge(rc, 1, AT, 8);
	DONE(rc);
}

FUNCTION(invalidates)
{
	ibv_wr_start(rc);
	ibv_wr_local_inv(rc, 1);
	DONE(rc);
}

FUNCTION(datagrams)
{
	ibv_wr_start(ud);
	for (int i = 0; i < 3; i++) {
		ibv_wr_send(ud);
		ibv_wr_set_ud_addr(ud, ah, 1, 1);
		ibv_wr_set_sge(ud, 1, AT, 600);
	}
	DONE(ud);
}

FUNCTION(sends_on_second)
{
	ibv_wr_start(on_second);
	ibv_wr_send(on_second);
	ibv_wr_set_sge(on_second, 1, AT, 5000);
	DONE(on_second);
}

/* ---- many requests ---- */

FUNCTION(mixes)
{
	ibv_wr_start(rc);
	ibv_wr_send(rc);
	ibv_wr_set_sge(rc, 1, AT, 700);
	ibv_wr_rdma_write(rc, REMOTE);
	ibv_wr_set_inline_data(rc, memory, 71);
	ibv_wr_rdma_read(rc, REMOTE);
	ibv_wr_set_sge(rc, 1, AT, 720);
	ibv_wr_atomic_fetch_add(rc, REMOTE, 1);
	ibv_wr_set_sge(rc, 1, AT, 8);
	ibv_wr_local_inv(rc, 1);
	ibv_wr_send_imm(rc, 7);
	ibv_wr_set_sge(rc, 1, AT, 730);
	DONE(rc);
}

FUNCTION(sends_many)
{
	ibv_wr_start(rc);
	for (int i = 0; i < PLACES; i++) {
		ibv_wr_send(rc);
		ibv_wr_set_sge(rc, 1, AT, 40);
	}
	DONE(rc);
}

/* Builds requests of two queue pairs at once; the sums must not get mixed up. */
FUNCTION(interleaves)
{
	ibv_wr_start(rc);
	ibv_wr_start(on_second);
	ibv_wr_rdma_write(rc, REMOTE);
	ibv_wr_rdma_read(on_second, REMOTE);
	ibv_wr_set_sge(on_second, 1, AT, 10000);
	ibv_wr_set_sge(rc, 1, AT, 6000);
	ibv_wr_abort(on_second);
	DONE(rc);
}

/* An extended queue pair also takes requests of ibv_post_send(). */
FUNCTION(posts_a_list)
{
	struct ibv_sge sge = {AT, 1800, 1};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	WORKS(ibv_post_send(pair, &wr, &bad));
}

static void *of_thread(void *arg)
{
	(void)arg;
	ibv_wr_start(rc);
	ibv_wr_send(rc);
	ibv_wr_set_sge(rc, 1, AT, 900);
	DONE(rc);
	return NULL;
}

static void starts_threads(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		WORKS(pthread_create(&threads[i], NULL, of_thread, NULL));
	for (int i = 0; i < 4; i++)
		WORKS(pthread_join(threads[i], NULL));
}

/* ---- nothing is posted ---- */

FUNCTION(aborts)
{
	ibv_wr_start(rc);
	ibv_wr_send(rc);
	ibv_wr_set_sge(rc, 1, AT, 1000);
	ibv_wr_abort(rc);
}

FUNCTION(fails)
{
	ibv_wr_start(rc);
	ibv_wr_send(rc);
	ibv_wr_set_sge(rc, 1, AT, 1000);
	ibv_wr_rdma_write(rc, REMOTE);
	ibv_wr_set_sge(rc, 1, AT, 1000);
	fail_after(1, EIO);
	GIVES(EIO, ibv_wr_complete(rc));
}

FUNCTION(overflows)
{
	ibv_wr_start(rc);
	for (int i = 0; i <= PLACES; i++) {
		ibv_wr_send(rc);
		ibv_wr_set_sge(rc, 1, AT, 40);
	}
	GIVES(ENOMEM, ibv_wr_complete(rc));
}

FUNCTION(too_long_inline)
{
	ibv_wr_start(rc);
	ibv_wr_send(rc);
	ibv_wr_set_inline_data(rc, memory, MAX_INLINE + 1);
	GIVES(EINVAL, ibv_wr_complete(rc));
}

/* ---- all ---- */

#define POSTS(name, f, queue, ...) posts(#name, f, queue, (struct sums){{__VA_ARGS__}})
#define POSTS_NOTHING(name)	   posts(#name, name, "", (struct sums){{0}})

static void post_all(void)
{
	const char *on_rc = "RC@standin_0";

	POSTS(sends, sends, on_rc, [STANDIN_SEND] = 1000);
	POSTS(sends_from_many, sends_from_many, on_rc, [STANDIN_SEND] = 321);
	POSTS(sends_large, sends_large, on_rc, [STANDIN_SEND] = 2 * 0xc0000000ULL);
	POSTS(sends_inline, sends_inline, on_rc, [STANDIN_SEND] = 111);
	POSTS(sends_inline_from_many, sends_inline_from_many, on_rc, [STANDIN_SEND] = 44);
	POSTS(writes, writes, on_rc, [STANDIN_WRITE] = 2000);
	POSTS(writes_with_imm, writes_with_imm, on_rc, [STANDIN_WRITE] = 2100);
	POSTS(reads, reads, on_rc, [STANDIN_READ] = 3000);
	POSTS(adds, adds, on_rc, [STANDIN_ATOMIC] = 8);
	POSTS(swaps, swaps, on_rc, [STANDIN_ATOMIC] = 8);
	POSTS(datagrams, datagrams, "UD@standin_0", [STANDIN_SEND] = 1800);
	POSTS(sends_on_second, sends_on_second, "RC@standin_1", [STANDIN_SEND] = 5000);
	POSTS(mixes, mixes, on_rc, [STANDIN_SEND] = 1430, [STANDIN_WRITE] = 71,
	      [STANDIN_READ] = 720, [STANDIN_ATOMIC] = 8);
	POSTS(sends_many, sends_many, on_rc, [STANDIN_SEND] = 40 * PLACES);
	POSTS(interleaves, interleaves, on_rc, [STANDIN_WRITE] = 6000);
	POSTS(posts_a_list, posts_a_list, on_rc, [STANDIN_SEND] = 1800);
	POSTS(of_thread, starts_threads, on_rc, [STANDIN_SEND] = 3600);
	POSTS_NOTHING(sends_nothing);
	POSTS_NOTHING(invalidates);
	POSTS_NOTHING(aborts);
	POSTS_NOTHING(fails);
	POSTS_NOTHING(overflows);
	POSTS_NOTHING(too_long_inline);
}

int main(int argc, char **argv)
{
	const uint64_t all = IBV_QP_EX_WITH_ATOMIC_WRITE - 1;
	struct ibv_ah_attr to = {.port_num = 1};

	open_told(argc, argv);
	open_devices();
	MADE(ah = ibv_create_ah(pds[0], &to));
	wait_for_order();
	pair = make_pair(0, IBV_QPT_RC, all);
	rc = show_extended(pair);
	ud = show_extended(make_pair(0, IBV_QPT_UD, IBV_QP_EX_WITH_SEND));
	on_second = show_extended(make_pair(1, IBV_QPT_RC, all));
	await_counts();
	post_all();
	compare_with_library();
	end();
}
