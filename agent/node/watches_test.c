/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent watches, what it keeps of each object, and when it checks the node's report. The
 * test stands in for everything around watches.c.
 */
#include "node/internal.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

/* ---- stand-ins ---- */

struct kube_watch {
	struct kube_watch_ops ops;
	void (*trim)(json_t *obj);
	char path[128];
	void *arg;
};
static struct kube_watch watches[8];
static size_t n_watches;
static timer_fn *periodic; /* the timer of minutes */
static void *periodic_arg;
static unsigned n_checks;

int kube_watch_new(struct kube *k, const struct kube_watch_spec *s,
		   const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret)
{
	struct kube_watch *w = &watches[n_watches++];

	(void)k;
	assert_true(n_watches <= ARRAY_SIZE(watches));
	*w = (struct kube_watch){.ops = *ops, .trim = s->trim, .arg = arg};
	snprintf(w->path, sizeof(w->path), "%s", s->path);
	*ret = w;
	return 0;
}

struct kube_watch *kube_watch_free(struct kube_watch *w)
{
	(void)w;
	return NULL;
}

const json_t *kube_watch_get(const struct kube_watch *w, const char *key)
{
	(void)w;
	(void)key;
	return NULL;
}

void kube_watch_each(const struct kube_watch *w,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg)
{
	(void)w;
	(void)fn;
	(void)arg;
}

bool kube_watch_synced(const struct kube_watch *w)
{
	(void)w;
	return false;
}

void timer_set(struct loop *l, struct timer *t, uint64_t delay_ns, timer_fn *fn, void *arg)
{
	(void)l;
	(void)t;
	if (delay_ns < 60 * NSEC_PER_SEC)
		return;
	periodic = fn;
	periodic_arg = arg;
}

void timer_cancel(struct timer *t)
{
	(void)t;
	periodic = NULL;
}

int node_start(struct node *n, const char *node_uid)
{
	(void)n;
	(void)node_uid;
	return 0;
}

void report_check(struct report *r)
{
	(void)r;
	n_checks++;
}

void report_plan(struct report *r, const struct plan *p)
{
	(void)r;
	(void)p;
}

void proc_containers_apply(struct containers *p, struct plan *plan, uint64_t now_ns)
{
	(void)p;
	(void)plan;
	(void)now_ns;
}

void kernel_sync(struct kernel *k)
{
	(void)k;
}

/* ---- tests ---- */

static struct work node_work;
static char report; /* stands for a struct report */

static struct watches *new_watches(struct node *n)
{
	static struct config conf = {.node_name = (char *)"node1"};
	struct watches *w = NULL;

	*n = (struct node){.conf = &conf, .work = &node_work, .report = (struct report *)&report};
	n_watches = 0;
	n_checks = 0;
	assert_int_equal(node_watches_new(n, &w), 0);
	return w;
}

static const struct kube_watch *watch_of(const char *path)
{
	for (size_t i = 0; i < n_watches; i++) {
		if (streq(watches[i].path, path))
			return &watches[i];
	}
	fail_msg("nothing watches %s", path);
	return NULL;
}

static void test_annotations_are_not_kept(void **state)
{
	static const char *const paths[] = {"/api/v1/pods",
					    "/apis/podflame.io/v1alpha1/profilingtargets",
					    "/apis/podflame.io/v1alpha1/clusterprofilingtargets",
					    "/api/v1/namespaces", "/api/v1/nodes"};
	struct node n;
	struct watches *w = new_watches(&n);

	(void)state;
	assert_int_equal(n_watches, ARRAY_SIZE(paths));
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		_cleanup_json_ json_t *obj =
			json_pack("{s:{s:s, s:s, s:{s:s}}}", "metadata", "name", "a", "uid", "u",
				  "annotations", "k", "v");

		watch_of(paths[i])->trim(obj);
		assert_null(json_object_get(json_at(obj, "metadata.annotations"), "k"));
		assert_string_equal(json_str_at(obj, "metadata.uid", ""), "u");
	}
	node_watches_free(w);
}

static void node_is(const char *uid)
{
	_cleanup_json_ json_t *obj =
		json_pack("{s:{s:s, s:s}}", "metadata", "name", "node1", "uid", uid);
	const struct kube_watch *w = watch_of("/api/v1/nodes");

	w->ops.upsert("node1", obj, NULL, w->arg);
}

static void test_the_report_is_looked_for(void **state)
{
	struct node n;
	struct watches *w = new_watches(&n);

	(void)state;
	assert_non_null(periodic);
	node_is("a");
	node_is("a");
	assert_int_equal(n_checks, 0);
	node_is("b"); /* deleted and made anew: the hub may have deleted the report */
	assert_int_equal(n_checks, 1);
	node_is("b");
	assert_int_equal(n_checks, 1);
	for (unsigned i = 2; i < 5; i++) {
		periodic(periodic_arg);
		assert_int_equal(n_checks, i);
	}
	node_watches_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_annotations_are_not_kept),
		cmocka_unit_test(test_the_report_is_looked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
