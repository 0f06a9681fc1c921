/* SPDX-License-Identifier: Apache-2.0 */
/*
 * testworkers, for tests only: stands in for the workers. A posted task waits until the test runs
 * it, on the test's thread. A worker is stuck when the test calls workers.on_stuck. Include it once
 * in a program: it defines functions of work/ and of lib/loop's worker.c.
 */
#pragma once

#include "node/work/work.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#define POSTED_MAX 8
static struct {
	struct task *items[POSTED_MAX]; /* the first is the next */
	size_t n;
} posted;

static inline void posted_end(struct task *t)
{
	t->done(t);
	free(t);
}

void work_post(struct work *w, struct worker *to, struct task *t, size_t n_bytes)
{
	(void)to;
	(void)n_bytes;
	assert_true(posted.n < POSTED_MAX);
	t->work = w;
	if (w->closing) {
		t->run(t);
		posted_end(t);
	} else {
		posted.items[posted.n++] = t;
	}
}

void work_post_process(struct work *w, struct process_task *p, size_t n_bytes)
{
	work_post(w, w->files, &p->task, n_bytes);
}

const char *work_process_refusal(const struct process_task *p)
{
	(void)p;
	return "files_full";
}

static inline struct task *posted_take(void)
{
	struct task *t = posted.items[0];

	assert_true(posted.n > 0);
	posted.n--;
	memmove(posted.items, posted.items + 1, posted.n * sizeof(*posted.items));
	return t;
}

/* The next one, if it was not refused; its end is told. */
static inline void posted_run(void)
{
	struct task *t = posted_take();

	if (!t->refused)
		t->run(t);
	posted_end(t);
}

/* All that is posted, then what that posts. */
static inline void posted_run_all(void)
{
	while (posted.n)
		posted_run();
}

/* ---- lib/loop's worker.c ---- */

static struct {
	worker_stuck_fn *on_stuck;
	void *arg;
	unsigned n_new, n_replaced, n_given_time;
	int replace_result;
} workers;

int worker_new(struct loop *l, const char *name, size_t max_bytes, struct worker **ret)
{
	static char worker;

	(void)l;
	assert_true(*name && max_bytes > 0);
	workers.n_new++;
	*ret = (struct worker *)&worker;
	return 0;
}

void worker_on_stuck(struct worker *w, worker_stuck_fn *fn, void *arg)
{
	(void)w;
	assert_non_null(arg);
	workers.on_stuck = fn;
	workers.arg = arg;
}

bool worker_is_stuck(struct worker *w)
{
	(void)w;
	return true;
}

int worker_replace(struct worker *stuck, struct worker **ret)
{
	if (workers.replace_result < 0)
		return workers.replace_result;
	*ret = stuck;
	workers.n_replaced++;
	return 0;
}

void worker_give_time(struct worker *w)
{
	(void)w;
	workers.n_given_time++;
}
