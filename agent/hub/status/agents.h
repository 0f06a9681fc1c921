/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agents: on which nodes an agent works, as far as the API server shows it. An agent works if its
 * node has a report and if the agent's container runs and was ready at some time since its start. A
 * report alone is no proof, because it stays after the agent has gone.
 */
#pragma once

#include "lib/kube/kube.h"

struct agents;
struct agents_ops {
	/*
	 * Each function is called once per change. lacks: no agent works on the node, and none has
	 * worked there for the last for_ns. works: an agent works there again, or the node was
	 * deleted.
	 */
	void (*lacks)(const char *node, uint64_t for_ns, void *arg);
	void (*works)(const char *node, void *arg);
};
/* Watches the agents' pods in namespace ns. */
int status_agents_new(struct kube *k, const char *ns, const struct agents_ops *ops, void *arg,
	       struct agents **ret);
struct agents *status_agents_free(struct agents *a);
/* obj NULL: the node was deleted */
void status_agents_node(struct agents *a, const char *node, const json_t *obj);
/* Returns the last obj (borrowed) of the node; NULL: the node does not exist, or is not known. */
const json_t *status_agents_object(const struct agents *a, const char *node);
/* there: whether the node has a report. To be called also each time the report is written. */
void status_agents_report(struct agents *a, const char *node, bool there);
/* Whether the agents' pods are listed and the watch of them works now. */
bool status_agents_pods_known(const struct agents *a);
/*
 * Whether the agents' pods were listed, or cannot be listed. In the second case a report is the
 * only sign of an agent.
 */
bool status_agents_known(const struct agents *a);
/* From now on ops are called. The caller has passed all nodes and reports before. */
void status_agents_begin(struct agents *a);
/*
 * If the agent on the node does not work: what its pod waits for. NULL: the agent has no pod there.
 * The caller frees the string.
 */
char *status_agents_pod_says(const struct agents *a, const char *node);
