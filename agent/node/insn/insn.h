/* SPDX-License-Identifier: Apache-2.0 */
/*
 * insn decodes x86-64 instructions (AMD64 manual, volume 3). It says how long an instruction is,
 * where control flow continues, and which general registers it writes. It does not say what the
 * instruction computes. parse, runtime and alloc read code with it. Any thread may call it, and the
 * bytes may be hostile.
 */
#pragma once

#include "lib/base/base.h"

#define INSN_BYTES_MAX 15
#define INSN_NO_REG    255

enum insn_map { INSN_ONE, INSN_0F, INSN_0F38, INSN_0F3A, INSN_VEX };
struct insn {
	uint8_t bytes;
	uint8_t map; /* enum insn_map; INSN_VEX: any map of VEX and EVEX */
	uint8_t opcode;
	uint8_t rex;
	bool operand16, lock_or_rep; /* prefixes 66; f0, f2, f3 */
	bool address32;		     /* prefix 67 */
	/* prefix 3e: on a jump, it says that the compiler made the table */
	bool notrack;
	/* prefix fs or gs: the address is not what the registers give */
	bool segment;
	bool has_modrm;
	uint8_t mod, reg, rm; /* of modrm; reg and rm include their bits of REX: 0..15 */
	uint8_t base;	      /* of a memory operand without an index; else INSN_NO_REG */
	int32_t displacement;
	int64_t immediate; /* sign-extended; of a jump: relative to the end of the instruction */
	/* a bit for each general register that is a written operand, numbered as encoded */
	uint32_t written;
};

/* Returns false if the decoder does not know the instruction, or if it ends after p[n]. */
bool insn_decode(const uint8_t *p, size_t n, struct insn *ret);

static inline bool insn_is(const struct insn *i, uint8_t one_byte_opcode)
{
	return i->map == INSN_ONE && i->opcode == one_byte_opcode;
}
