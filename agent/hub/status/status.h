/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status: computes the status of targets from ProfilingNodeReports, and writes it. Nothing else
 * writes the status of targets, and of several hubs only the one that leads. A change of a report
 * costs work only for the targets that it names.
 */
#pragma once

#include "hub/pods/pods.h"

struct status;
struct status_config {
	const char *ns;			/* the namespace of the reports and of the agents */
	/* a ClusterProfilingTarget selects pods of labelled namespaces only */
	bool opt_in_required;
	struct pods *pods;		/* borrowed until status_free */
	/*
	 * Whether this hub leads: only then it writes and deletes. A hub that does not lead keeps
	 * up with what it would write. NULL: this hub is the only one
	 */
	bool (*leads)(void *arg);
	void *leads_arg;
};
/* k: for a hub that may lose the lead, a kube that does not write then (kube_lease_writer) */
int status_new(struct loop *l, struct kube *k, const struct status_config *c, struct status **ret);
struct status *status_free(struct status *s);
/*
 * Returns a list of all targets, with the status that the hub wrote last. NULL: the hub does not
 * know them yet. The result is a new reference.
 */
json_t *status_targets(const struct status *s);
/* What status_compute needs besides the target's entries. */
struct status_seen {
	unsigned n_reports;		/* nodes that have a report */
	bool omitted;			/* the target may be missing in a report */
	/* why some pods are not known, as text for a user; NULL: all are known */
	const char *unseen;
	/* pods whose profiles could not be verified, as text for a user; NULL: there are none */
	const char *unverified;
	/* targets of the same kind and namespace for which the hub has no room */
	size_t n_crowded_out;
};
/*
 * Computes the status of a target from the target (with its old status) and its entries; a pure
 * function. An entry is an element of a report's status.targets with "node" added, or a
 * status_agentless_entry for a node without a report. If it has "doubted": true, the hub knows of
 * no pod of the target on the node, and does not believe the entry that samples are stored.
 * now_rfc3339 is the current time. The wait, while Ready is Unknown, began at the
 * lastTransitionTime of Ready. Returns a new reference.
 */
json_t *status_compute(const json_t *target, const json_t *const *entries, size_t n,
		       const struct status_seen *seen, const char *now_rfc3339);
/* Whether the result of status_compute may change as time passes, without a new entry. */
bool status_pending(const json_t *status);
