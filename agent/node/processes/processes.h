/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes: the one place where the agent learns that a process has ended. It knows each process
 * of which another module may keep something. The kernel reports most exits. Now and then this
 * module searches /proc for those that it did not report. It passes each exit on once, and each
 * module then forgets what it keeps under that struct process_id. Loop thread.
 *
 * It knows nothing of exec: mappings, frames and reports of a process carry the exec id that they
 * are of, and each module compares it with the one of its own data. `podflame record` does not use
 * it: it takes the exits from its drains and tells stack and unwind itself.
 */
#pragma once

#include "node/proc/proc.h"
#include "node/sample/sample.h"
#include "node/work/work.h"

struct process_exit {
	struct process_id id;
	uint64_t exited_ns; /* CLOCK_BOOTTIME; if the kernel did not report it: when it was found */
};
struct processes_config {
	struct work *work;  /* borrowed */
	uint64_t search_ns; /* /proc is searched at most once in this time; 0: in a minute */
	/* These have ended; n > 0. */
	void (*exited)(void *arg, const struct process_exit *exits, size_t n);
	void *arg;
};
struct processes;
struct processes *processes_new(const struct processes_config *c);
struct processes *processes_free(struct processes *p);
/* Takes in which processes a drain of the kernel reports, and which of them have ended. */
void processes_drained(struct processes *p, const struct drain *d);
/*
 * Another module is about to keep something of this process. It may have ended already: then
 * `exited` is called again after a later search.
 */
void processes_add(struct processes *p, struct process_id id);
void processes_tick(struct processes *p); /* the caller calls this every second */
