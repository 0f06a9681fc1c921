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
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_note, off_keep;
	bool listed, context;
};
struct wanted_set {
	struct wanted_events *items;
	size_t n;
};

/* A cgroup that the kernel selected by itself and that a drain has reported. */
struct told_cgroup {
	uint64_t id;
	uint64_t drain; /* the number of that drain */
	UT_hash_handle hh;
};

/* ---- drain: records of one generation, still growing ---- */
struct pending {
	struct drain *d; /* until the end, .frames of stacks are offsets into memory */
	size_t cap_stacks, cap_names, cap_contexts, cap_procs, cap_cgroups, cap_young;
};

/* The samples of a drain while they are added. */
struct taking {
	struct drain *d;
	size_t cap;
	int n_cpus;
};
struct raw_sample *probes_taking_sample(struct taking *t); /* returns the new one */

/* ---- events: a file and a row of the table in probe.c each ---- */
struct event_probe {
	const struct probe_ops *ops;
	struct bpf_object *obj; /* NULL: not opened */
	void *own;		/* data of the event's file from load to unload */
	bool loaded;
	unsigned want_hz, hz; /* 0: detached */
	unsigned n_links;
	uint64_t again_ns; /* CLOCK_MONOTONIC: when to attach it again; 0: not */
};
struct probe_ops {
	/*
	 * Sets own, and obj if the object opens. It uses bpf_config and core's maps
	 * (probes_lend_maps). Work that takes long or much memory is left to attach.
	 */
	int (*load)(struct probes *p, struct event_probe *e);
	void (*unload)(struct event_probe *e);
	/*
	 * Returns the rate that the wanted sets need, or 1 if the event has no rate; 0: nothing
	 * wants the event.
	 */
	unsigned (*rate)(const struct probes *p);
	/* Fills the event's fields of the filter's entry, relative to want_hz. */
	void (*fill)(const struct event_probe *e, const struct wanted_events *w,
		     struct pf_filter *f);
	int (*attach)(struct probes *p, struct event_probe *e); /* at e->hz */
	void (*detach)(struct event_probe *e);
	/*
	 * Called while attached: looks for CPUs that came or went. The result becomes the event's
	 * state.
	 */
	int (*check)(struct probes *p, struct event_probe *e);
	/*
	 * Called in a full drain while attached; may be NULL. Counts waits that go on into the
	 * generation that ends.
	 */
	void (*before_swap)(struct probes *p, struct event_probe *e);
	/*
	 * Called likewise after the counts were taken; may be NULL. Adds samples of a snapshot.
	 * drain_cache.c finds their stacks.
	 */
	void (*collect)(struct probes *p, struct event_probe *e, struct taking *t);
};
extern const struct probe_ops probes_oncpu_ops, probes_offcpu_ops, probes_mem_alloc_ops,
	probes_mem_inuse_ops;

/* An event is also a feature, with the event's number. */
enum feature {
	FEATURE_KERNEL_STACKS = _EVENT_MAX,
	FEATURE_PROCESS_EVENTS,
	FEATURE_CGROUP_EVENTS,
	FEATURE_PROCESS_LIST,
	FEATURE_WHOLE_WAITS, /* a thinned wait that goes on counts for itself alone */
	/* when a sample is taken, the BPF program reads what is mapped at an address */
	FEATURE_MAPPINGS,
	_FEATURE_MAX,
};

#define MAX_PROGRAM_LINKS 8

/* ---- suspended.c: the last look at the clocks ---- */
struct slept {
	uint64_t boot_ns, mono_ns;
	int64_t most_ns; /* CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC by at most this */
};
/*
 * Returns how long the machine was suspended since the last call. The first call returns 0. So does
 * a sleep of less than half a second, which is taken for time that passed.
 */
uint64_t probes_slept_now(struct slept *s);

/* ---- unwind tables on their way into the kernel ---- */
struct chunk_writer {
	int *fds;	   /* descriptor of each chunk's map; -1: there is none */
	uint32_t chunk;	   /* the chunk that is being written */
	uint8_t *bytes;	   /* its PF_CHUNK_BYTES */
	bool dirty;	   /* bytes are not in the kernel yet */
	uint32_t told[64]; /* chunks that were made or dropped since the outer map was updated */
	size_t n_told;
	int empty_fd; /* the map that takes the place of dropped chunks; -1: not made yet */
};

struct probes {
	struct probe_config config;
	struct pf_config bpf_config;
	struct kernel_types *types; /* only while objects are loaded at the start; else NULL */
	struct core_bpf *core;
	struct proc_bpf *proc;
	struct event_probe events[_EVENT_MAX];
	struct bpf_link *links[MAX_PROGRAM_LINKS];
	size_t n_links;
	struct bpf_link *announce; /* NULL: this kernel cannot list processes */
	struct chunk_writer writer;
	struct support support[_FEATURE_MAX];
	char *reasons[_FEATURE_MAX];

	/* mapped from the kernel */
	struct pf_settings *settings;
	struct pf_unselected *unselected; /* indexed by CPU */
	int n_possible_cpus;

	struct wanted_set cgroups, list;
	/* the machine lacked something for a moment; the next full drain tries again */
	bool filter_lacks;
	struct told_cgroup *told;
	/* of the last drain; of the last one that the current filter takes into account */
	uint64_t drain_number, known_drain;

	struct ring_buffer *ring;
	struct pending generations[PF_GENERATIONS]; /* stacks and names */
	struct pending now;			    /* processes and cgroups */
	struct drain_cache *held;
	uint64_t swapped_ns;
	struct slept slept;	    /* up to swapped_ns */
	struct pf_stats last_stats; /* already added to the counters */
};

/* load.c: objects, features, and libbpf's log */
int probes_objects_load(struct probes *p, struct field_error *reterr);
void probes_objects_unload(struct probes *p);
int probes_lend_maps(struct probes *p, struct bpf_object *to);
/* filter.c: returns whether a selected cgroup or process asks for the event */
bool probes_event_is_wanted(const struct probes *p, enum event event);

/*
 * Runs an iterator's program once over all its items. What the program itself writes to the reader
 * is thrown away.
 */
int probes_iterator_run(struct bpf_link *iterator);
void probes_feature_missing(struct probes *p, int f, const char *fmt, ...) _printf_(3, 4);
void probes_feature_works(struct probes *p, int f);
/* Runs a step towards a feature or an event. The result becomes its state, with libbpf's reason. */
int probes_feature_try(struct probes *p, int f, struct event_probe *e,
		       int (*step)(struct probes *p, struct event_probe *e));
int probes_event_try(struct probes *p, enum event event,
		     int (*step)(struct probes *p, struct event_probe *e));
/*
 * If an event failed with an error r that probes_may_pass(), a full drain attaches it again later.
 */
void probes_event_again_later(struct event_probe *e, int r); /* r: result of attach */
/* Returns when to try again what failed with r (CLOCK_MONOTONIC); 0: not. */
uint64_t probes_again_at_ns(int r);
/* returns whether it was time to try */
bool probes_event_again(struct probes *p, struct event_probe *e);

/* filter.c */
void probes_filter_told(struct probes *p, const struct pf_rec_cgroup *r);
void probes_filter_again(struct probes *p);
void probes_filter_done(struct probes *p);
void probes_event_stop(struct event_probe *e);

/* drain.c */
int probes_counts_open(struct probes *p);
void probes_counts_close(struct probes *p);

/* records.c: the callback of ring_buffer; arg: struct probes */
int probes_record_take(void *arg, void *data, size_t n);

/*
 * drain_cache.c. keep: later drains may refer to items of this drain. The drain is sorted, and its
 * frames are still offsets into its memory. It gets the items that its samples refer to and that
 * only earlier drains had.
 */
struct drain_cache *probes_cache_new(size_t max_bytes);
struct drain_cache *probes_cache_free(struct drain_cache *h);
size_t probes_cache_bytes(const struct drain_cache *h);
void probes_cache_pass(struct drain_cache *h, struct drain *d, uint64_t now_ns, bool keep);

/* contexts.c: takes a record; when all are sorted, sets the links of the samples */
void probes_contexts_add(struct pending *g, const struct pf_rec_context *r);
void probes_contexts_link(struct drain *d);

/*
 * live_memory.c: takes a record of an exec or exit: what the process allocated before does not live
 * any more
 */
void probes_live_ended(struct probes *p, const struct pf_rec_proc *r);
/* live_memory.c: moves the samples of mem-inuse that were lost, also while no drain was made. */
void probes_live_take_lost(struct probes *p, struct losses *into);

/* tables.c */
void probes_tables_open(struct probes *p);
void probes_tables_close(struct probes *p);

/* file_tags.c. bpf_config.sees_mappings says whether the kernel's mappings can be read. */
uint64_t probes_tags_seed(void);
/*
 * (os) To be called after core is loaded. Returns 0 also if this kernel cannot do it:
 * FEATURE_MAPPINGS says so. An error may pass.
 */
int probes_tags_open(struct probes *p);
void probes_tags_close(struct probes *p);

/* probe.c: sums the per-CPU statistics */
int probes_stats_read(struct probes *p, struct pf_stats *ret);
/* Adds to d what the programs have lost since the last call, and counts it. */
void probes_stats_take_drops(struct probes *p, struct drain *d);
