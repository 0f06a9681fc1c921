/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of limit/ share and that other modules do not use. Loop thread. */
#pragma once

#include "node/limit/rules.h"

#include <uthash.h>

/* What one event of one cgroup has cost, and what follows from it. */
struct account {
	/* the kernel's counters as reported last; since the last drain; in the last round */
	struct probe_usage last, drain, round;
	enum limit_mode mode;
	bool tried;		   /* memory: spans have shown what it costs */
	unsigned n_idle;	   /* spans in a row before `tried` in which nothing ran */
	unsigned n_trials;	   /* other spans before `tried` */
	struct traps trials;	   /* what these cost together */
	struct traps cost;	   /* memory: the cost by which it was judged */
	struct limit_span span; /* wait_ns: the period */
	struct spans spans;
	unsigned n_spans, n_spans_drained; /* since the last drain; in the drain before */
	enum refusal why;
	/* when refused: hash of what the targets asked for; when to retry (CLOCK_MONOTONIC) */
	uint64_t asked, retry_ns;
	uint32_t told_ppm;
};
struct payer { /* one cgroup */
	uint64_t cgroup_id;
	struct owner *owner;
	struct account of[_EVENT_MAX];
	struct off_shares off;
	/* memory that is attached steadily: its cost over the last ten seconds */
	struct traps lately;
	double cpus;		    /* how many CPUs it used in the last round; 0: not known */
	/* CPU time when last read, and when that was (CLOCK_MONOTONIC); 0: never */
	uint64_t cpu_ns, cpu_at_ns;
	UT_hash_handle hh;
};
struct rates; /* on_cpu.c */
struct limit {
	struct limit_config config;
	struct rates *rates;
	struct payer *payers;
	uint64_t trap_ns, round_ns;
	bool reading; /* the os worker is reading CPU times */
	struct problem_list refused, estimated;
};

#define MEMORY_EVENTS (1u << EVENT_MEM_ALLOC | 1u << EVENT_MEM_INUSE)

/*
 * Returns NULL if the cgroup has no payer. limit_payer_get() makes one and returns NULL if the
 * cgroup is not selected, or if there are too many, which is counted.
 */
struct payer *limit_payer(const struct limit *o, uint64_t cgroup_id);
struct payer *limit_payer_get(struct limit *o, uint64_t cgroup_id);
double limit_percent(const struct payer *p);
/* memory_mode.c: the caller passes what the container used in a round. */
void limit_watch_memory(struct limit *o, struct payer *p, uint64_t elapsed_ns,
			   uint64_t cpu_ns);
/*
 * The cost of a hit, with a stack's walk where the hit is taken. The kernel has counted which part
 * of the hits is taken; before the first count, all are.
 */
uint64_t limit_hit_ns(const struct limit *o, const struct payer *p);
/* conditions.c: see limit_estimate(). */
struct estimate limit_estimate_of(const struct limit *o, const struct payer *p, enum event e);
/*
 * conditions.c: a hash that changes with the targets of a container. When it changes, a refused
 * event is tried again.
 */
uint64_t limit_asked(const struct limit *o, const struct payer *p);
/* conditions.c: reports to the targets which events are refused or are estimates. */
void limit_tell(struct limit *o);
/* on_cpu.c */
struct rates *limit_rates_new(const struct limit_config *c);
struct rates *limit_rates_free(struct rates *r);
