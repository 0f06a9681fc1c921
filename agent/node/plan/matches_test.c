/* SPDX-License-Identifier: Apache-2.0 */
/* A plan with a cache is the same as one without, whatever has changed since the last plan. */
#include "node/plan/internal.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#define N_TARGETS    12
#define N_PODS	     20
#define N_NAMESPACES 3

static json_t *targets[N_TARGETS], *pods[N_PODS], *namespaces[N_NAMESPACES];

static json_t *some_target(unsigned i)
{
	bool cluster = rand() % 2;
	json_t *t = json_pack("{s:s, s:{s:o, s:o}, s:{s:{s:{s:s}}}}", "kind",
			      cluster ? "ClusterProfilingTarget" : "ProfilingTarget", "metadata",
			      "name", json_sprintf("t%u", i), "uid", json_sprintf("t%u", i), "spec",
			      "podSelector", "matchLabels", "app", rand() % 2 ? "a" : "b");

	if (cluster)
		json_object_set_new(
			json_object_get(t, "spec"), "namespaceSelector",
			json_pack("{s:{s:s}}", "matchLabels", "team", rand() % 2 ? "x" : "y"));
	else
		json_object_set_new(json_object_get(t, "metadata"), "namespace",
				    json_sprintf("n%d", rand() % N_NAMESPACES));
	return t;
}

static json_t *some_pod(unsigned i)
{
	return json_pack("{s:{s:o, s:o, s:o, s:{s:s}}, s:{s:[{s:s}]}}", "metadata", "name",
			 json_sprintf("p%u", i), "uid", json_sprintf("p%u", i), "namespace",
			 json_sprintf("n%u", i % N_NAMESPACES), "labels", "app",
			 rand() % 2 ? "a" : "b", "spec", "containers", "name", "main");
}

static json_t *some_namespace(unsigned i)
{
	return json_pack("{s:{s:o, s:{s:s}}}", "metadata", "name", json_sprintf("n%u", i), "labels",
			 "team", rand() % 2 ? "x" : "y");
}

static void change(json_t **list, unsigned n, json_t *(*make)(unsigned i))
{
	unsigned i = (unsigned)rand() % n;

	json_decref(list[i]);
	list[i] = make(i);
}

static json_t *plan_with(struct plan_cache *cache)
{
	const struct plan_world w = {
		.cache = cache,
		.targets = (const json_t *const *)targets,
		.n_targets = N_TARGETS,
		.pods = (const json_t *const *)pods,
		.n_pods = N_PODS,
		.namespaces = (const json_t *const *)namespaces,
		.n_namespaces = N_NAMESPACES,
		.settings = {.cluster_name = "c", .node_name = "n", .max_sample_hz = 199},
	};
	struct plan *p;
	json_t *j;

	assert_int_equal(plan_build(&w, &p), 0);
	j = plan_to_json(p);
	plan_free(p);
	return j;
}

static void test_a_cache_changes_nothing(void **state)
{
	struct plan_cache *cache = plan_cache_new();
	unsigned n_differ = 0;
	json_t *before = NULL;

	(void)state;
	srand(1);
	for (unsigned i = 0; i < N_TARGETS; i++)
		targets[i] = some_target(i);
	for (unsigned i = 0; i < N_PODS; i++)
		pods[i] = some_pod(i);
	for (unsigned i = 0; i < N_NAMESPACES; i++)
		namespaces[i] = some_namespace(i);
	for (unsigned i = 0; i < 500; i++) {
		_cleanup_json_ json_t *without = plan_with(NULL);
		json_t *with = plan_with(cache);

		assert_true(json_equal(with, without));
		n_differ += !json_equal(with, before);
		json_decref(before);
		before = with;
		switch (rand() % 3) {
		case 0:
			change(targets, N_TARGETS, some_target);
			break;
		case 1:
			change(pods, N_PODS, some_pod);
			break;
		default:
			change(namespaces, N_NAMESPACES, some_namespace);
		}
	}
	assert_in_range(n_differ, 100, 500);
	json_decref(before);
	plan_cache_free(cache);
	/* the cache has no reference any more */
	for (unsigned i = 0; i < N_PODS; i++)
		assert_int_equal(pods[i]->refcount, 1);
	for (unsigned i = 0; i < N_TARGETS; i++)
		json_decref(targets[i]);
	for (unsigned i = 0; i < N_PODS; i++)
		json_decref(pods[i]);
	for (unsigned i = 0; i < N_NAMESPACES; i++)
		json_decref(namespaces[i]);
}

/* More targets than there are slots: they work, and nothing is remembered of the last ones. */
static void test_slots_have_an_end(void **state)
{
	struct plan_matches *m = plan_matches_new();
	_cleanup_json_ json_t *pod = some_pod(0);
	struct plan_matched *p = plan_matches_of(m, pod, NULL);
	unsigned n = 0, slot;
	bool selected;

	(void)state;
	while ((slot = plan_matches_take_slot(m)) != PLAN_NO_SLOT) {
		assert_int_equal(slot, n++);
		plan_matched_set(p, slot, slot % 2);
	}
	assert_int_equal(n, 2 * PLAN_MAX_TARGETS);
	plan_matched_set(p, PLAN_NO_SLOT, true);
	assert_false(plan_matched_knows(p, PLAN_NO_SLOT, &selected));
	for (unsigned i = 0; i < n; i++) {
		assert_true(plan_matched_knows(p, i, &selected));
		assert_int_equal(selected, i % 2);
	}
	/* another target gets the slot, and nothing is known of it */
	plan_matches_free_slot(m, 77);
	assert_int_equal(plan_matches_take_slot(m), 77);
	assert_false(plan_matched_knows(p, 77, &selected));
	assert_true(plan_matched_knows(p, 78, &selected));
	plan_matches_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_cache_changes_nothing),
		cmocka_unit_test(test_slots_have_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
