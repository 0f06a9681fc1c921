/* SPDX-License-Identifier: Apache-2.0 */
/* The store remembers which clusters are not the hub's own. */
#include "hub/store/teststore.h"

static int open_with(const char *dir, const char *const *clusters, size_t n, struct store **ret,
		     struct field_error *e)
{
	char database[32];
	struct store_config c = config_at(dir, database);

	c.clusters = clusters;
	c.n_clusters = n;
	return store_open(&c, ret, e);
}

/* SQLite refuses when it is opened; ClickHouse may be away then, and refuses each request. */
static void assert_refused(const struct store_config *c, const char *key, const char *reason)
{
	const struct selection sel = {.event = EVENT_ON_CPU};
	_cleanup_(got_done) struct got g = {0};
	struct field_error e = {0};
	struct store *s = NULL;
	int r = store_open(c, &s, &e);

	if (!r)
		r = store_read(s, &store_scope_all, &sel, take, &g, &g.summary, &e);
	store_close(s);
	assert_int_equal(r, -EINVAL);
	assert_string_equal(e.path, key);
	if (!strstr(e.reason, reason))
		fail_msg("%s", e.reason);
}

static void assert_clusters(const struct store *s, const char *want)
{
	_cleanup_buf_ struct buf b = {0};
	size_t n;
	char *const *names = store_clusters(s, &n);

	for (size_t i = 0; i < n; i++)
		buf_printf(&b, "%s ", names[i]);
	assert_string_equal(b.data ?: "", want);
}

/* Profiles of a cluster that is not registered any more do not become the hub's own. */
static void clusters_are_remembered(void **state)
{
	static const char *const first[] = {"edge", "lab", "edge"}, *const second[] = {"annex"};
	const char *dir = *state;
	struct field_error e = {0};
	struct store *s;
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "1", "api", 10, "app", T0);
	char *app[] = {"app"};
	const struct scope tenant = {.places = app, .n_places = 1}, own = {.own = true};
	struct selection sel = {.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL};
	_cleanup_(got_done) struct got g = {0};

	profile_tag(b, p, "pod_cluster", "edge");
	add_sample(b, p, "api", true, "write", 10);
	assert_int_equal(open_with(dir, first, 3, &s, &e), 0);
	assert_clusters(s, "edge lab ");
	write_batch(s, b, 1);
	store_close(s);
	assert_int_equal(open_with(dir, second, 1, &s, &e), 0);
	assert_clusters(s, "annex edge lab ");
	sel.scope = &tenant;
	read_rows(s, &sel, &g);
	assert_int_equal(g.sum, 0);
	sel.scope = &own;
	read_rows(s, &sel, &g);
	assert_int_equal(g.sum, 0);
	sel.scope = &store_scope_all;
	read_rows(s, &sel, &g);
	assert_int_equal(g.sum, 10);
	store_close(s);
	/* registered as before: its profiles are not the own cluster's */
	assert_int_equal(open_with(dir, first, 3, &s, &e), 0);
	assert_clusters(s, "annex edge lab ");
	store_close(s);
}

/* Else what is the hub's own would become that of another cluster. */
static void the_name_of_the_own_cluster_is_refused(void **state)
{
	static const char *const clusters[] = {"c1"};
	char database[32];
	struct store_config c = config_at(*state, database);
	struct field_error e = {0};
	struct store *s;

	assert_int_equal(open_with(*state, NULL, 0, &s, &e), 0);
	assert_clusters(s, "");
	write_batch(s, two_services(), 3);
	store_close(s);
	c.clusters = clusters;
	c.n_clusters = 1;
	assert_refused(&c, "clusters", "under the name c1: register the other cluster");
}

/* Else the users of the other cluster would see the hub's own profiles. */
static void the_own_cluster_cannot_take_the_name_of_another(void **state)
{
	static const char *const clusters[] = {"edge"};
	char database[32];
	struct store_config c = config_at(*state, database);
	struct field_error e = {0};
	struct store *s;

	assert_int_equal(open_with(*state, clusters, 1, &s, &e), 0);
	store_close(s);
	c.own_cluster = "edge";
	assert_refused(&c, "cluster_name", "edge");
	c.own_cluster = "c1";
	assert_int_equal(store_open(&c, &s, &e), 0);
	store_close(s);
}

/* A node sends the loss, and the throttled time, of a container that another node has. */
static void containers_are_of_their_node(void **state)
{
	struct store *s = open_at(*state, 0, 0);
	struct batch *b = profile_batch_new();
	struct selection sel = {.event = EVENT_OFF_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL};
	_cleanup_(got_done) struct got g = {0};

	for (int i = 0; i < 4; i++) {
		bool forged = i % 2;
		struct profile *p =
			add_profile(b, (char[]){(char)('0' + i), 0}, i > 1 ? "Throttled" : "api",
				    i > 1 ? 0 : 10, forged ? "other" : "app", T0);

		p->event = EVENT_OFF_CPU;
		profile_tag(b, p, "container_id", "cid");
		if (forged)
			profile_tag(b, p, "pod_node", "n2");
		add_sample(b, p, "api", true, "write", forged ? 1000 : 10);
		if (forged && i > 1)
			profile_lose(b, p, "forged", 5, 0);
	}
	write_batch(s, b, 4);
	sel.where = leaf(PRED_EQ, "pod_ns", "app");
	read_rows(s, &sel, &g);
	assert_int_equal(g.sum, 10);
	assert_int_equal(g.summary.throttled_us, 10);
	assert_int_equal(g.summary.n_losses, 0);
	store_predicate_free(sel.where);
	store_close(s);
}

/* What a node has lost: the numbers are for readers of all of its cluster. */
static void losses_of_a_node_of_another_cluster(void **state)
{
	static const char *const clusters[] = {"edge"};
	char *whole[] = {"edge:"}, *part[] = {"edge:app"};
	const struct {
		struct scope scope;
		bool hidden;
	} cases[] = {
		{{.all = true, .own = true}, false},
		{{.own = true, .places = whole, .n_places = 1}, false},
		{{.own = true, .places = part, .n_places = 1}, true},
		{{.places = whole, .n_places = 1}, false},
		{{.places = part, .n_places = 1}, true},
	};
	struct field_error e = {0};
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "1", "api", 10, "app", T0);
	struct store *s;

	profile_tag(b, p, "pod_cluster", "edge");
	add_sample(b, p, "api", true, "write", 10);
	p = add_profile(b, "2", "", 0, NULL, T0);
	profile_tag(b, p, "pod_cluster", "edge");
	profile_lose(b, p, "ring_full", 7, 0);
	assert_int_equal(open_with(*state, clusters, 1, &s, &e), 0);
	write_batch(s, b, 2);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct selection sel = {.event = EVENT_ON_CPU,
					      .time_start_s = 1,
					      .time_end_s = T0 * 2LL,
					      .scope = &cases[i].scope};
		_cleanup_(got_done) struct got g = {0};

		read_rows(s, &sel, &g);
		assert_int_equal(g.summary.n_losses, 1);
		assert_int_equal(g.summary.losses[0].hidden, cases[i].hidden);
		assert_int_equal(g.summary.losses[0].n_samples, cases[i].hidden ? 0 : 7);
	}
	store_close(s);
}

/* Places of several clusters, in any number. */
static void places(void **state)
{
	static const char *const clusters[] = {"edge", "lab"};
	static const struct {
		const char *cluster, *ns, *unverified;
		int64_t value;
	} stored[] = {
		{"c1", "app", NULL, 1},		  {"c1", "shop", NULL, 10},
		{"edge", "app", NULL, 100},	  {"edge", "shop", NULL, 1000},
		{"edge", NULL, NULL, 10000},	  {"lab", "app", NULL, 100000},
		{"edge", "app", "true", 1000000}, {"c1", "edge:app", NULL, 10000000},
	};
	static const struct {
		char *places[4];
		size_t n;
		bool own;
		int64_t want;
	} cases[] = {
		{{NULL}, 0, false, 0},
		{{"app"}, 1, false, 1},
		{{"app", "shop"}, 2, false, 11},
		{{"edge:app"}, 1, false, 100},
		{{"edge:shop", "lab:app", "shop"}, 3, false, 101010},
		{{"app", "edge:app", "shop"}, 3, false, 111},
		{{"edge:"}, 1, false, 1011100},
		{{"edge:", "edge:app", "edge:shop"}, 3, false, 1011100},
		{{"edge:", "lab:nothing"}, 2, false, 1011100},
		{{"lab:"}, 1, false, 100000},
		{{"lab:", "shop"}, 2, false, 100010},
		{{NULL}, 0, true, 10000011},
		{{"edge:app"}, 1, true, 10000111},
		{{"app"}, 1, true, 10000011},
		{{"c1:app"}, 1, false, 0},
		{{":app"}, 1, false, 0},
		{{":"}, 1, false, 0},
		{{""}, 1, false, 0},
	};
	struct field_error e = {0};
	struct store *s;
	struct batch *b = profile_batch_new();

	for (size_t i = 0; i < ARRAY_SIZE(stored); i++) {
		struct profile *p =
			add_profile(b, (char[]){(char)('0' + i), 0}, "api", 10, stored[i].ns, T0);

		profile_tag(b, p, "pod_cluster", stored[i].cluster);
		if (stored[i].unverified)
			profile_tag(b, p, TAG_UNVERIFIED, stored[i].unverified);
		add_sample(b, p, "api", true, "write", stored[i].value);
	}
	assert_int_equal(open_with(*state, clusters, 2, &s, &e), 0);
	write_batch(s, b, ARRAY_SIZE(stored));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct scope scope = {.own = cases[i].own,
					    .places = (char **)cases[i].places,
					    .n_places = cases[i].n};
		const struct selection sel = {.event = EVENT_ON_CPU,
					      .time_start_s = 1,
					      .time_end_s = T0 * 2LL,
					      .scope = &scope};
		_cleanup_(got_done) struct got g = {0};

		read_rows(s, &sel, &g);
		if (g.sum != cases[i].want)
			fail_msg("case %zu: %lld, not %lld", i, (long long)g.sum,
				 (long long)cases[i].want);
	}
	store_close(s);
}

static int join_apart(const struct store_row *row, void *arg)
{
	buf_printf(arg, "%s:%d ", row->ns ?: "-", (int)row->value);
	return 0;
}

/* Symbols of a namespace name the frames of that namespace in the hub's own cluster. */
static void namespaces_of_other_clusters_are_not_apart(void **state)
{
	static const char *const clusters[] = {"edge"};
	static char *apart[] = {(char *)"app"};
	const struct selection sel = {.event = EVENT_ON_CPU,
				      .time_start_s = 1,
				      .time_end_s = T0 * 2LL,
				      .apart = apart,
				      .n_apart = 1};
	_cleanup_buf_ struct buf got = {0};
	struct batch *b = profile_batch_new();
	struct store_summary summary;
	struct field_error e = {0};
	struct store *s;

	for (int i = 0; i < 2; i++) {
		struct profile *p =
			add_profile(b, (char[]){(char)('0' + i), 0}, "api", 10, "app", T0);

		profile_tag(b, p, "pod_cluster", i ? "edge" : "c1");
		add_sample(b, p, "api", true, "write", i ? 10 : 1);
	}
	assert_int_equal(open_with(*state, clusters, 1, &s, &e), 0);
	write_batch(s, b, 2);
	assert_int_equal(store_read(s, &store_scope_all, &sel, join_apart, &got, &summary, &e), 0);
	assert_string_equal(got.data, "-:10 app:1 ");
	store_summary_done(&summary);
	store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(clusters_are_remembered),
		ON_DISK(the_name_of_the_own_cluster_is_refused),
		ON_DISK(the_own_cluster_cannot_take_the_name_of_another),
		ON_DISK(containers_are_of_their_node),
		ON_DISK(losses_of_a_node_of_another_cluster),
		ON_DISK(places),
		ON_DISK(namespaces_of_other_clusters_are_not_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
