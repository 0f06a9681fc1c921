/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub: puts the hub together: ingest, store, query, API and page, status controller, certificate.
 * In a cluster everything is TLS and needs sign-in; `podflame local` serves loopback only, without
 * either.
 */
#pragma once

#include "lib/conf/conf.h"
#include "lib/kube/kube.h"

struct hub;
struct hub_config {
	const struct config *conf; /* borrowed */
	struct kube *kube;	   /* for sign-in and status; NULL: no Kubernetes */
	bool local; /* loopback only and without sign-in; profiles come through hub_ingest */
};
int hub_new(struct loop *l, const struct hub_config *c, struct hub **ret,
	    struct field_error *reterr);
struct hub *hub_free(struct hub *h);
/*
 * An OTLP request from the same process; any thread but the loop's and the writer's; 0 when stored.
 * arg: struct hub *.
 */
int hub_ingest(const void *body, size_t n, void *arg);
/* GET path answers fn(arg) as JSON: the node's own pages when both share a process. */
void hub_debug(struct hub *h, const char *path, json_t *(*fn)(void *arg), void *arg);
uint16_t hub_api_port(const struct hub *h); /* 0: not open yet (waiting for the certificate) */
