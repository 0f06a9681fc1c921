/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of events that have uprobes: which mode a container's cost allows, and when its probes
 * stall it for too long. Pure functions: no clock and no I/O. Any thread may call them.
 */
#include "node/limit/rules.h"

#include <math.h>

/* the step of a CPU clock in ns: the clock shows a shorter CPU time as 0 or as one step */
#define TICK_NS	      4e6
#define TRIAL_NS      (10 * NSEC_PER_MSEC)
#define SPAN_MIN_NS   (2 * NSEC_PER_MSEC)
#define SPAN_MAX_NS   LIMIT_SHORT_SPAN_NS /* longest short span */
#define PERIOD_MIN_NS NSEC_PER_SEC	  /* attaching and detaching takes a tenth of this */
#define DUTY_MIN      0.0005
#define STEADY_INSIDE 0.7
/*
 * Spans are planned shorter than maxStall allows. A span that max_hits ends early has more bias
 * than one that was planned to be short.
 */
#define STALL_INSIDE   0.7
#define EXCEEDED_TIMES 2.0

double limit_load(const struct traps *t, uint64_t trap_ns)
{
	double cost_ns = fmax(t->hits * (double)trap_ns, t->library_ns);

	return fmin(cost_ns / fmax(t->cpu_ns, TICK_NS), 1);
}

static uint64_t max_hits(const struct trap_limit *l)
{
	return MAX(l->max_stall_ns / MAX(l->trap_ns, 1u), 1u);
}

struct limit_span limit_trial(const struct trap_limit *l)
{
	return (struct limit_span){.span_ns = l->span_ns ?: TRIAL_NS, .max_hits = max_hits(l)};
}

static double span_of(const struct traps *t, const struct trap_limit *l)
{
	/* the traps of all threads are added up, so a single thread is stalled less than this */
	double stall = t->hits * (double)l->trap_ns / fmax(t->attached_ns, 1);

	if (l->span_ns)
		return (double)l->span_ns;
	return stall > 0 ? fmin(STALL_INSIDE * (double)l->max_stall_ns / stall, SPAN_MAX_NS)
			 : SPAN_MAX_NS;
}

static enum refusal refusal_of(enum event e, double load, double span_ns, double duty)
{
	if (profile_event_info(e)->snapshot)
		return REFUSAL_SNAPSHOT;
	if (load > LIMIT_LOAD_MAX)
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
	/* a limit of 100 % is no limit */
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

/*
 * A stall counts as too long from this part of maxStall on, because it goes on until the probes are
 * detached.
 */
#define STALL_NOTICED 0.5

bool limit_stalls(double *stall_ns, uint64_t hits, uint64_t elapsed_ns, double cpus,
		  const struct trap_limit *l)
{
	double allowed = EXCEEDED_TIMES * l->percent / 100 * fmax(cpus, 1) * (double)elapsed_ns;

	if (l->percent >= 100) /* a limit of 100 % is no limit */
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
