/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status: ProfilingNodeReports -> status of targets. Incremental: work is in
 * proportion to what changed. The only writer of target status.
 */
#pragma once

#include "lib/kube/kube.h"

struct status;
struct status_config {
	const char *ns;			/* of the reports */
};
int status_new(struct loop *l, struct kube *k, const struct status_config *c, struct status **ret);
struct status *status_free(struct status *s);
/*
 * Pure: what a target's status should be, from the target and the reports about
 * it (each an element of a report's status.targets, with "node" added).
 */
json_t *status_compute(const json_t *target, const json_t *const *entries, size_t n, const char *now_rfc3339);
