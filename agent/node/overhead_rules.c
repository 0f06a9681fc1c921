/* SPDX-License-Identifier: Apache-2.0 */
/* See overhead_rules.h. */
#include "node/overhead_rules.h"

#include <math.h>

/* ---- off-cpu ---- */

/* A switch of a selected thread that is not kept: probe_bench. */
#define SWITCH_NS    100
#define KEEP_MIN     (UINT32_MAX / 4096)
#define KEEP_RAISE   2.0 /* at most so many times as much, a round */
#define KEEP_INSIDE  1.2 /* raised only where there is so much room */
#define MIN_SWITCHES 100 /* fewer say nothing */

static uint32_t keep_of(double share)
{
	double keep = share * 4294967296.0 - 1;

	return keep >= UINT32_MAX ? UINT32_MAX : keep <= KEEP_MIN ? KEEP_MIN : (uint32_t)keep;
}

uint32_t overhead_keep(uint32_t keep, const struct switches *s, double percent)
{
	double budget_ns = percent / 100 * (double)s->cpu_ns - (double)s->hits * SWITCH_NS;
	double share = ((double)keep + 1) / 4294967296.0, fits;

	if (s->hits < MIN_SWITCHES)
		return keep_of(share * KEEP_RAISE);
	/* Of the hits that were not thinned, not all have a walk: the previous stack may be the same. */
	fits = budget_ns <= 0 ? 0 : budget_ns / ((double)s->hits * OVERHEAD_WALK_NS);
	if (fits < share)
		return keep_of(fits);
	if (fits < share * KEEP_INSIDE)
		return keep;
	return keep_of(MIN(fits / KEEP_INSIDE, share * KEEP_RAISE));
}

/* ---- memory ---- */

#define TICK_NS	       4e6 /* less CPU time than this is not told apart from it */
#define TRIAL_NS       (10 * NSEC_PER_MSEC)
#define SPAN_MIN_NS    (2 * NSEC_PER_MSEC)
#define SPAN_MAX_NS    NSEC_PER_SEC
#define PERIOD_MIN_NS  NSEC_PER_SEC /* attaching and detaching takes a tenth of it */
#define DUTY_MIN       0.0005
#define LOAD_MAX       0.75
#define STEADY_INSIDE  0.7
#define EXCEEDED_TIMES 2.0

double overhead_load(const struct traps *t, uint64_t trap_ns)
{
	double load = t->hits * (double)trap_ns / fmax(t->cpu_ns, TICK_NS);

	return fmin(load, 1);
}

static uint64_t max_hits(const struct trap_limit *l)
{
	return MAX(l->max_stall_ns / MAX(l->trap_ns, 1u), 1u);
}

struct overhead_span overhead_trial(const struct trap_limit *l)
{
	return (struct overhead_span){.span_ns = TRIAL_NS, .max_hits = max_hits(l)};
}

static double span_of(const struct traps *t, const struct trap_limit *l)
{
	/* Of all threads together: one of them waits for less. */
	double stall = t->hits * (double)l->trap_ns / fmax(t->attached_ns, 1);

	return stall > 0 ? fmin((double)l->max_stall_ns / stall, SPAN_MAX_NS) : SPAN_MAX_NS;
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

enum overhead_mode overhead_decide(enum event e, enum overhead_mode now, const struct traps *t,
				   const struct trap_limit *l, struct overhead_span *ret_span,
				   enum refusal *ret_why)
{
	double limit = l->percent / 100, load = overhead_load(t, l->trap_ns);
	double span_ns = span_of(t, l), duty = limit / load;
	enum refusal why;

	if (load <= limit * (now == OVERHEAD_STEADY ? 1 : STEADY_INSIDE))
		return OVERHEAD_STEADY;
	why = refusal_of(e, load, span_ns, duty);
	if (why) {
		*ret_why = why;
		return OVERHEAD_REFUSED;
	}
	*ret_span = (struct overhead_span){
		.span_ns = (uint64_t)span_ns,
		.max_hits = max_hits(l),
		.wait_ns = (uint64_t)fmax(span_ns / fmin(duty, 1), PERIOD_MIN_NS),
	};
	return OVERHEAD_SPANS;
}

bool overhead_exceeded(const struct traps *recent, const struct traps *lately,
		       const struct trap_limit *l)
{
	double limit = l->percent / 100;

	return overhead_load(recent, l->trap_ns) > EXCEEDED_TIMES * limit ||
	       overhead_load(lately, l->trap_ns) > limit;
}

/* ---- estimates ---- */

#define SPANS_WEIGHT 0.9 /* of what was, when the next span is added */
#define TRAP_UNCERTAIN                                                                             \
	0.4 /* a hit costs that much more where caches are cold: measured on a busy machine */
#define MAX_ERROR_PPM 4000000000.0

static double work(double cpu_ns, double hits, uint64_t trap_ns)
{
	/* However slow: it was seen to allocate. */
	return fmax(cpu_ns - hits * (double)trap_ns, cpu_ns * (1 - LOAD_MAX) / 2);
}

void overhead_span_add(struct spans *s, const struct overhead_spent *x, uint64_t trap_ns)
{
	double attached = work((double)x->cpu_ns, (double)x->hits, trap_ns);

	/* What a process did before its first span is not known: that span says nothing about the share. */
	if (!x->first) {
		s->work_attached_ns = s->work_attached_ns * SPANS_WEIGHT + attached;
		s->work_ns = s->work_ns * SPANS_WEIGHT + attached + (double)x->cpu_before_ns;
	}
	s->n = s->n * SPANS_WEIGHT + 1;
	s->sum = s->sum * SPANS_WEIGHT + (double)x->hits;
	s->square = s->square * SPANS_WEIGHT + (double)x->hits * (double)x->hits;
}

static uint32_t error_ppm(double share)
{
	return (uint32_t)fmin(share * 1e6, MAX_ERROR_PPM);
}

struct estimate overhead_span_estimate(const struct spans *s, unsigned n_spans, double load)
{
	double share = s->work_ns > 0 ? s->work_attached_ns / s->work_ns : 1;
	double mean = s->n > 0 ? s->sum / s->n : 0, error = 1;
	struct estimate e = {.ppm = (uint32_t)fmax(share * 1e6, 1)};

	if (s->n > 1.5 && mean > 0) {
		double variance = fmax(s->square / s->n - mean * mean, 0) * s->n / (s->n - 1);

		error = sqrt(variance / MAX(n_spans, 1u) * (1 - share)) / mean;
	}
	load = fmin(load, LOAD_MAX);
	e.error_ppm = overhead_errors_ppm(error_ppm(error),
					  error_ppm(TRAP_UNCERTAIN * load / (1 - load)));
	return e;
}

uint32_t overhead_error_ppm(uint64_t value, uint64_t square)
{
	return value ? error_ppm(sqrt((double)square * 1048576.0) / (double)value) : 0;
}

uint32_t overhead_errors_ppm(uint32_t a, uint32_t b)
{
	return (uint32_t)fmin(hypot(a, b), MAX_ERROR_PPM);
}
