/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health: the health of a process, the same for both roles. /metrics: Prometheus text; /healthz:
 * whether a restart would help; /readyz: whether the process does its work yet.
 */
#pragma once

#include "lib/loop/loop.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* All counters, after those of the loop, its workers and the process were brought up to date. */
void health_metrics(struct loop *l, struct buf *out);
/*
 * false: a worker has missed the deadline of its job, and why names it. A worker with
 * worker_on_stuck does not count, because its owner handles it: a pod must not be able to have the
 * agent restarted.
 */
bool health_alive(struct loop *l, struct buf *why);

/*
 * The three paths, GET only, without sign-in. The answers are numbers and fixed words, never a name
 * or a text that came from a pod.
 */
struct health_server;
struct health_config {
	const char *address;
	uint16_t port; /* 0: any; see health_port */
	bool (*ready)(struct buf *why, void *arg);
	void *arg;
};
int health_new(struct loop *l, const struct health_config *c, struct health_server **ret,
	       struct field_error *reterr);
struct health_server *health_free(struct health_server *h);
uint16_t health_port(const struct health_server *h);
