/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub FILE: the hub's listener for profiles and its API, both on loopback and without TLS, over a
 * store in memory. It stands for the API server: the token that FILE has at the time is that of pod
 * app/web-1 on node n1, and no other is accepted. Prints the two ports.
 */
#include "hub/api/api.h"
#include "hub/ingest/ingest.h"

#include <fcntl.h>
#include <unistd.h>

#define TOKEN_BYTES 1000

static const char *file;

static void must(int r, const char *what, const struct field_error *e)
{
	if (!r)
		return;
	fprintf(stderr, "%s: %s %s\n", what, strerror(-r), e ? e->reason : "");
	_exit(1);
}

static void auth(const char *authorization, const char *peer,
		 void (*done)(const struct ingest_sender *s, void *arg), void *done_arg, void *arg)
{
	_cleanup_free_ char *token = NULL, *want = NULL;

	must(file_read(AT_FDCWD, file, TOKEN_BYTES, &token, NULL), file, NULL);
	want = xasprintf("Bearer %s", token);
	(void)peer, (void)arg;
	done(&(struct ingest_sender){.status = streq(authorization, want) ? 200 : 401,
				     .error = "the token is not valid",
				     .node = "n1",
				     .ns = "app",
				     .pod = "web-1",
				     .pod_uid = "uid-1"},
	     done_arg);
}

static void rights(const json_t *user, const char *const *namespaces, size_t n,
		   void (*done)(int status, const char *error, void *arg), void *done_arg,
		   void *arg)
{
	(void)user, (void)namespaces, (void)n, (void)arg;
	done(403, "no right", done_arg);
}

static uint16_t serve(struct loop *l, struct http_server_config c)
{
	struct http_server *s;
	struct field_error e = {0};

	c.address = "127.0.0.1";
	must(http_server_new(l, &c, &s, &e), "server", &e);
	return http_server_port(s);
}

static struct worker *worker(struct loop *l, const char *name)
{
	struct worker *w;

	must(worker_new(l, name, 64 << 20, &w), name, NULL);
	return w;
}

static struct ingest *open_ingest(struct loop *l, struct store *store)
{
	const struct ingest_config c = {.store = store,
					.writer = worker(l, "writer"),
					.auth = auth,
					.push_auth = auth,
					.push_rights = rights,
					.cluster_name = "c1"};
	struct ingest *i;

	must(ingest_new(l, &c, &i), "ingest", NULL);
	return i;
}

static struct api *open_api(struct loop *l, struct store *store)
{
	static struct worker *query;
	struct api_config c = {.store = store,
			       .query = &query,
			       .n_query = 1,
			       .query_bytes = 16 << 20,
			       .version = "test",
			       .cluster_name = "c1",
			       .token_hint = "",
			       .store_note = "",
			       .link_trace = "",
			       .link_logs = ""};
	struct api *a;

	query = worker(l, "query");
	must(api_new(l, &c, &a), "api", NULL);
	return a;
}

int main(int argc, char **argv)
{
	const struct store_config sc = {.kind = "sqlite", .path = ":memory:"};
	struct field_error e = {0};
	struct store *store;
	struct loop *l;
	uint16_t ingest_port, api_port;

	if (argc != 2) {
		fprintf(stderr, "usage: hub FILE\n");
		return 2;
	}
	file = argv[1];
	must(loop_new(&l), "loop", NULL);
	must(store_open(&sc, &store, &e), "store", &e);
	ingest_port = serve(l, (struct http_server_config){.section = "ingest",
							   .max_body_bytes = 32 << 20,
							   .head = ingest_http_head,
							   .handler = ingest_http,
							   .arg = open_ingest(l, store)});
	api_port = serve(l, (struct http_server_config){.section = "api",
							.head = api_http_head,
							.handler = api_http,
							.arg = open_api(l, store)});
	printf("{\"ingest\":%u,\"api\":%u}\n", ingest_port, api_port);
	fflush(stdout);
	return loop_run(l);
}
