/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests functions without a symbol: those of a stripped file begin where the symbols of the same
 * file say it, before it was stripped.
 */
#include "node/parse/build.h"
#include "node/parse/testmade.h"

/* Runs a command in the folder of the test. */
static void run(const char *command)
{
	_cleanup_free_ char *text = xasprintf("cd %s && %s", dir, command);

	assert_int_equal(system(text), 0);
}

static void write_source(const char *name, const char *text)
{
	_cleanup_free_ char *path = file_in_dir(name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void assert_starts(const struct elf_index *i, uint64_t address, uint64_t start)
{
	uint64_t found = 0;

	assert_int_equal(elf_index_unnamed(i, address, &found), 0);
	assert_int_equal(found, start);
}

static void assert_unknown(const struct elf_index *i, uint64_t address)
{
	uint64_t found;

	assert_int_equal(elf_index_unnamed(i, address, &found), -ENOENT);
}

/* ---- a file ---- */

#define HIDDEN "static __attribute__((noinline, noclone)) int "

static const char source[] =
	HIDDEN "first(int x) { volatile int y = x * 3; return y + 1; }\n" HIDDEN
	       "second(int x) { volatile int y = x; return first(y) + 2; }\n"
	       "int shown(int x) { return second(x) + first(x); }\n";

/* The local functions of a stripped library have no names, but begin where they did. */
static void functions_of_a_stripped_file_begin_where_they_did(void **state)
{
	static const char *const hidden[] = {"first", "second"};
	uint64_t shown, plt;
	struct elf_tables tables;
	struct elf_symbol y;
	struct elf_index *i;

	(void)state;
	write_source("a.c", source);
	run("gcc -O1 -fPIC -shared -o whole.so a.c && strip -o bare.so whole.so");
	i = index_of("bare.so", &tables);
	for (size_t k = 0; k < ARRAY_SIZE(hidden); k++) {
		uint64_t start = symbol("whole.so", hidden[k]);

		assert_starts(i, start, start);
		assert_starts(i, start + 5, start);
		assert_int_equal(elf_index_symbol(i, start, &y), -ENOENT);
	}
	assert_true(symbol("whole.so", "first") != symbol("whole.so", "second"));
	shown = symbol("whole.so", "shown"); /* .dynsym has it: it keeps its name */
	assert_int_equal(elf_index_symbol(i, shown, &y), 0);
	assert_string_equal(y.name, "shown");
	assert_unknown(i, shown);
	plt = symbol("whole.so", "_init") + 0x20; /* a linkage table is many functions */
	assert_unknown(i, plt);
	assert_unknown(i, 0);
	elf_index_unref(i);
	i = index_of("whole.so", &tables);
	assert_unknown(i, symbol("whole.so", "first"));
	elf_index_unref(i);
}

/* ---- ranges ---- */

static void assert_part(const struct index_symbol *s, uint64_t start, uint64_t end, uint32_t name)
{
	assert_int_equal(s->address, start);
	assert_int_equal(s->address + s->size, end);
	assert_int_equal(s->name, name);
}

static void names_come_first_and_functions_do_not_overlap(void **state)
{
	struct built_functions f = {0};
	struct index_symbol *parts = xcalloc(2, sizeof(*parts));
	size_t n = 2;

	(void)state;
	parts[0] = (struct index_symbol){.address = 0x200, .size = 0x100, .name = 1};
	parts[1] = (struct index_symbol){.address = 0x500, .size = 0x10, .name = 2};
	parse_functions_add(&f, 0x480,
			    0x600); /* up to the named one: behind it, nothing is known */
	parse_functions_add(&f, 0x100, 0x180);
	parse_functions_add(&f, 0x100, 0x1c0); /* the same, longer */
	parse_functions_add(&f, 0x140, 0x150); /* inside: the other one ends here */
	parse_functions_add(&f, 0x200, 0x300); /* has a name */
	parse_functions_add(&f, 0x280, 0x380); /* begins in a function with a name */
	parse_functions_add(&f, 0x700, 0x700); /* is empty */
	parse_functions_merge(&f, &parts, &n);
	assert_int_equal(n, 5);
	assert_part(&parts[0], 0x100, 0x140, 0);
	assert_part(&parts[1], 0x140, 0x150, 0);
	assert_part(&parts[2], 0x200, 0x300, 1);
	assert_part(&parts[3], 0x480, 0x500, 0);
	assert_part(&parts[4], 0x500, 0x510, 2);
	assert_false(f.cut);
	assert_int_equal(parse_functions_leave_out(parts, n), 2);
	assert_part(&parts[0], 0x200, 0x300, 1);
	assert_part(&parts[1], 0x500, 0x510, 2);
	free(parts);
	free(f.items);
}

static void functions_over_the_limit_are_told(void **state)
{
	struct built_functions f = {0};

	(void)state;
	for (uint64_t k = 0; k < INDEX_SYMBOLS_MAX; k++)
		parse_functions_add(&f, 16 * k, 16 * k + 8);
	assert_false(f.cut);
	parse_functions_add(&f, 8, 16);
	assert_true(f.cut);
	assert_int_equal(f.n, INDEX_SYMBOLS_MAX);
	free(f.items);
}

/* If the index is too large, functions without a name go before names do. */
static void names_are_kept_before_functions_without_one(void **state)
{
	_cleanup_free_ char *path = file_in_dir("bare.so");
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_tables tables;
	struct elf_symbol y;
	uint64_t first = symbol("whole.so", "first"), shown = symbol("whole.so", "shown");
	struct elf_index *i = index_of("bare.so", &tables);
	size_t bytes = elf_index_bytes(i);
	int memfd;

	(void)state;
	elf_index_unref(i);
	assert_int_equal(parse_elf_to_index(fd, NULL, bytes - 1, &memfd), PARSE_OK);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	assert_unknown(i, first);
	assert_int_equal(elf_index_symbol(i, shown, &y), 0);
	assert_true(elf_index_flags(i) & ELF_INDEX_STARTS_CUT);
	assert_false(elf_index_flags(i) & ELF_INDEX_NAMES_CUT); /* no name is lost */
	elf_index_unref(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_of_a_stripped_file_begin_where_they_did),
		cmocka_unit_test(names_come_first_and_functions_do_not_overlap),
		cmocka_unit_test(functions_over_the_limit_are_told),
		cmocka_unit_test(names_are_kept_before_functions_without_one),
	};

	elf_version(EV_CURRENT);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
