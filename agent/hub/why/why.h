/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why: says in words why a selection has no data, and which command comes next. It asks the store
 * (why_of_store, on a query worker), looks up the namespace and the pod that the filter names
 * (why_look_new, on the loop thread), and reads the conditions of the targets (why_of_cluster, a
 * pure function). docs/api.md describes the answer.
 *
 * Each of these makes a list of reasons, a reason as {"reason", "text", "command" (a command line,
 * or null)} and members that say what to choose instead.
 */
#pragma once

#include "hub/query/query.h"
#include "lib/kube/kube.h"

struct why_question {
	struct tracing_request tracing;
	const struct scope *scope; /* what the user may be told of; borrowed */
	json_t *body;		/* the request */
	/* what the filter requires of pod_ns and pod; NULL: it allows several */
	char *ns, *pod;
};
/*
 * Parses the body of POST /v1/profile/why. scope must stay valid until why_question_done, which the
 * caller calls, also on an error.
 */
int why_parse(const char *body, size_t n, const struct scope *scope, struct why_question *ret,
	      struct field_error *reterr);
void why_question_done(struct why_question *q);

/*
 * What the store knows: which condition matches nothing, which other events and times have data,
 * and what was lost. A step that takes too long is left out, and a reason says so. Returns a new
 * reference in *ret.
 */
int why_of_store(struct store *s, const struct why_question *q, int64_t now_s, json_t **ret,
		 struct field_error *reterr);
/* Whether this answer says that the selection has data now; then no other reason is sought. */
bool why_has_data(const json_t *of_store);

/* An object that the API server was asked for. */
struct why_object {
	bool known;	/* it has answered */
	json_t *object; /* its metadata; NULL: there is none */
};
struct why_seen {
	struct why_object ns, pod;
};
struct why_look;
typedef void why_look_fn(const struct why_seen *seen, void *arg);
/*
 * Asks the API server for the metadata of the question's namespace and pod, and calls fn once, not
 * before this function returns. fn may free the look. After 5 s without an answer, they are not
 * known.
 */
struct why_look *why_look_new(struct loop *l, struct kube *k, const struct why_question *q,
			      why_look_fn *fn, void *arg);
struct why_look *why_look_free(struct why_look *l);

struct why_cluster { /* what the hub knows of the cluster; borrowed */
	const json_t *targets; /* a list of the targets, with their status; NULL: not known yet */
	const struct why_seen *seen;
	const char *ns; /* the namespace of podflame */
	/* a ClusterProfilingTarget selects pods of labelled namespaces only */
	bool opt_in_required;
};
/* What the targets say; returns a new reference. */
json_t *why_of_cluster(const struct why_question *q, const struct why_cluster *c);
/* What `podflame local` says instead; returns a new reference. */
json_t *why_of_local(const struct why_question *q);
/*
 * The reasons in the order of likelihood. Takes ownership of both lists. about: the namespace and
 * the pod that were looked up; NULL: none. Returns a new reference.
 */
json_t *why_in_order(json_t *of_cluster, json_t *of_store, const struct why_seen *about);
