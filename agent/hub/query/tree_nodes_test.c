/* SPDX-License-Identifier: Apache-2.0 */
/* The greatest nodes of trees: known answers, and what must hold of any tree. */
#include "hub/query/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MAX_FRAMES 8

/* Frames whose names are letters, which stay at their addresses. */
static struct frame letters[26];
static char names[26][2];

static int make_letters(void **state)
{
	(void)state;
	for (int i = 0; i < 26; i++) {
		names[i][0] = (char)('a' + i);
		letters[i] = (struct frame){.kind = FRAME_APP, .name = names[i]};
	}
	return 0;
}

/* Adds a row whose frames are the letters of the text. */
static void add(struct tree *t, const char *text, int64_t value)
{
	const struct frame *list[MAX_FRAMES];
	struct store_row row = {.app_service = "app",
				.head = {.thread_comm = "thread"},
				.frames = list,
				.value = value,
				.n_samples = 1};

	for (; *text; text++)
		list[row.n_frames++] = &letters[*text - 'a'];
	assert_int_equal(query_tree_add(t, &row, -1), 0);
}

static struct tree *new_tree(size_t max_nodes)
{
	return query_tree_new(&(struct tree_form){.only_frames = true, .max_nodes = max_nodes});
}

/* A node as "DEPTH NAME SELF/TOTAL BEFORE_SELF/BEFORE_TOTAL", without what is 0. */
static char *text_of(const struct query_nodes *n)
{
	struct buf b = {0};

	for (size_t i = 0; i < n->n; i++) {
		const struct query_node *node = &n->items[i];

		buf_printf(&b, "%s%u %s %ld/%ld", i ? "; " : "", node->depth, node->name ?: "-",
			   (long)node->self, (long)node->total);
		if (node->before_total)
			buf_printf(&b, " %ld/%ld", (long)node->before_self,
				   (long)node->before_total);
	}
	return buf_steal(&b);
}

static void check(struct tree *t, const struct query_cut *c, const char *want)
{
	_cleanup_(query_nodes_done) struct query_nodes n = {0};
	_cleanup_free_ char *text = NULL;

	assert_int_equal(query_nodes_of(t, c, NULL, &n), 0);
	text = text_of(&n);
	assert_string_equal(text, want);
}

static void check_most(struct tree *t, size_t max_nodes, const char *want)
{
	check(t, &(struct query_cut){.max_nodes = max_nodes}, want);
}

static void test_no_stack_has_its_thread(void **state)
{
	struct tree *t = new_tree(100);

	(void)state;
	check_most(t, 10, "0 - 0/0");
	add(t, "ab", 5);
	add(t, "a", 2);
	add(t, "", 3); /* without frames, the thread is all that is known */
	check_most(t, 10, "0 - 0/10; 1 a 2/7; 2 b 5/5; 1 [t] thread 3/3");
	query_tree_free(t);
}

static void test_the_rest_is_one_leaf(void **state)
{
	struct tree *t = new_tree(100);

	(void)state;
	add(t, "ab", 5);
	add(t, "ac", 4);
	add(t, "ad", 3);
	add(t, "e", 2);
	add(t, "z", 0); /* nothing */
	check_most(t, 5, "0 - 0/14; 1 a 0/12; 2 b 5/5; 2 c 4/4; 2 d 3/3; 1 e 2/2");
	check_most(t, 3, "0 - 0/14; 1 a 0/12; 2 b 5/5; 2 c 4/4; 2 other 3/3; 1 other 2/2");
	check_most(t, 1, "0 - 0/14; 1 a 0/12; 2 other 12/12; 1 other 2/2");
	query_tree_free(t);
}

static void test_what_a_tree_has_no_room_for_is_in_the_rest(void **state)
{
	struct tree *t = new_tree(3);

	(void)state;
	add(t, "ab", 5);
	add(t, "ac", 4);
	add(t, "d", 3);
	check_most(t, 10, "0 - 0/12; 1 a 0/9; 2 b 5/5; 2 other 4/4; 1 other 3/3");
	query_tree_free(t);
}

static void test_a_function_named_other_is_told_from_the_rest(void **state)
{
	struct tree *t = new_tree(100);
	char *before = names['o' - 'a'];

	(void)state;
	letters['o' - 'a'].name = "other";
	add(t, "aob", 5);
	add(t, "aoc", 4);
	add(t, "ad", 1);
	check_most(t, 10, "0 - 0/10; 1 a 0/10; 2 other 0/9; 3 b 5/5; 3 c 4/4; 2 d 1/1");
	check_most(t, 3, "0 - 0/10; 1 a 0/10; 2 other 10/10");
	letters['o' - 'a'].name = before;
	query_tree_free(t);
}

static void test_call_site(void **state)
{
	static const char *const ab[] = {"a", "b"}, *const b[] = {"b"};
	struct tree *t = new_tree(100);

	(void)state;
	add(t, "abc", 5);
	add(t, "abd", 4);
	add(t, "ab", 2);
	add(t, "ae", 9);
	check(t, &(struct query_cut){10, ab, 2}, "0 - 0/11; 1 a 0/11; 2 b 2/11; 3 c 5/5; 3 d 4/4");
	check(t, &(struct query_cut){3, ab, 2},
	      "0 - 0/11; 1 a 0/11; 2 b 2/11; 3 c 5/5; 3 other 4/4");
	check(t, &(struct query_cut){10, b, 1}, "0 - 0/0");
	query_tree_free(t);
}

static void test_two_selections(void **state)
{
	struct tree *t = new_tree(100);

	(void)state;
	add(t, "ab", 5);
	add(t, "ac", 1);
	query_tree_before(t);
	add(t, "ac", 7);
	add(t, "d", 2);
	check_most(t, 10, "0 - 0/6 0/9; 1 a 0/6 0/7; 2 c 1/1 7/7; 2 b 5/5; 1 d 0/0 2/2");
	check_most(t, 2, "0 - 0/6 0/9; 1 a 0/6 0/7; 2 c 1/1 7/7; 2 other 5/5; 1 other 0/0 2/2");
	query_tree_free(t);
}

/* ---- any tree ---- */

/* Checks a node and what is below it. Returns the index of what follows. */
static size_t check_node(const struct query_nodes *n, size_t at)
{
	const struct query_node *node = &n->items[at];
	int64_t total = node->self, before = node->before_self;
	size_t next = at + 1;

	assert_true(node->total > 0 || node->before_total > 0 || at == 0);
	assert_true(node->function < n->n_functions);
	for (uint32_t i = 0; i < node->n_children; i++) {
		assert_true(next < n->n);
		assert_int_equal(n->items[next].depth, node->depth + 1);
		total += n->items[next].total;
		before += n->items[next].before_total;
		next = check_node(n, next);
	}
	assert_int_equal(total, node->total);
	assert_int_equal(before, node->before_total);
	return next;
}

static unsigned draw(unsigned n)
{
	static uint64_t x = 88172645463325252ULL;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (unsigned)(x % n);
}

static void add_any(struct tree *t)
{
	char text[MAX_FRAMES + 1] = "";
	unsigned n = draw(MAX_FRAMES), n_letters = 1 + draw(5);

	for (unsigned i = 0; i < n; i++)
		text[i] = (char)('a' + draw(n_letters));
	add(t, text, draw(20));
}

static void test_any_tree_adds_up(void **state)
{
	(void)state;
	for (int i = 0; i < 3000; i++) {
		_cleanup_(query_nodes_done) struct query_nodes n = {0};
		struct tree *t = new_tree(1 + draw(60));

		for (unsigned k = draw(30); k; k--)
			add_any(t);
		if (draw(2))
			query_tree_before(t);
		for (unsigned k = draw(30); k; k--)
			add_any(t);
		assert_int_equal(
			query_nodes_of(t, &(struct query_cut){.max_nodes = 1 + draw(60)}, NULL, &n),
			0);
		assert_int_equal(check_node(&n, 0), n.n);
		assert_int_equal(n.items[0].total, t->nodes[ROOT].total);
		query_tree_free(t);
	}
}

static bool refuse(struct buf_budget *b, size_t n)
{
	(void)b;
	return n < 600;
}

static void test_a_list_has_a_budget(void **state)
{
	_cleanup_(query_nodes_done) struct query_nodes n = {0};
	struct buf_budget small = {refuse};
	struct tree *t = new_tree(100);

	(void)state;
	for (int i = 0; i < 26; i++)
		add(t, names[i], 1);
	assert_int_equal(query_nodes_of(t, &(struct query_cut){.max_nodes = 30}, &small, &n),
			 -E2BIG);
	query_tree_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_stack_has_its_thread),
		cmocka_unit_test(test_the_rest_is_one_leaf),
		cmocka_unit_test(test_what_a_tree_has_no_room_for_is_in_the_rest),
		cmocka_unit_test(test_a_function_named_other_is_told_from_the_rest),
		cmocka_unit_test(test_call_site),
		cmocka_unit_test(test_two_selections),
		cmocka_unit_test(test_any_tree_adds_up),
		cmocka_unit_test(test_a_list_has_a_budget),
	};

	return cmocka_run_group_tests(tests, make_letters, NULL);
}
