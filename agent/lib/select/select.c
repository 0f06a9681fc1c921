/* SPDX-License-Identifier: Apache-2.0 */
/* See select.h. */
#include "lib/select/select.h"

bool select_takes_node(const struct target_selection *s, const json_t *labels)
{
	if (!s->nodes || (json_is_object(s->nodes) && json_object_size(s->nodes) == 0))
		return true;
	return labels && select_selector_matches(s->nodes, labels);
}

struct target_selection select_of_target(const json_t *target)
{
	const char *ns = json_str_at(target, "metadata.namespace", "");

	return (struct target_selection){
		.cluster = !*ns,
		.ns = ns,
		.pods = json_at(target, "spec.podSelector"),
		.namespaces = json_at(target, "spec.namespaceSelector"),
		.nodes = json_at(target, "spec.nodeSelector"),
	};
}

/*
 * Kubernetes gives every namespace a label with its name. So the agent knows this label even if it
 * does not have the namespace's labels yet.
 */
bool select_takes_namespace(const struct target_selection *s, const char *ns, const json_t *labels)
{
	_cleanup_json_ json_t *named = NULL;

	if (!s->cluster)
		return streq(s->ns, ns);
	if (json_object_size(s->namespaces) == 0)
		return json_is_object(s->namespaces);
	named = json_is_object(labels) ? json_copy((json_t *)labels) : json_object();
	json_object_set_new(named, SELECT_NAME_LABEL, json_string(ns));
	return select_selector_matches(s->namespaces, named);
}

bool select_matches(const struct target_selection *s, const struct selected *p)
{
	return select_takes_namespace(s, p->ns, p->ns_labels) &&
	       select_selector_matches(s->pods, p->labels);
}
