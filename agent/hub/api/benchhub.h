/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For benchmarks only: a hub's API without sign-in on loopback, with a store in memory, and a
 * client that keeps nothing of the answers. Include it once per program.
 */
#pragma once

#include "hub/api/api.h"
#include "lib/base/bench.h"
#include "lib/loop/http.h"

struct hub {
	struct loop *loop;
	struct store *store;
	struct worker *query;
	struct api *api;
	struct http_server *server;
	struct http_client *client;
	uint64_t n_bytes; /* of the last answer */
};

static inline void start_hub(struct hub *h)
{
	const struct store_config sc = {.kind = "sqlite", .path = (char *)":memory:"};
	struct http_server_config hc = {
		.address = "127.0.0.1", .head = api_http_head, .handler = api_http};
	struct http_client_config cc = {.address = "127.0.0.1"};
	struct api_config ac = {.version = "0",
				.cluster_name = "c1",
				.token_hint = "",
				.store_note = "",
				.ns = "podflame-system",
				.n_query = 1,
				.query_bytes = 1 << 20};
	struct field_error e = {0};

	if (loop_new(&h->loop) || store_open(&sc, &h->store, &e) ||
	    worker_new(h->loop, "query", ac.query_bytes, &h->query))
		bench_die(*e.reason ? e.reason : "start", EINVAL);
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

static inline void stop_hub(struct hub *h)
{
	http_client_free(h->client);
	http_server_free(h->server);
	worker_free(h->query);
	api_free(h->api);
	store_close(h->store);
	loop_free(h->loop);
}

static void count_piece(const void *p, size_t n, void *arg)
{
	(void)p;
	((struct hub *)arg)->n_bytes += n;
}

static void answer_ended(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct hub *h = arg;

	(void)body;
	(void)n;
	if (status != 200)
		bench_die(error ?: "the request is refused", EPROTO);
	loop_stop(h->loop, 0);
}

/* headers: as those of struct http_request. The answer must have the status 200. */
static inline void ask_hub(struct hub *h, const char *path, const char *const *headers,
			   const char *body)
{
	const struct http_request r = {.method = "POST",
				       .path = path,
				       .headers = headers,
				       .body = body,
				       .body_bytes = strlen(body),
				       .takes_packed = true,
				       .timeout_ns = 300 * NSEC_PER_SEC,
				       .on_data = count_piece,
				       .on_done = answer_ended,
				       .arg = h};
	struct http_call *call;

	h->n_bytes = 0;
	if (http_send(h->client, &r, &call) || loop_run(h->loop))
		bench_die("a request", EIO);
}
