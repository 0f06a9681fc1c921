/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health: what a process says of itself, the same in both roles. /metrics: Prometheus text;
 * /healthz: whether a restart would help; /readyz: whether it does its work yet.
 */
#pragma once

#include "lib/loop/loop.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* All counters, after those of the loop, its workers and the process were brought up to date. */
void health_metrics(struct loop *l, struct buf *out);
/*
 * false: a worker is past its job's deadline, and why names it. Who has worker_on_stuck is looked
 * after by its owner and does not count: a pod must not be able to have the agent restarted.
 */
bool health_alive(struct loop *l, struct buf *why);

/*
 * The three paths, GET only, without sign-in: what they say is numbers and words of our own, never
 * a name or a text that came from a pod.
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
