// SPDX-License-Identifier: Apache-2.0
/*
 * rdma of a process that lies (liar_test.h): lists of requests without an end, with wrong pointers
 * and counts, failures at requests that no list has, objects and names that are not there. What
 * each list adds, and each loss, is as a model in this file says; if the memory changes meanwhile,
 * the values are bounded. The values of an honest process are exact.
 */
#include "node/probe/rdma_scene_test.h"

#include "node/probe/liar_test.h"

#define HONEST_BYTES 1000
#define PIECE	     7

/* ---- the liar's memory: requests and pieces of memory, anywhere ---- */

static void fill(void)
{
	struct testverbs_send *send = (void *)liar_writes;
	struct testverbs_sge *sge = (void *)liar_writes;

	for (size_t i = 0; i < LIAR_BYTES / sizeof(*send); i++)
		send[i] = (struct testverbs_send){
			.next = (void *)(below(3) ? any_address(8, 9) : 0),
			.sg_list = (void *)any_address(8, 30),
			.num_sge = (int)ANY_OF(30, 0, 1, 2, 30, (uint32_t)-1, INT32_MAX),
			.opcode = (uint32_t)ANY_OF(20, 0, 1, 2, 4, 5, 7, 8, 255),
			.send_flags = (unsigned)any(),
		};
	for (size_t n = below(20); n > 0; n--)
		sge[below(LIAR_BYTES / sizeof(*sge))] =
			(struct testverbs_sge){any(), (uint32_t)any(), (uint32_t)any()};
}

/* A queue of the liar: its parts may be anywhere. */
static struct testverbs_queue *any_queue(void)
{
	uint64_t *queue = (void *)(liar_writes + below(LIAR_BYTES / 8 - 64) * 8);
	uint64_t *context = (void *)(liar_writes + below(LIAR_BYTES / 8 - 64) * 8);

	if (!below(5))
		return (void *)any_address(1, 3);
	*context = any_address(1, 9);
	*queue = (uint64_t)(liar_memory + ((uint8_t *)context - liar_writes));
	return (void *)(liar_memory + ((uint8_t *)queue - liar_writes));
}

/* ---- a model of what the programs make of a list ---- */

struct sum {
	uint64_t bytes;
	bool ended, stopped, unread;
};

static bool get(void *to, size_t n, uint64_t at)
{
	if (!liar_has(at, n))
		return false;
	memcpy(to, liar_writes + (at - (uintptr_t)liar_memory), n);
	return true;
}

/* Follows a list for PF_RDMA_STEPS_MAX steps, up to the request `stop`. */
static struct sum sum_of(uint64_t at, uint64_t stop, bool receives)
{
	struct sum sum = {};
	struct testverbs_sge sge;
	struct testverbs_send r;
	uint32_t left = 0;
	uint64_t piece = 0;

	for (unsigned step = 0; step < PF_RDMA_STEPS_MAX || !left; step++) {
		if (left) {
			if (!get(&sge, sizeof(sge), piece)) {
				sum.unread = true;
				break;
			}
			sum.bytes += sge.length;
			piece += sizeof(sge);
			left--;
			continue;
		}
		sum.ended = !at;
		sum.stopped = at && at == stop;
		if (sum.ended || sum.stopped || step == PF_RDMA_STEPS_MAX)
			break;
		if (!get(&r, receives ? 28 : 32, at)) {
			sum.unread = true;
			break;
		}
		at = (uintptr_t)r.next;
		piece = (uintptr_t)r.sg_list;
		left = r.num_sge > 0 ? (uint32_t)r.num_sge : 0;
		if (!receives && (r.opcode == 7 || r.opcode == 8)) /* LOCAL_INV, BIND_MW */
			left = 0;
	}
	return sum;
}

/* Adds up an array of n pieces. */
static struct sum sum_of_array(uint64_t at, uint64_t n, bool buffers)
{
	struct testverbs_buffer buffer;
	struct testverbs_sge sge;
	struct sum sum = {};

	for (unsigned step = 0;; step++, at += sizeof(sge)) {
		sum.ended = step == n;
		if (sum.ended || step == PF_RDMA_STEPS_MAX)
			break;
		if (!get(&buffer, sizeof(buffer), at)) {
			sum.unread = true;
			break;
		}
		memcpy(&sge, &buffer, sizeof(sge));
		sum.bytes += !buffers			       ? sge.length
			     : buffer.length < PF_MEM_SIZE_MAX ? buffer.length
							       : 0;
	}
	return sum;
}

/* ---- the liar ---- */

enum { BYTES, LOST }; /* in said[] */

static uint64_t bad_request;
static void *volatile memory;

IN_SECTION(pf_driver)
static int lying_send(struct testverbs_queue *q, uint64_t list, uint64_t *bad)
{
	NOTHING;
	__asm__ volatile("" : : "r"(list), "r"(bad));
	return result();
}

IN_SECTION(pf_driver)
static int lying_receive(struct testverbs_queue *q, uint64_t list, uint64_t *bad)
{
	NOTHING;
	__asm__ volatile("" : : "r"(bad), "r"(list));
	return result();
}

/* What a call that fails has posted: the requests before the bad one, if the list has that one. */
static void model_failure(uint64_t list, bool bad_is_there, bool receives)
{
	struct sum sum =
		bad_is_there ? sum_of(list, bad_request, receives) : (struct sum){.ended = true};

	said[BYTES] += sum.stopped ? sum.bytes : 0;
	said[LOST] += sum.ended;
}

static void lie_post(void)
{
	uint64_t list = any_address(8, 9), *bad = below(3) ? &bad_request : (void *)16;
	struct testverbs_queue *q = any_queue(); /* changes the memory */
	bool receives = below(2), fail = !below(4);
	struct sum sum = sum_of(list, 0, receives);

	bad_request = below(3) ? any_address(8, 9) : list;
	fails = fail;
	status = (receives ? lying_receive : lying_send)(q, list, bad);
	said[LOST] += !sum.ended;
	if (sum.bytes && fail)
		model_failure(list, bad == &bad_request, receives);
	else
		said[BYTES] += sum.bytes;
}

static void lie_register(void)
{
	size_t length = ANY_OF(9, 0, 1, 4096, REGISTER_MAX, REGISTER_MAX + 1, SIZE_MAX);

	memory = reg_mr_iova(any_queue(), (void *)1, length, any(), (int)any());
	said[BYTES] += length <= REGISTER_MAX ? length : 0;
}

static uint64_t at_most(uint64_t bytes)
{
	return bytes < PF_MEM_SIZE_MAX ? bytes : PF_MEM_SIZE_MAX;
}

/* Adds any data to a request, and returns the bytes with it. */
static uint64_t lie_data(struct testverbs_queue_ex *q, uint64_t bytes)
{
	uint64_t n = ANY_OF(9, 0, 1, 100, 2047, 2048, 2049, UINT32_MAX, UINT64_MAX);
	uint64_t at = any_address(8, 5);
	bool buffers = below(2);
	struct sum sum;

	if (!below(2)) {
		wr_set_inline_data(q, (void *)at, n);
		return at_most(bytes + (n < PF_MEM_SIZE_MAX ? n : 0));
	}
	sum = sum_of_array(at, n, buffers);
	if (buffers)
		wr_set_inline_data_list(q, n, (void *)at);
	else
		wr_set_sge_list(q, n, (void *)at);
	said[LOST] += q && !sum.ended; /* the queue NULL has no batch */
	return at_most(bytes + sum.bytes);
}

static void lie_batch(void)
{
	struct testverbs_queue_ex *q = (void *)any_queue();
	bool fail = !below(4), aborts = !below(5);
	uint64_t bytes = 0;

	wr_start(q);
	for (size_t n = below(6); n > 0; n--) {
		wr_rdma_write(q, (uint32_t)any(), any());
		bytes = lie_data(q, bytes);
	}
	if (aborts)
		wr_abort(q);
	fails = fail;
	status = wr_complete(q);
	fails = false;
	said[BYTES] += q && !aborts && !fail ? bytes : 0;
}

IN_SECTION(pf_loop) static void lie(void)
{
	static void (*const lies[])(void) = {lie_post, lie_post, lie_register, lie_batch};

	if (!below(3))
		fill();
	lies[below(ARRAY_SIZE(lies))]();
}

IN_SECTION(pf_loop) static void body_liar(struct truth *t)
{
	liar_run(t, lie);
}

/* ---- the honest process ---- */

IN_SECTION(pf_short) static void write_batch(struct testverbs_queue_ex *q)
{
	q->start(q);
	q->rdma_write(q, 0, 0);
	q->set_sge(q, 0, 0, PIECE);
	status = q->complete(q);
}

IN_SECTION(pf_long) static void post_one(struct testverbs_queue_ex *q)
{
	struct testverbs_sge piece = {.length = HONEST_BYTES};
	struct testverbs_send wr = {.sg_list = &piece, .num_sge = 1}, *bad; /* RDMA_WRITE */

	status = q->base.context->ops.post_send(&q->base, &wr, &bad);
}

static void say_truth(void)
{
	write_batch(&queues[0]);
	post_one(&queues[0]);
}

IN_SECTION(pf_loop) static void body_honest(struct truth *t)
{
	honest_run(t, say_truth);
}

/* ---- what the drains report ---- */

struct taken {
	struct posted_rows honest;
	uint64_t n, bytes; /* of the liar */
};

static void take(struct liar_pair *pair, const struct drain *d, const struct raw_sample *s)
{
	struct taken *all = pair->arg;

	if ((pid_t)s->tgid == pair->honest.c.pid) {
		rows_take(&all->honest, d, s);
		return;
	}
	assert_true(has(s->labels, LABEL_RDMA_OPERATION));
	assert_in_range(s->labels->numbers[LABEL_RDMA_OPERATION], 0, PF_RDMA_REGISTER);
	all->n += s->n;
	all->bytes += s->value;
}

static void check_honest(const struct posted_rows *rows, unsigned n)
{
	struct posted writes = posted(rows, PF_RDMA_WRITE, "test_0");

	assert_int_equal(rows->n, 1);
	assert_int_equal(writes.n, 2 * n);
	assert_int_equal(writes.in_short, n * PIECE);
	assert_int_equal(writes.in_long, n * HONEST_BYTES);
}

static void run_pair(void)
{
	struct taken all = {};
	struct liar_pair pair = {
		.liar.set = PROBES_RDMA, .honest.set = PROBES_RDMA, .take = take, .arg = &all};
	struct probed *p = &pair.liar.probed;

	pair.apart = "rdma_late"; /* counts the liar's words that may be functions */
	add_library(p);
	add_provider(p);
	add_site(p, lying_send, (struct pf_site){.kind = PF_SITE_RDMA_POST_SEND});
	add_site(p, lying_receive, (struct pf_site){.kind = PF_SITE_RDMA_POST_RECEIVE});
	add_library(&pair.honest.probed);
	add_provider(&pair.honest.probed);
	liar_open(&pair, body_liar, body_honest, RDMA);
	for (unsigned i = 0; i < liar_rounds(); i++) {
		liar_round(&pair, i);
		check_honest(&all.honest, (i + 1) * LIAR_CALLS);
		assert_in_range(pair.lost_apart, 0, PF_RDMA_FUNCTIONS_MAX + 1);
		if (liar_blinks) {
			assert_in_range(all.n, 0, 2 * PF_RDMA_REGISTER * LIAR_CALLS * (i + 1));
			assert_in_range(all.bytes, 0, all.n * PF_MEM_SIZE_MAX);
			continue;
		}
		assert_int_equal(all.bytes, said[BYTES]);
		assert_int_equal(pair.lost, said[LOST]);
	}
	liar_close(&pair);
}

static void what_lists_add_and_lose_is_exact(void **state)
{
	(void)state;
	liar_blinks = false;
	run_pair();
}

static void lists_that_change_are_bounded(void **state)
{
	(void)state;
	liar_blinks = true;
	run_pair();
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_lists_add_and_lose_is_exact),
		cmocka_unit_test(lists_that_change_are_bounded),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
