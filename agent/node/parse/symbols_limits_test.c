/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files with more symbols, or longer names, than podflame keeps, such as PyTorch's: functions lack
 * names then, no function has the name of another one, and the file has its unwind rows.
 */
#include "node/parse/build.h"
#include "node/parse/format.h"
#include "node/parse/testelf.h"

#include <setjmp.h>

#include <cmocka.h>

/* ---- names ---- */

static void names_over_the_limit_are_left_out(void **state)
{
	_cleanup_free_ char *name = xmalloc(INDEX_NAME_MAX + 1);
	size_t n = INDEX_STRINGS_MAX / (INDEX_NAME_MAX + 1) + 10, n_parts = 0;
	struct built_symbols s = {xcalloc(n + 1, sizeof(*s.items)), n + 1, n + 1, false};
	struct index_symbol *parts = NULL;
	struct buf strings;

	(void)state;
	memset(name, 'x', INDEX_NAME_MAX);
	name[INDEX_NAME_MAX] = '\0';
	s.items[0] = (struct symbol){
		.address = 0, .end = 16 * (n + 1), .limit = UINT64_MAX, .name = "around_all"};
	for (size_t i = 1; i <= n; i++)
		s.items[i] = (struct symbol){
			.address = 16 * i, .end = 16 * i + 16, .limit = UINT64_MAX, .name = name};
	buf_init(&strings, INDEX_STRINGS_MAX);
	parse_symbols_flatten(&s, &parts, &n_parts, &strings);
	assert_true(s.cut);
	assert_false(strings.failed);
	assert_in_range(n_parts, n - 20, n - 8);
	assert_string_equal(strings.data + parts[0].name, "around_all");
	for (size_t i = 1; i < n_parts; i++) {
		assert_int_equal(parts[i].address, 16 * i);
		assert_int_equal(parts[i].size, 16);
		assert_string_equal(strings.data + parts[i].name, name);
	}
	buf_done(&strings);
	free(parts);
	free(s.items);
}

/* ---- symbols ---- */

/* One function, [0x1000, 0x11000), with a frame of 8 bytes all along. */
static const uint8_t frames[] = {
	20, 0,	  0, 0, 0,    0, 0, 0, 1, 0,	1, 0x78,
	16, 0x0c, 7, 8, 0x90, 1, 0, 0, 0, 0,	0, 0, /* CIE */
	20, 0,	  0, 0, 28,   0, 0, 0, 0, 0x10, 0, 0,
	0,  0,	  0, 0, 0,    0, 1, 0, 0, 0,	0, 0, /* FDE */
	0,  0,	  0, 0,
};
static const char names[] = "\0function";

/* A file with n symbols of functions, of which the first has no size. */
static int file_of(size_t n)
{
	_cleanup_free_ Elf64_Sym *symbols = xcalloc(n + 1, sizeof(*symbols));
	const struct test_section sections[] = {
		TESTELF_TEXT,
		{".eh_frame", frames, sizeof(frames), 0x20000, SHF_ALLOC},
		{".symtab", symbols, (n + 1) * sizeof(*symbols), 0, 0},
		{".strtab", names, sizeof(names), 0, 0},
		{NULL, NULL, 0, 0, 0},
	};
	const Elf64_Phdr text = {.p_type = PT_LOAD,
				 .p_flags = PF_R | PF_X,
				 .p_vaddr = TESTELF_TEXT_ADDRESS,
				 .p_filesz = 0x10000,
				 .p_memsz = 0x10000};
	Elf64_Shdr headers[5];
	Elf64_Ehdr e;
	int fd;

	for (size_t i = 1; i <= n; i++)
		symbols[i] = (Elf64_Sym){.st_name = 1,
					 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					 .st_shndx = 1,
					 .st_value = TESTELF_TEXT_ADDRESS + i % 0x10000,
					 .st_size = i > 1};
	fd = testelf_memfd(sections, ET_DYN);
	assert_int_equal(pread(fd, &e, sizeof(e), 0), sizeof(e));
	assert_int_equal(pread(fd, headers, sizeof(headers), e.e_shoff), sizeof(headers));
	headers[3].sh_type = SHT_SYMTAB;
	headers[3].sh_link = 4;
	headers[3].sh_entsize = sizeof(*symbols);
	headers[4].sh_type = SHT_STRTAB;
	assert_int_equal(pwrite(fd, headers, sizeof(headers), e.e_shoff), sizeof(headers));
	e.e_phoff = MAX((uint64_t)lseek(fd, 0, SEEK_END), text.p_filesz);
	e.e_phnum = 1;
	e.e_phentsize = sizeof(text);
	assert_int_equal(pwrite(fd, &text, sizeof(text), e.e_phoff), sizeof(text));
	assert_int_equal(pwrite(fd, &e, sizeof(e), 0), sizeof(e));
	return fd;
}

static void check(size_t n, bool cut)
{
	_cleanup_close_ int fd = file_of(n);
	struct elf_tables tables;
	struct elf_index *i;
	int memfd;

	assert_int_equal(parse_elf_to_index(fd, NULL, 256 << 20, &memfd), PARSE_OK);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	assert_int_equal(!!(elf_index_flags(i) & ELF_INDEX_NAMES_CUT), cut);
	assert_int_equal(elf_index_n_symbols(i) == 0, cut);
	elf_index_tables(i, &tables);
	assert_true(tables.n_rows > 0);
	assert_int_equal(elf_index_unsupported_rows(i), 0);
	elf_index_unref(i);
}

static void symbols_over_the_limit_cost_the_names_only(void **state)
{
	(void)state;
	check(10, false);
	check(INDEX_SYMBOLS_MAX, false);
	check(INDEX_SYMBOLS_MAX + 1, true);
	check(4 * INDEX_SYMBOLS_MAX + 1, true);
}

/* The index has the rows and the marks, as far as it may be large enough for these. */
static void an_index_over_the_limit_has_no_names(void **state)
{
	static const char *const marks[] = {"function", NULL};
	_cleanup_close_ int fd = file_of(1000);
	const struct {
		uint64_t max_bytes;
		enum parse_reason reason;
		bool named;
	} rows[] = {{1 << 20, PARSE_OK, true},
		    {2000, PARSE_OK, false},
		    {100, PARSE_INDEX_BYTES, false}};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(rows); k++) {
		struct elf_tables tables;
		struct elf_index *i;
		struct elf_mark mark;
		int memfd;

		assert_int_equal(parse_elf_to_index(fd, marks, rows[k].max_bytes, &memfd),
				 rows[k].reason);
		if (rows[k].reason)
			continue;
		assert_int_equal(elf_index_open(memfd, &i), 0);
		assert_int_equal(elf_index_n_symbols(i) > 0, rows[k].named);
		assert_int_equal(!(elf_index_flags(i) & ELF_INDEX_NAMES_CUT), rows[k].named);
		assert_int_equal(elf_index_find_mark(i, "function", &mark), 0);
		elf_index_tables(i, &tables);
		assert_true(tables.n_rows > 0);
		elf_index_unref(i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_over_the_limit_are_left_out),
		cmocka_unit_test(symbols_over_the_limit_cost_the_names_only),
		cmocka_unit_test(an_index_over_the_limit_has_no_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
