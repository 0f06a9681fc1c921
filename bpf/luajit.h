/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * luajit: LuaJIT's part of the walk: 2.1 with GC64, x86-64 (lj_frame.h, lj_obj.h, vm_x64.dasc).
 *
 * Its interpreter is hand-written assembler that runs in one C frame of fixed size, and so do traces
 * (JIT code), a few bytes further down. A Lua thread (lua_State L) keeps a chain of these C frames:
 * L->cframe, then each one's CFRAME_OFS_PREV. Every C frame holds its L. So a frame is certain: it is
 * taken only where L, found in it, says that it is the next of the chain.
 * Lua's own frames lie in L's stack: slots of 8 bytes; below base[0] the link (a bytecode address or
 * a size, with the type in its low bits), below that the function.
 */
#pragma once

#include "tables.h"

#define PF_LUAJIT_CALLS	  128
#define PF_LUAJIT_ENTRIES 8

/* A call in the interpreter's code, by where it returns to. */
struct pf_luajit_call {
	uint16_t offset; /* from vm_start */
	uint16_t flags;
};
#define PF_LUAJIT_BASE_IN_RBP 1u /* L->base is not up to date */
#define PF_LUAJIT_PC_SAVED    2u /* the C frame's PC is up to date */

/* What agent/node/runtime/luajit.c tells of a process. */
struct pf_luajit {
	uint64_t vm_start, vm_end;     /* the interpreter, with all that traces call of it */
	uint64_t exit_start, exit_end; /* of it: lj_vm_exit_handler while rsp is not at a C frame */
	uint32_t frame_bytes;	       /* CFRAME_SIZE */
	/* r14 - g, and where in g (global_State) or behind it */
	int32_t dispatch, cur_l, jit_base, vmstate, traces;
	/* saveregs: where a C frame is being made */
	uint16_t entries[PF_LUAJIT_ENTRIES]; /* from vm_start; 0xffff: none */
	uint32_t n_calls, pad;
	struct pf_luajit_call calls[PF_LUAJIT_CALLS]; /* ascending; the rest has offset 0xffff */
};

/* Types of frames. */
#define PF_LUAJIT_FUNCTION 1 /* a: GCproto and cookie; b: bytecode index, flags */
#define PF_LUAJIT_TRACE	   2 /* the same of where the trace starts */
/* b: the index of the instruction at hand in bits 0..31, */
#define PF_LUAJIT_NO_PC	 0xffffffffull
#define PF_LUAJIT_CALLED (1ull << 32) /* by the instruction of the next frame */

/* GCproto (lj_obj.h), up to what is used here; bytecode follows the whole. */
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
_Static_assert(sizeof(struct pf_luajit) == 64 + 2 * PF_LUAJIT_ENTRIES + 8 + 4 * PF_LUAJIT_CALLS - 8,
	       "luajit");

/* Tells a GCproto from one that took its place: 16 bits. */
static inline uint64_t pf_luajit_cookie(const struct pf_luajit_proto *p)
{
	uint64_t h = p->chunkname ^ (uint64_t)p->firstline << 20 ^ (uint64_t)p->sizebc << 40 ^
		     p->numline ^ (uint64_t)p->sizept << 13;

	return (h * 0x9e3779b97f4a7c15ull) >> 48;
}

#ifdef PF_WALKER

/* pf_runtime_walk.own */
enum {
	PF_LUAJIT_L,	 /* whose frames; its next frame is r->at, the address of its base[0] */
	PF_LUAJIT_FRAME, /* its last C frame */
	PF_LUAJIT_PC, /* bytecode address behind the instruction that r->at executes; 0: not known */
	PF_LUAJIT_SHOWN, /* native address in the interpreter, to be shown first */
	PF_LUAJIT_STATE,
};
enum {
	PF_LUAJIT_NOTHING,  /* this C frame runs nothing (yet), or nothing more */
	PF_LUAJIT_RUNS,	    /* r->at is to be told */
	PF_LUAJIT_IN_TRACE, /* the same, and before it the trace */
	PF_LUAJIT_LOST,	    /* what it runs is not known */
};

/* In a C frame, from its rsp. */
#define PF_LUAJIT_CF_NRES 8
#define PF_LUAJIT_CF_L	  16
#define PF_LUAJIT_CF_PC	  24
#define PF_LUAJIT_CF_PREV 32

#define PF_LUAJIT_REG_RDX 1
#define PF_LUAJIT_REG_RBX 3
#define PF_LUAJIT_REG_R14 14

/* How far below its C frame a trace or the exit handler may stand: spill slots, all registers. */
#define PF_LUAJIT_BELOW_MAX 1536

/* lua_State, up to what is used. */
struct pf_luajit_state {
	uint64_t next;
	uint8_t marked, gct, ffid, status;
	uint32_t pad;
	uint64_t glref, gclist, base, top, maxstack, stack, openupval, env, cframe;
};

/* GCfunc's beginning. */
struct pf_luajit_func {
	uint64_t next;
	uint8_t marked, gct, ffid, nupvalues;
	uint32_t pad;
	uint64_t env, gclist, pc;
};

/* The four slots below base[0]. */
struct pf_luajit_slots {
	uint64_t continuation, pc, func, link;
};

static __always_inline bool pf_luajit_is_pointer(uint64_t v)
{
	return v >= PF_USER_PAGE && v < 1ull << 47 && !(v & 7);
}

/* Address of the function in a slot; 0: it holds none. */
static __always_inline uint64_t pf_luajit_func_of(uint64_t slot)
{
	return slot >> 47 == 0x1ffff - PF_LUAJIT_GCT_FUNC ? slot & ((1ull << 47) - 1) : 0;
}

static __always_inline bool pf_luajit_in_stack(const struct pf_luajit_state *l, uint64_t base)
{
	/* LJ_STACK_EXTRA slots lie behind maxstack; a C function may be called there, too. */
	return !(base & 7) && base > l->stack + 8 && base <= l->maxstack + 64 * 8;
}

/* l is the Lua thread whose next C frame lies at `at`. */
static __noinline bool pf_luajit_certain(struct pf_scratch *s, const struct pf_runtime_walk *r,
					 uint64_t at, struct pf_luajit_state *l)
{
	uint64_t state, next;

	if (!pf_word(s, at + PF_LUAJIT_CF_L, &state) || !pf_luajit_is_pointer(state) ||
	    !pf_read(l, sizeof(*l), state) || l->gct != PF_LUAJIT_GCT_THREAD)
		return false;
	next = l->cframe;
	if (state == r->own[PF_LUAJIT_L] &&
	    !pf_read(&next, 8, r->own[PF_LUAJIT_FRAME] + PF_LUAJIT_CF_PREV))
		return false;
	l->next = state; /* where it is, from here on */
	return (next & ~3ull) == at;
}

struct pf_luajit_scan {
	struct pf_scratch *s;
	const struct pf_runtime_walk *r;
	struct pf_luajit_state *l;
	uint64_t at;
	bool found;
};

static long pf_luajit_try(uint32_t i, struct pf_luajit_scan *c)
{
	(void)i;
	c->found = pf_luajit_certain(c->s, c->r, c->at, c->l);
	if (!c->found)
		c->at += 16;
	return c->found;
}

/* The C frame that lies somewhere above rsp, while a trace or the exit handler runs. */
static __noinline uint64_t pf_luajit_above(struct pf_scratch *s, const struct pf_runtime_walk *r,
					   struct pf_luajit_state *l)
{
	struct pf_luajit_scan c = {.s = s, .r = r, .l = l, .at = (s->walk.sp + 15) & ~15ull};

	bpf_loop(PF_LUAJIT_BELOW_MAX / 16, pf_luajit_try, &c, 0);
	return c.found ? c.at : 0;
}

/* Code that makes a C frame: saveregs, then up to where L->cframe is set and the call is set up. */
#define PF_LUAJIT_ENTRY_BYTES 112

/*
 * Whether ip is there, and how far above rsp the C frame will lie, modulo 2^64: saveregs is push rbp,
 * rbx, r15, r14 (r13, r12); sub rsp.
 */
static __always_inline bool pf_luajit_in_entry(const struct pf_luajit *d, uint64_t ip,
					       uint64_t *ret_above)
{
	uint32_t saved = d->frame_bytes - 48, pushed;
	uint64_t at = PF_LUAJIT_ENTRY_BYTES;

	for (int i = 0; i < PF_LUAJIT_ENTRIES; i++)
		if (ip - d->vm_start - d->entries[i] < at)
			at = ip - d->vm_start - d->entries[i];
	if (at == PF_LUAJIT_ENTRY_BYTES)
		return false;
	pushed = at < 3 ? 8 * at : 8 * (1 + at / 2);
	*ret_above = pushed > saved ? 0 : pushed + 8ull - d->frame_bytes;
	return true;
}

static __always_inline bool pf_luajit_in_vm(const struct pf_luajit *d, uint64_t pc)
{
	return pc - d->vm_start < d->vm_end - d->vm_start;
}

/* The C frame at hand of the interpreter's code; 0: none. */
static __always_inline uint64_t pf_luajit_vm_frame(struct pf_scratch *s, const struct pf_luajit *d,
						   const struct pf_runtime_walk *r,
						   struct pf_luajit_state *l)
{
	struct pf_walk *w = &s->walk;
	uint64_t pc = w->exact ? w->ip : w->ip - 1, top;

	if (pc - d->exit_start < d->exit_end - d->exit_start)
		return pf_luajit_above(s, r, l);
	if (pf_luajit_certain(s, r, w->sp, l))
		return w->sp;
	if (!w->exact)
		return 0;
	/* One of its subroutines, called by itself or by a trace. */
	if (pf_word(s, w->sp, &top) && pf_luajit_in_vm(d, top) &&
	    pf_luajit_certain(s, r, w->sp + 8, l))
		return w->sp + 8;
	/* On the way into a trace. */
	return pf_luajit_certain(s, r, w->sp + 16, l) ? w->sp + 16 : 0;
}

/* The same of a trace's code. A trace keeps r14, and runs on top of all other C frames of its thread. */
static __always_inline uint64_t pf_luajit_trace_frame(struct pf_scratch *s,
						      const struct pf_luajit *d,
						      const struct pf_runtime_walk *r,
						      struct pf_luajit_state *l)
{
	struct pf_walk *w = &s->walk;
	uint64_t g = w->regs[PF_LUAJIT_REG_R14] - d->dispatch, state, at;

	if (!w->exact)
		return pf_luajit_above(s, r, l);
	if (!pf_read(&state, 8, g + d->cur_l) || !pf_luajit_is_pointer(state) ||
	    !pf_read(l, sizeof(*l), state) || l->gct != PF_LUAJIT_GCT_THREAD || l->glref != g)
		return 0;
	l->next = state;
	at = l->cframe & ~3ull;
	return at - w->sp <= PF_LUAJIT_BELOW_MAX ? at : 0;
}

/* ---- which of its frames is the innermost ---- */

/* Whether the function below base is Lua's; its bytecode and how much there is. */
static __noinline bool pf_luajit_is_lua(uint64_t slot, struct pf_luajit_proto *ret,
					uint64_t *ret_bc)
{
	uint64_t at = pf_luajit_func_of(slot);
	struct pf_luajit_func f;

	*ret_bc = 0;
	if (!at || !pf_read(&f, sizeof(f), at) || f.gct != PF_LUAJIT_GCT_FUNC || f.ffid != 0)
		return false;
	*ret_bc = f.pc;
	return pf_read(ret, sizeof(*ret), f.pc - PF_LUAJIT_PROTO_BYTES) &&
	       ret->gct == PF_LUAJIT_GCT_PROTO;
}

/* base runs the instruction before pc. */
static __noinline bool pf_luajit_fits(const struct pf_luajit_state *l, uint64_t base, uint64_t pc)
{
	struct pf_luajit_proto p;
	uint64_t slot, bc;

	return pf_luajit_in_stack(l, base) && pf_read(&slot, 8, base - 16) &&
	       pf_luajit_is_lua(slot, &p, &bc) && !(pc & 3) && pc - bc - 4 < 4ull * p.sizebc;
}

/*
 * In the interpreter itself rdx is base and rbx the bytecode address, but around calls and returns
 * one of them is already, or still, the other function's.
 */
static __noinline bool pf_luajit_innermost(struct pf_scratch *s, struct pf_runtime_walk *r,
					   const struct pf_luajit_state *l)
{
	uint64_t base = s->walk.regs[PF_LUAJIT_REG_RDX], pc = s->walk.regs[PF_LUAJIT_REG_RBX];
	uint64_t slots[2] = {}; /* func, link */
	uint32_t instruction;

	r->at = base;
	r->own[PF_LUAJIT_PC] = pc;
	if (pf_luajit_fits(l, base, pc))
		return true;
	if (pf_luajit_in_stack(l, base)) {
		pf_read(slots, 16, base - 16);
		if (pf_luajit_func_of(slots[0]) && slots[1] == pc) {
			r->own[PF_LUAJIT_PC] = 0;
			return true;
		}
		/* A call whose frame is not made: it is the caller that runs. */
		if (pf_read(&instruction, 4, pc - 4)) {
			r->at = base - 16 - 8 * (instruction >> 8 & 0xff);
			if (pf_luajit_fits(l, r->at, pc))
				return true;
		}
	}
	r->at = l->base;
	return pf_luajit_fits(l, l->base, pc);
}

/* What is known of the call that returns to ip. */
static __always_inline uint32_t pf_luajit_call_flags(const struct pf_luajit *d, uint64_t ip)
{
	uint64_t offset = ip - d->vm_start;
	uint32_t at = 0;

	for (uint32_t step = PF_LUAJIT_CALLS / 2; step; step /= 2)
		if (d->calls[(at + step) % PF_LUAJIT_CALLS].offset <= offset)
			at += step;
	return d->calls[at % PF_LUAJIT_CALLS].offset == offset
		       ? d->calls[at % PF_LUAJIT_CALLS].flags
		       : 0;
}

/* C code was called from the interpreter. */
static __always_inline bool pf_luajit_called_c(struct pf_scratch *s, const struct pf_luajit *d,
					       struct pf_runtime_walk *r,
					       const struct pf_luajit_state *l, uint64_t at)
{
	uint32_t flags = pf_luajit_call_flags(d, s->walk.ip);
	bool again = l->next == r->own[PF_LUAJIT_L];

	r->own[PF_LUAJIT_PC] = 0;
	if (flags & PF_LUAJIT_PC_SAVED)
		pf_word(s, at + PF_LUAJIT_CF_PC, &r->own[PF_LUAJIT_PC]);
	if (again)
		return true;
	r->at = l->base;
	if (flags & PF_LUAJIT_BASE_IN_RBP) {
		r->at = s->walk.bp;
		return !s->walk.bp_lost && pf_luajit_in_stack(l, r->at);
	}
	return true;
}

/* Whether the C frame at `at` has frames at all: lj_vm_cpcall calls C first (lj_err.c, err_unwind). */
static __always_inline bool pf_luajit_has_frames(struct pf_scratch *s, uint64_t at, uint64_t base,
						 const struct pf_luajit_state *l)
{
	uint64_t both;
	int32_t nres;

	if (!pf_word(s, at + PF_LUAJIT_CF_NRES, &both))
		return true;
	nres = (int32_t)(uint32_t)both;
	return nres >= 0 || base - 8 >= l->stack + (uint32_t)-nres;
}

static __always_inline bool pf_luajit_in_exit(const struct pf_luajit *d, uint64_t pc)
{
	return pc - d->exit_start < d->exit_end - d->exit_start;
}

/* Where the program's frames of the C frame at `at` begin. */
static __noinline uint32_t pf_luajit_begin(struct pf_scratch *s, const struct pf_luajit *d,
					   struct pf_runtime_walk *r,
					   const struct pf_luajit_state *l, uint64_t at)
{
	struct pf_walk *w = &s->walk;
	uint64_t above, trace_base = 0;

	if (!w->exact && r->own[PF_LUAJIT_SHOWN])
		return pf_luajit_called_c(s, d, r, l, at) ? PF_LUAJIT_RUNS : PF_LUAJIT_LOST;
	if (r->own[PF_LUAJIT_SHOWN] && !pf_luajit_in_exit(d, w->ip)) {
		if (pf_luajit_innermost(s, r, l))
			return PF_LUAJIT_RUNS;
		r->at = l->base;
		return pf_luajit_in_entry(d, w->ip, &above) ? PF_LUAJIT_NOTHING : PF_LUAJIT_LOST;
	}
	pf_read(&trace_base, 8, l->glref + d->jit_base);
	r->at = trace_base ? trace_base : l->base;
	r->own[PF_LUAJIT_PC] = 0;
	if (!pf_luajit_in_stack(l, r->at))
		return PF_LUAJIT_LOST;
	return r->own[PF_LUAJIT_SHOWN] ? PF_LUAJIT_RUNS : PF_LUAJIT_IN_TRACE;
}

/* Finds the C frame at hand and what it runs; 0: not known. *ret_made: whether it has rbp already. */
static __noinline uint64_t pf_luajit_c_frame(struct pf_scratch *s, const struct pf_luajit *d,
					     struct pf_runtime_walk *r)
{
	uint64_t before = r->own[PF_LUAJIT_L], shown = r->own[PF_LUAJIT_SHOWN], at, above;
	bool lost = r->own[PF_LUAJIT_STATE] == PF_LUAJIT_LOST;
	struct pf_walk *w = &s->walk;
	struct pf_luajit_state l = {};
	uint32_t state;

	r->own[PF_LUAJIT_STATE] = PF_LUAJIT_LOST;
	at = shown ? pf_luajit_vm_frame(s, d, r, &l) : pf_luajit_trace_frame(s, d, r, &l);
	if (at) {
		state = pf_luajit_begin(s, d, r, &l, at);
		if (state == PF_LUAJIT_RUNS && !pf_luajit_has_frames(s, at, r->at, &l))
			state = PF_LUAJIT_NOTHING;
		r->own[PF_LUAJIT_L] = l.next;
		r->own[PF_LUAJIT_FRAME] = at;
		/* A thread's outer frames are found from its inner ones. */
		r->own[PF_LUAJIT_STATE] = lost && before == l.next ? PF_LUAJIT_LOST : state;
		return at;
	}
	if (shown && w->exact && pf_luajit_in_entry(d, w->ip, &above)) {
		r->own[PF_LUAJIT_STATE] = PF_LUAJIT_NOTHING;
		return w->sp + above;
	}
	return shown && !w->exact ? w->sp : 0; /* its .eh_frame says the same */
}

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
	/* rbp is not saved yet where the C frame is just being made. */
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

/* bytecode address -> index of the instruction before it */
static __always_inline uint64_t pf_luajit_index(const struct pf_luajit_proto *p, uint64_t bc,
						uint64_t pc)
{
	uint64_t index = (pc - bc) / 4 - 1;

	return pc > bc && !(pc & 3) && index < p->sizebc ? index : PF_LUAJIT_NO_PC;
}

static __always_inline int pf_luajit_push(struct pf_scratch *s, uint32_t type,
					  const struct pf_luajit_proto *p, uint64_t bc, uint64_t b)
{
	uint64_t a = (bc - PF_LUAJIT_PROTO_BYTES) | pf_luajit_cookie(p) << 48;

	return pf_push_runtime(s, PF_RUNTIME_LUAJIT, type, a, b);
}

/* GCtrace (lj_jit.h), from startpt on. */
struct pf_luajit_trace {
	uint64_t start_proto, start_pc;
	uint32_t start_instruction, code_bytes;
	uint64_t code;
	uint32_t loop;
	uint16_t n_children, sp_adjust, number;
	uint16_t pad[3];
};
#define PF_LUAJIT_TRACE_START 64

/* The trace that runs, as a frame of its own; its start is where its function stands, as far as is known. */
static __noinline int pf_luajit_trace(struct pf_scratch *s, const struct pf_luajit *d,
				      struct pf_runtime_walk *r)
{
	struct pf_luajit_trace t;
	struct pf_luajit_proto p;
	uint64_t g, traces, at, bc;
	int32_t number;

	r->own[PF_LUAJIT_STATE] = PF_LUAJIT_RUNS;
	if (!d->traces || !pf_read(&g, 8, r->own[PF_LUAJIT_L] + 16) ||
	    !pf_read(&number, 4, g + d->vmstate) || number <= 0 ||
	    !pf_read(&traces, 8, g + d->traces) || !pf_read(&at, 8, traces + 8ull * number) ||
	    !pf_read(&t, sizeof(t), at + PF_LUAJIT_TRACE_START) || t.number != number)
		return 0;
	bc = t.start_proto + PF_LUAJIT_PROTO_BYTES;
	if (!pf_read(&p, sizeof(p), t.start_proto) || p.gct != PF_LUAJIT_GCT_PROTO)
		return 0;
	/* It starts at this instruction, not behind it. */
	r->own[PF_LUAJIT_PC] = t.start_pc + 4;
	pf_luajit_push(s, PF_LUAJIT_TRACE, &p, bc, pf_luajit_index(&p, bc, t.start_pc + 4));
	return 0;
}

enum {
	PF_LUAJIT_LINK_LUA,
	PF_LUAJIT_LINK_C,
	PF_LUAJIT_LINK_CONT, /* with PF_LUAJIT_LINK_P: pcall */
	PF_LUAJIT_LINK_VARG,
	PF_LUAJIT_LINK_P,
};
#define PF_LUAJIT_CONT_CALLBACK 1 /* LJ_CONT_FFI_CALLBACK: C called it */

/* From r->at to the frame before. 1: that is another C frame's. *ret_flags: of r->at's. */
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

static __noinline int pf_luajit_next(struct pf_scratch *s, struct pf_runtime_walk *r)
{
	uint64_t at = r->at, pc = r->own[PF_LUAJIT_PC], bc, flags;
	struct pf_luajit_slots f;
	struct pf_luajit_proto p;
	int over;

	if (!pf_read(&f, sizeof(f), at - sizeof(f)))
		return pf_luajit_lost(s, r, PF_TROUBLE_READ, at - sizeof(f));
	if (f.func >> 47 == 0x1ffff - PF_LUAJIT_GCT_THREAD) { /* the bottom of its stack */
		r->own[PF_LUAJIT_STATE] = PF_LUAJIT_NOTHING;
		return 1;
	}
	if (!pf_luajit_func_of(f.func))
		return pf_luajit_lost(s, r, PF_TROUBLE_DAMAGED, at);
	over = pf_luajit_back(r, &f, &flags);
	if (over < 0)
		return pf_luajit_lost(s, r, PF_TROUBLE_DAMAGED, at);
	/* The frame that holds varargs is followed by the same function's own. */
	if ((f.link & 7) == PF_LUAJIT_LINK_VARG) {
		r->own[PF_LUAJIT_PC] = pc;
		return 0;
	}
	if (pf_luajit_is_lua(f.func, &p, &bc))
		pf_luajit_push(s, PF_LUAJIT_FUNCTION, &p, bc, pf_luajit_index(&p, bc, pc) | flags);
	if (over)
		r->own[PF_LUAJIT_STATE] = PF_LUAJIT_NOTHING;
	return over;
}

static __always_inline int pf_luajit_frame(struct pf_scratch *s, const struct pf_luajit *d,
					   struct pf_runtime_walk *r)
{
	uint64_t shown = r->own[PF_LUAJIT_SHOWN];

	if (s->walk.first && shown) {
		pf_push(s, PF_FRAME_NATIVE, shown);
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
