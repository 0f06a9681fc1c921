/* SPDX-License-Identifier: Apache-2.0 */
/* The targets of a node report: what the plan says of them and what happened since. */
#pragma once

#include "node/plan/plan.h"

#define REPORT_MAX_TARGETS 256 /* as crds/profilingnodereports.yaml */
#define REPORT_MAX_REASONS 8
#define REPORT_MAX_MESSAGE 1024

struct entry;
struct entries {
	struct entry *head;	       /* uthash, by uid */
	char *unsupported[_EVENT_MAX]; /* why there is none of this event here; NULL: there is */
};
/* reason NULL: the event works here. */
void report_entries_support(struct entries *e, enum event ev, const char *reason);
void report_entries_done(struct entries *e);
/* Takes over what concerns this node from the plan. */
void report_entries_plan(struct entries *e, const struct plan *p);
/* true if it was not known before. */
bool report_entries_sampled(struct entries *e, const char *uid, enum event ev);
bool report_entries_stored(struct entries *e, const char *uid, enum event ev);
/* true when the share is to be told anew. */
bool report_entries_stacks(struct entries *e, const char *uid, uint64_t n, uint64_t n_finished);
bool report_entries_problem(struct entries *e, const char *uid, enum reason reason, const char *message,
		     unsigned n_pods);
/* status.targets, sorted by uid; what did not fit is counted, of the namespaces with the most. New reference. */
json_t *report_entries_json(const struct entries *e, unsigned *ret_omitted);
/* What a user waits for: which targets, which generation, sampled, stored, kinds of reasons. No counts. */
uint64_t report_entries_class(const struct entries *e);
