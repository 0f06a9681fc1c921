/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline: the way of samples from the kernel to the sender. A drain (node/sample) has all that
 * left the kernel since the drain before. It waits until the mappings and files that its names need
 * are read. Then its samples get frames and go into the windows of their containers. When a window
 * ends, it goes to the sender. The functions run on the loop thread. Names and windows are made on
 * the pipeline worker.
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
	bool has_pods; /* whether the node profiles pods, by their cgroups */
	/*
	 * `podflame local`: the file for the next agent is in conf->data_dir, not in
	 * conf->spool_dir
	 */
	bool local;
	const char *boot_id;
};
struct pipeline;
/* Also finds how long the node was not profiled, from the file that the previous agent has left. */
struct pipeline *pipeline_new(const struct pipeline_config *c);
/*
 * To be called when the node's UID is known, before the first drain, because profiles contain the
 * UID. Later calls do nothing. Returns 0 or a negative errno.
 */
int pipeline_start(struct pipeline *p, const char *node_uid);
/*
 * To be called after pipeline_start(). Returns why kernel functions have no names; "": they have
 * names.
 */
const char *pipeline_kernel_problem(const struct pipeline *p);
/*
 * To be called after the workers have ended. Folds the waiting drains, sends the open window, and
 * writes the current time to the file.
 */
void pipeline_close(struct pipeline *p);
struct pipeline *pipeline_free(struct pipeline *p);

/*
 * Adds a drain and takes ownership of it. drain NULL: no BPF programs are loaded. full: this is the
 * drain of each second, not a quick one.
 */
void pipeline_drain(struct pipeline *p, struct drain *drain, bool full);
/*
 * Like pipeline_drain, for samples that come from no probe. Their values are exact: they are not
 * multiplied, and stand for no other samples.
 */
void pipeline_drain_whole(struct pipeline *p, struct drain *drain);
/*
 * To be called every second, before the drain of that second. Stores in the file for the next agent
 * whether a process is profiled.
 */
void pipeline_note_profiled(struct pipeline *p);
/* To be called every second, after the drain. */
void pipeline_tick(struct pipeline *p);
/*
 * To be called when these processes have ended. The pipeline keeps what it knows of them for a
 * while, for late samples.
 */
void pipeline_exited(struct pipeline *p, const struct process_exit *exits, size_t n);
/*
 * Returns how many samples drains have lost since the start, including those of drains that were
 * refused.
 */
uint64_t pipeline_n_lost(const struct pipeline *p);
/* To be called when mappings, names or files for which a drain waits may have arrived. */
void pipeline_advance(struct pipeline *p);
/* Callbacks for follow_ops.runtimes, follow_ops.rows_set and follow_ops.read_mappings. */
void pipeline_runtimes(struct pipeline *p, struct process_id id,
		       uint32_t exec_id, struct runtime_process *found);
void pipeline_rows_set(struct pipeline *p, struct process_id id, uint32_t exec_id,
		       struct runtime_process *r, uint64_t since_ns, uint64_t until_ns);
void pipeline_read_mappings(struct pipeline *p, struct process_id id,
			    uint32_t exec_id, uint64_t cgroup_id);
