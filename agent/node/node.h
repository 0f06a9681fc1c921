/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node: the agent: watches -> plan -> proc -> probe -> drain -> stack -> fold -> send, and the
 * node's report. It puts the modules of agent/node/ together. Loop thread.
 */
#pragma once

#include "lib/conf/conf.h"
#include "lib/kube/kube.h"

struct node;
struct node_config {
	const struct config *conf;	/* borrowed */
	struct kube *kube;		/* NULL: host processes by conf->on_cpu_regex only */
	bool local; /* `podflame local`: Total is on, and DeepFlow's on-cpu-profile keys count */
	/*
	 * Called in place of HTTP, for a hub in the same process. Returns 0 when the hub has stored
	 * it. Any thread. NULL: sends to conf->hub_url.
	 */
	int (*direct)(const void *body, size_t n, void *arg);
	void *direct_arg;
};
int node_new(struct loop *l, const struct node_config *c, struct node **ret,
	     struct field_error *reterr);
/*
 * Closes the open window, passes it to the sender and detaches everything. The caller calls this
 * after loop_run().
 */
struct node *node_free(struct node *n);
/* The first plan is in force, or has been once. false: *why says why not yet. */
bool node_ready(struct buf *why, void *node);
json_t *node_debug_plan(void *node);	/* GET /debug/plan; a new reference */
json_t *node_debug_report(void *node);
