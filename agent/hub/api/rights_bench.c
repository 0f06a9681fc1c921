/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a query of a user who must be reviewed in 1, 100 and 1,000 namespaces: the first query
 * of the user, and one whose answers the hub has in its cache. The hub asks an API server on
 * loopback by TLS. It is another process, which answers each review after LATENCY_NS. Each
 * namespace has one profile of one sample, so the query itself is cheap.
 */
#include "hub/api/api.h"
#include "lib/base/bench.h"
#include "lib/kube/kube.h"
#include "lib/loop/testcert.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LATENCY_NS (5 * NSEC_PER_MSEC)
#define ROUNDS	   7
#define T0	   1700000000

/* ---- the API server: each token is a user, who may see each namespace, asked one by one ---- */

struct review {
	struct timer timer;
	struct http_conn *conn;
	json_t *answer;
};

static void gone(void *arg)
{
	struct review *r = arg;

	r->conn = NULL;
}

static void reply(void *arg)
{
	struct review *r = arg;
	_cleanup_free_ char *text = json_dumps(r->answer, 0);

	if (r->conn)
		http_reply(r->conn, 201, "application/json", NULL, text, strlen(text));
	json_decref(r->answer);
	free(r);
}

static void on_review(struct http_conn *c, const struct http_in *in, void *arg)
{
	_cleanup_json_ json_t *body = json_loadb(in->body, in->body_bytes, 0, NULL);
	struct review *r = xcalloc(1, sizeof(*r));

	r->conn = c;
	r->answer = strstr(in->path, "/tokenreviews")
			    ? json_pack("{s:{s:b, s:[s], s:{s:s}}}", "status", "authenticated", 1,
					"audiences", "podflame-api", "user", "username",
					json_str_at(body, "spec.token", ""))
			    : json_pack("{s:{s:b}}", "status", "allowed",
					*json_str_at(body, "spec.resourceAttributes.namespace",
						     "") != '\0');
	http_conn_on_gone(c, gone, r);
	timer_set(arg, &r->timer, LATENCY_NS, reply, r);
}

static _Noreturn void serve_reviews(int port_to, const struct test_cert *cert)
{
	const struct tls_config tc = {.cert_pem = cert->cert_pem, .key_pem = cert->key_pem};
	struct http_server_config c = {.address = "127.0.0.1", .handler = on_review};
	struct field_error e = {0};
	struct http_server *s;
	struct loop *l;
	uint16_t port;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (loop_new(&l) || tls_new(&tc, true, &c.tls, &e))
		bench_die("loop", ENOMEM);
	c.arg = l;
	if (http_server_new(l, &c, &s, &e))
		bench_die(e.reason, EINVAL);
	port = http_server_port(s);
	if (write(port_to, &port, sizeof(port)) != sizeof(port))
		bench_die("pipe", errno);
	loop_run(l);
	exit(1);
}

/* Starts the API server and returns its port. */
static uint16_t start_api_server(const struct test_cert *cert)
{
	uint16_t port = 0;
	int fds[2];

	if (pipe(fds))
		bench_die("pipe", errno);
	switch (fork()) {
	case -1:
		bench_die("fork", errno);
	case 0:
		serve_reviews(fds[1], cert);
	}
	if (read(fds[0], &port, sizeof(port)) != sizeof(port))
		bench_die("the API server", EPIPE);
	return port;
}

/* ---- the hub ---- */

struct hub {
	struct loop *loop;
	struct kube *kube;
	struct store *store;
	struct worker *query;
	struct api *api;
	struct http_server *server;
	struct http_client *client;
	unsigned n_namespaces;
};

/* Writes one profile of one sample for each namespace. */
static void fill(struct store *s, unsigned n_namespaces)
{
	struct frame frames[] = {{.kind = FRAME_APP, .name = "main"}};
	struct batch *b = profile_batch_new();
	size_t n_new;

	for (unsigned i = 0; i < n_namespaces; i++) {
		struct profile *p = profile_batch_profile(b);
		struct profile_sample *sample = profile_add(b, p);
		char ns[16];

		snprintf(ns, sizeof(ns), "team-%04u", i);
		memcpy(p->id, ns, MIN(sizeof(p->id), sizeof(ns)));
		p->event = EVENT_ON_CPU;
		p->end_ns = T0 * NSEC_PER_SEC;
		p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
		p->app_service = profile_batch_str(b, "api");
		p->process_id = i + 1;
		profile_tag(b, p, "pod_ns", ns);
		sample->cpu = -1;
		sample->value = 10101;
		sample->n_samples = 1;
		if (profile_batch_stack(b, frames, ARRAY_SIZE(frames), &sample->stack))
			bench_die("a stack", ENOMEM);
	}
	if (store_write(s, b, &n_new) || n_new != n_namespaces)
		bench_die("the store", EINVAL);
	profile_batch_free(b);
}

static void start_hub(struct hub *h, uint16_t api_port, const struct test_ca *ca)
{
	static const char *const audiences[] = {"podflame-api", NULL};
	const struct kube_config kc = {.address = (char *)"127.0.0.1",
				       .port = api_port,
				       .token = (char *)"hub",
				       .ca_pem = ca->pem};
	const struct store_config sc = {.kind = "sqlite", .path = (char *)":memory:"};
	struct http_server_config hc = {
		.address = "127.0.0.1", .head = api_http_head, .handler = api_http};
	struct http_client_config cc = {.address = "127.0.0.1"};
	struct api_config ac = {.audiences = audiences,
				.version = "0",
				.cluster_name = "c1",
				.token_hint = "",
				.store_note = "",
				.ns = "podflame-system",
				.n_query = 1,
				.query_bytes = 1 << 20};
	struct field_error e = {0};

	if (loop_new(&h->loop) || kube_new(h->loop, &kc, "bench", &h->kube, &e) ||
	    store_open(&sc, &h->store, &e) ||
	    worker_new(h->loop, "query", ac.query_bytes, &h->query))
		bench_die(*e.reason ? e.reason : "start", EINVAL);
	fill(h->store, h->n_namespaces);
	ac.kube = h->kube;
	ac.store = h->store;
	ac.query = &h->query;
	if (api_new(h->loop, &ac, &h->api))
		bench_die("the API", EINVAL);
	hc.arg = h->api;
	if (http_server_new(h->loop, &hc, &h->server, &e))
		bench_die(e.reason, EINVAL);
	cc.port = http_server_port(h->server);
	if (http_client_new(h->loop, &cc, &h->client))
		bench_die("a client", EINVAL);
}

static void stop_hub(struct hub *h)
{
	http_client_free(h->client);
	http_server_free(h->server);
	worker_free(h->query);
	api_free(h->api);
	store_close(h->store);
	kube_free(h->kube);
	loop_free(h->loop);
}

static void answered(int status, const char *body, size_t n, const char *error, void *arg)
{
	const struct hub *h = arg;
	_cleanup_json_ json_t *answer = json_loadb(body ?: "", n, 0, NULL);

	/* an answer without some of the namespaces would measure something else */
	if (status != 200 ||
	    json_int_at(answer, "summary.samples", -1) != (int64_t)h->n_namespaces) {
		fprintf(stderr, "%.*s\n", (int)MIN(n, 1000u), body ?: "");
		bench_die(error ?: "the answer is not whole", EPROTO);
	}
	loop_stop(h->loop, 0);
}

/* Returns the time of a query in milliseconds. */
static double query(struct hub *h, const char *user)
{
	static const char body[] =
		"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","
		"\"time_start\":1699999000,\"time_end\":1700001000}";
	_cleanup_free_ char *token = xasprintf("Authorization: Bearer %s", user);
	const struct http_request r = {.method = "POST",
				       .path = "/v1/profile/ProfileTracing",
				       .headers = (const char *const[]){token, NULL},
				       .body = body,
				       .body_bytes = strlen(body),
				       .on_done = answered,
				       .arg = h};
	struct http_call *call;
	uint64_t from = now_mono_ns();

	if (http_send(h->client, &r, &call) || loop_run(h->loop))
		bench_die("a query", EIO);
	return (double)(now_mono_ns() - from) / NSEC_PER_MSEC;
}

static void bench_namespaces(uint16_t api_port, const struct test_ca *ca, unsigned n)
{
	struct hub h = {.n_namespaces = n};
	double cold[ROUNDS], cached[ROUNDS];
	char name[64];

	start_hub(&h, api_port, ca);
	query(&h, "first"); /* opens the connections */
	for (unsigned i = 0; i < ROUNDS; i++) {
		char user[16];

		snprintf(user, sizeof(user), "user-%u", i);
		cold[i] = query(&h, user);
		cached[i] = query(&h, user);
	}
	snprintf(name, sizeof(name), "rights.cold_%u", n);
	bench_rounds(name, cold, ROUNDS, "ms", n == 1000 ? "<= 1000" : "",
		     "the API server answers a review after 5 ms");
	snprintf(name, sizeof(name), "rights.cached_%u", n);
	bench_rounds(name, cached, ROUNDS, "ms", "", "the same query again");
	stop_hub(&h);
}

int main(void)
{
	struct test_ca ca;
	struct test_cert cert;
	uint16_t port;

	test_ca_init(&ca, "bench");
	test_cert_init(&cert, &ca, "IP:127.0.0.1");
	port = start_api_server(&cert);
	bench_namespaces(port, &ca, 1);
	bench_namespaces(port, &ca, 100);
	bench_namespaces(port, &ca, 1000);
	test_cert_done(&cert);
	test_ca_done(&ca);
	return 0;
}
