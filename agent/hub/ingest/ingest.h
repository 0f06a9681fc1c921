/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ingest: OTLP requests -> store. Checks the sender, decodes, writes on the
 * writer's worker, answers when stored.
 */
#pragma once

#include "hub/store/store.h"
#include "lib/loop/http.h"
#include "lib/otlp/otlp.h"

struct ingest;
/*
 * Decides about a token on the loop; calls done once, now or later: 200 with the node that the
 * token is bound to ("": none), else 401, 403 or 503 with a text for people.
 */
typedef void ingest_auth_fn(const char *authorization,
			    void (*done)(int status, const char *node, const char *error,
					 void *arg),
			    void *done_arg, void *arg);
struct ingest_config {
	struct store *store;
	struct worker *writer;
	ingest_auth_fn *auth;		/* NULL: everyone (local) */
	void *auth_arg;
};
int ingest_new(struct loop *l, const struct ingest_config *c, struct ingest **ret);
struct ingest *ingest_free(struct ingest *i);
/* arg: struct ingest *; POST OTLP_PATH. The head's sender is asked for before its body may come. */
http_handler_fn ingest_http_head, ingest_http;
/*
 * local: same bytes without HTTP or compression; any thread but the loop and the writer. Returns
 * when stored; -EBADMSG, -E2BIG: never will be; -EAGAIN: the writer is behind; else the store's
 * error.
 */
int ingest_bytes(struct ingest *i, const void *body, size_t n);
