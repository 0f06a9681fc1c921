/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides for each container whether the probes of an event stay attached, are attached in spans,
 * or are not attached. The decision comes from their cost: in a trial (a first span, which shows
 * the cost), in each span, or in each round of two seconds if they stay attached. rules.h has the
 * rules, payers.c the accounts. This file attaches nothing. Loop thread.
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
/* a trial in which the process used less CPU time does not count */
#define IDLE_CPU_NS NSEC_PER_MSEC
#define IDLE_SPANS  4 /* at most this many trials do not count */

/* ---- the accounts of a set ---- */

/* What the agent assumes about a set before it has measured anything. */
static const struct {
	/*
	 * The probes of the set are attached without a trial, because the first calls matter most:
	 * a program may allocate the memory of a GPU once, when it starts, and with many calls. In
	 * the same way it may register memory for RDMA, and its first calls show which functions
	 * post requests. The agent decides from the cost of the last ten seconds, so a short burst
	 * may cost more than the limit. If both events together cost too much, the agent uses their
	 * cost to decide about the counted one, too. Alone, the counted one costs less, because
	 * functions that free memory are not probed for it. Its spans then measure this cost.
	 */
	bool begins_steadily;
	/*
	 * The share of the hits that are taken: whose stack is recorded. 0: sampleBytes decides.
	 * The entry of a function and its return are two hits.
	 */
	double taken;
	uint64_t max_stall_ns; /* 0: maxStall */
	uint64_t span_ns;      /* struct trap_limit */
} known[_PROBES_SET_MAX] = {
	/* A call of a driver takes longer than a trap, so a longer stall is no large part of it. */
	[PROBES_GPU_MEMORY] = {true, .taken = 0.5, .max_stall_ns = 100 * NSEC_PER_MSEC},
	/*
	 * Nearly all hits are launches, and each is taken. A span starts CUPTI in the process, and
	 * its end removes CUPTI. The library looks at its probes twice a second, and the probes
	 * stay after the span until work has ended (follow/long_spans.c). So the first half second
	 * of a span may be lost, and a span of one second would show little for its cost. A longer
	 * span would make the time between two spans too long: at 2 % duty, it is eight minutes
	 * now.
	 */
	[PROBES_GPU] = {true, .taken = 1, .max_stall_ns = 100 * NSEC_PER_MSEC,
			.span_ns = 10 * NSEC_PER_SEC},
	/* Programs post from loops that wait for a device, so a stall is as bad as in malloc. */
	[PROBES_RDMA] = {true, .taken = 0.5, .max_stall_ns = STALL_NS},
	/* Most hits are polls that find nothing. */
	[PROBES_RDMA_LATENCY] = {true, .taken = 0.1, .max_stall_ns = STALL_NS},
};

static struct account *counted_of(struct payer *p, enum probe_set set)
{
	return &p->of[probes_set_info(set)->counted];
}

/* Returns the account of the live event of a set; NULL: the set has no live event. */
static struct account *live_of(struct payer *p, enum probe_set set)
{
	enum event e = probes_set_info(set)->live;

	return e < _EVENT_MAX ? &p->of[e] : NULL;
}

static bool is_steady(const struct account *a)
{
	return a && a->tried && a->mode == LIMIT_STEADY;
}

static double taken_at_first(const struct payer *p, enum probe_set set)
{
	const struct event_settings *s = &p->owner->settings;

	if (known[set].taken > 0)
		return known[set].taken;
	return s->alloc_sample_bytes == 1 || s->inuse_sample_bytes == 1;
}

uint64_t limit_hit_ns(const struct limit *o, const struct payer *p, enum probe_set set)
{
	uint64_t hits = 0, taken = 0;
	double share;

	for (enum event e = 0; e < _EVENT_MAX; e++)
		if (probes_set_events(set) & 1u << e) {
			hits += p->of[e].last.hits;
			taken += p->of[e].last.taken;
		}
	share = hits ? (double)taken / (double)hits : taken_at_first(p, set);
	return o->trap_ns + (uint64_t)(fmin(share, 1) * LIMIT_WALK_NS);
}

static uint64_t max_stall_ns(const struct payer *p, enum probe_set set)
{
	uint32_t stall_us = p->owner->settings.max_stall_us;

	if (known[set].max_stall_ns)
		return known[set].max_stall_ns;
	return stall_us ? stall_us * 1000ull : STALL_NS;
}

static struct trap_limit trap_limit(const struct limit *o, const struct payer *p,
				    enum probe_set set)
{
	return (struct trap_limit){
		.percent = limit_percent(p),
		.max_stall_ns = max_stall_ns(p, set),
		.trap_ns = limit_hit_ns(o, p, set),
		.span_ns = known[set].span_ns,
	};
}

/* ---- decisions ---- */

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
		p->lately[probes_set_of(e)] = (struct traps){0};
	if (mode != LIMIT_SPANS)
		a->spans = (struct spans){0};
	if (mode != a->mode)
		a->library_ns = 0; /* what the library took before is not a cost of spans */
	a->tried = true;
	a->mode = mode;
}

static void traps_add(struct traps *sum, const struct traps *t, double weight)
{
	sum->attached_ns = sum->attached_ns * weight + t->attached_ns;
	sum->hits = sum->hits * weight + t->hits;
	sum->cpu_ns = sum->cpu_ns * weight + t->cpu_ns;
	sum->library_ns = sum->library_ns * weight + t->library_ns;
}

static void decide(struct limit *o, struct payer *p, enum event e, const struct traps *cost)
{
	struct trap_limit l = trap_limit(o, p, probes_set_of(e));
	struct account *a = &p->of[e];
	enum limit_mode mode;

	mode = limit_decide(e, LIMIT_SPANS, cost, &l, &a->span, &a->why);
	a->cost = *cost;
	if (cost->attached_ns > 0)
		p->cpus[probes_set_of(e)] = cost->cpu_ns / cost->attached_ns;
	if (mode == LIMIT_REFUSED && !a->tried && a->n_trials < TRIALS)
		return;
	if (mode == LIMIT_STEADY && a->mode == LIMIT_SPANS && a->spans.n < SETTLED_SPANS)
		return;
	set_mode(o, p, e, mode);
}

/*
 * Adds a trial and decides from all trials together, because a refusal lasts long, and a single
 * trial may not be typical.
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
	enum probe_set set = probes_set_of(e);
	struct payer *p = limit_payer_get(o, cgroup_id);
	struct account *a = p ? &p->of[e] : NULL;
	struct trap_limit l;

	if (!p)
		return LIMIT_REFUSED;
	l = trap_limit(o, p, set);
	if (a->mode == LIMIT_REFUSED && may_retry(o, p, a))
		*a = (struct account){.last = a->last};
	/*
	 * If the live event of the set stays attached, its probes already cost more than those of
	 * the counted one. So the counted one may stay attached, too.
	 */
	if (!a->tried &&
	    (known[set].begins_steadily || (a == counted_of(p, set) && is_steady(live_of(p, set)))))
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

/* ---- the cost of spans ---- */

static void spent_counted(struct limit *o, struct payer *p, enum probe_set set,
			  const struct limit_spent *x, const struct traps *t)
{
	enum event e = probes_set_info(set)->counted;
	struct account *a = &p->of[e];
	struct traps cost = a->cost;

	a->library_ns = 0;
	a->n_spans++;
	limit_span_add(&a->spans, x, limit_hit_ns(o, p, set));
	if (!a->tried) {
		decide_trial(o, p, e, t);
		return;
	}
	traps_add(&cost, t, SPANS_WEIGHT);
	decide(o, p, e, &cost);
}

/* Whether the process did almost nothing in a trial: it slept, or other processes had the CPU. */
static bool was_idle(struct payer *p, unsigned event_mask, const struct limit_spent *x)
{
	for (enum event e = 0; e < _EVENT_MAX; e++)
		if (event_mask & 1u << e && !p->of[e].tried && x->cpu_ns < IDLE_CPU_NS &&
		    p->of[e].n_idle++ < IDLE_SPANS)
			return true;
	return false;
}

void limit_spent(struct limit *o, uint64_t cgroup_id, enum probe_set set, unsigned event_mask,
		 const struct limit_spent *x)
{
	const struct probe_set_info *info = probes_set_info(set);
	struct payer *p = limit_payer(o, cgroup_id);
	struct traps t = {.attached_ns = (double)x->attached_ns,
			  .hits = (double)x->hits,
			  .cpu_ns = (double)x->cpu_ns};

	counter_add(counter("podflame_probes_spans_total", NULL, NULL), 1);
	counter_add(counter("podflame_probes_spans_ns_total", NULL, NULL), x->attached_ns);
	if (!p || was_idle(p, event_mask, x))
		return;
	t.library_ns = (double)p->of[info->counted].library_ns;
	if (event_mask != 1u << info->counted)
		decide_trial(o, p, info->live, &t);
	if (event_mask == 1u << info->counted)
		spent_counted(o, p, set, x, &t);
	else if (event_mask & 1u << info->counted && live_of(p, set)->mode == LIMIT_STEADY)
		set_mode(o, p, info->counted, LIMIT_STEADY);
	/*
	 * Else there is another trial: of both events, or, if both cost too much, of the counted
	 * one alone.
	 */
	limit_tell(o);
}

/* ---- the cost of what is attached steadily ---- */

static void watch_set(struct limit *o, struct payer *p, enum probe_set set,
		      const struct traps *round)
{
	const struct probe_set_info *info = probes_set_info(set);
	struct account *counted = counted_of(p, set), *live = live_of(p, set);
	struct trap_limit l = trap_limit(o, p, set);
	struct traps recent = *round, *lately = &p->lately[set];

	if (!is_steady(counted) && !is_steady(live))
		return;
	recent.hits = (double)(counted->round.hits + (live ? live->round.hits : 0));
	recent.library_ns = (double)counted->round.own_ns;
	traps_add(lately, &recent, exp(-round->attached_ns / LATELY_NS));
	p->cpus[set] = lately->cpu_ns / fmax(lately->attached_ns, 1);
	if (known[set].begins_steadily) {
		if (lately->attached_ns < LATELY_NS / 2.0)
			return;
		recent = *lately;
	}
	if (!limit_exceeded(&recent, lately, &l))
		return;
	if (limit_load(&recent, l.trap_ns) < limit_load(lately, l.trap_ns))
		recent = *lately;
	if (is_steady(live)) {
		/*
		 * Without mem-inuse, only the entries of functions are probed. The cost of that is
		 * not known, so mem-alloc starts with trials.
		 */
		if (is_steady(counted) && !known[set].begins_steadily)
			*counted = (struct account){.last = counted->last};
		decide(o, p, info->live, &recent);
	}
	if (is_steady(counted))
		decide(o, p, info->counted, &recent);
}

void limit_watch_traps(struct limit *o, struct payer *p, uint64_t elapsed_ns, uint64_t cpu_ns)
{
	struct traps round = {.attached_ns = (double)elapsed_ns, .cpu_ns = (double)cpu_ns};

	for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
		watch_set(o, p, set, &round);
}

bool limit_stalled(struct limit *o, uint64_t cgroup_id, enum probe_set set,
		   const struct limit_hits *x, double *stall_ns)
{
	const struct probe_set_info *info = probes_set_info(set);
	struct payer *p = limit_payer(o, cgroup_id);
	struct traps t = {.attached_ns = (double)x->elapsed_ns,
			  .hits = (double)x->n,
			  .cpu_ns = (double)x->elapsed_ns};
	struct account *counted;
	struct trap_limit l;

	if (!p)
		return false;
	l = trap_limit(o, p, set);
	if (!limit_stalls(stall_ns, x->n, x->elapsed_ns, p->cpus[set], &l))
		return false;
	t.cpu_ns *= fmax(p->cpus[set], 1);
	counter_add(counter("podflame_probes_stalls_total", NULL, NULL), 1);
	if (is_steady(live_of(p, set)))
		decide(o, p, info->live, &t);
	counted = counted_of(p, set);
	if (is_steady(counted)) {
		counted->cost = (struct traps){0};
		counted->span = limit_after_stall(&l);
		set_mode(o, p, info->counted, LIMIT_SPANS);
	}
	limit_tell(o);
	return true;
}
