/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lua: PUC Lua's part of the walk. A lua_State has a list of calls (struct CallInfo, lstate.h).
 * Each native frame of luaV_execute, a "loop", runs a part of that list: from the innermost call
 * that no inner loop runs, to the call for which this loop was entered. The caller of the loop
 * keeps the lua_State on its stack: docs/lua.md.
 */
#pragma once

#include "unwind_tables.h"

/* Where the caller of a loop keeps the lua_State until the loop returns to `address`. */
struct pf_lua_site {
	uint64_t address;
	/* where the lua_State is: an offset from rsp, or from rbp, after the return */
	int32_t offset;
	uint8_t by_rbp;
	/* 1: the first loop of its lua_State, which runs all the rest of the list */
	uint8_t outermost;
	uint8_t pad[2];
};
#define PF_LUA_SITES 16

/* What agent/node/runtime/lua/lua.c gives the kernel about a process. */
struct pf_lua {
	uint64_t start;	     /* address of luaV_execute */
	uint64_t settled;    /* from this address on, the first call of a loop is marked as entry */
	uint32_t frame;	     /* bytes of the complete stack frame of luaV_execute */
	uint32_t opcode_5_1; /* for Lua 5.1, the number of OP_CALL; else 0 */
	struct pf_lua_site sites[PF_LUA_SITES];
	/* offsets in lua_State and CallInfo */
	uint16_t l_ci, ci_func, ci_previous, ci_savedpc, ci_status;
	/*
	 * Bits of CallInfo.callstatus. If (status & lua_mask) == lua_is, the call is of a Lua
	 * function. If (status & entry_mask) == entry_is, a loop was entered for the call.
	 * own_mask, caller_mask: the bits of the call itself and of its caller that become part of
	 * a frame's words.
	 */
	uint16_t lua_mask, lua_is, entry_mask, entry_is, own_mask, caller_mask;
	/*
	 * offsets: closure_proto is in LClosure. The others are in Proto: the code, and the members
	 * of which the cookie is made (sizecode to lastlinedefined).
	 */
	uint16_t closure_proto, proto_code, proto_sizes, proto_line;
	uint16_t pad;
};

/*
 * The words of a frame. a: the Proto, with its cookie in bits 48 to 63. b: index of the
 * instruction, and:
 */
#define PF_LUA_PC(b)	     ((uint32_t)(b)&0xffffff)
#define PF_LUA_STATUS(b)     ((uint16_t)((b) >> 24)) /* callstatus & own_mask of this call */
#define PF_LUA_CALLER(b)     ((uint16_t)((b) >> 40)) /* callstatus & caller_mask of its caller */
#define PF_LUA_CALLER_IS_LUA (1ull << 56)
#define PF_LUA_NO_PC	     0xffffff
/* What stands for callstatus in Lua 5.1, which has none. */
#define PF_LUA_5_1_LUA	1
#define PF_LUA_5_1_TAIL 2

/* If the cookie of a Proto is unchanged, the memory still has the same function. */
static inline uint16_t pf_lua_cookie(uint64_t code, uint32_t sizecode, uint32_t line, uint32_t last)
{
	uint64_t x = (code >> 4) + sizecode * 0x9e3779b1ull + line * 0x85ebca6bull +
		     last * 0xc2b2ae35ull;

	return x ^ x >> 16 ^ x >> 32;
}

#ifdef PF_WALKER
#define PF_LUA_THREAD 8 /* LUA_TTHREAD in lua.h of all versions */

/*
 * One call of a list. In struct pf_runtime_walk, `at` is its CallInfo and own[] has the other
 * members.
 */
struct pf_lua_call {
	uint64_t ci;	/* 0: the list has ended */
	uint64_t proto; /* 0: a C function */
	uint64_t savedpc, previous, status;
};
#define PF_LUA_OWN_STATE  0 /* address of the lua_State */
#define PF_LUA_OWN_PROTO  1
#define PF_LUA_OWN_PC	  2
#define PF_LUA_OWN_BEFORE 3 /* the CallInfo of the caller */
#define PF_LUA_OWN_FLAGS  4 /* status, and: */
#define PF_LUA_OUTERMOST  (1ull << 32)
#define PF_LUA_ONE	  (1ull << 33) /* the loop has just begun, so it has one call */
#define PF_LUA_DONE	  (1ull << 34) /* all calls of this loop were shown */
#define PF_LUA_INNER	  (1ull << 35) /* a Lua function of an inner call was shown */
#define PF_LUA_STATUSES	  0xffffull
#define PF_LUA_OWN_LEFT	  5 /* {lua_State, CallInfo}, twice: where the walk left earlier lists */

static __always_inline int pf_lua_unwind(struct pf_scratch *s, const struct pf_lua *d,
					 struct pf_runtime_walk *r)
{
	(void)d;
	(void)r;
	return pf_end(&s->walk, PF_END_NO_TABLE);
}

/*
 * Reads a structure, up to the bytes before `end`, into s->piece: one read, because a read costs
 * more than all else here. The functions below return a word, or half a word, at an offset in it.
 */
#define PF_LUA_READ 128
static __always_inline bool pf_lua_piece(struct pf_scratch *s, uint32_t end, uint64_t address)
{
	return end <= PF_LUA_READ && pf_read(s->piece, end, address);
}

static __always_inline uint64_t pf_lua_word(const struct pf_scratch *s, uint32_t offset)
{
	return s->piece[offset / 8 % (PF_LUA_READ / 8)];
}

static __always_inline uint32_t pf_lua_half(const struct pf_scratch *s, uint32_t offset)
{
	return pf_lua_word(s, offset) >> offset % 8 * 8;
}

static __always_inline uint32_t pf_lua_end(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* Returns the Proto of the closure in the slot at func; 0: there is no closure. */
static __always_inline uint64_t pf_lua_proto(struct pf_scratch *s, const struct pf_lua *d,
					     uint64_t func, uint8_t *ret_is_c)
{
	uint64_t closure, proto;

	if (!pf_read(&closure, 8, func) || !pf_lua_piece(s, d->closure_proto + 8, closure))
		return 0;
	proto = pf_lua_word(s, d->closure_proto);
	*ret_is_c = pf_lua_half(s, 10);					      /* isC: 5.1 */
	return (uint8_t)pf_lua_half(s, 8) == 6 && !(proto >> 47) ? proto : 0; /* LUA_TFUNCTION */
}

/*
 * Reads a call of Lua 5.1, where the CallInfos are an array. The pc of the innermost call is in the
 * lua_State.
 */
static __always_inline bool pf_lua_read_5_1(struct pf_scratch *s, struct pf_lua_call *c,
					    const struct pf_lua *d, uint64_t l, bool top)
{
	struct {
		uint64_t base, func, top, savedpc;
		int32_t results, tailcalls;
	} ci;
	uint64_t base_ci;
	uint8_t is_c = 1;

	if (!pf_read(&base_ci, 8, l + 80) || !pf_read(&ci, sizeof(ci), c->ci))
		return false;
	if (c->ci <= base_ci) {
		c->ci = 0;
		return true;
	}
	c->previous = c->ci - sizeof(ci);
	c->proto = pf_lua_proto(s, d, ci.func, &is_c);
	if (is_c)
		c->proto = 0;
	c->status = (is_c ? 0 : PF_LUA_5_1_LUA) | (ci.tailcalls ? PF_LUA_5_1_TAIL : 0);
	c->savedpc = ci.savedpc;
	return !top || pf_read(&c->savedpc, 8, l + 48);
}

static __always_inline bool pf_lua_read_list(struct pf_scratch *s, struct pf_lua_call *c,
					     const struct pf_lua *d)
{
	uint32_t end = pf_lua_end(d->ci_savedpc + 8, d->ci_status + 2);
	uint8_t is_c;

	if (!pf_lua_piece(s, end, c->ci))
		return false;
	c->previous = s->piece[2];
	if (!c->previous) { /* base_ci, the outermost one, has no previous one */
		c->ci = 0;
		return true;
	}
	c->status = (uint16_t)pf_lua_half(s, d->ci_status);
	if ((c->status & d->lua_mask) != d->lua_is)
		return true;
	c->savedpc = pf_lua_word(s, d->ci_savedpc);
	c->proto = pf_lua_proto(s, d, s->piece[0], &is_c);
	return true;
}

/* Reads call c->ci: fills the other members of c. */
static __noinline bool pf_lua_read(struct pf_scratch *s, struct pf_lua_call *c,
				   const struct pf_lua *d, uint64_t l, bool top)
{
	c->proto = c->savedpc = c->previous = c->status = 0;
	if (d->opcode_5_1)
		return pf_lua_read_5_1(s, c, d, l, top);
	return pf_lua_read_list(s, c, d);
}

static __always_inline bool pf_lua_is_lua(const struct pf_lua *d, const struct pf_lua_call *c)
{
	return c->ci && (c->status & d->lua_mask) == d->lua_is;
}

/*
 * Whether a loop was entered for call c. Lua 5.1 has no bit for that. There, a loop was entered if
 * the caller's instruction is no OP_CALL.
 */
static __always_inline bool pf_lua_is_entry(const struct pf_lua *d, const struct pf_lua_call *c,
					    const struct pf_lua_call *caller)
{
	uint32_t code;

	if (!d->opcode_5_1)
		return (c->status & d->entry_mask) == d->entry_is;
	if (!pf_lua_is_lua(d, caller))
		return true;
	return !pf_read(&code, 4, caller->savedpc - 4) || (code & 0x3f) != d->opcode_5_1;
}

/*
 * Sets *pc to the loop's pc if a register has it. A loop keeps its pc in a register, and stores it
 * in the CallInfo only before it calls something. The register is one that calls preserve. It is
 * the one that points into the code of the Lua function.
 */
static __always_inline void pf_lua_newest_pc(const struct pf_walk *w, uint64_t code, uint64_t bytes,
					     uint64_t *pc)
{
	uint64_t newest = 0;

#define X(number)                                                                                  \
	if (w->regs[number] - code <= bytes && !(w->regs[number] & 3) && w->regs[number] > newest) \
	newest = w->regs[number]
	X(3);
	X(6);
	X(12);
	X(13);
	X(14);
	X(15);
#undef X
	if (newest)
		*pc = newest;
}

static __noinline int pf_lua_push(struct pf_scratch *s, const struct pf_lua *d,
				  struct pf_runtime_walk *r, struct pf_lua_call *c, uint64_t caller)
{
	const uint32_t *sizes = (const uint32_t *)&s->piece[d->proto_sizes / 8 % (PF_LUA_READ / 8)];
	uint32_t end = pf_lua_end(d->proto_code + 8, d->proto_sizes + 32);
	uint64_t code, pc, index = PF_LUA_NO_PC;
	uint16_t cookie;

	if (!c->proto || !pf_lua_piece(s, end, c->proto))
		return pf_trouble(s, PF_RUNTIME_LUA,
				  c->proto ? PF_TROUBLE_READ : PF_TROUBLE_DAMAGED,
				  c->proto ?: c->ci);
	code = pf_lua_word(s, d->proto_code);
	pc = c->savedpc;
	if (!(r->own[PF_LUA_OWN_FLAGS] & PF_LUA_INNER))
		pf_lua_newest_pc(&s->walk, code, sizes[0] * 4ull, &pc);
	r->own[PF_LUA_OWN_FLAGS] |= PF_LUA_INNER;
	if (pc - code > sizes[0] * 4ull)
		return pf_trouble(s, PF_RUNTIME_LUA, PF_TROUBLE_DAMAGED, c->ci);
	if (pc > code) /* pc is the next instruction */
		index = (pc - code) / 4 - 1;
	else
		index = 0;
	if (index > PF_LUA_NO_PC)
		index = PF_LUA_NO_PC;
	/* sizecode comes first; linedefined and lastlinedefined follow each other */
	cookie = d->proto_line == 20 ? pf_lua_cookie(code, sizes[0], sizes[5], sizes[6])
				     : pf_lua_cookie(code, sizes[0], sizes[4], sizes[5]);
	return pf_push_runtime(s, PF_RUNTIME_LUA, 0, c->proto | (uint64_t)cookie << 48,
			       index | (c->status & d->own_mask) << 24 | caller);
}

/* Returns the lua_State that the current loop runs; 0: not known. */
static __noinline uint64_t pf_lua_state(struct pf_scratch *s, const struct pf_lua *d,
					uint64_t *flags)
{
	struct pf_walk *w = &s->walk;
	uint64_t at = 0, l = 0;

	for (uint32_t k = 0; k < PF_LUA_SITES; k++) {
		if (d->sites[k].address != w->ip)
			continue;
		if (d->sites[k].by_rbp && w->bp_lost)
			continue;
		at = (d->sites[k].by_rbp ? w->bp : w->sp) + (int64_t)d->sites[k].offset;
		if (d->sites[k].outermost)
			*flags |= PF_LUA_OUTERMOST;
	}
	if (at && !pf_word(s, at, &l))
		l = 0;
	return l;
}

/*
 * Continues the walk in lua_State l. True: the walk was in l before, and left it at *ret_ci: C code
 * of l ran another lua_State that called l again (an event loop).
 */
static __always_inline bool pf_lua_turn_to(struct pf_runtime_walk *r, uint64_t l, uint64_t *ret_ci)
{
	uint64_t *left = &r->own[PF_LUA_OWN_LEFT];
	bool last = l == left[0], before = l == left[2];

	if (last || before)
		*ret_ci = last ? left[1] : left[3];
	left[2] = left[0];
	left[3] = left[1];
	left[0] = r->own[PF_LUA_OWN_STATE];
	left[1] = r->at;
	r->own[PF_LUA_OWN_STATE] = l;
	r->at = 0;
	return last || before;
}

/*
 * Called when the walk has reached the native frame of a loop. Finds the innermost call that this
 * loop runs. Returns false if there is no call to show.
 */
static __noinline bool pf_lua_enter(struct pf_scratch *s, const struct pf_lua *d,
				    struct pf_runtime_walk *r)
{
	struct pf_walk *w = &s->walk;
	bool leaf = w->n_frames == 1, made = w->sp - w->frame_sp >= d->frame;
	uint64_t ip = w->shown, l, flags = 0;
	struct pf_lua_call c;
	bool back;
	uint8_t tt;

	l = pf_lua_state(s, d, &flags);
	if (leaf && ip < d->settled) {
		flags |= PF_LUA_ONE;
		if (!made)
			l = w->regs[5]; /* rdi: the function's first argument */
	} else if (leaf && !made) {
		return false; /* the loop is returning: it has removed its call from the list */
	}
	flags |= r->own[PF_LUA_OWN_FLAGS] & (PF_LUA_INNER | PF_LUA_STATUSES);
	if (l && l == r->own[PF_LUA_OWN_STATE]) {
		r->own[PF_LUA_OWN_FLAGS] = flags;
		return true;
	}
	/* without the lua_State it is not known, either, where the other lists continue */
	if (!l) {
		r->at = r->own[PF_LUA_OWN_LEFT + 1] = r->own[PF_LUA_OWN_LEFT + 3] = 0;
		pf_trouble(s, PF_RUNTIME_LUA, PF_TROUBLE_THREAD, 0);
		return false;
	}
	back = pf_lua_turn_to(r, l, &c.ci);
	if (back && !c.ci)
		return false;
	if (!pf_read(&tt, 1, l + 8) || tt != PF_LUA_THREAD ||
	    (!back && !pf_read(&c.ci, 8, l + d->l_ci)) || !pf_lua_read(s, &c, d, l, !back)) {
		pf_trouble(s, PF_RUNTIME_LUA, PF_TROUBLE_DAMAGED, l);
		return false;
	}
	r->at = c.ci;
	r->own[PF_LUA_OWN_PROTO] = c.proto;
	r->own[PF_LUA_OWN_PC] = c.savedpc;
	r->own[PF_LUA_OWN_BEFORE] = c.previous;
	r->own[PF_LUA_OWN_FLAGS] = (flags & ~PF_LUA_STATUSES) | c.status;
	return true;
}

static __always_inline int pf_lua_frame(struct pf_scratch *s, const struct pf_lua *d,
					struct pf_runtime_walk *r)
{
	struct pf_lua_call c, caller;
	uint64_t flags, words = 0;
	bool read;

	if (s->walk.first && !pf_lua_enter(s, d, r))
		return 1;
	flags = r->own[PF_LUA_OWN_FLAGS];
	if (!r->at || flags & PF_LUA_DONE)
		return 1;
	c = (struct pf_lua_call){r->at, r->own[PF_LUA_OWN_PROTO], r->own[PF_LUA_OWN_PC],
				 r->own[PF_LUA_OWN_BEFORE], flags & PF_LUA_STATUSES};
	caller.ci = c.previous;
	read = pf_lua_read(s, &caller, d, r->own[PF_LUA_OWN_STATE], false);
	if (!read)
		caller.ci = 0;
	if (pf_lua_is_lua(d, &c)) {
		if (caller.ci)
			words = (uint64_t)(caller.status & d->caller_mask) << 40;
		if (pf_lua_is_lua(d, &caller))
			words |= PF_LUA_CALLER_IS_LUA;
		if (pf_lua_push(s, d, r, &c, words))
			return 1; /* the stack is full */
		flags = r->own[PF_LUA_OWN_FLAGS];
		if (!(flags & PF_LUA_OUTERMOST) &&
		    (flags & PF_LUA_ONE || pf_lua_is_entry(d, &c, &caller)))
			flags |= PF_LUA_DONE;
	}
	if (!read)
		pf_trouble(s, PF_RUNTIME_LUA, PF_TROUBLE_READ, c.previous);
	r->at = caller.ci;
	r->own[PF_LUA_OWN_PROTO] = caller.proto;
	r->own[PF_LUA_OWN_PC] = caller.savedpc;
	r->own[PF_LUA_OWN_BEFORE] = caller.previous;
	r->own[PF_LUA_OWN_FLAGS] = (flags & ~PF_LUA_STATUSES) | caller.status;
	return 0;
}
#endif
