// SPDX-License-Identifier: Apache-2.0
/*
 * First bytes of functions, most of them of real allocators, and the offset at which the agent puts
 * its probe into each: behind endbr64 and comparisons.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "node/probe/sets.h"

struct beginning {
	const char *of;
	uint8_t code[48];
	size_t distance;
};
static const struct beginning beginnings[] = {
	{"malloc of glibc 2.36: push %r12", {0x41, 0x54, 0x55, 0x53}, 0},
	{"free: test %rdi,%rdi; je", {0x48, 0x85, 0xff, 0x0f, 0x84, 0xbf, 0, 0, 0, 0x55}, 3},
	{"memalign: cmpb $0x0,x(%rip); je",
	 {0x80, 0x3d, 0x71, 0x0e, 0x14, 0, 0, 0x74, 0x07, 0xe9},
	 7},
	{"endbr64; push %rbp", {0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5}, 4},
	{"endbr64; cmpq $0x0,x(%rip); jne",
	 {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0x3d, 1, 2, 3, 4, 0, 0x75, 0x10},
	 12},
	{"pymalloc's copies: cmp $0x51de50,%rax; jne",
	 {0x48, 0x3d, 0x50, 0xde, 0x51, 0, 0x0f, 0x85, 0xc4, 0, 0, 0},
	 6},
	{"test $0x1,%al; je", {0xa8, 0x01, 0x74, 0x07}, 2},
	{"cmp $0x10,%rdi; ja", {0x48, 0x83, 0xff, 0x10, 0x77, 0x20}, 4},
	{"sub $0x18,%rsp: it moves the stack", {0x48, 0x83, 0xec, 0x18, 0x55}, 0},
	{"mov %rsi,%rdi: it moves an argument", {0x48, 0x89, 0xf7, 0x55}, 0},
	{"cmp $0x0,(%rdi): it may fault", {0x80, 0x3f, 0x00, 0x74, 0x07}, 0},
	{"test %rdi,%rdi; sub $8,%rsp", {0x48, 0x85, 0xff, 0x48, 0x83, 0xec, 0x08}, 0},
	{"ret", {0xc3}, 0},
};

static void probes_move_over_comparisons_alone(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++) {
		const struct beginning *b = &beginnings[i];
		size_t is = probes_emulated_distance(b->code, sizeof(b->code));

		if (is != b->distance)
			fail_msg("%s: %zu", b->of, is);
	}
	/* Too few bytes could be read. */
	assert_int_equal(probes_emulated_distance(beginnings[1].code, 8), 0);
	assert_int_equal(probes_emulated_distance(beginnings[1].code, 0), 0);
	assert_int_equal(probes_emulated_place(-1, 1234), 1234);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probes_move_over_comparisons_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
