/* SPDX-License-Identifier: Apache-2.0 */
/* internal: what the files of probe/ share and nobody else sees. */
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/abi.h"
#include "node/probe/probe.h"
#include "node/probe/types.h"

#include <uthash.h>

/* ---- the set that the filter should hold, sorted by key ---- */
struct wanted {
	uint64_t key; /* cgroup id, or tgid */
	uint64_t start_boottime_ns;
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_note, off_keep;
	bool listed, context;
};
struct wanted_set {
	struct wanted *items;
	size_t n;
};

/* A cgroup that the kernel selected by itself and that a drain has told of. */
struct told_cgroup {
	uint64_t id;
	uint64_t drain; /* the number of that drain */
	UT_hash_handle hh;
};

/* ---- drain: records of one generation, still growing ---- */
struct pending {
	struct drain *d; /* .frames of stacks are offsets into memory until the end */
	size_t cap_stacks, cap_names, cap_contexts, cap_procs, cap_cgroups, cap_young;
};

/* The samples of a drain while they are added. */
struct taking {
	struct drain *d;
	size_t cap;
	int n_cpus;
};
struct raw_sample *probes_taking_sample(struct taking *t); /* the new one */

/* ---- events: a file and a row of the table in probe.c each ---- */
struct event_probe {
	const struct probe_ops *ops;
	struct bpf_object *obj; /* NULL: not even opened */
	void *own;		/* what the file keeps from load to unload */
	bool loaded;
	unsigned want_hz, hz; /* 0: detached */
	unsigned n_links;
	uint64_t again_ns; /* CLOCK_MONOTONIC: when to attach it once more; 0: not */
};
struct probe_ops {
	/*
	 * Sets own, and obj when it opens; with bpf_config and core's maps (probes_lend_maps). What takes long or
	 * much memory waits for attach.
	 */
	int (*load)(struct probes *p, struct event_probe *e);
	void (*unload)(struct event_probe *e);
	/* The rate that the wanted sets ask of it, 1 where it has none; 0: nobody wants it. */
	unsigned (*rate)(const struct probes *p);
	/* Its fields of the filter's entry, relative to want_hz. */
	void (*fill)(const struct event_probe *e, const struct wanted *w, struct pf_filter *f);
	int (*attach)(struct probes *p, struct event_probe *e); /* at hz */
	void (*detach)(struct event_probe *e);
	/* While attached: CPUs that came or went. What it finds becomes the event's state. */
	int (*check)(struct probes *p, struct event_probe *e);
	/* Of a full drain, while attached; may be NULL. Counts what goes on into the generation that ends. */
	void (*before_swap)(struct probes *p, struct event_probe *e);
	/* The same, once its counts are taken: adds samples of a snapshot. Their stacks are looked for in held.c. */
	void (*collect)(struct probes *p, struct event_probe *e, struct taking *t);
};
extern const struct probe_ops probes_oncpu_ops, probes_offcpu_ops, probes_mem_alloc_ops, probes_mem_inuse_ops;

/* An event is a feature too, by its number. */
enum feature {
	FEATURE_KERNEL_STACKS = _EVENT_MAX,
	FEATURE_PROCESS_EVENTS,
	FEATURE_CGROUP_EVENTS,
	FEATURE_PROCESS_LIST,
	FEATURE_WHOLE_WAITS, /* thinned waits that go on count for themselves alone */
	FEATURE_MAPPINGS,    /* what is mapped at an address is looked at when a sample is taken */
	_FEATURE_MAX,
};

#define MAX_PROGRAM_LINKS 8

/* ---- slept.c: the last look at the clocks ---- */
struct slept {
	uint64_t boot_ns, mono_ns;
	int64_t most_ns; /* CLOCK_BOOTTIME is before CLOCK_MONOTONIC by no more */
};
/*
 * How long the machine was suspended since the last time; the first time says nothing. A sleep of less than half a second is taken
 * for time that passed: 0.
 */
uint64_t probes_slept_now(struct slept *s);

/* ---- unwind tables on their way into the kernel ---- */
struct chunk_writer {
	int *fds;	   /* of each chunk; -1: there is none */
	uint32_t chunk;	   /* the one at hand */
	uint8_t *bytes;	   /* its PF_CHUNK_BYTES */
	bool dirty;	   /* they are not in the kernel yet */
	uint32_t told[64]; /* chunks made or dropped that the outer map is not told of yet */
	size_t n_told;
	int empty_fd; /* what stands for dropped ones; -1: not made */
};

struct probes {
	struct probe_config config;
	struct pf_config bpf_config;
	struct kernel_types *types; /* while objects are loaded at the start; else NULL */
	struct core_bpf *core;
	struct proc_bpf *proc;
	struct event_probe events[_EVENT_MAX];
	struct bpf_link *links[MAX_PROGRAM_LINKS];
	size_t n_links;
	struct bpf_link *announce; /* NULL: this kernel cannot list processes */
	struct chunk_writer writer;
	struct support support[_FEATURE_MAX];
	char *reasons[_FEATURE_MAX];

	/* mmapped from the kernel */
	struct pf_settings *settings;
	struct pf_unselected *unselected; /* by CPU */
	int n_possible_cpus;

	struct wanted_set cgroups, list;
	bool filter_lacks; /* what the machine lacked for a moment; the next full drain tries again */
	struct told_cgroup *told;
	uint64_t drain_number,
		known_drain; /* of the last one; that the filter which is wanted knows of */

	struct ring_buffer *ring;
	struct pending generations[PF_GENERATIONS]; /* stacks and names */
	struct pending now;			    /* processes and cgroups */
	struct held *held;
	uint64_t swapped_ns;
	struct slept slept;	    /* until then */
	struct pf_stats last_stats; /* what the counters already know */
};

/* load.c: objects, features, log of libbpf */
int probes_objects_load(struct probes *p, struct field_error *reterr);
void probes_objects_unload(struct probes *p);
int probes_lend_maps(struct probes *p, struct bpf_object *to);
/* filter.c: whether somebody selected asks for it */
bool probes_event_is_wanted(const struct probes *p, enum event event);

/* Once over all that an iterator's program is for; what it writes itself is thrown away. */
int probes_iterator_run(struct bpf_link *iterator);
void probes_feature_missing(struct probes *p, int f, const char *fmt, ...) _printf_(3, 4);
void probes_feature_works(struct probes *p, int f);
/* A step towards a feature, or an event: whether it works becomes its state, with libbpf's reason. */
int probes_feature_try(struct probes *p, int f, struct event_probe *e,
		int (*step)(struct probes *p, struct event_probe *e));
int probes_event_try(struct probes *p, enum event event,
	      int (*step)(struct probes *p, struct event_probe *e));
/* An event that could not be attached for what probes_may_pass() is attached again, in a full drain. */
void probes_event_again_later(struct event_probe *e, int r); /* r: of attaching it */
uint64_t probes_again_at_ns(int r); /* CLOCK_MONOTONIC: when what failed with r is tried again; 0: not */
bool probes_event_again(struct probes *p, struct event_probe *e); /* whether it was time to */

/* filter.c */
void probes_filter_told(struct probes *p, const struct pf_rec_cgroup *r);
void probes_filter_again(struct probes *p);
void probes_filter_done(struct probes *p);
void probes_event_stop(struct event_probe *e);

/* drain.c */
int probes_counts_open(struct probes *p);
void probes_counts_close(struct probes *p);

/* records.c: ring_buffer's callback; arg: struct probes */
int probes_record_take(void *arg, void *data, size_t n);

/*
 * held.c: keep: items of this drain may be referred to by later ones. The drain is sorted, its frames are offsets
 * into its memory still; it gets what its samples refer to and only earlier drains had.
 */
struct held *probes_held_new(size_t max_bytes);
struct held *probes_held_free(struct held *h);
size_t probes_held_bytes(const struct held *h);
void probes_held_pass(struct held *h, struct drain *d, uint64_t now_ns, bool keep);

/* contexts.c: a record, and, when all are sorted, the samples' links */
void probes_contexts_add(struct pending *g, const struct pf_rec_context *r);
void probes_contexts_link(struct drain *d);

/* live.c: by a record of its exec or exit: what a process allocated before is not there any more */
void probes_live_ended(struct probes *p, const struct pf_rec_proc *r);

/* tables.c */
void probes_tables_open(struct probes *p);
void probes_tables_close(struct probes *p);

/* tags.c: whether the kernel's mappings can be read decides bpf_config.sees_mappings */
uint64_t probes_tags_seed(void);
/*
 * (oe) After core is loaded. 0 where this kernel cannot, too: FEATURE_MAPPINGS tells. An error may
 * pass.
 */
int probes_tags_open(struct probes *p);
void probes_tags_close(struct probes *p);

/* stats.c: sums the per-CPU statistics */
int probes_stats_read(struct probes *p, struct pf_stats *ret);
void probes_stats_count_drops(struct probes *p);
