/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private header of probe: struct probes, the ops of events, and what the files of probe/
 * share.
 */
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/abi.h"
#include "node/probe/probe.h"
#include "node/probe/types.h"

#include <uthash.h>

/* ---- the set that the filter should hold, sorted by key ---- */
struct wanted_events {
	uint64_t key; /* cgroup id, or tgid */
	uint64_t start_boottime_ns;
	uint64_t ns; /* struct charged */
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_note, off_keep;
	bool listed, context;
};
struct wanted_set {
	struct wanted_events *items;
	size_t n;
};

/* A cgroup that the kernel selected at once when it was made, and that a drain has reported. */
struct told_cgroup {
	uint64_t id;
	uint64_t drain; /* the number of the drain that reported it */
	UT_hash_handle hh;
};

/* ---- drain: records of one generation (drain.c), while more are added ---- */
struct pending {
	/* the records; until the drain is finished, .frames of stacks are offsets into d->memory */
	struct drain *d;
	size_t cap_stacks, cap_names, cap_contexts, cap_texts;
	size_t cap_procs, cap_cgroups, cap_young;
};

/* The drain to which samples are being added. */
struct taking {
	struct drain *d;
	size_t cap;
	int n_cpus;
};
struct raw_sample *probes_taking_sample(struct taking *t); /* returns a new sample of the drain */
typedef void probes_map_fn(const void *key, const void *value, void *arg);
/*
 * Calls each() for all entries of a hash map, which are read in batches. value_bytes: the size of a
 * value in user space. take: also deletes the entries; then no program may write the map any more.
 * Without take, an entry that stays is seen once, and one that is removed and added again meanwhile
 * may be seen twice or not at all. If the function fails, each() may have been called for some
 * entries.
 */
int probes_map_each(int map, size_t key_bytes, size_t value_bytes, bool take, probes_map_fn *each,
		    void *arg);

/*
 * What each namespace has of the tables that an event's programs fill: variables of the programs,
 * mapped into the agent's memory. NULL: there is no such table, or the programs are not loaded.
 */
struct shared_tables {
	struct pf_shares *of[_SHARED_MAX];
};

/* ---- events: each has a file, and a row of the table in probe.c ---- */
struct event_probe {
	const struct probe_ops *ops;
	struct bpf_object *obj; /* NULL: not opened */
	void *own;		/* private data of the event's file, from load() to unload() */
	bool loaded;
	/* the rate that is wanted, and the one at which it is attached; 0: none, detached */
	unsigned want_hz, hz;
	unsigned n_links;
	/* CLOCK_MONOTONIC: when to try again to attach the event; 0: no retry is needed */
	uint64_t again_ns;
};
struct probe_ops {
	/*
	 * Sets own, and obj if the object opens. The object uses bpf_config and the maps of core
	 * (probes_lend_maps()). Work that takes long or needs much memory is done in attach.
	 */
	int (*load)(struct probes *p, struct event_probe *e);
	void (*unload)(struct event_probe *e);
	/*
	 * Returns the rate that the wanted sets need; 0: no set wants the event. NULL: the event
	 * has no rate, which counts as 1.
	 */
	unsigned (*rate)(const struct probes *p);
	/*
	 * Fills in the event's fields of the filter's entry; NULL: it has none. Rates become shares
	 * of want_hz.
	 */
	void (*fill)(const struct event_probe *e, const struct wanted_events *w,
		     struct pf_filter *f);
	int (*attach)(struct probes *p, struct event_probe *e); /* attaches at the rate e->hz */
	void (*detach)(struct event_probe *e);
	/*
	 * Called while the event is attached: looks for CPUs that went online or offline. The
	 * result becomes the event's state.
	 */
	int (*check)(struct probes *p, struct event_probe *e);
	/*
	 * Called in a full drain while the event is attached, before the generations are swapped.
	 * May be NULL. Adds the waits that still go on to the counts of the generation that ends.
	 */
	void (*before_swap)(struct probes *p, struct event_probe *e);
	/*
	 * Called in a full drain while the event is attached, after the counts were taken. May be
	 * NULL. Adds the samples of a snapshot. drain_cache.c finds their stacks.
	 */
	void (*collect)(struct probes *p, struct event_probe *e, struct taking *t);
	/*
	 * NULL: namespaces share none of the event's tables. If events have tables in common, only
	 * one of them returns these.
	 */
	const struct shared_tables *(*shares)(const struct event_probe *e);
};
extern const struct probe_ops probes_oncpu_ops, probes_offcpu_ops, probes_mem_alloc_ops,
	probes_mem_inuse_ops, probes_hbm_alloc_ops, probes_hbm_inuse_ops,
	probes_on_gpu_ops, probes_rdma_ops, probes_rdma_latency_ops;

/* Each event is also a feature, with the event's number. */
enum feature {
	FEATURE_KERNEL_STACKS = _EVENT_MAX,
	FEATURE_PROCESS_EVENTS,
	FEATURE_CGROUP_EVENTS,
	FEATURE_PROCESS_LIST,
	FEATURE_WHOLE_WAITS, /* long_waits.c works: waits that go on get a stack */
	/* when a sample is taken, the BPF program reads which file is mapped at an address */
	FEATURE_MAPPINGS,
	_FEATURE_MAX,
};

#define MAX_PROGRAM_LINKS 8 /* BPF links that do not belong to an event */

/* ---- suspended.c: the last reading of the clocks ---- */
struct slept {
	uint64_t boot_ns, mono_ns;
	int64_t most_ns; /* CLOCK_BOOTTIME is at most this far ahead of CLOCK_MONOTONIC */
};
/*
 * Returns how long the machine was suspended since the last call. The first call returns 0. A
 * suspension of less than half a second also returns 0.
 */
uint64_t probes_slept_now(struct slept *s);

/* ---- unwind tables on their way into the kernel ---- */
struct chunk_writer {
	int *fds;	/* descriptor of each chunk's map; -1: the chunk has no map */
	uint32_t chunk; /* number of the chunk that is being written */
	uint8_t *bytes; /* content of the chunk that is being written, PF_CHUNK_BYTES */
	bool dirty;	/* the kernel does not have these bytes yet */
	/* chunks that were made or dropped since the outer map was last updated */
	uint32_t told[64];
	size_t n_told;
	int empty_fd; /* the map that replaces dropped chunks in the outer map; -1: not made yet */
};

struct probes {
	struct probe_config config;
	struct pf_config bpf_config;
	struct kernel_types *types; /* set only while objects are loaded at the start; else NULL */
	struct core_bpf *core;
	struct proc_bpf *proc;
	struct event_probe events[_EVENT_MAX];
	struct uprobes *uprobes; /* sets.h: what all probe sets share; NULL: core is not loaded */
	struct bpf_link *links[MAX_PROGRAM_LINKS];
	size_t n_links;
	struct bpf_link *announce; /* NULL: this kernel cannot list processes */
	uint64_t n_forks_announced; /* pf_n_forks when probes_announce() began last */
	struct chunk_writer writer;
	struct support support[_FEATURE_MAX];
	char *reasons[_FEATURE_MAX];

	/* memory of BPF maps that is mapped here */
	struct pf_settings *settings;
	struct pf_unselected *unselected; /* indexed by CPU */
	struct pf_shares *count_shares, *total_shares; /* indexed by slot */
	struct pf_shares *ring_shares, *usage_shares;
	int n_possible_cpus;

	struct wanted_set cgroups, list;
	struct {
		struct share *by_ns; /* hash table */
		uint64_t n_filters;
	} shares; /* shares.c */
	/*
	 * writing the filter failed because the machine lacked something for a moment; the next
	 * full drain tries again
	 */
	bool filter_lacks;
	struct told_cgroup *told;
	/*
	 * number of the last drain, and of the last drain that the current filter takes into
	 * account
	 */
	uint64_t drain_number, known_drain;

	struct ring_buffer *ring;
	/* stacks, names, contexts and texts of each generation */
	struct pending generations[PF_GENERATIONS];
	struct pending now; /* processes and cgroups for the next drain */
	/* of the frames of each generation, in bytes; of the copied stacks in `now` */
	struct pf_shares frame_shares[PF_GENERATIONS], young_shares;
	struct drain_cache *held;
	uint64_t swapped_ns;
	struct slept slept; /* the clocks at swapped_ns */
	/* the part of the kernel's statistics that the counters already contain */
	struct pf_stats last_stats;
};

/* load.c: objects, features, and libbpf's log */
int probes_objects_load(struct probes *p, struct field_error *reterr);
void probes_objects_unload(struct probes *p);
int probes_lend_maps(struct probes *p, struct bpf_object *to);
/*
 * gpu_majors.c: tells the programs which devices are GPUs. If the list of devices cannot be read,
 * those known before stay, and the failure is counted.
 */
void probes_gpu_majors_read(struct probes *p);

/*
 * Runs an iterator's program once for each of its items. Output that the program writes to the
 * reader is dropped.
 */
int probes_iterator_run(struct bpf_link *iterator);
void probes_feature_missing(struct probes *p, int f, const char *fmt, ...) _printf_(3, 4);
void probes_feature_works(struct probes *p, int f);
/*
 * Runs one step of making a feature or an event work. The result becomes its state. If the step
 * fails, the state has libbpf's warning.
 */
int probes_feature_try(struct probes *p, int f, struct event_probe *e,
		       int (*step)(struct probes *p, struct event_probe *e));
int probes_event_try(struct probes *p, enum event event,
		     int (*step)(struct probes *p, struct event_probe *e));
/*
 * r: the result of attach. If it is an error for which probes_may_pass() is true, a full drain
 * tries again later to attach the event.
 */
void probes_event_again_later(struct event_probe *e, int r);
/* r: the result of a step. Returns when to try the step again (CLOCK_MONOTONIC); 0: never. */
uint64_t probes_again_at_ns(int r);
/* If it is time to try again, attaches the event and returns true. */
bool probes_event_again(struct probes *p, struct event_probe *e);

/* ---- filter.c ---- */
void probes_filter_told(struct probes *p, const struct pf_rec_cgroup *r);
void probes_filter_again(struct probes *p);
/* Whether the filter should hold the cgroup. */
bool probes_filter_has(const struct probes *p, uint64_t cgroup_id);
void probes_filter_done(struct probes *p);
void probes_event_stop(struct event_probe *e);

/* ---- shares.c ---- */
/* To be called before the entries of a new filter are made. */
void probes_shares_begin(struct probes *p);
/* Returns pf_filter.share of a namespace. 0: too many namespaces have numbers. */
uint32_t probes_share_of(struct probes *p, uint64_t ns);
/* To be called after user space has added entries to the table. */
void probes_share_more_by(struct pf_shares *table, uint32_t share, uint32_t more);
/* To be called after user space has removed an entry from the table, or `less` entries. */
void probes_share_less(struct pf_shares *table, uint32_t share);
void probes_share_less_by(struct pf_shares *table, uint32_t share, uint32_t less);
/*
 * For a table of user space, with the rule of bpf/shares.h: adds so many entries if the namespace
 * may have them. If not, notes that all its events lack some.
 */
bool probes_share_may_add(struct pf_shares *table, uint32_t share, size_t more, size_t max);
/* Adds to d which namespaces were refused entries since the last call, except of the counts. */
void probes_shares_take_refused(struct probes *p, struct drain *d);
/*
 * To be called after the counts of a generation were taken. Adds to d which namespaces were refused
 * entries of them, and gives each namespace its share of them again.
 */
void probes_shares_take_counts(struct probes *p, uint32_t generation, struct drain *d);
void probes_shares_done(struct probes *p);

/* ---- drain.c ---- */
int probes_counts_open(struct probes *p);
void probes_counts_close(struct probes *p);

/* records.c: the callback of ring_buffer; arg: struct probes */
int probes_record_take(void *arg, void *data, size_t n);

/*
 * drain_cache.c. d is sorted, and its frames are still offsets into its memory. This function adds
 * the items that samples of d refer to and that only earlier drains had. keep: later drains may
 * refer to items of d.
 */
struct drain_cache *probes_cache_new(size_t max_bytes);
struct drain_cache *probes_cache_free(struct drain_cache *h);
size_t probes_cache_bytes(const struct drain_cache *h);
struct pf_shares *probes_cache_shares(struct drain_cache *h); /* in bytes */
void probes_cache_pass(struct drain_cache *h, struct drain *d, uint64_t now_ns, bool keep);

/*
 * contexts.c: adds the context of a record, which may end at PF_CONTEXT_IDS_BYTES; sets the links
 * and labels of all samples once contexts and texts are sorted
 */
void probes_contexts_add(struct pending *g, const struct pf_rec_context *r, size_t n_bytes);
void probes_contexts_link(struct drain *d);

/*
 * live_memory.c: takes a record of an exec or exit. Memory that the process allocated before the
 * exec or exit does not live any more.
 */
void probes_live_ended(struct probes *p, const struct pf_rec_proc *r);
/*
 * live_memory.c: moves the count of lost samples of live events to `into`, also of those that were
 * lost while no drain was made.
 */
void probes_live_take_lost(struct probes *p, struct losses *into);

/* ---- tables.c ---- */
void probes_tables_open(struct probes *p);
void probes_tables_close(struct probes *p);

/*
 * file_tags.c. bpf_config.sees_mappings: programs of this kernel can read what is mapped at an
 * address
 */
uint64_t probes_tags_seed(void);
/*
 * (os) To be called after core is loaded. If this kernel cannot read mappings, returns 0, and
 * FEATURE_MAPPINGS is missing. An error that it returns is one of probes_may_pass().
 */
int probes_tags_open(struct probes *p);
void probes_tags_close(struct probes *p);

/* probe.c: adds up the statistics of all CPUs */
int probes_stats_read(struct probes *p, struct pf_stats *ret);
/*
 * Adds to d the samples and records that the programs have lost since this function was last
 * called, and counts them.
 */
void probes_stats_take_drops(struct probes *p, struct drain *d);
