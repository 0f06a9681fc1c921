/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agentless: nodes on which no agent has worked for 90 seconds, and which of their pods targets
 * select. No report names these pods, so the hub counts them itself, from its watch of pods. It
 * counts the pods of such a node once a minute, so that pods that come and go there cause few
 * writes of targets.
 */
#pragma once

#include "hub/pods/pods.h"

struct agentless;
struct agentless_config {
	const char *ns;		/* the namespace of the agents */
	/* a ClusterProfilingTarget selects pods of labelled namespaces only */
	bool opt_in_required;
	struct pods *pods;	/* borrowed */
};
struct agentless_ops {
	/*
	 * The answer of status_agentless_is() or status_agentless_entry() for the node may have
	 * changed.
	 */
	void (*changed)(const char *node, void *arg);
	/*
	 * The result of status_agentless_unseen has changed. If it becomes NULL or is no longer
	 * NULL, this function is called at once. If only the text changes, it is called about once
	 * a minute.
	 */
	void (*unseen)(void *arg);
};
int status_agentless_new(struct kube *k, const struct agentless_config *c,
			 const struct agentless_ops *ops,
		  void *arg,
		  struct agentless **ret);
struct agentless *status_agentless_free(struct agentless *a);
/* obj NULL: the node was deleted */
void status_agentless_node(struct agentless *a, const char *node, const json_t *obj);
void status_agentless_report(struct agentless *a, const char *node, bool there);
/*
 * To be called every second. all_known: whether all nodes and reports are known. Before that, no
 * node counts as one without an agent.
 */
void status_agentless_tick(struct agentless *a, bool all_known);
/*
 * Whether the pods of each node without an agent are counted. all_known: as in
 * status_agentless_tick. Returns false as long as all_known was never true.
 */
bool status_agentless_settled(struct agentless *a, bool all_known);
/*
 * The caller no longer waits for the first counts. From now on status_agentless_unseen names the
 * nodes whose pods are not counted.
 */
void status_agentless_hurry(struct agentless *a);
bool status_agentless_is(const struct agentless *a, const char *node);
void status_agentless_each(const struct agentless *a, void (*fn)(const char *node, void *arg),
			   void *arg);
/*
 * Returns the entry of a target for a node without an agent. It has the form of an element of a
 * report's status.targets, with "withoutAgent": true. NULL: the target selects nothing on the node,
 * or the node has an agent. The result is a new reference.
 */
json_t *status_agentless_entry(const struct agentless *a, const char *node, const json_t *target);
/*
 * Returns a text such as "not all pods of 2 nodes without an agent (n1, n2) are known: ..."; NULL:
 * all pods are known.
 */
const char *status_agentless_unseen(const struct agentless *a);
