/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes that are being attached: what the agent reports of jobs that do not come back, or come
 * late. This thread stands in for the workers.
 */
#include "node/follow/internal.h"
#include "node/limit/limit.h"
#include "node/learn/sites.h"
#include "node/work/testworkers.h"
#include "node/limit/thread_clocks.h"

#include "lib/base/testclock.h"

#define KNOWN "half of it is not seen"

/* ---- all around it ---- */

static struct tracked *tracked;
static uint64_t n_moves;
static unsigned n_detached, n_advanced;
static int attach_result;
static char attached; /* stands for a struct attached */

struct tracked *follow_find(const struct follow *f, struct process_id id)
{
	(void)f;
	return tracked && id.tgid == tracked->id.tgid ? tracked : NULL;
}

struct probes *kernel_probes(const struct kernel *k)
{
	(void)k;
	return NULL;
}

uint64_t probes_moves(struct probes *p)
{
	(void)p;
	return n_moves;
}

int probes_attach(struct probes *p, struct process_id id, const struct pf_mem_proc *proc,
		  const struct probe_file *files, size_t n, struct attached **ret,
		  struct probes_refused *ret_refused)
{
	(void)p;
	(void)proc;
	(void)files;
	(void)n;
	(void)ret_refused;
	assert_int_equal(id.tgid, 8);
	if (attach_result == 0)
		*ret = (struct attached *)&attached;
	return attach_result;
}

int probes_attach_change(struct probes *p, struct attached *a, const struct pf_mem_proc *proc,
			 const struct probe_file *files, size_t n,
			 struct probes_refused *ret_refused)
{
	(void)p;
	(void)a;
	(void)proc;
	(void)files;
	(void)n;
	(void)ret_refused;
	return attach_result;
}

void probes_detach_all(struct probes *p, struct attached **items, size_t n)
{
	(void)p;
	for (size_t i = 0; i < n; i++)
		assert_ptr_equal(items[i], &attached);
	n_detached += (unsigned)n;
}

struct attached *probes_detach(struct probes *p, struct attached *a)
{
	probes_detach_all(p, &a, 1);
	return NULL;
}

void probes_attached_wait(const struct attached *a, uint64_t max_ns, uint64_t max_hits,
			  uint64_t *ret_ns, uint64_t *ret_hits)
{
	(void)a;
	(void)max_hits;
	*ret_ns = max_ns;
	*ret_hits = 0;
}

static bool lost, outlives;
static unsigned n_asked;

static bool process_ended;

bool proc_has_ended(uint32_t tgid)
{
	assert_int_equal(tgid, 8);
	return process_ended;
}

bool probes_attached_lost(const struct attached *a)
{
	assert_ptr_equal(a, &attached);
	n_asked++;
	return lost;
}

bool probes_attached_outlives(const struct attached *a)
{
	assert_ptr_equal(a, &attached);
	return outlives;
}

uint64_t probes_attached_hits(const struct attached *a)
{
	(void)a;
	return 0;
}

void probes_leave(struct attached *a)
{
	(void)a;
}

bool limit_stalled(struct limit *l, uint64_t cgroup_id, uint64_t hits, uint64_t elapsed_ns,
		   double *stall_ns)
{
	(void)l;
	(void)cgroup_id;
	(void)hits;
	(void)elapsed_ns;
	(void)stall_ns;
	return false;
}

void limit_spent(struct limit *l, uint64_t cgroup_id, unsigned event_mask,
		 const struct limit_spent *x)
{
	(void)l;
	(void)cgroup_id;
	(void)event_mask;
	(void)x;
}

void learn_site_files(const struct alloc_sites *s, const struct mappings *m, unsigned event_mask,
		      struct site_files *ret)
{
	(void)s;
	(void)m;
	*ret = (struct site_files){.process = {.exec_id = 5, .event_mask = event_mask}};
}

void learn_site_files_done(struct site_files *f)
{
	(void)f;
}

struct mappings *proc_mappings_ref(struct mappings *m)
{
	return m;
}

struct mappings *proc_mappings_unref(struct mappings *m)
{
	(void)m;
	return NULL;
}

void follow_heap_advance(struct tracked *t)
{
	(void)t;
	n_advanced++;
}

void follow_heap_set_problem(struct tracked *t, const char *what, const char *why)
{
	free(TAKE_PTR(t->allocs.problem));
	if (*why)
		t->allocs.problem = xasprintf("%s%s", what, why);
}

void follow_heap_set_not_seen(struct tracked *t, const struct alloc_sites *s, unsigned event_mask)
{
	(void)event_mask;
	assert_non_null(s);
	follow_heap_set_problem(t, "", KNOWN);
}

/* ---- the tests ---- */

static struct work node_work;
static struct follow follow = {.config = {.work = &node_work}};

static int set_up(void **state)
{
	(void)state;
	testwork(&node_work);
	tracked = xcalloc(1, sizeof(*tracked));
	tracked->follow = &follow;
	tracked->id = (struct process_id){1000, 8};
	tracked->exec_id = 5;
	tracked->allocs.sites = (struct alloc_sites *)&attached; /* any */
	attach_result = 0;
	n_detached = n_advanced = 0;
	workers.n_given_time = workers.n_replaced = 0;
	workers.replace_result = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	posted_run_all();
	assert_int_equal(follow.n_attaching, 0);
	assert_int_equal(follow.stuck.n, 0);
	assert_null(follow.stuck.waits);
	if (tracked && tracked->allocs.attached) {
		follow_heap_detach(tracked);
		posted_run();
	}
	assert_int_equal(follow.n_attached, 0);
	free(tracked->allocs.problem);
	free(tracked);
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

	follow_heap_stuck(node_work.probing, &t->job, &follow);
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
	assert_int_equal(follow.stuck.n, 1);
	comes_back(t);
	assert_false(tracked->allocs.refused);
	assert_told(KNOWN);
	assert_int_equal(n_detached, 1);
}

/* Another worker has done its work meanwhile: the late job ends only its own probes. */
static void who_comes_late_leaves_what_was_refused_since(void **state)
{
	struct task *t;

	(void)state;
	detach();
	t = gets_stuck();
	attach_result = -EPERM;
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
	assert_int_equal(follow.stuck.n, 2);
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
	comes_back(t);
	assert_false(tracked->allocs.refused);
	assert_null(tracked->allocs.attached);
	assert_int_equal(posted.n, 1); /* it is detached */
	posted_run();
	assert_int_equal(n_detached, 1);
}

/* With classic uprobes a hundred processes take longer than a worker's deadline. */
static void who_gets_on_is_not_stuck(void **state)
{
	struct task *t;

	(void)state;
	detach();
	for (unsigned i = 1; i <= 3; i++) {
		uint64_t before = n_told_stuck();

		n_moves++;
		follow_heap_stuck(node_work.probing, &posted.items[0]->job, &follow);
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
	assert_int_equal(follow.stuck.n, 0);
	assert_false(work_left_behind_again(&node_work, &follow.stuck, &node_work.probing));
	workers.replace_result = 0;
	assert_true(work_left_behind_again(&node_work, &follow.stuck, &node_work.probing));
	assert_false(work_left_behind_again(&node_work, &follow.stuck, &node_work.probing));
	assert_int_equal(workers.n_replaced, 1);
	assert_int_equal(follow.stuck.n, 1);
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

	attach_result = result;
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
	HASH_ADD(hh, follow.tracked, id, sizeof(tracked->id), tracked);
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
}

static int look_no_more(void **state)
{
	HASH_CLEAR(hh, follow.tracked);
	lost = process_ended = outlives = false;
	return clock_goes_on(state);
}

static void loses_its_thread(void)
{
	lost = true;
	timer_fire();
	lost = false;
	posted_run_all();
}

/* Does what follow_heap_advance() does when it is time. */
static void attach_anew(void)
{
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_ptr_equal(tracked->allocs.attached, &attached);
}

static void who_is_probed_by_a_thread_that_ended_is_probed_anew(void **state)
{
	uint64_t before = n_ended("thread_ended");

	(void)state;
	attach_and_look_at();
	n_advanced = 0;
	timer_fire();
	assert_int_equal(n_advanced, 0);
	assert_false(tracked->allocs.stale);
	lost = true;
	timer_fire();
	assert_int_equal(n_advanced, 1);
	assert_true(tracked->allocs.stale);
	assert_int_equal(n_ended("thread_ended"), before + 1);
	assert_null(tracked->allocs.problem);
	assert_int_equal(tracked->allocs.next_ns, 0); /* at once */
	attach_anew();
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
	n_asked = 0;
	while (n_watches--)
		timer_fire();
	return n_asked;
}

/* The loop looks at all processes a hundred times a second. */
static void a_thread_is_asked_for_when_its_end_matters(void **state)
{
	(void)state;
	outlives = true;
	attach_and_look_at();
	assert_int_equal(asked_in(3), 1);
	n_moves++; /* as if probes of another process had been detached */
	assert_int_equal(asked_in(3), 1);
	test_clock.stands_ns += NSEC_PER_SEC;
	assert_int_equal(asked_in(3), 1);
	attach_anew();
	assert_int_equal(asked_in(3), 1);
	outlives = false;
	assert_int_equal(asked_in(3), 3);
}

/* Each time it stays longer without probes, so that other processes get theirs. */
static void threads_that_end_again_and_again_are_followed_less_and_less_often(void **state)
{
	static const unsigned waits_s[] = {1, 2, 4, 8, 16, 32, 60, 60};

	(void)state;
	attach_and_look_at();
	loses_its_thread();
	attach_anew();
	for (size_t i = 0; i < ARRAY_SIZE(waits_s); i++) {
		loses_its_thread();
		assert_null(tracked->allocs.attached);
		assert_int_equal(n_detached, i + 1);
		assert_int_equal(tracked->allocs.next_ns - test_clock.stands_ns,
				 waits_s[i] * NSEC_PER_SEC);
		assert_true(tracked->allocs.refused); /* until then */
		assert_told("take its place");
		test_clock.stands_ns = tracked->allocs.next_ns;
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
	attach_and_look_at();
	n_advanced = 0;
	process_ended = true;
	loses_its_thread();
	assert_int_equal(n_advanced, 0);
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
	for (int i = 0; i < 2; i++) {
		loses_its_thread();
		attach_anew();
	}
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
	attach_result = -EPERM;
	follow_heap_attach(tracked, 1u << EVENT_MEM_ALLOC, NULL);
	posted_run();
	assert_ptr_equal(tracked->allocs.attached, &attached);
	assert_told("not permitted");
	n_advanced = 0;
	lost = true;
	timer_fire();
	assert_int_equal(n_advanced, 0);
	assert_told("not permitted");
}

int main(void)
{
#define TEST(f)	  cmocka_unit_test_setup_teardown(f, set_up, tear_down)
#define STANDS(f) cmocka_unit_test_setup_teardown(f, set_up, clock_goes_on)
#define LOOKS(f)  cmocka_unit_test_setup_teardown(f, set_up, look_no_more)
	const struct CMUnitTest tests[] = {
		TEST(what_comes_back_is_told_no_more),
		TEST(who_comes_late_leaves_what_was_refused_since),
		TEST(of_two_that_are_stuck_the_later_is_told),
		TEST(another_program_is_not_told_of_the_one_before),
		TEST(who_gets_on_is_not_stuck),
		TEST(without_a_thread_it_is_tried_again),
		STANDS(what_may_pass_is_tried_less_and_less_often_and_told),
		STANDS(what_stays_is_tried_again_after_a_minute),
		LOOKS(who_is_probed_by_a_thread_that_ended_is_probed_anew),
		LOOKS(a_thread_is_asked_for_when_its_end_matters),
		LOOKS(threads_that_end_again_and_again_are_followed_less_and_less_often),
		LOOKS(the_end_of_a_process_is_no_lost_thread),
		LOOKS(sites_may_be_lent_while_it_is_looked_at),
		LOOKS(who_cannot_be_probed_anew_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
