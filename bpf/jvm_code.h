/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * jvm_code: leads from a frame of HotSpot's compiled code, or of its stubs, to the caller's frame;
 * a part of jvm.h. A blob says how large its complete frames are. The bytes around the address of
 * an interrupted method say where in its prologue or epilogue it stands, as HotSpot's assembler
 * writes them (cpu/x86/x86_64.ad, c1_MacroAssembler_x86.cpp, sharedRuntime_x86_64.cpp). Return
 * addresses are checked.
 */
#pragma once

/* ---- from a frame to its caller ---- */

/*
 * Goes to the caller: the return address is in the word below cfa and, if `saved`, the caller's rbp
 * is in the word below the return address.
 */
PF_ONCE int pf_jvm_caller(struct pf_scratch *s, uint64_t cfa, bool saved)
{
	struct pf_walk *w = &s->walk;
	uint64_t bp, ra;

	if (!s)
		return 1;
	w->by_record = false;
	if (cfa < w->sp + 8)
		return pf_end(w, PF_END_STUCK);
	if (saved) {
		if (!pf_word(s, cfa - 16, &bp))
			return pf_end(w, PF_END_READ);
		w->bp = bp;
		w->bp_lost = false;
	}
	if (!pf_word(s, cfa - 8, &ra))
		return pf_end(w, PF_END_READ);
	if (ra == PF_JVM_NO_ADDRESS) {
		if (!pf_word(s, cfa, &ra))
			return pf_end(w, PF_END_READ);
		cfa += 8;
	}
	return pf_caller(w, ra, cfa);
}

/*
 * Whether rbp points to a frame record with a possible return address: an address in the
 * interpreter, or one that follows a call. If not strict, any address in generated code is
 * possible, too.
 */
PF_ONCE bool pf_jvm_has_record(struct pf_scratch *s, const struct pf_jvm *d, bool strict)
{
	struct pf_walk *w = &s->walk;
	uint64_t ra;

	if (!s || !d)
		return false;
	if (w->bp_lost || w->bp & 7 || w->bp - w->sp >= PF_JVM_LOOP_FRAME ||
	    !pf_word(s, w->bp + 8, &ra))
		return false;
	return ra == PF_JVM_NO_ADDRESS || pf_jvm_interprets(d, ra) || pf_jvm_behind_call(ra) ||
	       (!strict && pf_jvm_generated(d, ra));
}

/*
 * For code of which nothing is known: follows the frame record, if rbp points to one, or ends the
 * walk with a marker.
 */
PF_ONCE int pf_jvm_guess(struct pf_scratch *s, const struct pf_jvm *d)
{
	if (!s || !d)
		return 1;
	if (pf_jvm_has_record(s, d, true))
		return pf_jvm_caller(s, s->walk.bp + 16, true);
	return pf_end(&s->walk, PF_END_FP);
}

/*
 * Whether the word below cfa is a return address or, when not strict, an address of any generated
 * code; -1: it cannot be read.
 */
PF_ONCE int pf_jvm_return_below(struct pf_scratch *s, const struct pf_jvm *d, uint64_t cfa,
				bool strict)
{
	uint64_t ra;

	if (!s || !d || !pf_word(s, cfa - 8, &ra))
		return -1;
	return strict ? pf_jvm_returns(d, ra) : pf_jvm_generated(d, ra);
}

/*
 * Returns the first address, from cfa up to `words` words higher, that has a return address below
 * it; 0: there is none. Code may have pushed a few words below its frame, also around calls.
 */
PF_ONCE uint64_t pf_jvm_cfa(struct pf_scratch *s, const struct pf_jvm *d, uint64_t cfa,
			    uint32_t words)
{
	for (uint32_t k = 0; k < PF_JVM_ENTRY_WORDS && k < words; k++) {
		int found = pf_jvm_return_below(s, d, cfa, k > 0);

		if (found)
			return found > 0 ? cfa : 0;
		cfa += 8;
	}
	return 0;
}

/*
 * The outer frames of a virtual thread may be in the heap. Then the last frame on the stack returns
 * to a stub (StubRoutines::cont_returnBarrier), at an address that no call precedes. Above that
 * frame is a ContinuationEntry, and above this the frame of the code that runs the thread.
 */
PF_ONCE int pf_jvm_by_barrier(struct pf_scratch *s, const struct pf_jvm *d)
{
	uint64_t cfa = 0;

	if (!s || !d)
		return 1;
	if (!pf_jvm_behind_call(s->walk.ip))
		cfa = pf_jvm_cfa(s, d, s->walk.sp + 16, PF_JVM_ENTRY_WORDS);
	return cfa ? pf_jvm_caller(s, cfa, true) : pf_jvm_guess(s, d);
}

/* ---- where an interrupted method stands ---- */

#define PF_JVM_BEFORE 32
#define PF_JVM_BYTES  48
/* The byte of code at ip + k, where k may be negative. The code around ip is in s->piece. */
#define PF_JVM_AT(k) (((const uint8_t *)s->piece)[PF_JVM_BEFORE + (k)])

static __always_inline uint32_t pf_jvm_u24(const struct pf_scratch *s, int k)
{
	return PF_JVM_AT(k) | PF_JVM_AT(k + 1) << 8 | PF_JVM_AT(k + 2) << 16;
}

static __always_inline uint32_t pf_jvm_u32(const struct pf_scratch *s, int k)
{
	return pf_jvm_u24(s, k) | (uint32_t)PF_JVM_AT(k + 3) << 24;
}

/* Whether sub $n,%rsp, in one of its two encodings, is at byte k. */
static __always_inline bool pf_jvm_is_sub(const struct pf_scratch *s, int k, uint32_t n)
{
	uint32_t code = pf_jvm_u24(s, k);

	return code == 0xec8148 ? pf_jvm_u32(s, k + 3) == n
				: code == 0xec8348 && PF_JVM_AT(k + 3) == n;
}

/* Whether the sub that makes this frame is among the instructions shortly before ip. */
PF_ONCE bool pf_jvm_made(const struct pf_scratch *s, uint32_t frame)
{
	bool made = false;

	if (!s)
		return false;
	for (int k = -28; k <= -4; k++)
		made |= pf_jvm_is_sub(s, k, frame - 16) || pf_jvm_is_sub(s, k, frame - 8);
	return made;
}

/*
 * Returns where in its prologue a method stands. Prologues are: [stack bang] push %rbp; [mov
 * %rsp,%rbp;] sub $n,%rsp; [barrier]; or, without a stack bang, sub $n,%rsp; mov %rbp,n-16(%rsp).
 * Before its prologue, a method checks the receiver's class.
 */
static __always_inline uint32_t pf_jvm_in_prologue(const struct pf_scratch *s, uint64_t frame)
{
	uint32_t code = pf_jvm_u24(s, 0);

	if (PF_JVM_AT(0) == 0x55)
		return PF_AT_ENTRY;
	if (code == 0xec8b48 || code == 0xe58948) /* mov %rsp,%rbp */
		return PF_AFTER_PUSH;
	if (pf_jvm_is_sub(s, 0, frame - 16) && PF_JVM_AT(-1) == 0x55)
		return PF_AFTER_PUSH;
	if (pf_jvm_is_sub(s, 0, frame - 16) && /* mov %rsp,%rbp before it */
	    (pf_jvm_u24(s, -3) == 0xec8b48 || pf_jvm_u24(s, -3) == 0xe58948))
		return PF_AFTER_PUSH;
	if (code == 0x6c8948 || code == 0xac8948) /* mov %rbp,n(%rsp) */
		return PF_JVM_SAVING;
	if (frame == 16 && PF_JVM_AT(-1) == 0x55)
		return PF_AFTER_PUSH;
	return pf_jvm_made(s, frame) ? PF_JVM_BODY : PF_AT_ENTRY;
}

/* Whether byte k begins test %eax,(%r10); ret: a return's safepoint poll before JDK 16. */
static __always_inline bool pf_jvm_is_poll(const struct pf_scratch *s, int k)
{
	return pf_jvm_u32(s, k) == 0xc3028541;
}

/*
 * Epilogues: add $n,%rsp; pop %rbp; [poll;] ret, or leave; [check;] ret. Before JDK 16, the poll
 * reads from a page that is near, or whose address is in r10. Since JDK 16, the poll is cmp
 * n(%r15),%rsp; ja. All these instructions occur only before a return.
 */
static __always_inline uint32_t pf_jvm_in_epilogue(const struct pf_scratch *s)
{
	uint32_t code = pf_jvm_u24(s, 0);
	uint32_t first = code & 0xff;
	bool jumps = first == 0x77 || (code & 0xffff) == 0x870f;

	if (first == 0xc3 || first == 0xc2 || (code & 0xffff) == 0xc3f3)
		return PF_AT_ENTRY;
	if (first == 0x5d)
		return PF_AFTER_PUSH;
	if (PF_JVM_AT(-1) == 0x5d &&
	    (pf_jvm_u24(s, -5) == 0xc48348 || pf_jvm_u24(s, -8) == 0xc48148))
		return PF_AT_ENTRY;
	if (code == 0x673b49 || code == 0xa73b49) /* cmp n(%r15),%rsp */
		return PF_AT_ENTRY;
	if (jumps && (pf_jvm_u24(s, -4) == 0x673b49 || pf_jvm_u24(s, -7) == 0xa73b49))
		return PF_AT_ENTRY;
	if (pf_jvm_is_poll(s, 0) || ((code & 0xffff) == 0x0585 && PF_JVM_AT(6) == 0xc3))
		return PF_AT_ENTRY;
	if ((code == 0x578b4d && pf_jvm_is_poll(s, 4)) || /* mov n(%r15),%r10 */
	    (code == 0x978b4d && pf_jvm_is_poll(s, 7)) ||
	    ((code & 0xffff) == 0xba49 && pf_jvm_is_poll(s, 10))) /* mov $n,%r10 */
		return PF_AT_ENTRY;
	/* leave; cmp $0,n(%r15), the pending exception; jne; ret */
	if (PF_JVM_AT(-1) == 0xc9 && ((code & 0x3ffdff) == 0x3f8149))
		return PF_AT_ENTRY;
	if ((code & 0xffff) == 0x850f && PF_JVM_AT(6) == 0xc3)
		return PF_AT_ENTRY;
	return PF_JVM_BODY;
}

/*
 * Returns the place in an interrupted method: enum pf_place or enum pf_jvm_place. The code around
 * it is in s->piece.
 */
PF_ONCE uint32_t pf_jvm_place(struct pf_scratch *s, uint64_t frame, bool prologue)
{
	if (!s)
		return PF_JVM_BODY;
	return prologue ? pf_jvm_in_prologue(s, frame) : pf_jvm_in_epilogue(s);
}

/*
 * Whether the code is pop %r; pop %r, with the same register. C1 pushes both arguments of
 * slow_subtype_check, and drops them with this code (c1_LIRAssembler_x86.cpp,
 * emit_typecheck_helper). No other code has it.
 */
static __always_inline bool pf_jvm_drops(uint32_t code)
{
	return ((code & 0xf8) == 0x58 && (code & 0xff) == (code >> 8 & 0xff)) ||
	       ((code & 0xf8ff) == 0x5841 && (code & 0xffff) == code >> 16);
}

/*
 * How many bytes of the arguments of slow_subtype_check are on the stack of an interrupted method.
 */
PF_ONCE uint32_t pf_jvm_arguments(const struct pf_scratch *s)
{
	if (!s)
		return 0;
	if ((PF_JVM_AT(0) == 0xe8 && pf_jvm_drops(pf_jvm_u32(s, 5))) ||
	    (PF_JVM_AT(-5) == 0xe8 && pf_jvm_drops(pf_jvm_u32(s, 0))))
		return 16;
	/*
	 * At the second push, or the second pop, one argument is on the stack. If the register is
	 * r8 or higher, the instruction begins with 0x41.
	 */
	if (PF_JVM_AT(0) == 0x41)
		return (PF_JVM_AT(2) == 0xe8 && pf_jvm_drops(pf_jvm_u32(s, 7))) ||
				       (PF_JVM_AT(-7) == 0xe8 && pf_jvm_drops(pf_jvm_u32(s, -2)))
			       ? 8
			       : 0;
	return (PF_JVM_AT(1) == 0xe8 && pf_jvm_drops(pf_jvm_u32(s, 6))) ||
			       (PF_JVM_AT(-6) == 0xe8 && pf_jvm_drops(pf_jvm_u32(s, -1)))
		       ? 8
		       : 0;
}

/*
 * Whether a return address is on top of the stack: the stub has not made its frame yet, or has
 * removed it.
 */
PF_ONCE bool pf_jvm_on_top(struct pf_scratch *s, const struct pf_jvm *d)
{
	uint64_t top;

	if (!s || !d)
		return false;
	return pf_word(s, s->walk.sp, &top) && pf_jvm_returns(d, top);
}

/* Goes to the caller of a compiled method, or of a stub whose frame size is known. */
PF_ONCE int pf_jvm_by_size(struct pf_scratch *s, const struct pf_jvm *d, uint64_t frame,
			   uint32_t place)
{
	struct pf_walk *w = &s->walk;
	uint64_t cfa;

	if (!s || !d)
		return 1;
	if (place == PF_AT_ENTRY)
		return pf_jvm_caller(s, w->sp + 8, false);
	if (place == PF_AFTER_PUSH)
		return pf_jvm_caller(s, w->sp + 16, true);
	if (place == PF_JVM_SAVING)
		return pf_jvm_caller(s, w->sp + frame, false);
	cfa = pf_jvm_cfa(s, d, w->sp + frame, PF_JVM_PUSHED);
	if (cfa)
		return pf_jvm_caller(s, cfa, frame > 8);
	if (w->exact && pf_jvm_on_top(s, d))
		return pf_jvm_caller(s, w->sp + 8, false);
	return pf_jvm_guess(s, d);
}

/* ---- stubs: everything that is no method ---- */

#define PF_JVM_STUBROUTINES 0x74756f5262757453 /* "StubRout" */

/*
 * text: the first eight bytes of the blob's name. Those of an adapter are "I2C/C2I ", "MethodHa",
 * "vtable c", "VtableBl" or "InlineCa".
 */
static __always_inline bool pf_jvm_is_adapter(uint64_t text)
{
	return text == 0x204932432f433249 || text == 0x6148646f6874654d ||
	       text == 0x6320656c62617476 || text == 0x6c42656c62617456 ||
	       text == 0x6143656e696c6e49;
}

/*
 * Goes to the caller from code between methods, which has no frame. While adapters between compiled
 * and interpreted code move arguments, they keep the return address in rax and the old rsp in r13.
 */
PF_ONCE int pf_jvm_by_adapter(struct pf_scratch *s, const struct pf_jvm *d)
{
	struct pf_walk *w = &s->walk;
	uint64_t sp;

	if (!s || !d)
		return 1;
	sp = w->regs[PF_JVM_R13];
	if (pf_jvm_on_top(s, d))
		return pf_jvm_caller(s, w->sp + 8, false);
	if (!pf_jvm_generated(d, w->regs[PF_JVM_RAX]))
		return pf_jvm_guess(s, d);
	w->by_record = false;
	return pf_caller(w, w->regs[PF_JVM_RAX], sp - w->sp < PF_JVM_PARAMETERS ? sp : w->sp);
}

/*
 * Whether the word on top of the stack is a return address, so that the stub has no frame: the call
 * before that address went to this blob, at or before ip. The caller may be generated code or not.
 */
static __always_inline bool pf_jvm_is_called(struct pf_scratch *s, const struct pf_jvm *d,
					     const struct pf_jvm_code *c)
{
	struct pf_walk *w = &s->walk;
	uint64_t top, bytes, target;

	if (!pf_word(s, w->sp, &top) || !pf_read(&bytes, sizeof(bytes), top - 8))
		return false;
	target = top + ((int64_t)bytes >> 32);
	/* A call by libjvm may have gone to other code, which jumps to the stub. */
	if ((bytes >> 24 & 0xff) == 0xe8 &&
	    ((target >= c->begin && target <= w->ip) ||
	     (c->text != PF_JVM_STUBROUTINES && !pf_jvm_generated(d, top))))
		return true;
	return pf_jvm_calls_indirectly(bytes);
}

/*
 * A stub in "StubRoutines" makes a frame record or leaves rbp alone. Other stubs keep a record if
 * they begin with push %rbp; mov %rsp,%rbp.
 */
static __always_inline bool pf_jvm_keeps_record(const struct pf_jvm_code *c)
{
	uint32_t code;

	return c->text == PF_JVM_STUBROUTINES ||
	       (pf_read(&code, sizeof(code), c->begin) && code == 0xec8b4855);
}

/*
 * Returns how many bytes a sub $n,%rsp shortly before ip has reserved. These bytes still contain
 * what was on the stack before, including old return addresses.
 */
PF_ONCE uint32_t pf_jvm_room(const struct pf_scratch *s)
{
	uint32_t room = 0;

	if (!s)
		return 0;
	for (int k = -24; k <= -4; k++)
		if (pf_jvm_u24(s, k) == 0xec8348)
			room = PF_JVM_AT(k + 3);
	return room;
}

/*
 * Goes to the caller of a stub that was interrupted (StubRoutines, runtime stubs). Nothing
 * describes where the stub's frame is, so this function checks each possibility.
 */
static __noinline int pf_jvm_by_stub(struct pf_scratch *s, const struct pf_jvm *d,
				     const struct pf_jvm_code *c)
{
	struct pf_walk *w = &s->walk;
	uint32_t code, place, room;
	uint8_t before;
	uint64_t at, ra;

	if (pf_jvm_is_adapter(c->text))
		return pf_jvm_by_adapter(s, d);
	if (!pf_read(s->piece, PF_JVM_BYTES, w->ip - PF_JVM_BEFORE))
		return pf_jvm_guess(s, d);
	code = pf_jvm_u32(s, 0);
	before = PF_JVM_AT(-1);
	room = pf_jvm_room(s);
	place = pf_place_of(code, before);
	if ((before == 0xc9 && code == 0x08c48348) ||	   /* leave; add $8,%rsp */
	    (before == 0x5d && (code & 0xf8ff) == 0xe0ff)) /* pop %rbp; jmp *%reg */
		place = PF_AT_ENTRY;
	if ((code & 0xff) == 0x5d) /* pop %rbp */
		place = PF_AFTER_PUSH;
	at = w->sp + (place == PF_AT_ENTRY ? 0 : 8);
	if (place != PF_IN_BODY && pf_word(s, at, &ra) &&
	    (ra == PF_JVM_NO_ADDRESS || pf_jvm_generated(d, ra) || pf_jvm_behind_call(ra)))
		return pf_jvm_caller(s, at + 8, place != PF_AT_ENTRY);
	/*
	 * In the stub that calls Java, a word on top of the stack may look like a return address.
	 */
	if (!room && w->ip - d->call_stub >= PF_JVM_CALL_STUB && pf_jvm_is_called(s, d, c))
		return pf_jvm_caller(s, w->sp + 8, false);
	if (pf_jvm_keeps_record(c) && pf_jvm_has_record(s, d, c->text == PF_JVM_STUBROUTINES))
		return pf_jvm_caller(s, w->bp + 16, true);
	/* push %rdx, the address that throws: the frame belongs to the method that jumped here. */
	if ((code & 0xff) == 0x52 && pf_jvm_generated(d, w->regs[PF_JVM_RDX]))
		return pf_caller(w, w->regs[PF_JVM_RDX], w->sp);
	return pf_jvm_by_size(s, d, c->frame ? c->frame : 8 + room, PF_JVM_BODY);
}
