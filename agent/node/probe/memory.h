/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private header of memory events: what memory.c, attach.c, detach.c, uprobe.c, spans.c and
 * live_memory.c share.
 */
#pragma once

#include <pthread.h>

#include "node/probe/internal.h"

/* How this kernel attaches uprobes; a higher value is better. */
enum uprobe_mode {
	UPROBE_NONE,
	UPROBE_SINGLE,	/* perf_event_open(): one event for each place */
	UPROBE_MULTI,	/* one link for many places of a file (6.6) */
	/* also one program for entry and return, whose entry can skip the return (6.13) */
	UPROBE_SESSION,
};

/* These are in linux/bpf.h since 6.6 and 6.13. */
#define ATTACH_UPROBE_MULTI   48
#define ATTACH_UPROBE_SESSION 57
#define UPROBE_MULTI_RETURN   1u
#define UPROBE_NOT_SUPPORTED                                                                       \
	524 /* the kernel's ENOTSUPP: an instruction that it cannot step over */
#define UPROBE_SINGLE_MAX_OF_ATTACH 128 /* each takes up to 0.1 s to detach */

/*
 * In the order in which they are attached. Ends come first, so that no allocation is seen whose end
 * cannot be seen.
 */
enum memory_program {
	MEMORY_FREE,
	MEMORY_RETURN,	/* if there are no sessions */
	MEMORY_SESSION, /* entry, and the return if the entry wants it */
	MEMORY_ENTRY,
	_MEMORY_PROGRAM_MAX
};

struct memory_probes {
	struct memory_bpf *bpf; /* NULL: neither event was wanted yet */
	int load_error; /* of the last try to load */
	enum uprobe_mode mode;
	size_t max_single; /* UPROBE_SINGLE_MAX_OF_ATTACH; less in a test */
	int programs[_MEMORY_PROGRAM_MAX];	   /* -1: not loaded */
	int programs_of_one[_MEMORY_PROGRAM_MAX]; /* the same for UPROBE_SINGLE; -1: not loaded */
	int procs, live, pending, live_stats;
	int n_cpus;
	bool returns_tried;
	int returns; /* 0: probed returns are safe; an error that may pass: not known yet */

	pthread_mutex_t lock;
	struct attached *attached; /* the key is attached.key */
	unsigned n_links;
	unsigned n_leaving;   /* atomic; above 0: urgent */
	uint64_t n_moves;     /* atomic: links that were made or closed */
	uint64_t snapshot_ns; /* CLOCK_BOOTTIME of the last snapshot */
	struct slept slept;   /* since pending calls were last checked */
	uint64_t woke_ns;     /* CLOCK_BOOTTIME: when a sleep of the machine was last noticed */
	bool asked;	      /* a snapshot is wanted now */
	uint64_t user_removed, evicted;
	struct losses lost;   /* that no drain has yet */
	int trap_link;	       /* a probe of the agent itself; 0: none yet */
	double trap_ns;	       /* 0: not measured yet */
	unsigned stepped_more; /* written by the attaching thread; 0: not measured yet */
};

/* The probes of one file by one program; for UPROBE_SINGLE, of one place. */
struct attached_link {
	int fd;
	enum memory_program program;
	uint64_t dev, ino; /* of the file */
	uint64_t *offsets, *cookies;
	size_t n;
	uint32_t tid; /* the thread by which the kernel finds the process */
	bool goes;    /* set while a process's probes are changed: it will be closed */
};
struct attached {
	struct pf_process_key key;
	struct memory_probes *memory;
	uint32_t tid;  /* thread of the links that are made now: see attach.c */
	int thread_fd; /* proc_thread_open() of tid; -1: none */
	bool inuse;
	bool leaving;	   /* counted in n_leaving until detaching begins */
	bool added;	   /* its entry in procs is its own */
	bool ended;	   /* the process has ended, or runs another program now */
	uint64_t since_ns; /* CLOCK_BOOTTIME: older entries belong to an earlier struct attached */
	uint64_t names;	   /* of the last sample of mem-inuse */
	bool in_snapshot;
	struct attached_link *links;
	size_t n_links, cap_links;
	UT_hash_handle hh;
};

/* memory.c */
/* NULL: it does not work here, or is not wanted */
struct memory_probes *probes_memory_of(struct probes *p);
/*
 * Returns why probes_memory_of() is NULL. -EAGAIN: the event was asked for just now, and its object
 * is still to be loaded. -ENOMEM and the like: the machine lacked that for a moment. -EOPNOTSUPP:
 * it cannot work here.
 */
int probes_memory_missing(struct probes *p);

/* uprobe.c */
enum uprobe_mode probes_uprobe_mode(void);
/* The places of one file for one program. */
struct uprobe_places {
	int prog, attach_type;
	bool at_return;
	uint32_t pid; /* UPROBE_SINGLE: any thread of the process; else the process */
	char path[32];
	uint64_t *offsets, *cookies;
	size_t n;
};
/* Attaches n places beginning at from; for UPROBE_SINGLE n is 1. Returns a link, or -errno. */
int probes_uprobe_attach(enum uprobe_mode mode, const struct uprobe_places *b, size_t from,
			 size_t n);
/* Attaches a program that does nothing, and returns its link or -errno. */
int probes_uprobe_attach_trivial(enum uprobe_mode mode, const char *path, uint64_t offset,
				 uint32_t pid, bool at_return);

/*
 * uprobe_try.c: tries a probed return. -EPERM: it kills a process that has a seccomp filter.
 * Another error: it could not be tried.
 */
int probes_uprobe_try_return(enum uprobe_mode mode);
/* Returns the extra cost of a hit whose instruction is stepped over, in hits. */
unsigned probes_uprobe_stepped_more(enum uprobe_mode mode);
/*
 * Returns the CPU time of a call: the median of some bursts. If a host takes the CPU away during a
 * burst, that burst takes ten times as long.
 */
uint64_t probes_call_typical_ns(void (*function)(void));

/*
 * probe_offset.c: returns where a probe of the function at this offset of the file is cheap and
 * means the same
 */
uint64_t probes_emulated_place(int fd, uint64_t offset);
size_t probes_emulated_distance(const uint8_t *code, size_t n);
bool probes_is_emulated(const uint8_t code[static 2]);

/*
 * spans.c: returns whether a process must be detached quickly; no other process is attached before
 * that
 */
bool probes_memory_is_urgent(const struct memory_probes *m);

/* spans.c: counts a link that was made or closed */
void probes_memory_moves(struct memory_probes *m);

/* detach.c: close the links that are marked; close those from index `from` on */
void probes_links_close_going(struct attached **items, size_t n);
void probes_links_close_from(struct attached *a, size_t from);

/* live_memory.c */
/* Removes entries that belong to no attached process. */
void probes_live_forget(struct memory_probes *m);
/* Adds a snapshot of living memory to a full drain, if it is time for one. */
void probes_live_collect(struct probes *p, struct event_probe *e, struct taking *t);
