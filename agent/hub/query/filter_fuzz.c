/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tag_filter from arbitrary text: the parser returns a tree or an error with a position, never both
 * or neither. A tree that is written as text again gives the same tree. Fuzzes: hub/query/filter.c
 */
#include "hub/query/query.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* ---- a tree as tag_filter text ---- */

static void put_quoted(struct buf *b, char quote, const char *text)
{
	buf_putc(b, quote);
	for (; *text; text++) {
		if (*text == quote || (*text == '\\' && quote != '`'))
			buf_putc(b, *text);
		buf_putc(b, *text);
	}
	buf_putc(b, quote);
}

static void put_leaf(struct buf *b, const struct predicate *p)
{
	static const char *const words[] = {
		[PRED_EQ] = "=",
		[PRED_NE] = "<>",
		[PRED_LT] = "<",
		[PRED_GT] = ">",
		[PRED_LE] = "<=",
		[PRED_GE] = ">=",
		[PRED_IN] = "in",
		[PRED_NOT_IN] = "Not In",
		[PRED_LIKE] = "LIKE",
		[PRED_NOT_LIKE] = "not like",
		[PRED_REGEXP] = "regexp",
		[PRED_NOT_REGEXP] = "NOT REGEXP",
		[PRED_IS_NULL] = "is null",
		[PRED_NOT_NULL] = "is not null",
	};
	bool list = p->op == PRED_IN || p->op == PRED_NOT_IN;

	check(p->tag && (size_t)p->op < ARRAY_SIZE(words) && words[p->op] && p->n_children == 0);
	put_quoted(b, '`', p->tag);
	buf_printf(b, " %s", words[p->op]);
	buf_puts(b, list ? " (" : " ");
	for (size_t i = 0; i < p->n_values; i++) {
		buf_puts(b, i ? ", " : "");
		put_quoted(b, '\'', p->values[i]);
	}
	buf_puts(b, list ? ")" : "");
}

static void put(struct buf *b, const struct predicate *p)
{
	if (p->op > PRED_NOT) {
		put_leaf(b, p);
		return;
	}
	check(p->op == PRED_NOT ? p->n_children == 1 : p->n_children > 1);
	if (p->op == PRED_NOT)
		buf_puts(b, "NOT ");
	for (size_t i = 0; i < p->n_children; i++) {
		bool inner = p->children[i]->op <= PRED_NOT;

		buf_puts(b, i == 0 ? "" : p->op == PRED_AND ? " AND " : "\tor ");
		buf_puts(b, inner ? "(" : "");
		put(b, p->children[i]);
		buf_puts(b, inner ? ")" : "");
	}
}

static bool same(const struct predicate *a, const struct predicate *b)
{
	bool same_here = a->op == b->op && a->n_children == b->n_children &&
			 str_equal(a->tag, b->tag) && a->numeric == b->numeric &&
			 a->n_values == b->n_values;

	for (size_t i = 0; same_here && i < a->n_values; i++)
		same_here = streq(a->values[i], b->values[i]);
	for (size_t i = 0; same_here && i < a->n_children; i++)
		same_here = same(a->children[i], b->children[i]);
	return same_here;
}

/*
 * Writes the tree as text and parses it. This may fail, because parentheses count as levels, and
 * the written text has more of them.
 */
static void read_again(const struct predicate *p)
{
	_cleanup_buf_ struct buf b = {0};
	struct predicate *again = NULL;
	struct field_error e = {0};

	put(&b, p);
	if (query_filter_parse(b.data, &again, &e) == 0)
		check(same(p, again));
	else
		check(strstr(e.reason, "nested deeper") || strstr(e.reason, "longer than"));
	store_predicate_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, n);
	struct predicate *p = NULL;
	struct field_error e = {0};
	int r = query_filter_parse(text, &p, &e);

	check(!r || (!p && e.reason[0] && str_has_prefix(e.path, "tag_filter:")));
	if (p)
		read_again(p);
	store_predicate_free(p);
	return 0;
}
