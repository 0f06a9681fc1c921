/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules: how much of an event a container's limit allows, from what it paid so far. Pure: no clock, no I/O;
 * overhead.c keeps the books. What hits cost, and why: docs/memory.md, docs/off-cpu.md.
 */
#pragma once

#include "node/limit/limit.h"

/* What limits.overheadPercent means for these events where a target does not say. */
#define LIMIT_DEFAULT_PERCENT 1.0
/* Until probes_trap_ns was asked: worse than what is usual. */
#define LIMIT_TRAP_NS 2000
/* What our program adds to a trap: the filter, the process, the decision (probe/memory_bench.c). */
#define LIMIT_PROGRAM_NS 250
/* A stack's walk, with tables, on its way to the counts (probe_bench). */
#define LIMIT_WALK_NS 3000

/* ---- off-cpu ---- */
struct switches { /* of a selected container's threads, in one round */
	uint64_t hits, cpu_ns;
};
/* Of its switches, as proc_containers_keep_off has them. */
struct off_shares {
	uint32_t note, keep;
};
#define OFF_SHARES(...) ((struct off_shares){__VA_ARGS__})
#define OFF_SHARES_ALL	OFF_SHARES(UINT32_MAX, UINT32_MAX)
/* Those from now on. Never none. */
struct off_shares limit_off_shares(struct off_shares now, const struct switches *s,
				      double percent);

/* ---- memory ---- */
struct traps { /* while probes were attached */
	double attached_ns, hits, cpu_ns;
};
struct trap_limit {
	double percent;
	uint64_t max_stall_ns, trap_ns;
};
enum refusal {
	REFUSAL_NONE,
	REFUSAL_SNAPSHOT,  /* mem-inuse cannot be had in parts */
	REFUSAL_DISTORTED, /* attached, it would hardly do its own work any more */
	REFUSAL_SHORT,	   /* what maxStall allows is too short a time to see anything */
	REFUSAL_RARE,	   /* what the limit allows is too small a part */
};
/* Share of its CPU time that goes into traps while attached, 0..1. */
double limit_load(const struct traps *t, uint64_t trap_ns);
/* The first span of a container: short, whatever it does. */
struct limit_span limit_trial(const struct trap_limit *l);
/*
 * What is allowed to somebody who pays that. now: what it has; steady is given back only with a margin. ret_span (wait_ns:
 * the whole period) with LIMIT_SPANS, ret_why with LIMIT_REFUSED.
 */
enum limit_mode limit_decide(enum event e, enum limit_mode now, const struct traps *t,
				   const struct trap_limit *l, struct limit_span *ret_span,
				   enum refusal *ret_why);
/* Must steady be left? recent: of the last round, lately: of the last ten seconds. */
bool limit_exceeded(const struct traps *recent, const struct traps *lately,
		       const struct trap_limit *l);
/*
 * A process that is attached as long as it lives, looked at some times in max_stall: *stall_ns is what its probes held
 * it up beyond twice the limit, lately. Whether that is too much. cpus: how many its container uses.
 */
bool limit_stalls(double *stall_ns, uint64_t hits, uint64_t elapsed_ns, double cpus,
		     const struct trap_limit *l);
/* Spans of mem-alloc after that, until they say what it is: each may stall as long, and all together are within the limit. */
struct limit_span limit_after_stall(const struct trap_limit *l);

/* ---- estimates ---- */
/*
 * Of mem-alloc in spans, all weighted towards now. Spans begin at random times, so what one saw stands for the time
 * since the one before / its own time: unbiased whatever the process does, but that traps make it slower. Who has no
 * time to spare would have worked while it was in traps, who waits for others would not: which it is, of all traps
 * together, is told by its work (CPU time less traps): what the spans stand for must be all that it worked.
 */
struct spans {
	double hits, stand_for,
		slowed; /* what spans saw and stand for; if traps' time was work, so much more */
	double work_ns, traps_ns; /* what they stand for, likewise */
	double all_work_ns;	  /* as it was */
	double n, sum, square;	  /* spans; their hits */
};
void limit_span_add(struct spans *s, const struct limit_spent *x, uint64_t trap_ns);
struct planned_spans {
	double duty;	 /* the share, until spans have told it */
	double load;	 /* of traps, while attached */
	double a_window; /* so many in one */
};
/* n_spans: that the values at hand come from. */
struct estimate limit_span_estimate(const struct spans *s, const struct planned_spans *p,
				       unsigned n_spans);
/* One standard error of a sum, relative to it, in ppm: square in units^2 >> 20, as the kernel sums it. */
uint32_t limit_error_ppm(uint64_t value, uint64_t square);
uint32_t limit_errors_ppm(uint32_t a, uint32_t b); /* of two independent causes */
