/* SPDX-License-Identifier: Apache-2.0 */
/*
 * insn decodes x86-64 instructions (AMD64 manual, volume 3): how long an instruction is, where control
 * flow continues, and which general registers it writes. What the instruction computes is not told.
 * parse, runtime and alloc read code with it. Any thread; the bytes may be hostile.
 */
#pragma once

#include "lib/base/base.h"

#define INSN_BYTES_MAX 15
#define INSN_NO_REG    255

enum insn_map { INSN_ONE, INSN_0F, INSN_0F38, INSN_0F3A, INSN_VEX };
struct insn {
	uint8_t bytes;
	uint8_t map; /* enum insn_map; INSN_VEX: any of VEX's and EVEX's */
	uint8_t opcode;
	uint8_t rex;
	bool operand16, lock_or_rep; /* prefixes 66; f0, f2, f3 */
	bool address32;		     /* prefix 67 */
	bool notrack;		     /* prefix 3e: before jumps, the compiler made their table */
	bool segment;		     /* fs or gs: memory is not where its registers say */
	bool has_modrm;
	uint8_t mod, reg, rm; /* of modrm; with their bits of REX: 0..15 */
	uint8_t base;	      /* of a memory operand without index, else INSN_NO_REG */
	int32_t displacement;
	int64_t immediate; /* sign-extended; of jumps: from the end of the instruction */
	uint32_t written;  /* general registers, by number as encoded, that its operands name */
};

/* False: the decoder knows no such instruction, or the instruction ends behind p[n]. */
bool insn_decode(const uint8_t *p, size_t n, struct insn *ret);

static inline bool insn_is(const struct insn *i, uint8_t one_byte_opcode)
{
	return i->map == INSN_ONE && i->opcode == one_byte_opcode;
}
