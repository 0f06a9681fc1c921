/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile: the model that node and hub share: frames, stacks, profiles, and the one function that
 * makes text of a frame. A window is an interval of wall time and all profiles of a node in it.
 * Plain data, no I/O.
 */
#pragma once

#include "lib/base/base.h"
#include "lib/profile/label.h"

/* ---- events ---- */
enum event {
	EVENT_ON_CPU,
	EVENT_OFF_CPU,
	EVENT_MEM_ALLOC,
	EVENT_MEM_INUSE,
	EVENT_HBM_ALLOC,		/* memory of GPUs ("high-bandwidth memory") */
	EVENT_HBM_INUSE,
	EVENT_ON_GPU,
	EVENT_RDMA,
	EVENT_RDMA_LATENCY,
	_EVENT_MAX,	/* the events before it are those that podflame samples */
	/*
	 * What programs push that profile themselves. Stores keep these numbers, and numbers below
	 * 16 are those of bpf/abi.h.
	 */
	EVENT_CPU = 16,
	EVENT_WALL,
	EVENT_ALLOC_OBJECTS,
	EVENT_ALLOC_SPACE,
	EVENT_INUSE_OBJECTS,
	EVENT_INUSE_SPACE,
	EVENT_GOROUTINES,
	EVENT_MUTEX_COUNT,
	EVENT_MUTEX_DURATION,
	EVENT_BLOCK_COUNT,
	EVENT_BLOCK_DURATION,
	_EVENT_ALL,	/* above all events; not every number below it is one */
};
struct event_info {
	const char *name;		/* the name in queries (profile_event_type): "on-cpu" */
	/* in a target's spec.events: "onCpu"; NULL: podflame does not sample this event */
	const char *spec_field;
	const char *unit;		/* "microseconds", "bytes", or what is counted: "objects" */
	const char *otlp_sample_type;	/* the name of the type in OTLP and pprof: "on_cpu" */
	/* the newest profile replaces older ones; values of several profiles are not added up */
	bool snapshot;
	const char *done;		/* what a process did that makes a sample: "used the CPU" */
	/* the key in a configuration: if it is false, `podflame local` records this event, too */
	const char *local_key;
	/* Pyroscope's type id, if its tools know one; NULL: one is made (hub/pyroscope/types.c) */
	const char *pyroscope_type;
};
/* name is NULL if no event has the number. */
const struct event_info *profile_event_info(enum event e);
/* Runs a statement for each event, also for those that podflame does not sample. */
#define PROFILE_EACH_EVENT(e)                                                                      \
	for (enum event e = 0; e < _EVENT_ALL; e++)                                                \
		if (profile_event_info(e)->name)
int profile_event_from_name(const char *name, enum event *ret);
/*
 * For texts: the names of all events ("on-cpu, off-cpu, ..."); those of the ones that podflame
 * samples, and their fields in a target's spec.events ("onCpu, ..."). The caller frees them.
 */
char *profile_event_names(void);
char *profile_sampled_event_names(void);
char *profile_event_fields(void);

/* The cause of a wait, for off-cpu samples: their tag `wait`. */
enum wait {				/* stores keep these numbers: add a new cause at the end */
	WAIT_NONE,			/* samples of other events */
	WAIT_RUNQUEUE,			/* woken, but not running yet */
	WAIT_DISK,			/* an uninterruptible wait */
	WAIT_LOCK,			/* a futex */
	WAIT_SLEEP,
	WAIT_POLL,			/* poll, select, epoll */
	WAIT_SOCKET,
	WAIT_PIPE,
	WAIT_OTHER,
	WAIT_GPU,			/* in the driver of a GPU */
	_WAIT_MAX,
};
const char *profile_wait_name(enum wait w);	/* "lock"; "" for WAIT_NONE */
int profile_wait_from_name(const char *s, enum wait *ret);
char *profile_wait_names(void);			/* "runqueue, disk, ..."; the caller frees it */

/* ---- labels of samples: label.h has their table ---- */
enum profile_label {
#define X(NAME, ...) LABEL_##NAME,
	PROFILE_LABELS(X)
#undef X
	_LABEL_MAX,
};
struct label_info {
	const char *tag, *otlp_attr, *title, *help;
	unsigned event_mask;
};
const struct label_info *profile_label_info(enum profile_label l);
/* _LABEL_MAX: no label has this tag, or this attribute. */
enum profile_label profile_label_of_tag(const char *tag);
enum profile_label profile_label_of_attr(const char *attr);
#define LABEL_TEXT_BYTES 24
/*
 * Whether samples have the label's value as text; otherwise it is a number, and
 * profile_label_text() makes its text.
 */
bool profile_label_is_text(enum profile_label l);
/*
 * Writes the text of a number that samples of the event have. The label must not be one of those
 * whose values are text.
 */
void profile_label_text(enum profile_label l, enum event e, uint64_t number,
			char ret[static LABEL_TEXT_BYTES]);

/*
 * The greatest value of a sample, because every reader of JSON reads integers up to it exactly.
 * Sums stop at this value.
 */
#define PROFILE_MAX_VALUE (INT64_C(1) << 53) /* value of a sample, in the event's unit */

/* ---- frames ---- */
enum frame_kind {			/* stores keep these numbers: add a new kind at the end */
	FRAME_APP,
	FRAME_LIBRARY,
	FRAME_KERNEL,
	FRAME_JVM,
	FRAME_PYTHON,
	FRAME_LUA,
	FRAME_CUDA,
	FRAME_OBJECT,
	FRAME_MARKER,			/* [truncated], [unwind: reason], [stack trace lost] */
	/* a frame that is made from a sample's wait when a stack becomes text: "[wait: lock]" */
	FRAME_WAIT,
	_FRAME_KIND_MAX,
};
const char *profile_frame_kind_name(enum frame_kind k);		/* "app", "library", ... */
int profile_frame_kind_from_name(const char *s, enum frame_kind *ret);
/*
 * In texts, names of some kinds have a prefix: "[k] do_syscall_64" is a name of the kernel, and
 * "[t] worker" one of a thread. A kind is a word here, as in answers of the API: a name of a frame
 * kind, "process" or "thread".
 */
const char *profile_kind_prefix(const char *kind);	/* "": such names have no prefix */
/* Returns the kind that a text begins with, and the name behind it. NULL: it has no prefix. */
const char *profile_kind_of_text(const char *text, const char **ret_name);
/*
 * Returns the kind of native frames of a file: FRAME_CUDA for CUDA's own libraries, FRAME_LIBRARY
 * if the path contains ".so", as in DeepFlow, else FRAME_APP. Code that is statically linked into a
 * program belongs to the program.
 */
enum frame_kind profile_module_kind(const char *path);

/* The strings belong to the code that made the frame; NULL: not known. */
struct frame {
	enum frame_kind kind;
	bool inlined;
	uint32_t line;			/* 0: not known */
	/* user: ELF virtual address; kernel: address in the running kernel; 0: not known */
	uint64_t address;
	/*
	 * Of a frame without a name: where its function begins, in the file. 0: not known. A frame
	 * that has its name from profile_frame_start_name() keeps it; others have 0.
	 */
	uint64_t start;
	const char *name;		/* demangled; NULL: the address has no name */
	/* user: path of the file as the process sees it; kernel: "[kernel]" or the kernel module */
	const char *module;
	const char *build_id;		/* hex */
	const char *file;
};

/*
 * A stored frame has one number for its line and its start, because only a frame with a name has a
 * line. The start is stored as the bytes from there to the address, plus 1; 0: not known.
 */
uint32_t profile_frame_stored_line(const struct frame *f);
/* Sets line and start from that number. name and address are set already. */
void profile_frame_set_stored_line(struct frame *f, uint32_t stored);
/*
 * Appends a name for a frame that has none, by where its function begins: "7z.so+0x1a2b0". Returns
 * false, and appends nothing, if that is not known.
 */
bool profile_frame_start_name(const struct frame *f, struct buf *out);

/* The parts of a stack's text besides its frames. */
struct stack_head {
	/* only in the profile of all processes ("Total"): a level above the thread; else NULL */
	const char *process_comm;
	const char *thread_comm;	/* NULL: the text has no such level */
	bool main_thread;		/* "[p] comm" instead of "[t] comm" */
	/* the cause of the wait of off-cpu samples: adds the leaf "[wait: lock]" */
	enum wait wait;
};

/*
 * Appends the text of one frame as DeepFlow writes it (prefixes, [module], [unknown] 0x%016lx,
 * [unknown start_thread?] for the outermost user frame). ';' becomes ':'.
 */
void profile_frame_render(const struct frame *f, bool outermost_user, struct buf *out);
/* As profile_frame_render(), but ';' stays, because the text of one frame needs no separator. */
void profile_frame_name(const struct frame *f, bool outermost_user, struct buf *out);
/*
 * Appends a name, which may have any bytes, as text that cannot control a terminal or change the
 * text around it, on one line. A name of more than max_bytes (at least 3) is cut and ends in "...".
 */
void profile_put_plain(const char *name, size_t max_bytes, struct buf *out);
/*
 * Returns the leaf that shows the cause of a wait: "[wait: lock]". NULL for WAIT_NONE. The frame is
 * a constant.
 */
const struct frame *profile_wait_frame(enum wait w);
/*
 * Appends the text of a whole stack, from root to leaf with ';' between frames: "[t]
 * worker;main;[l] write;[k] do_syscall_64;[wait: lock]".
 */
void profile_stack_render(const struct stack_head *h, const struct frame *root_first, size_t n,
		  struct buf *out);

/*
 * Functions that are inlined at one address share a location with the function there, which comes
 * first. Returns how many of the n frames (at least 1) are of the location of the first one.
 */
size_t profile_location_frames(const struct frame *const *root_first, size_t n);

/* ---- profiles ---- */
/*
 * A batch owns everything in it: strings, frames and stacks are interned in its arena and freed
 * together. Its limits are BATCH_MAX_*; a function that would exceed one returns -E2BIG.
 */
#define STACK_MAX_FRAMES 1024 /* frames of one stack */
#define BATCH_MAX_BYTES (64u << 20)

/* The key of a tag that is a label of the pod is this and the label's name. */
#define POD_LABEL "k8s.label."
/* The key of a tag that is a label of a pushed profile is this and the label's name. */
#define PUSHED_LABEL "label."
/*
 * A tag that only the hub sets, to "true": it could not verify that the profile's pod was on the
 * sender's node. Only readers of all namespaces see such profiles.
 */
#define TAG_UNVERIFIED "unverified"
/* Who made a profile that podflame has not sampled: "gospy", or the scope of an OTLP profile. */
#define TAG_PRODUCER "producer"
/* The language of such a profile, as DeepFlow calls it: "Golang", "python". */
#define TAG_LANGUAGE "profile_language_type"
struct tag {
	const char *key, *value;	/* key: "pod_ns", "pod", "k8s.label.app", ... */
};
struct tags {
	struct tag *items;		/* sorted by key; a key has one value */
	size_t n, cap;
};

/* The values of a sample's labels, each a text; NULL: the sample does not have the label. */
struct profile_labels {
	const char *values[_LABEL_MAX];
};
/*
 * The operations of the event rdma that are requests for the send queue. Bytes of the others are
 * values of their own, which are never added to these. X(text of LABEL_RDMA_OPERATION)
 */
#define PROFILE_SEND_QUEUE(X) X("send") X("write") X("read") X("atomic") X("other")
bool profile_is_send_queue(const struct profile_labels *l);

struct profile_sample {
	uint32_t stack; /* index into the batch's stacks; STACK_NONE: no stack (Total) */
	int64_t value;			/* in the event's unit */
	uint64_t n_samples;		/* how many of the kernel's samples are added up in it */
	const char *process_comm;	/* Total only */
	const char *thread_comm;
	bool main_thread;
	int32_t cpu;			/* -1: samples of all CPUs are added up */
	/* for off-cpu; samples with different causes are not added up */
	enum wait wait;
	uint32_t link;			/* 0: none; else 1 + index into the batch's links */
	/* interned in the batch; samples with different labels are not added up; NULL: none */
	const struct profile_labels *labels;
};
#define STACK_NONE UINT32_MAX

/*
 * A trace context (W3C): the ids of the request on which the thread worked when the sample was
 * taken. Samples with different ids are sent as separate samples. Stores keep the ids in a table of
 * their own.
 */
struct profile_link {
	uint8_t trace_id[16], span_id[8];
};

/*
 * The number of samples that were lost before they were in a profile, by kind: a pair of events and
 * reason. A struct losses goes along with the data that should have contained the samples (what was
 * read from the BPF maps, or a request to the worker), until it is part of a window. All zero:
 * nothing was lost. If there are more than LOSSES_MAX kinds, the rest is counted as one kind:
 * "other", of unknown events.
 */
#define LOSSES_MAX 128 /* kinds of loss; the rest counts as one kind, "other" */
struct lost {
	const char *reason; /* a constant */
	unsigned event_mask; /* 1 << enum event for each event; 0: the events are not known */
	uint64_t n;
};
struct losses {
	struct lost *items; /* owned */
	size_t n, cap;
};
void profile_losses_add(struct losses *l, unsigned event_mask, const char *reason, uint64_t n);
void profile_losses_move(struct losses *into, struct losses *from); /* from is empty afterwards */
uint64_t profile_losses_sum(const struct losses *l);
void profile_losses_done(struct losses *l); /* l is empty afterwards */
/* Adds samples that were lost just now, and also counts them in podflame_samples_dropped_total. */
void profile_samples_lost(struct losses *l, unsigned event_mask, const char *reason, uint64_t n);

struct loss {
	const char *reason;		/* "ring_full", "agent_down", ... */
	uint64_t n_samples;		/* 0 if the loss is a gap of time_ns */
	uint64_t time_ns;
};

struct profile {
	uint8_t id[16];			/* profile_id on the wire; see profile_id_make */
	/*
	 * In the hub: the id as it was sent; all zero: as `id`. An older hub stored this one. The
	 * hub's own id differs by sender, so that no sender takes the id of another's profile.
	 */
	uint8_t sent_id[16];
	enum event event;
	/* wall time: from start_ns to before end_ns, a window [k*W, (k+1)*W) */
	uint64_t start_ns, end_ns;
	uint64_t period_ns;		/* the nominal time between samples; 0: there is none */
	/*
	 * If the values are estimates: estimate_ppm is the measured part of what happened, in ppm
	 * (0: all of it was measured). estimate_error is one standard error of the sum, in the
	 * event's unit.
	 */
	uint32_t estimate_ppm;
	uint64_t estimate_error;
	const char *app_service;	/* name of the process (comm), or "Total" */
	/* PID on the host; 0 for Total and for a loss without a process */
	uint32_t process_id;
	uint64_t process_start_ns;	/* wall time; 0: not known */
	/*
	 * pod_cluster, pod_ns, pod, pod_uid, pod_node, pod_group, pod_group_type, pod_gpu,
	 * container, container_id, image, container_pid, k8s.label.X, unverified, producer
	 */
	struct tags tags;
	struct profile_sample *samples;
	size_t n_samples, cap_samples;
	struct loss *losses;		/* a profile may have losses and no samples */
	size_t n_losses, cap_losses;
	/*
	 * It came by OTLP and does not name its event as podflame does: another profiler made it.
	 * It has TAG_PRODUCER.
	 */
	bool foreign;
};
struct stack_ref {
	const struct frame *const *frames;	/* root first, interned in the batch */
	size_t n;
};
struct batch {
	struct profile **profiles;
	size_t n_profiles, cap_profiles;
	struct stack_ref *stacks;
	size_t n_stacks, cap_stacks;
	struct profile_link *links;	/* distinct */
	size_t n_links, cap_links;
	size_t n_skipped;		/* number of profiles that the receiver has skipped */
	const char *skipped_for;	/* why the first of them was skipped; a constant */
	size_t max_bytes; /* of its arena; 0: BATCH_MAX_BYTES */
	struct batch_arena *arena;
};
struct batch *profile_batch_new(void);
struct batch *profile_batch_free(struct batch *b);
void profile_batch_freep(struct batch **b);
size_t profile_batch_bytes(const struct batch *b);	/* the bytes of its arena */
/* Returns an interned copy that is freed with the batch; NULL gives NULL. */
const char *profile_batch_str(struct batch *b, const char *s);
const char *profile_batch_strn(struct batch *b, const char *s, size_t n);
int profile_batch_stack(struct batch *b, const struct frame *root_first, size_t n,
			uint32_t *ret_index);
/*
 * As profile_batch_stack(), in two steps, for frames that are used many times. The strings must
 * come from profile_batch_str(): only pointers are compared.
 */
const struct frame *profile_batch_frame(struct batch *b, const struct frame *f);
int profile_batch_stack_of(struct batch *b, const struct frame *const *root_first, size_t n,
		   uint32_t *ret_index);
/*
 * Adds the context if the batch lacks it. *ret_link is the value for profile_sample.link. -E2BIG:
 * the batch has BATCH_MAX_LINKS.
 */
#define BATCH_MAX_LINKS 65536
int profile_batch_link(struct batch *b, const struct profile_link *l, uint32_t *ret_link);
/* Returns the same value if the batch has the context; else 0. */
uint32_t profile_batch_find_link(struct batch *b, const struct profile_link *l);
/*
 * Returns an interned copy for profile_sample.labels. The values must come from
 * profile_batch_str(): only pointers are compared. NULL: l has no value.
 */
const struct profile_labels *profile_batch_labels(struct batch *b, const struct profile_labels *l);
/*
 * Returns the cause of a wait, from that by its system call and from the functions on its stack (an
 * index; STACK_NONE: not known): a wait for the work of a GPU may look like one for a lock.
 */
enum wait profile_wait_of(enum wait by_call, const struct batch *b, uint32_t stack);
struct profile *profile_batch_profile(struct batch *b);	/* zeroed, owned by b */
/*
 * Removes profile i, puts the last one in its place, and counts it in n_skipped. why: a constant.
 */
void profile_batch_skip(struct batch *b, size_t i, const char *why);
/* copies key and value; replaces the old value of the key */
void profile_tag(struct batch *b, struct profile *p, const char *key, const char *value);
void profile_untag(struct profile *p, const char *key);
const char *profile_tag_get(const struct profile *p, const char *key);	/* NULL if absent */
struct profile_sample *profile_add(struct batch *b, struct profile *p);
void profile_lose(struct batch *b, struct profile *p, const char *reason, uint64_t n,
		  uint64_t time_ns);

/*
 * Makes an id: the first 16 bytes of the SHA-256 of the parts, with '\0' between them. So a window
 * that is sent again has the same id.
 */
void profile_id_make(const char *const *parts, size_t n, uint8_t ret[16]);

/*
 * Whether the sample's value is part of the sum of its profile. False for receive requests and
 * registered memory of rdma, because their bytes are not those of the send queue. True for a sample
 * without labels: it is a sum that the hub has made of the operations of a query.
 */
bool profile_adds_up(const struct profile *p, const struct profile_sample *s);

/* ---- files ---- */
/* The values as another tool calls them. */
struct profile_value {
	const char *type, *unit;
	unsigned factor; /* how many of the unit one of the event's unit is */
};
/* What a file says besides its samples. */
struct profile_file {
	enum event event;	  /* of all profiles */
	const char *const *notes; /* texts: what the file lacks, and how to read it */
	size_t n_notes;
	/* pprof: the only value of a sample; NULL: how many samples it is, and the event's value */
	const struct profile_value *value;
	bool ticks; /* folded: the numbers of on-cpu count the samples, not microseconds */
	/* folded, speedscope: tags whose values are levels above the service: "pod=web-1" */
	const char *const *levels;
	size_t n_levels;
};
/*
 * Writes a batch as a file, piece by piece. What it needs in memory grows with the names and the
 * stacks of the batch, but not with the text of the file; it takes that from its budget. This is
 * the first member of the struct of each format.
 */
struct profile_writer {
	/*
	 * Adds what comes next, such as one sample. Returns 1 if more follows, 0 if the file is
	 * whole. -E2BIG: the budget has no more, or out is full.
	 */
	int (*step)(struct profile_writer *w, struct buf *out);
	void (*free)(struct profile_writer *w); /* with all that it has */
};
/* b and what file points to (notes, value, levels) must outlive the writer. budget NULL: none. */
typedef struct profile_writer *profile_writer_fn(const struct batch *b,
						 const struct profile_file *file,
						 struct buf_budget *budget);
struct profile_writer *profile_writer_free(struct profile_writer *w);
/* Adds to out until it has at least n bytes or the file is whole. Returns what step returns. */
int profile_writer_fill(struct profile_writer *w, size_t n, struct buf *out);
/* Writes a whole file, with the budget of out. 0 or -E2BIG. */
int profile_write(profile_writer_fn *format, const struct batch *b, const struct profile_file *file,
		  struct buf *out);

/* Folded stacks of the samples that add up. */
profile_writer_fn profile_folded_writer;
/* A "sampled" profile of speedscope: github.com/jlfwong/speedscope, file-format-spec.ts. */
profile_writer_fn profile_speedscope_writer;
/* pprof, which the caller may compress: github.com/google/pprof proto/profile.proto. */
profile_writer_fn profile_pprof_writer;
