/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow: gives each process that was seen what its profiles need: unwind tables in the kernel as
 * soon as its files are parsed, a look at its runtimes, a request to a JVM for its perf map, and
 * probes of its allocators. It reports to the targets what a process lacks. Loop thread. It does
 * not know the pipeline above it: it calls it through follow_ops.
 */
#pragma once

#include "node/files/files.h"
#include "node/kernel/kernel.h"
#include "node/processes/processes.h"
#include "node/stack/stack.h"

struct follow_ops {
	/* A look at a process's runtimes has ended. found is borrowed; NULL: it has none. */
	void (*runtimes)(void *arg, struct process_id id, uint32_t exec_id,
			 struct runtime_process *found);
	/* A file that was asked for is parsed, or cannot be. */
	void (*parsed)(void *arg);
	/* Samples that come from no probe: a Go program's own heap profile. Takes drain over. */
	void (*sampled)(void *arg, struct drain *drain);
	/* Asks to read a process's mappings (again) and to pass them to follow_process(). */
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
/* The workers are about to end. Jobs that they have not begun do nothing. */
void follow_stop(struct follow *f);
struct follow *follow_free(struct follow *f);
/* The caller has read a process's mappings (again). Takes a reference. cgroup_id 0: as before. */
void follow_process(struct follow *f, struct mappings *m, uint64_t cgroup_id);
/* The cgroup of a process that is followed; 0: it is not followed. */
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
/* No process has a probe, and none is being attached or detached. */
bool follow_is_detached(const struct follow *f);
void follow_unloaded(struct follow *f);
/* Parses files whose names were wanted and that were never parsed, or forgotten since. */
void follow_parse(struct follow *f, const struct unparsed_file *u, size_t n);
/* Files are being parsed, so names will be there soon. */
bool follow_parses(const struct follow *f);
