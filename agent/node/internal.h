/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What node.c and watches.c share: the parts of a node. The loop thread owns struct node. Each part's header says which
 * of its functions run on which worker (work.h names the workers).
 */
#pragma once

#include "node/node.h"

#include "node/pipeline/pipeline.h"

/* ---- watches.c: what the API server says, as input of the plan ---- */
struct watches;
int node_watches_new(struct node *n, struct watches **ret);
struct watches *node_watches_free(struct watches *w);

struct node {
	const struct config *conf;
	struct node_config config;
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: there is no API server */
	struct files *files;   /* of processes: what is known of them. Any thread */
	struct sender *sender;
	struct cgroup_hierarchy hierarchy; /* mount "": none */
	struct limit *limit;
	struct kernel *kernel;
	struct follow *follow;
	struct pipeline *pipeline;
	struct watches *watches; /* NULL: there is no API server */
	struct timer tick;
	bool started;	/* the node's UID is known: profiles can be named */
	bool was_ready; /* node_ready has said so */
	char boot_id[64];
};
/* The node's UID is known: samples can be taken and named. Does nothing the second time. */
int node_start(struct node *n, const char *node_uid);
