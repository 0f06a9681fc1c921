/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests disjoint ranges of inlined functions: known cases, and any ranges compared with a slow
 * algorithm.
 */
#include "node/parse/build.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#define SYMBOL UINT32_MAX /* the parent of an outermost node */

static struct flat_inlines finish(struct inlines *x)
{
	struct flat_inlines flat = {0};

	assert_int_equal(parse_inlines_finish(x, &flat), PARSE_OK);
	return flat;
}

static void done(struct inlines *x, struct flat_inlines *flat)
{
	free(flat->ranges);
	free(flat->nodes);
	parse_inlines_free(x);
}

/* Finds the names of the chain at an address, innermost first; a 0 ends the list. */
static void chain_at(const struct flat_inlines *flat, uint64_t address, uint32_t ret[8])
{
	size_t n = 0;

	memset(ret, 0, 8 * sizeof(*ret));
	for (size_t i = 0; i < flat->n_ranges; i++) {
		const struct index_inline_range *r = &flat->ranges[i];

		if (address < r->address || address - r->address >= r->size)
			continue;
		for (uint32_t k = r->node + 1; k && n < 7; k = flat->nodes[k - 1].parent) {
			assert_true(flat->nodes[k - 1].parent < k);
			ret[n++] = flat->nodes[k - 1].name;
		}
		return;
	}
}

static void assert_chain(const struct flat_inlines *flat, uint64_t address, uint32_t a, uint32_t b,
			 uint32_t c)
{
	uint32_t chain[8];

	chain_at(flat, address, chain);
	assert_int_equal(chain[0], a);
	assert_int_equal(chain[1], b);
	assert_int_equal(chain[2], c);
}

static bool is_cut(uint32_t depth, bool with_range)
{
	struct inlines *x = parse_inlines_new();
	struct flat_inlines flat;
	uint32_t node = SYMBOL;
	bool cut;

	for (uint32_t k = 0; k < depth; k++)
		node = parse_inlines_node(x, k + 1, 0, 0, node);
	if (with_range)
		parse_inlines_range(x, 0x100, 0x200, node);
	flat = finish(x);
	cut = parse_inlines_cut(x);
	done(x, &flat);
	return cut;
}

static void chains_deeper_than_are_answered_are_told(void **state)
{
	(void)state;
	assert_false(is_cut(ELF_INLINES_MAX, true));
	assert_true(is_cut(ELF_INLINES_MAX + 1, true));
	assert_false(is_cut(ELF_INLINES_MAX + 1, false)); /* no range has the deepest node */
}

static void the_innermost_wins(void **state)
{
	struct inlines *x = parse_inlines_new();
	uint32_t outer = parse_inlines_node(x, 1, 11, 21, SYMBOL);
	uint32_t inner = parse_inlines_node(x, 2, 12, 22, outer);
	uint32_t innermost = parse_inlines_node(x, 3, 13, 23, inner);
	struct flat_inlines flat;

	(void)state;
	parse_inlines_range(x, 0x130, 0x140, innermost);
	parse_inlines_range(x, 0x100, 0x200, outer);
	parse_inlines_range(x, 0x120, 0x150, inner);
	parse_inlines_range(x, 0x180, 0x190, inner);
	flat = finish(x);
	assert_chain(&flat, 0xff, 0, 0, 0);
	assert_chain(&flat, 0x100, 1, 0, 0);
	assert_chain(&flat, 0x120, 2, 1, 0);
	assert_chain(&flat, 0x130, 3, 2, 1);
	assert_chain(&flat, 0x13f, 3, 2, 1);
	assert_chain(&flat, 0x140, 2, 1, 0);
	assert_chain(&flat, 0x17f, 1, 0, 0);
	assert_chain(&flat, 0x18f, 2, 1, 0);
	assert_chain(&flat, 0x200, 0, 0, 0);
	assert_int_equal(flat.n_ranges, 7);
	assert_int_equal(flat.nodes[1].file, 12);
	assert_int_equal(flat.nodes[1].line, 22);
	done(x, &flat);
}

static void ranges_outside_their_parent_are_kept(void **state)
{
	struct inlines *x = parse_inlines_new();
	uint32_t outer = parse_inlines_node(x, 1, 0, 0, SYMBOL);
	uint32_t inner = parse_inlines_node(x, 2, 0, 0, outer);
	struct flat_inlines flat;

	(void)state;
	parse_inlines_range(x, 0x100, 0x110, outer);
	parse_inlines_range(x, 0x108, 0x120, inner);
	parse_inlines_range(x, 0x500, 0x501, inner);
	flat = finish(x);
	assert_chain(&flat, 0x107, 1, 0, 0);
	assert_chain(&flat, 0x11f, 2, 1, 0);
	assert_chain(&flat, 0x500, 2, 1, 0);
	assert_chain(&flat, 0x501, 0, 0, 0);
	done(x, &flat);
}

static void nameless_and_unused_nodes_are_left_out(void **state)
{
	struct inlines *x = parse_inlines_new();
	uint32_t outer = parse_inlines_node(x, 0, 0, 0, SYMBOL);
	uint32_t unused = parse_inlines_node(x, 9, 0, 0, outer);
	uint32_t nameless = parse_inlines_node(x, 0, 0, 0, outer);
	uint32_t inner = parse_inlines_node(x, 3, 0, 0, nameless);
	uint32_t alone = parse_inlines_node(x, 0, 0, 0, SYMBOL);
	struct flat_inlines flat;

	(void)state;
	(void)unused;
	parse_inlines_name(x, outer, 1, 0, 0);
	parse_inlines_range(x, 0x100, 0x200, outer);
	parse_inlines_range(x, 0x110, 0x140, nameless);
	parse_inlines_range(x, 0x120, 0x130, inner);
	parse_inlines_range(x, 0x300, 0x310, alone);
	flat = finish(x);
	assert_chain(&flat, 0x118, 1, 0, 0);
	assert_chain(&flat, 0x128, 3, 1, 0);
	assert_chain(&flat, 0x300, 0, 0, 0);
	assert_int_equal(flat.n_nodes, 2);
	assert_int_equal(flat.n_ranges, 3);
	done(x, &flat);
}

static void odd_arguments_do_no_harm(void **state)
{
	struct inlines *x = parse_inlines_new();
	uint32_t node = parse_inlines_node(x, 1, 0, 0, 77); /* a parent that does not exist */
	struct flat_inlines flat;

	(void)state;
	parse_inlines_range(x, 0x20, 0x10, node);
	parse_inlines_range(x, 0x10, 0x10, node);
	parse_inlines_range(x, 0x10, 0x20, 5);
	parse_inlines_name(x, 5, 1, 1, 1);
	parse_inlines_range(x, 0, UINT64_MAX, node);
	flat = finish(x);
	assert_int_equal(flat.n_ranges, 1);
	assert_int_equal(flat.ranges[0].address, 0);
	assert_int_equal(flat.ranges[0].size, UINT32_MAX);
	assert_chain(&flat, 5, 1, 0, 0);
	done(x, &flat);
	x = parse_inlines_new();
	flat = finish(x);
	assert_int_equal(flat.n_ranges + flat.n_nodes, 0);
	done(x, &flat);
}

#define SPACE 96
#define SOME  24

/*
 * Computes the same answer in a slow way: from all ranges around an address it takes the deepest
 * one, then the one with the latest start, then the first.
 */
struct slow {
	uint64_t start[SOME], end[SOME];
	uint32_t node[SOME], parent[SOME], depth[SOME];
	size_t n_ranges, n_nodes;
};

static uint32_t slow_node(const struct slow *s, uint64_t address)
{
	size_t best = SOME;

	for (size_t i = 0; i < s->n_ranges; i++) {
		uint32_t d = s->depth[s->node[i]];
		uint32_t b = best == SOME ? 0 : s->depth[s->node[best]];

		if (address < s->start[i] || address >= s->end[i])
			continue;
		if (best == SOME || d > b || (d == b && s->start[i] > s->start[best]) ||
		    (d == b && s->start[i] == s->start[best] && s->node[i] < s->node[best]))
			best = i;
	}
	return best == SOME ? 0 : s->node[best] + 1;
}

static void compare_with_slow(unsigned seed)
{
	struct inlines *x = parse_inlines_new();
	struct flat_inlines flat;
	struct slow s = {0};

	srand(seed);
	s.n_nodes = 1 + rand() % 8;
	s.n_ranges = rand() % SOME;
	for (uint32_t i = 0; i < s.n_nodes; i++) {
		s.parent[i] = i && rand() % 4 ? (uint32_t)rand() % i : SYMBOL;
		s.depth[i] = s.parent[i] == SYMBOL ? 0 : s.depth[s.parent[i]] + 1;
		assert_int_equal(parse_inlines_node(x, i + 1, 0, 0, s.parent[i]), i);
	}
	for (size_t i = 0; i < s.n_ranges; i++) {
		s.start[i] = rand() % SPACE;
		s.end[i] = s.start[i] + rand() % 20;
		s.node[i] = rand() % s.n_nodes;
		parse_inlines_range(x, s.start[i], s.end[i], s.node[i]);
	}
	flat = finish(x);
	for (size_t i = 1; i < flat.n_ranges; i++) {
		const struct index_inline_range *r = &flat.ranges[i];

		assert_true(r[-1].address + r[-1].size <= r->address);
		assert_false(r[-1].address + r[-1].size == r->address && r[-1].node == r->node);
	}
	for (uint64_t a = 0; a < SPACE + 20; a++) {
		uint32_t chain[8];

		chain_at(&flat, a, chain);
		assert_int_equal(chain[0], slow_node(&s, a));
		if (chain[0])
			assert_int_equal(chain[1], s.parent[chain[0] - 1] + 1);
	}
	done(x, &flat);
}

static void any_ranges_equal_the_slow_way(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 3000; seed++)
		compare_with_slow(seed);
}

/* A million ranges nested in each other, which all begin at nearly the same address. */
static void many_nested_ranges_end(void **state)
{
	struct inlines *x = parse_inlines_new();
	uint32_t node = SYMBOL;
	struct flat_inlines flat;

	(void)state;
	for (uint32_t i = 0; i < 1000000; i++) {
		node = parse_inlines_node(x, i + 1, 0, 0, node);
		parse_inlines_range(x, 10 + i % 7, 4000000 - i, node);
	}
	assert_false(parse_inlines_cut(x));
	for (uint32_t i = 0; i < 100000; i++)
		node = parse_inlines_node(x, 1, 0, 0, 0);
	assert_int_equal(node, UINT32_MAX);
	assert_true(parse_inlines_cut(x));
	flat = finish(x);
	assert_true(flat.n_nodes >= 1000000);
	done(x, &flat);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chains_deeper_than_are_answered_are_told),
		cmocka_unit_test(the_innermost_wins),
		cmocka_unit_test(ranges_outside_their_parent_are_kept),
		cmocka_unit_test(nameless_and_unused_nodes_are_left_out),
		cmocka_unit_test(odd_arguments_do_no_harm),
		cmocka_unit_test(any_ranges_equal_the_slow_way),
		cmocka_unit_test(many_nested_ranges_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
