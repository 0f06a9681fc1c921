/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of an index of generated code, and damaged call frame information. */
#include "node/parse/generated.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/parse/testelf.h"

#define CODE	  0x7f0000000000ull
#define INDEX_MAX (2u << 20)

/* Adds an FDE of the CIE at 0, with a program of n bytes. */
static void add_fde(struct buf *b, uint64_t start, uint64_t length, const void *program, size_t n)
{
	testelf_uint(b, 4 + 16 + n, 4);
	testelf_uint(b, b->len, 4);
	testelf_uint(b, start, 8);
	testelf_uint(b, length, 8);
	if (n)
		buf_add(b, program, n);
}

/* Adds a CIE whose rule is: the CFA is rsp + 8. */
static void add_cie(struct buf *b)
{
	static const uint8_t body[] = {1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x80 | 16, 1, 0, 0};

	buf_init(b, 0);
	testelf_uint(b, sizeof(body) + 4, 4);
	testelf_uint(b, 0, 4);
	buf_add(b, body, sizeof(body));
}

static int add(struct parse_generated *g, const struct buf *b)
{
	return parse_generated_add(
		g, &(struct parse_generated_frames){.data = b->data, .n = b->len, .eh = true});
}

/* Returns the index; NULL: there are no rows. */
static struct elf_index *finish(struct parse_generated *g)
{
	struct elf_index *index = NULL;
	struct buf out;
	size_t n;
	char *data;

	buf_init(&out, INDEX_MAX);
	assert_int_equal(parse_generated_write(g, &out), 0);
	parse_generated_free(g);
	n = out.len;
	data = buf_steal(&out);
	if (n)
		assert_int_equal(elf_index_borrow(data, n, free, data, &index), 0);
	else
		free(data);
	return index;
}

static struct parse_generated *with_memory(uint64_t bytes)
{
	struct parse_generated *g = parse_generated_new();

	parse_generated_memory(g, 4096, 8192);
	parse_generated_memory(g, CODE, CODE + bytes);
	return g;
}

static void rows_are_those_of_generated_code(void **state)
{
	struct parse_generated *g = with_memory(0x10000);
	_cleanup_buf_ struct buf b = {0};
	struct elf_index *index;
	struct elf_tables t;

	(void)state;
	add_cie(&b);
	add_fde(&b, CODE + 0x100, 0x100, NULL, 0);
	add_fde(&b, CODE + 0x10000, 0x100, NULL, 0);
	add_fde(&b, 8192, 0x100, NULL, 0);
	add_fde(&b, 100, 0x10000, NULL, 0);
	assert_int_equal(add(g, &b), 0);
	index = finish(g);
	elf_index_tables(index, &t);
	assert_int_equal(t.n_pages, 1);
	assert_int_equal(t.pages[0].number, CODE >> PF_PAGE_BITS);
	assert_int_equal(t.n_rows, 3); /* a gap, the row, a gap */
	assert_int_equal(t.rows[1].address, 0x100);
	assert_int_equal(t.rows[2].address, 0x200);
	assert_int_equal(t.rules[t.rows[1].rule].cfa_offset, 8);
	elf_index_unref(index);
}

static void a_damaged_function_is_left_out(void **state)
{
	struct parse_generated *g = with_memory(0x10000);
	_cleanup_buf_ struct buf b = {0};
	struct elf_index *index;
	struct elf_tables t;

	(void)state;
	add_cie(&b);
	add_fde(&b, CODE, 0x100, NULL, 0);
	testelf_uint(&b, 1u << 30, 4); /* an entry that is longer than the information */
	assert_int_equal(add(g, &b), -EBADMSG);
	index = finish(g);
	elf_index_tables(index, &t);
	assert_int_equal(t.n_rows, 2);
	elf_index_unref(index);
	g = with_memory(0x10000);
	assert_null(finish(g));
}

/* Rows of functions beyond the limit are left out, and a function has all of its rows or none. */
static void rows_have_a_limit(void **state)
{
	enum { N = 16384, FUNCTIONS = 20, FITS = 16, BYTES = 4 * N };
	uint8_t(*program)[3] = xcalloc(N, sizeof(*program));
	struct parse_generated *g = with_memory(FUNCTIONS * BYTES);
	_cleanup_buf_ struct buf b = {0};
	struct elf_index *index;
	struct elf_tables t;

	(void)state;
	for (size_t i = 0; i < N; i++) /* each four bytes another CFA */
		memcpy(program[i], (uint8_t[]){0x0e, 8 + i % 2 * 8, 0x44}, sizeof(*program));
	add_cie(&b);
	for (uint64_t i = 0; i < FUNCTIONS; i++)
		add_fde(&b, CODE + i * BYTES, BYTES, program, N * sizeof(*program));
	assert_int_equal(add(g, &b), -E2BIG);
	index = finish(g);
	elf_index_tables(index, &t);
	assert_int_equal(t.n_pages, FITS);
	for (size_t i = 0; i < FITS; i++)
		assert_int_equal(t.pages[i].n_rows, N);
	elf_index_unref(index);
	free(program);
}

/* More rows than a page may have are not silently left out. */
static void a_page_has_a_limit(void **state)
{
	enum { N = PF_PAGE_BYTES / 2 };
	uint8_t(*program)[3] = xcalloc(N, sizeof(*program));
	struct parse_generated *g = with_memory(PF_PAGE_BYTES);
	_cleanup_buf_ struct buf b = {0}, out = {0};

	(void)state;
	for (size_t i = 0; i < N; i++) /* each two bytes another CFA */
		memcpy(program[i], (uint8_t[]){0x0e, 8 + i % 2 * 8, 0x42}, sizeof(*program));
	add_cie(&b);
	add_fde(&b, CODE, PF_PAGE_BYTES, program, N * sizeof(*program));
	assert_int_equal(add(g, &b), 0);
	buf_init(&out, INDEX_MAX);
	assert_int_equal(parse_generated_write(g, &out), -ENOSPC);
	assert_true(out.len > 0);
	parse_generated_free(g);
	free(program);
}

static void an_index_has_a_limit(void **state)
{
	struct parse_generated *g = with_memory(1ull << 40);
	_cleanup_buf_ struct buf b = {0}, out = {0};

	(void)state;
	add_cie(&b);
	for (uint64_t i = 0; i < 8; i++)
		add_fde(&b, CODE + (i << 31), 1ull << 31, NULL, 0);
	assert_int_equal(add(g, &b), 0);
	buf_init(&out, INDEX_MAX);
	assert_int_equal(parse_generated_write(g, &out), -E2BIG);
	parse_generated_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_those_of_generated_code),
		cmocka_unit_test(a_damaged_function_is_left_out),
		cmocka_unit_test(rows_have_a_limit),
		cmocka_unit_test(a_page_has_a_limit),
		cmocka_unit_test(an_index_has_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
