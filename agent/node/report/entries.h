/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The targets of a node report: what the plan says of them and what has happened since. Loop
 * thread.
 */
#pragma once

#include "node/plan/plan.h"

#define REPORT_MAX_TARGETS 256 /* as in crds/profilingnodereports.yaml */
#define REPORT_MAX_REASONS 8
#define REPORT_MAX_MESSAGE 1024

struct target_entry;
struct entries {
	struct target_entry *head;	       /* uthash, by uid */
	char *unsupported[_EVENT_MAX]; /* why this node does not have the event; NULL: it does */
};
/* reason NULL: the event works on this node. */
void report_entries_support(struct entries *e, enum event ev, const char *reason);
void report_entries_done(struct entries *e);
/* Takes from the plan what concerns this node. */
void report_entries_plan(struct entries *e, const struct plan *p);
/* Return true if that was not known before. */
bool report_entries_sampled(struct entries *e, const char *uid, enum event ev);
bool report_entries_stored(struct entries *e, const char *uid, enum event ev);
/* Returns true if the share should be reported anew. */
bool report_entries_stacks(struct entries *e, const char *uid, uint64_t n, uint64_t n_finished);
bool report_entries_problem(struct entries *e, const char *uid, enum reason reason,
			    const char *message, unsigned n_pods);
/*
 * status.targets, sorted by uid. Targets that do not fit are left out and counted, from the
 * namespaces with the most. Returns a new reference.
 */
json_t *report_entries_json(const struct entries *e, unsigned *ret_omitted);
/*
 * A hash of what a user waits for: targets, generation, sampled, stored, names of reasons. It
 * contains no counts.
 */
uint64_t report_entries_class(const struct entries *e);
