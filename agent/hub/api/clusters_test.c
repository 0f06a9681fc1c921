/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sees what where one hub has the profiles of several clusters: known answers. A right in the
 * hub's own cluster opens nothing of another one, and the other way round. tenants_test.c has the
 * attempts of a tenant.
 */
#include "hub/api/testapi.h"

#define OWN_APP	  1
#define OWN_SHOP  10
#define OWN_HOST  100
#define EDGE_APP  1000
#define EDGE_SHOP 10000
#define EDGE_HOST 100000
#define OLD_NAME  1000000 /* of the hub's own cluster, under an earlier name */
#define NO_NAME	  10000000
#define GONE_APP  100000000 /* of a cluster that is not registered any more */
#define OWN	  (OWN_APP + OWN_SHOP + OWN_HOST + OLD_NAME + NO_NAME)
#define EDGE	  (EDGE_APP + EDGE_SHOP + EDGE_HOST)

static void fill_clusters(struct store *s)
{
	static const struct {
		const char *cluster, *ns;
		int64_t value;
	} stored[] = {
		{"c1", "app", OWN_APP},	   {"c1", "shop", OWN_SHOP},	{"c1", NULL, OWN_HOST},
		{"edge", "app", EDGE_APP}, {"edge", "shop", EDGE_SHOP}, {"edge", NULL, EDGE_HOST},
		{"old", "app", OLD_NAME},  {NULL, "app", NO_NAME},	{"gone", "app", GONE_APP},
	};
	struct batch *b = profile_batch_new();
	size_t n_new;

	for (size_t i = 0; i < ARRAY_SIZE(stored); i++) {
		struct profile *p = profile_batch_profile(b);
		struct profile_sample *x;

		p->id[0] = (uint8_t)i;
		p->end_ns = T0 * NSEC_PER_SEC;
		p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
		p->app_service = profile_batch_str(b, "web");
		p->process_id = 7;
		profile_tag(b, p, "pod_node", "n1");
		if (stored[i].cluster)
			profile_tag(b, p, "pod_cluster", stored[i].cluster);
		if (stored[i].ns)
			profile_tag(b, p, "pod_ns", stored[i].ns);
		x = profile_add(b, p);
		x->value = stored[i].value;
		x->n_samples = 1;
	}
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

static int setup_clusters(void **state)
{
	static const char *const clusters[] = {"edge", "gone", NULL};

	with_clusters = clusters;
	fill_store = fill_clusters;
	return setup_cluster(state);
}

static int64_t sum(struct fixture *f, const char *user, const char *filter)
{
	_cleanup_free_ char *header = xasprintf(BEARER "%s", user);
	_cleanup_free_ char *body = xasprintf(
		"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","
		"\"time_start\":1699999000,\"time_end\":1700001000,\"tag_filter\":\"%s\"}",
		filter);
	int64_t total = 0;
	const json_t *node;
	size_t i;

	ask(f, "POST", TRACING, header, body);
	assert_int_equal(f->status, 200);
	json_array_foreach (json_object_get(f->json, "result"), i, node)
		total += json_int_at(node, "self_value", 0);
	return total;
}

static void assert_note(struct fixture *f, const char *want)
{
	const json_t *notes = json_at(f->json, "summary.notes"), *note;
	bool told = false;
	size_t i;

	json_array_foreach (notes, i, note)
		told |= streq(json_string_value(note), want);
	if (!told)
		fail_msg("not told: %s\n%s", want, f->body);
}

static void each_right_opens_its_own(void **state)
{
	static const struct {
		const char *user, *filter;
		int64_t want;
	} cases[] = {
		/* all of the hub's own cluster, and of edge */
		{"viewer", "", OWN + EDGE},
		{"viewer", "pod_cluster='edge'", EDGE},
		{"viewer", "pod_ns='app'", OWN_APP + OLD_NAME + NO_NAME + EDGE_APP},
		{"viewer", "pod_cluster='gone'", 0},
		/* all of the hub's own cluster */
		{"local-viewer", "", OWN},
		{"local-viewer", "pod_cluster='edge'", 0},
		{"local-viewer", "pod_ns='app'", OWN_APP + OLD_NAME + NO_NAME},
		{"local-viewer", "pod_cluster!='c1' OR pod_ns IS NULL",
		 OWN_HOST + OLD_NAME + NO_NAME},
		/* one namespace of the hub's own cluster */
		{"tenant", "", OWN_APP + OLD_NAME + NO_NAME},
		{"tenant", "pod_cluster='edge'", 0},
		{"tenant", "pod_ns='app' OR pod_cluster='edge'", OWN_APP + OLD_NAME + NO_NAME},
		/* all of edge */
		{"edge-reader", "", EDGE},
		{"edge-reader", "pod_cluster='c1'", 0},
		{"edge-reader", "pod_ns='app'", EDGE_APP},
		{"edge-reader", "pod_ns IS NULL", EDGE_HOST},
		/* one namespace of edge */
		{"edge-app", "", EDGE_APP},
		{"edge-app", "pod_ns='shop'", 0},
		{"edge-app", "pod_ns='app'", EDGE_APP},
		{"edge-app", "pod_cluster='c1'", 0},
		{"edge-app", "pod_ns IS NULL", 0},
		/* the namespace app in both */
		{"both", "", OWN_APP + OLD_NAME + NO_NAME + EDGE_APP},
		{"both", "pod_cluster='edge'", EDGE_APP},
		{"nobody", "", 0},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int64_t got = sum(f, cases[i].user, cases[i].filter);

		if (got != cases[i].want)
			fail_msg("%s, %s: %lld, not %lld", cases[i].user, cases[i].filter,
				 (long long)got, (long long)cases[i].want);
	}
}

static void what_is_left_out_is_told(void **state)
{
	struct fixture *f = *state;

	sum(f, "local-viewer", "");
	assert_note(f, "you do not see all clusters: this has the hub's own one; others need the "
		       "verb get on clusters.podflame.io, by NAME or NAME:NAMESPACE");
	sum(f, "viewer", "");
	assert_note(f, "you do not see all clusters: this has the hub's own one, and what you may "
		       "see of others (edge)");
	sum(f, "both", "");
	assert_note(f, "you do not see all namespaces: this has those that you may see (app, "
		       "edge:app)");
	sum(f, "edge-reader", "");
	assert_note(f, "you do not see all namespaces: this has those that you may see (edge)");
	sum(f, "tenant", "pod_ns='shop'");
	assert_note(f, "you may not see profiles of the namespaces shop");
	/* the user sees it in one cluster */
	sum(f, "edge-app", "pod_ns='app'");
	assert_false(strstr(f->body, "you may not see"));
}

/* /metrics and the rest of the hub itself are for those who may see all of its own cluster. */
static void another_cluster_opens_no_metrics(void **state)
{
	struct fixture *f = *state;

	ask(f, "GET", "/metrics", BEARER "edge-reader", NULL);
	assert_int_equal(f->status, 403);
	ask(f, "GET", "/metrics", BEARER "local-viewer", NULL);
	assert_int_equal(f->status, 200);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_clusters, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_right_opens_its_own),
		TEST(what_is_left_out_is_told),
		TEST(another_cluster_opens_no_metrics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
