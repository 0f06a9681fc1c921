/* SPDX-License-Identifier: Apache-2.0 */
/* A namespace that blocks the files worker keeps one thread of it. The test uses real workers. */
#include "lib/base/testabort.h"
#include "node/report/testreport.h"
#include "node/work/work.h"

#include <unistd.h>

#define POD_1	    "401b6bf6-91e0-4a28-870a-232376283f12"
#define POD_2	    "401b6bf6-91e0-4a28-870a-232376283f13"
#define C16(c)	    #c #c #c #c #c #c #c #c #c #c #c #c #c #c #c #c
#define CONTAINER_1 C16(1) C16(1) C16(1) C16(1)
#define CONTAINER_2 C16(2) C16(2) C16(2) C16(2)
#define POD_3	    "401b6bf6-91e0-4a28-870a-232376283f14"
#define CONTAINER_3 C16(3) C16(3) C16(3) C16(3)

#define MS	    NSEC_PER_MSEC
#define DEADLINE_NS (120 * NSEC_PER_SEC)

/*
 * ---- two pods of a namespace: one has a container with cgroups 10 to 12, the other cgroup 30; a
 * pod of another namespace has cgroup 20 ----
 */

static void add_pods(struct containers *c)
{
	struct plan *plan = testplan(POD_1, POD_1, CONTAINER_1, false);
	struct plan *other = testplan(POD_2, POD_2, CONTAINER_2, false);
	const char *path = "/kubepods/pod" POD_1 "/" CONTAINER_1;

	free(other->pods->ns);
	other->pods->ns = xstrdup("bank");
	testplan_take(plan, other);
	testplan_take(plan, testplan(POD_3, POD_3, CONTAINER_3, false));
	proc_containers_apply(c, plan, 1);
	proc_containers_cgroup(c, 10, 9, path, false, 1);
	for (uint64_t id = 11; id <= 12; id++) {
		_cleanup_free_ char *below = xasprintf("%s/%u", path, (unsigned)id);

		proc_containers_cgroup(c, id, 10, below, false, 1);
	}
	proc_containers_cgroup(c, 20, 9, "/kubepods/pod" POD_2 "/" CONTAINER_2, false, 1);
	proc_containers_cgroup(c, 30, 9, "/kubepods/pod" POD_3 "/" CONTAINER_3, false, 1);
}

/* ---- the tests ---- */

static struct loop *loop;
static struct work *work;

struct item {
	struct process_task process;
	unsigned k;
};
static struct {
	int pipe[2]; /* the job ends when a byte is written */
	bool ran, done, refused;
} items[16];

static void blocks(struct task *t)
{
	unsigned k = ((struct item *)t)->k;
	char c;

	items[k].ran = true;
	(void)!read(items[k].pipe[0], &c, 1);
}

static void runs(struct task *t)
{
	items[((struct item *)t)->k].ran = true;
}

static void ended(struct task *t)
{
	unsigned k = ((struct item *)t)->k;

	items[k].refused = t->refused;
	items[k].done = true;
}

static void post_of(unsigned k, uint64_t cgroup_id, void (*run)(struct task *), size_t n_bytes,
		    uint64_t limit_ns)
{
	struct item *x = xcalloc(1, sizeof(*x));

	assert_int_equal(pipe(items[k].pipe), 0);
	x->k = k;
	x->process.tgid = 1000 + k;
	x->process.cgroup_id = cgroup_id;
	x->process.task.run = run;
	x->process.task.done = ended;
	x->process.task.job.deadline_ns = limit_ns;
	work_post_process(work, &x->process, n_bytes);
}

static void post(unsigned k, uint64_t cgroup_id, void (*run)(struct task *))
{
	post_of(k, cgroup_id, run, 0, run == blocks ? 50 * MS : 0);
}

static void post_bytes(unsigned k, uint64_t cgroup_id, size_t n_bytes)
{
	post_of(k, cgroup_id, runs, n_bytes, 0);
}

static uint64_t deadline_ns;
static unsigned awaited;

static void look(void *timer)
{
	if (items[awaited].done || now_mono_ns() > deadline_ns)
		loop_stop(work->loop, 0);
	else
		timer_set(work->loop, timer, MS, look, timer);
}

static void wait_for(unsigned k)
{
	struct timer timer = {0};

	awaited = k;
	deadline_ns = now_mono_ns() + DEADLINE_NS;
	timer_set(work->loop, &timer, 0, look, &timer);
	assert_int_equal(loop_run(work->loop), 0);
	timer_cancel(&timer);
	assert_true(items[k].done);
}

static const char *told(void)
{
	return testreport_problem(work->report, REASON_PROCESS_UNREADABLE, NULL);
}

static void a_namespace_keeps_one_thread(void **state)
{
	(void)state;
	post(0, 10, blocks);
	/* posted before the agent knew that a pod of the namespace blocks the worker */
	for (unsigned k = 1; k < 10; k++)
		post(k, k % 2 ? 11 : 30, blocks);
	post(10, 20, runs);
	post(11, 0, runs);
	wait_for(11);
	assert_true(items[10].ran && !items[10].refused);
	assert_true(items[11].ran && !items[11].refused);
	for (unsigned k = 1; k < 10; k++) {
		wait_for(k); /* it waits longer: its namespace has used more of the worker's time */
		assert_true(items[k].refused && !items[k].ran);
	}
	assert_false(items[0].done);
	assert_string_equal(told(),
			    "container main of pod web-1: reading the files of a process takes "
			    "more than 5 s: the agent goes on without it, and reads no other "
			    "process of the namespace meanwhile (process 1000)");
	post(12, 12, blocks); /* posted after the agent knew it */
	wait_for(12);
	assert_true(items[12].refused && !items[12].ran);
	/* The job has returned: files of its namespace are read again. */
	assert_int_equal(write(items[0].pipe[1], "x", 1), 1);
	wait_for(0);
	work_tick(work);
	assert_string_equal(told(), ""); /* the pod is not reported any more */
	post(13, 11, runs);
	wait_for(13);
	assert_true(items[13].ran && !items[13].refused);
}

/* ---- turns ---- */

#define N_MANY	  10000
#define MANY_ITEM 8 /* the item of items[] of a task whose end is not looked at */
#define MB	  (1u << 20)
static _Atomic unsigned n_ran; /* how many of the tasks of MANY_ITEM have run */
static unsigned before_victim, n_ended;

static void one_of_many(struct task *t)
{
	(void)t;
	n_ran++;
}

static void victim(struct task *t)
{
	before_victim = n_ran;
	runs(t);
}

static void one_of_many_ended(struct task *t)
{
	n_ended++;
	ended(t);
}

static void post_one_of_many(uint64_t cgroup_id)
{
	struct item *x = xcalloc(1, sizeof(*x));

	x->k = MANY_ITEM;
	x->process.cgroup_id = cgroup_id;
	x->process.task.run = one_of_many;
	x->process.task.done = one_of_many_ended;
	work_post_process(work, &x->process, 0);
}

/* Begins with a task of the namespace of cgroup 10 that holds the worker until release_worker(). */
static void hold_worker(void)
{
	memset(items, 0, sizeof(items));
	n_ran = n_ended = 0;
	post_of(0, 10, blocks, 0, 0);
}

static void release_worker(void)
{
	assert_int_equal(write(items[0].pipe[1], "x", 1), 1);
}

/*
 * A namespace has ten thousand tasks, and another one then has one. It runs as soon as the tasks
 * that the worker already has are over.
 */
static void namespaces_take_turns(void **state)
{
	(void)state;
	hold_worker();
	for (unsigned i = 0; i < N_MANY; i++)
		post_one_of_many(11);
	post(1, 20, victim);
	post(2, 11, runs);
	release_worker();
	wait_for(1);
	assert_false(items[1].refused);
	assert_in_range(before_victim, 0, 1);
	wait_for(2); /* the last one of the namespace that has many */
	assert_int_equal(n_ended, N_MANY);
	assert_int_equal(n_ran, N_MANY);
}

static void a_namespace_has_half_of_the_room_that_others_leave(void **state)
{
	(void)state;
	hold_worker();
	post_one_of_many(10); /* the worker has it */
	post_bytes(1, 11, 12 * MB);
	post_bytes(2, 11, 12 * MB);
	assert_true(items[2].done && items[2].refused && !items[2].ran);
	post_bytes(3, 20, 9 * MB);
	assert_false(items[3].done);
	post_bytes(4, 20, 9 * MB);
	assert_true(items[4].done && items[4].refused && !items[4].ran);
	release_worker();
	wait_for(1);
	wait_for(3);
	assert_true(items[1].ran && items[3].ran);
}

static void is_on_os(void *arg)
{
	(void)arg;
	work_assert_on(work, os);
}

static void the_loop_is_no_worker(void **state)
{
	(void)state;
	assert_aborts(is_on_os, NULL, "work_runs_on(work, (work)->os)");
}

static int start(void **state)
{
	(void)state;
	if (loop_new(&loop) < 0)
		return -1;
	work = work_new(loop);
	work->report = testreport();
	if (proc_containers_new(&work->containers) < 0)
		return -1;
	add_pods(work->containers);
	return work_start_workers(work, 1 << 20);
}

static int stop(void **state)
{
	(void)state;
	work_close(work);
	worker_free(work->disk);
	report_free(work->report);
	proc_containers_free(work->containers);
	work_free(work);
	loop_free(loop);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_namespace_keeps_one_thread),
		cmocka_unit_test(namespaces_take_turns),
		cmocka_unit_test(a_namespace_has_half_of_the_room_that_others_leave),
		cmocka_unit_test(the_loop_is_no_worker),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
