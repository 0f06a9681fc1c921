/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses tag_filter, a condition in the syntax of SQL, into a predicate tree.
 *
 *	or      = and {OR and}
 *	and     = not {AND not}
 *	not     = NOT not | '(' or ')' | exist '(' tag ')' | tag test
 *	test    = compare value | [NOT] IN '(' value {',' value} ')'
 *	        | [NOT] LIKE value | [NOT] REGEXP value | IS [NOT] NULL
 *	compare = '=' | '!=' | '<>' | '<' | '>' | '<=' | '>='
 *	tag     = word | `word`
 *	value   = 'text' | "text" | number
 *
 * Keywords may be in any case. In text, \' \" \\ \n \t \r and a doubled quote mean what they
 * mean in MySQL. Any other \x keeps its backslash, so that '\.' reaches REGEXP.
 */
#include "hub/query/query.h"
#include "lib/base/regexp.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

enum token { T_END, T_WORD, T_TAG, T_STRING, T_NUMBER, T_OPERATOR, T_PUNCT };

struct filter_parser {
	const char *text;
	size_t at;    /* the position behind the token */
	size_t start; /* the position of the token */
	enum token token;
	struct buf word; /* the token's text, without quotes and escapes */
	unsigned depth, n_conditions, n_regexps, n_values;
	struct field_error *err;
};

static int fail_at(struct filter_parser *p, size_t at, const char *fmt, ...) _printf_(3, 4);
static int fail_at(struct filter_parser *p, size_t at, const char *fmt, ...)
{
	char path[64];
	char reason[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "tag_filter:%zu", at + 1);
	return field_error_set(p->err, path, "%s", reason);
}

static bool is_keyword(const struct filter_parser *p, const char *word)
{
	return p->token == T_WORD && strcasecmp(p->word.data, word) == 0;
}

static int expected(struct filter_parser *p, const char *what)
{
	if (p->token == T_END)
		return fail_at(p, p->start, "expected %s, found the end", what);
	return fail_at(p, p->start, "expected %s, found '%.60s'", what,
		       p->word.data ? p->word.data : "");
}

/* ---- tokens ---- */

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-' || c == '/' ||
	       c == ':';
}

static int put_escape(struct filter_parser *p, char c)
{
	static const char from[] = "'\"\\ntr", to[] = "'\"\\\n\t\r";
	const char *known = c ? strchr(from, c) : NULL;

	if (known)
		return buf_putc(&p->word, to[known - from]);
	buf_putc(&p->word, '\\');
	return c ? buf_putc(&p->word, c) : 0;
}

static int read_quoted(struct filter_parser *p, char quote)
{
	const char *s = p->text + p->start + 1;

	for (;; s++) {
		if (!*s)
			return fail_at(p, p->start, "expected a closing %c, found the end", quote);
		if (*s == '\\' && quote != '`' && s[1]) {
			put_escape(p, *++s);
		} else if (*s == quote && s[1] == quote) {
			buf_putc(&p->word, *s++);
		} else if (*s == quote) {
			break;
		} else {
			buf_putc(&p->word, *s);
		}
	}
	if (p->word.len > FILTER_MAX_VALUE)
		return fail_at(p, p->start, "a value longer than %d bytes", FILTER_MAX_VALUE);
	p->token = quote == '`' ? T_TAG : T_STRING;
	p->at = (size_t)(s - p->text) + 1;
	return 0;
}

static void read_number(struct filter_parser *p)
{
	const char *s = p->text + p->start;
	size_t n = *s == '-';

	n += strspn(s + n, "0123456789");
	if (s[n] == '.' && isdigit((unsigned char)s[n + 1]))
		n += 1 + strspn(s + n + 1, "0123456789");
	p->token = T_NUMBER;
	buf_add(&p->word, s, n);
	p->at = p->start + n;
}

static int read_symbol(struct filter_parser *p)
{
	static const char *const operators[] = {"!=", "<>", "<=", ">=", "=", "<", ">"};
	const char *s = p->text + p->start;

	for (size_t i = 0; i < ARRAY_SIZE(operators); i++) {
		if (!str_has_prefix(s, operators[i]))
			continue;
		p->token = T_OPERATOR;
		buf_puts(&p->word, operators[i]);
		p->at = p->start + p->word.len;
		return 0;
	}
	if (!strchr("(),", *s)) {
		buf_add(&p->word, s, MAX(utf8_len(s), (size_t)1));
		return fail_at(p, p->start, "'%s' is not part of the language of tag_filter",
			       p->word.data);
	}
	p->token = T_PUNCT;
	buf_putc(&p->word, *s);
	p->at = p->start + 1;
	return 0;
}

static int next(struct filter_parser *p)
{
	const char *s = p->text + p->at;
	size_t n = 0;

	s += strspn(s, " \t\r\n");
	p->start = p->at = (size_t)(s - p->text);
	buf_reset(&p->word);
	if (!*s) {
		p->token = T_END;
		return 0;
	}
	if (*s == '\'' || *s == '"' || *s == '`')
		return read_quoted(p, *s);
	if (isdigit((unsigned char)*s) || (*s == '-' && isdigit((unsigned char)s[1]))) {
		read_number(p);
		return 0;
	}
	if (!isalpha((unsigned char)*s) && *s != '_')
		return read_symbol(p);
	while (is_word(s[n]))
		n++;
	p->token = T_WORD;
	buf_add(&p->word, s, n);
	p->at = p->start + n;
	return 0;
}

static bool is_punct(const struct filter_parser *p, char c)
{
	return p->token == T_PUNCT && p->word.data[0] == c;
}

static int take_punct(struct filter_parser *p, char c, const char *what)
{
	return is_punct(p, c) ? next(p) : expected(p, what);
}

/* ---- tree ---- */

static void predicate_freep(struct predicate **p)
{
	store_predicate_free(*p);
}

static void add_child(struct predicate *p, struct predicate *child)
{
	/* The array's capacity is the next power of two, so it need not be stored. */
	if ((p->n_children & (p->n_children - 1)) == 0)
		p->children = xrealloc(p->children,
				       (p->n_children ? p->n_children * 2 : 1) * sizeof(child));
	p->children[p->n_children++] = child;
}

static struct predicate *predicate_new(enum predicate_op op)
{
	struct predicate *p = xcalloc(1, sizeof(*p));

	p->op = op;
	return p;
}

static int check_number(struct filter_parser *p, const struct predicate *leaf)
{
	const char *s = p->word.data ? p->word.data : "";
	uint64_t v;

	if (!leaf->numeric || leaf->op == PRED_LIKE || leaf->op == PRED_NOT_LIKE ||
	    leaf->op == PRED_REGEXP || leaf->op == PRED_NOT_REGEXP)
		return 0;
	if (*s == '-')
		s++;
	if (!isdigit((unsigned char)*s) || strspn(s, "0123456789") != strlen(s) ||
	    str_to_u64(s, INT64_MAX, &v))
		return fail_at(p, p->start, "%s compares with whole numbers, not with '%.60s'",
			       leaf->tag, p->word.data ? p->word.data : "");
	return 0;
}

static int check_regexp(struct filter_parser *p, const struct predicate *leaf)
{
	struct field_error e = {0};

	if (leaf->op != PRED_REGEXP && leaf->op != PRED_NOT_REGEXP)
		return 0;
	if (++p->n_regexps > FILTER_MAX_REGEXPS)
		return fail_at(p, p->start,
			       "REGEXP more than %d times; one REGEXP 'a|b' can stand for two",
			       FILTER_MAX_REGEXPS);
	if (regexp_check(p->word.data ? p->word.data : "", &e))
		return fail_at(p, p->start, "bad regular expression: %s", e.reason);
	return 0;
}

static int take_value(struct filter_parser *p, struct predicate *leaf)
{
	int r;

	if (p->token != T_STRING && p->token != T_NUMBER)
		return expected(p, "a value ('text' or a number)");
	if (++p->n_values > FILTER_MAX_VALUES)
		return fail_at(p, p->start, "more than %d values", FILTER_MAX_VALUES);
	r = check_number(p, leaf);
	if (!r)
		r = check_regexp(p, leaf);
	if (r)
		return r;
	if ((leaf->n_values & (leaf->n_values - 1)) == 0)
		leaf->values = xrealloc(leaf->values, (leaf->n_values ? leaf->n_values * 2 : 1) *
							      sizeof(*leaf->values));
	leaf->values[leaf->n_values++] = xstrdup(p->word.data ? p->word.data : "");
	return next(p);
}

static int take_list(struct filter_parser *p, struct predicate *leaf)
{
	int r = take_punct(p, '(', "'(' after IN");

	if (!r)
		r = take_value(p, leaf);
	while (!r && is_punct(p, ',')) {
		r = next(p);
		if (!r)
			r = take_value(p, leaf);
	}
	return r ? r : take_punct(p, ')', "',' or ')'");
}

static int unknown_tag(struct filter_parser *p)
{
	const char *name = p->word.data ? p->word.data : "", *close = query_tag_suggest(name);

	if (is_keyword(p, "and") || is_keyword(p, "or"))
		return expected(p, "a tag");
	if (str_equal(close, name))
		return fail_at(p, p->start, "tag '%.100s' needs a name behind it", name);
	if (close)
		return fail_at(p, p->start, "unknown tag '%.100s'; did you mean %s?", name, close);
	return fail_at(p, p->start,
		       "unknown tag '%.100s'; GET /v1/profile/tags lists the known ones", name);
}

static int take_tag(struct filter_parser *p, struct predicate *leaf)
{
	const struct tag_info *t;

	if (p->token != T_WORD && p->token != T_TAG)
		return expected(p, "a tag");
	t = query_tag_lookup(p->word.data ? p->word.data : "");
	if (!t)
		return unknown_tag(p);
	if (++p->n_conditions > FILTER_MAX_CONDITIONS)
		return fail_at(p, p->start, "more than %d conditions; IN takes a list",
			       FILTER_MAX_CONDITIONS);
	leaf->tag = xstrdup(query_tag_canonical(t, p->word.data));
	leaf->numeric = t->numeric;
	return next(p);
}

static int take_is_null(struct filter_parser *p, struct predicate *leaf)
{
	int r = next(p);

	leaf->op = PRED_IS_NULL;
	if (!r && is_keyword(p, "not")) {
		leaf->op = PRED_NOT_NULL;
		r = next(p);
	}
	if (r)
		return r;
	return is_keyword(p, "null") ? next(p) : expected(p, "NULL");
}

static int take_compare(struct filter_parser *p, struct predicate *leaf)
{
	static const struct {
		const char *text;
		enum predicate_op op;
	} ops[] = {
		{"=", PRED_EQ}, {"!=", PRED_NE}, {"<>", PRED_NE}, {"<", PRED_LT},
		{">", PRED_GT}, {"<=", PRED_LE}, {">=", PRED_GE},
	};
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (streq(ops[i].text, p->word.data))
			leaf->op = ops[i].op;
	r = next(p);
	return r ? r : take_value(p, leaf);
}

static int take_test(struct filter_parser *p, struct predicate *leaf)
{
	bool not = false;
	int r = 0;

	if (p->token == T_OPERATOR)
		return take_compare(p, leaf);
	if (is_keyword(p, "is"))
		return take_is_null(p, leaf);
	if (is_keyword(p, "not")) {
		not = true;
		r = next(p);
	}
	if (r)
		return r;
	if (is_keyword(p, "in"))
		leaf->op = not ? PRED_NOT_IN : PRED_IN;
	else if (is_keyword(p, "like"))
		leaf->op = not ? PRED_NOT_LIKE : PRED_LIKE;
	else if (is_keyword(p, "regexp"))
		leaf->op = not ? PRED_NOT_REGEXP : PRED_REGEXP;
	else
		return expected(p, not ? "IN, LIKE or REGEXP"
				       : "=, !=, <, >, <=, >=, [NOT] IN, [NOT] LIKE, [NOT] REGEXP "
					 "or IS [NOT] NULL");
	r = next(p);
	if (r)
		return r;
	return leaf->op == PRED_IN || leaf->op == PRED_NOT_IN ? take_list(p, leaf)
							      : take_value(p, leaf);
}

static int take_exist(struct filter_parser *p, struct predicate *leaf)
{
	int r = next(p);

	leaf->op = PRED_NOT_NULL;
	if (!r)
		r = take_punct(p, '(', "'(' after exist");
	if (!r)
		r = take_tag(p, leaf);
	return r ? r : take_punct(p, ')', "')'");
}

static int parse_or(struct filter_parser *p, struct predicate **ret);

static int parse_group(struct filter_parser *p, struct predicate **ret)
{
	_cleanup_(predicate_freep) struct predicate *inner = NULL;
	int r = next(p);

	if (!r)
		r = parse_or(p, &inner);
	if (!r)
		r = take_punct(p, ')', "AND, OR or ')'");
	if (r)
		return r;
	*ret = TAKE_PTR(inner);
	return 0;
}

static int parse_leaf(struct filter_parser *p, struct predicate **ret)
{
	_cleanup_(predicate_freep) struct predicate *leaf = predicate_new(PRED_FALSE);
	int r;

	if (is_keyword(p, "exist")) {
		r = take_exist(p, leaf);
	} else {
		r = take_tag(p, leaf);
		if (!r)
			r = take_test(p, leaf);
	}
	if (r)
		return r;
	*ret = TAKE_PTR(leaf);
	return 0;
}

static int parse_not(struct filter_parser *p, struct predicate **ret)
{
	_cleanup_(predicate_freep) struct predicate *inner = NULL;
	struct predicate * not ;
	int r;

	if (++p->depth > FILTER_MAX_DEPTH)
		return fail_at(p, p->start, "nested deeper than %d", FILTER_MAX_DEPTH);
	if (is_punct(p, '(')) {
		r = parse_group(p, ret);
	} else if (is_keyword(p, "not")) {
		r = next(p);
		if (!r)
			r = parse_not(p, &inner);
		if (r)
			return r;
		not = predicate_new(PRED_NOT);
		add_child(not, TAKE_PTR(inner));
		*ret = not ;
	} else {
		r = parse_leaf(p, ret);
	}
	p->depth--;
	return r;
}

typedef int parse_fn(struct filter_parser *p, struct predicate **ret);

/* Parses: inner {keyword inner} */
static int parse_list(struct filter_parser *p, const char *keyword, enum predicate_op op,
		      parse_fn *inner, struct predicate **ret)
{
	_cleanup_(predicate_freep) struct predicate *list = NULL, *one = NULL;
	int r = inner(p, &one);

	while (!r && is_keyword(p, keyword)) {
		if (!list) {
			list = predicate_new(op);
			add_child(list, TAKE_PTR(one));
		}
		r = next(p);
		if (!r)
			r = inner(p, &one);
		if (!r)
			add_child(list, TAKE_PTR(one));
	}
	if (r)
		return r;
	*ret = list ? TAKE_PTR(list) : TAKE_PTR(one);
	return 0;
}

static int parse_and(struct filter_parser *p, struct predicate **ret)
{
	return parse_list(p, "and", PRED_AND, parse_not, ret);
}

static int parse_or(struct filter_parser *p, struct predicate **ret)
{
	return parse_list(p, "or", PRED_OR, parse_and, ret);
}

int query_filter_parse(const char *text, struct predicate **ret, struct field_error *reterr)
{
	_cleanup_(predicate_freep) struct predicate *root = NULL;
	struct filter_parser p = {.text = text ? text : "", .err = reterr};
	int r;

	if (strlen(p.text) > FILTER_MAX_BYTES)
		return fail_at(&p, FILTER_MAX_BYTES, "longer than %d bytes", FILTER_MAX_BYTES);
	r = next(&p);
	if (!r && p.token != T_END) {
		r = parse_or(&p, &root);
		if (!r && p.token != T_END)
			r = expected(&p, "AND, OR or the end");
	}
	buf_done(&p.word);
	if (r)
		return r;
	*ret = TAKE_PTR(root);
	return 0;
}
