/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies an instruction to the state of rsp and rbp, for the kinds of instructions that prologues
 * and epilogues have. If another instruction writes rsp or rbp, that register is unknown
 * afterwards.
 */
#include "node/parse/code.h"

#define RSP	  4
#define RBP	  5
#define DEPTH_MAX (1 << 28) /* bytes between the CFA and rsp or rbp; beyond it, they are unknown */

const struct code_state parse_code_entered = {.bp_is = CODE_BP_CALLER, .sp_known = true, .sp = 8};

/* ---- states ---- */

bool parse_code_equal(const struct code_state *a, const struct code_state *b)
{
	return a->bp_is == b->bp_is && a->sp_known == b->sp_known && a->root == b->root &&
	       a->sp == b->sp && a->bp == b->bp && a->slot == b->slot;
}

/* Gives equal states the same form, so that they can be compared. */
static void normalize(struct code_state *s)
{
	if (s->sp_known && (s->sp < -DEPTH_MAX || s->sp > DEPTH_MAX))
		s->sp_known = false;
	if (s->bp_is == CODE_BP_FRAME && (s->bp < 8 || s->bp > DEPTH_MAX))
		s->bp_is = CODE_BP_OTHER;
	if (!s->sp_known)
		s->sp = 0;
	if (s->bp_is != CODE_BP_FRAME)
		s->bp = 0;
	/* Memory below rsp is not preserved. */
	if (s->sp_known && s->slot > s->sp)
		s->slot = 0;
}

static void forget(struct code_state *s)
{
	*s = (struct code_state){0};
}

bool parse_code_merge(struct code_state *into, const struct code_state *s)
{
	if (into->root != s->root) {
		forget(into);
		return true;
	}
	if (into->sp_known && s->sp_known && into->sp != s->sp) {
		/* With a frame pointer, rsp may be anywhere (alloca in a loop). */
		if (into->bp_is != CODE_BP_FRAME || s->bp_is != CODE_BP_FRAME || into->bp != s->bp)
			return false;
		into->sp_known = false;
	}
	into->sp_known &= s->sp_known;
	if (into->bp_is != s->bp_is || into->bp != s->bp)
		into->bp_is = CODE_BP_OTHER;
	if (into->slot != s->slot)
		into->slot = 0;
	normalize(into);
	return true;
}

/* ---- what an instruction does ---- */

static void move_sp(struct code_state *s, int64_t by)
{
	if (by < -DEPTH_MAX || by > DEPTH_MAX)
		s->sp_known = false;
	else
		s->sp += by;
	normalize(s);
}

static void do_push(struct code_state *s, const struct insn *i, unsigned reg)
{
	move_sp(s, i->operand16 ? 2 : 8);
	if (reg == RBP && s->bp_is == CODE_BP_CALLER && s->sp_known && !s->slot && !i->operand16)
		s->slot = s->sp;
}

static void do_pop(struct code_state *s, const struct insn *i, unsigned reg)
{
	if (reg == RBP) {
		s->bp_is = s->sp_known && s->slot && s->slot == s->sp && !i->operand16
				   ? CODE_BP_CALLER
				   : CODE_BP_OTHER;
		if (s->bp_is == CODE_BP_CALLER)
			s->slot = 0;
	}
	move_sp(s, i->operand16 ? -2 : -8);
	if (reg == RSP)
		s->sp_known = false;
	normalize(s);
}

static void do_leave(struct code_state *s, const struct insn *i)
{
	s->sp_known = s->bp_is == CODE_BP_FRAME;
	s->sp = s->bp;
	normalize(s);
	do_pop(s, i, RBP);
}

/* Sets rsp or rbp to a base register + offset. The result is known only if the base is. */
static void set_from(struct code_state *s, unsigned to, unsigned base, int64_t offset)
{
	bool known = false;
	int64_t below = 0;

	if (base == RSP) {
		known = s->sp_known;
		below = s->sp - offset;
	} else if (base == RBP) {
		known = s->bp_is == CODE_BP_FRAME;
		below = s->bp - offset;
	}
	if (below < -DEPTH_MAX || below > DEPTH_MAX)
		known = false;
	if (to == RSP) {
		s->sp_known = known;
		s->sp = below;
	} else {
		s->bp_is = known ? CODE_BP_FRAME : CODE_BP_OTHER;
		s->bp = below;
	}
	normalize(s);
}

/*
 * Handles add and sub of a number, lea, mov between registers, and mov of rbp to and from its slot.
 * Returns false for other instructions.
 */
static bool do_known(struct code_state *s, const struct insn *i)
{
	bool wide = i->rex & 8 && !i->address32;
	unsigned group = i->reg & 7;

	if (!wide || !i->has_modrm || i->map != INSN_ONE || i->segment)
		return false;
	if ((i->opcode == 0x83 || i->opcode == 0x81) && i->mod == 3 && i->rm == RSP &&
	    (group == 0 || group == 5)) {
		move_sp(s, group ? i->immediate : -i->immediate);
		return true;
	}
	if (i->mod == 3 && (i->opcode == 0x89 || i->opcode == 0x8b)) {
		unsigned to = i->opcode == 0x89 ? i->rm : i->reg,
			 of = i->opcode == 0x89 ? i->reg : i->rm;

		if (to == RSP || to == RBP)
			set_from(s, to, of, 0);
		return true;
	}
	if (i->opcode == 0x8d && i->mod != 3 && (i->reg == RSP || i->reg == RBP)) {
		set_from(s, i->reg, i->base, i->displacement);
		return true;
	}
	if (i->reg != RBP || i->mod == 3 || i->base != RSP || !s->sp_known)
		return false;
	if (i->opcode == 0x89 && s->bp_is == CODE_BP_CALLER && !s->slot) {
		if (s->sp - i->displacement > 8 && i->displacement >= 0)
			s->slot = s->sp - i->displacement;
		return true;
	}
	if (i->opcode == 0x8b && s->slot && s->sp - i->displacement == s->slot) {
		s->bp_is = CODE_BP_CALLER;
		s->slot = s->bp = 0;
		return true;
	}
	return false;
}

/*
 * Returns whether the instruction clears rbp while nothing is on the stack. In this way, code marks
 * the outermost frame (psABI).
 */
static bool clears_rbp(const struct code_state *s, const struct insn *i)
{
	return s->sp_known && s->sp == 8 && s->bp_is == CODE_BP_CALLER &&
	       (insn_is(i, 0x31) || insn_is(i, 0x33)) && i->mod == 3 && i->reg == RBP &&
	       i->rm == RBP;
}

static void do_stack(struct code_state *s, const struct insn *i, bool *ret_done)
{
	unsigned opcode_reg = (i->opcode & 7) | (i->rex & 1) << 3, group = i->reg & 7;
	uint8_t c = i->opcode;

	*ret_done = true;
	if (i->map == INSN_0F && (c == 0xa0 || c == 0xa8))
		do_push(s, i, INSN_NO_REG);
	else if (i->map == INSN_0F && (c == 0xa1 || c == 0xa9))
		do_pop(s, i, INSN_NO_REG);
	else if (i->map != INSN_ONE)
		*ret_done = false;
	else if (c >= 0x50 && c <= 0x57)
		do_push(s, i, opcode_reg);
	else if (c >= 0x58 && c <= 0x5f)
		do_pop(s, i, opcode_reg);
	else if (c == 0x68 || c == 0x6a || c == 0x9c || (c == 0xff && group == 6))
		do_push(s, i, INSN_NO_REG);
	else if (c == 0x9d || c == 0x8f)
		do_pop(s, i, c == 0x8f && i->mod == 3 ? i->rm : INSN_NO_REG);
	else if (c == 0xc9)
		do_leave(s, i);
	else if (c == 0xc8)
		forget(s);
	else
		*ret_done = false;
}

void parse_code_step(struct code_state *s, const struct insn *i)
{
	bool done;

	if (s->root)
		return;
	if (clears_rbp(s, i)) {
		*s = (struct code_state){.root = true};
		return;
	}
	do_stack(s, i, &done);
	if (done || do_known(s, i))
		return;
	if (i->written & 1u << RSP)
		s->sp_known = false;
	if (i->written & 1u << RBP)
		s->bp_is = CODE_BP_OTHER;
	normalize(s);
}
