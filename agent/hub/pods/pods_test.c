/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the hub knows of pods. The test fills the watches and moves the clock. */
#include "hub/pods/pods.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/kube/testwatches.h"
#include "lib/loop/testtimer.h"

#define HOUR_NS (3600 * NSEC_PER_SEC)

static unsigned n_came, n_changed;
static char came_to[64];

static void came(const char *node, void *arg)
{
	(void)arg;
	n_came++;
	snprintf(came_to, sizeof(came_to), "%s", node);
}

static void changed(void *arg)
{
	(void)arg;
	n_changed++;
}

static int setup(void **state)
{
	static const struct pods_ops ops = {came, changed};
	struct pods *p;

	test_clock.stands_ns = 1800000000 * NSEC_PER_SEC;
	n_came = n_changed = 0;
	assert_int_equal(pods_new(timer_loop(), testwatches(NULL), &p), 0);
	pods_set_ops(p, &ops, NULL);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	pods_free(*state);
	return 0;
}

static json_t *pod(const char *ns, const char *name, const char *uid, const char *node)
{
	return json_pack("{s:{s:s, s:s, s:s, s:{s:s}}, s:{s:s}}", "metadata", "namespace", ns,
			 "name", name, "uid", uid, "labels", "app", "web", "spec", "nodeName",
			 node);
}

static void key_of(const json_t *obj, char ret[static 64])
{
	snprintf(ret, 64, "%s/%s", json_str_at(obj, "metadata.namespace", ""),
		 json_str_at(obj, "metadata.name", ""));
}

static void begin(json_t *obj)
{
	struct kube_watch *w = watch_of("/pods");
	char key[64];

	key_of(obj, key);
	keep(w, key, obj);
	w->ops.upsert(key, obj, NULL, w->arg);
}

static void end(json_t *obj)
{
	struct kube_watch *w = watch_of("/pods");
	char key[64];

	key_of(obj, key);
	keep(w, key, NULL);
	w->ops.remove(key, obj, w->arg);
}

static void sync_watch(const char *part)
{
	struct kube_watch *w = watch_of(part);

	w->synced = true;
	if (w->ops.synced)
		w->ops.synced(w->arg);
}

static enum pods_place find(struct pods *p, const char *node, const char *ns, const char *name,
			    const char *uid)
{
	return pods_find(p, &(struct pods_claim){node, ns, name, uid});
}

static void pass(uint64_t ns)
{
	test_clock.stands_ns += ns;
	timer_fire();
}

/* ---- tests ---- */

static void test_what_is_watched(void **state)
{
	struct kube_watch *w = watch_of("/api/v1/pods");
	_cleanup_json_ json_t *obj = pod("app", "web", "u1", "n1"), *kept = NULL;

	assert_string_equal(w->field_selector, "spec.nodeName!=");
	assert_true(watch_of("/api/v1/namespaces")->metadata_only);
	kept = json_deep_copy(obj);
	json_object_set_new(json_object_get(obj, "spec"), "containers", json_array());
	json_object_set_new(obj, "status", json_pack("{s:s}", "phase", "Running"));
	json_object_set_new(json_object_get(obj, "metadata"), "annotations",
			    json_pack("{s:s}", "large", "text"));
	w->trim(obj);
	assert_true(json_equal(obj, kept));
	json_object_set_new(obj, "status",
			    json_pack("{s:s, s:s}", "phase", "Failed", "reason", "Evicted"));
	w->trim(obj);
	assert_string_equal(json_str_at(obj, "status.phase", ""), "Failed");
	assert_null(json_at(obj, "status.reason"));
	assert_false(pods_synced(*state));
	sync_watch("/pods");
	assert_false(pods_synced(*state));
	sync_watch("/namespaces");
	assert_true(pods_synced(*state));
}

static void test_where_a_pod_is(void **state)
{
	struct pods *p = *state;
	_cleanup_json_ json_t *web = pod("app", "web", "u1", "n1"), *other = NULL;

	sync_watch("/pods");
	begin(web);
	assert_int_equal(n_came, 1);
	assert_string_equal(came_to, "n1");
	assert_int_equal(find(p, "n1", "app", "web", "u1"), PODS_HERE);
	assert_int_equal(find(p, "n1", "app", "web", NULL), PODS_HERE);
	assert_int_equal(find(p, "n2", "app", "web", "u1"), PODS_ELSEWHERE);
	/* without a UID it may be an older pod of this name */
	assert_int_equal(find(p, "n2", "app", "web", NULL), PODS_UNKNOWN);
	assert_int_equal(find(p, "n1", "app", "web", "u2"), PODS_UNKNOWN);
	assert_int_equal(find(p, "n1", "app", "web-2", "u1"), PODS_UNKNOWN);
	assert_int_equal(find(p, "n1", "bank", "web", "u1"), PODS_UNKNOWN);
	assert_int_equal(find(p, "", "", "", ""), PODS_UNKNOWN);
	/* a namespace and a name with a slash are not those of another pod */
	assert_int_equal(find(p, "n1", "app/web", "", "u1"), PODS_UNKNOWN);
	/* a pod of the same name begins on another node, as a StatefulSet's does */
	end(web);
	other = pod("app", "web", "u2", "n2");
	begin(other);
	assert_int_equal(find(p, "n1", "app", "web", "u1"), PODS_HERE);
	assert_int_equal(find(p, "n2", "app", "web", "u2"), PODS_HERE);
	assert_int_equal(find(p, "n1", "app", "web", "u2"), PODS_ELSEWHERE);
	assert_int_equal(find(p, "n2", "app", "web", "u1"), PODS_ELSEWHERE);
	end(other);
}

static void test_ended_pods_are_remembered_for_a_day(void **state)
{
	struct pods *p = *state;
	_cleanup_json_ json_t *web = pod("app", "web", "u1", "n1");

	sync_watch("/pods");
	begin(web);
	end(web);
	pass(23 * HOUR_NS);
	assert_int_equal(find(p, "n1", "app", "web", "u1"), PODS_HERE);
	begin(web); /* a list that the API server took from its cache lacked it */
	pass(2 * HOUR_NS);
	assert_int_equal(find(p, "n1", "app", "web", "u1"), PODS_HERE);
	end(web);
	pass(25 * HOUR_NS);
	assert_int_equal(find(p, "n1", "app", "web", "u1"), PODS_UNKNOWN);
}

static void test_pods_of_an_earlier_run_are_remembered(void **state)
{
	struct pods *p = *state;
	_cleanup_json_ json_t *web = pod("app", "web", "u1", "n1"),
			      *db = pod("app", "db", "u3", "n1");

	pods_remember(p, &(struct pods_claim){"n1", "app", "web", "u1"});
	pods_remember(p, &(struct pods_claim){"n2", "app", "job", "u2"});
	pods_remember(p, &(struct pods_claim){"n2", "app", "job", "u2"});
	/* another node has once said that it has this one */
	pods_remember(p, &(struct pods_claim){"n3", "app", "db", "u3"});
	sync_watch("/pods");
	begin(db);
	assert_int_equal(find(p, "n1", "app", "db", "u3"), PODS_HERE);
	assert_int_equal(find(p, "n3", "app", "db", "u3"), PODS_ELSEWHERE);
	begin(web); /* this one has not ended */
	pass(25 * HOUR_NS);
	assert_int_equal(find(p, "n1", "app", "web", "u1"), PODS_HERE);
	assert_int_equal(find(p, "n2", "app", "job", "u2"), PODS_UNKNOWN);
	pods_remember(p, &(struct pods_claim){"n2", "app", "job", "u2"});
	assert_int_equal(find(p, "n2", "app", "job", "u2"), PODS_HERE);
	assert_int_equal(find(p, "n1", "app", "job", "u2"), PODS_ELSEWHERE);
	end(web);
	end(db);
}

static void test_so_many_ended_pods_are_remembered(void **state)
{
	struct pods *p = *state;
	char name[32];

	sync_watch("/pods");
	for (unsigned i = 0; i < PODS_MAX_ENDED + 2; i++) {
		_cleanup_json_ json_t *obj = NULL;
		struct kube_watch *w = watch_of("/pods");

		snprintf(name, sizeof(name), "app/p%u", i);
		obj = pod("app", name + strlen("app/"), "u", "n1");
		w->ops.upsert(name, obj, NULL, w->arg);
		w->ops.remove(name, obj, w->arg);
	}
	assert_int_equal(find(p, "n1", "app", "p1", "u"), PODS_UNKNOWN);
	assert_int_equal(find(p, "n1", "app", "p2", "u"), PODS_HERE);
	assert_int_equal(find(p, "n1", "app", "p100001", "u"), PODS_HERE);
}

static void test_a_watch_that_does_not_work(void **state)
{
	struct pods *p = *state;
	_cleanup_json_ json_t *web = pod("app", "web", "u1", "n1");
	struct kube_watch *w = watch_of("/pods");

	assert_int_equal(find(p, "n1", "app", "web", "u1"), PODS_NOT_NOW);
	begin(web);
	assert_int_equal(find(p, "n1", "app", "web", "u1"), PODS_HERE);
	assert_int_equal(find(p, "n1", "app", "new", "u2"), PODS_NOT_NOW);
	w->ops.state(NULL, w->arg); /* connected, and not yet listed */
	assert_int_equal(find(p, "n1", "app", "new", "u2"), PODS_NOT_NOW);
	sync_watch("/pods");
	assert_int_equal(find(p, "n1", "app", "new", "u2"), PODS_UNKNOWN);
	w->ops.state("connection refused", w->arg);
	assert_int_equal(find(p, "n1", "app", "new", "u2"), PODS_NOT_NOW);
	assert_int_equal(find(p, "n2", "app", "web", "u1"), PODS_ELSEWHERE);
	w->ops.state(NULL, w->arg);
	assert_int_equal(find(p, "n1", "app", "new", "u2"), PODS_UNKNOWN);
	end(web);
}

static void test_what_targets_select(void **state)
{
	struct pods *p = *state;
	_cleanup_json_ json_t *web = pod("app", "web", "u1", "n1");
	_cleanup_json_ json_t *labels = json_pack("{s:{s:s}}", "matchLabels", "app", "web"),
			      *others = json_pack("{s:{s:s}}", "matchLabels", "app", "db"),
			      *all = json_object(),
			      *ns = json_pack("{s:{s:{s:s}}}", "metadata", "labels", "team", "a");
	const struct target_selection own = {.ns = "app", .pods = labels},
				      other = {.ns = "app", .pods = others},
				      foreign = {.ns = "bank", .pods = labels},
				      any = {.cluster = true, .pods = all, .namespaces = all};

	keep(watch_of("/namespaces"), "app", ns);
	begin(web);
	assert_true(pods_select(p, "n1", &own, true));
	assert_false(pods_select(p, "n2", &own, true));
	assert_false(pods_select(p, "n1", &other, true));
	assert_false(pods_select(p, "n1", &foreign, true));
	assert_true(pods_select(p, "n1", &any, false));
	assert_false(pods_select(p, "n1", &any, true)); /* the namespace lacks the label */
	end(web);
	assert_false(pods_select(p, "n1", &own, true));
}

static char running[256];

static void list_running(const char *name, const struct selected *of, void *arg)
{
	size_t n = strlen(running);

	(void)arg;
	assert_string_equal(json_str_at(of->labels, "app", ""), "web");
	snprintf(running + n, sizeof(running) - n, " %s/%s", of->ns, name);
}

static void assert_running(const struct pods *p, const char *ns, const char *want)
{
	running[0] = '\0';
	pods_each_running(p, "n1", ns, list_running, NULL);
	assert_string_equal(running, want);
}

/* A pod that has succeeded is on its node until it is deleted, but does not run. */
static void test_pods_that_run(void **state)
{
	struct pods *p = *state;
	_cleanup_json_ json_t *web = pod("app", "web", "u1", "n1"),
			      *other = pod("app", "web-2", "u2", "n2"),
			      *vault = pod("bank", "vault", "u3", "n1"),
			      *job = pod("app", "job", "u4", "n1"), *over = json_deep_copy(job);
	struct kube_watch *w = watch_of("/pods");

	begin(web);
	begin(other);
	begin(vault);
	begin(job);
	assert_running(p, NULL, " app/web bank/vault app/job");
	assert_running(p, "app", " app/web app/job");
	assert_running(p, "ap", "");
	json_object_set_new(over, "status", json_pack("{s:s}", "phase", "Succeeded"));
	keep(w, "app/job", over);
	w->ops.upsert("app/job", over, job, w->arg);
	assert_running(p, "app", " app/web");
	assert_int_equal(find(p, "n1", "app", "job", "u4"), PODS_HERE);
	end(web);
	assert_running(p, NULL, " bank/vault");
}

static void assert_problem(const struct pods *p, const char *want)
{
	_cleanup_free_ char *problem = pods_problem(p);

	assert_string_equal(problem, want);
}

static void test_problems_are_told(void **state)
{
	struct pods *p = *state;
	struct kube_watch *w = watch_of("/pods");

	assert_problem(p, "");
	w->ops.state("forbidden", w->arg);
	assert_problem(p, "the pods cannot be watched: see the log");
	w->ops.state(NULL, w->arg);
	assert_problem(p, "");
	w->n_left_out = 7;
	assert_problem(p, "7 or more pods are not known: there are too many");
}

static void assert_unverified(struct pods *p, const char *ns, const char *want)
{
	const struct target_selection s = {.ns = ns};
	_cleanup_free_ char *text = pods_unverified(p, &s);

	if (want)
		assert_string_equal(text, want);
	else
		assert_null(text);
}

static void test_unverified_pods_are_told(void **state)
{
	struct pods *p = *state;
	char name[16];

	assert_unverified(p, "app", NULL);
	pods_note_unverified(p, &(struct pods_claim){"n1", "app", "web", "u"});
	pods_note_unverified(p, &(struct pods_claim){"n1", "app", "web", "u"});
	pods_note_unverified(p, &(struct pods_claim){"n1", "bank", "vault", "u"});
	pass(5 * NSEC_PER_SEC);
	assert_int_equal(n_changed, 1);
	assert_unverified(p, "app", "app/web on node n1");
	assert_unverified(p, "bank", "bank/vault on node n1");
	pass(300 * NSEC_PER_SEC);
	pods_note_unverified(p, &(struct pods_claim){"n1", "app", "web", "u"});
	pass(301 * NSEC_PER_SEC);
	assert_unverified(p, "app", "app/web on node n1");
	assert_unverified(p, "bank", NULL);
	assert_int_equal(n_changed, 2);
	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "p%u", i);
		pods_note_unverified(p, &(struct pods_claim){"n2", "app", name, "u"});
	}
	assert_unverified(p, "app",
			  "app/web on node n1, app/p0 on node n2, app/p1 on node n2 and 5 more");
}

/* A sender chooses these names: they must not write lines into a log or a status. */
static void test_names_that_kubernetes_does_not_allow_are_not_told(void **state)
{
	struct pods *p = *state;

	pods_note_unverified(p, &(struct pods_claim){"n1", "app", "web\nDegraded", "u"});
	pods_note_unverified(p, &(struct pods_claim){"n1", "app", "", "u"});
	pods_note_unverified(p, &(struct pods_claim){"<b>", "app", "web", "u"});
	pods_note_unverified(p, &(struct pods_claim){"n1", "Ap p", "web", "u"});
	assert_unverified(p, "app", NULL);
}

/* A sender that invents namespaces keeps the room of real ones for one tick at most. */
static void test_so_many_unverified_namespaces_are_remembered(void **state)
{
	struct pods *p = *state;
	struct kube_watch *w = watch_of("/namespaces");
	json_t *real = json_object();
	char ns[16];

	for (unsigned i = 0; i < 1001; i++) {
		snprintf(ns, sizeof(ns), "n%u", i);
		pods_note_unverified(p, &(struct pods_claim){"n1", ns, "web", "u"});
	}
	assert_unverified(p, "n999", "n999/web on node n1");
	assert_unverified(p, "n1000", NULL);
	pass(5 * NSEC_PER_SEC);
	assert_unverified(p, "n999", "n999/web on node n1");
	keep(w, "n0", real);
	keep(w, "n1000", real);
	w->synced = true;
	pass(5 * NSEC_PER_SEC);
	assert_unverified(p, "n0", "n0/web on node n1");
	assert_unverified(p, "n999", NULL);
	pods_note_unverified(p, &(struct pods_claim){"n1", "n1000", "web", "u"});
	assert_unverified(p, "n1000", "n1000/web on node n1");
	json_decref(real);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_what_is_watched),
		TEST(test_where_a_pod_is),
		TEST(test_ended_pods_are_remembered_for_a_day),
		TEST(test_pods_of_an_earlier_run_are_remembered),
		TEST(test_so_many_ended_pods_are_remembered),
		TEST(test_a_watch_that_does_not_work),
		TEST(test_what_targets_select),
		TEST(test_pods_that_run),
		TEST(test_problems_are_told),
		TEST(test_unverified_pods_are_told),
		TEST(test_names_that_kubernetes_does_not_allow_are_not_told),
		TEST(test_so_many_unverified_namespaces_are_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
