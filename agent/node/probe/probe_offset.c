// SPDX-License-Identifier: Apache-2.0
/*
 * probe_offset: finds where a probe is cheap, at a function's first instruction or a little after
 * it. The kernel emulates a few kinds of instructions (arch/x86/kernel/uprobes.c:
 * push_setup_xol_ops, branch_setup_xol_ops). It copies any other instruction, and needs a second
 * trap to step over it. In a virtual machine, that takes ten times as long as the rest of a hit. So
 * the probe moves behind comparisons. These change neither the stack nor the arguments, so the BPF
 * program reads the same values as at the first instruction.
 */
#include "node/probe/sets.h"

#include <unistd.h>

#define REX(b)	   (((b)&0xf0) == 0x40)
#define MOST_MOVES 4
#define MOST_BYTES 11 /* bytes of the longest comparison */

/* Returns whether the instruction is a push of a register, a jump, a call or a nop. */
bool probes_is_emulated(const uint8_t code[static 2])
{
	if (code[0] == 0x41)
		return (code[1] & 0xf8) == 0x50;
	if (code[0] == 0x0f)
		return (code[1] & 0xf0) == 0x80;
	return (code[0] & 0xf8) == 0x50 || (code[0] & 0xf0) == 0x70 || code[0] == 0xeb ||
	       code[0] == 0xe9 || code[0] == 0xe8 || code[0] == 0x90;
}

/*
 * If the instruction is endbr64, or a cmp or test that changes only flags, returns its length; else
 * 0.
 */
static size_t comparison(const uint8_t *code)
{
	size_t rex = REX(code[0]);
	const uint8_t *op = code + rex;
	bool of_registers = op[1] >= 0xc0, is_cmp = (op[1] & 0x38) == 0x38;
	/* the operand is a variable, whose address is rip + displacement */
	bool of_ip = (op[1] & 0xc7) == 0x05;

	if (!memcmp(code, "\xf3\x0f\x1e\xfa", 4)) /* endbr64 */
		return 4;
	switch (op[0]) {
	case 0x84: /* test, cmp of two registers */
	case 0x85:
	case 0x38 ... 0x3b:
		return of_registers ? rex + 2 : 0;
	case 0x80: /* cmp with a byte */
	case 0x83:
		return !is_cmp ? 0 : of_registers ? rex + 3 : of_ip ? rex + 7 : 0;
	case 0x3c: /* cmp, test of %al and %rax with a constant */
	case 0xa8:
		return rex + 2;
	case 0x3d:
	case 0xa9:
		return rex + 5;
	case 0x81: /* cmp with 4 bytes */
		return !is_cmp ? 0 : of_registers ? rex + 6 : of_ip ? rex + 10 : 0;
	}
	return 0;
}

size_t probes_emulated_distance(const uint8_t *code, size_t n)
{
	size_t at = 0;

	for (int moves = 0; moves <= MOST_MOVES && at + MOST_BYTES <= n; moves++) {
		size_t step;

		if (probes_is_emulated(code + at))
			return at;
		step = comparison(code + at);
		if (!step)
			return 0;
		at += step;
	}
	return 0;
}

uint64_t probes_emulated_place(int fd, uint64_t offset)
{
	uint8_t code[48];
	ssize_t n = pread(fd, code, sizeof(code), (off_t)offset);

	return offset + (n > 0 ? probes_emulated_distance(code, n) : 0);
}
