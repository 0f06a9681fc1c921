/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of limit/ share and that other modules do not use. All runs on the
 * loop thread.
 */
#pragma once

#include "node/limit/rules.h"

#include <uthash.h>

/* What an event of a cgroup has cost, and the decision that follows from it. */
struct account {
	/*
	 * The kernel's counters: as last reported; their growth in the last drain; their growth in
	 * the last round.
	 */
	struct probe_usage last, drain, round;
	/*
	 * the time that a library in the processes says it has used, since the mode changed or a
	 * span ended
	 */
	uint64_t library_ns;
	enum limit_mode mode;
	/* uprobes: trial spans have shown the cost of the event, so `mode` is decided */
	bool tried;
	/* until `tried`: spans that do not count, because the process hardly ran in them */
	unsigned n_idle;
	unsigned n_trials;	/* until `tried`: all other trial spans */
	struct traps trials;	/* the cost of these spans together */
	struct traps cost;	/* uprobes: the cost from which the mode was decided */
	struct limit_span span; /* wait_ns: the whole period */
	struct spans spans;
	/* spans since the last drain; spans in the drain before */
	unsigned n_spans, n_spans_drained;
	enum refusal why;
	/*
	 * If refused: a hash of what the targets asked for, and when to try again
	 * (CLOCK_MONOTONIC).
	 */
	uint64_t asked, retry_ns;
	uint32_t told_ppm;
};
struct payer { /* a cgroup, and what its events have cost */
	uint64_t cgroup_id;
	uint64_t ns; /* struct charged: whose share it takes */
	struct owner *owner;
	struct account of[_EVENT_MAX];
	struct off_shares off;
	/* the cost over the last ten seconds of the events that are attached steadily */
	struct traps lately[_PROBES_SET_MAX];
	/*
	 * How many CPUs were used recently where a set is attached: by the cgroup, or by one
	 * process in spans; 0: not known.
	 */
	double cpus[_PROBES_SET_MAX];
	/*
	 * the CPU time at the last reading, and the time of this reading (CLOCK_MONOTONIC); 0: not
	 * read yet
	 */
	uint64_t cpu_ns, cpu_at_ns;
	UT_hash_handle hh;
};
struct rates; /* on_cpu.c */
struct limit {
	struct limit_config config;
	struct rates *rates;
	struct payer *payers;
	struct shares payer_shares;
	struct shares crowded; /* for limit_crowded() */
	uint64_t trap_ns, round_ns;
	bool reading; /* the os worker is reading CPU times */
	struct problem_list refused, estimated;
};

/*
 * limit_payer() returns the payer of the cgroup, or NULL if there is none yet. limit_payer_get()
 * makes the payer if there is none. It returns NULL if the cgroup is not selected, or if its
 * namespace has its share of the payers already, which is counted.
 */
struct payer *limit_payer(const struct limit *o, uint64_t cgroup_id);
struct payer *limit_payer_get(struct limit *o, uint64_t cgroup_id);
double limit_percent(const struct payer *p);
/*
 * trap_mode.c: decides again about events that are attached steadily. elapsed_ns and cpu_ns: the
 * length of the last round, and the CPU time of the container in it.
 */
void limit_watch_traps(struct limit *o, struct payer *p, uint64_t elapsed_ns, uint64_t cpu_ns);
/*
 * Returns the cost of a hit. If a hit is taken, its stack is walked, which costs more. The kernel
 * counts how many of the hits are taken. Before its first count, hits count as taken only if
 * sampleBytes is 1.
 */
uint64_t limit_hit_ns(const struct limit *o, const struct payer *p, enum probe_set set);
/* conditions.c: see limit_estimate(). */
struct estimate limit_estimate_of(const struct limit *o, const struct payer *p, enum event e);
/*
 * conditions.c: a hash that changes when the targets of a container change. A refused event is then
 * tried again.
 */
uint64_t limit_asked(const struct limit *o, const struct payer *p);
/* conditions.c: reports to the targets which events are refused or estimated. */
void limit_tell(struct limit *o);
/* ---- on_cpu.c ---- */
struct rates *limit_rates_new(const struct limit_config *c);
struct rates *limit_rates_free(struct rates *r);
