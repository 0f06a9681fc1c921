/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * waits: the threads of selected processes and their current waits. offcpu.bpf.c notes a wait at a
 * switch, and offcpu_walk.bpf.c looks at it while it goes on. Which waits are noted, and which of
 * these are also kept, is decided at random: off_note and off_keep of struct pf_filter.
 * docs/events.md.
 */
#pragma once

#include "maps.h"

#define PF_WAIT_MAX_NS (3600ull * 1000000000) /* of a longer wait, only this time counts */
#define PF_NOT_WAITING (~0ull)

/*
 * Returns the time of the clock of waits. The clock stops while the machine is suspended, because
 * no thread waits then.
 */
static __always_inline uint64_t pf_wait_clock(void)
{
	return bpf_ktime_get_ns();
}

/*
 * If not all waits of a thread are kept, those that last longer than this may become whole (struct
 * pf_waiting). Shorter ones end soon, or count for little.
 */
#define PF_LOOK_MIN_NS 10000000ull

/*
 * A thread and its last noted wait. The entry stays from the thread's first noted wait until the
 * thread ends, because making and removing an entry costs more than all else at a wait.
 */
struct pf_waiting {
	/* start time of the thread, because its number may be used again */
	uint64_t start_boottime_ns;
	uint64_t since_ns;	    /* when the thread left its CPU, by pf_wait_clock() */
	uint64_t woken_ns;	    /* when the thread was woken, by the same clock; 0: not yet */
	/*
	 * The wait is counted up to this time; PF_NOT_WAITING: the wait is over. A program that
	 * counts first moves this time on, in one atomic step, so nothing is counted twice.
	 */
	uint64_t counted_ns;
	/* max_ns, min_us, note and keep are the settings of struct pf_filter when the wait began */
	uint64_t max_ns;
	uint32_t min_us;
	uint32_t note, keep; /* off_note and off_keep of struct pf_filter */
	uint32_t taken;	     /* not 0: the wait was kept, so key is set */
	uint32_t state;	     /* the state in which the thread left its CPU */
	uint32_t share;	     /* pf_filter.share when the entry was made */
	struct pf_count_key key; /* key of the wait, with its cause */
	/*
	 * If this equals since_ns, the wait is "whole": long_waits.c found it still going on. From
	 * counted_ns on, a whole wait counts for itself and for waits that were not noted, whether
	 * it was kept or not. Only offcpu_walk.bpf.c writes whole_key and this, and it writes this
	 * last.
	 */
	uint64_t whole_since_ns;
	struct pf_count_key whole_key;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH); /* preallocated */
	__uint(max_entries, PF_WAITS_MAX); /* a test sets a smaller number */
	__type(key, uint32_t); /* number of the thread in the initial PID namespace */
	__type(value, struct pf_waiting);
} waits SEC(".maps");

/*
 * How many noted waits are going on, by a hash of the thread's number. Most switches and wake-ups
 * end no noted wait, and one read here shows that. Threads with neighbouring numbers run on
 * different CPUs. They have slots far apart, so that these CPUs do not write to the same cache
 * line.
 */
#define PF_THREAD_SLOTS_LOG2 14
#define PF_THREAD_SLOTS	     (1 << PF_THREAD_SLOTS_LOG2)
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PF_THREAD_SLOTS);
	__type(key, uint32_t);
	__type(value, uint32_t);
} threads SEC(".maps");

static __always_inline uint32_t *pf_thread_slot(uint32_t tid)
{
	uint32_t slot = tid * 2654435769u >> (32 - PF_THREAD_SLOTS_LOG2);

	return bpf_map_lookup_elem(&threads, &slot);
}

/* Returns the thread's entry, if the thread may be in a noted wait; NULL: it is not. */
static __always_inline struct pf_waiting *pf_waiting_of(struct task_struct *task)
{
	uint32_t tid = task->pid, *n = pf_thread_slot(tid);

	return n && *n ? bpf_map_lookup_elem(&waits, &tid) : NULL;
}

/* Begins the wait. Only from here on do the programs notice its end. */
static __always_inline void pf_wait_begins(struct pf_waiting *w, uint32_t tid)
{
	uint32_t *n = pf_thread_slot(tid);

	if (n)
		__sync_fetch_and_add(n, 1);
	w->counted_ns = w->since_ns;
}

/*
 * Ends the wait. Returns the time up to which it was counted; PF_NOT_WAITING: another program has
 * ended it already.
 */
static __always_inline uint64_t pf_wait_ends(struct pf_waiting *w, uint32_t tid)
{
	uint64_t counted = __sync_lock_test_and_set(&w->counted_ns, PF_NOT_WAITING);
	uint32_t *n = counted == PF_NOT_WAITING ? NULL : pf_thread_slot(tid);

	if (n)
		__sync_fetch_and_add(n, -1);
	return counted;
}
