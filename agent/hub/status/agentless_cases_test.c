/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs controller-spec/cases as if their node had no agent. The hub must count what an agent would
 * count there, also the pods that must not be profiled, and must set `withoutAgent`.
 */
#include "hub/status/agentless_pods.h"
#include "hub/status/reports.h"

#include <setjmp.h>
#include <cmocka.h>

#include "lib/kube/testwatches.h"
#include "lib/loop/testtimer.h"
#include "lib/select/select.h"
#include "lib/select/testcase.h"

static unsigned n_compared;
static struct pods *pods;
static struct reports *reports; /* for its watch of nodes */

static void trim_target(json_t *obj)
{
	json_keep(obj, "metadata", "name namespace uid generation resourceVersion");
}

static void trim_pod(json_t *obj)
{
	watch_of("/api/v1/pods")->trim(obj);
}

static void trim_namespace(json_t *obj)
{
	watch_of("/api/v1/namespaces")->trim(obj);
}

static void trim_node(json_t *obj)
{
	watch_of("/api/v1/nodes")->trim(obj);
}

static const char *node_of(const struct world *w)
{
	return json_str_at(w->settings, "nodeName", "node1");
}

/* Shows all pods to the hub, or takes them away. Those that name no node are on the case's node. */
static void show_pods(const struct world *w, bool there)
{
	struct kube_watch *watch = watch_of("/api/v1/pods");
	const char *odd_key;
	json_t *pod;

	json_object_foreach (w->pods, odd_key, pod) {
		_cleanup_free_ char *key =
			xasprintf("%s/%s", json_str_at(pod, "metadata.namespace", ""),
				  json_str_at(pod, "metadata.name", ""));

		if (!json_at(pod, "spec.nodeName"))
			json_object_set_new(json_object_get(pod, "spec"), "nodeName",
					    json_string(node_of(w)));
		keep(watch, key, there ? pod : NULL);
		if (there)
			watch->ops.upsert(key, pod, NULL, watch->arg);
		else
			watch->ops.remove(key, pod, watch->arg);
	}
}

static void show_namespaces(const struct world *w, bool there)
{
	const char *key;
	json_t *ns;

	json_object_foreach (w->namespaces, key, ns)
		keep(watch_of("/api/v1/namespaces"), json_str_at(ns, "metadata.name", ""),
		     there ? ns : NULL);
}

/*
 * The entry in the form of plan_to_json. NULL: the target selects nothing on this node. Returns a
 * new reference.
 */
static json_t *entry_of(const struct world *w, const json_t *target)
{
	_cleanup_free_ char *why = status_agentless_pods_why(w->node, true, NULL);
	const struct agentless_node node = {node_of(w), w->node, why};
	json_t *e;

	show_namespaces(w, true);
	show_pods(w, true);
	e = status_agentless_pods_entry(pods, &node, target,
					json_bool_at(w->settings, "optInRequired", true));
	show_pods(w, false);
	show_namespaces(w, false);
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

static const struct case_trims trims = {trim_target, trim_pod, trim_namespace, trim_node};

static void expect_all(const json_t *then, const struct world *w, const char *where)
{
	if (json_is_null(json_at(w->node, "metadata")))
		return; /* the hub counts no pods of a node that it does not know */
	expect_targets(json_object_get(then, "targets"), w, where, true);
	expect_targets(json_object_get(then, "withoutAgent"), w, where, false);
}

int main(void)
{
	static const struct reports_ops no_ops = {0};
	int failed;

	if (pods_new(timer_loop(), testwatches(NULL), &pods) ||
	    status_reports_new(testwatches(NULL), "podflame", &no_ops, NULL, &reports))
		return 1;
	failed = run_cases();
	status_reports_free(reports);
	pods_free(pods);
	print_message("%u counts of targets compared\n", n_compared);
	return failed || n_compared < 20;
}
