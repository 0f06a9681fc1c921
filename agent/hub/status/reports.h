/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reports: the ProfilingNodeReports that count: their node exists, and the owner does not hide
 * them. For the owner any other report is deleted. The hub deletes a report whose node was deleted
 * once the API server itself says that there is no such node: the hub's watch of nodes may be
 * behind its watch of reports.
 */
#pragma once

#include "lib/kube/kube.h"

struct reports;
struct reports_ops {
	struct kube_watch_ops report;	/* of reports that count; state is not called */
	/* Whether the node has a report, which counts or not: called at each write of it. */
	void (*there)(const char *node, bool there, void *arg);
	void (*node)(const char *node, const json_t *obj, void *arg); /* obj NULL: it was deleted */
	bool (*hides)(const char *node, void *arg);	/* see status_reports_look_again */
};
int status_reports_new(struct kube *k, const char *ns, const struct reports_ops *ops, void *arg,
		struct reports **ret);
struct reports *status_reports_free(struct reports *r);
bool status_reports_synced(const struct reports *r);
bool status_reports_nodes_synced(const struct reports *r);
/* The answer of ops.hides for the node may have changed. */
void status_reports_look_again(struct reports *r, const char *node);
void status_reports_tick(struct reports *r);	/* every second */
