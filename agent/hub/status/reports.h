/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reports: the ProfilingNodeReports that count. A report counts if its node exists and if ops.hides
 * does not hide it. For the owner of this struct, a report that does not count is as if it was
 * deleted. The hub deletes the report of a deleted node only after it has asked the API server for
 * the node, because its watch of nodes may be behind its watch of reports.
 */
#pragma once

#include "lib/kube/kube.h"

struct reports;
struct reports_ops {
	/* called for reports that count; its member state is not called */
	struct kube_watch_ops report;
	/* Called each time a report is written or deleted, also if the report does not count. */
	void (*there)(const char *node, bool there, void *arg);
	/* obj NULL: the node was deleted */
	void (*node)(const char *node, const json_t *obj, void *arg);
	/* whether the node's report must not count */
	bool (*hides)(const char *node, void *arg);
};
int status_reports_new(struct kube *k, const char *ns, const struct reports_ops *ops, void *arg,
		struct reports **ret);
struct reports *status_reports_free(struct reports *r);
bool status_reports_synced(const struct reports *r);
bool status_reports_nodes_synced(const struct reports *r);
/* The caller calls this when the answer of ops.hides for the node may have changed. */
void status_reports_look_again(struct reports *r, const char *node);
void status_reports_tick(struct reports *r);	/* to be called every second */
