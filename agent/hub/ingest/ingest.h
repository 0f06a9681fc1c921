/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ingest: receives OTLP requests and stores their profiles. It checks the sender and then reads the
 * body. The writer's worker decodes the body and writes the profiles. The hub answers when they are
 * stored.
 */
#pragma once

#include "hub/store/store.h"
#include "lib/loop/http.h"
#include "lib/otlp/otlp.h"

struct ingest;
/*
 * Decides on the loop thread whether the sender with this token may send profiles. Calls done once,
 * now or later. status is 200, 401, 403 or 503. For 200, node is the node to which the token is
 * bound ("": none). Else error is a text for people.
 */
typedef void ingest_auth_fn(const char *authorization,
			    void (*done)(int status, const char *node, const char *error,
					 void *arg),
			    void *done_arg, void *arg);
struct ingest_config {
	struct store *store;
	struct worker *writer;
	ingest_auth_fn *auth;		/* NULL: all senders may send (`podflame local`) */
	void *auth_arg;
};
int ingest_new(struct loop *l, const struct ingest_config *c, struct ingest **ret);
struct ingest *ingest_free(struct ingest *i);
/*
 * Handlers for POST OTLP_PATH; arg is a struct ingest *. The head handler asks about the sender
 * before the hub reads the body.
 */
http_handler_fn ingest_http_head, ingest_http;
/*
 * For `podflame local`: stores the same bytes without HTTP and without compression. Any thread may
 * call it, except the loop and the writer. Returns when the profiles are stored. -EBADMSG and
 * -E2BIG: these bytes can never be stored. -EAGAIN: the writer's queue is full. Else it returns the
 * error of the store.
 */
int ingest_bytes(struct ingest *i, const void *body, size_t n);
