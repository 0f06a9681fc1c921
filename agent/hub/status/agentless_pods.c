/* SPDX-License-Identifier: Apache-2.0 */
/* See agentless_pods.h. */
#include "hub/status/agentless_pods.h"

#include "lib/select/select.h"

#include <stdlib.h>

/* agents run on this architecture only, see the affinity in the chart */
#define ARCH	     "amd64"
#define TAINTS_SHOWN 3

/* ---- pods ---- */

void status_agentless_trim_pod(json_t *obj)
{
	json_keep(obj, "metadata", "name namespace uid resourceVersion labels annotations");
	json_keep(json_object_get(obj, "metadata"), "annotations", SELECT_LABEL);
}

void status_agentless_trim_named(json_t *obj)
{
	json_keep(obj, "metadata", "name uid resourceVersion labels");
}

static int by_namespace(const void *a, const void *b)
{
	const struct agentless_pod *x = a, *y = b;
	int d = strcmp(x->ns, y->ns);

	return d ? d
		 : strcmp(json_str_at(x->object, "metadata.name", ""),
			  json_str_at(y->object, "metadata.name", ""));
}

struct pods_taking {
	struct agentless_pods *pods;
	size_t cap;
};

static void take(const char *key, const json_t *obj, void *arg)
{
	struct pods_taking *t = arg;
	struct agentless_pods *p = t->pods;

	(void)key;
	GROW(p->list, p->n, t->cap);
	p->list[p->n++] = (struct agentless_pod){json_str_at(obj, "metadata.namespace", ""),
						 json_incref((json_t *)obj)};
	p->n_bytes += json_memory_bytes(obj);
}

/* ---- why the node has no agent ---- */

void status_agentless_trim_node(json_t *obj)
{
	status_agentless_trim_named(obj);
	json_keep(obj, "spec", "taints");
	json_keep(obj, "status", "");
}

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

/*
 * Returns a text that says why the node may have no agent. A taint is not always the reason,
 * because the DaemonSet may tolerate it.
 */
static char *why(const json_t *node, bool pods_known, const char *pod_says)
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

void status_agentless_pods_take(struct agentless_pods *p, const struct kube_watch *pods,
				const json_t *node, bool pods_known, const char *pod_says)
{
	struct pods_taking t = {.pods = p};

	*p = (struct agentless_pods){.why = why(node, pods_known, pod_says)};
	p->labels = json_incref((json_t *)json_at(node, "metadata.labels"));
	kube_watch_each(pods, take, &t);
	if (p->n)
		qsort(p->list, p->n, sizeof(*p->list), by_namespace);
}

void status_agentless_pods_done(struct agentless_pods *p)
{
	for (size_t i = 0; i < p->n; i++)
		json_decref(p->list[i].object);
	free(p->list);
	json_decref(p->labels);
	free(p->why);
	*p = (struct agentless_pods){0};
}

/* ---- what a target selects ---- */

struct pods_tally {
	unsigned n_matched, n_wanted, n_refused[_REASON_MAX];
	const struct agentless_pod *example[_REASON_MAX];
};

/*
 * Returns the index of the first pod of the namespace or, if there is none, the index where it
 * would be.
 */
static size_t first_of(const struct agentless_pods *p, const char *ns)
{
	size_t lo = 0, hi = p->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (strcmp(p->list[mid].ns, ns) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void add(struct pods_tally *t, const struct target_selection *s,
		const struct agentless_pod *pod, const json_t *ns_labels, bool opt_in_required)
{
	const struct selected of = {pod->ns, ns_labels, json_at(pod->object, "metadata.labels"),
				    json_at(pod->object, "metadata.annotations")};
	enum reason r;

	if (!select_selector_matches(s->pods, of.labels))
		return;
	t->n_matched++;
	r = select_refusal(s, &of, opt_in_required);
	t->n_wanted += !r;
	if (r && !t->n_refused[r]++)
		t->example[r] = pod;
}

static void tally(const struct agentless_pods *p, const struct target_selection *s,
		  const struct kube_watch *namespaces, bool opt_in_required, struct pods_tally *t)
{
	size_t i = s->cluster ? 0 : first_of(p, s->ns);

	while (i < p->n && (s->cluster || streq(p->list[i].ns, s->ns))) {
		const char *ns = p->list[i].ns;
		const json_t *labels =
			namespaces ? json_at(kube_watch_get(namespaces, ns), "metadata.labels")
				   : NULL;
		bool takes = select_takes_namespace(s, ns, labels);

		for (; i < p->n && streq(p->list[i].ns, ns); i++)
			if (takes)
				add(t, s, &p->list[i], labels, opt_in_required);
	}
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
		example = xasprintf("%s/%s", t->example[r]->ns,
				    json_str_at(t->example[r]->object, "metadata.name", ""));
		text = reason_about_pods(r, t->n_refused[r], example);
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:i}", "reason", reason_name(r),
						"message", text, "pods", (int)t->n_refused[r]));
	}
	return list;
}

json_t *status_agentless_pods_entry(const struct agentless_pods *p, const json_t *target,
				    const struct kube_watch *namespaces, bool opt_in_required)
{
	const char *ns = json_str_at(target, "metadata.namespace", "");
	const struct target_selection s = {
		.cluster = !*ns,
		.ns = ns,
		.pods = json_at(target, "spec.podSelector"),
		.namespaces = json_at(target, "spec.namespaceSelector"),
		.nodes = json_at(target, "spec.nodeSelector"),
	};
	struct pods_tally t = {0};

	if (!select_takes_node(&s, p->labels))
		return NULL;
	tally(p, &s, namespaces, opt_in_required, &t);
	if (!t.n_matched)
		return NULL;
	return json_pack("{s:s, s:I, s:b, s:i, s:o}", "uid",
			 json_str_at(target, "metadata.uid", ""), "generation",
			 (json_int_t)json_int_at(target, "metadata.generation", 0), "withoutAgent",
			 1, "podsMatched", (int)t.n_matched, "reasons", reasons(&t, p->why));
}
