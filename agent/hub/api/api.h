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
	struct kube *kube;		/* TokenReview, SubjectAccessReview; NULL: open (local on loopback) */
	const char *version;
	const char *cluster_name;	/* "" in local */
	const char *token_hint;		/* the `kubectl create token` line the page shows */
	const char *store_note;		/* said on the page: "kept in memory of the pod", ... ; "" none */
	json_t *(*health)(void *arg);	/* /healthz detail, may be NULL */
	void *health_arg;
};
int api_new(struct loop *l, const struct api_config *c, struct api **ret);
struct api *api_free(struct api *a);
http_handler_fn api_http;		/* arg: struct api * */
/* Node's own debug pages when both roles share a process. */
void api_debug(struct api *a, const char *path, json_t *(*fn)(void *arg), void *arg);

/*
 * TokenReview (audience NULL: API server's own) with a cache: yes 60 s, no 10 s;
 * node from the token's node claim ("" if it has none). fn may be called at once.
 */
struct authn;
int authn_new(struct kube *k, const char *audience, struct authn **ret);
struct authn *authn_free(struct authn *a);	/* checks in flight are not answered */
typedef void authn_fn(int status, const char *user, const char *node, const char *error, void *arg);	/* 200, 401, 503 */
void authn_check(struct authn *a, const char *authorization, authn_fn *fn, void *arg);
