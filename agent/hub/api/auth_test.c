/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which requests the hub accepts: rights, tokens, an API server that does not answer, and the check
 * of agents that send profiles.
 */
#include "hub/api/testapi.h"

static void foreign_hosts_are_refused(void **state)
{
	static const struct {
		const char *header;
		int status;
	} cases[] = {
		{"Origin: http://localhost:20416", 200},
		{"Origin: http://127.0.0.1:20416", 200},
		{"Origin: http://evil.example", 403},
		{"Origin: null", 403},
		{"Origin: http://localhost.evil.example", 403},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(query(f, cases[i].header), cases[i].status);
	connect_to(f, "evil.example");
	assert_int_equal(ask(f, "GET", "/", NULL, NULL), 403);
	assert_int_equal(query(f, NULL), 403);
}

/* Whether the right in some namespaces suffices: a user without any sees nothing. */
static const struct {
	const char *method, *path;
	bool by_namespace;
} guarded[] = {
	{"POST", TRACING, true},    {"POST", "/v1/profile/tree", true}, {"GET", "/metrics", false},
	{"GET", "/debug/x", false}, {"GET", "/nothing", false},
};

static void every_endpoint_wants_the_right(void **state)
{
	struct fixture *f = *state;

	api_debug(f->api, "/debug/x", debug_page, (void *)"hello");
	for (size_t i = 0; i < ARRAY_SIZE(guarded); i++) {
		const char *method = guarded[i].method, *path = guarded[i].path;
		const char *body = streq(method, "POST") ? QUERY "}" : NULL;

		assert_int_equal(ask(f, method, path, NULL, NULL), 401);
		assert_int_equal(ask(f, method, path, "Authorization: Basic dXNlcg==", NULL), 401);
		assert_int_equal(ask(f, method, path, BEARER, NULL), 401);
		assert_int_equal(ask(f, method, path, BEARER "wrong", NULL), 401);
		assert_int_equal(ask(f, method, path, BEARER "nobody", body),
				 guarded[i].by_namespace ? 200 : 403);
		assert_null(strstr(f->body, "10101"));
		ask(f, method, path, BEARER "viewer", body);
		assert_int_not_equal(f->status, 0);
		assert_int_not_equal(f->status, 401);
		assert_int_not_equal(f->status, 403);
	}
	/* the API server is asked once per token, not per request */
	assert_int_equal(cluster.n_token, 3);
	assert_int_equal(cluster.n_access, 3); /* nobody: also for the store's one namespace */
}

static void refusals_say_what_to_do(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(query(f, NULL), 401);
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "UNAUTHORIZED");
	assert_non_null(strstr(f->body, "kubectl create token x"));
	assert_int_equal(ask(f, "GET", "/metrics", BEARER "nobody", NULL), 403);
	assert_non_null(strstr(f->body, "profiles.podflame.io"));
	assert_int_equal(query(f, BEARER "viewer"), 200);
	assert_int_equal(ask(f, "GET", "/v1/info", NULL, NULL), 200);
	assert_true(json_bool_at(f->json, "auth_required", false));
}

static void no_answer_is_no_entry(void **state)
{
	struct fixture *f = *state;

	cluster.down = true;
	assert_int_equal(query(f, BEARER "viewer"), 503);
	assert_non_null(strstr(f->body, "cannot be asked"));
	assert_int_equal(ask(f, "GET", "/", NULL, NULL), 200);
	cluster.down = false; /* a failed request is not cached */
	assert_int_equal(query(f, BEARER "viewer"), 200);
	/* a right is cached for a while, so it is valid although the API server is down */
	cluster.down = true;
	assert_int_equal(query(f, BEARER "viewer"), 200);
}

/*
 * A token may have been revoked while the machine was suspended, so the cached right must also
 * expire then.
 */
static void what_was_allowed_ages_asleep(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 3; i++)
		assert_int_equal(query(f, BEARER "viewer"), 200);
	assert_int_equal(cluster.n_token, 1);
	assert_int_equal(cluster.n_access, 1);
	test_clock.asleep_ns = 61 * NSEC_PER_SEC;
	assert_int_equal(query(f, BEARER "viewer"), 200);
	assert_int_equal(cluster.n_token, 2);
	assert_int_equal(cluster.n_access, 2);
}

/* ---- the gate ---- */

struct gate_got {
	struct loop *loop;
	int status;
	char node[64], user[64];
};

static void gate_got(const struct gate_answer *a, void *arg)
{
	struct gate_got *g = arg;

	g->status = a->status;
	snprintf(g->node, sizeof(g->node), "%s", a->node);
	snprintf(g->user, sizeof(g->user), "%s", a->user);
	loop_stop(g->loop, 0);
}

static void audience_right_and_node(void **state)
{
	const struct gate_config c = {cluster_kube(), "podflame-ingest"};
	const struct gate_right send = {"create", "profiles"};
	struct fixture *f = *state;
	struct gate_got g = {.loop = f->loop};
	struct gate *gate = api_gate_new(&c);

	api_gate_check(gate, "Bearer agent", &send, gate_got, &g);
	loop_run(f->loop);
	assert_int_equal(g.status, 200);
	assert_string_equal(g.node, "n1");
	assert_string_equal(g.user, "agent");
	/* a valid token, but made for another audience */
	api_gate_check(gate, "Bearer viewer", &send, gate_got, &g);
	loop_run(f->loop);
	assert_int_equal(g.status, 401);
	/* a token for this audience, but its user lacks the right */
	api_gate_check(gate, "Bearer stranger", &send, gate_got, &g);
	loop_run(f->loop);
	assert_int_equal(g.status, 403);
	api_gate_free(gate, false);
}

/*
 * Requests that wait with the same token make one request to the API server. Requests over the
 * limit are refused at once, and counted.
 */
static void few_wait_for_one_sign_in(void **state)
{
	enum { MOST = 256, MORE = 3 };
	const struct gate_config c = {cluster_kube(), "podflame-ingest"};
	const struct gate_right send = {"create", "profiles"};
	struct counter *busy = counter("api_refused_total", "reason", "reviews_busy");
	uint64_t n_busy = counter_get(busy);
	unsigned n_token = cluster.n_token;
	struct fixture *f = *state;
	struct gate *gate = api_gate_new(&c);
	struct gate_got got[MOST + MORE];

	for (size_t i = 0; i < MOST + MORE; i++) {
		got[i] = (struct gate_got){.loop = f->loop};
		api_gate_check(gate, "Bearer agent", &send, gate_got, &got[i]);
		assert_int_equal(got[i].status, i < MOST ? 0 : 503);
	}
	assert_int_equal(counter_get(busy), n_busy + MORE);
	while (!got[MOST - 1].status)
		loop_run(f->loop);
	for (size_t i = 0; i < MOST; i++)
		assert_int_equal(got[i].status, 200);
	assert_int_equal(cluster.n_token, n_token + 1);
	api_gate_free(gate, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(foreign_hosts_are_refused),	 CLUSTER(what_was_allowed_ages_asleep),
		CLUSTER(every_endpoint_wants_the_right), CLUSTER(refusals_say_what_to_do),
		CLUSTER(no_answer_is_no_entry),		 CLUSTER(audience_right_and_node),
		CLUSTER(few_wait_for_one_sign_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
