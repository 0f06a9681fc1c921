/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * unwind: walks user stacks by unwind rules and, in code without rules, by frame pointers. Each
 * step of bpf_loop walks one frame. All programs use this unwinder. For x86-64. docs/unwinding.md.
 */
#pragma once

#include "unwind_rules.h"

/*
 * ---- from a frame to its caller: set ip, sp and bp and return 0, or end the walk and return 1
 * ----
 */

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
	 * frame.
	 */
	if (!fp)
		return pf_end(w, unsure ? w->no_table : PF_END_ROOT);
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

#define PF_LEAF_BYTES 2048 /* bytes; known functions that never touch the stack are shorter */

enum pf_place {
	PF_IN_BODY,   /* rbp points to the function's frame record, if it has one */
	PF_AT_ENTRY,  /* return address at [rsp], rbp is the caller's */
	PF_AFTER_PUSH /* caller's rbp at [rsp], return address at [rsp + 8] */
};

/*
 * The place in a function without a table, judged by the bytes at ip and the byte before ip. Until
 * the function's frame record is complete, and after it is removed, rbp is the caller's: a step by
 * rbp would skip the caller.
 */
static __always_inline uint32_t pf_place_of(uint32_t bytes, uint8_t before)
{
	uint8_t first = bytes, second = bytes >> 8;

	/* push %rbp, unless other pushes are around it (then rbp is no frame pointer); endbr64 */
	if ((first == 0x55 && (before & 0xf8) != 0x50) || bytes == 0xfa1e0ff3)
		return PF_AT_ENTRY;
	if (first == 0xcc) /* a breakpoint of a uprobe, which stands at an entry */
		return PF_AT_ENTRY;
	if (first == 0xc3 || first == 0xc2 || (first == 0xf3 && second == 0xc3)) /* ret */
		return PF_AT_ENTRY;
	/* jmp *n(%rip): a PLT entry without a row (static programs), or a tail call */
	if ((first == 0xff && second == 0x25) || (bytes & 0xffffff) == 0x25fff2)
		return PF_AT_ENTRY;
	/* between pop %rbp and jmp: a tail call */
	if (before == 0x5d && (first == 0xe9 || first == 0xeb))
		return PF_AT_ENTRY;
	/*
	 * between push %rbp (or a breakpoint in its place) and mov %rsp,%rbp, in one of two
	 * encodings
	 */
	bytes &= 0xffffff;
	if ((before == 0x55 || before == 0xcc) && (bytes == 0xe58948 || bytes == 0xec8b48))
		return PF_AFTER_PUSH;
	return PF_IN_BODY;
}

/*
 * mov $15,%eax or %rax; syscall: rt_sigreturn. C libraries align this code, or put a nop before it.
 */
static __always_inline bool pf_is_sigreturn(uint64_t bytes)
{
	return bytes == 0x0f0000000fc0c748 || (bytes & 0xffffffffffffff) == 0x050f0000000fb8;
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

/*
 * Whether the leaf is a function that never touches the stack (such as a memcpy written by hand):
 * then [rsp] is its return address, and the call before that address goes to code shortly before
 * ip.
 */
static __always_inline bool pf_called_from_top(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;
	uint64_t top, distance;
	struct {
		uint8_t pad[3], call; /* so that displacement is aligned */
		int32_t displacement;
	} code;

	if (!pf_word(s, w->sp, &top) || !pf_read(&code.call, 5, top - 5) || code.call != 0xe8)
		return false;
	distance = w->ip - (top + code.displacement);
	return distance < PF_LEAF_BYTES;
}

/*
 * If at most so many bytes are between rsp and argc, the frame is that of start-up code (musl's has
 * no rows, and 48 to 56 bytes).
 */
#define PF_START_BYTES 64

static __always_inline bool pf_at_start(const struct pf_walk *w)
{
	return !w->exact && w->in_file && w->no_table == PF_END_FP &&
	       w->stack_start - w->sp <= PF_START_BYTES;
}

/* For code without a table. */
static __always_inline int pf_by_guess(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;
	uint32_t place = PF_IN_BODY;
	uint8_t before = 0;
	uint32_t code;
	uint64_t bytes, top, ra;

	if (w->exact && !w->in_file) /* JIT code, which may change */
		pf_note_other(s);
	if (w->exact) {
		pf_read(&before, 1, w->ip - 1);
		/*
		 * If the bytes at ip cannot be read, there is no code: a call went to a wrong
		 * address.
		 */
		if (w->at_entry || !pf_read(&code, sizeof(code), w->ip))
			place = PF_AT_ENTRY;
		else
			place = pf_place_of(code, before);
		if (place == PF_IN_BODY && w->in_file && pf_called_from_top(s))
			place = PF_AT_ENTRY;
	} else if (w->in_file && (w->ip & 15) <= 1 && pf_read(&bytes, sizeof(bytes), w->ip) &&
		   pf_is_sigreturn(bytes)) {
		return pf_by_signal(s);
	}
	if (pf_at_start(w))
		return pf_end(w, PF_END_ROOT);
	if (place == PF_IN_BODY)
		return pf_by_record(s, false);
	if (!pf_word(s, w->sp, &top))
		return pf_end(w, PF_END_READ);
	w->by_record = false;
	if (place == PF_AT_ENTRY)
		return pf_caller(w, top, w->sp + 8);
	if (!pf_word(s, w->sp + 8, &ra))
		return pf_end(w, PF_END_READ);
	pf_note_bp_at(s, w->sp);
	w->bp = top;
	w->bp_lost = false;
	return pf_caller(w, ra, w->sp + 16);
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
 * Pushes the current frame. address: the one to show. The search for its mapping was made before.
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
			pf_note_other(s); /* the word on the stack is the same for all callers */
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
