/* SPDX-License-Identifier: Apache-2.0 */
/* Private to returns.c: where an instruction leads. */
#pragma once

#include "node/insn/insn.h"

static inline bool is_jump(const struct insn *i)
{
	return (i->map == INSN_ONE && (i->opcode == 0xe9 || i->opcode == 0xeb));
}

static inline bool is_branch(const struct insn *i)
{
	uint8_t c = i->opcode;

	if (i->map == INSN_0F)
		return c >= 0x80 && c <= 0x8f;
	return i->map == INSN_ONE && ((c >= 0x70 && c <= 0x7f) || (c >= 0xe0 && c <= 0xe3));
}

static inline bool is_return(const struct insn *i)
{
	return i->map == INSN_ONE && (i->opcode == 0xc3 || i->opcode == 0xc2);
}

static inline bool is_call(const struct insn *i)
{
	return insn_is(i, 0xe8) || (insn_is(i, 0xff) && (i->reg & 6) == 2);
}

static inline bool is_indirect(const struct insn *i)
{
	return insn_is(i, 0xff) && (i->reg & 6) == 4;
}

/* Returns whether the instruction jumps to another function through a pointer of the linker. */
static inline bool is_far(const struct insn *i)
{
	return is_indirect(i) && i->mod == 0 && (i->rm & 7) == 5;
}

static inline bool ends_flow(const struct insn *i)
{
	uint8_t c = i->opcode;

	if (i->map != INSN_ONE)
		return i->map == INSN_0F && c == 0x0b;
	return c == 0xc3 || c == 0xc2 || c == 0xe9 || c == 0xeb || c == 0xf4 || c == 0xcc ||
	       (c == 0xff && ((i->reg & 7) == 4 || (i->reg & 7) == 5));
}
