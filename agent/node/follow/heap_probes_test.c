/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes that are being attached: what the agent reports of jobs that do not come back, or come
 * late. This thread stands in for the workers.
 */
#include "node/follow/testheap.h"

#include <pthread.h>

#include "lib/base/testclock.h"

#define KNOWN "half of it is not seen"

static const struct follow_calls calls = {.probes = &counted_probes};
static struct mapping library = {.inode = 1, .fd = -1};
static struct mappings maps = {.exec_id = 5, .items = &library, .n = 1, .refs = 1};

/* Its places are known, and there is one. */
static int set_up(void **state)
{
	struct allocs *a;

	(void)state;
	heap_begin(&calls, EVENT_MEM_ALLOC);
	tracked->exec_id = 5;
	a = &tracked->allocs;
	a->m = proc_mappings_ref(&maps);
	a->sites = xcalloc(1, sizeof(*a->sites));
	a->sites->items = xcalloc(1, sizeof(*a->sites->items));
	a->sites->n = 1;
	snprintf(a->sites->problem, sizeof(a->sites->problem), KNOWN);
	a->looked_mask = 1u << EVENT_MEM_ALLOC;
	workers.n_given_time = workers.n_replaced = 0;
	workers.replace_result = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	posted_run_all();
	assert_int_equal(follow->n_attaching, 0);
	assert_int_equal(follow->stuck.n, 0);
	assert_null(follow->stuck.waits);
	heap_end();
	assert_int_equal(maps.refs, 1);
	return 0;
}

static void assert_told(const char *part)
{
	assert_non_null(tracked->allocs.problem);
	if (!strstr(tracked->allocs.problem, part))
		fail_msg("%s", tracked->allocs.problem);
}

/* Its probes are attached; the worker's next task detaches them. */
static void detach(void)
{
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_ptr_equal(tracked->allocs.attached, &attached);
	follow_heap_detach(tracked);
	assert_null(tracked->allocs.attached);
	assert_int_equal(posted.n, 1);
}

static uint64_t n_told_stuck(void)
{
	return counter_get(counter(HEAP_ATTACH_COUNTER, "result", "stuck"));
}

/* The worker's thread is in this job, and does not return. */
static struct task *gets_stuck(void)
{
	struct task *t = posted_take();
	uint64_t before = n_told_stuck();

	follow_heap_stuck(node_work.probing, &t->job, follow);
	assert_int_equal(n_told_stuck(), before + 1);
	assert_true(tracked->allocs.refused);
	assert_told("file system");
	return t;
}

static void comes_back(struct task *t)
{
	t->run(t);
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
	assert_false(tracked->allocs.refused);
	assert_told(KNOWN);
	assert_int_equal(probes.n_detached, 1);
}

/* Another worker has done its work meanwhile: the late job ends only its own probes. */
static void who_comes_late_leaves_what_was_refused_since(void **state)
{
	struct task *t;

	(void)state;
	detach();
	t = gets_stuck();
	probes.result = -EPERM;
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_told("the agent cannot attach its probes");
	comes_back(t);
	assert_true(tracked->allocs.refused);
	assert_told("the agent cannot attach its probes");
}

/* The later job is blocked, too, and still is when the first one comes back. */
static void of_two_that_are_stuck_the_later_is_told(void **state)
{
	struct task *first, *later;

	(void)state;
	detach();
	first = gets_stuck();
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	later = gets_stuck();
	assert_int_equal(follow->stuck.n, 2);
	comes_back(first);
	assert_true(tracked->allocs.refused);
	assert_told("file system");
	comes_back(later);
	assert_false(tracked->allocs.refused);
	assert_told(KNOWN);
	assert_ptr_equal(tracked->allocs.attached, &attached);
}

static void another_program_is_not_told_of_the_one_before(void **state)
{
	struct task *t;

	(void)state;
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	t = gets_stuck();
	tracked->exec_id = 6;
	tracked->allocs.sites = alloc_sites_free(tracked->allocs.sites); /* not known yet */
	comes_back(t);
	assert_false(tracked->allocs.refused);
	assert_null(tracked->allocs.attached);
	assert_int_equal(posted.n, 1); /* it is detached */
	posted_run();
	assert_int_equal(probes.n_detached, 1);
}

/* With classic uprobes a hundred processes take longer than a worker's deadline. */
static void who_gets_on_is_not_stuck(void **state)
{
	struct task *t;

	(void)state;
	detach();
	for (unsigned i = 1; i <= 3; i++) {
		uint64_t before = n_told_stuck();

		probes.moves++;
		follow_heap_stuck(node_work.probing, &posted.items[0]->job, follow);
		assert_int_equal(workers.n_given_time, i);
		assert_int_equal(n_told_stuck(), before);
		assert_false(tracked->allocs.refused);
	}
	t = gets_stuck();
	assert_int_equal(workers.n_given_time, 3);
	comes_back(t);
}

/* No thread can be started to replace the blocked one: it is tried again. */
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

static uint64_t n_ended(const char *result)
{
	return counter_get(counter(HEAP_ATTACH_COUNTER, "result", result));
}

/* Attaches, and returns after how many seconds the next attempt may come. */
static uint64_t seconds_until_next(int result, const char *counted_as)
{
	uint64_t before = n_ended(counted_as);

	probes.result = result;
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_int_equal(n_ended(counted_as), before + 1);
	assert_int_equal(tracked->allocs.refused, result < 0);
	return result < 0 ? (tracked->allocs.next_ns - now_mono_ns()) / NSEC_PER_SEC : 0;
}

static void clock_stands(void)
{
	test_clock.stands_ns = 1000 * NSEC_PER_SEC;
}

static int clock_goes_on(void **state)
{
	test_clock.stands_ns = 0;
	return tear_down(state);
}

/*
 * A node that lacks memory for a moment: its processes do not all try each second, and each reports
 * why it is not seen.
 */
static void what_may_pass_is_tried_less_and_less_often_and_told(void **state)
{
	static const struct {
		int result;
		const char *text;
		unsigned told_from;
	} rows[] = {{-ENOMEM, "Cannot allocate memory", 0},
		    {-EMFILE, "Too many open files", 0},
		    {-EAGAIN, "temporarily unavailable", 3}}; /* about to be loaded */
	static const uint64_t waits_s[] = {1, 2, 4, 8, 16, 32, 60, 60};

	(void)state;
	clock_stands();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		follow_heap_set_problem(tracked, "", KNOWN);
		for (size_t k = 0; k < ARRAY_SIZE(waits_s); k++) {
			assert_int_equal(seconds_until_next(rows[i].result, "later"), waits_s[k]);
			assert_told(k >= rows[i].told_from ? rows[i].text : KNOWN);
		}
		assert_int_equal(seconds_until_next(0, "ok"), 0);
		assert_string_equal(tracked->allocs.problem, KNOWN);
		follow_heap_detach(tracked);
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

/* ---- the thread that it is probed by ---- */

/* The timer looks at the attached probes each time. */
static void attach_and_look_at(void)
{
	clock_stands();
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
}

static void loses_its_thread(void)
{
	probes.lost = true;
	timer_fire();
	probes.lost = false;
	posted_run_all();
}

/* It was detached, and its time comes. */
static void attach_anew(void)
{
	assert_null(tracked->allocs.attached);
	test_clock.stands_ns = tracked->allocs.next_ns;
	timer_fire();
	posted_run();
	assert_ptr_equal(tracked->allocs.attached, &attached);
}

static void who_is_probed_by_a_thread_that_ended_is_probed_anew(void **state)
{
	uint64_t before = n_ended("thread_ended");

	(void)state;
	attach_and_look_at();
	timer_fire();
	assert_int_equal(posted.n, 0);
	assert_int_equal(probes.n_attached, 1);
	probes.lost = true;
	timer_fire();
	probes.lost = false;
	assert_int_equal(posted.n, 1); /* at once */
	assert_int_equal(n_ended("thread_ended"), before + 1);
	assert_null(tracked->allocs.problem);
	posted_run();
	assert_int_equal(probes.n_attached, 2);
	assert_ptr_equal(tracked->allocs.attached, &attached);
	/* The next thread ended soon after that: the probes missed something in between. */
	loses_its_thread();
	assert_told("take its place");
	assert_int_equal(n_ended("thread_ended"), before + 2);
	attach_anew();
	assert_told("take its place");
	test_clock.stands_ns += 62 * NSEC_PER_SEC;
	timer_fire();
	assert_told(KNOWN);
}

static unsigned asked_in(unsigned n_watches)
{
	probes.n_asked_for_thread = 0;
	while (n_watches--)
		timer_fire();
	return probes.n_asked_for_thread;
}

/* The loop looks at all processes a hundred times a second. */
static void a_thread_is_asked_for_when_its_end_matters(void **state)
{
	(void)state;
	probes.outlives = true;
	attach_and_look_at();
	assert_int_equal(asked_in(3), 1);
	probes.moves++; /* as if probes of another process had been detached */
	assert_int_equal(asked_in(3), 1);
	test_clock.stands_ns += NSEC_PER_SEC;
	assert_int_equal(asked_in(3), 1);
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_int_equal(asked_in(3), 1);
	probes.outlives = false;
	assert_int_equal(asked_in(3), 3);
}

/* Each time it stays longer without probes, so that other processes get theirs. */
static void threads_that_end_again_and_again_are_followed_less_and_less_often(void **state)
{
	static const unsigned waits_s[] = {1, 2, 4, 8, 16, 32, 60, 60};

	(void)state;
	attach_and_look_at();
	loses_its_thread();
	for (size_t i = 0; i < ARRAY_SIZE(waits_s); i++) {
		loses_its_thread();
		assert_null(tracked->allocs.attached);
		assert_int_equal(probes.n_detached, i + 1);
		assert_int_equal(tracked->allocs.next_ns - test_clock.stands_ns,
				 waits_s[i] * NSEC_PER_SEC);
		assert_true(tracked->allocs.refused); /* until then */
		assert_told("take its place");
		attach_anew();
		assert_false(tracked->allocs.refused);
		assert_told("take its place");
	}
	test_clock.stands_ns += 61 * NSEC_PER_SEC;
	timer_fire();
	assert_told(KNOWN);
	loses_its_thread(); /* the first one again */
	assert_non_null(tracked->allocs.attached);
	assert_told(KNOWN);
}

static void the_end_of_a_process_is_no_lost_thread(void **state)
{
	uint64_t before = n_ended("thread_ended");

	(void)state;
	HASH_DEL(follow->tracked, tracked);
	tracked->id.tgid = probed.tgid = 1u << 30; /* of no process */
	HASH_ADD(hh, follow->tracked, id, sizeof(tracked->id), tracked);
	attach_and_look_at();
	loses_its_thread();
	assert_int_equal(probes.n_attached, 1);
	assert_int_equal(n_ended("thread_ended"), before);
}

/*
 * The sites are in use while the heap profile of a Go process is read. When they are back, what is
 * not seen is reported.
 */
static void sites_may_be_lent_while_it_is_looked_at(void **state)
{
	struct alloc_sites *sites = tracked->allocs.sites;

	(void)state;
	attach_and_look_at();
	loses_its_thread();
	loses_its_thread();
	attach_anew();
	assert_told("take its place");
	tracked->allocs.sites = NULL;
	test_clock.stands_ns += 62 * NSEC_PER_SEC;
	timer_fire();
	assert_told("take its place");
	tracked->allocs.sites = sites;
	timer_fire();
	assert_told(KNOWN);
}

/* The kernel has refused the probes: the next attempt waits for its time. */
static void who_cannot_be_probed_anew_waits(void **state)
{
	(void)state;
	attach_and_look_at();
	probes.result = -EPERM;
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_ptr_equal(tracked->allocs.attached, &attached);
	assert_told("not permitted");
	probes.lost = true;
	timer_fire();
	assert_int_equal(posted.n, 0);
	assert_told("not permitted");
}

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(void)
{
#define TEST(f)	  cmocka_unit_test_setup_teardown(f, set_up, tear_down)
#define STANDS(f) cmocka_unit_test_setup_teardown(f, set_up, clock_goes_on)
	const struct CMUnitTest tests[] = {
		TEST(what_comes_back_is_told_no_more),
		TEST(who_comes_late_leaves_what_was_refused_since),
		TEST(of_two_that_are_stuck_the_later_is_told),
		TEST(another_program_is_not_told_of_the_one_before),
		TEST(who_gets_on_is_not_stuck),
		TEST(without_a_thread_it_is_tried_again),
		STANDS(what_may_pass_is_tried_less_and_less_often_and_told),
		STANDS(what_stays_is_tried_again_after_a_minute),
		STANDS(who_is_probed_by_a_thread_that_ended_is_probed_anew),
		STANDS(a_thread_is_asked_for_when_its_end_matters),
		STANDS(threads_that_end_again_and_again_are_followed_less_and_less_often),
		STANDS(the_end_of_a_process_is_no_lost_thread),
		STANDS(sites_may_be_lent_while_it_is_looked_at),
		STANDS(who_cannot_be_probed_anew_waits),
	};
	pthread_t another; /* one thread's end is not the end of this process */

	if (pthread_create(&another, NULL, wait_for_ever, NULL))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
