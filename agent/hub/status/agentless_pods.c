/* SPDX-License-Identifier: Apache-2.0 */
/* See agentless_pods.h. */
#include "hub/status/agentless_pods.h"

#include "hub/status/internal.h"

#include <stdlib.h>

/* agents run on this architecture only, see the node selector in the chart */
#define ARCH	     "amd64"
#define TAINTS_SHOWN 3

/* ---- why the node has no agent ---- */

static const char *label(const json_t *node, const char *key)
{
	return json_string_value(json_object_get(json_at(node, "metadata.labels"), key));
}

/* Whether the node is virtual. The providers of virtual nodes set these labels. */
static bool is_virtual(const json_t *node)
{
	return str_equal(label(node, "type"), "virtual-kubelet") ||
	       str_equal(label(node, "eks.amazonaws.com/compute-type"), "fargate");
}

static void list_taints(struct buf *b, const json_t *node)
{
	const json_t *taints = json_at(node, "spec.taints"), *t;
	size_t i, n = json_array_size(taints);

	json_array_foreach (taints, i, t) {
		const char *value = json_str_at(t, "value", "");

		if (i == TAINTS_SHOWN)
			break;
		buf_printf(b, "%s%.64s%s%.64s:%.32s", i ? ", " : "", json_str_at(t, "key", ""),
			   *value ? "=" : "", value, json_str_at(t, "effect", ""));
	}
	if (n > TAINTS_SHOWN)
		buf_printf(b, " and %zu more", n - TAINTS_SHOWN);
	if (!n)
		buf_puts(b, "none");
}

/* A taint is not always the reason, because the DaemonSet may tolerate it. */
char *status_agentless_pods_why(const json_t *node, bool pods_known, const char *pod_says)
{
	const char *os = label(node, "kubernetes.io/os"), *arch = label(node, "kubernetes.io/arch");
	_cleanup_buf_ struct buf taints = {0};

	if (pods_known && pod_says)
		return xstrdup(pod_says);
	if (is_virtual(node))
		return xstrdup("the node is virtual, and no DaemonSet runs there");
	if ((os && !streq(os, "linux")) || (arch && !streq(arch, ARCH)))
		return xasprintf("agents run only on linux/" ARCH ", and the node is %.32s/%.32s",
				 os ? os : "?", arch ? arch : "?");
	if (!pods_known)
		return xstrdup("the node has no report, or only an old one, and the hub cannot "
			       "watch the agents' pods: see the hub's log");
	list_taints(&taints, node);
	return xasprintf("the DaemonSet podflame-agent has no pod there (taints: %s); usual "
			 "reasons: its nodeSelector or affinity, a taint that it does not "
			 "tolerate, a quota or policy that refuses its pods",
			 taints.data);
}

/* ---- what a target selects ---- */

struct pods_tally {
	const struct target_selection *selection;
	bool opt_in_required;
	unsigned n_matched, n_wanted, n_refused[_REASON_MAX];
	struct {
		const char *ns, *name;
	} example[_REASON_MAX];
};

static void add(const char *name, const struct selected *of, void *arg)
{
	struct pods_tally *t = arg;
	enum reason r;

	if (!select_matches(t->selection, of))
		return;
	t->n_matched++;
	r = select_refusal(t->selection, of, t->opt_in_required);
	t->n_wanted += !r;
	if (!r || t->n_refused[r]++)
		return;
	t->example[r].ns = of->ns;
	t->example[r].name = name;
}

static json_t *reasons(const struct pods_tally *t, const char *why_not)
{
	json_t *list = json_array();

	if (t->n_wanted)
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:i}", "reason",
						reason_name(REASON_NODE_WITHOUT_AGENT), "message",
						why_not, "pods", (int)t->n_wanted));
	for (enum reason r = REASON_NONE + 1; r < _REASON_MAX; r++) {
		_cleanup_free_ char *example = NULL, *text = NULL;

		if (!t->n_refused[r])
			continue;
		example = xasprintf("%s/%s", t->example[r].ns, t->example[r].name);
		text = reason_about_pods(r, t->n_refused[r], example);
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:i}", "reason", reason_name(r),
						"message", text, "pods", (int)t->n_refused[r]));
	}
	return list;
}

json_t *status_agentless_pods_entry(const struct pods *pods, const struct agentless_node *node,
				    const json_t *target, bool opt_in_required)
{
	const struct target_selection s = select_of_target(target);
	struct pods_tally t = {.selection = &s, .opt_in_required = opt_in_required};

	if (!select_takes_node(&s, json_at(node->object, "metadata.labels")))
		return NULL;
	pods_each_running(pods, node->name, s.cluster ? NULL : s.ns, add, &t);
	if (!t.n_matched)
		return NULL;
	return json_pack("{s:s, s:I, s:b, s:i, s:o}", "uid",
			 json_str_at(target, "metadata.uid", ""), "generation",
			 (json_int_t)json_int_at(target, "metadata.generation", 0), "withoutAgent",
			 1, "podsMatched", (int)t.n_matched, "reasons", reasons(&t, node->why));
}
