/* SPDX-License-Identifier: Apache-2.0 */
/* A node without an agent: its pods, why it may have no agent, and which pods targets select. */
#pragma once

#include "lib/kube/kube.h"

struct agentless_pod {
	const char *ns;	/* points into object */
	json_t *object; /* only the members that this module reads */
};
struct agentless_pods {
	struct agentless_pod *list; /* sorted by namespace */
	size_t n, n_bytes;
	json_t *labels; /* the labels of the node */
	char *why;	/* why the node may have no agent; NULL: not known yet */
};
/* Each of these removes the members that this module does not read. */
void status_agentless_trim_pod(json_t *obj);
void status_agentless_trim_node(json_t *obj);
void status_agentless_trim_named(json_t *obj); /* for a namespace */
/*
 * Takes the node's pods from the list `pods`. pods_known is the result of status_agents_pods_known,
 * and pod_says that of status_agents_pod_says for the node.
 */
void status_agentless_pods_take(struct agentless_pods *p, const struct kube_watch *pods,
			 const json_t *node,
			 bool pods_known, const char *pod_says);
void status_agentless_pods_done(struct agentless_pods *p);
/* Returns what status_agentless_entry returns for this node. */
json_t *status_agentless_pods_entry(const struct agentless_pods *p, const json_t *target,
			     const struct kube_watch *namespaces,
			     bool opt_in_required);
