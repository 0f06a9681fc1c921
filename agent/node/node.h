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
	/*
	 * `podflame local`: counts the CPU time of the whole node, and uses DeepFlow's
	 * on-cpu-profile keys
	 */
	bool local;
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
/*
 * Returns whether the agent has a plan, or has had one, with its programs and filter in the kernel.
 * If false, *why gets the reason.
 */
bool node_ready(struct buf *why, void *node);
json_t *node_debug_plan(void *node);	/* for GET /debug/plan; returns a new reference */
json_t *node_debug_report(void *node);
