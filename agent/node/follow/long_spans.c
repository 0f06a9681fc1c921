/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans that last seconds, for a set whose probes make something start in the process (CUPTI). The
 * probes worker cannot wait so long, because other processes need it. So the probes are attached as
 * if they stayed, probed_watch.c watches them, and this file detaches them when the span is over.
 * Loop thread.
 *
 * A span is a time of launches: what is launched in it counts, with all of its work. So the probes
 * stay for some more time, in which work ends and further launches do not count. If the span ended
 * for launches and work at the same time, work would be missing, and the more, the longer it takes.
 */
#include "node/follow/internal.h"

/* How long the probes stay after a span. Work that ends later is a lost sample, gpu_unended. */
#define WORK_ENDS_NS (3 * NSEC_PER_SEC)

bool follow_long_span_runs(const struct probed *x)
{
	return x->long_span.span_ns && (x->attached || x->busy);
}

void follow_long_span_begin(struct probed *x, unsigned event_mask, const struct limit_span *span)
{
	x->long_span = (struct long_span){.span_ns = span->span_ns};
	x->stale = false;
	follow_probed_attach(x, event_mask, NULL);
}

static void time_is_over(void *arg)
{
	follow_probed_advance(arg);
}

void follow_long_span_attached(struct probed *x)
{
	if (!x->long_span.span_ns)
		return;
	x->long_span.start = follow_span_end_now(x->tracked);
	timer_set(x->tracked->follow->config.work->loop, &x->timer,
		  x->long_span.span_ns + WORK_ENDS_NS, time_is_over, x);
}

/*
 * Returns from when to when (CLOCK_MONOTONIC) launches counted: CUPTI starts up to half a second
 * after the probes were attached. If the span has ended early, it lasts until the library's last
 * report, which is up to half a second old. false: CUPTI did not run.
 */
static bool reported_time(const struct probed *x, uint64_t *ret_from_ns, uint64_t *ret_to_ns)
{
	const struct probe_calls *calls = x->tracked->follow->calls->probes;
	uint64_t mono_ns = now_mono_ns(), ahead_ns = now_boot_ns() - mono_ns;
	struct on_gpu_status s;
	uint64_t to_ns;

	if (calls->attached_status(x->attached, &s))
		return false;
	to_ns = MIN(s.told_ns, s.launches_until_ns);
	*ret_from_ns = s.running_ns - MIN(ahead_ns, s.running_ns);
	*ret_to_ns = to_ns - MIN(ahead_ns, to_ns);
	return s.running_ns && to_ns > s.running_ns;
}

/* Returns the CPU time at a moment of the span that ends now, as if it had passed evenly. */
static uint64_t cpu_at(const struct probed *x, const struct span_end *now, uint64_t mono_ns)
{
	const struct span_end *start = &x->long_span.start;
	uint64_t cpu_ns = now->cpu_ns - MIN(start->cpu_ns, now->cpu_ns);
	double part = (double)(mono_ns - MIN(start->mono_ns, mono_ns)) /
		      (double)MAX(now->mono_ns - start->mono_ns, 1u);

	return start->cpu_ns + (uint64_t)((double)cpu_ns * MIN(part, 1.0));
}

static struct limit_spent spent_of(const struct probed *x, const struct span_end *from,
				   const struct span_end *to)
{
	const struct span_end *before = &x->span_end;
	struct limit_spent s = {
		.attached_ns = to->mono_ns - from->mono_ns,
		.hits = x->tracked->follow->calls->probes->attached_hits(x->attached),
		.cpu_ns = to->cpu_ns - from->cpu_ns,
		.first = !before->cpu_ns,
	};

	if (before->cpu_ns && from->cpu_ns > before->cpu_ns)
		s.cpu_before_ns = from->cpu_ns - before->cpu_ns;
	if (before->cpu_ns && from->mono_ns > before->mono_ns)
		s.before_ns = from->mono_ns - before->mono_ns;
	return s;
}

void follow_long_span_end(struct probed *x)
{
	const struct tracked *t = x->tracked;
	struct span_end now = follow_span_end_now(t), from, to;
	unsigned event_mask = x->attached_mask;
	struct limit_spent spent;
	bool seen = reported_time(x, &from.mono_ns, &to.mono_ns);

	if (seen) {
		from.cpu_ns = cpu_at(x, &now, from.mono_ns);
		to.cpu_ns = cpu_at(x, &now, to.mono_ns);
		spent = spent_of(x, &from, &to);
	}
	follow_probed_detach(x);
	if (!seen)
		return;
	x->span_end = to;
	limit_spent(t->follow->config.limit, t->cgroup_id, x->set, event_mask, &spent);
}

void follow_long_span_advance(struct probed *x)
{
	if (x->attached &&
	    now_mono_ns() >= x->long_span.start.mono_ns + x->long_span.span_ns + WORK_ENDS_NS)
		follow_long_span_end(x);
}
