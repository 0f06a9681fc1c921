/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status: computes the status of targets from ProfilingNodeReports. Incremental: the work is in
 * proportion to the changes. The only writer of the status of targets.
 */
#pragma once

#include "lib/kube/kube.h"

struct status;
struct status_config {
	const char *ns;			/* of the reports and the agents */
	bool opt_in_required; /* a ClusterProfilingTarget reaches labelled namespaces only */
};
int status_new(struct loop *l, struct kube *k, const struct status_config *c, struct status **ret);
struct status *status_free(struct status *s);
/* Facts about a target besides its entries. */
struct status_seen {
	unsigned n_reports;		/* nodes that report at all */
	bool omitted;			/* a report without room may lack the target */
	const char *unseen;		/* pods that are not known, for people; NULL: all are */
};
/*
 * Pure: computes the status of a target from the target (with its old status) and its entries. Each
 * entry is an element of a report's status.targets, with "node" added, or an status_agentless_entry
 * for a node without a report. It knows the time only from now_rfc3339: "waited long enough" is now
 * minus the Ready condition's lastTransitionTime. New reference.
 */
json_t *status_compute(const json_t *target, const json_t *const *entries, size_t n,
		       const struct status_seen *seen, const char *now_rfc3339);
/* true while the result of status_compute can change without a new entry, by time. */
bool status_pending(const json_t *status);
