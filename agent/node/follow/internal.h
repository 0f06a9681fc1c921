/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of follow/ share and that other modules do not use. Loop thread. */
#pragma once

#include "node/follow/follow.h"
#include "node/learn/unseen_memory.h"

#include <uthash.h>

/*
 * parse_queue.c: a queue of the files that a worker has to parse. Each file is in it once. The next
 * file is the smallest one of the cgroup whose files took the least time so far.
 */
struct follow_queue;
/* Called for each process that waits for a file when the file is parsed, or could not be. */
typedef void parsed_fn(struct process_id who, void *arg);
/*
 * The functions that parse files: those of node/files with the prefix files_, or those of a test.
 */
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
 * Adds the file of mapping k of m, if the queue does not have it yet. When the file is parsed, the
 * queue calls its parsed_fn once for the process `who` (NULL: for no process). Returns false if too
 * many files wait already. The next file to be parsed is of the namespace whose files took least
 * time, and in it of the cgroup whose files did.
 */
bool follow_queue_add(struct follow_queue *q, struct mappings *m, size_t k,
		      const struct charged *charged, const struct process_id *who);
/* to be called after follow_queue_add(): begins the next file if the worker is idle */
void follow_queue_start(struct follow_queue *q);
/* Returns the files that wait or are being parsed, by namespace. */
const struct shares *follow_queue_files(const struct follow_queue *q);
void follow_queue_tick(struct follow_queue *q);
/* To be called when the worker is about to end: files after the current one are not parsed. */
void follow_queue_stop(struct follow_queue *q);

/* ---- runtimes.c: the runtimes of a process ---- */
struct found_runtimes {
	struct runtime_process *process; /* the runtimes that the search found; NULL: none */
	char *problem; /* the runtime that cannot be unwound, and why; NULL: none */
	char *unnamed; /* the runtimes whose functions have no names; NULL: none */
	bool again; /* a runtime is just starting, so another search is needed */
};
struct runs {
	struct runtime_process *known; /* what the last search found; NULL: nothing */
	char *problem, *unnamed;       /* as in struct found_runtimes */
	bool due;		       /* mappings or parsed files are new since the last search */
	bool looking;
	bool unset;	    /* `known` is not in the kernel yet */
	bool rows_told;	    /* follow_ops.rows_set was called */
	struct mappings *m; /* the mappings for the next search */
	unsigned n_again;   /* searches in a row that found a runtime just starting */
	struct timer timer; /* its end starts the next search */
};

/* ---- java.c: JVMs that the agent asks for their perf maps (javaAttach) ---- */
struct java {
	bool asking, refused;
	unsigned n_tries;
	uint64_t next_ns; /* the earliest time of the next request */
	char *problem;	  /* why the JVM is not asked any more; NULL: it is asked */
};

/* ---- probed.c: the sets of probes of a process (enum probe_set) ---- */
struct alloc_sites;
struct attached;
struct probing;
struct tracked;
struct span_end {
	/*
	 * the CPU time of the process at the end of the span, and the time then; 0: there was no
	 * span
	 */
	uint64_t cpu_ns, mono_ns;
};
struct long_span {	/* of long_spans.c */
	uint64_t span_ns; /* its planned length; 0: no long span is under way */
	struct span_end start; /* when its probes were attached */
};
struct probed {
	struct tracked *tracked; /* the process to which the set is attached */
	enum probe_set set;
	/*
	 * looking: a job searches for the places to probe; busy: a job attaches or changes probes
	 */
	bool looking, busy;
	bool stale;		 /* the attached probes are out of date and must be changed */
	bool lent;		 /* a job of go_heap.c owns `sites` now and will give it back */
	bool refused; /* attaching has failed or was put off; the next try is at next_ns */
	unsigned n_refused;	 /* refusals in a row whose reason may pass */
	struct probes_refused refused_sites; /* the places where no probe could be attached */
	/* the blocked job because of which `refused` is set; NULL: none */
	const struct probing *stuck;
	/* the events of the last search for places; 0: a new search is needed */
	unsigned looked_mask;
	/* how many functions of RDMA providers the last search knew */
	unsigned n_functions;
	unsigned n_again;	    /* searches in a row that found the process just starting */
	struct mappings *m;	    /* the mappings of `sites` */
	struct alloc_sites *sites;  /* the places to probe; NULL: not known, or `lent` */
	/* the probes that stay attached; NULL: none, or those of a span */
	struct attached *attached;
	uint64_t attached_ns; /* struct charged, while `attached` is watched */
	unsigned attached_mask;
	uint64_t attached_at_ns;    /* CLOCK_MONOTONIC */
	uint64_t next_ns;	    /* the earliest time to attach */
	/*
	 * since when the process is known to lack what the set probes (a CUDA driver); 0: it is not
	 * known to lack it
	 */
	uint64_t lacks_ns;
	/* when another process of the same container last had the driver; 0: not known */
	uint64_t had_ns;
	/* the hits of the probes at the last check of probed_watch.c, and the time of that check */
	uint64_t seen_hits, seen_ns;
	double stall_ns;
	/*
	 * When to check next whether the probes' thread has ended: at the time thread_ns, or as
	 * soon as probes_moves() differs from thread_moves.
	 */
	uint64_t thread_ns, thread_moves;
	/*
	 * From when the probes may be attached again after the thread of the earlier probes has
	 * ended. 0: no such thread has ended lately.
	 */
	uint64_t lost_ns;
	unsigned n_lost; /* ends of such threads in a row, each soon after the one before */
	/*
	 * CPU time and time at the end of the last span, or of the last time in which the probes
	 * stayed attached
	 */
	struct span_end span_end;
	struct long_span long_span;
	struct timer timer;	  /* starts the next span or the next search */
	char *problem;		  /* what the probes do not see; NULL: nothing */
};

/* ---- go_heap.c: the heap profile of a Go program ---- */
struct go_heap {
	bool anew;	  /* at some time since the last read, no target asked for mem-alloc */
	uint64_t next_ns; /* the earliest time of the next read */
};

/* ---- unseen_memory.c: whether the probes miss memory ---- */
struct compared {
	struct unseen unseen;
	char *text; /* the text about memory that the probes did not see; NULL: none is known */
};

/* ---- lacking.c: processes that lack what a set of probes is for ---- */
struct libraries {
	/*
	 * bytes: VmLib before the mappings were last read; asked_bytes: VmLib before they were last
	 * requested
	 */
	uint64_t bytes, asked_bytes;
	/* the earliest time to request the mappings again; 0: there is no open request */
	uint64_t ask_ns;
};

/* ---- follow.c ---- */
struct tracked {
	struct follow *follow;
	struct process_id id;
	uint64_t cgroup_id, set_ns;
	uint32_t exec_id;   /* the exec id of the last mappings */
	uint64_t rest_ns;   /* see mappings_rest() */
	/* mappings of the process; NULL: the kernel has the tables of all of them */
	struct mappings *m;
	bool setting, again;
	/* n_waiting: files that the process waits for; n_tries: see MAX_TRIES */
	unsigned n_waiting, n_tries;
	uint64_t debugged;	     /* hash of the files whose debug files were last searched */
	char *missing;
	bool go; /* the process has goroutines */
	struct runs runs;
	struct java java;
	struct probed probed[_PROBES_SET_MAX];
	struct go_heap go_heap;
	struct compared compared;
	struct libraries libraries; /* of lacking.c */
	char *library_problem; /* of gpu_library.c; NULL: the library has none, or there is none */
	UT_hash_handle hh;
};
/* follow.c: whom the process is charged to. */
struct charged follow_charged(const struct tracked *t);
/*
 * The functions that probe a process: those of node/probe with the prefix probes_, or those of a
 * test.
 */
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
	bool (*attached_queried)(const struct attached *a);
	uint64_t (*attached_bytes)(const struct attached *a);
	int (*attached_status)(const struct attached *a, struct on_gpu_status *ret);
	int (*rdma_functions)(struct probes *p, enum probe_set set, struct process_id id,
			      uint32_t exec_id, struct pf_rdma_functions *ret);
	uint64_t (*moves)(struct probes *p);
};
/* The functions of other modules that the jobs call. A test sets its own. */
struct follow_calls {
	const struct parse_ops *parse;
	/* ---- called on the os worker ---- */
	void (*set_tables)(struct unwind *u, struct files *f, const struct mappings *m,
			   uint64_t charged_ns, const struct runtime_process *runtimes,
			   struct applied *ret, struct unwind_stats *ret_stats);
	void (*remove_tables)(struct unwind *u, struct process_id id);
	int (*read_memory)(struct process_id id, struct proc_memory *ret);
	/* ---- called on the files worker ---- */
	int (*find_runtimes)(struct files *f, const struct mappings *m,
			     struct runtime_process *old, struct java_requests *java,
			     struct found_runtimes *ret);
	int (*find_sites)(struct files *f, const struct mappings *m, unsigned event_mask,
			  const struct pf_rdma_functions *rdma, struct alloc_sites **ret);
	/* attach worker */
	int (*ask_jvm)(struct java_requests *q, struct process_id id, const char *version,
		       char ret_problem[RUNTIME_PROBLEM_BYTES]);
	/* probes worker and loop thread: see probe.h */
	const struct probe_calls *probes;
};
extern const struct follow_calls follow_calls; /* calls.c: the real functions */
struct follow {
	struct follow_config config;
	const struct follow_calls *calls;
	struct tracked *tracked;
	struct java_requests *java_requests; /* state of java.c; the files worker adds requests */
	struct follow_queue *files, *debug;
	struct process_id *to_forget; /* processes that have ended */
	size_t n_to_forget, cap_to_forget;
	struct process_problems *problems; /* state of process_problems.c */
	unsigned n_attaching;		      /* tasks of probed_attach.c under way */
	unsigned n_attached[_PROBES_SET_MAX]; /* processes to which the set stays attached */
	struct attached_share *attached_shares; /* the same by namespace: probed_watch.c */
	unsigned n_spans;		      /* how many of the n_attaching tasks are spans */
	struct left_behind stuck; /* blocked jobs of the probes worker */
	/* probes_moves() when it was last read; a change since then means progress of the worker */
	uint64_t n_moves;
	bool reading_memory; /* a task of memory_reads.c is under way */
	uint64_t compare_ns; /* when memory_reads.c next reads all processes for unseen_memory.c */
	uint64_t young_ns;   /* for lacking.c: when the last process was found to lack something */
	struct timer young;  /* starts the next reading of processes that lack something */
	unsigned sets_asked; /* the sets that were asked for at the last tick: 1 << set */
	struct timer watch;  /* starts the next check of the attached probes */
};
/* As follow_new(), with other functions for the jobs. `calls` is borrowed. */
struct follow *follow_new_with(const struct follow_config *c, const struct follow_calls *calls);
struct tracked *follow_find(const struct follow *f, struct process_id id);
/*
 * Returns the struct of the process. If there is none, makes it. The module processes knows the
 * process already.
 */
struct tracked *follow_track(struct follow *f, struct process_id id);
/*
 * Sets the process anew in the kernel, because its runtimes have changed. Uses m, unless t->m is
 * set: those mappings are newer.
 */
void follow_set(struct tracked *t, struct mappings *m);

/* ---- process_problems.c: the problems of processes that were reported last ---- */
struct process_problems *follow_problems_new(void);
struct process_problems *follow_problems_free(struct process_problems *p);
void follow_problems_tell(struct follow *f); /* the caller calls this every second */

/* ---- runtimes.c, java.c, probed.c ---- */
/*
 * Starts a search for runtimes if mappings or parsed files are new. likely: the process may run
 * more than native code.
 */
void follow_runtimes_look(struct tracked *t, struct mappings *m, bool likely);
/*
 * To be called when the kernel has the runtimes r (NULL: none) of the process's program exec_id,
 * which it got between the two times (CLOCK_BOOTTIME).
 */
void follow_runtimes_set(struct tracked *t, uint32_t exec_id, struct runtime_process *r,
			 uint64_t since_ns, uint64_t until_ns);
/* Forgets the runtimes: the process has become another program, or is not followed any more. */
void follow_runtimes_reset(struct tracked *t);

/* The caller calls this every second. */
void follow_java_tick(struct follow *f);
void follow_java_reset(struct tracked *t);

/* Sets up t->probed of a new struct tracked. */
void follow_probed_begin(struct tracked *t);
/*
 * To be called when all files of the process are parsed. Starts the search for the places to probe,
 * for each set that a target asks for.
 */
void follow_probed_look(struct tracked *t, struct mappings *m);
/*
 * Takes the next step for the set: searches for places, attaches or detaches probes, or reads the
 * heap profile.
 */
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
/* Sets x->problem to what the probes do not see that are attached now or will be attached next. */
void follow_probed_tell_not_seen(struct probed *x);

/* ---- go_heap.c ---- */
/*
 * Reads the Go program's heap profile, if it has one and the next read is due. asked: the memory
 * events that a target asks for.
 */
void follow_go_heap_advance(struct tracked *t, unsigned asked);

/* ---- memory_reads.c ---- */
void follow_memory_tick(struct follow *f); /* the caller calls this every second */
/*
 * Reads the memory of the processes that were found to lack something after since_ns
 * (CLOCK_MONOTONIC).
 */
void follow_memory_read_young(struct follow *f, uint64_t since_ns);

/* ---- lacking.c ---- */
/*
 * To be called when a search has found the places s. Notes whether the process lacks what the set
 * is for.
 */
void follow_lacking_look(struct probed *x, const struct alloc_sites *s);
/*
 * Returns since when the process lacks something (CLOCK_MONOTONIC); 0: it is not known to lack
 * anything.
 */
uint64_t follow_lacking_since_ns(const struct tracked *t);
/* To be called when the memory of the process was read. */
void follow_lacking_read(struct tracked *t, const struct proc_memory *now);
/* to be called when the mappings of the process were read */
void follow_lacking_mappings(struct tracked *t);
/* Adds to `now` the containers in which no process has what the set is for. */
void follow_lacking_tell(const struct follow *f, enum probe_set set, struct problem_list *now);

/* ---- probed_attach.c ---- */
/* Returns the CPU time of the process and the time, both now. */
struct span_end follow_span_end_now(const struct tracked *t);

/* ---- gpu_library.c ---- */
void follow_gpu_library_tick(struct follow *f); /* the caller calls this every second */
void follow_gpu_library_forget(struct tracked *t);

/* ---- long_spans.c ---- */
/* Whether a span is under way, or its probes are being attached. */
bool follow_long_span_runs(const struct probed *x);
/* Begins a span that is longer than LIMIT_SHORT_SPAN_NS. */
void follow_long_span_begin(struct probed *x, unsigned event_mask, const struct limit_span *span);
/*
 * To be called when probes were attached that stay. If they are those of a long span, the time of
 * the span begins.
 */
void follow_long_span_attached(struct probed *x);
/* Ends the span that is under way if its time is over. */
void follow_long_span_advance(struct probed *x);
/* Reports the cost of the span that is under way, and detaches its probes. */
void follow_long_span_end(struct probed *x);

/* ---- unseen_memory.c ---- */
/*
 * Whether the memory of the process must be read for a comparison. all: also if it was read before.
 */
bool follow_unseen_is_due(const struct tracked *t, bool all);
/* To be called when the memory of the process was read. Compares it with what the probes saw. */
void follow_unseen_compare(struct tracked *t, const struct proc_memory *now);
void follow_unseen_begin_anew(struct tracked *t); /* to be called when new probes are attached */
/*
 * To be called when the events are not asked for any more, or the process executes another program.
 */
void follow_unseen_forget(struct tracked *t);

/* ---- probed_attach.c ---- */
#define PROBES_COUNTER "podflame_probes_attach_total"
struct limit_span;
/*
 * Posts a job that attaches probes at the places of the set, instead of those that are attached.
 * span NULL: the probes stay as long as the process lives.
 */
void follow_probed_attach(struct probed *x, unsigned event_mask, const struct limit_span *span);
void follow_probed_detach(struct probed *x); /* does nothing if nothing is attached */
void follow_probed_detach_all(struct follow *f);
/* The on_stuck function of the probes worker. */
void follow_probed_stuck(struct worker *w, struct job *job, void *follow);
/* Returns the wait before the next try, after n_before waits in a row: 1, 2, 4 ... 60 s. */
uint64_t follow_probed_later_ns(unsigned n_before);
uint64_t follow_probed_moves(const struct follow *f); /* see probes_moves() */

/* ---- probed_watch.c ---- */
/*
 * From now on, until follow_probed_unwatch(), checks whether x->attached stalls the process or its
 * thread has ended.
 */
void follow_probed_watch(struct probed *x);
void follow_probed_unwatch(struct probed *x);
/* the number of watched sets of all processes */
unsigned follow_probed_n_watched(const struct follow *f);
/*
 * Whether the set may stay attached to one more process. max: of all namespaces. As long as a
 * quarter of this is free, each namespace may have one more; of that quarter, a namespace gets no
 * more if it has as many as are free.
 */
bool follow_probed_has_room(const struct probed *x, unsigned max);
