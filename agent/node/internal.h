/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of node/ share. Threads: the loop owns struct node; the os
 * worker alone calls probes and unwind; the files worker reads processes of pods (it may be
 * replaced when one of them blocks it); the tables worker has their files parsed, the debug worker
 * looks for debug files; the disk worker keeps spool and state; the pipeline worker owns struct
 * pipeline.
 * Work goes between them as tasks, with what it is about inside.
 */
#pragma once

#include "node/fold/fold.h"
#include "node/node.h"
#include "node/report/report.h"
#include "node/send/send.h"
#include "node/learn/learn.h"

/* ---- task.c: work on a worker, then on the loop ---- */
struct task {
	struct job job;
	struct node *node;
	void (*run)(struct task *); /* worker; may be NULL */
	void (*done)(
		struct task *); /* loop; releases what is inside, the task itself is freed after */
	bool refused;		/* the mailbox was full: run was not called */
	bool ran, handled;
	struct task *next, **prev;
};
/* While the node closes: runs at once. n_bytes counts against the mailbox. */
void task_post(struct node *n, struct worker *w, struct task *t, size_t n_bytes);
/* After the workers have ended: finishes what they ran. */
void tasks_finish(struct node *n);

/* After the last use of the node: its memory goes when the last task does. */
void node_unref(struct node *n);

/* ---- hosts.c: host processes by name ---- */
struct host_process {
	uint32_t tgid;
	uint64_t start_boottime_ns; /* grain of /proc/PID/stat */
	uint64_t until_ns;	    /* UINT64_MAX while it runs and matches */
};
/* Immutable once shared; sorted by tgid, then start. */
struct host_list {
	unsigned refs;
	struct host_process *items;
	size_t n, cap;
};
struct hosts;
/* NULL in *ret: the configuration asks for none. */
int hosts_new(struct node *n, struct hosts **ret, struct field_error *reterr);
struct hosts *hosts_free(struct hosts *h);
struct host_list *hosts_list(struct hosts *h); /* new reference */
struct host_list *host_list_unref(struct host_list *l);
bool host_list_has(const struct host_list *l, uint32_t tgid, uint64_t start_boottime_ns,
		   uint64_t time_ns);
/* Is this event wanted of processes of this name? Any thread. */
bool hosts_match(struct hosts *h, const char *comm, enum event event);

/* ---- pipeline.c: samples -> frames -> windows; pipeline worker ---- */
struct attribution { /* of one cgroup in one drain */
	uint64_t cgroup_id, until_ns;
	struct owner *owner;
	/*
	 * What its values in this drain are, as overhead_estimate says: a share in ppm of what happened (0: all), and one
	 * standard error of their sum, relative to it. mem-alloc: they are to be multiplied by 1e6 / share_ppm.
	 */
	uint32_t share_ppm[_EVENT_MAX], error_ppm[_EVENT_MAX];
	uint64_t n_samples[_EVENT_MAX]; /* out: taken */
	uint64_t values[_EVENT_MAX];	/* the pipeline's own */
	uint64_t n_stacks, n_finished;	/* out: of these with a user stack; with a whole one */
};
struct missing { /* a process whose mappings are out of date */
	uint32_t tgid, exec_id, stack; /* stack: of raw_proc */
	uint64_t start_boottime_ns, cgroup_id;
};
#define MAX_MISSING 256
struct held_back { /* a container, by its CPU limit, since it was last read */
	struct owner *owner;
	uint64_t us, n;
};
struct feed {
	struct drain *drain; /* NULL: only looks whether a window ended */
	bool full, last_pass;	    /* last_pass: for mappings and names */
	bool files_asked;	    /* of all mappings that are to be read */
	bool whole;		    /* samples are not of probes: nothing of them stands for more */
	uint64_t gap_ns;	    /* that nobody was profiled before; told once */
	uint64_t asleep_ns;	    /* that the machine was, until now, and nobody has told; once */
	struct attribution *owners; /* sorted by cgroup id */
	size_t n_owners;
	struct host_list *hosts;
	struct hosts *host_names;
	struct held_back *held_back;
	size_t n_held_back;
	/* out */
	bool waits; /* nothing was folded: come again with what is missing and wanted */
	struct missing missing[MAX_MISSING]; /* mappings to be read */
	size_t n_missing;
	struct names_wanted **wanted; /* names to be read from processes */
	size_t n_wanted;
	struct batch *batch; /* a window that ended */
	uint64_t left_ns;    /* wall time of that end; 0: none ended. An empty one has no batch */
	struct unparsed_file *unparsed; /* to be parsed, for the next ones' names */
	size_t n_unparsed;
};
struct pipeline_config {
	struct fold_config fold;
	struct files *files; /* borrowed */
};
struct pipeline;
int pipeline_new(const struct pipeline_config *c, struct pipeline **ret);
struct pipeline *pipeline_free(struct pipeline *p);
void pipeline_feed(struct pipeline *p, struct feed *f);
/* Nobody was profiled for so long, and no agent is to blame but one that ended. */
void pipeline_gap(struct pipeline *p, uint64_t gap_ns);
void pipeline_mappings(struct pipeline *p, struct mappings *m);
void pipeline_runtimes(struct pipeline *p, uint32_t tgid, uint64_t start_boottime_ns,
		       uint32_t exec_id, struct runtime_process *r);
void pipeline_named(struct pipeline *p, struct names_wanted *w);
struct batch *pipeline_flush(struct pipeline *p);
/* Before the worker has it: why kernel functions have no names. */
const char *pipeline_kernel_problem(const struct pipeline *p);
void feed_done(struct feed *f);

/* ---- limit.c: limits.overheadPercent ---- */
struct limit;
struct limit *limit_new(struct node *n);
struct limit *limit_free(struct limit *l);
/* After each full drain; d may be NULL. */
void limit_stats(struct limit *l, const struct probes_stats *s, const struct drain *d);
/* Highest rate that costs at most percent of the CPU it samples; at least 1. */
unsigned limit_hz(double percent, uint64_t sample_cost_ns);

/* ---- throttle.c: how long CPU limits kept containers from running ---- */
struct throttle;
struct throttle *throttle_new(struct node *n);
struct throttle *throttle_free(struct throttle *t);
/* Every second while off-cpu may be on. */
void throttle_tick(struct throttle *t, const struct cgroup_hierarchy *h);
/* Every second while nothing is profiled. */
void throttle_off(struct throttle *t);
/* What there is goes with a full drain. */
void throttle_take(struct throttle *t, struct feed *f);

/* ---- told.c: one kind of problem and the targets that are told of it ---- */
struct told;
struct told_list {
	struct told *items;
	size_t n, cap;
};
struct told_what {
	const char *
		event; /* "mem-alloc": "mem-alloc of container a of pod p is off"; NULL: "container a of pod p: ..." */
	const char *problem; /* "is off": the same of several containers is told once */
	const char *detail;  /* of the first of these; may be NULL */
};
/* To the targets of a container. */
void told_add(struct told_list *l, struct node *n, const struct owner *o,
	      const struct told_what *what);
/* Reports now's, and that before's are none any more; now becomes before. */
void told_tell(struct told_list *before, struct told_list *now, struct node *n, const char *reason);
void told_done(struct told_list *l);

/* ---- gap.c: how long nobody was profiled here because an agent had ended ---- */
struct gap {
	char *path;	     /* NULL: nowhere to keep it */
	const char *boot_id; /* borrowed */
	bool active;
	bool owed; /* the file says that what came after its time is a loss */
	bool lasts; /* an agent ended while somebody was selected, and this one does not profile yet */
	bool refused;	       /* nor can it: what it tells of that is no gap */
	uint64_t before_ns;    /* of the gap before this agent, not told yet */
	uint64_t told_boot_ns; /* until then it is told, or in before_ns */
	/* Wall time minus CLOCK_BOOTTIME as the first agent saw it that left the file: by it a process is the same to the next one. */
	uint64_t start_offset_ns;
};
void gap_open(struct gap *g, const struct config *conf, bool local, const char *boot_id);
/* What was not told yet; 0: none, or not known. */
uint64_t gap_take(struct node *n);
/* It was not told, after all. */
void gap_untold(struct node *n, uint64_t ns);
/*
 * Every second: whether somebody is profiled; idle: it is known that nobody is to be; refused: the kernel takes no programs,
 * which targets and the report tell. Files are written on the disk worker.
 */
void gap_note(struct node *n, bool active, bool idle, bool refused);
/* A window has ended: what was before end_ns (wall time) is with the sender. */
void gap_left(struct node *n, uint64_t end_ns);
void gap_end(struct node *n); /* at the end of the node */
void gap_done(struct gap *g);

/* ---- world.c: what the API server says ---- */
struct world;
int world_new(struct node *n, struct world **ret);
struct world *world_free(struct world *w);

/* ---- kernel.c: probes, filter, scans, drains ---- */
struct kernel;
int kernel_new(struct node *n, struct kernel **ret, struct field_error *reterr);
/* Before the loop runs: loads in place, so that a user without Kubernetes is told at once. */
int kernel_load_now(struct kernel *k, struct field_error *reterr);
void kernel_close(struct kernel *k); /* workers have ended: last drain, unload */
struct kernel *kernel_free(struct kernel *k);
/* The plan or the list of host processes changed. */
void kernel_sync(struct kernel *k);
bool kernel_active(const struct kernel *k);
bool kernel_idle(const struct kernel *k); /* the plan is known, and selects nobody */
bool kernel_loaded(const struct kernel *k);
/* What the plan asks for is in the kernel, or the kernel refused it, which targets and report tell. */
bool kernel_settled(const struct kernel *k);
const struct cgroup_hierarchy *
kernel_hierarchy(const struct kernel *k); /* any thread; mount "": none */
/* os worker: the list of host processes; no-op while nothing is loaded. */
int kernel_list(struct kernel *k, const struct listed_process *want, size_t n);
/* os worker: NULL while nothing is loaded. */
struct unwind *kernel_unwind(const struct kernel *k);
/* probes worker: loaded as long as follow_idle is not true. */
struct probes *kernel_probes(const struct kernel *k);

/* ---- follow.c: unwind tables of the processes that are seen ---- */
struct follow;
struct follow *follow_new(struct node *n);
/* Its workers are about to end: what they have not begun is left. */
void follow_stop(struct follow *f);
struct follow *follow_free(struct follow *f);
/* A process's mappings are known (again); takes a reference. cgroup_id 0: as told before. */
void follow_process(struct follow *f, struct mappings *m, uint64_t cgroup_id);
/* The cgroup of a process that is followed; 0: it is not. */
uint64_t follow_cgroup(const struct follow *f, uint32_t tgid, uint64_t start_boottime_ns);
/* Whether its mappings were read so short a while ago, for what that costs, that they are not to be read again yet. */
bool follow_rests(const struct follow *f, uint32_t tgid, uint64_t start_boottime_ns,
		  uint32_t exec_id);
/* Who has ended, of all that a drain tells. */
void follow_exits(struct follow *f, const struct drain *d);
void follow_tick(struct follow *f); /* every second */
/* Before the programs are unloaded: no probe of a process is left. Takes them away; ask again until it is so. */
bool follow_idle(struct follow *f);
void follow_unloaded(struct follow *f);
/* Names were wanted of files that nobody has parsed, or that have been forgotten. */
void follow_parse(struct follow *f, const struct unparsed_file *u, size_t n);
/* Files are being parsed: names will be there in a moment. */
bool follow_parses(const struct follow *f);

/*
 * left_behind.c: jobs of one worker that do not come back. Another worker takes its place at once, or, if too many
 * are left behind already, when one of them is back. Loop thread.
 */
#define LEFT_BEHIND_MAX 4 /* threads, of one worker */
struct left_behind {
	const struct job *jobs[LEFT_BEHIND_MAX];
	size_t n;
	const struct job *waits; /* the worker is stuck with it, and there is no other yet */
};
/* j is stuck in *w. true: another is in its place. */
bool left_behind(struct left_behind *l, struct worker **w, const struct job *j);
/* Every second: there may have been no thread to be had. true: likewise. */
bool left_behind_again(struct left_behind *l, struct worker **w);
/* Of every job that ends, stuck or not, while *w is not about to end itself. true: likewise. */
bool left_behind_ended(struct left_behind *l, struct worker **w, const struct job *j);

/*
 * A task of the files worker, for process_post: who blocks it is told (reads.c), and keeps no second thread: as long as one of a
 * pod's is left behind, its other ones are refused.
 */
struct process_task {
	struct task task;
	uint32_t tgid;
	uint64_t cgroup_id;
	/* reads.c's own */
	void (*run)(struct task *t);  /* task.run */
	void (*late)(struct task *t); /* task.done, of one that was stuck */
	uint64_t pod;
	bool blocked;
};
void process_post(struct node *n, struct process_task *p, size_t n_bytes);
/* Why it was refused, for counters. */
const char *process_refusal(const struct process_task *p);

/* ---- reads.c: what the files worker reads of processes, for the pipeline; drains are told when it is there ---- */
struct reads;
struct reads *reads_new(struct node *n);
struct reads *reads_free(struct reads *r);
/* Mappings, as when it was first seen; stack: of raw_proc; cgroup_id 0: as told before. */
void reads_mappings(struct reads *r, uint32_t tgid, uint64_t start_boottime_ns, uint32_t exec_id,
		    uint32_t stack, uint64_t cgroup_id);
void reads_names(struct reads *r, struct names_wanted *w); /* takes w */
bool reads_under_way(const struct reads *r);
void reads_tick(struct reads *r); /* every second */

/* ---- drains.c: what a drain brought, on its way to the pipeline ---- */
struct drains;
struct drains *drains_new(struct node *n);
struct drains *drains_free(struct drains *d);
void drains_add(struct drains *d, struct drain *drain, bool full); /* takes drain; NULL: a tick */
/* The same of what does not come from probes: nothing of it stands for more. */
void drains_add_whole(struct drains *d, struct drain *drain);
void drains_advance(struct drains *d);

struct node {
	struct loop *loop;
	const struct config *conf;
	struct node_config config;
	unsigned refs; /* struct node_new's and one a task */
	bool closing;  /* os, files and pipeline workers have ended */
	bool closed;
	bool was_ready;			  /* node_ready has said so */
	struct task *tasks, **tasks_tail; /* outstanding, in order */

	struct worker *os, *files, *tables, *debug, *pipe, *disk;
	struct worker *attach; /* NULL until a JVM is asked for its perf map; it may block it */
	bool attach_stopped;   /* atomic: what it has not begun is left */
	struct worker
		*probing; /* attaches probes to processes and takes them away: that waits for RCU */
	struct files *known_files; /* any thread; NULL until node_start */
	struct procs *procs;
	struct world *world;
	struct kernel *kernel;
	struct reads *reads;
	_Atomic uint64_t
		blocked[LEFT_BEHIND_MAX +
			1]; /* reads.c: pods whose jobs are left behind or stuck; 0: none */
	struct drains *drains;
	struct follow *follow;
	struct hosts *hosts;
	struct pipeline *pipeline; /* NULL until node_start */
	struct sender *sender;
	struct report *report;
	struct limit *limit;
	struct throttle *throttle;
	struct overhead *overhead; /* overhead.h */
	struct gap gap;
	size_t table_bytes; /* of unwind tables, at most */
	char boot_id[64];
	char kernel_problem[160]; /* why kernel functions have no names here; "" */
};
/* Both do nothing the second time. The node's UID is known: profiles can be named; */
int node_start(struct node *n, const char *node_uid);
/* the API server has this node: it can be reported on. */
int node_start_report(struct node *n);
void node_batch(struct node *n, struct batch *b); /* takes b, may be NULL */
void node_problem_all(struct node *n, const char *reason, const char *message);
/* Targets of a container (by id, else by pod) get fn(uid). */
void node_targets_of(struct node *n, const char *container_id, const char *pod_uid,
		     void (*fn)(struct node *n, const char *uid, void *arg), void *arg);
bool node_total(const struct node *n);
/* Pods are profiled, by their cgroups; else host processes only. */
bool node_has_pods(const struct node *n);
