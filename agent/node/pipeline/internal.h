/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the pipeline share. */
#pragma once

#include "node/internal.h"

#include <uthash.h>

#define HOLD_EXITED_NS (10 * NSEC_PER_SEC)
#define MAX_LOSSES     128

struct process_key {
	uint64_t start_boottime_ns;
	uint64_t tgid;
};
struct process {
	struct process_key key;
	uint32_t container_pid;
	uint32_t exec_id, stack; /* as last told: of raw_proc */
	bool nodes_pid_ns; /* it sees itself as the agent sees it: of the node, not of a container */
	char comm[16];
	uint64_t exited_ns; /* 0: lives */
	UT_hash_handle hh;
};
struct known_loss {
	const char *reason;
	unsigned event_mask;
	uint64_t value;
};
struct pipeline {
	struct stacks *stacks;
	struct fold *fold;
	struct process *processes;
	uint64_t sweep_ns; /* not before it are they looked for again */
	struct known_loss losses[MAX_LOSSES];
	size_t n_losses;
	unsigned
		event_mask; /* that samples were taken for: what is lost of no known event may have been any of these */
};

/* A sample that is looked at. */
struct accepted {
	struct owner *owner; /* NULL: a host process */
	struct attribution *attribution;
	const struct process *process;
	struct raw_names names;
	bool have_names;
};

/* ---- pipeline_judge.c: processes, and which samples count ---- */
void pipeline_note_processes(struct pipeline *p, const struct drain *d);
/* Those that ended long before; UINT64_MAX: all. */
void pipeline_forget_exited(struct pipeline *p, uint64_t now_boot_ns);
/* NULL: counts; else the reason why not. The one place that says so. */
const char *pipeline_judge(struct pipeline *p, const struct feed *f, const struct raw_sample *s,
			   struct accepted *ret);
