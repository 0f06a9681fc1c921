/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of follow share. */
#pragma once

#include "node/follow/follow.h"
#include "node/learn/unseen.h"

#include <uthash.h>

/*
 * Files that a worker has yet to look at, one of each, fairly: small ones first, and a cgroup
 * whose files have cost much time waits for the others. Loop thread.
 */
struct follow_queue;
typedef void parsed_fn(struct process_id who, void *arg); /* a file that it waited for is known */
struct follow_queue *follow_queue_new(struct work *work, struct worker *w, struct files *files,
				      bool debug, parsed_fn *fn, void *arg);
struct follow_queue *follow_queue_free(struct follow_queue *q);
/* Mapping k of m; who is told, once (NULL: nobody). false: too many wait already. */
bool follow_queue_add(struct follow_queue *q, struct mappings *m, size_t k, uint64_t cgroup_id,
		     const struct process_id *who);
void follow_queue_start(struct follow_queue *q); /* after follow_queue_add */
/* Something is under way or waits. */
bool follow_queue_works(const struct follow_queue *q);
void follow_queue_tick(struct follow_queue *q);
/* What runs is the last: the worker is about to end. */
void follow_queue_stop(struct follow_queue *q);

/* ---- runtimes.c: what else a process runs; the files worker looks, one look a process at a time ---- */
struct runs {
	struct runtime_process *known; /* NULL: nothing */
	char *problem;		       /* what of it is not walked, and why; NULL: all is */
	char *unnamed;		       /* what besides is recognised and not named; NULL: nothing */
	bool due;		       /* mappings or files are new since the last look */
	bool looking;
	bool unset;	    /* known is not in the kernel yet */
	struct mappings *m; /* to be looked at next */
	unsigned n_again;   /* looks in a row that found one just starting */
	struct timer timer; /* until the next of these */
};

/* ---- java.c: JVMs that are asked for their perf maps (javaAttach) ---- */
struct java {
	bool asking, refused;
	unsigned n_tries;
	uint64_t next_ns; /* not before */
	char *problem;	  /* why it is not asked any more; NULL */
};

/* ---- heap.c: probes of allocators, of processes whose memory is asked for ---- */
struct alloc_sites;
struct attached;
struct probing;
struct span_end {
	uint64_t cpu_ns, mono_ns; /* CPU time of the process then; 0: there was none */
};
struct allocs {
	bool looking, busy;		     /* where it allocates; probes are on their way */
	bool stale;			     /* attached is what was known, or asked for, before */
	bool reading_go;		     /* sites are lent */
	bool go_anew;			     /* mem-alloc was not asked for since the last read */
	bool refused;			     /* by the kernel: not again before next_ns */
	unsigned n_refused;		     /* in a row, for what may pass */
	struct probes_refused refused_sites; /* of what is attached */
	const struct probing *stuck;	     /* does not come back: refused for that; else NULL */
	unsigned looked_mask;		     /* events that sites were looked for */
	unsigned n_again;		     /* looks in a row that found it just starting */
	struct mappings *m;		     /* of sites */
	struct alloc_sites *sites;	     /* NULL: not known */
	struct attached *attached;	     /* NULL: not, or in a span */
	unsigned attached_mask;
	uint64_t next_ns, next_go_ns; /* to attach, to read: not before */
	uint64_t seen_hits, seen_ns;  /* of what is attached, when it was last looked at */
	double stall_ns;
	/* Its thread is looked at next: then, or when probes_moves() is another. */
	uint64_t thread_ns, thread_moves;
	/*
	 * Its probes lost their thread then; from that moment on they may be attached again. 0: not
	 * lately.
	 */
	uint64_t lost_ns;
	unsigned n_lost;	  /* in a row: each time lately */
	struct span_end span_end; /* of the last one, or when it was attached steadily */
	struct timer timer;	  /* the next span, or look */
	char *problem;		  /* what of its memory is not seen; NULL */
	struct unseen unseen;	  /* whether more of it is not, */
	char *unseen_text;	  /* in words; NULL: not as far as is known */
};

/* ---- follow.c ---- */
struct tracked {
	struct follow *follow;
	struct process_id id;
	uint64_t cgroup_id, set_ns;
	uint32_t exec_id;   /* of the last mappings */
	uint64_t rest_ns;   /* of mappings_rest */
	struct mappings *m; /* NULL: all of it is in the kernel */
	bool setting, again;
	unsigned n_waiting, n_tries; /* files wanted */
	uint64_t debugged;	     /* hash of the files whose debug files were asked for */
	char *missing;
	bool go; /* it has goroutines */
	struct runs runs;
	struct java java;
	struct allocs allocs;
	UT_hash_handle hh;
};
struct follow {
	struct follow_config config;
	struct tracked *tracked;
	struct follow_queue *files, *debug;
	uint64_t swept_ns;
	struct problem_list no_tables, not_walked, not_named, not_attached, not_probed, parked;
	unsigned n_attaching, n_attached;     /* tasks; processes that have probes */
	unsigned n_spans;		      /* of these tasks */
	struct left_behind stuck, asks_stuck; /* of these tasks; of java.c's */
	uint64_t n_moves;    /* probes_moves() when one of them was last seen to get on */
	bool reading_memory; /* unseen.c's task is under way */
	uint64_t unseen_ns;  /* its next look at all processes */
	bool memory_asked;   /* somebody asked for memory events a tick ago */
	struct timer watch;  /* of what is attached */
};
struct tracked *follow_find(const struct follow *f, struct process_id id);
/* What t runs has changed: the kernel has to know, with these mappings if no newer ones are on their way. */
void follow_set(struct tracked *t, struct mappings *m);

/* Looks, unless nothing is new; likely: as struct applied says. */
void follow_runtimes_look(struct tracked *t, struct mappings *m, bool likely);
/* Forgets what was known: it has become another program, or is not tracked any more. */
void follow_runtimes_reset(struct tracked *t);

/* Every second. */
void follow_java_tick(struct follow *f);
void follow_java_reset(struct tracked *t);

/* Its files are known. */
void follow_heap_look(struct tracked *t, struct mappings *m);
/* Whatever is to be done next: look, attach, detach, read. */
void follow_heap_advance(struct tracked *t);
void follow_heap_tick(struct follow *f); /* every second */
void follow_heap_reset(struct tracked *t);
/* Takes all probes away: they go before the maps that they write to. */
void follow_heap_stop(struct follow *f);
/* The same, and the probes worker is about to end: spans end, and what it has not begun to attach is left. */
void follow_heap_close(struct follow *f);
bool follow_heap_idle(const struct follow *f);
/* What of the process's memory is not seen; why "": all is. */
void follow_heap_set_problem(struct tracked *t, const char *what, const char *why);
/* The same, by its sites and by what the kernel refused. */
void follow_heap_set_not_seen(struct tracked *t, const struct alloc_sites *s, unsigned event_mask);

/* ---- unseen.c ---- */
void follow_unseen_tick(struct follow *f); /* every second */
/* Nobody asks any more, or it is another program. */
void follow_unseen_forget(struct tracked *t);

/* ---- heap_probes.c ---- */
#define HEAP_ATTACH_COUNTER "podflame_memory_attach_total"
struct limit_span;
/* At its sites, in place of what is attached; span NULL: as long as it lives. */
void follow_heap_attach(struct tracked *t, unsigned event_mask, const struct limit_span *span);
void follow_heap_detach(struct tracked *t); /* harmless when nothing is attached */
void follow_heap_detach_all(struct follow *f);
void follow_heap_stuck(struct worker *w, struct job *job,
		 void *follow); /* the probes worker's on_stuck */
