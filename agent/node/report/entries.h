/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The targets of a node report: what the plan contains about them and what has happened since. Loop
 * thread.
 */
#pragma once

#include "node/plan/plan.h"

#define REPORT_MAX_TARGETS 256 /* targets in one report, as in crds/profilingnodereports.yaml */
#define REPORT_MAX_REASONS 8
#define REPORT_MAX_MESSAGE 1024

struct target_entry;
struct entries {
	struct target_entry *head;	       /* a uthash table, by uid */
	char *unsupported[_EVENT_MAX]; /* why this node cannot provide the event; NULL: it can */
};
/* Sets whether the event works on this node. reason NULL: it works. */
void report_entries_support(struct entries *e, enum event ev, const char *reason);
void report_entries_done(struct entries *e);
/* Takes over the targets of the plan that concern this node. */
void report_entries_plan(struct entries *e, const struct plan *p);
/*
 * Both functions keep a fact about a target's event: this node has samples of it; the hub has
 * stored some. They return true if that is new.
 */
bool report_entries_sampled(struct entries *e, const char *uid, enum event ev);
bool report_entries_stored(struct entries *e, const char *uid, enum event ev);
/* Counts stacks. Returns true if the share of complete stacks should be reported again. */
bool report_entries_stacks(struct entries *e, const char *uid, uint64_t n, uint64_t n_finished);
bool report_entries_problem(struct entries *e, const char *uid, enum reason reason,
			    const char *message, unsigned n_pods);
/*
 * Returns status.targets, sorted by uid, as a new reference. If there are too many targets, those
 * that do not fit are left out and counted; they are from the namespaces with most targets.
 */
json_t *report_entries_json(const struct entries *e, unsigned *ret_omitted);
/*
 * Returns a hash of the content for which a user waits: targets, generation, sampled, stored, names
 * of reasons. The hash does not change if only a count changes.
 */
uint64_t report_entries_class(const struct entries *e);
