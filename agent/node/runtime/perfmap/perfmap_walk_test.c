/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the walk through generated code with a perf map. The walk uses frame pointers. CPython's
 * trampolines have none.
 */
#include "node/runtime/testwalk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/base.h"

#define CODE   0x7f0000000000ull
#define STACK  0x7ffd00000000ull
#define CALLER 0x550000001000ull

static uint8_t code[64];
static uint64_t stack[64];

static bool read_image(uint64_t address, void *to, size_t n)
{
	if (address - CODE < sizeof(code) && n <= sizeof(code) - (address - CODE))
		memcpy(to, code + (address - CODE), n);
	else if (address - STACK < sizeof(stack) && n <= sizeof(stack) - (address - STACK))
		memcpy(to, (uint8_t *)stack + (address - STACK), n);
	else
		return false;
	return true;
}

/*
 * Walks in code that has made a call. rsp is STACK + 0x10, and rbp points to the frame record at
 * STACK + 0x80.
 */
static int unwind(const void *bytes, size_t n, uint64_t trampolines)
{
	const struct pf_perfmap d = {.trampolines = trampolines};

	memset(&host, 0, sizeof(host));
	memset(code, 0x90, sizeof(code));
	memcpy(code + 8, bytes, n);
	host_read = read_image;
	host.walk.ip = CODE + 8;
	host.walk.sp = STACK + 0x10;
	host.walk.bp = STACK + 0x80;
	stack[3] = CALLER;
	stack[16] = STACK + 0x100;
	stack[17] = CALLER + 0x1000;
	return pf_perfmap_unwind(&host, &d, &host.walk.runtimes[0]);
}

/* A trampoline of CPython 3.12 and 3.13: sub $8,%rsp; call *%rcx; add $8,%rsp; ret */
static void a_trampoline_returns_to_its_caller(void **state)
{
	static const uint8_t trampoline[] = {0x48, 0x83, 0xc4, 0x08, 0xc3};

	(void)state;
	assert_int_equal(unwind(trampoline, sizeof(trampoline), 1), 0);
	assert_int_equal(host.walk.ip, CALLER);
	assert_int_equal(host.walk.sp, STACK + 0x20);
	/* the caller's rbp, which this code has not changed */
	assert_int_equal(host.walk.bp, STACK + 0x80);
	/* In a process without Python, the walk does not look for trampolines. */
	assert_int_equal(unwind(trampoline, sizeof(trampoline), 0), 0);
	assert_int_equal(host.walk.ip, CALLER + 0x1000);
	/* The stack word with the caller cannot be read. */
	memset(&host, 0, sizeof(host));
	host.walk = (struct pf_walk){.ip = CODE + 8, .sp = STACK + sizeof(stack) - 8};
	assert_int_not_equal(pf_perfmap_unwind(&host, &(struct pf_perfmap){.trampolines = 1},
					       &host.walk.runtimes[0]),
			     0);
}

static void other_code_keeps_frame_pointers(void **state)
{
	static const uint8_t others[][8] = {
		{0x48, 0x8b, 0xe5, 0x5d, 0xc3}, /* mov %rbp,%rsp; pop %rbp; ret */
		{0x5d, 0xc3}, /* the trampolines of 3.14, which have frame pointers */
		{0x48, 0x83, 0xc4, 0x08, 0x5d, 0xc3}, /* add $8,%rsp; pop %rbp; ret */
		{0x48, 0x83, 0xc4, 0x18, 0xc3},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		assert_int_equal(unwind(others[i], sizeof(others[i]), 1), 0);
		assert_int_equal(host.walk.ip, CALLER + 0x1000);
		assert_int_equal(host.walk.sp, STACK + 0x90);
		assert_int_equal(host.walk.bp, STACK + 0x100);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_trampoline_returns_to_its_caller),
		cmocka_unit_test(other_code_keeps_frame_pointers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
