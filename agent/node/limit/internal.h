/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of limit share. */
#pragma once

#include "node/limit/rules.h"

#include <uthash.h>

/* One event of one cgroup. */
struct account {
	struct probe_usage last, drain, round; /* as told; since the drain, the round before */
	enum limit_mode mode;
	bool tried;		   /* memory: a span has told what it costs */
	unsigned n_idle;	   /* spans in a row, before that, in which nothing ran */
	unsigned n_trials;	   /* the others before that, */
	struct traps trials;	   /* and what they cost together */
	struct traps cost;	   /* memory: what it was judged by */
	struct limit_span span; /* wait_ns: the period */
	struct spans spans;
	unsigned n_spans, n_spans_drained; /* since the last drain; before that */
	enum refusal why;
	uint64_t asked, retry_ns; /* when refused: what was asked for; CLOCK_MONOTONIC */
	uint32_t told_ppm;
};
struct payer { /* one cgroup */
	uint64_t cgroup_id;
	struct owner *owner;
	struct account of[_EVENT_MAX];
	struct off_shares off;
	struct traps lately;	    /* memory, attached as long as it lives */
	double cpus;		    /* that it used when it was last looked at; 0: not known */
	uint64_t cpu_ns, cpu_at_ns; /* as last read, and when: CLOCK_MONOTONIC; 0: not yet */
	UT_hash_handle hh;
};
struct rates; /* rate.c */
struct limit {
	struct limit_config config;
	struct rates *rates;
	struct payer *payers;
	uint64_t trap_ns, round_ns;
	bool reading; /* CPU times are on their way */
	struct problem_list refused, estimated;
};

#define MEMORY_EVENTS (1u << EVENT_MEM_ALLOC | 1u << EVENT_MEM_INUSE)

/* NULL: not known (get: not selected either, or there are too many: counted). */
struct payer *limit_payer(const struct limit *o, uint64_t cgroup_id);
struct payer *limit_payer_get(struct limit *o, uint64_t cgroup_id);
double limit_percent(const struct payer *p);
/* memory.c: what it used in a round. */
void limit_watch_memory(struct limit *o, struct payer *p, uint64_t elapsed_ns,
			   uint64_t cpu_ns);
/* A hit, and a walk where it is taken; which part of them is, the kernel has told, or it is the first time. */
uint64_t limit_hit_ns(const struct limit *o, const struct payer *p);
/* tell.c: as limit_estimate(). */
struct estimate limit_estimate_of(const struct limit *o, const struct payer *p, enum event e);
/* The same: changes with the targets of a container; what was refused is then asked for anew. */
uint64_t limit_asked(const struct limit *o, const struct payer *p);
/* The same: what is held back or estimated, to the targets. */
void limit_tell(struct limit *o);
/* rate.c */
struct rates *limit_rates_new(const struct limit_config *c);
struct rates *limit_rates_free(struct rates *r);
