/* SPDX-License-Identifier: Apache-2.0 */
/* A pod that blocks the files worker keeps one of its threads, not all of them: in real workers. */
#include "node/work/work.h"

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MS	    NSEC_PER_MSEC
#define DEADLINE_NS (120 * NSEC_PER_SEC)

/* ---- all around it ---- */

static struct owner owners[2]; /* of pods 1 and 2: cgroups 10 to 19, 20 to 29 */

struct owner *proc_containers_owner(struct containers *p, uint64_t cgroup_id,
				    uint64_t *ret_until_ns)
{
	(void)p;
	*ret_until_ns = UINT64_MAX;
	return cgroup_id >= 10 && cgroup_id < 30 ? &owners[cgroup_id / 10 - 1] : NULL;
}

struct owner *proc_owner_unref(struct owner *o)
{
	(void)o;
	return NULL;
}

void plan_targets_of(const struct plan *plan, const char *container_id, const char *pod_uid,
		     void (*fn)(const char *uid, void *arg), void *arg)
{
	(void)plan;
	(void)container_id;
	fn(pod_uid, arg);
}

const struct plan *proc_containers_plan(const struct containers *p)
{
	(void)p;
	return NULL;
}

static char told[256];

void report_problem(struct report *r, const char *uid, enum reason reason, const char *text,
		    unsigned n)
{
	(void)r;
	(void)n;
	assert_int_equal(reason, REASON_PROCESS_UNREADABLE);
	snprintf(told, sizeof(told), "%s: %s", uid, text);
}

/* ---- the tests ---- */

static struct loop *loop;
static struct work *work;

struct item {
	struct process_task process;
	unsigned k;
};
static struct {
	int pipe[2]; /* it ends when a byte is written */
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

static void post(unsigned k, uint64_t cgroup_id, void (*run)(struct task *))
{
	struct item *x = xcalloc(1, sizeof(*x));

	assert_int_equal(pipe(items[k].pipe), 0);
	x->k = k;
	x->process.tgid = 1000 + k;
	x->process.cgroup_id = cgroup_id;
	x->process.task.run = run;
	x->process.task.done = ended;
	x->process.task.job.deadline_ns = run == blocks ? 50 * MS : 0;
	work_post_process(work, &x->process, 0);
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

static void a_pod_keeps_one_thread(void **state)
{
	(void)state;
	post(0, 10, blocks);
	for (unsigned k = 1; k < 10; k++)
		post(k, k % 2 ? 11 : 10, blocks); /* posted before the block was known */
	post(10, 20, runs);
	post(11, 0, runs);
	wait_for(11);
	assert_true(items[10].ran && !items[10].refused);
	assert_true(items[11].ran && !items[11].refused);
	for (unsigned k = 1; k < 10; k++)
		assert_true(items[k].refused && !items[k].ran);
	assert_false(items[0].done);
	assert_string_equal(told,
			    "pod-1: container  of pod pod-1: reading the files of a process takes "
			    "more than 5 s: the agent goes on without it (process 1000)");
	post(12, 12, blocks); /* and after */
	wait_for(12);
	assert_true(items[12].refused && !items[12].ran);
	/* Its job is back: files of its pod are read again. */
	assert_int_equal(write(items[0].pipe[1], "x", 1), 1);
	wait_for(0);
	work_tick(work);
	assert_string_equal(told, "pod-1: "); /* no more */
	post(13, 11, runs);
	wait_for(13);
	assert_true(items[13].ran && !items[13].refused);
}

static int start(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		owners[i].pod_uid = i ? "pod-2" : "pod-1";
	if (loop_new(&loop) < 0)
		return -1;
	work = work_new(loop);
	work->report = (struct report *)work;
	return work_start_workers(work, 1 << 20);
}

static int stop(void **state)
{
	(void)state;
	work_close(work);
	worker_free(work->disk);
	work_free(work);
	loop_free(loop);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pod_keeps_one_thread),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
