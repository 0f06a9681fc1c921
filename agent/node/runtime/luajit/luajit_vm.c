/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns LuaJIT's interpreter from its code: vm_x64.dasc, LuaJIT 2.1 with GC64. The offsets in
 * global_State differ between versions and builds, but the code that uses them is the same. Runs on
 * the reader's thread.
 */
#include "node/runtime/luajit/luajit.h"

#include <errno.h>
#include <string.h>

#include "node/insn/insn.h"

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R14 = 14 };

#define CFRAME_SPACE	40
#define STATE_GLREF	0x10 /* offset in lua_State */
#define STATE_CFRAME	0x50
#define TRACE_MCODE	0x58 /* offset in GCtrace */
#define CF_PC		0x18 /* offset of SAVE_PC in a C frame */
#define CALL_DECODE	128  /* bytes at the start of lj_vm_call, in which it makes its frame */
#define EXIT_DECODE	512
#define STRAIGHT_BYTES	256
#define CALLBACK_BYTES	40
#define STATE_MAX_BYTES (1 << 20) /* largest offset in a GG_State, which has some KiB */

/*
 * lj_vm_call after saveregs: mov $FRAME_C,%ebx; mov %edx,8(%rsp); mov %rdi,%rbp; mov
 * %rdi,0x10(%rsp)
 */
static const uint8_t call_bytes[LUAJIT_CALL_BYTES + 1] =
	"\xbb\1\0\0\0\x89\x54\x24\x08\x48\x89\xfd\x48\x89\x7c\x24";
/* lj_vm_exit_handler: push %r13 ... push %rbp; lea 88(%rsp),%rbp; push %rbp */
static const uint8_t exit_bytes[] = {0x41, 0x55, 0x41, 0x54, 0x41, 0x53, 0x41,
				     0x52, 0x41, 0x51, 0x41, 0x50, 0x57, 0x56,
				     0x55, 0x48, 0x8d, 0x6c, 0x24, 0x58, 0x55};
/* BC_JLOOP: mov (%rcx,%rax,8),%rax; mov TRACE_MCODE(%rax),%rax */
static const uint8_t jloop_bytes[] = {0x48, 0x8b, 0x04, 0xc1, 0x48, 0x8b, 0x40, TRACE_MCODE};
/* saveregs: push %r15; push %r14 */
static const uint8_t save_bytes[] = {0x41, 0x57, 0x41, 0x56};

bool runtime_luajit_find_call(const uint8_t *p, size_t n, size_t *ret_at)
{
	const uint8_t *at = memmem(p, n, call_bytes, LUAJIT_CALL_BYTES);

	if (!at)
		return false;
	*ret_at = (size_t)(at - p);
	return true;
}

/*
 * Returns whether i is a mov between reg and memory at base + displacement. opcode 0x89: to memory,
 * 0x8b: from memory.
 */
static bool is_mov(const struct insn *i, uint8_t opcode, uint8_t reg, uint8_t base)
{
	return insn_is(i, opcode) && (i->rex & 8) && i->mod != 3 && i->base == base &&
	       i->reg == reg;
}

static bool is_mov_at(const struct insn *i, uint8_t opcode, uint8_t reg, uint8_t base,
		      int32_t displacement)
{
	return is_mov(i, opcode, reg, base) && i->displacement == displacement;
}

/* ---- lj_vm_call: how a C frame is made ---- */

/* Reads the code of saveregs before `call`, to find how many registers this code saves. */
static int read_saveregs(const struct luajit_code *c, size_t call, struct pf_luajit *d)
{
	static const uint8_t six[] = {0x55, 0x53, 0x41, 0x57, 0x41, 0x56, 0x41,
				      0x55, 0x41, 0x54, 0x48, 0x83, 0xec, CFRAME_SPACE};
	static const uint8_t four[] = {0x55, 0x53, 0x41, 0x57, 0x41,
				       0x56, 0x48, 0x83, 0xec, CFRAME_SPACE};

	if (call >= sizeof(four) && !memcmp(c->bytes + call - sizeof(four), four, sizeof(four)))
		d->frame_bytes = 8 + 4 * 8 + CFRAME_SPACE;
	else if (call >= sizeof(six) && !memcmp(c->bytes + call - sizeof(six), six, sizeof(six)))
		d->frame_bytes = 8 + 6 * 8 + CFRAME_SPACE;
	else
		return -ENOEXEC;
	return 0;
}

/*
 * Turns displacement(%r14) into an offset in the global state. false: it is outside of that state.
 */
static bool take_offset(const struct pf_luajit *d, int32_t displacement, int32_t *ret)
{
	if (displacement < -STATE_MAX_BYTES || displacement > STATE_MAX_BYTES)
		return false;
	*ret = displacement + d->dispatch;
	return true;
}

static int read_call(const struct luajit_code *c, size_t call, struct pf_luajit *d)
{
	size_t end = call + CALL_DECODE < c->n ? call + CALL_DECODE : c->n;
	int32_t cur_l_at = 0, vmstate_at = 0;
	bool glref = false, cframe = false, cur_l = false, vmstate = false;
	struct insn i;

	for (size_t at = call; at < end && insn_decode(c->bytes + at, c->n - at, &i);
	     at += i.bytes) {
		if (is_mov_at(&i, 0x8b, R14, RBP, STATE_GLREF))
			glref = true;
		else if (insn_is(&i, 0x81) && i.mod == 3 && i.rm == R14 && (i.reg & 7) == 0)
			d->dispatch = (int32_t)i.immediate;
		else if (is_mov_at(&i, 0x89, RSP, RBP, STATE_CFRAME))
			cframe = true;
		else if (!cur_l && is_mov(&i, 0x89, RBP, R14)) {
			cur_l_at = i.displacement;
			cur_l = true;
		} else if (!vmstate && insn_is(&i, 0xc7) && i.base == R14 && i.mod != 3) {
			vmstate_at = i.displacement;
			vmstate = true;
		}
	}
	if (!glref || !cframe || !cur_l || !vmstate || d->dispatch <= 0 ||
	    d->dispatch > STATE_MAX_BYTES || !take_offset(d, cur_l_at, &d->cur_l) ||
	    !take_offset(d, vmstate_at, &d->vmstate))
		return -ENOEXEC;
	return 0;
}

/* ---- traces: how they are entered and left; a build may have no traces ---- */

static int read_exit(const struct luajit_code *c, struct pf_luajit *d)
{
	const uint8_t *p = memmem(c->bytes, c->n, exit_bytes, sizeof(exit_bytes));
	bool base = false, state = false;
	size_t start, end;
	struct insn i;

	if (!p)
		return 0;
	start = (size_t)(p - c->bytes);
	end = start + EXIT_DECODE < c->n ? start + EXIT_DECODE : c->n;
	for (size_t at = start; at < end && insn_decode(c->bytes + at, c->n - at, &i);
	     at += i.bytes) {
		if (!base && is_mov(&i, 0x8b, RDX, R14))
			base = take_offset(d, i.displacement, &d->jit_base);
		state |= is_mov_at(&i, 0x8b, RBP, R14, d->cur_l - d->dispatch);
		/* mov %rcx,%rsp: from now on the C frame is the stack again */
		if (insn_is(&i, 0x89) && i.mod == 3 && i.rm == RSP && i.reg == RCX) {
			d->exit_start = c->address + start;
			d->exit_end = c->address + at + i.bytes;
			return base && state ? 0 : -ENOEXEC;
		}
	}
	return -ENOEXEC;
}

/*
 * Finds the array of traces: the instruction right before the bytes of BC_JLOOP is mov
 * traces(%r14),%rcx.
 */
static int read_traces(const struct luajit_code *c, struct pf_luajit *d)
{
	const uint8_t *p = memmem(c->bytes, c->n, jloop_bytes, sizeof(jloop_bytes));
	struct insn i;

	if (!d->exit_start)
		return 0;
	if (!p || p - c->bytes < 7 || !insn_decode(p - 7, 7, &i) || i.bytes != 7 ||
	    !is_mov(&i, 0x8b, RCX, R14) || !take_offset(d, i.displacement, &d->traces))
		return -ENOEXEC;
	return 0;
}

/* ---- where C frames are made, and which registers are saved at each call ---- */

static bool is_call(const struct insn *i)
{
	return insn_is(i, 0xe8) || (insn_is(i, 0xff) && (i->reg & 7) == 2);
}

static bool is_jump(const struct insn *i)
{
	return insn_is(i, 0xe9) || insn_is(i, 0xeb) ||
	       (i->map == INSN_ONE && (i->opcode & 0xf0) == 0x70) ||
	       (i->map == INSN_0F && (i->opcode & 0xf0) == 0x80);
}

/* Returns whether i is an unconditional jump or a return: execution does not go on behind it. */
static bool is_over(const struct insn *i)
{
	return insn_is(i, 0xe9) || insn_is(i, 0xeb) || insn_is(i, 0xc3) ||
	       (insn_is(i, 0xff) && (i->reg & 7) == 4);
}

/* Returns the number of bytes from `at` to the end of the next jump or return. */
static uint16_t straight_bytes(const struct luajit_code *c, size_t at)
{
	size_t from = at;
	struct insn i;

	while (at < c->n && at - from < STRAIGHT_BYTES &&
	       insn_decode(c->bytes + at, c->n - at, &i)) {
		at += i.bytes;
		if (is_over(&i))
			break;
	}
	return (uint16_t)(at - from);
}

static void read_entries(const struct luajit_code *c, struct pf_luajit *d)
{
	size_t n = 0, from = 2;
	const uint8_t *p;

	memset(d->entries, 0xff, sizeof(d->entries));
	while (n < PF_LUAJIT_ENTRIES && from < c->n) {
		p = memmem(c->bytes + from, c->n - from, save_bytes, sizeof(save_bytes));
		if (!p)
			break;
		from = (size_t)(p - c->bytes) + sizeof(save_bytes);
		/*
		 * Looks for push %rbx. The code that jumps to lj_vm_ffi_callback has already pushed
		 * rbp.
		 */
		if (p[-1] != 0x53)
			continue;
		d->entries[n].start = (uint16_t)(p - c->bytes - 2);
		d->entries[n++].bytes = (uint16_t)(straight_bytes(c, (size_t)(p - c->bytes)) + 2);
	}
	for (; n < PF_LUAJIT_ENTRIES; n++)
		d->entries[n] = (struct pf_luajit_part){0xffff, 0};
}

static bool is_leave(const struct insn *i)
{
	return insn_is(i, 0x83) && i->mod == 3 && i->rm == RSP && (i->reg & 7) == 0 &&
	       i->immediate == CFRAME_SPACE;
}

static void add_quiet(struct pf_luajit *d, size_t start, size_t end)
{
	for (size_t k = 0; k < PF_LUAJIT_QUIETS; k++)
		if (!d->quiets[k].bytes) {
			d->quiets[k] =
				(struct pf_luajit_part){(uint16_t)start, (uint16_t)(end - start)};
			return;
		}
}

/*
 * Finds the code that returns to C. It begins where vmstate becomes ~LJ_VMST_C, and ends with add
 * $CFRAME_SPACE,%rsp. The end of an FFI callback (cont_ffi_callback) jumps to that code right after
 * it has called C.
 */
static void read_leaves(const struct luajit_code *c, struct pf_luajit *d)
{
	size_t n = 0, returns = 0, called = 0, step;
	struct insn i;

	memset(d->leaves, 0xff, sizeof(d->leaves));
	for (size_t at = 0; at < c->n; at += step) {
		step = insn_decode(c->bytes + at, c->n - at, &i) ? i.bytes : 1;
		if (step == 1)
			continue;
		if (is_call(&i))
			called = at + step;
		if (insn_is(&i, 0xc7) && i.mod != 3 && i.base == R14 && i.immediate == ~1 &&
		    i.displacement == d->vmstate - d->dispatch)
			returns = at;
		if (is_leave(&i) && n < PF_LUAJIT_LEAVES) {
			d->leaves[n++] = (uint16_t)at;
			if (returns && at - returns < STRAIGHT_BYTES)
				add_quiet(d, returns, at);
			returns = 0;
		}
		if (n && insn_is(&i, 0xe9) && called && at - called < CALLBACK_BYTES &&
		    at + step + (uint64_t)i.immediate == d->leaves[0])
			add_quiet(d, called, at + step);
	}
}

/* Sets the bit of each byte that is the target of a jump. */
static void find_targets(const struct luajit_code *c, uint8_t *targets)
{
	struct insn i;
	size_t step;

	for (size_t at = 0; at < c->n; at += step) {
		uint64_t to;

		step = insn_decode(c->bytes + at, c->n - at, &i) ? i.bytes : 1;
		if (step == 1 || !is_jump(&i))
			continue;
		to = at + i.bytes + (uint64_t)i.immediate;
		if (to < c->n)
			targets[to / 8] |= 1u << (to & 7);
	}
}

/* Returns the flags after an instruction. flags: the flags before the instruction. */
static unsigned flags_after(unsigned flags, const struct insn *i)
{
	bool to_rbp = (insn_is(i, 0x89) && i->mod == 3 && i->reg == RDX && i->rm == RBP) ||
		      (insn_is(i, 0x8b) && i->mod == 3 && i->reg == RBP && i->rm == RDX);

	if (is_over(i))
		return 0;
	if (i->written & 1u << RBP)
		flags &= ~PF_LUAJIT_BASE_IN_RBP;
	if (i->written & 1u << RBX)
		flags &= ~PF_LUAJIT_PC_SAVED;
	if (to_rbp)
		flags |= PF_LUAJIT_BASE_IN_RBP;
	if (is_mov_at(i, 0x89, RBX, RSP, CF_PC))
		flags |= PF_LUAJIT_PC_SAVED;
	return flags;
}

/*
 * Reads the calls of the interpreter. If there are more than fit, this is an error: a missing call
 * would count as one that does not change L->base.
 */
static int read_calls(const struct luajit_code *c, struct pf_luajit *d)
{
	_cleanup_free_ uint8_t *targets = xcalloc(1, c->n / 8 + 1);
	unsigned flags = 0;
	struct insn i;
	size_t step;

	find_targets(c, targets);
	for (size_t at = 0; at < c->n; at += step) {
		if (targets[at / 8] >> (at & 7) & 1)
			flags = 0;
		step = 1;
		if (!insn_decode(c->bytes + at, c->n - at, &i)) {
			flags = 0;
			continue;
		}
		step = i.bytes;
		flags = flags_after(flags, &i);
		if (!is_call(&i) || !flags)
			continue;
		if (d->n_calls == PF_LUAJIT_CALLS)
			return -ENOEXEC;
		d->calls[d->n_calls++] =
			(struct pf_luajit_call){(uint16_t)(at + step), (uint16_t)flags};
	}
	for (size_t k = d->n_calls; k < PF_LUAJIT_CALLS; k++)
		d->calls[k].offset = 0xffff;
	return 0;
}

int runtime_luajit_read_vm(const struct luajit_code *c, size_t call, struct pf_luajit *d)
{
	struct pf_luajit read = {.vm_start = c->address, .vm_end = c->address + c->n};
	int r;

	if (c->n < LUAJIT_VM_MIN || c->n > LUAJIT_VM_MAX || call >= c->n)
		return -ENOEXEC;
	r = read_saveregs(c, call, &read);
	if (!r)
		r = read_call(c, call, &read);
	if (!r)
		r = read_exit(c, &read);
	if (!r)
		r = read_traces(c, &read);
	if (!r)
		r = read_calls(c, &read);
	if (r)
		return r;
	read_entries(c, &read);
	read_leaves(c, &read);
	*d = read;
	return 0;
}
