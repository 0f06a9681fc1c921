/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs controller-spec/cases as if their node had no agent. The hub must count what an agent would
 * count there, also the pods that must not be profiled, and must set `withoutAgent`.
 */
#include "hub/status/agentless_pods.h"

#include <setjmp.h>
#include <cmocka.h>

#include "lib/kube/testwatches.h"
#include "lib/select/select.h"
#include "lib/select/testcase.h"

static unsigned n_compared;

static void trim_target(json_t *obj)
{
	json_keep(obj, "metadata", "name namespace uid generation resourceVersion");
}

/* Makes the lists of the node's pods and of the namespaces that the hub would request. */
static void list_pods(const struct world *w, struct kube_watch *ret)
{
	const char *key, *phase, *node = json_str_at(w->settings, "nodeName", "node1");
	json_t *pod;

	json_object_foreach (w->pods, key, pod) {
		phase = json_str_at(pod, "status.phase", "");
		if (streq(phase, "Succeeded") || streq(phase, "Failed") ||
		    !streq(json_str_at(pod, "spec.nodeName", node), node) ||
		    !json_str_at(pod, "metadata.uid", NULL))
			continue;
		keep(ret, key, pod);
	}
}

static void list_namespaces(const struct world *w, struct kube_watch *ret)
{
	const char *key;
	json_t *ns;

	json_object_foreach (w->namespaces, key, ns)
		keep(ret, json_str_at(ns, "metadata.name", ""), ns);
}

/*
 * The entry in the form of plan_to_json. NULL: the target selects nothing on this node. Returns a
 * new reference.
 */
static json_t *entry_of(const struct world *w, const json_t *target)
{
	struct kube_watch pods = {.base = {&watches_ops}}, namespaces = pods;
	struct agentless_pods p;
	json_t *e;

	list_pods(w, &pods);
	list_namespaces(w, &namespaces);
	status_agentless_pods_take(&p, &pods, w->node, true, NULL);
	e = status_agentless_pods_entry(&p, target, &namespaces,
					json_bool_at(w->settings, "optInRequired", true));
	status_agentless_pods_done(&p);
	free_watch(&pods);
	free_watch(&namespaces);
	return e;
}

static bool is_refusal(const char *reason)
{
	enum reason r = reason_by_name(reason);

	return r == REASON_NAMESPACE_DISABLED || r == REASON_NAMESPACE_NOT_OPTED_IN ||
	       r == REASON_POD_OPTED_OUT;
}

static int64_t pods_of(const json_t *entry, const char *reason)
{
	const json_t *r;
	size_t i;

	json_array_foreach (json_object_get(entry, "reasons"), i, r) {
		if (streq(json_str_at(r, "reason", ""), reason))
			return json_int_at(r, "pods", 0);
	}
	return 0;
}

/* Compares the hub's entry with want, the agent's entry of the target. */
static void expect_the_same(const json_t *want, const json_t *entry, const char *at)
{
	const json_t *says = json_object_get(want, "says"), *v;
	int64_t n_rest = json_int_at(entry, "podsMatched", 0);
	const char *key;
	size_t i;

	if (json_object_get(want, "podsMatched")) {
		n_compared++;
		if (json_int_at(want, "podsMatched", 0) != n_rest)
			fail_msg("%s: the agent counts %lld pods, the hub %lld", at,
				 (long long)json_int_at(want, "podsMatched", 0), (long long)n_rest);
	}
	json_array_foreach (json_object_get(want, "reasons"), i, v) {
		key = json_string_value(v);
		if (is_refusal(key) && !pods_of(entry, key))
			fail_msg("%s: the hub does not say %s", at, key);
	}
	json_object_foreach ((json_t *)json_object_get(want, "reasonPods"), key, v) {
		if (is_refusal(key))
			assert_int_equal(pods_of(entry, key), json_integer_value(v));
	}
	json_array_foreach (json_object_get(entry, "reasons"), i, v) {
		key = json_str_at(v, "reason", "");
		n_rest -= json_int_at(v, "pods", 0);
		if (is_refusal(key) && !strstr(json_str_at(v, "message", ""), text_at(says, key)))
			fail_msg("%s: the hub says \"%s\"", at, json_str_at(v, "message", ""));
	}
	assert_int_equal(n_rest, 0);
}

static void expect_targets(const json_t *all, const struct world *w, const char *where, bool same)
{
	const char *key;
	json_t *want;

	json_object_foreach ((json_t *)all, key, want) {
		_cleanup_free_ char *path = strchr(key, '/') ? xstrdup(key) : xasprintf("/%s", key),
				    *at = xasprintf("%s.%s", where, key);
		const json_t *target = json_object_get(w->targets, path);
		_cleanup_json_ json_t *entry = target ? entry_of(w, target) : NULL;

		/*
		 * The built-in target has no object from which the hub could make an entry. Of a
		 * target that is not accepted, agents report only that.
		 */
		if (!target || !json_bool_at(want, "accepted", true))
			continue;
		if (same) {
			expect_the_same(want, entry, at);
			continue;
		}
		only_keys(want, "podsMatched reasons reasonPods says", at);
		assert_int_equal(json_int_at(want, "podsMatched", 0),
				 json_int_at(entry, "podsMatched", 0));
		expect_reasons(want, entry, at);
		n_compared++;
	}
}

static const struct case_trims trims = {trim_target, status_agentless_trim_pod,
					status_agentless_trim_named, status_agentless_trim_node};

static void expect_all(const json_t *then, const struct world *w, const char *where)
{
	if (json_is_null(json_at(w->node, "metadata")))
		return; /* the hub does not look at a node that it does not know */
	expect_targets(json_object_get(then, "targets"), w, where, true);
	expect_targets(json_object_get(then, "withoutAgent"), w, where, false);
}

int main(void)
{
	int failed = run_cases();

	print_message("%u counts of targets compared\n", n_compared);
	return failed || n_compared < 20;
}
