/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of the files worker that read files and memory of a process. A read may block for ever. If
 * it does, this file leaves the thread behind, refuses other jobs of the same pod, and reports the
 * pod to its targets (ProcessUnreadable). process_run() and the functions that it calls run on the
 * worker, everything else on the loop thread.
 */
#include "node/work/internal.h"

#include <stdatomic.h>
#include <stdlib.h>

/* ---- on the files worker ---- */

/*
 * Returns a hash of the pod's UID. If two pods have the same hash by chance, both are blocked
 * together. A process that belongs to no pod counts as a pod of its own.
 */
static uint64_t pod_of(struct work *w, const struct process_task *p)
{
	uint64_t until_ns, pod = p->cgroup_id ? p->cgroup_id : p->tgid;
	struct owner *o = proc_containers_owner(w->containers, p->cgroup_id, &until_ns);

	if (o && o->pod_uid)
		pod = hash_str(o->pod_uid);
	proc_owner_unref(o);
	return pod ? pod : 1;
}

static _Atomic uint64_t *find_blocked(struct work *w, uint64_t pod)
{
	for (size_t i = 0; i < ARRAY_SIZE(w->blocked); i++)
		if (atomic_load(&w->blocked[i]) == pod)
			return &w->blocked[i];
	return NULL;
}

static void replace_blocked(struct work *w, uint64_t old, uint64_t new)
{
	_Atomic uint64_t *place = find_blocked(w, old);

	if (place)
		atomic_store(place, new);
}

/*
 * Runs the task if its pod is not blocked. The task may have been posted before its pod blocked a
 * thread, so this function checks again.
 */
static void process_run(struct task *t)
{
	struct process_task *p = (struct process_task *)t;

	p->blocked = find_blocked(t->work, p->pod) != NULL;
	t->refused |= p->blocked;
	if (!p->blocked)
		p->run(t);
}

void work_post_process(struct work *w, struct process_task *p, size_t n_bytes)
{
	p->pod = pod_of(w, p);
	p->run = p->task.run;
	p->task.run = process_run;
	work_post(w, w->files, &p->task, n_bytes);
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
					   "the agent goes on without it",
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
		add_blocked(w, w->stuck.jobs[i], &now);
	add_blocked(w, w->stuck.waits, &now);
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

	replace_blocked(w, p->pod, 0);
	p->late(t);
	if (!w->closing && work_left_behind_ended(w, &w->stuck, &w->files, &t->job))
		go_on(w);
}

/*
 * Called when a job of the files worker is late, because a file of a pod may block the thread that
 * opens it. The thread is left behind, and the pod's targets get a message. If too many threads are
 * left behind, the agent opens no more files until one of them returns.
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
	replace_blocked(w, 0, p->pod);
	if (work_left_behind(w, &w->stuck, &w->files, j))
		go_on(w);
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
