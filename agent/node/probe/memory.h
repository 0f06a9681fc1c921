/* SPDX-License-Identifier: Apache-2.0 */
/* memory: what memory.c, attach.c, uprobe.c and live.c share and nobody else sees. */
#pragma once

#include <pthread.h>

#include "node/probe/internal.h"

/* How this kernel attaches uprobes, the better the higher. */
enum uprobe_mode {
	UPROBE_NONE,
	UPROBE_SINGLE,	/* perf_event_open(): one a place */
	UPROBE_MULTI,	/* one link for many places of a file (6.6) */
	UPROBE_SESSION, /* and one program for entry and return, which the entry can skip (6.13) */
};

/* In linux/bpf.h since 6.6, 6.13. */
#define ATTACH_UPROBE_MULTI   48
#define ATTACH_UPROBE_SESSION 57
#define UPROBE_MULTI_RETURN   1u
#define UPROBE_NOT_SUPPORTED                                                                       \
	524 /* ENOTSUPP of the kernel: an instruction that it cannot step over */
#define UPROBE_SINGLE_MAX_OF_ATTACH 128 /* each takes up to 0.1 s to detach */

/* In the order that they are attached: ends first, so nothing is seen to be made whose end is not. */
enum memory_program {
	MEMORY_FREE,
	MEMORY_RETURN,	/* where there are no sessions */
	MEMORY_SESSION, /* entry, and return if the entry wants it */
	MEMORY_ENTRY,
	_MEMORY_PROGRAM_MAX
};

struct memory {
	struct memory_bpf *bpf; /* NULL: nobody has wanted it yet */
	int load_error; /* of the last try */
	enum uprobe_mode mode;
	size_t max_single; /* UPROBE_SINGLE_MAX_OF_ATTACH; a test's is less */
	int programs[_MEMORY_PROGRAM_MAX];	   /* -1: not loaded */
	int programs_of_one[_MEMORY_PROGRAM_MAX]; /* the same for UPROBE_SINGLE; -1 */
	int procs, live, pending, live_stats;
	int n_cpus;
	bool returns_tried;
	int returns; /* 0: probed ones are safe; what may pass: that is not known yet */

	pthread_mutex_t lock;
	struct attached *attached; /* by key */
	unsigned n_links;
	unsigned n_leaving;   /* atomic: urgent */
	uint64_t n_moves;     /* atomic: links made and closed */
	uint64_t snapshot_ns; /* CLOCK_BOOTTIME of the last one */
	struct slept slept;   /* since calls were looked at */
	uint64_t woke_ns;     /* CLOCK_BOOTTIME: then the machine was known to have slept before */
	bool asked;	      /* one is wanted now */
	uint64_t user_removed, evicted;
	int trap_link;	       /* on ourselves; 0: none yet */
	double trap_ns;	       /* 0: not measured yet */
	unsigned stepped_more; /* of who attaches; 0: not measured yet */
};

/* Probes of one file by one program; of UPROBE_SINGLE of one place. */
struct attached_link {
	int fd;
	enum memory_program program;
	uint64_t dev, ino; /* of the file */
	uint64_t *offsets, *cookies;
	size_t n;
	uint32_t tid; /* the thread by which the kernel found the process */
	bool goes;    /* while a process's probes are changed */
};
struct attached {
	struct pf_process_key key;
	struct memory *memory;
	uint32_t tid;  /* of the links that are made now: see attach.c */
	int thread_fd; /* proc_thread_open() of it; -1 */
	bool inuse;
	bool leaving;	   /* counted in n_leaving, until it is being detached */
	bool added;	   /* its entry in procs is its own */
	bool ended;	   /* the process has, or is another program now */
	uint64_t since_ns; /* CLOCK_BOOTTIME: what is older is of somebody else */
	uint64_t names;	   /* of the last sample of mem-inuse */
	bool in_snapshot;
	struct attached_link *links;
	size_t n_links, cap_links;
	UT_hash_handle hh;
};

/* memory.c */
struct memory *probes_memory_of(struct probes *p); /* NULL: it does not work here, or nobody wants it */
/*
 * Why there is none. -EAGAIN: its object is still to be loaded, somebody asked just now; -ENOMEM and the like: the machine lacked
 * that for a moment. -EOPNOTSUPP: it cannot be.
 */
int probes_memory_missing(struct probes *p);

/* uprobe.c */
enum uprobe_mode probes_uprobe_mode(void);
/* Places of one file for one program. */
struct uprobe_places {
	int prog, attach_type;
	bool at_return;
	uint32_t pid; /* of UPROBE_SINGLE any thread of the process; else the process */
	char path[32];
	uint64_t *offsets, *cookies;
	size_t n;
};
/* n of them from there on, of UPROBE_SINGLE one: a link, or -errno. */
int probes_uprobe_attach(enum uprobe_mode mode, const struct uprobe_places *b, size_t from, size_t n);
/* A program that does nothing; returns its link. */
int probes_uprobe_attach_trivial(enum uprobe_mode mode, const char *path, uint64_t offset, uint32_t pid,
			  bool at_return);

/* uprobe_try.c: -EPERM: a probed return kills a process that has a seccomp filter; else it could not be tried */
int probes_uprobe_try_return(enum uprobe_mode mode);
/* So many hits more a hit costs whose instruction is stepped over. */
unsigned probes_uprobe_stepped_more(enum uprobe_mode mode);
/* CPU time of a call: the median of some bursts. A host that takes its CPU away amid one makes that one ten times as long. */
uint64_t probes_call_typical_ns(void (*function)(void));

/* emulated.c: where a probe of the function at this offset of the file is cheap, and means the same */
uint64_t probes_emulated_place(int fd, uint64_t offset);
size_t probes_emulated_distance(const uint8_t *code, size_t n);
bool probes_is_emulated(const uint8_t code[static 2]);

/* spans.c: somebody leaves in a hurry; nobody else is attached before it has */
bool probes_memory_is_urgent(const struct memory *m);

/* spans.c: a link was made, or closed */
void probes_memory_moves(struct memory *m);

/* detach.c: those that are marked; those from there on */
void probes_links_close_going(struct attached **items, size_t n);
void probes_links_close_from(struct attached *a, size_t from);

/* live.c */
/* Removes what belongs to no attached process. */
void probes_live_forget(struct memory *m);
/* Adds a snapshot of what lives to a full drain, when its time has come. */
void probes_live_collect(struct probes *p, struct event_probe *e, struct taking *t);
