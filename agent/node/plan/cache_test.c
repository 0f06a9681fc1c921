/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan with a cache is the same as one without, whatever has changed since the last plan, and
 * shares with the last one what has not changed.
 */
#include "node/plan/cache.h"

#include <setjmp.h>
#include <cmocka.h>

#define N_TARGETS    40
#define N_PODS	     60
#define N_NAMESPACES 5
#define N_PLANS	     1500

static uint64_t seed;

/* Returns a number below n. */
static unsigned pick(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

/* Returns one of the words in the list "a b c". */
static char *word(const char *list)
{
	unsigned n = 1, i;

	for (const char *c = list; *c; c++)
		n += *c == ' ';
	for (i = pick(n); i; i--)
		list = strchr(list, ' ') + 1;
	return xstrndup(list, strcspn(list, " "));
}

static json_t *text_of(char *owned)
{
	json_t *j = json_string(owned);

	free(owned);
	return j;
}

static json_t *some_labels(void)
{
	json_t *labels = json_object();

	if (pick(4))
		json_object_set_new(labels, "app", text_of(word("a b c")));
	if (pick(2))
		json_object_set_new(labels, "tier", text_of(word("web db")));
	if (!pick(6))
		json_object_set_new(labels, SELECT_LABEL, text_of(word("enabled disabled")));
	return labels;
}

static json_t *some_expression(void)
{
	json_t *e = json_pack("{s:o, s:o}", "key", text_of(word("app tier team")), "operator",
			      text_of(word("In NotIn Exists DoesNotExist")));

	/* sometimes the values are wrong, and then so is the target */
	if (str_has_suffix(json_str_at(e, "operator", ""), "In") ? pick(20) : !pick(20))
		json_object_set_new(
			e, "values",
			json_pack("[o, o]", text_of(word("a b x")), text_of(word("web y"))));
	return e;
}

static json_t *some_selector(void)
{
	json_t *s = json_object();

	if (pick(2))
		json_object_set_new(
			s, "matchLabels",
			json_pack("{s:o}", pick(2) ? "app" : "tier", text_of(word("a b web"))));
	if (pick(3) == 0)
		json_object_set_new(s, "matchExpressions", json_pack("[o]", some_expression()));
	return s;
}

static json_t *some_spec(bool cluster)
{
	json_t *spec = json_pack("{s:o}", "podSelector", some_selector());

	if (cluster)
		json_object_set_new(spec, "namespaceSelector",
				    pick(3) ? some_selector()
					    : json_pack("{s:{s:o}}", "matchLabels",
							SELECT_NAME_LABEL, text_of(word("n0 n1"))));
	if (pick(4) == 0)
		json_object_set_new(spec, "nodeSelector", some_selector());
	if (pick(8) == 0)
		json_object_set_new(spec, "suspend", json_true());
	if (pick(4) == 0)
		json_object_set_new(spec, "containers",
				    json_pack("{s:[o]}", "exclude", text_of(word("main side"))));
	if (pick(4) == 0)
		json_object_set_new(spec, "podLabelTags", json_pack("[s]", "tier"));
	if (pick(3) == 0)
		json_object_set_new(spec, "events", json_pack("{s:{}}", "offCpu"));
	if (pick(3) == 0)
		json_object_set_new(spec, "stopAfter", json_sprintf("%um", 1 + pick(30)));
	return spec;
}

static json_t *some_target(unsigned i)
{
	bool cluster = pick(3) == 0;
	json_t *t = json_pack("{s:s, s:{s:o, s:o, s:I}, s:o}", "kind",
			      cluster ? "ClusterProfilingTarget" : "ProfilingTarget", "metadata",
			      "name", json_sprintf("t%u", i), "uid", json_sprintf("t%02u", i),
			      "generation", (json_int_t)pick(9), "spec", some_spec(cluster));

	if (!cluster)
		json_object_set_new(json_object_get(t, "metadata"), "namespace",
				    json_sprintf("n%u", pick(N_NAMESPACES)));
	if (pick(3))
		json_object_set_new(t, "status",
				    json_pack("{s:s}", "firstReadyTime", "2026-11-21T12:00:00Z"));
	return t;
}

static json_t *some_container(const char *name)
{
	return json_pack("{s:s, s:s}", "name", name, "image", "i");
}

static json_t *some_status(const char *name)
{
	json_t *s = json_pack("{s:s}", "name", name);

	if (pick(4))
		json_object_set_new(s, "containerID",
				    json_sprintf("containerd://%064u", pick(1000)));
	if (pick(5) == 0)
		json_object_set_new(s, "containerID", json_string("other"));
	if (pick(4) == 0)
		json_object_set_new(s, "state",
				    json_pack("{s:{s:o}}", "waiting", "reason",
					      text_of(word("ImagePullBackOff CrashLoopBackOff"))));
	return s;
}

/* A pod of the node's, which claims a cgroup that another one may claim, too. */
static void make_static(json_t *pod)
{
	json_t *metadata = json_object_get(pod, "metadata");

	json_object_set_new(metadata, "annotations",
			    json_pack("{s:o, s:s}", "kubernetes.io/config.hash",
				      json_sprintf("%032u", pick(2)), "kubernetes.io/config.mirror",
				      "x"));
	json_object_set_new(
		metadata, "ownerReferences",
		json_pack("[{s:s, s:s, s:b}]", "kind", "Node", "name", "n", "controller", 1));
}

static json_t *some_pod(unsigned i)
{
	json_t *p = json_pack(
		"{s:{s:o, s:o, s:o, s:o}, s:{s:[o, o]}, s:{s:o, s:[o, o]}}", "metadata", "name",
		json_sprintf("p%u", i), "uid", json_sprintf("p%05u", i), "namespace",
		json_sprintf("n%u", i % N_NAMESPACES), "labels", some_labels(), "spec",
		"containers", some_container("main"), some_container("side"), "status", "phase",
		text_of(word("Running Running Running Running Failed")), "containerStatuses",
		some_status("main"), some_status("side"));

	if (pick(8) == 0)
		make_static(p);
	if (pick(20) == 0)
		json_object_set_new(json_object_get(p, "metadata"), "uid", json_null());
	return p;
}

static json_t *some_namespace(unsigned i)
{
	json_t *labels = some_labels();

	if (pick(2))
		json_object_set_new(labels, SELECT_LABEL, json_string("enabled"));
	json_object_set_new(labels, "team", text_of(word("x y")));
	return json_pack("{s:{s:o, s:o}}", "metadata", "name", json_sprintf("n%u", i), "labels",
			 labels);
}

/* ---- the world ---- */

struct objects {
	json_t *all[3000]; /* NULL: it does not exist now */
	unsigned n;
	json_t *(*make)(unsigned i);
};
static struct {
	struct objects targets, pods, namespaces;
	json_t *node, *without_room;
	uint64_t now_ns;
} world;

/* An object changes, comes or goes. */
static void change(struct objects *o)
{
	unsigned i = pick(o->n);

	json_decref(o->all[i]);
	o->all[i] = pick(4) ? o->make(i) : NULL;
}

/* Lists the objects in another order each time. Returns how many. */
static size_t list(const struct objects *o, const json_t **ret)
{
	unsigned from = o->n ? pick(o->n) : 0;
	size_t n = 0;

	for (unsigned i = 0; i < o->n; i++)
		if (o->all[(from + i) % o->n])
			ret[n++] = o->all[(from + i) % o->n];
	return n;
}

static struct plan *build(struct plan_cache *cache)
{
	static const json_t *targets[ARRAY_SIZE(world.targets.all)],
		*pods[ARRAY_SIZE(world.pods.all)], *namespaces[ARRAY_SIZE(world.namespaces.all)];
	const struct plan_world w = {
		.cache = cache,
		.targets = targets,
		.n_targets = list(&world.targets, targets),
		.pods = pods,
		.n_pods = list(&world.pods, pods),
		.namespaces = namespaces,
		.n_namespaces = list(&world.namespaces, namespaces),
		.without_room = world.without_room,
		.node = world.node,
		.settings = {.cluster_name = "c",
			     .node_name = "n",
			     .opt_in_required = true,
			     .default_target = true,
			     .max_sample_hz = 199,
			     .tenant = {.max_targets = 6,
					.max_sample_hz = 49,
					.refused_events = 1u << EVENT_OFF_CPU}},
		.now_ns = world.now_ns,
	};
	struct plan *p;

	assert_int_equal(plan_build(&w, &p), 0);
	return p;
}

static json_t *plan_with(struct plan_cache *cache)
{
	struct plan *p = build(cache);
	json_t *j = plan_to_json(p);

	plan_free(p);
	return j;
}

static void assert_same(const json_t *a, const json_t *b, unsigned step)
{
	if (!json_equal(a, b)) {
		_cleanup_free_ char *x = json_dumps(a, JSON_SORT_KEYS | JSON_INDENT(1)),
				    *y = json_dumps(b, JSON_SORT_KEYS | JSON_INDENT(1));
		size_t at = 0;

		while (x[at] == y[at])
			at++;
		at = at > 400 ? at - 400 : 0;
		fail_msg("plan %u: with a cache:\n%.800s\nwithout:\n%.800s", step, x + at, y + at);
	}
}

static void set_up(unsigned n_pods, uint64_t number)
{
	seed = number;
	world.targets = (struct objects){.n = N_TARGETS, .make = some_target};
	world.pods = (struct objects){.n = n_pods, .make = some_pod};
	world.namespaces = (struct objects){.n = N_NAMESPACES, .make = some_namespace};
	assert_int_equal(time_parse("2026-11-21T12:00:00Z", &world.now_ns), 0);
	for (unsigned i = 0; i < n_pods; i++)
		world.pods.all[i] = some_pod(i);
	for (unsigned i = 0; i < N_TARGETS / 2; i++)
		world.targets.all[i] = some_target(i);
}

static void tear_down_objects(struct objects *o)
{
	for (unsigned i = 0; i < o->n; i++) {
		if (o->all[i])
			assert_int_equal(o->all[i]->refcount, 1); /* the cache has no reference */
		json_decref(o->all[i]);
	}
}

static void tear_down(void)
{
	tear_down_objects(&world.targets);
	tear_down_objects(&world.pods);
	tear_down_objects(&world.namespaces);
	json_decref(world.node);
	json_decref(world.without_room);
	memset(&world, 0, sizeof(world));
}

static void change_node(void)
{
	json_decref(world.node);
	world.node = pick(3) ? json_pack("{s:{s:o}}", "metadata", "labels", some_labels()) : NULL;
}

static void change_room(void)
{
	json_decref(world.without_room);
	world.without_room = pick(2) ? NULL : json_pack("{s:i, s:i}", "n1", 3, "n9", 1);
}

static void change_something(void)
{
	switch (pick(12)) {
	case 0:
		change_node();
		break;
	case 1:
		change_room();
		break;
	case 2:
		world.now_ns += pick(120) * NSEC_PER_SEC;
		break;
	case 3:
	case 4:
		change(&world.namespaces);
		break;
	case 5:
	case 6:
	case 7:
		change(&world.targets);
		break;
	default:
		change(&world.pods);
	}
}

static void test_a_cache_changes_nothing(void **state)
{
	struct plan_cache *cache = plan_cache_new();
	json_t *before = NULL;
	unsigned n_differ = 0;

	(void)state;
	set_up(N_PODS, 1);
	for (unsigned i = 0; i < N_PLANS; i++) {
		_cleanup_json_ json_t *without = plan_with(NULL);
		json_t *with = plan_with(cache);

		assert_same(with, without, i);
		n_differ += !json_equal(with, before);
		json_decref(before);
		before = with;
		for (unsigned k = pick(8) ? pick(3) : 40; k; k--)
			change_something();
	}
	assert_in_range(n_differ, N_PLANS / 2, N_PLANS);
	json_decref(before);
	plan_cache_free(cache);
	tear_down();
}

/* The same, while the node has about as many pods as the plan takes: some come and go. */
static void test_around_the_limit_of_pods(void **state)
{
	struct plan_cache *cache = plan_cache_new();
	unsigned n_over = 0;

	(void)state;
	/*
	 * three of four pods run and can be read, and a quarter of those that change go, and
	 * come back at once
	 */
	set_up(2740, 2);
	for (unsigned i = 0; i < 24; i++) {
		_cleanup_json_ json_t *without = plan_with(NULL), *with = plan_with(cache);
		_cleanup_free_ char *text = json_dumps(with, 0);

		assert_same(with, without, i);
		n_over += strstr(text, "TooManyPods") != NULL;
		for (unsigned k = 0; i == 14 && k < world.pods.n; k++)
			if (!world.pods.all[k])
				world.pods.all[k] = some_pod(k);
		for (unsigned k = 0; k < 30; k++)
			change(&world.pods);
		change_something();
	}
	assert_in_range(n_over, 4, 20);
	plan_cache_free(cache);
	tear_down();
}

/* ---- what has not changed is shared ---- */

static json_t *plain_pod(unsigned i)
{
	return json_pack("{s:{s:o, s:o, s:s, s:{s:s}}, s:{s:[{s:s}]}}", "metadata", "name",
			 json_sprintf("p%u", i), "uid", json_sprintf("p%05u", i), "namespace",
			 i % 2 ? "n1" : "n0", "labels", "app", i % 3 ? "a" : "b", "spec",
			 "containers", "name", "main");
}

static json_t *plain_target(unsigned i)
{
	return json_pack("{s:s, s:{s:o, s:o, s:s}, s:{s:{s:{s:s}}}}", "kind", "ProfilingTarget",
			 "metadata", "name", json_sprintf("t%u", i), "uid",
			 json_sprintf("t%02u", i), "namespace", i % 2 ? "n1" : "n0", "spec",
			 "podSelector", "matchLabels", "app", i % 4 < 2 ? "a" : "b");
}

static void replace(struct objects *o, unsigned i)
{
	json_decref(o->all[i]);
	o->all[i] = o->make(i);
}

/* How many pods or targets of two plans are not the same memory. */
static unsigned n_made_anew(const struct plan *a, const struct plan *b, bool targets)
{
	size_t n = targets ? a->n_targets : a->n_pods;
	unsigned made = 0;

	assert_int_equal(n, targets ? b->n_targets : b->n_pods);
	for (size_t i = 0; i < n; i++)
		made += targets ? a->targets[i].uid != b->targets[i].uid
				: a->pods[i].uid != b->pods[i].uid;
	return made;
}

static void assert_made_anew(struct plan_cache *cache, struct plan **before, unsigned pods,
			     unsigned targets)
{
	struct plan *p = build(cache);

	assert_int_equal(n_made_anew(*before, p, false), pods);
	assert_int_equal(n_made_anew(*before, p, true), targets);
	plan_free(*before);
	*before = p;
}

/*
 * A change costs what it touches: the pod that changed and its targets; or the target, and the pods
 * that it selects or did select; or the pods of a namespace.
 */
static void test_a_plan_costs_what_has_changed(void **state)
{
	struct plan_cache *cache = plan_cache_new();
	struct plan *before;

	(void)state;
	world.targets = (struct objects){.n = 4, .make = plain_target};
	world.pods = (struct objects){.n = 60, .make = plain_pod};
	world.namespaces = (struct objects){.n = 2, .make = some_namespace};
	for (unsigned i = 0; i < 4; i++)
		world.targets.all[i] = plain_target(i);
	for (unsigned i = 0; i < 60; i++)
		world.pods.all[i] = plain_pod(i);
	before = build(cache);
	assert_int_equal(before->n_pods, 60);
	assert_made_anew(cache, &before, 0, 0);
	replace(&world.pods, 7);
	assert_made_anew(cache, &before, 1, 1);
	replace(&world.targets, 0); /* 20 of the 30 pods of n0 have app=a */
	assert_made_anew(cache, &before, 20, 1);
	world.namespaces.all[1] = json_pack("{s:{s:s}}", "metadata", "name", "n1");
	assert_made_anew(cache, &before, 30, 2);
	assert_made_anew(cache, &before, 0, 0);
	plan_cache_free(cache);
	/* the plan outlives the cache */
	assert_string_equal(plan_target_of(before, before->pods[59].containers, 0)->uid, "t01");
	plan_free(before);
	tear_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_cache_changes_nothing),
		cmocka_unit_test(test_around_the_limit_of_pods),
		cmocka_unit_test(test_a_plan_costs_what_has_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
