/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent reports of jobs that attach or detach probes and are blocked or late. This thread
 * does the work of the workers.
 */
#include "node/follow/testprobed.h"

/* Attaches probes and posts the task that detaches them. */
static void detach(void)
{
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_ptr_equal(memory->attached, attached_of(PROBES_MEMORY));
	follow_probed_detach(memory);
	assert_null(memory->attached);
	assert_int_equal(posted.n, 1);
}

static uint64_t n_told_stuck(void)
{
	return counter_get(counter(PROBES_COUNTER, "result", "stuck"));
}

/*
 * Runs a task and calls the on_stuck function, as if the task blocked the thread of the worker
 * before it ends.
 */
static struct task *is_stuck_in(struct task *t)
{
	uint64_t before = n_told_stuck();

	t->run(t);
	follow_probed_stuck(node_work.probing, &t->job, follow);
	assert_int_equal(n_told_stuck(), before + 1);
	assert_true(memory->refused);
	assert_told("file system");
	return t;
}

static struct task *gets_stuck(void)
{
	return is_stuck_in(posted_take());
}

static void comes_back(struct task *t)
{
	posted_end(t);
}

static void what_comes_back_is_told_no_more(void **state)
{
	struct task *t;

	(void)state;
	detach();
	t = gets_stuck();
	assert_int_equal(follow->stuck.n, 1);
	comes_back(t);
	assert_false(memory->refused);
	assert_told(KNOWN);
	assert_int_equal(probes.n_detached, 1);
}

/*
 * Another job for the process is held while the first one is blocked. When the first job returns,
 * it leaves the problem of the later one.
 */
static void who_comes_late_leaves_what_was_refused_since(void **state)
{
	struct task *t;

	(void)state;
	detach();
	t = gets_stuck();
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_told("blocks a thread");
	comes_back(t);
	assert_true(memory->refused);
	assert_told("blocks a thread");
}

/*
 * The later job is blocked, too, and still is when the first one returns. Both detach: probes are
 * always detached.
 */
static void of_two_that_are_stuck_the_later_is_told(void **state)
{
	struct task *first, *later;

	(void)state;
	detach();
	first = posted_take();
	detach();
	first = is_stuck_in(first);
	later = gets_stuck();
	assert_int_equal(follow->stuck.n, 2);
	comes_back(first);
	assert_true(memory->refused);
	assert_told("file system");
	comes_back(later);
	assert_false(memory->refused);
	assert_told(KNOWN);
}

/* ---- a namespace blocks one thread ---- */

static uint64_t ns_of_process(void)
{
	return follow_charged(tracked).ns;
}

/* The namespace blocks a thread, so no other job for it begins. Others are not held. */
static void a_namespace_blocks_one_thread(void **state)
{
	struct task *t;

	(void)state;
	detach();
	t = gets_stuck();
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_int_equal(probes.n_attached, 1); /* by detach() */
	assert_null(memory->attached);
	assert_told("a process of its namespace blocks a thread of the agent");
	assert_true(memory->next_ns > now_mono_ns());
	comes_back(t);
	follow->stuck.blocked[3] = ns_of_process() ^ 2; /* another namespace blocks a thread */
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run_all();
	assert_ptr_equal(memory->attached, attached_of(PROBES_MEMORY));
	assert_told(KNOWN);
	follow->stuck.blocked[3] = 0;
}

/* The probes that a process has stay while their change is held. */
static void what_is_attached_stays_while_its_change_waits(void **state)
{
	(void)state;
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	follow->stuck.blocked[3] = ns_of_process();
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_ptr_equal(memory->attached, attached_of(PROBES_MEMORY));
	assert_int_equal(probes.n_attached, 1);
	assert_int_equal(probes.n_detached, 0);
	follow->stuck.blocked[3] = 0;
}

static void another_program_is_not_told_of_the_one_before(void **state)
{
	struct task *t;

	(void)state;
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	t = gets_stuck();
	tracked->exec_id = 6;
	/* as for a program whose places are not known yet */
	memory->sites = alloc_sites_free(memory->sites);
	comes_back(t);
	assert_false(memory->refused);
	assert_null(memory->attached);
	assert_int_equal(posted.n, 1); /* the task detaches the probes */
	posted_run();
	assert_int_equal(probes.n_detached, 1);
}

/*
 * With classic uprobes, attaching to a hundred processes takes longer than the deadline of a job.
 */
static void who_gets_on_is_not_stuck(void **state)
{
	struct task *t;

	(void)state;
	detach();
	for (unsigned i = 1; i <= 3; i++) {
		uint64_t before = n_told_stuck();

		probes.moves++;
		follow_probed_stuck(node_work.probing, &posted.items[0]->job, follow);
		assert_int_equal(workers.n_given_time, i);
		assert_int_equal(n_told_stuck(), before);
		assert_false(memory->refused);
	}
	t = gets_stuck();
	assert_int_equal(workers.n_given_time, 3);
	comes_back(t);
}

/* No thread can be started to replace the blocked one. The agent tries again. */
static void without_a_thread_it_is_tried_again(void **state)
{
	struct task *t;

	(void)state;
	detach();
	workers.replace_result = -EAGAIN;
	t = gets_stuck();
	assert_int_equal(follow->stuck.n, 0);
	assert_false(work_left_behind_again(&node_work, &follow->stuck, &node_work.probing));
	workers.replace_result = 0;
	assert_true(work_left_behind_again(&node_work, &follow->stuck, &node_work.probing));
	assert_false(work_left_behind_again(&node_work, &follow->stuck, &node_work.probing));
	assert_int_equal(workers.n_replaced, 1);
	assert_int_equal(follow->stuck.n, 1);
	comes_back(t);
}

/* ---- refused ---- */

/* Attaches probes with this result. Returns after how many seconds the next try may come. */
static uint64_t seconds_until_next(int result, const char *counted_as)
{
	uint64_t before = n_ended(counted_as);

	probes.result = result;
	follow_probed_attach(memory, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_int_equal(n_ended(counted_as), before + 1);
	assert_int_equal(memory->refused, result < 0);
	return result < 0 ? (memory->next_ns - now_mono_ns()) / NSEC_PER_SEC : 0;
}

/*
 * A node lacks memory for a moment, so no process can be probed. The agent does not try again for
 * all of them each second. It reports for each process why its memory is not seen.
 */
static void what_may_pass_is_tried_less_and_less_often_and_told(void **state)
{
	static const struct {
		int result;
		const char *text;
		unsigned told_from;
	} rows[] = {{-ENOMEM, "Cannot allocate memory", 0},
		    {-EMFILE, "Too many open files", 0},
		    /* the programs are about to be loaded */
		    {-EAGAIN, "temporarily unavailable", 3}};
	static const uint64_t waits_s[] = {1, 2, 4, 8, 16, 32, 60, 60};

	(void)state;
	clock_stands();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		follow_probed_set_problem(memory, "", KNOWN);
		for (size_t k = 0; k < ARRAY_SIZE(waits_s); k++) {
			assert_int_equal(seconds_until_next(rows[i].result, "later"), waits_s[k]);
			assert_told(k >= rows[i].told_from ? rows[i].text : KNOWN);
		}
		assert_int_equal(seconds_until_next(0, "ok"), 0);
		assert_string_equal(memory->problem, KNOWN);
		follow_probed_detach(memory);
		posted_run();
	}
}

static void what_stays_is_tried_again_after_a_minute(void **state)
{
	(void)state;
	clock_stands();
	assert_int_equal(seconds_until_next(-EPERM, "failed"), 60);
	assert_told("not permitted");
	assert_int_equal(seconds_until_next(-ENOMEM, "later"), 1);
	assert_told("Cannot allocate memory");
	assert_int_equal(seconds_until_next(-EOPNOTSUPP, "failed"), 60);
	assert_told("not supported");
}

int main(void)
{
#define TEST(f)	  cmocka_unit_test_setup_teardown(f, begin_with_sites, end_with_sites)
#define STANDS(f) cmocka_unit_test_setup_teardown(f, begin_with_sites, clock_goes_on)
	const struct CMUnitTest tests[] = {
		TEST(what_comes_back_is_told_no_more),
		TEST(who_comes_late_leaves_what_was_refused_since),
		TEST(of_two_that_are_stuck_the_later_is_told),
		TEST(a_namespace_blocks_one_thread),
		TEST(what_is_attached_stays_while_its_change_waits),
		TEST(another_program_is_not_told_of_the_one_before),
		TEST(who_gets_on_is_not_stuck),
		TEST(without_a_thread_it_is_tried_again),
		STANDS(what_may_pass_is_tried_less_and_less_often_and_told),
		STANDS(what_stays_is_tried_again_after_a_minute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
