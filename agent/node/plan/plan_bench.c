/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the CPU time of a plan of the largest node: the first one, and the next one after a
 * change of nothing, of a pod, of a target, of a namespace and of all objects; with many targets
 * and with the most. One target in 64 is cluster-wide.
 */
#include "lib/base/bench.h"
#include "node/plan/internal.h"

#define NAMESPACES   16
#define MANY_TARGETS 500
#define ROUNDS	     7

static json_t *targets[PLAN_MAX_TARGETS], *pods[PLAN_MAX_PODS], *namespaces[NAMESPACES];

static json_t *make(const char *text)
{
	json_t *j = json_loads(text, 0, NULL);

	if (!j)
		bench_die(text, EINVAL);
	return j;
}

static json_t *make_target(unsigned i)
{
	bool cluster = i % 64 == 1;
	_cleanup_free_ char *ns =
		cluster ? xstrdup("") : xasprintf("\"namespace\": \"ns%u\",", i % NAMESPACES);
	_cleanup_free_ char *text = xasprintf(
		"{\"kind\": \"%sProfilingTarget\", \"metadata\": {\"name\": \"t%u\", %s \"uid\": "
		"\"t%u\", \"generation\": 1}, \"spec\": {%s \"podSelector\": {\"matchLabels\": "
		"{\"app.kubernetes.io/name\": \"app%u\"}, \"matchExpressions\": [{\"key\": "
		"\"tier\", \"operator\": \"In\", \"values\": [\"web\", \"worker\", \"db\"]}]}}}",
		cluster ? "Cluster" : "", i, ns, i,
		cluster ? "\"namespaceSelector\": {\"matchLabels\": {\"team\": \"a\"}}," : "",
		i % 64);

	return make(text);
}

static json_t *make_pod(unsigned i)
{
	_cleanup_free_ char *text = xasprintf(
		"{\"metadata\": {\"name\": \"p%u\", \"namespace\": \"ns%u\", \"uid\": \"p%u\", "
		"\"labels\": {\"app.kubernetes.io/name\": \"app%u\", \"tier\": \"web\", "
		"\"pod-template-hash\": \"h\", \"version\": \"%u\"}}, \"spec\": {\"nodeName\": "
		"\"n\", \"containers\": [{\"name\": \"main\", \"image\": \"i\"}]}, \"status\": "
		"{\"phase\": \"Running\", \"containerStatuses\": [{\"name\": \"main\", "
		"\"containerID\": \"containerd://%064u\", \"state\": {\"running\": {}}}]}}",
		i, i % NAMESPACES, i, i % 64, i, i);

	return make(text);
}

static void make_all(void)
{
	for (unsigned i = 0; i < PLAN_MAX_TARGETS; i++)
		targets[i] = make_target(i);
	for (unsigned i = 0; i < PLAN_MAX_PODS; i++)
		pods[i] = make_pod(i);
	for (unsigned i = 0; i < NAMESPACES; i++)
		namespaces[i] =
			json_pack("{s:{s:o, s:{s:s}}}", "metadata", "name", json_sprintf("ns%u", i),
				  "labels", "team", i % 2 ? "a" : "b");
}

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Makes a plan of the first n_targets targets. */
static double plan_ms(struct plan_cache *cache, size_t n_targets)
{
	const struct plan_world w = {
		.cache = cache,
		.targets = (const json_t *const *)targets,
		.n_targets = n_targets,
		.pods = (const json_t *const *)pods,
		.n_pods = PLAN_MAX_PODS,
		.namespaces = (const json_t *const *)namespaces,
		.n_namespaces = NAMESPACES,
		.settings = {.cluster_name = "c", .node_name = "n", .max_sample_hz = 199},
	};
	double from = cpu_ms(), ms;
	struct plan *p;

	if (plan_build(&w, &p) < 0)
		bench_die("plan_build", EINVAL);
	ms = cpu_ms() - from;
	if (p->n_pods < PLAN_MAX_PODS / 2)
		bench_die("pods", EINVAL);
	plan_free(p);
	return ms;
}

/* Puts an equal object in the place of another, as a watch does after a change. */
static void change(json_t **obj)
{
	json_t *next = json_deep_copy(*obj);

	json_decref(*obj);
	*obj = next;
}

static void change_all(json_t **objects, size_t n)
{
	for (size_t i = 0; i < n; i++)
		change(&objects[i]);
}

enum change { NOTHING, POD, TARGET, NAMESPACE, ALL, _CHANGE_MAX };

static void change_world(enum change what, unsigned i)
{
	switch (what) {
	case POD:
		change(&pods[i]);
		break;
	case TARGET:
		change(&targets[i]);
		break;
	case NAMESPACE:
		change(&namespaces[i]);
		break;
	case ALL:
		change_all(pods, ARRAY_SIZE(pods));
		change_all(targets, ARRAY_SIZE(targets));
		change_all(namespaces, ARRAY_SIZE(namespaces));
		break;
	default:
		break;
	}
}

static void bench(const char *name, size_t n_targets)
{
	static const char *const changes[] = {[NOTHING] = "nothing",
					      [POD] = "pod",
					      [TARGET] = "target",
					      [NAMESPACE] = "namespace",
					      [ALL] = "all"};
	_cleanup_free_ char *first = xasprintf("plan.%s.first", name);
	struct plan_cache *cache = NULL;
	double ms[ROUNDS];

	for (unsigned i = 0; i < ROUNDS; i++) {
		plan_cache_free(cache);
		cache = plan_cache_new();
		ms[i] = plan_ms(cache, n_targets);
	}
	bench_rounds(first, ms, ROUNDS, "ms CPU", "", "");
	for (enum change what = NOTHING; what < _CHANGE_MAX; what++) {
		_cleanup_free_ char *full = xasprintf("plan.%s.%s_changed", name, changes[what]);

		for (unsigned i = 0; i < ROUNDS; i++) {
			change_world(what, i);
			ms[i] = plan_ms(cache, n_targets);
		}
		bench_rounds(full, ms, ROUNDS, "ms CPU", "", first);
	}
	plan_cache_free(cache);
}

int main(void)
{
	make_all();
	bench("500_targets", MANY_TARGETS);
	bench("4096_targets", PLAN_MAX_TARGETS);
	return 0;
}
