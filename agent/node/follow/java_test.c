/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which JVMs are asked for their perf maps, and when. This thread does the work of the workers, and
 * the time is real.
 */
#include "node/follow/internal.h"
#include "node/kernel/testkernel.h"
#include "node/proc/testowner.h"
#include "node/runtime/testruntime.h"
#include "node/work/testworkers.h"

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the JVM ---- */

static struct {
	int result;
	char version[32];
	unsigned n;
} attach;
static struct process_id jvm; /* the JVM is this process */

static int ask_jvm(struct java_requests *q, struct process_id id, const char *version,
		   char ret_problem[RUNTIME_PROBLEM_BYTES])
{
	(void)q;
	assert_true(process_id_equal(id, jvm));
	snprintf(attach.version, sizeof(attach.version), "%s", version);
	attach.n++;
	if (attach.result < 0)
		snprintf(ret_problem, RUNTIME_PROBLEM_BYTES, "it refuses");
	return attach.result;
}

/* ---- the tests ---- */

static unsigned n_read; /* requests to read the JVM's mappings again */

static void read_mappings(void *arg, struct process_id id, uint32_t exec_id, uint64_t cgroup_id)
{
	(void)arg;
	assert_true(process_id_equal(id, jvm));
	assert_int_equal(exec_id, 5);
	assert_int_equal(cgroup_id, TEST_CGROUP);
	n_read++;
}

static const struct follow_ops ops = {.read_mappings = read_mappings};
static const struct follow_calls calls = {.ask_jvm = ask_jvm};
static struct work node_work;
static struct kernel *kernel;
static struct follow *follow;
static struct tracked *tracked;

/*
 * Sets the plan. selected: a target selects the container; java_attach: the agent may ask its JVMs.
 */
static void plan(bool selected, bool java_attach)
{
	struct plan *p = selected ? testowner_plan() : xcalloc(1, sizeof(*p));

	if (selected)
		p->pods->containers->java_attach = java_attach;
	testowner_apply(node_work.containers, p);
}

static int set_up(void **state)
{
	struct mappings m = {.exec_id = 5};

	(void)state;
	testwork(&node_work);
	kernel = testkernel_new(&node_work, NULL);
	follow = follow_new_with(&(struct follow_config){.work = &node_work,
							 .containers = node_work.containers,
							 .kernel = kernel,
							 .ops = &ops,
							 .java_refresh_ns = 600 * NSEC_PER_SEC},
				 &calls);
	plan(true, true);
	attach.n = n_read = 0;
	attach.result = 0;
	jvm.tgid = (uint64_t)getpid();
	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &jvm.start_boottime_ns), 0);
	/* this JVM has ended */
	runtime_java_map_want(follow->java_requests, (struct process_id){1, 7}, 1);
	runtime_java_map_want(follow->java_requests, jvm, 1);
	tracked = follow_track(follow, jvm);
	tracked->cgroup_id = TEST_CGROUP;
	tracked->exec_id = 5;
	tracked->runs.known = runtime_process_with(NULL, &m, PF_RUNTIME_JVM,
						   &(struct runtime_learnt){.version = "17.0.15"});
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(posted.n, 0);
	follow = follow_free(follow);
	kernel = testkernel_free(kernel);
	return 0;
}

static void tick(void)
{
	follow_java_tick(follow);
}

static void work(void)
{
	assert_int_equal(posted.n, 1);
	posted_run_all();
}

/* Whether the mappings of the JVM are read again after its answer. */
static bool is_looked_at_again(void)
{
	return n_read > 0;
}

static void pass(uint64_t ns)
{
	tracked->java.next_ns -= MIN(ns, tracked->java.next_ns);
}

static void an_answer_of_a_past_program_is_not_taken(void **state)
{
	(void)state;
	attach.result = -ENOTSUP;
	tick();
	follow_java_reset(tracked);
	tracked->exec_id = 6;
	work();
	assert_false(tracked->java.asking);
	assert_false(tracked->java.refused);
	assert_null(tracked->java.problem);
}

static void asked_once_an_interval(void **state)
{
	(void)state;
	tick();
	tick(); /* the first request is still open */
	work();
	assert_int_equal(attach.n, 1);
	assert_string_equal(attach.version, "17.0.15");
	assert_true(is_looked_at_again());
	assert_null(tracked->java.problem);
	/* names are missing again */
	pass(599 * NSEC_PER_SEC);
	tick();
	assert_int_equal(posted.n, 0);
	pass(NSEC_PER_SEC);
	tick();
	work();
	assert_int_equal(attach.n, 2);
}

static void not_asked_without_leave(void **state)
{
	(void)state;
	plan(true, false);
	tick();
	assert_int_equal(posted.n, 0);
	plan(false, false); /* the container's target was deleted */
	tick();
	assert_int_equal(posted.n, 0);
	plan(true, true);
	/* no name is missing in the perf map */
	runtime_java_map_give(follow->java_requests, jvm, NULL);
	tick();
	assert_int_equal(posted.n, 0);
}

static void refusal_is_told_and_final(void **state)
{
	(void)state;
	attach.result = -EPROTO;
	tick();
	work();
	assert_string_equal(tracked->java.problem,
			    "the JVM was asked for its perf map: it refuses");
	assert_false(is_looked_at_again());
	pass(UINT64_MAX);
	tick();
	assert_int_equal(posted.n, 0);
	/* another program in the same process */
	follow_java_reset(tracked);
	tick();
	work();
}

static void tried_again_a_few_times(void **state)
{
	(void)state;
	attach.result = -EAGAIN;
	for (int i = 0; i < 5; i++) {
		assert_null(tracked->java.problem);
		tick();
		work();
		tick();
		assert_int_equal(posted.n, 0); /* the JVM is not asked at once */
		pass(60 * NSEC_PER_SEC);
	}
	assert_non_null(tracked->java.problem);
	tick();
	assert_int_equal(posted.n, 0);
}

/* A JVM whose files do not answer is reported. When they answer, it is asked again. */
static void files_that_do_not_answer_hold_up_nobody_else(void **state)
{
	struct task *t;

	(void)state;
	tick();
	t = posted_take();
	t->run(t);
	workers.on_stuck(node_work.attach, &t->job, workers.arg);
	assert_int_equal(workers.n_replaced, 1);
	assert_string_equal(tracked->java.problem,
			    "the JVM was asked for its perf map: no answer in 60 s");
	posted_end(t);
	posted_run_all();
	assert_null(tracked->java.problem);
	assert_int_equal(node_work.asks_stuck.n, 0);
	pass(600 * NSEC_PER_SEC);
	tick();
	work();
	assert_int_equal(attach.n, 2);
}

/* The JVM's turn comes while another one of its namespace blocks a thread. */
static void a_namespace_blocks_one_thread(void **state)
{
	_Atomic uint64_t *blocked = &node_work.asks_stuck.blocked[1];

	(void)state;
	tick();
	*blocked = follow_charged(tracked).ns;
	work();
	assert_int_equal(attach.n, 0);
	assert_null(tracked->java.problem);
	tick();
	assert_int_equal(posted.n, 0);
	*blocked = 0;
	tick();
	work();
	assert_int_equal(attach.n, 1);
}

static void process_ends_meanwhile(void **state)
{
	(void)state;
	tick();
	follow_unloaded(follow);
	work();
	assert_int_equal(attach.n, 1);
	assert_int_equal(HASH_COUNT(follow->tracked), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(asked_once_an_interval),
		TEST(not_asked_without_leave),
		TEST(refusal_is_told_and_final),
		TEST(tried_again_a_few_times),
		TEST(process_ends_meanwhile),
		TEST(an_answer_of_a_past_program_is_not_taken),
		TEST(files_that_do_not_answer_hold_up_nobody_else),
		TEST(a_namespace_blocks_one_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
