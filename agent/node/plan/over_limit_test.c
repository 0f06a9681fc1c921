/* SPDX-License-Identifier: Apache-2.0 */
/* More pods than the plan takes: which of them are profiled. */
#include "node/plan/internal.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

static json_t *target_of(const char *ns)
{
	return json_pack("{s:s, s:{s:s, s:s, s:s}, s:{s:{}}}", "kind", "ProfilingTarget",
			 "metadata", "name", "t", "namespace", ns, "uid", ns, "spec",
			 "podSelector");
}

static json_t *pod_of(const char *ns, unsigned i, unsigned minute)
{
	return json_pack("{s:{s:o, s:s, s:o, s:o}, s:{s:[{s:s}]}}", "metadata", "name",
			 json_sprintf("p%05u", i), "namespace", ns, "uid", json_sprintf("p%05u", i),
			 "creationTimestamp", json_sprintf("2026-11-21T12:%02u:00Z", minute),
			 "spec", "containers", "name", "main");
}

/* Plans the pods, with a target in each of three namespaces. Takes the references. */
static struct plan *build(const char *const names[3], json_t **pods, size_t n_pods)
{
	json_t *targets[] = {target_of(names[0]), target_of(names[1]), target_of(names[2])};
	struct plan_world w = {
		.targets = (const json_t *const *)targets,
		.n_targets = ARRAY_SIZE(targets),
		.pods = (const json_t *const *)pods,
		.n_pods = n_pods,
		.settings = {.cluster_name = "c", .node_name = "n", .max_sample_hz = 199},
	};
	struct plan *p = NULL;

	assert_int_equal(plan_build(&w, &p), 0);
	for (size_t i = 0; i < n_pods; i++)
		json_decref(pods[i]);
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++)
		json_decref(targets[i]);
	return p;
}

/* Returns how many pods of the target are not profiled because there are too many. */
static unsigned left_out(const struct plan_target *t)
{
	for (size_t i = 0; i < t->n_reasons; i++)
		if (t->reasons[i].reason == REASON_TOO_MANY_PODS)
			return t->reasons[i].n_pods;
	return 0;
}

/* Whether the plan has the pod that pod_of() made of i. */
static bool has_pod(const struct plan *p, unsigned i)
{
	char uid[32];

	snprintf(uid, sizeof(uid), "p%05u", i);
	for (size_t k = 0; k < p->n_pods; k++)
		if (streq(p->pods[k].uid, uid))
			return true;
	return false;
}

/*
 * A namespace with very many pods leaves those of the others in the plan, whatever their uids and
 * ages are. Of its own, the oldest stay, so that a new pod takes the place of none.
 */
static void test_pods_are_left_out_fairly(void **state)
{
	enum { ATTACKER = 3000, VICTIM = 500, OTHER = 40 };
	static json_t *pods[ATTACKER + VICTIM + OTHER];
	static const char *const names[] = {"attacker", "other", "victim"};
	unsigned n = 0, kept = 0;
	struct plan *p;

	(void)state;
	for (; n < ATTACKER; n++)
		pods[n] = pod_of("attacker", n, n < 1000 ? 30 : 20);
	for (; n < ATTACKER + VICTIM; n++)
		pods[n] = pod_of("victim", n, 50);
	for (; n < ATTACKER + VICTIM + OTHER; n++)
		pods[n] = pod_of("other", n, 10);
	p = build(names, pods, n);
	assert_int_equal(p->n_pods, PLAN_MAX_PODS);
	for (unsigned i = ATTACKER; i < n; i++)
		assert_true(has_pod(p, i));
	assert_int_equal(p->targets[2].pods_planned, VICTIM);
	assert_int_equal(p->targets[1].pods_planned, OTHER);
	assert_int_equal(p->targets[0].pods_planned, PLAN_MAX_PODS - VICTIM - OTHER);
	assert_int_equal(p->targets[0].pods_matched, ATTACKER);
	assert_int_equal(left_out(&p->targets[0]), ATTACKER - (PLAN_MAX_PODS - VICTIM - OTHER));
	for (unsigned i = 0; i < 1000; i++)
		assert_false(has_pod(p, i));
	for (unsigned i = 1000; i < ATTACKER; i++)
		kept += has_pod(p, i);
	assert_int_equal(kept, PLAN_MAX_PODS - VICTIM - OTHER);
	plan_free(p);
}

/* Three namespaces that want more than a third: each gets a third. */
static void test_pods_of_equals(void **state)
{
	static const char *const names[] = {"a", "b", "c"};
	static json_t *pods[3000];
	struct plan *p;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(pods); i++)
		pods[i] = pod_of(names[i / 1000], i, 0);
	p = build(names, pods, ARRAY_SIZE(pods));
	assert_int_equal(p->n_pods, PLAN_MAX_PODS);
	for (unsigned i = 0; i < p->n_targets; i++)
		assert_in_range(p->targets[i].pods_planned, PLAN_MAX_PODS / 3,
				PLAN_MAX_PODS / 3 + 1);
	plan_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pods_are_left_out_fairly),
		cmocka_unit_test(test_pods_of_equals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
