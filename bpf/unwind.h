/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * unwind: walks user stacks by unwind rules and, in code without rules, by frame pointers. Each
 * step of bpf_loop walks one frame. All programs use this unwinder. For x86-64. docs/unwinding.md.
 */
#pragma once

#include "code_without_table.h"

/* ---- from a frame to its caller, by a rule ---- */

static __always_inline bool pf_rule_base(const struct pf_walk *w, const struct pf_rule *r,
					 uint64_t *ret)
{
	switch (r->cfa) {
	case PF_CFA_RBP:
	case PF_CFA_DEREF_RBP:
		*ret = w->bp;
		return !w->bp_lost;
	case PF_CFA_REG:
	case PF_CFA_DEREF_REG:
		*ret = w->regs[r->reg % PF_REGS];
		return w->exact;
	default:
		*ret = w->sp;
		return true;
	}
}

static __always_inline int pf_rule_cfa(struct pf_scratch *s, const struct pf_rule *r, uint64_t *ret)
{
	struct pf_walk *w = &s->walk;
	uint64_t cfa;

	if (!pf_rule_base(w, r, &cfa))
		return pf_end(w, PF_END_REGISTER);
	if (r->cfa == PF_CFA_RBP || r->cfa == PF_CFA_DEREF_RBP)
		pf_note_bp(s);
	else if (r->cfa == PF_CFA_REG || r->cfa == PF_CFA_DEREF_REG)
		pf_note_other(s);
	cfa += r->cfa_offset;
	if (r->cfa == PF_CFA_PLT) {
		cfa += (int)(w->ip & 15) >= r->extra ? 8 : 0;
	} else if (r->cfa >= PF_CFA_DEREF_RSP) {
		if (!pf_word(s, cfa, &cfa))
			return pf_end(w, PF_END_READ);
		cfa += r->extra;
	}
	*ret = cfa;
	return 0;
}

/* Sets bp to the caller's rbp. */
static __always_inline int pf_rule_bp(struct pf_scratch *s, const struct pf_rule *r, uint64_t cfa)
{
	struct pf_walk *w = &s->walk;
	uint64_t at = cfa, bp;

	if (r->fp == PF_FP_SAME)
		return 0;
	if (r->fp == PF_FP_UNKNOWN) {
		w->bp_lost = true;
		return 0;
	}
	if (r->fp == PF_FP_AT_RBP) {
		if (w->bp_lost)
			return pf_end(w, PF_END_REGISTER);
		at = w->bp;
		pf_note_bp(s);
	} else if (r->fp == PF_FP_AT_RSP) {
		at = w->sp;
	}
	at += r->fp_offset;
	if (!pf_peek(s, at, &bp))
		return pf_end(w, PF_END_READ);
	pf_note_bp_at(s, at);
	w->bp = bp;
	w->bp_lost = false;
	return 0;
}

static __always_inline int pf_by_rule(struct pf_scratch *s, const struct pf_rule *r)
{
	struct pf_walk *w = &s->walk;
	bool in_register = r->ra == PF_RA_REG;
	uint64_t cfa, ra;

	w->by_record = false;
	if (pf_rule_cfa(s, r, &cfa))
		return 1;
	if (in_register && !w->exact)
		return pf_end(w, PF_END_REGISTER);
	if (cfa < w->sp + (in_register ? 0 : 8))
		return pf_end(w, PF_END_STUCK);
	/*
	 * Reads rbp before the return address, because rbp is at a lower address: then one window
	 * has both.
	 */
	if (pf_rule_bp(s, r, cfa))
		return 1;
	if (in_register) {
		ra = w->regs[r->reg % PF_REGS];
		pf_note_other(s);
	} else if (!pf_word(s, r->ra == PF_RA_CFA ? cfa + r->extra : cfa - 8, &ra)) {
		return pf_end(w, PF_END_READ);
	}
	return pf_caller(w, ra, cfa);
}

PF_ONCE int pf_by_goroutine(struct pf_scratch *s); /* goroutine.h */

static __always_inline int pf_to_caller(struct pf_scratch *s)
{
	const struct pf_rule *r = pf_rule_of(s);
	struct pf_walk *w = &s->walk;

	if (!r)
		return pf_by_guess(s);
	if (r->cfa != PF_RULE_IS_SPECIAL)
		return pf_by_rule(s, r);
	switch (r->extra) {
	case PF_RULE_GAP:
		return pf_by_guess(s);
	case PF_RULE_ROOT:
		return pf_end(w, PF_END_ROOT);
	case PF_RULE_SIGNAL:
		return pf_by_signal(s);
	case PF_RULE_FP:
		return pf_by_record(s, true);
	case PF_RULE_LOST:
		return w->at_entry ? pf_by_guess(s) : pf_end(w, PF_END_FP);
	case PF_RULE_GOROUTINE:
		return pf_by_goroutine(s);
	}
	return pf_end(w, PF_END_EXPRESSION);
}

/* ---- one frame after the other ---- */

/*
 * A stack needs more steps than it has frames: after each native frame of a runtime, one step only
 * finds that the runtime has no more frames to show.
 */
#define PF_STEPS (4 * PF_MAX_USER_FRAMES)

/*
 * Pushes the current frame. address: the one to show, whose mapping the caller has already searched
 * for.
 */
static __always_inline int pf_push_native(struct pf_scratch *s, uint64_t address)
{
	struct pf_walk *w = &s->walk;
	uint64_t offset = address - w->mapping.load;

	w->shown = address;
	if (!pf_config.sees_mappings || !w->mm)
		return pf_push(s, PF_FRAME_NATIVE, address);
	if (w->mapping.tag == PF_TAG_NONE || offset > PF_FRAME_MORE_MAX)
		return pf_push(s, PF_FRAME_NO_FILE, address);
	return pf_push_file(s, address, offset);
}

#define PF_WALKER
#include "runtimes.h"

/*
 * If the kernel has replaced the return address from which ip was read, sets ip to the original
 * one.
 */
static __noinline int pf_real_return(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;
	uint64_t slot = w->sp - 8;

	for (uint32_t i = 0; i < PF_RETURNS_MAX; i++)
		if (i < w->n_returns && w->returns[i].slot == slot) {
			w->ip = w->returns[i].address;
			pf_note_other(s); /* the word on the stack is the kernel's, whoever calls */
		}
	return 0;
}

/* Pushes the current frame and goes to its caller. */
PF_ONCE int pf_native(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;
	uint64_t shown;

	if (!s)
		return 1;
	/*
	 * A caller that a signal interrupted is not at a return address: adds one, so that in all
	 * callers the byte before the address is in the current instruction.
	 */
	shown = w->exact && w->n_words ? w->ip + 1 : w->ip;
	if (pf_push_native(s, shown))
		return pf_end(w, PF_END_DEPTH);
	/*
	 * Code of an unknown file: rbp alone does not lead to the caller, because the code may not
	 * keep frame pointers.
	 */
	if (w->known && w->found && w->mapping.file == PF_SLOT_UNKNOWN)
		return pf_end(w, PF_END_CHANGED);
	return pf_to_caller(s);
}

/* Pushes the runtime's next frame. If there is none, the native walk goes on. */
static __always_inline int pf_ask(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;

	/* The stack is full: more frames would only be pushed in vain. */
	if (w->n_frames >= PF_MAX_USER_FRAMES)
		return pf_end(w, PF_END_DEPTH);
	w->asking = !pf_runtime_call(s, false);
	w->first = false;
	return !w->asking && w->over != 0;
}

static long pf_step(uint32_t i, struct pf_loop *loop)
{
	struct pf_scratch *s = loop->s;
	struct pf_walk *w = &s->walk;

	(void)i;
	if (w->asking)
		return pf_ask(s);
	if (w->n_returns && !w->exact)
		pf_real_return(s);
	w->found = pf_find_mapping(s, pf_pc(w));
	w->runtime = w->found ? w->mapping.runtime : 0;
	w->frame_sp = w->sp;
	w->frame_bp = w->bp;
	w->over = w->runtime & PF_MANAGED ? pf_runtime_call(s, true) : pf_native(s);
	w->at_entry = false;
	w->asking = w->first = w->runtime != 0;
	return !w->asking && w->over != 0;
}

/* Prepares the walk. False: there is nothing to walk, because the code is 32-bit code (compat). */
static __always_inline bool pf_walk_begin(struct pf_scratch *s, uint32_t exec_id,
					  uint64_t hash_seed, bool at_entry, bool compat)
{
	struct pf_walk *w = &s->walk;

	w->sp = w->regs[PF_REG_RSP];
	w->bp = w->regs[PF_REG_RBP];
	w->exact = true;
	w->at_entry = at_entry;
	w->bp_lost = false;
	w->by_record = false;
	w->mapping.start = w->mapping.end = 0;
	w->mapping.tag = PF_TAG_NONE;
	w->window_bytes = 0;
	pf_note_begin(s);
	pf_stack_begin(w, pf_hash_add(hash_seed, exec_id), exec_id);
	if (w->object_of)
		pf_push_runtime(s, w->object_of, PF_TYPE_OBJECT, w->object, 0);
	w->asking = false;
	w->lacks_runtime = false;
	if (w->known && w->process.n_runtimes)
		for (int k = 0; k < PF_RUNTIMES_MAX; k++)
			w->runtimes[k] = (struct pf_runtime_walk){0};
	if (compat) {
		pf_find_mapping(s, w->ip);
		pf_push_native(s, w->ip);
		w->end = PF_END_COMPAT;
	}
	return !compat;
}

static __always_inline uint64_t pf_walk_end(struct pf_scratch *s)
{
	if (s->walk.lacks_runtime && s->walk.end == PF_END_ROOT)
		s->walk.end = PF_END_RUNTIME;
	return pf_hash_end(pf_hash_add(s->walk.hash, s->walk.end));
}

/*
 * Walks from s->walk, and fills s->stack. The caller has set ip, regs, known and process in
 * s->walk, and got hash_seed from pf_hash_start(). at_entry: a uprobe is at the first instruction
 * of a function. Returns the hash of the stack.
 */
static __always_inline uint64_t pf_walk_user(struct pf_scratch *s, uint32_t exec_id,
					     uint64_t hash_seed, bool at_entry, bool compat)
{
	struct pf_loop loop = {.s = s};

	if (pf_walk_begin(s, exec_id, hash_seed, at_entry, compat))
		bpf_loop(PF_STEPS, pf_step, &loop, 0);
	return pf_walk_end(s);
}
