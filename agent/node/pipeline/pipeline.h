/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline: samples on their way to the sender. A drain waits until the mappings and files that its names need are read,
 * its samples get frames and go into windows of their container, and a window that ends goes to the sender. Loop
 * thread; the pipeline worker names and folds.
 */
#pragma once

#include "node/follow/follow.h"
#include "node/send/send.h"

struct pipeline_config { /* borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: nobody is told */
	struct limit *limit;
	struct kernel *kernel;
	struct follow *follow;
	struct files *files;
	struct sender *sender;
	const struct cgroup_hierarchy *hierarchy;
	const struct config *conf;
	bool has_pods; /* pods are profiled, by their cgroups */
	bool local;    /* state is kept in conf's data_dir, else in its spool_dir */
	const char *boot_id;
};
struct pipeline;
/* Reads what the agent before has left: how long nobody was profiled. */
struct pipeline *pipeline_new(const struct pipeline_config *c);
/* The node's UID is known: profiles can be named. Until then no drain may come. Does nothing the second time. */
int pipeline_start(struct pipeline *p, const char *node_uid);
/* After pipeline_start: why kernel functions have no names; "": they have. */
const char *pipeline_kernel_problem(const struct pipeline *p);
/* Workers have ended: folds what waits, sends the open window, and notes the time. */
void pipeline_close(struct pipeline *p);
struct pipeline *pipeline_free(struct pipeline *p);

/* What the kernel counted; takes drain, which may be NULL where nothing is loaded. full: the one of each second. */
void pipeline_drain(struct pipeline *p, struct drain *drain, bool full);
/* The same of samples that come of no probe: nothing of them stands for more. */
void pipeline_drain_whole(struct pipeline *p, struct drain *drain);
/* Every second, before that second's drain: whether somebody is profiled, which the next agent asks for. */
void pipeline_note_profiled(struct pipeline *p);
/* Every second, after it. */
void pipeline_tick(struct pipeline *p);
/* What a drain waits for may be there. */
void pipeline_advance(struct pipeline *p);
/* follow_ops.runtimes, .read_mappings */
void pipeline_runtimes(struct pipeline *p, struct process_id id,
		       uint32_t exec_id, struct runtime_process *found);
void pipeline_read_mappings(struct pipeline *p, struct process_id id,
			    uint32_t exec_id, uint64_t cgroup_id);
