/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * walk: the state of a walk over a stack, and its result. The state is in the scratch map, so the
 * verifier checks only one step, however deep the stack is.
 */
#pragma once

#include "hash.h"

/* Registers by their DWARF numbers (psABI 3.6.2). */
#define PF_REGS	   16
#define PF_REG_RBP 6
#define PF_REG_RSP 7

/*
 * A rule that was looked up before: to read it again here costs one cache line; a look-up costs
 * ten.
 */
struct pf_recent {
	uint64_t address; /* (ELF virtual address << 1), plus 1 for a leaf */
	uint32_t file;
	uint32_t tables; /* pf_settings.tables when it was looked up */
	struct pf_rule rule;
};
#define PF_RECENT_BITS	   9
#define PF_RULE_IS_SPECIAL 0xff /* in pf_recent.rule.cfa: rule.extra is an enum pf_rule_special */

/*
 * Stack memory is read in pieces of this many bytes. A read costs 70 ns whatever its size. That is
 * more than all else that a frame costs.
 */
#define PF_WINDOW_BYTES 256
#define PF_USER_PAGE	4096

/* The state that a runtime keeps between its frames; zero at the beginning of the walk. */
struct pf_runtime_walk {
	uint64_t at; /* the address of the current frame */
	uint64_t own[9];
};

#define PF_RETURNS_MAX 8 /* return addresses of a thread that probes have replaced */

struct pf_walk {
	/* The current frame. */
	uint64_t ip, sp, bp;
	uint64_t regs[PF_REGS]; /* valid when `exact` */
	bool exact;		/* ip is the current instruction, not a return address */
	bool at_entry;		/* certainly the first instruction of a function */
	bool bp_lost;		/* rbp is no longer known */
	bool by_record;		/* the last step followed a frame record */
	/* user space has given the process's mappings: `process` is valid */
	bool known;
	bool in_file;	   /* ip is code of a file, or may be */
	uint32_t no_table; /* enum pf_stack_end: the end to report if the walk cannot go on */

	/* Runtimes: see runtimes.h. */
	uint32_t runtime; /* pf_mapping.runtime of the current frame */
	bool found;	  /* `mapping` and `file` are those of the current frame */
	bool asking;	  /* the runtime of the current frame has more frames to show */
	bool first;	  /* the runtime has shown none of these frames yet */
	uint32_t over;	  /* not 0: the native walk has ended; `end` says why */
	/*
	 * rsp and rbp of the current frame. While its runtime shows frames, sp and bp are the
	 * caller's already.
	 */
	uint64_t frame_sp;
	uint64_t frame_bp;
	uint64_t shown;		 /* address of the last native frame */
	uint64_t thread_pointer; /* %fs base; 0: the process has no runtimes */
	struct pf_runtime_walk runtimes[PF_RUNTIMES_MAX];
	/*
	 * not 0: the stack begins with a frame for the allocated object, which this runtime names.
	 * The code that sets this clears it again.
	 */
	uint32_t object_of;
	uint64_t object; /* the class or type of the allocated object */

	uint32_t tables;     /* pf_settings.tables when the walk began */
	uint64_t exec_pages; /* mm->exec_vm; 0: the process has no memory, or no longer */
	uint64_t mm;	     /* the mm_struct whose mappings may be read; 0: unknown */
	uint32_t sequence;   /* pf_mm_sequence() when the walk began */
	bool borrowed;	     /* `process` is that of the parent process */
	/* a file that the walk met and that `process` does not have; PF_TAG_NONE: none */
	uint64_t unknown_tag;
	/*
	 * the walk met something for which user space must read the process: an unknown file, code
	 * of no file, a runtime
	 */
	bool strange;
	bool halted; /* the walk met listed code that is not executable at this moment */
	/* the walk met code of a runtime that `process` does not list, so frames are missing */
	bool lacks_runtime;
	/* mm->start_stack, the address of argc, above the program's first frame; 0: not known */
	uint64_t stack_start;
	struct pf_process process;
	/*
	 * The mapping of the address that was looked up last. If it is not of a file or is unknown,
	 * `mapped` is false.
	 */
	struct pf_mapping mapping;
	bool mapped;
	struct pf_file file; /* the file of `mapping` */

	/*
	 * The return addresses that the kernel has replaced for return probes: where on the stack,
	 * and the original addresses.
	 */
	uint32_t n_returns;
	struct {
		uint64_t slot, address;
	} returns[PF_RETURNS_MAX];

	uint64_t window; /* the user address of s->window */
	uint64_t window_bytes;

	/* The result of the walk. hash: the hash of the stack. */
	uint64_t hash;
	uint32_t exec_id;
	uint32_t n_frames;
	uint32_t n_words;
	uint32_t n_runtime; /* how many of the frames are of runtimes */
	uint32_t end;	    /* enum pf_stack_end */
};

/* Where the labels of a Go program are, while they are read (trace_context.h). */
struct pf_labels {
	uint64_t at;
	uint32_t n;
	bool is_map, unread;
	bool cut; /* not all labels were read, and those that were read do not have both ids */
};

/* The most bytes that a runtime reads at once: one structure, while it shows a frame. */
#define PF_PIECE_BYTES 512 /* a power of two */

/* A word of memory that decided the walk: see last_stack.h. */
struct pf_noted {
	uint64_t address, value;
};
#define PF_NOTES_MAX 64 /* values of the stack that one walk notes, to compare them later */

#define PF_STACK_WORDS (3 * PF_MAX_USER_FRAMES) /* a frame: a header and at most two words */

struct pf_scratch {
	uint32_t busy;
	uint32_t pad;
	uint64_t woke_ns;	 /* when this CPU last woke the agent for a young process */
	struct pf_count_key key; /* key of the current sample */
	uint64_t value;
	struct pf_rec_context context;
	struct pf_labels labels;
	uint32_t context_read; /* PF_CALL_* of trace_context.h */
	uint32_t context_wanted;
	struct pf_walk walk;
	union {
		/* addresses of the kernel's part; used after the user's part was walked */
		uint64_t kernel[PF_MAX_KERNEL_FRAMES + 1];
		uint64_t piece[PF_PIECE_BYTES / 8]; /* bytes that were read for a runtime's frame */
		/* used for a frame's mapping, before `piece` is */
		struct pf_vma vma;
	};
	uint32_t kernel_from, kernel_n; /* the part of `kernel` that is shown */
	uint64_t window[PF_WINDOW_BYTES / 8];
	struct pf_noted noted[PF_NOTES_MAX];
	uint32_t n_recalled;
	uint32_t n_noted; /* more than PF_NOTES_MAX: other things decided the walk, too */
	bool noted_bp;	  /* the leaf's rbp decided the walk, too */
	uint64_t leaf_ip; /* where the walk began */
	uint64_t bp_at;	  /* the address from which bp was read; 0: bp is the leaf's */
	struct pf_recent recent[1 << PF_RECENT_BITS];
	/* struct pf_rec_stack, with its words as an array whose bounds the verifier can check */
	struct {
		struct pf_record h;
		uint64_t hash;
		uint32_t n_words;
		uint16_t n_frames, end;
		uint64_t young_start_boottime_ns;
		uint32_t young_tgid, exec_id;
		uint64_t words[PF_STACK_WORDS];
	} stack;
};
_Static_assert(sizeof(struct pf_scratch) <= 32 << 10,
	       "the most that a value for each CPU may have");

/* The context of bpf_loop must be on the BPF stack. It has no state, only a pointer to it. */
struct pf_loop {
	struct pf_scratch *s;
};

/*
 * For a global function. The verifier checks such a function once, and not for each state of its
 * callers. So it knows only the types of the arguments, and each pointer may be NULL.
 */
#ifndef PF_ONCE
#define PF_ONCE __noinline
#endif

/*
 * Forces x into one register here, so that the compiler uses the same register that the verifier
 * has seen checked.
 */
#define PF_BARRIER(x) asm volatile("" : "+r"(x))

/* ---- notes of what decides the walk: only in programs that remember stacks (last_stack.h) ---- */

#ifdef PF_RECALL
#define PF_TAKES_NOTES true
#else
#define PF_TAKES_NOTES false
#endif

static __always_inline void pf_note_begin(struct pf_scratch *s)
{
	if (!PF_TAKES_NOTES)
		return;
	s->n_noted = 0;
	s->noted_bp = false;
	s->bp_at = 0;
}

static __always_inline void pf_note(struct pf_scratch *s, uint64_t address, uint64_t value)
{
	uint64_t n;

	if (!PF_TAKES_NOTES)
		return;
	n = s->n_noted;
	s->n_noted = n + 1;
	PF_BARRIER(n);
	if (n < PF_NOTES_MAX)
		s->noted[n] = (struct pf_noted){address, value};
}

/* Notes that bp decides where the walk goes. */
static __always_inline void pf_note_bp(struct pf_scratch *s)
{
	if (!PF_TAKES_NOTES)
		return;
	if (s->bp_at)
		pf_note(s, s->bp_at, s->walk.bp);
	else
		s->noted_bp = true;
}

static __always_inline void pf_note_bp_at(struct pf_scratch *s, uint64_t address)
{
	if (PF_TAKES_NOTES)
		s->bp_at = address;
}

/* Notes that something other than the noted words decides the walk: the stack is not remembered. */
static __always_inline void pf_note_other(struct pf_scratch *s)
{
	if (PF_TAKES_NOTES)
		s->n_noted = PF_NOTES_MAX + 1;
}

/* ---- the result ---- */

static __always_inline void pf_stack_begin(struct pf_walk *w, uint64_t hash, uint32_t exec_id)
{
	w->hash = hash;
	w->exec_id = exec_id;
	w->n_frames = 0;
	w->n_words = 0;
	w->n_runtime = 0;
	w->end = PF_END_DEPTH;
}

/*
 * Pushes a frame in a file. Returns 0, or -1 if the stack is full. The same code has the same hash
 * wherever the file is mapped.
 */
static __always_inline int pf_push_file(struct pf_scratch *s, uint64_t address, uint64_t offset)
{
	struct pf_walk *w = &s->walk;
	uint64_t n = w->n_words;

	PF_BARRIER(n);
	if (n > PF_STACK_WORDS - 3 || w->n_frames >= PF_MAX_USER_FRAMES)
		return -1;
	s->stack.words[n] = PF_FRAME_HEADER(PF_FRAME_FILE, 2, offset);
	s->stack.words[n + 1] = address;
	s->stack.words[n + 2] = w->mapping.tag;
	w->hash = pf_hash_add(w->hash, w->mapping.tag);
	w->hash = pf_hash_add(w->hash, offset);
	w->n_words = n + 3;
	w->n_frames++;
	return 0;
}

/* As pf_push_file(), for a frame that is not in a file, or is the kernel's. */
static __always_inline int pf_push(struct pf_scratch *s, uint32_t kind, uint64_t address)
{
	struct pf_walk *w = &s->walk;
	uint64_t n = w->n_words;

	PF_BARRIER(n);
	if (n > PF_STACK_WORDS - 2 || w->n_frames >= PF_MAX_USER_FRAMES)
		return -1;
	s->stack.words[n] = PF_FRAME_HEADER(kind, 1, 0);
	s->stack.words[n + 1] = address;
	w->hash = pf_hash_add(w->hash, address);
	w->n_words = n + 2;
	w->n_frames++;
	return 0;
}

/*
 * As pf_push_file(), for a runtime's frame. The words are equal if function and position are equal.
 */
static __always_inline int pf_push_runtime(struct pf_scratch *s, uint32_t runtime, uint32_t type,
					   uint64_t a, uint64_t b)
{
	struct pf_walk *w = &s->walk;
	uint64_t n = w->n_words;

	PF_BARRIER(n);
	if (n > PF_STACK_WORDS - 3 || w->n_frames >= PF_MAX_USER_FRAMES)
		return -1;
	s->stack.words[n] = PF_FRAME_RUNTIME_HEADER(runtime, type);
	s->stack.words[n + 1] = a;
	s->stack.words[n + 2] = b;
	w->hash = pf_hash_add(w->hash, (uint64_t)runtime << 8 | type);
	w->hash = pf_hash_add(w->hash, a);
	/*
	 * The hash of a trouble leaves out b, which is an address that differs each time. So stacks
	 * that differ only in b count as one.
	 */
	if (type != PF_TYPE_TROUBLE)
		w->hash = pf_hash_add(w->hash, b);
	w->n_words = n + 3;
	w->n_frames++;
	w->n_runtime++;
	return 0;
}

/* Ends the walk: returns the value that ends a bpf_loop. */
static __always_inline int pf_end(struct pf_walk *w, uint32_t end)
{
	w->end = end;
	return 1;
}
