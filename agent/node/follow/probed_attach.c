/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaches a set of probes to a process, for a span or for as long as the process lives, and
 * detaches it. Attaching and detaching wait for RCU, so they run on the probes worker. This file
 * also reports jobs that are blocked. probed.c decides what is attached, and probed_watch.c watches
 * it. Loop thread, except for the jobs on the probes worker.
 */
#include "node/follow/internal.h"

#include "node/learn/sites.h"
#include "node/limit/thread_clocks.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define PROBES_LIMIT_NS (10 * NSEC_PER_SEC) /* job deadline: a span takes at most 1 s, RCU 0.1 s */
#define PROBES_NICE	(-15)
#define LATE_MAX	3.0 /* after a slow span, the next one is late by at most three periods */
#define REFUSED_NS	(60 * NSEC_PER_SEC) /* the wait before the next try after a refusal */
#define AGAIN_NS	NSEC_PER_SEC /* the first wait after a refusal whose reason may pass */
/*
 * After this many -EAGAIN in a row, the problem is reported. Programs that are being loaded and
 * urgent detaching also cause -EAGAIN, but they take less time.
 */
#define AGAIN_TOLD 4

struct probing {
	struct task task;
	struct follow *follow;
	struct process_id id; /* one of the processes, if there are several */
	uint64_t ns;	      /* struct charged: whose process that is */
	enum probe_set set;   /* the set, or one of the sets */
};
struct detaching {
	struct probing p;
	struct attached **items;
	size_t n;
};
struct attaching {
	struct probing p;
	struct mappings *m; /* holds the files open */
	struct site_files files;
	uint64_t cgroup_id;
	struct limit_span span; /* span_ns 0: as long as the process lives */
	struct span_end before; /* the end of the last span of the process; 0: there was none */
	struct attached *old;	/* the probes to change; NULL: none */
	/* results */
	struct attached *attached;
	struct probes_refused refused;
	struct limit_spent spent;
	struct span_end end;
	/*
	 * An estimate of how long the probes of a span were attached, with the time for attaching
	 * and detaching, which are slow if CPUs are busy.
	 */
	uint64_t in_place_ns;
	int result;
};

static struct probing probing_of(const struct probed *x)
{
	return (struct probing){
		.follow = x->tracked->follow,
		.id = x->tracked->id,
		.ns = follow_charged(x->tracked).ns,
		.set = x->set,
	};
}

/* Returns the set for which the job runs; NULL: the process is not followed any more. */
static struct probed *probed_of(const struct probing *p)
{
	struct tracked *t = follow_find(p->follow, p->id);

	return t ? &t->probed[p->set] : NULL;
}

uint64_t follow_probed_moves(const struct follow *f)
{
	return f->calls->probes->moves(kernel_probes(f->config.kernel));
}

/* Returns the CPU time of a process up to now; 0: the process has ended. */
static uint64_t process_cpu_ns(uint64_t tgid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid((pid_t)tgid, &clock) || clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/*
 * Waits until the span is over. Stores how much CPU time the process used in the span and before
 * it, because that shows which part of its work was recorded. clocks: the clocks of its threads,
 * opened before the probes were attached. If there are none, the process's own clock is used.
 */
static void wait_span(struct attaching *a, const struct probe_calls *calls,
		      const struct limit_clocks *clocks)
{
	uint64_t start_ns = process_cpu_ns(a->p.id.tgid), exact_ns = limit_clocks_ns(clocks);
	uint64_t from_ns = now_mono_ns();
	struct limit_spent *x = &a->spent;

	calls->attached_wait(a->attached, a->span.span_ns, a->span.max_hits, &x->attached_ns,
			     &x->hits);
	exact_ns = limit_clocks_ns(clocks) - exact_ns;
	a->end = (struct span_end){process_cpu_ns(a->p.id.tgid), now_mono_ns()};
	x->cpu_ns = a->end.cpu_ns > start_ns ? a->end.cpu_ns - start_ns : 0;
	if (clocks->n)
		x->cpu_ns = exact_ns;
	x->first = !a->before.cpu_ns;
	if (a->before.cpu_ns && start_ns > a->before.cpu_ns)
		x->cpu_before_ns = start_ns - a->before.cpu_ns;
	if (a->before.cpu_ns && from_ns > a->before.mono_ns)
		x->before_ns = from_ns - a->before.mono_ns;
}

/*
 * Raises the priority of this thread. Otherwise it may wait for a CPU while probes that should be
 * detached slow a process down. If that is not permitted, the priority stays as it is.
 */
static void hurry(void)
{
	setpriority(PRIO_PROCESS, 0, PROBES_NICE); /* 0: this thread only */
}

/* Whether the namespace blocks a thread. One is enough, so its other processes wait. */
static bool is_held(struct attaching *a)
{
	if (!work_is_blocked(&a->p.follow->stuck, a->p.ns))
		return false;
	a->p.task.refused = true;
	a->attached = TAKE_PTR(a->old);
	a->result = -EAGAIN;
	return true;
}

static void attach_run(struct task *task)
{
	struct attaching *a = (struct attaching *)task;
	const struct probe_calls *calls = a->p.follow->calls->probes;
	struct probes *p = kernel_probes(a->p.follow->config.kernel);
	struct limit_clocks clocks = {0};
	uint32_t tgid = (uint32_t)a->p.id.tgid;
	uint64_t start_ns;

	hurry();
	if (is_held(a))
		return;
	if (a->old) {
		a->attached = TAKE_PTR(a->old);
		a->result = calls->attach_change(p, a->attached, &a->files.process, a->files.files,
						 a->files.n_files, &a->refused);
		return;
	}
	if (a->span.span_ns && limit_clocks_open(tgid, &clocks))
		counter_add(counter("podflame_probes_spans_coarse_total", NULL, NULL), 1);
	start_ns = now_mono_ns();
	a->result = calls->attach(p, a->p.set, a->p.id, &a->files.process, a->files.files,
				  a->files.n_files, &a->attached, &a->refused);
	/*
	 * If attaching took too long because of a file, the work of the process in that time does
	 * not count: the span counts as the first one.
	 */
	if (now_mono_ns() > start_ns + PROBES_LIMIT_NS)
		a->before = (struct span_end){0};
	if (a->result == 0 && a->span.span_ns) {
		/*
		 * An estimate: detaching takes as long as attaching. The wait for RCU after it
		 * costs the process nothing.
		 */
		a->in_place_ns = 2 * (now_mono_ns() - start_ns);
		wait_span(a, calls, &clocks);
		a->in_place_ns += a->spent.attached_ns;
		calls->detach_all(p, &a->attached, 1);
		a->attached = NULL;
	}
	limit_clocks_close(&clocks);
}

static void detach_run(struct task *task)
{
	struct detaching *d = (struct detaching *)task;

	hurry();
	d->p.follow->calls->probes->detach_all(kernel_probes(d->p.follow->config.kernel), d->items,
					       d->n);
}

/*
 * A task counts with few bytes, so the queue has room for all tasks that are posted here. No task
 * is refused, and probes are always detached.
 */
static void post(struct probing *p)
{
	struct follow *f = p->follow;

	p->task.job.deadline_ns = PROBES_LIMIT_NS;
	f->n_attaching++;
	work_post(f->config.work, f->config.work->probing, &p->task, 0);
}

/* ---- jobs that are blocked by a file that cannot be read (NFS) or by the kernel ---- */

static void forget_refusal(struct probed *x)
{
	x->refused = false;
	x->n_refused = 0;
	x->stuck = NULL;
	follow_probed_tell_not_seen(x);
}

static void came_back(struct probing *p)
{
	struct follow *f = p->follow;
	struct probed *x = probed_of(p);

	/*
	 * Removes the problem that this job caused. Otherwise it would be reported until probes are
	 * attached again, which may be never. The problem of a later refusal stays.
	 */
	if (x && x->stuck == p)
		forget_refusal(x);
	assert_se(f->n_attaching > 0);
	f->n_attaching--;
	f->n_moves = follow_probed_moves(f);
	work_left_behind_ended(f->config.work, &f->stuck, &f->config.work->probing, &p->task.job);
}

/*
 * Whether the worker has made progress since the last check: then it is slow, but not blocked.
 * Classic uprobes need a link per place, which takes long for many processes.
 */
static bool gets_on(struct follow *f)
{
	uint64_t before = f->n_moves;

	f->n_moves = follow_probed_moves(f);
	return f->n_moves != before;
}

void follow_probed_stuck(struct worker *w, struct job *job, void *follow)
{
	struct probing *p = (struct probing *)job;
	struct follow *f = follow;
	struct probed *x = probed_of(p);
	_cleanup_free_ char *why =
		xasprintf("it takes more than %llu s: does the file system of its program or "
			  "libraries answer?",
			  PROBES_LIMIT_NS / NSEC_PER_SEC);

	if (gets_on(f)) {
		f->config.work->threads->give_time(w);
		return;
	}
	counter_add(counter(PROBES_COUNTER, "result", "stuck"), 1);
	log_warn("probes of process %llu: %s", (unsigned long long)p->id.tgid, why);
	if (x) {
		/* until this job has come back or another one has succeeded */
		x->refused = true;
		x->stuck = p;
		follow_probed_set_problem(x, "its probes are being attached or detached: ", why);
	}
	work_left_behind(f->config.work, &f->stuck, &f->config.work->probing, job, p->ns);
}

static void detach_done(struct task *task)
{
	struct detaching *d = (struct detaching *)task;

	came_back(&d->p);
	free(d->items);
}

/* of: the process and set of the items, or of one of them. Takes ownership of the array. */
static void detach(const struct probing *of, struct attached **items, size_t n)
{
	struct detaching *d = xcalloc(1, sizeof(*d));

	d->p = (struct probing){.follow = of->follow, .id = of->id, .ns = of->ns, .set = of->set};
	d->p.task.run = detach_run;
	d->p.task.done = detach_done;
	d->items = items;
	d->n = n;
	post(&d->p);
}

static void detach_one(const struct probing *of, struct attached *old)
{
	detach(of, xmemdup(&old, sizeof(old)), 1);
}

uint64_t follow_probed_later_ns(unsigned n_before)
{
	return MIN(AGAIN_NS << MIN(n_before, 10u), (uint64_t)REFUSED_NS);
}

/*
 * Returns the wait after a refusal. If the reason may pass, the first tries come soon. Later ones
 * come less often, because all processes of the node may be refused at once.
 */
static uint64_t again_ns(struct probed *x, int result)
{
	return probes_may_pass(result) ? follow_probed_later_ns(x->n_refused++) : REFUSED_NS;
}

static void refused(struct probed *x, const struct attaching *a)
{
	x->stuck = NULL;
	x->long_span = (struct long_span){0};
	x->next_ns = now_mono_ns() + again_ns(x, a->result);
	x->refused = true;
	if (a->p.task.refused)
		follow_probed_set_problem(
			x, "the agent does not attach its probes now: ",
			"a process of its namespace blocks a thread of the agent");
	else if (a->result != -ESRCH && (a->result != -EAGAIN || x->n_refused >= AGAIN_TOLD))
		follow_probed_set_problem(
			x, "the agent cannot attach its probes: ", strerror(-a->result));
}

/* ---- attached ---- */

/*
 * Returns by how much the next span is put off because the probes were attached longer than
 * planned. So the spans cost no more than planned.
 */
static uint64_t late_ns(const struct attaching *a)
{
	double times = (double)a->in_place_ns / (double)a->span.span_ns - 1;

	return times > 0 ? (uint64_t)(MIN(times, LATE_MAX) * (double)a->span.wait_ns) : 0;
}

static void keep_attached(struct probed *x, struct attaching *a)
{
	x->attached = TAKE_PTR(a->attached);
	x->attached_at_ns = now_mono_ns();
	follow_long_span_attached(x);
	if (x->set == PROBES_MEMORY)
		follow_unseen_begin_anew(x->tracked);
	follow_probed_watch(x);
}

static void take_attached(struct probed *x, struct attaching *a)
{
	if (a->result < 0) {
		refused(x, a);
		if (a->attached && !x->attached) /* the probes could not be changed */
			keep_attached(x, a);
		x->stale = true;
		return;
	}
	if (x->refused || x->refused_sites.n != a->refused.n ||
	    x->refused_sites.inuse != a->refused.inuse ||
	    x->refused_sites.objects != a->refused.objects ||
	    x->refused_sites.too_many != a->refused.too_many) {
		x->refused_sites = a->refused;
		forget_refusal(x);
	}
	if (a->span.span_ns) {
		x->span_end = a->end;
		x->next_ns += late_ns(a);
		return;
	}
	if (x->attached)
		/*
		 * probes are attached already: these stay, and attach_done() detaches the new ones
		 */
		return;
	keep_attached(x, a);
	x->attached_mask = a->files.process.event_mask;
}

static void count_attached(const struct attaching *a)
{
	counter_add(counter(PROBES_COUNTER, "result",
			    a->result == 0		 ? "ok"
			    : probes_may_pass(a->result) ? "later"
							 : "failed"),
		    1);
	counter_add(counter("podflame_probes_sites_refused_total", NULL, NULL), a->refused.n);
	if (a->result == 0 && a->span.span_ns)
		limit_spent(a->p.follow->config.limit, a->cgroup_id, a->p.set,
			    a->files.process.event_mask, &a->spent);
}

static void attach_done(struct task *task)
{
	struct attaching *a = (struct attaching *)task;
	struct follow *f = a->p.follow;
	struct probed *x = probed_of(&a->p);

	came_back(&a->p);
	f->n_spans -= a->span.span_ns != 0;
	count_attached(a);
	if (x) {
		x->busy = false;
		if (x->tracked->exec_id == a->files.process.exec_id)
			take_attached(x, a);
	}
	if (a->attached) /* the process was forgotten, or is another program by now */
		detach_one(&a->p, a->attached);
	proc_mappings_unref(a->m);
	learn_site_files_done(&a->files);
	if (x && !task->work->closing)
		follow_probed_advance(x);
}

static struct attached *take_away(struct probed *x)
{
	if (x->attached)
		follow_probed_unwatch(x);
	return TAKE_PTR(x->attached);
}

void follow_probed_attach(struct probed *x, unsigned event_mask, const struct limit_span *span)
{
	struct attaching *a = xcalloc(1, sizeof(*a));

	a->p = probing_of(x);
	a->p.task.run = attach_run;
	a->p.task.done = attach_done;
	a->cgroup_id = x->tracked->cgroup_id;
	a->before = x->span_end;
	a->m = proc_mappings_ref(x->m);
	if (span)
		a->span = *span;
	a->old = take_away(x);
	learn_site_files(x->sites, a->m, event_mask, &a->files);
	a->files.process.no_queries = span != NULL;
	a->files.process.launches_ms = (uint32_t)(x->long_span.span_ns / NSEC_PER_MSEC);
	x->busy = true;
	a->p.follow->n_spans += a->span.span_ns != 0;
	post(&a->p);
}

struct span_end follow_span_end_now(const struct tracked *t)
{
	return (struct span_end){process_cpu_ns(t->id.tgid), now_mono_ns()};
}

/* Takes the attached probes out of x. Returns NULL if there are none. */
static struct attached *end(struct probed *x)
{
	struct attached *old = take_away(x);

	if (!old)
		return NULL;
	x->attached_mask = 0;
	x->long_span = (struct long_span){0};
	/* all allocations up to now were recorded */
	x->span_end = follow_span_end_now(x->tracked);
	return old;
}

void follow_probed_detach(struct probed *x)
{
	struct attached *old = end(x);
	const struct probing of = probing_of(x);

	if (old)
		detach_one(&of, old);
}

void follow_probed_detach_all(struct follow *f)
{
	struct attached **items =
		xcalloc(follow_probed_n_watched(f) + 1, sizeof(struct attached *));
	struct probing of = {0};
	struct tracked *t, *next;
	size_t n = 0;

	HASH_ITER (hh, f->tracked, t, next)
		for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++) {
			struct attached *old = end(&t->probed[set]);

			if (!old)
				continue;
			of = probing_of(&t->probed[set]);
			items[n++] = old;
		}
	if (n)
		detach(&of, items, n);
	else
		free(items);
}
