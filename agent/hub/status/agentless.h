/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agentless: nodes on which no agent has worked for 90 seconds, and what targets select there,
 * since no report says it. The hub lists the metadata of the pods of such a node, once a minute at
 * most, and makes one list at a time.
 */
#pragma once

#include "lib/kube/kube.h"

struct agentless;
struct agentless_config {
	const char *ns;		/* of the agents */
	bool opt_in_required;	/* a ClusterProfilingTarget reaches labelled namespaces only */
};
struct agentless_ops {
	/*
	 * The answer of status_agentless_is() or status_agentless_entry() for the node may have
	 * changed.
	 */
	void (*changed)(const char *node, void *arg);
	/*
	 * status_agentless_unseen begins or ends, at once, or says something else, about once a
	 * minute.
	 */
	void (*unseen)(void *arg);
};
int status_agentless_new(struct kube *k, const struct agentless_config *c,
			 const struct agentless_ops *ops,
		  void *arg,
		  struct agentless **ret);
struct agentless *status_agentless_free(struct agentless *a);
/* NULL: it was deleted */
void status_agentless_node(struct agentless *a, const char *node, const json_t *obj);
void status_agentless_report(struct agentless *a, const char *node, bool there);
/* To be called every second. all_known: all nodes and reports are; before that no node counts. */
void status_agentless_tick(struct agentless *a, bool all_known);
/* The nodes that had no agent when all were known have been looked at. */
bool status_agentless_settled(struct agentless *a, bool all_known);
/*
 * Do not wait for them any longer: status_agentless_unseen counts the nodes that were not listed.
 */
void status_agentless_hurry(struct agentless *a);
bool status_agentless_is(const struct agentless *a, const char *node);
void status_agentless_each(const struct agentless *a, void (*fn)(const char *node, void *arg),
			   void *arg);
/*
 * The entry of a target for such a node, in the form of an element of a report's status.targets,
 * with "withoutAgent": true. NULL: the target selects nothing there. New reference.
 */
json_t *status_agentless_entry(const struct agentless *a, const char *node, const json_t *target);
/* "not all pods of 2 nodes without an agent (n1, n2) are known: ..."; NULL: all are. */
const char *status_agentless_unseen(const struct agentless *a);
