/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit: enforces limits.overheadPercent of a target. On-cpu: if a container's rate would cost more
 * than its limit, it is sampled at a lower rate (RateLowered). Off-cpu and memory: the cost of the
 * container's hits, over the CPU time that it used, decides whether all of an event is recorded, a
 * part (off-cpu: a share of the switches, mem-alloc: short spans; Estimated), or nothing
 * (OverBudget). Loop thread. See docs/memory.md and docs/off-cpu.md.
 */
#pragma once

#include "node/probe/probe.h"
#include "node/work/work.h"

struct limit_config { /* all pointers are borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report;			  /* NULL: nothing is reported */
	const struct cgroup_hierarchy *hierarchy; /* where CPU times are read; mount "": nowhere */
	uint64_t window_ns;
};
struct limit;
struct limit *limit_new(const struct limit_config *c);
struct limit *limit_free(struct limit *l);
/*
 * The caller calls this after each full drain; d may be NULL. It measures what an on-cpu sample
 * costs and sets the rates that follow.
 */
void limit_stats(struct limit *l, const struct probes_stats *s, const struct drain *d);
/* The highest rate that costs at most percent of the CPU that it samples; at least 1. */
unsigned limit_hz(double percent, uint64_t sample_cost_ns);

/*
 * The caller calls this after each full drain with the answer of probes_usage(). It has the os
 * worker read the CPU time of containers, and reports to targets.
 */
void limit_usage(struct limit *l, const struct probe_usage *u, size_t n, uint64_t trap_ns);

enum limit_mode {
	LIMIT_STEADY,
	/*
	 * mem-alloc: attached for spans as in ret_span. Either event the first time, to measure its
	 * cost.
	 */
	LIMIT_SPANS,
	LIMIT_REFUSED, /* not attached (OverBudget) */
};
struct limit_span {
	uint64_t span_ns;  /* how long the probes stay attached */
	uint64_t max_hits; /* the span ends after so many hits: what maxStall allows */
	/* from the start of a span to the next one, at random around the period */
	uint64_t wait_ns;
};
enum limit_mode limit_mode(struct limit *l, uint64_t cgroup_id, enum event e,
				 struct limit_span *ret_span);
struct limit_spent { /* by one process */
	uint64_t attached_ns, hits;
	uint64_t cpu_ns;		   /* CPU time of the process in the span, traps included */
	uint64_t before_ns, cpu_before_ns; /* since its previous span ended */
	bool first;			   /* there was no previous span */
};
/* The caller says that a span has ended. event_mask: the events whose probes were attached. */
void limit_spent(struct limit *l, uint64_t cgroup_id, unsigned event_mask,
		    const struct limit_spent *x);
/*
 * For a process that is attached steadily: its hits and the time since the caller looked last.
 * *stall_ns belongs to the process and begins with 0. Returns true if its probes stall it too long.
 * Then the caller must detach them now, and the modes have changed.
 */
bool limit_stalled(struct limit *l, uint64_t cgroup_id, uint64_t hits, uint64_t elapsed_ns,
		      double *stall_ns);
/*
 * How exact the values of an event are. ppm: the share of all events that they come from (0: all).
 * error_ppm: one standard error, relative to the sum. The caller multiplies values of mem-alloc by
 * 1e6 / ppm. Values of off-cpu are multiplied already.
 */
struct estimate {
	uint32_t ppm, error_ppm;
};
/* The estimate for what the last drain brought, after the caller has passed its usage. */
struct estimate limit_estimate(const struct limit *l, uint64_t cgroup_id, enum event e);
