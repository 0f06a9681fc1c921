/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * walk: the state of a walk over a stack, and its result. It is in the scratch map, so the verifier
 * sees one step, however deep the stack is.
 */
#pragma once

#include "hash.h"

/* Registers by their DWARF numbers (psABI 3.6.2). */
#define PF_REGS	   16
#define PF_REG_RBP 6
#define PF_REG_RSP 7

/* A rule that was looked up before: one cache line instead of the ten of a look-up. */
struct pf_recent {
	uint64_t address; /* ELF virtual address << 1 | leaf */
	uint32_t file;
	uint32_t tables; /* pf_settings.tables then */
	struct pf_rule rule;
};
#define PF_RECENT_BITS	   9
#define PF_RULE_IS_SPECIAL 0xff /* of pf_recent.rule.cfa: extra is an enum pf_rule_special */

/*
 * Stack memory is read in pieces: a read costs 70 ns, whatever its size, which is more than all the
 * rest of a frame.
 */
#define PF_WINDOW_BYTES 256
#define PF_USER_PAGE	4096

/* What a runtime keeps between its frames; zero at the beginning of the walk. */
struct pf_runtime_walk {
	uint64_t at; /* the address of the current frame */
	uint64_t own[9];
};

#define PF_RETURNS_MAX 8

struct pf_walk {
	/* The current frame. */
	uint64_t ip, sp, bp;
	uint64_t regs[PF_REGS]; /* valid when `exact` */
	bool exact;		/* ip is the current instruction, not a return address */
	bool at_entry;		/* certainly the first instruction of a function */
	bool bp_lost;		/* rbp is no longer known */
	bool by_record;		/* the last step followed a frame record */
	bool known;		/* the process has mappings */
	bool in_file;		/* ip may be code of a file, as it is not known to be JIT code */
	uint32_t no_table;	/* enum pf_stack_end: the end to report if the walk cannot go on */

	/* Runtimes: see runtimes.h. */
	uint32_t runtime; /* of the current frame: pf_mapping.runtime */
	bool found;	  /* `mapping` and `file` are those of the current frame */
	bool asking;	  /* its runtime has more frames to show */
	bool first;	  /* this is the first of them */
	uint32_t over;	  /* not 0: the native walk has ended; `end` says why */
	/* rsp and rbp of the current frame; sp and bp are its caller's already */
	uint64_t frame_sp;
	uint64_t frame_bp;
	uint64_t shown;		 /* address of the last native frame */
	uint64_t thread_pointer; /* %fs base; 0: the process has no runtimes */
	struct pf_runtime_walk runtimes[PF_RUNTIMES_MAX];
	/* not 0: the stack begins with the allocated object, as this runtime names it; */
	uint32_t object_of;
	uint64_t object; /* the code that sets it clears it again */

	uint32_t tables;      /* pf_settings.tables when the walk began */
	uint64_t exec_pages;  /* mm->exec_vm; 0: it has no memory, or no longer */
	uint64_t mm;	      /* whose mappings may be read; 0: unknown */
	uint32_t sequence;    /* of its mappings, when the walk began: pf_mm_sequence() */
	bool borrowed;	      /* `process` is its parent's */
	uint64_t unknown_tag; /* a file that the walk met and the list lacks; PF_TAG_NONE */
	bool halted;	      /* it met listed code that cannot run at this moment */
	bool lacks_runtime;   /* it met code of a runtime that is not listed: frames lack */
	/* mm->start_stack: argc, above the program's first frame; 0: not known */
	uint64_t stack_start;
	struct pf_process process;
	/*
	 * The mapping of the last address. It may be of no file, or of unknown code: then `mapped`
	 * is false.
	 */
	struct pf_mapping mapping;
	bool mapped;
	struct pf_file file; /* of that mapping */

	/*
	 * The return addresses that the kernel has replaced for return probes: where, and the
	 * original ones.
	 */
	uint32_t n_returns;
	struct {
		uint64_t slot, address;
	} returns[PF_RETURNS_MAX];

	uint64_t window; /* the user address of s->window */
	uint64_t window_bytes;

	/* What came out. */
	uint64_t hash;
	uint32_t exec_id;
	uint32_t n_frames;
	uint32_t n_words;
	uint32_t n_runtime; /* frames of runtimes */
	uint32_t end;	    /* enum pf_stack_end */
};

/* Where the labels of a program are, while they are read (trace_context.h). */
struct pf_labels {
	uint64_t at;
	uint32_t n;
	bool is_map, unread;
	bool cut; /* more labels than were read, and not both ids among those */
};

/* What a runtime reads at once: a structure of its own, while it shows a frame. */
#define PF_PIECE_BYTES 512 /* a power of two */

/* A word of memory that decided the walk: see last_stack.h. */
struct pf_noted {
	uint64_t address, value;
};
#define PF_NOTES_MAX 64

#define PF_STACK_WORDS (3 * PF_MAX_USER_FRAMES) /* header and at most two words */

struct pf_scratch {
	uint32_t busy;
	uint32_t pad;
	uint64_t woke_ns;	 /* when it last woke the reader because of a young process */
	struct pf_count_key key; /* of the current sample */
	uint64_t value;
	struct pf_rec_context context;
	struct pf_labels labels;
	uint32_t context_read; /* PF_CALL_* of trace_context.h */
	uint32_t context_wanted;
	struct pf_walk walk;
	union {
		uint64_t kernel[PF_MAX_KERNEL_FRAMES + 1]; /* after the user's part */
		uint64_t piece[PF_PIECE_BYTES / 8];	   /* of a frame, or of the trace context */
		struct pf_vma vma;			   /* of a frame, before that one */
	};
	uint32_t kernel_from, kernel_n; /* the part of it that is shown */
	uint64_t window[PF_WINDOW_BYTES / 8];
	struct pf_noted noted[PF_NOTES_MAX];
	uint32_t n_recalled;
	uint32_t n_noted; /* more than PF_NOTES_MAX: something else decided the walk, too */
	bool noted_bp;	  /* by the leaf's rbp */
	uint64_t leaf_ip; /* where the walk began */
	uint64_t bp_at;	  /* the address from which rbp was read; 0: it is the leaf's */
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

/* The context of the loop must be on the stack. It holds no state, only a pointer to it. */
struct pf_loop {
	struct pf_scratch *s;
};

/*
 * The verifier checks such a function once, and not for each state of its callers. So it knows only
 * the types of the arguments, which may be NULL.
 */
#ifndef PF_ONCE
#define PF_ONCE __noinline
#endif

/*
 * Keeps the value that the verifier has checked and the one that the compiler uses in one register.
 */
#define PF_BARRIER(x) asm volatile("" : "+r"(x))

/* ---- what the walk goes by: only programs that recall stacks take note ---- */

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

/* rbp decides where the walk goes. */
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

/* Something that is not noted decides the walk. */
static __always_inline void pf_note_other(struct pf_scratch *s)
{
	if (PF_TAKES_NOTES)
		s->n_noted = PF_NOTES_MAX + 1;
}

/* ---- what comes out ---- */

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
 * Returns 0, or -1 if the stack is full. A frame of a file, wherever it is mapped: equal places
 * have equal hashes.
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

/* The same for a frame of no file, or of the kernel. */
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

/* The same for a runtime's frame: equal functions at equal places have equal words. */
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
	/* The address of a trouble differs from time to time, so one such frame is enough. */
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
