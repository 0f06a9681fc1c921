/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * luajit_state: finds the C frame in which LuaJIT's code runs, and the program's function in it.
 * Only luajit.h includes it.
 */
#pragma once

/* Indexes of pf_runtime_walk.own. */
enum {
	/* the Lua thread; r->at: the next frame to show, the address of its base[0] */
	PF_LUAJIT_L,
	PF_LUAJIT_FRAME, /* the C frame of L that the walk met last */
	/* bytecode address behind the instruction that r->at executes; 0: not known */
	PF_LUAJIT_PC,
	PF_LUAJIT_SHOWN, /* native address in the interpreter, to be shown first */
	PF_LUAJIT_STATE,
	PF_LUAJIT_TRIES, /* at how many addresses pf_luajit_above() has looked */
};
enum {
	PF_LUAJIT_NOTHING,  /* this C frame runs no function yet, or none any more */
	PF_LUAJIT_RUNS,	    /* r->at is the next frame to show */
	PF_LUAJIT_IN_TRACE, /* as PF_LUAJIT_RUNS, but the trace is shown before the frame */
	PF_LUAJIT_LOST,	    /* the function that the C frame runs is not known */
};

/* Offsets in a C frame, from its rsp. */
#define PF_LUAJIT_CF_NRES 8
#define PF_LUAJIT_CF_L	  16
#define PF_LUAJIT_CF_PC	  24
#define PF_LUAJIT_CF_PREV 32

#define PF_LUAJIT_REG_RDX 1
#define PF_LUAJIT_REG_RBX 3
#define PF_LUAJIT_REG_R14 14

/*
 * How many bytes below the C frame rsp may be in a trace or in the exit handler: spill slots, all
 * registers.
 */
#define PF_LUAJIT_BELOW_MAX 1536 /* bytes between rsp and the C frame */
/*
 * Limit of PF_LUAJIT_TRIES. Else a hostile stack could make the walk find each frame only at the
 * last address.
 */
#define PF_LUAJIT_TRIES_MAX 512 /* addresses that one walk tries */

/* lua_State, up to the last member used. */
struct pf_luajit_state {
	uint64_t next;
	uint8_t marked, gct, ffid, status;
	uint32_t pad;
	uint64_t glref, gclist, base, top, maxstack, stack, openupval, env, cframe;
};

/* The beginning of a GCfunc. */
struct pf_luajit_func {
	uint64_t next;
	uint8_t marked, gct, ffid, nupvalues;
	uint32_t pad;
	uint64_t env, gclist, pc;
};

/* Type of a link, in its low bits. */
enum {
	PF_LUAJIT_LINK_LUA,
	PF_LUAJIT_LINK_C,
	PF_LUAJIT_LINK_CONT, /* with PF_LUAJIT_LINK_P: pcall */
	PF_LUAJIT_LINK_VARG,
	PF_LUAJIT_LINK_P,
};

/* The four slots below base[0]. */
struct pf_luajit_slots {
	uint64_t continuation, pc, func, link;
};

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

/*
 * For each kind of structure, the one that was read last. They are in s->piece, because the BPF
 * stack is too small.
 */
struct pf_luajit_read {
	struct pf_luajit_state state;
	struct pf_luajit_proto proto;
	struct pf_luajit_func func;
	struct pf_luajit_slots slots;
	struct pf_luajit_trace trace;
};
_Static_assert(sizeof(struct pf_luajit_read) <= PF_PIECE_BYTES, "luajit");

static __always_inline struct pf_luajit_read *pf_luajit_read(struct pf_scratch *s)
{
	return (struct pf_luajit_read *)s->piece;
}

static __always_inline bool pf_luajit_is_pointer(uint64_t v)
{
	return v >= PF_USER_PAGE && v < 1ull << 47 && !(v & 7);
}

/* Returns the address of the function in a slot; 0: the slot has none. */
static __always_inline uint64_t pf_luajit_func_of(uint64_t slot)
{
	return slot >> 47 == 0x1ffff - PF_LUAJIT_GCT_FUNC ? slot & ((1ull << 47) - 1) : 0;
}

static __always_inline bool pf_luajit_in_stack(const struct pf_luajit_state *l, uint64_t base)
{
	/* LJ_STACK_EXTRA slots follow maxstack. The frame of a C function may be in these, too. */
	return !(base & 7) && base > l->stack + 8 && base <= l->maxstack + 64 * 8;
}

/*
 * Whether a C frame is at `at`. A C frame names its Lua thread. The next C frame of that thread
 * must be at `at`, too. *l: that thread.
 */
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
	l->next = state; /* from here on l->next is the address of the lua_State */
	return (next & ~3ull) == at;
}

/*
 * The arguments of pf_luajit_try(). A try changes only `found`. Since Linux 7.2, the verifier knows
 * ranges that wrap around (kernel/bpf/cnum.c). If an address in here grew with each try, each try
 * would be a new state, which that verifier would check by itself.
 */
struct pf_luajit_scan {
	struct pf_scratch *s;
	const struct pf_runtime_walk *r;
	struct pf_luajit_state *l;
	uint64_t from, found; /* found 0: not found yet */
};

static long pf_luajit_try(uint32_t i, struct pf_luajit_scan *c)
{
	uint64_t at = c->from + 16ull * i;

	if (!pf_luajit_certain(c->s, c->r, at, c->l))
		return 0;
	c->found = at;
	return 1;
}

/*
 * Searches upwards from rsp for the C frame: while a trace or the exit handler runs, it is
 * somewhere above.
 */
static __noinline uint64_t pf_luajit_above(struct pf_scratch *s, struct pf_runtime_walk *r,
					   struct pf_luajit_state *l)
{
	struct pf_luajit_scan c = {.s = s, .r = r, .l = l, .from = (s->walk.sp + 15) & ~15ull};
	long tries;

	if (r->own[PF_LUAJIT_TRIES] >= PF_LUAJIT_TRIES_MAX)
		return 0;
	tries = bpf_loop(PF_LUAJIT_BELOW_MAX / 16, pf_luajit_try, &c, 0);
	r->own[PF_LUAJIT_TRIES] += (uint64_t)tries;
	return c.found;
}

/*
 * Whether ip is in code that makes a C frame (saveregs): push rbp, rbx, r15, r14 (r13, r12); sub
 * rsp. *ret_above: the distance from rsp to the C frame, modulo 2^64.
 */
static __always_inline bool pf_luajit_in_entry(const struct pf_luajit *d, uint64_t ip,
					       uint64_t *ret_above)
{
	uint32_t saved = d->frame_bytes - 48, pushed;

	for (int i = 0; i < PF_LUAJIT_ENTRIES; i++) {
		uint64_t at = ip - d->vm_start - d->entries[i].start;

		if (at >= d->entries[i].bytes)
			continue;
		pushed = at < 3 ? 8 * at : 8 * (1 + at / 2);
		*ret_above = pushed > saved ? 0 : pushed + 8ull - d->frame_bytes;
		return true;
	}
	return false;
}

/*
 * Whether ip is in code that removes a C frame: add rsp; pop (r12, r13,) r14, r15, rbx, rbp; ret.
 */
static __always_inline bool pf_luajit_in_leave(const struct pf_luajit *d, uint64_t ip,
					       uint64_t *ret_above)
{
	uint32_t long_pops = d->frame_bytes / 8 - 8, popped;

	for (int i = 0; i < PF_LUAJIT_LEAVES; i++) {
		uint64_t at = ip - d->vm_start - d->leaves[i];

		if (at > 6u + 2 * long_pops)
			continue;
		at -= 4;
		popped = at <= 2 * long_pops ? at / 2 : at - long_pops;
		*ret_above = at >> 63 ? 0 : -(40 + 8ull * popped);
		return true;
	}
	return false;
}

static __always_inline bool pf_luajit_in_quiet(const struct pf_luajit *d, uint64_t ip)
{
	for (int i = 0; i < PF_LUAJIT_QUIETS; i++)
		if (ip - d->vm_start - d->quiets[i].start < d->quiets[i].bytes)
			return true;
	return false;
}

static __always_inline bool pf_luajit_in_exit(const struct pf_luajit *d, uint64_t pc)
{
	return pc - d->exit_start < d->exit_end - d->exit_start;
}

static __always_inline bool pf_luajit_in_vm(const struct pf_luajit *d, uint64_t pc)
{
	return pc - d->vm_start < d->vm_end - d->vm_start;
}

/*
 * Finds the C frame of a trace. The trace keeps r14, and its C frame is the newest of its thread.
 */
static __noinline uint64_t pf_luajit_trace_frame(struct pf_scratch *s, const struct pf_luajit *d,
						 struct pf_luajit_state *l)
{
	struct pf_walk *w = &s->walk;
	uint64_t g = w->regs[PF_LUAJIT_REG_R14] - d->dispatch, state, base, at;

	if (!d->jit_base || !pf_read(&base, 8, g + d->jit_base) || !base ||
	    !pf_read(&state, 8, g + d->cur_l) || !pf_luajit_is_pointer(state) ||
	    !pf_read(l, sizeof(*l), state) || l->gct != PF_LUAJIT_GCT_THREAD || l->glref != g)
		return 0;
	l->next = state;
	at = l->cframe & ~3ull;
	return at - w->sp <= PF_LUAJIT_BELOW_MAX ? at : 0;
}

/* Finds the current C frame of the interpreter's code; 0: none. */
static __always_inline uint64_t pf_luajit_vm_frame(struct pf_scratch *s, const struct pf_luajit *d,
						   struct pf_runtime_walk *r,
						   struct pf_luajit_state *l)
{
	struct pf_walk *w = &s->walk;
	uint64_t top;

	if (pf_luajit_in_exit(d, w->exact ? w->ip : w->ip - 1))
		return pf_luajit_above(s, r, l);
	if (pf_luajit_certain(s, r, w->sp, l))
		return w->sp;
	if (!w->exact || !pf_word(s, w->sp, &top))
		return 0;
	/*
	 * ip is in a subroutine of the interpreter, which the interpreter or a trace has called, or
	 * in code that enters a trace. So rsp is below the C frame.
	 */
	if (pf_luajit_in_vm(d, top))
		return pf_luajit_certain(s, r, w->sp + 8, l) ? w->sp + 8 : 0;
	if (pf_luajit_certain(s, r, w->sp + 16, l))
		return w->sp + 16;
	return pf_luajit_trace_frame(s, d, l);
}

/* ---- which frame of the Lua thread is the innermost ---- */

enum pf_luajit_what { PF_LUAJIT_NO_FUNC, PF_LUAJIT_C_FUNC, PF_LUAJIT_LUA_FUNC };

/* Reads the function in a slot. func.pc: its bytecode; a C function has a stub there. */
PF_ONCE uint32_t pf_luajit_func_in(struct pf_scratch *s, uint64_t slot)
{
	uint64_t at = pf_luajit_func_of(slot);
	struct pf_luajit_proto *p;
	struct pf_luajit_func *f;

	if (!s || !at)
		return PF_LUAJIT_NO_FUNC;
	p = &pf_luajit_read(s)->proto;
	f = &pf_luajit_read(s)->func;
	if (!pf_read(f, sizeof(*f), at) || f->gct != PF_LUAJIT_GCT_FUNC)
		return PF_LUAJIT_NO_FUNC;
	if (f->ffid != 0)
		return PF_LUAJIT_C_FUNC;
	return pf_read(p, sizeof(*p), f->pc - PF_LUAJIT_PROTO_BYTES) &&
			       p->gct == PF_LUAJIT_GCT_PROTO
		       ? PF_LUAJIT_LUA_FUNC
		       : PF_LUAJIT_NO_FUNC;
}

/*
 * Whether the frame at base may run the instruction before pc. pc may also be at the function's
 * first instruction; then that one is current.
 */
PF_ONCE bool pf_luajit_fits(struct pf_scratch *s, uint64_t base, uint64_t pc)
{
	struct pf_luajit_read *k;
	uint64_t slots[2]; /* function, link */

	if (!s)
		return false;
	k = pf_luajit_read(s);
	if (!pf_luajit_in_stack(&k->state, base) || !pf_read(slots, 16, base - 16))
		return false;
	switch (pf_luajit_func_in(s, slots[0])) {
	case PF_LUAJIT_LUA_FUNC:
		return !(pc & 3) && pc - k->func.pc <= 4ull * k->proto.sizebc;
	case PF_LUAJIT_C_FUNC:
		return pc == slots[1] || pc - k->func.pc <= 4;
	}
	return false;
}

/*
 * Finds the frame before base, to which a link leads; 0: there is none. *ret_pc: the address behind
 * the instruction that it runs.
 */
static __noinline uint64_t pf_luajit_before(struct pf_scratch *s, uint64_t base, uint64_t link,
					    uint64_t *ret_pc)
{
	const struct pf_luajit_state *l = &pf_luajit_read(s)->state;
	uint32_t instruction = 0;

	*ret_pc = link;
	if (!(link & 3)) {
		if (!pf_read(&instruction, 4, link - 4))
			return 0;
		base -= 16 + 8 * (instruction >> 8 & 0xff);
		return pf_luajit_fits(s, base, link) ? base : 0;
	}
	if ((link & 7) == PF_LUAJIT_LINK_CONT && !pf_read(ret_pc, 8, base - 24))
		return 0;
	if (link > l->maxstack - l->stack || !pf_luajit_in_stack(l, base - (link & ~7ull)))
		return 0;
	return base - (link & ~7ull);
}

/* Whether base is that of a frame: its slots have a function and a link to another frame. */
static __always_inline bool pf_luajit_linked(struct pf_scratch *s, uint64_t base)
{
	uint64_t slots[2], pc; /* [0]: the frame's function, [1]: its link */

	return pf_luajit_in_stack(&pf_luajit_read(s)->state, base) &&
	       pf_read(slots, 16, base - 16) && pf_luajit_func_of(slots[0]) &&
	       pf_luajit_before(s, base, slots[1], &pc);
}

/*
 * Finds the innermost frame of the Lua program while the interpreter itself runs. Then rdx is base
 * and rbx is the bytecode address. But shortly before or after a call or return, one of them is the
 * caller's and the other the callee's. After a call of C code, rdx may be anything.
 */
static __noinline bool pf_luajit_innermost(struct pf_scratch *s, struct pf_runtime_walk *r,
					   uint64_t at)
{
	const struct pf_luajit_state *l = &pf_luajit_read(s)->state;
	uint64_t base = s->walk.regs[PF_LUAJIT_REG_RDX], pc = s->walk.regs[PF_LUAJIT_REG_RBX];
	bool linked = pf_luajit_linked(s, base);

	r->at = base;
	r->own[PF_LUAJIT_PC] = pc;
	if (linked && pf_luajit_fits(s, base, pc))
		return true;
	/* The frame of a call is not complete yet, or a return has removed the frame. */
	if (!linked && pf_luajit_in_stack(l, base)) {
		r->at = pf_luajit_before(s, base, pc, &r->own[PF_LUAJIT_PC]);
		if (r->at && pf_luajit_fits(s, r->at, r->own[PF_LUAJIT_PC]))
			return true;
		r->own[PF_LUAJIT_PC] = pc;
	}
	r->at = s->walk.regs[PF_REG_RBP];
	if (pf_luajit_fits(s, r->at, pc))
		return true;
	r->at = l->base;
	if (pf_luajit_fits(s, r->at, pc))
		return true;
	/* The interpreter is about to call a metamethod. */
	if (pf_word(s, at + PF_LUAJIT_CF_PC, &r->own[PF_LUAJIT_PC]) &&
	    pf_luajit_fits(s, r->at, r->own[PF_LUAJIT_PC]))
		return true;
	/* A function was just called, or is about to return. */
	r->at = base;
	r->own[PF_LUAJIT_PC] = 0;
	return linked;
}

/* Returns PF_LUAJIT_BASE_IN_RBP and PF_LUAJIT_PC_SAVED of the call that returns to ip. */
static __always_inline uint32_t pf_luajit_call_flags(const struct pf_luajit *d, uint64_t ip)
{
	uint64_t offset = ip - d->vm_start;
	uint64_t at = 0, next;

	for (uint32_t step = PF_LUAJIT_CALLS / 2; step; step /= 2) {
		next = at + step;
		PF_BARRIER(next);
		at += step & pf_mask_le(d->calls[next % PF_LUAJIT_CALLS].offset, offset);
	}
	PF_BARRIER(at);
	return d->calls[at % PF_LUAJIT_CALLS].offset == offset
		       ? d->calls[at % PF_LUAJIT_CALLS].flags
		       : 0;
}

/* Sets r->at to the frame that runs while C code is called by the interpreter. False: not known. */
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

/*
 * Whether the C frame at `at` runs frames of the Lua program. One that lj_vm_cpcall made runs C
 * code first (lj_err.c, err_unwind).
 */
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

/* Finds the first frame of the Lua program that the C frame at `at` runs. */
static __always_inline uint32_t pf_luajit_begin(struct pf_scratch *s, const struct pf_luajit *d,
						struct pf_runtime_walk *r,
						const struct pf_luajit_state *l, uint64_t at)
{
	uint64_t above, trace_base = 0, shown = r->own[PF_LUAJIT_SHOWN];
	struct pf_walk *w = &s->walk;

	if (!w->exact && shown)
		return pf_luajit_called_c(s, d, r, l, at) ? PF_LUAJIT_RUNS : PF_LUAJIT_LOST;
	r->at = l->base;
	r->own[PF_LUAJIT_PC] = 0;
	if (shown && pf_luajit_in_quiet(d, w->ip))
		return PF_LUAJIT_NOTHING;
	if (d->jit_base)
		pf_read(&trace_base, 8, l->glref + d->jit_base);
	if (trace_base || pf_luajit_in_exit(d, w->ip)) {
		if (trace_base)
			r->at = trace_base;
		if (!pf_luajit_in_stack(l, r->at))
			return PF_LUAJIT_LOST;
		return trace_base ? PF_LUAJIT_IN_TRACE : PF_LUAJIT_RUNS;
	}
	if (!shown)
		return PF_LUAJIT_LOST;
	if (pf_luajit_innermost(s, r, at))
		return PF_LUAJIT_RUNS;
	r->at = l->base;
	return pf_luajit_in_entry(d, w->ip, &above) ? PF_LUAJIT_NOTHING : PF_LUAJIT_LOST;
}

/* Finds the current C frame and the function in it; 0: not known. */
static __noinline uint64_t pf_luajit_c_frame(struct pf_scratch *s, const struct pf_luajit *d,
					     struct pf_runtime_walk *r)
{
	uint64_t before = r->own[PF_LUAJIT_L], shown = r->own[PF_LUAJIT_SHOWN], at, above = 0;
	bool lost = r->own[PF_LUAJIT_STATE] == PF_LUAJIT_LOST;
	struct pf_walk *w = &s->walk;
	struct pf_luajit_state *l = &pf_luajit_read(s)->state;
	uint32_t state;

	*l = (struct pf_luajit_state){};
	r->own[PF_LUAJIT_STATE] = PF_LUAJIT_LOST;
	if (shown)
		at = pf_luajit_vm_frame(s, d, r, l);
	else
		at = w->exact ? pf_luajit_trace_frame(s, d, l) : pf_luajit_above(s, r, l);
	if (at) {
		state = pf_luajit_begin(s, d, r, l, at);
		if (state == PF_LUAJIT_RUNS && !pf_luajit_has_frames(s, at, r->at, l))
			state = PF_LUAJIT_NOTHING;
		r->own[PF_LUAJIT_L] = l->next;
		r->own[PF_LUAJIT_FRAME] = at;
		/*
		 * The outer frames of a thread are found from its inner ones, so they are lost with
		 * these.
		 */
		r->own[PF_LUAJIT_STATE] = lost && before == l->next ? PF_LUAJIT_LOST : state;
		return at;
	}
	if (!shown)
		return 0;
	if (pf_luajit_in_entry(d, w->ip, &above) || pf_luajit_in_quiet(d, w->ip) ||
	    (w->exact && pf_luajit_in_leave(d, w->ip, &above))) {
		r->own[PF_LUAJIT_STATE] = PF_LUAJIT_NOTHING;
		return w->sp + (w->exact ? above : 0);
	}
	return pf_luajit_in_exit(d, w->ip) ? 0 : w->sp; /* LuaJIT's .eh_frame has the same rule */
}
