/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the API only: the API over real HTTP on loopback, with a store and a client. A
 * struct kube_ops replaces the API server of Kubernetes. Include it once per program.
 */
#pragma once

#include "hub/api/api.h"
#include "hub/symbols/symbols.h"
#include "lib/base/testclock.h"
#include "lib/base/testdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define T0	 1700000000
#define BUILD_ID "00112233445566778899aabbccddeeff00112233"

#define UPLOADS_MAILBOX (5 * SYMBOLS_UPLOAD_BYTES)
#define QUERY_MAILBOX	(1 << 20)

struct fixture {
	struct loop *loop;
	struct store *store;
	struct symbols *symbols;
	char dir[TESTDIR_BYTES];
	struct worker *query, *uploads;
	struct api *api;
	struct http_server *server;
	struct http_client *client;
	struct timer guard;
	int status;	 /* 0: no answer */
	char error[128]; /* why there is no answer */
	char retry_after[16];
	char left_out[32]; /* the last reply's header Podflame-Left-Out; "": none */
	struct http_call *leaving; /* a request whose client leaves before its end */
	char *body;
	json_t *json;
};

/* ---- an API server of Kubernetes that knows some tokens: each is its user's name ---- */

#define OWN_AUDIENCE "https://kubernetes.default.svc" /* the API server's own */

static struct {
	struct loop *loop;
	bool down;
	unsigned n_token, n_access, n_namespaces; /* reviews, and those of one namespace */
	unsigned n_open, most_open;		  /* requests that are not answered yet */
	json_t *targets;			  /* a list; NULL: the hub does not know them yet */
	const char *refuses; /* no answer about this namespace; NULL: about all */
} cluster;

/* What is in the store at the start of a test. */
static void fill(struct store *s);
static void (*fill_store)(struct store *s) = fill;
static bool with_audit;
static const char *with_forwards_to;
static struct store *with_symbols_store; /* NULL: uploads are kept in a directory */
static size_t with_reply_bytes;
static const char *const user_audiences[] = {"podflame-api", NULL};
static const char *const *with_audiences = user_audiences;

struct asked {
	struct timer timer;
	kube_done_fn *fn;
	void *arg;
	json_t *answer;
};

static inline void answer(void *arg)
{
	struct asked *a = arg;

	cluster.n_open--;
	if (a->answer)
		a->fn(201, a->answer, NULL, a->arg);
	else
		a->fn(0, NULL, "connection refused", a->arg);
	json_decref(a->answer);
	free(a);
}

/* Users who may see one namespace. */
static const char *const tenants[][2] = {
	{"tenant", "app"}, {"oidc", "app"}, {"owner", "new"}, {"last", "zzz"}, {"both", "app"}};

/* Other clusters that are registered, and who may see what of them: objects of `clusters`. */
static const char *const *with_clusters; /* NULL at the end; NULL: there are none */
static const char *const cluster_rights[][2] = {{"viewer", "edge"},
						{"edge-reader", "edge"},
						{"edge-app", "edge:app"},
						{"both", "edge:app"}};

static inline bool may_see_of_cluster(const char *user, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(cluster_rights); i++)
		if (streq(cluster_rights[i][0], user) && streq(cluster_rights[i][1], name))
			return true;
	return false;
}

static inline bool is_tenant(const char *user)
{
	for (size_t i = 0; i < ARRAY_SIZE(tenants); i++)
		if (streq(tenants[i][0], user))
			return true;
	return false;
}

/* The audience for which a token is made; NULL: there is no such token. */
static inline const char *audience_of(const char *token)
{
	static const char *const others[][2] = {{"agent", "podflame-ingest"},
						{"stranger", "podflame-ingest"},
						{"for-vault", "vault"},
						{"pod", OWN_AUDIENCE},
						{"oidc", OWN_AUDIENCE}};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (streq(others[i][0], token))
			return others[i][1];
	return str_has_suffix(token, "viewer") || streq(token, "uploader") ||
			       streq(token, "nobody") || str_has_prefix(token, "edge-") ||
			       str_has_prefix(token, "guest") || is_tenant(token)
		       ? "podflame-api"
		       : NULL;
}

/* As the API server: without audiences it would take its own, so the hub must name some. */
static inline json_t *review_token(const char *token, const json_t *audiences)
{
	const char *audience = audience_of(token);
	const json_t *a;
	size_t i;

	assert_true(json_array_size(audiences) > 0);
	if (streq(token, "unaware")) /* of an authenticator that knows no audiences */
		return json_pack("{s:{s:b, s:{s:s}}}", "status", "authenticated", 1, "user",
				 "username", "viewer");
	json_array_foreach ((json_t *)audiences, i, a)
		if (str_equal(json_string_value(a), audience))
			return json_pack("{s:{s:b, s:[s], s:{s:s, s:[s], s:{s:[s]}}}}", "status",
					 "authenticated", 1, "audiences", audience, "user",
					 "username", token, "groups", "system:authenticated",
					 "extra", "authentication.kubernetes.io/node-name", "n1");
	return json_pack("{s:{s:s}}", "status", "error",
			 audience ? "invalid for the target audiences" : "token is unknown");
}

/* Some users have all rights to symbols in one namespace, one in all, one may only read them. */
static inline bool may_symbols(const char *user, const char *verb, const char *ns)
{
	for (size_t i = 0; i < ARRAY_SIZE(tenants); i++)
		if (streq(user, tenants[i][0]))
			return streq(ns, tenants[i][1]);
	return streq(user, "uploader") || (streq(user, "viewer") && streq(verb, "get"));
}

static inline json_t *review(const char *path, const json_t *body)
{
	const char *token = json_str_at(body, "spec.token", "");
	const char *user = json_str_at(body, "spec.user", ""), *verb, *resource, *ns;

	if (cluster.down)
		return NULL;
	if (strstr(path, "subjectaccessreviews")) {
		cluster.n_access++;
		resource = json_str_at(body, "spec.resourceAttributes.resource", "");
		assert_string_equal(json_str_at(body, "spec.resourceAttributes.group", ""),
				    "podflame.io");
		verb = json_str_at(body, "spec.resourceAttributes.verb", "");
		if (streq(verb, "get"))
			assert_int_equal(json_array_size(json_at(body, "spec.groups")), 1);
		ns = json_str_at(body, "spec.resourceAttributes.namespace", "");
		if (*ns && str_equal(cluster.refuses, ns))
			return NULL;
		if (streq(resource, "symbols"))
			return json_pack("{s:{s:b}}", "status", "allowed",
					 may_symbols(user, verb, ns));
		if (streq(resource, "clusters")) {
			const char *name = json_str_at(body, "spec.resourceAttributes.name", "");

			assert_string_equal(verb, "get");
			assert_null(json_at(body, "spec.resourceAttributes.namespace"));
			return json_pack("{s:{s:b}}", "status", "allowed",
					 may_see_of_cluster(user, name));
		}
		assert_string_equal(resource, "profiles");
		if (*ns)
			cluster.n_namespaces++;
		for (size_t i = 0; i < ARRAY_SIZE(tenants); i++)
			if (streq(user, tenants[i][0]))
				return json_pack("{s:{s:b}}", "status", "allowed",
						 streq(ns, tenants[i][1]));
		return json_pack("{s:{s:b}}", "status", "allowed",
				 streq(verb, "get") ? str_has_suffix(user, "viewer")
						    : streq(user, "agent"));
	}
	cluster.n_token++;
	return review_token(token, json_at(body, "spec.audiences"));
}

/*
 * Takes a request to the API server and answers later, on the loop, as the real client of
 * Kubernetes does.
 */
static int ask_cluster(struct kube *k, const char *method, const char *path,
		       const char *content_type, const json_t *body, kube_done_fn *fn, void *arg)
{
	struct asked *a = xcalloc(1, sizeof(*a));

	assert_non_null(k);
	assert_string_equal(method, "POST");
	assert_null(content_type);
	*a = (struct asked){.fn = fn, .arg = arg, .answer = review(path, body)};
	cluster.n_open++;
	cluster.most_open = MAX(cluster.most_open, cluster.n_open);
	timer_set(cluster.loop, &a->timer, 0, answer, a);
	return 0;
}

/* The API server does not answer lists. */
static int no_watch(struct kube *k, const struct kube_watch_spec *s,
		    const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret)
{
	(void)k, (void)s, (void)ops, (void)arg, (void)ret;
	return -ECONNREFUSED;
}

static inline struct kube *cluster_kube(void)
{
	static const struct kube_ops ops = {.request = ask_cluster, .watch_new = no_watch};
	static struct kube_base k = {&ops};

	return (struct kube *)&k;
}

/* ---- fixture ---- */

static inline void timed_out(void *arg)
{
	struct fixture *f = arg;

	loop_stop(f->loop, -ETIMEDOUT);
}

static void fill(struct store *s)
{
	struct frame frames[] = {{.kind = FRAME_APP, .name = "main"},
				 {.kind = FRAME_LIBRARY, .name = "write"}};
	struct frame stripped[] = {{.kind = FRAME_APP, .name = "main"},
				   {.kind = FRAME_APP,
				    .module = "/bin/stripped",
				    .build_id = BUILD_ID,
				    .address = 0x1011}};
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *sample;
	size_t n_new;

	p->event = EVENT_ON_CPU;
	p->end_ns = T0 * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "api");
	p->process_id = 7;
	profile_tag(b, p, "pod_ns", "app");
	sample = profile_add(b, p);
	sample->thread_comm = profile_batch_str(b, "worker");
	sample->cpu = -1;
	sample->value = 10101;
	sample->n_samples = 1;
	assert_int_equal(profile_batch_stack(b, frames, ARRAY_SIZE(frames), &sample->stack), 0);
	p = profile_batch_profile(b);
	p->event = EVENT_ON_CPU;
	p->id[0] = 1;
	p->end_ns = (T0 + 5000) * NSEC_PER_SEC; /* after the time of QUERY */
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "stripped");
	p->process_id = 8;
	sample = profile_add(b, p);
	sample->cpu = -1;
	sample->value = 20202;
	sample->n_samples = 2;
	assert_int_equal(profile_batch_stack(b, stripped, ARRAY_SIZE(stripped), &sample->stack), 0);
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

/* Returns the health as the hub does. */
static inline json_t *say_health(void *arg)
{
	struct store_stats s;

	store_stats(arg, &s);
	return json_pack("{s:s, s:s}", "store", s.error, "certificate", "");
}

static inline json_t *say_targets(void *arg)
{
	(void)arg;
	return json_incref(cluster.targets);
}

/* Opens a new connection. Requests then have host in their header Host; NULL: the address. */
static inline void connect_to(struct fixture *f, const char *host)
{
	const struct http_client_config c = {
		.address = "127.0.0.1", .port = http_server_port(f->server), .host = host};

	http_client_free(f->client);
	assert_int_equal(http_client_new(f->loop, &c, &f->client), 0);
}

/* path: directory of the store, or ":memory:". */
static inline int setup_with(void **state, struct fixture *f, struct kube *kube, const char *path)
{
	struct store_config sc = {
		.kind = "sqlite", .path = (char *)(uintptr_t)path, .clusters = with_clusters};
	struct http_server_config server = {
		.address = "127.0.0.1", .head = api_http_head, .handler = api_http};
	_cleanup_free_ char *symbols_dir = xasprintf("%s/symbols", f->dir);
	struct symbols_config symbols = {
		.dir = symbols_dir, .max_bytes = 1 << 20, .store = with_symbols_store};
	struct api_config ac = {.kube = kube,
				.audiences = with_audiences,
				.version = "9.9.9",
				.cluster_name = "c1",
				.token_hint = kube ? "kubectl create token x" : "",
				.store_note = "in memory",
				.health = say_health,
				.targets = say_targets,
				.ns = "podflame-system",
				.forwards_to = with_forwards_to,
				.audit = with_audit,
				.reply_bytes = with_reply_bytes};
	struct field_error e = {0};

	while (with_clusters && with_clusters[sc.n_clusters])
		sc.n_clusters++;
	assert_int_equal(loop_new(&f->loop), 0);
	memset(&cluster, 0, sizeof(cluster));
	cluster.loop = f->loop;
	assert_int_equal(store_open(&sc, &f->store, &e), 0);
	fill_store(f->store);
	assert_int_equal(worker_new(f->loop, "query", QUERY_MAILBOX, &f->query), 0);
	assert_int_equal(worker_new(f->loop, "uploads", UPLOADS_MAILBOX, &f->uploads), 0);
	assert_int_equal(symbols_open(&symbols, &f->symbols, &e), 0);
	ac.store = f->store;
	ac.health_arg = f->store;
	ac.symbols = f->symbols;
	ac.uploads = f->uploads;
	ac.upload_bytes = 4 * SYMBOLS_UPLOAD_BYTES;
	ac.query = &f->query;
	ac.n_query = 1;
	ac.query_bytes = QUERY_MAILBOX;
	assert_int_equal(api_new(f->loop, &ac, &f->api), 0);
	server.arg = f->api;
	assert_int_equal(http_server_new(f->loop, &server, &f->server, &e), 0);
	connect_to(f, NULL);
	timer_set(f->loop, &f->guard, 30 * NSEC_PER_SEC, timed_out, f);
	*state = f;
	return 0;
}

static inline struct fixture *fixture_new(void)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	assert_int_equal(testdir_make(f->dir), 0);
	return f;
}

static inline int setup_local(void **state)
{
	return setup_with(state, fixture_new(), NULL, ":memory:");
}

static inline int setup_cluster(void **state)
{
	return setup_with(state, fixture_new(), cluster_kube(), ":memory:");
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	test_clock.asleep_ns = 0;
	timer_cancel(&f->guard);
	http_client_free(f->client);
	http_server_free(f->server);
	worker_free(f->query);
	worker_free(f->uploads);
	symbols_close(f->symbols);
	api_free(f->api);
	store_close(f->store);
	assert_int_equal(testdir_remove(f->dir), 0);
	loop_free(f->loop);
	json_decref(cluster.targets);
	cluster.targets = NULL;
	json_decref(f->json);
	free(f->body);
	free(f);
	return 0;
}

#define LOCAL(t)   cmocka_unit_test_setup_teardown(t, setup_local, teardown)
#define CLUSTER(t) cmocka_unit_test_setup_teardown(t, setup_cluster, teardown)

/* ---- requests ---- */

static inline void done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct fixture *f = arg;

	f->status = status;
	snprintf(f->error, sizeof(f->error), "%s", error ?: "");
	free(f->body);
	f->body = xstrndup(body ? body : "", n);
	json_decref(f->json);
	f->json = json_loadb(f->body, n, 0, NULL);
	loop_stop(f->loop, 0);
}

static inline void head_came(int status, const struct http_headers *h, void *arg)
{
	struct fixture *f = arg;

	(void)status;
	snprintf(f->retry_after, sizeof(f->retry_after), "%s", http_header(h, "Retry-After") ?: "");
	snprintf(f->left_out, sizeof(f->left_out), "%s",
		 http_header(h, "Podflame-Left-Out") ?: "");
}

static inline int ask_headers(struct fixture *f, const char *method, const char *path,
			      const char *const *headers, const void *body, size_t n)
{
	struct http_request r = {.method = method,
				 .path = path,
				 .headers = headers,
				 .body = body,
				 .body_bytes = n,
				 /* long, for a large body on a slow machine */
				 .timeout_ns = 300 * NSEC_PER_SEC,
				 .on_head = head_came,
				 .on_done = done,
				 .arg = f};
	struct http_call *call;

	assert_int_equal(http_send(f->client, &r, &call), 0);
	assert_int_equal(loop_run(f->loop), 0);
	return f->status;
}

static inline int ask_bytes(struct fixture *f, const char *method, const char *path,
			    const char *header, const void *body, size_t n)
{
	const char *const headers[] = {header, NULL};

	return ask_headers(f, method, path, headers, body, n);
}

static inline int ask(struct fixture *f, const char *method, const char *path, const char *header,
		      const char *body)
{
	return ask_bytes(f, method, path, header, body, body ? strlen(body) : 0);
}

#define QUERY                                                                                      \
	"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","                   \
	"\"time_start\":1699999000,\"time_end\":1700001000"
#define TRACING "/v1/profile/ProfileTracing"
#define BEARER	"Authorization: Bearer "

static inline int query(struct fixture *f, const char *header)
{
	return ask(f, "POST", TRACING, header, QUERY "}");
}

static inline json_t *debug_page(void *arg)
{
	return json_pack("{s:s}", "said", (const char *)arg);
}
