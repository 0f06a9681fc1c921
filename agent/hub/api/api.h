/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api: the HTTP side of the hub: routes, sign-in, page, metrics. One table row a route.
 */
#pragma once

#include "hub/query/query.h"
#include "lib/kube/kube.h"

struct api;
struct api_config {
	struct store *store;
	struct worker *query;		/* reads run there */
	struct symbols *symbols;	/* uploaded files; NULL: they are refused */
	struct worker *uploads;		/* they are checked and written there */
	struct kube *kube; /* TokenReview, SubjectAccessReview; NULL: open (local on loopback) */
	const char *version;
	const char *cluster_name;	/* "" in local */
	const char *token_hint;		/* the `kubectl create token` line the page shows */
	const char *store_note; /* said on the page: "kept in memory of the pod", ... ; "" none */
	const char *link_trace, *link_logs;	/* templates for the page; "" none */
	json_t *(*health)(void *arg);	/* detail of /healthz, for anybody: no paths; may be NULL */
	void *health_arg;
};
int api_new(struct loop *l, const struct api_config *c, struct api **ret);
struct api *api_free(struct api *a);
/* For struct http_server_config; arg: struct api *. */
http_handler_fn api_http, api_http_head;
/* Node's own debug pages when both roles share a process. */
void api_debug(struct api *a, const char *path, json_t *(*fn)(void *arg), void *arg);

/*
 * A door: sign-in (TokenReview; audience NULL: the API server's own), then the right
 * to do something with a resource of podflame.io in all namespaces (SubjectAccessReview).
 * Answers are kept: yes 60 s, no 10 s, "could not ask" not at all. fn is called once, maybe
 * at once: status 200, 401, 403, 503; node from the token's node claim, "" if it has none.
 */
struct gate;
struct gate_config {
	struct kube *kube;
	const char *audience;		/* borrowed until api_gate_free */
};
struct gate_right {			/* static: borrowed until fn is called */
	const char *verb, *resource;	/* "get", "profiles" */
};
struct gate *api_gate_new(const struct gate_config *c);
/* answer: requests that still wait get 503; else they get no answer */
struct gate *api_gate_free(struct gate *g, bool answer);
typedef void gate_fn(int status, const char *node, const char *error, void *arg);
void api_gate_check(struct gate *g, const char *authorization, const struct gate_right *right,
		gate_fn *fn,
		void *arg);
