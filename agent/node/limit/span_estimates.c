/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes for how many hits the spans of an event stand, and the error of that number. "The share"
 * is the part of all hits that the spans saw. Pure functions: no clock and no I/O. Any thread may
 * call them.
 */
#include "node/limit/rules.h"

#include <math.h>

#define SPANS_WEIGHT 0.95 /* weight of the old sums when a span is added */
/*
 * weight of the old sums of the share when a span is added; small, because the share changes from
 * span to span
 */
#define SHARE_WEIGHT 0.5
/* variance of the time from span to span, which is 0.5 to 1.5 times its mean */
#define WAIT_VARIANCE  (1.0 / 12)
#define TRAP_UNCERTAIN 0.3	    /* a hit may cost this share more if caches are cold */
#define MAX_ERROR_PPM  4000000000.0 /* largest error that is reported, in millionths */

static double work(double cpu_ns, double traps_ns)
{
	/*
	 * The process has hit probes, so it did some work, even if traps seem to have taken almost
	 * all of its CPU time.
	 */
	return fmax(cpu_ns - traps_ns, cpu_ns * (1 - LIMIT_LOAD_MAX) / 2);
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
	 * The work of a process before its first span is not known. So the first span does not
	 * count for the share.
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
	/* The spans may have covered more or less of the process's work than the average. */
	rest = s->all_work_ns / fmax(s->work_ns + slowed * s->traps_ns, 1);
	return fmin(s->hits / ((s->stand_for + slowed * s->slowed) * rest), 1);
}

/*
 * Returns the error of a sum over n spans, in relation to the sum. It has two causes: the spans
 * differ, and their number varies.
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
	double share = share_of(s, p->duty), load = fmin(p->load, LIMIT_LOAD_MAX);

	return (struct estimate){
		.ppm = (uint32_t)fmax(share * 1e6, 1),
		.error_ppm = limit_errors_ppm(
			/*
			 * All drains during a long span have the same error, so the root is as
			 * below.
			 */
			error_ppm(spans_error(s, n_spans) * sqrt((1 - share) * fmax(p->drains, 1))),
			/*
			 * All spans of a window have the same error, but the errors of a window are
			 * added as squares. So this error is multiplied by the root of the number
			 * of spans.
			 */
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
