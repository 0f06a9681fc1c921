/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * maps: all maps that programs share. Every object file declares them. Those of core.bpf.c are
 * created; the other objects use them (bpf_map__reuse_fd). If max_entries is 1 here, user space may
 * set the real size before it loads the programs: some depend on the number of CPUs.
 */
#pragma once

#include "kernel.h"
#include "abi.h"

const volatile struct pf_config pf_config = {};

/* Not preallocated, because most nodes use little of the maximum. */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PF_FILTER_MAX);
	__type(key, uint64_t);
	__type(value, struct pf_filter);
} filter_cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PF_FILTER_MAX);
	__type(key, uint32_t);
	__type(value, struct pf_listed);
} filter_tgids SEC(".maps");

/*
 * Mmapped also for its alignment: the values of such a map begin at a page, so no value is in two
 * cache lines.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_unselected);
} unselected SEC(".maps");

/*
 * The counts of generation g are in slot g % 2. User space raises the generation and then waits for
 * RCU, by an update of an outer map. After that, no program writes to the old generation's map.
 */
struct counts_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct pf_count_key);
	__type(value, struct pf_count);
} counts_0 SEC(".maps"), counts_1 SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, PF_GENERATIONS);
	__type(key, uint32_t);
	__array(values, struct counts_map);
} counts SEC(".maps") = {.values = {&counts_0, &counts_1}};

/* By slot. User space clears the shares of a generation when it has taken the counts. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PF_GENERATIONS);
	__type(key, uint32_t);
	__type(value, struct pf_shares);
} count_shares SEC(".maps"), total_shares SEC(".maps");

struct totals_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct pf_total_key);
	__type(value, struct pf_total);
} totals_0 SEC(".maps"), totals_1 SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, PF_GENERATIONS);
	__type(key, uint32_t);
	__array(values, struct totals_map);
} totals SEC(".maps") = {.values = {&totals_0, &totals_1}};

/*
 * Which hashes were sent in which generation. This is a cache, so it never fills up. A slot has
 * hash ^ generation * odd constant, in one atomic word. If another hash replaces a hash in its
 * slot, the record of the replaced one is sent again when it is next needed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, uint64_t);
} seen SEC(".maps");

/* Selected processes that were reported to user space. */
struct pf_proc_key {
	uint64_t start_boottime_ns;
	uint64_t tgid_root;
};
struct pf_proc_state {
	uint32_t exec_id;
	uint16_t sampled;
	uint16_t all_known; /* the last report said so */
	/* time of the first report, or of the last report of changed mappings */
	uint64_t maps_told_ns;
	uint64_t exec_pages;   /* mm->exec_vm at the last report */
	uint64_t given_pages;  /* exec_vm of the mappings that user space had given; 0: none */
	uint64_t unknown_tag;  /* the file for which that report was; PF_TAG_NONE: for no file */
	/* how long the mappings are not reported again; see pf_maps_wait() */
	uint64_t maps_wait_ns;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct pf_proc_key);
	__type(value, struct pf_proc_state);
} procs SEC(".maps");

/* ---- unwind tables: unwind_tables.h describes their layout ---- */

struct chunk_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__uint(value_size, PF_CHUNK_BYTES);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, PF_CHUNKS_MAX);
	__type(key, uint32_t);
	__array(values, struct chunk_map);
} chunks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PF_FILES_MAX);
	__type(key, uint32_t);
	__type(value, struct pf_file);
} unwind_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PF_PROCESSES_MAX);
	__type(key, struct pf_process_key);
	__type(value, struct pf_process);
} unwind_procs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PF_IMAGES_MAX);
	__type(key, uint64_t);
	__type(value, struct pf_image);
} images SEC(".maps");

/*
 * What events cost, and the variances of their sums. A drain does not empty this map. When a cgroup
 * is removed, user space removes its entries.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PF_USAGE_MAX);
	__type(key, struct pf_usage_key);
	__type(value, struct pf_usage);
} usage SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_shares);
} usage_shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

/* One entry: of the ring, in bytes that user space has not read. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_shares);
} ring_shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_self);
} self SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_stats);
} stats SEC(".maps");

static __always_inline struct pf_stats *pf_stats_here(void)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&stats, &zero);
}

/*
 * Adds 1 to a member of struct pf_stats. Atomic, because a tick may come between reading and
 * writing.
 */
#define PF_STAT(member)                                                                            \
	do {                                                                                       \
		struct pf_stats *here_ = pf_stats_here();                                          \
                                                                                                   \
		if (here_)                                                                         \
			__sync_fetch_and_add(&here_->member, 1);                                   \
	} while (0)

static __always_inline void pf_drop(uint32_t event, enum pf_drop reason)
{
	struct pf_stats *s = pf_stats_here();

	if (s)
		__sync_fetch_and_add(&s->drop[event & (_PF_EVENT_MAX - 1)][reason], 1);
}

static __always_inline void pf_drop_record(enum pf_drop reason)
{
	pf_drop(0, reason);
}

static __always_inline const struct pf_settings *pf_settings_now(void)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&settings, &zero);
}

/*
 * Returns a * b >> 20, because `usage` has variances in units of 2^20. The result is rounded at
 * random, because most results are smaller than 1.
 */
static __always_inline uint64_t pf_product(uint64_t a, uint64_t b)
{
	return (a | b) >> 32 ? (a >> 10) * (b >> 10)
			     : (a * b + (bpf_get_prandom_u32() & 0xfffff)) >> 20;
}
