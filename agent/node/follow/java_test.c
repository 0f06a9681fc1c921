/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which JVMs are asked for their perf maps, and when. Workers are this thread, and the time is
 * real.
 */
#include "node/follow/internal.h"
#include "node/proc/testowner.h"
#include "node/work/testworkers.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- all around it ---- */

static unsigned n_unnamed, n_looked_again;
static int n_requests_refs;
static struct {
	int result;
	char version[32];
	unsigned n;
} attach;
static struct tracked *tracked;
static struct runtime_learnt learnt = {.version = "17.0.15"};

struct java_requests *runtime_java_requests_ref(struct java_requests *q)
{
	n_requests_refs++;
	return q;
}

struct java_requests *runtime_java_requests_unref(struct java_requests *q)
{
	(void)q;
	n_requests_refs--;
	return NULL;
}

size_t runtime_java_all_unnamed(struct java_requests *q, struct process_id ret[JAVA_REQUESTS_MAX])
{
	(void)q;
	ret[0] = (struct process_id){1000, 7}; /* has ended */
	ret[1] = (struct process_id){1000, 8};
	return n_unnamed;
}

int runtime_java_attach(struct java_requests *q, struct process_id id, const char *version,
			char ret_problem[RUNTIME_PROBLEM_BYTES])
{
	(void)q;
	assert_int_equal(id.tgid, 8);
	assert_int_equal(id.start_boottime_ns, 1000);
	snprintf(attach.version, sizeof(attach.version), "%s", version);
	attach.n++;
	if (attach.result < 0)
		snprintf(ret_problem, RUNTIME_PROBLEM_BYTES, "it refuses");
	return attach.result;
}

struct tracked *follow_find(const struct follow *f, struct process_id id)
{
	(void)f;
	return id.tgid == 8 ? tracked : NULL;
}

void follow_process(struct follow *f, struct mappings *m, uint64_t cgroup_id)
{
	(void)f;
	assert_non_null(m);
	assert_int_equal(cgroup_id, 0); /* as told before */
	n_looked_again++;
}

int proc_mappings_read(struct process_id id, uint32_t exec_id, struct mappings **ret)
{
	static struct mappings m;

	assert_int_equal(id.tgid, 8);
	assert_int_equal(id.start_boottime_ns, 1000);
	assert_int_equal(exec_id, 5);
	*ret = &m;
	return 0;
}

struct mappings *proc_mappings_unref(struct mappings *m)
{
	(void)m;
	return NULL;
}

struct runtime_process *runtime_process_ref(struct runtime_process *p)
{
	return p;
}

struct runtime_process *runtime_process_unref(struct runtime_process *p)
{
	(void)p;
	return NULL;
}

size_t runtime_process_n(const struct runtime_process *p)
{
	return p ? 1 : 0;
}

struct runtime_view runtime_process_at(const struct runtime_process *p, size_t i)
{
	(void)p;
	(void)i;
	return (struct runtime_view){PF_RUNTIME_JVM, &learnt};
}

/* ---- the tests ---- */

static struct work node_work;
static struct follow follow = {
	.config = {.work = &node_work, .java_refresh_ns = 600 * NSEC_PER_SEC}};

/* Whether a target selects the container, and whether the agent may ask its JVMs. */
static void plan(bool selected, bool java_attach)
{
	struct plan *p = selected ? testowner_plan() : xcalloc(1, sizeof(*p));

	if (selected)
		p->pods->containers->java_attach = java_attach;
	testowner_apply(node_work.containers, p);
}

static int set_up(void **state)
{
	(void)state;
	testwork(&node_work);
	follow.config.containers = node_work.containers;
	plan(true, true);
	n_unnamed = 2;
	n_looked_again = attach.n = 0;
	attach.result = 0;
	tracked = xcalloc(1, sizeof(*tracked));
	tracked->follow = &follow;
	tracked->id = (struct process_id){1000, 8};
	tracked->cgroup_id = TEST_CGROUP;
	tracked->exec_id = 5;
	tracked->runs.known = (struct runtime_process *)&learnt;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(posted.n, 0);
	assert_int_equal(n_requests_refs, 0);
	follow_java_reset(tracked);
	free(tracked);
	return 0;
}

static void work(void)
{
	assert_int_equal(posted.n, 1);
	posted_run();
}

static void pass(uint64_t ns)
{
	tracked->java.next_ns -= MIN(ns, tracked->java.next_ns);
}

static void an_answer_of_a_past_program_is_not_taken(void **state)
{
	(void)state;
	attach.result = -ENOTSUP;
	follow_java_tick(&follow);
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
	follow_java_tick(&follow);
	follow_java_tick(&follow); /* still asking */
	work();
	assert_int_equal(attach.n, 1);
	assert_string_equal(attach.version, "17.0.15");
	assert_int_equal(n_looked_again, 1);
	assert_null(tracked->java.problem);
	/* names are missing again */
	pass(599 * NSEC_PER_SEC);
	follow_java_tick(&follow);
	assert_int_equal(posted.n, 0);
	pass(NSEC_PER_SEC);
	follow_java_tick(&follow);
	work();
	assert_int_equal(attach.n, 2);
}

static void not_asked_without_leave(void **state)
{
	(void)state;
	plan(true, false);
	follow_java_tick(&follow);
	assert_int_equal(posted.n, 0);
	plan(false, false); /* its target has gone */
	follow_java_tick(&follow);
	assert_int_equal(posted.n, 0);
	plan(true, true);
	n_unnamed = 1; /* nothing is missing in it */
	follow_java_tick(&follow);
	assert_int_equal(posted.n, 0);
}

static void refusal_is_told_and_final(void **state)
{
	(void)state;
	attach.result = -EPROTO;
	follow_java_tick(&follow);
	work();
	assert_string_equal(tracked->java.problem,
			    "the JVM was asked for its perf map: it refuses");
	assert_int_equal(n_looked_again, 0);
	pass(UINT64_MAX);
	follow_java_tick(&follow);
	assert_int_equal(posted.n, 0);
	/* another program in the same process */
	follow_java_reset(tracked);
	follow_java_tick(&follow);
	work();
}

static void tried_again_a_few_times(void **state)
{
	(void)state;
	attach.result = -EAGAIN;
	for (int i = 0; i < 5; i++) {
		assert_null(tracked->java.problem);
		follow_java_tick(&follow);
		work();
		follow_java_tick(&follow);
		assert_int_equal(posted.n, 0); /* not at once */
		pass(60 * NSEC_PER_SEC);
	}
	assert_non_null(tracked->java.problem);
	follow_java_tick(&follow);
	assert_int_equal(posted.n, 0);
}

/* A JVM whose files do not answer is reported, and is asked again once they do. */
static void files_that_do_not_answer_hold_up_nobody_else(void **state)
{
	(void)state;
	follow_java_tick(&follow);
	workers.on_stuck(node_work.attach, &posted.items[0]->job, workers.arg);
	assert_int_equal(workers.n_replaced, 1);
	assert_string_equal(tracked->java.problem,
			    "the JVM was asked for its perf map: no answer in 60 s");
	work();
	assert_null(tracked->java.problem);
	assert_int_equal(follow.asks_stuck.n, 0);
	pass(600 * NSEC_PER_SEC);
	follow_java_tick(&follow);
	work();
	assert_int_equal(attach.n, 2);
}

static void process_ends_meanwhile(void **state)
{
	struct tracked *t = tracked;

	(void)state;
	follow_java_tick(&follow);
	tracked = NULL;
	work();
	assert_int_equal(n_looked_again, 0);
	tracked = t;
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
