/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the runtimes of the processes that are followed. The files worker searches when a process's
 * files or mappings are new, and again while a runtime is just starting. The result goes to the
 * pipeline, which reads names, and to the kernel. Loop thread, except for the search.
 */
#include "node/follow/internal.h"

#include <stdlib.h>

#define LOOK_LIMIT_NS  (5 * NSEC_PER_SEC) /* a longer search for runtimes is reported */
#define MAPPINGS_BYTES 4096

struct runtimes_look {
	struct process_task process;
	struct follow *follow;
	struct process_id id;
	struct mappings *m;
	struct runtime_process *old;
	struct java_requests *java; /* a reference: a thread that is left behind outlives follow */
	struct found_runtimes found;
	int result;
};

/* ---- a search ---- */

static void look_run(struct task *task)
{
	struct runtimes_look *l = (struct runtimes_look *)task;
	_stage_("runtimes");

	l->result = l->follow->calls->find_runtimes(l->follow->config.files, l->m, l->old, l->java,
						    &l->found);
}

static void take(struct tracked *t, struct runtimes_look *l)
{
	const struct follow_config *c = &t->follow->config;
	struct runs *r = &t->runs;

	free(r->problem);
	r->problem = TAKE_PTR(l->found.problem);
	free(r->unnamed);
	r->unnamed = TAKE_PTR(l->found.unnamed);
	r->unset |= l->found.process != r->known;
	if (l->found.process ||
	    r->known) /* also if it is known already: the pipeline may have forgotten the process */
		c->ops->runtimes(c->ops_arg, t->id, t->exec_id, l->found.process);
	runtime_process_unref(r->known);
	r->known = TAKE_PTR(l->found.process);
}

static void start(struct tracked *t, struct mappings *m);

static void on_timer(void *arg)
{
	struct tracked *t = arg;
	struct mappings *m = TAKE_PTR(t->runs.m);

	if (m)
		start(t, m);
	proc_mappings_unref(m);
}

/*
 * Searches again later, first soon and then less often: a runtime starts within milliseconds, or
 * only when its program uses it.
 */
static void look_later(struct tracked *t, struct mappings *m)
{
	static const unsigned waits_ms[] = {20, 50, 100, 200, 500, 1000, 2000, 5000};
	struct runs *r = &t->runs;
	unsigned ms = waits_ms[MIN(r->n_again, ARRAY_SIZE(waits_ms) - 1)];

	r->n_again++;
	r->m = proc_mappings_ref(m);
	timer_set(t->follow->config.work->loop, &r->timer, ms * NSEC_PER_MSEC, on_timer, t);
}

/*
 * Whether a later search may find more: a runtime is just starting, or something was missing for a
 * moment.
 */
static bool is_to_come(const struct runtimes_look *l)
{
	return l->process.task.refused || (l->result == 0 && l->found.again) ||
	       l->result == -EBUSY || probes_may_pass(l->result);
}

static void look_on(struct tracked *t, const struct runtimes_look *l)
{
	struct runs *r = &t->runs;
	struct mappings *newer = TAKE_PTR(r->m);
	bool again = l->m->exec_id == t->exec_id && is_to_come(l);

	if (!again)
		r->n_again = 0;
	if (newer) {
		start(t, newer);
		proc_mappings_unref(newer);
		return;
	}
	if (r->unset) {
		r->unset = false;
		follow_set(t, l->m);
	}
	if (again)
		look_later(t, l->m);
}

static void look_done(struct task *task)
{
	struct runtimes_look *l = (struct runtimes_look *)task;
	struct tracked *t = follow_find(l->follow, l->id);

	if (task->refused)
		counter_add(counter("podflame_runtime_learn_failures_total", "reason",
				    work_process_refusal(&l->process)),
			    1);
	if (t)
		t->runs.looking = false;
	if (t && !task->work->closing) {
		if (!task->refused && l->result == 0 && l->m->exec_id == t->exec_id)
			take(t, l);
		look_on(t, l);
	}
	runtime_process_unref(l->old);
	runtime_process_unref(l->found.process);
	runtime_java_requests_unref(l->java);
	proc_mappings_unref(l->m);
	free(l->found.problem);
	free(l->found.unnamed);
}

static void start(struct tracked *t, struct mappings *m)
{
	struct runtimes_look *l;

	if (t->runs.looking) { /* the process may have blocked the thread of the search under way */
		proc_mappings_unref(t->runs.m);
		t->runs.m = proc_mappings_ref(m);
		return;
	}
	l = xcalloc(1, sizeof(*l));
	l->follow = t->follow;
	l->id = t->id;
	m->charged_ns = follow_charged(t).ns;
	l->m = proc_mappings_ref(m);
	l->old = runtime_process_ref(t->runs.known);
	l->java = runtime_java_requests_ref(t->follow->java_requests);
	l->process.tgid = (uint32_t)t->id.tgid;
	l->process.cgroup_id = t->cgroup_id;
	l->process.task.run = look_run;
	l->process.task.done = look_done;
	l->process.task.job.deadline_ns = LOOK_LIMIT_NS;
	t->runs.looking = true;
	work_post_process(t->follow->config.work, &l->process, MAPPINGS_BYTES);
}

void follow_runtimes_look(struct tracked *t, struct mappings *m, bool likely)
{
	struct runs *r = &t->runs;

	if (!r->due || m->exec_id != t->exec_id)
		return;
	r->due = false;
	if (!likely && !r->known)
		return;
	timer_cancel(&r->timer);
	r->m = proc_mappings_unref(r->m);
	start(t, m);
}

void follow_runtimes_set(struct tracked *t, uint32_t exec_id, struct runtime_process *r,
			 uint64_t since_ns, uint64_t until_ns)
{
	const struct follow_config *c = &t->follow->config;

	if (exec_id != t->exec_id || (!t->runs.rows_told && !runtime_process_publishes(r)))
		return;
	t->runs.rows_told = true;
	c->ops->rows_set(c->ops_arg, t->id, exec_id, r, since_ns, until_ns);
}

void follow_runtimes_reset(struct tracked *t)
{
	struct runs *r = &t->runs;

	timer_cancel(&r->timer);
	free(r->problem);
	free(r->unnamed);
	*r = (struct runs){
		.looking = r->looking,
		.known = runtime_process_unref(r->known),
		.m = proc_mappings_unref(r->m),
	};
}
