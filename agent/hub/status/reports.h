/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reports: the ProfilingNodeReports of nodes that exist and that the owner does not hide. Another one
 * is as good as deleted for the owner. One whose node is gone is deleted, once the API server itself says
 * that there is no such node: our watch of nodes may be behind that of reports.
 */
#pragma once

#include "lib/kube/kube.h"

struct reports;
struct reports_ops {
	struct kube_watch_ops report;	/* of those that count; state is not called */
	/* Whether there is one of a node, counted or not, told at each write of it; the node itself, NULL: it is gone. */
	void (*there)(const char *node, bool there, void *arg);
	void (*node)(const char *node, const json_t *obj, void *arg);
	bool (*hides)(const char *node, void *arg);	/* see reports_look_again */
};
int reports_new(struct kube *k, const char *ns, const struct reports_ops *ops, void *arg,
		struct reports **ret);
struct reports *reports_free(struct reports *r);
bool reports_synced(const struct reports *r);
bool reports_nodes_synced(const struct reports *r);
/* ops.hides may say something else of the node. */
void reports_look_again(struct reports *r, const char *node);
void reports_tick(struct reports *r);	/* every second */
