/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: the runtimes of one exec of a process. All results for it share struct
 * states. Only the thread that holds its lock may use it. If a process blocks that thread, the lock
 * is never released, so other threads do not wait for it.
 */
#pragma once

#include "node/runtime/states.h"

#include <pthread.h>

struct states {
	unsigned refs;
	pthread_mutex_t lock;
	struct runtime_states own;   /* of the rows that run in the agent */
	uint64_t token;		     /* of what the child keeps; 0: nothing */
	bool named[_PF_RUNTIME_MAX]; /* with that, the child can name the runtime's frames */
	uint64_t charged_ns;
};
struct runtime_item {
	enum pf_runtime_kind kind;
	struct runtime_learnt learnt; /* the state is not here, but in states */
};
struct runtime_process {
	unsigned refs;
	struct process_id id;
	uint32_t exec_id;
	struct states *states;
	struct runtime_item items[PF_RUNTIMES_MAX];
	size_t n;
	/* runtimes that are recognised, but not walked */
	const struct runtime_recognised *seen[RUNTIME_RECOGNISED_MAX];
	size_t n_seen;
	struct elf_index *generated; /* rows of generated code; NULL: none */
	bool publishes;		     /* see runtime_process_publishes() */
};
/* Returns an empty result. s: the states of an earlier one for this exec; NULL: there is none. */
struct runtime_process *runtime_process_new(const struct mappings *m, struct states *s);
