/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node: the agent's side put together: watches -> plan -> procs -> probes ->
 * drain -> stacks -> fold -> send, and the node's report.
 */
#pragma once

#include "lib/conf/conf.h"
#include "lib/kube/kube.h"

struct node;
struct node_config {
	const struct config *conf;	/* borrowed */
	struct kube *kube;		/* NULL: host processes by conf->on_cpu_regex only */
	bool local;			/* `podflame local`: Total is on, DeepFlow's on-cpu-profile keys count */
	/* In-process hub instead of HTTP; returns 0 when stored; any thread. NULL: conf->hub_url. */
	int (*direct)(const void *body, size_t n, void *arg);
	void *direct_arg;
};
int node_new(struct loop *l, const struct node_config *c, struct node **ret, struct field_error *reterr);
/* Closes the open window, hands it to the sender, detaches everything. After loop_run. */
struct node *node_free(struct node *n);
/* The first plan is in force (or was, once); false: why not yet. */
bool node_ready(struct buf *why, void *node);
json_t *node_debug_plan(void *node);	/* GET /debug/plan; new reference */
json_t *node_debug_report(void *node);
