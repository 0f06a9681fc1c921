/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * waits: threads of selected processes, and the wait that each is in: what offcpu.bpf.c notes at a
 * switch and offcpu_walk.bpf.c looks at while it goes on. docs/events.md.
 */
#pragma once

#include "maps.h"

#define PF_WAIT_MAX_NS (3600ull * 1000000000) /* longer ones count up to here, whatever is asked */
#define PF_NOT_WAITING (~0ull)

/* Of waits: it stands while the machine is suspended, and nobody waits then. */
static __always_inline uint64_t pf_wait_clock(void)
{
	return bpf_ktime_get_ns();
}

/* Thinned ones that go on for longer become whole: shorter ones end soon, or count for little. */
#define PF_LOOK_MIN_NS 10000000ull

/*
 * A thread, from its first wait until it ends: entries stay, as making and removing one costs more
 * than the rest of a wait.
 */
struct pf_waiting {
	uint64_t start_boottime_ns; /* of the thread; else another one had its number */
	uint64_t since_ns;	    /* its last wait, by pf_wait_clock(): when it left its CPU, */
	uint64_t woken_ns;	    /* when it was woken; 0: it was not yet */
	/*
	 * It is counted up to here; PF_NOT_WAITING: it is over. Who counts moves it on first, at
	 * once: so nothing is counted twice.
	 */
	uint64_t counted_ns;
	uint64_t max_ns; /* settings of then: struct pf_filter */
	uint32_t min_us;
	uint32_t note, keep; /* off_note, off_keep: it was noted with that probability, and kept */
	uint32_t taken;	     /* it was kept: key is known */
	uint32_t state;	     /* in which it left its CPU */
	uint32_t pad;
	struct pf_count_key key; /* with its cause */
	/*
	 * It was seen to go on, and counts whole from counted_ns on, kept or not: for itself and
	 * those that were not noted, while this is since_ns. Only offcpu_walk.bpf.c writes these
	 * two, and this one last.
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
 * How many waits go on, by the thread's number: most switches and wake-ups end none, and that is
 * told by one read. Neighbours lie apart: they run on different CPUs.
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

/* The wait that it is in; NULL: none that was noted. */
static __always_inline struct pf_waiting *pf_waiting_of(struct task_struct *task)
{
	uint32_t tid = task->pid, *n = pf_thread_slot(tid);

	return n && *n ? bpf_map_lookup_elem(&waits, &tid) : NULL;
}

/* It begins: from here on it can be seen to end. */
static __always_inline void pf_wait_begins(struct pf_waiting *w, uint32_t tid)
{
	uint32_t *n = pf_thread_slot(tid);

	if (n)
		__sync_fetch_and_add(n, 1);
	w->counted_ns = w->since_ns;
}

/* It ends. Returns until when it was counted; PF_NOT_WAITING: somebody else has ended it. */
static __always_inline uint64_t pf_wait_ends(struct pf_waiting *w, uint32_t tid)
{
	uint64_t counted = __sync_lock_test_and_set(&w->counted_ns, PF_NOT_WAITING);
	uint32_t *n = counted == PF_NOT_WAITING ? NULL : pf_thread_slot(tid);

	if (n)
		__sync_fetch_and_add(n, -1);
	return counted;
}
