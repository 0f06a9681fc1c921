/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * abi: the only declaration of the data that passes between the BPF programs and user space. Types
 * have a fixed width, there are no pointers, and sizes are asserted. Only the BPF programs and
 * agent/node/probe/ include this file.
 */
#pragma once

#include "unwind_tables.h"

#define PF_MAX_USER_FRAMES   512
#define PF_MAX_KERNEL_FRAMES 127 /* frames of a kernel stack; the outer ones are cut */
#define PF_COMM_BYTES	     16
#define PF_CPU_ANY	     0xffffffffu
/* generations of the counts: one is filled while the other is drained */
#define PF_GENERATIONS	     2
#define PF_KEEP_ALL	     0xffffffffu
#define PF_CHAR_MAJORS	     512 /* CHRDEV_MAJOR_MAX, include/linux/fs.h */
/* /proc/PID/stat shows start times in this unit (USER_HZ 100) */
#define PF_USER_HZ_NS 10000000ull

/* Event numbers are those of enum event in agent/lib/profile/profile.h. */
enum pf_event {
	PF_EVENT_ON_CPU = 0,
	PF_EVENT_OFF_CPU,
	PF_EVENT_MEM_ALLOC,
	PF_EVENT_MEM_INUSE,
	PF_EVENT_HBM_ALLOC,
	PF_EVENT_HBM_INUSE,
	PF_EVENT_ON_GPU,
	PF_EVENT_RDMA,
	PF_EVENT_RDMA_LATENCY,
	_PF_EVENT_MAX = 16, /* a power of two, and at least _EVENT_MAX */
};
#define PF_ALL_EVENTS ((1u << _PF_EVENT_MAX) - 1)

/*
 * What a thread waited for: pf_count_key.cause of the event off-cpu. The numbers are those of enum
 * wait in profile.h.
 */
enum pf_wait {
	PF_WAIT_NONE = 0,
	PF_WAIT_RUNQUEUE, /* for a CPU: from the thread's wake-up until it ran */
	PF_WAIT_DISK,	  /* an uninterruptible wait */
	PF_WAIT_LOCK,
	PF_WAIT_SLEEP,
	PF_WAIT_POLL,
	PF_WAIT_SOCKET,
	PF_WAIT_PIPE,
	PF_WAIT_OTHER,
	PF_WAIT_GPU, /* in the driver of a GPU */
};

/* A label of a sample. The numbers are those of enum profile_label in profile.h. */
enum pf_label_key {
	PF_LABEL_GPU_DEVICE = 0,
	PF_LABEL_GPU_CONTEXT,
	PF_LABEL_GPU_STREAM,
	PF_LABEL_RDMA_OPERATION, /* enum pf_rdma_operation */
	PF_LABEL_RDMA_QP_TYPE,	 /* enum ibv_qp_type */
	PF_LABEL_RDMA_DEVICE,	 /* a text */
};

/*
 * ---- settings that are fixed at load. They are read-only data, so unused branches cost nothing
 * ----
 */
struct pf_config {
	uint64_t seed;	      /* start of all hashes of stacks, names and contexts; random */
	uint32_t use_cgroups; /* look up the task's cgroup in filter_cgroups */
	uint32_t use_list;    /* then look up the task's process in filter_tgids */
	uint32_t total, per_cpu;
	uint32_t have_hierarchy; /* the three fields below are set */
	uint32_t v2;
	uint32_t hierarchy_id; /* cgroup_root.hierarchy_id; 0: v2 */
	uint32_t subsys_index; /* v1: the controller's index in task->cgroups->subsys[] */
	uint32_t pid_level;    /* depth of the agent's PID namespace; 0: the initial one */
	uint32_t pid_ns_inum;
	uint32_t seen_mask;	  /* number of slots of map `seen`, minus 1 */
	uint32_t ring_wake_bytes; /* if more bytes are unread, wake the reader */
	/* start of the hashes that are files' tags; chosen once, when the agent starts */
	uint64_t tag_seed;
	uint32_t sees_mappings; /* BPF can read the mappings of a process (vma.h) */
	uint32_t counts_max;	/* entries of the counts of a generation */
	uint32_t ring_bytes, pad;
};
/* Settings that change: map `settings`, one entry, mmapped. */
struct pf_settings {
	uint32_t generation;
	uint32_t node_period_us; /* microseconds between ticks; a tick counts for this in Total */
	/*
	 * raised after each change of the map unwind_files; the BPF programs then no longer use the
	 * unwind rules and stacks that they remembered before
	 */
	uint32_t tables;
	/*
	 * Raised before the agent reuses map memory that held a table or a process. A walk that
	 * sleeps may still read that memory, because RCU's grace period covers only programs that
	 * do not sleep. If this number has changed when the walk ends, the walk discards its stack.
	 */
	uint32_t reused;
	/*
	 * Which major numbers of character devices belong to the driver of GPUs: bit N % 64 of
	 * gpu_majors[N / 64]. has_gpu: at least one bit is set.
	 */
	uint32_t has_gpu;
	uint32_t pad;
	uint64_t gpu_majors[PF_CHAR_MAJORS / 64];
};
/* Answer of program `whoami`, run by the agent on itself: map `self`. */
struct pf_self {
	uint32_t pid_level, pid_ns_inum;
};

/* ---- filter: user -> kernel ---- */

enum pf_filter_flags {
	PF_FILTER_LISTED = 1 << 0, /* of the cgroup, only processes in filter_tgids are selected */
	PF_FILTER_CONTEXT = 1 << 1, /* samples carry the trace context of the request */
};

#define PF_FILTER_MAX 16384 /* the most entries of filter_cgroups, and of filter_tgids */

/* Value of map `filter_cgroups`, key: u64 cgroup id (kernfs id == st_ino of the directory). */
struct pf_filter {
	uint32_t event_mask; /* 1 << enum pf_event */
	uint32_t flags;
	/* a tick is kept if prandom_u32() <= keep: target's rate / node's rate * (2^32-1) */
	uint32_t keep;
	uint32_t period_us; /* what a kept tick counts for: trunc(1e6 / hz) */
	/*
	 * off-cpu: at a switch, the program draws a random number. The wait is noted if the number
	 * is <= off_note. The wait is also kept (it gets its stacks at once) if the number is <=
	 * off_keep, which is at most off_note. A kept wait counts 2^32 / (off_keep + 1) times. If
	 * long_waits.c finds a noted wait still going on, that wait counts 2^32 / (off_note + 1)
	 * times from then on, kept or not.
	 */
	uint32_t off_note, off_keep;
	uint32_t off_min_us; /* shorter waits are left out */
	uint32_t share;	     /* of the namespace: PF_SHARES_MAX */
	uint64_t off_max_us; /* of a longer wait, only this time counts */
	/*
	 * mem-alloc and mem-inuse: an allocation of S bytes is taken with probability min(1, S /
	 * N), where N is this number, and then counts as max(S, N) bytes. If N is 0 or 1, each
	 * allocation is taken.
	 */
	uint32_t alloc_bytes, inuse_bytes;
};

/*
 * A table that all selected processes fill has a share for each namespace, by its number: struct
 * pf_filter has it. The programs count what they add and remove, and user space subtracts what it
 * removes; if both do so at the same time, a count may be negative for a moment. As long as a
 * quarter of the table is free, each namespace may add an entry. Of that quarter, a namespace gets
 * no more if it has as many entries as are free. So what a namespace has too much of takes no room
 * from others.
 */
#define PF_SHARES_MAX 4096 /* numbers; a power of two. 0: the namespace has no number of its own */
/* Not of a namespace: records of cgroups that are not selected, most of them of new pods. */
#define PF_SHARE_CGROUPS (PF_SHARES_MAX - 1)
struct pf_shares {
	int32_t held[PF_SHARES_MAX]; /* entries of each namespace; at 0: of all together */
	/* 1 << enum pf_event: the events that lack an entry. User space takes and clears this. */
	uint32_t refused[PF_SHARES_MAX];
};
#define PF_WAITS_MAX 24576 /* entries of map `waits` */

/* Value of map `filter_tgids`, key: u32 tgid in the agent's PID namespace. */
struct pf_listed {
	/*
	 * when the process began, rounded down to PF_USER_HZ_NS. If a process with this number
	 * began at another time, it is another process.
	 */
	uint64_t start_boottime_ns;
	struct pf_filter filter;
};

/*
 * Map `unselected`, mmapped: an array with one cache line per CPU. A tick at which no selected
 * process runs touches only this cache line and the task. filter.h says when the contents are
 * valid.
 */
#define PF_UNSELECTED_SETS 4
struct pf_unselected {
	uint64_t ticks;			   /* ticks while no selected process ran */
	uint64_t additions;		   /* raised after each addition to filter_cgroups */
	uint64_t asked;			   /* value of `additions` before the sets were looked up */
	uint64_t next;			   /* index of the set to replace next */
	uint64_t sets[PF_UNSELECTED_SETS]; /* css_sets of cgroups that filter_cgroups lacks */
};

/* ---- counts: kernel -> user, drained ---- */

struct pf_count_key {
	uint64_t start_boottime_ns; /* start time of the process */
	uint64_t cgroup_id;	    /* the cgroup that was looked up in the filter */
	uint64_t names;		    /* hash of a PF_REC_NAMES record */
	uint64_t ctx;		    /* hash of a PF_REC_CONTEXT record; 0 none */
	uint64_t ustack;	    /* hash of a PF_REC_STACK record; 0 none */
	union {
		uint64_t kstack;
		uint64_t owner; /* only in map `gpu_live`: gpu_abi.h */
	};
	uint32_t tgid; /* in the agent's PID namespace; 0: not visible there */
	uint32_t tid;
	uint32_t cpu; /* number of the CPU, or PF_CPU_ANY */
	uint16_t event;
	union {
		uint16_t cause; /* enum pf_wait */
		uint16_t share; /* only in struct pf_live: pf_filter.share */
	};
};

struct pf_count {
	uint64_t n;		    /* number of samples */
	uint64_t value;		    /* in the event's unit */
	uint64_t first_ns, last_ns; /* CLOCK_BOOTTIME */
};

/*
 * Total is the sum of all ticks of the node, by name: per-CPU hash {leader comm, thread comm} -> n,
 * value.
 */
#define PF_TOTALS_MAX 16384 /* entries of a map of totals, if pf_config.total is set */
struct pf_total_key {
	char leader_comm[PF_COMM_BYTES];
	char thread_comm[PF_COMM_BYTES];
	uint32_t main_thread;
	uint32_t pad;
};
struct pf_total {
	uint64_t n, value;
};

/* ---- records: kernel -> user, through the ring ---- */

enum pf_record_type {
	PF_REC_STACK = 1, /* pf_rec_stack: first use of a stack in this generation */
	PF_REC_NAMES,	  /* pf_rec_names */
	/* pf_rec_proc: first sample, exec, exit or changed mappings of a process */
	PF_REC_PROC,
	/*
	 * pf_rec_cgroup: a cgroup of the chosen hierarchy was made or removed, below a known cgroup
	 * or in a path of kubepods
	 */
	PF_REC_CGROUP,
	/* pf_rec_context: first use of a trace context, or of labels, in this generation */
	PF_REC_CONTEXT,
	PF_REC_TEXT, /* pf_rec_text: first use of the text of a label in this generation */
};

struct pf_record {
	uint16_t type;
	uint16_t share; /* pf_filter.share of the namespace from which it is */
	uint32_t generation; /* number of the generation of the counts that refer to this record */
};
/* What a record of so many bytes takes of the ring: see bpf_ringbuf_output() in the kernel. */
#define PF_RING_TAKES(bytes) (((bytes) + 7) / 8 * 8 + 8)

/*
 * A stack: frames, leaf first. Each frame is a header word and as many more words as the header
 * says.
 */
struct pf_rec_stack {
	struct pf_record h;
	uint64_t hash;
	uint32_t n_words; /* u64 words that follow */
	uint16_t n_frames;
	uint16_t end; /* enum pf_stack_end: why the walk stopped */
	/*
	 * Set if the process is young and the stack has frames of a runtime: then the agent reads
	 * the names of the functions before the process ends. Else 0.
	 */
	uint64_t young_start_boottime_ns;
	uint32_t young_tgid;
	uint32_t exec_id; /* exec_id of the process whose stack it is */
	uint64_t words[];
};
/*
 * Frame header: the kind in bits 0..7, the number of words that follow in 8..15, more for some
 * kinds in 16..63.
 */
enum pf_frame_kind {
	/*
	 * One word: a user address. In a caller's frame this is a return address, or one more than
	 * the address that a signal interrupted. The walk did not check what is mapped there.
	 */
	PF_FRAME_NATIVE = 1,
	PF_FRAME_KERNEL = 2, /* one word: kernel address */
	/*
	 * two words that the runtime defines. The header has the runtime in bits 16..23 and the
	 * runtime's type of frame in 24..31.
	 */
	PF_FRAME_RUNTIME = 3,
	/*
	 * two words: user address, tag of the file. The header has the offset in the file in bits
	 * 16..63.
	 */
	PF_FRAME_FILE = 4,
	PF_FRAME_NO_FILE = 5, /* one word: a user address at which no file is mapped */
	/*
	 * A piece of work of a GPU, the only frame of its stack. The words are the kernel's name
	 * as it is mangled, with at least one NUL at its end; none: it has no name. The header has
	 * PF_FRAME_GPU_WORK_MORE in bits 16..63.
	 */
	PF_FRAME_GPU_WORK = 6,
};
#define PF_FRAME_HEADER(kind, words, more)                                                         \
	((uint64_t)(kind) | (uint64_t)(words) << 8 | (uint64_t)(more) << 16)
#define PF_FRAME_MORE(header) ((header) >> 16)
#define PF_FRAME_MORE_MAX     ((1ull << 48) - 1) /* largest offset in a file */
#define PF_FRAME_RUNTIME_HEADER(runtime, type)                                                     \
	PF_FRAME_HEADER(PF_FRAME_RUNTIME, 2, (uint64_t)(type) << 8 | (uint64_t)(runtime))
/*
 * kind: enum podflame_cuda_kind. copy_kind: CUpti_ActivityMemcpyKind; 0: no copy. cut: 1: the name
 * is longer than the words.
 */
#define PF_FRAME_GPU_WORK_MORE(kind, copy_kind, cut)                                               \
	((uint64_t)(kind) | (uint64_t)(copy_kind) << 8 | (uint64_t)(cut) << 16)
#define PF_FRAME_GPU_WORK_WORDS 255 /* of a name, at most */

/* X(name, text of the marker "[unwind: text]"; NULL: the stack is finished) */
#define PF_STACK_ENDS(X)                                                                           \
	X(ROOT, NULL)		      /* the outermost frame: return address undefined or 0 */     \
	X(DEPTH, "truncated")	      /* PF_MAX_USER_FRAMES reached: shown as [truncated] */       \
	X(READ, "read")		      /* stack memory could not be read */                         \
	X(FP, "no_frame_pointer")     /* no table for this code, and rbp leads nowhere */          \
	X(PENDING, "tables_pending")  /* the agent has not loaded these tables yet */              \
	X(NO_TABLE, "no_table")	      /* the file's table was refused or is over the budget */     \
	X(EXPRESSION, "expression")   /* a rule that the walk does not evaluate */                 \
	X(REGISTER, "register")	      /* a rule needs a register that is known only in a leaf */   \
	X(STUCK, "stack_not_growing") /* the caller's frame is not above this one */               \
	X(BAD_PC, "bad_address")      /* a return address that no code can have */                 \
	X(GOROUTINE, "no_goroutine")  /* which goroutine waits is not known */                     \
	X(CHANGED, "mapping_changed") /* code of a file that the agent has not seen there (yet) */ \
	X(RUNTIME, "runtime_pending") /* frames are missing: the runtime is not listed yet */      \
	X(COMPAT, "32_bit_code")
enum pf_stack_end {
#define X(name, text) PF_END_##name,
	PF_STACK_ENDS(X)
#undef X
		_PF_END_MAX,
};

struct pf_rec_names {
	struct pf_record h;
	uint64_t hash;
	char leader_comm[PF_COMM_BYTES];
	char thread_comm[PF_COMM_BYTES];
};

enum pf_ids_form {
	PF_IDS_BYTES = 1, /* 16 and 8 bytes, at the beginning of trace and span */
	/* 32 and 16 hexadecimal digits, as the program wrote them; zeros: it gave no such id */
	PF_IDS_HEX,
};
struct pf_label {
	uint16_t key; /* enum pf_label_key */
	uint16_t pad[3];
	/*
	 * A number, of which profile_label_text() makes text. If the label is a text: the hash of a
	 * PF_REC_TEXT record.
	 */
	uint64_t value;
};
#define PF_SAMPLE_LABELS 3 /* a sample has at most this many labels */
struct pf_rec_context {
	struct pf_record h;
	uint64_t hash;
	uint32_t form, pad; /* form: enum pf_ids_form; 0: the sample has no trace context */
	uint64_t trace[4], span[2];
	/* Records of events whose samples have no labels end here: PF_CONTEXT_IDS_BYTES. */
	uint32_t n_labels, pad2;
	struct pf_label labels[PF_SAMPLE_LABELS];
};
#define PF_CONTEXT_IDS_BYTES __builtin_offsetof(struct pf_rec_context, n_labels)

#define PF_TEXT_BYTES 64 /* IBV_SYSFS_NAME_MAX of <infiniband/verbs.h> */
struct pf_rec_text {
	struct pf_record h;
	uint64_t hash;
	char text[PF_TEXT_BYTES]; /* padded with NULs, one at least */
};

enum pf_proc_what {
	PF_PROC_SEEN = 1,
	PF_PROC_EXEC,
	PF_PROC_EXIT,
	PF_PROC_MAPS, /* its executable mappings are not those in unwind_procs any more */
	PF_PROC_FUNCTIONS, /* its entry in a map rdma_functions has new functions */
};
struct pf_rec_proc {
	struct pf_record h;
	uint64_t start_boottime_ns;
	uint64_t cgroup_id;
	uint32_t tgid;	    /* in the agent's PID namespace */
	uint32_t tgid_root; /* initial PID namespace */
	uint32_t tgid_own;  /* in the process's own PID namespace */
	uint32_t exec_id;   /* task->self_exec_id, which each exec raises */
	uint16_t what;	    /* enum pf_proc_what */
	/*
	 * not 0: user space has given all that the process's stacks need so far, so it need not
	 * read the process
	 */
	uint16_t all_known;
	uint32_t stack;	    /* low half of mm->start_stack, which each exec changes; 0: not known */
	uint64_t time_ns;   /* CLOCK_BOOTTIME */
	char comm[PF_COMM_BYTES];
};

/*
 * A search for the mapping at an address (vma.h). Map `looked` has one, at an address of the agent.
 */
enum pf_vma_found { PF_VMA_FOUND, PF_VMA_NOTHING, PF_VMA_UNSURE };
struct pf_vma {
	uint64_t mm, address; /* the process and the address */
	/* The mapping that was found; the members are those of struct pf_mapping. */
	uint64_t start, end, load, tag;
	uint32_t sequence;
	uint32_t runs;	   /* the mapping is executable */
	uint64_t at;	   /* the maple tree node or mapping that the search has reached */
	uint64_t node[32]; /* the words of the node that `at` points to */
};

#define PF_PATH_BYTES 512
struct pf_rec_cgroup {
	struct pf_record h;
	uint64_t id;
	uint64_t parent_id;
	uint32_t removed;
	uint32_t armed; /* 1: the program has copied the parent's filter entry to this cgroup */
	/* relative to the hierarchy's root, NUL-terminated, cut if longer */
	char path[PF_PATH_BYTES];
};

/* ---- what events cost, how exact their sums are: map `usage`, per-CPU hash, never drained ---- */
#define PF_USAGE_MAX 16384 /* entries */
struct pf_usage_key {
	uint64_t cgroup_id; /* the cgroup that was looked up in the filter */
	uint32_t event, pad;
};
struct pf_usage {
	/*
	 * How often the event happened. off-cpu: the number of switches of selected tasks; if only
	 * some switches are noted, the number for which these stand. Events of uprobes: traps of
	 * selected processes; a hit of a site with PF_SITE_MORE counts as several.
	 */
	uint64_t hits;
	uint64_t taken; /* how many of the hits gave a stack */
	uint64_t value; /* the sum of what the taken hits count for, in the event's unit */
	/*
	 * the variance of `value`: the sum of (1 - p) * v^2 over the taken hits, in units^2 >> 20.
	 * v is what one taken hit counts for, and p the probability with which it was taken.
	 */
	uint64_t square;
	/*
	 * Only for on-gpu: the time in ns that podflame's library in the processes reports to have
	 * used, including the time of the hits of its probes.
	 */
	uint64_t own_ns;
	/* pf_filter.share of the namespace that has the entry; 0 on all CPUs but one */
	uint32_t share, pad;
};

/* ---- uprobes of allocators: what a hit means is in its cookie ---- */
enum pf_site_kind {
	PF_SITE_ALLOC = 1, /* returns the memory */
	PF_SITE_REALLOC,   /* frees memory and returns memory */
	PF_SITE_OUT, /* argument ptr_arg points to where the address is stored (posix_memalign) */
	PF_SITE_FREE,
	PF_SITE_GO,  /* runtime.mallocgc: Go's registers: size rax, type rbx */
	PF_SITE_JVM, /* slow path of HotSpot: ptr_arg is the class (Klass*). Only for mem-alloc. */
	/*
	 * An instruction inside a function into which the compiler inlined an allocator. size_arg
	 * and count_arg are registers: 1 plus the number of the register in instructions (rax, rcx,
	 * rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15). The size is also multiplied by PF_SITE_FACTOR.
	 * The site has no flags. The returned address is not known, so only mem-alloc uses such a
	 * site.
	 */
	PF_SITE_INSIDE,
};
/*
 * The cookie of a uprobe, 8 bytes. The arguments are numbered from 1 (rdi); 0: none. The size of an
 * allocation is the product of the arguments size_arg and count_arg.
 */
struct pf_site {
	uint8_t kind, size_arg, count_arg, ptr_arg;
	uint16_t max_bytes; /* only for allocations up to this size; 0: for all */
	/* enum pf_site_flags or PF_SITE_FACTOR; above it PF_SITE_MORE; then PF_SITE_LINK */
	uint16_t flags;
};
#define PF_SITE_FACTOR_BITS  10
#define PF_SITE_FACTOR(site) ((site).flags & ((1u << PF_SITE_FACTOR_BITS) - 1))
/*
 * How much more a hit of this site costs than a usual hit, in usual hits: here the kernel executes
 * the replaced instruction with a second trap.
 */
#define PF_SITE_MORE(site) (((site).flags >> PF_SITE_FACTOR_BITS) & PF_SITE_MORE_MAX)
#define PF_SITE_MORE_MAX   31 /* largest value of PF_SITE_MORE */
/* If two BPF links probe one place, this bit of the flags is set in the cookie of one of them. */
#define PF_SITE_LINK (1u << 15)
enum pf_site_flags {
	PF_SITE_NULL_IS_ALLOC =
		1 << 0, /* PF_SITE_REALLOC: for NULL it calls another probed function instead */
	/*
	 * PF_SITE_ALLOC: if argument 1 (the alignment) is at most PF_MEM_ALIGN, the function calls
	 * another probed function, which counts the allocation
	 */
	PF_SITE_SMALL_ALIGN_IS_ALLOC = 1 << 1,
	/*
	 * PF_SITE_REALLOC: the new memory comes from another probed function, which counts it for
	 * mem-alloc. This site does not count it there; it shows what happens to the old memory.
	 */
	PF_SITE_NEW_IS_ALLOC = 1 << 2,
	/*
	 * The function fails with a C++ exception. An exception cannot pass a probed return: it
	 * would end in std::terminate()
	 */
	PF_SITE_THROWS = 1 << 3,
};
#include "gpu_abi.h"	/* the kinds and flags of the CUDA driver's sites */
#include "on_gpu_abi.h" /* the kinds of the sites of on-gpu */
#include "rdma_abi.h"	/* the kinds of the sites of rdma */

#define PF_MEM_ALIGN 16 /* alignment of every allocation (MALLOC_ALIGNMENT of glibc) */
/* A larger allocation cannot succeed, because a process has no more addresses. */
#define PF_MEM_SIZE_MAX (1ull << 47) /* bytes of one allocation */
/*
 * Maps `mem_procs` and `gpu_procs`, key: struct pf_process_key: a process that is probed. After an
 * exec, the process has another key. `inner`: the allocators' own code. A probed call that returns
 * to such code is part of a call that is counted already.
 */
/* mimalloc has more ranges: the agent joins ranges that are close to each other */
#define PF_MEM_INNER_MAX 12
struct pf_mem_proc {
	uint32_t exec_id; /* exec_id in the key */
	uint32_t event_mask;
	uint32_t n_inner;
	/*
	 * GPU: not 0: the process had not yet used the driver when its probes had been attached
	 */
	uint32_t unused_before;
	/* GPU, for probes_attach(): not 0: the sites PF_SITE_IS_GPU_QUERY are not probed */
	uint32_t no_queries;
	uint32_t n_functions; /* RDMA: pf_rdma_functions.n when the sites were found */
	/* on-gpu: launches count for so long after attached_ns, their work also later; 0: no end */
	uint32_t launches_ms;
	/*
	 * RDMA: raised when calls may have been missed: by PF_RDMA_CHANGED at each change of the
	 * process's probes, and by the programs, by 1
	 */
	uint32_t gaps;
	struct {
		uint64_t start, end;
	} inner[PF_MEM_INNER_MAX];
	uint64_t attached_ns; /* CLOCK_BOOTTIME: when the process was attached */
	/* Only the BPF programs write these: */
	uint64_t cgroup_id;  /* cgroup of the process at its last hit */
	uint32_t share, pad; /* pf_filter.share then */
	uint64_t hits;
	uint64_t query_hits;  /* GPU: those of the hits whose site is PF_SITE_IS_GPU_QUERY */
	uint64_t object_hits; /* GPU: those of the hits whose site is PF_SITE_IS_GPU_OBJECT */
	uint64_t seen_bytes; /* bytes that the taken hits count for; two events count once */
	/* on-gpu: the id of the first launch after launches_ms, | PF_GPU_AFTER; 0: none yet */
	uint64_t first_after;
};
/* Maps `live` and `gpu_live`, hash: sampled allocations that are not freed yet. */
struct pf_live_key {
	uint64_t start_boottime_ns; /* start time of the process */
	uint32_t tgid_root, exec_id;
	uint64_t address;
};
struct pf_live {
	struct pf_count_key key; /* event: PF_EVENT_MEM_INUSE or PF_EVENT_HBM_INUSE */
	uint64_t value;		 /* bytes for which the allocation counts */
	uint64_t time_ns;	 /* CLOCK_BOOTTIME */
};
/*
 * Map `pending`, hash: what was decided at the entry of a call, until the call returns. Calls of
 * one thread may be nested, for example in a signal handler. Their stack pointers differ.
 */
struct pf_pending_key {
	uint64_t pid_tgid;
	uint64_t sp; /* stack pointer at the entry; in map `gpu_pending` see gpu_abi.h */
};
struct pf_pending {
	struct pf_live live; /* value 0: not taken */
	union {
		/* the entry of old_address in `live`; put back if the call fails */
		struct pf_live old;
		struct pf_gpu_call gpu; /* in map `gpu_pending` */
	};
	/* address of the memory that a realloc frees; 0: none, or not in `live` */
	uint64_t old_address;
	union {
		uint64_t out; /* where the new address is stored; 0: it is returned */
		uint64_t thread_boottime_ns; /* in map `gpu_pending`: when the thread began */
	};
};
#define PF_MEM_PROCS_MAX 4096  /* processes whose memory is profiled */
#define PF_PENDING_MAX	 6144  /* entries of maps `pending` and `gpu_pending` */
#define PF_LIVE_MAX	 98304 /* entries of maps `live` and `gpu_live` */

/* ---- drops: per-CPU array, index = reason ---- */
/*
 * X(name, text, 1: a sample is lost; 0: a record is lost, which the kernel sends again or a search
 * by the agent replaces)
 */
#define PF_DROP_REASONS(X)                                                                         \
	X(RING_FULL, "ring_full", 0) /* a record did not fit: sent again when needed again */      \
	X(COUNTS_FULL, "counts_full", 1)                                                           \
	X(COUNTS_BUSY, "counts_busy", 1)   /* not full, but refused: a lock or memory */          \
	X(SCRATCH_BUSY, "scratch_busy", 1) /* the scratch of this CPU and context is in use */     \
	X(TOTAL_FULL, "total_full", 1)                                                             \
	X(NO_PID, "no_pid", 1)		   /* the agent's PID namespace lacks the process */       \
	X(MAY_THROW, "may_throw", 1)	   /* call of a PF_SITE_THROWS: not in mem-inuse */        \
	X(PENDING_FULL, "pending_full", 1) /* too many allocations between entry and return */     \
	X(LIVE_EVICTED, "live_evicted", 1) /* no room for memory in use */                         \
	X(WAITS_FULL, "waits_full", 1)	   /* too many threads of selected processes */            \
	X(END_UNSEEN, "end_unseen", 1)	   /* the kernel did not report the end of a wait */       \
	X(GPU_UNSEEN, "gpu_unseen", 1)	   /* memory of a GPU that could not be followed */        \
	X(GPU_CONTEXT, "gpu_context", 1)   /* a GPU's context may have ended, and its memory */    \
	X(GPU_FULL, "gpu_full", 1)	   /* too many contexts, mappings, pools of GPUs */        \
	X(GPU_UNLAUNCHED, "gpu_unlaunched", 1) /* work of a GPU whose launch is not known */       \
	X(GPU_UNREAD, "gpu_unread", 1) /* a report of work that could not be read, or is wrong */  \
	X(GPU_MISSED, "gpu_missed", 1) /* work whose report did not reach the BPF program */       \
	X(GPU_DROPPED, "gpu_dropped", 1) /* work for whose record CUPTI had no room */             \
	X(GPU_UNTIMED, "gpu_untimed", 1) /* work of which CUPTI has no times */                    \
	X(RDMA_UNREAD, "rdma_unread", 1)   /* a list of requests of RDMA could not be read */      \
	X(RDMA_LONG, "rdma_long", 1)	   /* a list of requests is longer than is followed */     \
	X(RDMA_BATCHES, "rdma_batches", 1) /* a thread fills too many queue pairs at once */       \
	X(RDMA_LATE, "rdma_late", 1) /* a process may post before the provider is probed */        \
	X(RDMA_UNMATCHED, "rdma_unmatched", 1) /* a completion whose request is not known */       \
	X(RDMA_FULL, "rdma_full", 1) /* no room for a request that is under way */                 \
	X(CGROUP_FULL, "cgroup_full", 0)   /* filter table full when a child cgroup was made */
enum pf_drop {
#define X(name, text, sample) PF_DROP_##name,
	PF_DROP_REASONS(X)
#undef X
		_PF_DROP_MAX,
};

/* ---- map `stats`, per-CPU array of one: how many samples passed the filter ---- */
struct pf_stats {
	uint64_t thinned; /* selected, but above the rate of its target */
	uint64_t taken;	  /* selected and kept; either delivered or dropped for a reason */
	uint64_t delivered;
	uint64_t crossed;	  /* records (except of cgroups) that were put into the ring */
	uint64_t contexts_unread; /* samples without their trace context: it could not be read */
	uint64_t contexts_cut;	  /* samples that may lack an id: not all labels were read */
	uint64_t usage_full; /* hits that have no entry in `usage`: their share of it is full */
	uint64_t drop[_PF_EVENT_MAX][_PF_DROP_MAX]; /* a lost record counts for event 0 */
};

_Static_assert(PF_SHARES_MAX <= 65536, "pf_count_key.share");
_Static_assert(sizeof(struct pf_config) == 80, "abi");
_Static_assert(sizeof(struct pf_settings) == 88, "abi");
_Static_assert(sizeof(struct pf_filter) == 48, "abi");
_Static_assert(sizeof(struct pf_listed) == 56, "abi");
_Static_assert(sizeof(struct pf_unselected) == 64, "abi");
_Static_assert(sizeof(struct pf_site) == 8, "abi");
_Static_assert(sizeof(struct pf_usage) == 48, "abi");
_Static_assert(sizeof(struct pf_live_key) == 24, "abi");
_Static_assert(sizeof(struct pf_live) == 80, "abi");
_Static_assert(sizeof(struct pf_mem_proc) == 288, "abi");
_Static_assert(sizeof(struct pf_shares) == 8 * PF_SHARES_MAX, "abi");
_Static_assert(sizeof(struct pf_count_key) == 64, "abi");
_Static_assert(sizeof(struct pf_count) == 32, "abi");
_Static_assert(sizeof(struct pf_total_key) == 40, "abi");
_Static_assert(sizeof(struct pf_record) == 8, "abi");
_Static_assert(sizeof(struct pf_rec_stack) == 40, "abi");
_Static_assert(sizeof(struct pf_rec_names) == 48, "abi");
_Static_assert(PF_CONTEXT_IDS_BYTES == 72, "abi");
_Static_assert(sizeof(struct pf_rec_context) == 128, "abi");
_Static_assert(sizeof(struct pf_rec_proc) == 72, "abi");
_Static_assert(sizeof(struct pf_rec_text) == 80, "abi");
_Static_assert(sizeof(struct pf_rec_cgroup) == 32 + PF_PATH_BYTES, "abi");
