/* SPDX-License-Identifier: Apache-2.0 */
/*
 * insn decodes x86-64 instructions (AMD64 manual, volume 3). It finds the length of an instruction,
 * where control flow continues, and which general registers the instruction writes. It does not
 * find what the instruction computes. The modules parse, runtime and alloc read machine code with
 * insn. Any thread may call it, and the bytes may be hostile.
 */
#pragma once

#include "lib/base/base.h"

#define INSN_BYTES_MAX 15 /* bytes of one instruction of x86-64 */
#define INSN_NO_REG    255

enum insn_map { INSN_ONE, INSN_0F, INSN_0F38, INSN_0F3A, INSN_VEX };
struct insn {
	uint8_t bytes;
	/* map of the opcode (enum insn_map); INSN_VEX for any instruction with VEX or EVEX */
	uint8_t map;
	uint8_t opcode;
	uint8_t rex;
	bool operand16, lock_or_rep; /* operand16: prefix 66; lock_or_rep: prefix f0, f2 or f3 */
	bool address32;		     /* prefix 67 */
	/*
	 * prefix 3e; on an indirect jump, it means that the compiler made the table of the targets
	 */
	bool notrack;
	/* prefix fs or gs: the base of that segment is added to the address */
	bool segment;
	bool has_modrm;
	/* fields of the ModRM byte; reg and rm with their bits of REX: 0..15 */
	uint8_t mod, reg, rm;
	/* base register of a memory operand without an index; else INSN_NO_REG */
	uint8_t base;
	int32_t displacement;
	/* sign-extended; in a jump: the target, relative to the end of the instruction */
	int64_t immediate;
	/*
	 * one bit for each general register that the instruction writes as an operand: bit n for
	 * the register whose number in the encoding is n
	 */
	uint32_t written;
};

/* Returns false if the decoder does not know the instruction, or if it is longer than n bytes. */
bool insn_decode(const uint8_t *p, size_t n, struct insn *ret);

static inline bool insn_is(const struct insn *i, uint8_t one_byte_opcode)
{
	return i->map == INSN_ONE && i->opcode == one_byte_opcode;
}

/* Returns whether the instruction fills the space before a function or a loop: nop, int3. */
static inline bool insn_is_padding(const struct insn *i)
{
	return insn_is(i, 0x90) || insn_is(i, 0xcc) || (i->map == INSN_0F && i->opcode == 0x1f);
}
