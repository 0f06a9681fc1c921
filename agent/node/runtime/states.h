/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: the data that runtimes keep of one process, and the calls of their learn and
 * resolve. The agent has such data for the rows that run in it (runtime_ops.in_agent), the child
 * for the others. One thread at a time.
 */
#pragma once

#include "node/runtime/internal.h"

#define RUNTIME_ASK_BUDGET     (1u << 20) /* limit of the bytes that are read to name one frame */
#define RUNTIME_RESOLVE_BUDGET (4 * MEMORY_BUDGET) /* bytes that are read for one question */
/* limit for the names of one question; other names are read in a later one */
#define RUNTIME_NAMES_BYTES (8u << 20)

struct runtime_states {
	bool walked[_PF_RUNTIME_MAX]; /* only these runtimes have frames, and a state for resolve */
	void *of[_PF_RUNTIME_MAX];
};
void runtime_states_done(struct runtime_states *s);
void runtime_state_forget(struct runtime_states *s, enum pf_runtime_kind k);
/*
 * Learns one runtime. known: the previous result, without its state; NULL: there is none. 0: *ret
 * has the new result, and its state is in s. Else s is unchanged, except that a runtime that the
 * process does not have any more (-ENOENT) has lost its state.
 */
int runtime_state_learn(struct runtime_states *s, const struct runtime_look *look,
			enum pf_runtime_kind k, const struct runtime_learnt *known,
			struct runtime_learnt *ret);

/* What one question may still read, and how many bytes its names may still have. */
struct runtime_room {
	size_t read_bytes, names_bytes;
};
#define RUNTIME_ROOM ((struct runtime_room){RUNTIME_RESOLVE_BUDGET, RUNTIME_NAMES_BYTES})
/* Names one frame: sets a->names and a->error. */
void runtime_state_resolve(struct runtime_states *s, struct memory *m, struct runtime_ask *a,
			   struct runtime_room *room);
void runtime_learnt_done(struct runtime_learnt *l); /* frees all but the state */
/* Returns whether two results, without their states, say the same. */
bool runtime_learnt_equal(const struct runtime_learnt *a, const struct runtime_learnt *b);
