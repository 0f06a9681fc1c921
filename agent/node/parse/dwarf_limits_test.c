/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests DWARF that exceeds the limits of its reader: what is left out, and the flag that shows
 * this.
 */
#include "node/parse/format.h"
#include "node/parse/testelf.h"

#include <dwarf.h>
#include <setjmp.h>

#include <cmocka.h>

/* The limits, as in the sources. */
#define FILES_MAX   (1u << 18)
#define FORMATS_MAX 16
#define HOPS_MAX    16
#define SCOPES_MAX  32

enum { UNIT = 1, FUNCTION, INLINED, NAMED, LINKED, NAMED_LINKED, NAMESPACE, PLACED };
static const uint8_t abbrevs[] = {
	UNIT,
	0x11,
	1,
	0x10,
	0x17,
	0,
	0, /* stmt_list */
	FUNCTION,
	0x2e,
	1,
	3,
	8,
	0x11,
	1,
	0x12,
	6,
	0,
	0, /* name, low_pc, high_pc */
	INLINED,
	0x1d,
	0,
	0x31,
	0x13,
	0x11,
	1,
	0x12,
	6,
	0,
	0, /* abstract_origin, low, high */
	NAMED,
	0x2e,
	0,
	3,
	8,
	0,
	0,
	LINKED,
	0x2e,
	0,
	0x31,
	0x13,
	0,
	0, /* abstract_origin */
	NAMED_LINKED,
	0x2e,
	0,
	3,
	8,
	0x31,
	0x13,
	0,
	0,
	NAMESPACE,
	0x39,
	1,
	3,
	8,
	0,
	0,
	PLACED,
	0x2e,
	0,
	3,
	8,
	0x3a,
	0x0f,
	0x3b,
	0x0b,
	0,
	0, /* decl_file, decl_line */
	0,
};

static void add_name(struct buf *b, uint8_t code, const char *name)
{
	testelf_uint(b, code, 1);
	buf_add(b, name, strlen(name) + 1);
}

static void begin_unit(struct buf *b)
{
	testelf_unit(b, UNIT);
	testelf_uint(b, 0, 4);
}

/*
 * Ends the unit with a function "f", into which origin is inlined. *ret: the one inlined frame of
 * "f". lines may be NULL.
 */
static struct elf_index *end_unit(struct buf *b, uint32_t origin, const struct buf *lines,
				  struct elf_inline *ret)
{
	struct test_section s[] = {TESTELF_TEXT,
				   {".debug_info", NULL, 0, 0, 0},
				   {".debug_abbrev", abbrevs, sizeof(abbrevs), 0, 0},
				   {NULL, NULL, 0, 0, 0},
				   {NULL, NULL, 0, 0, 0}};
	struct elf_inline chain[ELF_INLINES_MAX];
	struct elf_index *i;
	int fds[] = {-1, -1}, memfd;

	add_name(b, FUNCTION, "f");
	testelf_uint(b, 0x1000, 8);
	testelf_uint(b, 0x40, 4);
	testelf_uint(b, INLINED, 1);
	testelf_uint(b, origin, 4);
	testelf_uint(b, 0x1010, 8);
	testelf_uint(b, 0x10, 4);
	testelf_uint(b, 0, 2);
	memcpy(b->data, &(uint32_t){b->len - 4}, 4);
	s[1].data = b->data;
	s[1].n = b->len;
	if (lines)
		s[3] = (struct test_section){".debug_line", lines->data, lines->len, 0, 0};
	fds[0] = testelf_memfd(s, ET_DYN);
	assert_int_equal(parse_elf_to_debug_index(fds, 2, 64 << 20, &memfd), PARSE_OK);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	assert_int_equal(elf_index_inlines(i, 0x1010, chain), 1);
	*ret = chain[0];
	close(fds[0]);
	buf_done(b);
	return i;
}

static void assert_cut(struct elf_index *i, bool cut)
{
	assert_int_equal(!!(elf_index_flags(i) & ELF_INDEX_DWARF_CUT), cut);
	elf_index_unref(i);
}

/* ---- names ---- */

/*
 * Checks an inlined function whose name is found first, and whose file and line are only in the
 * last of n DIEs that lead to each other.
 */
static void check_hops(size_t n, bool cut)
{
	struct elf_inline inlined;
	struct elf_index *i;
	struct buf b;
	uint32_t at;

	begin_unit(&b);
	at = b.len;
	add_name(&b, NAMED_LINKED, "in");
	testelf_uint(&b, b.len + 4, 4);
	for (size_t k = 0; k < n - 2; k++) {
		testelf_uint(&b, LINKED, 1);
		testelf_uint(&b, b.len + 4, 4);
	}
	add_name(&b, PLACED, "in");
	testelf_uint(&b, 1, 1);
	testelf_uint(&b, 7, 1);
	i = end_unit(&b, at, NULL, &inlined);
	assert_string_equal(inlined.name, "in");
	assert_int_equal(inlined.line, cut ? 0 : 7);
	assert_cut(i, cut);
}

static void origins_over_the_limit_are_told(void **state)
{
	(void)state;
	check_hops(HOPS_MAX, false);
	check_hops(HOPS_MAX + 1, true);
}

/* Checks an inlined function "in" inside n namespaces. */
static void check_scopes(size_t n, bool cut)
{
	_cleanup_buf_ struct buf name = {0};
	struct elf_inline inlined;
	struct elf_index *i;
	struct buf b;
	uint32_t at;

	begin_unit(&b);
	for (size_t k = 0; k < n; k++) {
		add_name(&b, NAMESPACE, "n");
		if (k < SCOPES_MAX)
			buf_puts(&name, "n::");
	}
	buf_puts(&name, "in");
	at = b.len;
	add_name(&b, NAMED, "in");
	for (size_t k = 0; k < n; k++)
		testelf_uint(&b, 0, 1);
	i = end_unit(&b, at, NULL, &inlined);
	assert_string_equal(inlined.name, name.data);
	assert_cut(i, cut);
}

static void scopes_over_the_limit_are_told(void **state)
{
	(void)state;
	check_scopes(SCOPES_MAX, false);
	check_scopes(SCOPES_MAX + 1, true);
}

/* If the scopes together are too long, the name is shown without them. */
static void scopes_that_are_too_long_are_told(void **state)
{
	_cleanup_free_ char *scope = xcalloc(1, INDEX_NAME_MAX);
	struct elf_inline inlined;
	struct elf_index *i;
	struct buf b;
	uint32_t at;

	(void)state;
	memset(scope, 'n', INDEX_NAME_MAX - 1);
	begin_unit(&b);
	add_name(&b, NAMESPACE, scope);
	at = b.len;
	add_name(&b, NAMED, "in");
	testelf_uint(&b, 0, 1);
	i = end_unit(&b, at, NULL, &inlined);
	assert_string_equal(inlined.name, "in");
	assert_cut(i, true);
}

/* ---- files ---- */

/* Begins a line program: the head, up to the tables of directories and files. */
static void begin_lines(struct buf *l, uint16_t version)
{
	buf_init(l, 0);
	testelf_uint(l, 0, 4);
	testelf_uint(l, version, 2);
	if (version >= 5)
		testelf_uint(l, 8, 2); /* bytes of an address, none of a segment */
	testelf_uint(l, 0, 4);
	testelf_uint(l, 0, 5); /* fields of the program */
	testelf_uint(l, 1, 1); /* opcodes: none */
}

/* Returns the index of a unit in which "in" is declared in file number `file` of the table. */
static struct elf_index *index_of_lines(struct buf *l, uint8_t file, struct elf_inline *ret)
{
	struct elf_index *i;
	struct buf b;
	uint32_t at;

	memcpy(l->data, &(uint32_t){l->len - 4}, 4);
	begin_unit(&b);
	at = b.len;
	add_name(&b, PLACED, "in");
	testelf_uint(&b, file, 1);
	testelf_uint(&b, 7, 1);
	i = end_unit(&b, at, l, ret);
	buf_done(l);
	return i;
}

static void add_file(struct buf *l, const char *name)
{
	buf_add(l, name, strlen(name) + 1);
	testelf_uint(l, 0, 3); /* directory, time, bytes */
}

static void check_files(size_t n_dirs, size_t n_files, const char *path, bool cut)
{
	struct elf_inline inlined;
	struct elf_index *i;
	struct buf l;

	begin_lines(&l, 4);
	for (size_t k = 0; k < n_dirs; k++)
		buf_add(&l, "d", 2);
	testelf_uint(&l, 0, 1);
	for (size_t k = 0; k < n_files; k++)
		add_file(&l, "/in.c");
	testelf_uint(&l, 0, 1);
	i = index_of_lines(&l, 1, &inlined);
	assert_string_equal(inlined.file, path);
	assert_int_equal(inlined.line, 7);
	assert_cut(i, cut);
}

/*
 * If there are too many directories, no file is known: the rest of the directories must not be read
 * as files.
 */
static void files_over_the_limit_are_told(void **state)
{
	(void)state;
	/* the unit's own directory is number 0, so the table may list one less */
	check_files(FILES_MAX - 1, FILES_MAX, "/in.c", false);
	check_files(1, FILES_MAX + 1, "/in.c", true);
	check_files(FILES_MAX, 1, "", true);
}

static void check_formats(uint8_t n, const char *path, bool cut)
{
	struct elf_inline inlined;
	struct elf_index *i;
	struct buf l;

	begin_lines(&l, 5);
	testelf_uint(&l, 0, 2); /* no directories */
	testelf_uint(&l, n, 1);
	for (uint8_t k = 0; k < n; k++) {
		testelf_uint(&l, DW_LNCT_path, 1);
		testelf_uint(&l, DW_FORM_string, 1);
	}
	testelf_uint(&l, 1, 1);
	for (uint8_t k = 0; k < n; k++)
		buf_add(&l, "/in.c", 6);
	i = index_of_lines(&l, 0, &inlined);
	assert_string_equal(inlined.file, path);
	assert_cut(i, cut);
}

static void fields_over_the_limit_are_told(void **state)
{
	(void)state;
	check_formats(FORMATS_MAX, "/in.c", false);
	check_formats(FORMATS_MAX + 1, "", true);
}

/* A path that is too long is cut, as names are. */
static void paths_over_the_limit_are_cut_and_say_so(void **state)
{
	_cleanup_free_ char *path = xcalloc(1, 2 * INDEX_NAME_MAX);
	struct elf_inline inlined;
	struct elf_index *i;
	struct buf l;

	(void)state;
	memset(path, '/', 2 * INDEX_NAME_MAX - 1);
	begin_lines(&l, 4);
	testelf_uint(&l, 0, 1);
	add_file(&l, path);
	testelf_uint(&l, 0, 1);
	memcpy(path + INDEX_NAME_MAX - 3, "...", 4);
	i = index_of_lines(&l, 1, &inlined);
	assert_string_equal(inlined.file, path);
	elf_index_unref(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(origins_over_the_limit_are_told),
		cmocka_unit_test(scopes_over_the_limit_are_told),
		cmocka_unit_test(scopes_that_are_too_long_are_told),
		cmocka_unit_test(files_over_the_limit_are_told),
		cmocka_unit_test(fields_over_the_limit_are_told),
		cmocka_unit_test(paths_over_the_limit_are_cut_and_say_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
