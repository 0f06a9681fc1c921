/* SPDX-License-Identifier: Apache-2.0 */
/* Private to api/: a request on its way from the route to its reply. */
#pragma once

#include "hub/api/auth.h"
#include "hub/query/query.h"

struct debug_page {
	char *path;
	json_t *(*fn)(void *arg);
	void *arg;
};
struct api {
	struct api_config config; /* strings copied */
	struct gate *gate;	  /* NULL: open */
	struct debug_page *pages;
	size_t n_pages, cap_pages;
};

/* One request whose caller may have it answered. Owned by the handler, ended by call_reply. */
struct call {
	struct api *api;
	struct http_conn *conn;
	const struct route *route;
	char *path, *body;
	size_t n_body;
};
struct route {
	const char *path, *method;
	bool open; /* no sign-in */
	void (*handle)(struct call *c);
};

void call_free(struct call *c); /* whose caller has left: there is no reply */
void call_reply(struct call *c, int status, const char *content_type, const void *body, size_t n);
/* An envelope of query/ with status, e.g. "RESOURCE_NOT_FOUND". */
void call_error(struct call *c, const char *status, const char *description);
void call_json(struct call *c, int status, json_t *body); /* takes body */

/* profile.c: what reads the store */
void handle_tracing(struct call *c);
void handle_values(struct call *c);
void handle_tags(struct call *c);
/* metrics.c: Prometheus text */
void handle_metrics(struct call *c);
