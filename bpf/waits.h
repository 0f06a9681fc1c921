/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * waits: the threads of selected processes and their current waits. offcpu.bpf.c notes a wait at a
 * switch, and offcpu_walk.bpf.c looks at it while it goes on. docs/events.md.
 */
#pragma once

#include "maps.h"

#define PF_WAIT_MAX_NS (3600ull * 1000000000) /* longer ones count up to here, in any case */
#define PF_NOT_WAITING (~0ull)

/* The clock of waits. It stops while the machine is suspended, because no thread waits then. */
static __always_inline uint64_t pf_wait_clock(void)
{
	return bpf_ktime_get_ns();
}

/* Thinned waits that last longer may become whole. Shorter ones end soon, or count for little. */
#define PF_LOOK_MIN_NS 10000000ull

/*
 * A thread, from its first noted wait until it ends. The entry stays between waits, because making
 * and removing it costs more than all else at a wait.
 */
struct pf_waiting {
	uint64_t start_boottime_ns; /* of the thread that has this number */
	uint64_t since_ns;	    /* its last wait, by pf_wait_clock(): when it left its CPU, */
	uint64_t woken_ns;	    /* when it was woken; 0: it was not yet */
	/*
	 * It is counted up to here; PF_NOT_WAITING: it is over. A program that counts first moves
	 * this on, in one atomic step, so nothing is counted twice.
	 */
	uint64_t counted_ns;
	uint64_t max_ns; /* settings at that time: struct pf_filter */
	uint32_t min_us;
	uint32_t note, keep; /* off_note, off_keep: chances to be noted, to be kept */
	uint32_t taken;	     /* it was kept, so key is set */
	uint32_t state;	     /* in which the thread left its CPU */
	uint32_t pad;
	struct pf_count_key key; /* with its cause */
	/*
	 * long_waits.c found it still going on. From counted_ns on it counts whole, kept or not:
	 * for itself and for those that were not noted, while this is since_ns. Only
	 * offcpu_walk.bpf.c writes these two, and this one last.
	 */
	uint64_t whole_since_ns;
	struct pf_count_key whole_key;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH); /* preallocated */
	__uint(max_entries, 16384);
	__type(key, uint32_t); /* thread, in the initial PID namespace */
	__type(value, struct pf_waiting);
} waits SEC(".maps");

/*
 * The number of waits going on, by the thread's number. Most switches and wake-ups end no wait, and
 * one read here shows that. Neighbours are far apart, because they run on different CPUs.
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

/* The current wait of the thread; NULL: none was noted. */
static __always_inline struct pf_waiting *pf_waiting_of(struct task_struct *task)
{
	uint32_t tid = task->pid, *n = pf_thread_slot(tid);

	return n && *n ? bpf_map_lookup_elem(&waits, &tid) : NULL;
}

/* Begins the wait: from here on, its end is noticed. */
static __always_inline void pf_wait_begins(struct pf_waiting *w, uint32_t tid)
{
	uint32_t *n = pf_thread_slot(tid);

	if (n)
		__sync_fetch_and_add(n, 1);
	w->counted_ns = w->since_ns;
}

/*
 * Ends the wait. Returns up to when it was counted; PF_NOT_WAITING: another program has ended it.
 */
static __always_inline uint64_t pf_wait_ends(struct pf_waiting *w, uint32_t tid)
{
	uint64_t counted = __sync_lock_test_and_set(&w->counted_ns, PF_NOT_WAITING);
	uint32_t *n = counted == PF_NOT_WAITING ? NULL : pf_thread_slot(tid);

	if (n)
		__sync_fetch_and_add(n, -1);
	return counted;
}
