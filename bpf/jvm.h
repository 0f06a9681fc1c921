/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * jvm: HotSpot's part of the walk, JDK 8 to 25. All generated code is in the code cache: heaps of
 * CodeBlobs, found through a map of segments. The header of a blob says how large its frames are.
 * The bytes around the address of an interrupted method say where in its prologue or epilogue it
 * stands. Each result is checked: the caller of Java code must be generated code, too.
 * docs/java.md. The facts are from the JDK's share/memory/heap.cpp, share/code/codeBlob.hpp,
 * cpu/x86/frame_x86.hpp and macroAssembler_x86.cpp.
 */
#pragma once

#include "unwind_tables.h"

#define PF_JVM_HEAPS 8
struct pf_jvm_heap {
	uint64_t start, end; /* bounds of the reserved memory */
	/* has one byte per segment: how many segments to go back, towards the start of its block */
	uint64_t segmap;
	uint32_t shift;	     /* log2 of the bytes of a segment */
	uint32_t pad;
};

#define PF_JVM_READ 384 /* bytes read of a blob's header, or of the longer one of an nmethod */
/* The value of an offset that this JDK does not have. */
#define PF_JVM_NONE 0xffff

/* What agent/node/runtime/jvm/jvm.c gives the kernel about a process. */
struct pf_jvm {
	struct pf_jvm_heap heaps[PF_JVM_HEAPS];
	uint64_t low, high;		       /* bounds of all heaps */
	uint64_t interpreter, interpreter_end; /* bounds of the interpreter's code */
	/* bounds of the part of the interpreter that makes the frames of methods */
	uint64_t entries, entries_end;
	/* the stub that calls Java code begins here or a few bytes further */
	uint64_t call_stub;
	uint16_t block_bytes; /* size of the HeapBlock before each blob */
	/* offsets in CodeBlob. frame_size is in words. */
	uint16_t name, size, frame_size, complete;
	uint16_t complete_short; /* 1: complete is an int16_t; 0: an int */
	/* where the code begins: an address, or an offset from the blob */
	uint16_t code_begin, code_offset;
	uint16_t compile_id, orig_pc; /* in an nmethod; orig_pc is an offset from rsp */
	/* where deoptimized frames return to: an address, or an offset from the blob */
	uint16_t deopt_begin, deopt_offset;
	/* as deopt_begin and deopt_offset, for deoptimized calls of method handles */
	uint16_t deopt_mh_begin, deopt_mh_offset;
	uint16_t method_const,
		const_method_bytes; /* offset in Method; the bytecodes follow the ConstMethod */
	uint16_t bcp_slot;	    /* place of the saved bytecode pointer: words below rbp */
	uint16_t pad[3];
};
_Static_assert(sizeof(struct pf_jvm) == 8 * 32 + 7 * 8 + 20 * 2, "jvm");

/* Types of HotSpot's frames. agent/node/runtime/jvm/jvm.h describes their words. */
enum pf_jvm_type { PF_JVM_INTERPRETED = 1, PF_JVM_COMPILED, PF_JVM_STUB, PF_JVM_INTERRUPTED };

#ifdef PF_WALKER

_Static_assert(PF_JVM_READ <= PF_PIECE_BYTES, "jvm");

#define PF_JVM_HOPS	   16 /* steps in the segment map; each goes back over up to 254 segments */
#define PF_JVM_PUSHED	   11 /* 1 + the most words that code pushes below its frame */
#define PF_JVM_ENTRY_WORDS 24 /* words searched for the frame above a ContinuationEntry of 12 */
#define PF_JVM_LOOP_FRAME  (1 << 20) /* bytes; the frame of an interpreted method is smaller */
#define PF_JVM_CALL_STUB   448	     /* bytes of the call stub and of similar stubs behind it */
#define PF_JVM_PARAMETERS  (1 << 14) /* bytes; the arguments of a method are smaller */
#define PF_JVM_BCI_UNKNOWN 0xffffull
/*
 * Since JDK 15, the entry barrier of a method pushes this value between the return address and the
 * frame.
 */
#define PF_JVM_NO_ADDRESS 0xffffffffffffffffull

/* Registers by their DWARF numbers. */
enum {
	PF_JVM_RAX = 0,
	PF_JVM_RDX = 1,
	PF_JVM_RCX = 2,
	PF_JVM_RBX = 3,
	PF_JVM_RDI = 5,
	PF_JVM_R11 = 11,
	PF_JVM_R13 = 13
};

enum pf_jvm_place {
	PF_JVM_BODY = PF_AFTER_PUSH + 1, /* the frame is complete */
	/* the frame has its space, but the caller's rbp is not stored yet */
	PF_JVM_SAVING,
};

/* The current blob. */
struct pf_jvm_code {
	uint64_t blob, begin,
		frame;		  /* frame: its bytes with return address and rbp; 0: not known */
	uint64_t text;		  /* the first 8 bytes of the blob's name */
	uint64_t deopt, deopt_mh; /* the address to which deoptimized frames return */
	int32_t complete;
	uint32_t orig_pc, compile_id;
	bool method;
};

/* The indexes of r->own. */
enum { PF_JVM_TYPE, PF_JVM_A, PF_JVM_B, PF_JVM_NAME, PF_JVM_OTHER_NAME };

static __always_inline void pf_jvm_show(struct pf_runtime_walk *r, uint32_t type, uint64_t a,
					uint64_t b)
{
	r->own[PF_JVM_TYPE] = type;
	r->own[PF_JVM_A] = a;
	r->own[PF_JVM_B] = b;
}

static __always_inline void pf_jvm_trouble(struct pf_runtime_walk *r, uint32_t trouble,
					   uint64_t address)
{
	pf_jvm_show(r, PF_TYPE_TROUBLE, trouble, address);
}

static __always_inline bool pf_jvm_generated(const struct pf_jvm *d, uint64_t address)
{
	return address - d->low < d->high - d->low;
}

static __always_inline bool pf_jvm_interprets(const struct pf_jvm *d, uint64_t address)
{
	return address - d->interpreter < d->interpreter_end - d->interpreter;
}

/*
 * Whether the eight bytes before an address end with a form of call r/m64, for each length of the
 * operand.
 */
static __always_inline bool pf_jvm_calls_indirectly(uint64_t bytes)
{
	return (bytes >> 48 & 0xf8ff) == 0xd0ff || (bytes >> 48 & 0xf8ff) == 0x10ff ||
	       (bytes >> 40 & 0xf8ff) == 0x50ff || (bytes >> 32 & 0xf8ff) == 0x50ff ||
	       (bytes >> 16 & 0xf8ff) == 0x90ff || (bytes >> 16 & 0xffff) == 0x15ff;
}

PF_ONCE bool pf_jvm_behind_call(uint64_t address)
{
	uint64_t bytes;

	return pf_read(&bytes, sizeof(bytes), address - 8) &&
	       ((bytes >> 24 & 0xff) == 0xe8 || pf_jvm_calls_indirectly(bytes));
}

/*
 * Whether Java code may return to the address. Only generated code calls Java code. An address in
 * the interpreter need not follow a call: the interpreter pushes it and then jumps.
 */
static __always_inline bool pf_jvm_returns(const struct pf_jvm *d, uint64_t address)
{
	return pf_jvm_generated(d, address) &&
	       (pf_jvm_interprets(d, address) || pf_jvm_behind_call(address));
}

/* ---- from an address to its blob ---- */

/* Returns a field of the blob's header in s->piece. */
static __always_inline uint64_t pf_jvm_field(const struct pf_scratch *s, uint32_t offset)
{
	return s->piece[offset / 8 % (PF_PIECE_BYTES / 8)] >> offset % 8 * 8;
}

/*
 * Finds the blob that has pc, as CodeHeap::find_block_for does. Returns 0, or 1 + enum pf_trouble.
 */
static __noinline int pf_jvm_find(const struct pf_jvm *d, uint64_t pc, uint64_t *ret)
{
	uint64_t start = 0, segmap = 0, segment;
	uint32_t shift = 0;
	uint8_t back;

	for (int k = 0; k < PF_JVM_HEAPS; k++) {
		const struct pf_jvm_heap *h = &d->heaps[k];

		if (pc - h->start < h->end - h->start) {
			start = h->start;
			segmap = h->segmap;
			shift = h->shift & 31;
		}
	}
	if (!segmap)
		return 1 + PF_TROUBLE_CODE;
	segment = (pc - start) >> shift;
	for (int k = 0; k < PF_JVM_HOPS; k++) {
		if (!pf_read(&back, 1, segmap + segment))
			return 1 + PF_TROUBLE_READ;
		if (back == 0xff)
			return 1 + PF_TROUBLE_CODE;
		if (back == 0) {
			*ret = start + (segment << shift) + d->block_bytes;
			return 0;
		}
		segment -= back;
	}
	return 1 + PF_TROUBLE_LONG;
}

/*
 * Reads the header of a blob. A small blob may be the last one of the heap. Then the longer read
 * fails, and only the part that all blobs have is read.
 */
static __always_inline bool pf_jvm_read_blob(struct pf_scratch *s, uint64_t blob)
{
	return pf_read(s->piece, PF_JVM_READ, blob) || pf_read(s->piece, 128, blob);
}

/*
 * "nmethod" and "native nmethod" are strings in libjvm. r->own remembers their addresses, so that
 * each string is read only once in a walk.
 */
static __always_inline bool pf_jvm_is_method(struct pf_runtime_walk *r, struct pf_jvm_code *c,
					     uint64_t name)
{
	c->text = 0;
	if (name == r->own[PF_JVM_NAME] || name == r->own[PF_JVM_OTHER_NAME])
		return true;
	if (!pf_read(&c->text, 8, name))
		return false;
	if (c->text != 0x00646f6874656d6e && c->text != 0x6e2065766974616e)
		return false;
	r->own[PF_JVM_OTHER_NAME] = r->own[PF_JVM_NAME];
	r->own[PF_JVM_NAME] = name;
	return true;
}

static __always_inline uint64_t pf_jvm_either(const struct pf_scratch *s, uint64_t blob,
					      uint32_t address, uint32_t offset)
{
	if (address != PF_JVM_NONE)
		return pf_jvm_field(s, address);
	return offset == PF_JVM_NONE ? 0 : blob + (uint32_t)pf_jvm_field(s, offset);
}

/* Describes the blob of the current frame. Returns 0, or 1 + enum pf_trouble. */
static __noinline int pf_jvm_code(struct pf_scratch *s, const struct pf_jvm *d,
				  struct pf_runtime_walk *r, struct pf_jvm_code *c)
{
	uint64_t pc = pf_pc(&s->walk);
	int trouble = pf_jvm_find(d, pc, &c->blob);
	uint32_t frame;

	if (trouble)
		return trouble;
	if (!pf_jvm_read_blob(s, c->blob))
		return 1 + PF_TROUBLE_READ;
	if (pc - c->blob >= (uint32_t)pf_jvm_field(s, d->size))
		return 1 + PF_TROUBLE_CODE;
	c->begin = pf_jvm_either(s, c->blob, d->code_begin, d->code_offset);
	frame = pf_jvm_field(s, d->frame_size);
	c->frame = frame < 1 << 20 ? frame * 8 : 0;
	c->complete = pf_jvm_field(s, d->complete);
	if (d->complete_short)
		c->complete = (short)c->complete;
	c->method = pf_jvm_is_method(r, c, pf_jvm_field(s, d->name));
	c->deopt = pf_jvm_either(s, c->blob, d->deopt_begin, d->deopt_offset);
	c->deopt_mh = pf_jvm_either(s, c->blob, d->deopt_mh_begin, d->deopt_mh_offset);
	c->orig_pc = pf_jvm_field(s, d->orig_pc);
	c->compile_id = pf_jvm_field(s, d->compile_id);
	return 0;
}

#include "jvm_code.h"

/* ---- the interpreter ---- */

/*
 * Sets the frame to show: the method, and the index of its current bytecode. bcp: the address of
 * that bytecode; 0: not known.
 */
static __noinline void pf_jvm_show_method(const struct pf_jvm *d, struct pf_runtime_walk *r,
					  uint64_t method, uint64_t bcp)
{
	uint64_t code;

	if (!method || method & 7 || method >> 48) {
		pf_jvm_trouble(r, PF_TROUBLE_DAMAGED, method);
		return;
	}
	if (!pf_read(&code, sizeof(code), method + d->method_const)) {
		pf_jvm_trouble(r, PF_TROUBLE_READ, method + d->method_const);
		return;
	}
	bcp -= code + d->const_method_bytes;
	if (bcp >= PF_JVM_BCI_UNKNOWN)
		bcp = PF_JVM_BCI_UNKNOWN;
	pf_jvm_show(r, PF_JVM_INTERPRETED, method, (code & 0xffffffffffff) | bcp << 48);
}

/*
 * If the interpreter is making the frame of a method, goes to the caller; else returns -1. Until
 * the frame is complete and the bytecodes begin, r13 has the caller's rsp, rbx has the Method, and
 * the return address is on top of the stack or in rax.
 */
static __always_inline int pf_jvm_entering(struct pf_scratch *s, const struct pf_jvm *d,
					   struct pf_runtime_walk *r)
{
	struct pf_walk *w = &s->walk;
	uint64_t made = w->bp - w->sp, sender = w->regs[PF_JVM_R13], top;

	if (made < 8 * (d->bcp_slot + 1u)) {
		if (made >= 8 && !pf_word(s, w->bp - 8, &sender))
			return -1;
		pf_jvm_show_method(d, r, w->regs[PF_JVM_RBX], 0);
		if (pf_jvm_caller(s, w->bp + 16, true))
			return 1;
		w->sp = sender;
		return 0;
	}
	if (sender - w->sp >= PF_JVM_PARAMETERS)
		return -1;
	if (!pf_word(s, w->sp, &top) || !pf_jvm_generated(d, top))
		top = w->regs[PF_JVM_RAX];
	/* a method that runs without a frame has its return address in rdi or rcx */
	if (!pf_jvm_generated(d, top))
		top = w->regs[PF_JVM_RDI];
	if (!pf_jvm_generated(d, top))
		top = w->regs[PF_JVM_RCX];
	if (!pf_jvm_generated(d, top))
		return -1;
	pf_jvm_show_method(d, r, w->regs[PF_JVM_RBX], 0);
	w->by_record = false;
	return pf_caller(w, top, sender);
}

/*
 * If the interpreter has just removed the frame of a method, goes to the caller; else returns -1.
 * The code for that is: leave; pop %r13; mov %rbx,%rsp; jmp *%r13, with checks between these since
 * JDK 24. For native methods: leave; pop %rdi; mov %r11,%rsp; jmp *%rdi.
 */
static __always_inline int pf_jvm_leaving(struct pf_scratch *s, const struct pf_jvm *d, bool native)
{
	struct pf_walk *w = &s->walk;
	uint64_t at = w->regs[native ? PF_JVM_RDI : PF_JVM_R13];
	uint64_t sp = w->regs[native ? PF_JVM_R11 : PF_JVM_RBX], bytes;
	uint32_t before, code;

	if (!pf_read(&bytes, sizeof(bytes), w->ip - 4))
		return -1;
	before = bytes >> 24 & 0xff;
	code = bytes >> 32 & 0xffffff;
	if (before == 0xc9 || (code & 0xffff) == 0x5d41 || (native && (code & 0xff) == 0x5f)) {
		if (!pf_word(s, w->sp, &at))
			return -1;
	} else if (native && (code & 0xffff) == 0xe7ff) {
		sp = w->sp;
	} else if (native && (code != 0xe38b49 || before != 0x5f)) {
		return -1;
	} else if (!native && code != 0xe38b48) { /* mov %rbx,%rsp */
		sp = w->sp;
	}
	/*
	 * In other code, r13 points to a bytecode. Only in the first few instructions after a call
	 * it may have the address of code shortly before.
	 */
	if (!pf_jvm_generated(d, at) || w->ip - at < 64)
		return -1;
	w->by_record = false;
	return pf_caller(w, at, sp);
}

/*
 * Goes to the caller of an interpreted method, and sets the frame to show. The words below rbp are
 * (frame_x86.hpp): sender's rsp, last rsp, Method, ..., bytecode pointer.
 */
static __noinline int pf_jvm_by_loop(struct pf_scratch *s, const struct pf_jvm *d,
				     struct pf_runtime_walk *r)
{
	struct pf_walk *w = &s->walk;
	uint64_t fp = w->bp, method, bcp, sender, bytecode = w->regs[PF_JVM_R13];
	int over = -1;

	if (w->exact) {
		bool entry = w->ip - d->entries < d->entries_end - d->entries;

		over = pf_jvm_leaving(s, d, entry);
		if (over < 0 && entry)
			over = pf_jvm_entering(s, d, r);
	}
	if (over >= 0)
		return over;
	if (w->bp_lost || fp & 7 || fp - w->sp >= PF_JVM_LOOP_FRAME)
		return pf_end(w, w->bp_lost ? PF_END_REGISTER : PF_END_STUCK);
	if (!pf_word(s, fp - 8 * d->bcp_slot, &bcp) || !pf_word(s, fp - 24, &method) ||
	    !pf_word(s, fp - 8, &sender))
		return pf_end(w, PF_END_READ);
	/*
	 * While the method runs, r13 has the bytecode pointer. If r13 does not point to the
	 * method's bytecodes, the code uses it for something else; then the saved bytecode pointer
	 * counts.
	 */
	pf_jvm_show_method(d, r, method, w->exact ? bytecode : bcp);
	if (w->exact && r->own[PF_JVM_B] >> 48 == PF_JVM_BCI_UNKNOWN)
		pf_jvm_show_method(d, r, method, bcp);
	if (pf_jvm_caller(s, fp + 16, true))
		return 1;
	if (sender > fp)
		w->sp = sender;
	return 0;
}

/* ---- the two functions that runtimes.h calls ---- */

static __always_inline void pf_jvm_show_code(struct pf_scratch *s, const struct pf_jvm_code *c,
					     struct pf_runtime_walk *r)
{
	const struct pf_walk *w = &s->walk;
	uint64_t pc = w->exact ? w->ip + 1 : w->ip, original;

	if (!c->method) {
		pf_jvm_show(r, PF_JVM_STUB, c->blob, pc);
		return;
	}
	if (!w->exact && (pc == c->deopt || pc == c->deopt_mh) &&
	    pf_word(s, w->sp + c->orig_pc, &original) && original - c->begin < 1 << 28)
		pc = original;
	pf_jvm_show(r, w->exact ? PF_JVM_INTERRUPTED : PF_JVM_COMPILED,
		    c->blob | (uint64_t)(c->compile_id & 0xffff) << 48,
		    pc | (uint64_t)(c->compile_id >> 16) << 48);
}

static __always_inline int pf_jvm_unwind(struct pf_scratch *s, const struct pf_jvm *d,
					 struct pf_runtime_walk *r)
{
	struct pf_walk *w = &s->walk;
	struct pf_jvm_code c;
	uint32_t place = PF_JVM_BODY, code;
	bool by_stub = r->own[PF_JVM_TYPE] == PF_JVM_STUB;
	int trouble;

	pf_jvm_show(r, PF_JVM_STUB, d->interpreter, w->exact ? w->ip + 1 : w->ip);
	if (pf_jvm_interprets(d, pf_pc(w)))
		return pf_jvm_by_loop(s, d, r);
	trouble = pf_jvm_code(s, d, r, &c);
	if (trouble) {
		pf_jvm_trouble(r, trouble - 1, w->ip);
		return pf_jvm_guess(s, d);
	}
	pf_jvm_show_code(s, &c, r);
	if (w->exact && c.method && !c.frame) /* code between a method handle and its method */
		return pf_jvm_by_adapter(s, d);
	if (w->exact && !c.method)
		return pf_jvm_by_stub(s, d, &c);
	if (!c.frame)
		return pf_jvm_by_barrier(s, d);
	if (w->exact && pf_read(s->piece, PF_JVM_BYTES, w->ip - PF_JVM_BEFORE)) {
		place = pf_jvm_place(s, c.frame, (int64_t)(w->ip - c.begin) < c.complete);
		if (place == PF_JVM_BODY)
			c.frame += pf_jvm_arguments(s);
	} else if (by_stub && pf_read(&code, sizeof(code), w->ip) && pf_jvm_drops(code)) {
		c.frame += 16;
	}
	return pf_jvm_by_size(s, d, c.frame, place);
}

static __always_inline int pf_jvm_frame(struct pf_scratch *s, const struct pf_jvm *d,
					struct pf_runtime_walk *r)
{
	(void)d;
	if (!s->walk.first)
		return 1;
	return pf_push_runtime(s, PF_RUNTIME_JVM, r->own[PF_JVM_TYPE], r->own[PF_JVM_A],
			       r->own[PF_JVM_B])
		       ? 1
		       : 0;
}
#endif
