/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api: the HTTP side of the hub: routes, sign-in, page, metrics. Each route is a row of one table.
 */
#pragma once

#include "hub/query/query.h"
#include "lib/kube/kube.h"

struct api;
struct api_config {
	struct store *store;
	/* the workers that run queries, and one that runs only queries for choices: queue.h */
	struct worker *const *query;
	size_t n_query;
	struct worker *choices;		/* NULL: none */
	size_t query_bytes;		/* limit for the bytes of the queries that wait */
	size_t reply_bytes; /* limit for the answers in memory, of all users; 0: 768 MiB */
	struct symbols *symbols;	/* uploaded symbol files; NULL: uploads are refused */
	struct worker *uploads;		/* the worker that checks and writes uploads */
	/* limit for the bytes of uploads under way, of all users; the worker has room for them */
	size_t upload_bytes;
	/*
	 * for TokenReview and SubjectAccessReview; NULL: no sign-in (`podflame local`, loopback
	 * only)
	 */
	struct kube *kube;
	/* of users' tokens, and a file with a token of the hub; as in struct gate_config */
	const char *const *audiences, *own_token_file;
	const char *version;
	const char *cluster_name;	/* "" in `podflame local` */
	const char *token_hint;		/* the `kubectl create token` line the page shows */
	/*
	 * a note on the store, shown on the page, such as "kept in memory of the pod"; "": no note
	 */
	const char *store_note;
	/*
	 * the central hub to which this hub forwards all profiles: a query is answered with an
	 * error that names it. NULL: the store has them. It must stay valid until api_free
	 */
	const char *forwards_to;
	const char *link_trace, *link_logs;	/* templates of links on the page; "": no link */
	/*
	 * Returns the details that /healthz shows. They name no path, because anybody may ask for
	 * them. NULL: /healthz shows no details.
	 */
	json_t *(*health)(void *arg);
	void *health_arg;
	/*
	 * Returns a list of the targets, as status_targets() does, for the question why a selection
	 * has no data. Not called without kube.
	 */
	json_t *(*targets)(void *arg);
	void *targets_arg;
	const char *ns;			/* the namespace of podflame */
	bool opt_in_required;		/* as in struct status_config */
	bool audit;			/* a line on standard output for each query */
};
int api_new(struct loop *l, const struct api_config *c, struct api **ret);
struct api *api_free(struct api *a);
/* Handlers for struct http_server_config; arg is a struct api *. */
http_handler_fn api_http, api_http_head;
/* Adds a debug page of the agent when agent and hub share a process. */
void api_debug(struct api *a, const char *path, json_t *(*fn)(void *arg), void *arg);

/*
 * A gate checks a request in two steps. First sign-in: to whom the token belongs (TokenReview; the
 * token must be made for one of the audiences). Then the right: whether the user may use verb on a
 * resource of podflame.io in all namespaces (SubjectAccessReview). Answers are cached: "yes" for 60
 * s, "no" for 10 s, a failed request not at all. fn is called once, maybe before api_gate_check
 * returns. Its status is 200, 401, 403, 429 or 503. node is the node in the token, "" if the token
 * names none. Of the request, the header Authorization alone says who the user is.
 *
 * The API server is not asked about a token that cannot be right by what it says of itself, and
 * only so often about tokens of a peer that it refuses. A token that it has accepted before is not
 * concerned.
 */
struct gate;
struct gate_config {
	struct kube *kube;
	/*
	 * At least one; NULL at the end. They must stay valid until api_gate_free. The API server's
	 * own audience admits the tokens of authenticators that know no other: OIDC users.
	 */
	const char *const *audiences;
	/*
	 * A file with a token of the hub's own cluster, which tells the issuer of that cluster.
	 * NULL, or no such token: the audiences that tokens say of themselves are not looked at.
	 */
	const char *own_token_file;
};
struct gate_right {			/* static, because the gate uses it until fn is called */
	/* for example "get", "profiles"; a subresource as in a Role: "profiles/host" */
	const char *verb, *resource;
};
struct gate *api_gate_new(const struct gate_config *c);
/* Frees the gate. Requests that still wait get 503 if answer is true, else no answer. */
struct gate *api_gate_free(struct gate *g, bool answer);
struct gate_answer {			/* the strings are valid only while fn runs */
	int status;			/* 200, 401, 403, 429 or 503 */
	const char *user;		/* the user's name; "": not known */
	/* TokenReview: status.user, if the status is 200 or 403; else NULL */
	const json_t *user_info;
	const char *node;		/* the node in the token; "": the token names none */
	const char *error;		/* NULL if the status is 200 */
};
typedef void gate_fn(const struct gate_answer *a, void *arg);
/*
 * Returns the token in the header Authorization (borrowed). If the header has no usable token,
 * returns NULL and sets *ret_error.
 */
const char *api_gate_bearer(const char *authorization, const char **ret_error);
/* peer: as in struct http_in */
void api_gate_check(struct gate *g, const char *authorization, const char *peer,
		const struct gate_right *right, gate_fn *fn, void *arg);
/*
 * The same of a program that pushes. Most of them have no right in all namespaces: so a "no" is
 * kept for 60 s, longer than the time between two pushes, and these answers drive out no others.
 */
void api_gate_check_pusher(struct gate *g, const char *authorization, const char *peer,
			   const struct gate_right *right, gate_fn *fn, void *arg);
/*
 * Whether a user, as in user_info, has a right in each of these namespaces. status: 200; 403, and
 * error names the first one without it; 503. fn is called once, maybe before this function returns.
 */
typedef void gate_in_fn(int status, const char *error, void *arg);
void api_gate_check_in(struct gate *g, const json_t *user, const struct gate_right *right,
		       const char *const *namespaces, size_t n, gate_in_fn *fn, void *arg);
