/* SPDX-License-Identifier: Apache-2.0 */
/* A node without an agent: why it may have no agent, and which of its pods targets select. */
#pragma once

#include "hub/pods/pods.h"

struct agentless_node { /* borrowed */
	const char *name;
	const json_t *object; /* with labels and taints */
	const char *why;      /* the result of status_agentless_pods_why */
};
/*
 * Returns a text that says why the node may have no agent. pods_known is the result of
 * status_agents_pods_known, and pod_says that of status_agents_pod_says for the node. The caller
 * frees the text.
 */
char *status_agentless_pods_why(const json_t *node, bool pods_known, const char *pod_says);
/* Returns what status_agentless_entry returns for this node. */
json_t *status_agentless_pods_entry(const struct pods *pods, const struct agentless_node *node,
				    const json_t *target, bool opt_in_required);
