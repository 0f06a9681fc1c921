/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that node.c and watches.c share: the parts of a node. The loop thread owns struct
 * node. The header of each part says which of its functions run on which worker (work.h names the
 * workers).
 */
#pragma once

#include "node/node.h"

#include "node/pipeline/pipeline.h"

/* ---- watches.c: objects of the API server, as input of the plan ---- */
struct watches;
int node_watches_new(struct node *n, struct watches **ret);
struct watches *node_watches_free(struct watches *w);

struct node {
	const struct config *conf;
	struct node_config config;
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: there is no API server */
	struct files *files;   /* what is known of the files of processes; any thread */
	struct sender *sender;
	struct cgroup_hierarchy hierarchy; /* mount "": none */
	struct limit *limit;
	struct kernel *kernel;
	struct processes *processes;
	struct follow *follow;
	struct pipeline *pipeline;
	struct watches *watches; /* NULL: there is no API server */
	struct timer tick;
	bool started;	/* the node's UID is known, so profiles can be named */
	bool was_ready; /* node_ready() has returned true before */
	char boot_id[64];
};
/*
 * The node's UID is known: samples can be taken and named. Does nothing on later calls. Returns 0
 * or a negative errno.
 */
int node_start(struct node *n, const char *node_uid);
