/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile: the model that node and hub share: frames, stacks, profiles, and the one function that
 * renders a frame as text. Plain data, no I/O.
 */
#pragma once

#include "lib/base/base.h"

/* ---- events ---- */
enum event {
	EVENT_ON_CPU,
	EVENT_OFF_CPU,
	EVENT_MEM_ALLOC,
	EVENT_MEM_INUSE,
	_EVENT_MAX,
};
struct event_info {
	const char *name;		/* profile_event_type: "on-cpu" */
	const char *spec_field;		/* in a target's spec.events: "onCpu" */
	const char *unit;		/* "microseconds", "bytes" */
	const char *otlp_sample_type;	/* sample_type's type string */
	bool snapshot;			/* newest report replaces, instead of adding up */
	const char *local_key; /* in a configuration: false, and `podflame local` records it too */
};
const struct event_info *profile_event_info(enum event e);
int profile_event_from_name(const char *name, enum event *ret);

/* The cause of a wait, for off-cpu: tag `wait` of a sample. */
enum wait {
	WAIT_NONE,			/* other events */
	WAIT_RUNQUEUE,			/* woken, but not running yet */
	WAIT_DISK,			/* uninterruptible */
	WAIT_LOCK,			/* futex */
	WAIT_SLEEP,
	WAIT_POLL,			/* poll, select, epoll */
	WAIT_SOCKET,
	WAIT_PIPE,
	WAIT_OTHER,
	_WAIT_MAX,
};
const char *profile_wait_name(enum wait w);	/* "lock"; "" for WAIT_NONE */
int profile_wait_from_name(const char *s, enum wait *ret);

/* The greatest value of a sample, which every reader of JSON reads exactly. Sums stop there. */
#define PROFILE_MAX_VALUE (INT64_C(1) << 53)

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
	FRAME_WAIT, /* made when a stack is rendered, from the sample's wait: "[wait: lock]" */
	_FRAME_KIND_MAX,
};
const char *profile_frame_kind_name(enum frame_kind k);		/* "app", "library", ... */
int profile_frame_kind_from_name(const char *s, enum frame_kind *ret);

/* Strings are borrowed from the code that made the frame; NULL: not known. */
struct frame {
	enum frame_kind kind;
	bool inlined;
	uint32_t line;			/* 0: not known */
	uint64_t address;		/* ELF virtual address (user), kernel address, or 0 */
	const char *name;		/* demangled; NULL: not resolved */
	const char *module; /* path as the process sees it; kernel: "[kernel]" or the module */
	const char *build_id;		/* hex */
	const char *file;
};

/* The head of a rendered stack: everything besides its frames. */
struct stack_head {
	const char *process_comm;	/* Total only: the level above the thread; else NULL */
	const char *thread_comm;	/* NULL: no such level */
	bool main_thread;		/* "[p] comm" instead of "[t] comm" */
	enum wait wait;			/* of off-cpu: "[wait: lock]" below all frames */
};

/*
 * The DeepFlow text form of one frame (prefixes, [module], [unknown] 0x%016lx,
 * [unknown start_thread?] for the outermost user frame); ';' becomes ':'.
 */
void profile_frame_render(const struct frame *f, bool outermost_user, struct buf *out);
/* The same where nothing separates frames: ';' stays. */
void profile_frame_name(const struct frame *f, bool outermost_user, struct buf *out);
/* The leaf with the cause of a wait: "[wait: lock]"; NULL for WAIT_NONE. A constant. */
const struct frame *profile_wait_frame(enum wait w);
/*
 * A whole stack, root to leaf, ';' between: "[t] worker;main;[l] write;[k] do_syscall_64;[wait:
 * lock]".
 */
void profile_stack_render(const struct stack_head *h, const struct frame *root_first, size_t n,
		  struct buf *out);

/* ---- profiles ---- */
/*
 * A batch owns everything in it: strings, frames and stacks are interned in its
 * arena and freed together. Limits: BATCH_MAX_*; past one the add returns -E2BIG.
 */
#define STACK_MAX_FRAMES 1024
#define BATCH_MAX_BYTES (64u << 20)

struct tag {
	const char *key, *value;	/* key: "pod_ns", "pod", "k8s.label.app", ... */
};
struct tags {
	struct tag *items;		/* sorted by key, one value a key */
	size_t n, cap;
};

struct profile_sample {
	uint32_t stack; /* index into the batch's stacks; STACK_NONE for none (Total) */
	int64_t value;			/* in the event's unit */
	uint64_t n_samples;		/* how many kernel samples made it */
	const char *process_comm;	/* Total only */
	const char *thread_comm;
	bool main_thread;
	int32_t cpu;			/* -1: not kept apart */
	enum wait wait;			/* off-cpu; samples differ by it */
	uint32_t link;			/* 0: none; else 1 + index into the batch's links */
};
#define STACK_NONE UINT32_MAX

/*
 * The call in which a sample was taken: W3C trace context. On their way, samples with different
 * calls stay apart; stores keep the call in a table of its own.
 */
struct profile_link {
	uint8_t trace_id[16], span_id[8];
};

/*
 * Samples that were lost before they were in a profile, as a value. It travels with what they
 * should have come with, a drain or a request, into the window. All zero: nothing was lost. Of more
 * than LOSSES_MAX kinds (events and reason) the rest is one kind: "other", of unknown events.
 */
#define LOSSES_MAX 128
struct lost {
	const char *reason; /* a constant */
	unsigned event_mask; /* 1 << enum event; 0: not known which */
	uint64_t n;
};
struct losses {
	struct lost *items; /* owned */
	size_t n, cap;
};
void profile_losses_add(struct losses *l, unsigned event_mask, const char *reason, uint64_t n);
void profile_losses_move(struct losses *into, struct losses *from); /* from is empty then */
uint64_t profile_losses_sum(const struct losses *l);
void profile_losses_done(struct losses *l); /* l is empty then */
/* Adds samples that were lost just now, and counts them: podflame_samples_dropped_total. */
void profile_samples_lost(struct losses *l, unsigned event_mask, const char *reason, uint64_t n);

struct loss {
	const char *reason;		/* "ring_full", "agent_down", ... */
	uint64_t n_samples;		/* 0 with time_ns != 0: a gap of time */
	uint64_t time_ns;
};

struct profile {
	uint8_t id[16];			/* wire profile_id; see profile_id_make */
	enum event event;
	uint64_t start_ns, end_ns;	/* wall time; [k*W, (k+1)*W) */
	uint64_t period_ns;		/* nominal; 0: none */
	/*
	 * Values are estimates: the share of what happened that was looked at, in ppm (0: all of
	 * it), and one standard error of the sum, in the event's unit.
	 */
	uint32_t estimate_ppm;
	uint64_t estimate_error;
	const char *app_service;	/* process comm, or "Total" */
	uint32_t process_id;		/* host PID; 0 for Total and for loss without a process */
	uint64_t process_start_ns;	/* wall time; 0: not known */
	/*
	 * pod_cluster, pod_ns, pod, pod_node, pod_group, pod_group_type, container, container_id,
	 * image, container_pid, k8s.label.X
	 */
	struct tags tags;
	struct profile_sample *samples;
	size_t n_samples, cap_samples;
	struct loss *losses;		/* a profile may have losses and no samples */
	size_t n_losses, cap_losses;
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
	size_t n_skipped;		/* the input had more profiles than this batch */
	const char *skipped_for;	/* why the first was left out; a constant */
	struct batch_arena *arena;
};
struct batch *profile_batch_new(void);
struct batch *profile_batch_free(struct batch *b);
void profile_batch_freep(struct batch **b);
size_t profile_batch_bytes(const struct batch *b);	/* the bytes of its arena */
/* An interned copy that lives as long as the batch; NULL gives NULL. */
const char *profile_batch_str(struct batch *b, const char *s);
const char *profile_batch_strn(struct batch *b, const char *s, size_t n);
int profile_batch_stack(struct batch *b, const struct frame *root_first, size_t n,
			uint32_t *ret_index);
/*
 * The same in two steps, for frames that come again and again. The strings come from
 * profile_batch_str(); their bytes are not compared.
 */
const struct frame *profile_batch_frame(struct batch *b, const struct frame *f);
int profile_batch_stack_of(struct batch *b, const struct frame *const *root_first, size_t n,
		   uint32_t *ret_index);
/* profile_sample.link of a context, made if need be; -E2BIG: BATCH_MAX_LINKS. */
#define BATCH_MAX_LINKS 65536
int profile_batch_link(struct batch *b, const struct profile_link *l, uint32_t *ret_link);
struct profile *profile_batch_profile(struct batch *b);	/* zeroed, owned by b */
/* copies; replaces */
void profile_tag(struct batch *b, struct profile *p, const char *key, const char *value);
const char *profile_tag_get(const struct profile *p, const char *key);	/* NULL if absent */
struct profile_sample *profile_add(struct batch *b, struct profile *p);
void profile_lose(struct batch *b, struct profile *p, const char *reason, uint64_t n,
		  uint64_t time_ns);

/*
 * The first 16 bytes of SHA-256 over the '\0'-joined parts: the same window has the same id when it
 * is sent again.
 */
void profile_id_make(const char *const *parts, size_t n, uint8_t ret[16]);

/* pprof (gzip is the caller's business): github.com/google/pprof proto/profile.proto. */
int profile_write_pprof(const struct batch *b, struct buf *out);
