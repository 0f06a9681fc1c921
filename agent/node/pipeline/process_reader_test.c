/* SPDX-License-Identifier: Apache-2.0 */
/* Who blocks the files worker keeps one of its threads, not all of them: in real workers. */
#include "node/internal.h"

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MS	    NSEC_PER_MSEC
#define DEADLINE_NS (120 * NSEC_PER_SEC)

/* ---- all around it ---- */

static struct owner owners[2]; /* of pods 1 and 2: cgroups 10 to 19, 20 to 29 */

struct owner *procs_owner(struct procs *p, uint64_t cgroup_id, uint64_t *ret_until_ns)
{
	(void)p;
	*ret_until_ns = UINT64_MAX;
	return cgroup_id >= 10 && cgroup_id < 30 ? &owners[cgroup_id / 10 - 1] : NULL;
}

struct owner *owner_unref(struct owner *o)
{
	(void)o;
	return NULL;
}

void drains_advance(struct drains *d)
{
	(void)d;
}

void node_targets_of(struct node *n, const char *container_id, const char *pod_uid,
		     void (*fn)(struct node *n, const char *uid, void *arg), void *arg)
{
	(void)container_id;
	fn(n, pod_uid, arg);
}

uint64_t follow_cgroup(const struct follow *f, uint32_t tgid, uint64_t start_boottime_ns)
{
	(void)f;
	(void)tgid;
	(void)start_boottime_ns;
	return 0;
}

static bool rests;

bool follow_rests(const struct follow *f, uint32_t tgid, uint64_t start_boottime_ns,
		  uint32_t exec_id)
{
	(void)f;
	(void)tgid;
	(void)start_boottime_ns;
	(void)exec_id;
	return rests;
}

void tables_tag(struct files *f, struct mappings *m)
{
	(void)f;
	(void)m;
}

void follow_process(struct follow *f, struct mappings *m, uint64_t cgroup_id)
{
	(void)f;
	(void)m;
	(void)cgroup_id;
}

void pipeline_mappings(struct pipeline *p, struct mappings *m)
{
	(void)p;
	(void)m;
}

void pipeline_named(struct pipeline *p, struct names_wanted *w)
{
	(void)p;
	(void)w;
}

static char told[256];

void report_problem(struct report *r, const char *uid, const char *reason, const char *text,
		    unsigned n)
{
	(void)r;
	(void)n;
	assert_string_equal(reason, "ProcessUnreadable");
	snprintf(told, sizeof(told), "%s: %s", uid, text);
}

/* ---- the tests ---- */

static struct node node;

struct item {
	struct process_task process;
	unsigned k;
};
static struct {
	int pipe[2]; /* it ends when something is written */
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
	process_post(&node, &x->process, 0);
}

static uint64_t deadline_ns;
static unsigned awaited;

static void look(void *timer)
{
	if (items[awaited].done || now_mono_ns() > deadline_ns)
		loop_stop(node.loop, 0);
	else
		timer_set(node.loop, timer, MS, look, timer);
}

static void wait_for(unsigned k)
{
	struct timer timer = {0};

	awaited = k;
	deadline_ns = now_mono_ns() + DEADLINE_NS;
	timer_set(node.loop, &timer, 0, look, &timer);
	assert_int_equal(loop_run(node.loop), 0);
	timer_cancel(&timer);
	assert_true(items[k].done);
}

static void a_pod_keeps_one_thread(void **state)
{
	(void)state;
	post(0, 10, blocks);
	for (unsigned k = 1; k < 10; k++)
		post(k, k % 2 ? 11 : 10, blocks); /* posted before it was known */
	post(10, 20, runs);
	post(11, 0, runs);
	wait_for(11);
	assert_true(items[10].ran && !items[10].refused);
	assert_true(items[11].ran && !items[11].refused);
	for (unsigned k = 1; k < 10; k++)
		assert_true(items[k].refused && !items[k].ran);
	assert_false(items[0].done);
	assert_string_equal(told,
			    "pod-1: container  of pod pod-1: reading files of a process takes "
			    "more than 5 s: it is left out (process 1000)");
	post(12, 12, blocks); /* and after */
	wait_for(12);
	assert_true(items[12].refused && !items[12].ran);
	/* It is back: its pod is read again. */
	assert_int_equal(write(items[0].pipe[1], "x", 1), 1);
	wait_for(0);
	reads_tick(node.reads);
	assert_string_equal(told, "pod-1: "); /* no more */
	post(13, 11, runs);
	wait_for(13);
	assert_true(items[13].ran && !items[13].refused);
}

/* What its samples lack is to be seen somewhere. */
static void a_process_that_rests_is_not_read_and_counted(void **state)
{
	struct counter *c = counter("podflame_mappings_dropped_total", "reason", "resting");
	uint64_t before = counter_get(c);

	(void)state;
	rests = true;
	reads_mappings(node.reads, getpid(), 0, 0, 0, 20);
	rests = false;
	assert_false(reads_under_way(node.reads));
	assert_int_equal(counter_get(c), before + 1);
}

static int start(void **state)
{
	(void)state;
	node.refs = 1;
	node.report = (struct report *)&node;
	node.tasks_tail = &node.tasks;
	for (int i = 0; i < 2; i++)
		owners[i].pod_uid = i ? "pod-2" : "pod-1";
	if (loop_new(&node.loop) < 0 || worker_new(node.loop, "files", 1 << 20, &node.files) < 0)
		return -1;
	node.reads = reads_new(&node);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	worker_free(node.files);
	reads_free(node.reads);
	loop_free(node.loop);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pod_keeps_one_thread),
		cmocka_unit_test(a_process_that_rests_is_not_read_and_counted),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
