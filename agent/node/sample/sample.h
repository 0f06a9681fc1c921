/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample: the plain data that node/probe takes from the kernel and that other modules read. It
 * holds samples, their stacks and names, and the processes and cgroups that began or ended. A
 * struct drain holds all that left the kernel since the drain before. A quick drain has only
 * processes, cgroups and stacks of young processes; samples wait for the next full drain.
 *
 * node/probe makes drains (probes_drain()). The reader of Go's heap profiles also makes some.
 * node/stack gives names to the frames of a drain, and node/fold makes profiles of its samples. A
 * drain has one owner at a time, on any thread.
 */
#pragma once

#include "lib/profile/profile.h"

/* The kinds of a GPU's work, with the numbers of enum podflame_cuda_kind. */
enum raw_work { RAW_WORK_KERNEL, RAW_WORK_COPY, RAW_WORK_SET };

struct raw_frame {
	bool kernel : 1;
	bool no_file : 1; /* no file was mapped at the address */
	bool gpu_work : 1; /* a piece of work of a GPU: sample_gpu_name() */
	uint8_t runtime; /* enum pf_runtime_kind; 0: a native or kernel frame */
	/* in a runtime's frame: its type, a number that the runtime defines, or PF_TYPE_TROUBLE */
	uint8_t type;
	uint32_t exec_id; /* in a user frame: the generation of the process's mappings */
	union {
		/*
		 * in a runtime's frame: the function and the position in it, as the runtime defines
		 */
		uint64_t words[2];
		struct {
			/*
			 * In the leaf frame, this is the address of the instruction. In the frame
			 * of a caller, it is a return address, or one more than the address of the
			 * instruction that a signal interrupted. There the reader must subtract 1
			 * before it looks up the address.
			 */
			uint64_t address;
			/* the offset of the address in the file that `tag` names */
			uint64_t file_offset;
		};
		/* in a frame of a GPU's work */
		struct {
			uint8_t work; /* enum raw_work; a higher number: another kind */
			uint8_t copy; /* CUpti_ActivityMemcpyKind; 0: no copy, or not known */
			bool name_cut;
		};
	};
	/*
	 * The file that was mapped at the address. 0: no_file, or the BPF program did not look for
	 * a file. PF_TAG_UNKNOWN: the BPF program could not see the file.
	 */
	uint64_t tag;
};
struct raw_stack {
	uint64_t hash;
	const struct raw_frame *frames; /* leaf first */
	size_t n; /* of a stack of a GPU's work, the items after the first are a text */
	/*
	 * NULL: the stack is complete. Else the reason why the stack ends here, a text of
	 * PF_STACK_ENDS such as "read".
	 */
	const char *end_reason;
	uint32_t share; /* whose it is: struct pf_filter of bpf/abi.h */
};
/*
 * Returns the name of a GPU's work, which is the only frame of its stack: as it is mangled, any
 * bytes. The text is in the items after the first. "": the work has no name.
 */
static inline const char *sample_gpu_name(const struct raw_stack *s)
{
	return s->n > 1 ? (const char *)&s->frames[1] : "";
}
struct raw_names {
	uint64_t hash;
	char leader_comm[16], thread_comm[16];
	uint32_t share; /* as that of a stack */
};
/* The text of a label: bytes that a process wrote. */
#define RAW_TEXT_BYTES 64
struct raw_text {
	uint64_t hash;
	char text[RAW_TEXT_BYTES];
	uint32_t share; /* as that of a stack */
};
/* The labels of a sample as numbers, which profile_label_text() makes text of. */
struct raw_labels {
	unsigned mask; /* 1 << enum profile_label for each label that the sample has */
	/* of a label that is a text (profile_label_is_text()): the hash of a struct raw_text */
	uint64_t numbers[_LABEL_MAX];
	/* texts of the drain; NULL: the label is not a text, or the drain does not have the text */
	const char *texts[_LABEL_MAX];
};
/*
 * The trace and the span during which a sample was taken (docs/trace-context.md), and its labels. A
 * sample may have one of them, or both.
 */
struct raw_context {
	uint64_t hash;
	struct profile_link link;  /* all zero: the sample has no valid ids */
	bool invalid_ids;	   /* the program published ids, but they are not valid */
	struct raw_labels labels;
	uint32_t share; /* as that of a stack */
};
struct raw_sample {
	enum event event;
	/* names, ustack and kstack: hashes of the drain's names and stacks */
	uint64_t start_boottime_ns, cgroup_id, names, ustack, kstack;
	uint32_t tgid, tid, cpu;	      /* cpu UINT32_MAX: samples of all CPUs */
	enum wait wait;			      /* only in samples of off-cpu */
	uint64_t n, value, first_ns, last_ns; /* first_ns, last_ns: CLOCK_BOOTTIME */
	/*
	 * in samples of mem-inuse: when the oldest allocation was sampled, so the stack may be as
	 * old
	 */
	uint64_t oldest_ns;
	/* hash of the sample's struct raw_context; 0: the sample has none */
	uint64_t ctx;
	/* link and labels of the context whose hash is ctx; NULL: the drain has no valid one */
	const struct profile_link *link;
	const struct raw_labels *labels;
};
/*
 * Returns when the first part of the sample was counted (CLOCK_BOOTTIME); of memory in use, when
 * its oldest allocation was.
 */
uint64_t sample_since_ns(const struct raw_sample *s);
/*
 * With probe_config.total: the sum of the samples of all threads with these names, in all
 * processes.
 */
struct raw_total {
	char leader_comm[16], thread_comm[16];
	bool main_thread;
	uint64_t n, value;
};
enum raw_proc_what {
	RAW_PROC_SEEN, /* the process's first sample came, or probes_announce reported it */
	RAW_PROC_EXEC,
	RAW_PROC_EXIT,
	/*
	 * the process's executable mappings changed, or the BPF programs know more functions to
	 * probe: the agent must read the mappings again
	 */
	RAW_PROC_MAPS,
};
struct raw_proc {
	enum raw_proc_what what;
	/* the agent has given the kernel all that the process's stacks need so far */
	bool all_known;
	uint32_t tgid, tgid_root, tgid_own, exec_id;
	uint32_t stack; /* low half of mm->start_stack, which each exec changes; 0: not known */
	uint64_t start_boottime_ns, cgroup_id, time_ns;
	char comm[16];
};
struct raw_cgroup {
	uint64_t id, parent_id;
	bool removed;
	/* the cgroup was made below a selected one, so the kernel selected it at once */
	bool armed;
	char *path; /* relative to the mount point of the hierarchy, "/..." */
};
/*
 * A stack of a process that may end soon. The names of some of its frames are in the process's
 * memory.
 */
struct raw_young {
	uint32_t tgid;
	uint64_t start_boottime_ns;
	struct raw_stack stack;
	struct raw_frame *frames; /* frames of the stack */
};
/* What all namespaces share: tables in the kernel, and what the agent has for what leaves them. */
enum shared_table {
	SHARED_COUNTS,	  /* of a generation */
	SHARED_RING,	  /* bytes of stacks, names and processes that are on their way */
	SHARED_WAITS,	  /* threads that wait */
	SHARED_LIVE,	  /* memory in use */
	SHARED_PENDING,	  /* calls of allocators and of the CUDA driver */
	SHARED_OBJECTS,	  /* contexts, pools and mappings of GPU memory */
	SHARED_LAUNCHES,  /* of work for GPUs */
	SHARED_FUNCTIONS, /* processes whose RDMA providers are known */
	SHARED_REQUESTS,  /* of RDMA, under way */
	SHARED_QUEUES,	  /* queue pairs of RDMA */
	SHARED_WORK,	  /* the time of the agent's pipeline worker */
	SHARED_YOUNG,	  /* stacks of young processes whose names are read at once */
	SHARED_MAPPINGS,  /* programs whose mappings one drain asks for */
	SHARED_READS,	  /* readings of mappings at the start of programs */
	SHARED_WAITING,	  /* the time that drains wait for names */
	SHARED_TABLES,	  /* processes with unwind tables */
	SHARED_PROCESSES, /* processes of which the agent keeps something */
	SHARED_THROTTLED, /* containers whose throttled time is read */
	SHARED_LINKS,	  /* trace contexts of a window */
	SHARED_PERF_MAPS, /* functions of perf maps */
	SHARED_NAMES,	  /* names of functions of runtimes */
	SHARED_GO_HEAPS,  /* stacks of Go programs' own heap profiles */
	SHARED_ROWS,	  /* rows that generated code had lately */
	SHARED_COSTS,	  /* of cgroups, by event, for limits.overheadPercent */
	_SHARED_MAX
};
/* A namespace had more than its share, so this event of it lacks something. */
struct raw_refused {
	enum shared_table table;
	enum event event;
	uint64_t ns; /* struct charged of node/proc */
};
/* All that left the kernel since the drain before. The drain owns all memory to which it points. */
struct drain {
	struct raw_sample *samples;
	size_t n_samples;
	struct raw_total *totals;
	size_t n_totals;
	struct raw_stack *stacks;
	size_t n_stacks; /* sorted by hash */
	struct raw_names *names;
	size_t n_names; /* sorted by hash */
	struct raw_context *contexts;
	size_t n_contexts; /* sorted by hash */
	struct raw_text *texts;
	size_t n_texts; /* sorted by hash */
	struct raw_proc *procs;
	size_t n_procs; /* in order of time */
	struct raw_cgroup *cgroups;
	size_t n_cgroups;
	struct raw_young *young; /* quick drains have these, too */
	size_t n_young;
	uint64_t number;	 /* 1 for the first drain, 2 for the next, and so on */
	uint64_t from_ns, to_ns; /* CLOCK_BOOTTIME */
	/*
	 * How long the machine was suspended between from_ns and to_ns. 0: less than half a second,
	 * or a quick drain.
	 */
	uint64_t asleep_ns;
	/*
	 * an event was attached again or its state changed: probes_support() may return other
	 * results
	 */
	bool tried_again;
	/* lost samples that this drain should have contained; none in a quick drain */
	struct losses lost;
	/* records that did not reach this drain: a stack, a name, a process or a cgroup */
	struct losses lost_records;
	struct raw_refused *refused; /* of these losses; none in a quick drain */
	size_t n_refused;
	struct buf *memory; /* holds the frames of all stacks */
};

/* Returns an empty drain. Its memory can hold frame_bytes_max bytes of frames; 0: 1 GiB. */
struct drain *sample_drain_new(size_t frame_bytes_max);
struct drain *sample_drain_free(struct drain *d);
/*
 * Sorts stacks, names, contexts and texts by hash and keeps one of each hash. Returns how many
 * items it dropped.
 */
size_t sample_drain_sort(struct drain *d);
/*
 * As long as d->memory grows, `frames` of each stack is an offset into that memory. This function
 * makes pointers of these offsets.
 */
void sample_drain_link_frames(struct drain *d);
/* Adds records that were lost just now, and counts them: podflame_records_dropped_total. */
void sample_drain_lose_records(struct drain *d, const char *reason, uint64_t n);
/*
 * Returns when the sample's stack may have been walked first (CLOCK_BOOTTIME); 0: that is not
 * known. The stack of a wait was walked when the wait began, and the parts of a wait are counted
 * later; those of requests of RDMA and of launches on a GPU when they were posted.
 */
uint64_t sample_walked_ns(const struct drain *d, const struct raw_sample *s);
/* To be called after sample_drain_sort(). NULL: the drain has no item of this hash. */
const struct raw_stack *sample_drain_stack(const struct drain *d, uint64_t hash);
const struct raw_names *sample_drain_names(const struct drain *d, uint64_t hash);
const struct raw_context *sample_drain_context(const struct drain *d, uint64_t hash);
const struct raw_text *sample_drain_text(const struct drain *d, uint64_t hash);
/* The sample's labels as texts of the batch, for profile_sample.labels. NULL: it has none. */
const struct profile_labels *sample_labels(struct batch *b, const struct raw_sample *s);
