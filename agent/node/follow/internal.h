/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of follow/ share and that other modules do not use. Loop thread. */
#pragma once

#include "node/follow/follow.h"
#include "node/learn/unseen_memory.h"

#include <uthash.h>

/*
 * parse_queue.c: files that a worker has yet to read, each of them once. Small files come first,
 * and the files of a cgroup that have taken much time wait for those of others.
 */
struct follow_queue;
/* a file that this process waits for is known */
typedef void parsed_fn(struct process_id who, void *arg);
/* How files are parsed: by the functions of node/files with these names, or by a test's. */
struct parse_ops {
	int (*index)(struct files *f, const struct mapping *m, struct elf_index **ret);
	void (*debug)(struct files *f, const struct mapping *m, int root_fd);
	void (*expect)(struct files *f, const struct mapping *m, uint64_t owner);
	uint64_t (*root)(int root_fd);
	uint64_t (*parsed_ns)(struct files *f, const struct mapping *m);
};
struct follow_queue *follow_queue_new(struct work *work, struct worker *w,
				      const struct parse_ops *ops, struct files *files, bool debug,
				      parsed_fn *fn, void *arg);
struct follow_queue *follow_queue_free(struct follow_queue *q);
/*
 * Adds the file of mapping k of m. `who` is called back once (NULL: no process). Returns false if
 * too many wait already.
 */
bool follow_queue_add(struct follow_queue *q, struct mappings *m, size_t k, uint64_t cgroup_id,
		     const struct process_id *who);
/* the caller calls this after follow_queue_add() */
void follow_queue_start(struct follow_queue *q);
/* A file is being read or waits. */
bool follow_queue_works(const struct follow_queue *q);
void follow_queue_tick(struct follow_queue *q);
/* The current file is the last: the worker is about to end. */
void follow_queue_stop(struct follow_queue *q);

/* ---- runtimes.c: other runtimes of a process; one look at a time, on the files worker ---- */
struct found_runtimes {
	struct runtime_process *process; /* NULL: nothing */
	char *problem;			 /* what cannot be unwound, and why; NULL: all can */
	char *unnamed;			 /* which other runtimes have no names; NULL: none */
	bool again;			 /* one is just starting */
};
struct runs {
	struct runtime_process *known; /* NULL: nothing */
	char *problem, *unnamed;       /* as in struct found_runtimes */
	bool due;		       /* mappings or files are new since the last look */
	bool looking;
	bool unset;	    /* `known` is not in the kernel yet */
	struct mappings *m; /* for the next look */
	unsigned n_again;   /* looks in a row that found a runtime just starting */
	struct timer timer; /* until the next of these looks */
};

/* ---- java.c: JVMs that the agent asks for their perf maps (javaAttach) ---- */
struct java {
	bool asking, refused;
	unsigned n_tries;
	uint64_t next_ns; /* the earliest time of the next request */
	char *problem;	  /* why it is not asked any more; NULL: it is */
};

/* ---- probed.c: the sets of probes of a process (enum probe_set), each by itself ---- */
struct alloc_sites;
struct attached;
struct probing;
struct tracked;
struct span_end {
	/* CPU time of the process at that moment, and the time; 0: there was none */
	uint64_t cpu_ns, mono_ns;
};
struct probed {
	struct tracked *tracked; /* of this process */
	enum probe_set set;
	bool looking, busy;	 /* a look for the places to probe; a change of the probes */
	bool stale;		 /* the probes are for an earlier state or request */
	bool lent;		 /* a job of go_heap.c has `sites`, and gives them back */
	bool refused;		 /* by the kernel, or by ATTACHED_MAX; next try at next_ns */
	unsigned n_refused;	 /* refusals in a row that may pass */
	struct probes_refused refused_sites; /* the places that are not attached */
	/* the job that does not come back, which set `refused`; NULL: none */
	const struct probing *stuck;
	unsigned looked_mask;	    /* the events for which `sites` was looked up */
	unsigned n_again;	    /* looks in a row that found the process just starting */
	struct mappings *m;	    /* the mappings of `sites` */
	struct alloc_sites *sites;  /* NULL: not known */
	struct attached *attached;  /* NULL: no probes, or those of a span */
	unsigned attached_mask;
	uint64_t next_ns;	    /* the earliest time to attach */
	/* since when it is known to lack what the set is for; 0: it has it, or that is not known */
	uint64_t lacks_ns;
	/* when another process of its container last had that; 0: not known */
	uint64_t had_ns;
	/* hits of what is attached, at the last look; the time of that look */
	uint64_t seen_hits, seen_ns;
	double stall_ns;
	/*
	 * When to look at the probes' thread next: at this time, or when probes_moves() has
	 * changed.
	 */
	uint64_t thread_ns, thread_moves;
	/*
	 * Since when the probes may be attached again after they lost their thread. 0: they have
	 * not lost it lately.
	 */
	uint64_t lost_ns;
	unsigned n_lost;	  /* losses in a row, each soon after the previous one */
	struct span_end span_end; /* of the last span, or when it was last attached steadily */
	struct timer timer;	  /* the next span, or look */
	char *problem;		  /* what the probes do not see; NULL: nothing */
};

/* ---- go_heap.c: the heap profile of a Go program ---- */
struct go_heap {
	bool anew;	  /* mem-alloc was not asked for since the last read */
	uint64_t next_ns; /* the earliest time of the next read */
};

/* ---- unseen_memory.c: whether the probes miss memory ---- */
struct compared {
	struct unseen unseen;
	char *text; /* what is unseen, in words; NULL: nothing, as far as is known */
};

/* ---- lacking.c: processes that lack what a set is for ---- */
struct libraries {
	uint64_t bytes, asked_bytes; /* VmLib before its mappings were read, or asked for, last */
	uint64_t ask_ns;	     /* the earliest time to ask again; 0: none are asked for */
};

/* ---- follow.c ---- */
struct tracked {
	struct follow *follow;
	struct process_id id;
	uint64_t cgroup_id, set_ns;
	uint32_t exec_id;   /* of the last mappings */
	uint64_t rest_ns;   /* see mappings_rest() */
	struct mappings *m; /* NULL: the kernel has all of it */
	bool setting, again;
	unsigned n_waiting, n_tries; /* files that it waits for */
	uint64_t debugged;	     /* hash of the files whose debug files were asked for */
	char *missing;
	bool go; /* it has goroutines */
	struct runs runs;
	struct java java;
	struct probed probed[_PROBES_SET_MAX];
	struct go_heap go_heap;
	struct compared compared;
	struct libraries libraries; /* of lacking.c */
	UT_hash_handle hh;
};
/* How a process is probed: by the functions of node/probe with these names, or by a test's. */
struct probe_calls {
	int (*attach)(struct probes *p, enum probe_set set, struct process_id id,
		      const struct pf_mem_proc *proc, const struct probe_file *files, size_t n,
		      struct attached **ret, struct probes_refused *ret_refused);
	int (*attach_change)(struct probes *p, struct attached *a, const struct pf_mem_proc *proc,
			     const struct probe_file *files, size_t n,
			     struct probes_refused *ret_refused);
	void (*detach_all)(struct probes *p, struct attached **items, size_t n);
	void (*leave)(struct attached *a);
	void (*attached_wait)(const struct attached *a, uint64_t max_ns, uint64_t max_hits,
			      uint64_t *ret_ns, uint64_t *ret_hits);
	bool (*attached_lost)(const struct attached *a);
	bool (*attached_outlives)(const struct attached *a);
	uint64_t (*attached_hits)(const struct attached *a);
	uint64_t (*attached_bytes)(const struct attached *a);
	uint64_t (*moves)(struct probes *p);
};
/* The calls to other modules by which jobs do their work; a test gives its own. */
struct follow_calls {
	const struct parse_ops *parse;
	/* os worker */
	void (*set_tables)(struct unwind *u, struct files *f, const struct mappings *m,
			   const struct runtime_process *runtimes, struct applied *ret,
			   struct unwind_stats *ret_stats);
	void (*remove_tables)(struct unwind *u, struct process_id id);
	int (*read_memory)(struct process_id id, struct proc_memory *ret);
	/* files worker */
	int (*find_runtimes)(struct files *f, const struct mappings *m,
			     struct runtime_process *old, struct java_requests *java,
			     struct found_runtimes *ret);
	int (*find_sites)(struct files *f, const struct mappings *m, unsigned event_mask,
			  struct alloc_sites **ret);
	/* attach worker */
	int (*ask_jvm)(struct java_requests *q, struct process_id id, const char *version,
		       char ret_problem[RUNTIME_PROBLEM_BYTES]);
	/* probes worker and loop thread: see probe.h */
	const struct probe_calls *probes;
};
extern const struct follow_calls follow_calls; /* calls.c: those of the program */
struct follow {
	struct follow_config config;
	const struct follow_calls *calls;
	struct tracked *tracked;
	struct java_requests *java_requests; /* of java.c; the files worker adds to it */
	struct follow_queue *files, *debug;
	struct process_id *to_forget; /* they have ended */
	size_t n_to_forget, cap_to_forget;
	struct process_problems *problems; /* of process_problems.c */
	unsigned n_attaching;		      /* tasks under way */
	unsigned n_attached[_PROBES_SET_MAX]; /* processes of which the set is attached */
	unsigned n_spans;		      /* how many of these tasks are spans */
	struct left_behind stuck, asks_stuck; /* jobs of the probes worker; jobs of java.c */
	uint64_t n_moves;    /* probes_moves() when one of the tasks was last seen to progress */
	bool reading_memory; /* a task of memory_reads.c is under way */
	uint64_t compare_ns; /* when it reads next for all that unseen_memory.c compares */
	uint64_t young_ns;   /* of lacking.c: when the last process was found to lack something */
	struct timer young;  /* until the next reading of such processes */
	unsigned sets_asked; /* the sets that were asked for at the last tick: 1 << set */
	struct timer watch;  /* until the next look at what is attached */
};
/* follow_new() with these calls, which are borrowed. */
struct follow *follow_new_with(const struct follow_config *c, const struct follow_calls *calls);
struct tracked *follow_find(const struct follow *f, struct process_id id);
/* Finds it, or begins to follow it. If there are too many, the oldest is forgotten. */
struct tracked *follow_track(struct follow *f, struct process_id id);
/*
 * What t runs has changed, so the kernel must be set anew, with these mappings unless newer ones
 * are on their way.
 */
void follow_set(struct tracked *t, struct mappings *m);

/* ---- process_problems.c: what was reported last of the processes ---- */
struct process_problems *follow_problems_new(void);
struct process_problems *follow_problems_free(struct process_problems *p);
void follow_problems_tell(struct follow *f); /* the caller calls this every second */

/* ---- the parts ---- */
/* Looks for runtimes, unless nothing is new. likely: `runs` of struct applied. */
void follow_runtimes_look(struct tracked *t, struct mappings *m, bool likely);
/* Forgets the runtimes: the process has become another program, or is not followed any more. */
void follow_runtimes_reset(struct tracked *t);

/* The caller calls this every second. */
void follow_java_tick(struct follow *f);
void follow_java_reset(struct tracked *t);

/* To be called for a new struct tracked. */
void follow_probed_begin(struct tracked *t);
/* The process's files are known: looks for the places to probe, of the sets that are asked for. */
void follow_probed_look(struct tracked *t, struct mappings *m);
/* Takes the next step: looks, attaches, detaches or reads. */
void follow_probed_advance(struct probed *x);
void follow_probed_tick(struct follow *f); /* the caller calls this every second */
void follow_probed_reset(struct tracked *t);
/* Detaches all probes, before the maps that they write to are freed. */
void follow_probed_stop(struct follow *f);
/*
 * Detaches all probes when the probes worker is about to end: spans end, and attaching that has not
 * begun is skipped.
 */
void follow_probed_close(struct follow *f);
bool follow_probed_idle(const struct follow *f);
/* Sets what the probes do not see, and why; why "": they see all. */
void follow_probed_set_problem(struct probed *x, const char *what, const char *why);
/* Sets what is not seen by the probes that are attached, or will be next. */
void follow_probed_tell_not_seen(struct probed *x);

/* ---- go_heap.c ---- */
/*
 * Reads the process's heap profile if it has one and it is time. asked: the memory events that are
 * asked for.
 */
void follow_go_heap_advance(struct tracked *t, unsigned asked);

/* ---- memory_reads.c ---- */
void follow_memory_tick(struct follow *f); /* the caller calls this every second */
/* Reads those that lack something only since this time (CLOCK_MONOTONIC). */
void follow_memory_read_young(struct follow *f, uint64_t since_ns);

/* ---- lacking.c ---- */
/* A look has found these places. */
void follow_lacking_look(struct probed *x, const struct alloc_sites *s);
/* Since when it lacks something (CLOCK_MONOTONIC); 0: it lacks nothing, as far as is known. */
uint64_t follow_lacking_since_ns(const struct tracked *t);
/* Its memory was read. */
void follow_lacking_read(struct tracked *t, const struct proc_memory *now);
void follow_lacking_mappings(struct tracked *t); /* its mappings were read */
/* Adds the containers of which no process has what the set is for. */
void follow_lacking_tell(const struct follow *f, enum probe_set set, struct problem_list *now);

/* ---- unseen_memory.c ---- */
/* all: also if a comparison has begun. */
bool follow_unseen_is_due(const struct tracked *t, bool all);
/* Its memory was read. */
void follow_unseen_compare(struct tracked *t, const struct proc_memory *now);
void follow_unseen_begin_anew(struct tracked *t); /* new probes are attached */
/* The events are not asked for any more, or the process is another program. */
void follow_unseen_forget(struct tracked *t);

/* ---- probed_attach.c ---- */
#define PROBES_COUNTER "podflame_probes_attach_total"
struct limit_span;
/*
 * Attaches probes at the sites of the set, in place of those that are attached. span NULL: as long
 * as the process lives.
 */
void follow_probed_attach(struct probed *x, unsigned event_mask, const struct limit_span *span);
void follow_probed_detach(struct probed *x); /* does nothing if nothing is attached */
void follow_probed_detach_all(struct follow *f);
/* The on_stuck function of the probes worker. */
void follow_probed_stuck(struct worker *w, struct job *job, void *follow);
/* After n_before tries in a row, the next one comes in 1, 2, 4 ... 60 s. */
uint64_t follow_probed_later_ns(unsigned n_before);
uint64_t follow_probed_moves(const struct follow *f); /* see probes_moves() */

/* ---- probed_watch.c ---- */
/* From now on x->attached is watched, until follow_probed_unwatch(). */
void follow_probed_watch(struct probed *x);
void follow_probed_unwatch(struct probed *x);
unsigned follow_probed_n_watched(const struct follow *f); /* sets of processes */
