/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of the files worker that read files and memory of a process. A read may block for ever. If
 * it does, this file leaves the thread behind, refuses other jobs for the same namespace, and
 * reports the pod to its targets (ProcessUnreadable). process_run() and the functions that it calls
 * run on the worker, everything else on the loop thread.
 */
#include "node/work/internal.h"

#include <stdlib.h>

/* ---- on the files worker ---- */

/* Whom the task is for. A process that belongs to no pod counts as a namespace of its own. */
static uint64_t ns_of(struct work *w, const struct process_task *p)
{
	uint64_t until_ns, ns = p->cgroup_id ? p->cgroup_id : p->tgid;
	struct owner *o = proc_containers_owner(w->containers, p->cgroup_id, &until_ns);

	if (o)
		ns = o->ns_hash;
	proc_owner_unref(o);
	return ns ? ns : 1;
}

/*
 * Runs the task if its namespace is not blocked. The task may have been posted before a pod of the
 * namespace blocked a thread, so this function checks again.
 */
static void process_run(struct task *t)
{
	struct process_task *p = (struct process_task *)t;
	uint64_t began_ns = now_mono_ns();

	p->blocked = work_is_blocked(&t->work->stuck, p->ns);
	t->refused |= p->blocked;
	if (!p->blocked)
		p->run(t);
	p->took_ns = now_mono_ns() - began_ns;
}

static void process_done(struct task *t)
{
	struct process_task *p = (struct process_task *)t;

	p->done(t);
	work_turns_ended(t->work, p, p->took_ns);
}

void work_post_process(struct work *w, struct process_task *p, size_t n_bytes)
{
	p->ns = ns_of(w, p);
	p->run = p->task.run;
	p->task.run = process_run;
	p->done = p->task.done;
	p->task.done = process_done;
	if (w->closing)
		work_post(w, w->files, &p->task, n_bytes);
	else
		work_turns_add(w, p, n_bytes);
}

const char *work_process_refusal(const struct process_task *p)
{
	return p->blocked ? "stuck" : "files_full";
}

/* ---- jobs that do not return ---- */

static void add_blocked(struct work *w, const struct job *j, struct problem_list *now)
{
	const struct process_task *p = (const struct process_task *)j;
	_cleanup_free_ char *process = NULL, *problem = NULL;
	struct problem what = {0};
	uint64_t until_ns;
	struct owner *o = j ? proc_containers_owner(w->containers, p->cgroup_id, &until_ns) : NULL;

	if (!o)
		return;
	what.problem = problem = xasprintf("reading the files of a process takes more than %llu s: "
					   "the agent goes on without it, and reads no "
					   "other process of the namespace meanwhile",
					   WORK_READ_LIMIT_NS / NSEC_PER_SEC);
	what.detail = process = xasprintf("process %u", p->tgid);
	report_problems_add(now, proc_containers_plan(w->containers), o, &what);
	proc_owner_unref(o);
}

/*
 * Replaces the list of reported pods. A pod whose job has returned, or that was deleted, is not in
 * it any more.
 */
static void tell_blocked(struct work *w)
{
	struct problem_list now = {0};

	for (size_t i = 0; i < w->stuck.n; i++)
		add_blocked(w, w->stuck.jobs[i].job, &now);
	add_blocked(w, w->stuck.waits.job, &now);
	report_problems_tell(&w->unreadable, &now, w->report, REASON_PROCESS_UNREADABLE);
}

/* Calls the listener: another thread is the files worker now. */
static void go_on(struct work *w)
{
	if (w->on_files_replaced)
		w->on_files_replaced(w->on_files_replaced_arg);
}

static void late_done(struct task *t)
{
	struct process_task *p = (struct process_task *)t;
	struct work *w = t->work;
	bool replaced = work_left_behind_ended(w, &w->stuck, &w->files, &t->job);

	p->late(t);
	if (replaced)
		go_on(w);
}

/*
 * Called when a job of the files worker is late, because a file of a pod may block the thread that
 * opens it. The thread is left behind, and the pod's targets get a message.
 */
void work_files_stuck(struct worker *files, struct job *j, void *work)
{
	struct process_task *p = (struct process_task *)j;
	struct work *w = work;

	(void)files;
	if (!j)
		return;
	log_warn("reading the files of process %u takes more than %llu s: the agent goes on "
		 "without it",
		 p->tgid, WORK_READ_LIMIT_NS / NSEC_PER_SEC);
	counter_add(counter("podflame_mappings_dropped_total", "reason", "stuck"), 1);
	p->late = p->task.done;
	p->task.done = late_done;
	if (work_left_behind(w, &w->stuck, &w->files, j, p->ns))
		go_on(w);
	work_turns_ended(w, p, WORK_READ_LIMIT_NS);
	tell_blocked(w);
}

void work_on_files_replaced(struct work *w, void (*fn)(void *arg), void *arg)
{
	loop_assert(w->loop);
	assert_se(!w->on_files_replaced); /* there is only one listener */
	w->on_files_replaced = fn;
	w->on_files_replaced_arg = arg;
}

void work_tick(struct work *w)
{
	loop_assert(w->loop);
	if (w->closing)
		return;
	if (work_left_behind_again(w, &w->stuck, &w->files))
		go_on(w);
	tell_blocked(w);
}
