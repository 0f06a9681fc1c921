/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reports: the ProfilingNodeReports of nodes that exist. One whose node is gone is
 * as good as deleted for the owner, and is deleted once the API server itself says
 * that there is no such node: our watch of nodes may be behind that of reports.
 */
#pragma once

#include "lib/kube/kube.h"

struct reports;
int reports_new(struct kube *k, const char *ns, const struct kube_watch_ops *ops, void *arg,
		struct reports **ret);
struct reports *reports_free(struct reports *r);
bool reports_synced(const struct reports *r);
void reports_tick(struct reports *r);	/* every second */
