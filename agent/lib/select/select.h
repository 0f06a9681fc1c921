/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select: which pods a target selects, and which of these must not be profiled. Pure functions. The
 * agent plans with them; the hub uses them to count the pods of nodes without an agent.
 * controller-spec/ has the behaviour as text and cases. All values are borrowed from objects of the
 * API server.
 */
#pragma once

#include "lib/reason/reason.h"

/* a label of namespaces and pods, and an annotation of pods */
#define SELECT_LABEL "podflame.io/profiling"
/* the label that Kubernetes gives every namespace: its name */
#define SELECT_NAME_LABEL "kubernetes.io/metadata.name"

/*
 * Whether the selector matches the labels, as labels.Requirement.Matches of k8s.io/apimachinery
 * decides it. sel NULL matches nothing, and {} everything. A selector with a member that this
 * version does not know matches nothing.
 */
bool select_selector_matches(const json_t *sel, const json_t *labels);

/*
 * The same for a selector that is compared with the labels of many objects, and for labels that are
 * compared with many selectors. Both borrow from their JSON. A look-up costs the comparison of
 * hashes, not that of texts.
 */
struct selector;
struct selector *select_compile(const json_t *sel);
struct selector *select_compiled_free(struct selector *s);
struct select_label {
	unsigned hash; /* of the key */
	const char *key, *value;
};
struct select_labels {
	struct select_label *items; /* sorted by hash */
	size_t n;
};
/* ns: the name of the namespace whose labels they are; NULL: they are those of another object */
void select_labels_read(const json_t *labels, const char *ns, struct select_labels *ret);
void select_labels_done(struct select_labels *l);
const char *select_label(const struct select_labels *l, const char *key); /* NULL: missing */
bool select_compiled_matches(const struct selector *s, const struct select_labels *l);

struct target_selection {	/* what a target selects; the selectors are those of its spec */
	bool cluster;	/* whether it is a ClusterProfilingTarget */
	const char *ns; /* the target's namespace; not read for a ClusterProfilingTarget */
	const json_t *pods, *namespaces, *nodes;
};
/* The result borrows from the target, an object of the API server. */
struct target_selection select_of_target(const json_t *target);
struct selected {
	const char *ns;
	const json_t *ns_labels; /* NULL: there are none, or they are not known */
	const json_t *labels, *annotations;
};
/*
 * Whether the target's node selector matches the node's labels. labels NULL: they are not known;
 * then only a target without a node selector selects the node.
 */
bool select_takes_node(const struct target_selection *s, const json_t *labels);
bool select_takes_namespace(const struct target_selection *s, const char *ns, const json_t *labels);
/* Whether the target selects the pod's namespace, and its selector matches the pod. */
bool select_matches(const struct target_selection *s, const struct selected *p);

/*
 * Returns why a pod must not be profiled although the target selects it. REASON_NONE: the pod may
 * be profiled.
 */
enum reason select_refusal(const struct target_selection *s, const struct selected *p,
			   bool opt_in_required);
/* whether a pod has opted out, by its labels or annotations */
bool select_opted_out(const json_t *labels, const json_t *annotations);
