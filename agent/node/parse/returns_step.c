/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds before an instruction, if it is known what holds after it: where the CFA and the
 * caller's rbp are. A return has the return address at rsp and the caller's rbp in rbp; from there,
 * returns.c goes backwards. Each function here replaces, in the frame, what the instruction sets by
 * what it sets it to. What cannot be said in the frame's form is FRAME_NONE, or an unknown rbp.
 */
#include "node/parse/returns.h"

#define RAX	  0
#define RCX	  1
#define RDX	  2
#define RBX	  3
#define RSP	  4
#define RBP	  5
#define RSI	  6
#define RDI	  7
#define BIT(reg)  (1u << (reg))
#define DEPTH_MAX (1 << 28) /* bytes between the CFA and a register; beyond it, it is not known */

/* registers that a called function leaves as they are (psABI) */
#define PRESERVED (BIT(RBX) | BIT(RSP) | BIT(RBP) | 0xf000u)

const struct code_frame parse_frame_entered = {
	.known = FRAME_KNOWN, .base = RSP, .offset = 8, .bp = FRAME_BP_SAME};

/* ---- frames ---- */

bool parse_frame_equal(const struct code_frame *a, const struct code_frame *b)
{
	return a->known == b->known && a->base == b->base && a->in_memory == b->in_memory &&
	       a->offset == b->offset && a->extra == b->extra && a->bp == b->bp &&
	       a->slot == b->slot && a->called == b->called && a->returns == b->returns;
}

static void set_none(struct code_frame *f)
{
	*f = (struct code_frame){.known = FRAME_NONE};
}

/* The instruction writes rbp, and not the caller's. If that one is in its slot, it stays there. */
static void lose_bp(struct code_frame *f)
{
	if (f->bp == FRAME_BP_SAME)
		f->bp = FRAME_BP_UNKNOWN;
}

void parse_frame_merge(struct code_frame *into, const struct code_frame *f)
{
	if (f->known == FRAME_UNSEEN || into->known == FRAME_NONE)
		return;
	into->called |= f->called;
	into->returns |= f->returns;
	if (into->known == FRAME_UNSEEN) {
		*into = *f;
	} else if (f->known == FRAME_NONE || into->base != f->base ||
		   into->in_memory != f->in_memory || into->offset != f->offset ||
		   into->extra != f->extra) {
		set_none(into);
	} else if (into->bp != f->bp || into->slot != f->slot) {
		into->bp = FRAME_BP_UNKNOWN;
		into->slot = 0;
	}
}

/* The base register was `reg` + `by`, before the instruction that sets it. */
static void set_base(struct code_frame *f, unsigned reg, int64_t by)
{
	int64_t offset = f->offset + by;

	if (reg > 15 || offset < -DEPTH_MAX || offset > DEPTH_MAX) {
		set_none(f);
		return;
	}
	f->base = reg;
	f->offset = offset;
}

/* The base register was loaded from *(reg + at). */
static void load_base(struct code_frame *f, unsigned reg, int64_t at)
{
	if (f->in_memory || reg > 15) {
		set_none(f);
		return;
	}
	f->in_memory = true;
	f->extra = f->offset;
	f->offset = 0;
	set_base(f, reg, at);
}

/*
 * How far below the CFA reg + at is. 0: not known, or not below the return address.
 */
static int32_t below_cfa(const struct code_frame *f, unsigned reg, int64_t at)
{
	int64_t slot = f->offset - at;

	return f->known == FRAME_KNOWN && !f->in_memory && f->base == reg && slot >= 16 &&
			       slot <= DEPTH_MAX
		       ? slot
		       : 0;
}

/* ---- instructions ---- */

/* The instruction loads rbp from *(reg + at), where f holds before it. */
static void load_bp(struct code_frame *f, unsigned reg, int64_t at)
{
	if (f->bp != FRAME_BP_SAME)
		return;
	f->slot = below_cfa(f, reg, at);
	f->bp = f->slot ? FRAME_BP_SLOT : FRAME_BP_UNKNOWN;
}

/*
 * The instruction stores 8 bytes at *(reg + at): `value`, or something that is no register. f holds
 * before it, but for what it stores.
 */
static void store(struct code_frame *f, unsigned reg, int64_t at, unsigned value)
{
	int64_t apart = f->offset - at;

	if (f->bp == FRAME_BP_SLOT && below_cfa(f, reg, at) == f->slot) {
		f->slot = 0;
		f->bp = value == RBP ? FRAME_BP_SAME : FRAME_BP_UNKNOWN;
	}
	if (!f->in_memory || f->base != reg || apart <= -8 || apart >= 8)
		return;
	if (apart || value > 15) {
		set_none(f);
		return;
	}
	f->in_memory = false;
	f->base = value;
	f->offset = f->extra;
	f->extra = 0;
}

static void before_push(struct code_frame *f, const struct insn *i, unsigned value)
{
	if (i->operand16) {
		set_none(f);
		return;
	}
	if (f->base == RSP)
		set_base(f, RSP, -8);
	if (f->known == FRAME_KNOWN)
		store(f, RSP, -8, value);
}

static void before_pop(struct code_frame *f, const struct insn *i, unsigned to)
{
	if (i->operand16) {
		set_none(f);
		return;
	}
	if (to == f->base)
		load_base(f, RSP, 0);
	else if (f->base == RSP)
		set_base(f, RSP, 8);
	if (to == RBP && f->known == FRAME_KNOWN)
		load_bp(f, RSP, 0);
}

static void before_leave(struct code_frame *f, const struct insn *i)
{
	before_pop(f, i, RBP);
	if (f->known == FRAME_KNOWN && f->base == RSP)
		set_base(f, RBP, 0);
}

/* The instruction sets `to` to reg + by. */
static void before_move(struct code_frame *f, unsigned to, unsigned reg, int64_t by)
{
	if (to == RBP)
		lose_bp(f);
	if (to == f->base)
		set_base(f, reg, by);
}

/* Handles 8-byte moves, lea, and add and sub of a number. Returns false for others. */
static bool before_known(struct code_frame *f, const struct insn *i)
{
	unsigned group = i->reg & 7;

	if (!(i->rex & 8) || i->address32 || !i->has_modrm || i->map != INSN_ONE || i->segment)
		return false;
	if ((i->opcode == 0x83 || i->opcode == 0x81) && i->mod == 3 && (group == 0 || group == 5)) {
		before_move(f, i->rm, i->rm, group ? -i->immediate : i->immediate);
	} else if (i->opcode == 0x8d && i->mod != 3) {
		before_move(f, i->reg, i->base, i->displacement);
	} else if (i->opcode == 0x89 && i->mod == 3) {
		before_move(f, i->rm, i->reg, 0);
	} else if (i->opcode == 0x8b && i->mod == 3) {
		before_move(f, i->reg, i->rm, 0);
	} else if (i->opcode == 0x89) {
		store(f, i->base, i->displacement, i->reg);
	} else if (i->opcode == 0x8b) {
		if (i->reg == f->base)
			load_base(f, i->base, i->displacement);
		if (i->reg == RBP && f->known == FRAME_KNOWN)
			load_bp(f, i->base, i->displacement);
	} else {
		return false;
	}
	return true;
}

static bool before_stack(struct code_frame *f, const struct insn *i)
{
	unsigned opcode_reg = (i->opcode & 7) | (i->rex & 1) << 3, group = i->reg & 7;
	uint8_t c = i->opcode;

	if (i->map == INSN_0F && (c == 0xa0 || c == 0xa8))
		before_push(f, i, INSN_NO_REG);
	else if (i->map == INSN_0F && (c == 0xa1 || c == 0xa9))
		before_pop(f, i, INSN_NO_REG);
	else if (i->map != INSN_ONE)
		return false;
	else if (c >= 0x50 && c <= 0x57)
		before_push(f, i, opcode_reg);
	else if (c >= 0x58 && c <= 0x5f)
		before_pop(f, i, opcode_reg);
	else if (c == 0x68 || c == 0x6a || c == 0x9c || (c == 0xff && group == 6))
		before_push(f, i, INSN_NO_REG);
	else if (c == 0x9d || c == 0x8f)
		before_pop(f, i, c == 0x8f && i->mod == 3 ? i->rm : INSN_NO_REG);
	else if (c == 0xc9)
		before_leave(f, i);
	else
		return false;
	return true;
}

/* Registers that an instruction writes although they are no operands of it. */
static uint32_t hidden_one(const struct insn *i)
{
	uint8_t c = i->opcode, group = i->reg & 7;

	if (c < 0x38 && (c & 7) >= 4 && (c & 7) <= 5) /* arithmetic with rax */
		return BIT(RAX);
	if ((c & 0xfe) == 0xf6)
		return group >= 4 ? BIT(RAX) | BIT(RDX) : 0;
	if (c >= 0xa4 && c <= 0xaf && (c & 0xfe) != 0xa8) /* string instructions */
		return BIT(RAX) | BIT(RCX) | BIT(RSI) | BIT(RDI);
	if (c == 0x6c || c == 0x6d || c == 0x6e || c == 0x6f)
		return BIT(RCX) | BIT(RSI) | BIT(RDI);
	if (c >= 0xe0 && c <= 0xe2)
		return BIT(RCX);
	if ((c >= 0x91 && c <= 0x99) || c == 0x9f || (c & 0xfe) == 0xa0 || c == 0xd7 ||
	    (c & 0xf6) == 0xe4)
		return BIT(RAX) | BIT(RDX);
	return 0;
}

static uint32_t hidden(const struct insn *i)
{
	uint8_t c = i->opcode;

	if (i->map == INSN_ONE)
		return hidden_one(i);
	if (i->map != INSN_0F) /* pcmpestri and its kin */
		return c >= 0x60 && c <= 0x63 ? BIT(RCX) : 0;
	if (c == 0x05) /* syscall */
		return BIT(RAX) | BIT(RCX) | BIT(11);
	if (c == 0xa2 || c == 0x01 || (c >= 0x30 && c <= 0x34)) /* cpuid, xgetbv, rdtsc */
		return BIT(RAX) | BIT(RBX) | BIT(RCX) | BIT(RDX);
	return c == 0xb0 || c == 0xb1 || c == 0xc7 ? BIT(RAX) | BIT(RDX) : 0;
}

static void before_call(struct code_frame *f)
{
	if (!(BIT(f->base) & PRESERVED))
		set_none(f);
}

uint32_t parse_frame_written(const struct insn *i)
{
	uint32_t enter = insn_is(i, 0xc8) ? BIT(RSP) | BIT(RBP) : 0;

	return i->written | hidden(i) | enter;
}

static void before_other(struct code_frame *f, const struct insn *i)
{
	uint32_t written = parse_frame_written(i);

	if (written & BIT(RBP))
		lose_bp(f);
	if (written & BIT(f->base))
		set_none(f);
}

void parse_frame_before(struct code_frame *f, const struct insn *i)
{
	if (f->known != FRAME_KNOWN)
		return;
	if (insn_is(i, 0xe8) && i->immediate == 0) /* how 32-bit code finds its own address */
		before_push(f, i, INSN_NO_REG);
	else if (insn_is(i, 0xe8) || (insn_is(i, 0xff) && (i->reg & 6) == 2))
		before_call(f);
	else if (!before_stack(f, i) && !before_known(f, i))
		before_other(f, i);
	if (f->known == FRAME_NONE)
		set_none(f);
}

/* ---- rules ---- */

/* Returns the DWARF number of a register (psABI 3.6.2). */
static uint8_t dwarf_register(unsigned reg)
{
	static const uint8_t numbers[8] = {0, 2, 1, 3, 7, 6, 4, 5};

	return reg < 8 ? numbers[reg] : reg;
}

uint16_t parse_frame_rule(struct rows *rows, const struct code_frame *f)
{
	struct pf_rule rule = {.cfa_offset = f->offset, .extra = f->extra};
	bool sp = f->base == RSP, bp = f->base == RBP;

	/* the CFA is above what the rule begins with, but for a register that is not rsp */
	if (f->known != FRAME_KNOWN || (f->in_memory ? f->extra : f->offset) < 8)
		return PF_RULE_GAP;
	if (f->in_memory)
		rule.cfa = sp ? PF_CFA_DEREF_RSP : bp ? PF_CFA_DEREF_RBP : PF_CFA_DEREF_REG;
	else
		rule.cfa = sp ? PF_CFA_RSP : bp ? PF_CFA_RBP : PF_CFA_REG;
	/* also rsp and rbp, which other rules do not name: so alloc/entry.c tells these rules */
	rule.reg = dwarf_register(f->base);
	if (f->bp == FRAME_BP_SAME)
		rule.fp = PF_FP_SAME;
	else if (f->bp == FRAME_BP_SLOT)
		rule.fp = PF_FP_CFA, rule.fp_offset = -f->slot;
	else
		rule.fp = PF_FP_UNKNOWN;
	return parse_rows_rule(rows, &rule);
}
