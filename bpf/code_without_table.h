/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * code_without_table: the step to the caller from code that has no unwind table. The bytes of the
 * code show where in its function it is, and so where the return address is. For x86-64.
 * docs/unwinding.md.
 */
#pragma once

#include "unwind_steps.h"

#define PF_LEAF_BYTES 2048 /* bytes; known functions that never touch the stack are shorter */

enum pf_place {
	PF_IN_BODY,   /* rbp points to the function's frame record, if it has one */
	PF_AT_ENTRY,  /* return address at [rsp], rbp is the caller's */
	PF_AFTER_PUSH /* caller's rbp at [rsp], return address at [rsp + 8] */
};

/*
 * Returns where in a function without a table ip is (enum pf_place), judged by the bytes at ip and
 * the byte before ip. Until the function's frame record is complete, and after it is removed, rbp
 * is the caller's: a step by rbp would skip the caller.
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
 * Whether the bytes are mov $15,%eax or %rax; syscall: the call of rt_sigreturn. C libraries align
 * this code, or put a nop before it.
 */
static __always_inline bool pf_is_sigreturn(uint64_t bytes)
{
	return bytes == 0x0f0000000fc0c748 || (bytes & 0xffffffffffffff) == 0x050f0000000fb8;
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
 * If at most this many bytes are between rsp and argc, the frame is that of start-up code. (musl's
 * start-up code has no rows, and its frame has 48 to 56 bytes.)
 */
#define PF_START_BYTES 64

static __always_inline bool pf_at_start(const struct pf_walk *w)
{
	return !w->exact && w->in_file && w->no_table == PF_END_FP &&
	       w->stack_start - w->sp <= PF_START_BYTES;
}

/*
 * Whether the code at the address is mov %eax,%edi and a call of exit: mov $60,%eax; syscall or, in
 * musl's clone(), xor %eax,%eax; mov $60,%al; syscall.
 */
static __always_inline bool pf_ends_thread(uint64_t address)
{
	uint64_t bytes;

	return !(address >> 56) && pf_read(&bytes, sizeof(bytes), address) &&
	       (bytes == 0x050f3cb0c031c789 || bytes == 0x0f0000003cb8c789);
}

/*
 * Whether a thread begins in the frame, or in the one above it: then at most PF_START_BYTES above
 * rsp is a return address to code that ends the thread. (musl's clone() has no rows, and neither
 * has its start(), which never returns.)
 */
static __noinline bool pf_at_thread_start(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;
	uint64_t word;

	if (w->exact || !w->in_file || w->no_table != PF_END_FP || w->bp || w->bp_lost)
		return false;
	if (pf_ends_thread(w->ip))
		return true;
	for (uint32_t i = 0; i < PF_START_BYTES / 8; i++)
		if (pf_read(&word, sizeof(word), w->sp + i * 8) && pf_ends_thread(word))
			return true;
	return false;
}

/*
 * Goes to the caller of a frame whose code has no table. In a leaf, the bytes at ip show where the
 * return address is. In the body of a function, and in callers, the frame record shows it.
 */
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
	if (pf_at_start(w) || pf_at_thread_start(s))
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
