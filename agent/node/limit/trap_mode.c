/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides for each container whether the probes of its memory events are attached steadily, in
 * spans or not at all. It uses the cost of trials, spans and rounds. rules.h has the rules,
 * payers.c the accounts. This file attaches nothing. Loop thread.
 */
#include "node/limit/internal.h"

#include <math.h>

#define LATELY_NS     (10 * NSEC_PER_SEC)
#define RETRY_NS      (600 * NSEC_PER_SEC)
#define TRY_AGAIN_NS  NSEC_PER_SEC	   /* time to the next trial, if a trial was not possible */
#define STALL_NS      (20 * NSEC_PER_MSEC) /* used for mem-inuse, which has no maxStall */
#define SPANS_WEIGHT  0.8		   /* weight of the old cost when a span has ended */
#define SETTLED_SPANS 3			   /* number of spans after which LIMIT_STEADY is allowed */
/* number of trials after which the event may be refused */
#define TRIALS 3
/* a trial in which the process used less CPU time does not count, */
#define IDLE_CPU_NS NSEC_PER_MSEC
#define IDLE_SPANS  4 /* but at most this many trials are left out */

uint64_t limit_hit_ns(const struct limit *o, const struct payer *p)
{
	const struct probe_usage *a = &p->of[EVENT_MEM_ALLOC].last,
				 *u = &p->of[EVENT_MEM_INUSE].last;
	const struct event_settings *s = &p->owner->settings;
	uint64_t hits = a->hits + u->hits;
	double taken = hits ? (double)(a->taken + u->taken) / (double)hits
			    : s->alloc_sample_bytes == 1 || s->inuse_sample_bytes == 1;

	return o->trap_ns + (uint64_t)(fmin(taken, 1) * LIMIT_WALK_NS);
}

static struct trap_limit trap_limit(const struct limit *o, const struct payer *p)
{
	uint32_t stall_us = p->owner->settings.max_stall_us;

	return (struct trap_limit){
		.percent = limit_percent(p),
		.max_stall_ns = stall_us ? stall_us * 1000ull : STALL_NS,
		.trap_ns = limit_hit_ns(o, p),
	};
}

static bool may_retry(const struct limit *o, const struct payer *p, const struct account *a)
{
	return now_mono_ns() >= a->retry_ns || limit_asked(o, p) != a->asked;
}

/* Sets the new mode. If it is LIMIT_REFUSED, sets when to try again. */
static void set_mode(struct limit *o, struct payer *p, enum event e, enum limit_mode mode)
{
	struct account *a = &p->of[e];

	if (mode == LIMIT_REFUSED) {
		a->asked = limit_asked(o, p);
		a->retry_ns = now_mono_ns() + RETRY_NS;
		counter_add(
			counter("podflame_over_budget_total", "event", profile_event_info(e)->name),
			1);
	}
	if (mode == LIMIT_STEADY && (a->mode != mode || !a->tried))
		p->lately = (struct traps){0};
	if (mode != LIMIT_SPANS)
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

static void decide(struct limit *o, struct payer *p, enum event e, const struct traps *cost)
{
	struct trap_limit l = trap_limit(o, p);
	struct account *a = &p->of[e];
	enum limit_mode mode;

	mode = limit_decide(e, LIMIT_SPANS, cost, &l, &a->span, &a->why);
	a->cost = *cost;
	if (cost->attached_ns > 0)
		p->cpus = cost->cpu_ns / cost->attached_ns;
	if (mode == LIMIT_REFUSED && !a->tried && a->n_trials < TRIALS)
		return;
	if (mode == LIMIT_STEADY && a->mode == LIMIT_SPANS && a->spans.n < SETTLED_SPANS)
		return;
	set_mode(o, p, e, mode);
}

/*
 * Decides from all trials together, because a refusal lasts long, and a single trial may not be
 * typical.
 */
static void decide_trial(struct limit *o, struct payer *p, enum event e, const struct traps *t)
{
	struct account *a = &p->of[e];

	traps_add(&a->trials, t, 1);
	a->n_trials++;
	decide(o, p, e, &a->trials);
}

enum limit_mode limit_mode(struct limit *o, uint64_t cgroup_id, enum event e,
			   struct limit_span *ret_span)
{
	struct payer *p = limit_payer_get(o, cgroup_id);
	struct account *a = p ? &p->of[e] : NULL;
	const struct account *inuse = p ? &p->of[EVENT_MEM_INUSE] : NULL;
	struct trap_limit l;

	if (!p)
		return LIMIT_REFUSED;
	l = trap_limit(o, p);
	if (a->mode == LIMIT_REFUSED && may_retry(o, p, a))
		*a = (struct account){.last = a->last};
	/* If a container may have both events, it may also have only mem-alloc. */
	if (!a->tried && e == EVENT_MEM_ALLOC && inuse->tried && inuse->mode == LIMIT_STEADY)
		set_mode(o, p, e, LIMIT_STEADY);
	if (!a->tried) {
		*ret_span = limit_trial(&l);
		ret_span->wait_ns = TRY_AGAIN_NS;
		return LIMIT_SPANS;
	}
	if (a->mode == LIMIT_SPANS) {
		*ret_span = a->span;
		ret_span->wait_ns = a->span.wait_ns / 2 + random_below(a->span.wait_ns + 1);
	}
	return a->mode;
}

static void spent_alloc(struct limit *o, struct payer *p, const struct limit_spent *x,
			const struct traps *t)
{
	struct account *a = &p->of[EVENT_MEM_ALLOC];
	struct traps cost = a->cost;

	a->n_spans++;
	limit_span_add(&a->spans, x, limit_hit_ns(o, p));
	if (!a->tried) {
		decide_trial(o, p, EVENT_MEM_ALLOC, t);
		return;
	}
	traps_add(&cost, t, SPANS_WEIGHT);
	decide(o, p, EVENT_MEM_ALLOC, &cost);
}

/* Whether the process did almost nothing in a trial: it slept, or other processes had the CPU. */
static bool was_idle(struct payer *p, unsigned event_mask, const struct limit_spent *x)
{
	for (enum event e = EVENT_MEM_ALLOC; e <= EVENT_MEM_INUSE; e++)
		if (event_mask & 1u << e && !p->of[e].tried && x->cpu_ns < IDLE_CPU_NS &&
		    p->of[e].n_idle++ < IDLE_SPANS)
			return true;
	return false;
}

void limit_spent(struct limit *o, uint64_t cgroup_id, unsigned event_mask,
		 const struct limit_spent *x)
{
	struct payer *p = limit_payer(o, cgroup_id);
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
	else if (event_mask == MEMORY_EVENTS && inuse->mode == LIMIT_STEADY)
		set_mode(o, p, EVENT_MEM_ALLOC, LIMIT_STEADY);
	/*
	 * Else there is another trial: of both events, or, if both cost too much, of mem-alloc
	 * alone.
	 */
	limit_tell(o);
}

static bool is_steady(const struct account *a)
{
	return a->tried && a->mode == LIMIT_STEADY;
}

void limit_watch_traps(struct limit *o, struct payer *p, uint64_t elapsed_ns, uint64_t cpu_ns)
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
	if (!limit_exceeded(&recent, &p->lately, &l))
		return;
	if (limit_load(&recent, l.trap_ns) < limit_load(&p->lately, l.trap_ns))
		recent = p->lately;
	if (is_steady(inuse)) {
		/*
		 * Without mem-inuse, only the entries of functions are probed. The cost of that is
		 * not known, so mem-alloc starts with trials.
		 */
		if (is_steady(alloc))
			*alloc = (struct account){.last = alloc->last};
		decide(o, p, EVENT_MEM_INUSE, &recent);
	} else {
		decide(o, p, EVENT_MEM_ALLOC, &recent);
	}
}

bool limit_stalled(struct limit *o, uint64_t cgroup_id, uint64_t hits, uint64_t elapsed_ns,
		   double *stall_ns)
{
	struct payer *p = limit_payer(o, cgroup_id);
	struct account *alloc = p ? &p->of[EVENT_MEM_ALLOC] : NULL;
	struct traps t = {(double)elapsed_ns, (double)hits, (double)elapsed_ns};
	struct trap_limit l;

	if (!p)
		return false;
	l = trap_limit(o, p);
	if (!limit_stalls(stall_ns, hits, elapsed_ns, p->cpus, &l))
		return false;
	t.cpu_ns *= fmax(p->cpus, 1);
	counter_add(counter("podflame_memory_stalls_total", NULL, NULL), 1);
	if (is_steady(&p->of[EVENT_MEM_INUSE]))
		decide(o, p, EVENT_MEM_INUSE, &t);
	if (is_steady(alloc)) {
		alloc->cost = (struct traps){0};
		alloc->span = limit_after_stall(&l);
		set_mode(o, p, EVENT_MEM_ALLOC, LIMIT_SPANS);
	}
	limit_tell(o);
	return true;
}
