/* SPDX-License-Identifier: Apache-2.0 */
/* Adds ranges of rules, and checks in the pages which rule the unwinder finds at each address. */
#include "node/parse/build.h"
#include "node/parse/testrows.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static struct rows *rows;
static struct paged_rows out;
static struct elf_tables tables;

static int begin(void **state)
{
	(void)state;
	rows = parse_rows_new();
	return 0;
}

static void finish(void)
{
	assert_int_equal(parse_rows_finish(rows, &out), PARSE_OK);
	tables = (struct elf_tables){out.pages,	  out.rows,   out.rules,
				     out.n_pages, out.n_rows, out.n_rules};
}

static int end(void **state)
{
	(void)state;
	free(out.pages);
	free(out.rows);
	out = (struct paged_rows){0};
	rows = parse_rows_free(rows);
	return 0;
}

static void assert_rows(size_t page, const struct pf_row *want, size_t n)
{
	const struct elf_page *p = &out.pages[page];

	assert_int_equal(p->n_rows, n);
	for (size_t k = 0; k < n; k++) {
		assert_int_equal(out.rows[p->first_row + k].address, want[k].address);
		assert_int_equal(out.rows[p->first_row + k].rule, want[k].rule);
	}
}

static void nothing_gives_no_pages(void **state)
{
	(void)state;
	parse_rows_add(rows, 5, 5, 1);
	parse_rows_add(rows, 6, 5, 1);
	finish();
	assert_int_equal(out.n_pages, 0);
	assert_int_equal(out.n_rows, 0);
	assert_false(parse_rows_cut(rows));
}

static void order_does_not_matter_and_neighbours_join(void **state)
{
	static const struct pf_row want[] = {
		{0, PF_RULE_GAP}, {0x100, 7}, {0x200, 8}, {0x240, PF_RULE_GAP}};

	(void)state;
	parse_rows_add(rows, 0x10200, 0x10240, 8);
	parse_rows_add(rows, 0x10180, 0x10200, 7);
	parse_rows_add(rows, 0x10100, 0x10180, 7);
	finish();
	assert_int_equal(out.n_pages, 1);
	assert_int_equal(out.pages[0].number, 1);
	assert_rows(0, want, ARRAY_SIZE(want));
}

static void gaps_below_16_bytes_are_closed(void **state)
{
	static const struct pf_row want[] = {
		{0, 1}, {0x1f, 2}, {0x30, PF_RULE_GAP}, {0x40, 2}, {0x50, PF_RULE_GAP}};

	(void)state;
	parse_rows_add(rows, 0, 0x10, 1);
	parse_rows_add(rows, 0x1f, 0x30, 2); /* begins 15 bytes after the range before */
	parse_rows_add(rows, 0x40, 0x50, 2); /* begins 16 bytes after the range before */
	finish();
	assert_rows(0, want, ARRAY_SIZE(want));
}

static void the_range_that_starts_later_holds(void **state)
{
	static const struct pf_row want[] = {
		{0, 1}, {0x20, 2}, {0x40, 1}, {0x60, 3}, {0x180, PF_RULE_GAP}};

	(void)state;
	parse_rows_add(rows, 0, 0x100, 1);
	parse_rows_add(rows, 0x60, 0x180, 3);
	parse_rows_add(rows, 0x20, 0x40, 2);
	finish();
	assert_rows(0, want, ARRAY_SIZE(want));
}

static void of_two_with_one_start_the_first_holds(void **state)
{
	static const struct pf_row want[] = {{0, 1}, {0x80, 2}, {0x100, PF_RULE_GAP}};

	(void)state;
	parse_rows_add(rows, 0, 0x80, 1);
	parse_rows_add(rows, 0, 0x100, 2);
	finish();
	assert_rows(0, want, ARRAY_SIZE(want));
}

static void every_page_begins_with_what_was_left(void **state)
{
	static const struct pf_row first[] = {{0, PF_RULE_GAP}, {0xff00, 5}};
	static const struct pf_row middle[] = {{0, 5}};
	static const struct pf_row last[] = {{0, 5}, {0x10, 6}, {0x20, PF_RULE_GAP}};

	(void)state;
	parse_rows_add(rows, 0x2ff00, 0x50010, 5);
	parse_rows_add(rows, 0x50010, 0x50020, 6);
	finish();
	assert_int_equal(out.n_pages, 4);
	for (size_t k = 0; k < 4; k++)
		assert_int_equal(out.pages[k].number, 2 + k);
	assert_rows(0, first, ARRAY_SIZE(first));
	assert_rows(1, middle, ARRAY_SIZE(middle));
	assert_rows(2, middle, ARRAY_SIZE(middle));
	assert_rows(3, last, ARRAY_SIZE(last));
}

static void pages_without_ranges_are_left_out(void **state)
{
	(void)state;
	parse_rows_add(rows, 0xfff0, 0x10000, 5);
	parse_rows_add(rows, 0x90000, 0x90010, 6);
	finish();
	assert_int_equal(out.n_pages, 2);
	assert_int_equal(out.pages[0].number, 0);
	assert_int_equal(out.pages[1].number, 9);
	assert_int_equal(rule_at(&tables, 0xfff0), 5);
	assert_int_equal(rule_at(&tables, 0x10000), PF_RULE_GAP);
}

static void rules_are_kept_once_up_to_their_limit(void **state)
{
	struct pf_rule rule = {.cfa = PF_CFA_RSP};

	(void)state;
	for (int k = 0; k < PF_RULES_MAX; k++) {
		rule.cfa_offset = 8 * k;
		assert_int_equal(parse_rows_rule(rows, &rule), k);
		assert_int_equal(parse_rows_rule(rows, &rule), k);
	}
	assert_false(parse_rows_cut(rows));
	rule.cfa_offset = -8;
	assert_int_equal(parse_rows_rule(rows, &rule), PF_RULE_UNSUPPORTED);
	assert_true(parse_rows_cut(rows));
	rule.cfa_offset = 80;
	assert_int_equal(parse_rows_rule(rows, &rule), 10);
}

static void a_page_over_its_limit_is_unsupported(void **state)
{
	static const struct pf_row want[] = {{0, PF_RULE_UNSUPPORTED}};

	(void)state;
	parse_rows_add(rows, 0, 0x10, 4);
	for (uint64_t k = 0; k <= PF_PAGE_ROWS_MAX; k++)
		parse_rows_add(rows, 0x10000 + k, 0x10000 + k + 1, k & 1);
	parse_rows_add(rows, 0x20000, 0x20010, 5);
	finish();
	assert_true(parse_rows_cut(rows));
	assert_int_equal(out.n_pages, 3);
	assert_rows(1, want, 1);
	assert_int_equal(rule_at(&tables, 4), 4);
	assert_int_equal(rule_at(&tables, 0x20004), 5);
}

static void addresses_out_of_reach_are_cut(void **state)
{
	(void)state;
	parse_rows_add(rows, 0x100, 0x200, 4);
	parse_rows_add(rows, 1ull << 48, (1ull << 48) + 16, 4);
	parse_rows_add(rows, 0, 1ull << 40, 3);
	finish();
	assert_true(parse_rows_cut(rows));
	assert_int_equal(out.n_pages, 1);
	assert_int_equal(rule_at(&tables, 0x100), 4);
}

/*
 * Compares the pages of random ranges with the rule of each address, found by looking at all
 * ranges.
 */
static void random_ranges_hold_as_promised(void **state)
{
	enum { N = 60, SPAN = 3 << 16 };
	uint64_t starts[N], ends[N];

	(void)state;
	srand(4);
	for (uint16_t k = 0; k < N; k++) {
		starts[k] = rand() % SPAN & ~15;
		ends[k] = starts[k] + 16 + (rand() % 9000 & ~15);
		parse_rows_add(rows, starts[k], ends[k], k);
	}
	finish();
	for (uint64_t a = 0; a < SPAN; a += 8) {
		uint16_t want = PF_RULE_GAP;

		for (uint16_t k = 0; k < N; k++)
			if (starts[k] <= a && a < ends[k] &&
			    (want == PF_RULE_GAP || starts[k] > starts[want]))
				want = k;
		assert_int_equal(rule_at(&tables, a), want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_gives_no_pages, begin, end),
		cmocka_unit_test_setup_teardown(order_does_not_matter_and_neighbours_join, begin,
						end),
		cmocka_unit_test_setup_teardown(gaps_below_16_bytes_are_closed, begin, end),
		cmocka_unit_test_setup_teardown(the_range_that_starts_later_holds, begin, end),
		cmocka_unit_test_setup_teardown(of_two_with_one_start_the_first_holds, begin, end),
		cmocka_unit_test_setup_teardown(every_page_begins_with_what_was_left, begin, end),
		cmocka_unit_test_setup_teardown(pages_without_ranges_are_left_out, begin, end),
		cmocka_unit_test_setup_teardown(rules_are_kept_once_up_to_their_limit, begin, end),
		cmocka_unit_test_setup_teardown(a_page_over_its_limit_is_unsupported, begin, end),
		cmocka_unit_test_setup_teardown(addresses_out_of_reach_are_cut, begin, end),
		cmocka_unit_test_setup_teardown(random_ranges_hold_as_promised, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
