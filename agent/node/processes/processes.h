/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes: the one place where the agent learns that a process has ended. It knows each process
 * for which another module may keep data. The kernel reports most exits. From time to time this
 * module searches /proc for exits that the kernel did not report. It passes each exit on once. Each
 * module then forgets the data that it keeps under that struct process_id. Loop thread.
 *
 * This module ignores exec. Mappings, frames and reports of a process contain the exec id to which
 * they belong, and each module compares it with the exec id of its own data. `podflame record` does
 * not use this module: it gets the exits from its drains and passes them to stack and unwind
 * itself.
 */
#pragma once

#include "node/proc/proc.h"
#include "node/sample/sample.h"
#include "node/work/work.h"

struct process_exit {
	struct process_id id;
	/* CLOCK_BOOTTIME; if the kernel did not report the exit: when the search found it */
	uint64_t exited_ns;
	uint64_t ns; /* struct charged: whose process it was */
};
struct processes_config {
	struct work *work;  /* borrowed */
	uint64_t search_ns; /* minimum time between two searches in /proc; 0: a minute */
	/* called for processes that have ended; n > 0 */
	void (*exited)(void *arg, const struct process_exit *exits, size_t n);
	/* called when a process of the namespace (struct charged) counts as ended to make room */
	void (*crowded)(void *arg, uint64_t ns);
	void *arg;
};
struct processes;
struct processes *processes_new(const struct processes_config *c);
struct processes *processes_free(struct processes *p);
/* Adds the processes that a drain of the kernel reports, and passes on the exits in it. */
void processes_drained(struct processes *p, const struct drain *d);
/*
 * To be called when another module is about to keep data of this process. If the process has ended
 * already, a later search finds that and calls `exited`, even if it was called for this process
 * before. ns: struct charged.
 */
void processes_add(struct processes *p, struct process_id id, uint64_t ns);
void processes_tick(struct processes *p); /* to be called every second */
