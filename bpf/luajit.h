/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * luajit: LuaJIT's part of the walk: 2.1 with GC64, x86-64 (lj_frame.h, lj_obj.h, vm_x64.dasc).
 *
 * Its interpreter is hand-written assembler that runs in one C frame of fixed size. Traces (JIT
 * code) run in that frame, too, a few bytes further down. A Lua thread (lua_State L) keeps a chain
 * of these C frames: L->cframe, then CFRAME_OFS_PREV of each. Every C frame has its L. So the walk
 * accepts memory as a C frame only if it holds an L whose chain has that memory as its next
 * element. The frames of the Lua program are in L's own stack, in slots of 8 bytes. The slot below
 * base[0] has the link (a bytecode address or a size, with the type in its low bits), and the slot
 * below that the function.
 */
#pragma once

#include "unwind_tables.h"

#define PF_LUAJIT_CALLS	  128
#define PF_LUAJIT_ENTRIES 8
#define PF_LUAJIT_LEAVES  4
#define PF_LUAJIT_QUIETS  4

/*
 * A call in the interpreter's code, named by its return address. Offsets are from vm_start; 0xffff:
 * none.
 */
struct pf_luajit_call {
	uint16_t offset;
	uint16_t flags;
};
#define PF_LUAJIT_BASE_IN_RBP 1u /* L->base is not up to date */
#define PF_LUAJIT_PC_SAVED    2u /* the C frame's PC is up to date */

struct pf_luajit_part {
	uint16_t start, bytes;
};

/* What agent/node/runtime/luajit/luajit.c gives the kernel about a process. */
struct pf_luajit {
	uint64_t vm_start, vm_end;     /* the interpreter, and the code that traces call */
	uint64_t exit_start, exit_end; /* lj_vm_exit_handler, where rsp is not at a C frame */
	uint32_t frame_bytes;	       /* value of CFRAME_SIZE */
	/*
	 * dispatch: r14 - g. The others: offsets in or behind g (global_State). jit_base 0: the
	 * process has no traces.
	 */
	int32_t dispatch, cur_l, jit_base, vmstate, traces;
	/* the code that makes a C frame: from saveregs to the start of a program's code */
	struct pf_luajit_part entries[PF_LUAJIT_ENTRIES];
	uint16_t leaves[PF_LUAJIT_LEAVES]; /* the code that removes a C frame: add rsp, pops, ret */
	/* code in which no function of the program runs any more */
	struct pf_luajit_part quiets[PF_LUAJIT_QUIETS];
	uint32_t n_calls, pad;
	struct pf_luajit_call calls[PF_LUAJIT_CALLS]; /* ascending */
};

/* Types of frames. */
#define PF_LUAJIT_FUNCTION 1 /* a: GCproto and cookie; b: bytecode index, flags */
/* as for PF_LUAJIT_FUNCTION, but of the instruction at which the trace begins */
#define PF_LUAJIT_TRACE	   2
/* b: the index of the current instruction in bits 0..31, */
#define PF_LUAJIT_NO_PC	 0xffffffffull
#define PF_LUAJIT_CALLED (1ull << 32) /* the function was called by the next frame's instruction */

/* GCproto (lj_obj.h), up to the last member used here; the bytecode follows it. */
struct pf_luajit_proto {
	uint64_t next;
	uint8_t marked, gct, numparams, framesize;
	uint32_t sizebc;
	uint64_t unused, gclist, k, uv;
	uint32_t sizekgc, sizekn, sizept;
	uint8_t sizeuv, flags;
	uint16_t trace;
	uint64_t chunkname;
	uint32_t firstline, numline;
};
#define PF_LUAJIT_PROTO_BYTES 104
#define PF_LUAJIT_GCT_THREAD  6
#define PF_LUAJIT_GCT_PROTO   7
#define PF_LUAJIT_GCT_FUNC    8
#define PF_LUAJIT_GCT_TRACE   9

_Static_assert(sizeof(struct pf_luajit_proto) == 80, "GCproto");
_Static_assert(sizeof(struct pf_luajit) == 632, "luajit");

/* Returns a cookie of 16 bits. It differs if another GCproto got the memory of this one. */
static inline uint64_t pf_luajit_cookie(const struct pf_luajit_proto *p)
{
	uint64_t h = p->chunkname ^ (uint64_t)p->firstline << 20 ^ (uint64_t)p->sizebc << 40 ^
		     p->numline ^ (uint64_t)p->sizept << 13;

	return (h * 0x9e3779b97f4a7c15ull) >> 48;
}

#ifdef PF_WALKER
#include "luajit_state.h"

static __always_inline int pf_luajit_unwind(struct pf_scratch *s, const struct pf_luajit *d,
					    struct pf_runtime_walk *r)
{
	struct pf_walk *w = &s->walk;
	uint64_t at, bp, ra;

	r->own[PF_LUAJIT_SHOWN] = 0;
	if (pf_luajit_in_vm(d, w->exact ? w->ip : w->ip - 1))
		r->own[PF_LUAJIT_SHOWN] = w->exact && w->n_words ? w->ip + 1 : w->ip;
	at = pf_luajit_c_frame(s, d, r);
	if (!at)
		return pf_end(w, PF_END_FP);
	w->by_record = false;
	at += d->frame_bytes - 16;
	/* rbp is not saved yet while the C frame is being made. */
	if (at + 8 != w->sp) {
		if (!pf_word(s, at, &bp))
			return pf_end(w, PF_END_READ);
		w->bp = bp;
		w->bp_lost = false;
	}
	if (!pf_word(s, at + 8, &ra))
		return pf_end(w, PF_END_READ);
	return pf_caller(w, ra, at + 16);
}

/* ---- the program's frames ---- */

static __always_inline int pf_luajit_lost(struct pf_scratch *s, struct pf_runtime_walk *r,
					  uint32_t trouble, uint64_t address)
{
	r->own[PF_LUAJIT_STATE] = PF_LUAJIT_LOST;
	pf_trouble(s, PF_RUNTIME_LUAJIT, trouble, address);
	return 1;
}

/* Returns the index of the instruction before a bytecode address. */
static __always_inline uint64_t pf_luajit_index(const struct pf_luajit_proto *p, uint64_t bc,
						uint64_t pc)
{
	uint64_t index = pc == bc ? 0 : (pc - bc) / 4 - 1;

	return pc >= bc && !(pc & 3) && index < p->sizebc ? index : PF_LUAJIT_NO_PC;
}

static __always_inline int pf_luajit_push(struct pf_scratch *s, uint32_t type,
					  const struct pf_luajit_proto *p, uint64_t bc, uint64_t b)
{
	uint64_t a = (bc - PF_LUAJIT_PROTO_BYTES) | pf_luajit_cookie(p) << 48;

	return pf_push_runtime(s, PF_RUNTIME_LUAJIT, type, a, b);
}

/*
 * Shows the running trace as a frame, named by the function in which the trace begins. Shows none
 * if that is not known.
 */
static __noinline int pf_luajit_trace(struct pf_scratch *s, const struct pf_luajit *d,
				      struct pf_runtime_walk *r)
{
	struct pf_luajit_trace *t = &pf_luajit_read(s)->trace;
	struct pf_luajit_proto *p = &pf_luajit_read(s)->proto;
	uint64_t g, traces, at, bc;
	int32_t number;

	r->own[PF_LUAJIT_STATE] = PF_LUAJIT_RUNS;
	if (!d->traces || !pf_read(&g, 8, r->own[PF_LUAJIT_L] + 16) ||
	    !pf_read(&number, 4, g + d->vmstate) || number <= 0 ||
	    !pf_read(&traces, 8, g + d->traces) || !pf_read(&at, 8, traces + 8ull * number) ||
	    !pf_read(t, sizeof(*t), at + PF_LUAJIT_TRACE_START) || t->number != number)
		return 0;
	bc = t->start_proto + PF_LUAJIT_PROTO_BYTES;
	if (!pf_read(p, sizeof(*p), t->start_proto) || p->gct != PF_LUAJIT_GCT_PROTO)
		return 0;
	/*
	 * The trace begins at start_pc. Other addresses here are behind their instruction, so 4 is
	 * added.
	 */
	r->own[PF_LUAJIT_PC] = t->start_pc + 4;
	pf_luajit_push(s, PF_LUAJIT_TRACE, p, bc, pf_luajit_index(p, bc, t->start_pc + 4));
	return 0;
}

#define PF_LUAJIT_CONT_CALLBACK 1 /* LJ_CONT_FFI_CALLBACK: C code called the function */

/*
 * Moves r->at to the frame before (the caller's). Returns 1 if that frame belongs to another C
 * frame, -1 if the link is not valid. *ret_flags: the flags of the frame at which r->at was.
 */
static __always_inline int pf_luajit_back(struct pf_runtime_walk *r,
					  const struct pf_luajit_slots *f, uint64_t *ret_flags)
{
	uint32_t instruction, type = f->link & 3;
	uint64_t size = f->link & ~7ull;

	*ret_flags = 0;
	r->own[PF_LUAJIT_PC] = 0;
	if (type == PF_LUAJIT_LINK_LUA) {
		if (!pf_read(&instruction, 4, f->link - 4))
			return -1;
		size = 16 + 8 * (instruction >> 8 & 0xff);
		r->own[PF_LUAJIT_PC] = f->link;
		*ret_flags = PF_LUAJIT_CALLED;
	} else if (type == PF_LUAJIT_LINK_CONT && !(f->link & PF_LUAJIT_LINK_P)) {
		if (f->continuation == PF_LUAJIT_CONT_CALLBACK)
			type = PF_LUAJIT_LINK_C;
		else
			*ret_flags = PF_LUAJIT_CALLED;
		r->own[PF_LUAJIT_PC] = f->pc;
	}
	if (!size || size >= r->at)
		return -1;
	r->at -= size;
	return type == PF_LUAJIT_LINK_C;
}

/*
 * Returns the address of the part of the function that could not be read. A failed read gives
 * zeros.
 */
static __always_inline uint64_t pf_luajit_absent(struct pf_scratch *s, uint64_t slot)
{
	const struct pf_luajit_func *f = &pf_luajit_read(s)->func;

	return f->gct == PF_LUAJIT_GCT_FUNC ? f->pc - PF_LUAJIT_PROTO_BYTES
					    : pf_luajit_func_of(slot);
}

static __noinline int pf_luajit_next(struct pf_scratch *s, struct pf_runtime_walk *r)
{
	struct pf_luajit_slots *f = &pf_luajit_read(s)->slots;
	struct pf_luajit_proto *p = &pf_luajit_read(s)->proto;
	uint64_t at = r->at, pc = r->own[PF_LUAJIT_PC], bc, flags;
	int over;

	if (!pf_read(f, sizeof(*f), at - sizeof(*f)))
		return pf_luajit_lost(s, r, PF_TROUBLE_READ, at - sizeof(*f));
	/* the bottom of the thread's stack */
	if (f->func >> 47 == 0x1ffff - PF_LUAJIT_GCT_THREAD) {
		r->own[PF_LUAJIT_STATE] = PF_LUAJIT_NOTHING;
		return 1;
	}
	if (!pf_luajit_func_of(f->func))
		return pf_luajit_lost(s, r, PF_TROUBLE_DAMAGED, at);
	over = pf_luajit_back(r, f, &flags);
	if (over < 0)
		return pf_luajit_lost(s, r, PF_TROUBLE_DAMAGED, at);
	/*
	 * A function with varargs has two frames: before its own frame is one that holds the
	 * varargs, with the same function. That one is not shown.
	 */
	if ((f->link & 7) == PF_LUAJIT_LINK_VARG) {
		r->own[PF_LUAJIT_PC] = pc;
		return 0;
	}
	switch (pf_luajit_func_in(s, f->func)) {
	case PF_LUAJIT_LUA_FUNC:
		bc = pf_luajit_read(s)->func.pc;
		pf_luajit_push(s, PF_LUAJIT_FUNCTION, p, bc, pf_luajit_index(p, bc, pc) | flags);
		break;
	/*
	 * Pushes a marker for this frame. Without it, the stack would show the caller in the place
	 * of this function.
	 */
	case PF_LUAJIT_NO_FUNC:
		pf_trouble(s, PF_RUNTIME_LUAJIT, PF_TROUBLE_READ, pf_luajit_absent(s, f->func));
		break;
	}
	if (over)
		r->own[PF_LUAJIT_STATE] = PF_LUAJIT_NOTHING;
	return over;
}

static __always_inline int pf_luajit_frame(struct pf_scratch *s, const struct pf_luajit *d,
					   struct pf_runtime_walk *r)
{
	uint64_t shown = r->own[PF_LUAJIT_SHOWN];

	if (s->walk.first && shown) {
		pf_push_native(s, shown);
		return 0;
	}
	switch (r->own[PF_LUAJIT_STATE]) {
	case PF_LUAJIT_NOTHING:
		return 1;
	case PF_LUAJIT_LOST:
		return pf_luajit_lost(s, r, PF_TROUBLE_DAMAGED, s->walk.frame_sp);
	case PF_LUAJIT_IN_TRACE:
		return pf_luajit_trace(s, d, r);
	}
	return pf_luajit_next(s, r);
}
#endif
