// SPDX-License-Identifier: Apache-2.0
/*
 * Compares the lengths of instructions with those of objdump, and checks what the decoder returns
 * for single instructions.
 */
#include "node/insn/insn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LIBRARIES "/usr/lib/x86_64-linux-gnu/"

/*
 * Returns whether the test skips this line of objdump: bytes that objdump cannot decode (tables
 * between functions), and two cases in which objdump differs from the decoder. It shows fwait and
 * the next instruction as one, and it knows a jump of 16 bits, on which processors disagree.
 */
static bool is_data(const char *text)
{
	static const char *const words[] = {"(bad)", "rex", ".byte", "jmpw", "callw"};

	for (size_t k = 0; k < ARRAY_SIZE(words); k++)
		if (strstr(text, words[k]))
			return true;
	return false;
}

/*
 * Reads lines of `objdump -d`: address, bytes, and the instruction. It skips instructions that
 * objdump does not know.
 */
static size_t compare_lengths(const char *path, size_t *ret_different)
{
	_cleanup_free_ char *command = xasprintf("objdump -d -w %s", path);
	FILE *out;
	char *line = NULL;
	size_t cap = 0, n = 0, different = 0;

	out = popen(command, "r");
	assert_non_null(out);
	while (getline(&line, &cap, out) > 0) {
		char *p = strchr(line, ':');
		uint8_t bytes[32] = {0};
		size_t n_bytes = 0;
		struct insn i;
		char *text;

		if (!p || p[1] != '\t' || line[0] != ' ')
			continue;
		text = strchr(p + 2, '\t');
		if (!text || is_data(text))
			continue;
		for (p += 2; p < text && n_bytes < 16;) {
			char *end;

			bytes[n_bytes++] = strtoul(p, &end, 16);
			for (p = end; *p == ' ';)
				p++;
		}
		n++;
		if (bytes[0] == 0x9b)
			continue;
		if (!insn_decode(bytes, sizeof(bytes), &i) || i.bytes != n_bytes) {
			if (different++ < 20)
				print_error("%s: %s", path, line);
		} else if (insn_decode(bytes, n_bytes - 1, &i) && n_bytes == i.bytes) {
			different++;
		}
	}
	free(line);
	pclose(out);
	*ret_different = different;
	return n;
}

static void instructions_have_objdumps_lengths(void **state)
{
	static const char *const files[] = {LIBRARIES "libc.so.6", "/usr/bin/python3",
					    LIBRARIES "libcrypto.so.3"};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(files); k++) {
		size_t different, n;

		if (access(files[k], R_OK) < 0)
			continue;
		n = compare_lengths(files[k], &different);
		print_message("%s: %zu instructions, %zu different\n", files[k], n, different);
		assert_true(n > 100000);
		assert_int_equal(different, 0);
	}
}

/* ---- single instructions ---- */

#define DECODE(i, ...) decode((const uint8_t[]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}), i)

static void decode(const uint8_t *p, size_t n, struct insn *ret)
{
	assert_true(insn_decode(p, n, ret));
	assert_int_equal(ret->bytes, n);
}

static void operands_are_told(void **state)
{
	struct insn i;

	(void)state;
	DECODE(&i, 0x4c, 0x8b, 0x6c, 0x24, 0x10); /* mov r13, [rsp + 16] */
	assert_true(insn_is(&i, 0x8b));
	assert_int_equal(i.reg, 13);
	assert_int_equal(i.base, 4);
	assert_int_equal(i.displacement, 16);
	assert_int_equal(i.written, 1u << 13);
	DECODE(&i, 0x8b, 0x44, 0xcd, 0xf8); /* mov eax, [rbp + 8 * rcx - 8], with an index */
	assert_int_equal(i.base, INSN_NO_REG);
	DECODE(&i, 0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0); /* mov rax, fs:[0x28] */
	assert_true(i.segment);
	DECODE(&i, 0x48, 0x83, 0xec, 0xf8); /* sub rsp, -8 */
	assert_int_equal(i.immediate, -8);
	assert_int_equal(i.written, 1u << 4);
	DECODE(&i, 0xe9, 0xfb, 0xff, 0xff, 0xff); /* jmp to itself */
	assert_int_equal(i.immediate, -5);
	DECODE(&i, 0x0f, 0x84, 0, 1, 0, 0); /* je to 256 bytes after its end */
	assert_int_equal(i.map, INSN_0F);
	assert_int_equal(i.immediate, 256);
}

static void what_is_cut_is_no_instruction(void **state)
{
	static const uint8_t longest[] = {0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66,
					  0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x90, 0x90};
	static const uint8_t call[] = {0xe8, 0, 0, 0, 0};
	struct insn i;

	(void)state;
	assert_true(insn_decode(longest, sizeof(longest), &i));
	assert_int_equal(i.bytes, INSN_BYTES_MAX);
	assert_false(insn_decode(longest, 14, &i));
	for (size_t n = 0; n < sizeof(call); n++)
		assert_false(insn_decode(call, n, &i));
	/* push es, which does not exist in 64-bit mode */
	assert_false(insn_decode((const uint8_t[]){0x06}, 1, &i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(instructions_have_objdumps_lengths),
		cmocka_unit_test(operands_are_told),
		cmocka_unit_test(what_is_cut_is_no_instruction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
