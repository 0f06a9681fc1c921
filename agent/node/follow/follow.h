/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow: gives each process that was seen what its profiles need: unwind tables in the kernel as
 * soon as the process's files are parsed, a search for its runtimes, requests to a JVM for its perf
 * map, and probes of its allocators and its CUDA driver. It reports to the targets what a process
 * lacks. The pipeline is above this module: follow calls it only through follow_ops. Loop thread.
 */
#pragma once

#include "lib/base/shares.h"
#include "node/files/files.h"
#include "node/kernel/kernel.h"
#include "node/processes/processes.h"
#include "node/stack/stack.h"

struct follow_ops {
	/*
	 * Called when a search for a process's runtimes has ended. found is borrowed; NULL: the
	 * process has none.
	 */
	void (*runtimes)(void *arg, struct process_id id, uint32_t exec_id,
			 struct runtime_process *found);
	/*
	 * Called when the kernel has the unwind rows of the process's generated code that r has
	 * (NULL: none), in place of those of the call before. It got them between the two times
	 * (CLOCK_BOOTTIME).
	 */
	void (*rows_set)(void *arg, struct process_id id, uint32_t exec_id,
			 struct runtime_process *r, uint64_t since_ns, uint64_t until_ns);
	/* Called when a queued file is parsed, or could not be parsed. */
	void (*parsed)(void *arg);
	/*
	 * Passes samples that come from no probe: those of a Go program's own heap profile. The
	 * callee takes ownership of drain.
	 */
	void (*sampled)(void *arg, struct drain *drain);
	/* Called when a process's mappings must be read (again) and passed to follow_process(). */
	void (*read_mappings)(void *arg, struct process_id id, uint32_t exec_id,
			      uint64_t cgroup_id);
};
struct follow_config { /* all pointers are borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: nothing is reported */
	struct limit *limit;
	struct kernel *kernel;
	struct files *files;
	uint64_t java_refresh_ns; /* a JVM is asked for its perf map at most once in this time */
	const struct follow_ops *ops;
	void *ops_arg;
};
struct follow;
struct follow *follow_new(const struct follow_config *c);
/* To be called before the workers are ended. Jobs that have not begun then do nothing. */
void follow_stop(struct follow *f);
struct follow *follow_free(struct follow *f);
/*
 * To be called when a process's mappings were read (again). Takes a reference to m. cgroup_id 0:
 * the cgroup of the call before.
 */
void follow_process(struct follow *f, struct mappings *m, uint64_t cgroup_id);
/* Returns the id of the cgroup; 0: the process is not followed, or its cgroup is not known. */
uint64_t follow_cgroup(const struct follow *f, struct process_id id);
/*
 * Returns whether the mappings were read so recently that it would cost too much to read them again
 * now.
 */
bool follow_rests(const struct follow *f, struct process_id id, uint32_t exec_id);
/* Forgets processes that have ended, and takes their tables out of the kernel. */
void follow_exited(struct follow *f, const struct process_exit *exits, size_t n);
void follow_tick(struct follow *f); /* the caller calls this every second */
/* Detaches all probes of processes, before the programs are unloaded. */
void follow_detach(struct follow *f);
/* Whether no process has a probe, and no probe is being attached or detached. */
bool follow_is_detached(const struct follow *f);
void follow_unloaded(struct follow *f);
/*
 * Queues files for parsing: their names are needed, and they were never parsed or the cache has
 * forgotten them.
 */
void follow_parse(struct follow *f, const struct unparsed_file *u, size_t n);
/*
 * Returns the files that are being parsed or wait for that, so that more names will be known soon,
 * by namespace (struct charged).
 */
const struct shares *follow_parses(const struct follow *f);
