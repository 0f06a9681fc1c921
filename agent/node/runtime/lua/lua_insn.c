/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes the first instructions of Lua's compiled functions, to find where they keep their first
 * argument, the lua_State. Runs on the reader's thread.
 */
#include "node/insn/insn.h"
#include "node/runtime/lua/lua.h"

#define PROLOGUE_INSNS 48 /* compilers mix the prologue with other instructions */
#define TOUCH_INSNS    8
#define RSP	       4
#define RBP	       5
#define RDI	       7

static bool is_preserved(unsigned reg)
{
	/* rbx, rbp, r12 to r15: psABI 3.2.1 */
	return reg == 3 || reg == RBP || (reg >= 12 && reg <= 15);
}

/* Handles a mov of %rdi to any place. */
static void step_home(const struct insn *i, struct lua_prologue *p)
{
	if (i->map != INSN_ONE || !(i->rex & 8))
		return;
	if (insn_is(i, 0x8b) && i->mod == 3 && i->rm == RDI && is_preserved(i->reg)) {
		p->home = LUA_HOME_REG;
		p->home_at = i->reg;
	} else if (insn_is(i, 0x89) && i->reg == RDI && i->mod == 3 && is_preserved(i->rm)) {
		p->home = LUA_HOME_REG;
		p->home_at = i->rm;
	} else if (insn_is(i, 0x89) && i->reg == RDI && i->mod != 3 && i->base == RSP) {
		p->home = LUA_HOME_CFA;
		p->home_at = (int32_t)p->frame - i->displacement;
	} else if (insn_is(i, 0x89) && i->reg == RDI && i->mod != 3 && i->base == RBP) {
		p->home = LUA_HOME_RBP;
		p->home_at = i->displacement;
	}
}

static void step_frame(const struct insn *i, struct lua_prologue *p, size_t end)
{
	unsigned reg = (i->opcode & 7) + (i->rex & 1) * 8;

	if (i->map != INSN_ONE)
		return;
	if (i->opcode >= 0x50 && i->opcode <= 0x57) {
		p->frame += 8;
		if (!p->saved[reg])
			p->saved[reg] = p->frame;
		p->bytes = end;
	} else if ((i->opcode == 0x83 || i->opcode == 0x81) && i->mod == 3 && i->rm == RSP &&
		   (i->reg & 7) == 5 && i->immediate > 0 && i->immediate < INT32_MAX / 2) {
		p->frame += (uint32_t)i->immediate; /* sub */
		p->bytes = end;
	}
}

/*
 * Returns whether the instruction ends the prologue: the next instruction is not run after it, or
 * it pops what was pushed.
 */
static bool ends(const struct insn *i)
{
	uint8_t c = i->opcode;

	if (i->map != INSN_ONE)
		return false;
	return (c >= 0x58 && c <= 0x5f) || c == 0xc3 || c == 0xe9 || c == 0xeb || c == 0xc9 ||
	       (c == 0xff && (i->reg & 7) == 4);
}

void runtime_lua_prologue(const uint8_t *code, size_t n, struct lua_prologue *ret)
{
	struct lua_prologue p = {.frame = 8};
	size_t at = 0;

	for (unsigned k = 0; k < PROLOGUE_INSNS; k++) {
		bool called;
		struct insn i;

		if (!insn_decode(code + at, n - at, &i) || ends(&i))
			break;
		at += i.bytes;
		called = insn_is(&i, 0xe8) || (insn_is(&i, 0xff) && (i.reg & 7) == 2);
		if (p.frame < INT32_MAX / 2)
			step_frame(&i, &p, at);
		if (!p.home)
			step_home(&i, &p);
		if (p.home ? called : called || i.written & 1u << RDI)
			break;
	}
	*ret = p;
}

size_t runtime_lua_insn_bytes(const uint8_t *code, size_t n)
{
	struct insn i;

	return insn_decode(code, n, &i) ? i.bytes : 1;
}

size_t runtime_lua_indirect_call(const uint8_t *code, size_t n)
{
	size_t at = 0;
	struct insn i;

	while (insn_decode(code + at, n - at, &i)) {
		at += i.bytes;
		if (insn_is(&i, 0xff) && (i.reg & 7) == 2)
			return at;
		if (insn_is(&i, 0xc3))
			break;
	}
	return 0;
}

bool runtime_lua_touches(const uint8_t *code, size_t n, size_t at, int32_t displacement)
{
	struct insn i;

	for (unsigned k = 0; k < TOUCH_INSNS && at < n; k++) {
		if (!insn_decode(code + at, n - at, &i) || insn_is(&i, 0xc3) || insn_is(&i, 0xe8))
			break;
		at += i.bytes;
		if (i.has_modrm && i.mod != 3 && i.displacement == displacement)
			return true;
		if (insn_is(&i, 0xe9) || insn_is(&i, 0xeb))
			at += (size_t)i.immediate;
	}
	return false;
}

size_t runtime_lua_or_store(const uint8_t *code, size_t n, int32_t displacement, int64_t value)
{
	size_t at = 0;
	struct insn i;

	while (insn_decode(code + at, n - at, &i)) {
		at += i.bytes;
		if ((insn_is(&i, 0x83) || insn_is(&i, 0x80)) && (i.reg & 7) == 1 && i.mod != 3 &&
		    i.displacement == displacement && i.immediate == value)
			return at;
	}
	return 0;
}
