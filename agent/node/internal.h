/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that node.c and watches.c share: the parts of a node. The loop thread owns struct
 * node. The header of each part names the functions that run on a worker (work.h lists the
 * workers).
 */
#pragma once

#include "node/node.h"

#include "node/pipeline/pipeline.h"
#include "node/scrape/scrape.h"

/* ---- watches.c: objects from the API server, the input of the plan ---- */
struct watches;
int node_watches_new(struct node *n, struct watches **ret);
struct watches *node_watches_free(struct watches *w);

struct node {
	const struct config *conf;
	struct node_config config;
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: there is no API server */
	struct files *files;   /* the indexes of the files of processes; any thread may use it */
	struct sender *sender;
	/* the cgroup hierarchy; its mount is "" if the machine has none */
	struct cgroup_hierarchy hierarchy;
	struct limit *limit;
	struct kernel *kernel;
	struct processes *processes;
	struct follow *follow;
	struct pipeline *pipeline;
	struct scrape *scrape;	 /* NULL: there is no API server, or no hub */
	struct watches *watches; /* NULL: there is no API server */
	struct timer tick;
	bool started;	/* true when the node's UID is known, because profiles contain it */
	bool was_ready; /* whether node_ready() has returned true before */
	bool told_clock; /* the targets are told that the node's clock is ahead of the hub's */
	char boot_id[64];
};
/*
 * To be called when the node's UID is known. From then on samples are taken. Later calls do
 * nothing. Returns 0 or a negative errno.
 */
int node_start(struct node *n, const char *node_uid);
