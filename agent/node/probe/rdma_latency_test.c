// SPDX-License-Identifier: Apache-2.0
/*
 * rdma-latency in real processes: which requests count, under which stack, and for how long. The
 * process measures itself how long its requests are under way. The tests run once for each way to
 * attach uprobes that this kernel has.
 */
#include "node/probe/neighbours_test.h"
#include "node/probe/rdma_scene_test.h"

#include <sys/mman.h>

#include "rdma_latency.skel.h"

#define LATENCY	 (1u << EVENT_RDMA_LATENCY)
#define SEND	 2	  /* enum ibv_wr_opcode */
#define SIGNALED 2	  /* enum ibv_send_flags */
#define RECEIVED (1 << 7) /* enum ibv_wc_opcode */
#define INIT	 1	  /* enum ibv_qp_state */
#define RTR	 2
#define RTS	 3
#define ERR	 6

/*
 * What the process has measured: the time between the calls that post and take (inner) and the time
 * that includes these calls (outer).
 */
static struct measured {
	uint64_t n, inner_ns, outer_ns;
} * measured;

/* ---- the provider: a poll takes what the process has put into a list ---- */

static struct testverbs_completion done[2048];
static int n_done;
static int lie; /* what a poll says instead of that; 0: the truth */

IN_SECTION(pf_driver)
static int poll_cq(struct testverbs_completions *q, int n, struct testverbs_completion *list)
{
	int taken = n_done < n ? n_done : n;

	(void)q;
	if (lie)
		return lie;
	for (int i = 0; i < taken; i++)
		list[i] = done[i];
	n_done = 0;
	return taken;
}

IN_SECTION(pf_driver) static int set_state(struct testverbs_queue *q, uint32_t *state, int mask)
{
	__asm__ volatile("" : : "r"(mask));
	q->state = *state;
	return 0;
}

IN_SECTION(pf_driver) static int destroy_qp(struct testverbs_queue *q)
{
	NOTHING;
	return 0;
}

/* ---- the program ---- */

static struct testverbs_completions completions[2] = {{&contexts[0]}, {&contexts[1]}};

static void end(struct testverbs_queue_ex *q, uint64_t wr_id, uint32_t status_, uint32_t opcode)
{
	done[n_done++] = (struct testverbs_completion){
		.wr_id = wr_id, .status = status_, .opcode = opcode, .qp_num = q->base.qp_num};
}

static void poll_of(struct testverbs_queue_ex *q)
{
	static struct testverbs_completion list[2048];

	status = poll_cq(&completions[q->base.context - contexts], 2048, list);
}

static void post_one(struct testverbs_queue_ex *q, uint64_t wr_id, unsigned flags)
{
	struct testverbs_send wr = {.wr_id = wr_id, .opcode = SEND, .send_flags = flags}, *bad;

	status = q->base.context->ops.post_send(&q->base, &wr, &bad);
}

/* Begins the queue anew, as a program does that connects it. */
static void connect_queue(struct testverbs_queue_ex *q)
{
	for (uint32_t state = INIT; state <= RTS; state++)
		set_state(&q->base, &state, 1);
}

/* Posts a request that is under way for this time, and takes its completion. */
static void travel(struct testverbs_queue_ex *q, uint64_t wr_id, unsigned ms)
{
	uint64_t before = now_mono_ns(), after, taken;

	post_one(q, wr_id, SIGNALED);
	after = now_mono_ns();
	nap(ms);
	poll_of(q); /* finds nothing */
	end(q, wr_id, 0, 0);
	taken = now_mono_ns();
	poll_of(q);
	measured->n++;
	measured->inner_ns += taken - after;
	measured->outer_ns += now_mono_ns() - before;
}

IN_SECTION(pf_short) static void travel_short(struct testverbs_queue_ex *q, uint64_t wr_id)
{
	travel(q, wr_id, 3);
	status++; /* so that the call above is no tail call */
}

IN_SECTION(pf_long) static void travel_long(struct testverbs_queue_ex *q, uint64_t wr_id)
{
	travel(q, wr_id, 30);
	status++;
}

/* ---- scenes ---- */

static void add_latency(struct probed *t)
{
	t->proc.n_functions = PF_RDMA_FUNCTIONS_MAX; /* all are probed */
	add_provider(t);
	add_site(t, poll_cq, (struct pf_site){.kind = PF_SITE_RDMA_POLL});
	add_site(t, set_state, (struct pf_site){.kind = PF_SITE_RDMA_MODIFY});
	add_site(t, destroy_qp, (struct pf_site){.kind = PF_SITE_RDMA_DESTROY});
}

static void open_scene(struct scene *s, body_fn *body)
{
	s->set = PROBES_RDMA_LATENCY;
	add_latency(&s->probed);
	measured = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(measured != MAP_FAILED);
	for (unsigned i = 0; i < ARRAY_SIZE(queues); i++)
		queues[i].base.qp_num = 100; /* on different devices they may be the same */
	queues[2].base.qp_num = 102;
	scene_open(s, body, LATENCY, 0);
}

static unsigned n_entries(const struct bpf_map *map)
{
	return map_count(bpf_map__fd(map), sizeof(struct pf_rdma_request_key));
}

static unsigned n_under_way(const struct scene *s)
{
	const struct rdma_latency_bpf *o = scene_set(s)->object.bpf;

	assert_int_equal(n_entries(o->maps.rdma_requests),
			 scene_set(s)->shares.of[SHARED_REQUESTS]->held[0]);
	assert_int_equal(n_entries(o->maps.rdma_queues),
			 scene_set(s)->shares.of[SHARED_QUEUES]->held[0]);
	return n_entries(o->maps.rdma_requests);
}

static void close_scene(struct scene *s)
{
	const struct rdma_latency_bpf *o = scene_set(s)->object.bpf;

	s->a = probes_detach(s->p, s->a);
	assert_int_equal(n_entries(o->maps.rdma_requests), 0);
	assert_int_equal(n_entries(o->maps.rdma_queues), 0);
	assert_int_equal(scene_set(s)->shares.of[SHARED_REQUESTS]->held[0], 0);
	assert_int_equal(scene_set(s)->shares.of[SHARED_QUEUES]->held[0], 0);
	munmap(measured, 4096);
	scene_close(s);
}

/* What was counted so far is what the process has measured, to a microsecond for each request. */
static void counted(const struct posted_rows *rows)
{
	struct posted all = posted(rows, PF_RDMA_SEND, NULL);

	assert_int_equal(all.n, measured->n);
	assert_in_range(all.bytes, measured->inner_ns / 1000 - all.n,
			measured->outer_ns / 1000 + all.n);
}

/* ---- tests ---- */

IN_SECTION(pf_loop) static void body_travels(struct truth *t)
{
	connect_queue(&queues[0]);
	connect_queue(&queues[1]);
	say_and_wait(t, 1);
	connect_queue(&queues[0]);
	connect_queue(&queues[1]);
	for (int i = 0; i < 3; i++) {
		travel_short(&queues[0], 7);
		travel_long(&queues[1], 7);
	}
	say_and_wait(t, 3);
}

static void latencies_are_those_that_the_process_measures(void **state)
{
	uint64_t before = lost("rdma_unmatched");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_travels);
	rdma_go(&s, 3, &rows);
	counted(&rows);
	assert_int_equal(rows.n, 2);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, "test_0").n, 3);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, "mlx5_7").n, 3);
	assert_true(posted(&rows, PF_RDMA_SEND, "test_0").in_short >= 3 * 3000);
	assert_true(posted(&rows, PF_RDMA_SEND, "mlx5_7").in_long >= 3 * 30000);
	for (size_t i = 0; i < rows.n; i++)
		assert_int_equal(rows.items[i].type,
				 streq(rows.items[i].device, "test_0") ? RC : UD);
	assert_int_equal(lost("rdma_unmatched"), before);
	assert_int_equal(n_under_way(&s), 0);
	close_scene(&s);
}

/* All requests of the queue have the same wr_id, and one in four is signaled. */
IN_SECTION(pf_loop) static void body_unsignaled(struct truth *t)
{
	say_and_wait(t, 1);
	connect_queue(&queues[0]);
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < 3; k++)
			post_one(&queues[0], 7, 0);
		nap(5);
		travel_short(&queues[0], 7);
	}
	say_and_wait(t, 3);
	connect_queue(&queues[0]); /* signals all: no request says so itself */
	for (int i = 0; i < 20; i++)
		post_one(&queues[0], 7, 0);
	for (int i = 0; i < 20; i++)
		end(&queues[0], 7, 0, 0);
	poll_of(&queues[0]);
	say_and_wait(t, 4);
}

static void requests_without_a_completion_do_not_count(void **state)
{
	uint64_t before = lost("rdma_unmatched");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_unsignaled);
	rdma_go(&s, 3, &rows);
	counted(&rows);
	assert_int_equal(n_under_way(&s), 0);
	rdma_go(&s, 4, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).n, measured->n + 20);
	assert_int_equal(lost("rdma_unmatched"), before);
	assert_int_equal(n_under_way(&s), 0);
	close_scene(&s);
}

IN_SECTION(pf_loop) static void body_errors(struct truth *t)
{
	uint32_t failed = ERR;

	say_and_wait(t, 1);
	connect_queue(&queues[0]);
	end(&queues[0], 7, 0, RECEIVED); /* of a receive request */
	poll_of(&queues[0]);
	for (int i = 0; i < 5; i++)
		post_one(&queues[0], i, SIGNALED);
	end(&queues[0], 1, 5, 77); /* IBV_WC_WR_FLUSH_ERR; the opcode is not valid */
	poll_of(&queues[0]);
	say_and_wait(t, 3);
	connect_queue(&queues[0]);
	post_one(&queues[0], 7, SIGNALED);
	set_state(&queues[0].base, &failed, 1);
	say_and_wait(t, 4);
	post_one(&queues[0], 7, SIGNALED);
	destroy_qp(&queues[0].base);
	say_and_wait(t, 5);
}

/* Neither a receive request nor one that fails has a latency, nor what is flushed with it. */
static void what_fails_does_not_count(void **state)
{
	uint64_t before = lost("rdma_unmatched");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_errors);
	for (uint32_t step = 3; step <= 5; step++) {
		rdma_go(&s, step, &rows);
		assert_int_equal(rows.n, 0);
		assert_int_equal(n_under_way(&s), 0);
	}
	assert_int_equal(lost("rdma_unmatched"), before);
	close_scene(&s);
}

#define LIST 10

IN_SECTION(pf_loop) static void body_lists(struct truth *t)
{
	struct testverbs_send list[LIST], *bad;

	say_and_wait(t, 1);
	connect_queue(&queues[0]);
	for (int i = 0; i < LIST; i++)
		list[i] = (struct testverbs_send){.wr_id = 7,
						  .next = i + 1 < LIST ? &list[i + 1] : NULL,
						  .opcode = i == 6 ? OPCODE_FAILS | SEND : SEND,
						  .send_flags = SIGNALED};
	status = contexts[0].ops.post_send(&queues[0].base, list, &bad);
	say_and_wait(t, 3);
	for (int i = 0; i < 6; i++)
		end(&queues[0], 7, 0, 0);
	poll_of(&queues[0]);
	say_and_wait(t, 4);
	list[6].opcode = SEND;
	list[2].next = (void *)8; /* a list that lies */
	status = contexts[0].ops.post_send(&queues[0].base, list, &bad);
	say_and_wait(t, 5);
}

/* Of a post that fails, the requests before the bad one are under way. */
static void a_list_counts_as_far_as_it_was_posted(void **state)
{
	uint64_t unread = lost("rdma_unread"), unmatched = lost("rdma_unmatched");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_lists);
	rdma_go(&s, 3, &rows);
	assert_int_equal(n_under_way(&s), 6);
	rdma_go(&s, 4, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).n, 6);
	assert_int_equal(n_under_way(&s), 0);
	assert_int_equal(lost("rdma_unread"), unread);
	rdma_go(&s, 5, &rows);
	assert_int_equal(lost("rdma_unread") - unread, 1);
	assert_int_equal(lost("rdma_unmatched"), unmatched);
	close_scene(&s);
}

static void travel_extended(struct testverbs_queue_ex *q, uint64_t wr_id)
{
	uint64_t before, after, taken;

	q->start(q);
	q->wr_id = wr_id;
	q->wr_flags = SIGNALED;
	q->send(q);
	q->set_sge(q, 0, 0, 100);
	q->wr_id = wr_id + 1;
	q->rdma_write(q, 0, 0);
	nap(5); /* does not count: nothing is posted yet */
	before = now_mono_ns();
	status = q->complete(q);
	after = now_mono_ns();
	nap(3);
	end(q, wr_id, 0, 0);
	taken = now_mono_ns();
	poll_of(q);
	measured->n++;
	measured->inner_ns += taken - after;
	measured->outer_ns += now_mono_ns() - before;
}

IN_SECTION(pf_loop) static void body_extended(struct truth *t)
{
	say_and_wait(t, 1);
	connect_queue(&queues[0]);
	travel_extended(&queues[0], 50);
	say_and_wait(t, 3);
	queues[0].start(&queues[0]);
	queues[0].send(&queues[0]);
	queues[0].abort(&queues[0]);
	queues[0].start(&queues[0]);
	queues[0].send(&queues[0]);
	fails = true;
	status = queues[0].complete(&queues[0]);
	end(&queues[0], 51, 0, 1); /* the write */
	poll_of(&queues[0]);
	say_and_wait(t, 4);
}

static void extended_queue_pairs_are_posted_when_they_complete(void **state)
{
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_extended);
	rdma_go(&s, 3, &rows);
	counted(&rows);
	assert_int_equal(n_under_way(&s), 1);
	rdma_go(&s, 4, &rows);
	counted(&rows);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, NULL).n, 1);
	assert_int_equal(n_under_way(&s), 0);
	close_scene(&s);
}

/* The process has requests under way when it is attached: it gives all of them the same wr_id. */
IN_SECTION(pf_loop) static void body_alike(struct truth *t)
{
	connect_queue(&queues[0]);
	say_and_wait(t, 1);
	for (int i = 0; i < 100; i++) {
		post_one(&queues[0], 7, SIGNALED);
		end(&queues[0], 7, 0, 0); /* of an earlier request */
		poll_of(&queues[0]);
	}
	say_and_wait(t, 3);
	connect_queue(&queues[0]);
	for (int i = 0; i < 10; i++)
		travel_short(&queues[0], 7);
	say_and_wait(t, 4);
	for (int i = 0; i < 10; i++) {
		post_one(&queues[0], 7, SIGNALED);
		end(&queues[0], 7, 0, 0);
		poll_of(&queues[0]);
	}
	say_and_wait(t, 5);
}

/*
 * The programs cannot tell a request from those that were under way before: then nothing counts.
 * They can once they have seen the queue begin, until the probes change.
 */
static void requests_that_look_alike_count_if_all_were_seen(void **state)
{
	struct probes_refused refused;
	uint64_t before = lost("rdma_unmatched");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_alike);
	rdma_go(&s, 3, &rows);
	assert_int_equal(rows.n, 0);
	assert_int_equal(lost("rdma_unmatched") - before, 100);
	rdma_go(&s, 4, &rows);
	counted(&rows);
	assert_int_equal(lost("rdma_unmatched") - before, 100);
	assert_int_equal(
		probes_attach_change(s.p, s.a, &s.probed.proc, &s.probed.file, 1, &refused), 0);
	rdma_go(&s, 5, &rows);
	counted(&rows);
	assert_int_equal(lost("rdma_unmatched") - before, 110);
	close_scene(&s);
}

/* Each request has a wr_id of its own; some are under way when the process is attached. */
IN_SECTION(pf_loop) static void body_spans(struct truth *t)
{
	connect_queue(&queues[0]);
	for (uint64_t id = 0; id < 10; id++)
		post_one(&queues[0], id, SIGNALED);
	say_and_wait(t, 1);
	for (uint64_t id = 10; id < 20; id++)
		post_one(&queues[0], id, SIGNALED);
	for (uint64_t id = 0; id < 15; id++)
		end(&queues[0], id, 0, 0);
	poll_of(&queues[0]);
	say_and_wait(t, 3);
	for (uint64_t id = 20; id < 30; id++)
		post_one(&queues[0], id, SIGNALED);
	for (uint64_t id = 15; id < 30; id++)
		end(&queues[0], id, 0, 0);
	poll_of(&queues[0]);
	say_and_wait(t, 4);
}

/* A request counts if it begins and ends in one span. */
static void requests_are_matched_within_a_span(void **state)
{
	uint64_t before = lost("rdma_unmatched");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_spans);
	rdma_go(&s, 3, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).n, 5);
	assert_int_equal(lost("rdma_unmatched") - before, 10);
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(n_under_way(&s), 0);
	assert_int_equal(scene_attach(&s, LATENCY), 0);
	rdma_go(&s, 4, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, NULL).n, 15);
	assert_int_equal(lost("rdma_unmatched") - before, 15);
	close_scene(&s);
}

IN_SECTION(pf_loop) static void body_unpolled(struct truth *t)
{
	say_and_wait(t, 1);
	connect_queue(&queues[0]);
	for (int i = 0; i < PF_RDMA_OF_QUEUE_MAX + 10; i++)
		post_one(&queues[0], i, SIGNALED);
	say_and_wait(t, 3);
	end(&queues[0], 0, 0, 0);
	poll_of(&queues[0]);
	say_and_wait(t, 4);
}

static void more_requests_than_fit_are_a_loss(void **state)
{
	uint64_t full = lost("rdma_full"), unmatched = lost("rdma_unmatched");
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_unpolled);
	rdma_go(&s, 3, &rows);
	assert_int_equal(lost("rdma_full") - full, 10);
	assert_int_equal(n_under_way(&s), PF_RDMA_OF_QUEUE_MAX);
	rdma_go(&s, 4, &rows);
	assert_int_equal(lost("rdma_unmatched") - unmatched, 1); /* of the first one */
	assert_int_equal(rows.n, 0);
	close_scene(&s);
}

IN_SECTION(pf_loop) static void body_share(struct truth *t)
{
	say_and_wait(t, 1);
	connect_queue(&queues[0]);
	for (int i = 0; i < 3; i++)
		post_one(&queues[0], i, SIGNALED);
	say_and_wait(t, 3);
	connect_queue(&queues[2]);
	connect_queue(&queues[1]);
	post_one(&queues[1], 0, SIGNALED);
	queues[1].start(&queues[1]);
	queues[1].send(&queues[1]);
	status = queues[1].complete(&queues[1]);
	say_and_wait(t, 4);
}

/*
 * A namespace may not have more requests and queues than there are free entries, so that others
 * find room.
 */
static void a_namespace_has_at_most_as_many_entries_as_are_free(void **state)
{
	uint64_t full = lost("rdma_full");
	int32_t *requests, *queued;
	struct posted_rows rows = {};
	struct scene s = {};
	uint32_t share;

	(void)state;
	open_scene(&s, body_share);
	requests = scene_set(&s)->shares.of[SHARED_REQUESTS]->held;
	queued = scene_set(&s)->shares.of[SHARED_QUEUES]->held;
	share = probes_share_of(s.p, 0);
	assert_true(share > 0);
	requests[0] = PF_RDMA_REQUESTS_MAX - 102;
	requests[share] = 100;
	rdma_go(&s, 3, &rows);
	assert_int_equal(lost("rdma_full") - full, 2);
	assert_int_equal(requests[share], 101);
	requests[0] = requests[share] = 1;
	queued[0] = PF_RDMA_QUEUES_MAX - 2; /* one is free, and the namespace has one */
	rdma_go(&s, 4, &rows);
	assert_int_equal(lost("rdma_full") - full, 4); /* two posts of a queue without an entry */
	assert_int_equal(queued[share], 2);
	queued[0] = 2;
	close_scene(&s);
}

#define GREEDY_QUEUES (PF_RDMA_QUEUES_MAX / CROWD)
#define FEW_QUEUES    1500
#define OF_A_QUEUE    5 /* requests */

static void post_all(unsigned n)
{
	for (unsigned i = 1; i <= n; i++) {
		queues[0].base.qp_num = 1000 + i;
		connect_queue(&queues[0]);
		for (int k = 0; k < OF_A_QUEUE; k++)
			post_one(&queues[0], k, SIGNALED);
	}
}

IN_SECTION(pf_loop) static void body_greedy(struct truth *t)
{
	say_and_wait(t, 1);
	post_all(GREEDY_QUEUES);
	say_and_wait(t, 3);
}

IN_SECTION(pf_loop) static void body_victim(struct truth *t)
{
	say_and_wait(t, 1);
	post_all(FEW_QUEUES);
	for (unsigned i = 1; i <= FEW_QUEUES; i++) {
		queues[0].base.qp_num = 1000 + i;
		for (int k = 0; k < OF_A_QUEUE; k++)
			end(&queues[0], k, 0, 0);
		poll_of(&queues[0]);
	}
	say_and_wait(t, 3);
}

/* When the victim begins, a crowd of processes of another namespace has filled both tables. */
static void requests_of_one_namespace_leave_room(void **state)
{
	struct neighbours n = {.set = PROBES_RDMA_LATENCY,
			       .events = LATENCY,
			       .n_greedy = CROWD,
			       .add_probes = add_latency};
	uint64_t full;

	(void)state;
	if (neighbours_have_run())
		return;
	neighbours_open(&n, body_greedy, body_victim);
	neighbours_fill(&n, 3);
	assert_int_equal(n.greedy[CROWD - 1].w.last_refused.ns, NS_GREEDY);
	assert_int_equal(neighbours_table(&n, SHARED_QUEUES)->held[0], PF_RDMA_QUEUES_MAX / 4 * 3);
	assert_int_equal(neighbours_table(&n, SHARED_REQUESTS)->held[0],
			 PF_RDMA_REQUESTS_MAX / 4 * 3);
	full = lost("rdma_full");
	go(&n.victim, 3);
	assert_int_equal(n.victim.w.alloc.n, FEW_QUEUES * OF_A_QUEUE);
	assert_int_equal(n.victim.w.refused, 0);
	assert_int_equal(lost("rdma_full"), full);
	neighbours_close(&n);
}

#define RACING 900 /* less than PF_RDMA_OF_QUEUE_MAX, which ends what is known of the queue */

static volatile bool racing;

static void *post_racing(void *arg)
{
	for (unsigned i = 0; i < RACING; i++)
		post_one(arg, 7, SIGNALED);
	racing = false;
	return NULL;
}

IN_SECTION(pf_loop) static void body_racing(struct truth *t)
{
	uint64_t before;
	pthread_t thread;

	say_and_wait(t, 1);
	before = now_mono_ns();
	for (int i = 0; i < 10; i++) {
		connect_queue(&queues[0]);
		racing = true;
		pthread_create(&thread, NULL, post_racing, &queues[0]);
		while (racing) {
			while (n_done < PF_RDMA_OF_QUEUE_MAX)
				end(&queues[0], 7, 0, 0);
			poll_of(&queues[0]);
		}
		pthread_join(thread, NULL);
	}
	measured->outer_ns = now_mono_ns() - before;
	say_and_wait(t, 3);
}

/* The program of a poll may find requests that another thread has posted while it runs. */
static void what_is_posted_after_a_poll_was_not_taken_by_it(void **state)
{
	uint64_t before = lost("rdma_unmatched");
	struct posted_rows rows = {};
	struct scene s = {};
	struct posted all;

	(void)state;
	open_scene(&s, body_racing);
	rdma_go(&s, 3, &rows);
	all = posted(&rows, PF_RDMA_SEND, NULL);
	assert_in_range(all.n, 0, 10 * RACING);
	assert_in_range(all.bytes, 0, all.n * (measured->outer_ns / 1000 + 1));
	assert_true(lost("rdma_unmatched") > before);
	close_scene(&s);
}

#define ROUNDS 300

static void *travel_many(void *arg)
{
	struct testverbs_queue_ex *q = arg;
	struct testverbs_send wr = {.opcode = SEND, .send_flags = SIGNALED}, *bad;

	for (unsigned i = 0; i < ROUNDS; i++) {
		wr.wr_id = i % 20;
		status = q->base.context->ops.post_send(&q->base, &wr, &bad);
	}
	return NULL;
}

IN_SECTION(pf_loop) static void body_threads(struct truth *t)
{
	pthread_t threads[2];
	struct testverbs_queue_ex *of[] = {&queues[0], &queues[2]};

	say_and_wait(t, 1);
	for (int i = 0; i < 2; i++) {
		connect_queue(of[i]);
		pthread_create(&threads[i], NULL, travel_many, of[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int k = 0; k < ROUNDS; k++)
		for (int i = 0; i < 2; i++)
			end(of[i], k % 20, 0, 0);
	poll_of(&queues[0]); /* one completion queue for both */
	say_and_wait(t, 3);
}

static void queues_and_threads_do_not_mix(void **state)
{
	uint64_t before = lost("rdma_unmatched"), before_in_all = lost_in_all(), n;
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_threads);
	rdma_go(&s, 3, &rows);
	assert_int_equal(lost("rdma_unmatched"), before);
	n = posted(&rows, PF_RDMA_SEND, "test_0").n;
	if (n != 2 * ROUNDS)
		fail_msg("%lu of %u requests; of all devices %lu, lost %lu", n, 2 * ROUNDS,
			 posted(&rows, PF_RDMA_SEND, NULL).n, lost_in_all() - before_in_all);
	assert_int_equal(n_under_way(&s), 0);
	close_scene(&s);
}

/* A poll says that it has taken so many completions, and that they are at this address. */
static const struct {
	int n;
	uint64_t queue, list; /* 0: those that are there */
	const char *lost;     /* the reason; NULL: nothing is */
} lies[] = {
	{-5, 0, 0, NULL},
	{INT32_MIN, 0, 0, NULL},
	{5, 0, 16, "rdma_unread"},
	{2, 0, 0xffff888000000000, "rdma_unread"},
	{1, 0, UINT64_MAX, "rdma_unread"},
	{1, 16, 0, "rdma_unread"},
	{1, 0xffff888000000000, 0, "rdma_unread"},
	{INT32_MAX, 0, 0, "rdma_long"},
};

IN_SECTION(pf_loop) static void body_lies(struct truth *t)
{
	static struct testverbs_completion list[2048]; /* of a queue pair that is not there */

	say_and_wait(t, 1);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		uint64_t queue = lies[i].queue ?: (uintptr_t)&completions[0];
		uint64_t at = lies[i].list ?: (uintptr_t)list;

		connect_queue(&queues[0]);
		post_one(&queues[0], 7, SIGNALED);
		lie = lies[i].n;
		status = poll_cq((void *)queue, 16, (void *)at);
		lie = 0;
		say_and_wait(t, 3 + (int)i);
	}
	connect_queue(&queues[0]);
	for (int i = 0; i < 3; i++)
		travel_short(&queues[0], 7);
	say_and_wait(t, 3 + (int)ARRAY_SIZE(lies));
}

/* What such a poll seems to have taken is lost, and told. The queue counts when it begins anew. */
static void polls_that_lie(void **state)
{
	struct posted_rows rows = {};
	struct scene s = {};

	(void)state;
	open_scene(&s, body_lies);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		uint64_t unread = lost("rdma_unread"), too_long = lost("rdma_long");
		bool is_unread = lies[i].lost && streq(lies[i].lost, "rdma_unread");
		bool is_long = lies[i].lost && streq(lies[i].lost, "rdma_long");

		rdma_go(&s, 3 + (int)i, &rows);
		assert_int_equal(lost("rdma_unread"), unread + is_unread);
		assert_int_equal(lost("rdma_long"), too_long + is_long);
	}
	assert_int_equal(rows.n, 0);
	rdma_go(&s, 3 + (int)ARRAY_SIZE(lies), &rows);
	counted(&rows);
	assert_int_equal(posted(&rows, PF_RDMA_SEND, "test_0").n, 3);
	close_scene(&s);
}

static int run(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(latencies_are_those_that_the_process_measures),
		cmocka_unit_test(requests_without_a_completion_do_not_count),
		cmocka_unit_test(what_fails_does_not_count),
		cmocka_unit_test(a_list_counts_as_far_as_it_was_posted),
		cmocka_unit_test(extended_queue_pairs_are_posted_when_they_complete),
		cmocka_unit_test(requests_that_look_alike_count_if_all_were_seen),
		cmocka_unit_test(requests_are_matched_within_a_span),
		cmocka_unit_test(more_requests_than_fit_are_a_loss),
		cmocka_unit_test(a_namespace_has_at_most_as_many_entries_as_are_free),
		cmocka_unit_test(requests_of_one_namespace_leave_room),
		cmocka_unit_test(what_is_posted_after_a_poll_was_not_taken_by_it),
		cmocka_unit_test(queues_and_threads_do_not_mix),
		cmocka_unit_test(polls_that_lie),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run);
}
