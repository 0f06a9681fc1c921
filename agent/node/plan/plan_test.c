/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs controller-spec/cases/<name>.yaml: each file is one test. controller-spec/SPEC.md describes
 * the form of a case. A key that is not described there fails the case, and so does a case that
 * asserts nothing. CONTROLLER_SPEC names another directory of cases.
 */
#include "node/plan/internal.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "lib/select/testcase.h"

/*
 * Lists the values of map in the order of insertion, or in reverse: the plan must not depend on the
 * order.
 */
static size_t values(const json_t *map, bool reverse, const json_t **ret)
{
	const char *key;
	json_t *v;
	size_t n = 0;

	json_object_foreach ((json_t *)map, key, v)
		ret[reverse ? json_object_size(map) - ++n : n++] = v;
	return n;
}

static const struct case_trims trims = {plan_trim_target, plan_trim_pod, plan_trim_named,
					plan_trim_named};

static struct plan_tenant_limits tenant_limits(const json_t *t)
{
	char *events[_EVENT_MAX + 1] = {(char *)"all"};
	const json_t *v;
	size_t i;

	json_array_foreach (json_object_get(t, "allowedEvents"), i, v)
		events[i] = (char *)json_string_value(v);
	return (struct plan_tenant_limits){
		.max_sample_hz = (unsigned)json_int_at(t, "maxSampleHz", 0),
		.max_overhead_percent = json_number_value(json_at(t, "maxOverheadPercent")),
		.refused_events = plan_events_not_listed(events),
		.min_sample_bytes = (uint64_t)json_int_at(t, "minSampleBytes", 0),
		.max_targets = (unsigned)json_int_at(t, "maxTargets", 0),
	};
}

static json_t *run_plan(const struct world *w, bool reverse)
{
	const json_t *targets[64], *pods[64], *namespaces[64];
	const json_t *s = w->settings, *labels = json_at(w->node, "metadata");
	struct plan_world pw = {
		.targets = targets,
		.n_targets = values(w->targets, reverse, targets),
		.pods = pods,
		.n_pods = values(w->pods, reverse, pods),
		.namespaces = namespaces,
		.n_namespaces = values(w->namespaces, reverse, namespaces),
		.node = json_is_null(labels) ? NULL : w->node,
		.settings =
			{
				.cluster_name = json_str_at(s, "clusterName", "test"),
				.node_name = json_str_at(s, "nodeName", "node1"),
				.own_namespace = json_str_at(s, "ownNamespace", "podflame-system"),
				.opt_in_required = json_bool_at(s, "optInRequired", true),
				.default_target = json_bool_at(s, "defaultTarget", false),
				.default_sample_hz =
					(unsigned)json_int_at(s, "defaultSampleHz", 99),
				.max_sample_hz = (unsigned)json_int_at(s, "maxSampleHz", 199),
				.tenant = tenant_limits(json_object_get(s, "tenant")),
			},
	};
	struct plan *p = NULL;
	json_t *j;

	assert_int_equal(time_parse(w->now, &pw.now_ns), 0);
	assert_int_equal(plan_build(&pw, &p), 0);
	j = plan_to_json(p);
	assert_non_null(j);
	plan_free(p);
	return j;
}

/* ---- assertions ---- */

/* Returns a set of "ns/pod/container" of all containers that are profiled. */
static json_t *profiled(const json_t *plan)
{
	json_t *all = json_object(), *pod, *c;
	size_t i, k;

	json_array_foreach (json_object_get(plan, "pods"), i, pod) {
		json_array_foreach (json_object_get(pod, "containers"), k, c) {
			_cleanup_free_ char *key =
				xasprintf("%s/%s/%s", json_str_at(pod, "namespace", ""),
					  json_str_at(pod, "name", ""), json_str_at(c, "name", ""));
			json_object_set(all, key, c);
		}
	}
	return all;
}

static void expect_profiled(const json_t *want, const json_t *plan, const char *where)
{
	_cleanup_json_ json_t *got = profiled(plan);
	const char *key;
	json_t *v;

	json_object_foreach (got, key, v) {
		if (!json_object_get(want, key))
			fail_msg("%s: %s is profiled and should not be", where, key);
	}
	json_object_foreach ((json_t *)want, key, v) {
		_cleanup_free_ char *at = xasprintf("%s.profiled.%s", where, key);

		if (!json_object_get(got, key))
			fail_msg("%s: is not profiled", at);
		only_keys(v,
			  "events sampleHz settings overheadPercent onCpuPercent javaAttach "
			  "traceContext targets tags id",
			  at);
		if (!json_is_null(v))
			expect(v, json_object_get(got, key), at);
	}
}

static json_t *find(const json_t *list, const char *key)
{
	json_t *o;
	size_t i;

	json_array_foreach (list, i, o) {
		const char *ns = json_str_at(o, "namespace", "");
		_cleanup_free_ char *k =
			xasprintf("%s%s%s", ns, *ns ? "/" : "", json_str_at(o, "name", ""));

		if (streq(k, key))
			return o;
	}
	return NULL;
}

static void expect_pods(const json_t *want, const json_t *plan, const char *where)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)want, key, v) {
		_cleanup_free_ char *at = xasprintf("%s.pods.%s", where, key);

		only_keys(v,
			  "uid cgroupUID armPod armEvents armSampleHz armSettings armTraceContext "
			  "tags scrape",
			  at);
		expect(v, find(json_object_get(plan, "pods"), key), at);
	}
}

static void expect_targets(const json_t *want, const json_t *plan, const char *where)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)want, key, v) {
		_cleanup_free_ char *at = xasprintf("%s.targets.%s", where, key);
		const json_t *got = find(json_object_get(plan, "targets"), key);
		_cleanup_json_ json_t *rest = json_deep_copy(v);

		only_keys(v,
			  "uid kind generation accepted onThisNode suspended completed events "
			  "podsMatched podsPlanned containersPlanned reasons reasonPods says",
			  at);
		if (!got)
			fail_msg("%s: no such target in the plan", at);
		expect_reasons(v, got, at);
		json_object_del(rest, "reasons");
		json_object_del(rest, "reasonPods");
		json_object_del(rest, "says");
		expect(rest, got, at);
	}
}

static void expect_all(const json_t *then, const struct world *w, const char *where)
{
	_cleanup_json_ json_t *plan = NULL, *again = NULL;

	only_keys(then, "profiled pods targets withoutAgent nextChange podsUnreadable", where);
	if (json_object_size(then) == 0)
		fail_msg("%s asserts nothing", where);
	plan = run_plan(w, false);
	if (json_object_get(then, "profiled"))
		expect_profiled(json_object_get(then, "profiled"), plan, where);
	expect_pods(json_object_get(then, "pods"), plan, where);
	expect_targets(json_object_get(then, "targets"), plan, where);
	for (const char *const *k = (const char *[]){"nextChange", "podsUnreadable", NULL}; *k;
	     k++) {
		if (json_object_get(then, *k))
			expect(json_object_get(then, *k), json_object_get(plan, *k), *k);
	}
	again = run_plan(w, true);
	assert_true(json_equal(plan, again));
}

int main(void)
{
	return run_cases();
}
