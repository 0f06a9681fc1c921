/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of CPython's functions, in made-up code. */
#include "node/alloc/python.h"

#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define START	 0x20000000ull
#define FUNCTION 0x20202020ull
#define BYTES	 (4u << 20)

struct found {
	size_t n;
	struct python_copy last;
};

static void found(const struct python_copy *c, void *arg)
{
	struct found *f = arg;

	f->n++;
	f->last = *c;
}

/* Searches a file that has nops up to byte `from`, and then these bytes, repeated. */
static int look_through(const uint8_t *text, size_t n, size_t from, struct found *ret)
{
	static const uint64_t functions[] = {FUNCTION, FUNCTION + 64, FUNCTION + 128};
	_cleanup_close_ int fd = memfd_create("code", MFD_CLOEXEC);
	_cleanup_free_ uint8_t *bytes = xmalloc(BYTES);
	struct mapping item = {
		.start = START, .end = START + BYTES, .fd = fd, .path = (char *)"/python"};
	struct mappings maps = {.items = &item, .n = 1};
	struct runtime_look look = {.maps = &maps};
	struct alloc_code *code = alloc_code_new(&look);
	int r;

	memset(bytes, 0x90, BYTES);
	for (size_t i = from; i < BYTES; i++)
		bytes[i] = text[(i - from) % n];
	assert_int_equal(write(fd, bytes, BYTES), BYTES);
	*ret = (struct found){0};
	r = alloc_python_copies(&look, code, functions, ARRAY_SIZE(functions), found, ret);
	alloc_code_free(code);
	return r;
}

/* cmp $function,%rax; jne to the call */
static const uint8_t copy[] = {0x48, 0x3d, 0x20, 0x20, 0x20, 0x20, 0x75, 0x00, 0xff, 0xd0};

static void a_copy_is_found(void **state)
{
	struct found f;

	(void)state;
	assert_int_equal(look_through(copy, sizeof(copy), BYTES - sizeof(copy), &f), 0);
	assert_int_equal(f.n, 1);
	assert_int_equal(f.last.function, 0);
	assert_true(f.last.address == START + BYTES - sizeof(copy));
	assert_int_equal(f.last.registers[6].kind, PYTHON_REGISTER);
	assert_int_equal(f.last.registers[6].value, 6);
	/* More copies than any CPython has. For each, some instructions are decoded. */
	assert_int_equal(look_through(copy, sizeof(copy), BYTES - 1000 * sizeof(copy), &f), 0);
	assert_int_equal(f.n, 1000);
}

/* cmp $function,%rax; jne; n nops; the call. With 22 nops, the call is too far away. */
static void a_call_far_away_is_of_unknown_size(void **state)
{
	uint8_t text[2 * sizeof(copy) + 24];
	struct found f;

	(void)state;
	for (size_t n = 21; n <= 22; n++) {
		memset(text, 0x90, sizeof(text));
		memcpy(text, copy, 8);
		memcpy(text + 8 + n, copy + 8, 2);
		assert_int_equal(look_through(text, sizeof(text), BYTES - sizeof(text), &f), 0);
		assert_int_equal(f.n, 1);
		assert_true(f.last.address == START + BYTES - sizeof(text));
		assert_int_equal(f.last.registers[6].kind,
				 n == 21 ? PYTHON_REGISTER : PYTHON_UNKNOWN);
	}
}

/*
 * Every byte of this code begins the function's address: the search must end after a limited number
 * of decoded instructions.
 */
static void code_made_of_addresses_is_given_up(void **state)
{
	static const uint8_t address[] = {0x20},
			     comparison[] = {0x48, 0x3d, 0x20, 0x20, 0x20, 0x20};
	struct found f;

	(void)state;
	assert_int_equal(look_through(address, sizeof(address), 0, &f), -E2BIG);
	assert_int_equal(f.n, 0);
	assert_int_equal(look_through(comparison, sizeof(comparison), 0, &f), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_is_found),
		cmocka_unit_test(a_call_far_away_is_of_unknown_size),
		cmocka_unit_test(code_made_of_addresses_is_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
