/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ingest: receives profiles, by OTLP or as Pyroscope's SDKs push them, and stores them. It checks
 * the sender and then reads the body. The writer's worker decodes the body, checks of what the
 * sender may speak, and writes the profiles. The hub answers when they are stored, here or by the
 * central hub.
 */
#pragma once

#include "hub/forward/forward.h"
#include "hub/pods/pods.h"
#include "hub/store/store.h"
#include "lib/loop/http.h"
#include "lib/otlp/otlp.h"

struct ingest;
struct ingest_sender {	   /* the strings are valid only while done runs */
	int status;	   /* 200, 401, 403, 429 or 503 */
	const char *error; /* if the status is not 200: a text for people */
	const char *node;  /* the node for which the token was made; "": it names none */
	bool hosts;	   /* may send profiles that belong to no namespace */
	/* It is one of podflame's agents: its profiles may be such as podflame has sampled. */
	bool agent;
	const char *account; /* the user's name, if the API server has said it; else NULL */
	/*
	 * The sender is the hub of this other cluster, which has checked of what its agents speak.
	 * NULL: it belongs to the hub's own cluster.
	 */
	const char *cluster;
	/*
	 * Of a sender that pushes: the pod for which the token was made, and its namespace. pod ""
	 * or NULL: the token is of no pod, and ns is that of the service account.
	 */
	const char *ns, *pod, *pod_uid;
	bool everywhere;    /* it may send profiles of all namespaces, as agents may */
	const json_t *user; /* as in struct gate_answer */
};
/*
 * Decides on the loop thread whether the sender with this token may send profiles. Calls done once,
 * now or later. peer: as in struct http_in.
 */
typedef void ingest_auth_fn(const char *authorization, const char *peer,
			    void (*done)(const struct ingest_sender *s, void *arg), void *done_arg,
			    void *arg);
/* Asks whether a sender may push profiles of each of these namespaces, as api_gate_check_in(). */
typedef void ingest_rights_fn(const json_t *user, const char *const *namespaces, size_t n,
			      void (*done)(int status, const char *error, void *arg),
			      void *done_arg, void *arg);
struct ingest_config {
	struct store *store;
	/* if it is set: profiles go there, and not into the store. It outlives the writer's jobs */
	struct forward *forward;
	struct worker *writer;
	/* NULL: all senders may send, and the hub believes them (`podflame local`) */
	ingest_auth_fn *auth;
	/* if auth is set: the same for senders that push, and their rights in further namespaces */
	ingest_auth_fn *push_auth;
	ingest_rights_fn *push_rights;
	void *auth_arg;
	struct pods *pods;	  /* if auth is set: where pods are */
	const char *cluster_name; /* if auth is set: the cluster of the senders; "": none */
	/*
	 * Senders whose token names no node may send, too. The hub then believes them that a pod
	 * is on the node that they name.
	 */
	bool any_node;
};
int ingest_new(struct loop *l, const struct ingest_config *c, struct ingest **ret);
struct ingest *ingest_free(struct ingest *i);
/*
 * Handlers for POST OTLP_PATH, /ingest and push.v1; arg is a struct ingest *. The head handler asks
 * about the sender before the hub reads the body.
 */
http_handler_fn ingest_http_head, ingest_http;
/* What the HTTP server itself refuses has the form of its request, too. */
http_refuse_fn ingest_http_refuse;
/*
 * For `podflame local`: stores the same bytes without HTTP and without compression. Any thread may
 * call it, except the loop and the writer. Returns when the profiles are stored. -EBADMSG and
 * -E2BIG: these bytes can never be stored. -EAGAIN: the writer's queue is full. Else it returns the
 * error of the store.
 */
int ingest_bytes(struct ingest *i, const void *body, size_t n);
