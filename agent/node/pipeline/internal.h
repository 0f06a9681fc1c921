/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of pipeline/ share and that other modules do not use. Loop thread,
 * but for windows.c and judge.c, which the pipeline worker runs.
 */
#pragma once

#include "node/pipeline/pipeline.h"

#include "node/fold/fold.h"

#include <uthash.h>

#define HOLD_EXITED_NS (10 * NSEC_PER_SEC)

/* ---- requests to the pipeline worker, and its answers ---- */
struct attribution { /* whose the samples of one cgroup in one drain are */
	uint64_t cgroup_id, until_ns;
	struct owner *owner;
	/*
	 * How exact its values in this drain are: see limit_estimate(). A share in ppm of what
	 * happened (0: all), and one standard error of their sum, relative to it. Values of
	 * mem-alloc are multiplied by 1e6 / share_ppm.
	 */
	uint32_t share_ppm[_EVENT_MAX], error_ppm[_EVENT_MAX];
};
struct held_back { /* how long the CPU limit held a container back since the last reading */
	struct owner *owner;
	uint64_t us, n;
};
/* A request: what windows.c folds into windows. */
struct feed {
	struct drain *drain;	    /* NULL: only checks whether a window has ended */
	bool full, last_pass;	    /* last_pass: do not wait for mappings and names again */
	bool files_asked;	    /* the previous answer asked for the files of all mappings */
	bool whole; /* values are exact and stand for no more: the samples come from no probe */
	uint64_t gap_ns;	    /* how long the node was not profiled before; reported once */
	uint64_t asleep_ns;	    /* how long the machine slept before now; reported once */
	struct losses lost;	    /* of the drain, and before it; goes into the window */
	struct attribution *owners; /* sorted by cgroup id */
	size_t n_owners;
	struct process_exit *exits; /* since the request before */
	size_t n_exits;
	struct host_list *hosts;
	struct hosts *host_names;
	struct held_back *held_back;
	size_t n_held_back;
};
void pipeline_feed_done(struct feed *f);

struct missing { /* a process whose mappings are out of date */
	struct process_id id;
	uint32_t exec_id, stack; /* stack: see raw_proc */
	uint64_t cgroup_id;
};
#define MAX_MISSING 256
struct taken { /* what was folded of one cgroup */
	uint64_t n_samples[_EVENT_MAX];
	/* samples with a user stack; those of them with a complete one */
	uint64_t n_stacks, n_finished;
	uint64_t values[_EVENT_MAX];   /* for windows.c only */
};
/* The answer to a feed. The caller passes it with all fields 0. */
struct feed_answer {
	bool waits;	  /* nothing was folded: send the feed again with what is missing */
	bool files_asked; /* to be copied to the feed that is sent again */
	struct missing missing[MAX_MISSING]; /* mappings to read */
	size_t n_missing;
	struct names_wanted **wanted; /* names to read from processes */
	size_t n_wanted;
	struct unparsed_file *unparsed; /* files to parse, for the names of the next drains */
	size_t n_unparsed;
	struct taken *taken; /* one per entry of feed.owners; NULL: nothing was folded */
	struct batch *batch; /* a window that ended; NULL if it is empty */
	uint64_t left_ns;    /* wall time when it ended; 0: none has ended */
};
void pipeline_feed_answer_done(struct feed_answer *a);

/* ---- windows.c: samples -> frames -> windows; on the pipeline worker ---- */
struct windows;
/* Later calls are for work->pipe. work NULL: for one thread, whichever it is. */
int pipeline_windows_new(const struct fold_config *c, struct files *f, const struct work *work,
			 struct windows **ret);
struct windows *pipeline_windows_free(struct windows *p);
void pipeline_windows_fold(struct windows *p, const struct feed *f, struct feed_answer *ret);
/* Records that the node was not profiled for this long because an agent had ended. */
void pipeline_windows_gap(struct windows *p, uint64_t gap_ns);
/* Adds samples that the node has lost to the open window. */
void pipeline_windows_lose(struct windows *p, const struct losses *l);
void pipeline_windows_mappings(struct windows *p, struct mappings *m);
void pipeline_windows_runtimes(struct windows *p, struct process_id id,
		       uint32_t exec_id, struct runtime_process *r);
void pipeline_windows_named(struct windows *p, struct names_wanted *w);
struct batch *pipeline_windows_flush(struct windows *p);
/* Why kernel functions have no names. Only before the worker uses p. */
const char *pipeline_windows_kernel_problem(const struct windows *p);

/* ---- throttle.c: how long CPU limits held containers back ---- */
struct throttle;
struct throttle *pipeline_throttle_new(struct pipeline *p);
struct throttle *pipeline_throttle_free(struct throttle *t);
/* The caller calls this every second while off-cpu may be on. */
void pipeline_throttle_tick(struct throttle *t);
/* The caller calls this every second while nothing is profiled. */
void pipeline_throttle_off(struct throttle *t);
/* Moves what was read into the feed of a full drain. */
void pipeline_throttle_take(struct throttle *t, struct feed *f);

/* ---- process_reader.c: what the files worker reads of processes for the pipeline ---- */
struct process_reader;
/* How the reader reaches follow, or a test. */
struct reader_ops {
	bool (*rests)(const struct follow *f, struct process_id id, uint32_t exec_id);
	uint64_t (*cgroup)(const struct follow *f, struct process_id id);
	void (*follow)(struct follow *f, struct mappings *m, uint64_t cgroup_id);
};
struct process_reader *pipeline_reader_new(struct pipeline *p, const struct reader_ops *ops);
struct process_reader *pipeline_reader_free(struct process_reader *r);
/*
 * Reads the mappings of a process, as when it was first seen. stack: see raw_proc. cgroup_id 0: as
 * before.
 */
void pipeline_reader_mappings(struct process_reader *r, struct process_id id, uint32_t exec_id,
		    uint32_t stack, uint64_t cgroup_id);
void pipeline_reader_names(struct process_reader *r, struct names_wanted *w); /* takes w over */
bool pipeline_reader_under_way(const struct process_reader *r);

/* ---- sample_queue.c: drains on their way to the pipeline worker ---- */
struct sample_queue;
/* How the queue reaches its neighbours: windows.c, process_reader.c and follow, or a test. */
struct queue_ops {
	void (*fold)(struct windows *w, const struct feed *f, struct feed_answer *ret);
	void (*read_mappings)(struct process_reader *r, struct process_id id, uint32_t exec_id,
			      uint32_t stack, uint64_t cgroup_id);
	void (*read_names)(struct process_reader *r, struct names_wanted *w);
	bool (*reads)(const struct process_reader *r);
	void (*parse)(struct follow *f, const struct unparsed_file *u, size_t n);
	bool (*parses)(const struct follow *f);
};
struct sample_queue *pipeline_queue_new(struct pipeline *p, const struct queue_ops *ops);
struct sample_queue *pipeline_queue_free(struct sample_queue *d);
/* Takes drain over; NULL: only checks whether a window has ended. */
void pipeline_queue_add(struct sample_queue *d, struct drain *drain, bool full);
/* The same for samples that come from no probe: their values are exact and stand for no more. */
void pipeline_queue_add_whole(struct sample_queue *d, struct drain *drain);
/* The next request says that these have ended. */
void pipeline_queue_exited(struct sample_queue *d, const struct process_exit *exits, size_t n);
void pipeline_queue_advance(struct sample_queue *d);
/* What was lost and no request has yet: the next one takes it. The caller may add to it. */
struct losses *pipeline_queue_lost(struct sample_queue *d);
uint64_t pipeline_queue_n_lost(const struct sample_queue *d); /* see pipeline_n_lost() */

/* ---- downtime.c: how long the node was not profiled because an agent had ended ---- */
struct downtime {
	char *path;	     /* of the file; NULL: there is nowhere to keep it */
	const char *boot_id; /* borrowed */
	bool active;
	bool owed; /* according to the file, the time after its end is a loss */
	/* an agent ended while a process was selected, and this one does not profile yet */
	bool lasts;
	/* the kernel refuses the programs, which is reported elsewhere and is no gap */
	bool refused;
	uint64_t before_ns;    /* the gap before this agent that is not reported yet */
	uint64_t told_boot_ns; /* up to here the gap is reported or in before_ns */
	/*
	 * Wall time minus CLOCK_BOOTTIME as the first agent of this boot saw it. With the same
	 * offset, a process has the same start time for each agent.
	 */
	uint64_t start_offset_ns;
};
void pipeline_downtime_open(struct downtime *g, const struct config *conf, bool local,
			    const char *boot_id);
/* Takes what is not reported yet; 0: nothing, or not known. */
uint64_t pipeline_downtime_take(struct pipeline *p);
/* Gives ns back: it could not be reported. */
void pipeline_downtime_untold(struct pipeline *p, uint64_t ns);
/*
 * The caller calls this every second. active: a process is profiled. idle: the plan is known and
 * selects nothing. refused: the kernel refuses the programs, which targets and the report say. The
 * disk worker writes the file.
 */
void pipeline_downtime_note(struct pipeline *p, bool active, bool idle, bool refused);
/* A window has ended. The sender has what was before end_ns (wall time). */
void pipeline_downtime_left(struct pipeline *p, uint64_t end_ns);
void pipeline_downtime_end(struct pipeline *p); /* when the agent ends */
void pipeline_downtime_done(struct downtime *g);

struct pipeline {
	struct pipeline_config config;
	struct sample_queue *queue;
	struct process_reader *reader;
	struct throttle *throttle;
	struct downtime downtime;
	struct windows *windows; /* NULL until pipeline_start() */
};

/* pipeline.c: takes b over; may be NULL. */
void pipeline_send(struct pipeline *p, struct batch *b);

/* ---- windows.c and judge.c; on the pipeline worker ---- */
struct sampled_process {
	struct process_id id;
	uint32_t container_pid;
	uint32_t exec_id, stack; /* as last reported; stack: see raw_proc */
	bool nodes_pid_ns; /* its PID namespace is the node's, not one of a container */
	char comm[16];
	uint64_t exited_ns; /* 0: it lives */
	UT_hash_handle hh;
};
struct windows {
	const struct work *work; /* may be NULL */
	struct stacks *stacks;
	struct fold *fold;
	struct sampled_process *processes;
	/* events that samples were taken for; a loss of no known event may be of any of these */
	unsigned event_mask;
};

/* What is known of a sample that is being judged. */
struct accepted {
	struct owner *owner; /* NULL: a host process */
	const struct attribution *attribution;
	struct taken *taken; /* of `attribution` */
	const struct sampled_process *process;
	struct raw_names names;
	bool have_names;
};

/* ---- judge.c: processes, and which samples count ---- */
void pipeline_note_processes(struct windows *p, const struct drain *d);
void pipeline_note_exits(struct windows *p, const struct process_exit *exits, size_t n);
/* Forgets the processes that ended long before; UINT64_MAX: all. */
void pipeline_forget_exited(struct windows *p, uint64_t now_boot_ns);
/*
 * Decides whether a sample counts. Returns NULL if it does, and otherwise the reason why not. No
 * other function decides this.
 */
const char *pipeline_judge(struct windows *p, const struct feed *f, const struct raw_sample *s,
			   struct accepted *ret);
