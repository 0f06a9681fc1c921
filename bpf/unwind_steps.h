/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * unwind_steps: how a step of the walk reads the stack and goes on at the caller. This file has the
 * two steps that need no table: by the frame record to which rbp points, and through a signal's
 * frame. A step sets ip, sp and bp and returns 0, or ends the walk and returns 1. For x86-64.
 */
#pragma once

#include "unwind_rules.h"

#ifndef PF_READ /* a program that walks another task defines it, to read that task's memory */
#define PF_READ(to, n, address) (!bpf_probe_read_user(to, n, (const void *)(address)))
#endif

static __always_inline bool pf_read(void *to, uint32_t n, uint64_t address)
{
	return PF_READ(to, n, address);
}

/*
 * Reads a word of the stack through s->window. The window moves up with the walk, and never extends
 * into another page.
 */
static __always_inline bool pf_peek(struct pf_scratch *s, uint64_t address, uint64_t *ret)
{
	struct pf_walk *w = &s->walk;
	uint64_t offset = address - w->window;

	if (address & 7)
		return pf_read(ret, sizeof(*ret), address);
	if (offset >= w->window_bytes) {
		uint32_t n = PF_USER_PAGE - (address & (PF_USER_PAGE - 1));

		if (n > PF_WINDOW_BYTES)
			n = PF_WINDOW_BYTES;
		w->window_bytes = 0;
		if (!pf_read(s->window, n, address))
			return false;
		w->window = address;
		w->window_bytes = n;
		offset = 0;
	}
	*ret = s->window[offset / 8 % (PF_WINDOW_BYTES / 8)];
	return true;
}

/* The same, for a word that decides where the walk goes: notes it for last_stack.h. */
static __always_inline bool pf_word(struct pf_scratch *s, uint64_t address, uint64_t *ret)
{
	if (!pf_peek(s, address, ret))
		return false;
	pf_note(s, address, *ret);
	return true;
}

static __always_inline int pf_caller(struct pf_walk *w, uint64_t ip, uint64_t sp)
{
	if (!ip)
		return pf_end(w, PF_END_ROOT);
	if (ip >> 56 || ip < 4096) /* no code of x86-64 can be there (57 address bits at most) */
		return pf_end(w, PF_END_BAD_PC);
	w->ip = ip;
	w->sp = sp;
	w->exact = false;
	return 0;
}

/*
 * Goes to the caller by rbp, which points to {caller's rbp, return address}. may_switch: the
 * caller's stack may be another one.
 */
static __always_inline int pf_by_record(struct pf_scratch *s, bool may_switch)
{
	struct pf_walk *w = &s->walk;
	uint64_t fp = w->bp, bp, ra;
	/* Whether rbp may be 0 by chance, in a frame that is not the outermost one. */
	bool unsure = !w->by_record && !may_switch &&
		      (w->no_table != PF_END_FP || !w->in_file || w->n_frames == 1);

	if (w->bp_lost)
		return pf_end(w, may_switch ? PF_END_REGISTER : w->no_table);
	pf_note_bp(s);
	/*
	 * rbp is 0, so there is no record. If the code keeps frame pointers, this is the outermost
	 * frame. But in a file with rows, code without a row may use rbp for numbers.
	 */
	if (!fp)
		return pf_end(w, unsure || (!w->by_record && !may_switch && w->file.n_pages)
					 ? w->no_table
					 : PF_END_ROOT);
	if (fp & 7 || (fp < w->sp && !may_switch))
		return pf_end(w, may_switch ? PF_END_STUCK : w->no_table);
	if (!pf_peek(s, fp, &bp) || !pf_word(s, fp + 8, &ra))
		return pf_end(w, may_switch ? PF_END_READ : w->no_table);
	pf_note_bp_at(s, fp);
	if (bp == fp)
		return pf_end(w, PF_END_STUCK);
	if (ra ? ra >> 56 || ra < 4096 : unsure)
		return pf_end(w, may_switch ? PF_END_BAD_PC : w->no_table);
	w->bp = bp;
	w->by_record = true;
	return pf_caller(w, ra, fp + 16);
}

/*
 * X(word, register): which register is in which word of the kernel's struct sigcontext_64. That
 * struct is at offset 40 of struct ucontext.
 */
/* clang-format off */
#define PF_SIGCONTEXT(X) \
	X(0, 8) X(1, 9) X(2, 10) X(3, 11) X(4, 12) X(5, 13) X(6, 14) X(7, 15) \
	X(8, 5) X(9, 4) X(10, 6) X(11, 3) X(12, 1) X(13, 0) X(14, 2) X(15, 7)
/* clang-format on */

/* The current frame is a signal's: the kernel has saved all registers in a ucontext at rsp. */
static __always_inline int pf_by_signal(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;

	pf_note_other(s);
	w->window_bytes = 0;
	if (!pf_read(s->window, (PF_REGS + 1) * 8, w->sp + 40))
		return pf_end(w, PF_END_READ);
#define X(word, number) w->regs[number] = s->window[word];
	PF_SIGCONTEXT(X)
#undef X
	w->ip = s->window[PF_REGS];
	w->sp = w->regs[PF_REG_RSP];
	w->bp = w->regs[PF_REG_RBP];
	w->bp_lost = false;
	w->by_record = false;
	w->exact = true;
	return 0;
}
