/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of pipeline/ share and that other modules do not use. The functions
 * run on the loop thread, except those of windows.c and judge.c, which run on the pipeline worker.
 */
#pragma once

#include "node/pipeline/pipeline.h"

#include "lib/base/shares.h"
#include "node/fold/fold.h"

#include <uthash.h>

#define HOLD_EXITED_NS (10 * NSEC_PER_SEC)

/* ---- requests to the pipeline worker, and its answers ---- */
struct attribution { /* to which container the samples of one cgroup in one drain belong */
	uint64_t cgroup_id, until_ns;
	struct owner *owner;
	/*
	 * How exact the values of the cgroup in this drain are: see limit_estimate(). share_ppm:
	 * the share of what happened that was measured, in ppm (0: everything). error_ppm: one
	 * standard error of the sum, in ppm of the sum. Values of events from uprobes are
	 * multiplied by 1e6 / share_ppm.
	 */
	uint32_t share_ppm[_EVENT_MAX], error_ppm[_EVENT_MAX];
};
/* how long the CPU limit has kept a container from running since the last reading */
struct held_back {
	struct owner *owner;
	uint64_t us, n;
};
/* A request to windows.c: a drain that must be folded into windows, and what belongs to it. */
struct feed {
	struct drain *drain; /* NULL: the worker only checks whether a window has ended */
	/*
	 * full: see pipeline_drain(). last_pass: the drain must not wait for mappings and names
	 * again
	 */
	bool full, last_pass;
	/*
	 * in the first pass of this drain, the worker has already asked for the files of all its
	 * mappings
	 */
	bool files_asked;
	bool whole; /* see pipeline_drain_whole() */
	/*
	 * How much work (pipeline_work()) the samples of this drain may be. Beyond it, those of the
	 * namespaces that have the most are lost. 0: no limit.
	 */
	uint64_t room;
	/* how long the node was not profiled before this drain; reported once */
	uint64_t gap_ns;
	/* how long the machine slept before this drain; reported once */
	uint64_t asleep_ns;
	/* losses of this drain, and earlier ones not reported yet; they go into the window */
	struct losses lost;
	struct attribution *owners; /* sorted by cgroup id */
	size_t n_owners;
	uint64_t *proc_ns; /* struct charged, by process of the drain; NULL: all are of nobody */
	struct process_exit *exits; /* exits of the processes that ended since the last request */
	size_t n_exits;
	struct host_list *hosts;
	struct hosts *host_names;
	struct held_back *held_back;
	size_t n_held_back;
};
void pipeline_feed_done(struct feed *f);

struct missing { /* a process whose mappings must be read, because they are out of date */
	struct process_id id;
	uint32_t exec_id, stack; /* stack: see struct raw_proc */
	uint64_t cgroup_id;
	uint64_t ns; /* struct charged; 0: a host process */
};
/* programs whose mappings one drain asks for; each namespace has a share */
#define MAX_MISSING 256
struct taken { /* counts and sums of the samples of one cgroup in a drain that were folded */
	uint64_t n_samples[_EVENT_MAX];
	/* samples with a user stack; how many of these stacks are complete */
	uint64_t n_stacks, n_finished;
	/* sums for the estimates; windows.c sets them to 0 after their use */
	uint64_t values[_EVENT_MAX];
};
/* The answer to a feed. The caller passes it filled with zeros. */
struct feed_answer {
	/* Nothing was folded. The caller must get what is missing, then send the feed again. */
	bool waits;
	bool files_asked; /* the caller copies this to the feed that it sends again */
	struct missing missing[MAX_MISSING]; /* mappings to read */
	size_t n_missing;
	struct names_wanted **wanted; /* names that the caller must read from processes */
	size_t n_wanted;
	/* files that the caller must parse, so that later drains have their names */
	struct unparsed_file *unparsed;
	size_t n_unparsed;
	struct taken *taken; /* one per element of feed.owners; NULL: nothing was folded */
	uint64_t work;	     /* pipeline_work() of all samples that were folded */
	/* namespaces that had more than their share of `room`, or of `missing` */
	struct raw_refused *refused;
	size_t n_refused;
	/* namespaces that had more than their share of what is kept of processes */
	struct shares crowded;
	struct shares unlinked; /* namespaces that had more than their share of trace contexts */
	/* namespaces that had more than their share of rows that generated code had lately */
	struct shares rows_refused;
	struct batch *batch; /* a window that ended; NULL if it is empty */
	uint64_t left_ns;    /* the wall time at which a window ended; 0: no window has ended */
};
void pipeline_feed_answer_done(struct feed_answer *a);

/* ---- windows.c, on the pipeline worker: samples -> frames -> windows ---- */
struct windows;
/*
 * All later calls must come from the worker work->pipe. work NULL: they may come from any thread,
 * but always from the same one.
 */
int pipeline_windows_new(const struct fold_config *c, struct files *f, const struct work *work,
			 struct windows **ret);
struct windows *pipeline_windows_free(struct windows *p);
void pipeline_windows_fold(struct windows *p, const struct feed *f, struct feed_answer *ret);
/* Reports as a loss that the node was not profiled for gap_ns, because no agent ran. */
void pipeline_windows_gap(struct windows *p, uint64_t gap_ns);
/* Adds lost samples of the node to the open window. */
void pipeline_windows_lose(struct windows *p, const struct losses *l);
/* ns: struct charged; 0: nobody */
void pipeline_windows_mappings(struct windows *p, struct mappings *m, uint64_t ns);
void pipeline_windows_runtimes(struct windows *p, struct process_id id, uint32_t exec_id,
			       struct runtime_process *r);
struct rows_told { /* see stacks_rows_set() */
	struct runtime_process *runtimes; /* whose rows the kernel has */
	uint64_t since_ns, until_ns;
	bool skipped; /* the kernel had other rows before, of which the worker was not told */
};
void pipeline_windows_rows_set(struct windows *p, struct process_id id, uint32_t exec_id,
			       const struct rows_told *rows);
void pipeline_windows_named(struct windows *p, struct names_wanted *w);
struct batch *pipeline_windows_flush(struct windows *p);
/*
 * Returns why kernel functions have no names; "": they have names. To be called only before the
 * worker uses p.
 */
const char *pipeline_windows_kernel_problem(const struct windows *p);

/* ---- tell.c: tells the worker of runtimes, and of rows of generated code ---- */
struct telling {
	struct task task;
	struct pipeline *pipeline;
	struct process_id id;
	uint32_t exec_id;
	struct rows_told rows; /* has a reference to the runtimes */
};
/* Tells of the rows that the worker's mailbox had no room for. To be called before each feed. */
void pipeline_tell_again(struct pipeline *p);
void pipeline_tell_done(struct pipeline *p); /* forgets these rows */

/* ---- throttle.c: how long CPU limits kept containers from running ---- */
struct throttle;
struct throttle *pipeline_throttle_new(struct pipeline *p);
struct throttle *pipeline_throttle_free(struct throttle *t);
/* Begins a reading every two seconds. To be called every second while off-cpu may be on. */
void pipeline_throttle_tick(struct throttle *t);
/* Forgets the last readings. To be called every second while nothing is profiled. */
void pipeline_throttle_off(struct throttle *t);
/* Moves the times that were read into the feed of a full drain. */
void pipeline_throttle_take(struct throttle *t, struct feed *f);

/* ---- process_reader.c: reads mappings and names of processes, on the files worker ---- */
struct process_reader;
/* The functions of follow that the reader calls; a test passes its own functions. */
struct reader_ops {
	bool (*rests)(const struct follow *f, struct process_id id, uint32_t exec_id);
	uint64_t (*cgroup)(const struct follow *f, struct process_id id);
	void (*follow)(struct follow *f, struct mappings *m, uint64_t cgroup_id);
};
struct process_reader *pipeline_reader_new(struct pipeline *p, const struct reader_ops *ops);
struct process_reader *pipeline_reader_free(struct process_reader *r);
/*
 * Has the files worker read the mappings of a process, and passes them on. stack: see struct
 * raw_proc. cgroup_id 0: the process has the cgroup that follow knows for it.
 */
void pipeline_reader_mappings(struct process_reader *r, struct process_id id, uint32_t exec_id,
			      uint32_t stack, uint64_t cgroup_id);
/* takes ownership of w */
void pipeline_reader_names(struct process_reader *r, struct names_wanted *w);
/* Returns the readings that are under way, by namespace (struct charged). */
const struct shares *pipeline_reader_reads(const struct process_reader *r);

/* ---- patience.c: how long drains wait for each namespace ---- */
struct patience;
/* A drain goes on without the names of the namespace. At most once a second. */
typedef void patience_over_fn(uint64_t ns, void *arg);
struct patience *pipeline_patience_new(patience_over_fn *over, void *arg);
struct patience *pipeline_patience_free(struct patience *p);
/*
 * To be called first at each look at a drain: the time since the last look is spent by those
 * namespaces for which the drain waited in it. now_ns: CLOCK_BOOTTIME
 */
void pipeline_patience_spend(struct patience *p, uint64_t now_ns);
/*
 * Whether the drain waits for one of these namespaces, that is, one has time left. Those spend the
 * time until the next look.
 */
bool pipeline_patience_waits(struct patience *p, const struct shares *under_way);

/* ---- attribute.c: whose the samples and the processes of a drain are ---- */
void pipeline_attribute(struct pipeline *p, struct feed *f); /* sets the owners of the samples */
void pipeline_charge_processes(const struct pipeline *p, struct feed *f); /* sets proc_ns */

/* ---- sample_queue.c: drains that wait for names or for the pipeline worker ---- */
struct sample_queue;
/*
 * The functions that the queue calls: those of windows.c, process_reader.c and follow, or a test's.
 */
struct queue_ops {
	void (*fold)(struct windows *w, const struct feed *f, struct feed_answer *ret);
	void (*read_mappings)(struct process_reader *r, struct process_id id, uint32_t exec_id,
			      uint32_t stack, uint64_t cgroup_id);
	void (*read_names)(struct process_reader *r, struct names_wanted *w);
	const struct shares *(*reads)(const struct process_reader *r);
	void (*parse)(struct follow *f, const struct unparsed_file *u, size_t n);
	const struct shares *(*parses)(const struct follow *f);
};
struct sample_queue *pipeline_queue_new(struct pipeline *p, const struct queue_ops *ops);
struct sample_queue *pipeline_queue_free(struct sample_queue *d);
/*
 * Adds a drain to the queue and takes ownership of it. drain NULL: the worker only checks whether a
 * window has ended.
 */
void pipeline_queue_add(struct sample_queue *d, struct drain *drain, bool full);
/* Like pipeline_queue_add, for samples that come from no probe: see pipeline_drain_whole(). */
void pipeline_queue_add_whole(struct sample_queue *d, struct drain *drain);
/* The next request tells the worker that these processes have ended. */
void pipeline_queue_exited(struct sample_queue *d, const struct process_exit *exits, size_t n);
void pipeline_queue_advance(struct sample_queue *d);
/*
 * Returns the losses that no request contains yet. The next request takes them. The caller may add
 * losses.
 */
struct losses *pipeline_queue_lost(struct sample_queue *d);
uint64_t pipeline_queue_n_lost(const struct sample_queue *d); /* see pipeline_n_lost() */

/* ---- downtime.c: how long the node was not profiled because no agent ran ---- */
struct downtime {
	char *path;	     /* path of the file; NULL: there is no directory for the file */
	const char *boot_id; /* borrowed */
	bool active;
	/* the file says that the time after its own time must be reported as a loss */
	bool owed;
	/*
	 * the previous agent ended while a process was selected, and this agent does not profile
	 * yet
	 */
	bool lasts;
	/*
	 * The kernel refuses the BPF programs. Targets and the report show this, and it does not
	 * count as downtime.
	 */
	bool refused;
	uint64_t before_ns; /* the downtime before this agent that is not reported yet */
	/* the downtime up to this moment is reported, or is in before_ns; CLOCK_BOOTTIME */
	uint64_t told_boot_ns;
	/*
	 * Wall time minus CLOCK_BOOTTIME, as measured by the first agent of this boot. All agents
	 * use this offset, so a process has the same start time for each of them.
	 */
	uint64_t start_offset_ns;
};
void pipeline_downtime_open(struct downtime *g, const struct config *conf, bool local,
			    const char *boot_id);
/*
 * Returns the downtime that is not reported yet, which then counts as reported. 0: none, or not
 * known.
 */
uint64_t pipeline_downtime_take(struct pipeline *p);
/*
 * Adds ns to the downtime that is not reported yet, because the request with this time was refused.
 */
void pipeline_downtime_untold(struct pipeline *p, uint64_t ns);
/*
 * To be called every second. active: a process is profiled. idle: the plan is known and selects
 * nothing. refused: the kernel refuses the BPF programs; targets and the report show this. The disk
 * worker writes the file.
 */
void pipeline_downtime_note(struct pipeline *p, bool active, bool idle, bool refused);
/* To be called when a window has ended and the sender has all profiles up to end_ns (wall time). */
void pipeline_downtime_left(struct pipeline *p, uint64_t end_ns);
void pipeline_downtime_end(struct pipeline *p); /* to be called when the agent ends */
void pipeline_downtime_done(struct downtime *g);

struct pipeline {
	struct pipeline_config config;
	struct sample_queue *queue;
	struct process_reader *reader;
	struct throttle *throttle;
	struct downtime downtime;
	struct windows *windows; /* NULL until pipeline_start() */
	struct untold *untold;	 /* of tell.c */
};

/* pipeline.c: sends a window. Takes ownership of b, which may be NULL. */
void pipeline_send(struct pipeline *p, struct batch *b);

/* ---- windows.c, judge.c and crowded.c; on the pipeline worker ---- */
struct sampled_process {
	struct process_id id;
	uint32_t container_pid;
	/* the last reported exec_id and stack; stack: see struct raw_proc */
	uint32_t exec_id, stack;
	/* the process's PID namespace is that of the node, not that of a container */
	bool nodes_pid_ns;
	char comm[16];
	uint64_t exited_ns; /* 0: it has not ended */
	uint64_t ns;	    /* struct charged; 0: nobody */
	UT_hash_handle hh;
};
struct windows {
	const struct work *work; /* may be NULL */
	struct stacks *stacks;
	struct fold *fold;
	struct sampled_process *processes;
	struct shares process_shares; /* of all in `processes`, by namespace */
	struct shares crowded;	      /* for the next struct feed_answer */
	/*
	 * The events of which samples were folded. A loss whose event is unknown may concern any of
	 * them.
	 */
	unsigned event_mask;
	uint64_t work_done; /* pipeline_work() of the samples that were folded of this drain */
};
/*
 * The work of a sample with these stacks, which may be NULL: one, and one for each frame, because
 * nearly all of the time goes into names of frames.
 */
static inline uint64_t pipeline_work(const struct raw_stack *user, const struct raw_stack *kernel)
{
	return 1 + (user ? user->n : 0) + (kernel ? kernel->n : 0);
}

/* What pipeline_judge() finds out about a sample. */
struct accepted {
	struct owner *owner; /* NULL: a host process */
	const struct attribution *attribution;
	struct taken *taken; /* the sums for `attribution`; NULL without it */
	const struct sampled_process *process;
	struct raw_names names;
	bool have_names;
};

/* ---- judge.c: known processes, and which samples count ---- */
void pipeline_note_processes(struct windows *p, const struct feed *f);
void pipeline_note_exits(struct windows *p, const struct process_exit *exits, size_t n);
/* Forgets processes that ended long before now_boot_ns; UINT64_MAX: all. */
void pipeline_forget_exited(struct windows *p, uint64_t now_boot_ns);
/*
 * Decides whether a sample counts. Returns NULL if it counts, else the reason why not. No other
 * function decides this.
 */
const char *pipeline_judge(struct windows *p, const struct feed *f, const struct raw_sample *s,
			   struct accepted *ret);
/* Returns the container of the sample's cgroup; NULL: not selected. */
const struct attribution *pipeline_attribution(const struct feed *f, const struct raw_sample *s);

/* ---- crowded.c ---- */
/* Keeps to f->room, which is not 0. Lost samples are in the window, and in ret->refused. */
void pipeline_crowd_out(struct windows *p, const struct feed *f, struct feed_answer *ret);
