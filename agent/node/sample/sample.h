/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample: the plain data that node/probe takes from the kernel and that other modules read: samples,
 * their stacks and names, and the processes and cgroups that began or ended. A struct drain holds
 * all that left the kernel since the drain before. node/probe makes drains (probes_drain); the
 * reader of Go's heap profiles makes some, too. node/stack names their frames, and node/fold makes
 * profiles of them. A drain has one owner at a time, on any thread.
 */
#pragma once

#include "lib/profile/profile.h"

struct raw_frame {
	bool kernel;
	bool no_file;	  /* no file was mapped there */
	uint8_t runtime;  /* enum pf_runtime_kind; 0: a native or kernel frame */
	uint8_t type;	  /* of a runtime's frame: the runtime's own number, or PF_TYPE_TROUBLE */
	uint32_t exec_id; /* of user frames: the generation of the process's mappings */
	union {
		uint64_t words[2]; /* of a runtime's frame */
		struct {
			/*
			 * Leaf: the instruction; callers: look up address - 1 (a return address,
			 * or one more than the instruction that a signal interrupted).
			 */
			uint64_t address;
			uint64_t file_offset; /* of the same, in the file that `tag` names */
		};
	};
	/*
	 * The file that was mapped there; 0: no_file, or the kernel's part did not look;
	 * PF_TAG_UNKNOWN: it could not see the file.
	 */
	uint64_t tag;
};
struct raw_stack {
	uint64_t hash;
	const struct raw_frame *frames; /* leaf first */
	size_t n;
	/* NULL: the stack is complete; else why it ends here, a text of PF_STACK_ENDS: "read". */
	const char *end_reason;
};
struct raw_names {
	uint64_t hash;
	char leader_comm[16], thread_comm[16];
};
/* The call that a sample was taken in: docs/trace-context.md. */
struct raw_context {
	uint64_t hash;
	struct profile_link link;
};
struct raw_sample {
	enum event event;
	/* names, ustack, kstack: hashes of the drain's names and stacks */
	uint64_t start_boottime_ns, cgroup_id, names, ustack, kstack;
	uint32_t tgid, tid, cpu;	      /* cpu UINT32_MAX: samples of all CPUs */
	enum wait wait;			      /* of off-cpu */
	uint64_t n, value, first_ns, last_ns; /* CLOCK_BOOTTIME */
	uint64_t oldest_ns;		      /* of mem-inuse: its stack may be so old */
	uint64_t ctx;			      /* hash of its struct raw_context; 0: it has none */
	const struct profile_link
		*link; /* of ctx, in the drain; NULL: the drain has no valid one */
};
/* All samples of all processes whose threads have these names, of a probe_config.total. */
struct raw_total {
	char leader_comm[16], thread_comm[16];
	bool main_thread;
	uint64_t n, value;
};
enum raw_proc_what {
	RAW_PROC_SEEN, /* its first sample, or probes_announce told of it */
	RAW_PROC_EXEC,
	RAW_PROC_EXIT,
	RAW_PROC_MAPS, /* its executable mappings have changed: they are to be read again */
};
struct raw_proc {
	enum raw_proc_what what;
	uint32_t tgid, tgid_root, tgid_own, exec_id;
	uint32_t stack; /* of this exec: mappings_read_of; 0: not known */
	uint64_t start_boottime_ns, cgroup_id, time_ns;
	char comm[16];
};
struct raw_cgroup {
	uint64_t id, parent_id;
	bool removed;
	bool armed; /* made below a selected cgroup, so the kernel selected it at once */
	char *path; /* relative to the hierarchy's mount, "/..." */
};
/* Of a process that may end soon: a stack with frames whose names are in the process's memory. */
struct raw_young {
	uint32_t tgid;
	uint64_t start_boottime_ns;
	struct raw_stack stack;
	struct raw_frame *frames; /* of stack */
};
/* All that left the kernel since the drain before; it owns all that it points to. */
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
	struct raw_proc *procs;
	size_t n_procs; /* in order of time */
	struct raw_cgroup *cgroups;
	size_t n_cgroups;
	struct raw_young *young; /* quick drains have them, too */
	size_t n_young;
	uint64_t number;	 /* 1, 2, ... */
	uint64_t from_ns, to_ns; /* CLOCK_BOOTTIME */
	/* Of that time the machine was suspended; 0: less than half a second, or a quick drain. */
	uint64_t asleep_ns;
	bool tried_again;   /* what works may have changed: probes_support() */
	struct buf *memory; /* the frames of all stacks */
};

/* An empty drain. Its memory takes frame_bytes_max bytes of frames; 0: 1 GiB. */
struct drain *drain_new(size_t frame_bytes_max);
struct drain *drain_free(struct drain *d);
/* Sorts stacks, names and contexts by hash, and keeps one of each hash; returns how many it dropped. */
size_t drain_sort(struct drain *d);
/* While memory grows, frames of stacks are offsets into it: this function makes them pointers. */
void drain_link_frames(struct drain *d);
/* After drain_sort. NULL: the drain has none of this hash. */
const struct raw_stack *drain_stack(const struct drain *d, uint64_t hash);
const struct raw_names *drain_names(const struct drain *d, uint64_t hash);
const struct raw_context *drain_context(const struct drain *d, uint64_t hash);
