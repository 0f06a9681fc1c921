// SPDX-License-Identifier: Apache-2.0
/*
 * rdma in real processes: exact bytes by operation, labels and stack, calls that fail, and lists
 * that lie. The tests run once for each way to attach uprobes that this kernel has.
 */
#include "node/probe/rdma_scene_test.h"

#define RECEIVE	 PF_RDMA_RECEIVE
#define REQUESTS 64

static struct testverbs_send sends[REQUESTS], *bad_send;
static struct testverbs_receive receives[REQUESTS], *bad_receive;
static struct testverbs_sge pieces[REQUESTS][3];

/* ---- lists ---- */

/* Makes a list of n requests. Request i has i % 4 pieces of 100 + i bytes. */
static struct testverbs_send *list_of(unsigned n, uint32_t opcode)
{
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < 3; k++)
			pieces[i][k] = (struct testverbs_sge){.length = 100 + i};
		sends[i] = (struct testverbs_send){.next = i + 1 < n ? &sends[i + 1] : NULL,
						   .sg_list = pieces[i],
						   .num_sge = (int)(i % 4),
						   .opcode = opcode};
	}
	return sends;
}

static uint64_t bytes_of(unsigned n)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += (i % 4) * (100 + i);
	return bytes;
}

IN_SECTION(pf_short) static void post(struct testverbs_send *list)
{
	status = contexts[0].ops.post_send(&queues[0].base, list, &bad_send);
}

IN_SECTION(pf_long) static void post_elsewhere(struct testverbs_send *list)
{
	status = contexts[0].ops.post_send(&queues[1].base, list, &bad_send);
}

#define SEND 2 /* enum ibv_wr_opcode */

IN_SECTION(pf_loop) static void body_lists(struct truth *t)
{
	say_and_wait(t, 1);
	for (unsigned n = 1; n <= REQUESTS; n++)
		post(list_of(n, SEND));
	post_elsewhere(list_of(2, SEND));
	say_and_wait(t, 3);
}

static void bytes_of_lists_are_exact(void **state)
{
	struct posted_rows rows = {};
	struct scene s = {};
	uint64_t bytes = 0;
	unsigned n = 0;

	(void)state;
	for (unsigned i = 1; i <= REQUESTS; i++) {
		bytes += bytes_of(i);
		n += bytes_of(i) > 0;
	}
	rdma_open_scene(&s, body_lists);
	rdma_go(&s, 3, &rows);
	assert_int_equal(rows.n, 2);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, "test_0").bytes, bytes);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, "test_0").in_short, bytes);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, "test_0").n, n);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, "mlx5_7").bytes, 101);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, "mlx5_7").in_long, 101);
	for (size_t i = 0; i < rows.n; i++)
		assert_int_equal(rows.items[i].type,
				 streq(rows.items[i].device, "test_0") ? RC : UD);
	scene_close(&s);
}

/* ---- operations ---- */

/* Posts one list with a request of each opcode, with 1000 + opcode bytes, some of them inline. */
IN_SECTION(pf_short) static void post_each_opcode(void)
{
	for (unsigned i = 0; i < 16; i++) {
		pieces[i][0] = (struct testverbs_sge){.length = 1000 + i};
		sends[i] = (struct testverbs_send){.next = i < 15 ? &sends[i + 1] : NULL,
						   .sg_list = pieces[i],
						   .num_sge = 1,
						   .opcode = i,
						   .send_flags = i % 2 ? 8 : 0};
	}
	post(sends);
}

/* Requests without data, and one that is not valid. */
IN_SECTION(pf_short) static void post_nothing(void)
{
	struct testverbs_send r = {.num_sge = -1, .sg_list = pieces[0], .opcode = SEND};

	post(&r);
	post(NULL);
}

IN_SECTION(pf_loop) static void body_operations(struct truth *t)
{
	say_and_wait(t, 1);
	post_each_opcode();
	post_nothing();
	say_and_wait(t, 3);
}

static void each_operation_is_a_sample(void **state)
{
	static const uint64_t want[_PF_RDMA_OPERATION_MAX] = {
		[PF_RDMA_SEND] = 1002 + 1003 + 1009 + 1010,
		[PF_RDMA_WRITE] = 1000 + 1001,
		[PF_RDMA_READ] = 1004,
		[PF_RDMA_ATOMIC] = 1005 + 1006 + 1015,
		/* 7 and 8, LOCAL_INV and BIND_MW, have no data */
		[PF_RDMA_OTHER] = 1011 + 1012 + 1013 + 1014,
	};
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	rdma_open_scene(&s, body_operations);
	rdma_go(&s, 3, &rows);
	for (unsigned i = 0; i < _PF_RDMA_OPERATION_MAX; i++) {
		assert_int_equal(posted(&rows, i, NULL).bytes, want[i]);
		assert_int_equal(posted(&rows, i, NULL).n, want[i] > 0);
	}
	scene_close(&s);
}

/* ---- receive requests ---- */

IN_SECTION(pf_long) static void receive(void)
{
	for (unsigned i = 0; i < 3; i++) {
		pieces[i][0] = pieces[i][1] = (struct testverbs_sge){.length = 4000};
		receives[i] = (struct testverbs_receive){.next = i < 2 ? &receives[i + 1] : NULL,
							 .sg_list = pieces[i],
							 .num_sge = 2};
	}
	status = contexts[0].ops.post_recv(&queues[0].base, receives, &bad_receive);
	status = contexts[0].ops.post_srq_recv(&queues[1].base, &receives[1], &bad_receive);
	fails = true;
	status = contexts[0].ops.post_recv(&queues[0].base, receives, &bad_receive);
}

IN_SECTION(pf_loop) static void body_receive(struct truth *t)
{
	say_and_wait(t, 1);
	receive();
	say_and_wait(t, 3);
}

/* A shared receive queue has no type. */
static void receive_requests_are_an_operation(void **state)
{
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	rdma_open_scene(&s, body_receive);
	rdma_go(&s, 3, &rows);
	assert_int_equal(rows.n, 2);
	for (size_t i = 0; i < rows.n; i++) {
		const struct posted_row *r = &rows.items[i];

		assert_int_equal(r->operation, RECEIVE);
		assert_int_equal(r->sum.n, 1);
		assert_int_equal(r->sum.in_long, r->type == RC ? 24000 : 16000);
		assert_true(r->type == RC || r->type == UINT64_MAX);
		assert_string_equal(r->device, r->type == RC ? "test_0" : "mlx5_7");
	}
	scene_close(&s);
}

/* ---- failures ---- */

IN_SECTION(pf_short) static void post_and_fail(unsigned n, unsigned at)
{
	struct testverbs_send *list = list_of(n, SEND);

	if (at < n)
		list[at].opcode |= OPCODE_FAILS;
	post(list);
}

IN_SECTION(pf_loop) static void body_fails(struct truth *t)
{
	say_and_wait(t, 1);
	post_and_fail(10, 6);
	post_and_fail(10, 0);
	say_and_wait(t, 3);
	bad_send = NULL; /* the provider says that it has failed, but not where */
	fails = true;
	post(list_of(10, SEND));
	say_and_wait(t, 4);
}

/* Of a post that fails, the requests before the bad one count. */
static void a_failed_post_counts_what_was_posted(void **state)
{
	uint64_t before = lost("rdma_unread");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	rdma_open_scene(&s, body_fails);
	rdma_go(&s, 3, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).bytes, bytes_of(6));
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).n, 1);
	assert_int_equal(lost("rdma_unread"), before);
	rdma_go(&s, 4, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).bytes, bytes_of(6));
	assert_int_equal(lost("rdma_unread") - before, 1);
	scene_close(&s);
}

/* ---- lists that lie ---- */

IN_SECTION(pf_loop) static void body_lies(struct truth *t)
{
	struct testverbs_send *list;

	say_and_wait(t, 1);
	list = list_of(2, SEND);
	list[1].next = list; /* without an end */
	post(list);
	say_and_wait(t, 3);
	list = list_of(3, SEND);
	list[2].next = (void *)8;
	post(list);
	say_and_wait(t, 4);
	list = list_of(3, SEND);
	list[2].sg_list = (void *)8;
	post(list);
	say_and_wait(t, 5);
	list = list_of(2, SEND);
	list[1].num_sge = INT32_MAX;
	post(list);
	say_and_wait(t, 6);
}

/*
 * A list may have no end, a wrong pointer or a wrong count. What was read of it before that counts,
 * and each such list is counted as a loss.
 */
static void lists_that_lie_are_bounded_and_counted(void **state)
{
	uint64_t unread = lost("rdma_unread"), too_long = lost("rdma_long"), was;
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	rdma_open_scene(&s, body_lies);
	rdma_go(&s, 3, &rows);
	assert_int_equal(lost("rdma_long") - too_long, 1);
	was = posted(&rows, PF_RDMA_SEND, NULL).bytes;
	/*
	 * the endless list takes three steps each time: one for the request without pieces, and two
	 * for the other one and its piece of 101 bytes
	 */
	assert_int_equal(was, 101 * (uint64_t)(PF_RDMA_STEPS_MAX / 3));
	rdma_go(&s, 4, &rows);
	assert_int_equal(lost("rdma_unread") - unread, 1);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).bytes - was, bytes_of(3));
	rdma_go(&s, 5, &rows);
	assert_int_equal(lost("rdma_unread") - unread, 2);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).bytes - was, bytes_of(3) + bytes_of(2));
	rdma_go(&s, 6, &rows);
	assert_int_equal(lost("rdma_long") - too_long + lost("rdma_unread") - unread, 4);
	scene_close(&s);
}

/* ---- the longest list ---- */

/* Posts n requests of one piece of 10 bytes as a list: podflame takes two steps for each. */
IN_SECTION(pf_short) static void post_pieces(unsigned n)
{
	static struct testverbs_send list[PF_RDMA_STEPS_MAX / 2 + 1];
	static struct testverbs_sge piece = {.length = 10};

	for (unsigned i = 0; i < n; i++)
		list[i] = (struct testverbs_send){.next = i + 1 < n ? &list[i + 1] : NULL,
						  .sg_list = &piece,
						  .num_sge = 1,
						  .opcode = SEND};
	post(list);
}

IN_SECTION(pf_loop) static void body_longest(struct truth *t)
{
	say_and_wait(t, 1);
	post_pieces(PF_RDMA_STEPS_MAX / 2);
	say_and_wait(t, 3);
	post_pieces(PF_RDMA_STEPS_MAX / 2 + 1);
	say_and_wait(t, 4);
}

/* A list that takes exactly as many steps as podflame goes is whole; one of more is not. */
static void only_a_list_of_more_steps_is_too_long(void **state)
{
	const uint64_t longest = 10 * (uint64_t)(PF_RDMA_STEPS_MAX / 2);
	uint64_t too_long = lost("rdma_long");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	rdma_open_scene(&s, body_longest);
	rdma_go(&s, 3, &rows);
	assert_int_equal(lost("rdma_long"), too_long);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).bytes, longest);
	rdma_go(&s, 4, &rows);
	assert_int_equal(lost("rdma_long") - too_long, 1);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).bytes, 2 * longest);
	scene_close(&s);
}

/* ---- extended queue pairs ---- */

static void write_some(struct testverbs_queue_ex *q, uint32_t bytes)
{
	q->rdma_write(q, 0, 0);
	q->set_sge(q, 0, 0, bytes);
}

/* The caller of a function with an argument of 32 bits may leave garbage above it. */
static void set_sge_with_garbage(struct testverbs_queue_ex *q, uint32_t bytes)
{
	void (*set_sge)(struct testverbs_queue_ex * q, uint64_t lkey, uint64_t addr, uint64_t n);

	memcpy(&set_sge, &q->set_sge, sizeof(set_sge));
	set_sge(q, UINT64_MAX, 0, 3ull << 32 | bytes);
}

IN_SECTION(pf_short) static void fill(struct testverbs_queue_ex *q)
{
	const struct testverbs_sge list[] = {{.length = 5}, {.length = 6}, {.length = 7}};
	const struct testverbs_buffer buffers[] = {{.length = 40}, {.length = 50}};

	q->start(q);
	q->send(q);
	set_sge_with_garbage(q, 1000);
	q->send(q);
	q->set_sge_list(q, 3, list);
	q->rdma_write(q, 0, 0);
	q->set_inline_data(q, NULL, 300);
	q->rdma_write(q, 0, 0);
	q->set_inline_data_list(q, 2, buffers);
	q->atomic_write(q, 0, 0, NULL);
}

IN_SECTION(pf_short) static void complete(struct testverbs_queue_ex *q)
{
	status = q->complete(q);
}

IN_SECTION(pf_loop) static void body_extended(struct truth *t)
{
	say_and_wait(t, 1);
	fill(&queues[0]);
	complete(&queues[0]);
	complete(&queues[0]); /* has nothing to post */
	say_and_wait(t, 3);
	fill(&queues[0]);
	queues[0].abort(&queues[0]);
	complete(&queues[0]);
	fill(&queues[0]);
	fails = true;
	complete(&queues[0]);
	say_and_wait(t, 4);
	queues[0].start(&queues[0]); /* two queue pairs at once */
	queues[1].start(&queues[1]);
	write_some(&queues[0], 1);
	write_some(&queues[1], 10);
	write_some(&queues[0], 2);
	complete(&queues[0]);
	complete(&queues[1]);
	say_and_wait(t, 5);
	for (int i = 0; i < 5; i++) /* more than a thread may fill at once */
		queues[i].start(&queues[i]);
	for (int i = 0; i < 5; i++)
		write_some(&queues[i], 100);
	for (int i = 0; i < 5; i++)
		complete(&queues[i]);
	say_and_wait(t, 6);
}

static void extended_queue_pairs_count_when_they_complete(void **state)
{
	uint64_t before = lost("rdma_batches");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	rdma_open_scene(&s, body_extended);
	rdma_go(&s, 3, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, "test_0").in_short, 1018);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, "test_0").in_short, 390);
	assert_int_equal(posted(&rows, PF_RDMA_ATOMIC, "test_0").in_short, 8);
	assert_int_equal(rows.n, 3);
	rdma_go(&s, 4, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).bytes, 1018);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, NULL).bytes, 390);
	rdma_go(&s, 5, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, "test_0").bytes, 390 + 3);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, "mlx5_7").bytes, 10);
	assert_int_equal(lost("rdma_batches"), before);
	rdma_go(&s, 6, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, NULL).bytes, 390 + 13 + 400);
	assert_int_equal(lost("rdma_batches") - before, 1);
	scene_close(&s);
}

IN_SECTION(pf_loop) static void body_between_spans(struct truth *t)
{
	say_and_wait(t, 1);
	queues[0].start(&queues[0]);
	write_some(&queues[0], 1000);
	say_and_wait(t, 3);
	write_some(&queues[0], 100);
	complete(&queues[0]);
	fill(&queues[1]);
	complete(&queues[1]);
	say_and_wait(t, 4);
}

/*
 * A batch of requests begins in one span and completes in a later one. It does not count, because
 * the programs do not know whether another batch began in between.
 */
static void a_batch_of_an_earlier_span_does_not_count(void **state)
{
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	rdma_open_scene(&s, body_between_spans);
	rdma_go(&s, 3, &rows);
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(scene_attach(&s, RDMA), 0);
	rdma_go(&s, 4, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, "test_0").bytes, 0);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, "mlx5_7").bytes, 390);
	scene_close(&s);
}

/* ---- registrations ---- */

static void *volatile memory;
static struct testverbs_context *volatile domain[] = {&contexts[0]}; /* struct ibv_pd */

IN_SECTION(pf_short) static void register_some(void)
{
	void *pd = (void *)domain;

	memory = reg_mr_iova(pd, pd, 5000, 1, 0);
	memory = reg_mr(pd, pd, 300, 0); /* calls reg_mr_iova */
	memory = reg_mr(pd, pd, REGISTER_MAX + 1, 0);
	memory = reg_mr_iova(pd, pd, SIZE_MAX, 1, 0);
}

IN_SECTION(pf_loop) static void body_registers(struct truth *t)
{
	say_and_wait(t, 1);
	register_some();
	say_and_wait(t, 3);
}

static void registrations_count_once_if_they_succeed(void **state)
{
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	rdma_open_scene(&s, body_registers);
	rdma_go(&s, 3, &rows);
	assert_int_equal(rows.n, 1);
	assert_int_equal(rows.items[0].type, UINT64_MAX);
	assert_int_equal(posted(&rows, PF_RDMA_REGISTER, "test_0").in_short, 5300);
	assert_int_equal(posted(&rows, PF_RDMA_REGISTER, "test_0").n, 2);
	scene_close(&s);
}

/* ---- threads ---- */

#define ROUNDS 200

static void *post_many(void *arg)
{
	struct testverbs_queue_ex *q = arg;
	struct testverbs_sge piece = {.length = q == &queues[0] ? 7 : 1000};
	struct testverbs_send wr = {.sg_list = &piece, .num_sge = 1}, *bad; /* RDMA_WRITE */

	for (unsigned i = 0; i < ROUNDS; i++) {
		status = q->base.context->ops.post_send(&q->base, &wr, &bad);
		q->start(q);
		write_some(q, piece.length);
		status = q->complete(q);
	}
	return NULL;
}

IN_SECTION(pf_loop) static void body_threads(struct truth *t)
{
	pthread_t threads[2];

	say_and_wait(t, 1);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, post_many, &queues[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	say_and_wait(t, 3);
}

static void threads_do_not_mix(void **state)
{
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	rdma_open_scene(&s, body_threads);
	rdma_go(&s, 3, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, "test_0").bytes, 2 * ROUNDS * 7);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, "mlx5_7").bytes, 2 * ROUNDS * 1000);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, NULL).n, 4 * ROUNDS);
	scene_close(&s);
}

static int run(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_of_lists_are_exact),
		cmocka_unit_test(each_operation_is_a_sample),
		cmocka_unit_test(receive_requests_are_an_operation),
		cmocka_unit_test(a_failed_post_counts_what_was_posted),
		cmocka_unit_test(lists_that_lie_are_bounded_and_counted),
		cmocka_unit_test(only_a_list_of_more_steps_is_too_long),
		cmocka_unit_test(extended_queue_pairs_count_when_they_complete),
		cmocka_unit_test(a_batch_of_an_earlier_span_does_not_count),
		cmocka_unit_test(registrations_count_once_if_they_succeed),
		cmocka_unit_test(threads_do_not_mix),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run);
}
