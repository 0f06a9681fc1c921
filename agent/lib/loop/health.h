/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health: the health of a process, the same for both roles. /metrics: Prometheus text. /healthz:
 * whether the process works, or a restart would help. /readyz: whether the process is ready to do
 * its work.
 */
#pragma once

#include "lib/loop/loop.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Updates the counters of the loop, its workers and the process, then prints all counters. */
void health_metrics(struct loop *l, struct buf *out);
/*
 * Returns false if a worker has missed the deadline of its job, and names the worker in why. A
 * worker with worker_on_stuck does not count, because its owner handles it. Otherwise a pod could
 * make the kubelet restart the agent.
 */
bool health_alive(struct loop *l, struct buf *why);

/*
 * Serves the three paths, GET only, without sign-in. The answers are numbers and constant texts,
 * never a name or a text that came from a pod. Connections of users cannot fill this port.
 */
struct health_server;
struct health_config {
	const char *address;
	uint16_t port; /* 0: the kernel chooses one; health_port returns it */
	bool (*ready)(struct buf *why, void *arg);
	void *arg;
	bool probes_only; /* without /metrics */
};
int health_new(struct loop *l, const struct health_config *c, struct health_server **ret,
	       struct field_error *reterr);
struct health_server *health_free(struct health_server *h);
uint16_t health_port(const struct health_server *h);
