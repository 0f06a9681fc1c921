/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private header of probe sets: what sets.c, the file of each set (memory.c; gpu_memory.c with
 * gpu_ends.c and gpu_carve.c; on_gpu.c; rdma.c; rdma_latency.c), places.c, attach.c, detach.c,
 * uprobe.c, uprobe_try.c, spans.c and live_memory.c share.
 */
#pragma once

#include <pthread.h>

#include "node/probe/internal.h"

/* The ways in which a kernel attaches uprobes. A higher value is better. */
enum uprobe_mode {
	UPROBE_NONE,
	UPROBE_SINGLE, /* perf_event_open(): one perf event for each place */
	UPROBE_MULTI,  /* one link for many places of a file (since 6.6) */
	/* also one program for entry and return: its entry can skip the return (since 6.13) */
	UPROBE_SESSION,
};

/* These are in linux/bpf.h since 6.6 and 6.13. */
#define ATTACH_UPROBE_MULTI   48
#define ATTACH_UPROBE_SESSION 57
#define UPROBE_MULTI_RETURN   1u
#define UPROBE_NOT_SUPPORTED                                                                       \
	524 /* the kernel's ENOTSUPP: an instruction that it cannot step over */
#define UPROBE_SINGLE_MAX_OF_ATTACH 128 /* probes of one set in a process; 0.1 s each to detach */

/*
 * The programs of a set. They are attached in this order. Those for the end of an allocation come
 * first. So the programs see the end of each allocation whose begin they saw.
 */
enum set_program {
	PROGRAM_FREE,
	PROGRAM_RETURN,	 /* used if the kernel has no sessions */
	PROGRAM_SESSION, /* runs at the entry, and also at the return if the entry asks for that */
	PROGRAM_ENTRY,
	_PROGRAM_MAX
};

/* How a site is probed. */
enum site_probed {
	PROBED_NOT,
	PROBED_BY_FREE,	 /* by a program PROGRAM_FREE */
	PROBED_AT_ENTRY, /* by a program PROGRAM_ENTRY */
	/* at entry and return: by PROGRAM_SESSION, or by PROGRAM_ENTRY and PROGRAM_RETURN */
	PROBED_AT_BOTH,
	/* PROBED_AT_BOTH until probes_attached_queried(); PROBED_NOT with UPROBE_SINGLE */
	PROBED_AS_QUERY,
	/* PROBED_AT_ENTRY until probes_attached_queried(); PROBED_NOT with UPROBE_SINGLE */
	PROBED_AS_OBJECT,
};

/* A set's BPF object, and the programs and maps of its skeleton, by their use. */
struct set_object {
	void *bpf; /* the skeleton's struct, such as struct memory_bpf; NULL: not opened */
	struct bpf_object_skeleton *skeleton;
	struct bpf_object *obj;
	/*
	 * The kernel allows a program for one form of probes only, so each program exists twice:
	 * for links of many places, and for UPROBE_SINGLE. NULL: the set has no such program.
	 */
	struct bpf_program *of_many[_PROGRAM_MAX], *of_one[_PROGRAM_MAX];
	/*
	 * Maps: see struct pf_mem_proc and below it in bpf/abi.h. NULL: the set has no such map;
	 * live exists only in a set with a live event.
	 */
	struct bpf_map *procs, *pending, *live;
	struct bpf_map *functions; /* rdma_functions; NULL: the set is not one of RDMA */
};

struct probe_set_state;
/* A piece of living memory in a snapshot. */
struct live_piece {
	struct pf_live_key key;
	uint64_t bytes;
	uint64_t *row; /* the value of the snapshot's row that the piece is part of */
};
/* The settings and functions in which sets differ. */
struct set_ops {
	/* 1 << event, for each event that does not work without probed returns */
	unsigned need_returns;
	/* The set needs PROGRAM_ENTRY even with sessions: some of its sites are PROBED_AT_ENTRY. */
	bool has_entries;
	/* If two links probe a place, each call counts once. */
	bool twice_is_once;
	/* Any probed call takes less time than this, unless the machine is suspended meanwhile. */
	uint64_t call_ns;
	/* Opens s->object with this configuration. It is loaded later. */
	int (*open)(struct probe_set_state *s, const struct pf_config *config);
	void (*destroy)(struct probe_set_state *s);
	/* Returns how the site is probed for these events. */
	enum site_probed (*probed)(const struct pf_site *site, unsigned event_mask);
	/*
	 * Returns whether the live event is wrong if the kernel refuses to probe the site: freed
	 * memory would seem to live. NULL: the set has no live event.
	 */
	bool (*live_needs)(const struct pf_site *site);
	/*
	 * Returns whether the process has not used the probed code yet; NULL: this does not matter.
	 */
	bool (*is_unused)(uint32_t tgid);
	/*
	 * Returns whether the return of a call in the map `pending` is still probed for these
	 * events; NULL: all are.
	 */
	bool (*return_probed)(const struct pf_pending *call, unsigned event_mask);
	/*
	 * Forgets what the set knows of processes that are not attached, or have ended; NULL:
	 * probes_live_forget() does.
	 */
	void (*forget)(struct probe_set_state *s);
	/*
	 * Changes the values of a snapshot's rows, before they become samples; NULL: the set does
	 * not. pieces: all living memory of attached processes. The caller holds the lock.
	 */
	void (*carve)(struct probe_set_state *s, struct live_piece *pieces, size_t n);
	/*
	 * The functions for memory that ends without a call that frees it; NULL: the set has no
	 * such memory. ends_read() is called before the map of living memory is read, and
	 * ends_done() once all entries were read and those that have ended were removed.
	 * has_ended() counts memory that may have ended as lost, and returns true for it. The
	 * caller holds the lock.
	 */
	int (*ends_read)(struct probe_set_state *s);
	bool (*has_ended)(struct probe_set_state *s, const struct attached *a,
			  const struct pf_live_key *k, const struct pf_live *l);
	void (*ends_done)(struct probe_set_state *s);
};
extern const struct set_ops probes_memory_set, probes_gpu_memory_set, probes_gpu_set,
	probes_rdma_set, probes_rdma_latency_set;

struct gpu_ends; /* gpu_ends.c */
struct probe_set_state {
	const struct probe_set_info *info;
	const struct set_ops *ops;
	struct uprobes *uprobes;
	struct set_object object;
	bool loaded;	/* atomic; false: no target has wanted an event of the set yet */
	int load_error; /* atomic: result of the last try to load the object */
	int of_many[_PROGRAM_MAX], of_one[_PROGRAM_MAX]; /* descriptors; -1: not loaded */
	int procs, pending, live;

	pthread_mutex_t lock;
	/* hash table of the attached processes; its key is attached.key */
	struct attached *attached;
	unsigned n_links;
	/* CLOCK_BOOTTIME of the last snapshot, or, of PROBES_GPU, search for old launches */
	uint64_t snapshot_ns;
	struct slept slept;   /* the clocks when entries of `pending` were last checked */
	/* CLOCK_BOOTTIME: when the agent last noticed that the machine had been suspended */
	uint64_t woke_ns;
	bool asked;	    /* the next full drain must have a snapshot */
	struct losses lost; /* losses that no drain has reported yet */
	struct shared_tables shares;
	struct gpu_ends *gpu_ends; /* NULL: the set is not PROBES_GPU_MEMORY, or not loaded */
};

/* What all sets share. */
struct uprobes {
	enum uprobe_mode mode;
	size_t max_single; /* UPROBE_SINGLE_MAX_OF_ATTACH; a test sets a smaller value */
	int n_cpus;
	bool returns_tried;
	/*
	 * 0: probed returns are safe; an error that may pass: this is not known yet; any other
	 * error: they are not safe, or this cannot be found out
	 */
	int returns;
	/*
	 * atomic: number of calls of probes_leave() whose detach has not begun, and of
	 * probes_attach_no_more(); as long as it is above 0, no process gets attached
	 */
	unsigned n_leaving;
	uint64_t n_moves; /* atomic: number of links that were made or closed so far */
	int trap_link;	  /* link of a probe of the agent itself; 0: not attached yet */
	double trap_ns;	  /* cost of one hit; 0: not measured yet */
	/* see probes_uprobe_stepped_more(); written by the attaching thread; 0: not measured yet */
	unsigned stepped_more;
	struct probe_set_state sets[_PROBES_SET_MAX];
};

/* A link: the probes of one file by one program. With UPROBE_SINGLE, the probe of one place. */
struct attached_link {
	int fd;
	enum set_program program;
	uint64_t dev, ino; /* device and inode of the probed file */
	uint64_t *offsets, *cookies;
	size_t n;
	uint32_t tid; /* the thread whose memory the kernel probes: see attach.c */
	bool goes;    /* set while a process's probes are changed: the link will be closed */
};
struct attached {
	struct pf_process_key key;
	struct probe_set_state *set;
	uint32_t tid;	 /* thread for the links that are made now: see attach.c */
	int thread_fd;	 /* proc_thread_open() of the thread tid; -1: not open */
	bool inuse;	 /* the set's live event is attached */
	bool no_queries; /* sites PROBED_AS_QUERY are not probed */
	bool no_objects; /* sites PROBED_AS_OBJECT are not probed */
	/* probes_leave() was called; counted in n_leaving until detaching begins */
	bool leaving;
	bool added; /* this struct has added the process's entry in the map procs */
	bool ended; /* the process has ended, or runs another program now */
	/*
	 * CLOCK_BOOTTIME: entries of living memory before this belong to an earlier struct attached
	 */
	uint64_t since_ns;
	uint32_t launches_ms; /* pf_mem_proc.launches_ms when the process was attached */
	uint64_t names; /* hash of the names in the last sample of the live event */
	bool in_snapshot;
	struct attached_link *links;
	size_t n_links, cap_links;
	UT_hash_handle hh;
};

/* ---- sets.c ---- */
struct uprobes *probes_uprobes_new(int n_cpus);
struct uprobes *probes_uprobes_free(struct uprobes *u);
/*
 * Returns the set once its object is loaded. NULL: the set's events do not work here, or no target
 * wants them.
 */
struct probe_set_state *probes_set_loaded(struct probes *p, enum probe_set set);
/*
 * Returns why probes_set_loaded() is NULL. -EAGAIN: a target has just asked for the event, and its
 * object is not loaded yet. -ENOMEM and other errors that may pass: what the machine lacked when
 * the object was loaded. -EOPNOTSUPP: the event cannot work here.
 */
int probes_set_missing(struct probes *p, enum probe_set set);
/* Members of struct probe_ops, for the events of all sets. */
int probes_set_open(struct probes *p, struct event_probe *e);
void probes_set_unload(struct event_probe *e);
int probes_set_attach(struct probes *p, struct event_probe *e);
void probes_set_detach(struct event_probe *e);
int probes_set_check(struct probes *p, struct event_probe *e);
/* A member of struct probe_ops, for one event of a set. */
const struct shared_tables *probes_set_shares(const struct event_probe *e);
/* These members, as initializers. */
#define PROBES_SET_EVENT                                                                           \
	.load = probes_set_open, .unload = probes_set_unload, .attach = probes_set_attach,         \
	.detach = probes_set_detach, .check = probes_set_check

/* ---- uprobe.c ---- */
enum uprobe_mode probes_uprobe_mode(void);
/* The places of one file that one program probes. */
struct uprobe_places {
	int prog, attach_type;
	bool at_return;
	uint32_t pid; /* UPROBE_SINGLE: any thread of the process; else the process's id */
	char path[32];
	uint64_t *offsets, *cookies;
	uint64_t *semaphores; /* struct probe_site */
	size_t n;
};
/*
 * Attaches n places, beginning at index `from`. For UPROBE_SINGLE n is 1. Returns a link, or
 * -errno. -ERANGE: for UPROBE_SINGLE a semaphore must lie within the first 4 GiB of the file.
 */
int probes_uprobe_attach(enum uprobe_mode mode, const struct uprobe_places *b, size_t from,
			 size_t n);
/* Attaches a program that does nothing, and returns its link or -errno. */
int probes_uprobe_attach_trivial(enum uprobe_mode mode, const char *path, uint64_t offset,
				 uint32_t pid, bool at_return);

/* ---- places.c ---- */
/* The places of one file that one program will probe. */
struct places {
	struct uprobe_places u;
	enum set_program program;
	uint64_t dev, ino;
};
/*
 * Returns the form of links that the process would get now: UPROBE_SINGLE once its first thread has
 * ended.
 */
enum uprobe_mode probes_mode_of(const struct attached *a);
/*
 * Returns the places of all n files for all programs, _PROGRAM_MAX * n, in the order of enum
 * set_program.
 */
struct places *probes_places_all(const struct attached *a, const struct probe_file *files, size_t n,
				 unsigned event_mask);
void probes_places_free(struct places *all, size_t n);
/*
 * Removes from `all` the places that are attached already, and marks the links that must be closed.
 * Returns whether a marked link may still be hit.
 */
bool probes_places_difference(struct attached *a, struct places *all, size_t n);

/*
 * uprobe_try.c: tries a probed return in a child. -EPERM: a probed return kills a process that has
 * a seccomp filter. Another error: the trial could not be made.
 */
int probes_uprobe_try_return(enum uprobe_mode mode);
/*
 * If the kernel must step over the probed instruction, a hit costs more than one at an instruction
 * that it emulates. Returns how much more, in hits of the cheaper kind.
 */
unsigned probes_uprobe_stepped_more(enum uprobe_mode mode);
/*
 * Returns the CPU time of a call of the function, the median of some bursts of calls. If a
 * hypervisor takes the CPU away during a burst, that burst takes ten times as long.
 */
uint64_t probes_call_typical_ns(void (*function)(void));

/*
 * probe_offset.c: returns the file offset, at or shortly after this one, where a probe is cheap and
 * sees the same call of the function.
 */
uint64_t probes_emulated_place(int fd, uint64_t offset);
size_t probes_emulated_distance(const uint8_t *code, size_t n);
bool probes_is_emulated(const uint8_t code[static 2]);

/*
 * spans.c: returns whether a process must be detached quickly. Until that is done, no other process
 * is attached.
 */
bool probes_is_urgent(const struct uprobes *u);

/*
 * spans.c: sets no_queries and no_objects, if these were hit often. The next change of the probes
 * removes theirs.
 */
void probes_note_often(struct attached *a);

/* spans.c: counts a link that was made or closed */
void probes_moved(struct uprobes *u);

/* detach.c: the first function closes the marked links, the second those from index `from` on */
void probes_links_close_going(struct attached **items, size_t n);
void probes_links_close_from(struct attached *a, size_t from);

/* rdma.c: removes the functions of processes that have ended. A member of struct set_ops. */
void probes_rdma_forget(struct probe_set_state *s);

/* ---- live_memory.c ---- */
/* Removes what is known of the memory and the calls of processes that are not attached. */
void probes_live_forget(struct probe_set_state *s);
/* Adds a snapshot of living memory to a full drain, if it is time for one. */
void probes_live_collect(struct probes *p, struct event_probe *e, struct taking *t);

/*
 * gpu_ends.c: which memory of GPUs ended with its context; members of struct set_ops. objects: the
 * map gpu_objects.
 */
struct gpu_ends *probes_gpu_ends_new(struct bpf_map *objects);
struct gpu_ends *probes_gpu_ends_free(struct gpu_ends *e);
int probes_gpu_ends_read(struct probe_set_state *s);
bool probes_gpu_has_ended(struct probe_set_state *s, const struct attached *a,
			  const struct pf_live_key *k, const struct pf_live *l);
void probes_gpu_ends_done(struct probe_set_state *s);
/* Where a process maps memory that cuMemCreate() made. */
struct gpu_mapping {
	struct pf_live_key key; /* that of the map gpu_objects */
	uint64_t handle, bytes;
};
/* Returns the mappings that the last probes_gpu_ends_read() saw; borrowed until the next one. */
const struct gpu_mapping *probes_gpu_mappings(const struct gpu_ends *e, size_t *ret_n);

/* gpu_carve.c: objects in the memory of the driver; a member of struct set_ops */
void probes_gpu_carve(struct probe_set_state *s, struct live_piece *pieces, size_t n);
