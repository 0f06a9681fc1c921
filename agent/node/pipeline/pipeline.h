/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline: takes samples from the kernel to the sender. A drain waits until the mappings and files
 * that its names need are read. Then its samples get frames and go into windows of their container.
 * A window that has ended goes to the sender. Loop thread; the pipeline worker finds names and
 * folds.
 */
#pragma once

#include "node/follow/follow.h"
#include "node/processes/processes.h"
#include "node/send/send.h"

struct pipeline_config { /* all pointers are borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: nothing is reported */
	struct limit *limit;
	struct kernel *kernel;
	struct processes *processes;
	struct follow *follow;
	struct files *files;
	struct sender *sender;
	const struct cgroup_hierarchy *hierarchy;
	const struct config *conf;
	bool has_pods; /* profiles pods, by their cgroups */
	bool local;    /* keeps state in conf's data_dir, otherwise in its spool_dir */
	const char *boot_id;
};
struct pipeline;
/* Also reads from the previous agent's file how long the node was not profiled. */
struct pipeline *pipeline_new(const struct pipeline_config *c);
/*
 * The node's UID is known, so profiles can be named. No drain may come before. Does nothing on
 * later calls. Returns 0 or a negative errno.
 */
int pipeline_start(struct pipeline *p, const char *node_uid);
/* After pipeline_start(): why kernel functions have no names; "": they have. */
const char *pipeline_kernel_problem(const struct pipeline *p);
/*
 * After the workers have ended: folds the waiting drains, sends the open window, and writes the
 * time to the file.
 */
void pipeline_close(struct pipeline *p);
struct pipeline *pipeline_free(struct pipeline *p);

/*
 * Takes a drain over; NULL if nothing is loaded. full: the drain of each second, not a quick one.
 */
void pipeline_drain(struct pipeline *p, struct drain *drain, bool full);
/* The same for samples that come from no probe: their values are exact and stand for no more. */
void pipeline_drain_whole(struct pipeline *p, struct drain *drain);
/*
 * The caller calls this every second, before that second's drain. It notes for the next agent
 * whether a process is profiled.
 */
void pipeline_note_profiled(struct pipeline *p);
/* The caller calls this every second, after the drain. */
void pipeline_tick(struct pipeline *p);
/* These processes have ended. What is known of them stays for a while, for late samples. */
void pipeline_exited(struct pipeline *p, const struct process_exit *exits, size_t n);
/* Samples that drains have lost since the start, and those of drains that were refused. */
uint64_t pipeline_n_lost(const struct pipeline *p);
/* What a drain waits for may be there now. */
void pipeline_advance(struct pipeline *p);
/* For follow_ops.runtimes and follow_ops.read_mappings. */
void pipeline_runtimes(struct pipeline *p, struct process_id id,
		       uint32_t exec_id, struct runtime_process *found);
void pipeline_read_mappings(struct pipeline *p, struct process_id id,
			    uint32_t exec_id, uint64_t cgroup_id);
