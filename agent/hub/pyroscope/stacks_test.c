/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flame graphs, trees and call graphs: known answers, and any flame graph and tree read back by the
 * rules of their readers.
 */
#include "hub/pyroscope/stacks.h"

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
	struct store_row row = {
		.app_service = "app", .frames = list, .value = value, .n_samples = 1};

	for (; *text; text++)
		list[row.n_frames++] = &letters[*text - 'a'];
	assert_int_equal(query_tree_add(t, &row, -1), 0);
}

static struct tree *new_tree(void)
{
	return query_tree_new(&(struct tree_form){.only_frames = true, .max_nodes = 1000});
}

static void list(struct tree *t, size_t max_nodes, struct query_nodes *ret)
{
	assert_int_equal(query_nodes_of(t, &(struct query_cut){.max_nodes = max_nodes}, NULL, ret),
			 0);
}

/* ---- known answers ---- */

/* Names, then rows of bars: "total,a|0,5,0,0|0,5,5,1". */
static char *text_of(const struct pyroscope_flame *f)
{
	struct buf b = {0};

	for (size_t i = 0; i < f->n_names; i++)
		buf_printf(&b, "%s%s", i ? "," : "", f->names[i]);
	for (size_t i = 0; i < f->n_rows; i++)
		for (size_t k = 0; k < f->rows[i].n; k++)
			buf_printf(&b, "%s%ld", k ? "," : "|", (long)f->rows[i].values[k]);
	return buf_steal(&b);
}

static void check_flame(struct tree *t, size_t max_nodes, bool diff, const char *want)
{
	_cleanup_(query_nodes_done) struct query_nodes n = {0};
	_cleanup_(pyroscope_flame_done) struct pyroscope_flame f = {0};
	_cleanup_free_ char *text = NULL;

	list(t, max_nodes, &n);
	assert_int_equal(pyroscope_flame_of(&n, diff, NULL, &f), 0);
	text = text_of(&f);
	assert_string_equal(text, want);
}

static void test_levels(void **state)
{
	struct tree *t = new_tree();

	(void)state;
	check_flame(t, 10, false, "total|0,0,0,0");
	add(t, "ab", 5);
	add(t, "a", 2);
	add(t, "ac", 3);
	add(t, "db", 4);
	check_flame(t, 10, false,
		    "total,a,b,c,d|0,14,0,0|0,10,2,1,0,4,0,4|2,5,5,2,0,3,3,3,0,4,4,2");
	check_flame(t, 2, false, "total,a,b,other|0,14,0,0|0,10,2,1,0,4,4,3|2,5,5,2,0,3,3,3");
	query_tree_free(t);
}

static void test_levels_of_a_difference(void **state)
{
	struct tree *t = new_tree();

	(void)state;
	add(t, "ab", 5);
	add(t, "c", 1);
	query_tree_before(t);
	add(t, "ab", 3);
	add(t, "a", 2);
	check_flame(t, 10, true,
		    "total,a,b,c|0,5,0,0,6,0,0|0,5,2,0,5,0,1,0,0,0,0,1,1,3|2,3,3,0,5,5,2");
	query_tree_free(t);
}

static void test_values_stop_at_the_greatest_number(void **state)
{
	_cleanup_(query_nodes_done) struct query_nodes n = {0};
	_cleanup_(pyroscope_flame_done) struct pyroscope_flame f = {0};
	struct tree *t = new_tree();

	(void)state;
	add(t, "a", INT64_MAX / 2);
	add(t, "b", INT64_MAX / 2);
	add(t, "c", INT64_MAX / 2);
	list(t, 10, &n);
	pyroscope_scale_nodes(&n, 1000);
	assert_int_equal(n.items[1].total, INT64_MAX);
	assert_int_equal(pyroscope_flame_of(&n, false, NULL, &f), 0);
	assert_int_equal(f.total, INT64_MAX);
	query_tree_free(t);
}

static void test_flamebearer(void **state)
{
	_cleanup_(query_nodes_done) struct query_nodes n = {0};
	_cleanup_(pyroscope_flame_done) struct pyroscope_flame f = {0};
	_cleanup_buf_ struct buf b = {0};
	struct tree *t = new_tree();

	(void)state;
	add(t, "a", 5);
	list(t, 10, &n);
	assert_int_equal(pyroscope_flame_of(&n, true, NULL, &f), 0);
	pyroscope_put_flamebearer(&b, &f, &(struct pyroscope_render){"cpu", "samples", 1000});
	assert_string_equal(
		b.data,
		"{\"version\":1,\"flamebearer\":{\"names\":[\"total\",\"a\"],"
		"\"levels\":[[0,0,0,0,5,0,0],[0,0,0,0,5,5,1]],\"numTicks\":5,\"maxSelf\":5},"
		"\"metadata\":{\"format\":\"double\",\"spyName\":\"\",\"sampleRate\":1000,"
		"\"units\":\"samples\",\"name\":\"cpu\"},\"leftTicks\":0,\"rightTicks\":5");
	query_tree_free(t);
}

static void test_tree_bytes(void **state)
{
	static const char want[] = "\0\0\2"	 /* the root has two children */
				   "\1a\2\1"	 /* a: 2, one child */
				   "\1b\254\2\0" /* b: 300 */
				   "\1c\5\0";
	_cleanup_(query_nodes_done) struct query_nodes n = {0}, empty = {0};
	_cleanup_buf_ struct buf b = {0};
	struct tree *t = new_tree();

	(void)state;
	list(t, 10, &empty);
	pyroscope_put_tree(&b, &empty);
	assert_int_equal(b.len, 0);
	add(t, "ab", 300);
	add(t, "a", 2);
	add(t, "c", 5);
	list(t, 10, &n);
	pyroscope_put_tree(&b, &n);
	assert_int_equal(b.len, sizeof(want) - 1);
	assert_memory_equal(b.data, want, b.len);
	query_tree_free(t);
}

static void check_dot(struct tree *t, size_t max_nodes, const char *want)
{
	_cleanup_(query_nodes_done) struct query_nodes n = {0};
	_cleanup_buf_ struct buf b = {0};

	list(t, 1000, &n);
	assert_int_equal(pyroscope_put_dot(&b, &n, max_nodes, "bytes"), 0);
	assert_string_equal(b.data ?: "", want);
}

static void test_dot(void **state)
{
	struct tree *t = new_tree();

	(void)state;
	check_dot(t, 10, "");
	letters['b' - 'a'].name = "b\"\\\n";
	add(t, "abab", 60);
	add(t, "ac", 30);
	add(t, "d", 10);
	check_dot(t, 3,
		  "digraph \"podflame\" {\nnode [shape=box]\n"
		  "legend [shape=note label=\"total 100 bytes\\nthe 3 greatest of 4 functions\"]\n"
		  "N1 [label=\"a\\nself 0 bytes (0.00%)\\ntotal 90 bytes (90.00%)\"]\n"
		  "N2 [label=\"b\\\"\\\\ \\nself 60 bytes (60.00%)\\ntotal 60 bytes (60.00%)\"]\n"
		  "N3 [label=\"c\\nself 30 bytes (30.00%)\\ntotal 30 bytes (30.00%)\"]\n"
		  "N1 -> N2 [label=\"60 (60.00%)\"]\n"
		  "N2 -> N1 [label=\"60 (60.00%)\"]\n"
		  "N1 -> N3 [label=\"30 (30.00%)\"]\n}\n");
	letters['b' - 'a'].name = names[1];
	query_tree_free(t);
}

static void test_dot_over_what_is_left_out(void **state)
{
	struct tree *t = new_tree();

	(void)state;
	add(t, "abc", 60);
	add(t, "ac", 5);
	add(t, "adc", 1);
	check_dot(t, 2,
		  "digraph \"podflame\" {\nnode [shape=box]\n"
		  "legend [shape=note label=\"total 66 bytes\\nthe 2 greatest of 4 functions\"]\n"
		  "N1 [label=\"a\\nself 0 bytes (0.00%)\\ntotal 66 bytes (100.00%)\"]\n"
		  "N2 [label=\"c\\nself 66 bytes (100.00%)\\ntotal 66 bytes (100.00%)\"]\n"
		  "N1 -> N2 [label=\"66 (100.00%)\"]\n}\n");
	query_tree_free(t);
	t = new_tree();
	add(t, "abc", 60);
	add(t, "xc", 90);
	check_dot(t, 3,
		  "digraph \"podflame\" {\nnode [shape=box]\n"
		  "legend [shape=note label=\"total 150 bytes\\nthe 3 greatest of 4 functions\"]\n"
		  "N1 [label=\"c\\nself 150 bytes (100.00%)\\ntotal 150 bytes (100.00%)\"]\n"
		  "N2 [label=\"x\\nself 0 bytes (0.00%)\\ntotal 90 bytes (60.00%)\"]\n"
		  "N3 [label=\"a\\nself 0 bytes (0.00%)\\ntotal 60 bytes (40.00%)\"]\n"
		  "N2 -> N1 [label=\"90 (60.00%)\"]\n"
		  "N3 -> N1 [label=\"60 (40.00%)\" style=\"dotted\"]\n}\n");
	query_tree_free(t);
}

/* ---- any flame graph, read as Grafana reads it ---- */

struct bar {
	int64_t start[2], total[2], self[2]; /* of the left and the right */
	int64_t name;
	size_t parent; /* in the row above */
};

/* Turns the offsets of a row into starts. Returns the number of bars. */
static size_t read_row(const struct pyroscope_flame *f, const struct pyroscope_row *row,
		       struct bar *ret)
{
	const size_t width = f->diff ? PYROSCOPE_DIFF_BAR : PYROSCOPE_BAR;
	const size_t n_sides = f->diff ? 2 : 1;
	int64_t end[2] = {0};
	size_t n = row->n / width;

	assert_true(row->n && row->n % width == 0);
	for (size_t i = 0; i < n; i++) {
		const int64_t *v = &row->values[i * width];

		ret[i] = (struct bar){.name = v[width - 1]};
		assert_in_range(ret[i].name, 0, f->n_names - 1);
		for (size_t s = 0; s < n_sides; s++) {
			ret[i].start[s] = end[s] + v[3 * s];
			ret[i].total[s] = v[3 * s + 1];
			ret[i].self[s] = v[3 * s + 2];
			assert_true(v[3 * s] >= 0 && v[3 * s + 1] >= 0);
			end[s] = ret[i].start[s] + ret[i].total[s];
		}
	}
	return n;
}

static bool is_within(const struct bar *b, const struct bar *in, size_t side)
{
	return b->start[side] >= in->start[side] + in->self[side] &&
	       b->start[side] + b->total[side] <= in->start[side] + in->total[side];
}

/* The first bar of the row above that contains this one. In a difference, a side may be empty. */
static size_t parent_of(const struct bar *b, const struct bar *above, size_t n, bool diff)
{
	for (size_t i = 0; i < n; i++) {
		bool left = is_within(b, &above[i], 0), right = is_within(b, &above[i], 1);

		if (!diff && left)
			return i;
		if (diff && (b->total[0] ? left : right) && (b->total[1] ? right : left))
			return i;
	}
	fail_msg("no bar contains this one");
	return 0;
}

/* Finds the child of a bar by its name, and checks that its values are those of the node. */
static size_t check_bar(const struct pyroscope_flame *f, const struct query_node *n,
			const struct bar *row, size_t n_bars, size_t parent)
{
	for (size_t i = 0; i < n_bars; i++) {
		const struct bar *b = &row[i];

		if (b->parent != parent || !streq(f->names[b->name], n->name))
			continue;
		assert_int_equal(b->total[f->diff], n->total);
		assert_int_equal(b->self[f->diff], n->self);
		if (f->diff) {
			assert_int_equal(b->total[0], n->before_total);
			assert_int_equal(b->self[0], n->before_self);
		}
		return i;
	}
	fail_msg("no bar is %s", n->name);
	return 0;
}

#define MAX_BARS 400

static void check_read_back(const struct query_nodes *n, const struct pyroscope_flame *f)
{
	static struct bar rows[MAX_FRAMES + 2][MAX_BARS];
	size_t n_bars[MAX_FRAMES + 2] = {0}, path[MAX_FRAMES + 2] = {0}, sum = 0;

	for (size_t r = 0; r < f->n_rows; r++) {
		assert_true(f->rows[r].n <= (size_t)MAX_BARS * PYROSCOPE_BAR);
		n_bars[r] = read_row(f, &f->rows[r], rows[r]);
		sum += n_bars[r];
		for (size_t i = 0; r && i < n_bars[r]; i++)
			rows[r][i].parent =
				parent_of(&rows[r][i], rows[r - 1], n_bars[r - 1], f->diff);
	}
	assert_int_equal(sum, n->n);
	assert_int_equal(rows[0][0].total[f->diff], n->items[0].total);
	for (size_t i = 1; i < n->n; i++) {
		const uint32_t d = n->items[i].depth;

		path[d] = check_bar(f, &n->items[i], rows[d], n_bars[d], path[d - 1]);
	}
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
	unsigned n_rows = draw(40);

	while (n_rows--) {
		char text[MAX_FRAMES + 1] = "";
		unsigned n = draw(MAX_FRAMES), n_letters = 1 + draw(5);

		for (unsigned i = 0; i < n; i++)
			text[i] = (char)('a' + draw(n_letters));
		add(t, text, draw(20));
	}
}

static void test_any_flame_graph_is_read_back(void **state)
{
	(void)state;
	for (int i = 0; i < 3000; i++) {
		_cleanup_(query_nodes_done) struct query_nodes n = {0};
		_cleanup_(pyroscope_flame_done) struct pyroscope_flame f = {0};
		struct tree *t = new_tree();
		bool diff = draw(2);

		add_any(t);
		if (diff) {
			query_tree_before(t);
			add_any(t);
		}
		list(t, 1 + draw(80), &n);
		assert_int_equal(pyroscope_flame_of(&n, diff, NULL, &f), 0);
		check_read_back(&n, &f);
		query_tree_free(t);
	}
}

/* ---- any tree, read as Pyroscope reads it: a stack of the parents whose children follow ---- */

static uint64_t read_varint(const struct buf *b, size_t *at)
{
	uint64_t v = 0;

	for (unsigned shift = 0;; shift += 7) {
		uint8_t byte = (uint8_t)b->data[*at];

		assert_true(*at < b->len);
		++*at;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return v;
	}
}

static void check_tree(const struct query_nodes *n, const struct buf *b)
{
	size_t parents[1000], n_parents = 1, at = 0, i = 0;

	parents[0] = 0; /* of the root: depth 0 */
	for (; n_parents; i++) {
		size_t depth = parents[--n_parents];
		const struct query_node *node = &n->items[i];
		uint64_t n_name = read_varint(b, &at), n_children;

		assert_true(i < n->n);
		assert_int_equal(depth, node->depth);
		assert_int_equal(n_name, strlen(node->name ?: ""));
		assert_memory_equal(b->data + at, node->name ?: "", n_name);
		at += n_name;
		assert_int_equal(read_varint(b, &at), node->self);
		n_children = read_varint(b, &at);
		for (uint64_t k = 0; k < n_children; k++)
			parents[n_parents++] = depth + 1;
	}
	assert_int_equal(i, n->n);
	assert_int_equal(at, b->len);
}

static void test_any_tree_is_read_back(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++) {
		_cleanup_(query_nodes_done) struct query_nodes n = {0};
		_cleanup_buf_ struct buf b = {0};
		struct tree *t = new_tree();

		add_any(t);
		list(t, 1 + draw(80), &n);
		pyroscope_put_tree(&b, &n);
		if (n.n > 1)
			check_tree(&n, &b);
		query_tree_free(t);
	}
}

static bool refuse(struct buf_budget *b, size_t n)
{
	(void)b, (void)n;
	return false;
}

static void test_budgets(void **state)
{
	_cleanup_(query_nodes_done) struct query_nodes n = {0};
	_cleanup_(pyroscope_flame_done) struct pyroscope_flame f = {0};
	struct buf_budget none = {refuse};
	_cleanup_buf_ struct buf b = {.budget = &none};
	struct tree *t = new_tree();

	(void)state;
	add(t, "ab", 1);
	list(t, 10, &n);
	assert_int_equal(pyroscope_flame_of(&n, false, &none, &f), -E2BIG);
	assert_int_equal(pyroscope_put_dot(&b, &n, 10, "bytes"), -E2BIG);
	query_tree_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_levels_of_a_difference),
		cmocka_unit_test(test_values_stop_at_the_greatest_number),
		cmocka_unit_test(test_flamebearer),
		cmocka_unit_test(test_tree_bytes),
		cmocka_unit_test(test_dot),
		cmocka_unit_test(test_dot_over_what_is_left_out),
		cmocka_unit_test(test_any_flame_graph_is_read_back),
		cmocka_unit_test(test_any_tree_is_read_back),
		cmocka_unit_test(test_budgets),
	};

	return cmocka_run_group_tests(tests, make_letters, NULL);
}
