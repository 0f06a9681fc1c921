/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select: which pods a target selects, and which of these must not be profiled. Pure functions. The
 * agent plans with them; the hub uses them to count the pods of nodes without an agent.
 * controller-spec/ has the behaviour as text and cases. Everything is borrowed from the API
 * objects.
 */
#pragma once

#include "lib/reason/reason.h"

#define SELECT_LABEL "podflame.io/profiling" /* of namespaces and pods, and an annotation of pods */

/*
 * k8s.io/apimachinery labels.Requirement.Matches. NULL matches nothing, {} everything; a selector
 * with a member that this version does not know matches nothing.
 */
bool select_selector_matches(const json_t *sel, const json_t *labels);

struct target_selection {	/* of a target; selectors as in its spec */
	bool cluster;	/* of a ClusterProfilingTarget */
	const char *ns; /* the target's own; of a cluster-wide one it is not read */
	const json_t *pods, *namespaces, *nodes;
};
struct selected {
	const char *ns;
	const json_t *ns_labels; /* NULL: none, or not known */
	const json_t *labels, *annotations;
};
/*
 * Whether the node selector selects a node. labels NULL: they are not known; then only a target
 * without a node selector selects the node.
 */
bool select_takes_node(const struct target_selection *s, const json_t *labels);
bool select_takes_namespace(const struct target_selection *s, const char *ns, const json_t *labels);
/* Whether the selectors match the pod: its namespace and itself. */
bool select_matches(const struct target_selection *s, const struct selected *p);

/* Why a pod must not be profiled although the selectors match. */
enum reason select_refusal(const struct target_selection *s, const struct selected *p,
			   bool opt_in_required);
bool select_opted_out(const json_t *labels, const json_t *annotations); /* of a pod */
