/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of a child's answer: look-ups give exact results, and wrong contents are refused. */
#include "lib/symbols/format.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>

#include <cmocka.h>

static void assert_symbol(struct elf_index *i, uint64_t address, const char *name)
{
	struct elf_symbol s;

	assert_int_equal(elf_index_symbol(i, address, &s), 0);
	assert_string_equal(s.name, name);
}

static int seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
}

static int make_memfd(const void *data, size_t n)
{
	int fd = memfd_create("answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, n), 0);
	return fd;
}

struct small_index {
	struct index_header header;
	struct index_segment segment;
	struct index_symbol symbols[2];
	struct index_inline_range range;
	struct index_inline_node nodes[2];
	struct index_mark marks[3];
	struct elf_page page;
	struct pf_row rows[2];
	struct pf_rule rule;
	char strings[16];
};

static struct small_index valid_index(void)
{
	struct small_index x = {
		.header = {.string_bytes = 16, .build_id_bytes = 2},
		.segment = {.address = 0x1000, .offset = 0, .bytes = 0x1000, .executable = 1},
		.symbols = {{0x1000, 16, 1, 0, 0}, {0x1010, 16, 5, 12, 7}},
		.range = {0x1004, 4, 1},
		.nodes = {{1, 12, 3, 0}, {5, 12, 4, 1}},
		.marks = {{0x1000, 4, 9, 0}, {0x20, 8, 1, 1}, {0x28, 8, 1, 0}},
		.page = {.number = 0, .n_rows = 2},
		.rows = {{0, PF_RULE_GAP}, {0x1000, 0}},
		.rule = {.cfa_offset = 8},
		.strings = "\0one\0two\0ab\0c.c",
	};

	memcpy(x.header.magic, INDEX_MAGIC, 8);
	x.header.n[INDEX_segments] = 1;
	x.header.n[INDEX_symbols] = 2;
	x.header.n[INDEX_inline_ranges] = 1;
	x.header.n[INDEX_inline_nodes] = 2;
	x.header.n[INDEX_marks] = 3;
	x.header.n[INDEX_pages] = 1;
	x.header.n[INDEX_rows] = 2;
	x.header.n[INDEX_rules] = 1;
	x.header.build_id[0] = 0xab;
	return x;
}

static int open_bytes(const void *data, size_t n)
{
	int fd = make_memfd(data, n), r;
	struct elf_index *i;

	assert_int_equal(seal(fd), 0);
	r = elf_index_open(fd, &i);
	if (r == 0)
		elf_index_unref(i);
	return r;
}

static void keep(void *arg)
{
	(void)arg;
}

static void lying_answers_are_refused(void **state)
{
	struct small_index good = valid_index(), x;
	struct elf_index *i;

	(void)state;
	assert_int_equal(open_bytes(&good, sizeof(good)), 0);
	assert_int_equal(elf_index_open(make_memfd(&good, sizeof(good)), &i),
			 -EBADMSG); /* the file has no seals */
	assert_int_equal(open_bytes(&good, sizeof(good) - 1), -EBADMSG);
	assert_int_equal(open_bytes(&good, 20), -EBADMSG);
	assert_int_equal(open_bytes("", 0), -EBADMSG);
#define REFUSED(change)                                                                            \
	do {                                                                                       \
		x = good;                                                                          \
		change;                                                                            \
		assert_int_equal(open_bytes(&x, sizeof(x)), -EBADMSG);                             \
	} while (0)
	REFUSED(x.header.magic[7] = '2');
	REFUSED(x.header.n[INDEX_symbols] = 3);
	REFUSED(x.header.n[INDEX_symbols] = UINT32_MAX);
	REFUSED(x.header.n[INDEX_segments] = UINT32_MAX);
	REFUSED(x.header.string_bytes = UINT32_MAX);
	REFUSED(x.header.build_id_bytes = 65);
	REFUSED(x.symbols[0].address = 0x1008);		/* overlaps the next symbol */
	REFUSED(x.symbols[1].address = 0);		/* is not sorted */
	REFUSED(x.symbols[1].address = UINT64_MAX - 3); /* the end of the symbol wraps around */
	REFUSED(x.symbols[1].size = 0);
	REFUSED(x.symbols[1].name = 16);
	REFUSED(x.symbols[1].file = 16);
	REFUSED(x.strings[15] = 'x'); /* the last string has no end */
	REFUSED(x.strings[0] = 'x');
	REFUSED(x.range.node = 2);
	REFUSED(x.range.size = 0);
	REFUSED(x.nodes[0].parent = 1); /* is its own parent */
	REFUSED(x.nodes[1].parent = 2);
	REFUSED(x.nodes[1].name = 16);
	REFUSED(x.marks[0].name = 16);
	REFUSED(x.marks[0].name = 5); /* is not sorted */
	REFUSED(x.marks[2].size = UINT64_MAX);
	REFUSED(x.page.n_rows = 0);
	REFUSED(x.page.n_rows = 3);
	REFUSED(x.page.first_row = 1);
	REFUSED(x.page.n_rows = 1);	/* one row belongs to no page */
	REFUSED(x.rows[0].address = 1); /* the first bytes of the page have no row */
	REFUSED(x.rows[1].address = 0);
	REFUSED(x.rows[1].rule = 1);
	REFUSED(x.rule.cfa = _PF_CFA_MAX);
	REFUSED(x.rule.reg = 17);
	REFUSED(x.segment.bytes = UINT64_MAX);
}

static int open_with_name(size_t n)
{
	struct small_index x = valid_index();
	size_t at = sizeof(x), bytes = at + ((n + 2 + 7) & ~7ul);
	_cleanup_free_ char *data = xcalloc(1, bytes);

	x.header.string_bytes += bytes - at;
	memcpy(data, &x, sizeof(x));
	memset(data + at, 'x', n);
	return open_bytes(data, bytes);
}

/* A look-up returns a name of INDEX_NAME_MAX bytes, and a longer one is refused. */
static void names_are_as_long_as_a_writer_makes_them(void **state)
{
	(void)state;
	assert_int_equal(open_with_name(INDEX_NAME_MAX), 0);
	assert_int_equal(open_with_name(INDEX_NAME_MAX + 1), -EBADMSG);
}

/* A function without a symbol has a place, but is no symbol. */
static void functions_without_a_symbol_begin_somewhere(void **state)
{
	struct small_index x = valid_index();
	struct elf_symbol y;
	struct elf_index *i;
	uint64_t start = 0;

	(void)state;
	x.symbols[1] = (struct index_symbol){.address = 0x1010, .size = 16};
	assert_int_equal(elf_index_borrow(&x, sizeof(x), keep, NULL, &i), 0);
	assert_int_equal(elf_index_n_symbols(i), 1);
	assert_int_equal(elf_index_symbol(i, 0x1010, &y), -ENOENT);
	assert_int_equal(elf_index_unnamed(i, 0x101f, &start), 0);
	assert_int_equal(start, 0x1010);
	assert_int_equal(elf_index_unnamed(i, 0x1020, &start), -ENOENT);
	assert_int_equal(elf_index_unnamed(i, 0x1000, &start), -ENOENT); /* it has a name */
	assert_symbol(i, 0x1000, "one");
	elf_index_unref(i);
}

static void index_answers_are_exact(void **state)
{
	struct small_index x = valid_index();
	struct elf_index *i, *j;
	struct elf_inline inlined[ELF_INLINES_MAX];
	struct elf_tables tables;
	struct elf_mark mark;
	struct elf_symbol s;
	int a = make_memfd(&x, sizeof(x)), b;

	(void)state;
	assert_int_equal(seal(a), 0);
	assert_int_equal(elf_index_open(a, &i), 0);
	assert_symbol(i, 0x1000, "one");
	assert_symbol(i, 0x100f, "one");
	assert_symbol(i, 0x1010, "two");
	assert_int_equal(elf_index_symbol(i, 0xfff, &s), -ENOENT);
	assert_int_equal(elf_index_symbol(i, 0x1020, &s), -ENOENT);
	assert_int_equal(elf_index_symbol(i, 0x1010, &s), 0);
	assert_string_equal(s.file, "c.c");
	assert_int_equal(s.line, 7);
	assert_int_equal(elf_index_inlines(i, 0x1003, inlined), 0);
	assert_int_equal(elf_index_inlines(i, 0x1008, inlined), 0);
	assert_int_equal(elf_index_inlines(i, 0x1007, inlined), 2);
	assert_string_equal(inlined[0].name, "two");
	assert_int_equal(inlined[0].line, 4);
	assert_string_equal(inlined[1].name, "one");
	elf_index_tables(i, &tables);
	assert_int_equal(tables.n_pages, 1);
	assert_int_equal(tables.rows[1].rule, 0);
	assert_string_equal(elf_index_build_id(i), "ab00");
	assert_int_equal(elf_index_n_marks(i), 3);
	assert_string_equal(elf_index_mark(i, 0).name, "ab");
	assert_int_equal(elf_index_find_mark(i, "one", &mark), 0);
	assert_int_equal(mark.address, 0x20); /* the first of two marks with this name */
	assert_int_equal(mark.size, 8);
	assert_true(mark.thread_local);
	assert_int_equal(elf_index_find_mark(i, "ab", &mark), 0);
	assert_false(mark.thread_local);
	assert_int_equal(elf_index_find_mark(i, "on", &mark), -ENOENT);
	assert_int_equal(elf_index_find_mark(i, "two", &mark), -ENOENT);
	assert_int_equal(elf_index_find_mark(i, "", &mark), -ENOENT);
	x.symbols[1].size = 8;
	b = make_memfd(&x, sizeof(x));
	assert_int_equal(seal(b), 0);
	assert_int_equal(elf_index_open(b, &j), 0);
	assert_true(elf_index_equal(i, i));
	assert_false(elf_index_equal(i, j));
	elf_index_unref(i);
	elf_index_unref(j);
}

static void what_is_missing_is_said(void **state)
{
	struct small_index x = valid_index();
	struct elf_lack lacks[ELF_LACKS_MAX];
	struct elf_index *i;
	int fd;

	(void)state;
	x.header.flags = ELF_INDEX_GO | ELF_INDEX_UNWIND_CUT | ELF_INDEX_DWARF_CUT |
			 ELF_INDEX_COMPRESSED | ELF_INDEX_STARTS_CUT;
	x.rows[1].rule = PF_RULE_UNSUPPORTED;
	fd = make_memfd(&x, sizeof(x));
	assert_int_equal(seal(fd), 0);
	assert_int_equal(elf_index_open(fd, &i), 0);
	assert_int_equal(elf_index_lacks(i, lacks), 6);
	assert_string_equal(lacks[0].word, "unwind_cut");
	assert_string_equal(lacks[1].word, "inlines_cut");
	assert_string_equal(lacks[2].word, "starts_cut");
	assert_string_equal(lacks[3].word, "compressed_unknown");
	assert_string_equal(lacks[4].word, "compressed_damaged");
	assert_string_equal(lacks[5].word, "compressed_large");
	assert_int_equal(elf_index_unsupported_rows(i), 1);
	elf_index_unref(i);
}

/*
 * Files as lld makes them: the text begins inside a page whose first bytes belong to another
 * segment.
 */
static void text_inside_a_page(void **state)
{
	struct {
		struct index_header header;
		struct index_segment segments[3];
		char strings[1];
	} x = {
		.header = {.string_bytes = 1},
		.segments = {{0, 0, 0x1230, 0, 0},
			     {0x2230, 0x1230, 0x5000, 1, 0},
			     {0x9000, 0x8000, 0x1000, 1, 0}},
	};
	size_t n = offsetof(__typeof__(x), strings) + 1;
	struct elf_index *i;
	uint64_t address;
	int fd;

	(void)state;
	memcpy(x.header.magic, INDEX_MAGIC, 8);
	x.header.n[INDEX_segments] = 3;
	fd = make_memfd(&x, n);
	assert_int_equal(seal(fd), 0);
	assert_int_equal(elf_index_open(fd, &i), 0);
	assert_int_equal(elf_index_mapping_address(i, 0x1000, 0x6000, &address), 0);
	assert_int_equal(address, 0x2000);
	/* mprotect has cut a mapping, so this one begins in the middle of the text */
	assert_int_equal(elf_index_mapping_address(i, 0x3000, 0x1000, &address), 0);
	assert_int_equal(address, 0x4000);
	assert_int_equal(elf_index_mapping_address(i, 0x8000, 0x1000, &address), 0);
	assert_int_equal(address, 0x9000);
	assert_int_equal(elf_index_mapping_address(i, 0x20000, 0x1000, &address), -ENOENT);
	elf_index_unref(i);
}

static bool is_one(const char *name)
{
	return streq(name, "one");
}

static void open_part(const struct elf_part *what, struct buf *bytes, struct elf_index **ret)
{
	struct small_index x = valid_index();
	struct elf_index *whole;
	int fd = make_memfd(&x, sizeof(x));

	assert_int_equal(seal(fd), 0);
	assert_int_equal(elf_index_open(fd, &whole), 0);
	elf_index_write_part(whole, what, bytes);
	elf_index_unref(whole);
	assert_int_equal(elf_index_borrow(bytes->data, bytes->len, keep, NULL, ret), 0);
}

static void a_part_has_what_was_asked_for(void **state)
{
	static const char *const symbols[] = {"none", "two", "one", NULL};
	const struct elf_part all = {is_one, symbols, true}, nothing = {0};
	struct buf bytes = {0};
	struct elf_index *i;
	struct elf_tables tables;
	struct elf_symbol s;
	struct elf_mark mark;
	uint64_t address;

	(void)state;
	open_part(&all, &bytes, &i);
	assert_int_equal(elf_index_n_symbols(i), 2);
	assert_symbol(i, 0x1000, "one");
	assert_int_equal(elf_index_find_symbol(i, "two", &s), 0);
	assert_int_equal(s.address, 0x1010);
	assert_int_equal(elf_index_n_marks(i), 2);
	assert_int_equal(elf_index_find_mark(i, "ab", &mark), -ENOENT);
	assert_int_equal(elf_index_find_mark(i, "one", &mark), 0);
	assert_int_equal(mark.address, 0x20);
	assert_true(mark.thread_local);
	elf_index_tables(i, &tables);
	assert_int_equal(tables.n_rows, 2);
	assert_int_equal(tables.rules[0].cfa_offset, 8);
	assert_int_equal(elf_index_address(i, 4, &address), 0);
	assert_int_equal(address, 0x1004);
	elf_index_unref(i);
	buf_reset(&bytes);
	open_part(&nothing, &bytes, &i);
	assert_int_equal(elf_index_n_symbols(i) + elf_index_n_marks(i), 0);
	elf_index_tables(i, &tables);
	assert_int_equal(tables.n_pages, 0);
	assert_int_equal(elf_index_address(i, 4, &address), 0);
	elf_index_unref(i);
	buf_done(&bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_inside_a_page),
		cmocka_unit_test(lying_answers_are_refused),
		cmocka_unit_test(names_are_as_long_as_a_writer_makes_them),
		cmocka_unit_test(functions_without_a_symbol_begin_somewhere),
		cmocka_unit_test(index_answers_are_exact),
		cmocka_unit_test(what_is_missing_is_said),
		cmocka_unit_test(a_part_has_what_was_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
