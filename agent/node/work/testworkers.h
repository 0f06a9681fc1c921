/* SPDX-License-Identifier: Apache-2.0 */
/*
 * testworkers, for tests only: replaces the workers of a struct work. A posted task waits until the
 * test runs it, on the test's thread. The test makes a worker stuck with a call of
 * workers.on_stuck. The loop does not run (testtimer.h).
 */
#pragma once

#include "node/work/work.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/loop/testtimer.h"

#define POSTED_MAX 8
static struct {
	struct task *items[POSTED_MAX]; /* the posted tasks; items[0] runs next */
	size_t n;
} posted;
static struct {
	worker_stuck_fn *on_stuck;
	void *arg;
	unsigned n_new, n_replaced, n_given_time;
	int replace_result;
} workers;

/* ---- used instead of lib/loop's workers ---- */

static int create_worker(struct loop *l, const char *name, size_t max_bytes, struct worker **ret)
{
	static char worker;

	assert_ptr_equal(l, timer_loop());
	assert_true(*name && max_bytes > 0);
	workers.n_new++;
	*ret = (struct worker *)&worker;
	return 0;
}

static struct worker *end_worker(struct worker *w)
{
	(void)w;
	return NULL;
}

static int post_job(struct worker *w, struct job *j)
{
	(void)w;
	assert_true(posted.n < POSTED_MAX);
	posted.items[posted.n++] = (struct task *)j;
	return 0;
}

static void note_on_stuck(struct worker *w, worker_stuck_fn *fn, void *arg)
{
	(void)w;
	assert_non_null(arg);
	workers.on_stuck = fn;
	workers.arg = arg;
}

static bool is_stuck(struct worker *w)
{
	(void)w;
	return true;
}

static int replace_worker(struct worker *stuck, struct worker **ret)
{
	if (workers.replace_result < 0)
		return workers.replace_result;
	*ret = stuck;
	workers.n_replaced++;
	return 0;
}

static void give_time(struct worker *w)
{
	(void)w;
	workers.n_given_time++;
}

static bool is_test_thread(const struct worker *w)
{
	(void)w;
	return loop_is_current(timer_loop());
}

static const struct work_threads posted_threads = {
	.create = create_worker,
	.end = end_worker,
	.post = post_job,
	.on_stuck = note_on_stuck,
	.is_stuck = is_stuck,
	.replace = replace_worker,
	.give_time = give_time,
	.is_current = is_test_thread,
};

/* ---- functions for tests ---- */

/*
 * Initializes *w, which is zeroed or was initialized before: no task is posted, and no container is
 * known.
 */
static inline void testwork(struct work *w)
{
	proc_containers_free(w->containers);
	*w = (struct work){.loop = timer_loop(),
			   .threads = &posted_threads,
			   .refs = 1,
			   .tasks_tail = &w->tasks};
	assert_int_equal(proc_containers_new(&w->containers), 0);
}

/* Ends a task that has run or was refused, as the loop does. */
static inline void posted_end(struct task *t)
{
	t->job.done(&t->job);
}

static inline struct task *posted_take(void)
{
	struct task *t = posted.items[0];

	assert_true(posted.n > 0);
	posted.n--;
	memmove(posted.items, posted.items + 1, posted.n * sizeof(*posted.items));
	return t;
}

/* Runs the next task, if it was not refused, and ends it. */
static inline void posted_run(void)
{
	struct task *t = posted_take();

	if (!t->refused)
		t->job.run(&t->job);
	posted_end(t);
}

/* Runs all posted tasks, then those that these have posted. */
static inline void posted_run_all(void)
{
	while (posted.n)
		posted_run();
}
