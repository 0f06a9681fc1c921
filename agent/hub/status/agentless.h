/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agentless: nodes on which no agent has worked for a while, and what targets select there, which no report tells. Their
 * pods are listed, a node's once a minute at most, one list at a time: metadata alone.
 */
#pragma once

#include "lib/kube/kube.h"

struct agentless;
struct agentless_config {
	const char *ns;		/* of the agents */
	bool opt_in_required;	/* a ClusterProfilingTarget reaches labelled namespaces only */
};
struct agentless_ops {
	/* The node is one now or is none any more, or something else is known of its pods: see agentless_is, _entry. */
	void (*changed)(const char *node, void *arg);
	/* agentless_unseen begins or ends, at once, or says something else, about once a minute. */
	void (*unseen)(void *arg);
};
int agentless_new(struct kube *k, const struct agentless_config *c, const struct agentless_ops *ops, void *arg,
		  struct agentless **ret);
struct agentless *agentless_free(struct agentless *a);
void agentless_node(struct agentless *a, const char *node, const json_t *obj);	/* NULL: it is gone */
void agentless_report(struct agentless *a, const char *node, bool there);
/* Every second, with whether all nodes and reports are known: before that nothing is said of any. */
void agentless_tick(struct agentless *a, bool all_known);
/* The nodes that had no agent when all were known have been looked at. */
bool agentless_settled(struct agentless *a, bool all_known);
/* They are not waited for any longer: agentless_unseen tells of those that were not looked at. */
void agentless_hurry(struct agentless *a);
bool agentless_is(const struct agentless *a, const char *node);
void agentless_each(const struct agentless *a, void (*fn)(const char *node, void *arg), void *arg);
/*
 * What is to be said of a target on such a node, in the form of an element of a report's status.targets, with
 * "withoutAgent": true. NULL: it selects nothing there. New reference.
 */
json_t *agentless_entry(const struct agentless *a, const char *node, const json_t *target);
/* "not all pods of 2 nodes without an agent (n1, n2) are known: ..."; NULL: all are. */
const char *agentless_unseen(const struct agentless *a);
