/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drains that wait for names: how long, how many, in which order, and what happens to them when the
 * node closes. A drain is refused if the worker does not run its task (struct task). The test's
 * thread does the work of the workers.
 */
#include "lib/base/testclock.h"
#include "node/pipeline/internal.h"
#include "node/proc/testowner.h"
#include "node/work/testworkers.h"

#define MAX_WAITING 8 /* as in sample_queue.c */

/* ---- the functions that the queue calls ---- */

enum { GREEDY = 7, VICTIM };
static struct shares parses, under_way; /* by namespace */
/* the drains of all passes, in the order in which fold() got them; they are freed by now */
static const struct drain *fed[32];
static size_t n_fed, n_folded;
static uint64_t fed_asleep_ns[32];
static uint64_t fed_lost[32][2]; /* [0]: lost as "counts_full"; [1]: all other losses */
static size_t fed_exits[32];
static uint64_t fed_room[32];
static uint64_t took_ns, work_done; /* how long the next passes take, and for how much work */
static bool names_are_missing;	    /* whether the next first pass finds that names are missing */
static bool names_are_missing_always;
static size_t n_unparsed; /* how many unparsed files the next pass finds */
static size_t n_to_parse;
static struct missing missing; /* what the next pass finds missing; tgid 0: nothing */
static uint64_t read_cgroup_id;
static size_t n_read; /* calls of read_mappings() */

/* From now on, files of the namespace are parsed, or processes of it are read; or nothing is. */
static void set_busy(struct shares *what, uint64_t ns)
{
	shares_done(what);
	if (ns)
		shares_add(what, ns);
}

static const struct shares *does_parse(const struct follow *f)
{
	(void)f;
	return &parses;
}

static void parse(struct follow *f, const struct unparsed_file *u, size_t n)
{
	(void)f;
	assert_true(!u == !n);
	n_to_parse += n;
}

static void read_mappings(struct process_reader *r, struct process_id id, uint32_t exec_id,
			  uint32_t stack, uint64_t cgroup_id)
{
	(void)r;
	(void)id;
	(void)exec_id;
	(void)stack;
	read_cgroup_id = cgroup_id;
	n_read++;
	set_busy(&under_way, VICTIM);
}

static void read_names(struct process_reader *r, struct names_wanted *w)
{
	(void)r;
	(void)w;
}

static const struct shares *reads(const struct process_reader *r)
{
	(void)r;
	return &under_way;
}

static void fold(struct windows *p, const struct feed *f, struct feed_answer *ret)
{
	(void)p;
	assert_true(n_fed < ARRAY_SIZE(fed));
	fed_asleep_ns[n_fed] = f->asleep_ns;
	fed_exits[n_fed] = f->n_exits;
	fed_room[n_fed] = f->room;
	test_clock.later_ns += took_ns;
	ret->work = work_done;
	memset(fed_lost[n_fed], 0, sizeof(fed_lost[n_fed]));
	for (size_t i = 0; i < f->lost.n; i++)
		fed_lost[n_fed][!streq(f->lost.items[i].reason, "counts_full")] +=
			f->lost.items[i].n;
	fed[n_fed++] = f->drain;
	ret->waits = (names_are_missing || names_are_missing_always) && !f->last_pass;
	n_folded += !ret->waits;
	names_are_missing = false;
	ret->missing[0] = missing;
	ret->n_missing = missing.id.tgid != 0;
	missing.id.tgid = 0;
	ret->unparsed = n_unparsed ? xcalloc(n_unparsed, sizeof(*ret->unparsed)) : NULL;
	ret->n_unparsed = n_unparsed;
	n_unparsed = 0;
}

static const struct queue_ops ops = {fold, read_mappings, read_names, reads, parse, does_parse};

/* ---- the tests ---- */

static struct work node_work;
static struct pipeline pipeline;
static struct sample_queue *queue;
static struct drain *drains[16];

static int set_up(void **state)
{
	struct limit_config limit = {.work = &node_work};
	struct kernel_config kernel = {.work = &node_work};
	struct pipeline_config *c = &pipeline.config;

	(void)state;
	testwork(&node_work);
	limit.containers = kernel.containers = node_work.containers;
	pipeline = (struct pipeline){.config = {.work = &node_work, .limit = limit_new(&limit)}};
	c->containers = node_work.containers;
	assert_int_equal(kernel_new(&kernel, &c->kernel, NULL), 0);
	pipeline.throttle = pipeline_throttle_new(&pipeline);
	queue = pipeline_queue_new(&pipeline, &ops);
	names_are_missing = names_are_missing_always = false;
	n_fed = n_folded = n_unparsed = n_to_parse = n_read = 0;
	took_ns = work_done = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(posted.n, 0);
	pipeline_queue_free(queue);
	shares_done(&parses);
	shares_done(&under_way);
	pipeline_throttle_free(pipeline.throttle);
	kernel_free(pipeline.config.kernel);
	limit_free(pipeline.config.limit);
	return 0;
}

/* Makes a drain. The machine slept for asleep_s before it. is_new: it reports a new process. */
static struct drain *make(size_t i, uint64_t asleep_s, bool is_new)
{
	static const struct raw_proc first = {.tgid = 7, .what = RAW_PROC_SEEN};
	struct drain *d = sample_drain_new(0);

	d->asleep_ns = asleep_s * NSEC_PER_SEC;
	if (is_new) {
		d->procs = xmemdup(&first, sizeof(first));
		d->n_procs = 1;
	}
	return drains[i] = d;
}

static void add(size_t i)
{
	pipeline_queue_add(queue, make(i, 0, false), true);
}

/* Runs the queue's tasks. The pipeline worker has at most one at a time. */
static void work(void)
{
	while (posted.n) {
		assert_int_equal(posted.n, 1);
		posted_run();
	}
}

static void assert_fed(size_t n)
{
	assert_int_equal(n_fed, n);
	for (size_t i = 0; i < n; i++)
		assert_ptr_equal(fed[i], drains[i]);
}

/*
 * A file is being parsed during the whole test. If more than MAX_WAITING drains wait, the oldest
 * ones continue.
 */
static void so_many_wait_for_names(void **state)
{
	(void)state;
	set_busy(&parses, VICTIM);
	for (size_t i = 0; i < MAX_WAITING; i++)
		add(i);
	assert_int_equal(posted.n, 0);
	add(MAX_WAITING);
	work();
	assert_fed(1); /* the oldest is folded with the names that are known; the others wait */
	add(MAX_WAITING + 1);
	work();
	assert_fed(2);
	set_busy(&parses, 0);
	pipeline_queue_advance(queue);
	work();
	assert_fed(MAX_WAITING + 2);
}

/*
 * A drain with a heap profile waits in the same queue. It does not count towards MAX_WAITING, so
 * samples of the kernel do not wait less.
 */
static void what_is_not_of_the_kernel_does_not_count(void **state)
{
	(void)state;
	set_busy(&parses, VICTIM);
	for (size_t i = 0; i < MAX_WAITING + 4; i++)
		pipeline_queue_add_whole(queue, make(i, 0, false));
	assert_int_equal(posted.n, 0);
	set_busy(&parses, 0);
	pipeline_queue_advance(queue);
	work();
	assert_fed(MAX_WAITING + 4);
}

/* ---- a namespace that starts processes all the time ---- */

#define N_SECONDS 12

static void wait_100_ms(void)
{
	test_clock.later_ns += 100 * NSEC_PER_MSEC;
	pipeline_queue_advance(queue);
	work();
}

static void a_second_with(size_t i)
{
	add(i);
	work();
	for (size_t k = 0; k < 10; k++)
		wait_100_ms();
}

/*
 * New names of a namespace are missing in each drain, and its files are parsed all the time. Drains
 * wait for them at first, but then no drain is late. They still wait for another namespace.
 */
static void who_is_always_busy_makes_no_drain_late(void **state)
{
	struct counter *over = counter("podflame_names_not_awaited_total", NULL, NULL);
	uint64_t before = counter_get(over);

	(void)state;
	names_are_missing_always = true;
	set_busy(&parses, GREEDY);
	for (size_t i = 0; i < 3; i++)
		a_second_with(i);
	assert_int_equal(n_folded, 0);
	assert_int_equal(counter_get(over), before);
	for (size_t i = 3; i < N_SECONDS; i++)
		a_second_with(i);
	assert_int_equal(n_folded, N_SECONDS);
	assert_true(counter_get(over) > before);

	shares_add(&parses, VICTIM);
	a_second_with(N_SECONDS);
	assert_int_equal(n_folded, N_SECONDS);
	shares_remove(&parses, VICTIM);
	wait_100_ms();
	wait_100_ms();
	assert_int_equal(n_folded, N_SECONDS + 1);
}

/*
 * As before, but one namespace after another is busy, so that drains still wait for each of them.
 * Even then no drain is later than MAX_DELAY_NS of sample_queue.c: four seconds.
 */
static void namespaces_that_take_turns_make_no_drain_late(void **state)
{
	struct counter *hurried = counter("podflame_drains_hurried_total", NULL, NULL);
	uint64_t before = counter_get(hurried);

	(void)state;
	names_are_missing_always = true;
	for (size_t i = 0; i < 2 + N_SECONDS; i++) {
		set_busy(&parses, GREEDY + i / 5);
		a_second_with(i);
		assert_true(n_folded + 2 >= i);
	}
	assert_true(n_folded < N_SECONDS); /* drains waited until the end */
	assert_true(counter_get(hurried) > before);
}

/* A namespace that is not busy any more is waited for again after a while. */
static void patience_comes_back(void **state)
{
	(void)state;
	names_are_missing_always = true;
	set_busy(&parses, GREEDY);
	for (size_t i = 0; i < N_SECONDS; i++)
		a_second_with(i);
	assert_int_equal(n_folded, N_SECONDS);
	set_busy(&parses, 0);
	test_clock.later_ns += 3600 * NSEC_PER_SEC;
	set_busy(&parses, GREEDY);
	a_second_with(N_SECONDS);
	assert_int_equal(n_folded, N_SECONDS);
	set_busy(&parses, 0);
	wait_100_ms();
	assert_int_equal(n_folded, N_SECONDS + 1);
}

static void add_programs(uint64_t cgroup_id, size_t n)
{
	struct drain *d = sample_drain_new(0);

	d->procs = xcalloc(n, sizeof(*d->procs));
	for (; d->n_procs < n; d->n_procs++)
		d->procs[d->n_procs] = (struct raw_proc){.what = RAW_PROC_EXEC,
							 .tgid = 100 + (uint32_t)d->n_procs,
							 .cgroup_id = cgroup_id};
	pipeline_queue_add(queue, d, false);
	work();
}

/* Programs of one namespace start all the time. Those of another one are read at their start. */
static void programs_that_start_in_one_namespace_leave_room(void **state)
{
	enum { MANY = 1000, FEW = 5 };
	struct counter *c = counter("podflame_mappings_dropped_total", "reason", "many_execs");
	uint64_t before = counter_get(c);
	size_t first;

	(void)state;
	testowner_apply(node_work.containers, testowner_plan());
	add_programs(77, MANY);
	first = n_read;
	assert_in_range(first, 1, 50); /* MAX_EXEC_READS */
	assert_int_equal(counter_get(c) - before, MANY - first);
	add_programs(TEST_CGROUP, FEW);
	assert_int_equal(n_read, first + FEW);
	/* in the next second, it may have as many again */
	add(0);
	add_programs(77, MANY);
	assert_int_equal(n_read, first + FEW + first);
	set_busy(&under_way, 0);
	pipeline_queue_advance(queue);
	work();
}

static void mappings_are_waited_for(void **state)
{
	(void)state;
	pipeline_queue_add(queue, make(0, 0, true), true);
	assert_int_equal(posted.n, 0);
	set_busy(&under_way, 0);
	pipeline_queue_advance(queue);
	work();
	assert_fed(1);
	add(1); /* no process is new, so it does not wait */
	work();
	assert_fed(2);
}

/*
 * The pipeline worker finds that names are missing. The drain gets a second pass, before later
 * drains.
 */
static void a_second_pass_keeps_its_place(void **state)
{
	(void)state;
	names_are_missing = true;
	add(0);
	add(1);
	set_busy(&under_way, VICTIM); /* the names that the first pass requested are being read */
	posted_run();
	assert_int_equal(posted.n, 0);
	assert_int_equal(n_folded, 0);
	set_busy(&under_way, 0);
	pipeline_queue_advance(queue);
	work();
	assert_int_equal(n_fed, 3);
	assert_ptr_equal(fed[1], drains[0]);
	assert_ptr_equal(fed[2], drains[1]);
	assert_int_equal(n_folded, 2);
}

/*
 * Mappings are read with the cgroup of the sample, because nothing else may show to which container
 * the process belongs.
 */
static void mappings_are_read_for_their_container(void **state)
{
	(void)state;
	names_are_missing = true;
	missing = (struct missing){.id.tgid = 7, .cgroup_id = 77};
	read_cgroup_id = 0;
	add(0);
	posted_run();
	assert_int_equal(read_cgroup_id, 77);
	set_busy(&under_way, 0);
	pipeline_queue_advance(queue);
	work();
	assert_int_equal(n_folded, 1);
}

/*
 * Files that the first pass finds are parsed before the second pass. Files that the second pass
 * finds are parsed for later drains.
 */
static void files_without_names_are_parsed(void **state)
{
	(void)state;
	names_are_missing = true;
	n_unparsed = 3;
	add(0);
	set_busy(&under_way, VICTIM);
	posted_run();
	assert_int_equal(posted.n, 0);
	assert_int_equal(n_to_parse, 3);
	set_busy(&under_way, 0);
	n_unparsed = 2;
	pipeline_queue_advance(queue);
	work();
	assert_int_equal(n_to_parse, 5);
	assert_int_equal(n_folded, 1);
}

/* Adds a drain of the last two seconds. */
static void add_of_now(size_t i)
{
	struct drain *d = make(i, 0, false);

	d->to_ns = now_boot_ns();
	d->from_ns = d->to_ns - 2 * NSEC_PER_SEC;
	pipeline_queue_add(queue, d, true);
}

/*
 * The worker takes four seconds for two seconds of samples. When it is late, a drain may take half
 * of the time that it covers.
 */
static void a_late_drain_has_no_more_room_than_time(void **state)
{
	(void)state;
	took_ns = 4 * NSEC_PER_SEC;
	work_done = 2000000;
	for (size_t i = 0; i < 4; i++)
		add_of_now(i);
	work();
	add_of_now(4); /* it does not wait */
	work();
	assert_fed(5);
	assert_int_equal(fed_room[0], 0);
	assert_int_equal(fed_room[1], 0); /* 4 s */
	assert_int_equal(fed_room[2], work_done / 4);
	assert_int_equal(fed_room[3], work_done / 4);
	assert_int_equal(fed_room[4], 0);
}

static void a_late_drain_has_some_room(void **state)
{
	(void)state;
	took_ns = 4000 * NSEC_PER_SEC;
	work_done = 20000;
	add_of_now(0);
	add_of_now(1);
	work();
	assert_int_equal(fed_room[1], 16384); /* MIN_ROOM */
}

/* Makes a drain with 7 samples that takes so many MiB. */
static void add_large(size_t i, size_t mib)
{
	static const struct raw_sample samples[] = {{.n = 3}, {.n = 4}};
	struct drain *d = make(i, 0, false);

	d->to_ns = now_boot_ns();
	d->from_ns = d->to_ns - NSEC_PER_SEC;
	d->samples = xmemdup(samples, sizeof(samples));
	d->n_samples = ARRAY_SIZE(samples);
	d->n_stacks = (mib << 20) / sizeof(*d->stacks); /* nobody looks at them here */
	pipeline_queue_add(queue, d, true);
}

/* Drains that wait take at most 256 MiB. From a quarter of that on, the worker counts as late. */
static void waiting_drains_have_a_limit(void **state)
{
	struct counter *c = counter("podflame_samples_dropped_total", "reason", "pipeline_full");
	uint64_t before = counter_get(c);

	(void)state;
	took_ns = NSEC_PER_SEC;
	work_done = 1000000;
	add_of_now(0);
	work();
	took_ns = 0;
	set_busy(&parses, VICTIM);
	add_large(1, 200);
	add_large(2, 50);
	add_large(9, 10);
	assert_int_equal(counter_get(c), before + 7);
	assert_int_equal(profile_losses_sum(pipeline_queue_lost(queue)), 7);
	add_large(3, 1);
	assert_int_equal(counter_get(c), before + 7);
	set_busy(&parses, 0);
	pipeline_queue_advance(queue);
	work();
	assert_fed(4);
	assert_int_equal(fed_room[1], 500000);
	assert_int_equal(fed_room[2], 0); /* less than 64 MiB wait */
	assert_int_equal(fed_lost[1][1], 7);
}

/*
 * When the node closes, waiting drains are folded with the names that are known. None is lost, and
 * none is counted twice.
 */
static void who_waits_at_the_end_goes_on(void **state)
{
	(void)state;
	set_busy(&parses, VICTIM);
	set_busy(&under_way, VICTIM);
	for (size_t i = 0; i < 4; i++)
		add(i);
	assert_int_equal(posted.n, 0);
	node_work.closing = true;
	add(4); /* the last drain */
	assert_fed(5);
	assert_int_equal(n_folded, 5);
}

static void who_is_found_without_names_at_the_end_comes_again_at_once(void **state)
{
	(void)state;
	node_work.closing = names_are_missing = true;
	add(0);
	assert_int_equal(n_fed, 2);
	assert_ptr_equal(fed[1], drains[0]);
	assert_int_equal(n_folded, 1);
}

/*
 * A refused drain loses its samples, but not the sleep of the machine. The next drain reports the
 * sleep, once.
 */
static void a_refused_sleep_is_told_with_the_next(void **state)
{
	(void)state;
	pipeline_queue_add(queue, make(0, 3600, false), true);
	pipeline_queue_add(queue, make(1, 60, false), true); /* waits behind the first drain */
	posted.items[0]->refused = true;
	posted_run();
	posted.items[0]->refused = true;
	posted_run();
	assert_int_equal(n_fed, 0);
	pipeline_queue_add(queue, make(2, 0, true), false); /* a quick drain */
	work();
	set_busy(&under_way, 0);
	pipeline_queue_add_whole(queue, make(3, 0, false));
	add(4);
	add(5);
	work();
	assert_int_equal(n_fed, 4);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(fed_asleep_ns[i], i == 2 ? 3660 * NSEC_PER_SEC : 0);
}

/*
 * The samples of a refused drain are counted, and the next window reports them as lost. Samples of
 * a snapshot are not lost.
 */
static void refused_samples_are_counted(void **state)
{
	static const struct raw_sample samples[] = {{.n = 3}, {.n = 4}};
	struct counter *c = counter("podflame_samples_dropped_total", "reason", "pipeline_full");
	uint64_t before = counter_get(c);

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		make(i, 0, false)->samples = xmemdup(samples, sizeof(samples));
		drains[i]->n_samples = ARRAY_SIZE(samples);
	}
	pipeline_queue_add(queue, drains[0], true);
	posted.items[0]->refused = true;
	posted_run();
	assert_int_equal(counter_get(c), before + 7);
	assert_int_equal(profile_losses_sum(pipeline_queue_lost(queue)), 7);
	pipeline_queue_add_whole(queue, drains[1]);
	posted.items[0]->refused = true;
	posted_run();
	assert_int_equal(counter_get(c), before + 7);
	assert_int_equal(n_fed, 0);
}

/*
 * The worker gets the losses of a drain together with the drain, also in its second pass. If the
 * drain is refused, the worker gets them with the next drain, and the samples of the refused drain
 * are lost, too.
 */
static void losses_go_with_their_drain(void **state)
{
	static const struct raw_sample samples[] = {{.n = 3}, {.n = 4}};

	(void)state;
	for (size_t i = 0; i < 3; i++)
		profile_losses_add(&make(i, 0, false)->lost, 1u << EVENT_ON_CPU, "counts_full",
				   10 + i);
	drains[2]->samples = xmemdup(samples, sizeof(samples));
	drains[2]->n_samples = ARRAY_SIZE(samples);
	names_are_missing = true;
	for (size_t i = 0; i < 3; i++)
		pipeline_queue_add(queue, drains[i], true);
	posted_run();
	posted_run();
	posted_run();
	posted.items[0]->refused = true; /* the third drain */
	posted_run();
	pipeline_queue_add_whole(queue, make(3, 0, false));
	profile_losses_add(pipeline_queue_lost(queue), 1u << EVENT_ON_CPU, "mailbox_full", 100);
	add(4);
	work();
	assert_int_equal(n_fed, 5);
	assert_int_equal(fed_lost[0][0], 10);
	assert_int_equal(fed_lost[1][0], 10); /* the first pass had folded nothing */
	assert_int_equal(fed_lost[2][0], 11);
	/* a drain that is not from the kernel takes no losses */
	assert_int_equal(fed_lost[3][0], 0);
	assert_int_equal(fed_lost[4][0], 12);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(fed_lost[i][1], i == 4 ? 107 : 0);
	assert_int_equal(pipeline_queue_lost(queue)->n, 0);
	/* each loss counts once; losses of the sender do not count here */
	assert_int_equal(pipeline_queue_n_lost(queue), 10 + 11 + 12 + 7);
}

static void add_refused(uint64_t asleep_s)
{
	pipeline_queue_add(queue, make(0, asleep_s, false), true);
	posted.items[0]->refused = true;
	posted_run();
}

/* Adds a drain with one record of a process of which all is known. */
static void add_known(enum raw_proc_what what, uint32_t tgid)
{
	struct drain *d = sample_drain_new(0);

	d->procs = xcalloc(1, sizeof(*d->procs));
	d->n_procs = 1;
	d->procs[0] = (struct raw_proc){.what = what, .tgid = tgid, .all_known = true};
	pipeline_queue_add(queue, d, true);
	work();
}

/* All that names need is known of them. Only who lives on is read. */
static void who_is_known_and_ends_soon_is_not_read(void **state)
{
	(void)state;
	add_known(RAW_PROC_EXEC, 5);
	add_known(RAW_PROC_SEEN, 6);
	assert_int_equal(n_read, 0); /* the first process is a second old by now, or less */
	add_known(RAW_PROC_EXIT, 6);
	assert_int_equal(n_read, 1);
	add_known(RAW_PROC_EXEC, 7);
	assert_int_equal(n_read, 1);
	set_busy(&under_way, 0);
	pipeline_queue_advance(queue);
	work();
}

/*
 * A drain is refused, and no other drain follows, because the last target was deleted. Then the
 * request that only checks for the end of a window takes the sleep, even if one such request is
 * refused.
 */
static void a_refused_sleep_is_told_without_a_drain(void **state)
{
	(void)state;
	add_refused(3600);
	pipeline_queue_add(queue, NULL, true);
	posted.items[0]->refused = true;
	posted_run();
	assert_int_equal(n_fed, 0);
	pipeline_queue_add(queue, NULL, true);
	pipeline_queue_add(queue, NULL, true);
	work();
	assert_int_equal(n_fed, 2);
	assert_null(fed[0]);
	assert_int_equal(fed_asleep_ns[0], 3600 * NSEC_PER_SEC);
	assert_int_equal(fed_asleep_ns[1], 0);
}

/* Each exit is passed once, also if the request with it is refused. */
static void exits_are_told_with_the_next_request(void **state)
{
	const struct process_exit exits[3] = {{.exited_ns = 1}};

	(void)state;
	pipeline_queue_exited(queue, exits, 3);
	add_refused(0);
	pipeline_queue_exited(queue, exits, 1);
	pipeline_queue_add(queue, NULL, true);
	pipeline_queue_add(queue, NULL, true);
	work();
	assert_int_equal(n_fed, 2);
	assert_int_equal(fed_exits[0], 4);
	assert_int_equal(fed_exits[1], 0);
	/* nothing is queued after these exits: freeing the queue frees them */
	pipeline_queue_exited(queue, exits, 1);
}

/* The node ended before the worker could take these drains, so they are freed. */
static void who_never_went_is_freed(void **state)
{
	(void)state;
	set_busy(&parses, VICTIM);
	add(0);
	add(1);
	queue = pipeline_queue_free(queue);
	assert_int_equal(n_fed, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(so_many_wait_for_names),
		TEST(what_is_not_of_the_kernel_does_not_count),
		TEST(who_is_always_busy_makes_no_drain_late),
		TEST(namespaces_that_take_turns_make_no_drain_late),
		TEST(patience_comes_back),
		TEST(programs_that_start_in_one_namespace_leave_room),
		TEST(who_is_known_and_ends_soon_is_not_read),
		TEST(mappings_are_waited_for),
		TEST(a_second_pass_keeps_its_place),
		TEST(mappings_are_read_for_their_container),
		TEST(files_without_names_are_parsed),
		TEST(a_late_drain_has_no_more_room_than_time),
		TEST(a_late_drain_has_some_room),
		TEST(waiting_drains_have_a_limit),
		TEST(who_waits_at_the_end_goes_on),
		TEST(who_is_found_without_names_at_the_end_comes_again_at_once),
		TEST(a_refused_sleep_is_told_with_the_next),
		TEST(refused_samples_are_counted),
		TEST(losses_go_with_their_drain),
		TEST(a_refused_sleep_is_told_without_a_drain),
		TEST(exits_are_told_with_the_next_request),
		TEST(who_never_went_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
