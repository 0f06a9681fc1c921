/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status: ProfilingNodeReports -> status of targets. Incremental: work is in
 * proportion to what changed. The only writer of target status.
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
/* What is known beside what is said of one target. */
struct status_seen {
	unsigned n_reports;		/* nodes that report at all */
	bool omitted;			/* in a report the target may be missing for want of room */
	const char *unseen;		/* pods that are not known, for people; NULL: all are */
};
/*
 * Pure: what a target's status should be, from the target (with the status it
 * has) and what is said of it: each an element of a report's status.targets,
 * with "node" added, or what agentless_entry says of a node that has no report.
 * Time passes by now_rfc3339 alone: "waited long enough" is now minus the Ready
 * condition's lastTransitionTime. New reference.
 */
json_t *status_compute(const json_t *target, const json_t *const *entries, size_t n,
		       const struct status_seen *seen, const char *now_rfc3339);
/* true while time alone can change what status_compute says. */
bool status_pending(const json_t *status);
