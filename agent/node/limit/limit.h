/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit: enforces limits.overheadPercent of a target. On-cpu: if a container's rate would cost more
 * than its limit, the container is sampled at a lower rate (RateLowered). Off-cpu and uprobes: the
 * agent divides the cost of the container's hits by the CPU time that the container used. Then it
 * records the whole event, a part of it (off-cpu: a share of the switches, uprobes: short spans;
 * Estimated), or nothing (OverBudget). Struct probe_set_info says which event of a set of uprobes
 * is the counted one and which is the live one. Runs on the loop thread. See docs/memory.md and
 * docs/off-cpu.md.
 */
#pragma once

#include "lib/base/shares.h"
#include "node/probe/probe.h"
#include "node/work/work.h"

struct limit_config { /* all pointers are borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: nothing is reported */
	/* the cgroups whose CPU times are read; mount "": not read */
	const struct cgroup_hierarchy *hierarchy;
	uint64_t window_ns;
};
struct limit;
struct limit *limit_new(const struct limit_config *c);
struct limit *limit_free(struct limit *l);
/*
 * To be called after each full drain; d may be NULL. Measures the cost of an on-cpu sample and sets
 * the rates that follow from it.
 */
void limit_stats(struct limit *l, const struct probes_stats *s, const struct drain *d);
/*
 * Returns the highest rate at which sampling costs at most percent of the sampled CPU time; at
 * least 1.
 */
unsigned limit_hz(double percent, uint64_t sample_cost_ns);

/*
 * To be called after each full drain with the result of probes_usage(). Has the os worker read the
 * CPU time of containers, and reports to targets.
 */
void limit_usage(struct limit *l, const struct probe_usage *u, size_t n, uint64_t trap_ns);
/*
 * Adds to `to` the namespaces (struct charged) that, since the last call, had more cgroups than
 * their share of those whose cost is held against overheadPercent.
 */
void limit_crowded(struct limit *l, struct shares *to);

#define LIMIT_SHORT_SPAN_NS NSEC_PER_SEC /* longest time of a short span */
enum limit_mode {
	LIMIT_STEADY,
	/*
	 * The probes are attached for short spans, as ret_span says. Only the counted event of a
	 * set has this mode for long. The live event may have it until spans have measured its
	 * cost.
	 */
	LIMIT_SPANS,
	LIMIT_REFUSED, /* not attached (OverBudget) */
};
struct limit_span {
	/*
	 * How long the probes stay attached: at most LIMIT_SHORT_SPAN_NS, or several seconds if
	 * what the set probes needs time to start.
	 */
	uint64_t span_ns;
	uint64_t max_hits; /* the span ends after this many hits, because maxStall allows no more */
	/* time from the start of a span to the start of the next one; random, around the period */
	uint64_t wait_ns;
};
enum limit_mode limit_mode(struct limit *l, uint64_t cgroup_id, enum event e,
			   struct limit_span *ret_span);
struct limit_spent { /* what a span of one process has used */
	uint64_t attached_ns, hits;
	/* CPU time of the process during the span, including traps */
	uint64_t cpu_ns;
	/* time and CPU time between the end of the span before and the start of this one */
	uint64_t before_ns, cpu_before_ns;
	bool first; /* there was no span before */
};
/*
 * To be called when a span has ended. event_mask: the events of the set whose probes were attached.
 */
void limit_spent(struct limit *l, uint64_t cgroup_id, enum probe_set set, unsigned event_mask,
		 const struct limit_spent *x);
struct limit_hits { /* the hits of the probes of one set in one process since the last call */
	uint64_t n, elapsed_ns;
};
/*
 * Checks whether the probes of a set that stay attached stall the process too long. If so, changes
 * the modes and returns true, and the caller must detach the probes now. *stall_ns belongs to the
 * process and the set; the caller sets it to 0 at first.
 */
bool limit_stalled(struct limit *l, uint64_t cgroup_id, enum probe_set set,
		   const struct limit_hits *x, double *stall_ns);
/*
 * The error of an event's values, if they are an estimate. ppm: the share of all hits from which
 * the values come (0: all). error_ppm: one standard error of the sum, in ppm of the sum. The caller
 * multiplies values of the counted event of a set by 1e6 / ppm. Values of off-cpu are multiplied
 * already.
 */
struct estimate {
	uint32_t ppm, error_ppm;
};
/*
 * Returns the estimate for the values of the last drain. The caller must have passed the usage of
 * this drain before.
 */
struct estimate limit_estimate(const struct limit *l, uint64_t cgroup_id, enum event e);
/*
 * Returns one standard error of a sum, in ppm of the sum. square: the variance of the sum, in
 * units^2 >> 20, as in struct pf_usage.
 */
uint32_t limit_error_ppm(uint64_t value, uint64_t square);
