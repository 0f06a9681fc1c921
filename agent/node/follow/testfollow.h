/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of other modules only: shows the processes that follow knows and their memory probes,
 * and sets states that a test cannot cause in another way.
 */
#pragma once

#include "node/alloc/alloc.h"
#include "node/follow/internal.h"

/* ---- processes ---- */

static inline struct tracked *testfollow_find(const struct follow *f, pid_t pid)
{
	struct tracked *t, *next;

	HASH_ITER (hh, f->tracked, t, next)
		if ((pid_t)t->id.tgid == pid)
			return t;
	return NULL;
}

static inline bool testfollow_has(const struct follow *f, pid_t pid)
{
	return testfollow_find(f, pid);
}

/* ---- memory probes ---- */

static inline bool testfollow_memory_is_asked_for(const struct follow *f)
{
	return f->sets_asked & 1u << PROBES_MEMORY;
}

/* Returns the number of processes whose memory probes stay attached. */
static inline unsigned testfollow_n_probed(const struct follow *f)
{
	return f->n_attached[PROBES_MEMORY];
}

/* Counts n more processes as probed; n < 0: fewer. */
static inline void testfollow_add_probed(struct follow *f, int n)
{
	f->n_attached[PROBES_MEMORY] += (unsigned)n;
}

/* Returns the number of blocked jobs of the probes worker. */
static inline size_t testfollow_n_stuck(const struct follow *f)
{
	return f->stuck.n;
}

/* Returns which memory of the process is not seen, and why; NULL: no problem is known. */
static inline const char *testfollow_memory_problem(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);

	return t ? t->probed[PROBES_MEMORY].problem : NULL;
}

/* Returns the events of the process whose probes stay attached; 0: none. */
static inline unsigned testfollow_probed_events(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);
	unsigned mask = 0;

	for (enum probe_set set = 0; t && set < _PROBES_SET_MAX; set++)
		if (t->probed[set].attached)
			mask |= t->probed[set].attached_mask;
	return mask;
}

/* Whether the process is known to have no CUDA driver. */
static inline bool testfollow_lacks_driver(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);

	return t && t->probed[PROBES_GPU_MEMORY].lacks_ns;
}

/* Whether the process is followed, has no probes, and its next span counts as the first. */
static inline bool testfollow_has_no_span(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);
	const struct probed *x = t ? &t->probed[PROBES_MEMORY] : NULL;

	return x && !x->attached && !x->busy && !x->span_end.cpu_ns;
}

/*
 * Sets the state as if the kernel refused the probes of the process for the next hour, or allowed
 * them again.
 */
static inline void testfollow_refuse(struct follow *f, pid_t pid, bool refuse)
{
	struct probed *a = &testfollow_find(f, pid)->probed[PROBES_MEMORY];

	a->refused = refuse;
	a->next_ns = refuse ? now_mono_ns() + 3600 * NSEC_PER_SEC : 0;
}

/* ---- the heap profile of a Go program ---- */

/* Whether the process has such a profile, and no job is reading it. */
static inline bool testfollow_has_go_heap(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);

	return t && t->probed[PROBES_MEMORY].sites && t->probed[PROBES_MEMORY].sites->go;
}

/*
 * Whether the profile was read since testfollow_read_go_heap(), or at all if that was not called.
 */
static inline bool testfollow_go_heap_is_read(const struct follow *f, pid_t pid)
{
	return testfollow_has_go_heap(f, pid) && testfollow_find(f, pid)->go_heap.next_ns;
}

/* Makes the next read of the profile due now. */
static inline void testfollow_read_go_heap(struct follow *f, pid_t pid)
{
	testfollow_find(f, pid)->go_heap.next_ns = 0;
}
