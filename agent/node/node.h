/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node: the agent. Watches -> plan -> proc -> probe -> drain -> stack -> fold -> send, and the
 * node's report. It puts the modules of agent/node/ together. Loop thread.
 */
#pragma once

#include "lib/conf/conf.h"
#include "lib/kube/kube.h"

struct node;
struct node_config {
	const struct config *conf;	/* borrowed */
	/* NULL: only host processes, selected by conf->on_cpu_regex */
	struct kube *kube;
	bool local; /* `podflame local`: counts Total, and uses DeepFlow's on-cpu-profile keys */
	/*
	 * For a hub in the same process: called with each batch instead of an HTTP request. Returns
	 * 0 if the hub has stored the batch. It may be called on any thread. NULL: batches are sent
	 * to conf->hub_url.
	 */
	int (*direct)(const void *body, size_t n, void *arg);
	void *direct_arg;
};
int node_new(struct loop *l, const struct node_config *c, struct node **ret,
	     struct field_error *reterr);
/*
 * To be called after loop_run(). Closes the open window, passes it to the sender and detaches all
 * probes.
 */
struct node *node_free(struct node *n);
/* Whether a first plan is or was in force. If false, *why gets the reason. */
bool node_ready(struct buf *why, void *node);
json_t *node_debug_plan(void *node);	/* for GET /debug/plan; returns a new reference */
json_t *node_debug_report(void *node);
