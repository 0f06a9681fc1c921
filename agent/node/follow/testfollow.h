/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of other modules only: what follow knows of its processes and their memory probes, and
 * states that a test cannot bring about otherwise.
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

static inline unsigned testfollow_n(const struct follow *f)
{
	return HASH_COUNT(f->tracked);
}

/* Adds processes that do not exist, until there are n. */
static inline void testfollow_fill(struct follow *f, unsigned n)
{
	for (uint32_t tgid = 1u << 30; testfollow_n(f) < n; tgid++)
		follow_track(f, (struct process_id){1, tgid});
}

/* ---- memory probes ---- */

static inline bool testfollow_memory_is_asked_for(const struct follow *f)
{
	return f->sets_asked & 1u << PROBES_MEMORY;
}

/* How many processes have memory probes as long as they live. */
static inline unsigned testfollow_n_probed(const struct follow *f)
{
	return f->n_attached[PROBES_MEMORY];
}

/* Counts n more processes as probed; n < 0: fewer. */
static inline void testfollow_add_probed(struct follow *f, int n)
{
	f->n_attached[PROBES_MEMORY] += (unsigned)n;
}

/* How many jobs of the probes worker do not come back. */
static inline size_t testfollow_n_stuck(const struct follow *f)
{
	return f->stuck.n;
}

/* What of its memory is not seen, and why; NULL: nothing is known. */
static inline const char *testfollow_memory_problem(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);

	return t ? t->probed[PROBES_MEMORY].problem : NULL;
}

/* The events that it is probed for as long as it lives; 0: none. */
static inline unsigned testfollow_probed_events(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);
	unsigned mask = 0;

	for (enum probe_set set = 0; t && set < _PROBES_SET_MAX; set++)
		if (t->probed[set].attached)
			mask |= t->probed[set].attached_mask;
	return mask;
}

/* It is known to have no CUDA driver. */
static inline bool testfollow_lacks_driver(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);

	return t && t->probed[PROBES_GPU_MEMORY].lacks_ns;
}

/* It is followed, has no probes, and its next span counts as the first. */
static inline bool testfollow_has_no_span(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);
	const struct probed *x = t ? &t->probed[PROBES_MEMORY] : NULL;

	return x && !x->attached && !x->busy && !x->span_end.cpu_ns;
}

/* The kernel refuses its probes for the next hour, or allows them again. */
static inline void testfollow_refuse(struct follow *f, pid_t pid, bool refuse)
{
	struct probed *a = &testfollow_find(f, pid)->probed[PROBES_MEMORY];

	a->refused = refuse;
	a->next_ns = refuse ? now_mono_ns() + 3600 * NSEC_PER_SEC : 0;
}

/* ---- the heap profile of a Go program ---- */

/* It has one, and no job is reading it. */
static inline bool testfollow_has_go_heap(const struct follow *f, pid_t pid)
{
	const struct tracked *t = testfollow_find(f, pid);

	return t && t->probed[PROBES_MEMORY].sites && t->probed[PROBES_MEMORY].sites->go;
}

/* It was read since testfollow_read_go_heap(), or ever. */
static inline bool testfollow_go_heap_is_read(const struct follow *f, pid_t pid)
{
	return testfollow_has_go_heap(f, pid) && testfollow_find(f, pid)->go_heap.next_ns;
}

/* Its next read is due now. */
static inline void testfollow_read_go_heap(struct follow *f, pid_t pid)
{
	testfollow_find(f, pid)->go_heap.next_ns = 0;
}
