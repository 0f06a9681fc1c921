/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usdt: a USDT probe as a function, without systemtap's headers. The format of the note is
 * https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation.
 *
 * USDT_PROBE("provider", "name", "arguments") makes a hidden function probe_name() of two
 * instructions, `nop` and `ret`, and a counter probe_name_semaphore. The note says that the probe
 * lies at the nop. There the arguments of the C call are still in the registers of the calling
 * convention, so the note can name them: the first six are rdi, rsi, rdx, rcx, r8, r9. "8@%rdi" is
 * an unsigned value of 8 bytes, "4@%esi" one of 4. The function has unwind information, because
 * stacks are taken in it. While a profiler is attached to a probe, the kernel keeps its semaphore
 * above 0.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifndef __x86_64__
#error "The notes name registers of x86-64."
#endif

/*
 * Besides the probe's address, a note has the address of _.stapsdt.base, so that a reader can undo
 * what prelink has changed.
 */
#define USDT_PROBE(provider, name, arguments)                                                      \
	__asm__(".pushsection .text\n"                                                             \
		".p2align 4\n"                                                                     \
		".globl probe_" name "\n"                                                          \
		".hidden probe_" name "\n"                                                         \
		".type probe_" name ", @function\n"                                                \
		"probe_" name ":\n"                                                                \
		".cfi_startproc\n"                                                                 \
		"nop\n"                                                                            \
		"ret\n"                                                                            \
		".cfi_endproc\n"                                                                   \
		".size probe_" name ", . - probe_" name "\n"                                       \
		".popsection\n"                                                                    \
		".pushsection .probes, \"aw\", @progbits\n"                                        \
		".balign 2\n"                                                                      \
		".globl probe_" name "_semaphore\n"                                                \
		".hidden probe_" name "_semaphore\n"                                               \
		".type probe_" name "_semaphore, @object\n"                                        \
		".size probe_" name "_semaphore, 2\n"                                              \
		"probe_" name "_semaphore:\n"                                                      \
		".2byte 0\n"                                                                       \
		".popsection\n"                                                                    \
		".ifndef _.stapsdt.base\n"                                                         \
		".pushsection .stapsdt.base, \"aG\", @progbits, .stapsdt.base, comdat\n"           \
		".weak _.stapsdt.base\n"                                                           \
		".hidden _.stapsdt.base\n"                                                         \
		"_.stapsdt.base: .space 1\n"                                                       \
		".size _.stapsdt.base, 1\n"                                                        \
		".popsection\n"                                                                    \
		".endif\n"                                                                         \
		".pushsection .note.stapsdt, \"\", @note\n"                                        \
		".balign 4\n"                                                                      \
		".4byte 2f - 1f, 4f - 3f, 3\n"                                                     \
		"1: .asciz \"stapsdt\"\n"                                                          \
		"2: .balign 4\n"                                                                   \
		"3: .8byte probe_" name ", _.stapsdt.base, probe_" name "_semaphore\n"             \
		".asciz \"" provider "\", \"" name "\", \"" arguments "\"\n"                       \
		"4: .balign 4\n"                                                                   \
		".popsection\n")

/* Whether a profiler is attached to the probe of this semaphore. */
static inline bool usdt_wanted(const uint16_t *semaphore)
{
	return __atomic_load_n(semaphore, __ATOMIC_RELAXED) != 0;
}
