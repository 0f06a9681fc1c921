/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the limit, as functions without clock and I/O: see rules.h. Any thread. */
#include "node/limit/rules.h"

#include <math.h>

/* ---- off-cpu ---- */

/*
 * The additional cost of a wait of a selected thread over one of any other thread: for each wait
 * (offcpu_bench: 11 ns; in a storm of 300,000 waits a second, which leaves the caches cold, some
 * 40).
 */
#define PASSED_NS 40
/* for a wait that is noted: at the switch, at the wakeup, and when the thread runs */
#define NOTED_NS 350
/*
 * The part of the budget that may go into noting, if not all waits can be noted. For long waits the
 * number of noted ones matters. For short waits the number of kept ones matters, and their stacks
 * cost ten times as much.
 */
#define NOTE_PART 0.5
/* 10 ns a wait; with less, one long wait would stand for too many */
#define NOTE_MIN     (1.0 / 32)
#define KEEP_MIN     (1.0 / 1024) /* 3 ns a wait */
#define SHARE_RAISE  2.0	  /* a share grows at most by this factor in a round */
#define SHARE_INSIDE 1.2	  /* a share grows only if this much would fit */
#define MIN_SWITCHES 100	  /* fewer say nothing */

static double to_share(uint32_t x)
{
	return ((double)x + 1) / 4294967296.0;
}

static uint32_t from_share(double share, double least)
{
	return share >= 1 ? UINT32_MAX : (uint32_t)(fmax(share, least) * 4294967296.0 - 1);
}

/* A share falls at once and rises in steps. */
static double next_share(double share, double fits)
{
	if (fits < share)
		return fits;
	if (fits < share * SHARE_INSIDE)
		return share;
	return fmin(fits / SHARE_INSIDE, share * SHARE_RAISE);
}

struct off_shares limit_off_shares(struct off_shares now, const struct switches *s, double percent)
{
	double hits = (double)s->hits, note = to_share(now.note), keep = to_share(now.keep);
	double budget_ns = fmax(percent / 100 * (double)s->cpu_ns - hits * PASSED_NS, 0);

	if (percent >= 100) /* 100 % is no limit */
		return OFF_SHARES_ALL;
	if (s->hits < MIN_SWITCHES)
		return OFF_SHARES(from_share(note * SHARE_RAISE, NOTE_MIN),
				  from_share(keep * SHARE_RAISE, KEEP_MIN));
	note = next_share(note, NOTE_PART * budget_ns / (hits * NOTED_NS));
	note = fmin(fmax(note, NOTE_MIN), 1);
	/* Not every kept wait has a walk: the stack may be the same as the previous one. */
	keep = next_share(keep,
			  fmax(budget_ns - hits * note * NOTED_NS, 0) / (hits * LIMIT_WALK_NS));
	return OFF_SHARES(from_share(note, NOTE_MIN), from_share(fmin(keep, note), KEEP_MIN));
}

/* ---- memory ---- */

#define TICK_NS	      4e6 /* less CPU time cannot be distinguished from none */
#define TRIAL_NS      (10 * NSEC_PER_MSEC)
#define SPAN_MIN_NS   (2 * NSEC_PER_MSEC)
#define SPAN_MAX_NS   NSEC_PER_SEC
#define PERIOD_MIN_NS NSEC_PER_SEC /* attaching and detaching takes a tenth of it */
#define DUTY_MIN      0.0005
#define LOAD_MAX      0.75
#define STEADY_INSIDE 0.7
/*
 * A span that is cut short because of its hits is more biased than one that was planned so short.
 */
#define STALL_INSIDE   0.7
#define EXCEEDED_TIMES 2.0

double limit_load(const struct traps *t, uint64_t trap_ns)
{
	double load = t->hits * (double)trap_ns / fmax(t->cpu_ns, TICK_NS);

	return fmin(load, 1);
}

static uint64_t max_hits(const struct trap_limit *l)
{
	return MAX(l->max_stall_ns / MAX(l->trap_ns, 1u), 1u);
}

struct limit_span limit_trial(const struct trap_limit *l)
{
	return (struct limit_span){.span_ns = TRIAL_NS, .max_hits = max_hits(l)};
}

static double span_of(const struct traps *t, const struct trap_limit *l)
{
	/* All threads together: one thread waits for less. */
	double stall = t->hits * (double)l->trap_ns / fmax(t->attached_ns, 1);

	return stall > 0 ? fmin(STALL_INSIDE * (double)l->max_stall_ns / stall, SPAN_MAX_NS)
			 : SPAN_MAX_NS;
}

static enum refusal refusal_of(enum event e, double load, double span_ns, double duty)
{
	if (e != EVENT_MEM_ALLOC)
		return REFUSAL_SNAPSHOT;
	if (load > LOAD_MAX)
		return REFUSAL_DISTORTED;
	if (span_ns < SPAN_MIN_NS)
		return REFUSAL_SHORT;
	return duty < DUTY_MIN ? REFUSAL_RARE : REFUSAL_NONE;
}

enum limit_mode limit_decide(enum event e, enum limit_mode now, const struct traps *t,
			     const struct trap_limit *l, struct limit_span *ret_span,
			     enum refusal *ret_why)
{
	double limit = l->percent / 100, load = limit_load(t, l->trap_ns);
	double span_ns = span_of(t, l), duty = limit / load;
	/* 100 % is no limit. */
	double inside = now == LIMIT_STEADY || limit >= 1 ? 1 : STEADY_INSIDE;
	enum refusal why;

	if (load <= limit * inside)
		return LIMIT_STEADY;
	why = refusal_of(e, load, span_ns, duty);
	if (why) {
		*ret_why = why;
		return LIMIT_REFUSED;
	}
	*ret_span = (struct limit_span){
		.span_ns = (uint64_t)span_ns,
		.max_hits = max_hits(l),
		.wait_ns = (uint64_t)fmax(span_ns / fmin(duty, 1), PERIOD_MIN_NS),
	};
	return LIMIT_SPANS;
}

bool limit_exceeded(const struct traps *recent, const struct traps *lately,
		    const struct trap_limit *l)
{
	double limit = l->percent / 100;

	return limit_load(recent, l->trap_ns) > EXCEEDED_TIMES * limit ||
	       limit_load(lately, l->trap_ns) > limit;
}

/* The process is stalled further until its probes are detached. */
#define STALL_NOTICED 0.5

bool limit_stalls(double *stall_ns, uint64_t hits, uint64_t elapsed_ns, double cpus,
		  const struct trap_limit *l)
{
	double allowed = EXCEEDED_TIMES * l->percent / 100 * fmax(cpus, 1) * (double)elapsed_ns;

	if (l->percent >= 100) /* 100 % is no limit */
		return false;
	*stall_ns = fmax(*stall_ns + (double)hits * (double)l->trap_ns - allowed, 0);
	return *stall_ns > STALL_NOTICED * (double)l->max_stall_ns;
}

struct limit_span limit_after_stall(const struct trap_limit *l)
{
	struct limit_span span = limit_trial(l);
	double wait_ns = (double)l->max_stall_ns * 100 / fmax(l->percent, DUTY_MIN);

	span.wait_ns = (uint64_t)fmax(wait_ns, PERIOD_MIN_NS);
	return span;
}

/* ---- estimates ---- */

#define SPANS_WEIGHT 0.95 /* of the sums so far, when the next span is added */
#define SHARE_WEIGHT 0.5  /* the same for the rest, which changes with each span */
/* of the time from one span to the next, which is 0.5 to 1.5 times its mean */
#define WAIT_VARIANCE  (1.0 / 12)
#define TRAP_UNCERTAIN 0.3 /* a hit costs so much more if caches are cold */
#define MAX_ERROR_PPM  4000000000.0

static double work(double cpu_ns, double traps_ns)
{
	/* However slow the process is, it was seen to allocate. */
	return fmax(cpu_ns - traps_ns, cpu_ns * (1 - LOAD_MAX) / 2);
}

static void add(double *sum, double x, double weight)
{
	*sum = *sum * weight + x;
}

void limit_span_add(struct spans *s, const struct limit_spent *x, uint64_t trap_ns)
{
	double hits = (double)x->hits, cpu_ns = (double)x->cpu_ns;
	double own_ns = work(cpu_ns, hits * (double)trap_ns), traps_ns = cpu_ns - own_ns;
	double attached_ns = fmax((double)x->attached_ns, 1);
	double times = (attached_ns + (double)x->before_ns) / attached_ns;

	add(&s->n, 1, SPANS_WEIGHT);
	add(&s->sum, hits, SPANS_WEIGHT);
	add(&s->square, hits * hits, SPANS_WEIGHT);
	/*
	 * The work of a process before its first span is not known, so that span says nothing about
	 * the share.
	 */
	if (x->first)
		return;
	add(&s->work_ns, own_ns * times, SPANS_WEIGHT);
	add(&s->traps_ns, traps_ns * times, SPANS_WEIGHT);
	add(&s->all_work_ns, own_ns + (double)x->cpu_before_ns, SPANS_WEIGHT);
	if (!x->hits)
		return;
	add(&s->hits, hits, SHARE_WEIGHT);
	add(&s->stand_for, hits * times, SHARE_WEIGHT);
	add(&s->slowed, hits * times * traps_ns / fmax(own_ns, 1), SHARE_WEIGHT);
}

static uint32_t error_ppm(double share)
{
	return (uint32_t)fmin(share * 1e6, MAX_ERROR_PPM);
}

static double share_of(const struct spans *s, double duty)
{
	double missing_ns = s->all_work_ns - s->work_ns, slowed, rest;

	if (s->hits <= 0 || s->all_work_ns <= 0)
		return fmin(duty, 1);
	slowed = s->traps_ns > 0 ? fmin(fmax(missing_ns / s->traps_ns, 0), 1) : 0;
	/* Spans met more or less of the process's work than they would on average. */
	rest = s->all_work_ns / fmax(s->work_ns + slowed * s->traps_ns, 1);
	return fmin(s->hits / ((s->stand_for + slowed * s->slowed) * rest), 1);
}

/*
 * The error of a sum over n spans, relative to the sum: the spans differ, and their number varies.
 */
static double spans_error(const struct spans *s, unsigned n)
{
	double mean = s->n > 0 ? s->sum / s->n : 0, variance;

	if (s->n <= 1.5 || mean <= 0)
		return 1;
	variance = fmax(s->square / s->n - mean * mean, 0) * s->n / (s->n - 1);
	return sqrt((variance / (mean * mean) + WAIT_VARIANCE) / MAX(n, 1u));
}

struct estimate limit_span_estimate(const struct spans *s, const struct planned_spans *p,
				    unsigned n_spans)
{
	double share = share_of(s, p->duty), load = fmin(p->load, LOAD_MAX);

	return (struct estimate){
		.ppm = (uint32_t)fmax(share * 1e6, 1),
		.error_ppm = limit_errors_ppm(
			error_ppm(spans_error(s, n_spans) * sqrt(1 - share)),
			/* All spans have this error in common, and a window adds squares. */
			error_ppm(TRAP_UNCERTAIN * load / (1 - load) * sqrt(fmax(p->a_window, 1)))),
	};
}

uint32_t limit_error_ppm(uint64_t value, uint64_t square)
{
	return value ? error_ppm(sqrt((double)square * 1048576.0) / (double)value) : 0;
}

uint32_t limit_errors_ppm(uint32_t a, uint32_t b)
{
	return (uint32_t)fmin(hypot(a, b), MAX_ERROR_PPM);
}
