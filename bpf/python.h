/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * python: CPython's part of the walk. The Python frames of a thread are a list, leaf first. An
 * activation is one running call of the evaluation loop, with one native frame. It runs a piece of
 * the list. Data of the activation on the C stack shows where its piece ends, so a piece is never
 * shown with the native frame of another activation:
 * - up to 3.10, the piece is one frame object;
 * - 3.11 and 3.12 have a _PyCFrame on the C stack, with which the piece begins. It ends with a
 *   frame that has is_entry (3.11), or with a shim frame (3.12);
 * - since 3.13, the piece ends with a shim frame that is on the C stack (_PyEval_EvalFrameDefault
 *   of each version, pycore_frame.h).
 */
#pragma once

#include "unwind_tables.h"

enum pf_python_pieces {
	PF_PYTHON_OBJECT,
	PF_PYTHON_ENTRY,  /* only CPython 3.11 */
	PF_PYTHON_CFRAME, /* only CPython 3.12 */
	PF_PYTHON_SHIM,
};

#define PF_PYTHON_OUTSIDE_MAX 3	  /* parts of the loop's code without its frame */
#define PF_PYTHON_READ	      256 /* the most bytes read of a thread state and of a frame */

/* What agent/node/runtime/python/python.c gives the kernel about a process. Offsets in bytes. */
struct pf_python {
	/* Addresses: the first interpreter; the thread state that holds the GIL (0: not known). */
	uint64_t interpreters, holder;
	/*
	 * The evaluation loop. outside: up to 3.10, the parts of its code in which the thread state
	 * does not have this loop's frame yet, or no longer.
	 */
	uint64_t eval;
	struct {
		uint32_t start, end;
	} outside[PF_PYTHON_OUTSIDE_MAX];
	uint16_t pieces; /* enum pf_python_pieces */
	uint16_t interpreter_next, interpreter_threads;
	uint16_t thread_bytes, thread_next, thread_interpreter, thread_id, thread_frame;
	uint16_t cframe_frame, cframe_previous;
	uint16_t frame_bytes, frame_code, frame_back, frame_globals;
	uint16_t frame_last; /* the byte that shows the end of a piece: is_entry, owner */
	uint16_t frame_instruction;
	/*
	 * co_code_adaptive. 0: the frame has f_lasti, a number of bytes (instruction_shift 1) or of
	 * code units (0)
	 */
	uint16_t code_instructions, instruction_shift;
	/* co_argcount's word and those behind it, which never change in a code object */
	uint16_t code_counts;
	uint16_t code_name;
	uint16_t frame_owner;
	/*
	 * How many words a frame has: size_words, plus the ints of the code object at size_first
	 * and size_second behind code_counts. 0: not known, or there is none.
	 */
	uint8_t size_words, size_first, size_second;
};
_Static_assert(sizeof(struct pf_python) == 96, "python");

/*
 * frame.owner: 3.12 FRAME_OWNED_BY_CSTACK; in 3.14 this is FRAME_OWNED_BY_INTERPRETER, and CSTACK
 * is the next value
 */
#define PF_PYTHON_OWNER_SHIM 3

/*
 * The two words of a frame. a: the code object and its cookie, which differs if another object gets
 * the same address. b: the dictionary of the globals, and 1 plus the index of the current code
 * unit.
 */
#define PF_PYTHON_ADDRESS(word) ((word)&0xffffffffffffull)
#define PF_PYTHON_HIGH(word)	((uint32_t)((word) >> 48))
#define PF_PYTHON_UNIT_UNKNOWN	0xffffu
#define PF_PYTHON_COUNTS	4  /* words of a code object that make the cookie */
#define PF_PYTHON_HASH		24 /* PyASCIIObject.hash of the name, for the cookie */

static inline __attribute__((always_inline)) uint64_t
pf_python_cookie(const uint64_t counts[PF_PYTHON_COUNTS], uint64_t name_hash)
{
	uint64_t h = name_hash;

	for (int i = 0; i < PF_PYTHON_COUNTS; i++)
		h = (h ^ counts[i]) * 0x9e3779b97f4a7c15ull; /* 2^64 / golden ratio */
	return h >> 48;
}

#ifdef PF_WALKER
#define PF_PYTHON_LOOKS_MAX   2048 /* thread states and interpreters looked at, per walk */
#define PF_PYTHON_TRIES	      16   /* further thread states of one thread (subinterpreters) */
#define PF_PYTHON_STATE_BYTES 512  /* a thread state of 3.11 and 3.12 is smaller */
#define PF_PYTHON_NONE	    1	 /* there is no thread state, or its frames cannot be read */

/* The content of pf_runtime_walk.own. pf_runtime_walk.at is the next frame. */
struct pf_python_walk {
	uint64_t thread; /* 0: not searched for yet */
	uint64_t cframe; /* the _PyCFrame of the next activation */
	uint64_t code;	 /* code object of the last frame, including its cookie */
	/* The walk's position and result when the current piece began. */
	uint64_t start, hash;
	uint16_t n_words, n_frames;
	uint8_t begin; /* the next call must begin a piece */
	uint8_t inner; /* the native walk has not met the activation of this piece */
	/* how many other thread states were tried for the piece of this activation */
	uint8_t tries;
	uint8_t met;	/* the walk has met an activation */
	uint16_t looks; /* at how many thread states this walk has looked */
	uint8_t check;	/* PF_PYTHON_CHECK_* of the current piece */
	/*
	 * The thread state that was current when the search for others began, and the next frame in
	 * it.
	 */
	uint64_t origin, origin_at;
};
_Static_assert(sizeof(struct pf_python_walk) <= sizeof(((struct pf_runtime_walk *)0)->own), "");

/* The position of the search for a thread state. Not on the BPF stack: docs/unwinding.md. */
struct pf_python_looks {
	uint64_t interpreter, thread;
};

struct pf_python_loop {
	struct pf_scratch *s;
	const struct pf_python *d;
	struct pf_runtime_walk *r;
};

static __always_inline struct pf_python_walk *pf_python_walk(struct pf_runtime_walk *r)
{
	return (struct pf_python_walk *)r->own;
}

/*
 * Reads up to PF_PYTHON_READ bytes into s->piece. The two functions below return a word and a byte
 * of these.
 */
static __always_inline bool pf_python_read(struct pf_scratch *s, uint64_t address, uint32_t n)
{
	return n <= PF_PYTHON_READ && pf_read(s->piece, n, address);
}
static __always_inline uint64_t pf_python_word(const struct pf_scratch *s, uint32_t offset)
{
	return s->piece[offset / 8 % (PF_PYTHON_READ / 8)];
}
static __always_inline uint8_t pf_python_byte(const struct pf_scratch *s, uint32_t offset)
{
	return pf_python_word(s, offset) >> (offset % 8 * 8);
}

/*
 * Returns the position of the search, which is in s->piece, behind the bytes that pf_python_read()
 * reads.
 */
static __always_inline struct pf_python_looks *pf_python_looks(struct pf_scratch *s)
{
	_Static_assert(PF_PYTHON_READ + sizeof(struct pf_python_looks) <= sizeof(s->piece), "");
	return (struct pf_python_looks *)&s->piece[PF_PYTHON_READ / 8];
}

/* ---- the thread state ---- */

/*
 * Whether a thread state is that of this thread: its thread_id is pthread_self(). In glibc and
 * musl, that is the address in %fs.
 */
static __always_inline bool pf_python_is_mine(struct pf_scratch *s, const struct pf_python *d,
					      uint64_t thread)
{
	return pf_python_read(s, thread, d->thread_bytes) &&
	       pf_python_word(s, d->thread_id) == s->walk.thread_pointer;
}

/*
 * Reads one thread state of the interpreters' lists. Ends the loop at a thread state of this thread
 * other than x->origin, or at the end of the lists.
 */
static long pf_python_look(uint32_t i, struct pf_python_loop *loop)
{
	struct pf_python_looks *at = pf_python_looks(loop->s);
	struct pf_python_walk *x = pf_python_walk(loop->r);
	const struct pf_python *d = loop->d;
	uint64_t first = 0, next = 0;

	(void)i;
	if (x->looks >= PF_PYTHON_LOOKS_MAX) {
		at->thread = 0;
		return 1;
	}
	x->looks++;
	if (at->thread) {
		if (pf_python_is_mine(loop->s, d, at->thread) && at->thread != x->origin)
			return 1;
		at->thread = pf_python_word(loop->s, d->thread_next);
		return 0;
	}
	if (!at->interpreter || !pf_read(&first, 8, at->interpreter + d->interpreter_threads) ||
	    !pf_read(&next, 8, at->interpreter + d->interpreter_next))
		return 1;
	at->interpreter = next;
	at->thread = first;
	return 0;
}

/*
 * Finds the next thread state of this thread, behind the last one tried, except x->origin. 0: there
 * is none, or the limit on looks is reached.
 */
static __attribute__((noinline)) uint64_t
pf_python_search(struct pf_scratch *s, const struct pf_python *d, struct pf_runtime_walk *r)
{
	const struct pf_python_walk *x = pf_python_walk(r);
	struct pf_python_looks *at = pf_python_looks(s);
	struct pf_python_loop loop = {s, d, r};
	uint64_t next = d->interpreters;

	at->thread = 0;
	if (x->tries) {
		if (!pf_read(&next, 8, x->thread + d->thread_interpreter) ||
		    !pf_read(&at->thread, 8, x->thread + d->thread_next))
			return 0;
		next += d->interpreter_next;
	}
	if (!pf_read(&at->interpreter, 8, next))
		return 0;
	bpf_loop(PF_PYTHON_LOOKS_MAX + 1, pf_python_look, &loop, 0);
	return at->thread && pf_python_is_mine(s, d, at->thread) ? at->thread : 0;
}

static __always_inline bool pf_python_has_cframes(const struct pf_python *d)
{
	return d->pieces == PF_PYTHON_ENTRY || d->pieces == PF_PYTHON_CFRAME;
}

/* Continues at the leaf frame of the thread state that has just been read. */
static __always_inline void pf_python_enter(struct pf_scratch *s, const struct pf_python *d,
					    struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);

	x->cframe = r->at = pf_python_word(s, d->thread_frame);
	x->begin = true;
}

/* Whether the thread state that has just been read has no frames. */
static __always_inline bool pf_python_is_empty(struct pf_scratch *s, const struct pf_python *d,
					       uint64_t thread)
{
	uint64_t frames = pf_python_word(s, d->thread_frame);

	if (pf_python_has_cframes(d)) /* the first one is a member of the thread state */
		return frames - thread < PF_PYTHON_STATE_BYTES;
	return !frames;
}

/*
 * Called if the thread state that was found has no frames. This state may be that of another
 * thread: a thread that starts another one makes the new thread's state. Up to 3.11, until the new
 * thread runs, that state has the thread_id of the thread that made it, and comes before its
 * maker's state in the list. Searches for another thread state of this thread. If there is none,
 * reads x->thread again, which then stays.
 */
static __always_inline bool pf_python_past_empty(struct pf_scratch *s, const struct pf_python *d,
						 struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);
	uint64_t other;

	x->origin = x->thread;
	other = pf_python_search(s, d, r);
	if (other)
		x->thread = other;
	x->origin = 0;
	return other || pf_python_is_mine(s, d, x->thread);
}

/*
 * Finds the thread state of this thread. A thread that runs on a CPU holds the GIL most of the
 * time, so one read finds its thread state. Otherwise (the thread waits for the GIL, or has
 * released it around a computation) the walk looks at all thread states.
 */
static __always_inline bool pf_python_thread(struct pf_scratch *s, const struct pf_python *d,
					     struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);

	if (d->holder && pf_read(&x->thread, 8, d->holder) && x->thread &&
	    pf_python_is_mine(s, d, x->thread))
		return true;
	x->thread = pf_python_search(s, d, r);
	if (x->thread && pf_python_is_empty(s, d, x->thread))
		return pf_python_past_empty(s, d, r);
	return x->thread;
}

/*
 * Turns to the next thread state of this thread, because the current activation has no piece in the
 * thread state that was tried last: the loop was just entered, is just being left, or runs for
 * another interpreter. If there is no other thread state, this function goes back to the first one,
 * because the next activation may have its piece there.
 */
PF_ONCE int pf_python_other(struct pf_scratch *s, const struct pf_python *d,
			    struct pf_runtime_walk *r)
{
	struct pf_python_walk *x;
	uint64_t head, next, other;

	if (!s || !d || !r)
		return 1;
	x = pf_python_walk(r);
	if (!x->tries) {
		if (!pf_read(&head, 8, d->interpreters) ||
		    !pf_read(&next, 8, head + d->interpreter_next) || !next)
			return 1;
		x->origin = x->thread;
		x->origin_at = pf_python_has_cframes(d) ? x->cframe : r->at;
	}
	other = pf_python_search(s, d, r);
	if (other && x->tries < PF_PYTHON_TRIES) {
		x->tries++;
		x->thread = other;
		pf_python_enter(s, d, r);
		return 0;
	}
	if (other || x->looks >= PF_PYTHON_LOOKS_MAX)
		pf_trouble(s, PF_RUNTIME_PYTHON, PF_TROUBLE_LONG, 0);
	/* Up to 3.10, the walk does not go back, because each thread state is read to its end. */
	x->thread = d->pieces == PF_PYTHON_OBJECT ? PF_PYTHON_NONE : x->origin;
	x->cframe = r->at = x->origin_at;
	return 1;
}

/* ---- pieces ---- */

static __always_inline void pf_python_keep(struct pf_walk *w, struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);

	x->start = r->at;
	x->hash = w->hash;
	x->n_words = w->n_words;
	x->n_frames = w->n_frames;
}

/* Removes the frames of this piece that were pushed. */
static __always_inline void pf_python_undo(struct pf_walk *w, struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);

	r->at = x->start;
	w->hash = x->hash;
	w->n_words = x->n_words;
	w->n_frames = x->n_frames;
}

/*
 * Whether the first activation is in a part of the loop's code where it has no Python frame of its
 * own yet, or no longer. Only needed up to 3.10.
 */
static __always_inline bool pf_python_outside(const struct pf_scratch *s, const struct pf_python *d)
{
	uint64_t at = s->walk.shown - d->eval;

	for (int i = 0; i < PF_PYTHON_OUTSIDE_MAX; i++)
		if (at - d->outside[i].start < d->outside[i].end - d->outside[i].start)
			return true;
	return false;
}

/*
 * Whether there is a piece for the current activation. If r->at is 0 then, the piece has no frames.
 */
static __always_inline bool pf_python_piece(struct pf_scratch *s, const struct pf_python *d,
					    struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);
	struct pf_walk *w = &s->walk;

	if (d->pieces == PF_PYTHON_OBJECT)
		return r->at;
	if (d->pieces == PF_PYTHON_SHIM) {
		pf_python_keep(w, r);
		return r->at;
	}
	if (!x->cframe || x->cframe >= w->sp)
		return false;
	if (!pf_python_read(s, x->cframe, 24)) {
		pf_trouble(s, PF_RUNTIME_PYTHON, PF_TROUBLE_READ, x->cframe);
		x->cframe = 0;
		return false;
	}
	x->inner = x->cframe < w->frame_sp;
	x->cframe = pf_python_word(s, d->cframe_previous);
	/*
	 * After a change of the thread state, the frames of an activation that the native walk has
	 * not met are not shown, because they may have been shown before.
	 */
	r->at = x->inner && x->tries ? 0 : pf_python_word(s, d->cframe_frame);
	return true;
}

/*
 * Called when the piece of a _PyCFrame is complete. If its activation was one that the native walk
 * has not met, the next piece follows at once, until the piece of the current activation.
 */
static __always_inline int pf_python_piece_end(struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);

	r->at = 0;
	x->begin = x->inner;
	return !x->inner;
}

/*
 * Called since 3.13 if r->at is a shim frame: the frames of this piece belong to the activation in
 * whose native frame the shim lies.
 */
static __always_inline int pf_python_shim(struct pf_scratch *s, const struct pf_python *d,
					  struct pf_runtime_walk *r, uint64_t back)
{
	struct pf_walk *w = &s->walk;
	uint64_t shim = r->at;

	if (shim >= w->sp) {
		pf_python_undo(w, r);
		return pf_python_other(s, d, r);
	}
	if (shim >= w->frame_sp) {
		r->at = back;
		return 1;
	}
	/*
	 * The shim is below the current native frame, so the native walk has not met the activation
	 * of this piece. After a change of the thread state, these frames may have been shown
	 * before, so they are removed.
	 */
	if (pf_python_walk(r)->tries)
		pf_python_undo(w, r);
	r->at = back;
	pf_python_keep(w, r);
	return 0;
}

/* ---- frames ---- */

/* Returns 1 plus the index of the current code unit of the frame in s->piece. */
static __always_inline uint64_t pf_python_unit(const struct pf_scratch *s,
					       const struct pf_python *d, uint64_t code)
{
	uint64_t at = pf_python_word(s, d->frame_instruction);
	int64_t unit;

	if (d->code_instructions)
		unit = (int64_t)(at - code - d->code_instructions) >> 1;
	else
		unit = (int32_t)at >> (d->instruction_shift & 31);
	return unit < -1 || unit >= (int64_t)PF_PYTHON_UNIT_UNKNOWN - 1 ? PF_PYTHON_UNIT_UNKNOWN
									: (uint64_t)unit + 1;
}

/*
 * 3.11 and 3.12. When one Python function calls another, the loop stores the new frame in
 * cframe.current_frame and sets the new frame's `previous`. The compiler chooses the order of the
 * two stores, so between them `previous` may have an old value. And a new activation stores its
 * cframe in tstate->cframe some instructions before that cframe has values. Both can be seen only
 * if the innermost native frame is the loop itself. So two things are checked. First, if the
 * innermost Python frame has not run an instruction yet, it must begin where its caller's frame
 * ends, or at the beginning of a chunk. (Callers that are generators are skipped, because their
 * frames lie elsewhere.) Second, the caller of the last frame of a piece must be the frame that the
 * previous activation runs.
 */
#define PF_PYTHON_CHECK_LEAF   1 /* the next frame read is the leaf */
#define PF_PYTHON_CHECK_CALLER 2 /* the next frame must end at x->start */
/* `previous` of the piece's last frame must be the frame of the next cframe */
#define PF_PYTHON_CHECK_ENTRY 4
#define PF_PYTHON_PROLOGUE    256 /* bytes of the loop's beginning, which stores its cframe */
#define PF_PYTHON_CHUNK_HEAD  24  /* offset of the first frame in a _PyStackChunk */

static __always_inline void pf_python_check_begin(struct pf_scratch *s, const struct pf_python *d,
						  struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);

	x->check = 0;
	if (!d->frame_owner || s->walk.n_frames != 1)
		return;
	pf_python_keep(&s->walk, r);
	x->check = PF_PYTHON_CHECK_LEAF;
	if (d->pieces == PF_PYTHON_ENTRY && s->walk.shown - d->eval < PF_PYTHON_PROLOGUE)
		x->check |= PF_PYTHON_CHECK_ENTRY;
}

/* Whether the frame at `next` begins where this one ends, or at the beginning of a chunk. */
static __always_inline bool pf_python_ends_at(const struct pf_python *d, uint64_t frame,
					      uint64_t code, uint64_t next)
{
	uint32_t first = 0, second = 0;

	if ((next & (PF_USER_PAGE - 1)) == PF_PYTHON_CHUNK_HEAD)
		return true;
	if (!pf_read(&first, sizeof(first), code + d->code_counts + d->size_first))
		return false;
	if (d->size_second &&
	    !pf_read(&second, sizeof(second), code + d->code_counts + d->size_second))
		return false;
	return frame + 8 * ((uint64_t)first + second + d->size_words) == next;
}

/* Checks the frame at r->at, as x->check says. 1: it contradicts the frame before it. */
PF_ONCE int pf_python_check(struct pf_scratch *s, const struct pf_python *d,
			    struct pf_runtime_walk *r)
{
	struct pf_python_walk *x;
	uint64_t code, back, started;
	bool last, in_stack;

	if (!s || !d || !r)
		return 1;
	x = pf_python_walk(r);
	if (!pf_python_read(s, r->at, d->frame_bytes))
		/* pf_python_next() reads the frame again, and shows that the read failed */
		return 0;
	code = pf_python_word(s, d->frame_code);
	back = pf_python_word(s, d->frame_back);
	started = pf_python_unit(s, d, code);
	in_stack = !pf_python_byte(s, d->frame_owner);
	last = d->pieces == PF_PYTHON_ENTRY && pf_python_byte(s, d->frame_last);
	if (x->check & PF_PYTHON_CHECK_LEAF) {
		x->check &= ~PF_PYTHON_CHECK_LEAF;
		x->start = r->at;
		if (in_stack && !started && !last)
			x->check |= PF_PYTHON_CHECK_CALLER | PF_PYTHON_CHECK_ENTRY;
	} else if (x->check & PF_PYTHON_CHECK_CALLER && in_stack) {
		x->check &= ~PF_PYTHON_CHECK_CALLER;
		if (!pf_python_ends_at(d, r->at, code, x->start))
			return 1;
	}
	if (!last || !(x->check & PF_PYTHON_CHECK_ENTRY))
		return 0;
	x->check = 0;
	return !pf_python_read(s, x->cframe, 24) || pf_python_word(s, d->cframe_frame) != back;
}

/*
 * A check has failed: neither this piece nor the next ones are certain. Shows a marker in their
 * place.
 */
static __always_inline int pf_python_unlinked(struct pf_scratch *s, struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);
	struct pf_walk *w = &s->walk;

	w->hash = x->hash;
	w->n_words = x->n_words;
	w->n_frames = x->n_frames;
	x->thread = PF_PYTHON_NONE;
	pf_trouble(s, PF_RUNTIME_PYTHON, PF_TROUBLE_DAMAGED, r->at);
	return 1;
}

/*
 * Sets x->code to the code object and its cookie. Returns 0, or the address that could not be read.
 */
static __always_inline uint64_t pf_python_code(struct pf_scratch *s, const struct pf_python *d,
					       struct pf_python_walk *x, uint64_t code)
{
	uint32_t name = (uint32_t)d->code_name - d->code_counts;
	uint64_t at = code + d->code_counts, hash;

	if (!pf_python_read(s, at, name + 8))
		return at;
	at = pf_python_word(s, name) + PF_PYTHON_HASH;
	if (!pf_read(&hash, sizeof(hash), at))
		return at;
	x->code = code | pf_python_cookie(s->piece, hash) << 48;
	return 0;
}

/* Pushes the frame in s->piece. */
static __always_inline int pf_python_push(struct pf_scratch *s, const struct pf_python *d,
					  struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);
	uint64_t code = pf_python_word(s, d->frame_code) & ~7ull; /* 3.14: tags of _PyStackRef */
	uint64_t globals = pf_python_word(s, d->frame_globals);
	uint64_t unit = pf_python_unit(s, d, code), absent;

	if (!code || code >> 47 || globals >> 47)
		return pf_trouble(s, PF_RUNTIME_PYTHON, PF_TROUBLE_DAMAGED, r->at);
	if (code != PF_PYTHON_ADDRESS(x->code)) {
		absent = pf_python_code(s, d, x, code);
		if (absent)
			return pf_trouble(s, PF_RUNTIME_PYTHON, PF_TROUBLE_READ, absent);
	}
	return pf_push_runtime(s, PF_RUNTIME_PYTHON, 0, x->code, globals | unit << 48);
}

static __always_inline int pf_python_next(struct pf_scratch *s, const struct pf_python *d,
					  struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);
	uint64_t at = r->at, back;
	uint8_t last;

	if (!at && pf_python_has_cframes(d))
		return pf_python_piece_end(r);
	if (!at)
		return pf_python_other(s, d, r);
	if (x->check && pf_python_check(s, d, r))
		return pf_python_unlinked(s, r);
	if (!pf_python_read(s, at, d->frame_bytes)) {
		/* it is not known to which activation the piece belongs */
		if (x->tries && d->pieces == PF_PYTHON_SHIM)
			pf_python_undo(&s->walk, r);
		pf_trouble(s, PF_RUNTIME_PYTHON, PF_TROUBLE_READ, at);
		if (x->tries && d->pieces != PF_PYTHON_OBJECT)
			return pf_python_other(s, d, r);
		x->thread = PF_PYTHON_NONE;
		return 1;
	}
	back = pf_python_word(s, d->frame_back);
	last = pf_python_byte(s, d->frame_last);
	if (d->pieces == PF_PYTHON_SHIM && last >= PF_PYTHON_OWNER_SHIM)
		return pf_python_shim(s, d, r, back);
	if (d->pieces == PF_PYTHON_CFRAME && last >= PF_PYTHON_OWNER_SHIM)
		return pf_python_piece_end(r);
	if (pf_python_push(s, d, r))
		return 1;
	r->at = back;
	if (d->pieces == PF_PYTHON_ENTRY && last)
		return pf_python_piece_end(r);
	return d->pieces == PF_PYTHON_OBJECT;
}

/*
 * Ends the walk. Python has no generated code to unwind: its only code is evaluation loops, and
 * these are in files.
 */
static __always_inline int pf_python_unwind(struct pf_scratch *s, const struct pf_python *d,
					    struct pf_runtime_walk *r)
{
	(void)d;
	(void)r;
	return pf_end(&s->walk, PF_END_FP);
}

static __attribute__((noinline)) int
pf_python_frame(struct pf_scratch *s, const struct pf_python *d, struct pf_runtime_walk *r)
{
	struct pf_python_walk *x = pf_python_walk(r);
	bool here, first;

	if (x->thread == PF_PYTHON_NONE)
		return 1;
	if (!x->thread) {
		if (!pf_python_thread(s, d, r)) {
			x->thread = PF_PYTHON_NONE;
			return pf_trouble(s, PF_RUNTIME_PYTHON,
					  x->looks < PF_PYTHON_LOOKS_MAX ? PF_TROUBLE_THREAD
									 : PF_TROUBLE_LONG,
					  0);
		}
		pf_python_enter(s, d, r);
	}
	if (s->walk.first) {
		/*
		 * Up to 3.10, nothing shows which frames were shown already, so no thread state is
		 * read twice.
		 */
		if (d->pieces != PF_PYTHON_OBJECT)
			x->tries = 0;
		x->begin = true;
	}
	if (x->begin) {
		x->begin = false;
		first = !x->met;
		x->met = true;
		if (first && d->pieces == PF_PYTHON_OBJECT && pf_python_outside(s, d))
			return 1;
		here = pf_python_piece(s, d, r);
		if (!here)
			return pf_python_other(s, d, r);
		if (first && pf_python_has_cframes(d))
			pf_python_check_begin(s, d, r);
		else if (pf_python_has_cframes(d))
			x->check = 0;
	}
	return pf_python_next(s, d, r);
}
#endif
