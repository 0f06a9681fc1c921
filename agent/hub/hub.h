/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub: the centre put together: ingest, store, query, API and page, status
 * controller, certificate. In a cluster everything is TLS and asks who you are;
 * without Kubernetes only loopback is served, openly.
 */
#pragma once

#include "lib/conf/conf.h"
#include "lib/kube/kube.h"

struct hub;
/* kube NULL: no Kubernetes, no ingest port: profiles come through hub_ingest. conf is borrowed. */
int hub_new(struct loop *l, const struct config *conf, struct kube *k, struct hub **ret, struct field_error *reterr);
struct hub *hub_free(struct hub *h);
/* An OTLP request from the same process; any thread; 0 when stored. arg: struct hub *. */
int hub_ingest(const void *body, size_t n, void *arg);
/* GET path answers fn(arg) as JSON: the node's own pages when both share a process. */
void hub_debug(struct hub *h, const char *path, json_t *(*fn)(void *arg), void *arg);
uint16_t hub_api_port(const struct hub *h); /* 0: not open yet (waiting for the certificate) */
