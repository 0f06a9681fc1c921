/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules: how much of an event a container's limit allows, from its cost so far. Pure: no clock and
 * no I/O. overhead.c keeps the accounts. docs/memory.md and docs/off-cpu.md say what hits cost.
 */
#pragma once

#include "node/limit/limit.h"

/* limits.overheadPercent for these events if a target does not set it. */
#define LIMIT_DEFAULT_PERCENT 1.0
/* The cost of a trap until probes_trap_ns() is known: more than is usual. */
#define LIMIT_TRAP_NS 2000
/* The cost that our program adds to a trap: filter, process, decision (probe/memory_bench.c). */
#define LIMIT_PROGRAM_NS 250
/* The cost of walking a stack with tables and of counting it (probe_bench). */
#define LIMIT_WALK_NS 3000
/* The probes' share of a process's CPU time beyond which it hardly does its own work. */
#define LIMIT_LOAD_MAX 0.75

/* ---- off-cpu ---- */
struct switches { /* of a selected container's threads, in one round */
	uint64_t hits, cpu_ns;
};
/* Shares of its switches, as in proc_containers_keep_off(). */
struct off_shares {
	uint32_t note, keep;
};
#define OFF_SHARES(...) ((struct off_shares){__VA_ARGS__})
#define OFF_SHARES_ALL	OFF_SHARES(UINT32_MAX, UINT32_MAX)
/* The shares from now on. They are never 0. */
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
	REFUSAL_DISTORTED, /* with probes attached, the process would hardly do its own work */
	REFUSAL_SHORT,	   /* the time that maxStall allows is too short to see anything */
	REFUSAL_RARE,	   /* the part that the limit allows is too small */
};
/* The share of its CPU time that goes into traps while probes are attached, 0 to 1. */
double limit_load(const struct traps *t, uint64_t trap_ns);
/* The first span of a container. It is short, whatever the container does. */
struct limit_span limit_trial(const struct trap_limit *l);
/*
 * The mode that a container with this cost gets. now: its mode so far; it returns to `steady` only
 * with a margin. Sets ret_span (wait_ns: the whole period) with LIMIT_SPANS, and ret_why with
 * LIMIT_REFUSED.
 */
enum limit_mode limit_decide(enum event e, enum limit_mode now, const struct traps *t,
				   const struct trap_limit *l, struct limit_span *ret_span,
				   enum refusal *ret_why);
/*
 * Returns whether the container must leave `steady`. recent: the last round. lately: the last ten
 * seconds.
 */
bool limit_exceeded(const struct traps *recent, const struct traps *lately,
		       const struct trap_limit *l);
/*
 * For a process that is attached steadily and is looked at a few times in each max_stall. *stall_ns
 * is the time beyond twice the limit by which its probes delayed it lately. Returns whether that is
 * too much. cpus: how many CPUs its container uses.
 */
bool limit_stalls(double *stall_ns, uint64_t hits, uint64_t elapsed_ns, double cpus,
		     const struct trap_limit *l);
/*
 * The spans of mem-alloc after a stall, until they have shown its cost. Each may stall the process
 * as long again, and all together stay within the limit.
 */
struct limit_span limit_after_stall(const struct trap_limit *l);

/* ---- estimates ---- */
/*
 * Sums over the spans of mem-alloc; recent spans weigh more. Spans begin at random times. So a span
 * stands for the time since the previous one, divided by its own time. That is unbiased, whatever
 * the process does, except that traps slow it down. A process without idle time would have worked
 * in the time of its traps; one that waits for others would not. The process's work (CPU time less
 * traps) shows which of the two holds, for all traps together: what the spans stand for must be all
 * the work that it did.
 */
struct spans {
	/*
	 * What the spans saw and stand for. slowed: what they stand for in addition, if the process
	 * would have worked in the time of traps.
	 */
	double hits, stand_for, slowed;
	double work_ns, traps_ns; /* the work and traps that the spans stand for */
	double all_work_ns;	  /* the work that the process did */
	double n, sum, square;	  /* the number of spans; their hits */
};
void limit_span_add(struct spans *s, const struct limit_spent *x, uint64_t trap_ns);
struct planned_spans {
	double duty;	 /* the share of time, until spans have shown it */
	double load;	 /* the share of CPU time that traps take while probes are attached */
	double a_window; /* how many there are in a window */
};
/* n_spans: the number of spans that the current values come from. */
struct estimate limit_span_estimate(const struct spans *s, const struct planned_spans *p,
				       unsigned n_spans);
/*
 * One standard error of a sum, relative to it, in ppm. square: in units^2 >> 20, as the kernel sums
 * it.
 */
uint32_t limit_error_ppm(uint64_t value, uint64_t square);
uint32_t limit_errors_ppm(uint32_t a, uint32_t b); /* of two independent causes */
