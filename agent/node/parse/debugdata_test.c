/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests .gnu_debugdata in a stripped program, made as distributions do; a section with false
 * contents; a decompression bomb.
 */
#include "lib/base/testfolder.h"
#include "node/parse/format.h"
#include "node/parse/parse.h"
#include "node/parse/testelf.h"

#include <fcntl.h>
#include <lzma.h>
#include <setjmp.h>
#include <sys/stat.h>

#include <cmocka.h>

static void run(const char *what)
{
	_cleanup_free_ char *command = xasprintf("cd %s && %s", dir, what);

	if (system(command) != 0)
		fail_msg("%s", command);
}

static struct elf_index *index_of(int fd)
{
	struct elf_index *i;
	int memfd;

	assert_int_equal(parse_elf_to_index(fd, NULL, 64 << 20, &memfd), PARSE_OK);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	return i;
}

static struct elf_index *index_of_file(const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return index_of(fd);
}

static struct elf_index *index_of_section(const void *data, size_t n)
{
	const struct test_section s[] = {
		TESTELF_TEXT, {".gnu_debugdata", data, n, 0, 0}, {NULL, NULL, 0, 0, 0}};
	_cleanup_close_ int fd = testelf_memfd(s, ET_DYN);

	return index_of(fd);
}

static void local_functions_of_a_stripped_program_have_names(void **state)
{
	static const char c[] = "static __attribute__((noinline)) int hidden(int x)\n"
				"{ volatile int y = x; return y + 1; }\n"
				"int main(int c, char **v) { (void)v; return hidden(c); }\n";
	_cleanup_free_ char *path = xasprintf("%s/m.c", dir);
	struct elf_index *whole, *bare, *mini;
	struct elf_symbol a, b;
	uint64_t address = 0;

	(void)state;
	assert_int_equal(file_write_atomic(path, c, strlen(c), 0600), 0);
	run("gcc -O1 m.c -o m && objcopy -S --remove-section .comment --keep-symbol=hidden m "
	    "m.mini && "
	    "xz -k m.mini && objcopy --add-section .gnu_debugdata=m.mini.xz -S m m.packed && "
	    "strip -o m.bare m");
	whole = index_of_file("m");
	bare = index_of_file("m.bare");
	mini = index_of_file("m.packed");
	for (size_t offset = 0; !address && offset < 0x10000; offset++)
		if (elf_index_symbol(whole, offset, &a) == 0 && streq(a.name, "hidden"))
			address = offset;
	assert_true(address != 0);
	assert_int_equal(elf_index_symbol(bare, address, &b), -ENOENT);
	assert_int_equal(elf_index_symbol(mini, address, &b), 0);
	assert_string_equal(b.name, "hidden");
	assert_int_equal(b.address, a.address);
	assert_int_equal(b.size, a.size);
	assert_false(elf_index_flags(mini) & ELF_INDEX_NAMES_CUT);
	elf_index_unref(whole);
	elf_index_unref(bare);
	elf_index_unref(mini);
}

static void pack(const void *data, size_t n, uint8_t **ret, size_t *ret_n)
{
	size_t bytes = lzma_stream_buffer_bound(n);

	*ret = xmalloc(bytes);
	*ret_n = 0;
	assert_int_equal(
		lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, data, n, *ret, ret_n, bytes),
		LZMA_OK);
}

static void what_is_no_elf_file_costs_nothing_else(void **state)
{
	static const char text[] = "no ELF file at all, and no symbol of it";
	_cleanup_free_ uint8_t *packed = NULL;
	size_t n;

	(void)state;
	pack(text, sizeof(text), &packed, &n);
	for (size_t bytes = 1; bytes <= n; bytes++) {
		struct elf_index *i = index_of_section(packed, bytes);

		assert_int_equal(elf_index_n_symbols(i), 0);
		assert_true(elf_index_flags(i) & ELF_INDEX_NAMES_CUT);
		elf_index_unref(i);
	}
}

static void a_bomb_is_given_up(void **state)
{
	const size_t bytes = 512 << 20;
	_cleanup_free_ uint8_t *zeros = calloc(1, bytes), *packed = NULL;
	struct elf_index *i;
	size_t n;

	(void)state;
	assert_non_null(zeros);
	pack(zeros, bytes, &packed, &n);
	assert_true(n < 1 << 20);
	i = index_of_section(packed, n);
	assert_int_equal(elf_index_n_symbols(i), 0);
	assert_true(elf_index_flags(i) & ELF_INDEX_NAMES_CUT);
	elf_index_unref(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(local_functions_of_a_stripped_program_have_names),
		cmocka_unit_test(what_is_no_elf_file_costs_nothing_else),
		cmocka_unit_test(a_bomb_is_given_up),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
