/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: call frame information of one function, and an ELF image that has it. */
#pragma once

#include "node/parse/testelf.h"

/* The frame of the function: the caller's is at rsp + TEST_CFA, as behind QEMU's prologue. */
#define TEST_CFA 1216

struct test_frames {
	struct {
		uint32_t bytes, id;
		uint8_t version, no_letters, code_align, data_align, return_column;
		uint8_t def_cfa, rsp, cfa[2], ra_at[2], nop;
	} cie;
	struct {
		uint32_t bytes, cie;
		uint64_t start, length;
	} fde;
	uint32_t end; /* of .eh_frame */
} __attribute__((packed));

/* eh: in the form of .eh_frame, else of .debug_frame. */
static inline struct test_frames testgenerated_frames(uint64_t start, uint64_t length, bool eh)
{
	struct test_frames f = {
		.cie = {.id = eh ? 0 : UINT32_MAX,
			.version = 1,
			.code_align = 1,
			.data_align = 0x78, /* -8 */
			.return_column = 16,
			.def_cfa = 0x0c,
			.rsp = 7,
			.cfa = {(TEST_CFA & 0x7f) | 0x80, TEST_CFA >> 7},
			.ra_at = {0x80 | 16, 1}},
		.fde = {.start = start, .length = length},
	};

	f.cie.bytes = sizeof(f.cie) - sizeof(f.cie.bytes);
	f.fde.bytes = sizeof(f.fde) - sizeof(f.fde.bytes);
	f.fde.cie = eh ? sizeof(f.cie) + sizeof(f.fde.bytes) : 0;
	return f;
}

/* Puts an image with these frames into *ret. */
static inline void testgenerated_image(uint64_t start, uint64_t length, bool eh, struct buf *ret)
{
	struct test_frames f = testgenerated_frames(start, length, eh);
	const struct test_section sections[] = {
		{".text", NULL, length, start, SHF_ALLOC | SHF_EXECINSTR},
		{eh ? ".eh_frame" : ".debug_frame", &f, sizeof(f), 0, 0},
		{0},
	};

	testelf_make(sections, ET_EXEC, ret);
}
