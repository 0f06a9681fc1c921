/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes of one process on their way: the probes worker attaches them, for a span or for as long as the process lives, and
 * takes them away; both waits for RCU.
 */
#include "node/follow.h"

#include "node/overhead.h"
#include "node/sites.h"
#include "node/thread_clocks.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define PROBES_LIMIT_NS (30 * NSEC_PER_SEC)
#define PROBES_NICE	(-15)
#define LATE_MAX	3.0 /* times its wait, the next span after one that took long */
#define REFUSED_NS	(60 * NSEC_PER_SEC)  /* by the kernel: until it is tried again */
#define WATCH_NS	(10 * NSEC_PER_MSEC) /* half of maxStall's default; */
#define WATCH_EACH_NS	(NSEC_PER_MSEC / 10) /* a look takes a hundredth of that */

struct attaching {
	struct task task;
	struct follow *follow;
	struct process_id id;
	struct mappings *m; /* holds the files */
	struct site_files files;
	uint64_t cgroup_id;
	struct overhead_span span; /* span_ns 0: as long as the process lives */
	struct span_end before;	   /* of its last span; 0: there was none */
	bool attach;
	struct attached *old; /* to be detached, or with attach: to be changed */
	/* out */
	struct attached *attached;
	size_t n_refused;
	struct overhead_spent spent;
	struct span_end end;
	uint64_t
		in_place_ns; /* of a span, as far as is known: attaching and detaching are slow where CPUs are busy */
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

/*
 * What it worked tells how much of it was looked at. clocks: opened before it was attached; none: as good as the
 * process's own clock is.
 */
static void wait_span(struct attaching *a, const struct thread_clocks *clocks)
{
	uint64_t start_ns = process_cpu_ns(a->id.tgid), exact_ns = thread_clocks_ns(clocks);
	uint64_t from_ns = now_mono_ns();
	struct overhead_spent *x = &a->spent;

	probes_attached_wait(a->attached, a->span.span_ns, a->span.max_hits, &x->attached_ns,
			     &x->hits);
	exact_ns = thread_clocks_ns(clocks) - exact_ns;
	a->end = (struct span_end){process_cpu_ns(a->id.tgid), now_mono_ns()};
	x->cpu_ns = a->end.cpu_ns > start_ns ? a->end.cpu_ns - start_ns : 0;
	if (clocks->n)
		x->cpu_ns = exact_ns;
	x->first = !a->before.cpu_ns;
	if (a->before.cpu_ns && start_ns > a->before.cpu_ns)
		x->cpu_before_ns = start_ns - a->before.cpu_ns;
	if (a->before.cpu_ns && from_ns > a->before.mono_ns)
		x->before_ns = from_ns - a->before.mono_ns;
}

/* While this thread waits for a CPU somebody pays for probes that should be gone. Not allowed: then it waits. */
static void hurry(void)
{
	static bool asked;

	if (!asked)
		setpriority(PRIO_PROCESS, 0, PROBES_NICE); /* of the thread alone */
	asked = true;
}

static void attach_run(struct task *task)
{
	struct attaching *a = (struct attaching *)task;
	struct probes *p = kernel_probes(task->node->kernel);
	struct thread_clocks clocks = {0};
	uint64_t start_ns;

	hurry();
	if (!a->attach) {
		a->old = probes_detach(p, a->old);
		return;
	}
	if (a->old) {
		a->attached = TAKE_PTR(a->old);
		a->result = probes_attach_change(p, a->attached, &a->files.process, a->files.files,
						 a->files.n_files, &a->n_refused);
		return;
	}
	if (a->span.span_ns && thread_clocks_open((uint32_t)a->id.tgid, &clocks))
		counter_add(counter("podflame_memory_spans_coarse_total", NULL, NULL), 1);
	start_ns = now_mono_ns();
	a->result =
		probes_attach(p, (uint32_t)a->id.tgid, a->id.start_boottime_ns, &a->files.process,
			      a->files.files, a->files.n_files, &a->attached, &a->n_refused);
	if (a->result == 0 && a->span.span_ns) {
		/* Taking them away takes as long; then it waits for RCU, which costs the process nothing. */
		a->in_place_ns = 2 * (now_mono_ns() - start_ns);
		wait_span(a, &clocks);
		a->in_place_ns += a->spent.attached_ns;
		a->attached = probes_detach(p, a->attached);
	}
	thread_clocks_close(&clocks);
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

/* ---- what is attached: a storm may begin at any time ---- */

static void look_at(struct tracked *t)
{
	struct allocs *a = &t->allocs;
	uint64_t now_ns = now_mono_ns(), hits = probes_attached_hits(a->attached);
	bool stalled = overhead_stalled(t->follow->node->overhead, t->cgroup_id,
					hits - a->seen_hits, now_ns - a->seen_ns, &a->stall_ns);

	a->seen_hits = hits;
	a->seen_ns = now_ns;
	if (!stalled)
		return;
	probes_leave(a->attached);
	a->next_ns = now_ns + NSEC_PER_SEC;
	alloc_detach(t);
}

static void watch(void *arg)
{
	struct follow *f = arg;
	struct tracked *t, *next;

	HASH_ITER (hh, f->tracked, t, next)
		if (t->allocs.attached)
			look_at(t);
	if (f->n_attached)
		timer_set(f->node->loop, &f->watch, WATCH_NS + f->n_attached * WATCH_EACH_NS, watch,
			  f);
}

static void watch_too(struct tracked *t)
{
	struct allocs *a = &t->allocs;

	a->seen_hits = probes_attached_hits(a->attached);
	a->seen_ns = now_mono_ns();
	a->stall_ns = 0;
	if (t->follow->n_attached++ == 0)
		timer_set(t->follow->node->loop, &t->follow->watch, WATCH_NS, watch, t->follow);
}

/* So that what was longer in place than meant costs no more: how much later the next one is. */
static uint64_t late_ns(const struct attaching *a)
{
	double times = (double)a->in_place_ns / (double)a->span.span_ns - 1;

	return times > 0 ? (uint64_t)(MIN(times, LATE_MAX) * (double)a->span.wait_ns) : 0;
}

static void keep_attached(struct tracked *t, struct attaching *a)
{
	t->allocs.attached = TAKE_PTR(a->attached);
	watch_too(t);
}

static void take_attached(struct tracked *t, struct attaching *a)
{
	struct allocs *s = &t->allocs;

	if (a->result < 0) {
		refused(t, a->result);
		if (a->attached && !s->attached) /* it could not be changed */
			keep_attached(t, a);
		s->stale = true;
		return;
	}
	if (s->refused)
		alloc_set_problem(t, "", s->sites ? sites_problem(s->sites, s->looked_mask) : "");
	s->refused = false;
	if (a->span.span_ns) {
		s->span_end = a->end;
		s->next_ns += late_ns(a);
		return;
	}
	if (s->attached)
		return; /* of two, the one that is there */
	keep_attached(t, a);
	s->attached_mask = a->files.process.event_mask;
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

static struct attached *take_away(struct tracked *t)
{
	if (t->allocs.attached && --t->follow->n_attached == 0)
		timer_cancel(&t->follow->watch);
	return TAKE_PTR(t->allocs.attached);
}

void alloc_attach(struct tracked *t, unsigned event_mask, const struct overhead_span *span)
{
	struct attaching *a = attaching_new(t->follow, t->id);

	a->attach = true;
	a->cgroup_id = t->cgroup_id;
	a->before = t->allocs.span_end;
	a->m = mappings_ref(t->allocs.m);
	if (span)
		a->span = *span;
	a->old = take_away(t);
	site_files_make(t->allocs.sites, a->m, event_mask, &a->files);
	t->allocs.busy = true;
	post(a);
}

void alloc_detach(struct tracked *t)
{
	struct allocs *a = &t->allocs;
	struct attached *old = take_away(t);

	if (!old)
		return;
	a->attached_mask = 0;
	/* until here all was seen */
	a->span_end = (struct span_end){process_cpu_ns(t->id.tgid), now_mono_ns()};
	detach(t->follow, t->id, old);
}
