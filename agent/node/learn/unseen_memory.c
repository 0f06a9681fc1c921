/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a process's memory grew without being seen by its probes: see unseen_memory.h.
 * Pure functions: no clock and no I/O.
 */
#include "node/learn/unseen_memory.h"

#include <inttypes.h>

#define GROWN_MIN  (64u << 20)
#define SEEN_SHARE 20 /* reported if the probes saw less than 1/20 of the growth */
/*
 * The growth must be so large that the probes would have taken this many samples of it on average.
 * With 32, it is practically impossible that by chance they take one sample or none.
 */
#define SAMPLES_MIN 32
#define STACK_BYTES (8u << 20) /* the default maximum for the stack of a new thread */

static uint64_t above(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/*
 * Returns how many bytes more are in use now than at the base. Stacks of new threads do not count,
 * because no allocator provides them. A program may allocate memory that the probes see, and use it
 * later. So once the probes have seen much, growth counts only if the address space has grown, too.
 */
static uint64_t grown(const struct unseen *u, const struct proc_memory *now)
{
	uint64_t stacks = above(now->n_threads, u->base.n_threads) * STACK_BYTES;
	uint64_t used = above(now->anon_bytes, u->base.anon_bytes);
	uint64_t space = above(now->data_bytes, u->base.data_bytes);

	return above(u->excused ? MIN(used, space) : used, stacks);
}

static void begin(struct unseen *u, const struct proc_memory *now, uint64_t seen_bytes)
{
	u->begun = true;
	u->base = *now;
	u->base_seen = seen_bytes;
}

bool learn_unseen(struct unseen *u, const struct proc_memory *now, uint64_t seen_bytes,
		  uint64_t each_bytes)
{
	uint64_t seen, bytes;

	if (!u->begun)
		begin(u, now, seen_bytes);
	u->base.anon_bytes = MIN(u->base.anon_bytes, now->anon_bytes);
	u->base.data_bytes = MIN(u->base.data_bytes, now->data_bytes);
	u->base.n_threads = MIN(u->base.n_threads, now->n_threads);
	seen = above(seen_bytes, u->base_seen);
	bytes = grown(u, now);
	if (bytes >= GROWN_MIN && bytes / SAMPLES_MIN >= each_bytes && seen < bytes / SEEN_SHARE &&
	    bytes >= 2 * u->told_bytes) {
		u->told_bytes = bytes;
		return true;
	}
	/*
	 * The base moves on: if the probes saw much memory long ago, that does not explain growth
	 * that they do not see now.
	 */
	if (seen >= GROWN_MIN) {
		u->excused = true;
		begin(u, now, seen_bytes);
	}
	return false;
}

void learn_unseen_begin_anew(struct unseen *u)
{
	u->begun = u->excused = false;
}

char *learn_unseen_text(const struct unseen *u)
{
	if (!u->told_bytes)
		return NULL;
	return xasprintf(
		"its memory grew by %" PRIu64 " MiB, of which the probes saw less than "
		"5 %%: it came from mmap or from an allocator that podflame does not know, or was "
		"there before them, unused",
		u->told_bytes >> 20);
}
