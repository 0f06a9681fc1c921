/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overhead: limits.overheadPercent of events whose cost is the pod's: off-cpu and memory. What a container paid (hits
 * and their cost) over the CPU that it used decides: all of it, a part (off-cpu: fewer switches; mem-alloc: short
 * spans), or nothing (OverBudget). Loop thread. docs/memory.md, docs/off-cpu.md.
 */
#pragma once

#include "node/internal.h"

struct overhead *overhead_new(struct node *n);
struct overhead *overhead_free(struct overhead *b);
/* After each full drain: what probes_usage said. Reads the CPU time of containers on the os worker, tells targets. */
void overhead_usage(struct overhead *b, const struct probe_usage *u, size_t n, uint64_t trap_ns);

enum overhead_mode {
	OVERHEAD_STEADY,
	OVERHEAD_SPANS, /* mem-alloc only: as ret_span says; also the first time, to see what it costs */
	OVERHEAD_REFUSED, /* OverBudget */
};
struct overhead_span {
	uint64_t span_ns;  /* attached so long */
	uint64_t max_hits; /* at most so many hits: what maxStall allows */
	uint64_t wait_ns;  /* from its start until the next's, at random around the period */
};
enum overhead_mode overhead_mode(struct overhead *b, uint64_t cgroup_id, enum event e,
				 struct overhead_span *ret_span);
struct overhead_spent { /* of one process */
	uint64_t attached_ns, hits;
	uint64_t cpu_ns;		   /* CPU time of the process meanwhile, traps included */
	uint64_t before_ns, cpu_before_ns; /* since its last span ended */
	bool first;			   /* there was none */
};
/* A span has ended; event_mask: of the probes that were attached. */
void overhead_spent(struct overhead *b, uint64_t cgroup_id, unsigned event_mask,
		    const struct overhead_spent *x);
/*
 * Of a process that is attached steadily, since it was last looked at: hits, and how long ago. *stall_ns: its own, 0 to
 * begin with. Returns whether it is stalled too long: its probes are to be taken away now, and the modes have changed.
 */
bool overhead_stalled(struct overhead *b, uint64_t cgroup_id, uint64_t hits, uint64_t elapsed_ns,
		      double *stall_ns);
/*
 * What values of an event stand for: of which share of what happened, in ppm (0: all), and one standard error
 * relative to the sum in ppm. mem-alloc: values are to be multiplied by 1e6 / ppm; off-cpu's are already.
 */
struct estimate {
	uint32_t ppm, error_ppm;
};
/* As it is now: of what a drain brought once its usage was told. */
struct estimate overhead_estimate(const struct overhead *b, uint64_t cgroup_id, enum event e);
