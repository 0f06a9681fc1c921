/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks JVMs for their perf maps, because nothing else gives names to their code. A target of their
 * container must have javaAttach: Allowed. A JVM is asked when it is found, and again when names
 * are missing, but at most once in an interval (java-symbol-file-refresh-defer-interval). The
 * request runs on the attach worker, everything else on the loop thread. See docs/perf-maps.md.
 */
#include "node/follow/internal.h"

#include <stdlib.h>

#define TRIES_MAX      5 /* tries in a row, if the problem may pass */
#define TRY_AGAIN_NS   (60 * NSEC_PER_SEC)
#define MAILBOX_BYTES  (1u << 16)	   /* bytes of the requests to JVMs that wait */
#define ASK_LIMIT_NS   (60 * NSEC_PER_SEC) /* deadline of a request, which takes at most 20 s */
#define ATTACH_COUNTER "podflame_java_attach_total"

struct java_asking {
	struct task task;
	struct follow *follow;		  /* for the loop thread */
	const struct follow_calls *calls; /* for the attach worker, which may outlive follow */
	struct process_id id;
	uint64_t ns; /* struct charged */
	uint32_t exec_id;
	struct runtime_process *runtimes;
	struct java_requests *requests;
	int result;
	char problem[RUNTIME_PROBLEM_BYTES];
};

static const char *version_of(const struct runtime_process *p)
{
	for (size_t i = 0; i < runtime_process_n(p); i++) {
		struct runtime_view v = runtime_process_at(p, i);

		if (v.kind == PF_RUNTIME_JVM)
			return v.learnt->version;
	}
	return "";
}

static void ask_run(struct task *task)
{
	struct java_asking *a = (struct java_asking *)task;

	a->result = -EAGAIN;
	if (__atomic_load_n(&task->work->attach_stopped, __ATOMIC_RELAXED))
		return;
	/* It may have been posted before another JVM of the namespace blocked a thread. */
	task->refused = work_is_blocked(&task->work->asks_stuck, a->ns);
	if (task->refused)
		return;
	a->result = a->calls->ask_jvm(a->requests, a->id, version_of(a->runtimes), a->problem);
}

static void take(struct follow *f, struct tracked *t, const struct java_asking *a)
{
	struct java *j = &t->java;

	free(TAKE_PTR(j->problem));
	j->n_tries = a->result == -EAGAIN ? j->n_tries + 1 : 0;
	j->refused = a->result < 0 && (a->result != -EAGAIN || j->n_tries >= TRIES_MAX);
	j->next_ns = now_mono_ns() + (a->result == 0 ? f->config.java_refresh_ns : TRY_AGAIN_NS);
	if (j->refused)
		j->problem = xasprintf("the JVM was asked for its perf map: %s", a->problem);
	counter_add(counter(ATTACH_COUNTER, "result",
			    a->result == 0 ? "ok"
			    : j->refused   ? "failed"
					   : "later"),
		    1);
	if (a->result == 0) /* the next search for runtimes finds the map */
		f->config.ops->read_mappings(f->config.ops_arg, t->id, t->exec_id, t->cgroup_id);
}

static void ask_done(struct task *task)
{
	struct java_asking *a = (struct java_asking *)task;
	struct tracked *t = follow_find(a->follow, a->id);

	work_left_behind_ended(task->work, &task->work->asks_stuck, &task->work->attach,
			       &task->job);
	if (t)
		t->java.asking = false;
	if (t && a->exec_id == t->exec_id && !task->refused && !task->work->closing)
		take(a->follow, t, a);
	runtime_process_unref(a->runtimes);
	runtime_java_requests_unref(a->requests);
}

/*
 * Called when a request is late: the JVM's files belong to the pod and may be on a file system that
 * does not answer. Another thread then asks the other JVMs.
 */
static void ask_stuck(struct worker *w, struct job *job, void *follow)
{
	struct java_asking *a = (struct java_asking *)job;
	struct follow *f = follow;
	struct tracked *t = follow_find(f, a->id);

	(void)w; /* w is work->attach */
	counter_add(counter(ATTACH_COUNTER, "result", "stuck"), 1);
	if (t) {
		t->java.refused = true;
		free(t->java.problem);
		t->java.problem =
			xasprintf("the JVM was asked for its perf map: no answer in %llu s",
				  ASK_LIMIT_NS / NSEC_PER_SEC);
	}
	work_left_behind(f->config.work, &f->config.work->asks_stuck, &f->config.work->attach, job,
			 a->ns);
}

static bool has_worker(struct follow *f)
{
	struct work *w = f->config.work;

	if (!w->attach && w->threads->create(w->loop, "attach", MAILBOX_BYTES, &w->attach) == 0)
		w->threads->on_stuck(w->attach, ask_stuck, f);
	return w->attach;
}

static void ask(struct follow *f, struct tracked *t)
{
	struct work *w = f->config.work;
	struct java_asking *a;

	if (!has_worker(f))
		return;
	a = xcalloc(1, sizeof(*a));
	a->follow = f;
	a->calls = f->calls;
	a->id = t->id;
	a->ns = follow_charged(t).ns;
	a->exec_id = t->exec_id;
	a->runtimes = runtime_process_ref(t->runs.known);
	a->requests = runtime_java_requests_ref(f->java_requests);
	a->task.run = ask_run;
	a->task.done = ask_done;
	a->task.job.deadline_ns = ASK_LIMIT_NS;
	t->java.asking = true;
	work_post(w, w->attach, &a->task, 0);
}

static bool is_allowed(const struct follow *f, const struct tracked *t)
{
	uint64_t until_ns;
	struct owner *o = proc_containers_owner(f->config.containers, t->cgroup_id, &until_ns);
	bool allowed = o && o->java_attach && until_ns == UINT64_MAX;

	proc_owner_unref(o);
	return allowed;
}

void follow_java_tick(struct follow *f)
{
	struct process_id all[JAVA_REQUESTS_MAX];
	size_t n = runtime_java_all_unnamed(f->java_requests, all);
	uint64_t now_ns = now_mono_ns();

	for (size_t i = 0; i < n; i++) {
		struct tracked *t = follow_find(f, all[i]);

		if (t && !t->java.asking && !t->java.refused && now_ns >= t->java.next_ns &&
		    is_allowed(f, t) &&
		    !work_is_blocked(&f->config.work->asks_stuck, follow_charged(t).ns))
			ask(f, t);
	}
}

void follow_java_reset(struct tracked *t)
{
	free(t->java.problem);
	t->java = (struct java){.asking = t->java.asking};
}
