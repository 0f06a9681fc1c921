/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the node's workers and the list of tasks. A task is a job that holds a reference to struct
 * work, so it may end after the node. If a task still blocks its thread when the node ends, the
 * memory of struct work is never freed. All runs on the loop thread, except on_run().
 */
#include "node/work/internal.h"

#include <stdlib.h>

#define OS_MAILBOX     (64u << 20)
#define PARSE_MAILBOX  (1u << 20) /* bytes of the jobs of each parser that wait */
#define PIPE_MAILBOX   (256u << 20)
#define PROBES_MAILBOX (1u << 20) /* bytes of the jobs that wait to attach probes */

static void unref(struct work *w)
{
	assert_se(w->refs > 0);
	if (--w->refs == 0)
		free(w);
}

static void unlink_task(struct task *t)
{
	*t->prev = t->next;
	if (t->next)
		t->next->prev = t->prev;
	else
		t->work->tasks_tail = t->prev;
}

static void handle(struct task *t)
{
	/*
	 * After work_free() only tasks that had blocked their thread end here. Nobody needs their
	 * result any more.
	 */
	if (t->handled || t->work->closed)
		return;
	t->handled = true;
	t->done(t);
}

/* Ends a task. If finish() has handled its end already, only frees it. */
static void on_done(struct job *j)
{
	struct task *t = (struct task *)j;
	struct work *w = t->work;

	loop_assert(w->loop);
	handle(t);
	unlink_task(t);
	free(t);
	unref(w);
}

static void on_run(struct job *j)
{
	struct task *t = (struct task *)j;

	if (t->run)
		t->run(t);
	__atomic_store_n(&t->ran, true, __ATOMIC_RELEASE);
}

bool work_runs_on(const struct work *work, const struct worker *w)
{
	/*
	 * to check only `closing` is not enough: while the workers are being ended, a thread that
	 * was left behind may still run a job
	 */
	return (work->closing && loop_is_current(work->loop)) || work->threads->is_current(w);
}

static void take(struct work *w, struct task *t)
{
	loop_assert(w->loop);
	assert_se(t->done && !w->closed);
	t->work = w;
	t->job.run = on_run;
	t->job.done = on_done;
	t->prev = w->tasks_tail;
	*w->tasks_tail = t;
	w->tasks_tail = &t->next;
	w->refs++;
}

void work_refuse(struct work *w, struct task *t)
{
	take(w, t);
	t->refused = true;
	on_done(&t->job);
}

void work_post(struct work *w, struct worker *to, struct task *t, size_t n_bytes)
{
	take(w, t);
	t->job.n_bytes = sizeof(*t) + n_bytes;
	if (w->closing) {
		on_run(&t->job);
		on_done(&t->job);
		return;
	}
	if (w->threads->post(to, &t->job) == 0)
		return;
	t->refused = true;
	on_done(&t->job);
}

/* Handles the ends of tasks that have run, if the loop has not handled them yet. */
static void finish(struct work *w)
{
	for (struct task *t = w->tasks; t; t = t->next)
		if (__atomic_load_n(&t->ran, __ATOMIC_ACQUIRE))
			handle(t);
}

/* ---- creation and end ---- */

static const struct work_threads threads = {
	.create = worker_new,
	.end = worker_free,
	.post = worker_post,
	.on_stuck = worker_on_stuck,
	.is_stuck = worker_is_stuck,
	.replace = worker_replace,
	.give_time = worker_give_time,
	.is_current = worker_is_current,
};

struct work *work_new(struct loop *l)
{
	struct work *w = xcalloc(1, sizeof(*w));

	w->loop = l;
	w->threads = &threads;
	w->refs = 1;
	w->tasks_tail = &w->tasks;
	return w;
}

/*
 * Only logs. The windows of profiles that the disk does not take wait in memory; a restart would
 * lose them, and the disk would not answer sooner.
 */
static void disk_stuck(struct worker *w, struct job *j, void *arg)
{
	(void)w;
	(void)j;
	(void)arg;
	log_warn("the spool's disk does not answer: profiles wait in memory");
}

int work_start_workers(struct work *w, size_t disk_mailbox_bytes)
{
	const struct {
		const char *name;
		size_t mailbox_bytes;
		struct worker **worker;
	} workers[] = {
		{"os", OS_MAILBOX, &w->os},
		{"files", FILES_MAILBOX, &w->files},
		{"tables", PARSE_MAILBOX, &w->tables},
		{"debug", PARSE_MAILBOX, &w->debug},
		{"pipeline", PIPE_MAILBOX, &w->pipe},
		{"probes", PROBES_MAILBOX, &w->probing},
		{"disk", disk_mailbox_bytes, &w->disk},
	};

	for (size_t i = 0; i < ARRAY_SIZE(workers); i++) {
		int r = w->threads->create(w->loop, workers[i].name, workers[i].mailbox_bytes,
					   workers[i].worker);

		if (r < 0)
			return r;
	}
	w->threads->on_stuck(w->disk, disk_stuck, NULL);
	w->threads->on_stuck(w->files, work_files_stuck, w);
	return 0;
}

void work_close(struct work *w)
{
	struct worker **all[] = {&w->tables, &w->debug, &w->attach, &w->probing,
				 &w->os,     &w->files, &w->pipe};

	loop_assert(w->loop);
	assert_se(!w->closing);
	if (w->files)
		work_turns_post_all(w);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (*all[i])
			w->threads->end(*all[i]);
	w->closing = true;
	finish(w);
}

struct work *work_free(struct work *w)
{
	if (!w)
		return NULL;
	loop_assert(w->loop);
	assert_se(!w->closed);
	report_problems_done(&w->unreadable);
	w->closed = true;
	unref(w);
	return NULL;
}
