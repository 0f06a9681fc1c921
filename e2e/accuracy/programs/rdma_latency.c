/* SPDX-License-Identifier: Apache-2.0 */
/* rdma_latency: requests in C that end after a known time, or with an error, or never. */
#define _GNU_SOURCE
#include <pthread.h>

#include "rdma_latency.h"

static struct ibv_qp *rc, *other, *on_second, *sparse, *failing;
static struct ibv_qp_ex *built;
static struct ibv_comp_channel *channel;
static struct ibv_cq *waited_for;
static struct ibv_qp *with_events;
static char memory[4096];

/* ---- requests ---- */

struct list {
	struct ibv_send_wr wr[8];
	struct ibv_sge sge;
	int n;
};

static void add(struct list *l, enum ibv_wr_opcode opcode, uint64_t wr_id)
{
	struct ibv_send_wr *wr = &l->wr[l->n];

	l->sge = (struct ibv_sge){(uintptr_t)memory, 8, 1};
	*wr = (struct ibv_send_wr){
		.wr_id = wr_id, .sg_list = &l->sge, .num_sge = 1, .opcode = opcode};
	if (l->n)
		wr[-1].next = wr;
	l->n++;
}

static int operation_of(const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
		return STANDIN_SEND;
	case IBV_WR_RDMA_WRITE:
		return STANDIN_WRITE;
	case IBV_WR_RDMA_READ:
		return STANDIN_READ;
	default:
		return STANDIN_ATOMIC;
	}
}

/* Posts a list of which all requests before `bad` are accepted (NULL: all). */
static inline void post_until(struct posting *p, struct ibv_qp *qp, struct list *l,
			      const struct ibv_send_wr *bad, int error)
{
	uint64_t before = now_ns(), after;
	struct ibv_send_wr *its = NULL;

	*posting_of(qp->context, qp->qp_num) = p;
	GIVES(error, ibv_post_send(qp, l->wr, &its));
	after = now_ns();
	GIVES(1, its == bad);
	for (const struct ibv_send_wr *wr = l->wr; wr != bad; wr = wr->next)
		if (qp != sparse || wr->send_flags & IBV_SEND_SIGNALED)
			begins(p, operation_of(wr), before, after);
}

static inline void post(struct posting *p, struct ibv_qp *qp, struct list *l)
{
	post_until(p, qp, l, NULL, 0);
}

static inline void post_one(struct posting *p, struct ibv_qp *qp, enum ibv_wr_opcode opcode)
{
	struct list l = {.n = 0};

	add(&l, opcode, 1);
	post(p, qp, &l);
}

/* Posts a request that never succeeds, so its latency is not known. */
static inline void post_unknown(struct ibv_qp *qp)
{
	struct posting unknown;

	post_one(&unknown, qp, IBV_WR_SEND);
}

/* A function that posts, and what it had. */
#define POSTS(name)                                                                                \
	static struct posting of_##name;                                                           \
	FUNCTION(name)

/* ---- requests that succeed ---- */

#define ONE(name, opcode, us)                                                                      \
	POSTS(name)                                                                                \
	{                                                                                          \
		takes_us(us);                                                                      \
		post_one(&of_##name, rc, opcode);                                                  \
		take_all(cqs[0], 1);                                                               \
	}

ONE(sends, IBV_WR_SEND, 2000)
ONE(writes, IBV_WR_RDMA_WRITE, 1000)
ONE(reads, IBV_WR_RDMA_READ, 3000)
ONE(adds, IBV_WR_ATOMIC_FETCH_AND_ADD, 500)
ONE(sends_quickly, IBV_WR_SEND, 0)

POSTS(sends_nothing)
{
	struct list l = {.n = 0};

	takes_us(1000);
	add(&l, IBV_WR_SEND, 1);
	l.wr[0].num_sge = 0;
	post(&of_sends_nothing, rc, &l);
	take_all(cqs[0], 1);
}

POSTS(mixes)
{
	struct list l = {.n = 0};

	takes_us(1000);
	add(&l, IBV_WR_SEND, 1);
	add(&l, IBV_WR_RDMA_WRITE, 2);
	add(&l, IBV_WR_RDMA_READ, 3);
	add(&l, IBV_WR_SEND, 4);
	post(&of_mixes, rc, &l);
	take_all(cqs[0], 4);
}

/* All requests have the same number. The program takes the completions one by one, and late. */
POSTS(repeats_its_number)
{
	for (int i = 0; i < 6; i++) {
		takes_us(1000 * (i % 3));
		post_one(&of_repeats_its_number, rc, IBV_WR_SEND);
	}
	for (int i = 0; i < 6; i++) {
		usleep(300);
		take_all(cqs[0], 1);
	}
}

/* Only the last request has a completion. When the others ended is not known. */
POSTS(signals_the_last)
{
	struct list l = {.n = 0};

	takes_us(2000);
	for (int i = 0; i < 4; i++)
		add(&l, IBV_WR_RDMA_WRITE, 1);
	l.wr[3].send_flags = IBV_SEND_SIGNALED;
	post(&of_signals_the_last, sparse, &l);
	take_all(cqs[0], 1);
}

POSTS(is_overtaken)
{
	takes_us(4000);
	post_one(&of_is_overtaken, rc, IBV_WR_SEND);
}

POSTS(overtakes)
{
	takes_us(1000);
	post_one(&of_overtakes, other, IBV_WR_SEND);
}

/* Two queue pairs with one completion queue, which end in another order. */
static void uses_two_pairs(void)
{
	is_overtaken();
	overtakes();
	take_all(cqs[0], 2);
}

POSTS(on_first_device)
{
	takes_us(4000);
	post_one(&of_on_first_device, rc, IBV_WR_SEND);
}

POSTS(on_second_device)
{
	takes_us(1000);
	post_one(&of_on_second_device, on_second, IBV_WR_SEND);
}

/* A queue pair of each device, with the same number. */
static void uses_two_devices(void)
{
	on_first_device();
	on_second_device();
	take_all(cqs[1], 1);
	take_all(cqs[0], 1);
}

/* What is received ends at once. It has the number of the request that is under way. */
POSTS(receives_meanwhile)
{
	struct ibv_sge sge = {(uintptr_t)memory, 8, 1};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	takes_us(2000);
	post_one(&of_receives_meanwhile, rc, IBV_WR_SEND);
	WORKS(ibv_post_recv(rc, &wr, &bad));
	take_all(cqs[0], 2);
}

static struct posting of_of_thread;
static void *of_thread(void *qp)
{
	takes_us(1000);
	for (int i = 0; i < 4; i++)
		post_one(&of_of_thread, qp, IBV_WR_SEND);
	return NULL;
}

/* This thread takes the completions of the others. */
static void starts_threads(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		WORKS(pthread_create(&threads[i], NULL, of_thread, rc));
	take_all(cqs[0], 16);
	for (int i = 0; i < 4; i++)
		WORKS(pthread_join(threads[i], NULL));
}

POSTS(waits_for_events)
{
	struct ibv_cq *cq;
	void *its;

	takes_us(3000);
	WORKS(ibv_req_notify_cq(waited_for, 0));
	post_one(&of_waits_for_events, with_events, IBV_WR_SEND);
	WORKS(ibv_get_cq_event(channel, &cq, &its));
	ibv_ack_cq_events(cq, 1);
	take_all(waited_for, 1);
}

POSTS(builds)
{
	uint64_t before = now_ns(), after;

	takes_us(1000);
	*posting_of(contexts[1], built->qp_base.qp_num) = &of_builds;
	ibv_wr_start(built);
	built->wr_id = 1;
	ibv_wr_rdma_read(built, 0, 0);
	ibv_wr_set_sge(built, 1, (uintptr_t)memory, 8);
	ibv_wr_rdma_write(built, 0, 0);
	ibv_wr_set_sge(built, 1, (uintptr_t)memory, 8);
	WORKS(ibv_wr_complete(built));
	after = now_ns();
	begins(&of_builds, STANDIN_READ, before, after);
	begins(&of_builds, STANDIN_WRITE, before, after);
	take_all(cqs[1], 2);
}

/* ---- requests that fail ---- */

POSTS(is_refused)
{
	struct list l = {.n = 0};

	takes_us(1000);
	for (uint64_t i = 0; i < 4; i++)
		add(&l, IBV_WR_SEND, i);
	fail_after(2, EIO);
	post_until(&of_is_refused, rc, &l, &l.wr[2], EIO);
	take_all(cqs[0], 2);
}

static void to_rts(struct ibv_qp *qp)
{
	to_state(qp, IBV_QPS_RESET);
	to_state(qp, IBV_QPS_INIT);
	to_state(qp, IBV_QPS_RTR);
	to_state(qp, IBV_QPS_RTS);
}

FUNCTION(fails)
{
	takes_us(1000);
	end_with(0, IBV_WC_REM_ACCESS_ERR);
	post_unknown(failing);
	post_unknown(failing);
	take_all(cqs[0], 2);
	to_rts(failing);
}

FUNCTION(is_flushed)
{
	takes_us(NEVER);
	post_unknown(failing);
	to_state(failing, IBV_QPS_ERR);
	take_all(cqs[0], 1);
	to_rts(failing);
}

FUNCTION(is_forgotten)
{
	takes_us(NEVER);
	post_unknown(failing);
	to_rts(failing);
}

/* The queue pair had a request with this number before it was reset. */
POSTS(begins_again)
{
	takes_us(1000);
	post_one(&of_begins_again, failing, IBV_WR_SEND);
	take_all(cqs[0], 1);
}

static void forgets(void)
{
	is_forgotten();
	begins_again();
}

/* ---- all ---- */

static void many(void (*f)(void))
{
	for (unsigned i = 0; i < rounds; i++)
		f();
}

#define RUN(name, f, queue)                                                                        \
	do {                                                                                       \
		many(f);                                                                           \
		tell(#name, &of_##name, queue);                                                    \
	} while (0)
#define RUN_FOR_NOTHING(name)                                                                      \
	do {                                                                                       \
		many(name);                                                                        \
		tell_nothing(#name);                                                               \
	} while (0)

static void post_all(void)
{
	const char *on_rc = "RC@standin_0";

	RUN(sends, sends, on_rc);
	RUN(writes, writes, on_rc);
	RUN(reads, reads, on_rc);
	RUN(adds, adds, on_rc);
	RUN(sends_quickly, sends_quickly, on_rc);
	RUN(sends_nothing, sends_nothing, on_rc);
	RUN(mixes, mixes, on_rc);
	RUN(repeats_its_number, repeats_its_number, on_rc);
	RUN(signals_the_last, signals_the_last, on_rc);
	RUN(is_overtaken, uses_two_pairs, on_rc);
	tell("overtakes", &of_overtakes, on_rc);
	RUN(on_first_device, uses_two_devices, on_rc);
	tell("on_second_device", &of_on_second_device, "RC@standin_1");
	RUN(receives_meanwhile, receives_meanwhile, on_rc);
	RUN(of_thread, starts_threads, on_rc);
	RUN(waits_for_events, waits_for_events, on_rc);
	RUN(builds, builds, "RC@standin_1");
	RUN(is_refused, is_refused, on_rc);
	RUN_FOR_NOTHING(fails);
	RUN_FOR_NOTHING(is_flushed);
	RUN(begins_again, forgets, on_rc);
	tell_nothing("is_forgotten");
}

/* Makes a queue pair whose completions are in a queue of their own. */
static struct ibv_qp *make_pair_on(struct ibv_cq *cq, int all_signaled)
{
	struct ibv_qp_init_attr attr = {.send_cq = cq,
					.recv_cq = cq,
					.cap = {PLACES, PLACES, 1, 1, 0},
					.qp_type = IBV_QPT_RC,
					.sq_sig_all = all_signaled};
	struct ibv_qp *qp;

	MADE(qp = ibv_create_qp(pds[0], &attr));
	to_rts(qp);
	return qp;
}

static void make_pairs(void)
{
	rc = make_pair(0, IBV_QPT_RC, 0);
	on_second = make_pair(1, IBV_QPT_RC, 0);
	GIVES(1, rc->qp_num == on_second->qp_num);
	other = make_pair(0, IBV_QPT_RC, 0);
	failing = make_pair(0, IBV_QPT_RC, 0);
	built = ibv_qp_to_qp_ex(
		make_pair(1, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE));
	sparse = make_pair_on(cqs[0], 0);
	MADE(channel = ibv_create_comp_channel(contexts[0]));
	MADE(waited_for = ibv_create_cq(contexts[0], PLACES, NULL, channel, 0));
	with_events = make_pair_on(waited_for, 1);
}

int main(int argc, char **argv)
{
	open_told(argc, argv);
	open_latency();
	wait_for_order();
	show_device(0);
	show_device(1);
	await_counts();
	make_pairs();
	post_all();
	end();
}
