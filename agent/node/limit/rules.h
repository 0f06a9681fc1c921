/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules: compute how much of an event the limit of a container allows, from the cost until now.
 * Pure functions: no clock and no I/O. payers.c keeps the accounts. docs/memory.md and
 * docs/off-cpu.md explain the cost of hits. Struct probe_set_info explains the counted and the live
 * event of a set of uprobes.
 */
#pragma once

#include "node/limit/limit.h"

/* The cost of a trap as long as probes_trap_ns() has no value. It is higher than usual. */
#define LIMIT_TRAP_NS 2000 /* no limit: the cost of a trap, if not measured */
/* The cost of the program that runs in a trap: filter, process, decision (probe/memory_bench.c). */
#define LIMIT_PROGRAM_NS 250 /* no limit: the cost of a trap's program */
/* The cost of walking a stack with unwind tables, and of counting it (probe_bench). */
#define LIMIT_WALK_NS 3000 /* no limit: the cost of walking a stack */
/*
 * If the probes take a larger share of a process's CPU time, the process hardly does its own work.
 */
#define LIMIT_LOAD_MAX 0.75 /* share of a process's CPU time that probes take */

/* ---- off-cpu ---- */
struct switches { /* the switches of the threads of a container in one round */
	uint64_t hits, cpu_ns;
};
/* Which shares of a container's switches are noted and kept: see proc_containers_keep_off(). */
struct off_shares {
	uint32_t note, keep;
};
#define OFF_SHARES(...) ((struct off_shares){__VA_ARGS__})
#define OFF_SHARES_ALL	OFF_SHARES(UINT32_MAX, UINT32_MAX)
/* Returns the new shares. They are never 0. */
struct off_shares limit_off_shares(struct off_shares now, const struct switches *s, double percent);

/* ---- uprobes ---- */
struct traps { /* sums for the time in which probes were attached */
	double attached_ns, hits, cpu_ns;
	/* what a library in the processes says the event costs, with the hits; 0: not known */
	double library_ns;
};
struct trap_limit {
	double percent;
	uint64_t max_stall_ns, trap_ns;
	/* the length of each span; 0: it follows from max_stall_ns */
	uint64_t span_ns;
};
enum refusal {
	REFUSAL_NONE,
	REFUSAL_SNAPSHOT,  /* a live event needs its probes all the time */
	REFUSAL_DISTORTED, /* while probes are attached, the process would hardly do its own work */
	REFUSAL_SHORT,	   /* the time that maxStall allows is too short to see anything */
	REFUSAL_RARE,	   /* the part of the time that the limit allows is too small */
};
/*
 * Returns the share of the CPU time, from 0 to 1, that traps take while probes are attached. If the
 * library that has the probes says that it takes more, this counts instead.
 */
double limit_load(const struct traps *t, uint64_t trap_ns);
/*
 * Returns the span for a trial, when no cost is known yet: a short one, unless l->span_ns is set.
 */
struct limit_span limit_trial(const struct trap_limit *l);
/*
 * Returns the mode for a container with this cost. now: its mode until now. It changes back to
 * LIMIT_STEADY only if the cost is well below the limit. If it returns LIMIT_SPANS, it sets
 * ret_span (wait_ns: the whole period). If it returns LIMIT_REFUSED, it sets ret_why.
 */
enum limit_mode limit_decide(enum event e, enum limit_mode now, const struct traps *t,
			     const struct trap_limit *l, struct limit_span *ret_span,
			     enum refusal *ret_why);
/*
 * Whether the container must leave LIMIT_STEADY. recent: the last round. lately: the last ten
 * seconds.
 */
bool limit_exceeded(const struct traps *recent, const struct traps *lately,
		    const struct trap_limit *l);
/*
 * Returns whether probes that stay attached stall the process too long. The caller calls this a few
 * times in each max_stall. *stall_ns is the time by which the probes delayed the process recently,
 * minus twice the time that the limit allows. cpus: how many CPUs the container uses.
 */
bool limit_stalls(double *stall_ns, uint64_t hits, uint64_t elapsed_ns, double cpus,
		  const struct trap_limit *l);
/*
 * Returns the spans of a counted event after a stall, until they have measured its cost. Each span
 * may stall the process for as long as maxStall again. All spans together stay within the limit.
 */
struct limit_span limit_after_stall(const struct trap_limit *l);

/* ---- estimates ---- */
/*
 * Sums over the spans of a counted event. Recent spans have a greater weight.
 *
 * Spans begin at random times. So a span stands for the time since the span before, divided by its
 * own time. Whatever the process does, this has no bias, except that traps slow the process down.
 * If a process has no idle time, it would have worked in the time of the traps. If it waits for
 * others, it would not. The agent finds out which is true for all traps together: the work (CPU
 * time less traps) for which the spans stand must be equal to all work that the process did.
 */
struct spans {
	/*
	 * hits: the hits that the spans saw. stand_for: the number of hits for which they stand.
	 * slowed: how many hits more the process would have caused if it had worked in the time of
	 * the traps.
	 */
	double hits, stand_for, slowed;
	double work_ns, traps_ns; /* the work and the time in traps for which the spans stand */
	double all_work_ns;	  /* all work of the process */
	/* the number of spans; the sum of their hits; the sum of the squares of their hits */
	double n, sum, square;
};
void limit_span_add(struct spans *s, const struct limit_spent *x, uint64_t trap_ns);
struct planned_spans {
	double duty;	 /* the share of time in spans; used until spans have measured the share */
	double load;	 /* the share of CPU time that traps take while probes are attached */
	double a_window; /* the number of spans in a window */
	double drains;	 /* the number of drains in a span; 1 or less: a drain has whole spans */
};
/*
 * Returns which share of all hits the spans saw, and one standard error of a sum of values that
 * come from n_spans spans.
 */
struct estimate limit_span_estimate(const struct spans *s, const struct planned_spans *p,
				    unsigned n_spans);
/* returns the error from two independent causes together */
uint32_t limit_errors_ppm(uint32_t a, uint32_t b);
