/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See overhead.h. The books: what each cgroup was hit with, and the CPU time that it used, which is read on the os
 * worker in rounds; overhead_rules.c says what follows.
 */
#include "node/overhead_private.h"

#include <math.h>
#include <stdlib.h>

#define ROUND_NS      (2 * NSEC_PER_SEC)
#define LATELY_NS     (10 * NSEC_PER_SEC)
#define READ_LIMIT_NS (10 * NSEC_PER_SEC)
#define RETRY_NS      (600 * NSEC_PER_SEC)
#define TRY_AGAIN_NS  NSEC_PER_SEC	   /* a trial that could not be */
#define STALL_NS      (20 * NSEC_PER_MSEC) /* of mem-inuse, which has no maxStall */
#define SPANS_WEIGHT  0.8		   /* of the cost so far, when a span has ended */
#define SETTLED_SPANS 3			   /* before that, what is steady is not believed, */
#define TRIALS	      3			   /* nor, before so many, that it is too much */
#define MAX_PAYERS    8192
#define IDLE_CPU_NS   NSEC_PER_MSEC /* a first span with less says nothing, */
#define IDLE_SPANS    4		    /* if there are not so many of them */
#define MEMORY_EVENTS (1u << EVENT_MEM_ALLOC | 1u << EVENT_MEM_INUSE)

/* ---- payers ---- */

/* Counters fall when the programs were loaded anew. */
static uint64_t since(uint64_t last, uint64_t now)
{
	return now >= last ? now - last : now;
}

static struct payer *find(const struct overhead *o, uint64_t cgroup_id)
{
	struct payer *p;

	HASH_FIND(hh, o->payers, &cgroup_id, sizeof(cgroup_id), p);
	return p;
}

/* NULL: it is not selected (any more). */
static struct owner *owner_now(const struct overhead *o, uint64_t cgroup_id)
{
	uint64_t until_ns;
	struct owner *owner = procs_owner(o->node->procs, cgroup_id, &until_ns);

	return owner && until_ns == UINT64_MAX ? owner : owner_unref(owner);
}

static struct payer *get(struct overhead *o, uint64_t cgroup_id)
{
	struct payer *p = find(o, cgroup_id);
	struct owner *owner;

	if (p)
		return p;
	owner = HASH_COUNT(o->payers) < MAX_PAYERS ? owner_now(o, cgroup_id) : NULL;
	if (!owner)
		return NULL;
	p = xcalloc(1, sizeof(*p));
	p->cgroup_id = cgroup_id;
	p->owner = owner;
	p->off = OFF_SHARES_ALL;
	HASH_ADD(hh, o->payers, cgroup_id, sizeof(p->cgroup_id), p);
	return p;
}

static void forget(struct overhead *o, struct payer *p)
{
	HASH_DEL(o->payers, p);
	owner_unref(p->owner);
	free(p);
}

/* Off-cpu and memory go halves, where there is a limit; the two events of memory share their traps. */
double overhead_percent(const struct payer *p)
{
	double percent = p->owner->overhead_percent;

	if (percent <= 0)
		percent = OVERHEAD_DEFAULT_PERCENT;
	if (percent < 100 && p->owner->event_mask & MEMORY_EVENTS &&
	    p->owner->event_mask & 1u << EVENT_OFF_CPU)
		percent /= 2;
	return percent;
}

uint64_t overhead_hit_ns(const struct overhead *o, const struct payer *p)
{
	const struct probe_usage *a = &p->of[EVENT_MEM_ALLOC].last,
				 *u = &p->of[EVENT_MEM_INUSE].last;
	const struct event_settings *s = &p->owner->settings;
	uint64_t hits = a->hits + u->hits;
	double taken = hits ? (double)(a->taken + u->taken) / (double)hits
			    : s->alloc_sample_bytes == 1 || s->inuse_sample_bytes == 1;

	return o->trap_ns + (uint64_t)(fmin(taken, 1) * OVERHEAD_WALK_NS);
}

static struct trap_limit trap_limit(const struct overhead *o, const struct payer *p)
{
	uint32_t stall_us = p->owner->settings.max_stall_us;

	return (struct trap_limit){
		.percent = overhead_percent(p),
		.max_stall_ns = stall_us ? stall_us * 1000ull : STALL_NS,
		.trap_ns = overhead_hit_ns(o, p),
	};
}

/* ---- memory ---- */

static bool may_retry(const struct overhead *o, const struct payer *p, const struct account *a)
{
	return now_mono_ns() >= a->retry_ns || overhead_asked(o, p) != a->asked;
}

/* What it is, from now on. */
static void set_mode(struct overhead *o, struct payer *p, enum event e, enum overhead_mode mode)
{
	struct account *a = &p->of[e];

	if (mode == OVERHEAD_REFUSED) {
		a->asked = overhead_asked(o, p);
		a->retry_ns = now_mono_ns() + RETRY_NS;
		counter_add(counter("podflame_over_budget_total", "event", event_info(e)->name), 1);
	}
	if (mode == OVERHEAD_STEADY && (a->mode != mode || !a->tried))
		p->lately = (struct traps){0};
	if (mode != OVERHEAD_SPANS)
		a->spans = (struct spans){0};
	a->tried = true;
	a->mode = mode;
}

static void traps_add(struct traps *sum, const struct traps *t, double weight)
{
	sum->attached_ns = sum->attached_ns * weight + t->attached_ns;
	sum->hits = sum->hits * weight + t->hits;
	sum->cpu_ns = sum->cpu_ns * weight + t->cpu_ns;
}

static void decide(struct overhead *o, struct payer *p, enum event e, const struct traps *cost)
{
	struct trap_limit l = trap_limit(o, p);
	struct account *a = &p->of[e];
	enum overhead_mode mode;

	mode = overhead_decide(e, OVERHEAD_SPANS, cost, &l, &a->span, &a->why);
	a->cost = *cost;
	if (cost->attached_ns > 0)
		p->cpus = cost->cpu_ns / cost->attached_ns;
	if (mode == OVERHEAD_REFUSED && !a->tried && a->n_trials < TRIALS)
		return;
	if (mode == OVERHEAD_STEADY && a->mode == OVERHEAD_SPANS && a->spans.n < SETTLED_SPANS)
		return;
	set_mode(o, p, e, mode);
}

/* By all trials together: a refusal lasts, and one of them may have met what happens rarely. */
static void decide_trial(struct overhead *o, struct payer *p, enum event e, const struct traps *t)
{
	struct account *a = &p->of[e];

	traps_add(&a->trials, t, 1);
	a->n_trials++;
	decide(o, p, e, &a->trials);
}

enum overhead_mode overhead_mode(struct overhead *o, uint64_t cgroup_id, enum event e,
				 struct overhead_span *ret_span)
{
	struct payer *p = get(o, cgroup_id);
	struct account *a = p ? &p->of[e] : NULL;
	const struct account *inuse = p ? &p->of[EVENT_MEM_INUSE] : NULL;
	struct trap_limit l;

	if (!p)
		return OVERHEAD_REFUSED;
	l = trap_limit(o, p);
	if (a->mode == OVERHEAD_REFUSED && may_retry(o, p, a))
		*a = (struct account){.last = a->last};
	/* Who can pay for both pays less for one. */
	if (!a->tried && e == EVENT_MEM_ALLOC && inuse->tried && inuse->mode == OVERHEAD_STEADY)
		set_mode(o, p, e, OVERHEAD_STEADY);
	if (!a->tried) {
		*ret_span = overhead_trial(&l);
		ret_span->wait_ns = TRY_AGAIN_NS;
		return OVERHEAD_SPANS;
	}
	if (a->mode == OVERHEAD_SPANS) {
		*ret_span = a->span;
		ret_span->wait_ns = a->span.wait_ns / 2 + random_below(a->span.wait_ns + 1);
	}
	return a->mode;
}

static void spent_alloc(struct overhead *o, struct payer *p, const struct overhead_spent *x,
			const struct traps *t)
{
	struct account *a = &p->of[EVENT_MEM_ALLOC];
	struct traps cost = a->cost;

	a->n_spans++;
	overhead_span_add(&a->spans, x, overhead_hit_ns(o, p));
	if (!a->tried) {
		decide_trial(o, p, EVENT_MEM_ALLOC, t);
		return;
	}
	traps_add(&cost, t, SPANS_WEIGHT);
	decide(o, p, EVENT_MEM_ALLOC, &cost);
}

/* It slept, or others had the CPU. */
static bool was_idle(struct payer *p, unsigned event_mask, const struct overhead_spent *x)
{
	for (enum event e = EVENT_MEM_ALLOC; e <= EVENT_MEM_INUSE; e++)
		if (event_mask & 1u << e && !p->of[e].tried && x->cpu_ns < IDLE_CPU_NS &&
		    p->of[e].n_idle++ < IDLE_SPANS)
			return true;
	return false;
}

void overhead_spent(struct overhead *o, uint64_t cgroup_id, unsigned event_mask,
		    const struct overhead_spent *x)
{
	struct payer *p = find(o, cgroup_id);
	struct traps t = {(double)x->attached_ns, (double)x->hits, (double)x->cpu_ns};
	const struct account *inuse;

	counter_add(counter("podflame_memory_spans_total", NULL, NULL), 1);
	counter_add(counter("podflame_memory_spans_ns_total", NULL, NULL), x->attached_ns);
	if (!p || was_idle(p, event_mask, x))
		return;
	inuse = &p->of[EVENT_MEM_INUSE];
	if (event_mask & 1u << EVENT_MEM_INUSE)
		decide_trial(o, p, EVENT_MEM_INUSE, &t);
	if (event_mask == 1u << EVENT_MEM_ALLOC)
		spent_alloc(o, p, x, &t);
	else if (event_mask == MEMORY_EVENTS && inuse->mode == OVERHEAD_STEADY)
		set_mode(o, p, EVENT_MEM_ALLOC, OVERHEAD_STEADY);
	/* else: both are tried again, or too much, and mem-alloc alone is tried next */
	overhead_tell(o);
}

static bool is_steady(const struct account *a)
{
	return a->tried && a->mode == OVERHEAD_STEADY;
}

static void watch_memory(struct overhead *o, struct payer *p, uint64_t elapsed_ns, uint64_t cpu_ns)
{
	struct account *alloc = &p->of[EVENT_MEM_ALLOC], *inuse = &p->of[EVENT_MEM_INUSE];
	struct traps recent = {(double)elapsed_ns, (double)(alloc->round.hits + inuse->round.hits),
			       (double)cpu_ns};
	double weight = exp(-(double)elapsed_ns / LATELY_NS);
	struct trap_limit l = trap_limit(o, p);

	if (!is_steady(alloc) && !is_steady(inuse))
		return;
	traps_add(&p->lately, &recent, weight);
	p->cpus = p->lately.cpu_ns / fmax(p->lately.attached_ns, 1);
	if (!overhead_exceeded(&recent, &p->lately, &l))
		return;
	if (overhead_load(&recent, l.trap_ns) < overhead_load(&p->lately, l.trap_ns))
		recent = p->lately;
	if (is_steady(inuse)) {
		/* What entries alone cost is to be found out. */
		if (is_steady(alloc))
			*alloc = (struct account){.last = alloc->last};
		decide(o, p, EVENT_MEM_INUSE, &recent);
	} else {
		decide(o, p, EVENT_MEM_ALLOC, &recent);
	}
}

bool overhead_stalled(struct overhead *o, uint64_t cgroup_id, uint64_t hits, uint64_t elapsed_ns,
		      double *stall_ns)
{
	struct payer *p = find(o, cgroup_id);
	struct account *alloc = p ? &p->of[EVENT_MEM_ALLOC] : NULL;
	struct traps t = {(double)elapsed_ns, (double)hits, (double)elapsed_ns};
	struct trap_limit l;

	if (!p)
		return false;
	l = trap_limit(o, p);
	if (!overhead_stalls(stall_ns, hits, elapsed_ns, p->cpus, &l))
		return false;
	t.cpu_ns *= fmax(p->cpus, 1);
	counter_add(counter("podflame_memory_stalls_total", NULL, NULL), 1);
	if (is_steady(&p->of[EVENT_MEM_INUSE]))
		decide(o, p, EVENT_MEM_INUSE, &t);
	if (is_steady(alloc)) {
		alloc->cost = (struct traps){0};
		alloc->span = overhead_after_stall(&l);
		set_mode(o, p, EVENT_MEM_ALLOC, OVERHEAD_SPANS);
	}
	overhead_tell(o);
	return true;
}

/* ---- off-cpu ---- */

/* Cgroups within a container: the filter knows the container. */
static void keep(struct overhead *o, const struct payer *p)
{
	struct off_shares least = p->off;

	for (const struct payer *x = o->payers; x; x = x->hh.next)
		if (str_equal(x->owner->container_id, p->owner->container_id))
			least = OFF_SHARES(MIN(least.note, x->off.note),
					   MIN(least.keep, x->off.keep));
	if (p->owner->container_id)
		procs_keep_off(o->node->procs, p->owner->container_id, least.note, least.keep);
}

static void watch_switches(struct overhead *o, struct payer *p, uint64_t cpu_ns)
{
	const struct account *a = &p->of[EVENT_OFF_CPU];
	struct switches s = {a->round.hits, cpu_ns};
	bool asked = p->owner->event_mask & 1u << EVENT_OFF_CPU;
	struct off_shares before = p->off;

	p->off = asked ? overhead_off_shares(before, &s, overhead_percent(p)) : OFF_SHARES_ALL;
	if (p->off.note != before.note || p->off.keep != before.keep)
		keep(o, p);
}

/* ---- rounds: CPU time, read on the os worker ---- */

struct cpu_time {
	uint64_t cgroup_id;
	struct cgroup_cpu cpu;
	struct probe_usage round[_EVENT_MAX];
	bool known;
};
struct reading {
	struct task task;
	struct overhead *overhead;
	struct cpu_time *items;
	size_t n;
	uint64_t at_ns;
};

static void read_run(struct task *task)
{
	struct reading *r = (struct reading *)task;
	const struct cgroup_hierarchy *h = kernel_hierarchy(task->node->kernel);

	r->at_ns = now_mono_ns();
	for (size_t i = 0; i < r->n && h->mount[0]; i++)
		r->items[i].known =
			cgroup_cpu_read(h, r->items[i].cgroup_id, &r->items[i].cpu) == 0;
}

/* What it used since the last round; not known: as if one CPU all the time. */
static uint64_t take_cpu(struct payer *p, const struct cpu_time *x, uint64_t elapsed_ns)
{
	uint64_t before_ns = p->cpu_ns;

	p->cpu_ns = x->known ? x->cpu.usage_ns : 0;
	if (!x->known)
		counter_add(counter("podflame_cgroup_cpu_unread_total", NULL, NULL), 1);
	return x->known && before_ns && p->cpu_ns >= before_ns ? p->cpu_ns - before_ns : elapsed_ns;
}

static void end_round(struct overhead *o, struct payer *p, const struct reading *r,
		      const struct cpu_time *x)
{
	uint64_t elapsed_ns = r->at_ns - p->cpu_at_ns, cpu_ns;
	bool first = !p->cpu_at_ns;

	cpu_ns = take_cpu(p, x, elapsed_ns);
	p->cpu_at_ns = r->at_ns;
	for (enum event e = 0; e < _EVENT_MAX; e++)
		p->of[e].round = x->round[e];
	if (!first) {
		watch_switches(o, p, cpu_ns);
		watch_memory(o, p, elapsed_ns, cpu_ns);
	}
	for (enum event e = 0; e < _EVENT_MAX; e++)
		p->of[e].round = (struct probe_usage){0};
}

static void read_done(struct task *task)
{
	struct reading *r = (struct reading *)task;
	struct overhead *o = r->overhead;

	o->reading = false;
	for (size_t i = 0; !task->refused && i < r->n; i++) {
		struct payer *p = find(o, r->items[i].cgroup_id);

		if (p && !task->node->closing)
			end_round(o, p, r, &r->items[i]);
	}
	free(r->items);
	if (!task->node->closing)
		overhead_tell(o);
}

/* Whose container has ended or is not selected any more is forgotten, and what is not asked for of the others. */
static void refresh_owners(struct overhead *o)
{
	struct payer *p, *next;

	HASH_ITER (hh, o->payers, p, next) {
		struct owner *owner = owner_now(o, p->cgroup_id);

		if (!owner) {
			forget(o, p);
			continue;
		}
		owner_unref(p->owner);
		p->owner = owner;
		for (enum event e = 0; e < _EVENT_MAX; e++)
			if (!(owner->event_mask & 1u << e))
				p->of[e] = (struct account){.last = p->of[e].last};
	}
}

static void begin_round(struct overhead *o)
{
	struct reading *r;
	size_t i = 0;

	refresh_owners(o);
	if (!o->payers) {
		overhead_tell(o);
		return;
	}
	r = xcalloc(1, sizeof(*r));
	r->overhead = o;
	r->n = HASH_COUNT(o->payers);
	r->items = xcalloc(r->n, sizeof(*r->items));
	for (struct payer *p = o->payers; p; p = p->hh.next, i++) {
		r->items[i].cgroup_id = p->cgroup_id;
		for (enum event e = 0; e < _EVENT_MAX; e++) {
			r->items[i].round[e] = p->of[e].round;
			p->of[e].round = (struct probe_usage){0};
		}
	}
	r->task.run = read_run;
	r->task.done = read_done;
	r->task.job.deadline_ns = READ_LIMIT_NS;
	o->reading = true;
	task_post(o->node, o->node->os, &r->task, r->n * sizeof(*r->items));
}

/* ---- what the kernel counted ---- */

static void add_usage(struct account *a, const struct probe_usage *u)
{
	a->drain.hits = since(a->last.hits, u->hits);
	a->drain.taken = since(a->last.taken, u->taken);
	a->drain.value = since(a->last.value, u->value);
	a->drain.square = since(a->last.square, u->square);
	a->round.hits += a->drain.hits;
	a->round.taken += a->drain.taken;
	a->last = *u;
}

void overhead_usage(struct overhead *o, const struct probe_usage *u, size_t n, uint64_t trap_ns)
{
	for (struct payer *p = o->payers; p; p = p->hh.next)
		for (enum event e = 0; e < _EVENT_MAX; e++) {
			p->of[e].drain = (struct probe_usage){0};
			p->of[e].n_spans_drained = p->of[e].n_spans;
			p->of[e].n_spans = 0;
		}
	if (trap_ns)
		o->trap_ns = trap_ns + OVERHEAD_PROGRAM_NS;
	counter_set(counter("podflame_trap_ns", NULL, NULL), o->trap_ns);
	for (size_t i = 0; i < n; i++) {
		struct payer *p = u[i].event < _EVENT_MAX ? get(o, u[i].cgroup_id) : NULL;

		if (p)
			add_usage(&p->of[u[i].event], &u[i]);
	}
	if (o->reading || now_mono_ns() < o->round_ns)
		return;
	o->round_ns = now_mono_ns() + ROUND_NS;
	begin_round(o);
}

/* ---- estimates ---- */

struct estimate overhead_estimate(const struct overhead *o, uint64_t cgroup_id, enum event e)
{
	const struct payer *p = find(o, cgroup_id);

	return p ? overhead_estimate_of(o, p, e) : (struct estimate){0};
}

/* ---- life ---- */

struct overhead *overhead_new(struct node *n)
{
	struct overhead *o = xcalloc(1, sizeof(*o));

	o->node = n;
	o->trap_ns = OVERHEAD_TRAP_NS;
	return o;
}

struct overhead *overhead_free(struct overhead *o)
{
	struct payer *p, *next;

	if (!o)
		return NULL;
	HASH_ITER (hh, o->payers, p, next)
		forget(o, p);
	told_done(&o->refused);
	told_done(&o->estimated);
	free(o);
	return NULL;
}
