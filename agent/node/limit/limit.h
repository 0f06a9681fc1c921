/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit: limits.overheadPercent of a target. On-cpu: a container whose limit is below what its rate costs is sampled less
 * often (RateLowered). Off-cpu and memory: what a container paid (hits and their cost) over the CPU time that it used
 * decides whether all of an event is seen, a part (off-cpu: fewer switches; mem-alloc: short spans; Estimated), or
 * nothing (OverBudget). Loop thread. docs/memory.md, docs/off-cpu.md.
 */
#pragma once

#include "node/probe/probe.h"
#include "node/work/work.h"

struct limit_config { /* all borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report;			  /* NULL: nobody is told */
	const struct cgroup_hierarchy *hierarchy; /* where CPU times are read; mount "": none */
	uint64_t window_ns;
};
struct limit;
struct limit *limit_new(const struct limit_config *c);
struct limit *limit_free(struct limit *l);
/* After each full drain; d may be NULL: what a sample of on-cpu costs, and the rates that follow. */
void limit_stats(struct limit *l, const struct probes_stats *s, const struct drain *d);
/* Highest rate that costs at most percent of the CPU it samples; at least 1. */
unsigned limit_hz(double percent, uint64_t sample_cost_ns);

/* After each full drain: what probes_usage said. Reads the CPU time of containers on the os worker, tells targets. */
void limit_usage(struct limit *l, const struct probe_usage *u, size_t n, uint64_t trap_ns);

enum limit_mode {
	LIMIT_STEADY,
	LIMIT_SPANS, /* mem-alloc only: as ret_span says; also the first time, to see what it costs */
	LIMIT_REFUSED, /* OverBudget */
};
struct limit_span {
	uint64_t span_ns;  /* attached so long */
	uint64_t max_hits; /* at most so many hits: what maxStall allows */
	uint64_t wait_ns;  /* from its start until the next's, at random around the period */
};
enum limit_mode limit_mode(struct limit *l, uint64_t cgroup_id, enum event e,
				 struct limit_span *ret_span);
struct limit_spent { /* of one process */
	uint64_t attached_ns, hits;
	uint64_t cpu_ns;		   /* CPU time of the process meanwhile, traps included */
	uint64_t before_ns, cpu_before_ns; /* since its last span ended */
	bool first;			   /* there was none */
};
/* A span has ended; event_mask: of the probes that were attached. */
void limit_spent(struct limit *l, uint64_t cgroup_id, unsigned event_mask,
		    const struct limit_spent *x);
/*
 * Of a process that is attached steadily, since it was last looked at: hits, and how long ago. *stall_ns: its own, 0 to
 * begin with. Returns whether it is stalled too long: its probes are to be taken away now, and the modes have changed.
 */
bool limit_stalled(struct limit *l, uint64_t cgroup_id, uint64_t hits, uint64_t elapsed_ns,
		      double *stall_ns);
/*
 * What values of an event stand for: of which share of what happened, in ppm (0: all), and one standard error
 * relative to the sum in ppm. mem-alloc: values are to be multiplied by 1e6 / ppm; off-cpu's are already.
 */
struct estimate {
	uint32_t ppm, error_ppm;
};
/* As it is now: of what a drain brought once its usage was told. */
struct estimate limit_estimate(const struct limit *l, uint64_t cgroup_id, enum event e);
