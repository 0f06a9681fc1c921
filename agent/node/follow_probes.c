/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes of one process on their way: the probes worker attaches them, for a span or for as long as the process lives, and
 * takes them away; both waits for RCU.
 */
#include "node/follow.h"

#include "node/overhead.h"
#include "node/sites.h"

#include <stdlib.h>
#include <time.h>

#define PROBES_LIMIT_NS (30 * NSEC_PER_SEC)
#define REFUSED_NS	(60 * NSEC_PER_SEC) /* by the kernel: until it is tried again */

struct attaching {
	struct task task;
	struct follow *follow;
	struct process_id id;
	struct mappings *m; /* holds the files */
	struct site_files files;
	uint64_t cgroup_id;
	struct overhead_span span; /* span_ns 0: as long as the process lives */
	uint64_t cpu_before_ns;	   /* CPU time of the process when its last span ended; 0: none */
	bool attach;
	struct attached *old; /* not attach: to be detached */
	/* out */
	struct attached *attached;
	size_t n_refused;
	struct overhead_spent spent;
	uint64_t cpu_ns; /* of the process, when the span ended */
	int result;
};

/* CPU time of a process, up to this moment; 0: it is gone. */
static uint64_t process_cpu_ns(uint64_t tgid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid((pid_t)tgid, &clock) || clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Its CPU time tells how much of its work was looked at. */
static void wait_span(struct attaching *a)
{
	uint64_t start_ns = process_cpu_ns(a->id.tgid);
	struct overhead_spent *x = &a->spent;

	probes_attached_wait(a->attached, a->span.span_ns, a->span.max_hits, &x->attached_ns,
			     &x->hits);
	a->cpu_ns = process_cpu_ns(a->id.tgid);
	x->cpu_ns = a->cpu_ns > start_ns ? a->cpu_ns - start_ns : 0;
	x->first = !a->cpu_before_ns;
	if (a->cpu_before_ns && start_ns > a->cpu_before_ns)
		x->cpu_before_ns = start_ns - a->cpu_before_ns;
}

static void attach_run(struct task *task)
{
	struct attaching *a = (struct attaching *)task;
	struct probes *p = kernel_probes(task->node->kernel);

	if (!a->attach) {
		a->old = probes_detach(p, a->old);
		return;
	}
	a->result =
		probes_attach(p, (uint32_t)a->id.tgid, a->id.start_boottime_ns, &a->files.process,
			      a->files.files, a->files.n_files, &a->attached, &a->n_refused);
	if (a->result < 0 || !a->span.span_ns)
		return;
	wait_span(a);
	a->attached = probes_detach(p, a->attached);
}

static void attach_done(struct task *task);

static struct attaching *attaching_new(struct follow *f, struct process_id id)
{
	struct attaching *a = xcalloc(1, sizeof(*a));

	a->follow = f;
	a->id = id;
	a->task.run = attach_run;
	a->task.done = attach_done;
	a->task.job.deadline_ns = PROBES_LIMIT_NS;
	return a;
}

/* Weighs nothing: it is never refused, so probes are always taken away again. */
static void post(struct attaching *a)
{
	a->follow->n_attaching++;
	a->follow->n_spans += a->span.span_ns != 0;
	task_post(a->follow->node, a->follow->node->probing, &a->task, 0);
}

static void detach(struct follow *f, struct process_id id, struct attached *old)
{
	struct attaching *a = attaching_new(f, id);

	a->old = old;
	post(a);
}

static void refused(struct tracked *t, int result)
{
	struct allocs *s = &t->allocs;

	s->next_ns = now_mono_ns() + (result == -EAGAIN ? NSEC_PER_SEC : REFUSED_NS);
	s->refused = true;
	if (result != -ESRCH && result != -EAGAIN)
		alloc_set_problem(t, "probes cannot be attached: ", strerror(-result));
}

static void take_attached(struct tracked *t, struct attaching *a)
{
	struct allocs *s = &t->allocs;

	if (a->result < 0) {
		refused(t, a->result);
		return;
	}
	if (s->refused)
		alloc_set_problem(t, "", s->sites ? s->sites->problem : "");
	s->refused = false;
	if (a->span.span_ns) {
		s->span_cpu_ns = a->cpu_ns;
		return;
	}
	if (s->attached)
		return; /* of two, the one that is there */
	s->attached = TAKE_PTR(a->attached);
	s->attached_mask = a->files.process.event_mask;
	t->follow->n_attached++;
}

static void count_attached(const struct attaching *a)
{
	counter_add(counter(ALLOC_ATTACH_COUNTER, "result", a->result < 0 ? "failed" : "ok"), 1);
	counter_add(counter("podflame_memory_sites_refused_total", NULL, NULL), a->n_refused);
	if (a->result == 0 && a->span.span_ns)
		overhead_spent(a->follow->node->overhead, a->cgroup_id, a->files.process.event_mask,
			       &a->spent);
}

static void attach_done(struct task *task)
{
	struct attaching *a = (struct attaching *)task;
	struct follow *f = a->follow;
	struct tracked *t = follow_find(f, a->id);

	f->n_attaching--;
	f->n_spans -= a->span.span_ns != 0;
	if (a->attach)
		count_attached(a);
	if (t && a->attach) {
		t->allocs.busy = false;
		if (t->exec_id == a->files.process.exec_id)
			take_attached(t, a);
	}
	if (a->attached) /* whom it is for was forgotten, or is another program by now */
		detach(f, a->id, a->attached);
	mappings_unref(a->m);
	site_files_done(&a->files);
	if (t && a->attach && !task->node->closing)
		alloc_advance(t);
}

void alloc_attach(struct tracked *t, unsigned event_mask, const struct overhead_span *span)
{
	struct attaching *a = attaching_new(t->follow, t->id);

	a->attach = true;
	a->cgroup_id = t->cgroup_id;
	a->cpu_before_ns = t->allocs.span_cpu_ns;
	a->m = mappings_ref(t->allocs.m);
	if (span)
		a->span = *span;
	site_files_make(t->allocs.sites, a->m, event_mask, &a->files);
	t->allocs.busy = true;
	post(a);
}

void alloc_detach(struct tracked *t)
{
	struct allocs *a = &t->allocs;

	if (!a->attached)
		return;
	t->follow->n_attached--;
	a->attached_mask = 0;
	a->span_cpu_ns = process_cpu_ns(t->id.tgid); /* until here all was seen */
	detach(t->follow, t->id, TAKE_PTR(a->attached));
}
