/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the pipeline share. */
#pragma once

#include "node/pipeline/pipeline.h"

#include "node/fold/fold.h"

#include <uthash.h>

#define HOLD_EXITED_NS (10 * NSEC_PER_SEC)
#define MAX_LOSSES     128

/* ---- what goes to the pipeline worker, and comes back ---- */
struct attribution { /* of one cgroup in one drain */
	uint64_t cgroup_id, until_ns;
	struct owner *owner;
	/*
	 * What its values in this drain are, as limit_estimate says: a share in ppm of what happened (0: all), and one
	 * standard error of their sum, relative to it. mem-alloc: they are to be multiplied by 1e6 / share_ppm.
	 */
	uint32_t share_ppm[_EVENT_MAX], error_ppm[_EVENT_MAX];
};
struct held_back { /* a container, by its CPU limit, since it was last read */
	struct owner *owner;
	uint64_t us, n;
};
/* What windows.c is asked to fold. */
struct feed {
	struct drain *drain;	    /* NULL: only looks whether a window ended */
	bool full, last_pass;	    /* last_pass: for mappings and names */
	bool files_asked;	    /* of all mappings that are to be read: the answer before said so */
	bool whole;		    /* samples are not of probes: nothing of them stands for more */
	uint64_t gap_ns;	    /* that nobody was profiled before; told once */
	uint64_t asleep_ns;	    /* that the machine was, until now, and nobody has told; once */
	struct attribution *owners; /* sorted by cgroup id */
	size_t n_owners;
	struct host_list *hosts;
	struct hosts *host_names;
	struct held_back *held_back;
	size_t n_held_back;
};
void pipeline_feed_done(struct feed *f);

struct missing { /* a process whose mappings are out of date */
	uint32_t tgid, exec_id, stack; /* stack: of raw_proc */
	uint64_t start_boottime_ns, cgroup_id;
};
#define MAX_MISSING 256
struct taken { /* of one cgroup */
	uint64_t n_samples[_EVENT_MAX];
	uint64_t n_stacks, n_finished; /* of these with a user stack; with a whole one */
	uint64_t values[_EVENT_MAX];   /* windows.c's own */
};
/* What came of it. All zero before. */
struct feed_answer {
	bool waits;	  /* nothing was folded: come again with what is missing and wanted */
	bool files_asked; /* for the feed that comes again */
	struct missing missing[MAX_MISSING]; /* mappings to be read */
	size_t n_missing;
	struct names_wanted **wanted; /* names to be read from processes */
	size_t n_wanted;
	struct unparsed_file *unparsed; /* to be parsed, for the next ones' names */
	size_t n_unparsed;
	struct taken *taken; /* one for each of feed.owners; NULL: nothing was folded */
	struct batch *batch; /* a window that ended */
	uint64_t left_ns;    /* wall time of that end; 0: none ended. An empty one has no batch */
};
void pipeline_feed_answer_done(struct feed_answer *a);

/* ---- windows.c: samples -> frames -> windows; pipeline worker ---- */
struct windows;
int pipeline_windows_new(const struct fold_config *c, struct files *f, struct windows **ret);
struct windows *pipeline_windows_free(struct windows *p);
void pipeline_windows_fold(struct windows *p, const struct feed *f, struct feed_answer *ret);
/* Nobody was profiled for so long, and no agent is to blame but one that ended. */
void pipeline_windows_gap(struct windows *p, uint64_t gap_ns);
void pipeline_windows_mappings(struct windows *p, struct mappings *m);
void pipeline_windows_runtimes(struct windows *p, struct process_id id,
		       uint32_t exec_id, struct runtime_process *r);
void pipeline_windows_named(struct windows *p, struct names_wanted *w);
struct batch *pipeline_windows_flush(struct windows *p);
/* Before the worker has it: why kernel functions have no names. */
const char *pipeline_windows_kernel_problem(const struct windows *p);

/* ---- throttle.c: how long CPU limits kept containers from running ---- */
struct throttle;
struct throttle *pipeline_throttle_new(struct pipeline *p);
struct throttle *pipeline_throttle_free(struct throttle *t);
/* Every second while off-cpu may be on. */
void pipeline_throttle_tick(struct throttle *t);
/* Every second while nothing is profiled. */
void pipeline_throttle_off(struct throttle *t);
/* What there is goes with a full drain. */
void pipeline_throttle_take(struct throttle *t, struct feed *f);

/* ---- process_reader.c: what the files worker reads of processes, for the pipeline ---- */
struct process_reader;
struct process_reader *pipeline_reader_new(struct pipeline *p);
struct process_reader *pipeline_reader_free(struct process_reader *r);
/* Mappings, as when it was first seen; stack: of raw_proc; cgroup_id 0: as told before. */
void pipeline_reader_mappings(struct process_reader *r, struct process_id id, uint32_t exec_id,
		    uint32_t stack, uint64_t cgroup_id);
void pipeline_reader_names(struct process_reader *r, struct names_wanted *w); /* takes w */
bool pipeline_reader_under_way(const struct process_reader *r);

/* ---- sample_queue.c: what a drain brought, on its way to the pipeline worker ---- */
struct sample_queue;
struct sample_queue *pipeline_queue_new(struct pipeline *p);
struct sample_queue *pipeline_queue_free(struct sample_queue *d);
void pipeline_queue_add(struct sample_queue *d, struct drain *drain, bool full); /* takes drain; NULL: a tick */
/* The same of what does not come from probes: nothing of it stands for more. */
void pipeline_queue_add_whole(struct sample_queue *d, struct drain *drain);
void pipeline_queue_advance(struct sample_queue *d);

/* ---- downtime.c: how long nobody was profiled here because an agent had ended ---- */
struct downtime {
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
void pipeline_downtime_open(struct downtime *g, const struct config *conf, bool local, const char *boot_id);
/* What was not told yet; 0: none, or not known. */
uint64_t pipeline_downtime_take(struct pipeline *p);
/* It was not told, after all. */
void pipeline_downtime_untold(struct pipeline *p, uint64_t ns);
/*
 * Every second: whether somebody is profiled; idle: it is known that nobody is to be; refused: the kernel takes no programs,
 * which targets and the report tell. Files are written on the disk worker.
 */
void pipeline_downtime_note(struct pipeline *p, bool active, bool idle, bool refused);
/* A window has ended: what was before end_ns (wall time) is with the sender. */
void pipeline_downtime_left(struct pipeline *p, uint64_t end_ns);
void pipeline_downtime_end(struct pipeline *p); /* at the end of the node */
void pipeline_downtime_done(struct downtime *g);

struct pipeline {
	struct pipeline_config config;
	struct sample_queue *queue;
	struct process_reader *reader;
	struct throttle *throttle;
	struct downtime downtime;
	struct windows *windows; /* NULL until pipeline_start */
};

/* pipeline.c: takes b, which may be NULL. */
void pipeline_send(struct pipeline *p, struct batch *b);

/* ---- windows.c and judge.c ---- */
struct process {
	struct process_id id;
	uint32_t container_pid;
	uint32_t exec_id, stack; /* as last told: of raw_proc */
	bool nodes_pid_ns; /* it sees itself as the agent sees it: of the node, not of a container */
	char comm[16];
	uint64_t exited_ns; /* 0: lives */
	UT_hash_handle hh;
};
struct known_loss {
	const char *reason;
	unsigned event_mask;
	uint64_t value;
};
struct windows {
	struct stacks *stacks;
	struct fold *fold;
	struct process *processes;
	uint64_t sweep_ns; /* not before it are they looked for again */
	struct known_loss losses[MAX_LOSSES];
	size_t n_losses;
	unsigned
		event_mask; /* that samples were taken for: what is lost of no known event may have been any of these */
};

/* A sample that is looked at. */
struct accepted {
	struct owner *owner; /* NULL: a host process */
	const struct attribution *attribution;
	struct taken *taken; /* of attribution */
	const struct process *process;
	struct raw_names names;
	bool have_names;
};

/* ---- judge.c: processes, and which samples count ---- */
void pipeline_note_processes(struct windows *p, const struct drain *d);
/* Those that ended long before; UINT64_MAX: all. */
void pipeline_forget_exited(struct windows *p, uint64_t now_boot_ns);
/* NULL: counts; else the reason why not. The one place that says so. */
const char *pipeline_judge(struct windows *p, const struct feed *f, const struct raw_sample *s,
			   struct accepted *ret);
