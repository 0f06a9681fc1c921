/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agents: on which nodes an agent works, as far as the API server knows it: the container of its
 * pod runs there and was ready since it was started, and the node has a report. A report alone
 * proves nothing: it outlives the agent, and is no sign of life.
 */
#pragma once

#include "lib/kube/kube.h"

struct agents;
struct agents_ops {
	/*
	 * lacks: no agent works on the node, and none has for for_ns. works: an agent works there
	 * again, or the node was deleted. Each is called once for a change.
	 */
	void (*lacks)(const char *node, uint64_t for_ns, void *arg);
	void (*works)(const char *node, void *arg);
};
/* Watches the agents' pods in namespace ns. */
int status_agents_new(struct kube *k, const char *ns, const struct agents_ops *ops, void *arg,
	       struct agents **ret);
struct agents *status_agents_free(struct agents *a);
/* NULL: it was deleted */
void status_agents_node(struct agents *a, const char *node, const json_t *obj);
/* Whether the node has a report; called again each time the report is written. */
void status_agents_report(struct agents *a, const char *node, bool there);
/* The agents' pods are listed, and the watch of them works now. */
bool status_agents_pods_known(const struct agents *a);
/* The agents' pods were listed, or cannot be: then a report is the only sign of an agent. */
bool status_agents_known(const struct agents *a);
/* From now on ops are called. Before that, the caller has passed all nodes and reports. */
void status_agents_begin(struct agents *a);
/*
 * What the agent's pod on the node waits for, if it does not work; NULL: there is no pod. The
 * caller frees it.
 */
char *status_agents_pod_says(const struct agents *a, const char *node);
