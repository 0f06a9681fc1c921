/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which requests the hub accepts: rights, tokens, an API server that does not answer, and the check
 * of agents that send profiles.
 */
#include "hub/api/auth.h"
#include "hub/api/testapi.h"

#include <openssl/evp.h>

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

/* A token that its user gave to another service: that service could send it to the hub. */
static void a_token_for_another_service_is_refused(void **state)
{
	static const char *const tokens[] = {BEARER "agent", BEARER "for-vault", BEARER "pod",
					     BEARER "oidc", BEARER "unaware"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(tokens); i++) {
		assert_int_equal(query(f, tokens[i]), 401);
		assert_non_null(strstr(f->body, "audience"));
		assert_non_null(strstr(f->body, "make one with: kubectl create token x"));
		assert_int_equal(ask(f, "GET", "/v1/profile/tags", tokens[i], NULL), 401);
	}
	assert_int_equal(cluster.n_access, 0);
}

/* The API server's own audience is that of OIDC users, and of the token that each pod has. */
static void an_audience_of_the_api_server_admits_oidc_users(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(query(f, BEARER "oidc"), 200);
	assert_non_null(strstr(f->body, "10101"));
	assert_int_equal(query(f, BEARER "tenant"), 200);
	assert_non_null(strstr(f->body, "10101"));
	assert_int_equal(query(f, BEARER "pod"), 200);
	assert_null(strstr(f->body, "10101")); /* the pod's account has no right */
	assert_int_equal(query(f, BEARER "agent"), 401);
	assert_int_equal(query(f, BEARER "for-vault"), 401);
}

/* Any client can send these. Proxies and the API server believe them of each other only. */
static void headers_of_a_proxy_say_nothing(void **state)
{
	static const char *const headers[] = {
		"X-Forwarded-User: viewer",
		"X-Forwarded-Email: viewer",
		"X-Forwarded-Groups: admins",
		"X-Forwarded-Preferred-Username: viewer",
		"X-Forwarded-Access-Token: viewer",
		"X-Auth-Request-User: viewer",
		"X-Auth-Request-Access-Token: viewer",
		"X-Remote-User: viewer",
		"X-Remote-Group: system:masters",
		"Impersonate-User: viewer",
		"Impersonate-Group: system:masters",
		"Proxy-Authorization: Bearer viewer",
		"Cookie: token=viewer",
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		const char *const two[] = {headers[i], BEARER "nobody", NULL};

		assert_int_equal(query(f, headers[i]), 401);
		assert_int_equal(ask_headers(f, "POST", TRACING, two, QUERY "}", strlen(QUERY "}")),
				 200);
		assert_null(strstr(f->body, "10101"));
		assert_int_equal(ask_headers(f, "GET", "/metrics", two, NULL, 0), 403);
	}
	assert_int_equal(ask(f, "GET", "/metrics", BEARER "viewer", NULL), 200);
	assert_int_equal(cluster.n_token, 2); /* nobody's and viewer's: none of a header */
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

static const char *const for_ingest[] = {"podflame-ingest", NULL};

static void audience_right_and_node(void **state)
{
	const struct gate_config c = {cluster_kube(), for_ingest, NULL};
	const struct gate_right send = {"create", "profiles"};
	struct fixture *f = *state;
	struct gate_got g = {.loop = f->loop};
	struct gate *gate = api_gate_new(&c);

	api_gate_check(gate, "Bearer agent", "10.0.0.1", &send, gate_got, &g);
	loop_run(f->loop);
	assert_int_equal(g.status, 200);
	assert_string_equal(g.node, "n1");
	assert_string_equal(g.user, "agent");
	/* a valid token, but made for another audience */
	api_gate_check(gate, "Bearer viewer", "10.0.0.1", &send, gate_got, &g);
	loop_run(f->loop);
	assert_int_equal(g.status, 401);
	/* a token for this audience, but its user lacks the right */
	api_gate_check(gate, "Bearer stranger", "10.0.0.1", &send, gate_got, &g);
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
	const struct gate_config c = {cluster_kube(), for_ingest, NULL};
	const struct gate_right send = {"create", "profiles"};
	struct counter *busy = counter("api_refused_total", "reason", "reviews_busy");
	uint64_t n_busy = counter_get(busy);
	unsigned n_token = cluster.n_token;
	struct fixture *f = *state;
	struct gate *gate = api_gate_new(&c);
	struct gate_got got[MOST + MORE];

	for (size_t i = 0; i < MOST + MORE; i++) {
		got[i] = (struct gate_got){.loop = f->loop};
		api_gate_check(gate, "Bearer agent", "10.0.0.1", &send, gate_got, &got[i]);
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

/* ---- tokens that are not right, and how often the API server is asked about them ---- */

#define OWN_ISSUER "https://kubernetes.example"
#define HOG	   "10.0.0.1"
#define VICTIM	   "10.0.0.2"

static const struct gate_right get_profiles = {"get", "profiles"};

/* Asks the gate, and waits for its answer. Returns the status. */
static int sign_in(struct fixture *f, struct gate *gate, const char *peer, const char *token)
{
	_cleanup_free_ char *authorization = xasprintf("Bearer %s", token);
	struct gate_got g = {.loop = f->loop};

	api_gate_check(gate, authorization, peer, &get_profiles, gate_got, &g);
	while (!g.status)
		loop_run(f->loop);
	return g.status;
}

/* A token that its client has made up. */
static int made_up(struct fixture *f, struct gate *gate, const char *peer)
{
	static unsigned n;
	_cleanup_free_ char *token = xasprintf("made-up-%u", n++);

	return sign_in(f, gate, peer, token);
}

static uint64_t n_refused(const char *reason)
{
	return counter_get(counter("sign_ins_refused_total", "reason", reason));
}

static char *base64url(const char *text)
{
	size_t n = strlen(text);
	char *out = xmalloc((n + 2) / 3 * 4 + 1);

	EVP_EncodeBlock((unsigned char *)out, (const unsigned char *)text, (int)n);
	for (char *c = out; *c; c++)
		*c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
	out[strcspn(out, "=")] = '\0';
	return out;
}

/* A token with these claims, which nobody has signed. The caller frees it. */
static char *claiming(const char *claims)
{
	_cleanup_free_ char *header = base64url("{\"alg\":\"RS256\",\"kid\":\"a\"}"),
			    *text = base64url(claims);

	return xasprintf("%s.%s.c2lnbmVk", header, text);
}

/* What a token says of itself is enough to refuse it, and never enough to accept it. */
static void a_token_that_cannot_be_right_is_not_asked_about(void **state)
{
	static const struct {
		const char *claims;
		bool asked;
	} cases[] = {
		{"{\"iss\":\"" OWN_ISSUER "\",\"aud\":[\"vault\"],\"exp\":9999999999}", false},
		{"{\"iss\":\"" OWN_ISSUER "\",\"aud\":\"vault\"}", false},
		{"{\"iss\":\"" OWN_ISSUER "\",\"aud\":[\"podflame-api\"],\"exp\":1000}", false},
		{"{\"iss\":\"https://oidc.example\",\"aud\":\"me\",\"exp\":1000}", false},
		{"{\"iss\":\"" OWN_ISSUER "\",\"aud\":[\"vault\",\"podflame-api\"],"
		 "\"exp\":9999999999}",
		 true},
		/* Kubernetes takes these for its own audience, which may be one of the hub's */
		{"{\"iss\":\"" OWN_ISSUER "\"}", true},
		{"{\"iss\":\"" OWN_ISSUER "\",\"aud\":[]}", true},
		/* of an OIDC user: the audience is the one of the API server's configuration */
		{"{\"iss\":\"https://oidc.example\",\"aud\":\"kubernetes\"}", true},
		{"no JSON", true},
	};
	struct fixture *f = *state;
	_cleanup_free_ char *path = xasprintf("%s/token", f->dir),
			    *own = claiming("{\"iss\":\"" OWN_ISSUER "\"}");
	const struct gate_config c = {cluster_kube(), user_audiences, path};
	uint64_t before = n_refused("expired") + n_refused("audience");
	unsigned n_not_asked = 0;
	struct gate *gate;

	assert_int_equal(file_write_atomic(path, own, strlen(own), 0600), 0);
	gate = api_gate_new(&c);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *token = claiming(cases[i].claims);
		unsigned n_token = cluster.n_token;

		assert_int_equal(sign_in(f, gate, HOG, token), 401);
		assert_int_equal(cluster.n_token - n_token, cases[i].asked);
		n_not_asked += !cases[i].asked;
	}
	assert_int_equal(n_refused("expired") + n_refused("audience") - before, n_not_asked);
	api_gate_free(gate, false);
}

/*
 * A peer makes up tokens: the API server sees few of them. Tokens that it has accepted before, and
 * new ones of other peers, are accepted meanwhile.
 */
static void made_up_tokens_of_a_peer_are_bounded(void **state)
{
	enum { BURST = 32, MANY = 200, LATER_S = 10 };
	const struct gate_config c = {cluster_kube(), user_audiences, NULL};
	struct fixture *f = *state;
	struct gate *gate = api_gate_new(&c);
	uint64_t before = n_refused("peer_refused");
	unsigned n_token;
	int n_said[600] = {0};

	assert_int_equal(sign_in(f, gate, HOG, "viewer"), 200);
	n_token = cluster.n_token;
	for (int i = 0; i < MANY; i++)
		n_said[made_up(f, gate, HOG)]++;
	assert_in_range(n_said[401], BURST, BURST + 20); /* some, if the test takes long */
	assert_int_equal(n_said[401] + n_said[429], MANY);
	assert_int_equal(cluster.n_token - n_token, n_said[401]);
	assert_int_equal(n_refused("peer_refused") - before, n_said[429]);
	assert_int_equal(sign_in(f, gate, HOG, "viewer"), 200);
	assert_int_equal(sign_in(f, gate, VICTIM, "new-viewer"), 200);
	assert_int_equal(made_up(f, gate, VICTIM), 401);
	test_clock.asleep_ns += LATER_S * NSEC_PER_SEC;
	n_said[401] = 0;
	for (int i = 0; i < MANY; i++)
		n_said[made_up(f, gate, HOG)]++;
	assert_in_range(n_said[401], LATER_S, LATER_S + 20);
	/* the cached answer is too old now, but the API server has accepted the token before */
	test_clock.asleep_ns += 61 * NSEC_PER_SEC;
	for (int i = 0; i < MANY; i++)
		made_up(f, gate, HOG);
	assert_int_equal(made_up(f, gate, HOG), 429);
	assert_int_equal(sign_in(f, gate, HOG, "viewer"), 200);
	api_gate_free(gate, false);
}

/* Many peers make up tokens: one that has made up none is asked about. */
static void made_up_tokens_of_all_are_bounded(void **state)
{
	enum { PEERS = 40, EACH = 32, BURST = 256 };
	const struct gate_config c = {cluster_kube(), user_audiences, NULL};
	struct fixture *f = *state;
	struct gate *gate = api_gate_new(&c);
	uint64_t before = n_refused("all_refused");
	unsigned n_token = cluster.n_token;

	for (int i = 0; i < EACH; i++)
		for (int k = 0; k < PEERS; k++) {
			_cleanup_free_ char *peer = xasprintf("10.1.0.%d", k);

			made_up(f, gate, peer);
		}
	assert_in_range(cluster.n_token - n_token, BURST, PEERS * EACH / 2);
	assert_true(n_refused("all_refused") > before);
	assert_int_equal(sign_in(f, gate, VICTIM, "new-viewer"), 200);
	api_gate_free(gate, false);
}

/* A peer has many tokens under way: the next one of another peer is asked about. */
static void a_peer_leaves_reviews_to_others(void **state)
{
	enum { MANY = 100, HALF = 24 };
	const struct gate_config c = {cluster_kube(), user_audiences, NULL};
	struct fixture *f = *state;
	struct gate *gate = api_gate_new(&c);
	uint64_t before = n_refused("peer_under_way");
	struct gate_got got[MANY];
	unsigned n_open = 0;

	for (int i = 0; i < MANY; i++) {
		_cleanup_free_ char *token = xasprintf("Bearer under-way-%d", i);

		got[i] = (struct gate_got){.loop = f->loop};
		api_gate_check(gate, token, HOG, &get_profiles, gate_got, &got[i]);
		n_open += !got[i].status;
		assert_true(!got[i].status || got[i].status == 429);
	}
	assert_int_equal(n_open, HALF);
	assert_int_equal(n_refused("peer_under_way") - before, MANY - HALF);
	assert_int_equal(sign_in(f, gate, VICTIM, "viewer"), 200);
	for (int i = 0; i < HALF; i++)
		while (!got[i].status)
			loop_run(f->loop);
	api_gate_free(gate, false);
}

/* Over HTTP: the client is told when it may try again. */
static void who_makes_up_too_many_tokens_is_told(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 1000 && f->status != 429; i++) {
		_cleanup_free_ char *header = xasprintf(BEARER "made-up-%d", i);

		query(f, header);
		assert_in_set(f->status, ((uintmax_t[]){401, 429}), 2);
	}
	assert_int_equal(f->status, 429);
	assert_string_equal(f->retry_after, "2");
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "TOO_MANY_REQUESTS");
	assert_non_null(strstr(f->body, "too many tokens of this address were refused"));
}

static void judge_as_said(const json_t *status, struct auth_verdict *v, void *arg)
{
	(void)arg;
	v->status = json_bool_at(status, "authenticated", false) ? 200 : 401;
}

static void reviewed(const struct auth_verdict *v, void *arg)
{
	struct fixture *f = arg;

	f->status = v->status;
	loop_stop(f->loop, 0);
}

static void review_token_of(struct fixture *f, struct reviews *r, const char *token)
{
	f->status = 0;
	api_reviews_ask(
		r, token, strlen(token),
		json_pack("{s:{s:s, s:[s]}}", "spec", "token", token, "audiences", "podflame-api"),
		reviewed, f);
	while (!f->status)
		loop_run(f->loop);
}

/* Made-up tokens fill the cache: the answer about a good one stays. */
static void a_good_token_stays_in_the_cache(void **state)
{
	enum { KEPT = 16 };
	struct fixture *f = *state;
	const struct reviews_config c = {.kube = cluster_kube(),
					 .path = "/apis/authentication.k8s.io/v1/tokenreviews",
					 .judge = judge_as_said,
					 .max_kept = KEPT,
					 .spares_yes = true,
					 .keep_no_ns = 10 * NSEC_PER_SEC};
	struct reviews *r = api_reviews_new(&c);

	review_token_of(f, r, "viewer");
	for (int i = 0; i < 5 * KEPT; i++) {
		_cleanup_free_ char *token = xasprintf("made-up-%d", i);

		review_token_of(f, r, token);
		assert_int_equal(api_reviews_kept(r, token, strlen(token)), 401);
	}
	assert_int_equal(api_reviews_kept(r, "viewer", strlen("viewer")), 200);
	assert_int_equal(api_reviews_kept(r, "made-up-1", strlen("made-up-1")), 0);
	api_reviews_free(r, false);
}

static int setup_own_audience(void **state)
{
	static const char *const audiences[] = {"podflame-api", OWN_AUDIENCE, NULL};
	int r;

	with_audiences = audiences;
	r = setup_cluster(state);
	with_audiences = user_audiences;
	return r;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(foreign_hosts_are_refused),
		CLUSTER(what_was_allowed_ages_asleep),
		CLUSTER(every_endpoint_wants_the_right),
		CLUSTER(refusals_say_what_to_do),
		CLUSTER(no_answer_is_no_entry),
		CLUSTER(audience_right_and_node),
		CLUSTER(few_wait_for_one_sign_in),
		CLUSTER(a_token_that_cannot_be_right_is_not_asked_about),
		CLUSTER(made_up_tokens_of_a_peer_are_bounded),
		CLUSTER(made_up_tokens_of_all_are_bounded),
		CLUSTER(a_peer_leaves_reviews_to_others),
		CLUSTER(who_makes_up_too_many_tokens_is_told),
		CLUSTER(a_good_token_stays_in_the_cache),
		CLUSTER(a_token_for_another_service_is_refused),
		CLUSTER(headers_of_a_proxy_say_nothing),
		cmocka_unit_test_setup_teardown(an_audience_of_the_api_server_admits_oidc_users,
						setup_own_audience, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
