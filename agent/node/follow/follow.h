/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow: each process that is seen gets what profiles of it need: unwind tables in the kernel as soon as its files are
 * parsed, a look at the runtimes that it has, a request to a JVM for its perf map, probes of its allocators. What a
 * process lacks is told to its targets. Loop thread. It knows nothing of the pipeline above: follow_ops tell that.
 */
#pragma once

#include "node/files/files.h"
#include "node/kernel/kernel.h"
#include "node/stack/stack.h"

struct follow_ops {
	/* A look at a process's runtimes has ended; found is borrowed, NULL: it has none. */
	void (*runtimes)(void *arg, struct process_id id, uint32_t exec_id,
			 struct runtime_process *found);
	/* A file that was asked for is parsed, or cannot be. */
	void (*parsed)(void *arg);
	/* Samples that come of no probe: a Go program's own heap profile. Takes drain. */
	void (*sampled)(void *arg, struct drain *drain);
	/* A process's mappings are to be read (again); follow_process has them then. */
	void (*read_mappings)(void *arg, struct process_id id, uint32_t exec_id,
			      uint64_t cgroup_id);
};
struct follow_config { /* borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: nobody is told */
	struct limit *limit;
	struct kernel *kernel;
	struct files *files;
	uint64_t java_refresh_ns; /* a JVM is asked for its perf map at most once in that */
	const struct follow_ops *ops;
	void *ops_arg;
};
struct follow;
struct follow *follow_new(const struct follow_config *c);
/* Its workers are about to end: jobs that they have not begun are left. */
void follow_stop(struct follow *f);
struct follow *follow_free(struct follow *f);
/* A process's mappings are known (again); takes a reference. cgroup_id 0: as told before. */
void follow_process(struct follow *f, struct mappings *m, uint64_t cgroup_id);
/* The cgroup of a process that is followed; 0: it is not. */
uint64_t follow_cgroup(const struct follow *f, struct process_id id);
/*
 * Whether its mappings were read so short a while ago, for what that costs, that they are not to be read again yet.
 */
bool follow_rests(const struct follow *f, struct process_id id, uint32_t exec_id);
/* Of all that a drain tells: processes that have ended. */
void follow_exits(struct follow *f, const struct drain *d);
void follow_tick(struct follow *f); /* every second */
/* Before the programs are unloaded: takes all probes of processes away. */
void follow_detach(struct follow *f);
/* No process has a probe, and none is on its way. */
bool follow_is_detached(const struct follow *f);
void follow_unloaded(struct follow *f);
/* Names were wanted of files that nobody has parsed, or that have been forgotten. */
void follow_parse(struct follow *f, const struct unparsed_file *u, size_t n);
/* Files are being parsed: names will be there in a moment. */
bool follow_parses(const struct follow *f);
